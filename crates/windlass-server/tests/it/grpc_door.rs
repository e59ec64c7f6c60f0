//! What the door for clients makes of requests that other programs send.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status};
use windlass::store::{MemoryStore, Store};
use windlass::{TaskError, Tenant, Windlass, Workflow};
use windlass_proto::v1;
use windlass_proto::v1::client_service_client::ClientServiceClient;
use windlass_server::Access;

use crate::served::Served;

/// How long something may take that happens by itself.
const SOON: Duration = Duration::from_secs(20);

async fn client(served: &Served) -> ClientServiceClient<Channel> {
    ClientServiceClient::connect(served.url()).await.expect("it listens")
}

/// A request makes no sense, and the answer says why by the name of the field.
#[track_caller]
fn refuses<T: std::fmt::Debug>(answer: Result<T, Status>, text: &str) {
    let status = answer.expect_err("it makes no sense");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains(text), "{status:?}");
}

fn key() -> Option<v1::ScheduleKey> {
    Some(v1::ScheduleKey { tenant: String::new(), name: "nightly".to_owned() })
}

#[tokio::test]
async fn a_request_that_makes_no_sense_is_refused_with_the_name_of_the_field() {
    let served = Served::new(Arc::new(MemoryStore::new())).await;
    let mut door = client(&served).await;
    let uuid = || "0197-not-a-uuid".to_owned();
    let good = || "01970000-0000-7000-8000-000000000000".to_owned();
    macro_rules! refuse {
        ($call:ident, $message:expr, $text:expr) => {
            refuses(door.$call($message).await, $text)
        };
    }
    refuse!(register_workflow, v1::RegisterWorkflowRequest::default(), "field definition: ");
    let definition = v1::Definition { name: "a".to_owned(), version: 0, ..Default::default() };
    let request = v1::RegisterWorkflowRequest { definition: Some(definition) };
    refuse!(register_workflow, request, "field definition.version: ");
    let run = v1::NewRun { version: 1, input: "{".to_owned(), ..Default::default() };
    let run = v1::NewRun { workflow: "order".to_owned(), ..run };
    let runs = vec![v1::NewRun { input: String::new(), ..run.clone() }, run];
    refuse!(start_runs, v1::StartRunsRequest { runs }, "field runs[1].input: ");
    refuse!(get_run, v1::GetRunRequest { run: uuid() }, "field run: ");
    refuse!(wait_run, v1::WaitRunRequest::default(), "field run: ");
    refuse!(list_runs, v1::ListRunsRequest { state: 99, ..Default::default() }, "field state: 99");
    let after = Some(v1::RunCursor::default());
    refuse!(list_runs, v1::ListRunsRequest { after, ..Default::default() }, "field after.id: ");
    refuse!(list_tasks, v1::ListTasksRequest::default(), "field run: ");
    refuse!(get_task, v1::GetTaskRequest { run: good(), ..Default::default() }, "field name: ");
    refuse!(list_steps, v1::ListStepsRequest::default(), "field task: ");
    refuse!(list_events, v1::ListEventsRequest::default(), "field run: ");
    refuse!(why, v1::WhyRequest { run: uuid(), task: None }, "field run: ");
    refuse!(why, v1::WhyRequest { run: good(), task: Some("\0".to_owned()) }, "field task: ");
    refuse!(cancel_run, v1::CancelRunRequest::default(), "field run: ");
    refuse!(retry_run, v1::RetryRunRequest::default(), "field run: ");
    refuse!(undo_run, v1::UndoRunRequest::default(), "field run: ");
    refuse!(signal_run, v1::SignalRunRequest::default(), "field id: ");
    let signal =
        v1::SignalKeyRequest { key: "k".to_owned(), name: "n".to_owned(), ..Default::default() };
    refuse!(signal_key, signal, "field id: ");
    let filter = Some(v1::DeadLetterFilter { run: Some(uuid()), ..Default::default() });
    let request = v1::ListDeadLettersRequest { filter, ..Default::default() };
    refuse!(list_dead_letters, request, "field filter.run: ");
    let redrive = v1::RedriveRequest { id: good(), by: "ada".to_owned(), ..Default::default() };
    refuse!(redrive_dead_letters, redrive.clone(), "field filter: ");
    let (filter, pace) = (Some(v1::DeadLetterFilter::default()), Some(v1::Pace::default()));
    let redrive = v1::RedriveRequest { filter, pace, ..redrive };
    refuse!(redrive_dead_letters, redrive, "field pace.per_second: ");
    refuse!(discard_dead_letters, v1::DiscardRequest::default(), "field id: ");
    let entry = v1::NewLogEntry { id: good(), by: "ada".to_owned(), ..Default::default() };
    refuse!(write_log, entry, "field action: ");
    refuse!(list_log, v1::ListLogRequest { action: -1, ..Default::default() }, "field action: -1");
    refuse!(set_retention, v1::RetentionRule::default(), "field state: ");
    refuse!(clear_retention, v1::ClearRetentionRequest::default(), "field state: ");
    refuse!(get_archived_run, v1::GetArchivedRunRequest::default(), "field run: ");
    let weight = v1::SetWeightRequest { tenant: "a".to_owned(), weight: 1_001 };
    refuse!(set_weight, weight, "field weight: 1001 is not within 1 to 1000");
    let after = Some(v1::WorkerCursor::default());
    let request = v1::ListWorkersRequest { after, ..Default::default() };
    refuse!(list_workers, request, "field after.id: ");
    refuse!(put_schedule, v1::Schedule::default(), "field key: ");
    let cron = v1::CronCadence { expression: "61 * * * *".to_owned(), zone: String::new() };
    let timing =
        v1::Timing { cadence: Some(v1::timing::Cadence::Cron(cron)), ..Default::default() };
    let timed = v1::Schedule {
        key: key(),
        workflow: "a".to_owned(),
        version: 1,
        timing: Some(timing),
        ..Default::default()
    };
    refuse!(put_schedule, timed, "field timing.cron: ");
    refuse!(get_schedule, v1::GetScheduleRequest::default(), "field key: ");
    let after = Some(v1::ScheduleKey::default());
    let request = v1::ListSchedulesRequest { after, ..Default::default() };
    refuse!(list_schedules, request, "field after.name: ");
    refuse!(pause_schedule, v1::PauseScheduleRequest::default(), "field key: ");
    refuse!(resume_schedule, v1::ResumeScheduleRequest::default(), "field key: ");
    refuse!(delete_schedule, v1::DeleteScheduleRequest::default(), "field key: ");
    refuse!(disable_schedules, v1::DisableSchedulesRequest::default(), "field owner: ");
    let request = v1::TriggerScheduleRequest { key: key(), run: uuid() };
    refuse!(trigger_schedule, request, "field run: ");
    refuse!(backfill_schedule, v1::BackfillScheduleRequest::default(), "field key: ");
    refuse!(list_fires, v1::ListFiresRequest::default(), "field key: ");
    refuse!(claim_duties, v1::ClaimDutiesRequest::default(), "field candidate: ");
    let duties = || v1::ClaimDutiesRequest { candidate: good(), ..Default::default() };
    let request = v1::ClaimDutiesRequest { ttl_us: u64::MAX, ..duties() };
    refuse!(claim_duties, request, "field ttl_us: ");
    for process in ["x".repeat(201), "a\0b".to_owned()] {
        let request = v1::ClaimDutiesRequest { process, ..duties() };
        let status = door.claim_duties(request).await.expect_err("nobody is called so");
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    }
    let request = v1::RenewDutiesRequest { mandates: Vec::new(), ttl_us: u64::MAX };
    refuse!(renew_duties, request, "field ttl_us: ");
    let mandates = vec![v1::DutyMandate::default(); 101];
    let request = v1::RenewDutiesRequest { mandates, ttl_us: 1 };
    refuse!(renew_duties, request, "field mandates: has 101 items, the limit is 100");
    let mandates = vec![v1::DutyMandate::default()];
    let request = v1::RenewDutiesRequest { mandates, ttl_us: 1 };
    refuse!(renew_duties, request, "field mandates[0].name: ");
    refuse!(end_duty, v1::EndDutyRequest::default(), "field mandate: ");
    refuse!(forget_duty, v1::ForgetDutyRequest::default(), "field name: ");
}

#[tokio::test]
async fn numbers_at_their_ends_are_answered_or_refused_and_never_break_the_server() {
    let store = Arc::new(MemoryStore::new());
    let served = Served::new(store.clone()).await;
    let mut door = client(&served).await;
    let good = || "01970000-0000-7000-8000-000000000000".to_owned();
    let (most, least) = (i64::MAX, i64::MIN);
    let mut order = Workflow::<()>::builder("order");
    order.task("charge").run(async |_| Ok::<_, TaskError>(()));
    let order = order.build().expect("it makes sense");
    store.register(Arc::clone(order.definition())).await.expect("it is registered");
    let mut codes: Vec<Code> = Vec::new();
    let mut noted = |answer: Result<(), Status>| {
        codes.push(answer.map_or_else(|status| status.code(), |()| Code::Ok));
    };
    for at in [most, least] {
        let after = Some(v1::RunCursor { created_at_us: at, id: good() });
        let request = v1::ListRunsRequest { after, limit: u32::MAX, ..Default::default() };
        noted(door.list_runs(request).await.map(drop));
        let every = v1::EveryCadence { interval_us: u64::MAX, anchor_us: at };
        let cadences = [v1::timing::Cadence::Every(every), v1::timing::Cadence::OnceAtUs(at)];
        for cadence in cadences {
            let timing = v1::Timing {
                cadence: Some(cadence),
                starts_at_us: Some(at),
                jitter_us: u64::MAX,
                grace_us: Some(u64::MAX),
                ..Default::default()
            };
            let schedule = v1::Schedule {
                key: key(),
                workflow: "order".to_owned(),
                version: 1,
                timing: Some(timing),
                ..Default::default()
            };
            noted(door.put_schedule(schedule).await.map(drop));
        }
        let (from_us, until_us) = (least, at);
        let request = v1::BackfillScheduleRequest { key: key(), from_us, until_us };
        noted(door.backfill_schedule(request).await.map(drop));
        let filter =
            v1::DeadLetterFilter { since_us: Some(at), until_us: Some(at), ..Default::default() };
        let limit = Some(u32::MAX);
        let request =
            v1::ListDeadLettersRequest { filter: Some(filter.clone()), after: None, limit };
        noted(door.list_dead_letters(request).await.map(drop));
        let pace = Some(v1::Pace { per_second: u32::MAX, from_us: Some(at) });
        let redrive = v1::RedriveRequest {
            id: good(),
            by: "ada".to_owned(),
            filter: Some(filter),
            pace,
            ..Default::default()
        };
        noted(door.redrive_dead_letters(redrive).await.map(drop));
    }
    let run = v1::NewRun {
        workflow: "order".to_owned(),
        version: 1,
        delay_us: u64::MAX,
        ..Default::default()
    };
    let started = door.start_runs(v1::StartRunsRequest { runs: vec![run] }).await;
    noted(started.map(drop));
    let duties =
        vec![v1::DutyDeclaration { name: "a".to_owned(), every_us: 60_000_000, is_new: true }];
    let claim = v1::ClaimDutiesRequest {
        candidate: good(),
        process: "a".repeat(200),
        ttl_us: 315_360_000_000_000,
        duties,
    };
    noted(door.claim_duties(claim.clone()).await.map(drop));
    let mandate = v1::DutyMandate { name: "a".to_owned(), candidate: good(), term: 1 };
    let ttl_us = 315_360_000_000_000;
    let request = v1::RenewDutiesRequest { mandates: vec![mandate.clone()], ttl_us };
    noted(door.renew_duties(request).await.map(drop));
    let outcome = Some(v1::end_duty_request::Outcome::Failed("x".repeat(1 << 20)));
    let request = v1::EndDutyRequest { mandate: Some(mandate), took_us: u64::MAX, outcome };
    noted(door.end_duty(request).await.map(drop));
    let steps = v1::TaskId { run: good(), index: u32::MAX };
    let (after, limit) = (Some(u32::MAX), Some(u32::MAX));
    let request = v1::ListStepsRequest { task: Some(steps), after, limit };
    noted(door.list_steps(request).await.map(drop));
    let request = v1::ListEventsRequest { run: good(), after: Some(u64::MAX), limit };
    noted(door.list_events(request).await.map(drop));
    let is_fine = |code: &Code| {
        let fine = [Code::Ok, Code::InvalidArgument, Code::NotFound, Code::FailedPrecondition];
        fine.contains(code)
    };
    assert!(codes.iter().all(is_fine), "{codes:?}");
}

#[tokio::test]
async fn whoever_has_one_tenant_is_let_in_to_its_own_things() {
    let tenant = Tenant::new("acme").expect("it is a name");
    let access = Access::insecure_dev().for_tenant(tenant);
    let served = Served::with_access(Arc::new(MemoryStore::new()), access).await;
    let mut door = client(&served).await;
    door.get_time(v1::GetTimeRequest {}).await.expect("it is let in");
    let runs = door.list_runs(v1::ListRunsRequest::default()).await.expect("it has some");
    assert!(runs.into_inner().runs.is_empty());
    let other = v1::ListRunsRequest { tenant: Some("other".to_owned()), ..Default::default() };
    let status = door.list_runs(other).await.expect_err("they are not its own");
    assert_eq!(status.code(), Code::PermissionDenied);
    let status = door.list_queues(v1::ListQueuesRequest {}).await.expect_err("they are everyone's");
    assert_eq!(status.code(), Code::PermissionDenied);
}

/// A workflow whose task ends when it is told to.
fn gated(gate: Arc<tokio::sync::Notify>) -> Workflow<()> {
    let mut gated = Workflow::<()>::builder("gated");
    gated.task("wait").run(move |_| {
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            Ok::<_, TaskError>(())
        }
    });
    gated.build().expect("it makes sense")
}

#[tokio::test]
async fn a_client_waits_for_the_end_of_a_run_up_to_its_time() {
    let store = Arc::new(MemoryStore::new());
    let served = Served::new(store.clone()).await;
    let gate = Arc::new(tokio::sync::Notify::new());
    let gated = gated(Arc::clone(&gate));
    let windlass = Windlass::with_store(store);
    let worker = windlass.worker().register(&gated).spawn().expect("it is set up");
    let run = windlass.start(&gated, ()).await.expect("it is started").id().to_string();
    let mut door = client(&served).await;
    let unknown = "01970000-0000-7000-8000-000000000000".to_owned();
    let request = v1::WaitRunRequest { run: unknown, timeout_us: 0 };
    let status = door.wait_run(request).await.expect_err("there is no such run");
    assert_eq!(status.code(), Code::NotFound);
    let request = v1::WaitRunRequest { run: run.clone(), timeout_us: 1_000 };
    let began = Instant::now();
    let reply = door.wait_run(request).await.expect("it is answered").into_inner();
    assert!(began.elapsed() >= Duration::from_millis(1));
    let state = reply.run.map(|run| run.state);
    assert_eq!(state, Some(v1::RunState::Running.into()), "its time was over first");
    let waiting = tokio::spawn({
        let mut door = door.clone();
        async move { door.wait_run(v1::WaitRunRequest { run, timeout_us: 0 }).await }
    });
    gate.notify_one();
    let reply = timeout(SOON, waiting).await.expect("in time").expect("it does not panic");
    let state = reply.expect("it is answered").into_inner().run.map(|run| run.state);
    assert_eq!(state, Some(v1::RunState::Succeeded.into()));
    worker.drain().await.expect("it ends");
}

#[tokio::test]
async fn a_client_that_watches_is_told_of_ends_until_the_server_stops() {
    let store = Arc::new(MemoryStore::new());
    let served = Served::new(store.clone()).await;
    let gate = Arc::new(tokio::sync::Notify::new());
    let gated = gated(Arc::clone(&gate));
    let windlass = Windlass::with_store(store.clone());
    let run = windlass.start(&gated, ()).await.expect("it is started");
    let mut door = client(&served).await;
    let mut hints = door.watch_runs(v1::WatchRunsRequest {}).await.expect("let in").into_inner();
    // The same through a store of a program.
    let far = served.store();
    let mut far_hints = far.run_hints();
    timeout(SOON, far_hints.changed()).await.expect("it is told once it listens");
    far_hints.take();
    run.cancel("enough").await.expect("it is cancelled");
    let hint = timeout(SOON, hints.message()).await.expect("in time").expect("it is told");
    assert_eq!(hint, Some(v1::RunHint {}));
    timeout(SOON, far_hints.changed()).await.expect("so is the program");
    let waiting = windlass.start(&gated, ()).await.expect("it is started").id().to_string();
    let waits = door.wait_run(v1::WaitRunRequest { run: waiting, timeout_us: 0 });
    let stop = async {
        // Both have begun to wait by now, or find out when they do.
        tokio::task::yield_now().await;
        served.stopping.cancel();
    };
    let (answer, ()) = timeout(SOON, async { tokio::join!(waits, stop) }).await.expect("in time");
    if let Ok(reply) = answer {
        let state = reply.into_inner().run.map(|run| run.state);
        assert_eq!(state, Some(v1::RunState::Running.into()));
    }
    let end = timeout(SOON, hints.message()).await.expect("the stream ends");
    assert!(!matches!(end, Ok(Some(_))), "{end:?}");
}
