//! Places for databases, and processes that are killed.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How long a test waits for something to be seen. On a bare machine that something may
/// install PostgreSQL first.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// The file system in memory of Linux. The demo's server is durable, and waits for the disk
/// that it shares with everyone else.
const MEMORY: &str = "/dev/shm";

/// How much must be free there for the clusters of the tests that run at once.
const MEMORY_BYTES_MIN: u64 = 2 << 30;

/// Where places are made: in memory if there is room.
fn parent() -> PathBuf {
    let room = rustix::fs::statvfs(MEMORY).map(|it| it.f_bavail.saturating_mul(it.f_frsize));
    let is_memory = cfg!(target_os = "linux")
        && room.is_ok_and(|room| room >= MEMORY_BYTES_MIN)
        && rustix::fs::access(MEMORY, rustix::fs::Access::WRITE_OK).is_ok();
    if is_memory { PathBuf::from(MEMORY) } else { std::env::temp_dir() }
}

/// A place for one test that the server's account can reach; gone with the test.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-cli-{}-{number}", std::process::id());
        let path = parent().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o711)).unwrap();
        Place(path.canonicalize().unwrap())
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.0.join("data")
    }

    pub(crate) fn data(&self) -> String {
        self.directory().to_str().unwrap().to_owned()
    }

    /// A directory that others lead to, which are not there.
    pub(crate) fn nested(&self) -> String {
        self.0.join("a/b/data").to_str().unwrap().to_owned()
    }

    /// A directory with PostgreSQL's programs, which do this.
    pub(crate) fn programs(&self, postgres: &str, initdb: &str) -> Programs {
        let directory = self.0.with_extension("bin");
        std::fs::create_dir(&directory).unwrap();
        for (name, script) in [("postgres", postgres), ("initdb", initdb)] {
            let path = directory.join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Programs(directory)
    }

    /// Everything that is there.
    pub(crate) fn list(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// The server, if it has a pid file and lives.
    pub(crate) fn server(&self) -> Option<Pid> {
        let file = std::fs::read_to_string(self.directory().join("data/postmaster.pid")).ok()?;
        let pid = Pid::from_raw(file.lines().next()?.trim().parse().ok()?)?;
        let cwd = std::fs::read_link(format!("/proc/{}/cwd", pid.as_raw_pid()));
        cwd.is_ok_and(|cwd| cwd == self.directory().join("data")).then_some(pid)
    }

    /// Kills the server with all its sessions.
    pub(crate) fn kill_server(&self) {
        if let Some(pid) = self.server() {
            kill_process_group(pid, Signal::KILL).unwrap();
            wait_until("the server is dead", || self.server().is_none());
        }
    }

    /// The processes that were started with this place among their arguments.
    pub(crate) fn processes(&self, argument: &str) -> Vec<Pid> {
        let is_ours = |pid: &Pid| {
            let file = format!("/proc/{}/cmdline", pid.as_raw_pid());
            let line = std::fs::read(file).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            let place = self.0.file_name().unwrap().to_str().unwrap();
            line.contains(argument) && line.contains(place)
        };
        let entries = std::fs::read_dir("/proc").unwrap();
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter_map(Pid::from_raw).filter(is_ours).collect()
    }
}

/// A directory with programs; gone with the test.
pub(crate) struct Programs(PathBuf);

impl Programs {
    pub(crate) fn directory(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A test that failed may have left its server behind.
        if std::thread::panicking() {
            self.kill_server();
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < WAIT_MAX, "not within {WAIT_MAX:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a process still holds anything. One that ends gives up its working directory
/// after its memory and its files, and a moment before it counts as a zombie.
pub(crate) fn is_alive(pid: Pid) -> bool {
    std::fs::read_link(format!("/proc/{}/cwd", pid.as_raw_pid())).is_ok()
}

/// A run of the binary whose output is read line by line, in a process group of its own.
/// Dropped, the group is killed.
pub(crate) struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    /// What was read so far.
    pub(crate) seen: String,
}

impl Running {
    pub(crate) fn spawn(arguments: &[&str]) -> Self {
        Running::spawn_in(std::path::Path::new("."), arguments)
    }

    pub(crate) fn spawn_in(directory: &std::path::Path, arguments: &[&str]) -> Self {
        let mut command = crate::command(arguments);
        command.current_dir(directory);
        let mut child = command.stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Running { child, out, seen: String::new() }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Reads up to a line with these words, which it answers.
    pub(crate) fn read_to(&mut self, words: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.out.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "no {words:?} in\n{}", self.seen);
            self.seen.push_str(&line);
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Sends a signal to the process that was started, and to no other.
    /// Waits until all of its threads are gone, and with them what they had open.
    pub(crate) fn reap(&mut self) {
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Sends a signal to the process that was started and to all that it has started, but
    /// for the server.
    pub(crate) fn signal_group(&self, signal: Signal) {
        kill_process_group(self.pid(), signal).unwrap();
    }

    /// Kills the process with all that it has started, but for the server.
    pub(crate) fn kill_group(mut self) {
        kill_process_group(self.pid(), Signal::KILL).unwrap();
        self.child.wait().unwrap();
    }

    /// Reads no more, and waits for the end.
    pub(crate) fn close_output(mut self) -> ExitStatus {
        let (closed, _) = std::io::pipe().unwrap();
        let stdout = ChildStdout::from(std::os::fd::OwnedFd::from(closed));
        drop(std::mem::replace(&mut self.out, BufReader::new(stdout)));
        self.child.wait().unwrap()
    }

    /// Reads what is left and waits for the end.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        self.out.read_to_string(&mut self.seen).unwrap();
        let status = self.child.wait().unwrap();
        (status, std::mem::take(&mut self.seen))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(self.pid(), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
