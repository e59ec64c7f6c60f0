//! A database of its own for each test, on one throw-away server that the tests of all
//! processes share, see [`keeper`].

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

mod keeper;

use std::fs::{File, OpenOptions};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::{Client, NoTls};

use keeper::{GRANTED, Share, TEMPLATE};

/// A migrated, empty database; gone soon after the test.
pub(crate) struct TestDatabase {
    name: String,
    share: Share,
    /// Locked: the keeper drops the database when it finds that nobody has it.
    _held: File,
}

impl TestDatabase {
    /// A database with the newest schema.
    pub(crate) async fn new() -> Self {
        TestDatabase::make(&format!("template {TEMPLATE}")).await
    }

    /// A database with the newest schema and with the roles of
    /// [`Roles::default`](windlass::store::postgres::Roles).
    pub(crate) async fn granted() -> Self {
        TestDatabase::make(&format!("template {GRANTED}")).await
    }

    /// A database without a schema.
    pub(crate) async fn bare() -> Self {
        TestDatabase::make("").await
    }

    async fn make(options: &str) -> Self {
        let share = tokio::task::spawn_blocking(Share::take).await.unwrap();
        let (name, held) = hold_name(&share);
        let admin = connect(&share.url).await;
        let strategy = keeper::strategy(&admin).await;
        let sql = format!("create database {name} {options} {strategy}");
        admin.batch_execute(&sql).await.unwrap();
        TestDatabase { name, share, _held: held }
    }

    /// The address of the database.
    pub(crate) fn url(&self) -> String {
        url_of(&self.share.url, &self.name)
    }

    /// The address of the database for a role.
    pub(crate) fn url_as(&self, role: &str) -> String {
        self.url().replacen("windlass@", &format!("{role}@"), 1)
    }

    /// The address for audits. Most of what they cost is the planning of joins of many tables,
    /// which is lost on tables of a few rows.
    pub(crate) fn audited_url(&self) -> String {
        let settings = "-c%20join_collapse_limit%3D1%20-c%20from_collapse_limit%3D1";
        let url = self.url();
        let sign = if url.contains('?') { '&' } else { '?' };
        format!("{url}{sign}options={settings}")
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

/// A name that no database has, and the file that says that it is in use.
fn hold_name(share: &Share) -> (String, File) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{}_{number}", std::process::id());
        // Locked under another name: the keeper must not find it unlocked.
        let unready = share.place.join(format!("{name}.new"));
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&unready);
        let file = file.unwrap();
        file.lock().unwrap();
        // Another process may have had this pid, and the keeper not yet dropped its databases.
        let is_free = std::fs::hard_link(&unready, share.databases().join(&name)).is_ok();
        std::fs::remove_file(unready).unwrap();
        if is_free {
            return (name, file);
        }
    }
}

/// The address of another database on the same server.
fn url_of(url: &str, database: &str) -> String {
    let (server, _) = url.rsplit_once('/').unwrap();
    format!("{server}/{database}")
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
