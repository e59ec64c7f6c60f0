//! Who may call what, written down a second time.
//!
//! The table in `rights.rs` is what the server enforces; this one is the expectation. A change of
//! either fails here until both agree, and so does an operation that is in neither.
//!
//! The first version was copied from `rights.rs`. Then each row was reviewed against these rules,
//! which come from docs/server.md and docs/isolation.md and not from that table:
//!
//! - `anyone`: probes and published documents, which show nothing of any run.
//! - M (metrics): the metrics of the server, which show no payload and no name of a run.
//! - V (viewer): reads. Every other role reads as well, since it must see what it changes.
//! - W (worker): what a program does: registers workflows, starts runs, sends signals, declares its
//!   schedules, works on tasks, and does periodic jobs. It decides no fate of a run that exists.
//! - O (operator): what a person does: starts and signals, and cancels, retries, undoes, redrives,
//!   discards, and steers schedules. It finishes no task and registers no code.
//! - A (admin): everything; alone tokens, quotas, retention and weights.
//! - `all`: what tenants share or what shows more than one of them: workers, queues, leaders,
//!   periodic jobs, quotas, retention, weights and metrics. All else is `one`. The catalog of
//!   workflows is `one` although tenants share it, because programs of a tenant need it.
//!
//! Rules finer than an operation have tests of their own in `tenancy.rs` and `tokens.rs`: limits
//! across tenants, schedules that an operator created, authors in the log, and which tokens an admin
//! may create.
//!
//! Each row has the roles that may call the operation, by their initials, and whether a token of one
//! tenant may (`one`) or only a token of all tenants (`all`). A token of another tenant than the one
//! whose things are named passes the table like one of that tenant, and finds nothing: see
//! `rights.rs` of these tests.

use std::collections::BTreeSet;

use tonic::Code;
use tonic::transport::Endpoint;
use windlass::Role;

use crate::rights::{Guest, World, call, descriptors, operations};
use crate::support::TestServer;

/// Every HTTP operation.
#[rustfmt::skip]
const HTTP: &[(&str, &str, &str, &str)] = &[
    ("GET", "/healthz", "anyone", "one"),
    ("GET", "/readyz", "anyone", "one"),
    ("GET", "/errors/{code}", "anyone", "one"),
    ("GET", "/v1/openapi.json", "anyone", "one"),
    ("GET", "/metrics", "MVWOA", "all"),
    ("GET", "/v1/archived-runs/{run}", "VWOA", "one"),
    ("GET", "/v1/dead-letters", "VWOA", "one"),
    ("POST", "/v1/dead-letters/discard", "OA", "one"),
    ("POST", "/v1/dead-letters/redrive", "OA", "one"),
    ("GET", "/v1/dead-letters/stream", "VWOA", "one"),
    ("GET", "/v1/duties", "VWOA", "all"),
    ("DELETE", "/v1/duties/{duty}", "OA", "all"),
    ("GET", "/v1/explain-cron", "VWOA", "one"),
    ("GET", "/v1/leaders", "VWOA", "all"),
    ("GET", "/v1/log", "VWOA", "one"),
    ("GET", "/v1/queues", "VWOA", "all"),
    ("GET", "/v1/queues/stream", "VWOA", "all"),
    ("DELETE", "/v1/quotas", "A", "all"),
    ("GET", "/v1/quotas", "VWOA", "all"),
    ("PUT", "/v1/quotas", "A", "all"),
    ("DELETE", "/v1/retention", "A", "all"),
    ("GET", "/v1/retention", "VWOA", "all"),
    ("PUT", "/v1/retention", "A", "all"),
    ("POST", "/v1/run-batches", "WOA", "one"),
    ("GET", "/v1/runs", "VWOA", "one"),
    ("POST", "/v1/runs", "WOA", "one"),
    ("GET", "/v1/runs/stream", "VWOA", "one"),
    ("GET", "/v1/runs/{run}", "VWOA", "one"),
    ("POST", "/v1/runs/{run}/cancel", "OA", "one"),
    ("GET", "/v1/runs/{run}/events", "VWOA", "one"),
    ("GET", "/v1/runs/{run}/events/stream", "VWOA", "one"),
    ("POST", "/v1/runs/{run}/retry", "OA", "one"),
    ("POST", "/v1/runs/{run}/signals", "WOA", "one"),
    ("GET", "/v1/runs/{run}/tasks", "VWOA", "one"),
    ("GET", "/v1/runs/{run}/tasks/{task}", "VWOA", "one"),
    ("GET", "/v1/runs/{run}/tasks/{task}/steps", "VWOA", "one"),
    ("GET", "/v1/runs/{run}/tasks/{task}/why", "VWOA", "one"),
    ("POST", "/v1/runs/{run}/undo", "OA", "one"),
    ("GET", "/v1/runs/{run}/wait", "VWOA", "one"),
    ("GET", "/v1/runs/{run}/why", "VWOA", "one"),
    ("GET", "/v1/schedules", "VWOA", "one"),
    ("DELETE", "/v1/schedules/{schedule}", "OA", "one"),
    ("GET", "/v1/schedules/{schedule}", "VWOA", "one"),
    ("PUT", "/v1/schedules/{schedule}", "WOA", "one"),
    ("POST", "/v1/schedules/{schedule}/backfill", "OA", "one"),
    ("GET", "/v1/schedules/{schedule}/fires", "VWOA", "one"),
    ("POST", "/v1/schedules/{schedule}/pause", "OA", "one"),
    ("POST", "/v1/schedules/{schedule}/resume", "OA", "one"),
    ("POST", "/v1/schedules/{schedule}/trigger", "OA", "one"),
    ("POST", "/v1/signals", "WOA", "one"),
    ("PUT", "/v1/tenants/{tenant}/weight", "A", "all"),
    ("GET", "/v1/tokens", "A", "one"),
    ("POST", "/v1/tokens", "A", "one"),
    ("DELETE", "/v1/tokens/{token}", "A", "one"),
    ("GET", "/v1/workers", "VWOA", "all"),
    ("POST", "/v1/workers", "WA", "one"),
    ("GET", "/v1/workers/stream", "VWOA", "all"),
    ("DELETE", "/v1/workers/{worker}", "WA", "one"),
    ("POST", "/v1/workers/{worker}/checkpoint", "WA", "one"),
    ("POST", "/v1/workers/{worker}/claim", "WA", "one"),
    ("POST", "/v1/workers/{worker}/count-children", "WA", "one"),
    ("POST", "/v1/workers/{worker}/drain", "WA", "one"),
    ("POST", "/v1/workers/{worker}/finish", "WA", "one"),
    ("POST", "/v1/workers/{worker}/heartbeat", "WA", "one"),
    ("POST", "/v1/workers/{worker}/list-children", "WA", "one"),
    ("POST", "/v1/workers/{worker}/read-undo", "WA", "one"),
    ("POST", "/v1/workers/{worker}/record", "WA", "one"),
    ("POST", "/v1/workers/{worker}/release", "WA", "one"),
    ("POST", "/v1/workers/{worker}/start-children", "WA", "one"),
    ("POST", "/v1/workers/{worker}/take-signals", "WA", "one"),
    ("GET", "/v1/workflows", "VWOA", "one"),
];

/// Every gRPC method.
#[rustfmt::skip]
const GRPC: &[(&str, &str, &str)] = &[
    ("/windlass.v1.ClientService/RegisterWorkflow", "WA", "one"),
    ("/windlass.v1.ClientService/StartRuns", "WOA", "one"),
    ("/windlass.v1.ClientService/GetRun", "VWOA", "one"),
    ("/windlass.v1.ClientService/WaitRun", "VWOA", "one"),
    ("/windlass.v1.ClientService/WatchRuns", "VWOA", "one"),
    ("/windlass.v1.ClientService/ListRuns", "VWOA", "one"),
    ("/windlass.v1.ClientService/ListTasks", "VWOA", "one"),
    ("/windlass.v1.ClientService/GetTask", "VWOA", "one"),
    ("/windlass.v1.ClientService/ListSteps", "VWOA", "one"),
    ("/windlass.v1.ClientService/ListEvents", "VWOA", "one"),
    ("/windlass.v1.ClientService/Why", "VWOA", "one"),
    ("/windlass.v1.ClientService/CancelRun", "OA", "one"),
    ("/windlass.v1.ClientService/RetryRun", "OA", "one"),
    ("/windlass.v1.ClientService/UndoRun", "OA", "one"),
    ("/windlass.v1.ClientService/SignalRun", "WOA", "one"),
    ("/windlass.v1.ClientService/SignalKey", "WOA", "one"),
    ("/windlass.v1.ClientService/ListDeadLetters", "VWOA", "one"),
    ("/windlass.v1.ClientService/RedriveDeadLetters", "OA", "one"),
    ("/windlass.v1.ClientService/DiscardDeadLetters", "OA", "one"),
    ("/windlass.v1.ClientService/WriteLog", "OA", "one"),
    ("/windlass.v1.ClientService/ListLog", "VWOA", "one"),
    ("/windlass.v1.ClientService/CreateToken", "A", "one"),
    ("/windlass.v1.ClientService/ListTokens", "A", "one"),
    ("/windlass.v1.ClientService/RevokeToken", "A", "one"),
    ("/windlass.v1.ClientService/SetRetention", "A", "all"),
    ("/windlass.v1.ClientService/ClearRetention", "A", "all"),
    ("/windlass.v1.ClientService/ListRetention", "VWOA", "all"),
    ("/windlass.v1.ClientService/SetQuota", "A", "all"),
    ("/windlass.v1.ClientService/ClearQuota", "A", "all"),
    ("/windlass.v1.ClientService/ListQuotas", "VWOA", "all"),
    ("/windlass.v1.ClientService/GetUsage", "VWOA", "one"),
    ("/windlass.v1.ClientService/GetArchivedRun", "VWOA", "one"),
    ("/windlass.v1.ClientService/SetWeight", "A", "all"),
    ("/windlass.v1.ClientService/ListWorkflows", "VWOA", "one"),
    ("/windlass.v1.ClientService/ListWorkers", "VWOA", "all"),
    ("/windlass.v1.ClientService/ListLeaders", "VWOA", "all"),
    ("/windlass.v1.ClientService/ListQueues", "VWOA", "all"),
    ("/windlass.v1.ClientService/GetTime", "VWOA", "one"),
    ("/windlass.v1.ClientService/PutSchedule", "WOA", "one"),
    ("/windlass.v1.ClientService/GetSchedule", "VWOA", "one"),
    ("/windlass.v1.ClientService/ListSchedules", "VWOA", "one"),
    ("/windlass.v1.ClientService/PauseSchedule", "OA", "one"),
    ("/windlass.v1.ClientService/ResumeSchedule", "OA", "one"),
    ("/windlass.v1.ClientService/DeleteSchedule", "OA", "one"),
    ("/windlass.v1.ClientService/DisableSchedules", "WOA", "one"),
    ("/windlass.v1.ClientService/TriggerSchedule", "OA", "one"),
    ("/windlass.v1.ClientService/BackfillSchedule", "OA", "one"),
    ("/windlass.v1.ClientService/ListFires", "VWOA", "one"),
    ("/windlass.v1.ClientService/ClaimDuties", "WA", "all"),
    ("/windlass.v1.ClientService/RenewDuties", "WA", "all"),
    ("/windlass.v1.ClientService/EndDuty", "WA", "all"),
    ("/windlass.v1.ClientService/ListDuties", "VWOA", "all"),
    ("/windlass.v1.ClientService/ForgetDuty", "OA", "all"),
    ("/windlass.v1.WorkerService/Work", "WA", "one"),
    ("/grpc.health.v1.Health/Check", "anyone", "one"),
    ("/grpc.health.v1.Health/Watch", "anyone", "one"),
];

/// Whether a guest may do what a row is about.
fn may(guest: &Guest, roles: &str, tenants: &str) -> bool {
    let initial = match guest.role {
        Role::Metrics => 'M',
        Role::Viewer => 'V',
        Role::Worker => 'W',
        Role::Operator => 'O',
        Role::Admin => 'A',
    };
    let reaches = match tenants {
        "one" => true,
        "all" => guest.tenant.is_none(),
        other => panic!("{other:?} is neither one nor all"),
    };
    roles == "anyone" || roles.contains(initial) && reaches
}

#[tokio::test]
async fn every_operation_has_one_row_here() {
    let server = TestServer::start().await;
    let rows: BTreeSet<(String, String)> = HTTP
        .iter()
        .map(|(method, path, _, _)| ((*method).to_owned(), (*path).to_owned()))
        .collect();
    assert_eq!(rows.len(), HTTP.len(), "one is there twice");
    assert_eq!(rows, operations(&server).await);
    let pool = descriptors();
    let mut methods = BTreeSet::new();
    for service in pool.services() {
        for method in service.methods() {
            methods.insert(format!("/{}/{}", service.full_name(), method.name()));
        }
    }
    let rows: BTreeSet<String> = GRPC.iter().map(|(path, _, _)| (*path).to_owned()).collect();
    assert_eq!(rows.len(), GRPC.len(), "one is there twice");
    assert_eq!(rows, methods);
}

#[tokio::test]
async fn http_operations_are_allowed_and_denied_as_promised() {
    let world = World::new().await;
    let mut wrong = Vec::new();
    for (method, path, roles, tenants) in HTTP {
        let filled = world.fill(path, true);
        let status = world.status("", method, &filled).await;
        if (status != 401) != (*roles == "anyone") {
            wrong.push(format!("{method} {path} without a token: {status}"));
        }
        for guest in &world.guests {
            let status = world.status(guest.token.expose(), method, &filled).await;
            let is_let_in = !matches!(status, 401 | 403) && status < 500;
            if is_let_in != may(guest, roles, tenants) {
                let (role, tenant) = (guest.role, guest.tenant.unwrap_or("all"));
                wrong.push(format!("{method} {path} as {role} of {tenant}: {status}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn grpc_methods_are_allowed_and_denied_as_promised() {
    let world = World::new().await;
    let url = format!("http://{}", world.server.address);
    let channel = Endpoint::from_shared(url).expect("it is an address").connect_lazy();
    let mut wrong = Vec::new();
    for (path, roles, tenants) in GRPC {
        let code = call(&channel, "", path).await;
        if (code != Code::Unauthenticated) != (*roles == "anyone") {
            wrong.push(format!("{path} without a token: {code:?}"));
        }
        for guest in &world.guests {
            let code = call(&channel, guest.token.expose(), path).await;
            let is_let_in = !matches!(code, Code::Unauthenticated | Code::PermissionDenied);
            if is_let_in != may(guest, roles, tenants) {
                let (role, tenant) = (guest.role, guest.tenant.unwrap_or("all"));
                wrong.push(format!("{path} as {role} of {tenant}: {code:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
