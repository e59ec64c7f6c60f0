//! What is left in the tables when runs go, and what keeps them from going.

use std::sync::Arc;
use std::time::Duration;

use windlass::store::{PRUNE_TASKS_MAX, RetentionRule, Store};
use windlass_core::{Definition, RunId, RunState};

use super::driver::{new_run, start, workflow};
use super::{Postgres, postgres};

/// Starts runs of a workflow and cancels them: they are over, whatever tasks they have.
async fn cancelled(test: &Postgres, workflow: &Arc<Definition>, count: usize) -> Vec<RunId> {
    test.store.register(Arc::clone(workflow)).await.expect("it can be registered");
    let mut runs = Vec::new();
    for _ in 0..count {
        let new = new_run(workflow);
        runs.push(new.id);
        let answers = test.store.start_runs(vec![new]).await.expect("the store is there");
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        // The next one is younger.
        test.clock.advance(Duration::from_secs(1));
    }
    for run in &runs {
        test.store.cancel_run(*run, None).await.expect("it is there");
    }
    test.store.promote_due(1_000).await.expect("promoting works");
    runs
}

async fn keep_none(test: &Postgres, archives: bool) {
    let rule = RetentionRule::new(RunState::Cancelled, Duration::ZERO);
    let rule = RetentionRule { archives, ..rule };
    test.store.set_retention(rule).await.expect("the rule makes sense");
}

async fn number(test: &Postgres, sql: &str) -> i64 {
    let row = test.database.client().await.query_one(sql, &[]).await;
    row.expect("it can be read").get(0)
}

async fn is_there(test: &Postgres, run: RunId) -> bool {
    test.store.get_run(run).await.expect("reading works").is_some()
}

#[tokio::test]
async fn notes_for_runs_that_are_gone_are_dropped() {
    let test = postgres().await;
    let one = workflow("one", &["a"]);
    let run = start(&*test.store, &one).await;
    let client = test.database.client().await;
    let sql = "insert into windlass.staged (run_id, purpose, child_id)
        select gen_random_uuid(), p, case when p = 'child_ended' then gen_random_uuid() end
        from unnest(array['child_ended', 'cancelled', 'lane', 'signalled', 'superseded']) p";
    client.batch_execute(sql).await.expect("the test may do that");
    // One for a run that someone else has locked is kept.
    let sql = "insert into windlass.staged (run_id, purpose) values ($1, 'lane')";
    client.execute(sql, &[run.as_uuid()]).await.expect("the test may do that");
    let lock = "begin; select from windlass.runs for update";
    client.batch_execute(lock).await.expect("nobody has it");
    let sweep = test.store.promote_due(100).await.expect("promoting works");
    assert_eq!(number(&test, "select count(*) from windlass.staged").await, 1);
    assert!(sweep.next_at.is_some(), "that one is looked for again");
    client.batch_execute("rollback").await.expect("it has begun");
    let sweep = test.store.promote_due(100).await.expect("promoting works");
    assert_eq!(number(&test, "select count(*) from windlass.staged").await, 0);
    assert_eq!(sweep.next_at, None, "there is nothing to come back for");
}

#[tokio::test]
async fn a_run_that_cannot_be_archived_does_not_keep_the_others() {
    let test = postgres().await;
    let one = workflow("one", &["a"]);
    let runs = cancelled(&test, &one, 5).await;
    keep_none(&test, true).await;
    let refuse = format!(
        "alter table windlass.archived_runs add constraint not_these
            check (id <> all (array['{}', '{}']::uuid[]))",
        runs[0], runs[3]
    );
    let client = test.database.client().await;
    client.batch_execute(&refuse).await.expect("the test may do that");
    let sweep = test.store.prune(100).await.expect("those that can go do");
    assert_eq!(sweep.moved, 3);
    let sweep = test.store.prune(100).await.expect("it goes on");
    assert_eq!((sweep.moved, sweep.next_at), (0, None), "the pass has ended");
    for (number, run) in runs.iter().enumerate() {
        assert_eq!(is_there(&test, *run).await, [0, 3].contains(&number), "run {number}");
    }
    // What comes later is not kept either.
    let later = cancelled(&test, &one, 2).await;
    assert_eq!(test.store.prune(100).await.map(|sweep| sweep.moved), Ok(2));
    assert!(!is_there(&test, later[0]).await);
}

#[tokio::test]
async fn a_run_that_cannot_be_read_does_not_keep_the_others() {
    let test = postgres().await;
    let one = workflow("one", &["a"]);
    let runs = cancelled(&test, &one, 2).await;
    keep_none(&test, false).await;
    let client = test.database.client().await;
    let sql = "update windlass.runs set workflow = e'a\\tb' where id = $1";
    client.execute(sql, &[runs[0].as_uuid()]).await.expect("the test may do that");
    assert_eq!(test.store.prune(100).await.map(|sweep| sweep.moved), Ok(1));
    assert!(!is_there(&test, runs[1]).await);
}

#[tokio::test]
async fn what_is_too_much_for_one_sweep_goes_with_the_next_of_the_same_pass() {
    let test = postgres().await;
    let tasks: Vec<String> = (0..PRUNE_TASKS_MAX * 2 / 5).map(|it| format!("t{it}")).collect();
    let tasks: Vec<&str> = tasks.iter().map(String::as_str).collect();
    let large = workflow("large", &tasks);
    cancelled(&test, &large, 5).await;
    keep_none(&test, false).await;
    let mut moved = Vec::new();
    loop {
        let sweep = test.store.prune(100).await.expect("pruning works");
        moved.push(sweep.moved);
        if sweep.next_at.is_none() {
            break;
        }
    }
    assert_eq!(moved, [2, 2, 1]);
}

#[tokio::test]
async fn keys_of_what_was_handled_are_forgotten_by_the_duty() {
    let test = postgres().await;
    let client = test.database.client().await;
    let sql = "insert into windlass.handled (tenant, scope, key, run_id, handled_at, expires_at)
        select 'default', 'w/a', 'key ' || n, gen_random_uuid(), clock_timestamp(),
            clock_timestamp() + case when n > 1500 then interval '1 hour' else interval '0' end
        from generate_series(1, 1503) n";
    client.batch_execute(sql).await.expect("the test may do that");
    let sweep = test.store.prune(100).await.expect("pruning works");
    let left = number(&test, "select count(*) from windlass.handled").await;
    assert_eq!(left, 503, "a small batch at a time");
    assert_eq!(sweep.moved, 0, "no run has gone");
    assert!(sweep.next_at.is_some(), "there are more");
    let sweep = test.store.prune(100).await.expect("pruning works");
    assert_eq!(number(&test, "select count(*) from windlass.handled").await, 3);
    assert_eq!(sweep.next_at, None);
}

#[tokio::test]
async fn keys_of_runs_that_are_gone_are_forgotten_in_small_batches() {
    let test = postgres().await;
    let client = test.database.client().await;
    let sql = "insert into windlass.kept_keys (tenant, workflow, key, run_id, expires_at, input)
        select 'default', 'w', 'key ' || n, gen_random_uuid(), '2000-01-01', '1'
        from generate_series(1, 1500) n";
    client.batch_execute(sql).await.expect("the test may do that");
    let sweep = test.store.prune(100).await.expect("pruning works");
    assert_eq!(number(&test, "select count(*) from windlass.kept_keys").await, 500);
    assert!(sweep.next_at.is_some(), "there are more");
    let sweep = test.store.prune(100).await.expect("pruning works");
    assert_eq!(number(&test, "select count(*) from windlass.kept_keys").await, 0);
    assert_eq!(sweep.next_at, None);
}
