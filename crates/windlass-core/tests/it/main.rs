//! Tests of the core through its public interface.

mod definition;
mod lane;
mod meter;
mod progress;
mod ring;
mod schedule;
