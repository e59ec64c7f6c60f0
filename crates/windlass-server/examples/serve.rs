//! A server to try the API with curl, and for tools that read the OpenAPI document: on a store in
//! memory, gone with the process, or on a private PostgreSQL in a directory.
//!
//! ```sh
//! cargo run -p windlass-server --example serve -- 127.0.0.1:7600 [directory]
//! ```

use std::time::Duration;

use windlass::Windlass;
use windlass_server::{Access, Server, ServerOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7600".to_owned());
    let windlass = match std::env::args().nth(2) {
        Some(directory) => Windlass::embedded(directory).await?,
        None => Windlass::memory(),
    };
    let duties = windlass.duties(Duration::from_secs(1))?;
    let server = Server::new(windlass.clone(), ServerOptions::new(Access::insecure_dev()));
    let listener = server.bind(&address).await?;
    println!("{}", listener.urls());
    let shutdown = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    server.serve(listener, shutdown).await?;
    drop(duties);
    windlass.shutdown().await?;
    Ok(())
}
