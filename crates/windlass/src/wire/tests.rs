//! What is said is what is understood.

mod why;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::num::NonZeroU32;
use std::time::Duration;

use prost::Message;
use windlass_core::event::{EventBody, RunEvent, RunEventKind, TaskEvent, TaskEventKind};
use windlass_core::schedule::{Cadence, Missed, Timing};
use windlass_core::*;

use super::{Wire, WireError, error_of_status, status_of_error};
use crate::store::*;

/// A value survives the wire.
#[track_caller]
fn survives<T: Wire<Message: Message + Default> + Debug>(value: &T) {
    let bytes = value.to_wire().encode_to_vec();
    let message = T::Message::decode(bytes.as_slice()).expect("it was encoded");
    let read = T::from_wire(message).expect("it makes sense");
    assert_eq!(format!("{read:?}"), format!("{value:?}"));
}

/// An empty message is refused, with the name of the field.
#[track_caller]
fn names<T: Wire<Message: Default> + Debug>(field: &str) {
    let error = T::from_wire(T::Message::default()).expect_err("it says nothing");
    assert!(error.to_string().starts_with(&format!("field {field}: ")), "{error}");
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(1_750_000_000_000_000 + micros)
}

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn json(text: &str) -> Payload {
    Payload::from_json(text.to_owned()).expect("it is JSON")
}

fn run(number: u128) -> RunId {
    RunId::from_parts(at(0), number)
}

fn task(number: u128) -> TaskId {
    TaskId { run: run(number), index: TaskIndex(7) }
}

fn candidate() -> CandidateId {
    CandidateId::from_random(5)
}

fn failure() -> Failure {
    Failure::new(FailureCode::Custom("no_stock".to_owned()), "none is left")
}

macro_rules! named {
    ($($type:ident),*) => {
        $(impl Named for $type {
            fn named(text: &str) -> Self {
                $type::new(text).expect("it is a name")
            }
        })*
    };
}

trait Named {
    fn named(text: &str) -> Self;
}

named!(WorkflowName, TaskName, Tenant, QueueName, StepName, SignalKey, IdempotencyKey, LimitName);
named!(LaneKey, Operator, ScheduleName, ScheduleOwner, DutyName);

fn named<T: Named>(text: &str) -> T {
    T::named(text)
}

fn run_record() -> RunRecord {
    RunRecord {
        id: run(1),
        workflow: named("order"),
        version: Version::MAX,
        tenant: named("acme"),
        state: RunState::Failed,
        input: Some(json(r#"{"a":[1,2.5,null]}"#)),
        key: Some(named("order-1")),
        priority: Priority::new(-7).expect("it is within"),
        metadata: BTreeMap::from([("region".to_owned(), "eu".to_owned())]),
        round: 3,
        open_tasks: 2,
        created_at: at(1),
        ended_at: Some(at(2)),
    }
}

#[test]
fn runs_survive_the_wire() {
    survives(&run_record());
    survives(&RunRecord { input: None, ..run_record() });
    let plain = RunRecord { key: None, ended_at: None, metadata: BTreeMap::new(), ..run_record() };
    survives(&plain);
    let cursor = RunCursor { created_at: at(3), id: run(4) };
    survives(&RunPage { runs: vec![run_record(), plain], next: Some(cursor) });
    survives(&RunPage::default());
    survives(&RunFilter::default());
    survives(&RunFilter {
        workflow: Some(named("order")),
        tenant: Some(named("acme")),
        state: Some(RunState::Cancelled),
        metadata: Some(("region".to_owned(), String::new())),
        after: Some(cursor),
        limit: 12,
    });
    let record = TaskRecord {
        index: TaskIndex(3),
        name: named("charge"),
        state: TaskState::Running,
        attempt: 2,
        fence: Fence(u64::MAX),
        pending_parents: 1,
        available_at: Some(at(4)),
        worker: Some(WorkerId::from_random(9)),
        output: Some(json("null")),
        failure: Some(failure()),
        progress: Some(json("0.5")),
    };
    survives(&record);
    survives(&TaskRecord {
        available_at: None,
        worker: None,
        output: None,
        failure: None,
        progress: None,
        ..record
    });
    let started: Result<Started, StoreError> = Ok(Started { run: run(1), is_new: true });
    survives(&started);
    let refused: Result<Started, StoreError> = Err(StoreError::NotFound("a workflow".to_owned()));
    survives(&refused);
    let id = SignalId::from_random(3);
    survives(&NewSignal { id, run: run(2), name: named("paid"), value: json("[1]") });
    let to = Mailbox { tenant: named("acme"), key: named("order-1"), name: named("paid") };
    survives(&NewKeySignal { id, to, value: json("{}"), keep_for: us(1) });
}

#[test]
fn every_kind_of_event_survives_the_wire() {
    let kinds = [
        RunEventKind::Started,
        RunEventKind::Ended,
        RunEventKind::Cancelled { reason: None },
        RunEventKind::Cancelled { reason: Some("too late".to_owned()) },
        RunEventKind::Retried { round: 2 },
        RunEventKind::Continued { round: 3 },
        RunEventKind::Undoing { by: run(8) },
    ];
    for (from, kind) in [None, Some(RunState::Running)].into_iter().cycle().zip(kinds) {
        let body = EventBody::Run(RunEvent { kind, from, to: RunState::Succeeded });
        survives(&Event { id: EventId(u64::MAX), run: run(1), at: at(-1), body });
    }
    let (until, worker) = (at(9), WorkerId::from_random(4));
    let kinds = [
        TaskEventKind::Queued,
        TaskEventKind::Delayed { until },
        TaskEventKind::Blocked { limit: named("mail"), key: None },
        TaskEventKind::Blocked { limit: named("mail"), key: Some(named("acme")) },
        TaskEventKind::Sleeping { until },
        TaskEventKind::Woken,
        TaskEventKind::Started { worker },
        TaskEventKind::Succeeded,
        TaskEventKind::Failed { failure: failure() },
        TaskEventKind::Retrying { failure: failure(), until },
        TaskEventKind::Released { until: None },
        TaskEventKind::Released { until: Some(until) },
        TaskEventKind::Parked { until: None },
        TaskEventKind::Parked { until: Some(until) },
        TaskEventKind::Resumed,
        TaskEventKind::Continued,
        TaskEventKind::LeaseExpired { worker, lease_until: until, failure: None },
        TaskEventKind::LeaseExpired { worker, lease_until: until, failure: Some(failure()) },
        TaskEventKind::Skipped,
        TaskEventKind::Cancelled,
        TaskEventKind::Reset,
    ];
    for kind in kinds {
        let body = EventBody::Task(TaskEvent {
            task: TaskIndex(2),
            name: named("charge"),
            kind,
            from: TaskState::Waiting,
            to: TaskState::Skipped,
            fence: Fence(3),
            attempt: 4,
        });
        survives(&Event { id: EventId(1), run: run(1), at: at(0), body });
    }
}

#[test]
fn dead_letters_and_what_is_done_about_them_survive_the_wire() {
    let cursor = DeadLetterCursor { failed_at: at(5), task: task(1) };
    let letter = DeadLetter {
        task: task(1),
        name: named("charge"),
        round: 2,
        tenant: named("acme"),
        workflow: named("order"),
        version: Version::FIRST,
        queue: named("mail"),
        failure: failure().permanent(),
        attempts: 5,
        lanes: vec![
            LaneId { limit: named("bank"), tenant: None, key: Some(named("DE")) },
            LaneId { limit: named("mail"), tenant: Some(named("acme")), key: None },
        ],
        failed_at: at(5),
    };
    survives(&DeadLetterPage { letters: vec![letter], next: Some(cursor) });
    let filter = DeadLetterFilter {
        run: Some(run(1)),
        tenant: Some(named("acme")),
        workflow: Some(named("order")),
        task: Some(named("charge")),
        reason: Some(FailureCode::Timeout),
        since: Some(at(1)),
        until: Some(at(2)),
    };
    survives(&DeadLetterFilter::default());
    let (id, by): (_, Operator) = (ActionId::from_random(6), named("ada"));
    let by = Author::from(by);
    let pace = Pace { per_second: NonZeroU32::MIN, from: Some(at(8)) };
    survives(&Redrive {
        id,
        by: by.clone(),
        filter: filter.clone(),
        after: Some(cursor),
        limit: 10,
        pace: Some(pace),
    });
    let refused = vec![RefusedRun { run: run(3), why: "it runs".to_owned() }];
    let (runs, next) = (vec![run(1), run(2)], Some(cursor));
    survives(&Redriven { runs: runs.clone(), refused: refused.clone(), next, due: Some(at(3)) });
    survives(&Discard { id, by: by.clone(), filter, after: None, limit: 0 });
    survives(&Discarded { letters: 3, runs: runs.clone(), refused, next });
    for action in Action::ALL {
        let (tenant, detail) = (Some(named("acme")), Some(json("{}")));
        let entry = NewLogEntry {
            id,
            by: by.clone(),
            action,
            tenant: tenant.clone(),
            run: Some(run(1)),
            detail: detail.clone(),
        };
        survives(&entry);
        let runs = runs.clone();
        let origin = Some("192.0.2.1".to_owned());
        let by = Author { token: Some(TokenId::from_random(7)), origin, ..by.clone() };
        let entry = LogEntry { number: 9, id, at: at(1), by, action, tenant, runs, detail };
        survives(&LogPage { entries: vec![entry], next: Some(9) });
        let by = Some(named("ada"));
        let before = Some(u64::MAX);
        let (run, action, tenant) = (Some(run(1)), Some(action), Some(named("acme")));
        survives(&LogFilter { run, action, by, tenant, before, limit: 4 });
    }
    survives(&LogFilter::default());
}

#[test]
fn quotas_survive_the_wire() {
    survives(&Quota::default());
    survives(&Quota {
        tenant: Some(named("acme")),
        starts_per_second: Some(1),
        backlog_max: Some(2),
        payload_bytes_max: Some(3),
        payload_bytes_per_second: Some(4),
        schedules_max: Some(5),
        tasks_max: Some(6),
    });
    survives(&Usage { ready_tasks: 7, schedules: 8 });
}

#[test]
fn retention_survives_the_wire() {
    for state in [RunState::Succeeded, RunState::Failed, RunState::Cancelled] {
        survives(&RetentionRule {
            workflow: Some(named("order")),
            state,
            keep_for: us(7),
            keep_key_for: us(8),
            archives: true,
            with_dead_letters: true,
        });
        survives(&RetentionRule::new(state, us(1)));
    }
    survives(&ArchivedRun {
        id: run(1),
        workflow: named("order"),
        version: Version::FIRST,
        tenant: named("acme"),
        state: RunState::Cancelled,
        created_at: at(1),
        ended_at: at(2),
        archived_at: at(3),
        body: json(r#"{"input":1}"#),
    });
}

#[test]
fn workers_leaders_and_queues_survive_the_wire() {
    let cursor = WorkerCursor { joined_at: at(1), id: WorkerId::from_random(1) };
    for state in WorkerState::ALL {
        let handler = HandlerKey { workflow: named("order"), version: Version::FIRST };
        let record = WorkerRecord {
            id: WorkerId::from_random(2),
            name: "worker-1".to_owned(),
            state,
            slots: 16,
            lease: us(30_000_000),
            workflows: vec![handler],
            info: WorkerInfo {
                host: "a".to_owned(),
                pid: Some(1),
                version: "2".to_owned(),
                queues: vec![named("mail"), named("default")],
                metadata: BTreeMap::from([("zone".to_owned(), "b".to_owned())]),
            },
            joined_at: at(1),
            seen_at: Some(at(2)),
            ended_at: Some(at(3)),
            tasks: 4,
        };
        survives(&WorkerPage { workers: vec![record], next: Some(cursor) });
    }
    survives(&WorkerFilter { with_dead: true, after: Some(cursor), limit: 3 });
    for duty in Duty::ALL {
        survives(&LeaderRecord::vacant(duty));
        let holder = Holder {
            candidate: candidate(),
            name: "a".to_owned(),
            since: at(1),
            renewed_at: at(2),
            until: at(3),
            rotates_at: Some(at(4)),
            is_given_up: true,
        };
        survives(&LeaderRecord {
            duty,
            term: Term(5),
            holder: Some(holder),
            runs: 6,
            items: 7,
            errors: 8,
            last_run_at: Some(at(9)),
            busy: us(10),
            last_took: Some(us(11)),
            last_error: Some("no".to_owned()),
        });
    }
    let queue = QueueRecord {
        queue: named("mail"),
        priority: Priority::new(100).expect("it is within"),
        came: 3,
        went: 2,
        changed_at: at(1),
        oldest_at: Some(at(0)),
    };
    survives(&QueueList { at: at(2), counted_at: Some(at(1)), queues: vec![queue] });
}

fn schedule(timing: Timing) -> NewSchedule {
    NewSchedule {
        key: ScheduleKey { tenant: named("acme"), name: named("nightly") },
        workflow: named("order"),
        version: Version::FIRST,
        input: json("1"),
        priority: Priority::new(5).expect("it is within"),
        timing,
        owner: Some(named("billing")),
    }
}

#[test]
fn schedules_survive_the_wire() {
    let cadences = [
        Cadence::cron("0 3 * * *", "Europe/Berlin").expect("it is one"),
        Cadence::every_from(us(1_500_000), at(1)).expect("it is one"),
        Cadence::Once(at(7)),
    ];
    let missed = [Missed::Skip, Missed::Once, Missed::All(4)];
    for (cadence, missed) in cadences.into_iter().zip(missed) {
        survives(&schedule(Timing::new(cadence.clone())));
        for (overlap, state) in Overlap::ALL.into_iter().zip(ScheduleState::ALL.iter().cycle()) {
            let timing = Timing {
                cadence: cadence.clone(),
                starts_at: Some(at(1)),
                ends_at: Some(at(2)),
                jitter: us(3),
                grace: us(4),
                missed,
                overlap,
            };
            let record = ScheduleRecord {
                id: ScheduleId(3),
                schedule: schedule(timing),
                state: *state,
                next_at: Some(at(1)),
                last_at: Some(at(2)),
                queued_at: Some(at(3)),
                created_at: at(4),
            };
            let next = Some(record.schedule.key.clone());
            survives(&ScheduleFilter { tenant: None, after: next.clone(), limit: 2 });
            let unreadable = UnreadableSchedule {
                tenant: "a".to_owned(),
                name: "b".to_owned(),
                problem: "c".to_owned(),
            };
            survives(&SchedulePage { schedules: vec![record], unreadable: vec![unreadable], next });
        }
    }
    survives(&Backfilled { started: 3, existing: 4 });
    let results = [
        FireResult::Started(run(1)),
        FireResult::Missed { first: at(1), count: 3 },
        FireResult::Overlapped,
        FireResult::Queued,
        FireResult::Refused("no".to_owned()),
    ];
    for (result, by) in results.into_iter().zip(FireBy::ALL.into_iter().cycle()) {
        survives(&Fire { nominal: at(1), by, result, at: at(2) });
    }
}

#[test]
fn duties_of_programs_survive_the_wire() {
    let name: DutyName = named("sync");
    let declaration = DutyDeclaration { name: name.clone(), every: us(5), is_new: true };
    survives(&DutyClaim {
        candidate: candidate(),
        process: "a".to_owned(),
        ttl: us(3),
        duties: vec![declaration],
    });
    let holder = DutyHolder {
        candidate: candidate(),
        process: "a".to_owned(),
        since: at(1),
        until: Some(at(2)),
    };
    let record = DutyRecord {
        name: name.clone(),
        every: us(5),
        next_at: at(3),
        term: Term(4),
        holder: Some(holder),
        runs: 5,
        errors: 6,
        last_run: Some((at(7), us(8))),
        last_error: Some("no".to_owned()),
    };
    let vacant = DutyRecord { holder: None, last_run: None, last_error: None, ..record.clone() };
    survives(&DutyStanding { at: at(1), duties: vec![record, vacant] });
    let outcomes =
        [DutyOutcome::Succeeded, DutyOutcome::Failed("no".to_owned()), DutyOutcome::GivenUp];
    for outcome in outcomes {
        let mandate = DutyMandate { name: name.clone(), candidate: candidate(), term: Term(3) };
        survives(&DutyEnd { mandate, took: us(4), outcome });
    }
}

#[test]
fn a_message_that_says_nothing_is_refused_with_the_name_of_a_field() {
    names::<RunRecord>("id");
    names::<RunCursor>("id");
    names::<TaskRecord>("name");
    names::<Result<Started, StoreError>>("answer");
    names::<NewSignal>("id");
    names::<NewKeySignal>("key");
    names::<Event>("body");
    names::<RunEvent>("kind");
    names::<TaskEvent>("name");
    names::<DeadLetter>("task");
    names::<DeadLetterCursor>("task");
    names::<LaneId>("limit");
    names::<Pace>("per_second");
    names::<Redrive>("id");
    names::<Discard>("id");
    names::<NewLogEntry>("id");
    names::<LogEntry>("id");
    names::<RetentionRule>("state");
    names::<ArchivedRun>("id");
    names::<WorkerRecord>("id");
    names::<LeaderRecord>("duty");
    names::<QueueRecord>("queue");
    names::<ScheduleKey>("name");
    names::<Timing>("cadence");
    names::<NewSchedule>("key");
    names::<ScheduleRecord>("schedule");
    names::<Fire>("result");
    names::<DutyDeclaration>("name");
    names::<DutyClaim>("candidate");
    names::<DutyRecord>("name");
    names::<DutyMandate>("name");
    names::<DutyEnd>("mandate");
}

#[test]
fn an_error_names_its_field_from_the_outside_in() {
    let mut page = RunPage { runs: vec![run_record(), run_record()], next: None }.to_wire();
    page.runs[1].priority = 101;
    let error = RunPage::from_wire(page).expect_err("there is no such priority");
    assert_eq!(error.to_string(), "field runs[1].priority: 101 is not within -100 to 100");
}

#[test]
fn errors_survive_a_status() {
    let worker = WorkerId::from_random(7);
    let errors = [
        (StoreError::NotFound("run 1".to_owned()), tonic::Code::NotFound),
        (StoreError::Conflict("ä\nb".to_owned()), tonic::Code::FailedPrecondition),
        (StoreError::LeaseLost(worker), tonic::Code::Aborted),
        (StoreError::Unavailable("no".to_owned()), tonic::Code::Unavailable),
        (StoreError::Corrupt("no".to_owned()), tonic::Code::DataLoss),
    ];
    for (error, code) in errors {
        let status = status_of_error(error.to_wire());
        assert_eq!((status.code(), error_of_status(&status)), (code, error));
    }
    // However long the words are, their beginning is told.
    let long = status_of_error(StoreError::Conflict("ä".repeat(1 << 20)).to_wire());
    assert_eq!(error_of_status(&long), StoreError::Conflict("ä".repeat(500)));
    let status = status_of_error(WireError::new("run", "is missing").into());
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    let refused = StoreError::Conflict("field run: is missing".to_owned());
    assert_eq!(error_of_status(&status), refused);
}
