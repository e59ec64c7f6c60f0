//! The trace that an attempt is part of.

use windlass_core::TraceContext;

use super::{Attempt, Ctx};
use crate::spans;

impl Attempt {
    /// The trace that what it causes belongs to.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        spans::current().or_else(|| self.claimed.trace.clone())
    }
}

impl<I> Ctx<I> {
    /// The trace that the attempt is part of, to hand on to whoever is called: the span that is
    /// open here, if spans are exported, and otherwise what [started](crate::Start::trace_parent)
    /// the run. `None` if nobody traces it.
    ///
    /// A child run is given it without being told.
    ///
    /// ```
    /// # use windlass::{Ctx, TaskError};
    /// # struct Request; impl Request { fn header(&mut self, _: &str, _: String) {} }
    /// async fn charge(ctx: Ctx<u64>) -> Result<(), TaskError> {
    ///     let mut request = Request;
    ///     if let Some(trace) = ctx.trace() {
    ///         request.header("traceparent", trace.to_string());
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn trace(&self) -> Option<TraceContext> {
        self.attempt.trace()
    }

    /// The [trace](Ctx::trace) as the value of a `traceparent` header.
    pub fn trace_parent(&self) -> Option<String> {
        self.trace().map(|trace| trace.to_string())
    }
}
