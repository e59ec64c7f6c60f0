//! The examples in a network namespace of their own, from where nobody reaches the database: all
//! they have is the socket of a server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tokio::net::{TcpListener, UnixStream};
use windlass::Windlass;
use windlass::embedded::{EmbeddedOptions, EmbeddedPostgres};
use windlass::store::postgres::PostgresOptions;

use super::people::{ask, told};
use super::place::Place;
use super::serve::{Serving, through};
use super::text;

/// The examples that have an engine of their own, each with why.
const APART: [(&str, &str); 2] = [
    ("outbox", "it starts runs in transactions, which needs the database"),
    ("testing", "it has virtual time"),
];

/// How many runs there are of each workflow when every example ran twice: succeeded and failed.
/// What has a key is started once, with its children.
const ENDED: [(&str, (u32, u32)); 9] = [
    ("agent", (2, 0)),
    ("checked-order", (3, 0)),
    ("count", (39, 1)),
    ("journey", (2, 2)),
    ("journey~undo", (2, 0)),
    ("nightly-report", (2, 0)),
    ("onboarding", (6, 0)),
    ("order", (1, 0)),
    ("report", (4, 2)),
];

/// A place without a network, and without a directory.
struct Island {
    hidden: PathBuf,
}

impl Island {
    /// Checks that there can be one.
    fn new(hidden: PathBuf) -> Self {
        let island = Island { hidden };
        let tried = island.command(Path::new("true")).output().expect("unshare is installed");
        assert!(
            tried.status.success(),
            "this machine lets nobody make a network namespace, so nothing can be said of workers \
             without a network: {}\nCONTRIBUTING.md says how to leave this test out",
            text(&tried.stderr)
        );
        island
    }

    /// A program that runs there, with nothing in its environment that names a database.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--net", "--mount", "sh", "-ec"]);
        command.arg("mount -t tmpfs none \"$HIDDEN\"; exec \"$0\" \"$@\"").arg(program);
        command.env_remove("DATABASE_URL").env_remove("WINDLASS_SERVER");
        command.env("HIDDEN", &self.hidden).env("XDG_CONFIG_HOME", "/nowhere");
        command
    }

    /// What the command line says there of the runs.
    fn runs(&self, place: [&str; 2]) -> Output {
        let mut command = self.command(Path::new(env!("CARGO_BIN_EXE_windlass")));
        command.arg("runs").args(place).output().expect("it can be run")
    }
}

/// The examples that run wherever the environment says, as they were built beside this test.
fn examples() -> BTreeMap<String, PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../windlass/examples");
    let tests = std::env::current_exe().unwrap();
    let built = tests.parent().and_then(Path::parent).unwrap().join("examples");
    let mut examples = BTreeMap::new();
    for entry in std::fs::read_dir(sources).unwrap() {
        let source = entry.unwrap().path();
        let name = source.file_stem().unwrap().to_str().unwrap().to_owned();
        let is_apart = APART.iter().any(|(apart, _)| *apart == name);
        let follows = std::fs::read_to_string(&source).unwrap().contains("Windlass::from_env()");
        assert_eq!(follows, !is_apart, "example {name} runs where the environment says, or not");
        if follows {
            let program = built.join(&name);
            assert!(
                program.exists(),
                "{program:?} is missing: run `cargo build --workspace --all-features --examples`, \
                 or all tests by `cargo xtask test`"
            );
            examples.insert(name, program);
        }
    }
    examples
}

/// Lets everyone in who reaches an address of loopback; answers its port.
async fn open_to_network(database: &EmbeddedPostgres) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, socket) = (listener.local_addr().unwrap().port(), database.socket());
    tokio::spawn(async move {
        while let Ok((mut far, _)) = listener.accept().await {
            let mut near = UnixStream::connect(&socket).await.expect("the database listens");
            tokio::spawn(async move {
                // Who hangs up has heard enough.
                let _ = tokio::io::copy_bidirectional(&mut far, &mut near).await;
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_runs_through_a_server_from_where_no_database_can_be_reached() {
    let examples = examples();
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let database = options.start().await.expect("PostgreSQL is installed");
    let by_socket = database.url();
    Windlass::connect(PostgresOptions::new(&by_socket).migrate(true)).await.expect("it is there");
    let port = open_to_network(&database).await;
    let by_network = format!("postgres://windlass@127.0.0.1:{port}/postgres?sslmode=disable");
    let island = Island::new(place.directory());

    // Whoever is outside reaches the database both ways, and on the island nobody does.
    for url in [&by_socket, &by_network] {
        assert_eq!(told(url, &["runs"]), "no runs\n");
        let output = island.runs(["--database-url", url]);
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains("[WL-0007]"), "{url}: {error}");
    }

    let listen = format!("unix:{}", place.directory().with_file_name("windlass.sock").display());
    for round in 1..=2 {
        // The second server finds what the first, which was killed, has left behind.
        let (_serving, server) = Serving::start(&by_socket, &listen);
        assert_eq!(server, listen);
        assert!(island.runs(["--server", &server]).status.success(), "it is the way out");
        for (name, program) in &examples {
            let mut command = island.command(program);
            let output = command.env("WINDLASS_SERVER", &server).output().expect("it can be run");
            let (out, error) = (text(&output.stdout), text(&output.stderr));
            assert!(output.status.success(), "example {name}, round {round}:\n{out}{error}");
        }
        if round == 2 {
            let runs = through(&server, &["runs", "--json", "--limit", "1000"]);
            assert_eq!(ended(&runs), BTreeMap::from(ENDED), "{runs}");
        }
    }
    let audit = ask(&by_socket, &["audit"]);
    assert!(audit.status.success(), "{}{}", text(&audit.stdout), text(&audit.stderr));
    drop(place);
}

/// How many runs of each workflow have succeeded and failed.
fn ended(runs: &str) -> BTreeMap<&'static str, (u32, u32)> {
    let runs: Value = serde_json::from_str(runs).unwrap_or_else(|_| panic!("no JSON: {runs}"));
    let mut ended = BTreeMap::new();
    for run in runs["runs"].as_array().expect("it is a list") {
        let workflow = run["workflow"].as_str().expect("it has one");
        let known = ENDED.iter().find(|(name, _)| *name == workflow);
        let (name, _) = known.unwrap_or_else(|| panic!("nobody expects runs of {workflow:?}"));
        let counts: &mut (u32, u32) = ended.entry(*name).or_default();
        match run["state"].as_str() {
            Some("succeeded") => counts.0 += 1,
            Some("failed") => counts.1 += 1,
            state => panic!("a run of {workflow:?} is {state:?}"),
        }
    }
    ended
}
