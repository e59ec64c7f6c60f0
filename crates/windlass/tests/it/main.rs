//! Windlass as its users see it.

mod acceptance;
mod builder;
mod contract;
mod links;
mod regressions;
mod runs;
mod scale;
mod shapes;
mod worker;
