//! Which certificate a server has, and whose it asks for.

use std::path::PathBuf;

use windlass_server::{ServerOptions, Tls, TlsOptions};

use crate::signals::{HANGUP, Signals};

/// What `windlass serve` is told of TLS.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TlsArguments {
    /// Certificate chain of the server, in PEM; enables TLS, except on unix sockets
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key of the certificate; only its owner and group may read it
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// CA certificates; clients must present a certificate signed by one of them
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,

    /// Allow public addresses without TLS, because a proxy in front terminates it
    #[arg(long, conflicts_with = "tls_cert")]
    behind_tls_proxy: bool,
}

impl TlsArguments {
    /// Reads the files, and tells the server; answers what to read again.
    pub(crate) fn apply(&self, options: &mut ServerOptions) -> anyhow::Result<Option<Tls>> {
        options.is_behind_tls_proxy = self.behind_tls_proxy;
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let mut files = TlsOptions::new(certificate, key);
        if let Some(authority) = &self.tls_client_ca {
            files = files.client_authority(authority);
        }
        let tls = Tls::load(files)?;
        options.tls = Some(tls.clone());
        Ok(Some(tls))
    }
}

/// Waits for a signal that ends the server. With certificates, a hangup is no such signal: they are
/// read again.
pub(crate) async fn ended(signals: &mut Signals, tls: Option<&Tls>) {
    loop {
        match (signals.next().await, tls) {
            (HANGUP, Some(tls)) => {
                let tls = tls.clone();
                // What went wrong is in the log.
                let _ = tokio::task::spawn_blocking(move || tls.reload()).await;
            }
            (_, _) => return,
        }
    }
}
