//! Candidates and leaders of the background duties at once.

use std::sync::Arc;
use std::time::Duration;

use windlass::store::postgres::PostgresStore;
use windlass::store::{Candidacy, Duty, Mandate, NewRun, Store, StoreError, Tallies};
use windlass_core::{CandidateId, Term};

use super::super::driver::{new_run, workflow};
use super::{Case, Explorer};

const TTL: Duration = Duration::from_secs(10);

fn candidate(number: u128) -> CandidateId {
    CandidateId::from_random(number)
}

/// How many duties a candidate leads after it asked for all.
async fn lead(store: Arc<PostgresStore>, candidate: CandidateId) -> usize {
    let candidacy = Candidacy {
        candidate,
        name: "one".to_owned(),
        ttl: TTL,
        rotation: None,
        tallies: Tallies::new(),
    };
    let standing = store.lead(candidacy).await.expect("campaigning works");
    standing.leaders.iter().filter(|leader| leader.is_led_by(candidate)).count()
}

async fn sweep(store: Arc<PostgresStore>, mandate: Mandate) -> String {
    match store.sweep(mandate, 100).await {
        Ok(sweep) => sweep.moved.to_string(),
        Err(StoreError::TermOver { .. }) => "over".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// A run that is due, and the first candidate's mandate to see to it, whose time to live is
/// over.
async fn late(explorer: &Explorer) -> (Case, Mandate) {
    let one = workflow("one", &["a", "b < a"]);
    explorer.plain.register(one.clone()).await.expect("it can be registered");
    let new = NewRun { delay: Duration::from_secs(1), ..new_run(&one) };
    let run = new.id;
    explorer.plain.start_runs(vec![new]).await.expect("the store is there");
    // Whoever led in the order before does no more.
    explorer.clock.advance(TTL);
    assert_eq!(lead(Arc::clone(&explorer.plain), candidate(1)).await, Duty::ALL.len());
    let leaders = explorer.plain.list_leaders().await.expect("reading works");
    let is_promote = |leader: &&windlass::store::LeaderRecord| leader.duty == Duty::PromoteDue;
    let term = leaders.iter().find(is_promote).map_or(Term(0), |leader| leader.term);
    explorer.clock.advance(TTL);
    let idle = async { String::new() };
    let case = Case::new(run, &one, idle, async { String::new() });
    (case, Mandate { duty: Duty::PromoteDue, candidate: candidate(1), term })
}

/// Tries every order of a pair; answers the pairs of answers that were given.
async fn explore<S: Future<Output = Case>>(
    explorer: &Explorer,
    set_up: impl Fn() -> S,
) -> Vec<String> {
    let answers = explorer.explore(set_up).await;
    answers.into_keys().map(|[left, right]| format!("{left} | {right}")).collect()
}

#[tokio::test]
async fn lead_and_lead() {
    let explorer = Explorer::new().await;
    let answers = explore(&explorer, async || {
        let (case, _) = late(&explorer).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case {
            left: Box::pin(async { lead(left, candidate(2)).await.to_string() }),
            right: Box::pin(async { lead(right, candidate(3)).await.to_string() }),
            ..case
        }
    })
    .await;
    assert_eq!(answers, ["0 | 6", "6 | 0"]);
}

/// A sweep of the old leader is either refused or committed before the next term begins:
/// whoever comes in between is given the other duties only.
#[tokio::test]
async fn sweep_and_take_over() {
    let explorer = Explorer::new().await;
    let answers = explore(&explorer, async || {
        let (case, mandate) = late(&explorer).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case {
            left: Box::pin(sweep(left, mandate)),
            right: Box::pin(async { lead(right, candidate(2)).await.to_string() }),
            ..case
        }
    })
    .await;
    assert_eq!(answers, ["1 | 5", "1 | 6", "over | 6"]);
}

#[tokio::test]
async fn sweep_and_resign() {
    let explorer = Explorer::new().await;
    let answers = explore(&explorer, async || {
        let (case, mandate) = late(&explorer).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        let resign = async move { right.resign(candidate(1), Tallies::new()).await };
        Case {
            left: Box::pin(sweep(left, mandate)),
            right: Box::pin(async {
                resign.await.map_or_else(|e| e.to_string(), |()| "()".into())
            }),
            ..case
        }
    })
    .await;
    assert_eq!(answers, ["1 | ()", "over | ()"]);
}

/// Two sweeps of one leader, as when it asked again because the answer was late.
#[tokio::test]
async fn sweep_and_sweep() {
    let explorer = Explorer::new().await;
    let answers = explore(&explorer, async || {
        let (case, mandate) = late(&explorer).await;
        let (left, right) = (explorer.left.clone(), explorer.right.clone());
        Case {
            left: Box::pin(sweep(left, mandate)),
            right: Box::pin(sweep(right, mandate)),
            ..case
        }
    })
    .await;
    assert_eq!(answers, ["0 | 1", "1 | 0"]);
}
