//! Waiting for the first of several calls.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::context::Ctx;
use crate::task_error::TaskError;

impl<I> Ctx<I> {
    /// Waits for the first of two to four calls, and drops the others: signals, sleeps, runs of
    /// other functions, steps. Of those that have come at the same time, it is the one that is
    /// named first; it is the same one when the function is run again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use windlass::{Ctx, Function, TaskError};
    /// use windlass::function::OneOf3;
    ///
    /// async fn settle(ctx: Ctx<u64>, bank: Function<u64, bool>) -> Result<String, TaskError> {
    ///     let paid = ctx.signal::<u64>("paid");
    ///     let asked = ctx.run(&bank, *ctx.input());
    ///     let over = ctx.sleep(Duration::from_secs(7 * 86_400));
    ///     Ok(match ctx.wait_any((paid, asked, over)).await? {
    ///         OneOf3::First(cents) => format!("paid {cents}"),
    ///         OneOf3::Second(is_paid) => format!("the bank says {is_paid}"),
    ///         OneOf3::Third(()) => "not paid in time".to_owned(),
    ///     })
    /// }
    /// ```
    ///
    /// What is no call itself but makes some, such as an `async` block, has to be pinned
    /// (`Box::pin`). A run that is dropped goes on, and is cancelled together with this one.
    ///
    /// # Errors
    ///
    /// That of the call that came first.
    pub fn wait_any<C>(&self, calls: C) -> WaitAny<C>
    where
        WaitAny<C>: Future,
    {
        WaitAny(Some(calls))
    }
}

/// A durable function's wait for the [first of several calls](Ctx::wait_any), to be awaited.
#[derive(Debug)]
#[must_use = "a wait does nothing unless it is awaited"]
pub struct WaitAny<C>(Option<C>);

impl<C> Unpin for WaitAny<C> {}

macro_rules! one_of {
    ($name:ident, $doc:literal, $(($variant:ident $call:ident $value:ident $place:tt)),+) => {
        #[doc = $doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name<$($value),+> {
            $(
                #[doc = concat!("What call ", stringify!($place), " (from 0) gave.")]
                $variant($value),
            )+
        }

        impl<$($call, $value),+> Future for WaitAny<($($call,)+)>
        where
            $($call: Future<Output = Result<$value, TaskError>> + Unpin,)+
        {
            type Output = Result<$name<$($value),+>, TaskError>;

            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
                let Some(calls) = &mut self.0 else { return Poll::Pending };
                $(
                    if let Poll::Ready(given) = Pin::new(&mut calls.$place).poll(context) {
                        // The others end here, not when this is dropped.
                        self.0 = None;
                        return Poll::Ready(given.map($name::$variant));
                    }
                )+
                Poll::Pending
            }
        }
    };
}

one_of!(OneOf2, "The first of two calls.", (First A X 0), (Second B Y 1));
one_of!(OneOf3, "The first of three calls.", (First A X 0), (Second B Y 1), (Third C Z 2));
one_of!(
    OneOf4,
    "The first of four calls.",
    (First A W 0),
    (Second B X 1),
    (Third C Y 2),
    (Fourth D Z 3)
);
