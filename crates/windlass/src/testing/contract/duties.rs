//! Duties of programs: each due time is served by one process at a time.

use std::time::Duration;

use windlass_core::{CandidateId, DutyName, Term, Timestamp};

use super::bench::{Bench, TICK, is_hinted, seconds};
use crate::store::{
    DUTIES_MAX, DutyClaim, DutyDeclaration, DutyEnd, DutyHolder, DutyMandate, DutyOutcome,
    DutyRecord, ERROR_CHARS_MAX, EVERY_MIN, PROCESS_DUTIES_MAX, StoreError,
};
use crate::worker::SETTING_MAX;

/// The list of cases, handed to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! duty_contract_cases {
    ($to:ident [$($argument:tt)*]) => {
        $crate::$to! {
            [$($argument)*]
            duties {
                a_duty_that_is_new_is_due_at_once_and_goes_to_the_first_who_asks
                a_claim_that_is_repeated_answers_the_same_term
                a_lease_that_is_renewed_keeps_its_duty
                a_process_that_is_lost_is_replaced_and_its_end_is_refused
                a_late_process_that_nobody_replaced_goes_on
                the_next_time_does_not_drift_however_late_a_duty_ends
                times_that_were_missed_are_served_once
                an_end_that_is_repeated_is_accepted_and_counts_once
                an_error_is_written_down_and_the_next_time_comes
                a_duty_that_is_given_up_is_due_at_once
                the_newest_declaration_of_an_interval_holds
                duties_are_apart_and_answered_in_the_order_of_the_request
                processes_that_race_for_a_duty_make_one_term
                a_renewal_of_a_term_that_ended_gives_nothing_back
                a_renewal_of_an_earlier_term_renews_nothing
                a_duty_is_forgotten_if_nobody_is_at_it
                duties_that_make_no_sense_are_refused
                a_store_has_so_many_duties
            }
        }
    };
}

const TTL: Duration = Duration::from_secs(10);
const EVERY: Duration = Duration::from_secs(60);

fn name(text: &str) -> DutyName {
    DutyName::new(text).expect("it is a name")
}

/// A process with a handler for a duty.
struct Process<'a> {
    bench: &'a Bench<'a>,
    id: CandidateId,
    name: String,
}

impl<'a> Process<'a> {
    fn new(bench: &'a Bench<'a>, number: u128) -> Self {
        let id = CandidateId::from_random(number);
        Process { bench, id, name: format!("process-{number}") }
    }

    fn claim_of(&self, duties: Vec<DutyDeclaration>) -> DutyClaim {
        DutyClaim { candidate: self.id, process: self.name.clone(), ttl: TTL, duties }
    }

    async fn ask_all(&self, names: &[&str], every: Duration) -> Vec<DutyRecord> {
        let one = |it: &&str| DutyDeclaration { name: name(it), every, is_new: false };
        let claim = self.claim_of(names.iter().map(one).collect());
        let standing = self.bench.store.claim_duties(claim).await.expect("asking works");
        assert_eq!(standing.at, self.bench.now().await);
        standing.duties
    }

    /// Asks for the duty `sweep`.
    async fn ask(&self) -> DutyRecord {
        self.ask_all(&["sweep"], EVERY).await.remove(0)
    }

    /// Asks for the duty `sweep`, and is given this term of it.
    async fn begin(&self, term: u64) -> DutyRecord {
        let record = self.ask().await;
        assert!(record.is_held_by(self.id), "{record:#?}");
        assert_eq!(record.term, Term(term));
        record
    }

    /// Declares the duty `sweep` with an interval, for the first time.
    async fn declare(&self, every: Duration) -> DutyRecord {
        let declared = DutyDeclaration { name: name("sweep"), every, is_new: true };
        let claim = self.claim_of(vec![declared]);
        self.bench.store.claim_duties(claim).await.expect("asking works").duties.remove(0)
    }

    fn mandate(&self, term: u64) -> DutyMandate {
        DutyMandate { name: name("sweep"), candidate: self.id, term: Term(term) }
    }

    async fn renew(&self, term: u64) -> bool {
        let renewed = self.bench.store.renew_duties(vec![self.mandate(term)], TTL).await;
        !renewed.expect("renewing works").is_empty()
    }

    async fn end_with(&self, term: u64, outcome: DutyOutcome) -> Option<DutyRecord> {
        let end = DutyEnd { mandate: self.mandate(term), took: seconds(3), outcome };
        let ended = self.bench.store.end_duty(end).await.expect("ending works");
        let (at, record) = ended?;
        assert_eq!(at, self.bench.now().await);
        Some(record)
    }

    async fn end(&self, term: u64) -> Option<DutyRecord> {
        self.end_with(term, DutyOutcome::Succeeded).await
    }
}

async fn all(bench: &Bench<'_>) -> Vec<DutyRecord> {
    bench.store.list_duties().await.expect("reading works")
}

pub(crate) async fn a_duty_that_is_new_is_due_at_once_and_goes_to_the_first_who_asks(
    bench: &Bench<'_>,
) {
    assert_eq!(all(bench).await, []);
    let (first, second) = (Process::new(bench, 1), Process::new(bench, 2));
    let now = bench.now().await;
    let record = first.begin(1).await;
    let holder = DutyHolder {
        candidate: first.id,
        process: "process-1".to_owned(),
        since: now,
        until: Some(now + TTL),
    };
    let expected = DutyRecord {
        term: Term(1),
        holder: Some(holder),
        ..DutyRecord::new(name("sweep"), EVERY, now)
    };
    assert_eq!(record, expected);
    bench.advance(TTL - TICK).await;
    assert_eq!(second.ask().await, expected, "it is told until when another is at it");
    assert_eq!(all(bench).await, [expected]);
    let ended = first.end(1).await.expect("it is its own");
    assert_eq!((ended.next_at, ended.held_until()), (now + EVERY, None));
    assert_eq!((ended.runs, ended.errors, ended.last_run), (1, 0, Some((now, seconds(3)))));
    assert_eq!(second.ask().await, ended, "it is told when the duty is due");
    bench.advance(EVERY - TTL).await;
    assert!(!second.ask().await.is_held_by(second.id), "a microsecond is missing");
    bench.advance(TICK).await;
    assert_eq!(second.begin(2).await.next_at, now + EVERY);
}

pub(crate) async fn a_claim_that_is_repeated_answers_the_same_term(bench: &Bench<'_>) {
    let process = Process::new(bench, 1);
    let first = process.begin(1).await;
    assert_eq!(process.begin(1).await, first);
    bench.advance(seconds(4)).await;
    let again = process.begin(1).await;
    assert_eq!(again.held_until(), Some(bench.now().await + TTL), "it was heard of");
    assert_eq!(again.holder.map(|it| it.since), first.holder.map(|it| it.since));
}

pub(crate) async fn a_lease_that_is_renewed_keeps_its_duty(bench: &Bench<'_>) {
    let (first, second) = (Process::new(bench, 1), Process::new(bench, 2));
    first.begin(1).await;
    for _ in 0..10 {
        bench.advance(TTL - TICK).await;
        assert!(!second.ask().await.is_held_by(second.id));
        assert!(first.renew(1).await);
        assert!(!second.renew(1).await, "it is another's");
    }
    let ended = first.end(1).await.expect("it is its own");
    assert_eq!(ended.term, Term(1));
    assert!(!second.ask().await.is_held_by(second.id), "that time is served");
}

pub(crate) async fn a_process_that_is_lost_is_replaced_and_its_end_is_refused(bench: &Bench<'_>) {
    let (first, second) = (Process::new(bench, 1), Process::new(bench, 2));
    let nominal = bench.now().await;
    first.begin(1).await;
    bench.advance(TTL).await;
    let record = second.begin(2).await;
    assert_eq!(record.next_at, nominal, "it is the same time that is served");
    assert_eq!((record.runs, record.errors), (0, 1));
    let error = record.last_error.as_deref();
    assert_eq!(error, Some("process-1 was lost at it, in term 1"));
    assert!(!first.renew(1).await);
    assert!(!first.renew(2).await, "neither with the term of its successor");
    for outcome in [DutyOutcome::Succeeded, DutyOutcome::GivenUp] {
        assert_eq!(first.end_with(1, outcome.clone()).await, None);
        assert_eq!(first.end_with(2, outcome).await, None);
    }
    assert_eq!(second.end(1).await, None, "nor is it its successor's");
    assert_eq!(all(bench).await, [record]);
    assert!(second.end(2).await.is_some());
    // Also when nobody is at it any more.
    assert_eq!(first.end(1).await, None);
    assert_eq!(first.end(2).await, None);
    assert_eq!(all(bench).await[0].runs, 1);
}

pub(crate) async fn a_late_process_that_nobody_replaced_goes_on(bench: &Bench<'_>) {
    let (first, second) = (Process::new(bench, 1), Process::new(bench, 2));
    first.begin(1).await;
    bench.advance(3 * TTL).await;
    assert!(first.renew(1).await);
    assert!(!second.ask().await.is_held_by(second.id));
    bench.advance(3 * TTL).await;
    assert_eq!(first.end(1).await.map(|it| (it.runs, it.errors)), Some((1, 0)));
}

pub(crate) async fn the_next_time_does_not_drift_however_late_a_duty_ends(bench: &Bench<'_>) {
    let process = Process::new(bench, 1);
    let first = bench.now().await;
    let mut nominal = first;
    for term in 1..6 {
        assert_eq!(process.begin(term).await.next_at, nominal);
        bench.advance(seconds(3) + TICK).await;
        let next = process.end(term).await.expect("it is its own").next_at;
        assert_eq!(next, nominal + EVERY);
        nominal = next;
        // Each is asked for a little later than it is due.
        bench.advance(nominal.since(bench.now().await) + seconds(2)).await;
    }
    assert_eq!(nominal, first + 5 * EVERY);
}

pub(crate) async fn times_that_were_missed_are_served_once(bench: &Bench<'_>) {
    let process = Process::new(bench, 1);
    let first = bench.now().await;
    process.begin(1).await;
    process.end(1).await;
    bench.advance(10 * EVERY + seconds(1)).await;
    assert_eq!(process.begin(2).await.next_at, first + EVERY);
    assert_eq!(process.end(2).await.map(|it| it.next_at), Some(first + 11 * EVERY));
    assert!(!process.ask().await.is_held_by(process.id));
    bench.advance(EVERY - seconds(1)).await;
    process.begin(3).await;
    // One that takes longer than its interval leaves out what comes meanwhile, to the last tick.
    bench.advance(2 * EVERY).await;
    assert_eq!(process.end(3).await.map(|it| it.next_at), Some(first + 14 * EVERY));
}

pub(crate) async fn an_end_that_is_repeated_is_accepted_and_counts_once(bench: &Bench<'_>) {
    let (first, second) = (Process::new(bench, 1), Process::new(bench, 2));
    first.begin(1).await;
    let ended = first.end(1).await;
    bench.advance(EVERY / 2).await;
    assert_eq!(first.end(1).await, ended);
    assert_eq!(first.end_with(1, DutyOutcome::GivenUp).await, ended, "it has ended so");
    bench.advance(EVERY / 2).await;
    assert_eq!(first.end(1).await, ended, "although it is due again");
    let next = second.begin(2).await;
    assert_eq!(first.end(1).await, None);
    assert_eq!(all(bench).await, [next]);
}

pub(crate) async fn an_error_is_written_down_and_the_next_time_comes(bench: &Bench<'_>) {
    let process = Process::new(bench, 1);
    let now = bench.now().await;
    process.begin(1).await;
    let text = format!("disk\0 full\x1b[31m{}", "é".repeat(ERROR_CHARS_MAX));
    let record = process.end_with(1, DutyOutcome::Failed(text)).await.expect("it is its own");
    assert_eq!((record.runs, record.errors, record.next_at), (1, 1, now + EVERY));
    let error = record.last_error.as_deref().unwrap_or_default();
    assert!(error.starts_with("disk full[31méé"), "{error}");
    assert_eq!(error.chars().count(), ERROR_CHARS_MAX);
    bench.advance(EVERY).await;
    process.begin(2).await;
    let record = process.end(2).await.expect("it is its own");
    assert_eq!((record.runs, record.errors), (2, 1));
    assert!(record.last_error.is_some(), "the last error is kept");
}

pub(crate) async fn a_duty_that_is_given_up_is_due_at_once(bench: &Bench<'_>) {
    let (first, second) = (Process::new(bench, 1), Process::new(bench, 2));
    let mut hints = bench.store.leader_hints();
    let nominal = bench.now().await;
    first.begin(1).await;
    bench.advance(seconds(1)).await;
    let record = first.end_with(1, DutyOutcome::GivenUp).await.expect("it is its own");
    assert!(is_hinted(&mut hints).await);
    assert_eq!((record.runs, record.errors, record.next_at), (0, 0, nominal));
    let record = second.begin(2).await;
    assert_eq!((record.next_at, record.errors), (nominal, 0));
    // What comes late takes nothing from its successor.
    assert_eq!(first.end_with(1, DutyOutcome::GivenUp).await, None);
    assert!(second.renew(2).await);
}

pub(crate) async fn the_newest_declaration_of_an_interval_holds(bench: &Bench<'_>) {
    let (old, new) = (Process::new(bench, 1), Process::new(bench, 2));
    let first = bench.now().await;
    old.declare(EVERY).await;
    let every = EVERY / 6;
    assert_eq!(new.declare(every).await.every, every, "also while another is at it");
    assert_eq!(old.end(1).await.map(|it| it.next_at), Some(first + every));
    assert_eq!(old.ask().await.every, every, "who asks again declares nothing anew");
    let declared = new.declare(2 * EVERY).await;
    assert_eq!(declared.next_at, first + every, "what was announced stays");
    let declared = new.declare(EVERY_MIN).await;
    assert_eq!(declared.next_at, first + EVERY_MIN, "what comes sooner comes sooner");
    bench.advance(EVERY_MIN).await;
    new.begin(2).await;
    assert_eq!(new.end(2).await.map(|it| it.next_at), Some(first + 2 * EVERY_MIN));
}

pub(crate) async fn duties_are_apart_and_answered_in_the_order_of_the_request(bench: &Bench<'_>) {
    let (first, second) = (Process::new(bench, 1), Process::new(bench, 2));
    let given = |process: &Process<'_>, records: &[DutyRecord]| {
        let mine = records.iter().filter(|it| it.is_held_by(process.id));
        mine.map(|it| it.name.to_string()).collect::<Vec<_>>()
    };
    let records = first.ask_all(&["sweep", "a"], EVERY).await;
    assert_eq!(given(&first, &records), ["sweep", "a"]);
    let records = second.ask_all(&["z", "sweep", "b", "a"], EVERY).await;
    let names: Vec<String> = records.iter().map(|it| it.name.to_string()).collect();
    assert_eq!(names, ["z", "sweep", "b", "a"]);
    assert_eq!(given(&second, &records), ["z", "b"]);
    let listed: Vec<String> = all(bench).await.iter().map(|it| it.name.to_string()).collect();
    assert_eq!(listed, ["a", "b", "sweep", "z"]);
    let of =
        |text: &str, process: &Process<'_>| DutyMandate { name: name(text), ..process.mandate(1) };
    let mandates = vec![of("z", &second), of("a", &second), of("b", &second)];
    let renewed = bench.store.renew_duties(mandates, TTL).await;
    assert_eq!(renewed, Ok(vec![name("z"), name("b")]));
    assert_eq!(bench.store.renew_duties(Vec::new(), TTL).await, Ok(Vec::new()));
    assert_eq!(first.ask_all(&[], EVERY).await, []);
    first.end(1).await;
    let still = all(bench).await.iter().filter(|it| it.held_until().is_some()).count();
    assert_eq!(still, 3);
}

pub(crate) async fn processes_that_race_for_a_duty_make_one_term(bench: &Bench<'_>) {
    for round in 1..6 {
        let processes: Vec<_> = (0..5).map(|one| Process::new(bench, round * 10 + one)).collect();
        futures_util::future::join_all(processes.iter().map(Process::ask)).await;
        // One that found the row locked was given nothing, so someone asks again.
        processes[0].ask().await;
        let [record] = &all(bench).await[..] else { panic!("there is one duty") };
        let held = processes.iter().filter(|one| record.is_held_by(one.id)).count();
        assert_eq!((held, u128::from(record.term.0)), (1, round), "{record:#?}");
        bench.advance(TTL).await;
    }
}

pub(crate) async fn a_renewal_of_a_term_that_ended_gives_nothing_back(bench: &Bench<'_>) {
    let process = Process::new(bench, 1);
    process.begin(1).await;
    let ended = process.end(1).await.expect("it is its own");
    assert!(!process.renew(1).await);
    assert_eq!(all(bench).await, [ended]);
}

pub(crate) async fn a_renewal_of_an_earlier_term_renews_nothing(bench: &Bench<'_>) {
    let process = Process::new(bench, 1);
    process.begin(1).await;
    process.end(1).await.expect("it is its own");
    bench.advance(EVERY).await;
    let begun = process.begin(2).await;
    bench.advance(seconds(1)).await;
    assert!(!process.renew(1).await);
    assert_eq!(all(bench).await, [begun]);
    assert!(process.renew(2).await);
}

pub(crate) async fn a_duty_is_forgotten_if_nobody_is_at_it(bench: &Bench<'_>) {
    let process = Process::new(bench, 1);
    assert_eq!(bench.store.forget_duty(name("sweep")).await, Ok(false));
    process.begin(1).await;
    let refused = bench.store.forget_duty(name("sweep")).await;
    let text = "process-1 is at the duty \"sweep\"".to_owned();
    assert_eq!(refused, Err(StoreError::Conflict(text)));
    process.end(1).await;
    assert_eq!(bench.store.forget_duty(name("sweep")).await, Ok(true));
    assert_eq!(process.end(1).await, None);
    assert!(!process.renew(1).await);
    assert_eq!(all(bench).await, []);
    assert_eq!(process.begin(1).await.next_at, bench.now().await, "it is new");
    bench.advance(TTL).await;
    assert_eq!(bench.store.forget_duty(name("sweep")).await, Ok(true), "its process was lost");
}

pub(crate) async fn duties_that_make_no_sense_are_refused(bench: &Bench<'_>) {
    let process = Process::new(bench, 1);
    let of = |number: usize, every| DutyDeclaration {
        name: name(&format!("duty-{number}")),
        every,
        is_new: true,
    };
    let refusal = async |duties| {
        let answer = bench.store.claim_duties(process.claim_of(duties)).await;
        let Err(StoreError::Conflict(text)) = answer else { panic!("{answer:?}") };
        text
    };
    let text = refusal(vec![of(0, EVERY), of(1, EVERY_MIN - TICK)]).await;
    assert_eq!(text, "duty \"duty-1\": every 999.999ms, the least is 1s");
    let text = refusal(vec![of(1, SETTING_MAX + TICK)]).await;
    assert!(text.starts_with("duty \"duty-1\": every 315360000.000001s"), "{text}");
    let many = (0..=PROCESS_DUTIES_MAX).map(|number| of(number, EVERY)).collect();
    assert_eq!(refusal(many).await, "\"process-1\" has 101 duties, the limit is 100");
    assert_eq!(all(bench).await, [], "nothing was made known");
    let most: Vec<_> = (0..PROCESS_DUTIES_MAX).map(|number| of(number, EVERY)).collect();
    let standing = bench.store.claim_duties(process.claim_of(most)).await.expect("it is allowed");
    assert!(standing.duties.iter().all(|it| it.is_held_by(process.id)));
    let extremes = vec![of(200, EVERY_MIN), of(201, SETTING_MAX)];
    assert!(bench.store.claim_duties(process.claim_of(extremes)).await.is_ok());
    let end = |number: usize| DutyEnd {
        mandate: DutyMandate { name: of(number, EVERY).name, ..process.mandate(1) },
        took: SETTING_MAX,
        outcome: DutyOutcome::Succeeded,
    };
    let ended = bench.store.end_duty(end(201)).await.expect("ending works");
    let next_at: Option<Timestamp> = ended.map(|(_, record)| record.next_at);
    assert_eq!(next_at, Some(bench.now().await + SETTING_MAX));
}

pub(crate) async fn a_store_has_so_many_duties(bench: &Bench<'_>) {
    let process = Process::new(bench, 1);
    let names: Vec<String> = (0..DUTIES_MAX).map(|number| format!("duty-{number}")).collect();
    for some in names.chunks(PROCESS_DUTIES_MAX) {
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        process.ask_all(&some, EVERY).await;
    }
    let declared = DutyDeclaration { name: name("sweep"), every: EVERY, is_new: true };
    let answer = bench.store.claim_duties(process.claim_of(vec![declared])).await;
    let text = "duty \"sweep\" is one more than the 1000 that a store may have".to_owned();
    assert_eq!(answer.err(), Some(StoreError::Conflict(text)));
    assert!(process.ask_all(&["duty-7"], EVERY).await[0].is_held_by(process.id));
    assert_eq!(all(bench).await.len(), DUTIES_MAX);
}
