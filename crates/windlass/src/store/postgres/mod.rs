//! The store that lasts: PostgreSQL.

#![allow(dead_code, reason = "the verbs come next")]

mod fault;
mod pool;
mod time;
