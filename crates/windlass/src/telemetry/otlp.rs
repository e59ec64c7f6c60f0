//! The export of spans by OTLP over gRPC.
//!
//! It has a thread and a runtime of its own: what is left can be exported while the program's
//! runtime is blocked, or is gone.

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Key, Value};
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, SpanExporter, WithExportConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Runtime;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

use crate::error::{Error, ErrorKind};

/// How long the end of the process may wait for the collector.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// What the export itself consists of: to export that would never end.
const OWN_TARGETS: [&str; 7] =
    ["h2", "hyper", "hyper_util", "opentelemetry", "opentelemetry_sdk", "tonic", "tower"];

/// Where the environment wants spans to go, if it does.
pub(super) fn endpoint_of_env() -> Option<String> {
    let read = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let is_off = read("OTEL_SDK_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"))
        || read("OTEL_TRACES_EXPORTER").is_some_and(|it| it == "none");
    let endpoint =
        || read(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT).or_else(|| read(OTEL_EXPORTER_OTLP_ENDPOINT));
    if is_off { None } else { endpoint() }
}

/// The same levels, without what the export itself says.
pub(super) fn without_own(levels: Targets) -> Targets {
    OWN_TARGETS.iter().fold(levels, |levels, own| levels.with_target(*own, LevelFilter::OFF))
}

/// Exports spans.
#[derive(Debug)]
pub(super) struct Exporter {
    provider: SdkTracerProvider,
    /// Where the connection to the collector lives; taken when it is shut down.
    runtime: Option<Runtime>,
}

impl Exporter {
    pub(super) fn new(endpoint: &str, service: Option<String>) -> Result<Self, Error> {
        let refuse = |error: &dyn std::fmt::Display| {
            let text = format!("spans cannot be exported to {endpoint:?}: {error}");
            Error::new(ErrorKind::Argument, text)
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("windlass-otlp")
            .enable_all()
            .build()
            .map_err(|error| refuse(&error))?;
        let exporter = {
            let _entered = runtime.enter();
            SpanExporter::builder().with_tonic().with_endpoint(endpoint).build()
        };
        let exporter = exporter.map_err(|error| refuse(&error))?;
        let provider = SdkTracerProvider::builder()
            .with_resource(resource(service))
            .with_batch_exporter(exporter)
            .build();
        Ok(Exporter { provider, runtime: Some(runtime) })
    }

    pub(super) fn layer<S>(&self) -> OpenTelemetryLayer<S, SdkTracer>
    where
        S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("windlass"))
            .with_threads(false)
            .with_location(false)
    }

    pub(super) fn flush(&self) -> Result<(), Error> {
        self.provider.force_flush().map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("spans were not exported: {error}"))
        })
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // Whoever is not there to take the last spans is not there to be told either.
        let _ = self.provider.shutdown_with_timeout(SHUTDOWN_MAX);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Who exports: as the environment says, then as the program does.
fn resource(service: Option<String>) -> Resource {
    let of_env = Resource::builder().build();
    let is_named = match of_env.get(&Key::from_static_str("service.name")) {
        Some(Value::String(name)) => !name.as_str().starts_with("unknown_service"),
        Some(_) => true,
        None => false,
    };
    match service.filter(|_| !is_named) {
        Some(service) => Resource::builder().with_service_name(service).build(),
        None => of_env,
    }
}
