//! A unix socket: a file by which processes of this machine, and of no other, reach the server.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll, ready};

use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// Who may connect: the user of the server, and root.
const MODE: u32 = 0o600;

/// How many may wait to be accepted, as many as for TCP.
const WAITING_MAX: u32 = 1_024;

/// A socket at which the server listens. Dropped, its file is removed.
#[derive(Debug)]
pub(super) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Which file it is, so that no other of the same name is removed.
    file: (u64, u64),
}

impl Socket {
    /// Listens at a path. What a server has left there that is gone is removed.
    pub(super) fn bind(path: PathBuf) -> io::Result<Self> {
        // Another server that begins here waits until this one listens.
        let directory = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => Path::new("/"),
        };
        let alone = std::fs::File::open(directory)?;
        alone.lock()?;
        remove_stale(&path)?;
        let socket = UnixSocket::new_stream()?;
        socket.bind(&path)?;
        // Nobody can connect before it listens: it is nobody's but ours from its first moment.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(MODE))?;
        let file = identity(&path)?;
        let listener = socket.listen(WAITING_MAX)?;
        drop(alone);
        Ok(Socket { listener, path, file })
    }

    pub(super) fn url(&self) -> String {
        format!("unix:{}", self.path.display())
    }

    pub(super) fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        let (stream, _) = ready!(self.listener.poll_accept(context))?;
        Poll::Ready(Ok(stream))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            // One that stays is removed by the next server.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Removes a socket at which nobody listens; whatever else is there is in the way.
fn remove_stale(path: &Path) -> io::Result<()> {
    let file = match std::fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !file.file_type().is_socket() {
        let why = "there is a file which is not a socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    match BlockingStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens at it")),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is gone with the test.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let name = format!("windlass-socket-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).unwrap();
            Directory(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[tokio::test]
    async fn a_socket_is_for_its_user_alone_and_goes_with_its_server() {
        let directory = Directory::new("mode");
        let path = directory.0.join("a.sock");
        let socket = Socket::bind(path.clone()).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        assert_eq!(socket.url(), format!("unix:{}", path.display()));
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn only_a_socket_at_which_nobody_listens_is_replaced() {
        let directory = Directory::new("stale");
        let path = directory.0.join("a.sock");
        std::fs::write(&path, "dear").unwrap();
        let error = Socket::bind(path.clone()).unwrap_err();
        assert!(error.to_string().contains("not a socket"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "dear");
        std::fs::remove_file(&path).unwrap();

        // What a process leaves that was killed.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let socket = Socket::bind(path.clone()).unwrap();
        let error = Socket::bind(path.clone()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
        assert!(BlockingStream::connect(&path).is_ok(), "it was left alone");

        // Someone else's file of the same name stays.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "dear").unwrap();
        drop(socket);
        assert!(path.exists());
    }
}
