//! The config file.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;
use windlass::Secret;

use super::credentials::Said;
use crate::failure::usage;
use crate::text::shown;

/// The most bytes of a config file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a config file says.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    profile: Option<String>,
    database_url: Option<String>,
    server: Option<String>,
    pooled: Option<bool>,
    #[serde(deserialize_with = "super::credentials::secret", default)]
    token: Option<Secret>,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    client_cert: Option<PathBuf>,
    client_key: Option<PathBuf>,
    allow_plaintext_token: Option<bool>,
    payload_keys: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, Profile>,
}

/// What a profile says.
// A struct that others are flattened into cannot refuse what it does not know.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct Profile {
    database_url: Option<String>,
    server: Option<String>,
    pooled: Option<bool>,
    payload_keys: Option<String>,
    #[serde(deserialize_with = "super::credentials::secret", default)]
    token: Option<Secret>,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    client_cert: Option<PathBuf>,
    client_key: Option<PathBuf>,
    allow_plaintext_token: Option<bool>,
}

impl From<Profile> for Places {
    fn from(written: Profile) -> Self {
        Places {
            database_url: written.database_url,
            server: written.server,
            pooled: written.pooled,
            payload_keys: written.payload_keys,
            said: Said {
                token: written.token,
                token_file: written.token_file,
                ca_file: written.ca_file,
                client_cert: written.client_cert,
                client_key: written.client_key,
                allow_plaintext_token: written.allow_plaintext_token,
            },
        }
    }
}

/// What a config file says, with what holds for all profiles apart.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    /// The profile that is taken if none is named.
    pub(super) profile: Option<String>,
    /// What holds where the profile says nothing.
    pub(super) places: Places,
    pub(super) profiles: BTreeMap<String, Places>,
}

/// The settings that each place can have.
#[derive(Clone, Default)]
pub(super) struct Places {
    pub(super) database_url: Option<String>,
    pub(super) server: Option<String>,
    pub(super) pooled: Option<bool>,
    /// The file of the keys of sealed payloads.
    pub(super) payload_keys: Option<String>,
    /// What a server is shown.
    pub(super) said: Said,
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The addresses may hold passwords.
        f.debug_struct("Places").field("pooled", &self.pooled).finish_non_exhaustive()
    }
}

/// Where the file is if nobody says so.
pub(super) fn default_path() -> Option<PathBuf> {
    let directory = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        // A relative one is to be ignored, as the base directory specification says.
        path.filter(|path| path.is_absolute())
    };
    let config = directory("XDG_CONFIG_HOME");
    let config = config.or_else(|| Some(directory("HOME")?.join(".config")));
    Some(config?.join("windlass/config.toml"))
}

/// What the file says; `None` if it is not there and nobody asked for it.
pub(super) fn read(path: &Path, is_asked_for: bool) -> anyhow::Result<Option<File>> {
    let name = shown(&path.to_string_lossy());
    let text = match std::fs::metadata(path).and_then(|it| {
        if it.len() > FILE_BYTES_MAX {
            let text = format!("it is over the limit of {FILE_BYTES_MAX} bytes");
            return Err(io::Error::other(text));
        }
        std::fs::read_to_string(path)
    }) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_asked_for => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("config file {name}")),
    };
    let file = parse(&text).map_err(|problem| usage(format!("config file {name}, {problem}")))?;
    let places = std::iter::once(&file.places).chain(file.profiles.values());
    if places.into_iter().any(|places| places.said.token.is_some()) && is_open(path) {
        return Err(usage(format!(
            "config file {name} holds a token, and others may read it: chmod 600 {name}, or keep \
             the token in a file of its own (token_file)"
        )));
    }
    Ok(Some(file))
}

/// Whether others than the owner may open a file.
#[cfg(unix)]
fn is_open(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;

    std::fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_open(_: &Path) -> bool {
    false
}

/// What a text says; what is wrong with it, by its line and without quoting it: a line may hold a
/// password.
pub(super) fn parse(text: &str) -> Result<File, String> {
    let written: Written = toml::from_str(text).map_err(|error| {
        let place = error.span().map_or(0, |span| span.start);
        let before = text.get(..place).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("line {line}, column {column}: {}", told(error.message()))
    })?;
    let profiles = written.profiles.into_iter().map(|(name, it)| (name, it.into())).collect();
    let top = Profile {
        database_url: written.database_url,
        server: written.server,
        pooled: written.pooled,
        payload_keys: written.payload_keys,
        token: written.token,
        token_file: written.token_file,
        ca_file: written.ca_file,
        client_cert: written.client_cert,
        client_key: written.client_key,
        allow_plaintext_token: written.allow_plaintext_token,
    };
    Ok(File { profile: written.profile, places: top.into(), profiles })
}

/// A message of the parser without the values that it quotes.
fn told(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    match first.split_once("invalid type: string") {
        Some((_, rest)) => {
            let expected = rest.rsplit_once(", expected ").map_or("something else", |(_, it)| it);
            format!("a text where {expected} is expected")
        }
        None => first.to_owned(),
    }
}
