//! The server that all tests share, and the process that keeps it.
//!
//! The first test that needs the server starts the keeper, which starts the server and makes
//! the template. It outlives that test: with a server that goes with its last user, most
//! tests of a run would start one. When nobody has needed it for [`IDLE_MAX`] it stops the
//! server and removes everything.
//!
//! What a test holds are locks of the kernel on files, which end with its process:
//!
//! ```text
//! PLACE/            one for each checkout and each text of the migrations
//!   users           held by every test that uses the server
//!   url             the address of the server, held by the keeper while that is true
//!   keeper.log      what the keeper writes
//!   databases/NAME  held by the test that uses this database
//!   server/         the cluster
//! ```

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio_postgres::Client;
use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::{PostgresOptions, Roles, grants, migrate};

use super::{connect, url_of};
use crate::places::{MEMORY, places};

/// The database with the newest schema that others are copies of.
pub(super) const TEMPLATE: &str = "template_windlass";

/// The same in which the roles have what they need and no more.
pub(super) const GRANTED: &str = "template_windlass_granted";

/// How long the server stays when no test uses it: some tests in between need none.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// How often the keeper looks for databases that nobody has any more.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long a test waits for the server. On a bare machine PostgreSQL is installed first.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// Tells the keeper where to be.
const KEEPER: &str = "WINDLASS_TEST_KEEPER";

/// A test's share in the server, which runs at least as long.
pub(super) struct Share {
    pub(super) place: PathBuf,
    pub(super) url: String,
    _users: File,
}

impl Share {
    /// Joins those who use the server, and starts it if it does not run.
    pub(super) fn take() -> Share {
        let place = place();
        let users = join(&place);
        let began = Instant::now();
        let mut keeper: Option<Child> = None;
        loop {
            if let Some(url) = kept_url(&place) {
                return Share { place, url, _users: users };
            }
            let exit = keeper.as_mut().map(|keeper| keeper.try_wait().unwrap());
            match exit {
                // Another test may have been faster: then its keeper is the one.
                Some(Some(exit)) if !exit.success() => panic!("no server: {}", said(&place)),
                Some(Some(_)) | None => keeper = Some(spawn(&place)),
                Some(None) => {}
            }
            assert!(began.elapsed() < WAIT_MAX, "no server in {WAIT_MAX:?}: {}", said(&place));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn databases(&self) -> PathBuf {
        self.place.join("databases")
    }
}

/// What the keeper has to say.
fn said(place: &Path) -> String {
    std::fs::read_to_string(place.join("keeper.log")).unwrap_or_default()
}

fn place() -> PathBuf {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_MANIFEST_DIR").hash(&mut hasher);
    migrations().hash(&mut hasher);
    let name = format!("windlass-tests-{:016x}", hasher.finish());
    let in_memory = Path::new(MEMORY).join(&name);
    // Where it is, it stays: all tests must agree.
    if in_memory.exists() { in_memory } else { places().join(name) }
}

/// The texts of all migrations: with others, the template is another.
fn migrations() -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/postgres/migrations");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    texts.chain(grants(&Roles::default())).collect()
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).append(true).create(true).open(path).unwrap()
}

/// Makes the place if need be, and joins those who use it.
fn join(place: &Path) -> File {
    let path = place.join("users");
    loop {
        std::fs::create_dir_all(place).unwrap();
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o711)).unwrap();
        let users = open(&path);
        users.lock_shared().unwrap();
        let is_same = |there: Metadata| there.ino() == users.metadata().unwrap().ino();
        // A keeper that leaves takes the file along.
        if std::fs::metadata(&path).is_ok_and(is_same) {
            return users;
        }
    }
}

/// Whether a lock could be had.
fn is_locked(tried: Result<(), TryLockError>) -> bool {
    match tried {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => panic!("files cannot be locked: {error}"),
    }
}

/// The address of the server, if its keeper lives and the server accepts connections.
fn kept_url(place: &Path) -> Option<String> {
    let path = place.join("url");
    let is_kept = !is_locked(File::open(&path).ok()?.try_lock_shared());
    // Written whole or not at all: with the line's end.
    let text = std::fs::read_to_string(path).ok().filter(|_| is_kept)?;
    text.strip_suffix('\n').map(str::to_owned)
}

fn spawn(place: &Path) -> Child {
    let log = open(&place.join("keeper.log"));
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "database::keeper::keep", "--ignored", "--nocapture"])
        .env(KEEPER, place)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        // Whoever interrupts the test that has started it does not interrupt the others.
        .process_group(0)
        .spawn()
        .unwrap()
}

#[tokio::test]
#[ignore = "not a test: the process that keeps the server of the others"]
async fn keep() {
    let Some(place) = std::env::var_os(KEEPER).map(PathBuf::from) else {
        return;
    };
    let mut url = open(&place.join("url"));
    if !is_locked(url.try_lock()) {
        // There is another keeper.
        return;
    }
    url.set_len(0).unwrap();
    let databases = place.join("databases");
    // Those of a keeper that was killed.
    let _ = std::fs::remove_dir_all(&databases);
    std::fs::create_dir(&databases).unwrap();
    let options = EmbeddedOptions::new(place.join("server")).durable(false).temporary(true);
    let options = options.setting("max_connections", "300").setting("checkpoint_timeout", "1h");
    // Databases live for a second; whoever looks for those to vacuum only starts processes.
    let options = options.setting("autovacuum", "off");
    let postgres = options.start().await.unwrap();
    let admin = connect(&postgres.url()).await;
    make_template(&admin, &postgres.url(), TEMPLATE).await;
    make_template(&admin, &postgres.url(), GRANTED).await;
    writeln!(url, "{}", postgres.url()).unwrap();
    let users = open(&place.join("users"));
    let mut used_at = Instant::now();
    loop {
        drop_forgotten(&databases, &admin).await;
        tokio::time::sleep(LOOK_EVERY).await;
        if !is_locked(users.try_lock()) {
            used_at = Instant::now();
        } else if used_at.elapsed() < IDLE_MAX {
            users.unlock().unwrap();
        } else {
            break;
        }
    }
    drop(postgres);
    // With the lock on the users: who comes now waits, and makes another place then.
    std::fs::remove_dir_all(place).unwrap();
}

/// Makes the database that others are copies of, unless a keeper that was killed has.
async fn make_template(admin: &Client, url: &str, name: &str) {
    let sql = "select 1 from pg_database where datname = $1";
    if admin.query_opt(sql, &[&name]).await.unwrap().is_some() {
        return;
    }
    let building = format!("{name}_building");
    admin.batch_execute(&format!("drop database if exists {building}")).await.unwrap();
    admin.batch_execute(&format!("create database {building}")).await.unwrap();
    migrate(&PostgresOptions::new(url_of(url, &building))).await.unwrap();
    if name == GRANTED {
        let grants = grants(&Roles::default()).unwrap();
        let client = connect(&url_of(url, &building)).await;
        client.batch_execute(&grants).await.unwrap();
        // Once more: it changes nothing that is as it should be.
        client.batch_execute(&grants).await.unwrap();
    }
    let wait = "select count(*) from pg_stat_activity where datname = $1";
    while admin.query_one(wait, &[&building]).await.unwrap().get::<_, i64>(0) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let rename = format!("alter database {building} rename to {name}");
    admin.batch_execute(&rename).await.unwrap();
}

/// Drops the databases whose tests are over, however they ended.
async fn drop_forgotten(databases: &Path, admin: &Client) {
    for entry in std::fs::read_dir(databases).unwrap() {
        let entry = entry.unwrap();
        let file = open(&entry.path());
        if is_locked(file.try_lock()) {
            let name = entry.file_name().into_string().unwrap();
            let sql = format!("drop database if exists {name} with (force)");
            match admin.batch_execute(&sql).await {
                Ok(()) => std::fs::remove_file(entry.path()).unwrap(),
                // Tried again.
                Err(error) => println!("{name} cannot be dropped: {error}"),
            }
        }
    }
}

/// How a database is copied: file by file, which is what versions before 15 do anyway. Newer
/// ones would write all of it to the WAL.
pub(super) async fn strategy(admin: &Client) -> &'static str {
    let sql = "select current_setting('server_version_num')::int >= 150000";
    let has_choice: bool = admin.query_one(sql, &[]).await.unwrap().get(0);
    if has_choice { "strategy file_copy" } else { "" }
}
