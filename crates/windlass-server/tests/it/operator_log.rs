//! The operator log: every change has a line before it is made, and a refused one has a second.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tonic::transport::Endpoint;
use windlass::remote::{RemoteOptions, RemoteStore};
use windlass::store::{
    Action, Author, DeadLetterFilter, Discard, DutyClaim, DutyDeclaration, DutyEnd, DutyMandate,
    DutyOutcome, DutyStore as _, LogEntry, LogFilter, Mailbox, NewKeySignal, NewSchedule,
    NewSignal, NewToken, Quota, QuotaStore as _, REFUSED, REFUSED_ENTRY, Redrive, RetentionRule,
    ScheduleKey, ScheduleStore as _, Store as _, StoreError, TokenStore as _,
};
use windlass::{
    ActionId, Cadence, CandidateId, DutyName, Operator, Payload, Priority, Role, RunId, RunState,
    ScheduleName, ScheduleOwner, Secret, SignalId, Tenant, Timestamp, Version, Windlass,
    WorkflowName,
};
use windlass_core::schedule::Timing;
use windlass_core::{SignalKey, StepName, Weight};
use windlass_server::rights::{GRPC, HTTP, Right};
use windlass_server::token::{mint, tag_of};
use windlass_server::{Access, ServerOptions};

use crate::rights::call;
use crate::support::{Answer, TestServer, single};
use crate::tokens::{guarded, token_of};

const HOUR: Duration = Duration::from_secs(3_600);

/// A server with tokens, and one without for the same runs, whose worker prepares them.
struct Bench {
    server: TestServer,
    open: TestServer,
    admin: Secret,
    operator: Secret,
}

impl Bench {
    async fn new() -> Self {
        let server = guarded().await;
        let options = ServerOptions::new(Access::insecure_dev());
        let open = TestServer::on(server.windlass.clone(), options).await;
        let admin = token_of(&server.windlass, Role::Admin, None).await;
        let operator = token_of(&server.windlass, Role::Operator, None).await;
        open.worker(single("mail")).await;
        Bench { server, open, admin, operator }
    }

    fn windlass(&self) -> &Windlass {
        &self.server.windlass
    }

    /// The log, the newest line first.
    async fn lines(&self) -> Vec<LogEntry> {
        self.windlass().log(LogFilter::default()).await.expect("it is read").entries
    }

    /// A run that has not ended.
    async fn running(&self) -> String {
        self.open.start_run("mail", json!(1)).await
    }

    /// A run that has failed: it has a dead letter.
    async fn failed(&self, workflow: &str) -> String {
        let mut worker = self.open.worker(single(workflow)).await;
        let run = self.open.start_run(workflow, json!(1)).await;
        worker.run_one(json!({ "failed": { "message": "no" } })).await;
        run
    }

    /// A run with a step that can be undone.
    async fn undoable(&self) -> String {
        let mut worker = self.open.worker(single("order")).await;
        let run = self.open.start_run("order", json!(1)).await;
        let task = worker.claim_one().await;
        let step = json!({ "call": 1, "name": "charge", "kind": "undoable",
            "change": { "done": { "number": 1, "result": { "value": "c7" } } } });
        worker.say("record", &task, json!({ "steps": [step] })).await;
        worker.finish(&task, json!({ "succeeded": 1 })).await;
        run
    }

    /// A duty that no process does.
    async fn duty(&self) -> DutyName {
        let (name, store) =
            (DutyName::new("sweep").expect("it is a name"), self.windlass().store());
        let duty = DutyDeclaration { name: name.clone(), every: HOUR, is_new: true };
        let candidate = CandidateId::from_random(1);
        let claim = DutyClaim { candidate, process: "p".into(), ttl: HOUR, duties: vec![duty] };
        let standing = store.claim_duties(claim).await.expect("it is claimed");
        let mandate = DutyMandate { name: name.clone(), candidate, term: standing.duties[0].term };
        let end = DutyEnd { mandate, took: Duration::ZERO, outcome: DutyOutcome::Succeeded };
        store.end_duty(end).await.expect("it answers").expect("it is ended");
        name
    }

    async fn http(&self, token: &Secret, method: &str, path: &str, body: Value) -> Answer {
        let method: Method = method.parse().expect("it is one");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.server.answer(self.server.request_as(token.expose(), method, path, &body)).await
    }

    fn remote(&self, token: &Secret) -> RemoteStore {
        let options = RemoteOptions::new(format!("http://{}", self.server.address));
        RemoteStore::connect(options.token(token.expose())).expect("it is an address")
    }
}

/// The operations that were tried, and those that did not log what they should.
struct Walk<'a> {
    bench: &'a Bench,
    walked: BTreeSet<String>,
    wrong: Vec<String>,
}

impl<'a> Walk<'a> {
    fn of(bench: &'a Bench) -> Self {
        Walk { bench, walked: BTreeSet::new(), wrong: Vec::new() }
    }

    /// Sends a request and compares the new lines of the log with the expected action.
    async fn step<T>(
        &mut self,
        operation: &str,
        action: Option<Action>,
        request: impl Future<Output = T>,
    ) -> T {
        let before = self.bench.lines().await.len();
        let answer = request.await;
        let mut lines = self.bench.lines().await;
        lines.truncate(lines.len() - before);
        let new: Vec<Action> = lines.iter().map(|line| line.action).collect();
        let has_author = lines.iter().all(|line| line.by.token.is_some());
        if new != Vec::from_iter(action) || !has_author {
            self.wrong.push(format!("{operation}: logged {new:?}, expected {action:?}"));
        }
        self.walked.insert(operation.to_owned());
        answer
    }

    /// The same over HTTP, where the request must succeed.
    async fn http(
        &mut self,
        (method, path): (&str, &str),
        action: Action,
        filled: &str,
        body: Value,
    ) -> Value {
        let row = HTTP.iter().find(|(its, at, _, _)| (*its, *at) == (method, path));
        let (_, _, right, _) = row.expect("it is in the table");
        let bench = self.bench;
        let token = if *right == Right::Administer { &bench.admin } else { &bench.operator };
        let operation = format!("{method} {path}");
        let request = bench.http(token, method, filled, body);
        let answer = self.step(&operation, Some(action), request).await;
        assert!(answer.status.is_success(), "{operation}: {}", answer.text);
        answer.ok(answer.status.as_u16())
    }

    /// The same over gRPC.
    async fn grpc<T>(
        &mut self,
        method: &str,
        action: Action,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> T {
        let operation = format!("/windlass.v1.ClientService/{method}");
        let answer = self.step(&operation, Some(action), request).await;
        answer.unwrap_or_else(|error| panic!("{operation}: {error}"))
    }

    fn check(self, expected: impl Iterator<Item = String>) {
        assert!(self.wrong.is_empty(), "{:#?}", self.wrong);
        assert_eq!(self.walked, expected.collect());
    }
}

#[tokio::test]
async fn every_change_over_http_is_logged_and_no_read_is() {
    let bench = Bench::new().await;
    let mut walk = Walk::of(&bench);
    for (method, path, right, _) in HTTP {
        if *method != "GET" {
            continue;
        }
        let run = "01981c2e-7a40-7c1f-9d57-0242ac120002";
        let filled = path.replace("{run}", run).replace("{task}", "only");
        let filled = filled.replace("{schedule}", "nightly").replace("{code}", "WL-0001");
        let request = bench.server.request_as(bench.admin.expose(), Method::GET, &filled, "");
        // A stream has no end.
        let status = walk.step(&format!("GET {path}"), None, bench.server.send(request)).await;
        assert!(!matches!(status.status().as_u16(), 401 | 403 | 500..), "{path}: {right:?}");
    }

    let run = bench.running().await;
    let cancel = ("POST", "/v1/runs/{run}/cancel");
    walk.http(cancel, Action::CancelRun, &format!("/v1/runs/{run}/cancel"), json!({})).await;
    let run = bench.failed("retried").await;
    let retry = ("POST", "/v1/runs/{run}/retry");
    walk.http(retry, Action::RetryRun, &format!("/v1/runs/{run}/retry"), json!({})).await;
    let path = format!("/v1/runs/{run}/signals");
    let signal = ("POST", "/v1/runs/{run}/signals");
    walk.http(signal, Action::SignalRun, &path, json!({ "name": "go", "value": 1 })).await;
    let run = bench.undoable().await;
    let undo = ("POST", "/v1/runs/{run}/undo");
    walk.http(undo, Action::UndoRun, &format!("/v1/runs/{run}/undo"), Value::Null).await;
    let body = json!({ "key": "k", "name": "go", "value": 1 });
    walk.http(("POST", "/v1/signals"), Action::SignalKey, "/v1/signals", body).await;

    for (path, action) in [
        ("/v1/dead-letters/redrive", Action::Redrive),
        ("/v1/dead-letters/discard", Action::Discard),
    ] {
        let run = bench.failed(action.word()).await;
        walk.http(("POST", path), action, path, json!({ "filter": { "run": run } })).await;
    }
    bench.duty().await;
    let forget = ("DELETE", "/v1/duties/{duty}");
    walk.http(forget, Action::ForgetDuty, "/v1/duties/sweep", Value::Null).await;

    let every = json!({ "every": { "interval_ms": 3_600_000 } });
    let body = json!({ "workflow": "mail", "version": 1, "cadence": every });
    let schedule = "/v1/schedules/nightly";
    walk.http(("PUT", "/v1/schedules/{schedule}"), Action::PutSchedule, schedule, body).await;
    let range = json!({ "from": "2026-01-01T00:00:00Z", "until": "2026-01-01T01:00:00Z" });
    for (verb, action, body) in [
        ("pause", Action::PauseSchedule, Value::Null),
        ("resume", Action::ResumeSchedule, Value::Null),
        ("trigger", Action::TriggerSchedule, Value::Null),
        ("backfill", Action::BackfillSchedule, range),
    ] {
        let path = format!("/v1/schedules/{{schedule}}/{verb}");
        walk.http(("POST", &path), action, &format!("{schedule}/{verb}"), body).await;
    }
    let delete = ("DELETE", "/v1/schedules/{schedule}");
    walk.http(delete, Action::DeleteSchedule, schedule, Value::Null).await;

    let rule = json!({ "state": "failed", "keep_for_ms": 5 });
    walk.http(("PUT", "/v1/retention"), Action::SetRetention, "/v1/retention", rule).await;
    let delete = ("DELETE", "/v1/retention");
    let path = "/v1/retention?state=failed";
    walk.http(delete, Action::ClearRetention, path, Value::Null).await;
    let quota = json!({ "tenant": "acme", "backlog_max": 9 });
    walk.http(("PUT", "/v1/quotas"), Action::SetQuota, "/v1/quotas", quota).await;
    let path = "/v1/quotas?tenant=acme";
    walk.http(("DELETE", "/v1/quotas"), Action::ClearQuota, path, Value::Null).await;
    let put = ("PUT", "/v1/tenants/{tenant}/weight");
    let path = "/v1/tenants/acme/weight";
    walk.http(put, Action::SetWeight, path, json!({ "weight": 3 })).await;
    let body = json!({ "name": "ci", "roles": ["viewer"] });
    let made = walk.http(("POST", "/v1/tokens"), Action::CreateToken, "/v1/tokens", body).await;
    let path = format!("/v1/tokens/{}", made["id"].as_str().expect("it has an id"));
    walk.http(("DELETE", "/v1/tokens/{token}"), Action::RevokeToken, &path, Value::Null).await;

    // Starts are written into their runs, and workers change nothing by hand.
    let is_walked = |(method, path, right, _): &&(&str, &str, Right, _)| match right {
        Right::Open | Right::Measure | Right::Read | Right::Steer | Right::Administer => true,
        Right::Submit => !matches!((*method, *path), (_, "/v1/runs" | "/v1/run-batches")),
        Right::Work => *method == "GET",
    };
    let rows = HTTP.iter().filter(is_walked);
    walk.check(rows.map(|(method, path, _, _)| format!("{method} {path}")));
}

fn null() -> Payload {
    Payload::from_json("null".to_owned()).expect("it is JSON")
}

fn key() -> ScheduleKey {
    let name = ScheduleName::new("nightly").expect("it is a name");
    ScheduleKey { tenant: Tenant::default(), name }
}

fn schedule() -> NewSchedule {
    NewSchedule {
        key: key(),
        workflow: WorkflowName::new("mail").expect("it is a name"),
        version: Version::FIRST,
        input: null(),
        priority: Priority::default(),
        timing: Timing::new(Cadence::every(HOUR).expect("it is one")),
        owner: None,
    }
}

#[tokio::test]
async fn every_change_over_grpc_is_logged_and_no_read_is() {
    let bench = Bench::new().await;
    let (admin, operator) = (bench.remote(&bench.admin), bench.remote(&bench.operator));
    let mut walk = Walk::of(&bench);
    let url = format!("http://{}", bench.server.address);
    let channel = Endpoint::from_shared(url).expect("it is an address").connect_lazy();
    let is_read = |path: &str, right: Right| match right {
        Right::Open | Right::Measure | Right::Read => true,
        // It is for older clients, and writes nothing.
        Right::Steer => path.ends_with("/WriteLog"),
        Right::Administer => path.ends_with("/ListTokens"),
        Right::Submit | Right::Work => false,
    };
    for (path, _, _) in GRPC.iter().filter(|(path, right, _)| is_read(path, *right)) {
        walk.step(path, None, call(&channel, bench.admin.expose(), path)).await;
    }

    let id = |text: String| text.parse::<RunId>().expect("it is an id");
    let run = id(bench.running().await);
    walk.grpc("CancelRun", Action::CancelRun, operator.cancel_run(run, None)).await;
    let run = id(bench.failed("retried").await);
    walk.grpc("RetryRun", Action::RetryRun, operator.retry_run(run, 1)).await;
    let name = StepName::new("go").expect("it is a name");
    let (signal, value) = (SignalId::from_random(1), null());
    let to_run = NewSignal { id: signal, run, name: name.clone(), value: value.clone() };
    walk.grpc("SignalRun", Action::SignalRun, operator.signal(to_run)).await;
    let run = id(bench.undoable().await);
    walk.grpc("UndoRun", Action::UndoRun, operator.undo_run(run)).await;
    let signal_key = SignalKey::new("k").expect("it is a key");
    let to = Mailbox { tenant: Tenant::default(), key: signal_key, name };
    let to_key = NewKeySignal { id: signal, to, value, keep_for: HOUR };
    walk.grpc("SignalKey", Action::SignalKey, operator.signal_key(to_key)).await;

    let by = || Author::from(Operator::new("forged").expect("it is a name"));
    let filter = |run| DeadLetterFilter { run: Some(run), ..DeadLetterFilter::default() };
    let (number, run) = (ActionId::from_random(1), id(bench.failed("redriven").await));
    let redrive =
        Redrive { id: number, by: by(), filter: filter(run), after: None, limit: 9, pace: None };
    walk.grpc("RedriveDeadLetters", Action::Redrive, operator.redrive(redrive)).await;
    let (number, run) = (ActionId::from_random(2), id(bench.failed("discarded").await));
    let discard = Discard { id: number, by: by(), filter: filter(run), after: None, limit: 9 };
    walk.grpc("DiscardDeadLetters", Action::Discard, operator.discard(discard)).await;
    let duty = bench.duty().await;
    walk.grpc("ForgetDuty", Action::ForgetDuty, operator.forget_duty(duty)).await;

    walk.grpc("PutSchedule", Action::PutSchedule, operator.put_schedule(schedule())).await;
    walk.grpc("PauseSchedule", Action::PauseSchedule, operator.pause_schedule(key())).await;
    walk.grpc("ResumeSchedule", Action::ResumeSchedule, operator.resume_schedule(key())).await;
    let run = bench.windlass().new_run_id();
    let trigger = operator.trigger_schedule(key(), run);
    walk.grpc("TriggerSchedule", Action::TriggerSchedule, trigger).await;
    let from = Timestamp::from_micros(1_750_000_000_000_000);
    let backfill = operator.backfill_schedule(key(), from, from + HOUR);
    walk.grpc("BackfillSchedule", Action::BackfillSchedule, backfill).await;
    walk.grpc("DeleteSchedule", Action::DeleteSchedule, operator.delete_schedule(key())).await;
    let owner = ScheduleOwner::new("billing").expect("it is a name");
    let owned = NewSchedule { owner: Some(owner.clone()), ..schedule() };
    bench.windlass().store().put_schedule(owned).await.expect("it is made");
    let disable = operator.disable_schedules(owner, None, Vec::new());
    walk.grpc("DisableSchedules", Action::DisableSchedules, disable).await;

    let rule = RetentionRule::new(RunState::Failed, HOUR);
    walk.grpc("SetRetention", Action::SetRetention, admin.set_retention(rule)).await;
    let clear = admin.clear_retention(None, RunState::Failed);
    assert!(walk.grpc("ClearRetention", Action::ClearRetention, clear).await);
    let acme = || Tenant::new("acme").expect("it is a name");
    let quota = Quota { tenant: Some(acme()), backlog_max: Some(9), ..Quota::default() };
    walk.grpc("SetQuota", Action::SetQuota, admin.set_quota(quota)).await;
    let clear = admin.clear_quota(Some(acme()));
    assert!(walk.grpc("ClearQuota", Action::ClearQuota, clear).await);
    let weight = Weight::new(3).expect("it is one");
    walk.grpc("SetWeight", Action::SetWeight, admin.set_weight(acme(), weight)).await;
    let made = mint(Role::Viewer.into()).expect("there is randomness");
    let (token, tag) = (made.id(), tag_of(&made));
    let (name, roles) = (Operator::new("ci").expect("it is a name"), Role::Viewer.into());
    let new = NewToken { id: token, tag, name, roles, tenant: None, expires_at: None };
    walk.grpc("CreateToken", Action::CreateToken, admin.create_token(new)).await;
    walk.grpc("RevokeToken", Action::RevokeToken, admin.revoke_token(token)).await;

    let is_walked = |(path, right, _): &&(&str, Right, _)| match right {
        Right::Open | Right::Measure | Right::Read | Right::Steer | Right::Administer => true,
        Right::Submit => !path.ends_with("/StartRuns"),
        Right::Work => false,
    };
    walk.check(GRPC.iter().filter(is_walked).map(|(path, _, _)| (*path).to_owned()));
}

/// The reason of a refusal, which follows the line of the action.
fn refusal(lines: &[LogEntry], action: Action) -> String {
    let detail = |line: &LogEntry| {
        let detail = line.detail.as_ref().map(|detail| detail.decode::<Value>());
        detail.transpose().expect("it is JSON").unwrap_or_default()
    };
    let [second, first, ..] = lines else { panic!("{lines:?}") };
    assert_eq!((second.action, first.action), (action, action));
    assert_eq!((&second.by, &second.tenant), (&first.by, &first.tenant));
    assert_eq!(second.runs, first.runs);
    assert_eq!(detail(second)[REFUSED_ENTRY], first.id.to_string());
    assert!(detail(first).get(REFUSED).is_none(), "{first:?}");
    detail(second)[REFUSED].as_str().expect("it is text").to_owned()
}

#[tokio::test]
async fn a_refused_action_has_a_second_line_with_the_reason() {
    let bench = Bench::new().await;
    let run = bench.running().await;
    let reason = "is running, only a failed run can be retried [WL-0005]";
    // Stores of one tenant write another id than they are given.
    for tenant in [None, Some("default")] {
        let token = token_of(bench.windlass(), Role::Operator, tenant).await;
        let before = bench.lines().await.len();
        let path = format!("/v1/runs/{run}/retry");
        bench.http(&token, "POST", &path, json!({})).await.problem(409, "WL-0005");
        let lines = bench.lines().await;
        assert_eq!(lines.len(), before + 2);
        assert!(refusal(&lines, Action::RetryRun).ends_with(reason), "{lines:?}");

        let id = run.parse().expect("it is an id");
        let refused = bench.remote(&token).retry_run(id, 1).await;
        assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
        let lines = bench.lines().await;
        assert_eq!(lines.len(), before + 4);
        assert!(refusal(&lines, Action::RetryRun).ends_with(reason), "{lines:?}");
    }
}

#[tokio::test]
async fn a_deletion_of_nothing_is_logged_as_refused() {
    let bench = Bench::new().await;
    let gone = "a quota of tenant \"acme\" does not exist [WL-0004]";
    let path = "/v1/quotas?tenant=acme";
    bench.http(&bench.admin, "DELETE", path, Value::Null).await.problem(404, "WL-0004");
    assert_eq!(refusal(&bench.lines().await, Action::ClearQuota), gone);
    let acme = Tenant::new("acme").expect("it is a name");
    let was_there = bench.remote(&bench.admin).clear_quota(Some(acme)).await;
    assert_eq!(was_there, Ok(false));
    assert_eq!(refusal(&bench.lines().await, Action::ClearQuota), gone);
    let path = "/v1/retention?state=failed";
    bench.http(&bench.admin, "DELETE", path, Value::Null).await.problem(404, "WL-0004");
    let reason = refusal(&bench.lines().await, Action::ClearRetention);
    assert!(reason.contains("a rule for runs that are failed does not exist"), "{reason}");
    let path = "/v1/duties/none";
    bench.http(&bench.operator, "DELETE", path, Value::Null).await.problem(404, "WL-0004");
    let reason = refusal(&bench.lines().await, Action::ForgetDuty);
    assert!(reason.contains("duty \"none\" does not exist"), "{reason}");
}
