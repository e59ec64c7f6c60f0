//! gRPC: the door for workers and programs.
//!
//! Thin over a store: messages are read and checked, verbs are said to the store, answers are
//! written. What many workers say is said to the store together ([`gather`]), and workers that
//! have nothing to do are watched for ([`idle`]) instead of asking again and again.

mod client;
mod gather;
mod idle;
mod worker;

pub use client::ClientApi;
pub use worker::WorkerApi;

use tonic::{Request, Status};

use crate::identity::Identity;

/// Lets a call in, or not: by whom the layer before this one recognised.
fn admit<T>(request: &Request<T>) -> Result<(), Status> {
    let Some(identity) = request.extensions().get::<Identity>() else {
        return Err(Status::unauthenticated("the request does not say who makes it"));
    };
    if let Some(tenant) = identity.tenant() {
        let text = format!("whoever may only see tenant {tenant:?} cannot use gRPC");
        return Err(Status::permission_denied(text));
    }
    Ok(())
}
