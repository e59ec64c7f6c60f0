//! Windlass as its users see it.

mod acceptance;
mod afresh;
#[cfg(all(feature = "embedded", feature = "postgres", unix))]
mod audit;
mod batches;
mod builder;
mod checkpoints;
mod contract;
mod crashes;
#[cfg(all(feature = "embedded", feature = "postgres", unix))]
mod database;
mod differential;
#[cfg(all(feature = "health", unix))]
mod draining;
mod duties;
#[cfg(all(feature = "embedded", unix))]
mod embedded;
mod examples;
mod functions;
#[cfg(all(feature = "hooks", unix))]
mod hooks;
mod keys;
#[cfg(all(feature = "embedded", feature = "postgres", unix))]
mod killing;
mod links;
#[cfg(all(feature = "embedded", feature = "health", feature = "postgres", unix))]
mod metrics;
mod owners;
#[cfg(all(feature = "embedded", unix))]
mod places;
#[cfg(all(feature = "embedded", feature = "postgres", unix))]
mod postgres;
mod regressions;
mod retention;
mod runs;
mod scale;
mod schedules;
mod sealed;
mod shapes;
#[cfg(feature = "otlp")]
mod traces;
mod undo;
mod waiting;
mod worker;
