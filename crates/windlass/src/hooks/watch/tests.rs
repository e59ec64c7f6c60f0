//! Looks at a store in memory, in virtual time, with nobody who delivers.

use serde_json::{Value, json};
use tokio::time::sleep;
use windlass_core::RetryPolicy;

use super::super::{Hook, delivery};
use super::*;
use crate::context::Ctx;
use crate::store::RunFilter;
use crate::task_error::TaskError;
use crate::worker::WorkerHandle;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = AGAIN;

/// A process that has not looked before.
fn watch(troubles: &[Trouble]) -> Watch {
    let hook = Hook::webhook("ops", "https://example.com");
    let hook = troubles.iter().fold(hook, |hook, trouble| hook.on(*trouble));
    let hooks: Arc<[Checked]> = Arc::new([hook.check().expect("it can be used")]);
    let workflow = delivery::workflow("shop", Arc::clone(&hooks), RetryPolicy::patient());
    Watch::new(hooks, workflow.expect("it can be built"), "windlass.hooks/shop")
}

/// What hooks were told, the oldest first.
async fn told(windlass: &Windlass) -> Vec<Value> {
    let page = windlass.list(RunFilter::default()).await.unwrap();
    let runs = page.runs.into_iter().rev();
    let runs = runs.filter(|run| run.workflow.as_str() == "windlass.hook/shop");
    let mut told = Vec::new();
    for run in runs {
        let input = windlass.store().get_run(run.id).await.unwrap().unwrap().input.unwrap();
        told.push(serde_json::from_str(input.as_str()).unwrap());
    }
    told
}

/// Begins a minute behind a full hour, so that tests know when the next one comes.
async fn engine() -> Windlass {
    let windlass = Windlass::memory();
    let now = windlass.store().now().await.unwrap();
    let full = Timestamp::from_micros((hour_of(now) + 1) * 3_600_000_000);
    sleep(full.since(now) + MINUTE).await;
    windlass
}

/// A task that a worker would have to have a handler for.
fn mail() -> Workflow<()> {
    let mut mail = Workflow::<()>::builder("mail");
    mail.task("send").queue("mail").run(async |_: Ctx<()>| Ok::<_, TaskError>(()));
    mail.build().unwrap()
}

/// Fails at once in one task, and comes to its end a while later in another.
fn order() -> Workflow<Duration> {
    let mut order = Workflow::<Duration>::builder("order").version(3);
    order.task("charge").retry(RetryPolicy::none()).run(async |_: Ctx<Duration>| {
        Err::<(), _>(TaskError::new("x".repeat(600)).code("card_declined"))
    });
    order.task("pack").run(async |ctx: Ctx<Duration>| {
        sleep(*ctx.input()).await;
        Ok::<_, TaskError>(())
    });
    order.build().unwrap()
}

fn worker(windlass: &Windlass, workflow: &Workflow<Duration>) -> WorkerHandle {
    windlass.worker().register(workflow).queues(["default", "mail"]).spawn().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_is_told_once_however_many_processes_look() {
    let windlass = engine().await;
    let order = order();
    let _worker = worker(&windlass, &order);
    let run = windlass.start(&order, Duration::ZERO).tenant("acme").await.unwrap();
    run.wait().await.unwrap();
    let (one, two) = (watch(&[Trouble::DeadLetter]), watch(&[Trouble::DeadLetter]));
    for _ in 0..3 {
        one.look(&windlass).await.unwrap();
        two.look(&windlass).await.unwrap();
        sleep(5 * SECOND).await;
    }
    let [told] = told(&windlass).await.try_into().unwrap();
    let letters = windlass.store().list_dead_letters(Default::default(), None, 10).await.unwrap();
    let wanted = json!({
        "hook": "ops",
        "trouble": "dead_letter",
        "at": letters.letters[0].failed_at.to_string(),
        "run": run.id().to_string(),
        "round": 1,
        "workflow": "order",
        "version": 3,
        "tenant": "acme",
        "queue": "default",
        "task": "charge",
        "code": "card_declined",
        "error": format!("{}…", "x".repeat(500)),
        "attempts": 1,
    });
    assert_eq!(told, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_is_told_when_it_ends_also_by_a_process_that_came_meanwhile() {
    let windlass = engine().await;
    let order = order();
    let _worker = worker(&windlass, &order);
    let run = windlass.start(&order, 5 * HOUR).await.unwrap();
    let one = watch(&[Trouble::RunFailed]);
    sleep(MINUTE).await;
    one.look(&windlass).await.unwrap();
    sleep(4 * HOUR).await;
    one.look(&windlass).await.unwrap();
    drop(one);
    let two = watch(&[Trouble::RunFailed]);
    two.look(&windlass).await.unwrap();
    assert_eq!(told(&windlass).await, [] as [Value; 0], "it has not ended");
    run.wait().await.unwrap();
    for _ in 0..2 {
        two.look(&windlass).await.unwrap();
        watch(&[Trouble::RunFailed]).look(&windlass).await.unwrap();
    }
    let [told] = told(&windlass).await.try_into().unwrap();
    assert_eq!(told["trouble"], "run_failed");
    assert_eq!(told["run"], run.id().to_string());
    assert_eq!(told["at"], run.get().await.unwrap().ended_at.unwrap().to_string());
    assert_eq!(told["tasks"][0]["task"], "charge");
    assert_eq!(told["tasks"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_be_read_does_not_keep_others_from_being_told() {
    let windlass = engine().await;
    let order = order();
    let ring = |id| crate::Keyring::parse(&crate::Keyring::fresh_line(id).unwrap()).unwrap();
    let (sealed, others) =
        (windlass.clone().sealed(ring("k1")), windlass.clone().sealed(ring("k2")));
    let _worker = worker(&sealed, &order);
    let mut runs = Vec::new();
    for from in [&sealed, &others, &windlass] {
        runs.push(from.start(&order, Duration::ZERO).await.unwrap().id());
    }
    for run in &runs {
        windlass.run(*run).wait().await.unwrap();
    }
    let watch = watch(&[Trouble::RunFailed]);
    watch.look(&sealed).await.unwrap();
    let told: Vec<Value> = told(&sealed).await.into_iter().map(|it| it["run"].clone()).collect();
    assert!(told == [runs[0].to_string(), runs[2].to_string()], "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn each_round_of_a_run_that_fails_is_told() {
    let windlass = engine().await;
    let order = order();
    let _worker = worker(&windlass, &order);
    let run = windlass.start(&order, Duration::ZERO).await.unwrap();
    let watch = watch(&[Trouble::RunFailed, Trouble::DeadLetter]);
    for round in 1..=2 {
        run.wait().await.unwrap();
        watch.look(&windlass).await.unwrap();
        let told = told(&windlass).await;
        assert_eq!(told.len(), 2 * round, "{told:#?}");
        assert!(told[2 * round - 2..].iter().all(|it| it["round"] == round), "{told:#?}");
        run.retry().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_failed_before_there_were_hooks_is_no_news() {
    let windlass = engine().await;
    let order = order();
    let _worker = worker(&windlass, &order);
    windlass.start(&order, Duration::ZERO).await.unwrap().wait().await.unwrap();
    sleep(FIRST_LOOK + SECOND).await;
    let watch = watch(&[Trouble::RunFailed, Trouble::DeadLetter]);
    watch.look(&windlass).await.unwrap();
    watch.look(&windlass).await.unwrap();
    assert_eq!(told(&windlass).await, [] as [Value; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_lags_is_told_once_per_hour() {
    let windlass = engine().await;
    windlass.start(&mail(), ()).await.unwrap();
    let troubles = [Trouble::QueueLag(MINUTE), Trouble::QueueLag(2 * HOUR)];
    let (one, two) = (watch(&troubles), watch(&troubles));
    sleep(MINUTE).await;
    one.look(&windlass).await.unwrap();
    assert_eq!(told(&windlass).await, [] as [Value; 0], "it is not over the threshold");
    for minute in 1..=110 {
        sleep(MINUTE - SECOND).await;
        one.look(&windlass).await.unwrap();
        sleep(SECOND).await;
        // By now the oldest task is older: what it would tell is another thing under the same key.
        two.look(&windlass).await.unwrap();
        // 58 minutes of the first hour are left.
        let hours = if minute < 58 { 1 } else { 2 };
        assert_eq!(told(&windlass).await.len(), hours, "{minute} minutes");
    }
    let told = told(&windlass).await;
    assert_eq!((&told[0]["trouble"], &told[0]["queue"]), (&json!("queue_lag"), &json!("mail")));
    assert_eq!((&told[0]["ready"], &told[0]["oldest_seconds"]), (&json!(1), &json!(119)));
    assert_eq!(told[0]["threshold_seconds"], 60.0);
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_without_workers_once_it_was_not_served_for_long_enough() {
    let windlass = engine().await;
    let serving = worker(&windlass, &order());
    windlass.start(&mail(), ()).await.unwrap();
    let watch = watch(&[Trouble::NoWorker(5 * MINUTE)]);
    sleep(20 * MINUTE).await;
    watch.look(&windlass).await.unwrap();
    assert_eq!(told(&windlass).await, [] as [Value; 0], "a worker serves the queue");
    serving.drain().await.unwrap();
    sleep(4 * MINUTE).await;
    watch.look(&windlass).await.unwrap();
    assert_eq!(told(&windlass).await, [] as [Value; 0], "it was served four minutes ago");
    sleep(2 * MINUTE).await;
    watch.look(&windlass).await.unwrap();
    watch.look(&windlass).await.unwrap();
    let [told] = told(&windlass).await.try_into().unwrap();
    assert_eq!((&told["trouble"], &told["queue"]), (&json!("no_worker"), &json!("mail")));
}

#[tokio::test(start_paused = true)]
async fn notifications_that_wait_are_no_news() {
    let windlass = engine().await;
    windlass.start(&mail(), ()).await.unwrap();
    let watch = watch(&[Trouble::QueueLag(MINUTE), Trouble::NoWorker(MINUTE)]);
    sleep(2 * MINUTE).await;
    watch.look(&windlass).await.unwrap();
    sleep(10 * MINUTE).await;
    watch.look(&windlass).await.unwrap();
    let told = told(&windlass).await;
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|it| it["queue"] == "mail"), "{told:#?}");
}
