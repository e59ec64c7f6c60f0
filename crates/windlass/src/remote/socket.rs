//! Servers that are reached by a file instead of a network.

use std::path::PathBuf;

use tonic::transport::{Channel, Endpoint};

use crate::error::{Error, ErrorKind};

/// What the address of a socket begins with.
const SCHEME: &str = "unix:";

/// The most bytes of the path of a socket. An address of Linux has room for 108 with the zero at
/// its end, those of other systems for 104.
pub const SOCKET_PATH_BYTES_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The path of the socket that an address such as `unix:/run/windlass.sock` names; none if it is
/// an address of another kind.
///
/// ```
/// use windlass::remote::socket_path;
///
/// let path = socket_path("unix:/run/windlass.sock")?;
/// assert_eq!(path.as_deref(), Some("/run/windlass.sock".as_ref()));
/// assert_eq!(socket_path("http://127.0.0.1:7600")?, None);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
///
/// [`ErrorKind::Argument`] for a path that is not absolute or longer than
/// [`SOCKET_PATH_BYTES_MAX`], and where there are no such sockets.
pub fn socket_path(address: &str) -> Result<Option<PathBuf>, Error> {
    let Some(path) = address.strip_prefix(SCHEME) else { return Ok(None) };
    let wrong = |why: &str| {
        let text = format!("the address of a socket is unix:/path/to.sock, not {address:?}: {why}");
        Error::new(ErrorKind::Argument, text)
    };
    // Others write it as a URL without a host.
    let path = path.strip_prefix("//").unwrap_or(path);
    if !path.starts_with('/') {
        return Err(wrong("its path does not begin with /"));
    }
    if path.ends_with('/') {
        return Err(wrong("its path names no file"));
    }
    if path.contains([',', '\0']) {
        return Err(wrong("its path has a comma or a zero"));
    }
    let bytes = path.len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        let most = SOCKET_PATH_BYTES_MAX;
        return Err(wrong(&format!("its path has {bytes} bytes, and at most {most} are possible")));
    }
    match cfg!(unix) {
        true => Ok(Some(path.into())),
        false => Err(wrong("this system has no such sockets")),
    }
}

/// A connection to the server that listens at a socket, made when it is needed.
#[cfg(unix)]
pub(super) fn channel(path: PathBuf, endpoint: &Endpoint) -> Channel {
    use std::io;

    use hyper_util::rt::TokioIo;
    use tokio::net::UnixStream;

    let connect = move |_| {
        let path = path.clone();
        async move {
            let stream = UnixStream::connect(&path).await;
            let stream = stream.map_err(|error| {
                // Which it is is said by whoever tells of it.
                io::Error::new(error.kind(), why_not(&path, &error))
            });
            stream.map(TokioIo::new)
        }
    };
    endpoint.connect_with_connector_lazy(tower::service_fn(connect))
}

/// Why nobody is reached by a socket.
#[cfg(unix)]
fn why_not(path: &std::path::Path, error: &std::io::Error) -> String {
    use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
    use std::os::unix::fs::FileTypeExt as _;

    let is_socket = || std::fs::metadata(path).is_ok_and(|it| it.file_type().is_socket());
    let kind = error.kind();
    if kind == NotFound {
        "it is not there".to_owned()
    } else if kind == PermissionDenied {
        "it is not for this user".to_owned()
    } else if kind == ConnectionRefused && is_socket() {
        "no server listens at it".to_owned()
    } else if kind == ConnectionRefused {
        "it is not a socket".to_owned()
    } else {
        error.to_string()
    }
}

#[cfg(not(unix))]
pub(super) fn channel(_: PathBuf, endpoint: &Endpoint) -> Channel {
    endpoint.connect_lazy()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_path_that_cannot_be_a_socket_is_refused_with_what_is_wrong_with_it() {
        let long = format!("unix:/{}", "x".repeat(SOCKET_PATH_BYTES_MAX));
        let cases = [
            ("unix:", "does not begin with /"),
            ("unix:run/a.sock", "does not begin with /"),
            ("unix://run/a.sock", "does not begin with /"),
            ("unix:/run/", "names no file"),
            ("unix:/a\0b", "a zero"),
            ("unix:/a,b", "a comma"),
            (&long, "and at most"),
        ];
        for (address, why) in cases {
            let error = socket_path(address).expect_err(address);
            assert_eq!(error.kind(), ErrorKind::Argument);
            let text = error.to_string();
            assert!(text.contains(&format!("{address:?}")) && text.contains(why), "{text}");
        }
        let longest = format!("unix:{}", &long["unix:".len()..long.len() - 1]);
        for address in ["unix:/a.sock", "unix:///a.sock", &longest] {
            let path = socket_path(address).expect(address).expect(address);
            assert!(path.is_absolute());
        }
        for address in ["http://localhost", "/run/a.sock", "UNIX:/a"] {
            assert_eq!(socket_path(address).expect(address), None);
        }
    }
}
