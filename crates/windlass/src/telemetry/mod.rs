//! What a process tells of itself while it works: a log of lines and, with the feature `otlp`,
//! spans for a collector of OpenTelemetry.
//!
//! Windlass says all of it by [`tracing`](https://docs.rs/tracing), whoever listens. A program that
//! has a subscriber of its own needs nothing of this module: the spans are
//! `windlass.start`, `windlass.attempt`, `windlass.step` and `windlass.verb`, and with the feature
//! `otlp` any layer of `tracing-opentelemetry` carries traces from who starts a run to its
//! handlers. `docs/tracing.md` says what is in them.
//!
//! ```
//! use windlass::telemetry::{LogFormat, Telemetry};
//!
//! # fn main() -> Result<(), windlass::Error> {
//! // Holds until the end of the process: what is left is exported when it is dropped.
//! let _telemetry = Telemetry::from_env()?.service("orders").logs(LogFormat::Json).install()?;
//! tracing::info!(order = 7, "ready");
//! # Ok(()) }
//! ```

mod lines;
#[cfg(feature = "otlp")]
mod otlp;

use std::io::Write;

use tracing::Dispatch;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

use self::lines::{Lines, Sink};
pub use self::lines::{LogFormat, VALUE_BYTES_MAX};
use crate::error::{Error, ErrorKind};

/// Which events are logged, such as `info,windlass=debug`; `info` if nothing is said.
pub const LOG_VARIABLE: &str = "WINDLASS_LOG";

/// How the log is written: `text` or `json`.
pub const LOG_FORMAT_VARIABLE: &str = "WINDLASS_LOG_FORMAT";

/// Which spans are exported, such as `info,windlass=debug`; `info` if nothing is said.
pub const SPANS_VARIABLE: &str = "WINDLASS_SPANS";

const LEVELS: &str = "info";

/// What a process tells of itself, to be set up and installed.
pub struct Telemetry {
    service: Option<String>,
    format: LogFormat,
    log_levels: Targets,
    is_logging: bool,
    sink: Option<Sink>,
    #[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "nothing is exported"))]
    span_levels: Targets,
    #[cfg(feature = "otlp")]
    endpoint: Option<String>,
}

impl Telemetry {
    /// What the environment says: the variables of this module and, with the feature `otlp`, the
    /// standard ones of OpenTelemetry, of which `OTEL_EXPORTER_OTLP_ENDPOINT` is what turns the
    /// export on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for a variable that makes no sense.
    pub fn from_env() -> Result<Self, Error> {
        let read = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let format = match read(LOG_FORMAT_VARIABLE) {
            Some(text) => text.parse().map_err(|error| wrong(LOG_FORMAT_VARIABLE, error))?,
            None => LogFormat::Text,
        };
        let levels = |name: &str| {
            let text = read(name);
            parse_levels(text.as_deref().unwrap_or(LEVELS)).map_err(|error| wrong(name, error))
        };
        Ok(Telemetry {
            service: None,
            format,
            log_levels: levels(LOG_VARIABLE)?,
            is_logging: true,
            sink: None,
            span_levels: levels(SPANS_VARIABLE)?,
            #[cfg(feature = "otlp")]
            endpoint: otlp::endpoint_of_env(),
        })
    }

    /// What the process is called, unless `OTEL_SERVICE_NAME` says otherwise.
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.service = Some(name.into());
        self
    }

    /// How the log is written, whatever the environment says.
    pub fn logs(mut self, format: LogFormat) -> Self {
        self.format = format;
        self
    }

    /// Which events are logged, whatever the environment says: a level, and levels of modules, as
    /// in `info,windlass=debug,noisy=off`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if that is no such list.
    pub fn log_levels(mut self, levels: &str) -> Result<Self, Error> {
        self.log_levels = parse_levels(levels).map_err(|error| wrong("log levels", error))?;
        Ok(self)
    }

    /// Logs nothing.
    pub fn without_logs(mut self) -> Self {
        self.is_logging = false;
        self
    }

    /// Where the lines go; to standard error if nothing is said. Each line is written at once.
    pub fn logs_to(mut self, sink: impl Write + Send + 'static) -> Self {
        self.sink = Some(Box::new(sink));
        self
    }

    /// Where spans are exported to by OTLP over gRPC, whatever the environment says, such as
    /// `http://localhost:4317`.
    #[cfg(feature = "otlp")]
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    /// Which spans are exported, whatever the environment says, in the form of
    /// [`log_levels`](Telemetry::log_levels).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if that is no such list.
    #[cfg(feature = "otlp")]
    pub fn span_levels(mut self, levels: &str) -> Result<Self, Error> {
        self.span_levels = parse_levels(levels).map_err(|error| wrong("span levels", error))?;
        Ok(self)
    }

    /// Begins to listen in the whole process.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the process has a subscriber already, and as
    /// [`build`](Telemetry::build).
    pub fn install(self) -> Result<TelemetryGuard, Error> {
        let (dispatch, guard) = self.build()?;
        tracing::dispatcher::set_global_default(dispatch).map_err(|error| {
            Error::new(ErrorKind::Conflict, format!("the process has a subscriber: {error}"))
        })?;
        Ok(guard)
    }

    /// What listens, for whoever installs it otherwise, such as a test for its thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if spans cannot be exported as it was said.
    pub fn build(self) -> Result<(Dispatch, TelemetryGuard), Error> {
        let sink = self.sink.unwrap_or_else(|| Box::new(std::io::stderr()));
        let lines = self.is_logging.then(|| Lines::new(self.format, sink));
        let lines = lines.map(|lines| lines.with_filter(self.log_levels));
        let registry = Registry::default().with(lines);
        #[cfg(feature = "otlp")]
        {
            let exporter = match self.endpoint {
                Some(endpoint) => Some(otlp::Exporter::new(&endpoint, self.service)?),
                None => None,
            };
            let levels = otlp::without_own(self.span_levels);
            let layer = exporter.as_ref().map(|exporter| exporter.layer().with_filter(levels));
            Ok((Dispatch::new(registry.with(layer)), TelemetryGuard { exporter }))
        }
        #[cfg(not(feature = "otlp"))]
        {
            drop(self.service);
            Ok((Dispatch::new(registry), TelemetryGuard {}))
        }
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

/// Exports what is left when it is dropped, for five seconds at most. A process that ends without
/// dropping it, as `std::process::exit` does, loses the spans of its last seconds.
#[derive(Debug)]
#[must_use = "dropped at once, it exports nothing"]
pub struct TelemetryGuard {
    #[cfg(feature = "otlp")]
    exporter: Option<otlp::Exporter>,
}

impl TelemetryGuard {
    /// Exports what there is now. Blocks until it is away.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the collector does not take it.
    pub fn flush(&self) -> Result<(), Error> {
        #[cfg(feature = "otlp")]
        if let Some(exporter) = &self.exporter {
            return exporter.flush();
        }
        Ok(())
    }
}

fn parse_levels(text: &str) -> Result<Targets, String> {
    text.parse().map_err(|error| format!("{text:?}: {error}"))
}

fn wrong(what: &str, error: String) -> Error {
    Error::new(ErrorKind::Argument, format!("{what}: {error}"))
}
