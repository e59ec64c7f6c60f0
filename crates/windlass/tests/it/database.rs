//! A database of its own for each test, on one throw-away server that the tests of all
//! processes share: the first starts it, the last one to leave stops it.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::{Client, NoTls};
use windlass::embedded::{EmbeddedOptions, EmbeddedPostgres};
use windlass::store::postgres::{PostgresOptions, migrate};

/// Taken while the template is made.
const TEMPLATE_LOCK: i64 = 0x5749_4e44;

/// A migrated, empty database; gone with the test.
pub(crate) struct TestDatabase {
    name: String,
    server: EmbeddedPostgres,
}

impl TestDatabase {
    /// A database with the newest schema.
    pub(crate) async fn new() -> Self {
        let server = start_server().await;
        let admin = connect(&server.url()).await;
        let template = make_template(&admin, &server).await;
        let name = unique_name();
        let sql = format!("create database {name} template {template}");
        admin.batch_execute(&sql).await.unwrap();
        TestDatabase { name, server }
    }

    /// A database without a schema.
    pub(crate) async fn bare() -> Self {
        let server = start_server().await;
        let admin = connect(&server.url()).await;
        let name = unique_name();
        admin.batch_execute(&format!("create database {name}")).await.unwrap();
        TestDatabase { name, server }
    }

    /// The address of the database.
    pub(crate) fn url(&self) -> String {
        url_of(&self.server, &self.name)
    }

    /// The name of the database.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A session of the test's own.
    pub(crate) async fn client(&self) -> Client {
        connect(&self.url()).await
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let url = self.server.url();
        let sql = format!("drop database if exists {} with (force)", self.name);
        // In a thread of its own: the test's runtime may be on its way out.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async { connect(&url).await.batch_execute(&sql).await })
        });
        // A database that is left behind harms nobody.
        let _ = dropped.join();
    }
}

async fn start_server() -> EmbeddedPostgres {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_MANIFEST_DIR").hash(&mut hasher);
    let place = std::env::temp_dir().join(format!("windlass-tests-{:016x}", hasher.finish()));
    std::fs::create_dir_all(&place).unwrap();
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o711)).unwrap();
    let options = EmbeddedOptions::new(place.join("database")).durable(false).temporary(true);
    options.setting("max_connections", "300").start().await.unwrap()
}

fn url_of(server: &EmbeddedPostgres, database: &str) -> String {
    let url = server.url();
    let (server, _) = url.rsplit_once('/').unwrap();
    format!("{server}/{database}")
}

fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Makes a migrated database to copy, unless it is there.
async fn make_template(admin: &Client, server: &EmbeddedPostgres) -> String {
    let mut hasher = DefaultHasher::new();
    migrations().hash(&mut hasher);
    let name = format!("template_{:016x}", hasher.finish());
    admin.execute("select pg_advisory_lock($1)", &[&TEMPLATE_LOCK]).await.unwrap();
    let sql = "select 1 from pg_database where datname = $1";
    if admin.query_opt(sql, &[&name]).await.unwrap().is_none() {
        let building = format!("{name}_building");
        admin.batch_execute(&format!("drop database if exists {building}")).await.unwrap();
        admin.batch_execute(&format!("create database {building}")).await.unwrap();
        migrate(&PostgresOptions::new(url_of(server, &building))).await.unwrap();
        let wait = "select count(*) from pg_stat_activity where datname = $1";
        while admin.query_one(wait, &[&building]).await.unwrap().get::<_, i64>(0) > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let rename = format!("alter database {building} rename to {name}");
        admin.batch_execute(&rename).await.unwrap();
    }
    admin.execute("select pg_advisory_unlock($1)", &[&TEMPLATE_LOCK]).await.unwrap();
    name
}

/// The texts of all migrations: with others, the template is another.
fn migrations() -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/postgres/migrations");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
