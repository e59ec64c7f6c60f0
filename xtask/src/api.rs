//! Schemathesis against a server as it is installed: with tokens, in front of a real database.
//!
//! It draws requests from the OpenAPI document, right ones and wrong ones, and follows what they
//! answer. Nothing of it may be an error of the server, and nothing may be answered to whoever
//! shows no token. It is a command of its own since it needs Python and some minutes.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::Failure;
use crate::steps::{call, cargo, words};

/// The version of Schemathesis. Another one may draw other requests.
const VERSION: &str = "4.32.5";

/// Where it is installed.
const TOOLS: &str = "target/tools";

/// The program, with the features that all other steps unite.
const BUILD: &str = "build --workspace --all-features --bin windlass";

/// What an answer must be, whoever asks.
const CHECKS: &str = "not_a_server_error,ignored_auth,status_code_conformance,\
    content_type_conformance,response_schema_conformance,response_headers_conformance";

/// Of all operations: without streams, which do not end. Revoking tokens comes last: it would be
/// done to the one that is shown.
const ALL: &str = "--phases examples,coverage,fuzzing,stateful --max-examples 50 \
    --exclude-path-regex stream$ --exclude-operation-id revoke_token";

/// What those are tried with who may do less.
const OTHERS: &str =
    "--phases coverage --exclude-path-regex stream$ --exclude-operation-id revoke_token";

/// Revoking alone.
const REVOKING: &str = "--phases coverage,fuzzing --include-operation-id revoke_token";

/// A process that is told to end when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Killed, it would leave its PostgreSQL behind.
        let told = Command::new("kill").arg(self.0.id().to_string()).status();
        if !told.is_ok_and(|told| told.success()) {
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }
}

/// Tries the server with all that can be drawn.
pub(crate) fn check(root: &Path) -> Result<(), Failure> {
    let schemathesis = installed(root)?;
    call("building the program", &format!("cargo {BUILD}"), cargo(root).args(words(BUILD)))?;
    let program = std::env::current_exe()
        .map(|own| own.with_file_name(format!("windlass{}", std::env::consts::EXE_SUFFIX)))
        .map_err(|error| Failure::Check(format!("cannot find the program: {error}")))?;
    let directory = std::env::temp_dir().join(format!("windlass-api-{}", std::process::id()));
    std::fs::create_dir_all(&directory)
        .map_err(|error| Failure::Check(format!("cannot make {}: {error}", directory.display())))?;
    let checked = Trial { schemathesis, program, directory: directory.clone() }.run();
    if let Err(error) = std::fs::remove_dir_all(&directory) {
        println!("-- {} is left: {error}", directory.display());
    }
    checked
}

struct Trial {
    schemathesis: PathBuf,
    program: PathBuf,
    directory: PathBuf,
}

impl Trial {
    fn run(&self) -> Result<(), Failure> {
        let mut database = Command::new(&self.program);
        database.args(["dev", "--listen", "127.0.0.1:0", "--data"]);
        database.arg(self.directory.join("data"));
        let (_database, url) = start(&mut database, "DATABASE_URL=")?;
        let mut server = Command::new(&self.program);
        server.args(["serve", "--listen", "127.0.0.1:0"]).env("DATABASE_URL", &url);
        let admin = self.token(&url, "admin", None)?;
        let (_server, address) = start(&mut server, "WINDLASS_SERVER=")?;
        self.draw(&address, &admin, ALL)?;
        for role in ["viewer", "worker", "operator"] {
            let token = self.token(&url, role, Some("acme"))?;
            self.draw(&address, &token, OTHERS)?;
        }
        self.draw(&address, &admin, REVOKING)
    }

    /// A token of a role, made at the database.
    fn token(&self, url: &str, role: &str, tenant: Option<&str>) -> Result<String, Failure> {
        let file = self.directory.join(format!("{role}.token"));
        let mut command = Command::new(&self.program);
        command.args(["tokens", "create", role, "--role", role, "--out"]).arg(&file);
        command.args(tenant.iter().flat_map(|tenant| ["--tenant", tenant]));
        call("making a token", "windlass tokens create", command.env("DATABASE_URL", url))?;
        let text = std::fs::read_to_string(&file)
            .map_err(|error| Failure::Check(format!("cannot read the token: {error}")))?;
        Ok(text.trim().to_owned())
    }

    fn draw(&self, address: &str, token: &str, options: &str) -> Result<(), Failure> {
        println!("-- schemathesis {options}");
        let mut command = Command::new(&self.schemathesis);
        command.args(["run", &format!("{address}/v1/openapi.json")]);
        command.args(["--header", &format!("Authorization: Bearer {token}")]);
        command.args(["--checks", CHECKS, "--request-timeout", "40", "--seed", "1", "--workers"]);
        command.args(["2", "--continue-on-failure", "--warnings", "off", "--no-color"]);
        command.args(words(options)).current_dir(&self.directory);
        call("schemathesis", &format!("schemathesis run … {options}"), &mut command)
    }
}

/// Starts a process, and reads what it says behind a word.
fn start(command: &mut Command, word: &str) -> Result<(Running, String), Failure> {
    let wrong = |why: String| Failure::Check(format!("waiting for {word}…: {why}"));
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut running = Running(child.map_err(|error| wrong(error.to_string()))?);
    let out = running.0.stdout.take().ok_or_else(|| wrong("it says nothing".to_owned()))?;
    for line in BufReader::new(out).lines() {
        let line = line.map_err(|error| wrong(error.to_string()))?;
        if let Some(value) = line.strip_prefix(word) {
            return Ok((running, value.to_owned()));
        }
    }
    Err(wrong("it ended before it was said".to_owned()))
}

/// Schemathesis of the right version, in an environment of its own.
fn installed(root: &Path) -> Result<PathBuf, Failure> {
    let home = root.join(TOOLS).join(format!("schemathesis-{VERSION}"));
    let program = home.join("bin/schemathesis");
    if program.is_file() {
        return Ok(program);
    }
    println!("-- Schemathesis {VERSION} is not there, installing it into {TOOLS}");
    let mut venv = Command::new("python3");
    call("python3 -m venv", "python3 -m venv", venv.args(["-m", "venv"]).arg(&home))?;
    let what = format!("schemathesis=={VERSION}");
    let mut pip = Command::new(home.join("bin/pip"));
    call("pip install", &format!("pip install {what}"), pip.args(["install", "--quiet", &what]))?;
    Ok(program)
}
