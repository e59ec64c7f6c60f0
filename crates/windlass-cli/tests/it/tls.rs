//! `windlass serve` with a certificate, and commands that reach it.

use std::io::BufRead as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use windlass::Windlass;
use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::PostgresOptions;

use super::place::Place;
use super::{assert_line, command, text};

/// How long anything may take that is expected to happen.
const DEADLINE: Duration = Duration::from_secs(20);

/// An authority and its files; gone with the test.
struct Certificates {
    authority: CertifiedIssuer<'static, KeyPair>,
    directory: PathBuf,
}

impl Certificates {
    fn new(name: &str) -> Self {
        let name = format!("windlass-certificates-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        let made = Certificates { authority: authority(), directory };
        made.write("root.pem", &made.authority.pem());
        made
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;

        let path = self.directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Writes a certificate for a name, signed by an authority, and its key.
    fn sign(&self, file: &str, name: &str, authority: &CertifiedIssuer<'static, KeyPair>) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        self.write(&format!("{file}.pem"), &certificate.pem());
        self.write(&format!("{file}.key"), &key.serialize_pem());
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server, ended with the test.
struct Serving(Child);

impl Serving {
    fn start(url: &str, certificates: &Certificates) -> (Self, String) {
        let mut command = serve(certificates);
        command.env("DATABASE_URL", url).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let serving = Serving(child);
        let mut line = String::new();
        std::io::BufReader::new(out).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("WINDLASS_SERVER=").expect("where it listens");
        (serving, address.replace("127.0.0.1", "localhost"))
    }

    fn hang_up(&self) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::HUP).unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself, which other assertions tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(certificates: &Certificates) -> Command {
    let (certificate, key) = (certificates.path("server.pem"), certificates.path("server.key"));
    let clients = certificates.path("root.pem");
    let listen = ["serve", "--insecure-dev", "--listen", "127.0.0.1:0"];
    let tls = ["--tls-cert", &certificate, "--tls-key", &key, "--tls-client-ca", &clients];
    command(&[&listen[..], &tls].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_reach_a_server_by_tls_and_a_hangup_renews_its_certificate() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let postgres = options.start().await.expect("PostgreSQL is installed");
    Windlass::connect(PostgresOptions::new(postgres.url()).migrate(true)).await.unwrap();
    let files = Certificates::new("commands");
    files.sign("server", "localhost", &files.authority);
    files.sign("client", "anna", &files.authority);
    let (serving, server) = Serving::start(&postgres.url(), &files);
    assert!(server.starts_with("https://localhost:"), "{server}");
    let (root, certificate, key) =
        (files.path("root.pem"), files.path("client.pem"), files.path("client.key"));
    let shown = ["--ca-file", &root, "--client-cert", &certificate, "--client-key", &key];
    let ask = |flags: &[&str]| {
        let flags = [&["workers", "--server", &server], flags].concat();
        command(&flags).output().unwrap()
    };
    let out = ask(&shown);
    assert!(out.status.success(), "{}", text(&out.stderr));
    files.sign("other", "anna", &authority());
    let (other, other_key) = (files.path("other.pem"), files.path("other.key"));
    let others = ["--ca-file", &root, "--client-cert", &other, "--client-key", &other_key];
    for (flags, why) in [
        (&shown[..2], "it asks for a certificate, and is shown none: give one (--client-cert"),
        (&others[..], "it refuses the certificate that it is shown (--client-cert"),
        (&shown[2..], "its certificate is signed by nobody who is trusted: give the file"),
    ] {
        let out = ask(flags);
        assert!(!out.status.success(), "{flags:?}");
        assert_line(&text(&out.stderr), &["error: ", &format!("server {server}: {why}")]);
    }
    let plain = server.replace("https://", "http://");
    let out = command(&["workers", "--server", &plain]).output().unwrap();
    assert_line(&text(&out.stderr), &[&plain, "its address begins with https://"]);

    let (beside, plain) = super::serve::Serving::start(&postgres.url(), "127.0.0.1:0");
    let encrypted = plain.replace("http://", "https://");
    let out = command(&["workers", "--server", &encrypted, "--ca-file", &root]).output().unwrap();
    assert_line(&text(&out.stderr), &[&encrypted, "it does not speak TLS: its address may begin"]);
    drop(beside);
    let out = command(&["workers", "--server", &plain]).output().unwrap();
    assert_line(&text(&out.stderr), &[&format!("server {plain}: nobody listens there")]);

    // Signed by nobody whom the client knows: that it is refused shows that it was read.
    let stranger = authority();
    files.sign("server", "localhost", &stranger);
    serving.hang_up();
    let began = Instant::now();
    while ask(&shown).status.success() {
        assert!(began.elapsed() < DEADLINE, "the certificate was not read again");
    }
    files.write("server.key", "none");
    serving.hang_up();
    files.sign("server", "localhost", &files.authority);
    serving.hang_up();
    while !ask(&shown).status.success() {
        assert!(began.elapsed() < 2 * DEADLINE, "the certificate was not read again");
    }
}

#[test]
fn a_certificate_that_is_of_no_use_is_named_before_anything_else_is_done() {
    let files = Certificates::new("useless");
    files.sign("server", "localhost", &files.authority);
    files.sign("other", "localhost", &files.authority);
    let run = |files: &Certificates| {
        let out = serve(files).env("DATABASE_URL", "postgres://127.0.0.1:1/none").output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        text(&out.stderr)
    };
    std::fs::copy(files.path("other.key"), files.path("server.key")).unwrap();
    assert_line(&run(&files), &[&files.path("server.key"), "its key is not that of the certif"]);
    files.write("server.pem", "dear");
    assert_line(&run(&files), &[&files.path("server.pem"), "it is not PEM"]);
    let half = command(&["serve", "--tls-cert", "/c"]).output().unwrap();
    assert_eq!(half.status.code(), Some(2));
    assert_line(&text(&half.stderr), &["--tls-key"]);
}
