//! How the store reaches its database, and the address it is given as.

use std::time::Duration;

use tokio_postgres::Config;
use windlass_core::PayloadLimit;

use super::address::Target;
use crate::{Error, ErrorKind};

/// The most connections of one store. Beyond a few per core of the server they only
/// wait for each other.
pub const CONNECTIONS_MAX: usize = 1_000;

/// The longest timeout, a day: PostgreSQL counts them in milliseconds of 32 bits.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How it is decided which process leads the background duties. Whichever it is, a leader
/// has a term, and its writes are refused once the next has begun. Processes that share a
/// database had better agree on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaderElection {
    /// By the times in the rows of `windlass.leaders`: a leader that is not heard of for its
    /// time to live may be replaced.
    #[default]
    LeaseRow,
    /// By an advisory lock on a session of its own: a leader whose connection is lost may be
    /// replaced, or whose session the server has not heard of for its time to live. It costs
    /// one connection more per process, and the session must not go through a pooler.
    AdvisoryLock,
}

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
    pub(super) election: LeaderElection,
    pub(super) migrates: bool,
    pub(super) api_role: Option<String>,
    payload_limit: Option<usize>,
    pub(super) statement_timeout: Duration,
    read_timeout: Duration,
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
    /// not said), `sslrootcert` (a file of certificates in PEM; the authorities that
    /// the machine trusts if not said), and `sslcert` with `sslkey` (the files of a certificate
    /// and its key in PEM, which are shown to a server that asks; the key is for its owner alone,
    /// or root's and for its group). Only the two `verify` modes keep out a server
    /// that pretends to be another. The address is looked at when it is used.
    pub fn new(url: impl Into<String>) -> Self {
        PostgresOptions {
            url: url.into(),
            listen_url: None,
            max_connections: 10,
            is_pooled: false,
            listens: true,
            election: LeaderElection::default(),
            migrates: false,
            api_role: None,
            payload_limit: None,
            statement_timeout: Duration::from_secs(30),
            read_timeout: Duration::from_secs(5),
            lock_timeout: Duration::from_secs(5),
            idle_in_transaction_timeout: Duration::from_secs(5),
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

    /// How it is decided which process leads the background duties; by
    /// [`LeaderElection::LeaseRow`] if not said.
    pub fn election(mut self, election: LeaderElection) -> Self {
        self.election = election;
        self
    }

    /// Whether a connection brings the schema up to date first; no if not said. It then
    /// needs the rights that [`migrate`](super::migrate) does.
    pub fn migrate(mut self, migrates: bool) -> Self {
        self.migrates = migrates;
        self
    }

    /// The role of the database behind which what one tenant reads is read: it sees only the rows
    /// of the tenant that a transaction names. None if not said, and then there is no such wall.
    ///
    /// The role that connects must be allowed to take it on; `windlass migrate --grants` prints
    /// what makes both.
    pub fn api_role(mut self, role: impl Into<String>) -> Self {
        self.api_role = Some(role.into());
        self
    }

    /// Sets how large inputs, outputs and notes on progress may be, in bytes of JSON text,
    /// from 1024 to 67108864 (64 MiB); it is 1048576 (1 MiB) in a new database.
    ///
    /// The limit is a setting of the database, in the table `windlass.settings`, and holds for
    /// all who use it: at once for starts in SQL, for other programs from their next
    /// [connection](super::PostgresStore::connect) on. If not said, what is set there holds.
    pub fn payload_limit(mut self, bytes: usize) -> Self {
        self.payload_limit = Some(bytes);
        self
    }

    /// How long one statement may take before the server stops it; 30 s if not said,
    /// zero for ever.
    pub fn statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = timeout;
        self
    }

    /// Sets how long a statement of a list or of `why` may take before PostgreSQL cancels it; the
    /// error says what to filter by. Never longer than the
    /// [statement timeout](PostgresOptions::statement_timeout), which also applies for zero.
    /// Default: 5 s.
    ///
    /// At most half of the [connections](PostgresOptions::max_connections) are used for such reads
    /// at a time, so that they do not hold up workers and starts.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = timeout;
        self
    }

    /// How long one statement may wait for a lock; 5 s if not said, zero for ever.
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// How long the server keeps a transaction in which nothing happens, with its locks;
    /// 5 s if not said, zero for ever.
    ///
    /// A process that is frozen in the middle of a transaction holds up others for so
    /// long. Keep it below the shortest lease of a worker.
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

    /// Opens a connection of its own to the database, for statements beside the engine's. It
    /// is closed when the client is dropped.
    ///
    /// # Errors
    ///
    /// `Argument` if the address cannot be understood, `Unavailable` if nobody answers there,
    /// and `Database` if the server does not let us in.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn client(&self) -> Result<tokio_postgres::Client, Error> {
        let target = self.target()?;
        let opened = super::pool::open(&target, self.open_max()).await;
        let (client, driver) = opened.map_err(|fault| super::check::refused(&target, fault))?;
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::warn!(%error, "a connection beside the engine's was lost");
            }
        });
        Ok(client)
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
        if self.listens { self.session_target() } else { Ok(None) }
    }

    /// Whether the address to listen on was said.
    pub(super) fn has_listen_url(&self) -> bool {
        self.listen_url.is_some()
    }

    /// The address for sessions that last, if there is one.
    pub(super) fn session_target(&self) -> Result<Option<Target>, Error> {
        let url = match &self.listen_url {
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
            for (name, timeout) in self.timeouts() {
                options.push_str(&format!(" -c {name}={}", timeout.as_millis()));
            }
            config.options(options);
        }
    }

    /// The limit on payloads that is to be set, if one is.
    pub(super) fn payload_limit_to_set(&self) -> Result<Option<PayloadLimit>, Error> {
        let refuse = |text| Error::new(ErrorKind::Argument, text);
        self.payload_limit.map(PayloadLimit::try_from).transpose().map_err(refuse)
    }

    /// How long opening a connection may take altogether: the driver counts for each
    /// address of a host, and not what is said once it is connected.
    pub(super) fn open_max(&self) -> Duration {
        2 * self.connect_timeout
    }

    /// Returns how long a statement that reads for people may take; zero for ever.
    pub(super) fn read_timeout_in_effect(&self) -> Duration {
        let set = [self.read_timeout, self.statement_timeout];
        set.into_iter().filter(|timeout| !timeout.is_zero()).min().unwrap_or_default()
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
        self.payload_limit_to_set()?;
        let refuse = |text| Err(Error::new(ErrorKind::Argument, text));
        let connections = self.max_connections;
        if !(1..=CONNECTIONS_MAX).contains(&connections) {
            return refuse(format!(
                "max_connections is {connections}, it must be from 1 to {CONNECTIONS_MAX}"
            ));
        }
        let own = [
            ("acquire_timeout", self.acquire_timeout),
            ("connect_timeout", self.connect_timeout),
            ("read_timeout", self.read_timeout),
        ];
        for (name, timeout) in self.timeouts().into_iter().chain(own) {
            if timeout > TIMEOUT_MAX {
                return refuse(format!("{name} is {timeout:?}, the limit is {TIMEOUT_MAX:?}"));
            }
        }
        Ok(())
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_outside_their_limits_are_refused_by_name() {
        let options = || PostgresOptions::new("postgres://u@h/d");
        let day = Duration::from_secs(24 * 60 * 60);
        let cases = [
            (options().max_connections(0), "max_connections is 0"),
            (options().max_connections(1_001), "max_connections is 1001"),
            (options().payload_limit(1_023), "payload_limit is 1023, not within 1024 to 67108864"),
            (options().payload_limit((64 << 20) + 1), "payload_limit is 67108865"),
            (options().lock_timeout(2 * day), "lock_timeout is 172800s"),
            (options().statement_timeout(2 * day), "statement_timeout is 172800s"),
            (options().read_timeout(2 * day), "read_timeout is 172800s"),
        ];
        for (options, wanted) in cases {
            let Err(error) = options.target() else { panic!("{wanted}: it was taken") };
            assert_eq!(error.kind(), ErrorKind::Argument);
            assert!(error.to_string().contains(wanted), "{error}");
        }
        let most = options().max_connections(1_000).lock_timeout(day).payload_limit(64 << 20);
        assert!(most.target().is_ok());
    }

    #[test]
    fn a_session_has_its_timeouts_from_the_start_except_behind_a_pooler() {
        let options = PostgresOptions::new("postgres://u@h/d?options=-c%20jit%3Doff");
        let config = options.target().expect("it can be read").config;
        let said = config.get_options().expect("there are some");
        assert!(said.starts_with("-c jit=off "), "{said}");
        for wanted in [
            "-c statement_timeout=30000",
            "-c lock_timeout=5000",
            "-c idle_in_transaction_session_timeout=5000",
            "-c default_transaction_isolation=read\\ committed",
        ] {
            assert!(said.contains(wanted), "{said}");
        }
        assert_eq!(config.get_application_name(), Some("windlass"));
        let pooled = PostgresOptions::new("postgres://u@h/d").pooled(true);
        assert_eq!(pooled.target().expect("it can be read").config.get_options(), None);
    }

    #[test]
    fn one_listens_where_it_can_be_heard() {
        let options = || PostgresOptions::new("postgres://u@h/d");
        let name = |options: PostgresOptions| {
            options.listen_target().expect("it can be read").map(|target| target.name())
        };
        assert_eq!(name(options()), Some("h:5432/d".to_owned()));
        assert_eq!(name(options().listen(false)), None);
        assert_eq!(name(options().pooled(true)), None);
        let direct = options().pooled(true).listen_url("postgres://u@direct/d");
        assert_eq!(name(direct), Some("direct:5432/d".to_owned()));
    }

    #[test]
    fn options_do_not_show_the_address() {
        let shown = format!("{:?}", PostgresOptions::new("postgres://u:SECRET@h/d"));
        assert!(!shown.contains("SECRET"), "{shown}");
    }
}
