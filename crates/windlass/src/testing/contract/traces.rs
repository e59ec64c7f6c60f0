//! The traces that runs belong to.

use std::sync::Arc;

use windlass_core::trace::{TRACEPARENT, TRACESTATE};
use windlass_core::{
    Call, RunId, RunState, StepChange, StepKind, StepName, StepResult, StepWrite, TraceContext,
};

use super::bench::{Bench, definition, hold, json, retry_after, seconds};
use crate::store::{Answer, Born, ChildStart, NewRun, Recording, Started, StoreError};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

fn trace(traceparent: &str, tracestate: Option<&str>) -> TraceContext {
    TraceContext::parse(traceparent, tracestate).expect("it is one")
}

fn traced(bench: &Bench<'_>, workflow: &str, trace: &TraceContext) -> NewRun {
    let mut new = bench.new_run(workflow);
    trace.put_into(&mut new.metadata);
    new
}

pub(crate) async fn every_attempt_is_told_the_trace_of_its_run(bench: &Bench<'_>) {
    bench.register("w", "a*2 b<a").await;
    let context = trace(PARENT, Some("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"));
    let run = bench.start_run(traced(bench, "w", &context)).await;
    assert_eq!(bench.run(run).await.trace(), Some(context.clone()));
    let why = bench.store.why(run, None).await.expect("reading works").expect("it is there");
    assert_eq!(why.trace, Some(context.clone()));
    let worker = bench.worker().await;
    let first = worker.claim_one().await;
    assert_eq!(first.trace, Some(context.clone()));
    bench.accept(&first, retry_after(seconds(1))).await;
    bench.advance(seconds(1)).await;
    bench.promote().await;
    let second = worker.claim_one().await;
    assert_eq!((second.attempt, &second.trace), (2, &Some(context.clone())));
    bench.succeed(&second).await;
    let last = worker.claim_one().await;
    assert_eq!((last.spec.name.as_str(), last.trace), ("b", Some(context)));
    // One without a trace has none, also beside others that have one.
    let plain = bench.start("w").await;
    let without_state = bench.start_run(traced(bench, "w", &trace(OTHER, None))).await;
    for claimed in worker.claim(10).await {
        let wanted = match claimed.task.run {
            id if id == plain => None,
            id => {
                assert_eq!(id, without_state);
                Some(trace(OTHER, None))
            }
        };
        assert_eq!(claimed.trace, wanted);
    }
}

pub(crate) async fn the_trace_of_a_start_that_is_repeated_is_that_of_the_first(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let new = traced(bench, "w", &trace(PARENT, None));
    let run = bench.start_run(new.clone()).await;
    let mut again = new;
    trace(OTHER, None).put_into(&mut again.metadata);
    assert_eq!(bench.try_start(again).await, Ok(Started { run, is_new: false }));
    assert_eq!(bench.worker().await.claim_one().await.trace, Some(trace(PARENT, None)));
}

pub(crate) async fn a_trace_that_makes_no_sense_is_refused_with_its_place(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let long = "x".repeat(513);
    for (name, value, place) in [
        (TRACEPARENT, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0G", "'G' at byte 54"),
        (TRACEPARENT, &PARENT[1..], "has 54 bytes, not 55"),
        (TRACESTATE, &long, "has 513 bytes"),
        (TRACESTATE, "a=\u{1b}", "at byte 2"),
    ] {
        let mut new = bench.new_run("w");
        new.metadata.insert(name.to_owned(), value.to_owned());
        let (id, answer) = (new.id, bench.try_start(new).await);
        let is_named = matches!(&answer, Err(StoreError::Conflict(text)) if text.contains(place));
        assert!(is_named, "{answer:?}");
        assert_eq!(bench.store.get_run(id).await, Ok(None));
    }
}

pub(crate) async fn a_child_belongs_to_the_trace_that_it_was_given(bench: &Bench<'_>) {
    bench.register("p", "a").await;
    bench.register("c", "x").await;
    bench.start("p").await;
    let worker = bench.worker().await;
    let parent = worker.claim_one().await;
    let mut run = traced(bench, "c", &trace(PARENT, Some("a=1")));
    run.id = RunId::of_child(parent.task.run, 7 << 64);
    let (id, definition) = (run.id, definition("c", 1, "x"));
    let start = ChildStart { held: hold(&parent), call: Call(1), place: Some(0), run, definition };
    let born = bench.store.start_children(vec![start]).await.expect("starting works");
    assert_eq!(born, [Born::Started(Started { run: id, is_new: true })]);
    let child = worker.claim_one().await;
    assert_eq!((child.task.run, child.trace), (id, Some(trace(PARENT, Some("a=1")))));
}

pub(crate) async fn what_undoes_a_run_belongs_to_its_trace(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let undo = definition("w", 1, "a").to_undo().expect("it can be derived");
    bench.try_register(Arc::new(undo)).await.expect("it is new");
    let context = trace(PARENT, Some("a=1"));
    let worker = bench.worker().await;
    for is_asked_for in [false, true] {
        let run = bench.start_run(traced(bench, "w", &context)).await;
        let claimed = worker.claim_one().await;
        let change = StepChange::Done { number: 1, result: StepResult::Value(json("1")) };
        let name = StepName::new("charge").expect("the name is fine");
        let (call, kind) = (Call(1), StepKind::Undoable);
        let steps = vec![StepWrite { call, name, kind, key: None, change }];
        let recordings = vec![Recording { held: hold(&claimed), steps }];
        assert_eq!(bench.store.record(recordings).await, Ok(vec![Answer::Accepted]));
        if is_asked_for {
            bench.succeed(&claimed).await;
            bench.store.undo_run(run).await.expect("it can be undone");
        } else {
            bench.fail(&claimed).await;
            assert_eq!(bench.run_state(run).await, RunState::Failed);
        }
        let undo = worker.claim_one().await;
        assert_eq!(undo.task.run, RunId::of_undo(run, 1));
        assert_eq!(undo.trace, Some(context.clone()));
        bench.succeed(&undo).await;
    }
}
