//! Schedules that cannot be fired, and how sweeps go on without them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio_postgres::Row;
use windlass_core::Timestamp;
use windlass_core::schedule::GRACE;

use crate::Error;
use crate::store::StoreError;

/// How long a schedule is left out before it is tried again: shorter than the usual grace, so that
/// what passes soon costs no nominal time.
const LEFT_OUT: Duration = Duration::from_secs(30);
const _: () = assert!(LEFT_OUT.as_secs() < GRACE.as_secs());

/// A schedule as a row names it, whether or not that can be a name.
#[derive(Clone)]
pub(super) struct Named {
    pub(super) id: i64,
    tenant: String,
    name: String,
}

impl Named {
    pub(super) fn of(row: &Row) -> Self {
        Named { id: row.get("id"), tenant: row.get("tenant"), name: row.get("name") }
    }
}

/// The schedules that are left out, and since when. What another process leaves out it tries itself.
#[derive(Default)]
pub(in super::super) struct Unfired(Mutex<BTreeMap<i64, Timestamp>>);

impl Unfired {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<i64, Timestamp>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Those that are left out at a time.
    pub(super) fn ids(&self, now: Timestamp) -> Vec<i64> {
        self.with(|all| {
            // A clock that went back does not prolong it.
            all.retain(|_, since| *since <= now && now < *since + LEFT_OUT);
            all.keys().copied().collect()
        })
    }

    /// Leaves a schedule out from now on.
    pub(super) fn pass_over(&self, schedule: &Named, now: Timestamp, error: StoreError) {
        if self.with(|all| all.insert(schedule.id, now).is_none()) {
            let (Named { tenant, name, .. }, error) = (schedule, Error::from(error));
            tracing::error!(%tenant, %name, %error, "a schedule does not fire and is passed over");
        }
    }
}
