//! The config file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;

use crate::failure::usage;
use crate::text::shown;

/// The most bytes of a config file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a config file says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    profile: Option<String>,
    database_url: Option<String>,
    server: Option<String>,
    pooled: Option<bool>,
    payload_keys: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, Places>,
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
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct Places {
    pub(super) database_url: Option<String>,
    pub(super) server: Option<String>,
    pub(super) pooled: Option<bool>,
    pub(super) payload_keys: Option<String>,
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
    parse(&text).map(Some).map_err(|problem| usage(format!("config file {name}, {problem}")))
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
    let Written { profile, database_url, server, pooled, payload_keys, profiles } = written;
    let places = Places { database_url, server, pooled, payload_keys };
    Ok(File { profile, places, profiles })
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
