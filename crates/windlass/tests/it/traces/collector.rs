//! A collector of OpenTelemetry on loopback that keeps what it is sent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// A span as it was exported.
#[derive(Clone, Debug)]
pub(super) struct Exported {
    pub(super) name: String,
    pub(super) service: String,
    pub(super) trace_id: String,
    pub(super) id: String,
    /// Empty if it has none.
    pub(super) parent: String,
    pub(super) is_error: bool,
    pub(super) attributes: BTreeMap<String, String>,
}

type Inbox = Arc<Mutex<Vec<Exported>>>;

/// The collector. It has a runtime of its own: those who export block theirs.
pub(super) struct Collector {
    address: SocketAddr,
    inbox: Inbox,
    runtime: Option<Runtime>,
}

impl Collector {
    pub(super) fn open() -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let inbox = Inbox::default();
        let service = TraceServiceServer::new(Service(Arc::clone(&inbox)));
        runtime.spawn(async move {
            let incoming = TcpIncoming::from(TcpListener::from_std(listener).unwrap());
            Server::builder().serve_with_incoming(service, incoming).await
        });
        Collector { address, inbox, runtime: Some(runtime) }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All that came, in the order in which it ended.
    pub(super) fn spans(&self) -> Vec<Exported> {
        self.inbox.lock().unwrap().clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

struct Service(Inbox);

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for of_resource in request.into_inner().resource_spans {
            let resource = of_resource.resource.unwrap_or_default();
            let service = texts(resource.attributes).remove("service.name").unwrap_or_default();
            let spans = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            let exported = spans.map(|span| Exported {
                name: span.name,
                service: service.clone(),
                trace_id: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                is_error: span.status.is_some_and(|status| status.code == 2),
                attributes: texts(span.attributes),
            });
            self.0.lock().unwrap().extend(exported);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |it: KeyValue| {
        let value = match it.value.and_then(|value| value.value) {
            Some(Value::StringValue(text)) => text,
            Some(Value::IntValue(number)) => number.to_string(),
            other => format!("{other:?}"),
        };
        (it.key, value)
    };
    attributes.into_iter().map(text).collect()
}
