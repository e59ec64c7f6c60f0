//! Pairs of verbs of which one fires a schedule.

use std::sync::Arc;
use std::time::Duration;

use windlass::schedule::{Cadence, Timing};
use windlass::store::postgres::PostgresStore;
use windlass::store::{NewSchedule, ScheduleKey, ScheduleRecord, ScheduleStore, Store};
use windlass_core::{Definition, Payload, Priority, RunId, ScheduleName, Tenant, Timestamp};

use super::super::driver::workflow;
use super::pairs::{pair, said};
use super::{Case, Explorer};

const TEN: Duration = Duration::from_secs(10);

/// A schedule whose time has come, and nobody has served it.
struct DueSchedule {
    workflow: Arc<Definition>,
    record: ScheduleRecord,
    nominal: Timestamp,
    run: RunId,
}

impl DueSchedule {
    async fn new(explorer: &Explorer) -> Self {
        let store = &*explorer.plain;
        let workflow = workflow("one", &["a"]);
        store.register(Arc::clone(&workflow)).await.expect("it can be registered");
        let key = ScheduleKey {
            tenant: Tenant::new("acme").expect("it is a name"),
            name: ScheduleName::new("s").expect("it is a name"),
        };
        // That of the order before.
        store.delete_schedule(key.clone()).await.expect("the store is there");
        let now = store.now().await.expect("the store is there");
        let cadence = Cadence::every_from(TEN, now).expect("it is a cadence");
        let schedule = NewSchedule {
            key,
            workflow: workflow.name().clone(),
            version: workflow.version(),
            input: Payload::default(),
            priority: Priority::default(),
            timing: Timing::new(cadence),
            owner: None,
        };
        let record = store.put_schedule(schedule).await.expect("it makes sense");
        explorer.clock.advance(TEN);
        let nominal = now + TEN;
        let run = RunId::of_fire(record.id, nominal);
        DueSchedule { workflow, record, nominal, run }
    }

    /// What is known of it when all that is due is served.
    async fn served(store: Arc<PostgresStore>, key: ScheduleKey, nominal: Timestamp) -> String {
        store.fire_schedules(100).await.expect("firing works");
        let Ok(fires) = store.list_fires(key.clone(), 100).await else {
            return "it is gone".to_owned();
        };
        let lines: Vec<String> = fires
            .iter()
            .map(|fire| format!("{} by {}", fire.result.word(), fire.by.word()))
            .collect();
        let record = store.get_schedule(key).await.expect("reading works").expect("it is there");
        let next = record.next_at.expect("it goes on for ever").since(nominal);
        format!("{}, next in {next:?}", lines.join(" and "))
    }

    fn case(
        self,
        explorer: &Explorer,
        right: impl Future<Output = String> + Send + 'static,
    ) -> Case {
        let left = Arc::clone(&explorer.left);
        let key = self.record.schedule.key.clone();
        let after = DueSchedule::served(Arc::clone(&explorer.plain), key, self.nominal);
        Case::new(self.run, &self.workflow, fired(left), right).with_aftermath(after)
    }
}

async fn fired(store: Arc<PostgresStore>) -> String {
    let sweep = store.fire_schedules(100).await.expect("firing works");
    format!("{} fired", sweep.moved)
}

pair! {
    /// Two processes take themselves for the leader: one of them serves the time.
    fire_and_fire,
    |explorer| {
        let due = DueSchedule::new(&explorer).await;
        let right = fired(Arc::clone(&explorer.right));
        due.case(&explorer, right)
    },
    [
        "0 fired | 1 fired, then started by time, next in 10s",
        "1 fired | 0 fired, then started by time, next in 10s",
    ]
}

pair! {
    /// A schedule that is put again keeps its place, whether or not its time is served meanwhile.
    fire_and_put,
    |explorer| {
        let due = DueSchedule::new(&explorer).await;
        let right = Arc::clone(&explorer.right);
        let input = Payload::from_json("2").expect("it is JSON");
        let again = NewSchedule { input, ..due.record.schedule.clone() };
        let right = async move { said(right.put_schedule(again).await.map(|_| "put")) };
        due.case(&explorer, right)
    },
    [
        "0 fired | \"put\", then started by time, next in 10s",
        "1 fired | \"put\", then started by time, next in 10s",
    ]
}

pair! {
    /// A schedule that is deleted fires before that or not at all.
    fire_and_delete,
    |explorer| {
        let due = DueSchedule::new(&explorer).await;
        let (right, key) = (Arc::clone(&explorer.right), due.record.schedule.key.clone());
        let right = async move { said(right.delete_schedule(key).await) };
        due.case(&explorer, right)
    },
    ["0 fired | (), then it is gone", "1 fired | (), then it is gone"]
}

pair! {
    /// A trigger and the time are two runs.
    fire_and_trigger,
    |explorer| {
        let due = DueSchedule::new(&explorer).await;
        let (right, key) = (Arc::clone(&explorer.right), due.record.schedule.key.clone());
        let run = RunId::of_fire(due.record.id, due.nominal + Duration::from_secs(1));
        let right = async move {
            said(right.trigger_schedule(key, run).await.map(|started| started.is_new))
        };
        due.case(&explorer, right)
    },
    [
        "0 fired | true, then started by time and started by trigger, next in 10s",
        "1 fired | true, then started by time and started by trigger, next in 10s",
        "1 fired | true, then started by trigger and started by time, next in 10s",
    ]
}

pair! {
    /// A pause lets a time be served before it, or be missed, and never both.
    fire_and_pause,
    |explorer| {
        let due = DueSchedule::new(&explorer).await;
        let (right, key) = (Arc::clone(&explorer.right), due.record.schedule.key.clone());
        let right = async move { said(right.pause_schedule(key).await) };
        due.case(&explorer, right)
    },
    [
        "0 fired | (), then missed by time, next in 10s",
        "1 fired | (), then started by time, next in 10s",
    ]
}
