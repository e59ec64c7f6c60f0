//! What Windlass says over gRPC: the messages and services of the package `windlass.v1`.
//!
//! The files under `proto/` say what each message and field means. The code is made from them by
//! `cargo xtask proto`; nothing here is written by hand.

/// The package `windlass.v1`.
#[allow(clippy::all, missing_docs, unreachable_pub)]
pub mod v1 {
    include!("generated/windlass.v1.rs");

    /// The descriptors of the package, as protobuf's own `FileDescriptorSet`.
    pub const DESCRIPTORS: &[u8] = include_bytes!("generated/windlass.v1.bin");
}
