//! Why a run does not go on, as it is said.

use windlass_core::why::{Count, LaneHolder, Missing, Reason, Served, TaskWhy, TimeCause};
use windlass_core::*;

use super::super::{read_why, v1, write_why};
use super::{at, failure, json, named, run};

/// An answer with every reason survives JSON.
#[test]
fn why_survives_the_wire() {
    let (until, since) = (Some(at(1)), at(2));
    let (limit, key): (LimitName, Option<LaneKey>) = (named("mail"), Some(named("acme")));
    let before = Count { at_least: 3, is_more: true };
    let worker = WorkerId::from_random(1);
    let name: StepName = named("paid");
    let call = Call(4);
    let cause = TimeCause::Call { call, name: name.clone(), failures: 2, failure: Some(failure()) };
    let ready = |served| Reason::Ready {
        queue: named("mail"),
        priority: Priority::new(-3).expect("it is within"),
        own_before: before,
        all_before: Count::default(),
        served,
    };
    let nobody = |missing| ready(Served::Nobody { missing });
    let worker_name = || "a".to_owned();
    let reasons = vec![
        Reason::Staged,
        Reason::Parents { pending: 2, first: vec![named("charge")] },
        Reason::RestOfRun { open: 3 },
        Reason::Time { until: at(-1_750_000_000_000_001), cause: TimeCause::Delay },
        Reason::Time { until: Timestamp::MAX, cause: TimeCause::Sleep },
        Reason::Due { since, cause: TimeCause::Backoff { failure: failure() } },
        Reason::Due { since, cause },
        Reason::Signal { call, name: name.clone(), key: None, until: None, has_come: true },
        Reason::Signal { call, name: name.clone(), key: Some(named("k")), until, has_come: false },
        Reason::Children { call, name, open: before, goes_on_at: 1, first: vec![run(1)] },
        Reason::Lane {
            limit: limit.clone(),
            key: None,
            slots: 2,
            held: 1,
            before,
            holders: vec![LaneHolder { run: run(2), task: named("charge") }],
        },
        Reason::Rate { limit: limit.clone(), key: key.clone(), before, until },
        Reason::Quiet { limit: limit.clone(), key: key.clone(), until: at(3) },
        Reason::Breaker { limit: limit.clone(), key: key.clone(), before, until: None },
        Reason::Superseded { limit, key },
        ready(Served::Free { workers: 1, free_slots: 2 }),
        ready(Served::Owner { worker, worker_name: worker_name(), free_slots: 3 }),
        ready(Served::Busy { workers: 1, draining: 2 }),
        nobody(Missing::Worker),
        nobody(Missing::Queue { served: vec![named("mail")] }),
        nobody(Missing::Workflow { served: vec![named("order")] }),
        nobody(Missing::Version { served: vec![Version::FIRST] }),
        Reason::Running {
            worker,
            worker_name: worker_name(),
            since: until,
            lease_until: since,
            progress: Some(json(r#"{"done":3}"#)),
        },
        Reason::LeaseExpired { worker, worker_name: worker_name(), since },
        Reason::NoLeader { duty: "reap".to_owned(), last: Some("b".to_owned()), until },
        Reason::Parked,
        Reason::Failed { failure: Some(failure()) },
        Reason::Failed { failure: None },
        Reason::Cancelled { why: Some("late".to_owned()) },
        Reason::Ended,
    ];
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let state = TaskState::Ready;
    let task = TaskWhy {
        name: named("charge"),
        state,
        attempt: 1,
        max_attempts: 5,
        reasons: reasons.clone(),
    };
    let why = Why {
        at: at(0),
        run: run(1),
        workflow: named("order"),
        version: Version::FIRST,
        tenant: named("acme"),
        state: RunState::Running,
        ended_at: until,
        open_tasks: 3,
        trace: TraceContext::parse(trace, Some("a=b")).ok(),
        reasons,
        tasks: vec![task],
        has_more_tasks: true,
    };
    let message = write_why(Some(&why)).expect("it has a form");
    assert_eq!(read_why(message).expect("it makes sense"), Some(why));
    assert_eq!(read_why(v1::WhyReply::default()), Ok(None));
}
