//! Values that are sealed before they leave the process.

#[cfg(all(feature = "embedded", feature = "logs", feature = "postgres", unix))]
mod canary;
mod contract;
mod keys;
mod readable;
#[cfg(all(feature = "embedded", feature = "logs", feature = "postgres", unix))]
mod search;
