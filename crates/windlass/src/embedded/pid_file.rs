//! What a server says of itself in `postmaster.pid`, and whether it is alive.

use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::Pid;

use crate::{Error, ErrorKind};

/// How far a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Starting,
    Ready,
    Stopping,
}

/// The file as it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PidFile {
    pub(super) pid: Pid,
    pub(super) status: Status,
    /// The socket it listens on, once it does.
    pub(super) socket: Option<Socket>,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) directory: PathBuf,
    pub(super) port: u16,
}

impl Socket {
    pub(super) fn path(&self) -> PathBuf {
        self.directory.join(format!(".s.PGSQL.{}", self.port))
    }
}

/// The file of a cluster.
pub(super) fn path(data: &Path) -> PathBuf {
    data.join("postmaster.pid")
}

impl PidFile {
    /// Reads the file of a cluster. `None` if there is none, or none that names a
    /// server, as after a crash in the middle of writing it.
    pub(super) fn read(data: &Path) -> Option<PidFile> {
        PidFile::parse(&std::fs::read_to_string(path(data)).ok()?)
    }

    /// The lines are: pid, data directory, start time, port, socket directory, TCP
    /// address, shared memory, status. A server adds them as it comes up.
    fn parse(text: &str) -> Option<PidFile> {
        let lines: Vec<&str> = text.lines().collect();
        let line = |index: usize| lines.get(index).map_or("", |line| line.trim());
        let status = match line(7) {
            "ready" | "standby" => Status::Ready,
            "stopping" => Status::Stopping,
            _ => Status::Starting,
        };
        let port = line(3).parse().ok();
        let directory = Some(PathBuf::from(line(4))).filter(|path| path.is_absolute());
        let socket = port.zip(directory).map(|(port, directory)| Socket { directory, port });
        // A single-user session writes its pid with a minus.
        let pid = line(0).parse::<i32>().ok()?.checked_abs()?;
        Some(PidFile { pid: Pid::from_raw(pid)?, status, socket })
    }
}

/// Makes a file that a dead server left harmless for the next one.
///
/// A server refuses to start if the pid in the file is alive, but that may be a
/// zombie that nobody reaps, or an unrelated process that got the number. It does
/// not mind the pid of its own parent, so that is written there. The file is never
/// deleted: its line on shared memory is how the next server finds out that sessions
/// of the dead one still write to the data.
pub(super) fn disarm(data: &Path) -> Result<(), Error> {
    let path = path(data);
    let Ok(text) = std::fs::read_to_string(&path) else {
        return Ok(());
    };
    let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
    let text = format!("{}\n{rest}", std::process::id());
    let write = || {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)?;
        file.write_all_at(text.as_bytes(), 0)?;
        file.set_len(text.len() as u64)
    };
    write().map_err(|error: std::io::Error| {
        Error::new(ErrorKind::Unavailable, format!("cannot rewrite {path:?}: {error}"))
    })
}

/// Whether the pid is that of a live server of this data directory. A server works
/// in its data directory, so a process that got the pid of a dead one is told apart.
#[cfg(target_os = "linux")]
pub(super) fn is_server(pid: Pid, data: &Path) -> bool {
    let process = PathBuf::from(format!("/proc/{}", pid.as_raw_pid()));
    let Ok(stat) = std::fs::read_to_string(process.join("stat")) else {
        return false;
    };
    // The name before the state is in brackets and may hold anything.
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    let is_alive = state.is_some_and(|state| !matches!(state, 'Z' | 'X' | 'x'));
    is_alive && std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == data)
}

/// Whether the pid is that of a live server of this data directory, as far as `ps`
/// can tell.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_server(pid: Pid, data: &Path) -> bool {
    let pid = pid.as_raw_pid().to_string();
    let output = std::process::Command::new("ps")
        .args(["-ww", "-o", "state=", "-o", "command=", "-p", &pid])
        .output();
    output.is_ok_and(|output| {
        let line = String::from_utf8_lossy(&output.stdout);
        let line = line.trim();
        !line.starts_with('Z') && line.contains(&*data.to_string_lossy())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &str = "4711\n/d/data\n1700000000\n5432\n/d/socket\n\n  1234567    5\nready   \n";

    #[test]
    fn a_ready_server_says_who_it_is_and_where_it_listens() {
        let file = PidFile::parse(READY).unwrap();
        assert_eq!(file.pid.as_raw_pid(), 4711);
        assert_eq!(file.status, Status::Ready);
        assert_eq!(file.socket.unwrap().path(), Path::new("/d/socket/.s.PGSQL.5432"));
    }

    #[test]
    fn a_server_that_comes_up_or_goes_down_is_not_ready() {
        let status = |text: &str| PidFile::parse(text).unwrap().status;
        assert_eq!(status("4711\n/d/data\n1700000000\n5432\n"), Status::Starting);
        assert_eq!(status(&READY.replace("ready   ", "starting")), Status::Starting);
        assert_eq!(status(&READY.replace("ready   ", "stopping")), Status::Stopping);
    }

    #[test]
    fn a_file_without_a_pid_names_no_server() {
        for text in ["", "\n", "postgres\n", "0\n", "-x\n"] {
            assert_eq!(PidFile::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn disarming_changes_the_pid_and_nothing_else() {
        let data = std::env::temp_dir().join(format!("windlass-disarm-{}", std::process::id()));
        std::fs::create_dir(&data).unwrap();
        disarm(&data).unwrap();
        assert!(!path(&data).exists());
        std::fs::write(path(&data), READY.replace("4711", "4711471147")).unwrap();
        disarm(&data).unwrap();
        let text = std::fs::read_to_string(path(&data)).unwrap();
        std::fs::remove_dir_all(&data).unwrap();
        assert_eq!(text, READY.replace("4711", &std::process::id().to_string()));
    }

    #[test]
    fn a_process_that_works_elsewhere_is_not_the_server() {
        let own = Pid::from_raw(std::process::id().cast_signed()).unwrap();
        assert!(!is_server(own, Path::new("/nowhere")));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_zombie_is_not_a_server() {
        let cwd = std::env::current_dir().unwrap().canonicalize().unwrap();
        let own = Pid::from_raw(std::process::id().cast_signed()).unwrap();
        assert!(is_server(own, &cwd));
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(is_server(pid, &cwd));
        child.kill().unwrap();
        // Not waited for yet: dead for the kernel, alive for `kill -0`.
        while is_server(pid, &cwd) {
            std::thread::yield_now();
        }
        assert!(rustix::process::test_kill_process(pid).is_ok());
        child.wait().unwrap();
    }
}
