//! What commands are about and how they tell it: flags, environment, profile and file, in one
//! order of precedence.
//!
//! Each setting is taken from the first place that has it: the flags, the profile that the flag
//! `--profile` names, the environment, the profile that the environment or the file names, the
//! top of the file. A profile that is named by a flag goes before the environment, so that
//! `--profile prod` never means the database of a variable that happens to be set.

mod credentials;
mod file;

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use windlass::Keyring;
use windlass::remote::RemoteOptions;
use windlass::store::sealed::{KEYS_FILE_VARIABLE, KEYS_VARIABLE};

use self::credentials::{CredentialArguments, Credentials, Said};
use self::file::{File, Places};
use crate::failure::usage;
use crate::redact::{HIDDEN, redacted};
use crate::text::{listing, shown};

/// The variables that are read.
pub(crate) const PROFILE_VARIABLE: &str = "WINDLASS_PROFILE";
const SERVER_VARIABLE: &str = "WINDLASS_SERVER";
const DATABASE_VARIABLE: &str = "DATABASE_URL";
const DATABASE_FILE_VARIABLE: &str = "DATABASE_URL_FILE";

const HEADING: &str = "Global options";

/// What every command can be told.
#[derive(Clone, Default, clap::Args)]
pub(crate) struct GlobalArguments {
    /// Database, e.g. postgres://user@host/name [env: DATABASE_URL or DATABASE_URL_FILE]
    #[arg(long, global = true, value_name = "URL", help_heading = HEADING)]
    database_url: Option<String>,

    /// Server, e.g. https://windlass.example.com:7600 [env: WINDLASS_SERVER]
    ///
    /// Also a unix socket such as unix:/run/windlass.sock. If both variables are set, the server is
    /// used, and commands that need the database itself use DATABASE_URL.
    #[arg(long, global = true, value_name = "URL", help_heading = HEADING)]
    server: Option<String>,

    #[command(flatten)]
    credentials: CredentialArguments,

    /// The database address is a pooler, e.g. PgBouncer in transaction mode
    #[arg(long, global = true, hide_short_help = true, help_heading = HEADING)]
    pooled: bool,

    /// File with the keys that encrypt payloads [env: WINDLASS_PAYLOAD_KEYS_FILE, or
    /// WINDLASS_PAYLOAD_KEYS for the keys themselves]
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", help_heading = HEADING)]
    payload_keys: Option<String>,

    /// Profile of the config file [env: WINDLASS_PROFILE]
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME", help_heading = HEADING)]
    profile: Option<String>,

    /// Config file [default: `windlass/config.toml` in the user's config directory]
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", help_heading = HEADING)]
    config: Option<PathBuf>,

    /// Print JSON instead of text, also for errors
    #[arg(long, global = true, help_heading = HEADING)]
    pub(crate) json: bool,

    /// Print the settings in effect and their sources, and exit
    #[arg(long, global = true, hide_short_help = true, help_heading = HEADING)]
    pub(crate) print_config: bool,
}

impl GlobalArguments {
    /// Refuses flags that a command does nothing with: that it ignores them would be believed too
    /// late. `has_own` is whether the command has a `--database-url` of its own.
    pub(crate) fn refuse_target(&self, command: &str, has_own: bool) -> anyhow::Result<()> {
        let flag = match self {
            GlobalArguments { server: Some(_), .. } => "--server",
            GlobalArguments { profile: Some(_), .. } => "--profile",
            GlobalArguments { database_url: Some(_), .. } if !has_own => "--database-url",
            GlobalArguments { pooled: true, .. } => "--pooled",
            _ => match self.unused_at_database() {
                Some(flag) => flag,
                None => return Ok(()),
            },
        };
        let what = match has_own {
            true => "needs the database itself, by --database-url, or makes one",
            false => "makes a database of its own",
        };
        Err(usage(format!("windlass {command} {what}: {flag} is not for it")))
    }

    /// The same of a command that is about the database itself, and opens nothing that is sealed.
    pub(crate) fn refuse_unused(&self, command: &str) -> anyhow::Result<()> {
        let Some(flag) = self.unused_at_database() else { return Ok(()) };
        let what = match flag {
            "--payload-keys" => "leaves sealed what is sealed",
            _ => "talks to the database itself",
        };
        Err(usage(format!("windlass {command} {what}: {flag} is not for it")))
    }

    /// A flag that says what a server is shown, or how payloads are opened, if one was given.
    fn unused_at_database(&self) -> Option<&'static str> {
        let keys = self.payload_keys.as_ref().map(|_| "--payload-keys");
        self.credentials.first_flag().or(keys)
    }
}

impl fmt::Debug for GlobalArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The addresses may hold passwords.
        f.debug_struct("GlobalArguments").finish_non_exhaustive()
    }
}

/// What a command talks to.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A database, by its address.
    Database(String),
    /// A server, by its address.
    Server(String),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Database(url) => write!(f, "Database({:?})", redacted(url)),
            Target::Server(url) => write!(f, "Server({:?})", redacted(url)),
        }
    }
}

/// Where a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Flag(&'static str),
    Variable(&'static str),
    Profile(String),
    File,
    Nowhere,
}

impl Source {
    /// Whether whoever runs the command says it now, and not a file that was written once.
    fn is_near(&self) -> bool {
        match self {
            Source::Flag(_) | Source::Variable(_) => true,
            Source::Profile(_) | Source::File | Source::Nowhere => false,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag(name) => write!(f, "flag --{name}"),
            Source::Variable(name) => write!(f, "environment {name}"),
            Source::Profile(name) => write!(f, "profile {}", shown(name)),
            Source::File => f.write_str("config file"),
            Source::Nowhere => f.write_str("default"),
        }
    }
}

/// The settings that hold, and where each comes from.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    file: Option<(PathBuf, Source)>,
    profile: Option<(String, Source)>,
    target: Option<(Target, Source)>,
    /// The database that the environment names beside a server. Commands that need the database
    /// itself use it.
    database_beside: Option<(String, Source)>,
    pooled: (bool, Source),
    credentials: Credentials,
    payload_keys: Option<(String, Source)>,
}

impl Settings {
    /// Reads the environment and the file.
    pub(crate) fn read(arguments: &GlobalArguments) -> anyhow::Result<Self> {
        let variable = |name: &'static str| match std::env::var(name) {
            Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(usage(format!("the variable {name} is not UTF-8")))
            }
        };
        let (path, from) = match &arguments.config {
            Some(path) => (Some(path.clone()), Source::Flag("config")),
            None => (file::default_path(), Source::Nowhere),
        };
        let is_asked_for = arguments.config.is_some();
        let file = match &path {
            Some(path) => file::read(path, is_asked_for)?,
            None => None,
        };
        let path = path.filter(|_| file.is_some()).map(|path| (path, from));
        Settings::resolve(arguments, variable, file.unwrap_or_default(), path)
    }

    fn resolve(
        arguments: &GlobalArguments,
        variable: impl Fn(&'static str) -> anyhow::Result<Option<String>>,
        file: File,
        path: Option<(PathBuf, Source)>,
    ) -> anyhow::Result<Self> {
        let profile = match (&arguments.profile, variable(PROFILE_VARIABLE)?, &file.profile) {
            (Some(name), _, _) => Some((name.clone(), Source::Flag("profile"))),
            (None, Some(name), _) => Some((name, Source::Variable(PROFILE_VARIABLE))),
            (None, None, Some(name)) => Some((name.clone(), Source::File)),
            (None, None, None) => None,
        };
        let (mut before, mut behind) = (None, None);
        if let Some((name, from)) = &profile {
            let places = file.profiles.get(name).cloned();
            let Some(places) = places else {
                let path = path.as_ref().map(|(path, _)| path.as_path());
                return Err(usage(no_profile(name, from, &file, path)));
            };
            let own = Source::Profile(name.clone());
            let layer = Layer::of(places, own.clone(), move |_| own.clone());
            match from {
                Source::Flag(_) => before = Some(layer),
                Source::Variable(_) | Source::Profile(_) | Source::File | Source::Nowhere => {
                    behind = Some(layer);
                }
            }
        }
        let flags = Places {
            database_url: arguments.database_url.clone(),
            server: arguments.server.clone(),
            pooled: arguments.pooled.then_some(true),
            said: arguments.credentials.said()?,
            payload_keys: arguments.payload_keys.clone(),
        };
        let (database_url, database_variable) = database_of(&variable)?;
        let (payload_keys, keys_variable) = keys_of(&variable)?;
        let environment = Places {
            database_url,
            server: variable(SERVER_VARIABLE)?,
            pooled: None,
            said: Said::by_variables(&variable)?,
            payload_keys,
        };
        let of_variable = |word: &str| {
            let own = match word {
                "server" => SERVER_VARIABLE,
                "payload_keys" => keys_variable,
                _ => database_variable,
            };
            Source::Variable(credentials::variable_of(word).unwrap_or(own))
        };
        let layers = [
            Some(Layer::of(flags, Source::Flag("database-url"), |word| match word {
                "server" => Source::Flag("server"),
                "pooled" => Source::Flag("pooled"),
                "token_file" => Source::Flag("token-file"),
                "ca_file" => Source::Flag("ca-file"),
                "client_cert" => Source::Flag("client-cert"),
                "client_key" => Source::Flag("client-key"),
                "allow_plaintext_token" => Source::Flag("allow-plaintext-token"),
                "payload_keys" => Source::Flag("payload-keys"),
                _ => Source::Flag("database-url"),
            })),
            before,
            Some(Layer::of(environment, Source::Variable(database_variable), of_variable)),
            behind,
            Some(Layer::of(file.places, Source::File, |_| Source::File)),
        ];
        let mut settings = Settings {
            file: path,
            profile,
            target: None,
            database_beside: None,
            pooled: (false, Source::Nowhere),
            credentials: Credentials::default(),
            payload_keys: None,
        };
        for layer in layers.into_iter().flatten() {
            if settings.target.is_none() {
                (settings.target, settings.database_beside) = layer.target()?;
            }
            if layer.name.is_near() || settings.is_named_by_file() {
                settings.credentials.add(&layer.said, &layer.source)?;
            }
            if settings.pooled.1 == Source::Nowhere
                && let Some(pooled) = layer.pooled
            {
                settings.pooled = pooled;
            }
            if settings.payload_keys.is_none() {
                settings.payload_keys = layer.payload_keys;
            }
        }
        Ok(settings)
    }

    /// What to talk to.
    pub(crate) fn target(&self) -> anyhow::Result<&Target> {
        let missing = || {
            usage(
                "nothing says which database or server: give --database-url <URL> or --server \
                 <URL>, set DATABASE_URL, DATABASE_URL_FILE or WINDLASS_SERVER, or name a profile of the config file",
            )
        };
        self.target.as_ref().map(|(target, _)| target).ok_or_else(missing)
    }

    /// Returns the address of the database, for commands that need the database itself.
    pub(crate) fn database(&self, command: &str) -> anyhow::Result<&str> {
        match (self.target()?, &self.database_beside) {
            (Target::Database(url), _) | (Target::Server(_), Some((url, _))) => Ok(url),
            (Target::Server(url), None) => Err(usage(format!(
                "windlass {command} needs the database itself, not the server {}: give \
                 --database-url <URL> or set DATABASE_URL",
                redacted(url)
            ))),
        }
    }

    /// Whether what to talk to is what the config file says.
    fn is_named_by_file(&self) -> bool {
        self.target.as_ref().is_none_or(|(_, from)| !from.is_near())
    }

    /// How to reach a server.
    pub(crate) fn remote(&self, url: &str) -> RemoteOptions {
        self.credentials.options(url)
    }

    /// Whether the address of the database is that of a pooler.
    pub(crate) fn is_pooled(&self) -> bool {
        self.pooled.0
    }

    /// The keys with which payloads are sealed and opened, if there are any.
    pub(crate) fn keyring(&self) -> anyhow::Result<Option<Keyring>> {
        Ok(match &self.payload_keys {
            Some((path, Source::Flag(_) | Source::Profile(_) | Source::File)) => {
                Some(Keyring::from_file(path)?)
            }
            Some((_, Source::Variable(_) | Source::Nowhere)) => Keyring::from_env()?,
            None => None,
        })
    }

    /// The settings with where they come from, and without passwords.
    fn rows(&self) -> Vec<(&'static str, Option<String>, Source)> {
        let or_none = |it: Option<(String, Source)>| match it {
            Some((value, from)) => (Some(value), from),
            None => (None, Source::Nowhere),
        };
        let (mut database, mut server) = (None, None);
        match &self.target {
            Some((Target::Database(url), from)) => database = Some((redacted(url), from.clone())),
            Some((Target::Server(url), from)) => {
                server = Some((redacted(url), from.clone()));
                let beside = self.database_beside.as_ref();
                database = beside.map(|(url, from)| (redacted(url), from.clone()));
            }
            None => {}
        }
        let file = self.file.as_ref();
        let file = or_none(file.map(|(it, from)| (it.display().to_string(), from.clone())));
        let profile = or_none(self.profile.clone());
        let (database, server) = (or_none(database), or_none(server));
        let (pooled, from) = &self.pooled;
        let keys = or_none(self.payload_keys.clone());
        let mut rows = vec![
            ("config", file.0, file.1),
            ("profile", profile.0, profile.1),
            ("database_url", database.0, database.1),
            ("server", server.0, server.1),
            ("pooled", Some(pooled.to_string()), from.clone()),
            ("payload_keys", keys.0, keys.1),
        ];
        rows.extend(self.credentials.rows());
        rows
    }

    /// The settings as people read them.
    pub(crate) fn table(&self) -> String {
        let row = |(name, value, from): (&'static str, Option<String>, Source)| {
            let from = value.as_ref().map_or_else(|| "-".to_owned(), |_| from.to_string());
            vec![name.to_owned(), value.map_or_else(|| "-".to_owned(), |it| shown(&it)), from]
        };
        listing(&["setting", "value", "from"], &[], self.rows().into_iter().map(row))
    }

    /// The settings for programs.
    pub(crate) fn json(&self) -> Value {
        let one = |(name, value, from): (&'static str, Option<String>, Source)| {
            let from = value.as_ref().map(|_| from.to_string());
            (name.to_owned(), json!({ "value": value, "from": from }))
        };
        Value::Object(self.rows().into_iter().map(one).collect())
    }
}

/// A setting, if it is set, and where it comes from.
type Named<T> = Option<(T, Source)>;

/// The settings of one place.
struct Layer<'a> {
    said: Said,
    /// Where each of its words comes from.
    source: Box<dyn Fn(&'static str) -> Source + 'a>,
    database: Option<(String, Source)>,
    server: Option<(String, Source)>,
    pooled: Option<(bool, Source)>,
    payload_keys: Option<(String, Source)>,
    name: Source,
}

impl<'a> Layer<'a> {
    fn of(places: Places, name: Source, source: impl Fn(&str) -> Source + 'a) -> Self {
        Layer {
            database: places.database_url.map(|url| (url, source("database_url"))),
            server: places.server.map(|url| (url, source("server"))),
            pooled: places.pooled.map(|is| (is, source("pooled"))),
            payload_keys: places.payload_keys.map(|path| (path, source("payload_keys"))),
            said: places.said,
            source: Box::new(source),
            name,
        }
    }

    /// Returns the server or the database that it names. The environment may name both, since
    /// `windlass dev` prints both: then the server is used, and the database is returned beside it.
    fn target(&self) -> anyhow::Result<(Named<Target>, Named<String>)> {
        let target = match (&self.database, &self.server) {
            (Some(database), Some((url, from))) if matches!(self.name, Source::Variable(_)) => {
                let server = (Target::Server(url.clone()), from.clone());
                return Ok((Some(server), Some(database.clone())));
            }
            (Some((_, one)), Some((_, other))) => {
                let what = if one == other {
                    format!("{} names both a database_url and a server", self.name)
                } else {
                    format!("{one} and {other} name both a database and a server")
                };
                return Err(usage(format!("{what}; leave one of them out")));
            }
            (Some((url, from)), None) => Some((Target::Database(url.clone()), from.clone())),
            (None, Some((url, from))) => Some((Target::Server(url.clone()), from.clone())),
            (None, None) => None,
        };
        Ok((target, None))
    }
}

/// The address of the database that the environment names, itself or by a file, and the variable
/// that does.
fn database_of(
    variable: &impl Fn(&'static str) -> anyhow::Result<Option<String>>,
) -> anyhow::Result<(Option<String>, &'static str)> {
    match (variable(DATABASE_VARIABLE)?, variable(DATABASE_FILE_VARIABLE)?) {
        (Some(_), Some(_)) => Err(usage(format!(
            "{DATABASE_VARIABLE} and {DATABASE_FILE_VARIABLE} are both set; leave one of them out"
        ))),
        (url, None) => Ok((url, DATABASE_VARIABLE)),
        (None, Some(path)) => {
            let url = windlass::secrets::from_file(path)
                .map_err(|error| usage(format!("{DATABASE_FILE_VARIABLE}: {error}")))?;
            Ok((Some(url.expose().to_owned()), DATABASE_FILE_VARIABLE))
        }
    }
}

/// The file of keys that the environment names, or that it has the keys themselves, which nothing
/// shows, and the variable that says so. If both do, whoever reads the keys refuses it.
fn keys_of(
    variable: &impl Fn(&'static str) -> anyhow::Result<Option<String>>,
) -> anyhow::Result<(Option<String>, &'static str)> {
    Ok(match (variable(KEYS_FILE_VARIABLE)?, variable(KEYS_VARIABLE)?) {
        (None, Some(_)) => (Some(HIDDEN.to_owned()), KEYS_VARIABLE),
        (path, _) => (path, KEYS_FILE_VARIABLE),
    })
}

/// What to say if there is no such profile.
fn no_profile(name: &str, from: &Source, file: &File, path: Option<&Path>) -> String {
    let name = shown(name);
    let Some(path) = path else {
        return format!("profile {name} ({from}) is not there: there is no config file");
    };
    let all: Vec<String> = file.profiles.keys().map(|name| shown(name)).collect();
    let has = if all.is_empty() { "no profiles".to_owned() } else { all.join(", ") };
    format!("profile {name} ({from}) is not in {}, which has {has}", shown(&path.to_string_lossy()))
}

#[cfg(test)]
mod tests;
