//! PgBouncer in transaction mode, as distributions ship it.
//!
//! An installed one is used. Where there is none and the packages are Debian's, the package
//! and the libraries that it lacks are unpacked into the directory of the build: installed,
//! it would be started as a service of the machine. Everywhere else the test is left out,
//! and says so.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The only port of its socket.
const PORT: u16 = 6432;

/// How long it may take until it listens.
const START_MAX: Duration = Duration::from_secs(20);

/// How long a server of packages may take to say something.
const FETCH_TIMEOUT: &str = "Acquire::http::Timeout=20";

/// Listens on a socket of its own; gone with the test.
pub(crate) struct PgBouncer {
    child: Child,
    directory: PathBuf,
    database: String,
}

impl PgBouncer {
    /// The most connections to the server, for all clients.
    pub(crate) const SERVERS: i64 = 3;

    /// A pooler in front of a database on a socket. `None` where there is no PgBouncer, which
    /// is told on standard error.
    pub(crate) fn start(url: &str) -> Option<Self> {
        let program = match find() {
            Ok(program) => program,
            Err(reason) => {
                eprintln!(
                    "LEFT OUT: the test with a real PgBouncer, since there is none: {reason}; \
                     install it with your packages (Debian: apt-get install pgbouncer)"
                );
                return None;
            }
        };
        let config: tokio_postgres::Config = url.parse().expect("it is an address");
        let tokio_postgres::config::Host::Unix(host) = &config.get_hosts()[0] else {
            panic!("{url} is no socket");
        };
        let (port, database) = (config.get_ports()[0], config.get_dbname().expect("it has one"));
        let directory = std::env::temp_dir().join(format!("windlass-pgb-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&directory).expect("it can be made");
        // It refuses to be root: it becomes the account of the server, which may use its socket.
        let owner = std::fs::metadata(host).expect("the server is there");
        chown(&directory, Some(owner.uid()), Some(owner.gid())).expect("it can be given away");
        let user = match rustix::process::geteuid().is_root() {
            true => format!("user = {}", account(owner.uid())),
            false => String::new(),
        };
        let settings = format!(
            "[databases]\n{database} = host={host} port={port} user=windlass\n\
             [pgbouncer]\n{user}\nunix_socket_dir = {directory}\nlisten_port = {PORT}\n\
             auth_type = any\npool_mode = transaction\ndefault_pool_size = {servers}\n\
             max_client_conn = 200\nignore_startup_parameters = options\n",
            host = host.display(),
            directory = directory.display(),
            servers = Self::SERVERS,
        );
        let file = directory.join("pgbouncer.ini");
        std::fs::write(&file, settings).expect("it can be written");
        let mut command = program.command();
        let child = command.arg("--quiet").arg(&file).spawn().expect("it can be run");
        let mut bouncer = PgBouncer { child, directory, database: database.to_owned() };
        bouncer.wait();
        Some(bouncer)
    }

    fn wait(&mut self) {
        let socket = self.directory.join(format!(".s.PGSQL.{PORT}"));
        let began = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            let exit = self.child.try_wait().expect("it is our child");
            assert!(exit.is_none(), "PgBouncer has ended: {exit:?}");
            assert!(began.elapsed() < START_MAX, "PgBouncer does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn url(&self) -> String {
        let host = self.directory.to_string_lossy().replace('/', "%2F");
        format!("postgres://windlass@{host}:{PORT}/{}", self.database)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The program, and where it finds the libraries that were unpacked with it.
struct Program {
    path: PathBuf,
    libraries: Option<String>,
}

impl Program {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.stdin(Stdio::null());
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }

    fn is_there(&self) -> bool {
        let version = self.command().arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    }
}

/// Finds PgBouncer, or unpacks it. The error says why there is none.
fn find() -> Result<Program, String> {
    for path in ["pgbouncer", "/usr/sbin/pgbouncer"] {
        let installed = Program { path: path.into(), libraries: None };
        if installed.is_there() {
            return Ok(installed);
        }
    }
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pgbouncer");
    if !unpacked(&place).is_there() {
        unpack(&place)?;
    }
    let program = unpacked(&place);
    if program.is_there() { Ok(program) } else { Err(format!("{place:?} does not run")) }
}

fn unpacked(place: &Path) -> Program {
    let lib = place.join("usr/lib");
    let triplets = std::fs::read_dir(&lib).into_iter().flatten().flatten();
    let places = triplets.map(|entry| entry.path().display().to_string());
    let libraries = places.chain([lib.display().to_string()]).collect::<Vec<_>>().join(":");
    Program { path: place.join("usr/sbin/pgbouncer"), libraries: Some(libraries) }
}

/// Gets the package and what it needs, and changes nothing on the machine.
fn unpack(place: &Path) -> Result<(), String> {
    let beside = place.with_extension(std::process::id().to_string());
    let got = get(&beside);
    if got.is_ok() {
        // Another test may have been faster; then its tree is as good.
        let _ = std::fs::rename(beside.join("tree"), place);
    }
    let _ = std::fs::remove_dir_all(&beside);
    got
}

/// Unpacks the packages into `tree` in a directory.
fn get(beside: &Path) -> Result<(), String> {
    let said = |error: std::io::Error| format!("{beside:?}: {error}");
    std::fs::create_dir_all(beside.join("debs/partial")).map_err(said)?;
    let archives = format!("Dir::Cache::archives={}", beside.join("debs").display());
    let fetch = || {
        let call = "install -q -y --download-only --no-install-recommends -o Debug::NoLocking=1";
        let mut apt = Command::new("apt-get");
        apt.args(call.split(' ')).args(["-o", &archives, "-o", FETCH_TIMEOUT, "pgbouncer"]);
        run(&mut apt)
    };
    fetch().or_else(|error| {
        // A bare machine has no lists, and only root may get them.
        if !rustix::process::geteuid().is_root() {
            return Err(error);
        }
        run(Command::new("apt-get").args(["-q", "-y", "-o", FETCH_TIMEOUT, "update"]))?;
        fetch()
    })?;
    let tree = beside.join("tree");
    for entry in std::fs::read_dir(beside.join("debs")).map_err(said)? {
        let path = entry.map_err(said)?.path();
        if path.extension().is_some_and(|end| end == "deb") {
            run(Command::new("dpkg").arg("-x").args([&path, &tree]))?;
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Output { status, stderr, .. } =
        command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    let last = String::from_utf8_lossy(&stderr);
    let last = last.lines().next_back().unwrap_or_default();
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}: {last}")) }
}

/// The name of an account.
fn account(uid: u32) -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").expect("there are accounts");
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.expect("the server has an account")
}
