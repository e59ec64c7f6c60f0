//! A database with runs in all states, made by the store's own verbs.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Client;
use windlass::clock::{Clock, VirtualClock};
use windlass::store::postgres::{AuditOptions, AuditReport, PostgresOptions, PostgresStore, audit};
use windlass::store::{
    Answer, Checkpoint, ClaimRequest, Claimed, Completion, DutyClaim, DutyDeclaration, DutyEnd,
    DutyMandate, DutyOutcome, DutyStore as _, HandlerKey, Held, Hello, Mailbox, NewKeySignal,
    NewRun, NewSchedule, NewSignal, Recording, Release, ScheduleKey, ScheduleStore as _, Signalled,
    Store, TakeSignal, Which, WorkerLink,
};
use windlass_core::definition::{DefinitionDraft, TaskDraft};
use windlass_core::schedule::{Cadence, Timing};
use windlass_core::{
    Call, CandidateId, ClaimSeq, Decision, Definition, DutyName, Failure, FailureCode,
    IdempotencyKey, Limit, Parking, Payload, Priority, QueueName, RetryPolicy, RunId, ScheduleName,
    SignalId, SignalKey, StepChange, StepKind, StepName, StepResult, StepWrite, TaskKind, Tenant,
    Timestamp, Trigger, Version, Wait, WorkerId, WorkflowName,
};

use crate::database::TestDatabase;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What the worker of a task does.
#[derive(Clone, Copy)]
enum Do {
    Succeed,
    Skip,
    Fail,
    Retry,
    Release(Duration),
}

pub(crate) struct Story {
    pub(crate) store: Arc<PostgresStore>,
    clock: Arc<VirtualClock>,
    client: Client,
    claims: u64,
    runs: u128,
    // Dropped last: the database goes with it.
    database: TestDatabase,
}

/// A chain with a sleep, and a task for when it fails: 0 charge, 1 window, 2 ship, 3 apologise.
fn order(name: &str) -> Arc<Definition> {
    let mut ship = TaskDraft::new("ship", TaskKind::Handler).after("window");
    ship.retry = RetryPolicy::exponential().attempts(2);
    ship.priority = Priority::new(7).unwrap();
    let draft = DefinitionDraft::new(name)
        .task(TaskDraft::new("charge", TaskKind::Handler))
        .task(TaskDraft::new("window", TaskKind::Sleep(DAY)).after("charge"))
        .task(ship)
        .task(TaskDraft::new("apologise", TaskKind::OnFailure));
    Arc::new(draft.build().unwrap())
}

/// All triggers: 0 split, 1 left, 2 right, 3 merge, 4 report, 5 note, 6 clean.
pub(crate) fn fan(name: &str) -> Arc<Definition> {
    let task = |name: &str, trigger, parents: &[&str]| {
        let mut task = TaskDraft::new(name, TaskKind::Handler);
        task.trigger = trigger;
        task.parents = parents.iter().map(|parent| (*parent).to_owned()).collect();
        task
    };
    let draft = DefinitionDraft::new(name)
        .task(task("split", Trigger::AllSucceeded, &[]))
        .task(task("left", Trigger::AllSucceeded, &["split"]))
        .task(task("right", Trigger::AllSucceeded, &["split"]))
        .task(task("merge", Trigger::AllSucceeded, &["left", "right"]))
        .task(task("report", Trigger::AnyFailed, &["left"]))
        .task(task("note", Trigger::NoneFailed, &["left", "right"]))
        .task(task("clean", Trigger::AllFinished, &["merge"]));
    Arc::new(draft.build().unwrap())
}

impl Story {
    /// A migrated database without runs.
    pub(crate) async fn empty() -> Self {
        let database = TestDatabase::new().await;
        let client = database.client().await;
        client
            .batch_execute(
                "create function pg_temp.run(name text) returns uuid language sql as
                 'select id from windlass.runs where workflow = name order by id limit 1'",
            )
            .await
            .unwrap();
        let clock = Arc::new(VirtualClock::new(Timestamp::from_micros(1_750_000_000_000_000)));
        let store = PostgresStore::connect(database.url().into()).await.unwrap();
        let store = Arc::new(store.with_clock(clock.clone()));
        Story { store, clock, client, claims: 0, runs: 0, database }
    }

    /// The whole story. Each workflow is named by what becomes of its runs.
    pub(crate) async fn told() -> Self {
        let mut story = Story::empty().await;
        story.tell_scheduled().await;
        story.tell_duties().await;
        story.tell_ended_orders().await;
        story.tell_fans().await;
        story.tell_functions().await;
        story.tell_limited().await;
        story.tell_keys().await;
        story.tell_open_orders().await;
        story.tell_staged().await;
        story
    }

    /// The same, with views of tasks and events that can be written to.
    pub(crate) async fn editable() -> Self {
        let story = Story::told().await;
        story.execute(include_str!("editable.sql")).await;
        story
    }

    /// The same without runs, on the clock of the database.
    pub(crate) async fn on_the_databases_clock() -> Self {
        let story = Story::empty().await;
        let store = Arc::new(PostgresStore::connect(story.database()).await.unwrap());
        Story { store, ..story }
    }

    pub(crate) fn options(&self) -> AuditOptions {
        AuditOptions::new().now(self.clock.now())
    }

    pub(crate) async fn audit(&self) -> AuditReport {
        audit(&self.database(), &self.options()).await.unwrap()
    }

    pub(crate) fn database(&self) -> PostgresOptions {
        self.database.audited_url().into()
    }

    pub(crate) fn url(&self) -> String {
        self.database.url()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) async fn execute(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{error:?}\n{sql}"));
    }

    pub(crate) async fn start(&mut self, definition: &Arc<Definition>, delay: Duration) -> RunId {
        self.store.register(definition.clone()).await.unwrap();
        self.clock.advance(Duration::from_secs(1));
        self.runs += 1;
        let id = RunId::from_parts(self.now(), self.runs);
        let run = NewRun {
            id,
            workflow: definition.name().clone(),
            version: Version::FIRST,
            tenant: Tenant::new(if self.runs.is_multiple_of(2) { "acme" } else { "bolt" }).unwrap(),
            input: Payload::encode(&self.runs).unwrap(),
            key: Some(IdempotencyKey::new(format!("key-{}", self.runs)).unwrap()),
            delay,
            priority: Priority::default(),
            metadata: BTreeMap::new(),
        };
        let started = self.store.start_runs(vec![run]).await.unwrap();
        started.into_iter().next().unwrap().unwrap().run
    }

    async fn claim(&mut self, workflow: &str, lease: Duration) -> Vec<Claimed> {
        let worker = WorkerId::from_random(lease.as_micros());
        let hello = Hello {
            worker,
            name: "worker".to_owned(),
            slots: 100,
            lease,
            definitions: Vec::new(),
            info: Default::default(),
        };
        self.store.join(hello).await.unwrap();
        self.claims += 1;
        let handler =
            HandlerKey { workflow: WorkflowName::new(workflow).unwrap(), version: Version::FIRST };
        let request = ClaimRequest {
            worker,
            seq: ClaimSeq(self.claims),
            queues: [QueueName::new("default").unwrap()].into(),
            handlers: [handler].into(),
            limit: 100,
            ending: 0,
            is_poll: false,
            tenant: None,
        };
        self.store.claim(request).await.unwrap()
    }

    /// Claims what is ready of a workflow and leaves it with a worker that lives long.
    async fn hold(&mut self, workflow: &str) -> Vec<Claimed> {
        let claimed = self.claim(workflow, 100 * DAY).await;
        assert!(!claimed.is_empty(), "nothing of {workflow} is ready");
        claimed
    }

    /// Claims what is ready of a workflow and does the same with all of it, but for the
    /// tasks that are named.
    async fn work(&mut self, workflow: &str, usual: Do, others: &[(&str, Do)]) {
        for claimed in self.hold(workflow).await {
            let name = claimed.spec.name.as_str();
            let other = others.iter().find(|(other, _)| *other == name);
            self.finish(&claimed, other.map_or(usual, |(_, action)| *action)).await;
        }
    }

    async fn finish(&self, claimed: &Claimed, action: Do) {
        let (task, fence) = (claimed.task, claimed.fence);
        let failure = Failure::new(FailureCode::Error, "the bank does not answer");
        let decision = match action {
            Do::Succeed => Decision::Succeed(Payload::encode(&"done").unwrap()),
            Do::Skip => Decision::Skip,
            Do::Fail => Decision::Fail(failure),
            Do::Retry => Decision::Retry { failure, delay: MINUTE },
            Do::Release(delay) => {
                let release = Release { task, fence, delay };
                let answers = self.store.release(vec![release]).await.unwrap();
                assert_eq!(answers, [Answer::Accepted]);
                return;
            }
        };
        let completion = Completion { task, fence, decision };
        assert_eq!(self.store.finish(vec![completion]).await.unwrap(), [Answer::Accepted]);
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.store.promote_due(1_000).await.unwrap();
        self.store.reap(1_000).await.unwrap();
    }

    async fn tell_ended_orders(&mut self) {
        self.start(&order("paid"), Duration::ZERO).await;
        self.work("paid", Do::Retry, &[]).await;
        self.pass(MINUTE).await;
        assert_eq!(self.claim("paid", MINUTE).await.len(), 1);
        self.pass(2 * MINUTE).await;
        self.work("paid", Do::Succeed, &[]).await;
        self.pass(DAY).await;
        self.work("paid", Do::Succeed, &[]).await;

        self.start(&order("declined"), Duration::ZERO).await;
        self.work("declined", Do::Fail, &[]).await;
        self.work("declined", Do::Succeed, &[]).await;

        let run = self.start(&order("mended"), Duration::ZERO).await;
        self.work("mended", Do::Succeed, &[]).await;
        self.pass(DAY).await;
        self.work("mended", Do::Retry, &[]).await;
        self.pass(MINUTE).await;
        self.work("mended", Do::Fail, &[]).await;
        self.work("mended", Do::Succeed, &[]).await;
        assert_eq!(self.store.retry_run(run, 1).await.unwrap(), 2);
        self.hold("mended").await;
    }

    async fn tell_fans(&mut self) {
        self.start(&fan("split-open"), Duration::ZERO).await;
        self.work("split-open", Do::Succeed, &[]).await;
        self.work("split-open", Do::Succeed, &[("right", Do::Release(Duration::ZERO))]).await;

        self.start(&fan("half-failed"), Duration::ZERO).await;
        self.work("half-failed", Do::Succeed, &[]).await;
        self.work("half-failed", Do::Succeed, &[("left", Do::Fail)]).await;
        self.work("half-failed", Do::Succeed, &[]).await;

        self.start(&fan("half-skipped"), Duration::ZERO).await;
        self.work("half-skipped", Do::Succeed, &[]).await;
        self.work("half-skipped", Do::Succeed, &[("left", Do::Skip)]).await;
        self.work("half-skipped", Do::Succeed, &[]).await;

        let run = self.start(&fan("cancelled"), Duration::ZERO).await;
        self.work("cancelled", Do::Succeed, &[]).await;
        self.work("cancelled", Do::Retry, &[("left", Do::Release(Duration::ZERO))]).await;
        self.store.cancel_run(run, Some("nobody wants it".to_owned())).await.unwrap();
    }

    /// Functions that sleep and that wait, with what they remember.
    async fn tell_functions(&mut self) {
        let one = |name: &str| {
            let draft = DefinitionDraft::new(name).task(TaskDraft::new("work", TaskKind::Handler));
            Arc::new(draft.build().unwrap())
        };
        let write = |call, kind, name: &str, change| {
            let name = StepName::new(name).unwrap();
            StepWrite { call: Call(call), name, kind, key: None, change }
        };
        let open = |wait| StepChange::Open { failures: 0, failure: None, wait };
        let key = SignalKey::new("pay_1").unwrap();
        for (name, kind, key) in [
            ("dozing", StepKind::Sleep, None),
            ("listening", StepKind::Signal, None),
            ("expecting", StepKind::Signal, Some(&key)),
        ] {
            let awaits = kind == StepKind::Signal;
            let run = self.start(&one(name), Duration::ZERO).await;
            let id = SignalId::from_random(self.runs);
            let (signal, value) = (StepName::new("early").unwrap(), Payload::default());
            self.store.signal(NewSignal { id, run, name: signal, value }).await.unwrap();
            for claimed in self.hold(name).await {
                let result = StepResult::Value(Payload::encode(&7).unwrap());
                let done = |call| StepChange::Done { number: call, result: result.clone() };
                let steps =
                    (1..=2).map(|call| write(call, StepKind::Step, "step", done(call))).collect();
                let held = Held { task: claimed.task, fence: claimed.fence };
                let recorded = self.store.record(vec![Recording { held, steps }]).await.unwrap();
                assert_eq!(recorded, [Answer::Accepted]);
                let wait = write(3, kind, "go", open(Wait::For(100 * DAY)));
                let steps = vec![StepWrite { key: key.cloned(), ..wait }];
                let decision = Decision::Park(Parking { steps, waits: Vec::new(), awaits });
                let Held { task, fence } = held;
                let completion = Completion { task, fence, decision };
                assert_eq!(self.store.finish(vec![completion]).await.unwrap(), [Answer::Accepted]);
            }
        }
    }

    /// Signals to keys: some that nobody waits for, and one that was taken.
    async fn tell_keys(&mut self) {
        let tenants = [Tenant::new("acme").unwrap(), Tenant::new("bolt").unwrap()];
        for (id, signal, tenant) in
            tenants.iter().flat_map(|tenant| [(1, "early", tenant), (2, "taken", tenant)])
        {
            let name = StepName::new(signal).unwrap();
            let key = SignalKey::new("pay_1").unwrap();
            let to = Mailbox { tenant: tenant.clone(), key, name };
            let (id, value) = (SignalId::from_random(id), Payload::default());
            let signal = NewKeySignal { id, to, value, keep_for: 100 * DAY };
            self.store.signal_key(signal).await.unwrap();
        }
        let draft = DefinitionDraft::new("paying").task(TaskDraft::new("work", TaskKind::Handler));
        self.start(&Arc::new(draft.build().unwrap()), Duration::ZERO).await;
        for claimed in self.hold("paying").await {
            let (key, name) = (SignalKey::new("pay_1").ok(), StepName::new("taken").unwrap());
            let held = Held { task: claimed.task, fence: claimed.fence };
            let (id, value) = (SignalId::from_random(2), Payload::default());
            let which = Which::UpTo(id, 1);
            let take = TakeSignal { held, call: Call(1), name, key, which };
            let taken = self.store.take_signals(vec![take]).await.unwrap();
            assert_eq!(taken, [Ok(Some(Signalled::Value(value)))]);
            let Held { task, fence } = held;
            let decision = Decision::Succeed(Payload::default());
            let completion = Completion { task, fence, decision };
            assert_eq!(self.store.finish(vec![completion]).await.unwrap(), [Answer::Accepted]);
        }
    }

    /// Three runs in a lane with one slot: the first has ended, the second has the slot, and the
    /// third waits for it.
    async fn tell_limited(&mut self) {
        let mut task = TaskDraft::new("work", TaskKind::Handler);
        task.limits = vec![Limit::of(1).across_tenants()];
        let definition = Arc::new(DefinitionDraft::new("limited").task(task).build().unwrap());
        for _ in 0..3 {
            self.start(&definition, Duration::ZERO).await;
        }
        self.work("limited", Do::Succeed, &[]).await;
    }

    /// The orders that are still open when the story ends.
    async fn tell_open_orders(&mut self) {
        self.start(&order("waiting"), Duration::ZERO).await;
        self.work("waiting", Do::Succeed, &[]).await;
        self.start(&order("backoff"), Duration::ZERO).await;
        for claimed in self.hold("backoff").await {
            let held = Held { task: claimed.task, fence: claimed.fence };
            let checkpoint = Checkpoint { held, number: 1, value: Payload::encode(&1).unwrap() };
            let answers = self.store.checkpoint(vec![checkpoint]).await.unwrap();
            assert_eq!(answers, [Answer::Accepted]);
            self.finish(&claimed, Do::Retry).await;
        }
        self.start(&order("delayed"), MINUTE).await;
        self.start(&order("returned"), Duration::ZERO).await;
        self.work("returned", Do::Release(Duration::ZERO), &[]).await;
        self.start(&order("deferred"), Duration::ZERO).await;
        self.work("deferred", Do::Release(MINUTE), &[]).await;
        for _ in 0..4 {
            self.start(&order("fresh"), Duration::ZERO).await;
        }
    }

    /// Two runs as a user's transaction makes them; the second is cancelled.
    async fn tell_staged(&mut self) {
        self.store.register(order("staged")).await.unwrap();
        let sql = format!(
            "with run as (
                insert into windlass.runs (
                    id, definition_id, workflow, version, tenant, open_tasks, created_at, input
                )
                select gen_random_uuid(), d.id, d.workflow, d.version, 'acme', d.open_tasks,
                    'epoch'::timestamptz + {} * interval '1 microsecond', '1'
                from windlass.definitions d, generate_series(1, 2)
                where d.workflow = 'staged'
                returning id, created_at
            ),
            event as (
                insert into windlass.history (run_id, at, lines)
                select r.id, r.created_at, '- run_started - running - -' from run r
            )
            insert into windlass.staged (run_id) select id from run",
            self.now().as_micros()
        );
        self.execute(&sql).await;
        let last = "select max(id::text) from windlass.runs where workflow = 'staged'";
        let id: String = self.client.query_one(last, &[]).await.unwrap().get(0);
        self.store.cancel_run(id.parse().unwrap(), None).await.unwrap();
    }

    /// A schedule that has fired and was triggered, and whose runs are over.
    async fn tell_scheduled(&mut self) {
        let task = TaskDraft::new("note", TaskKind::Handler);
        let definition = DefinitionDraft::new("scheduled").task(task).build().unwrap();
        self.store.register(Arc::new(definition)).await.unwrap();
        let key = ScheduleKey {
            tenant: Tenant::new("acme").unwrap(),
            name: ScheduleName::new("hourly").unwrap(),
        };
        let schedule = NewSchedule {
            key: key.clone(),
            workflow: WorkflowName::new("scheduled").unwrap(),
            version: Version::FIRST,
            input: Payload::default(),
            priority: Priority::default(),
            timing: Timing::new(Cadence::Once(self.now() + Duration::from_micros(1))),
            owner: None,
        };
        self.store.put_schedule(schedule).await.unwrap();
        self.clock.advance(Duration::from_micros(1));
        assert_eq!(self.store.fire_schedules(10).await.unwrap().moved, 1);
        let run = RunId::from_parts(self.now(), 77);
        self.store.trigger_schedule(key.clone(), run).await.unwrap();
        for fire in self.store.list_fires(key, 10).await.unwrap() {
            self.store.cancel_run(fire.result.run().unwrap(), None).await.unwrap();
        }
    }

    /// A duty of a program that failed once, and one that a process is at.
    async fn tell_duties(&self) {
        let declared = |name: &str| DutyDeclaration {
            name: DutyName::new(name).unwrap(),
            every: MINUTE,
            is_new: true,
        };
        let claim = DutyClaim {
            candidate: CandidateId::from_random(5),
            process: "process-5".to_owned(),
            ttl: MINUTE,
            duties: vec![declared("failed"), declared("at-work")],
        };
        let standing = self.store.claim_duties(claim).await.unwrap();
        let record = &standing.duties[0];
        let mandate = DutyMandate {
            name: record.name.clone(),
            candidate: CandidateId::from_random(5),
            term: record.term,
        };
        let outcome = DutyOutcome::Failed("disk full".to_owned());
        let end = DutyEnd { mandate, took: MINUTE, outcome };
        assert!(self.store.end_duty(end).await.unwrap().is_some());
    }

    /// The ids of the runs of a workflow, or the text itself if there are none.
    pub(crate) async fn run_named(&self, text: &str) -> Vec<String> {
        let sql = "select id::text from windlass.runs where workflow = $1";
        let rows = self.client.query(sql, &[&text]).await.unwrap();
        let runs: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        if runs.is_empty() { vec![text.to_owned()] } else { runs }
    }

    /// The first column of what a statement gives.
    pub(crate) async fn texts(&self, sql: &str) -> Vec<String> {
        let rows = self.client.query(sql, &[]).await;
        let rows = rows.unwrap_or_else(|error| panic!("{error:?}\n{sql}"));
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Keeps a copy of everything, for [`Story::begin_again`].
    pub(crate) async fn keep(&self) {
        let mut sql = "create schema kept;".to_owned();
        for table in self.tables().await {
            sql += &format!("create table kept.{table} as table windlass.{table};");
        }
        self.execute(&sql).await;
    }

    /// Puts everything back as it was kept.
    pub(crate) async fn begin_again(&self) {
        // Without what else follows from rows that come and go.
        let mut sql = "set session_replication_role = replica;".to_owned();
        for table in self.tables().await.iter().rev() {
            sql += &format!("delete from windlass.{table};");
        }
        for table in self.tables().await {
            sql += &format!(
                "insert into windlass.{table} overriding system value table kept.{table};"
            );
        }
        sql += "set session_replication_role = default;";
        self.execute(&sql).await;
    }

    /// All tables, those that others refer to first.
    async fn tables(&self) -> Vec<String> {
        let sql = "select c.relname::text from pg_class c
            where c.relnamespace = 'windlass'::regnamespace and c.relkind = 'r'
            order by c.relname not in ('definitions', 'levels', 'schedules'), c.relname";
        self.client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }
}
