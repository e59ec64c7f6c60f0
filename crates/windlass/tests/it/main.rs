//! Windlass as its users see it.

mod builder;
