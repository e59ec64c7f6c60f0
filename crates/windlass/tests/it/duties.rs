//! Duties of programs: what is done once in a while, by one process at a time.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use windlass::store::{DutyRecord, PROCESS_DUTIES_MAX};
use windlass::testing::{Process, TestEngine};
use windlass::{
    Ctx, DutyCtx, DutyOptions, ErrorKind, TaskError, Timestamp, Windlass, WorkerBuilder,
    WorkerHandle, Workflow,
};

const HOUR: Duration = Duration::from_secs(3_600);
const TTL: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_secs(20);

/// A worker needs a workflow; it has nothing to do here.
fn idle() -> Workflow<()> {
    let mut idle = Workflow::<()>::builder("idle");
    idle.task("never").run(async |_: Ctx<()>| Ok::<_, TaskError>(()));
    idle.build().unwrap()
}

fn worker(windlass: &Windlass, name: &str) -> WorkerBuilder {
    let worker = windlass.worker().register(&idle()).name(name).duties(None);
    worker.leader_ttl(TTL).grace(GRACE)
}

async fn record(windlass: &Windlass) -> DutyRecord {
    let [record] = windlass.program_duties().await.unwrap().try_into().unwrap();
    record
}

/// What handlers say of themselves, with when.
#[derive(Clone)]
struct Diary(mpsc::UnboundedSender<(String, Instant)>);

impl Diary {
    fn new() -> (Self, mpsc::UnboundedReceiver<(String, Instant)>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Diary(sender), receiver)
    }

    fn note(&self, text: impl Into<String>) {
        let _ = self.0.send((text.into(), Instant::now()));
    }
}

/// Notes when a handler is dropped before its end.
struct Note(Diary, &'static str);

impl Drop for Note {
    fn drop(&mut self) {
        self.0.note(self.1);
    }
}

#[tokio::test]
async fn a_duty_is_done_at_once_and_then_once_per_interval_whoever_does_it() {
    let times: Arc<Mutex<Vec<(Timestamp, u64)>>> = Arc::default();
    let noted = Arc::clone(&times);
    let test = TestEngine::new().workers(5).duty("sweep", HOUR, move |ctx: DutyCtx| {
        noted.lock().unwrap().push((ctx.nominal(), ctx.term().0));
        async { Ok::<_, TaskError>(()) }
    });
    let begin = test.now();
    test.run_until_idle().await;
    assert_eq!(*times.lock().unwrap(), [(begin, 1)]);
    test.advance(24 * HOUR - Duration::from_millis(1)).await;
    assert_eq!(times.lock().unwrap().len(), 24);
    test.advance(Duration::from_millis(1)).await;
    let wanted: Vec<_> = (0..25).map(|hour| (begin + HOUR * hour, u64::from(hour) + 1)).collect();
    assert_eq!(*times.lock().unwrap(), wanted);
    let record = record(test.windlass()).await;
    assert_eq!((record.runs, record.errors, record.every), (25, 0, HOUR));
}

#[tokio::test]
async fn a_duty_can_start_runs() {
    let idle = idle();
    let started = idle.clone();
    let test = TestEngine::new().register(&idle).duty("start", HOUR, move |ctx: DutyCtx| {
        let started = started.clone();
        async move { ctx.windlass().start(&started, ()).await.map(drop) }
    });
    test.advance(2 * HOUR).await;
    let runs = test.windlass().list(Default::default()).await.unwrap().runs;
    assert_eq!(runs.len(), 3);
    assert!(runs.iter().all(|run| run.state.is_final()), "{runs:#?}");
}

#[tokio::test]
async fn an_error_and_a_panic_are_written_down_and_the_next_time_comes() {
    let calls = AtomicUsize::new(0);
    let test = TestEngine::new().duty("sweep", HOUR, move |_| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        async move {
            match call {
                0 => Err(TaskError::new("the disk is full")),
                1 => panic!("out of cheese"),
                _ => Ok(()),
            }
        }
    });
    test.run_until_idle().await;
    let first = record(test.windlass()).await;
    assert_eq!((first.runs, first.errors), (1, 1));
    assert_eq!(first.last_error.as_deref(), Some("the disk is full"));
    test.advance(HOUR).await;
    let second = record(test.windlass()).await;
    assert_eq!((second.runs, second.errors), (2, 2));
    assert_eq!(second.last_error.as_deref(), Some("panicked: out of cheese"));
    test.advance(HOUR).await;
    let third = record(test.windlass()).await;
    assert_eq!((third.runs, third.errors, third.next_at), (3, 2, first.next_at + 2 * HOUR));
}

/// A worker in a process of its own whose handler takes a time.
fn slow_worker(
    windlass: &Windlass,
    (name, process): (&'static str, &Process),
    diary: &Diary,
    takes: Duration,
) -> WorkerHandle {
    let diary = diary.clone();
    let worker = worker(windlass, name).duty("sweep", HOUR, move |_| {
        let diary = diary.clone();
        async move {
            diary.note(format!("{name} begins"));
            let dropped = Note(diary.clone(), name);
            sleep(takes).await;
            std::mem::forget(dropped);
            diary.note(format!("{name} ends"));
            Ok::<_, TaskError>(())
        }
    });
    worker.in_process(process).spawn().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_longer_than_its_lease_keeps_its_duty() {
    let windlass = Windlass::memory();
    let (diary, mut notes) = Diary::new();
    let (one, two) = (Process::new(), Process::new());
    slow_worker(&windlass, ("one", &one), &diary, 2 * HOUR);
    assert_eq!(notes.recv().await.unwrap().0, "one begins");
    slow_worker(&windlass, ("two", &two), &diary, 2 * HOUR);
    let (ends, at) = notes.recv().await.unwrap();
    assert_eq!(ends, "one ends");
    // The times that passed meanwhile are not made up for.
    let (begins, again_at) = notes.recv().await.unwrap();
    assert!(begins.ends_with(" begins"), "{begins}");
    let pause = again_at - at;
    assert!(pause > HOUR - TTL && pause < HOUR + TTL, "{pause:?}");
    assert_eq!(record(&windlass).await.errors, 0);
}

#[tokio::test(start_paused = true)]
async fn a_duty_whose_process_died_is_begun_anew_when_its_lease_is_over() {
    let windlass = Windlass::memory();
    let (diary, mut notes) = Diary::new();
    let (one, two) = (Process::new(), Process::new());
    slow_worker(&windlass, ("one", &one), &diary, 3 * TTL);
    assert_eq!(notes.recv().await.unwrap().0, "one begins");
    slow_worker(&windlass, ("two", &two), &diary, 3 * TTL);
    sleep(TTL).await;
    one.kill();
    let (dropped, died_at) = notes.recv().await.unwrap();
    assert_eq!(dropped, "one");
    let (begins, at) = notes.recv().await.unwrap();
    assert_eq!(begins, "two begins");
    assert!(at - died_at <= TTL + Duration::from_secs(1), "{:?}", at - died_at);
    assert_eq!(notes.recv().await.unwrap().0, "two ends");
    sleep(Duration::from_millis(1)).await;
    let record = record(&windlass).await;
    assert_eq!((record.term.0, record.runs, record.errors), (2, 1, 1));
    assert_eq!(record.last_error.as_deref(), Some("one was lost at it, in term 1"));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_frozen_does_not_go_on_beside_its_successor() {
    let windlass = Windlass::memory();
    let (diary, mut notes) = Diary::new();
    let (one, two) = (Process::new(), Process::new());
    slow_worker(&windlass, ("one", &one), &diary, 4 * TTL);
    assert_eq!(notes.recv().await.unwrap().0, "one begins");
    slow_worker(&windlass, ("two", &two), &diary, 4 * TTL);
    sleep(TTL).await;
    one.freeze();
    assert_eq!(notes.recv().await.unwrap().0, "two begins");
    // The handler would be over by now.
    sleep(3 * TTL).await;
    one.thaw();
    assert_eq!(notes.recv().await.unwrap().0, "one", "it is dropped before it goes on");
    assert_eq!(notes.recv().await.unwrap().0, "two ends");
    sleep(TTL).await;
    assert!(notes.try_recv().is_err());
    assert_eq!(record(&windlass).await.runs, 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_tells_the_handler_and_leaves_its_duty_to_another_at_once() {
    let windlass = Windlass::memory();
    let (diary, mut notes) = Diary::new();
    let told = diary.clone();
    let one = worker(&windlass, "one").duty("sweep", HOUR, move |ctx: DutyCtx| {
        let told = told.clone();
        async move {
            told.note("one begins");
            ctx.cancelled().await;
            assert!(ctx.is_cancelled());
            Err::<(), _>(TaskError::new("it was told to end"))
        }
    });
    let one = one.spawn().unwrap();
    assert_eq!(notes.recv().await.unwrap().0, "one begins");
    slow_worker(&windlass, ("two", &Process::new()), &diary, TTL);
    sleep(TTL / 2).await;
    let began = Instant::now();
    one.drain().await.unwrap();
    let (begins, at) = notes.recv().await.unwrap();
    assert_eq!(begins, "two begins");
    assert!(at - began < Duration::from_secs(1), "{:?}", at - began);
    assert!(began.elapsed() < Duration::from_secs(1), "the drain took {:?}", began.elapsed());
    let record = record(&windlass).await;
    assert_eq!((record.term.0, record.runs, record.errors), (2, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_a_handler_that_does_not_end_no_longer_than_its_grace() {
    let windlass = Windlass::memory();
    let (diary, mut notes) = Diary::new();
    let one = slow_worker(&windlass, ("one", &Process::new()), &diary, HOUR);
    let (_, began) = notes.recv().await.unwrap();
    slow_worker(&windlass, ("two", &Process::new()), &diary, TTL);
    sleep(TTL / 2).await;
    one.drain().await.unwrap();
    let took = began.elapsed();
    assert!(took <= TTL / 2 + GRACE && took > GRACE, "{took:?}");
    let (dropped, dropped_at) = notes.recv().await.unwrap();
    assert_eq!(dropped, "one");
    let (begins, at) = notes.recv().await.unwrap();
    assert_eq!(begins, "two begins");
    assert!(at - dropped_at < Duration::from_secs(1), "{:?}", at - dropped_at);
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_a_handler_end_that_is_about_to() {
    let windlass = Windlass::memory();
    let (diary, mut notes) = Diary::new();
    let one = slow_worker(&windlass, ("one", &Process::new()), &diary, TTL);
    assert_eq!(notes.recv().await.unwrap().0, "one begins");
    one.drain().await.unwrap();
    let (ends, at) = notes.recv().await.unwrap();
    assert_eq!((ends.as_str(), at.elapsed() < Duration::from_secs(1)), ("one ends", true));
    let record = record(&windlass).await;
    assert_eq!((record.runs, record.errors, record.held_until()), (1, 0, None));
}

#[tokio::test(start_paused = true)]
async fn a_duty_outlives_the_processes_that_declare_it() {
    let windlass = Windlass::memory();
    let (diary, mut notes) = Diary::new();
    let one = slow_worker(&windlass, ("one", &Process::new()), &diary, Duration::ZERO);
    let (_, began) = notes.recv().await.unwrap();
    assert_eq!(notes.recv().await.unwrap().0, "one ends");
    sleep(HOUR / 2).await;
    one.drain().await.unwrap();
    slow_worker(&windlass, ("two", &Process::new()), &diary, Duration::ZERO);
    let (begins, at) = notes.recv().await.unwrap();
    assert_eq!(begins, "two begins");
    let pause = at - began;
    assert!(pause >= HOUR && pause < HOUR + Duration::from_secs(1), "a restart is no beginning");
}

#[tokio::test]
async fn duties_that_make_no_sense_are_refused_by_name() {
    let windlass = Windlass::memory();
    let done = async |_: DutyCtx| Ok::<_, TaskError>(());
    let refusal = |options: DutyOptions| {
        let error = windlass.duties(options).expect_err("it makes no sense");
        assert_eq!(error.kind(), ErrorKind::Argument);
        error.to_string()
    };
    let options = DutyOptions::default;
    let second = Duration::from_secs(1);
    let text = refusal(options().duty("a", second, done).duty("a", HOUR, done));
    assert!(text.contains("duty \"a\" is declared twice"), "{text}");
    let text = refusal(options().duty("b", second - Duration::from_micros(1), done));
    assert!(text.contains("duty \"b\": every 999.999ms, the least is 1s"), "{text}");
    let text = refusal(options().duty("", HOUR, done));
    assert!(text.contains("name of a duty is empty"), "{text}");
    let text = refusal(options().grace(Duration::MAX));
    assert!(text.contains("grace of duties is"), "{text}");
    let many = (0..=PROCESS_DUTIES_MAX).map(|number| format!("duty-{number}"));
    let text = refusal(many.fold(options(), |options, name| options.duty(name, HOUR, done)));
    assert!(text.contains("a process has 101 duties, the limit is 100"), "{text}");
    let error = worker(&windlass, "w").duty("c", Duration::ZERO, done).spawn();
    let text = error.expect_err("it makes no sense").to_string();
    assert!(text.contains("duty \"c\": every 0ns, the least is 1s"), "{text}");
    assert_eq!(windlass.program_duties().await.unwrap(), []);
    assert!(!windlass.forget_duty("a").await.unwrap());
}
