//! A server of a test's own, for what would disturb others.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::{Client, NoTls};
use windlass::embedded::{EmbeddedOptions, EmbeddedPostgres};

/// Gone with the test, and its directory with it.
pub(crate) struct Server {
    postgres: Option<EmbeddedPostgres>,
    place: PathBuf,
    port: u16,
    settings: Vec<(&'static str, String)>,
}

impl Server {
    /// A server on a socket.
    pub(crate) async fn start() -> Self {
        Server::start_with(Vec::new()).await
    }

    /// A server that also listens on the loopback address.
    pub(crate) async fn start_with(settings: Vec<(&'static str, String)>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-server-{}-{number}", std::process::id());
        let place = crate::places::places().join(name);
        std::fs::create_dir(&place).expect("a directory can be made");
        let mode = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(&place, mode).expect("it can be opened to the server");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        drop(listener);
        let mut server = Server { postgres: None, place, port, settings };
        server.run().await;
        server
    }

    /// Starts the server again with the same data and settings.
    pub(crate) async fn run(&mut self) {
        let directory = self.place.join("database");
        // Not temporary: then a stop would take the data along.
        let mut options = EmbeddedOptions::new(directory).durable(false);
        options = options.setting("port", self.port.to_string());
        for (name, value) in &self.settings {
            options = options.setting(*name, value);
        }
        self.postgres = Some(options.start().await.expect("the server comes up"));
    }

    pub(crate) async fn stop(&mut self) {
        if let Some(postgres) = self.postgres.take() {
            postgres.stop().await.expect("the server goes down");
        }
    }

    pub(crate) fn url(&self) -> String {
        self.postgres.as_ref().expect("it runs").url()
    }

    /// Where all its files are.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) async fn client(&self) -> Client {
        let (client, connection) =
            tokio_postgres::connect(&self.url(), NoTls).await.expect("the server is there");
        tokio::spawn(connection);
        client
    }

    /// Lets clients in as these lines of `pg_hba.conf` say, besides those of the socket.
    pub(crate) async fn admit(&self, lines: &str) {
        let path = self.place.join("database/data/pg_hba.conf");
        let text = format!("local all windlass trust\n{lines}\n");
        std::fs::write(path, text).expect("the file can be written");
        let client = self.client().await;
        client.batch_execute("select pg_reload_conf()").await.expect("it can be read again");
    }

    /// Writes a file that only the server can read.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.place.join(name);
        std::fs::write(&path, text).expect("the file can be written");
        self.give(&path);
        path
    }

    fn give(&self, path: &Path) {
        let owner = std::fs::metadata(self.place.join("database")).expect("it is there");
        chown(path, Some(owner.uid()), Some(owner.gid())).expect("it can be given away");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, mode).expect("it can be closed to others");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(postgres) = self.postgres.take() {
            // In a thread of its own: the test's runtime may be on its way out.
            let stopped = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                runtime.map(|runtime| runtime.block_on(postgres.stop()))
            });
            let _ = stopped.join();
        }
        let _ = std::fs::remove_dir_all(&self.place);
    }
}
