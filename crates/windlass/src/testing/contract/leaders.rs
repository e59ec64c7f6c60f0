//! Who does the background duties: one process per duty and term.

use std::time::Duration;

use windlass_core::{CandidateId, Term};

use super::bench::{Bench, LEASE, TICK, seconds};
use crate::store::{
    Candidacy, Duty, LeaderRecord, Mandate, RetentionRule, Standing, StoreError, Sweep, Tallies,
    Tally,
};

const TTL: Duration = Duration::from_secs(10);
const ROTATION: Duration = Duration::from_secs(25);

/// A process that offers to do the duties.
struct Process<'a> {
    bench: &'a Bench<'a>,
    id: CandidateId,
    name: String,
    rotation: Option<Duration>,
}

impl<'a> Process<'a> {
    fn new(bench: &'a Bench<'a>, number: u128) -> Self {
        let id = CandidateId::from_random(number);
        Process { bench, id, name: format!("process-{number}"), rotation: None }
    }

    fn rotating(bench: &'a Bench<'a>, number: u128) -> Self {
        Process { rotation: Some(ROTATION), ..Process::new(bench, number) }
    }

    async fn lead_with(&self, tallies: Tallies) -> Standing {
        let (candidate, name, rotation) = (self.id, self.name.clone(), self.rotation);
        let candidacy = Candidacy { candidate, name, ttl: TTL, rotation, tallies };
        self.bench.store.lead(candidacy).await.expect("campaigning works")
    }

    async fn lead(&self) -> Standing {
        self.lead_with(Tallies::new()).await
    }

    async fn resign(&self) {
        self.bench.store.resign(self.id, Tallies::new()).await.expect("resigning works");
    }

    fn leads(&self, standing: &Standing) -> Vec<Duty> {
        let mine = standing.leaders.iter().filter(|leader| leader.is_led_by(self.id));
        mine.map(|leader| leader.duty).collect()
    }

    async fn sweep(&self, duty: Duty, term: Term) -> Result<Sweep, StoreError> {
        self.bench.store.sweep(Mandate { duty, candidate: self.id, term }, 100).await
    }
}

async fn leaders(bench: &Bench<'_>) -> Vec<LeaderRecord> {
    let leaders = bench.store.list_leaders().await.expect("reading works");
    assert_eq!(leaders.iter().map(|leader| leader.duty).collect::<Vec<_>>(), Duty::ALL);
    leaders
}

async fn terms(bench: &Bench<'_>) -> Vec<u64> {
    leaders(bench).await.iter().map(|leader| leader.term.0).collect()
}

fn over(duty: Duty, term: Term) -> Result<Sweep, StoreError> {
    Err(StoreError::TermOver { duty, term })
}

pub(crate) async fn a_duty_nobody_ever_did_is_led_by_nobody(bench: &Bench<'_>) {
    for leader in leaders(bench).await {
        assert_eq!(leader, LeaderRecord::vacant(leader.duty));
    }
    let nobody = Process::new(bench, 1);
    assert_eq!(nobody.sweep(Duty::Reap, Term(0)).await, over(Duty::Reap, Term(0)));
}

pub(crate) async fn the_first_candidate_leads_and_the_second_does_not(bench: &Bench<'_>) {
    let (first, second) = (Process::new(bench, 1), Process::new(bench, 2));
    let now = bench.now().await;
    let standing = first.lead().await;
    assert_eq!(first.leads(&standing), Duty::ALL);
    assert_eq!(second.leads(&second.lead().await), []);
    for leader in leaders(bench).await {
        let holder = leader.holder.expect("someone leads");
        assert_eq!((leader.term, holder.candidate), (Term(1), first.id));
        assert_eq!(holder.name, first.name);
        assert_eq!((holder.since, holder.renewed_at), (now, now));
        assert_eq!((holder.until, holder.is_given_up), (now + TTL, false));
        assert_eq!(holder.rotates_at, None);
    }
    let sweep = first.sweep(Duty::PromoteDue, Term(1)).await;
    assert_eq!(sweep, bench.swept(0, None).await);
    for term in [0, 1, 2] {
        let term = Term(term);
        assert_eq!(second.sweep(Duty::Reap, term).await, over(Duty::Reap, term));
    }
}

pub(crate) async fn no_duty_is_done_without_its_mandate(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let run = bench.start("w").await;
    bench.succeed(&bench.worker().await.claim_one().await).await;
    let state = windlass_core::RunState::Succeeded;
    let rule = RetentionRule {
        workflow: None,
        state,
        keep_for: TICK,
        keep_key_for: Duration::ZERO,
        archives: false,
        with_dead_letters: false,
    };
    bench.store.set_retention(rule).await.expect("it can be set");
    bench.advance(TICK).await;
    let (leader, other) = (Process::new(bench, 1), Process::new(bench, 2));
    leader.lead().await;
    for duty in Duty::ALL {
        assert_eq!(other.sweep(duty, Term(1)).await, over(duty, Term(1)), "of another");
        assert_eq!(leader.sweep(duty, Term(2)).await, over(duty, Term(2)), "of another term");
    }
    assert!(bench.store.get_run(run).await.expect("reading works").is_some(), "it is kept");
}

pub(crate) async fn a_leader_that_renews_keeps_its_term(bench: &Bench<'_>) {
    let (first, second) = (Process::new(bench, 1), Process::new(bench, 2));
    let since = bench.now().await;
    first.lead().await;
    for _ in 0..3 {
        bench.advance(TTL - TICK).await;
        assert_eq!(second.leads(&second.lead().await), []);
        assert_eq!(first.leads(&first.lead().await), Duty::ALL);
    }
    let now = bench.now().await;
    for leader in leaders(bench).await {
        let holder = leader.holder.expect("someone leads");
        assert_eq!((leader.term, holder.since, holder.renewed_at), (Term(1), since, now));
    }
}

pub(crate) async fn a_leader_that_is_not_heard_of_is_replaced(bench: &Bench<'_>) {
    let (first, second) = (Process::new(bench, 1), Process::new(bench, 2));
    first.lead().await;
    bench.advance(TTL).await;
    assert_eq!(second.leads(&second.lead().await), Duty::ALL);
    assert_eq!(first.leads(&first.lead().await), []);
    assert_eq!(terms(bench).await, [2; Duty::ALL.len()]);
}

pub(crate) async fn a_late_leader_that_nobody_replaced_goes_on(bench: &Bench<'_>) {
    let (first, second) = (Process::new(bench, 1), Process::new(bench, 2));
    first.lead().await;
    bench.advance(3 * TTL).await;
    assert_eq!(first.sweep(Duty::Reap, Term(1)).await.map(|sweep| sweep.moved), Ok(0));
    assert_eq!(first.leads(&first.lead().await), Duty::ALL);
    assert_eq!(terms(bench).await, [1; Duty::ALL.len()]);
    assert_eq!(second.leads(&second.lead().await), []);
}

/// Lets time pass while the leader renews its terms.
async fn renew_for(time: Duration, leader: &Process<'_>) {
    let mut left = time;
    while !left.is_zero() {
        let step = left.min(TTL / 2);
        leader.bench.advance(step).await;
        assert_eq!(leader.leads(&leader.lead().await), Duty::ALL);
        left -= step;
    }
}

pub(crate) async fn a_leader_that_rotates_is_replaced_when_its_time_is_over(bench: &Bench<'_>) {
    let (first, second) = (Process::rotating(bench, 1), Process::rotating(bench, 2));
    let mut pair = [&first, &second];
    first.lead().await;
    for term in 1..4 {
        let [leader, rival] = pair;
        let since = bench.now().await;
        renew_for(ROTATION - TICK, leader).await;
        assert_eq!(rival.leads(&rival.lead().await), [], "its time is not over");
        bench.advance(TICK).await;
        assert_eq!(rival.leads(&rival.lead().await), Duty::ALL);
        assert_eq!(leader.leads(&leader.lead().await), [], "it has no time of its own any more");
        assert_eq!(terms(bench).await, [term + 1; Duty::ALL.len()]);
        for duty in Duty::ALL {
            assert_eq!(leader.sweep(duty, Term(term)).await, over(duty, Term(term)));
        }
        for record in leaders(bench).await {
            let holder = record.holder.expect("someone leads");
            assert_eq!(holder.since, since + ROTATION);
            assert_eq!(holder.rotates_at, Some(since + 2 * ROTATION), "its time is as long");
        }
        pair.reverse();
    }
}

pub(crate) async fn a_leader_that_rotates_goes_on_while_it_is_alone(bench: &Bench<'_>) {
    let (first, late) = (Process::rotating(bench, 1), Process::new(bench, 2));
    let since = bench.now().await;
    first.lead().await;
    renew_for(3 * ROTATION, &first).await;
    assert_eq!(terms(bench).await, [1; Duty::ALL.len()]);
    for record in leaders(bench).await {
        assert_eq!(record.holder.and_then(|it| it.rotates_at), Some(since + ROTATION));
    }
    assert!(first.sweep(Duty::Reap, Term(1)).await.is_ok());
    // Whoever comes then has waited long enough, and leads by its own settings.
    assert_eq!(late.leads(&late.lead().await), Duty::ALL);
    for record in leaders(bench).await {
        assert_eq!(record.holder.and_then(|it| it.rotates_at), None);
    }
    renew_for(3 * ROTATION, &late).await;
    assert_eq!(first.leads(&first.lead().await), []);
}

pub(crate) async fn a_leader_that_was_replaced_changes_nothing(bench: &Bench<'_>) {
    bench.register("w", "nap~1000").await;
    let run = bench.start("w").await;
    bench.register("v", "a").await;
    let held = bench.start("v").await;
    bench.worker().await.claim_one().await;
    let (first, second) = (Process::new(bench, 1), Process::new(bench, 2));
    first.lead().await;
    bench.advance(TTL.max(LEASE)).await;
    second.lead().await;
    for duty in Duty::ALL {
        assert_eq!(first.sweep(duty, Term(1)).await, over(duty, Term(1)));
        // Neither with the term of its successor.
        assert_eq!(first.sweep(duty, Term(2)).await, over(duty, Term(2)));
    }
    assert_eq!(bench.states(run).await, "scheduled");
    assert_eq!(bench.states(held).await, "running");
    for duty in Duty::ALL {
        assert_eq!(second.sweep(duty, Term(1)).await, over(duty, Term(1)));
        let moved = match duty {
            Duty::PromoteDue | Duty::Reap => Some(1),
            Duty::Prune | Duty::Schedules => Some(0),
            // How much there is to add up or to look at is the store's own matter.
            Duty::Rollup | Duty::Audit => None,
        };
        let swept = second.sweep(duty, Term(2)).await.expect("its leader sweeps").moved;
        assert_eq!(moved.unwrap_or(swept), swept, "{duty}");
    }
    assert_eq!(bench.states(run).await, "succeeded");
    assert_eq!(bench.states(held).await, "ready");
}

pub(crate) async fn a_duty_that_was_given_up_is_free_at_once(bench: &Bench<'_>) {
    let (first, second) = (Process::new(bench, 1), Process::new(bench, 2));
    let mut hints = bench.store.leader_hints();
    first.lead().await;
    second.resign().await;
    assert_eq!(second.leads(&second.lead().await), [], "it had nothing to give up");
    first.resign().await;
    hints.changed().await;
    for leader in leaders(bench).await {
        assert!(leader.holder.is_some_and(|it| it.is_given_up && it.candidate == first.id));
    }
    assert_eq!(first.sweep(Duty::Reap, Term(1)).await, over(Duty::Reap, Term(1)));
    assert_eq!(second.leads(&second.lead().await), Duty::ALL);
    // What comes late, or twice, takes nothing from its successor.
    first.resign().await;
    assert_eq!(second.leads(&second.lead().await), Duty::ALL);
    assert_eq!(terms(bench).await, [2; Duty::ALL.len()]);
}

pub(crate) async fn whoever_comes_back_begins_another_term(bench: &Bench<'_>) {
    let first = Process::new(bench, 1);
    for term in 1..4 {
        let standing = first.lead().await;
        assert_eq!(first.leads(&standing), Duty::ALL);
        assert_eq!(terms(bench).await, [term; Duty::ALL.len()]);
        first.resign().await;
    }
}

pub(crate) async fn candidates_that_race_make_one_leader(bench: &Bench<'_>) {
    for round in 1..6 {
        let processes: Vec<_> = (0..5).map(|one| Process::new(bench, round * 10 + one)).collect();
        futures_util::future::join_all(processes.iter().map(Process::lead)).await;
        // One that found the rows locked was given nothing, so someone asks again.
        processes[0].lead().await;
        let records = leaders(bench).await;
        for leader in &records {
            let led = processes.iter().filter(|one| leader.is_led_by(one.id)).count();
            assert_eq!(led, 1, "{records:#?}");
            assert_eq!(u128::from(leader.term.0), round);
        }
        bench.advance(TTL).await;
    }
}

pub(crate) async fn what_was_done_is_added_up_over_terms(bench: &Bench<'_>) {
    let (first, second) = (Process::new(bench, 1), Process::new(bench, 2));
    let tallies = |tally: &Tally| Tallies::from([(Duty::Reap, tally.clone())]);
    let at = bench.now().await;
    let mut tally = Tally { runs: 3, items: 20, last_run_at: Some(at), ..Tally::default() };
    first.lead_with(tallies(&tally)).await;
    tally.note_error("it was away");
    first.lead_with(tallies(&tally)).await;
    // Whoever does not lead is not heard.
    second.lead_with(tallies(&tally)).await;
    let last = tallies(&Tally { runs: 1, ..Tally::default() });
    bench.store.resign(first.id, last).await.expect("resigning works");
    second.lead().await;
    let [promote, reap, ..] = &leaders(bench).await[..] else { panic!("there are more duties") };
    assert_eq!((promote.runs, promote.last_run_at, promote.last_error.as_deref()), (0, None, None));
    assert_eq!((reap.runs, reap.items, reap.errors), (7, 40, 1));
    assert_eq!((reap.last_run_at, reap.last_error.as_deref()), (Some(at), Some("it was away")));
}

pub(crate) async fn whoever_leads_is_told_when_something_is_due(bench: &Bench<'_>) {
    let process = Process::new(bench, 1);
    let outlook = process.lead().await.outlook;
    let now = bench.now().await;
    assert_eq!((outlook.at, outlook.promote_at, outlook.reap_at), (now, None, None));
    bench.register("w", "nap~5000").await;
    bench.start("w").await;
    bench.register("v", "a").await;
    bench.start("v").await;
    let worker = bench.worker().await;
    let idle = process.lead().await.outlook;
    assert_eq!((idle.promote_at, idle.reap_at), (Some(now + seconds(5)), None));
    worker.claim_one().await;
    let outlook = bench.store.outlook().await.expect("looking works");
    assert_eq!(outlook.promote_at, Some(now + seconds(5)));
    assert_eq!(outlook.reap_at, Some(now + LEASE));
    assert_eq!(process.lead().await.outlook, outlook);
    bench.advance(LEASE + seconds(5)).await;
    let late = bench.store.outlook().await.expect("looking works");
    assert_eq!((late.promote_at, late.reap_at), (outlook.promote_at, outlook.reap_at));
    assert_eq!((bench.promote().await, bench.reap().await), (1, 1));
    let outlook = bench.store.outlook().await.expect("looking works");
    assert_eq!((outlook.promote_at, outlook.reap_at), (None, None));
}
