//! The same connections for transactions that all begin with the same commands.

use std::sync::Arc;

use super::{Habits, Pool};

impl Pool {
    /// Returns the same connections, on which every statement is in a transaction that begins
    /// with `commands`. Their effect must end with the transaction (`set local`).
    pub(in super::super) fn beginning(&self, commands: &str) -> Pool {
        let habits = &self.habits;
        let habits = Habits {
            database: habits.database.clone(),
            begin: format!("{}; {commands}", habits.begin),
            is_pooled: habits.is_pooled,
            always_begins: true,
            answer_max: habits.answer_max,
            acquire_timeout: habits.acquire_timeout,
            open_max: habits.open_max,
            tls: habits.tls.clone(),
            statements: Arc::clone(&habits.statements),
            #[cfg(feature = "testing")]
            steps: habits.steps.clone(),
        };
        let connections = self.connections.clone();
        Pool { connections, habits: Arc::new(habits), names: Arc::default() }
    }
}
