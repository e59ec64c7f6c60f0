//! How the store reaches its database, and the address it is given as.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::tls::{Tls, Verify};
use crate::{Error, ErrorKind};

/// The most connections of one store. Beyond a few per core of the server they only
/// wait for each other.
pub const CONNECTIONS_MAX: usize = 1_000;

/// The longest timeout, a day: PostgreSQL counts them in milliseconds of 32 bits.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How the store reaches its database.
///
/// ```
/// use std::time::Duration;
/// use windlass::store::postgres::PostgresOptions;
///
/// let options = PostgresOptions::new("postgres://app@db.example.com/app?sslmode=verify-full")
///     .max_connections(20)
///     .statement_timeout(Duration::from_secs(10));
/// ```
#[derive(Clone)]
pub struct PostgresOptions {
    url: String,
    listen_url: Option<String>,
    pub(super) max_connections: usize,
    pub(super) is_pooled: bool,
    listens: bool,
    pub(super) migrates: bool,
    pub(super) statement_timeout: Duration,
    pub(super) lock_timeout: Duration,
    pub(super) idle_in_transaction_timeout: Duration,
    pub(super) acquire_timeout: Duration,
    pub(super) connect_timeout: Duration,
    #[cfg(feature = "testing")]
    pub(super) steps: Option<super::step::Steps>,
}

impl<T: Into<String>> From<T> for PostgresOptions {
    /// The options of an address, with nothing else said.
    fn from(url: T) -> Self {
        PostgresOptions::new(url)
    }
}

impl PostgresOptions {
    /// The database at an address such as `postgres://user:password@host:5432/name`. A
    /// Unix socket is a percent-encoded directory in the place of the host.
    ///
    /// After a `?` come options as libpq has them, of which these decide about TLS:
    /// `sslmode` (`disable`, `prefer`, `require`, `verify-ca`, `verify-full`; `prefer` if
    /// not said) and `sslrootcert` (a file of certificates in PEM; the authorities that
    /// the machine trusts if not said). Only the two `verify` modes keep out a server
    /// that pretends to be another. The address is looked at when it is used.
    pub fn new(url: impl Into<String>) -> Self {
        PostgresOptions {
            url: url.into(),
            listen_url: None,
            max_connections: 10,
            is_pooled: false,
            listens: true,
            migrates: false,
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(5),
            idle_in_transaction_timeout: Duration::from_secs(10),
            acquire_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            #[cfg(feature = "testing")]
            steps: None,
        }
    }

    /// How many connections are opened at most, besides one that listens; 10 if not
    /// said.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Whether the address is that of a pooler that gives out a server connection for
    /// one transaction at a time, such as PgBouncer in transaction mode; no if not said.
    ///
    /// Nothing is then kept in a session: no prepared statements, and timeouts that are
    /// set with every transaction. Since one cannot listen through such a pooler, give
    /// it a direct address with [`listen_url`](PostgresOptions::listen_url).
    pub fn pooled(mut self, is_pooled: bool) -> Self {
        self.is_pooled = is_pooled;
        self
    }

    /// The address to listen on for hints that something changed; if not said, it is
    /// the address of the database, or none if that is [a pooler's](PostgresOptions::pooled).
    pub fn listen_url(mut self, url: impl Into<String>) -> Self {
        self.listen_url = Some(url.into());
        self
    }

    /// Whether to listen for hints at all; yes if not said. Without, the store asks
    /// again at intervals: everything works, a little later.
    pub fn listen(mut self, listens: bool) -> Self {
        self.listens = listens;
        self
    }

    /// Whether a connection brings the schema up to date first; no if not said. It then
    /// needs the rights that [`migrate`](super::migrate) does.
    pub fn migrate(mut self, migrates: bool) -> Self {
        self.migrates = migrates;
        self
    }

    /// How long one statement may take before the server stops it; 30 s if not said,
    /// zero for ever.
    pub fn statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = timeout;
        self
    }

    /// How long one statement may wait for a lock; 5 s if not said, zero for ever.
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// How long the server keeps a transaction in which nothing happens, with its locks;
    /// 10 s if not said, zero for ever.
    pub fn idle_in_transaction_timeout(mut self, timeout: Duration) -> Self {
        self.idle_in_transaction_timeout = timeout;
        self
    }

    /// How long an operation waits for a connection when all are in use; 10 s if not
    /// said.
    pub fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.acquire_timeout = timeout;
        self
    }

    /// How long opening a connection may take; 10 s if not said.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Lets a test decide when each statement of this store is sent.
    #[cfg(feature = "testing")]
    pub fn steps(mut self, steps: super::step::Steps) -> Self {
        self.steps = Some(steps);
        self
    }

    /// Whether a test decides when statements are sent.
    pub(super) fn is_stepped(&self) -> bool {
        #[cfg(feature = "testing")]
        return self.steps.is_some();
        #[cfg(not(feature = "testing"))]
        false
    }

    /// The address of the data, ready to connect to.
    pub(super) fn target(&self) -> Result<Target, Error> {
        self.check()?;
        let mut target = Target::parse(&self.url)?;
        self.finish(&mut target.config, self.is_pooled);
        Ok(target)
    }

    /// The address to listen on, if there is one.
    pub(super) fn listen_target(&self) -> Result<Option<Target>, Error> {
        let url = match &self.listen_url {
            _ if !self.listens => return Ok(None),
            Some(url) => url,
            None if self.is_pooled => return Ok(None),
            None => &self.url,
        };
        let mut target = Target::parse(url)?;
        // Without timeouts: it has no transactions, and waits all the time.
        self.finish(&mut target.config, true);
        Ok(Some(target))
    }

    fn finish(&self, config: &mut Config, is_pooled: bool) {
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(self.connect_timeout);
        }
        if config.get_application_name().is_none() {
            config.application_name("windlass");
        }
        #[cfg(feature = "testing")]
        if let Some(steps) = &self.steps {
            config.application_name(steps.session());
        }
        if !is_pooled {
            let mut options = config.get_options().unwrap_or_default().to_owned();
            // Also for a statement alone, whatever the role's defaults are.
            options.push_str(" -c default_transaction_isolation=read\\ committed");
            options.push_str(" -c default_transaction_read_only=off");
            for (name, timeout) in self.timeouts() {
                options.push_str(&format!(" -c {name}={}", timeout.as_millis()));
            }
            config.options(options);
        }
    }

    /// The timeouts that every transaction has.
    pub(super) fn timeouts(&self) -> [(&'static str, Duration); 3] {
        [
            ("statement_timeout", self.statement_timeout),
            ("lock_timeout", self.lock_timeout),
            ("idle_in_transaction_session_timeout", self.idle_in_transaction_timeout),
        ]
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |text| Err(Error::new(ErrorKind::Argument, text));
        let connections = self.max_connections;
        if !(1..=CONNECTIONS_MAX).contains(&connections) {
            return refuse(format!(
                "max_connections is {connections}, it must be from 1 to {CONNECTIONS_MAX}"
            ));
        }
        for (name, timeout) in self.timeouts() {
            if timeout > TIMEOUT_MAX {
                return refuse(format!("{name} is {timeout:?}, the limit is {TIMEOUT_MAX:?}"));
            }
        }
        Ok(())
    }
}

/// How long a connection may be silent before the network is asked whether the server
/// is still there. Firewalls forget idle connections after some minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// How long sent bytes may stay unconfirmed before the connection counts as cut.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(15);

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The address may hold a password.
        f.debug_struct("PostgresOptions")
            .field("max_connections", &self.max_connections)
            .field("is_pooled", &self.is_pooled)
            .field("listens", &self.listens)
            .finish_non_exhaustive()
    }
}

/// An address that was understood.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) config: Config,
    pub(super) tls: Tls,
}

impl Target {
    fn parse(url: &str) -> Result<Target, Error> {
        let address = Address::split(url)?;
        let mut mode = "prefer".to_owned();
        let mut root = None;
        let mut passed = Vec::new();
        for pair in address.query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "sslmode" => mode = decode(name, value)?,
                "sslrootcert" => root = Some(decode(name, value)?),
                name if PASSED_ON.contains(&name) => passed.push((name, pair)),
                name => return Err(refuse(unknown_option(name))),
            }
        }
        let pairs: Vec<&str> = passed.iter().map(|(_, pair)| *pair).collect();
        let config = format!("{}?{}", address.place, pairs.join("&")).parse::<Config>();
        let mut config = config.map_err(|error| refuse(unreadable(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(refuse("the address of the database names no host"));
        }
        let is_said = |name: &str| passed.iter().any(|(said, _)| *said == name);
        set_network(&mut config, is_said);
        let (mut ssl_mode, verify) = ssl_mode(&mode, root.is_some())?;
        // As libpq does: a socket is never encrypted, whatever was asked for.
        if config.get_hosts().iter().all(is_socket) && !config.get_hosts().is_empty() {
            ssl_mode = SslMode::Disable;
        }
        config.ssl_mode(ssl_mode);
        let tls = Tls::new(verify, root.as_deref(), ssl_mode != SslMode::Disable)?;
        Ok(Target { config, tls })
    }

    /// What to call the database in a message: the address without its secrets.
    pub(super) fn name(&self) -> String {
        let mut name = String::new();
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            if index > 0 {
                name.push(',');
            }
            match host {
                Host::Tcp(host) => name.push_str(host),
                #[cfg(unix)]
                Host::Unix(path) => name.push_str(&path.to_string_lossy()),
            }
            let ports = self.config.get_ports();
            let port = ports.get(index).or(ports.first()).unwrap_or(&5432);
            name.push_str(&format!(":{port}"));
        }
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        format!("{name}/{database}")
    }
}

/// The options of an address that are passed on. Those of client certificates are not
/// among them.
const PASSED_ON: [&str; 18] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslnegotiation",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
];

/// An address in two pieces: where the database is, and the options behind the `?`.
struct Address<'a> {
    place: &'a str,
    query: &'a str,
}

impl<'a> Address<'a> {
    fn split(url: &'a str) -> Result<Address<'a>, Error> {
        let rest = url.strip_prefix("postgres://").or(url.strip_prefix("postgresql://"));
        let Some(rest) = rest else {
            return Err(refuse("the address of the database does not begin with postgres://"));
        };
        // What comes before the first `@` is a user and a password, whatever is in it.
        let host = rest.find('@').map_or(rest, |at| &rest[at + 1..]);
        let end = host.find(['/', '?']).unwrap_or(host.len());
        if host[..end].contains('@') {
            let text = "the address of the database has more than one `@` before its host; \
                        in a password write it as %40";
            return Err(refuse(text));
        }
        let query = host.find('?').map_or("", |at| &host[at + 1..]);
        let place = match host.contains('?') {
            true => &url[..url.len() - query.len() - 1],
            false => url,
        };
        Ok(Address { place, query })
    }
}

fn refuse(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Argument, text)
}

/// Only a name that cannot be a piece of a secret is shown.
fn unknown_option(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    match is_plain && name.len() <= 40 {
        true => format!("the address of the database has an option {name:?}, which is not known"),
        false => "the address of the database has an option that is not known".to_owned(),
    }
}

/// Why the rest of an address cannot be read; its parser names options, never values.
fn unreadable(error: &tokio_postgres::Error) -> String {
    let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    format!("the address of the database cannot be read: {why}")
}

/// Decodes what `%` stands for in a value, by the parser that reads the rest.
fn decode(name: &str, value: &str) -> Result<String, Error> {
    let config: Result<Config, _> = format!("postgres://a@b?application_name={value}").parse();
    let value = config.ok().and_then(|config| config.get_application_name().map(str::to_owned));
    value.ok_or_else(|| refuse(format!("{name} in the address of the database cannot be read")))
}

fn ssl_mode(mode: &str, has_root: bool) -> Result<(SslMode, Verify), Error> {
    match mode {
        "disable" => Ok((SslMode::Disable, Verify::Nothing)),
        "prefer" => Ok((SslMode::Prefer, Verify::Nothing)),
        // As libpq does: whoever names an authority wants it to be asked.
        "require" if has_root => Ok((SslMode::Require, Verify::Authority)),
        "require" => Ok((SslMode::Require, Verify::Nothing)),
        "verify-ca" => Ok((SslMode::Require, Verify::Authority)),
        "verify-full" => Ok((SslMode::Require, Verify::AuthorityAndHost)),
        _ => Err(refuse(format!(
            "sslmode is {mode:?}, it must be disable, prefer, require, verify-ca or verify-full"
        ))),
    }
}

fn is_socket(host: &Host) -> bool {
    match host {
        Host::Tcp(_) => false,
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

/// How a cut network is noticed, unless the address says it.
fn set_network(config: &mut Config, is_said: impl Fn(&str) -> bool) {
    if !is_said("keepalives_idle") {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    if !is_said("keepalives_interval") {
        config.keepalives_interval(KEEPALIVE_INTERVAL);
    }
    if !is_said("keepalives_retries") {
        config.keepalives_retries(KEEPALIVE_RETRIES);
    }
    if !is_said("tcp_user_timeout") {
        config.tcp_user_timeout(TCP_USER_TIMEOUT);
    }
}
