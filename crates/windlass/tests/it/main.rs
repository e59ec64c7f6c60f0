//! Windlass as its users see it.

mod acceptance;
mod builder;
