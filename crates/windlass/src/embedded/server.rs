//! The server process: started, adopted, waited for, stopped.
//!
//! Everything here blocks, and is called with the start lock held.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::binaries::Binaries;
use super::directory::Directory;
use super::log::Log;
use super::pid_file::{self, PidFile, Socket, Status, is_server};
use crate::{Error, ErrorKind};

/// How long a server may take to accept connections. After a crash it replays at most
/// what `max_wal_size` lets pile up.
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a server may take to end its sessions and write its checkpoint.
const STOP_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a server may take to end after it was told to drop everything.
const QUIT_TIME_MAX: Duration = Duration::from_secs(5);

/// How often a server is looked at; reading its pid file takes some microseconds.
const POLL: Duration = Duration::from_millis(5);

/// What a server says that finds sessions of its killed predecessor still at work.
/// They end as soon as they notice.
const STILL_IN_USE: &str = "pre-existing shared memory block";

/// A server that accepts connections.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) pid: Pid,
    pub(super) socket: Socket,
}

impl Server {
    /// The server that a pid file names, if it accepts connections.
    fn if_ready(file: PidFile) -> Option<Server> {
        match (file.status, file.socket) {
            (Status::Ready, Some(socket)) => {
                let is_open = UnixStream::connect(socket.path()).is_ok();
                is_open.then_some(Server { pid: file.pid, socket })
            }
            (Status::Ready, None) | (Status::Starting | Status::Stopping, _) => None,
        }
    }

    /// The server that already runs in the directory, whoever started it; waits for
    /// one that is coming up or going down. `None` if there is none.
    pub(super) fn adopt(directory: &Directory) -> Result<Option<Server>, Error> {
        let data = directory.data();
        let began = Instant::now();
        while let Some(file) = running(&data) {
            let pid = file.pid;
            let server = Server::if_ready(file);
            if server.is_some() {
                return Ok(server);
            }
            if began.elapsed() > START_TIME_MAX {
                let text = format!(
                    "the server of {:?} (pid {}) runs, but has not accepted connections \
                     for {START_TIME_MAX:?}; its log is {:?}",
                    directory.path(),
                    pid.as_raw_pid(),
                    directory.log()
                );
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
            sleep(POLL);
        }
        Ok(None)
    }

    /// Starts a server on a cluster that has none, and waits until it accepts
    /// connections. One that takes too long is left at work, so that a long recovery
    /// ends some day: the next start adopts it.
    pub(super) fn launch(
        directory: &Directory,
        binaries: &Binaries,
        settings: &[(String, String)],
    ) -> Result<Server, Error> {
        let began = Instant::now();
        loop {
            let log = Log::open(directory)?;
            let mut launched = Launched::spawn(directory, binaries, settings, &log)?;
            let exit = match launched.wait(&directory.data(), began) {
                Outcome::Ready(server) => return Ok(server),
                Outcome::Late => {
                    let what = format!(
                        "has not accepted connections for {START_TIME_MAX:?}, and is left at work"
                    );
                    return Err(not_up(directory, &what, &log));
                }
                Outcome::Ended(exit) => exit,
            };
            if !log.read().contains(STILL_IN_USE) || began.elapsed() > START_TIME_MAX {
                return Err(not_up(directory, &format!("ended ({exit})"), &log));
            }
            sleep(POLL);
        }
    }
}

/// Whether a server runs in a directory, whatever it does.
pub(super) fn is_running(directory: &Directory) -> bool {
    running(&directory.data()).is_some()
}

/// The pid file of a server that is alive.
fn running(data: &Path) -> Option<PidFile> {
    PidFile::read(data).filter(|file| is_server(file.pid, data))
}

fn not_up(directory: &Directory, what: &str, log: &Log) -> Error {
    let text =
        format!("the server of {:?} {what}; the end of its log:\n{}", directory.path(), log.tail());
    Error::new(ErrorKind::Unavailable, text)
}

/// A server process that this process started.
struct Launched {
    pid: Pid,
    exit: Arc<OnceLock<ExitStatus>>,
}

/// What became of it.
enum Outcome {
    Ready(Server),
    Ended(ExitStatus),
    Late,
}

impl Launched {
    fn spawn(
        directory: &Directory,
        binaries: &Binaries,
        settings: &[(String, String)],
        log: &Log,
    ) -> Result<Launched, Error> {
        let data = directory.data();
        pid_file::disarm(&data)?;
        let program = binaries.program("postgres");
        let account = directory.account();
        let mut command = account.command(&program, directory.path());
        command.arg("-D").arg(&data);
        for (name, value) in settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        // A group of its own: Ctrl-C is for the commands, which decide about the server.
        command.process_group(0);
        let spawn =
            || command.stdout(Stdio::from(log.share()?)).stderr(Stdio::from(log.share()?)).spawn();
        let mut spawn = spawn;
        let child = spawn().map_err(|error| {
            let text = format!("{program:?} cannot be run by {:?}: {error}", account.name());
            Error::new(ErrorKind::Unavailable, text)
        })?;
        Ok(Launched { pid: Pid::from_child(&child), exit: reap(child)? })
    }

    fn wait(&mut self, data: &Path, began: Instant) -> Outcome {
        loop {
            if let Some(exit) = self.exit.get() {
                return Outcome::Ended(*exit);
            }
            let file = PidFile::read(data).filter(|file| file.pid == self.pid);
            if let Some(server) = file.and_then(Server::if_ready) {
                return Outcome::Ready(server);
            }
            if began.elapsed() > START_TIME_MAX {
                return Outcome::Late;
            }
            sleep(POLL);
        }
    }
}

/// Waits for a child on a thread of its own, for as long as it lives: a server that
/// nobody waits for would stay a zombie, and its pid look alive to the next one.
fn reap(mut child: Child) -> Result<Arc<OnceLock<ExitStatus>>, Error> {
    let exit = Arc::new(OnceLock::new());
    let set = Arc::clone(&exit);
    let wait = move || {
        if let Ok(status) = child.wait() {
            let _ = set.set(status);
        }
    };
    let thread = std::thread::Builder::new().name("windlass-postgres".to_owned());
    thread.stack_size(64 << 10).spawn(wait).map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("cannot start a thread: {error}"))
    })?;
    Ok(exit)
}

/// How a server is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    /// Sessions are cut, everything is written: the next start needs no recovery.
    Fast,
    /// Everything is dropped, for a cluster that is not needed any more.
    Immediate,
}

/// Stops the server that runs in a directory, if one does. One that does not end in
/// time is told to drop everything, which the next start recovers from.
pub(super) fn stop(directory: &Directory, shutdown: Shutdown) -> Result<(), Error> {
    let data = directory.data();
    let Some(file) = running(&data) else {
        return Ok(());
    };
    let steps: &[(Signal, Duration)] = match shutdown {
        Shutdown::Fast => &[(Signal::INT, STOP_TIME_MAX), (Signal::QUIT, QUIT_TIME_MAX)],
        Shutdown::Immediate => &[(Signal::QUIT, QUIT_TIME_MAX)],
    };
    for (signal, time_max) in steps {
        match kill_process(file.pid, *signal) {
            // It ended in the meantime.
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(error) => {
                let text = format!(
                    "the server of {:?} (pid {}) cannot be stopped: {error}",
                    directory.path(),
                    file.pid.as_raw_pid()
                );
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
            Ok(()) => {}
        }
        let began = Instant::now();
        while began.elapsed() < *time_max {
            if !is_server(file.pid, &data) {
                return Ok(());
            }
            sleep(POLL);
        }
    }
    let text = format!(
        "the server of {:?} (pid {}) has not ended; its log is {:?}",
        directory.path(),
        file.pid.as_raw_pid(),
        directory.log()
    );
    Err(Error::new(ErrorKind::Unavailable, text))
}
