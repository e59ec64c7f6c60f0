//! Whether requests should be sent to this server: one decision for HTTP and gRPC probes.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass::ErrorKind;
use windlass::store::Store;

use crate::problem::Problem;

/// How long the store may take to answer a probe.
const STORE_TIME_MAX: Duration = Duration::from_secs(2);

/// Checks that the server does not drain and that the store answers.
///
/// # Errors
///
/// `Unavailable` if the server is shutting down, or the store failed or did not answer in time.
pub(crate) async fn check(store: &dyn Store, ending: &CancellationToken) -> Result<(), Problem> {
    if ending.is_cancelled() {
        return Err(Problem::new(ErrorKind::Unavailable, "the server is shutting down"));
    }
    let late = |_| Problem::new(ErrorKind::Unavailable, "the store has not answered in time");
    tokio::time::timeout(STORE_TIME_MAX, store.now()).await.map_err(late)??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use windlass::store::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn a_server_that_drains_is_not_ready() {
        let (store, ending) = (MemoryStore::new(), CancellationToken::new());
        assert_eq!(check(&store, &ending).await, Ok(()));
        ending.cancel();
        assert_eq!(check(&store, &ending).await.unwrap_err().status(), 503);
    }
}
