//! The private PostgreSQL, with a real server and real kills.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process, kill_process_group};
use windlass::ErrorKind;
use windlass::embedded::{EmbeddedOptions, EmbeddedPostgres, Install};

/// How long a test waits for something to be seen. On a bare machine that something
/// may install PostgreSQL first.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// The variable that tells the helper process what to start.
const HELPER: &str = "WINDLASS_TEST_EMBEDDED";

/// The variable by which `cargo xtask test --install` says that sudo may be used.
const INSTALL: &str = "WINDLASS_TEST_INSTALL";

/// Where `cargo xtask test` says that the real programs are, if it shows others.
const REAL_PROGRAMS: &str = "WINDLASS_TEST_PG_BIN";

/// A place for one test that the server's account can reach; gone with the test.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-it-{}-{number}", std::process::id());
        let path = crate::places::places().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o711)).unwrap();
        Place(path.canonicalize().unwrap())
    }

    fn directory(&self) -> PathBuf {
        self.0.join("database")
    }

    fn data(&self) -> PathBuf {
        self.directory().join("data")
    }

    /// A server that survives its handle, as in production, but is made faster.
    fn options(&self) -> EmbeddedOptions {
        let may_install = std::env::var_os(INSTALL).is_some();
        let install = if may_install { Install::WithSudo } else { Install::IfRoot };
        EmbeddedOptions::new(self.directory()).durable(false).install(install)
    }

    async fn start(&self) -> EmbeddedPostgres {
        self.options().start().await.unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A test that failed may have left its server behind.
        let file = std::fs::read_to_string(self.data().join("postmaster.pid"));
        let pid = file.ok().and_then(|text| text.lines().next()?.parse().ok());
        if let Some(pid) = pid.filter(|_| std::thread::panicking()).and_then(Pid::from_raw) {
            let cwd = std::fs::read_link(format!("/proc/{}/cwd", pid.as_raw_pid()));
            if cwd.is_ok_and(|cwd| cwd == self.data()) {
                let _ = kill_process(pid, Signal::QUIT);
                wait_until("the server has ended", || !is_alive(pid));
            }
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < WAIT_MAX, "not within {WAIT_MAX:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_alive(pid: Pid) -> bool {
    rustix::process::test_kill_process(pid).is_ok()
}

fn pid_of(postgres: &EmbeddedPostgres) -> Pid {
    Pid::from_raw(postgres.pid().cast_signed()).unwrap()
}

/// A session that speaks just enough of the protocol to send a statement and to read
/// the first column of what comes back.
struct Session(UnixStream);

impl Session {
    fn open(postgres: &EmbeddedPostgres) -> Self {
        let mut stream = UnixStream::connect(postgres.socket()).unwrap();
        let body = b"\0\x03\0\0user\0windlass\0database\0postgres\0\0";
        stream.write_all(&(body.len() as u32 + 4).to_be_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut session = Session(stream);
        session.answer();
        session
    }

    fn query(&mut self, sql: &str) -> Vec<String> {
        self.send(sql);
        self.answer()
    }

    fn send(&mut self, sql: &str) {
        self.0.write_all(b"Q").unwrap();
        self.0.write_all(&(sql.len() as u32 + 5).to_be_bytes()).unwrap();
        self.0.write_all(sql.as_bytes()).unwrap();
        self.0.write_all(b"\0").unwrap();
    }

    /// Reads up to the next "ready for query".
    fn answer(&mut self) -> Vec<String> {
        let mut values = Vec::new();
        loop {
            let mut head = [0; 5];
            self.0.read_exact(&mut head).unwrap();
            let length = u32::from_be_bytes(head[1..].try_into().unwrap());
            let mut body = vec![0; length as usize - 4];
            self.0.read_exact(&mut body).unwrap();
            match head[0] {
                b'Z' => return values,
                b'E' => panic!("{}", String::from_utf8_lossy(&body)),
                b'D' => values.push(String::from_utf8(body[6..].to_vec()).unwrap()),
                _ => {}
            }
        }
    }
}

fn query(postgres: &EmbeddedPostgres, sql: &str) -> Vec<String> {
    Session::open(postgres).query(sql)
}

/// Another process that starts a server and then does nothing.
struct Helper(Child);

impl Helper {
    fn spawn(place: &Place) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "embedded::helper", "--ignored", "--nocapture"])
            .env(HELPER, place.directory())
            // A copy would be there at once, and nothing could be killed.
            .envs(std::env::var_os(REAL_PROGRAMS).map(|programs| ("WINDLASS_PG_BIN", programs)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        Helper(child)
    }

    /// The pid of its server, once it accepts connections.
    fn server(&mut self) -> u32 {
        let output = BufReader::new(self.0.stdout.as_mut().unwrap());
        let mut lines = output.lines().map(Result::unwrap);
        let line = lines.find_map(|line| line.split_once("pid=").map(|(_, pid)| pid.to_owned()));
        line.expect("the helper has started a server").parse().unwrap()
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
#[ignore = "not a test: the process that other tests start and kill"]
async fn helper() {
    let Some(directory) = std::env::var_os(HELPER) else {
        return;
    };
    let postgres = EmbeddedOptions::new(directory).durable(false).start().await.unwrap();
    println!("pid={}", postgres.pid());
    // Ends with its parent, should that die without killing it.
    let _ = std::io::stdin().read(&mut [0]);
}

#[tokio::test]
async fn a_durable_server_starts_cold_and_warm_and_keeps_what_was_committed() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory());
    let began = Instant::now();
    let postgres = options.clone().start().await.unwrap();
    let version = query(&postgres, "show server_version_num");
    println!("cold start to first answer: {:?}", began.elapsed());
    assert!(version[0].parse::<u32>().unwrap() >= 140_000);
    assert!(!postgres.is_adopted());
    assert_eq!(query(&postgres, "show fsync"), ["on"]);
    assert_eq!(query(&postgres, "show listen_addresses"), [""]);
    query(&postgres, "create table kept as select 42 as answer");

    let began = Instant::now();
    postgres.stop().await.unwrap();
    println!("stop: {:?}", began.elapsed());
    assert!(!place.data().join("postmaster.pid").exists());

    let began = Instant::now();
    let postgres = options.start().await.unwrap();
    assert_eq!(query(&postgres, "select answer from kept"), ["42"]);
    println!("warm start to first answer: {:?}", began.elapsed());
    assert!(!postgres.is_adopted());
    let log = std::fs::read_to_string(postgres.log()).unwrap();
    assert!(!log.contains("not properly shut down"), "{log}");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_is_private_and_does_not_run_as_root() {
    let place = Place::new();
    let postgres = place.start().await;
    let owner = std::fs::metadata(format!("/proc/{}", postgres.pid())).map(|it| it.uid());
    assert_ne!(owner.unwrap_or(1), 0);
    let metadata = std::fs::metadata(place.directory()).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o700);
    assert_ne!(metadata.uid(), 0);
    assert_eq!(std::fs::metadata(place.data()).unwrap().uid(), metadata.uid());
    let url = postgres.url();
    assert!(url.starts_with("postgres://windlass@%2F"), "{url}");
    assert!(url.ends_with("socket:5432/postgres"), "{url}");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn tables_that_name_no_schema_are_not_made_in_that_of_the_engine() {
    let place = Place::new();
    let postgres = place.start().await;
    query(&postgres, "create schema windlass");
    query(&postgres, "create table mine (id integer)");
    let found = query(&postgres, "select schemaname from pg_tables where tablename = 'mine'");
    assert_eq!(found, ["public"]);
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_whose_parent_was_killed_is_adopted() {
    let place = Place::new();
    let mut helper = Helper::spawn(&place);
    let server = helper.server();
    helper.kill();
    let began = Instant::now();
    let postgres = place.start().await;
    println!("adoption: {:?}", began.elapsed());
    assert!(postgres.is_adopted());
    assert_eq!(postgres.pid(), server);
    assert_eq!(query(&postgres, "select 1"), ["1"]);
    // The killed process holds no share any more: this handle is the last one.
    let pid = pid_of(&postgres);
    postgres.stop().await.unwrap();
    wait_until("the server has ended", || !is_alive(pid));
}

#[tokio::test]
async fn ctrl_c_to_a_whole_process_group_leaves_the_server_running() {
    let place = Place::new();
    let mut helper = Helper::spawn(&place);
    let server = helper.server();
    kill_process_group(Pid::from_child(&helper.0), Signal::INT).unwrap();
    helper.0.wait().unwrap();
    let postgres = place.start().await;
    assert_eq!(postgres.pid(), server);
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn starts_at_the_same_time_share_one_server_and_the_last_stop_ends_it() {
    let place = Place::new();
    let (one, two) = tokio::join!(place.options().start(), place.options().start());
    let (one, two) = (one.unwrap(), two.unwrap());
    let mut helper = Helper::spawn(&place);
    assert_eq!(helper.server(), one.pid());
    assert_eq!(one.pid(), two.pid());
    assert_ne!(one.is_adopted(), two.is_adopted());

    one.stop().await.unwrap();
    assert_eq!(query(&two, "select 1"), ["1"]);
    helper.kill();
    two.stop().await.unwrap();
    assert!(!place.data().join("postmaster.pid").exists());
}

#[tokio::test]
async fn a_handle_that_is_dropped_leaves_the_server_to_the_next_start() {
    let place = Place::new();
    let first = place.start().await;
    let pid = first.pid();
    drop(first);
    let second = place.start().await;
    assert!(second.is_adopted());
    assert_eq!(second.pid(), pid);
    second.stop().await.unwrap();
}

#[tokio::test]
async fn a_temporary_server_goes_with_its_handle_and_takes_its_directory_along() {
    let place = Place::new();
    let postgres = place.options().temporary(true).start().await.unwrap();
    let pid = pid_of(&postgres);
    drop(postgres);
    wait_until("the server has ended", || !is_alive(pid));
    assert!(!place.directory().exists());
}

#[tokio::test]
async fn a_temporary_handle_never_removes_a_cluster_that_it_did_not_make() {
    let place = Place::new();
    let postgres = place.start().await;
    query(&postgres, "create table kept as select 1");
    postgres.stop().await.unwrap();
    drop(place.options().temporary(true).start().await.unwrap());
    assert!(!place.data().join("postmaster.pid").exists());
    let postgres = place.start().await;
    assert_eq!(query(&postgres, "select count(*) from kept"), ["1"]);
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_killed_while_writing_comes_back_with_every_acknowledged_row() {
    let place = Place::new();
    let postgres = EmbeddedOptions::new(place.directory()).start().await.unwrap();
    let mut session = Session::open(&postgres);
    session.query("create table written (number int)");
    for number in 0..20 {
        session.query(&format!("insert into written values ({number})"));
    }
    // A session at work does not notice that its server is gone before it is done.
    let mut busy = Session::open(&postgres);
    busy.send("select count(*) from generate_series(1, 2000000)");
    let at_work = "select count(*) from pg_stat_activity
                   where state = 'active' and query like '%generate_series(1%'
                   and pid <> pg_backend_pid()";
    wait_until("the session is at work", || query(&postgres, at_work) == ["1"]);
    kill_process(pid_of(&postgres), Signal::KILL).unwrap();
    let began = Instant::now();
    let again = EmbeddedOptions::new(place.directory()).start().await.unwrap();
    println!("start after a kill of the server: {:?}", began.elapsed());
    assert!(!again.is_adopted());
    assert_ne!(again.pid(), postgres.pid());
    assert_eq!(query(&again, "select count(*) from written"), ["20"]);
    // The old handle has a share in the new server, and is not the last.
    postgres.stop().await.unwrap();
    assert_eq!(query(&again, "select 1"), ["1"]);
    again.stop().await.unwrap();
}

#[tokio::test]
async fn a_kill_during_initdb_starts_over() {
    let place = Place::new();
    let mut helper = Helper::spawn(&place);
    let unfinished = place.directory().join("data.tmp");
    wait_until("initdb is at work", || unfinished.join("PG_VERSION").exists());
    helper.kill();
    assert!(!place.data().exists(), "the kill came too late to show anything");
    let postgres = place.start().await;
    assert!(!postgres.is_adopted());
    assert!(!unfinished.exists());
    assert_eq!(query(&postgres, "select 1"), ["1"]);
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_pid_file_with_a_pid_that_lives_on_in_another_process_blocks_nothing() {
    let place = Place::new();
    let postgres = place.start().await;
    let pid_file = place.data().join("postmaster.pid");
    let socket_lock = postgres.socket().with_file_name(".s.PGSQL.5432.lock");
    let left = std::fs::read_to_string(&pid_file).unwrap();
    let (server, rest) = left.split_once('\n').unwrap();
    assert_eq!(server, postgres.pid().to_string());
    postgres.stop().await.unwrap();

    // A stranger, and a zombie: `kill -0` finds both alive.
    let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
    let mut zombie = Command::new("true").spawn().unwrap();
    for pid in [stranger.id(), zombie.id()] {
        for path in [&pid_file, &socket_lock] {
            std::fs::write(path, format!("{pid}\n{rest}")).unwrap();
        }
        let postgres = place.start().await;
        assert!(!postgres.is_adopted());
        assert_eq!(query(&postgres, "select 1"), ["1"]);
        postgres.stop().await.unwrap();
    }
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger was left alone");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    zombie.wait().unwrap();

    // A crash in the middle of writing the file.
    std::fs::write(&pid_file, "").unwrap();
    place.start().await.stop().await.unwrap();
}

#[tokio::test]
async fn a_cluster_of_a_version_that_is_not_installed_is_refused_and_left_alone() {
    let place = Place::new();
    place.start().await.stop().await.unwrap();
    let version = place.data().join("PG_VERSION");
    std::fs::write(&version, "99\n").unwrap();
    let error = place.options().start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let text = error.to_string();
    assert!(text.contains("is of PostgreSQL 99"), "{text}");
    assert!(text.contains(&format!("{:?}", place.data())), "{text}");
    assert_eq!(std::fs::read_to_string(&version).unwrap(), "99\n");

    std::fs::write(&version, "ninety\n").unwrap();
    let error = place.options().start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("ninety"), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_come_up_is_quoted() {
    let place = Place::new();
    let error = place.options().setting("no_such_setting", "1").start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("unrecognized configuration parameter"), "{text}");
    assert!(text.contains(&format!("{:?}", place.directory())), "{text}");
    assert!(!place.directory().exists(), "nothing is left behind");
    let postgres = place.options().setting("work_mem", "7MB").start().await.unwrap();
    assert_eq!(query(&postgres, "show work_mem"), ["7MB"]);
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn starts_that_fail_take_nothing_from_those_that_do_not() {
    let place = Place::new();
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let options = place.options().setting("no_such_setting", "1");
        starts.spawn(async move { (false, options.start().await) });
    }
    // One of those is at work, so the others find its lock, and it fails while they wait.
    let lock = place.directory().join("windlass.lock");
    let wait = move || wait_until("a start has its lock", || lock.exists());
    tokio::task::spawn_blocking(wait).await.unwrap();
    for _ in 0..2 {
        let options = place.options();
        starts.spawn(async move { (true, options.start().await) });
    }
    let mut sound = Vec::new();
    for (is_sound, started) in starts.join_all().await {
        match started {
            Ok(postgres) => sound.push(postgres),
            Err(error) => {
                assert!(!is_sound, "{error}");
                let text = error.to_string();
                assert!(text.contains("unrecognized configuration parameter"), "{text}");
            }
        }
    }
    assert!(sound.len() >= 2);
    for postgres in &sound {
        assert_eq!(query(postgres, "select 1"), ["1"]);
        assert!(postgres.is_shared().await.unwrap());
    }
    let last = sound.pop().unwrap();
    for postgres in sound {
        postgres.stop().await.unwrap();
    }
    assert!(!last.is_shared().await.unwrap());
    assert_eq!(query(&last, "select 1"), ["1"]);
    last.stop().await.unwrap();
}

#[tokio::test]
async fn a_log_that_has_grown_over_its_limit_is_set_aside() {
    let place = Place::new();
    let postgres = place.start().await;
    let log = postgres.log();
    postgres.stop().await.unwrap();
    let limit = 4 << 20;
    for (bytes, is_set_aside) in [(limit, false), (limit + 1, true)] {
        std::fs::write(&log, vec![b'x'; bytes]).unwrap();
        place.start().await.stop().await.unwrap();
        assert_eq!(log.with_file_name("server.log.1").exists(), is_set_aside);
        let has_old = std::fs::metadata(&log).unwrap().len() >= bytes as u64;
        assert_ne!(has_old, is_set_aside);
    }
}

#[tokio::test]
async fn a_directory_with_a_long_path_and_strange_characters_works() {
    let place = Place::new();
    let directory = place.0.join(format!("a \"b\", é%{}", "x".repeat(120)));
    let options = EmbeddedOptions::new(&directory).durable(false).temporary(true);
    let postgres = options.start().await.unwrap();
    let socket = postgres.socket();
    assert!(socket.starts_with("/tmp"), "{socket:?}");
    assert_eq!(query(&postgres, "select 1"), ["1"]);
    drop(postgres);
    assert!(!socket.parent().unwrap().exists());
    assert!(!directory.exists());
}

#[tokio::test]
async fn a_directory_that_the_servers_account_cannot_reach_is_refused() {
    let place = Place::new();
    let closed = place.0.join("closed");
    std::fs::create_dir(&closed).unwrap();
    // Root's servers run as another account; others are kept out by a missing right.
    let mode = if geteuid().is_root() { 0o700 } else { 0o000 };
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(mode)).unwrap();
    let directory = closed.join("database");
    let error = EmbeddedOptions::new(&directory).start().await.unwrap_err();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(error.kind(), ErrorKind::Argument);
    let text = error.to_string();
    assert!(text.contains(&format!("{directory:?}")), "{text}");
    if geteuid().is_root() {
        assert!(text.contains(&format!("{closed:?} is closed to it")), "{text}");
    }
    assert!(!directory.exists(), "nothing is left behind");
}

#[tokio::test]
async fn a_directory_of_another_account_is_refused() {
    let place = Place::new();
    let directory = if geteuid().is_root() {
        let directory = place.directory();
        std::fs::create_dir(&directory).unwrap();
        std::os::unix::fs::chown(&directory, Some(54_321), None).unwrap();
        directory
    } else {
        PathBuf::from("/usr")
    };
    let error = EmbeddedOptions::new(&directory).start().await.unwrap_err();
    assert!(error.to_string().contains(&format!("{directory:?}")), "{error}");
    if geteuid().is_root() {
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.to_string().contains("belongs to uid 54321"), "{error}");
    }
}

#[tokio::test]
async fn programs_that_are_not_where_they_were_said_to_be_are_an_error() {
    let place = Place::new();
    let error = place.options().binaries("/nowhere/bin").start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert!(error.to_string().contains("\"/nowhere/bin\""), "{error}");
    assert!(!Path::new(&place.directory()).exists(), "nothing is left behind");
}
