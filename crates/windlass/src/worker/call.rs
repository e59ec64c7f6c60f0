//! Calls to the link that are under way.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::store::StoreError;

/// A call under way.
pub(super) type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A call under way, if there is one.
pub(super) type Call<T> = Option<Pending<T>>;

/// A call that is given up after a time, with an unknown outcome: a link that hangs
/// must not cost the worker its lease.
pub(super) fn limited<T: 'static>(
    limit: Duration,
    call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Pending<Result<T, StoreError>> {
    Box::pin(async move {
        let late = |_| StoreError::Unavailable(format!("no answer within {limit:?}"));
        tokio::time::timeout(limit, call).await.map_err(late)?
    })
}

/// The answer of a call under way; never, if there is none. The call is left where
/// it is: whoever gets the answer clears it.
pub(super) async fn answer<T>(call: &mut Call<T>) -> T {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}
