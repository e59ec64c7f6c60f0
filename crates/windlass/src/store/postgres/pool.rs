//! Connections, and the transactions that verbs are.

use deadpool_postgres::{Client, Manager, ManagerConfig, RecyclingMethod};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{NoTls, Row};

use super::fault::Fault;

/// A statement: its text and the types of its parameters.
pub(super) struct Sql {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    pub(super) types: &'static [Type],
}

/// Declares a statement: its constant, its file, and the types of its parameters.
macro_rules! sql {
    ($name:ident, $file:literal, [$($type:ident),*]) => {
        pub(super) static $name: Sql = Sql {
            name: $file,
            text: include_str!(concat!("sql/", $file, ".sql")),
            types: &[$(Type::$type),*],
        };
    };
}
pub(super) use sql;

/// The parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The connections of a store.
pub(super) struct Pool {
    connections: deadpool_postgres::Pool,
}

impl Pool {
    pub(super) async fn connect(url: &str) -> Result<Pool, Fault> {
        let config: tokio_postgres::Config = url.parse()?;
        let recycling_method = RecyclingMethod::Fast;
        let manager = Manager::from_config(config, NoTls, ManagerConfig { recycling_method });
        let connections = deadpool_postgres::Pool::builder(manager).max_size(8).build();
        let connections = connections.map_err(|error| Fault::Unavailable(error.to_string()))?;
        Ok(Pool { connections })
    }

    /// A connection, to begin a transaction on.
    pub(super) async fn get(&self) -> Result<Connection, Fault> {
        let client = self.connections.get().await;
        Ok(Connection(client.map_err(|error| Fault::Unavailable(error.to_string()))?))
    }
}

/// A connection that is this verb's alone.
pub(super) struct Connection(Client);

impl Connection {
    /// Begins a transaction. Dropped without a commit, it is rolled back.
    pub(super) async fn begin(&mut self) -> Result<Tx<'_>, Fault> {
        Ok(Tx(self.0.transaction().await?))
    }
}

/// One verb's transaction, at READ COMMITTED.
pub(super) struct Tx<'a>(deadpool_postgres::Transaction<'a>);

impl Tx<'_> {
    pub(super) async fn query(&self, sql: &Sql, params: Params<'_>) -> Result<Vec<Row>, Fault> {
        let statement = self.0.prepare_typed_cached(sql.text, sql.types).await?;
        Ok(self.0.query(&statement, params).await?)
    }

    pub(super) async fn execute(&self, sql: &Sql, params: Params<'_>) -> Result<u64, Fault> {
        let statement = self.0.prepare_typed_cached(sql.text, sql.types).await?;
        Ok(self.0.execute(&statement, params).await?)
    }

    pub(super) async fn commit(self) -> Result<(), Fault> {
        Ok(self.0.commit().await?)
    }
}
