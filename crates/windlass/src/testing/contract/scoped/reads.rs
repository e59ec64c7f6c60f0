//! Reading.

use windlass_core::why::Reason;
use windlass_core::{Limit, RunId, TaskName};

use super::super::bench::{Bench, seconds, tenant};
use super::super::lanes::limited;
use super::{Goods, acme, two, walls};
use crate::store::{
    ClaimRequest, DeadLetterFilter, NewRun, RunFilter, ScheduleFilter, ScheduleStore, ScopedStore,
    Store, StoreError, WorkflowFilter,
};

pub(crate) async fn nothing_of_another_tenant_is_read(bench: &Bench<'_>) {
    let (own, other) = two(bench).await;
    for (which, scope) in walls(bench) {
        println!("{which}");
        see_own(&scope, &own).await;
        see_nothing(&scope, &other).await;
        see_lists(&scope, &own).await;
    }
    for (_, scope) in walls(bench).into_iter().filter(|(which, _)| *which != "the second wall") {
        name_another(&scope).await;
    }
    #[cfg(feature = "planted-bugs")]
    see_all_without_walls(bench, &other).await;
}

/// With both walls down everything is seen: what is asserted above depends on them.
#[cfg(feature = "planted-bugs")]
async fn see_all_without_walls(bench: &Bench<'_>, other: &Goods) {
    let open = ScopedStore::without_walls(std::sync::Arc::clone(&bench.store), tenant("acme"));
    assert!(open.get_run(other.failed).await.expect("reading works").is_some());
    assert!(!open.list_tasks(other.failed, None, 9).await.expect("reading works").is_empty());
    assert!(open.get_task(other.failed, name()).await.expect("reading works").is_some());
    assert!(!open.list_events(other.failed, None, 9).await.expect("reading works").is_empty());
    assert!(!open.list_steps(other.task(), None, 9).await.expect("reading works").is_empty());
    assert!(open.why(other.failed, None).await.expect("reading works").is_some());
    assert!(open.get_archived_run(other.archived).await.expect("reading works").is_some());
    let schedule = open.get_schedule(other.schedule.clone()).await.expect("reading works");
    assert!(schedule.is_some());
    assert_eq!(open.list_fires(other.schedule.clone(), 9).await.expect("reading works").len(), 1);
    let runs = open.list_runs(RunFilter::default()).await.expect("reading works").runs;
    assert!(runs.iter().any(|run| run.id == other.failed));
    let letters = open.list_dead_letters(DeadLetterFilter::default(), None, 9).await;
    assert_eq!(letters.expect("reading works").letters.len(), 2);
    let schedules = open.list_schedules(ScheduleFilter::default()).await.expect("reading works");
    assert_eq!(schedules.schedules.len(), 2);
}

fn name() -> TaskName {
    TaskName::new("a").expect("it is a name")
}

async fn see_own(scope: &ScopedStore, own: &Goods) {
    let run = scope.get_run(own.failed).await.expect("reading works").expect("it is there");
    assert_eq!(run.tenant, tenant("acme"));
    assert_eq!(scope.whose(vec![own.failed]).await, Ok(vec![(own.failed, tenant("acme"))]));
    assert_eq!(scope.list_tasks(own.failed, None, 9).await.expect("reading works").len(), 1);
    assert!(scope.get_task(own.failed, name()).await.expect("reading works").is_some());
    assert!(scope.list_events(own.failed, None, 9).await.expect("reading works").len() > 2);
    assert_eq!(scope.list_steps(own.task(), None, 9).await.expect("reading works").len(), 1);
    assert!(scope.why(own.failed, None).await.expect("reading works").is_some());
    assert!(scope.get_archived_run(own.archived).await.expect("reading works").is_some());
    let schedule = scope.get_schedule(own.schedule.clone()).await.expect("reading works");
    assert!(schedule.is_some());
    let fires = scope.list_fires(own.schedule.clone(), 9).await.expect("reading works");
    assert_eq!(fires.len(), 1);
    for (run, word) in [(own.ready, "ready"), (own.held.task.run, "running")] {
        let task = scope.get_task(run, name()).await.expect("reading works");
        assert_eq!(task.expect("it is there").state.word(), word);
    }
}

async fn see_nothing(scope: &ScopedStore, other: &Goods) {
    let runs = vec![other.failed, other.ready, other.held.task.run];
    assert_eq!(scope.whose(runs.clone()).await, Ok(Vec::new()));
    for run in runs {
        assert_eq!(scope.get_run(run).await, Ok(None));
        assert_eq!(scope.list_tasks(run, None, 9).await, Ok(Vec::new()));
        assert_eq!(scope.get_task(run, name()).await, Ok(None));
        assert_eq!(scope.list_events(run, None, 9).await, Ok(Vec::new()));
        assert_eq!(scope.why(run, None).await, Ok(None));
        assert_eq!(scope.why(run, Some(name())).await, Ok(None));
        let letters = scope.list_dead_letters(DeadLetterFilter::of_run(run), None, 9).await;
        assert_eq!(letters.expect("reading works").letters, []);
    }
    assert_eq!(scope.list_steps(other.task(), None, 9).await, Ok(Vec::new()));
    assert_eq!(scope.get_archived_run(other.archived).await, Ok(None));
    assert_eq!(scope.get_schedule(other.schedule.clone()).await, Ok(None));
    let missing = Err(other.schedule.not_found());
    assert_eq!(scope.list_fires(other.schedule.clone(), 9).await, missing);
}

async fn see_lists(scope: &ScopedStore, own: &Goods) {
    let runs = scope.list_runs(RunFilter::default()).await.expect("reading works").runs;
    assert_eq!(runs.len(), 4, "three that are there and the one that was triggered");
    assert!(runs.iter().all(|run| run.tenant == tenant("acme")));
    // Pages are as full as they would be alone.
    let first = RunFilter { limit: 2, ..RunFilter::default() };
    let page = scope.list_runs(first.clone()).await.expect("reading works");
    assert!(page.runs.len() == 2 && page.next.is_some());
    let rest = scope.list_runs(RunFilter { after: page.next, ..first }).await;
    let rest = rest.expect("reading works");
    assert!(rest.runs.len() == 2 && rest.next.is_none());
    let letters = scope.list_dead_letters(DeadLetterFilter::default(), None, 9).await;
    let letters = letters.expect("reading works").letters;
    let of: Vec<RunId> = letters.iter().map(|letter| letter.task.run).collect();
    assert_eq!(of, [own.failed]);
    let schedules = scope.list_schedules(ScheduleFilter::default()).await.expect("reading works");
    assert_eq!(schedules.schedules.len(), 1);
    assert_eq!((schedules.next, schedules.unreadable), (None, Vec::new()));
    // Workflows are no tenant's.
    let workflows = scope.list_workflows(WorkflowFilter::default()).await;
    assert_eq!(workflows.expect("reading works").workflows.len(), 1);
    assert!(scope.list_retention().await.is_ok() && scope.now().await.is_ok());
}

/// Whoever names another tenant is told that it may not, by the names that it said.
async fn name_another(scope: &ScopedStore) {
    let zenith = Some(tenant("zenith"));
    let text = "what is tenant \"zenith\"'s is not for whoever acts for tenant \"acme\"";
    let forbidden = StoreError::Forbidden(text.to_owned());
    let runs = RunFilter { tenant: zenith.clone(), ..RunFilter::default() };
    assert_eq!(scope.list_runs(runs).await, Err(forbidden.clone()));
    let letters = DeadLetterFilter { tenant: zenith.clone(), ..DeadLetterFilter::default() };
    assert_eq!(scope.list_dead_letters(letters, None, 9).await, Err(forbidden.clone()));
    let schedules = ScheduleFilter { tenant: zenith, ..ScheduleFilter::default() };
    assert_eq!(scope.list_schedules(schedules).await, Err(forbidden));
}

pub(crate) async fn whoever_reads_why_learns_nothing_of_others(bench: &Bench<'_>) {
    let definition = limited("w", 1, &[("a", vec![Limit::of(1).across_tenants()])]);
    bench.try_register(definition).await.expect("it can be registered");
    bench.register("v", "b").await;
    let start = |workflow: &str, whose: &str| {
        bench.start_run(NewRun { tenant: tenant(whose), ..bench.new_run(workflow) })
    };
    let theirs = start("w", "zenith").await;
    let waiting = start("w", "acme").await;
    start("v", "zenith").await;
    start("v", "zenith").await;
    let ready = start("v", "acme").await;
    let worker = bench.worker_for("zenith").await;
    let claim = ClaimRequest { tenant: Some(tenant("zenith")), ..worker.request(1) };
    bench.store.claim(claim).await.expect("it lives");
    bench.advance(seconds(1)).await;
    let scope = acme(bench);
    let why = scope.why(waiting, None).await.expect("reading works").expect("it is there");
    let text = format!("{why:?}");
    assert!(!text.contains(&theirs.to_string()), "{text}");
    let why = scope.why(ready, None).await.expect("reading works").expect("it is there");
    for reason in why.tasks.iter().flat_map(|task| &task.reasons) {
        if let Reason::Ready { own_before, all_before, .. } = reason {
            assert_eq!((own_before.at_least, all_before.at_least), (0, 0), "{why:?}");
        }
    }
}
