//! A role of a test's own, which may do nothing.

use crate::database::TestDatabase;

/// Stays when the test is over: roles belong to the server, which is thrown away.
pub(crate) struct Role {
    name: String,
}

impl Role {
    pub(crate) async fn new(database: &TestDatabase, name: &str) -> Self {
        let name = format!("{name}_{}", database.name());
        let sql = format!("create role {name} login password 'right'");
        database.client().await.batch_execute(&sql).await.expect("a role can be made");
        Role { name }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The address of a database for this role.
    pub(crate) fn url(&self, database: &TestDatabase) -> String {
        database.url().replacen("windlass@", &format!("{}@", self.name), 1)
    }
}
