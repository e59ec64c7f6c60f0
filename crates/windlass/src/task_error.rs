//! What a handler's error says about further attempts.
//!
//! A handler may return any error. It becomes the [`Failure`] that is recorded:
//! the message is the whole chain of sources, and a [`TaskError`] anywhere in that
//! chain sets the code and whether another attempt is worth it. This module does
//! not decide whether there is another attempt; that is the retry policy's.

use std::error::Error as StdError;
use std::fmt;

use windlass_core::{Failure, FailureCode, Payload};

use crate::error::Error;

/// The most links of an error's chain of sources that are looked at.
const CHAIN_LINKS_MAX: usize = 32;

type BoxError = Box<dyn StdError + Send + Sync>;

/// An error of a handler that says more than its message: a code of its own, or
/// that no further attempt will mend it.
///
/// It keeps its say when it is wrapped, by another error's
/// [`source`](StdError::source) or by `anyhow` with or without context.
///
/// ```
/// use windlass::TaskError;
///
/// // From a message, with a code that retry policies and programs can branch on.
/// let declined = TaskError::new("card declined").code("card_declined").permanent();
/// assert_eq!(declined.to_string(), "card declined");
///
/// // From another error.
/// let error = "12x".parse::<u32>().unwrap_err();
/// let malformed = TaskError::new(error).permanent();
/// assert_eq!(malformed.to_string(), "invalid digit found in string");
/// ```
pub struct TaskError {
    verdict: Verdict,
}

/// The say of a [`TaskError`] as a link of its own in the chain.
///
/// Some wrappers hide the type of the error they hold but pass on its source
/// (`anyhow` does so when it becomes a boxed error). The say is therefore the
/// source of the error and not the error itself.
struct Verdict {
    error: BoxError,
    code: Option<FailureCode>,
    is_permanent: bool,
    is_hand_back: bool,
    /// What its function is to begin afresh with.
    input: Option<Payload>,
}

impl TaskError {
    /// An error with this message, or around this error. Without more it is
    /// treated like any other: recorded with [`FailureCode::Error`] and worth
    /// another attempt.
    pub fn new(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let error = error.into();
        let verdict =
            Verdict { error, code: None, is_permanent: false, is_hand_back: false, input: None };
        TaskError { verdict }
    }

    /// No failure: the handler gives its task back, and the attempt does not count.
    ///
    /// For a handler that would take longer than its worker has left. Another worker takes the
    /// task up from its last [checkpoint](crate::Ctx::checkpoint). A worker that is not
    /// [draining](crate::Ctx::is_draining) puts the task off for a second, so that a handler
    /// that always hands back does not keep it busy. Wrapped in other errors, it still is one.
    ///
    /// ```
    /// # use windlass::{Ctx, TaskError};
    /// # async fn import_row(_: usize) -> Result<(), TaskError> { Ok(()) }
    /// async fn import(ctx: Ctx<usize>) -> Result<(), TaskError> {
    ///     let first = ctx.last_checkpoint()?.unwrap_or(0);
    ///     for row in first..*ctx.input() {
    ///         if ctx.is_draining() {
    ///             ctx.checkpoint(&row).await?;
    ///             return Err(TaskError::hand_back());
    ///         }
    ///         import_row(row).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn hand_back() -> Self {
        let mut error = TaskError::new("handed back");
        error.verdict.is_hand_back = true;
        error
    }

    /// No failure: the function begins afresh with this input.
    pub(crate) fn begin_afresh(input: Payload) -> Self {
        let mut error = TaskError::new("begins afresh; return this from the function");
        error.verdict.input = Some(input);
        error
    }

    /// The error of a step, as it was recorded.
    pub(crate) fn recorded(failure: Failure) -> Self {
        let Failure { code, message, is_retryable: _ } = failure;
        let mut error = TaskError::new(message).permanent();
        error.verdict.code = Some(code);
        error
    }

    /// The same error, but no further attempt will mend it.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.verdict.is_permanent = true;
        self
    }

    /// The same error with a code of the handler's own.
    ///
    /// A word that Windlass uses itself, such as `timeout`, is the code of that
    /// meaning, as it could not be told apart once it is stored.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.verdict.code = Some(FailureCode::from(code.into()));
        self
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.verdict.error.fmt(f)
    }
}

impl fmt::Debug for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskError")
            .field("error", &self.verdict.error)
            .field("code", &self.verdict.code)
            .field("is_permanent", &self.verdict.is_permanent)
            .field("is_hand_back", &self.verdict.is_hand_back)
            .finish()
    }
}

impl StdError for TaskError {
    /// What the error says about further attempts, if anything, and then the
    /// source of the error inside.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let Verdict { code, is_permanent, is_hand_back, input, .. } = &self.verdict;
        if code.is_none() && !is_permanent && !is_hand_back && input.is_none() {
            return self.verdict.error.source();
        }
        Some(&self.verdict)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.is_hand_back, self.is_permanent) {
            (true, _) => "hand-back",
            (false, true) => "permanent failure",
            (false, false) => "failure",
        })?;
        match &self.code {
            Some(code) => write!(f, " with code {:?}", code.word()),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Verdict {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

impl From<Error> for TaskError {
    fn from(error: Error) -> Self {
        TaskError::new(error)
    }
}

/// What a function is to begin afresh with, if that is what its error says.
pub(crate) fn new_input(error: &(dyn StdError + 'static)) -> Option<Payload> {
    verdicts(error).find_map(|verdict| verdict.input.clone())
}

/// What the links of an error say of further attempts.
fn verdicts<'e>(error: &'e (dyn StdError + 'static)) -> impl Iterator<Item = &'e Verdict> {
    let chain = std::iter::successors(Some(error), |&link| link.source());
    chain.take(CHAIN_LINKS_MAX).filter_map(|link| link.downcast_ref::<Verdict>())
}

/// Whether a handler's error gives its task back.
pub(crate) fn is_hand_back(error: &(dyn StdError + 'static)) -> bool {
    verdicts(error).any(|verdict| verdict.is_hand_back)
}

/// The failure that is recorded for a handler's error.
///
/// The outermost code counts, and one permanent link makes the whole permanent.
pub(crate) fn failure_of(error: &(dyn StdError + 'static)) -> Failure {
    let mut message = String::new();
    let mut code = None;
    let mut is_permanent = false;
    let chain = std::iter::successors(Some(error), |&link| link.source());
    for link in chain.take(CHAIN_LINKS_MAX) {
        if let Some(verdict) = link.downcast_ref::<Verdict>() {
            code = code.or_else(|| verdict.code.clone());
            is_permanent |= verdict.is_permanent;
            continue;
        }
        if !message.is_empty() {
            message.push_str(": ");
        }
        message.push_str(&link.to_string());
    }
    let failure = Failure::new(code.unwrap_or(FailureCode::Error), message);
    if is_permanent { failure.permanent() } else { failure }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    fn failure(error: impl Into<BoxError>) -> Failure {
        failure_of(&*error.into())
    }

    fn declined() -> TaskError {
        TaskError::new("card declined").code("card_declined").permanent()
    }

    fn expected(message: &str) -> Failure {
        Failure::new(FailureCode::Custom("card_declined".into()), message).permanent()
    }

    #[derive(Debug, thiserror::Error)]
    #[error("charging order {order}")]
    struct Charging {
        order: u32,
        source: TaskError,
    }

    #[test]
    fn a_hand_back_is_one_inside_other_errors_too() {
        let is_one = |error: BoxError| is_hand_back(&*error);
        assert!(is_one(TaskError::hand_back().into()));
        assert!(is_one(Charging { order: 7, source: TaskError::hand_back() }.into()));
        let wrapped = Err::<(), _>(TaskError::hand_back()).context("importing");
        assert!(is_one(wrapped.unwrap_err().into()));
        assert!(!is_one(declined().into()));
        assert!(!is_one("handed back".into()));
    }

    #[test]
    fn a_plain_error_is_worth_another_attempt() {
        let plain = Failure::new(FailureCode::Error, "connection refused");
        assert_eq!(failure("connection refused"), plain);
        assert_eq!(failure(TaskError::new("connection refused")), plain);
        assert_eq!(failure(anyhow::anyhow!("connection refused")), plain);
    }

    #[test]
    fn code_and_permanence_are_honoured_at_the_top_and_inside_other_errors() {
        assert_eq!(failure(declined()), expected("card declined"));
        let wrapped = Charging { order: 7, source: declined() };
        assert_eq!(failure(wrapped), expected("charging order 7: card declined"));
        assert_eq!(failure(TaskError::new(declined())), expected("card declined"));
    }

    #[test]
    fn code_and_permanence_survive_anyhow_with_and_without_context() {
        assert_eq!(failure(anyhow::Error::from(declined())), expected("card declined"));
        let wrapped = Err::<(), _>(declined()).context("paying").context("ordering");
        assert_eq!(failure(wrapped.unwrap_err()), expected("ordering: paying: card declined"));
    }

    #[test]
    fn the_outermost_code_counts_and_any_permanent_link_does() {
        let inner = TaskError::new("no funds").code("inner").permanent();
        let outer = failure(TaskError::new(inner).code("outer"));
        assert_eq!(outer.code, FailureCode::Custom("outer".into()));
        assert!(!outer.is_retryable);
        assert_eq!(outer.message, "no funds");
    }

    #[test]
    fn the_source_of_a_wrapped_error_is_part_of_the_message() {
        let wrapped = Charging { order: 7, source: TaskError::new("no funds") };
        let failure = failure(TaskError::new(wrapped).code("unpaid"));
        assert_eq!(failure.message, "charging order 7: no funds");
        assert_eq!(failure.code, FailureCode::Custom("unpaid".into()));
        assert!(failure.is_retryable);
    }

    #[test]
    fn a_word_of_windlass_is_the_code_of_that_meaning() {
        assert_eq!(failure(TaskError::new("slow").code("timeout")).code, FailureCode::Timeout);
    }

    #[test]
    fn an_endless_chain_of_sources_is_cut() {
        #[derive(Debug)]
        struct Endless;
        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("x")
            }
        }
        impl StdError for Endless {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                Some(self)
            }
        }
        assert_eq!(failure(Endless).message.matches('x').count(), CHAIN_LINKS_MAX);
    }

    #[test]
    fn another_reporter_shows_what_the_error_says_about_attempts() {
        let shown = format!("{:#}", anyhow::Error::from(declined()));
        assert_eq!(shown, r#"card declined: permanent failure with code "card_declined""#);
    }
}
