//! Encryption, and who is believed to be the server.

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
/// password of `app`.
struct Encrypted {
    server: Server,
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
        server.admit("hostssl all app all scram-sha-256").await;
        let client = server.client().await;
        for sql in [
            format!("alter system set ssl_cert_file = '{}'", certificate.display()),
            format!("alter system set ssl_key_file = '{}'", key.display()),
            "alter system set ssl = on".to_owned(),
            "select pg_reload_conf()".to_owned(),
            "create role app login superuser password 'right'".to_owned(),
        ] {
            client.batch_execute(&sql).await.expect("the test may do that");
        }
        migrate(&server.url().into()).await.expect("it can be migrated");
        let path = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
        Encrypted { server, root: path(root), stranger: path(stranger) }
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
