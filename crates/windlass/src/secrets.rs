//! Secrets from files and from the environment.
//!
//! What is in the environment of a process is seen by whoever may look at the process, and by every
//! program that it starts. A file with rights of its own is seen by fewer, and is how containers
//! hand out secrets. So each variable that may hold one has a second of the same name with `_FILE`
//! behind it, which names a file that holds it. Nothing here shows what it reads, in errors neither.

use std::io::Read as _;
use std::path::Path;

use windlass_core::Secret;

use crate::error::{Error, ErrorKind};

/// The most bytes of a secret in a file.
pub const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// What stands behind the name of a variable that names a file.
const FILE_SUFFIX: &str = "_FILE";

/// The secret in a file, without the line feed at its end.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let path = std::env::temp_dir().join(format!("windlass-secret-{}", std::process::id()));
/// std::fs::write(&path, "a long random text\n")?;
/// let secret = windlass::secrets::from_file(&path)?;
/// assert_eq!(secret.expose(), "a long random text");
/// # std::fs::remove_file(&path)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// [`ErrorKind::Argument`] if the file cannot be read, is empty, is not UTF-8, or has more than
/// [`SECRET_BYTES_MAX`] bytes.
pub fn from_file(path: impl AsRef<Path>) -> Result<Secret, Error> {
    let path = path.as_ref();
    let refuse = |why: String| {
        Error::new(ErrorKind::Argument, format!("the secret in {path:?} cannot be used: {why}"))
    };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| refuse(error.to_string()))?;
    // One byte more than may be there: what is longer is seen to be so, also of what has no length.
    let read = file.take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| refuse(error.to_string()))?;
    if bytes.len() as u64 > SECRET_BYTES_MAX {
        return Err(refuse(format!("it has more than {SECRET_BYTES_MAX} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| refuse("it is not UTF-8".to_owned()))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(refuse("it is empty".to_owned()));
    }
    Ok(Secret::new(text))
}

/// The secret of a variable, such as `HOOK_SECRET`, or in the file that the variable of the same name
/// with `_FILE` behind it names. None if neither is set, or only to nothing.
///
/// ```no_run
/// # fn main() -> Result<(), windlass::Error> {
/// use windlass::hooks::Hook;
/// use windlass::secrets;
///
/// let mut ops = Hook::webhook("ops", "https://hooks.example.com/windlass");
/// if let Some(secret) = secrets::from_env("HOOK_SECRET")? {
///     ops = ops.secret(secret);
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// [`ErrorKind::Argument`] if both are set, if one is not UTF-8, and as [`from_file`].
pub fn from_env(name: &str) -> Result<Option<Secret>, Error> {
    let file = format!("{name}{FILE_SUFFIX}");
    choose(name, variable(name)?, &file, variable(&file)?)
}

fn choose(
    name: &str,
    value: Option<String>,
    file: &str,
    path: Option<String>,
) -> Result<Option<Secret>, Error> {
    match (value, path) {
        (Some(_), Some(_)) => {
            let text = format!("{name} and {file} are both set; leave one of them out");
            Err(Error::new(ErrorKind::Argument, text))
        }
        (Some(value), None) => Ok(Some(value.into())),
        (None, Some(path)) => from_file(path).map(Some),
        (None, None) => Ok(None),
    }
}

/// What a variable says, if it says something.
pub(crate) fn variable(name: &str) -> Result<Option<String>, Error> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Error::new(ErrorKind::Argument, format!("the variable {name} is not UTF-8")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of a test's own; gone with it.
    struct Written(std::path::PathBuf);

    impl Written {
        fn new(name: &str, bytes: &[u8]) -> Self {
            let name = format!("windlass-secrets-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, bytes).expect("it can be written");
            Written(path)
        }
    }

    impl Drop for Written {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_secret_is_read_without_the_end_of_its_line() {
        for (written, wanted) in
            [("abc", "abc"), ("abc\n", "abc"), ("abc\r\n", "abc"), (" a b \n\n", " a b \n")]
        {
            let file = Written::new("plain", written.as_bytes());
            assert_eq!(from_file(&file.0).expect("it is one").expose(), wanted);
        }
        let most = usize::try_from(SECRET_BYTES_MAX).expect("it fits");
        let file = Written::new("most", &vec![b'x'; most]);
        assert_eq!(from_file(&file.0).expect("it is one").expose().len(), most);
    }

    #[test]
    fn a_file_that_holds_no_secret_is_refused_by_its_name_and_without_what_it_holds() {
        let most = usize::try_from(SECRET_BYTES_MAX).expect("it fits");
        let cases: [(&str, Vec<u8>, &str); 4] = [
            ("empty", Vec::new(), "it is empty"),
            ("line", b"\n".to_vec(), "it is empty"),
            ("bytes", b"CANARY\xff".to_vec(), "it is not UTF-8"),
            ("large", b"CANARY".repeat(most / 6 + 1), "it has more than 65536 bytes"),
        ];
        for (name, written, wanted) in cases {
            let file = Written::new(name, &written);
            let text = from_file(&file.0).expect_err(name).to_string();
            assert!(text.contains(wanted) && text.contains(name), "{text}");
            assert!(!text.contains("CANARY"), "{text}");
        }
        let text = from_file("/no/such/secret").expect_err("it is not there").to_string();
        assert!(text.contains("\"/no/such/secret\""), "{text}");
    }

    #[test]
    fn a_secret_comes_from_one_place() {
        let file = Written::new("one", b"from the file\n");
        let path = || Some(file.0.to_string_lossy().into_owned());
        let value = || Some("CANARY".to_owned());
        let chosen = |value, path| choose("NAME", value, "NAME_FILE", path);
        let of = |value, path| {
            chosen(value, path).expect("it is clear").map(|it| it.expose().to_owned())
        };
        assert_eq!(of(None, None), None);
        assert_eq!(of(value(), None).as_deref(), Some("CANARY"));
        assert_eq!(of(None, path()).as_deref(), Some("from the file"));
        let text = chosen(value(), path()).expect_err("it is not clear").to_string();
        assert!(text.contains("NAME and NAME_FILE are both set"), "{text}");
        assert!(!text.contains("CANARY"), "{text}");
    }
}
