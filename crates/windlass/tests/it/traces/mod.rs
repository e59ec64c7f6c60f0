//! Spans as a collector gets them, and logs as people read them.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

mod collector;
mod lines;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::Instrument as _;
use windlass::telemetry::{Telemetry, TelemetryGuard};
use windlass::{Ctx, Function, RetryPolicy, RunHandle, Task, TaskError, Windlass, Workflow};

use self::collector::{Collector, Exported};
#[cfg(all(feature = "embedded", feature = "postgres", unix))]
use crate::database::TestDatabase;

/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(30);

const OUTSIDE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// What the handlers said their traces are: who, and the `traceparent`.
type Said = Arc<Mutex<Vec<(String, String)>>>;

fn say<I>(said: &Said, who: &str, ctx: &Ctx<I>) {
    let trace = ctx.trace_parent().unwrap_or_default();
    said.lock().unwrap().push((who.to_owned(), trace));
}

/// A run of two tasks, the second of which runs a step and a child.
struct Order {
    workflow: Workflow<u32>,
    child: Function<u32, u32>,
    said: Said,
}

impl Order {
    fn new() -> Self {
        let said = Said::default();
        let child_said = Arc::clone(&said);
        let child = Function::<u32, u32>::builder("notify").run(move |ctx: Ctx<u32>| {
            say(&child_said, "notify", &ctx);
            async move { Ok::<_, TaskError>(ctx.input() + 1) }
        });
        let child = child.unwrap();
        let mut order = Workflow::<u32>::builder("order");
        let charge_said = Arc::clone(&said);
        let charge = order.task("charge").retry(RetryPolicy::fixed(Duration::ZERO).attempts(2));
        let charge: Task<u32> = charge.run(move |ctx: Ctx<u32>| {
            let said = Arc::clone(&charge_said);
            let charge = async move {
                say(&said, "bank", &ctx);
                match ctx.attempt() {
                    1 => Err(TaskError::new("no\nmoney")),
                    _ => Ok(*ctx.input()),
                }
            };
            charge.instrument(tracing::info_span!("bank"))
        });
        let (ship_said, ship_child) = (Arc::clone(&said), child.clone());
        let _: Task<u32> =
            order.task("ship").reads(&charge).run(move |ctx: Ctx<u32>, paid: u32| {
                let (said, child) = (Arc::clone(&ship_said), ship_child.clone());
                async move {
                    let label = || async {
                        say(&said, "label", &ctx);
                        Ok::<_, TaskError>(7_u32)
                    };
                    let label = ctx.step("label", label).await?;
                    ctx.run(&child, paid + label).await
                }
            });
        Order { workflow: order.build().unwrap(), child, said }
    }

    /// Starts a run, lets a worker work on it to its end, and exports all of it.
    async fn run(
        &self,
        windlass: &Windlass,
        guard: &TelemetryGuard,
        start: impl AsyncFnOnce(&Windlass, &Order) -> RunHandle,
    ) -> RunHandle {
        let worker = windlass.worker().register(&self.workflow).register(&self.child);
        let worker = worker.spawn().unwrap();
        let run = start(windlass, self).await;
        tokio::time::timeout(PATIENCE, run.wait()).await.unwrap().unwrap();
        worker.drain().await.unwrap();
        guard.flush().unwrap();
        run
    }

    fn said(&self, who: &str) -> Vec<String> {
        let said = self.said.lock().unwrap();
        said.iter().filter(|(by, _)| by == who).map(|(_, trace)| trace.clone()).collect()
    }
}

fn listen(collector: &Collector) -> (tracing::Dispatch, TelemetryGuard) {
    let telemetry = Telemetry::from_env().unwrap().without_logs();
    telemetry.service("shop").endpoint(collector.endpoint()).build().unwrap()
}

/// The spans of a name, and of a task if one is named.
fn named<'a>(spans: &'a [Exported], name: &str, task: &str) -> Vec<&'a Exported> {
    let is_it = |span: &&Exported| {
        span.name == name
            && (task.is_empty() || span.attributes.get("task").is_some_and(|it| it == task))
    };
    spans.iter().filter(is_it).collect()
}

fn traceparent(span: &Exported) -> String {
    format!("00-{}-{}-01", span.trace_id, span.id)
}

async fn a_run_is_one_trace(windlass: Windlass) {
    let collector = Collector::open();
    let (dispatch, guard) = listen(&collector);
    let _listening = tracing::dispatcher::set_default(&dispatch);
    let order = Order::new();
    let run = order
        .run(&windlass, &guard, async |windlass, order| {
            let request = tracing::info_span!("request");
            windlass.start(&order.workflow, 3).into_future().instrument(request).await.unwrap()
        })
        .await;
    let spans = collector.spans();
    let [request] = named(&spans, "request", "")[..] else { panic!("{spans:?}") };
    for span in &spans {
        assert_eq!(span.trace_id, request.trace_id, "{span:?}");
        assert_eq!(span.service, "shop");
    }
    let [start] = named(&spans, "windlass.start", "")[..] else { panic!("{spans:?}") };
    assert_eq!(start.parent, request.id);
    assert_eq!(start.attributes["run"], run.id().to_string());

    let [failed, charged] = named(&spans, "windlass.attempt", "charge")[..] else {
        panic!("{spans:?}")
    };
    for (attempt, number, outcome) in [(failed, "1", "failed"), (charged, "2", "returned")] {
        assert_eq!(attempt.parent, start.id, "{attempt:?}");
        let said = |name: &str| attempt.attributes[name].as_str();
        assert_eq!((said("attempt"), said("fence"), said("outcome")), (number, number, outcome));
        assert_eq!((said("workflow"), said("version"), said("tenant")), ("order", "1", "default"));
        assert_eq!((said("queue"), said("run")), ("default", &*run.id().to_string()));
        assert!(!said("worker").is_empty());
        assert_eq!(attempt.is_error, number == "1");
    }
    let banks = named(&spans, "bank", "");
    let parents: Vec<&str> = banks.iter().map(|bank| bank.parent.as_str()).collect();
    assert_eq!(parents, [&failed.id, &charged.id], "handlers' spans are inside the attempt");
    let said: Vec<String> = banks.into_iter().map(traceparent).collect();
    assert_eq!(order.said("bank"), said, "what a handler hands on is the span it is in");

    let ships = named(&spans, "windlass.attempt", "ship");
    let [first, .., last] = ships[..] else { panic!("{spans:?}") };
    assert!(ships.iter().all(|ship| ship.parent == start.id), "{ships:?}");
    assert_eq!(first.attributes["outcome"], "parked");
    assert_eq!(last.attributes["outcome"], "returned");
    let [step] = named(&spans, "windlass.step", "")[..] else { panic!("{spans:?}") };
    assert_eq!((step.parent.as_str(), step.attributes["name"].as_str()), (&*first.id, "label"));
    assert_eq!(step.attributes["attempt"], "1");
    assert_eq!(order.said("label"), [traceparent(step)]);

    let children: Vec<_> = named(&spans, "windlass.attempt", "")
        .into_iter()
        .filter(|span| span.attributes["workflow"] == "notify")
        .collect();
    let [child] = children[..] else { panic!("{spans:?}") };
    assert_eq!(child.parent, first.id, "a child is caused by the attempt that started it");
    assert_eq!(order.said("notify"), [traceparent(child)]);
    assert_eq!(named(&spans, "windlass.verb", "").len(), 0, "they are for who looks closer");
}

#[tokio::test]
async fn a_run_in_memory_is_one_trace() {
    a_run_is_one_trace(Windlass::memory()).await;
}

#[cfg(all(feature = "embedded", feature = "postgres", unix))]
#[tokio::test]
async fn a_run_in_postgresql_is_one_trace() {
    let database = TestDatabase::new().await;
    a_run_is_one_trace(Windlass::connect(database.url()).await.unwrap()).await;
}

#[tokio::test]
async fn a_traceparent_from_outside_is_the_parent_of_every_attempt() {
    let collector = Collector::open();
    let (dispatch, guard) = listen(&collector);
    let _listening = tracing::dispatcher::set_default(&dispatch);
    let order = Order::new();
    let start = async |windlass: &Windlass, order: &Order| {
        let start = windlass.start(&order.workflow, 3).trace_parent(OUTSIDE).trace_state("a=1");
        start.await.unwrap()
    };
    let run = order.run(&Windlass::memory(), &guard, start).await;
    let record = run.get().await.unwrap();
    assert_eq!(record.trace().unwrap().to_string(), OUTSIDE);
    assert_eq!(record.trace().unwrap().state(), Some("a=1"));
    let spans = collector.spans();
    let attempts = named(&spans, "windlass.attempt", "");
    for attempt in attempts.iter().filter(|span| span.attributes["workflow"] == "order") {
        assert_eq!(attempt.trace_id, OUTSIDE[3..35]);
        assert_eq!(attempt.parent, OUTSIDE[36..52]);
    }
    assert!(attempts.len() >= 5, "{attempts:?}");
    assert!(attempts.iter().all(|span| span.trace_id == OUTSIDE[3..35]), "also that of the child");
}

#[tokio::test]
async fn a_trace_that_is_not_sampled_is_handed_on_and_not_exported() {
    let collector = Collector::open();
    let (dispatch, guard) = listen(&collector);
    let _listening = tracing::dispatcher::set_default(&dispatch);
    let order = Order::new();
    let unsampled = OUTSIDE.replace("-01", "-00");
    let start = async |windlass: &Windlass, order: &Order| {
        windlass.start(&order.workflow, 3).trace_parent(&unsampled).await.unwrap()
    };
    order.run(&Windlass::memory(), &guard, start).await;
    let spans = collector.spans();
    assert_eq!(named(&spans, "windlass.attempt", "").len(), 0, "{spans:?}");
    assert!(order.said("notify")[0].starts_with(&unsampled[..36]));
    assert!(order.said("notify")[0].ends_with("-00"));
}

#[tokio::test]
async fn without_an_export_handlers_and_children_have_the_trace_of_the_start() {
    let order = Order::new();
    let guard = Telemetry::from_env().unwrap().without_logs().build().unwrap().1;
    let start = async |windlass: &Windlass, order: &Order| {
        windlass.start(&order.workflow, 3).trace_parent(OUTSIDE).await.unwrap()
    };
    order.run(&Windlass::memory(), &guard, start).await;
    for who in ["bank", "label", "notify"] {
        assert!(order.said(who).iter().all(|trace| trace == OUTSIDE), "{who}");
    }
    order.said.lock().unwrap().clear();
    let start = async |windlass: &Windlass, order: &Order| {
        windlass.start(&order.workflow, 3).await.unwrap()
    };
    order.run(&Windlass::memory(), &guard, start).await;
    assert_eq!(order.said("notify"), [""], "nobody traces it");
}

#[tokio::test]
async fn a_traceparent_that_makes_no_sense_is_refused_with_its_place() {
    let order = Order::new();
    let windlass = Windlass::memory();
    let wrong = OUTSIDE.replace("-01", "-0x");
    let error = windlass.start(&order.workflow, 3).trace_parent(wrong).await.unwrap_err();
    assert_eq!(error.kind(), windlass::ErrorKind::Argument);
    assert!(error.to_string().contains("has 'x' at byte 54, not a digit of 0-9a-f"), "{error}");
    let long = "x".repeat(513);
    let error = windlass.start(&order.workflow, 3).trace_state(long).await.unwrap_err();
    assert!(error.to_string().contains("tracestate has 513 bytes, the limit is 512"), "{error}");
}

#[cfg(all(feature = "embedded", feature = "postgres", unix))]
#[tokio::test]
async fn verbs_of_the_database_are_spans_for_who_wants_them_and_idle_claims_are_not() {
    let collector = Collector::open();
    let telemetry = Telemetry::from_env().unwrap().without_logs().endpoint(collector.endpoint());
    let (dispatch, guard) = telemetry.span_levels("info,windlass=debug").unwrap().build().unwrap();
    let database = TestDatabase::new().await;
    let windlass = Windlass::connect(database.url()).await.unwrap();
    let _listening = tracing::dispatcher::set_default(&dispatch);
    let order = Order::new();
    let start = async |windlass: &Windlass, order: &Order| {
        windlass.start(&order.workflow, 3).await.unwrap()
    };
    order.run(&windlass, &guard, start).await;
    let spans = collector.spans();
    let verbs = named(&spans, "windlass.verb", "");
    let has = |verb: &str| verbs.iter().any(|span| span.attributes["verb"] == verb);
    assert!(has("start") && has("finish") && has("join") && has("leave"), "{verbs:?}");
    assert!(!has("claim") && !has("extend") && !has("lead"), "{verbs:?}");
    let finish = verbs.iter().find(|span| span.attributes["verb"] == "finish").unwrap();
    assert!(finish.attributes["items"].parse::<u32>().unwrap() >= 1);
}
