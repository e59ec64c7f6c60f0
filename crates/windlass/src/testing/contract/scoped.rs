//! A store for one tenant: for every verb, what it does with the tenant's own and with another's.
//!
//! What is read is read again with the first wall taken down, where the store has a second, and with
//! the second taken down.

mod forbidden;
mod reads;
mod workers;
mod writes;

use std::sync::Arc;

use windlass_core::schedule::{Cadence, Timing};
use windlass_core::{
    Call, Decision, RunId, RunState, ScheduleName, StepChange, StepKind, StepName, StepResult,
    StepWrite, TaskId, TaskIndex,
};

use super::bench::{Bench, failure, hold, json, seconds, success, tenant, workflow_name};
use crate::store::{
    ClaimRequest, Claimed, NewRun, NewSchedule, Recording, RetentionRule, ScheduleKey, ScopedStore,
    StoreError,
};

pub(crate) use self::forbidden::what_all_tenants_share_is_not_for_one;
pub(crate) use self::reads::{
    nothing_of_another_tenant_is_read, whoever_reads_why_learns_nothing_of_others,
};
pub(crate) use self::workers::{
    a_worker_of_a_tenant_is_no_other_worker, a_worker_of_a_tenant_works_for_it_alone,
    what_a_worker_says_of_others_tasks_is_of_none,
    why_tells_a_tenant_nothing_of_the_workers_of_others,
};
pub(crate) use self::writes::{
    nothing_of_another_tenant_is_changed,
    what_a_program_declares_no_more_is_disabled_for_its_tenant_alone,
    what_is_started_is_the_tenants,
};

/// The list of cases, handed to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! scoped_contract_cases {
    ($to:ident [$($argument:tt)*]) => {
        $crate::$to! {
            [$($argument)*]
            scoped {
                nothing_of_another_tenant_is_read
                whoever_reads_why_learns_nothing_of_others
                nothing_of_another_tenant_is_changed
                what_a_program_declares_no_more_is_disabled_for_its_tenant_alone
                what_is_started_is_the_tenants
                what_all_tenants_share_is_not_for_one
                a_worker_of_a_tenant_works_for_it_alone
                why_tells_a_tenant_nothing_of_the_workers_of_others
                a_worker_of_a_tenant_is_no_other_worker
                what_a_worker_says_of_others_tasks_is_of_none
            }
        }
    };
}

/// Makes one test of every case of a store for one tenant.
#[macro_export]
macro_rules! scoped_contract {
    ($make:expr) => {
        $crate::scoped_contract_cases! { store_contract_tests [$make] }
    };
}

/// What a tenant has.
struct Goods {
    /// A run that failed, with a dead letter and a step.
    failed: RunId,
    /// One of which the task is ready.
    ready: RunId,
    /// One of which a task is held.
    held: Claimed,
    /// One that is gone and archived.
    archived: RunId,
    schedule: ScheduleKey,
}

impl Goods {
    fn task(&self) -> TaskId {
        TaskId { run: self.failed, index: TaskIndex(0) }
    }
}

fn step(value: &str) -> StepWrite {
    let name = StepName::new("charge").expect("it is a name");
    let change = StepChange::Done { number: 1, result: StepResult::Value(json(value)) };
    StepWrite { call: Call(1), name, kind: StepKind::Step, key: None, change }
}

fn key(whose: &str) -> ScheduleKey {
    let name = ScheduleName::new("nightly").expect("it is a name");
    ScheduleKey { tenant: tenant(whose), name }
}

fn schedule(whose: &str) -> NewSchedule {
    let cadence = Cadence::every(seconds(60)).expect("it is one");
    NewSchedule {
        key: key(whose),
        workflow: workflow_name("w"),
        version: windlass_core::Version::FIRST,
        input: json("1"),
        priority: windlass_core::Priority::default(),
        timing: Timing::new(cadence),
        owner: None,
    }
}

/// Gives a tenant some of everything.
async fn fill(bench: &Bench<'_>, whose: &str) -> Goods {
    let worker = bench.worker_for(whose).await;
    let own = |limit| ClaimRequest { tenant: Some(tenant(whose)), ..worker.request(limit) };
    let start = || bench.start_run(NewRun { tenant: tenant(whose), ..bench.new_run("w") });
    let claim = async || {
        let mut claimed = bench.store.claim(own(1)).await.expect("it lives");
        claimed.pop().expect("a task is ready")
    };
    let archived = start().await;
    let task = claim().await;
    bench.accept(&task, success()).await;
    bench.may_prune();
    bench.advance(seconds(1)).await;
    let rule = RetentionRule::new(RunState::Succeeded, std::time::Duration::ZERO);
    let rule = RetentionRule { archives: true, ..rule };
    bench.store.set_retention(rule).await.expect("it makes sense");
    bench.store.prune(100).await.expect("pruning works");
    let failed = start().await;
    let task = claim().await;
    let steps = vec![step("\"secret\"")];
    bench.store.record(vec![Recording { held: hold(&task), steps }]).await.expect("it is held");
    bench.accept(&task, Decision::Fail(failure())).await;
    let running = start().await;
    let held = claim().await;
    assert_eq!(held.task.run, running);
    let ready = start().await;
    bench.store.put_schedule(schedule(whose)).await.expect("it makes sense");
    let run = bench.run_id();
    bench.store.trigger_schedule(key(whose), run).await.expect("it is there");
    bench.store.cancel_run(run, None).await.expect("it is there");
    Goods { failed, ready, held, archived, schedule: key(whose) }
}

/// A store with two tenants in it, and what is theirs.
async fn two(bench: &Bench<'_>) -> (Goods, Goods) {
    bench.register("w", "a").await;
    (fill(bench, "acme").await, fill(bench, "zenith").await)
}

/// The store of the tenant `acme`.
fn acme(bench: &Bench<'_>) -> Arc<ScopedStore> {
    Arc::new(ScopedStore::new(Arc::clone(&bench.store), tenant("acme")))
}

/// The same, as it is and with one wall or the other taken down.
fn walls(bench: &Bench<'_>) -> Vec<(&'static str, Arc<ScopedStore>)> {
    let mut all = vec![("both walls", acme(bench))];
    #[cfg(feature = "planted-bugs")]
    {
        let (store, whose) = (&bench.store, tenant("acme"));
        if store.walled(&whose).is_some() {
            let second = ScopedStore::without_predicate(Arc::clone(store), whose.clone());
            all.push(("the second wall", Arc::new(second)));
        }
        let first = ScopedStore::without_wall(Arc::clone(store), whose);
        all.push(("the first wall", Arc::new(first)));
    }
    all
}

/// There is no such run.
fn no_run(run: RunId) -> StoreError {
    StoreError::NotFound(format!("run {run}"))
}
