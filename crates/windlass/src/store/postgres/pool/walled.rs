//! The same connections, for who reads behind a wall.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::{Habits, Pool};

impl Pool {
    /// The same connections for transactions that begin behind a wall: what `enter` says is done
    /// at the beginning of each, and is over with it.
    pub(in super::super) fn walled(&self, enter: &str) -> Pool {
        let habits = &self.habits;
        let habits = Habits {
            begin: format!("{}; {enter}", habits.begin),
            is_pooled: habits.is_pooled,
            is_walled: true,
            answer_max: habits.answer_max,
            acquire_timeout: habits.acquire_timeout,
            open_max: habits.open_max,
            tls: habits.tls.clone(),
            statements: AtomicU64::new(0),
            #[cfg(feature = "testing")]
            steps: habits.steps.clone(),
        };
        let connections = self.connections.clone();
        Pool { connections, habits: Arc::new(habits), names: Arc::default() }
    }
}
