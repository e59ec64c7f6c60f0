//! What the gate refuses is told to who speaks gRPC in gRPC.

use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, ORIGIN};
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use windlass::Windlass;
use windlass::remote::RemoteStore;
use windlass::store::{QueueStore as _, StoreError};
use windlass_proto::v1;
use windlass_proto::v1::client_service_client::ClientServiceClient;
use windlass_server::{Access, ServerOptions};

use crate::support::{TestServer, soon};

fn options() -> ServerOptions {
    ServerOptions::new(Access::insecure_dev())
}

fn channel(server: &TestServer) -> Endpoint {
    Endpoint::from_shared(format!("http://{}", server.address)).expect("it is an address")
}

async fn list(channel: Channel, origin: Option<&'static str>) -> Result<(), Status> {
    let mut request = Request::new(v1::ListQueuesRequest {});
    if let Some(origin) = origin {
        request.metadata_mut().insert("origin", MetadataValue::from_static(origin));
    }
    let mut client = ClientServiceClient::new(channel);
    soon("it is answered", client.list_queues(request)).await.map(drop)
}

#[tokio::test]
async fn a_call_for_another_name_or_from_another_page_ends_with_a_status_that_says_so() {
    let server = TestServer::with(options()).await;
    list(channel(&server).connect_lazy(), None).await.expect("it is let in");
    let foreign = channel(&server).origin("http://evil.test".parse().unwrap()).connect_lazy();
    let status = list(foreign, None).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().starts_with(r#"Host "evil.test" is not a name of this server; "#));
    let status = list(channel(&server).connect_lazy(), Some("http://evil.test")).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    assert!(status.message().contains("a page of \"http://evil.test\""), "{status:?}");
}

#[tokio::test]
async fn a_call_that_there_is_no_room_for_is_told_to_come_again() {
    let mut options = options();
    options.held_max = 0;
    let server = TestServer::with(options).await;
    let status = list(channel(&server).connect_lazy(), None).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("too many requests are under way"), "{status:?}");
    let store = RemoteStore::connect(format!("http://{}", server.address)).unwrap();
    let error = soon("it is answered", store.list_queues()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(text) if text.contains("too many requests")));
    server.get("/v1/queues").await.ok(200);
}

#[tokio::test]
async fn a_service_that_is_not_there_is_unimplemented() {
    let server = TestServer::on(Windlass::memory(), options()).await;
    let request = server
        .request(hyper::Method::POST, "/windlass.v9.ClientService/ListQueues")
        .header(CONTENT_TYPE, HeaderValue::from_static("application/grpc+proto"))
        .body(Default::default())
        .unwrap();
    let answer = server.answer(request).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers[CONTENT_TYPE], "application/grpc");
    assert_eq!(answer.headers[HeaderName::from_static("grpc-status")], "12");
    let message = answer.headers["grpc-message"].to_str().unwrap();
    assert!(message.contains("windlass.v9.ClientService"), "{message}");
    // Without the type of gRPC, the same is answered by a document.
    let request = server
        .request(hyper::Method::POST, "/v1/runs")
        .header(ORIGIN, "http://evil.test")
        .body(Default::default())
        .unwrap();
    server.answer(request).await.problem(403, "WL-0014");
}
