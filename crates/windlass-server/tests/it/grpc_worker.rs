//! Workers over gRPC.
