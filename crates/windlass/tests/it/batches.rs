//! Handlers that are called once for many messages.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use windlass::testing::{Process, TestEngine, crash_everywhere};
use windlass::{
    Ctx, Error, ErrorKind, RetryPolicy, RunHandle, RunState, Task, TaskError, TaskState, Windlass,
    Workflow,
};

const SECOND: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_millis(500);

/// The inputs of each call, sorted.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<Vec<u32>>>>);

impl Calls {
    fn note(&self, messages: &[Ctx<u32>]) {
        let mut inputs: Vec<u32> = messages.iter().map(|message| *message.input()).collect();
        // In which order they come is not said.
        inputs.sort_unstable();
        self.0.lock().expect("no handler panics with it").push(inputs);
    }

    fn all(&self) -> Vec<Vec<u32>> {
        self.0.lock().expect("no handler panics with it").clone()
    }

    fn sizes(&self) -> Vec<usize> {
        self.all().iter().map(Vec::len).collect()
    }
}

/// A workflow whose only task is called for up to `size` messages.
fn batched<F, Fut>(size: usize, attempts: u32, handler: F) -> (Workflow<u32>, Task<u32>)
where
    F: Fn(Vec<Ctx<u32>>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Vec<Result<u32, TaskError>>> + Send + 'static,
{
    let mut builder = Workflow::<u32>::builder("batched");
    let retry = RetryPolicy::fixed(SECOND).attempts(attempts);
    let task = builder.task("work").retry(retry).timeout(5 * SECOND).batch(size, WAIT).run(handler);
    (builder.build().expect("the workflow is valid"), task)
}

/// One whose handler notes its calls and doubles its inputs.
fn doubling(size: usize, calls: &Calls) -> (Workflow<u32>, Task<u32>) {
    let calls = calls.clone();
    batched(size, 2, move |messages| {
        let calls = calls.clone();
        async move {
            calls.note(&messages);
            messages.iter().map(|message| Ok(message.input() * 2)).collect()
        }
    })
}

async fn start(test: &TestEngine, workflow: &Workflow<u32>, inputs: &[u32]) -> Vec<RunHandle> {
    let mut runs = Vec::new();
    for input in inputs {
        runs.push(test.start(workflow, *input).await.expect("it starts"));
    }
    runs
}

async fn state(run: &RunHandle) -> RunState {
    run.get().await.expect("memory answers").state
}

async fn failure(run: &RunHandle) -> String {
    let task = run.tasks().await.expect("memory answers").remove(0);
    task.failure.expect("it failed").to_string()
}

async fn attempt(run: &RunHandle) -> u32 {
    run.tasks().await.expect("memory answers")[0].attempt
}

#[tokio::test]
async fn a_full_batch_is_one_call_at_once_and_each_has_its_own_output() {
    let calls = Calls::default();
    let (workflow, task) = doubling(3, &calls);
    let test = TestEngine::new().register(&workflow);
    let runs = start(&test, &workflow, &[1, 2, 3]).await;
    let began = test.now();
    test.run_until_idle().await;
    assert_eq!(calls.all(), [[1, 2, 3]]);
    assert_eq!(test.now(), began, "nobody waited");
    for (run, output) in runs.iter().zip([2, 4, 6]) {
        assert_eq!(run.output(&task).await.expect("it succeeded"), output);
    }
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn few_messages_are_called_when_the_oldest_has_waited_long_enough() {
    let calls = Calls::default();
    let (workflow, _) = doubling(3, &calls);
    let test = TestEngine::new().register(&workflow);
    start(&test, &workflow, &[1]).await;
    test.pass(WAIT * 3 / 5).await;
    start(&test, &workflow, &[2]).await;
    test.pass(WAIT * 3 / 10).await;
    assert!(calls.all().is_empty());
    test.pass(WAIT / 5).await;
    assert_eq!(calls.all(), [[1, 2]], "the wait is that of the oldest");
    test.run_until_idle().await;
    // The next one begins a batch of its own.
    let began = test.now();
    start(&test, &workflow, &[3]).await;
    test.run_until_idle().await;
    assert_eq!(calls.all()[1..], [[3]]);
    let waited = test.now().since(began);
    assert!((WAIT..WAIT + SECOND).contains(&waited), "{waited:?}");
}

#[tokio::test]
async fn no_batch_is_larger_than_it_may_be_and_the_rest_follows() {
    let calls = Calls::default();
    let (workflow, _) = doubling(4, &calls);
    let test = TestEngine::new().slots(20).register(&workflow);
    let inputs: Vec<u32> = (0..10).collect();
    start(&test, &workflow, &inputs).await;
    test.run_until_ended().await;
    assert_eq!(calls.sizes(), [4, 4, 2]);
    let mut seen = calls.all().concat();
    seen.sort_unstable();
    assert_eq!(seen, inputs, "each once");
}

#[tokio::test]
async fn each_message_takes_a_slot_while_it_is_gathered() {
    let calls = Calls::default();
    let (workflow, _) = doubling(4, &calls);
    let test = TestEngine::new().slots(3).register(&workflow);
    let runs = start(&test, &workflow, &[1, 2, 3, 4]).await;
    test.pass(WAIT / 2).await;
    let mut running = 0;
    for run in &runs {
        let state = run.tasks().await.expect("memory answers")[0].state;
        running += u32::from(state == TaskState::Running);
    }
    assert_eq!(running, 3, "no more than slots");
    test.run_until_ended().await;
    assert_eq!(calls.sizes(), [3, 1]);
}

#[tokio::test]
async fn each_message_has_its_own_outcome() {
    let (workflow, task) = batched(4, 2, async |messages| {
        let outcome = |message: &Ctx<u32>| match (message.input(), message.attempt()) {
            (1, _) => Err(TaskError::new("never").permanent()),
            (2, 1) => Err(TaskError::new("not yet")),
            (3, _) if message.fence().0 == 1 => Err(TaskError::hand_back()),
            (input, _) => Ok(*input),
        };
        messages.iter().map(outcome).collect()
    });
    let test = TestEngine::new().register(&workflow);
    let runs = start(&test, &workflow, &[1, 2, 3, 4]).await;
    test.run_until_ended().await;
    assert_eq!(state(&runs[0]).await, RunState::Failed);
    assert_eq!(failure(&runs[0]).await, "error: never");
    for (run, tries) in [(1, 2), (2, 1), (3, 1)] {
        assert_eq!(attempt(&runs[run]).await, tries, "run {run}");
        let output = runs[run].output(&task).await.expect("it succeeded");
        assert_eq!(output, u32::try_from(run).expect("few") + 1);
    }
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_missing_outcome_or_a_panic_fails_the_attempt_of_each() {
    let (workflow, _) = batched(3, 3, async |mut messages| {
        let attempt = messages[0].attempt();
        match attempt {
            1 => drop(messages.pop()),
            2 => panic!("attempt {attempt} is unlucky"),
            _ => {}
        }
        messages.iter().map(|message| Ok(*message.input())).collect()
    });
    let test = TestEngine::new().register(&workflow);
    let runs = start(&test, &workflow, &[1, 2, 3]).await;
    test.run_until_idle().await;
    for run in &runs {
        let text = "error: the handler gave 2 outcomes for a batch of 3 messages";
        assert_eq!(failure(run).await, text);
    }
    test.advance(SECOND).await;
    for run in &runs {
        assert_eq!(failure(run).await, "panic: attempt 2 is unlucky");
    }
    test.run_until_ended().await;
    for run in &runs {
        assert_eq!((state(run).await, attempt(run).await), (RunState::Succeeded, 3));
    }
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn what_cannot_be_read_or_is_not_to_run_is_not_in_the_batch() {
    let calls = Calls::default();
    let noted = calls.clone();
    let mut builder = Workflow::<u32>::builder("batched");
    let task = builder.task("work").when(|ctx| *ctx.input() != 7);
    task.batch(2, WAIT).run(move |messages: Vec<Ctx<u32>>| {
        noted.note(&messages);
        async move { messages.iter().map(|_| Ok::<_, TaskError>(())).collect() }
    });
    let workflow = builder.build().expect("the workflow is valid");
    let mut text = Workflow::<String>::builder("batched");
    text.task("work").run(async |_| Ok::<_, TaskError>(()));
    let text = text.build().expect("the workflow is valid");
    let test = TestEngine::new().register(&workflow);
    let wrong = test.start(&text, "seven".to_owned()).await.expect("it starts");
    let runs = start(&test, &workflow, &[7, 8, 9]).await;
    test.run_until_idle().await;
    assert!(failure(&wrong).await.contains("input of task \"work\""));
    assert_eq!(runs[0].tasks().await.unwrap()[0].state, TaskState::Skipped);
    assert_eq!(calls.all(), [[8, 9]]);
}

/// A handler that tells when it is called, and waits until it may go on.
fn pausing(size: usize, pause: &Arc<(Notify, Notify)>) -> (Workflow<u32>, Task<u32>) {
    let pause = Arc::clone(pause);
    batched(size, 3, move |messages| {
        let pause = Arc::clone(&pause);
        async move {
            if messages.iter().all(|message| message.attempt() == 1) {
                pause.0.notify_one();
                pause.1.notified().await;
            }
            let seen = |message: &Ctx<u32>| u32::from(message.is_cancelled());
            messages.iter().map(|message| Ok(seen(message))).collect()
        }
    })
}

#[tokio::test]
async fn a_message_that_is_cancelled_says_so_and_the_call_goes_on_for_the_others() {
    let pause = Arc::<(Notify, Notify)>::default();
    let (workflow, task) = pausing(3, &pause);
    let test = TestEngine::new().register(&workflow);
    let runs = start(&test, &workflow, &[1, 2, 3]).await;
    test.pass(Duration::ZERO).await;
    pause.0.notified().await;
    // The first in the batch, which polled the call first.
    runs[0].cancel("not wanted").await.expect("it can be cancelled");
    test.pass(20 * SECOND).await;
    // Its timeout has passed for all of them meanwhile: the call is dropped.
    assert_eq!(state(&runs[0]).await, RunState::Cancelled);
    test.run_until_ended().await;
    for run in &runs[1..] {
        assert_eq!(attempt(run).await, 2, "the first one was late");
        assert_eq!(run.output(&task).await.expect("it succeeded"), 0);
    }
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn the_call_outlives_whoever_leaves_it() {
    let gone = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&gone);
    let pause = Arc::<(Notify, Notify)>::default();
    let paused = Arc::clone(&pause);
    let mut builder = Workflow::<u32>::builder("batched");
    let task = builder.task("work").batch(2, WAIT).run(move |messages: Vec<Ctx<u32>>| {
        let (seen, paused) = (Arc::clone(&seen), Arc::clone(&paused));
        async move {
            paused.0.notify_one();
            paused.1.notified().await;
            let is_gone = |message: &&Ctx<u32>| message.is_cancelled();
            let gone: Vec<u32> = messages.iter().filter(is_gone).map(|it| *it.input()).collect();
            seen.lock().expect("nobody panics with it").push(gone);
            messages.iter().map(|message| Ok::<_, TaskError>(*message.input())).collect()
        }
    });
    let workflow = builder.build().expect("the workflow is valid");
    let test = TestEngine::new().register(&workflow);
    let runs = start(&test, &workflow, &[1, 2]).await;
    test.pass(Duration::ZERO).await;
    pause.0.notified().await;
    runs[0].cancel("not wanted").await.expect("it can be cancelled");
    // The worker hears of it, and drops the attempt after its time to clean up.
    test.pass(30 * SECOND).await;
    pause.1.notify_one();
    test.run_until_ended().await;
    assert_eq!(*gone.lock().expect("nobody panics with it"), [[1]], "called once");
    assert_eq!(state(&runs[0]).await, RunState::Cancelled);
    assert_eq!(runs[1].output(&task).await.expect("it succeeded"), 2);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_message_that_is_cancelled_while_it_is_gathered_leaves_the_batch() {
    let calls = Calls::default();
    let mut builder = Workflow::<u32>::builder("batched");
    let noted = calls.clone();
    // Long enough for the worker to hear of it before the batch is due.
    builder.task("work").batch(2, 60 * SECOND).run(move |messages: Vec<Ctx<u32>>| {
        noted.note(&messages);
        async move { messages.iter().map(|_| Ok::<_, TaskError>(())).collect() }
    });
    let workflow = builder.build().expect("the workflow is valid");
    let test = TestEngine::new().register(&workflow);
    let runs = start(&test, &workflow, &[1]).await;
    test.pass(SECOND).await;
    runs[0].cancel("not wanted").await.expect("it can be cancelled");
    test.pass(20 * SECOND).await;
    start(&test, &workflow, &[2, 3]).await;
    test.run_until_ended().await;
    assert_eq!(calls.all(), [[2, 3]]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn the_timeout_begins_with_the_call() {
    let mut builder = Workflow::<u32>::builder("batched");
    let task = builder.task("work").timeout(2 * SECOND).heartbeat_timeout(2 * SECOND);
    task.retry(RetryPolicy::none()).batch(2, 10 * SECOND).run(async |messages: Vec<Ctx<u32>>| {
        tokio::time::sleep(SECOND).await;
        let slow = messages.iter().any(|message| *message.input() == 2);
        if slow {
            tokio::time::sleep(2 * SECOND).await;
        }
        messages.iter().map(|_| Ok::<_, TaskError>(())).collect()
    });
    let workflow = builder.build().expect("the workflow is valid");
    let test = TestEngine::new().register(&workflow);
    let began = test.now();
    let [quick] = &start(&test, &workflow, &[1]).await[..] else { panic!("one") };
    test.run_until_ended().await;
    assert_eq!(state(quick).await, RunState::Succeeded);
    assert_eq!(test.now().since(began).as_secs(), 11);
    let [slow] = &start(&test, &workflow, &[2]).await[..] else { panic!("one") };
    test.run_until_ended().await;
    assert_eq!(state(slow).await, RunState::Failed);
    assert!(failure(slow).await.starts_with("timeout: "), "{}", failure(slow).await);
}

/// Waits until the task of a run is in a state, on a clock that is paused.
async fn until(run: &RunHandle, wanted: TaskState) {
    for _ in 0..1_000 {
        if run.tasks().await.expect("memory answers")[0].state == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not become {wanted}: {:?}", run.tasks().await);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_drains_hands_back_what_it_gathered_and_ends_what_it_called() {
    let pause = Arc::<(Notify, Notify)>::default();
    let (workflow, task) = pausing(2, &pause);
    let windlass = Windlass::memory();
    let worker = windlass.worker().register(&workflow).spawn().expect("it starts");
    let mut runs = Vec::new();
    for input in [1, 2] {
        runs.push(windlass.start(&workflow, input).await.expect("it starts"));
    }
    pause.0.notified().await;
    runs.push(windlass.start(&workflow, 3).await.expect("it starts"));
    until(&runs[2], TaskState::Running).await;
    let drained = tokio::spawn(worker.drain());
    until(&runs[2], TaskState::Ready).await;
    assert_eq!(attempt(&runs[2]).await, 0, "it costs no attempt");
    assert_eq!(runs[0].tasks().await.unwrap()[0].state, TaskState::Running);
    pause.1.notify_one();
    drained.await.expect("no panic").expect("it drains");
    for run in &runs[..2] {
        assert_eq!(run.output(&task).await.expect("it succeeded"), 0);
    }
    assert_eq!(state(&runs[2]).await, RunState::Running);
}

#[tokio::test]
async fn workers_of_one_process_do_not_share_a_batch() {
    let calls = Calls::default();
    let (workflow, _) = doubling(4, &calls);
    let test = TestEngine::new().workers(2).slots(2).register(&workflow);
    start(&test, &workflow, &[1, 2, 3, 4]).await;
    test.run_until_ended().await;
    assert_eq!(calls.sizes(), [2, 2]);
}

#[tokio::test]
async fn messages_of_a_worker_that_died_come_again() {
    let calls = Calls::default();
    let (workflow, task) = doubling(3, &calls);
    let test = TestEngine::new().register(&workflow);
    let runs = start(&test, &workflow, &[1, 2, 3]).await;
    test.crash_worker_during("work").await;
    test.run_until_ended().await;
    for (run, output) in runs.iter().zip([2, 4, 6]) {
        assert_eq!(run.output(&task).await.expect("it succeeded"), output);
        assert_eq!(attempt(run).await, 2);
    }
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_worker_that_was_frozen_in_a_call_is_refused_for_each_message() {
    let calls = Calls::default();
    let (workflow, _) = doubling(2, &calls);
    let test = TestEngine::new().register(&workflow);
    let runs = start(&test, &workflow, &[1, 2]).await;
    test.freeze_worker_at(windlass::testing::Point::BeforeCommit, "work", 60 * SECOND).await;
    test.run_until_ended().await;
    for run in &runs {
        assert_eq!(state(run).await, RunState::Succeeded);
    }
    test.pass(120 * SECOND).await;
    assert!(!test.refused().is_empty());
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_batch_of_one_ends_the_same_wherever_its_worker_dies() {
    let (workflow, _) = doubling(10, &Calls::default());
    let report = crash_everywhere(&workflow, 21).await;
    assert_eq!(report.state(), RunState::Succeeded);
}

#[tokio::test]
async fn a_process_that_dies_takes_no_other_with_it() {
    let calls = Calls::default();
    let (workflow, task) = doubling(2, &calls);
    for polls in 1..40 {
        let test = TestEngine::new().register(&workflow);
        let mortal = Process::new();
        mortal.die_after_polls(polls);
        let worker = test.windlass().worker().register(&workflow).in_process(&mortal);
        let _worker = worker.lease(SECOND * 5).spawn().expect("it starts");
        let runs = start(&test, &workflow, &[1, 2]).await;
        test.run_until_ended().await;
        for (run, output) in runs.iter().zip([2, 4]) {
            assert_eq!(run.output(&task).await.expect("it succeeded"), output, "{polls} polls");
        }
        test.assert_promises_kept().await;
    }
}

#[tokio::test]
async fn a_batch_reads_what_its_messages_read() {
    let mut builder = Workflow::<u32>::builder("batched");
    let first =
        builder.task("first").run(async |ctx: Ctx<u32>| Ok::<_, TaskError>(ctx.input() + 1));
    let sum = builder.task("sum").reads(&first).batch(2, WAIT).run(
        async |messages: Vec<(Ctx<u32>, u32)>| {
            let sum = |(ctx, first): &(Ctx<u32>, u32)| Ok::<_, TaskError>(ctx.input() + first);
            messages.iter().map(sum).collect()
        },
    );
    let workflow = builder.build().expect("the workflow is valid");
    let test = TestEngine::new().register(&workflow);
    let runs = start(&test, &workflow, &[1, 5]).await;
    test.run_until_ended().await;
    for (run, output) in runs.iter().zip([3, 11]) {
        assert_eq!(run.output(&sum).await.expect("it succeeded"), output);
    }
}

#[tokio::test]
async fn a_batch_handler_has_no_steps() {
    let (workflow, _) = batched(1, 1, async |messages| {
        let step = messages[0].step("once", async || Ok::<_, TaskError>(1_u32));
        vec![step.await]
    });
    let test = TestEngine::new().register(&workflow);
    let runs = start(&test, &workflow, &[1]).await;
    test.run_until_ended().await;
    let text = failure(&runs[0]).await;
    assert!(text.contains("step \"once\" is called by a batch handler"), "{text}");
}

#[tokio::test]
async fn a_batch_has_limits() {
    let build = |size: usize, wait: Duration| -> Result<Workflow<u32>, Error> {
        let mut builder = Workflow::<u32>::builder("batched");
        builder.task("work").batch(size, wait).run(async |messages: Vec<Ctx<u32>>| {
            messages.iter().map(|_| Ok::<_, TaskError>(())).collect()
        });
        builder.build()
    };
    let hour = 3_600 * SECOND;
    assert!(build(1, Duration::ZERO).is_ok() && build(10_000, hour).is_ok());
    for (size, wait, text) in [
        (0, WAIT, "has batches of 0, not within 1 to 10000"),
        (10_001, WAIT, "has batches of 10001, not within 1 to 10000"),
        (1, hour + SECOND, "has batches that wait for 3601s, the limit is 3600s"),
    ] {
        let error = build(size, wait).expect_err("it is over a limit");
        assert_eq!(error.kind(), ErrorKind::Definition);
        assert!(error.to_string().contains(text), "{error}");
    }
}
