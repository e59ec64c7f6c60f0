//! The keys that values are sealed with, and where they come from.

use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use windlass_core::name::NAME_BYTES_MAX;

use crate::error::{Error, ErrorKind};

/// The variable that names the file with the keys.
pub const KEYS_FILE_VARIABLE: &str = "WINDLASS_PAYLOAD_KEYS_FILE";

/// The variable that has the keys themselves.
pub const KEYS_VARIABLE: &str = "WINDLASS_PAYLOAD_KEYS";

/// The most keys of a keyring. Whoever opens a value looks its key up by its id, so it is a bound
/// for people: who has more has never retired one.
pub const KEYS_MAX: usize = 100;

/// The longest id of a key, in bytes.
pub const KEY_ID_BYTES_MAX: usize = 32;

/// The bytes of a key.
pub const KEY_BYTES: usize = 32;

/// The largest file of keys that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The most fields that a keyring lets be readable.
pub const READABLE_MAX: usize = 100;

/// The line that lets what is not sealed be refused.
const REQUIRED: &str = "required";

/// What begins a line with a field that may be readable.
const READABLE: &str = "readable";

/// Keys with ids: the first seals, and all of them open.
///
/// Its text has a key in each line, `<id>:<32 bytes in base64>`. Empty lines and those that begin
/// with `#` say nothing; the line `required` says that values which are not sealed are refused
/// ([`required`](Keyring::required)), and a line such as `readable customer.id` that this field of
/// inputs may stay readable ([`readable`](Keyring::readable)). `windlass keys new` prints a line with
/// a fresh key.
///
/// Nothing shows the keys: `Debug` has their ids.
///
/// ```
/// use windlass::Keyring;
///
/// let fresh = Keyring::fresh_line("k2")?;
/// let keys = Keyring::parse(&format!("{fresh}\nk1:{}", "A".repeat(43)))?;
/// let shown = r#"Keyring { seals: "k2", opens: ["k2", "k1"], required: false, readable: [] }"#;
/// assert_eq!(format!("{keys:?}"), shown);
/// # Ok::<(), windlass::Error>(())
/// ```
pub struct Keyring {
    /// Never empty.
    keys: Vec<Key>,
    is_required: bool,
    /// The fields of inputs that the limits of any workflow may read.
    readable: Vec<String>,
}

/// A key, as the two that are derived from it.
pub(super) struct Key {
    id: String,
    /// What nonces are made by.
    pub(super) nonces: hmac::Key,
    /// What the keys of single messages are made by.
    pub(super) messages: hmac::Key,
}

impl Key {
    fn new(id: &str, bytes: &[u8; KEY_BYTES]) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, bytes);
        let derive =
            |what: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, what).as_ref());
        Key {
            id: id.to_owned(),
            nonces: derive(b"windlass sealed 1: nonces"),
            messages: derive(b"windlass sealed 1: messages"),
        }
    }

    /// What it is called in what it sealed.
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

impl Keyring {
    /// Reads the text of a keyring.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] with the number of the line, and the id if there is one, but never
    /// the key.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut ring = Keyring { keys: Vec::new(), is_required: false, readable: Vec::new() };
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line == REQUIRED {
                ring.is_required = true;
                continue;
            }
            let wrong = |what: String| wrong(format!("line {}: {what}", number + 1));
            if let Some(field) = field_of(line) {
                ring.add_readable(field).map_err(wrong)?;
                continue;
            }
            let Some((id, key)) = line.split_once(':') else {
                return Err(wrong("is not <id>:<key in base64>".to_owned()));
            };
            check_id(id).map_err(&wrong)?;
            if ring.find(id).is_some() {
                return Err(wrong(format!("the id {id:?} is there already")));
            }
            let bytes = decode(key.trim()).map_err(|what| wrong(format!("key {id:?} {what}")))?;
            ring.keys.push(Key::new(id, &bytes));
        }
        match ring.keys.len() {
            0 => Err(wrong("there is no key".to_owned())),
            len if len > KEYS_MAX => {
                Err(wrong(format!("there are {len} keys, the limit is {KEYS_MAX}")))
            }
            _ => Ok(ring),
        }
    }

    /// Reads a file, which nobody but its owner may be able to read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if it cannot be read, if others may read it, and as
    /// [`parse`](Keyring::parse).
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let of = |what: String| wrong(format!("{}: {what}", path.display()));
        let text = read(path).map_err(of)?;
        Keyring::parse(&text).map_err(|error| {
            Error::new(error.kind(), format!("{}: {}", path.display(), error.message()))
        })
    }

    /// The keys that the environment names: those of the file `WINDLASS_PAYLOAD_KEYS_FILE`, or
    /// `WINDLASS_PAYLOAD_KEYS`, in which commas end lines as well. None if neither is set, or only
    /// to nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if both are set, and as [`from_file`](Keyring::from_file).
    pub fn from_env() -> Result<Option<Self>, Error> {
        let variable = |name| match std::env::var(name) {
            Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(wrong(format!("the variable {name} is not UTF-8")))
            }
        };
        Keyring::from_variables(variable(KEYS_FILE_VARIABLE)?, variable(KEYS_VARIABLE)?)
    }

    fn from_variables(file: Option<String>, keys: Option<String>) -> Result<Option<Self>, Error> {
        match (file, keys) {
            (Some(_), Some(_)) => Err(wrong(format!(
                "{KEYS_FILE_VARIABLE} and {KEYS_VARIABLE} are both set; leave one of them out"
            ))),
            (Some(path), None) => Keyring::from_file(path).map(Some),
            (None, Some(text)) => {
                let ring = Keyring::parse(&text.replace(',', "\n")).map_err(|error| {
                    Error::new(error.kind(), format!("{KEYS_VARIABLE}: {}", error.message()))
                })?;
                Ok(Some(ring))
            }
            (None, None) => Ok(None),
        }
    }

    /// Whether values that are not sealed are refused. If not, as long as nothing is said, what was
    /// stored before there were keys is read as it is, and so is what programs without them store.
    #[must_use]
    pub fn required(mut self, is_required: bool) -> Self {
        self.is_required = is_required;
        self
    }

    /// Lets a field of inputs stay readable, such as `customer.id`, if the store says that a limit of
    /// a workflow reads it. Of workflows that this program registers nothing has to be said: it knows
    /// what their limits read. Without this, a start of any other workflow whose limits read a field is
    /// refused, since whoever writes to the store could name any field so.
    ///
    /// It holds for all workflows.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for what cannot be a field of a limit, and beyond [`READABLE_MAX`].
    pub fn readable(mut self, field: &str) -> Result<Self, Error> {
        self.add_readable(field).map_err(wrong)?;
        Ok(self)
    }

    fn add_readable(&mut self, field: &str) -> Result<(), String> {
        if field.len() > NAME_BYTES_MAX || field.split('.').any(str::is_empty) {
            return Err(format!(
                "a readable field is names between dots, up to {NAME_BYTES_MAX} bytes"
            ));
        }
        if !self.may_be_readable(field) {
            self.readable.push(field.to_owned());
        }
        match self.readable.len() {
            len if len > READABLE_MAX => {
                Err(format!("there are {len} readable fields, the limit is {READABLE_MAX}"))
            }
            _ => Ok(()),
        }
    }

    /// A line with a fresh key of this id.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for what is no id: 1 to 32 letters, digits, `-` and `_`.
    pub fn fresh_line(id: &str) -> Result<String, Error> {
        check_id(id).map_err(wrong)?;
        let mut bytes = [0; KEY_BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| wrong("the system has no random numbers".to_owned()))?;
        Ok(format!("{id}:{}", STANDARD.encode(bytes)))
    }

    /// The ids of the keys; the first one seals.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(Key::id)
    }

    /// The key that seals.
    pub(super) fn first(&self) -> &Key {
        self.keys.first().expect("a keyring is never empty")
    }

    /// Those that only open, the newest first.
    pub(super) fn older(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter().skip(1)
    }

    pub(super) fn find(&self, id: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.id == id)
    }

    pub(super) fn is_required(&self) -> bool {
        self.is_required
    }

    /// Whether the store may read this field of an input because it says that a limit does.
    pub(super) fn may_be_readable(&self, field: &str) -> bool {
        self.readable.iter().any(|readable| readable == field)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("seals", &self.first().id)
            .field("opens", &self.ids().collect::<Vec<_>>())
            .field("required", &self.is_required)
            .field("readable", &self.readable)
            .finish()
    }
}

fn wrong(what: String) -> Error {
    Error::new(ErrorKind::Argument, format!("payload keys: {what}"))
}

/// The field that a line lets be readable, if it is such a line.
fn field_of(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(READABLE)?;
    let is_whole = rest.is_empty() || rest.starts_with(char::is_whitespace);
    is_whole.then(|| rest.trim_start())
}

/// Whether a key can be called so.
pub(super) fn check_id(id: &str) -> Result<(), String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match id.len() {
        1..=KEY_ID_BYTES_MAX if id.bytes().all(is_letter) => Ok(()),
        // It may be a key that someone took for an id.
        _ => Err(format!("an id is 1 to {KEY_ID_BYTES_MAX} letters, digits, - and _")),
    }
}

fn decode(key: &str) -> Result<[u8; KEY_BYTES], String> {
    let bytes = STANDARD.decode(key).or_else(|_| STANDARD_NO_PAD.decode(key));
    // What is wrong is not told: it would say what is at that place.
    let bytes = bytes.map_err(|_| "is not base64".to_owned())?;
    let len = bytes.len();
    bytes.try_into().map_err(|_| format!("has {len} bytes, not {KEY_BYTES}"))
}

fn read(path: &Path) -> Result<String, String> {
    use std::io::Read as _;

    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    check_mode(&file)?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("has more than {FILE_BYTES_MAX} bytes"));
    }
    Ok(text)
}

#[cfg(unix)]
fn check_mode(file: &std::fs::File) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;

    let mode = file.metadata().map_err(|error| error.to_string())?.permissions().mode() & 0o777;
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(format!("has mode {mode:03o}, others may read the keys: chmod 600")),
    }
}

#[cfg(not(unix))]
fn check_mode(_: &std::fs::File) -> Result<(), String> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn refused(text: &str) -> String {
        let error = Keyring::parse(text).expect_err("it is wrong");
        assert_eq!(error.kind(), ErrorKind::Argument);
        error.message().to_owned()
    }

    #[test]
    fn the_first_key_seals_and_all_of_them_open() {
        let text = format!("# the newest first\n\n k2:{KEY} \nk1:{}\nrequired\n", &KEY[..43]);
        let ring = Keyring::parse(&text).unwrap();
        assert_eq!(ring.first().id(), "k2");
        assert_eq!(ring.older().map(Key::id).collect::<Vec<_>>(), ["k1"]);
        assert_eq!(ring.ids().collect::<Vec<_>>(), ["k2", "k1"]);
        assert!(ring.is_required() && !ring.required(false).is_required());
    }

    #[test]
    fn what_is_wrong_names_the_id_and_never_the_key() {
        assert_eq!(refused("# nothing"), "payload keys: there is no key");
        assert_eq!(
            refused(&format!("k1:{KEY}\nk1:{KEY}")),
            "payload keys: line 2: the id \"k1\" is there already"
        );
        assert_eq!(refused("k1:AAEC"), "payload keys: line 1: key \"k1\" has 3 bytes, not 32");
        for text in [KEY.to_owned(), format!("k 1:{KEY}"), format!(":{KEY}"), format!("{KEY}:k1")] {
            let said = refused(&text);
            assert!(
                said.starts_with("payload keys: line 1: ") && !said.contains(&KEY[..8]),
                "{said}"
            );
        }
        let said = refused(&format!("k1:{}!", &KEY[..43]));
        assert_eq!(said, "payload keys: line 1: key \"k1\" is not base64");
        let line = |number| format!("k{number}:{KEY}\n");
        assert!(Keyring::parse(&(0..KEYS_MAX).map(line).collect::<String>()).is_ok());
        let said = refused(&(0..=KEYS_MAX).map(line).collect::<String>());
        assert_eq!(said, "payload keys: there are 101 keys, the limit is 100");
    }

    #[test]
    fn fields_may_be_readable_if_a_line_says_so() {
        let text = format!("readable customer.id\nk1:{KEY}\n readable \t region \nreadable region");
        let ring = Keyring::parse(&text).unwrap();
        assert!(ring.may_be_readable("customer.id") && ring.may_be_readable("region"));
        assert!(!ring.may_be_readable("customer") && !ring.may_be_readable("id"));
        assert!(ring.readable("card").unwrap().may_be_readable("card"));
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for field in ["", ".", "a..b", "a.", &long] {
            let said = refused(&format!("k1:{KEY}\nreadable {field}"));
            let end = "line 2: a readable field is names between dots, up to 200 bytes";
            assert_eq!(said, format!("payload keys: {end}"), "{field:?}");
        }
        // A key may have any id.
        assert!(Keyring::parse(&format!("readable:{KEY}")).unwrap().ids().eq(["readable"]));
        let line = |number| format!("readable f{number}\n");
        let many = |count| format!("k1:{KEY}\n{}", (0..count).map(line).collect::<String>());
        assert!(Keyring::parse(&many(READABLE_MAX)).is_ok());
        let said = refused(&many(READABLE_MAX + 1));
        let end = "line 102: there are 101 readable fields, the limit is 100";
        assert_eq!(said, format!("payload keys: {end}"));
    }

    #[test]
    fn a_fresh_key_can_be_read_and_is_never_the_same() {
        let line = Keyring::fresh_line("k1").unwrap();
        assert_eq!(Keyring::parse(&line).unwrap().first().id(), "k1");
        assert_ne!(line, Keyring::fresh_line("k1").unwrap());
        assert!(Keyring::fresh_line("").is_err());
        assert!(Keyring::fresh_line(&"k".repeat(KEY_ID_BYTES_MAX)).is_ok());
        assert!(Keyring::fresh_line(&"k".repeat(KEY_ID_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn the_environment_names_a_file_or_has_the_keys_and_never_both() {
        let of = |file: Option<&str>, keys: Option<&str>| {
            Keyring::from_variables(file.map(str::to_owned), keys.map(str::to_owned))
        };
        assert!(of(None, None).unwrap().is_none());
        let both = format!("required,k2:{KEY},k1:{KEY}");
        let ring = of(None, Some(&both)).unwrap().unwrap();
        assert!(ring.is_required() && ring.ids().eq(["k2", "k1"]));
        let error = of(Some("a"), Some(&both)).unwrap_err();
        assert!(error.message().contains("are both set"), "{error}");
        let error = of(Some("/nowhere/keys"), None).unwrap_err();
        assert!(error.message().starts_with("payload keys: /nowhere/keys: "), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;

        let path = std::env::temp_dir().join(format!("windlass-keys-{}", std::process::id()));
        std::fs::write(&path, format!("k1:{KEY}\n")).unwrap();
        let with = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Keyring::from_file(&path)
        };
        assert!(with(0o600).is_ok() && with(0o400).is_ok());
        for mode in [0o640, 0o604, 0o620] {
            let error = with(mode).expect_err("others may read or change it");
            assert!(error.message().contains(&format!("has mode {mode:03o}")), "{error}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
