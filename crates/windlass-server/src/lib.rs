//! The server of Windlass: the operations of the library, over gRPC and HTTP/JSON on one port, for
//! clients and workers in any language.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), windlass_server::ServeError> {
//! use windlass::Windlass;
//! use windlass_server::{Access, Server, ServerOptions};
//!
//! let server = Server::new(Windlass::memory(), ServerOptions::new(Access::insecure_dev()));
//! let listener = server.bind("127.0.0.1:7600").await?;
//! server.serve(listener, std::future::pending()).await
//! # }
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`identity`] | who makes a request, decided in one place |
//! | [`rights`] | what each operation needs |
//! | [`token`], `passes` | how tokens are made, checked and remembered |
//! | `quotas` | what tenants may ask for, held against what they ask |
//! | `problem` | what a caller is told when something cannot be done |
//! | `http` | the paths, what goes in and out, the document that describes them |
//! | `grpc` | the same over gRPC, and the stream of workers |
//! | `connections` | how clients are kept from harming each other |
//! | `bodies` | the memory budget for request bodies |
//! | `room` | places and memory, of which nobody takes all |
//! | `workers` | the caps on live workers per token and tenant |
//! | `tls` | the certificate of the server, whom it lets in by theirs, and how both change |

mod bodies;
mod connections;
mod grpc;
mod http;
pub mod identity;
mod list_turns;
mod notes;
mod options;
mod pages;
mod passes;
mod problem;
mod quotas;
mod readiness;
mod refusal_delay;
pub mod rights;
mod room;
mod server;
mod tls;
pub mod token;
mod workers;

pub use connections::Listener;
pub use identity::{Access, Identity};
pub use options::ServerOptions;
pub use problem::{PROBLEM_JSON, Problem};
pub use server::{ServeError, Server};
pub use tls::{Tls, TlsError, TlsOptions};
