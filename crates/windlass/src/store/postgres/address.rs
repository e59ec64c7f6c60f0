//! The address of a database: what it says, and what is wrong with it.
//!
//! Nothing here repeats a piece of an address that could belong to a password.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::tls::{Tls, Verify};
use crate::pem::CertificateFiles;
use crate::{Error, ErrorKind};

/// How long a connection may be silent before the network is asked whether the server
/// is still there. Firewalls forget idle connections after some minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// How long sent bytes may stay unconfirmed before the connection counts as cut.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(15);

/// An address that was understood.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) config: Config,
    pub(super) tls: Tls,
}

impl Target {
    pub(super) fn parse(url: &str) -> Result<Target, Error> {
        let address = Address::split(url)?;
        let mut mode = "prefer".to_owned();
        let (mut root, mut certificate, mut key) = (None, None, None);
        let mut passed = Vec::new();
        for pair in address.query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "sslmode" => mode = decode(name, value)?,
                "sslrootcert" => root = Some(decode(name, value)?),
                "sslcert" => certificate = Some(decode(name, value)?),
                "sslkey" => key = Some(decode(name, value)?),
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
        let shown = match (certificate, key) {
            (Some(certificate), Some(key)) => {
                Some(CertificateFiles { certificate: certificate.into(), key: key.into() })
            }
            (None, None) => None,
            (Some(_), None) => return Err(refuse("sslcert is said without its sslkey")),
            (None, Some(_)) => return Err(refuse("sslkey is said without its sslcert")),
        };
        let is_used = ssl_mode != SslMode::Disable;
        let tls = Tls::new(verify, root.as_deref(), shown.as_ref(), is_used)?;
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

/// The options of an address that are passed on.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Target {
        Target::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn an_address_that_cannot_be_used_is_refused_and_its_password_never_shown() {
        let cases = [
            ("", "does not begin with postgres://"),
            ("mysql://u:SECRET@h/d", "does not begin with postgres://"),
            ("host=h password=SECRET", "does not begin with postgres://"),
            ("postgres://", "names no host"),
            ("postgres://u:SECRET@/d", "names no host"),
            ("postgres://u:SEC@RET@h/d", "write it as %40"),
            ("postgres://u:SECRET@h:port/d", "invalid value for option `port`"),
            ("postgres://u:SECRET@h/d?sslmode=allow", "sslmode is \"allow\", it must be"),
            ("postgres://u:SECRET@h/d?sslcrl=x", "an option \"sslcrl\", which is not known"),
            ("postgres://u:SECRET@h/d?sslcert=x", "sslcert is said without its sslkey"),
            ("postgres://u:SECRET@h/d?sslkey=x", "sslkey is said without its sslcert"),
            ("postgres://u:SECRET@h/d?sslcert=/no/c&sslkey=/no/k", "sslcert: file \"/no/c\""),
            ("postgres://u:SECRET@h/d?SECRET=x", "has an option that is not known"),
            ("postgres://u@h/d?password=SECRET&keepalives=x", "`keepalives`"),
            ("postgres://h/d?sslmode=verify-full&sslrootcert=/no/f", "sslrootcert: file \"/no/f\""),
        ];
        for (url, wanted) in cases {
            let Err(error) = Target::parse(url) else { panic!("{url} was taken") };
            assert_eq!(error.kind(), ErrorKind::Argument);
            let text = error.to_string();
            assert!(text.contains(wanted), "{url}: {text}");
            assert!(!text.contains("SEC") && !text.contains("RET"), "{url}: {text}");
        }
    }

    #[test]
    fn a_database_is_called_by_its_address_without_secrets() {
        let name = |url| parse(url).name();
        assert_eq!(name("postgres://u:SECRET@h/d"), "h:5432/d");
        assert_eq!(name("postgres://u:S?C/R%40T@h:1,i:2/d?password=x"), "h:1,i:2/d");
        assert_eq!(name("postgres://u@%2Frun%2Fpg/d"), "/run/pg:5432/d");
        assert_eq!(name("postgresql://u@h"), "h:5432/u");
    }

    #[test]
    fn tls_is_asked_for_as_the_address_says() {
        let mode = |url| parse(url).config.get_ssl_mode();
        assert_eq!(mode("postgres://u@h/d"), SslMode::Prefer);
        assert_eq!(mode("postgres://u@h/d?sslmode=disable"), SslMode::Disable);
        assert_eq!(mode("postgres://u@h/d?sslmode=require"), SslMode::Require);
        assert_eq!(mode("postgres://u@%2Frun%2Fpg/d?sslmode=require"), SslMode::Disable);
        assert_eq!(ssl_mode("require", false).ok(), Some((SslMode::Require, Verify::Nothing)));
        assert_eq!(ssl_mode("require", true).ok(), Some((SslMode::Require, Verify::Authority)));
    }

    #[test]
    fn a_cut_network_is_noticed_unless_the_address_says_otherwise() {
        let config = parse("postgres://u@h/d").config;
        assert!(config.get_keepalives());
        assert_eq!(config.get_keepalives_idle(), KEEPALIVE_IDLE);
        assert_eq!(config.get_tcp_user_timeout(), Some(&TCP_USER_TIMEOUT));
        let config = parse("postgres://u@h/d?keepalives_idle=7&tcp_user_timeout=8").config;
        assert_eq!(config.get_keepalives_idle(), Duration::from_secs(7));
        assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_secs(8)));
    }
}
