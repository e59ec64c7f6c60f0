//! Encryption, and who is believed to be the server.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use windlass::store::postgres::{PostgresOptions, PostgresStore, migrate};
use windlass::{Error, ErrorKind};

use super::server::Server;

/// An authority of a test's own.
fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let key = KeyPair::generate().expect("a key can be made");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, key).expect("it can be signed")
}

/// A server whose certificate is for `localhost`, and that lets in only who knows the
/// password of `app`, and as `shown` only who shows a certificate for that name.
struct Encrypted {
    server: Server,
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The file of the authority that signed its certificate.
    root: String,
    /// The file of another authority.
    stranger: String,
}

impl Encrypted {
    async fn start() -> Self {
        let server = Server::start_with(vec![("listen_addresses", "127.0.0.1".into())]).await;
        let issuer = authority("ours");
        let key = KeyPair::generate().expect("a key can be made");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &issuer).expect("it can be signed");
        let certificate = server.write("server.crt", &certificate.pem());
        let key = server.write("server.key", &key.serialize_pem());
        let root = server.write("root.crt", &issuer.pem());
        let stranger = server.write("stranger.crt", &authority("a stranger").pem());
        let admits = "hostssl all app all scram-sha-256\nhostssl all shown all cert";
        server.admit(admits).await;
        let client = server.client().await;
        for sql in [
            format!("alter system set ssl_cert_file = '{}'", certificate.display()),
            format!("alter system set ssl_key_file = '{}'", key.display()),
            format!("alter system set ssl_ca_file = '{}'", root.display()),
            "alter system set ssl = on".to_owned(),
            "select pg_reload_conf()".to_owned(),
            "create role app login superuser password 'right'".to_owned(),
            "create role shown login superuser".to_owned(),
        ] {
            client.batch_execute(&sql).await.expect("the test may do that");
        }
        migrate(&server.url().into()).await.expect("it can be migrated");
        let path = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
        Encrypted { server, issuer, root: path(root), stranger: path(stranger) }
    }

    /// The files of a certificate for a role and of its key, signed by an authority.
    fn sign(&self, role: &str, issuer: &CertifiedIssuer<'static, KeyPair>) -> [PathBuf; 2] {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, role);
        let certificate = params.signed_by(&key, issuer).expect("it can be signed");
        let certificate = self.server.write("client.crt", &certificate.pem());
        [certificate, self.server.write("client.key", &key.serialize_pem())]
    }

    /// Shows another certificate from now on.
    async fn show(&self, params: CertificateParams) {
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("it can be signed");
        self.server.write("server.crt", &certificate.pem());
        self.server.write("server.key", &key.serialize_pem());
        let client = self.server.client().await;
        client.batch_execute("select pg_reload_conf()").await.expect("it can be read again");
    }

    fn url(&self, host: &str, options: &str) -> String {
        format!("postgres://app:right@{host}:{}/postgres?{options}", self.server.port())
    }

    async fn connect(&self, host: &str, options: &str) -> Result<PostgresStore, Error> {
        PostgresStore::connect(PostgresOptions::new(self.url(host, options))).await
    }

    /// Connects, and makes sure that the sessions are encrypted.
    async fn works(&self, host: &str, options: &str) {
        let store = self.connect(host, options).await;
        let _store = store.unwrap_or_else(|error| panic!("{host} {options}: {error}"));
        let client = self.server.client().await;
        let sql = "select count(*), count(*) filter (where s.ssl) from pg_stat_activity a
                   join pg_stat_ssl s on s.pid = a.pid where a.usename = 'app'";
        let row = client.query_one(sql, &[]).await.expect("the activity can be read");
        let (all, encrypted): (i64, i64) = (row.get(0), row.get(1));
        assert!(all >= 1);
        assert_eq!(all, encrypted, "{host} {options}");
    }

    async fn is_refused(&self, host: &str, options: &str, wanted: &str) {
        let error = self.connect(host, options).await.map(drop).expect_err(options);
        assert_eq!(error.kind(), ErrorKind::Database, "{error}");
        let text = error.to_string();
        assert!(text.contains(wanted), "{host} {options}: {text}");
        assert!(!text.contains("right"), "{text}");
    }
}

#[tokio::test]
async fn a_server_is_believed_as_far_as_the_address_says() {
    let it = Encrypted::start().await;
    let (root, stranger) = (&it.root, &it.stranger);
    let full = |root: &str| format!("sslmode=verify-full&sslrootcert={root}");
    let authority = |root: &str| format!("sslmode=verify-ca&sslrootcert={root}");
    it.works("localhost", &full(root)).await;
    it.is_refused("127.0.0.1", &full(root), "not valid for name").await;
    it.is_refused("localhost", &full(stranger), "UnknownIssuer").await;
    // The machine trusts neither.
    it.is_refused("localhost", "sslmode=verify-full", "UnknownIssuer").await;
    it.works("127.0.0.1", &authority(root)).await;
    it.is_refused("127.0.0.1", &authority(stranger), "UnknownIssuer").await;
    // Naming an authority means to ask it.
    it.works("127.0.0.1", &format!("sslmode=require&sslrootcert={root}")).await;
    it.is_refused("127.0.0.1", &format!("sslmode=require&sslrootcert={stranger}"), "Unknown").await;
    it.works("127.0.0.1", "sslmode=require").await;
    it.works("127.0.0.1", "sslmode=prefer").await;
    it.works("127.0.0.1", "").await;
    it.works("localhost", &format!("{}&channel_binding=require", full(root))).await;
    // The server lets nobody in who does not encrypt.
    it.is_refused("127.0.0.1", "sslmode=disable", "(28000)").await;
}

#[tokio::test]
async fn a_server_whose_certificate_has_expired_is_refused_where_it_is_verified() {
    let it = Encrypted::start().await;
    let (full, authority) = ["verify-full", "verify-ca"]
        .map(|mode| format!("sslmode={mode}&sslrootcert={}", it.root))
        .into();
    it.works("localhost", &full).await;
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    it.show(params).await;
    // The server reads its files when it comes to it.
    let expires = async {
        while it.connect("localhost", &full).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), expires).await.expect("it shows the other one");
    it.is_refused("localhost", &full, "expired").await;
    it.is_refused("localhost", &full, &format!("localhost:{}", it.server.port())).await;
    it.is_refused("127.0.0.1", &authority, "expired").await;
    it.works("localhost", "sslmode=require").await;
}

#[tokio::test]
async fn a_role_is_let_in_by_the_certificate_that_the_address_names() {
    let it = Encrypted::start().await;
    let connect = async |[certificate, key]: &[PathBuf; 2]| {
        let (certificate, key) = (certificate.display(), key.display());
        let port = it.server.port();
        let options = format!("sslmode=verify-full&sslrootcert={}", it.root);
        let url = format!("postgres://shown@localhost:{port}/postgres?{options}");
        let url = format!("{url}&sslcert={certificate}&sslkey={key}");
        PostgresStore::connect(PostgresOptions::new(url)).await.map(drop)
    };
    let files = it.sign("shown", &it.issuer);
    connect(&files).await.expect("it shows whom it is for");
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&files[1], mode).expect("it is ours");
    let error = connect(&files).await.expect_err("everyone may read the key");
    assert_eq!(error.kind(), ErrorKind::Argument);
    let text = error.to_string();
    assert!(text.contains("sslkey: file") && text.contains("others may open it"), "{text}");

    let error = connect(&it.sign("app", &it.issuer)).await.expect_err("it is for another role");
    assert!(error.to_string().contains("(28000)"), "{error}");
    let stranger = it.sign("shown", &authority("a stranger"));
    let error = connect(&stranger).await.expect_err("nobody vouches for it");
    assert!(!error.to_string().is_empty(), "{error}");
    let error = connect(&[it.root.clone().into(), stranger[1].clone()]).await;
    let error = error.expect_err("they do not belong together").to_string();
    assert!(error.contains("sslcert: file") && error.contains("root.crt"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_repeated() {
    let it = Encrypted::start().await;
    let url = it.url("127.0.0.1", "sslmode=require").replace(":right@", ":wrong@");
    let error = PostgresStore::connect(url.into()).await.expect_err("it is wrong");
    assert_eq!(error.kind(), ErrorKind::Database);
    assert!(!error.is_retryable());
    let text = error.to_string();
    assert!(text.contains("password authentication failed for user \"app\" (28P01)"), "{text}");
    assert!(!text.contains("wrong"), "{text}");
    let url = it.url("127.0.0.1", "sslmode=require").replace(":right@", "@");
    let error = PostgresStore::connect(url.into()).await.expect_err("it is missing");
    assert_eq!(error.kind(), ErrorKind::Database);
    assert!(error.to_string().contains("password missing"), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_only_if_tls_is_asked_for() {
    let server = Server::start_with(vec![("listen_addresses", "127.0.0.1".into())]).await;
    server.admit("host all windlass all trust").await;
    migrate(&server.url().into()).await.expect("it can be migrated");
    let url = |mode: &str| {
        format!("postgres://windlass@127.0.0.1:{}/postgres?sslmode={mode}", server.port())
    };
    let error = PostgresStore::connect(url("require").into()).await.expect_err("it has none");
    assert_eq!(error.kind(), ErrorKind::Database);
    assert!(error.to_string().contains("server does not support TLS"), "{error}");
    PostgresStore::connect(url("prefer").into()).await.expect("it would be nice to have");
}
