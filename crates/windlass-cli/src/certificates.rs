//! Which certificate a server has, and whose it asks for.

use std::path::PathBuf;

use windlass_server::{ServerOptions, Tls, TlsOptions};

use crate::signals::{HANGUP, Signals};

/// What `windlass serve` is told of TLS.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TlsArguments {
    /// The file of the server's certificate in PEM, behind which come those of the authorities that
    /// signed it: only TLS is spoken then, except at unix sockets.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The file of its key, which only its owner and group may open.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// A file of certificates: let in only clients with one that they signed.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,

    /// Something in front of the server speaks TLS with its clients: listen at addresses of other
    /// machines without it.
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
