//! The spans that Windlass makes, and the traces that they belong to.
//!
//! What there is of them is for whoever subscribes: without a subscriber, a span costs the look
//! whether there is one. This module exports nothing, see `telemetry`. Their names and fields are
//! part of what users rely on: `docs/tracing.md` lists them.

use tracing::field::Empty;
use tracing::{Span, info_span};
use windlass_core::{Failure, Outcome, TraceContext, WorkerId};

use crate::store::Claimed;

/// The module that all spans are said to be of, so that a filter need not know where they are made.
macro_rules! target {
    () => {
        "windlass"
    };
}

/// Verbs that come by themselves, whether there is something to do or not: one that looked for
/// nothing is no news.
#[cfg(feature = "postgres")]
const POLLS: [&str; 12] = [
    "claim",
    "claim_duties",
    "extend",
    "fire",
    "lead",
    "outlook",
    "promote",
    "prune",
    "reap",
    "renew_duties",
    "roll_up",
    "time_of",
];

/// The start of runs; `run` is said when it is known.
pub(crate) fn start(workflow: Option<&str>) -> Span {
    let span = info_span!(
        target: target!(), "windlass.start",
        workflow = Empty, run = Empty, runs = Empty, otel.kind = "producer",
    );
    if let Some(workflow) = workflow {
        span.record("workflow", workflow);
    }
    span
}

/// An attempt, as part of the trace of its run.
pub(crate) fn attempt(claimed: &Claimed, worker: WorkerId) -> Span {
    let spec = &claimed.spec;
    let span = info_span!(
        target: target!(), parent: None, "windlass.attempt",
        run = %claimed.task.run, workflow = %claimed.workflow, version = claimed.version.get(),
        task = %spec.name, attempt = claimed.attempt, fence = claimed.fence.0, %worker,
        tenant = %claimed.tenant, queue = %spec.queue, outcome = Empty,
        otel.kind = "consumer", otel.status_code = Empty, otel.status_description = Empty,
    );
    set_parent(&span, claimed.trace.as_ref());
    span
}

/// One try of a step, the `attempt`th.
pub(crate) fn step(name: &str, index: u32, attempt: u32) -> Span {
    info_span!(
        target: target!(), "windlass.step",
        name, index, attempt, outcome = Empty, otel.status_code = Empty,
    )
}

/// How a try of a step ended.
pub(crate) fn end_step(span: &Span, is_ok: bool) {
    span.record("outcome", if is_ok { "returned" } else { "failed" });
    if !is_ok {
        span.record("otel.status_code", "ERROR");
    }
}

/// A verb of the store, by the name of what does it once, for so many items.
#[cfg(feature = "postgres")]
pub(crate) fn verb(once: &'static str, items: usize) -> Span {
    use tracing::level_filters::LevelFilter;
    use tracing::{debug_span, trace_span};

    if LevelFilter::current() < LevelFilter::DEBUG {
        return Span::none();
    }
    let verb = once.strip_suffix("_once").or_else(|| once.strip_suffix("_try")).unwrap_or(once);
    match POLLS.contains(&verb) {
        true => trace_span!(target: target!(), "windlass.verb", verb, items),
        false => debug_span!(target: target!(), "windlass.verb", verb, items),
    }
}

/// Says how an attempt ended, also if it ends by being dropped.
pub(crate) struct Ending {
    span: Span,
    is_told: bool,
}

impl Ending {
    /// The end of the attempt whose span this runs in.
    pub(crate) fn of_current() -> Self {
        Ending { span: Span::current(), is_told: false }
    }

    /// `is_sealed` is whether texts are not to leave the process.
    pub(crate) fn tell(mut self, outcome: &Outcome, is_sealed: bool) {
        self.is_told = true;
        let word = match outcome {
            Outcome::Returned(_) => "returned",
            Outcome::ConditionFalse => "skipped",
            Outcome::Parked(_) => "parked",
            Outcome::Continued(_) => "continued",
            Outcome::Interrupted => "interrupted",
            Outcome::Failed(failure) => {
                self.span.record("otel.status_code", "ERROR");
                self.span.record("otel.status_description", shown(failure, is_sealed));
                "failed"
            }
        };
        self.span.record("outcome", word);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.is_told {
            let is_panic = std::thread::panicking();
            self.span.record("outcome", if is_panic { "panicked" } else { "dropped" });
            self.span.record("otel.status_code", "ERROR");
        }
    }
}

/// What is told of a failure: its code alone, where values are sealed.
pub(crate) fn shown(failure: &Failure, is_sealed: bool) -> String {
    match is_sealed {
        true => failure.code.word().to_owned(),
        false => failure.to_string(),
    }
}

/// The trace and the span that are open here, if spans are exported.
#[cfg(feature = "otlp")]
pub(crate) fn current() -> Option<TraceContext> {
    use opentelemetry::trace::TraceContextExt as _;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    let active = opentelemetry::Context::current();
    // A layer need not make its spans those of the thread.
    let context = if active.has_active_span() { active } else { Span::current().context() };
    let span = context.span();
    let span = span.span_context();
    let trace_id = u128::from_be_bytes(span.trace_id().to_bytes());
    let span_id = u64::from_be_bytes(span.span_id().to_bytes());
    let trace = TraceContext::from_parts(trace_id, span_id, span.trace_flags().to_u8())?;
    let state = span.trace_state().header();
    // What vendors say is not worth a start.
    Some(trace.clone().with_state(Some(&state)).unwrap_or(trace))
}

/// The trace and the span that are open here, if spans are exported.
#[cfg(not(feature = "otlp"))]
pub(crate) fn current() -> Option<TraceContext> {
    None
}

/// Puts a span that nobody has entered into a trace from elsewhere.
#[cfg(feature = "otlp")]
fn set_parent(span: &Span, trace: Option<&TraceContext>) {
    use opentelemetry::trace::{
        SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
    };
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    let Some(trace) = trace else { return };
    let state = trace.state().and_then(|state| state.parse::<TraceState>().ok());
    let parent = SpanContext::new(
        TraceId::from_bytes(trace.trace_id().to_be_bytes()),
        SpanId::from_bytes(trace.parent_id().to_be_bytes()),
        TraceFlags::new(trace.flags()),
        true,
        state.unwrap_or_default(),
    );
    // Without a layer that exports, there is nothing to be part of.
    let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(parent));
}

#[cfg(not(feature = "otlp"))]
fn set_parent(_: &Span, _: Option<&TraceContext>) {}
