//! What a worker does when its link to the store misbehaves.

mod children;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use windlass::store::{
    Answer, Born, Checkpoint, Child, ChildCount, ChildStart, ClaimRequest, Claimed, Completion,
    Finished, Heartbeat, HeartbeatAnswer, Held, Hello, Hints, MemoryStore, Recording, Refusal,
    Release, StoreError, TakeSignal, Taken, ToUndo, WorkerLink,
};
use windlass::testing::History;
use windlass::{Ctx, RetryPolicy, RunState, TaskError, Windlass, WorkerId, Workflow};
use windlass_core::{Call, Decision, TaskId};

const SECOND: Duration = Duration::from_secs(1);

/// How the link misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Sound,
    /// Every call fails, and nothing is applied.
    Cut,
    /// Nobody knows who asks, and nothing is applied.
    Refusing,
    /// Calls of this verb never answer.
    Hangs(Verb),
    /// The next call of this verb is answered late, though within the limit.
    Slow(Verb),
    /// An output that says `poison` cannot be stored.
    Picky,
    /// Every completion is refused, for a reason that does not go away.
    Hostile,
    /// The next claim is delivered twice, and the second answer is the one that comes.
    Twice,
    /// The answer to the next claim that gives something is lost, and the heartbeat
    /// after it.
    Deaf,
    /// The answer to the next flush is one answer short.
    Terse,
    /// Every heartbeat is answered that the lease is lost.
    Forgetful,
    /// The answer to the next completion that claims something is lost.
    Unheard,
    /// More than this many tasks are too much for one claim or one flush.
    Weak(usize),
    /// What the children of a call came to is told of each other.
    Swaps,
    /// What the first child of a call came to cannot be read.
    Unread,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Join,
    Claim,
    Extend,
    Leave,
}

struct MoodyLink {
    store: Arc<MemoryStore>,
    mood: Mutex<Mood>,
    /// How many claims gave something.
    claims: AtomicUsize,
    /// How many calls were refused.
    refused: AtomicUsize,
}

impl MoodyLink {
    fn mood(&self) -> Mood {
        *self.mood.lock().expect("no test panics here")
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock().expect("no test panics here") = mood;
    }

    async fn pass(&self, verb: Option<Verb>) -> Result<(), StoreError> {
        match (self.mood(), verb) {
            (Mood::Cut, _) => Err(StoreError::Unavailable("cut".to_owned())),
            (Mood::Refusing, _) => {
                self.refused.fetch_add(1, Ordering::SeqCst);
                Err(StoreError::Unauthenticated("the token has expired".to_owned()))
            }
            (Mood::Hangs(hangs), Some(verb)) if hangs == verb => std::future::pending().await,
            _ => Ok(()),
        }
    }

    fn lift(&self, tasks: usize) -> Result<(), StoreError> {
        if let Mood::Weak(most) = self.mood()
            && tasks > most
        {
            return Err(StoreError::Unavailable("late".to_owned()));
        }
        Ok(())
    }

    /// Whether the link is in this mood; if so it is sound from now on.
    fn was(&self, mood: Mood) -> bool {
        let is = self.mood() == mood;
        if is {
            self.set(Mood::Sound);
        }
        is
    }

    async fn dawdle(&self, verb: Verb) {
        if self.mood() == Mood::Slow(verb) {
            self.set(Mood::Sound);
            tokio::time::sleep(4 * SECOND).await;
        }
    }
}

fn is_poison(completion: &Completion) -> bool {
    matches!(&completion.decision, Decision::Succeed(output) if output.as_str().contains("poison"))
}

#[async_trait]
impl WorkerLink for MoodyLink {
    async fn join(&self, hello: Hello) -> Result<(), StoreError> {
        self.pass(Some(Verb::Join)).await?;
        self.store.join(hello).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        self.pass(Some(Verb::Claim)).await?;
        self.lift(request.limit)?;
        let mut claimed = self.store.claim(request.clone()).await?;
        self.claims.fetch_add(usize::from(!claimed.is_empty()), Ordering::SeqCst);
        if !claimed.is_empty() && self.was(Mood::Twice) {
            claimed = self.store.claim(request).await?;
        } else if !claimed.is_empty() && self.mood() == Mood::Deaf {
            return Err(StoreError::Unavailable("lost".to_owned()));
        }
        if !claimed.is_empty() {
            self.dawdle(Verb::Claim).await;
        }
        Ok(claimed)
    }

    async fn finish(&self, completions: Vec<Completion>) -> Result<Vec<Answer>, StoreError> {
        self.pass(None).await?;
        self.lift(completions.len())?;
        match self.mood() {
            Mood::Hostile => Err(StoreError::Corrupt("no".to_owned())),
            Mood::Picky => {
                let poison: Vec<bool> = completions.iter().map(is_poison).collect();
                let sound = completions.into_iter().filter(|c| !is_poison(c)).collect();
                let mut answers = self.store.finish(sound).await?.into_iter();
                let answer = |is_poison| match is_poison {
                    true => Some(Answer::Refused(Refusal::Invalid)),
                    false => answers.next(),
                };
                Ok(poison.into_iter().filter_map(answer).collect())
            }
            Mood::Terse => {
                self.set(Mood::Sound);
                let mut answers = self.store.finish(completions).await?;
                answers.pop();
                Ok(answers)
            }
            Mood::Sound
            | Mood::Cut
            | Mood::Refusing
            | Mood::Hangs(_)
            | Mood::Slow(_)
            | Mood::Twice
            | Mood::Deaf
            | Mood::Unheard
            | Mood::Forgetful
            | Mood::Weak(_)
            | Mood::Swaps
            | Mood::Unread => self.store.finish(completions).await,
        }
    }

    async fn finish_and_claim(
        &self,
        completions: Vec<Completion>,
        next: ClaimRequest,
    ) -> Result<Finished, StoreError> {
        if !matches!(self.mood(), Mood::Sound | Mood::Unheard) {
            let answers = self.finish(completions).await?;
            return Ok(Finished { answers, claimed: Vec::new() });
        }
        let finished = self.store.finish_and_claim(completions, next).await?;
        if !finished.claimed.is_empty() && self.was(Mood::Unheard) {
            return Err(StoreError::Unavailable("lost".to_owned()));
        }
        Ok(finished)
    }

    async fn release(&self, releases: Vec<Release>) -> Result<Vec<Answer>, StoreError> {
        self.pass(None).await?;
        self.store.release(releases).await
    }

    async fn checkpoint(&self, checkpoints: Vec<Checkpoint>) -> Result<Vec<Answer>, StoreError> {
        self.pass(None).await?;
        self.store.checkpoint(checkpoints).await
    }

    async fn record(&self, recordings: Vec<Recording>) -> Result<Vec<Answer>, StoreError> {
        self.pass(None).await?;
        self.store.record(recordings).await
    }

    async fn take_signals(&self, takes: Vec<TakeSignal>) -> Result<Vec<Taken>, StoreError> {
        self.pass(None).await?;
        self.store.take_signals(takes).await
    }

    async fn start_children(&self, starts: Vec<ChildStart>) -> Result<Vec<Born>, StoreError> {
        self.pass(None).await?;
        self.store.start_children(starts).await
    }

    async fn read_undo(&self, held: Held) -> Result<ToUndo, StoreError> {
        self.pass(None).await?;
        self.store.read_undo(held).await
    }

    async fn count_children(&self, task: TaskId, call: Call) -> Result<ChildCount, StoreError> {
        self.pass(None).await?;
        self.store.count_children(task, call).await
    }

    async fn list_children(
        &self,
        task: TaskId,
        call: Call,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<Child>, StoreError> {
        self.pass(None).await?;
        children::as_told(self.mood(), self.store.list_children(task, call, after, limit).await?)
    }

    async fn extend(&self, heartbeat: Heartbeat) -> Result<HeartbeatAnswer, StoreError> {
        self.pass(Some(Verb::Extend)).await?;
        if self.was(Mood::Deaf) {
            return Err(StoreError::Unavailable("lost".to_owned()));
        }
        if self.mood() == Mood::Forgetful {
            return Err(StoreError::LeaseLost(heartbeat.worker));
        }
        self.store.extend(heartbeat).await
    }

    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.pass(Some(Verb::Leave)).await?;
        self.store.leave(worker).await
    }

    fn keyring(&self) -> Option<Arc<windlass::Keyring>> {
        self.store.keyring()
    }

    fn work_hints(&self) -> Hints {
        self.store.work_hints()
    }
}

fn moody(mood: Mood) -> (Windlass, Arc<MoodyLink>) {
    let store = Arc::new(MemoryStore::new());
    let windlass = Windlass::with_store(store.clone());
    let (mood, claims, refused) = (Mutex::new(mood), AtomicUsize::new(0), AtomicUsize::new(0));
    (windlass, Arc::new(MoodyLink { store, mood, claims, refused }))
}

/// A workflow of one task with two attempts that takes a time and echoes its input.
fn echo(takes: Duration) -> Workflow<String> {
    let mut builder = Workflow::<String>::builder("echo");
    let retry = RetryPolicy::fixed(SECOND).attempts(2);
    builder.task("say").retry(retry).run(move |ctx: Ctx<String>| async move {
        tokio::time::sleep(takes).await;
        Ok::<_, TaskError>(ctx.input().clone())
    });
    builder.build().expect("one task is a workflow")
}

/// A workflow of tasks in a row, of one attempt each.
fn chain(length: usize) -> Workflow<()> {
    let mut builder = Workflow::<()>::builder("chain");
    let mut last = None;
    for number in 0..length {
        let task = builder.task(format!("t{number}")).retry(RetryPolicy::none());
        let task = match &last {
            Some(last) => task.after(last),
            None => task,
        };
        last = Some(task.run(async |_: Ctx<()>| Ok::<_, TaskError>(())));
    }
    builder.build().expect("a chain is a workflow")
}

async fn words(run: &windlass::RunHandle) -> Vec<&'static str> {
    History::new(run.history().await.expect("memory answers")).of("say")
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_stored_fails_its_task_and_no_other() {
    let (windlass, link) = moody(Mood::Picky);
    let echo = echo(SECOND);
    let worker = windlass.worker().register(&echo).through(link).spawn().unwrap();
    let poison = windlass.start(&echo, "poison".to_owned()).await.unwrap();
    let mate = windlass.start(&echo, "fine".to_owned()).await.unwrap();
    assert_eq!(poison.wait().await.unwrap().state, RunState::Failed);
    assert_eq!(mate.wait().await.unwrap().state, RunState::Succeeded);
    assert_eq!(words(&poison).await, ["queued", "started", "failed"]);
    let failure = poison.tasks().await.unwrap()[0].failure.clone().unwrap();
    assert_eq!(failure.to_string(), "payload: the outcome cannot be stored");
    worker.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_follows_a_task_begins_without_another_claim() {
    let (windlass, link) = moody(Mood::Sound);
    let chain = chain(5);
    let worker = windlass.worker().register(&chain).through(link.clone()).spawn().unwrap();
    let run = windlass.start(&chain, ()).await.unwrap();
    assert_eq!(run.wait().await.unwrap().state, RunState::Succeeded);
    assert_eq!(link.claims.load(Ordering::SeqCst), 1);
    worker.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_answer_is_lost_costs_what_follows_no_attempt() {
    let (windlass, link) = moody(Mood::Unheard);
    let chain = chain(3);
    let worker = windlass.worker().register(&chain).through(link.clone()).spawn().unwrap();
    let run = windlass.start(&chain, ()).await.unwrap();
    assert_eq!(run.wait_timeout(60 * SECOND).await.unwrap().state, RunState::Succeeded);
    let history = History::new(run.history().await.unwrap());
    assert_eq!(history.of("t0"), ["queued", "started", "succeeded"]);
    assert_eq!(history.of("t1"), ["queued", "started", "released", "started", "succeeded"]);
    worker.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_too_much_for_one_call_comes_in_smaller_ones() {
    let (windlass, link) = moody(Mood::Weak(3));
    let echo = echo(SECOND);
    let worker = windlass.worker().register(&echo).slots(50).through(link).spawn().unwrap();
    let starts = (0..50).map(|n| windlass.start(&echo, n.to_string()));
    for run in windlass.start_all(starts).await.unwrap() {
        let run = run.unwrap();
        assert_eq!(run.wait_timeout(600 * SECOND).await.unwrap().state, RunState::Succeeded);
        assert_eq!(words(&run).await, ["queued", "started", "succeeded"]);
    }
    worker.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_every_outcome_costs_attempts_and_does_not_strand_the_task() {
    let (windlass, link) = moody(Mood::Hostile);
    let echo = echo(SECOND);
    let worker = windlass.worker().register(&echo).through(link).spawn().unwrap();
    let run = windlass.start(&echo, String::new()).await.unwrap();
    assert_eq!(run.wait_timeout(600 * SECOND).await.unwrap().state, RunState::Failed);
    let expected = ["queued", "started", "lease_expired", "started", "lease_expired"];
    assert_eq!(words(&run).await, expected);
    worker.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_refused_asks_now_and_then_until_someone_mends_its_token() {
    let (windlass, link) = moody(Mood::Refusing);
    let echo = echo(SECOND);
    let worker = windlass.worker().register(&echo).through(link.clone()).spawn().unwrap();
    let run = windlass.start(&echo, String::new()).await.unwrap();
    tokio::time::sleep(600 * SECOND).await;
    let refused = link.refused.load(Ordering::SeqCst);
    assert!((100..200).contains(&refused), "every few seconds, not {refused} times");
    link.set(Mood::Sound);
    assert_eq!(run.wait_timeout(60 * SECOND).await.unwrap().state, RunState::Succeeded);
    worker.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_refused_worker_has_done_is_told_once_its_token_is_mended() {
    let (windlass, link) = moody(Mood::Sound);
    let echo = echo(3 * SECOND);
    let worker = windlass.worker().register(&echo).lease(60 * SECOND);
    let worker = worker.through(link.clone()).spawn().unwrap();
    let run = windlass.start(&echo, String::new()).await.unwrap();
    tokio::time::sleep(SECOND).await;
    link.set(Mood::Refusing);
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(words(&run).await, ["queued", "started"], "nothing was told");
    let refused = link.refused.load(Ordering::SeqCst);
    assert!((5..60).contains(&refused), "every few seconds, not {refused} times");
    link.set(Mood::Sound);
    assert_eq!(run.wait_timeout(60 * SECOND).await.unwrap().state, RunState::Succeeded);
    assert_eq!(words(&run).await, ["queued", "started", "succeeded"], "by the first attempt");
    worker.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_cut_off_tells_its_handlers_when_its_lease_is_over() {
    let (windlass, link) = moody(Mood::Sound);
    let told = Arc::new(AtomicBool::new(false));
    let seen = told.clone();
    let mut builder = Workflow::<()>::builder("watch");
    builder.task("say").run(move |ctx: Ctx<()>| {
        let seen = seen.clone();
        async move {
            ctx.cancelled().await;
            seen.store(true, Ordering::SeqCst);
            Ok::<_, TaskError>(())
        }
    });
    let watch = builder.build().unwrap();
    let worker = windlass.worker().register(&watch).lease(15 * SECOND);
    let _worker = worker.through(link.clone()).spawn().unwrap();
    windlass.start(&watch, ()).await.unwrap();
    tokio::time::sleep(SECOND).await;
    link.set(Mood::Cut);
    tokio::time::sleep(13 * SECOND).await;
    assert!(!told.load(Ordering::SeqCst), "the lease still holds");
    tokio::time::sleep(3 * SECOND).await;
    assert!(told.load(Ordering::SeqCst), "the task may be another worker's by now");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_is_given_up_before_it_costs_the_lease() {
    let (windlass, link) = moody(Mood::Sound);
    let echo = echo(60 * SECOND);
    let worker = windlass.worker().register(&echo).slots(1).lease(15 * SECOND);
    let worker = worker.through(link.clone()).spawn().unwrap();
    let run = windlass.start(&echo, String::new()).await.unwrap();
    tokio::time::sleep(SECOND).await;
    link.set(Mood::Hangs(Verb::Extend));
    tokio::time::sleep(6 * SECOND).await;
    link.set(Mood::Sound);
    assert_eq!(run.wait().await.unwrap().state, RunState::Succeeded);
    assert_eq!(words(&run).await, ["queued", "started", "succeeded"]);
    worker.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_answered_late_does_not_delay_the_heartbeat() {
    let (windlass, link) = moody(Mood::Slow(Verb::Claim));
    let echo = echo(60 * SECOND);
    let worker = windlass.worker().register(&echo).slots(1).lease(15 * SECOND);
    let worker = worker.through(link).spawn().unwrap();
    let run = windlass.start(&echo, String::new()).await.unwrap();
    assert_eq!(run.wait().await.unwrap().state, RunState::Succeeded);
    assert_eq!(words(&run).await, ["queued", "started", "succeeded"]);
    worker.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_link_that_hangs_does_not_hold_up_a_drain() {
    for verb in [Verb::Join, Verb::Claim, Verb::Extend, Verb::Leave] {
        let (windlass, link) = moody(Mood::Hangs(verb));
        let echo = echo(SECOND);
        let worker = windlass.worker().register(&echo).grace(3 * SECOND);
        let worker = worker.through(link).spawn().unwrap();
        windlass.start(&echo, String::new()).await.unwrap();
        tokio::time::sleep(SECOND / 2).await;
        let began = tokio::time::Instant::now();
        worker.drain().await.unwrap();
        let took = began.elapsed();
        assert!(took <= 3 * SECOND + SECOND / 100, "{verb:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_note_of_progress_outlives_a_heartbeat_that_failed() {
    let (windlass, link) = moody(Mood::Sound);
    let mut builder = Workflow::<()>::builder("noted");
    builder.task("say").run(async |ctx: Ctx<()>| {
        ctx.progress(&"half way")?;
        tokio::time::sleep(60 * SECOND).await;
        Ok::<_, TaskError>(())
    });
    let noted = builder.build().unwrap();
    let worker = windlass.worker().register(&noted).lease(15 * SECOND);
    let worker = worker.through(link.clone()).spawn().unwrap();
    let run = windlass.start(&noted, ()).await.unwrap();
    tokio::time::sleep(SECOND).await;
    link.set(Mood::Cut);
    tokio::time::sleep(5 * SECOND).await;
    link.set(Mood::Sound);
    tokio::time::sleep(5 * SECOND).await;
    let note = run.tasks().await.unwrap()[0].progress.clone();
    assert_eq!(note.expect("it was sent again").as_str(), "\"half way\"");
    worker.drain().await.unwrap();
}

/// A task that the worker was given and does not know of comes back, although the
/// worker has its one slot full all the time.
async fn busy_worker_gives_back_what_it_never_heard_of(mood: Mood) {
    let (windlass, link) = moody(mood);
    let echo = echo(SECOND);
    let worker = windlass.worker().register(&echo).slots(1).lease(15 * SECOND);
    let worker = worker.through(link).spawn().expect("memory answers");
    let first = windlass.start(&echo, String::new()).await.expect("memory answers");
    for _ in 0..200 {
        windlass.start(&echo, String::new()).await.expect("memory answers");
    }
    tokio::time::sleep(60 * SECOND).await;
    let words = words(&first).await;
    assert_ne!(words, ["queued", "started"], "{mood:?}: it is held by nobody");
    first.wait().await.expect("memory answers");
    worker.drain().await.expect("memory answers");
}

#[tokio::test(start_paused = true)]
async fn a_busy_worker_gives_back_tasks_of_a_claim_that_was_delivered_twice() {
    busy_worker_gives_back_what_it_never_heard_of(Mood::Twice).await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_worker_gives_back_tasks_of_a_claim_whose_answer_was_lost() {
    busy_worker_gives_back_what_it_never_heard_of(Mood::Deaf).await;
}

#[tokio::test(start_paused = true)]
async fn a_flush_with_an_answer_too_few_is_sent_again() {
    let (windlass, link) = moody(Mood::Terse);
    let echo = echo(SECOND);
    let worker = windlass.worker().register(&echo).through(link).spawn().unwrap();
    let run = windlass.start(&echo, String::new()).await.unwrap();
    assert_eq!(run.wait().await.unwrap().state, RunState::Succeeded);
    worker.drain().await.unwrap();
    assert_eq!(words(&run).await, ["queued", "started", "succeeded"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_lost_while_draining_leaves_handlers_the_time_to_clean_up() {
    let (windlass, link) = moody(Mood::Sound);
    let cleaned = Arc::new(AtomicBool::new(false));
    let seen = cleaned.clone();
    let mut builder = Workflow::<()>::builder("tidy");
    builder.task("say").run(move |ctx: Ctx<()>| {
        let seen = seen.clone();
        async move {
            ctx.cancelled().await;
            tokio::time::sleep(SECOND).await;
            seen.store(true, Ordering::SeqCst);
            Ok::<_, TaskError>(())
        }
    });
    let tidy = builder.build().unwrap();
    let worker = windlass.worker().register(&tidy).lease(15 * SECOND).grace(30 * SECOND);
    let worker = worker.through(link.clone()).spawn().unwrap();
    windlass.start(&tidy, ()).await.unwrap();
    tokio::time::sleep(SECOND).await;
    link.set(Mood::Forgetful);
    worker.drain().await.unwrap();
    assert!(cleaned.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_refused_while_draining_costs_the_other_tasks_nothing() {
    let (windlass, link) = moody(Mood::Sound);
    let echo = echo(2 * SECOND);
    let worker = windlass.worker().register(&echo).through(link.clone()).spawn().unwrap();
    windlass.start(&echo, String::new()).await.unwrap();
    tokio::time::sleep(SECOND).await;
    let neighbour = windlass.start(&echo, String::new()).await.unwrap();
    tokio::time::sleep(SECOND / 2).await;
    link.set(Mood::Hostile);
    let drained = tokio::spawn(worker.drain());
    tokio::time::sleep(SECOND).await;
    link.set(Mood::Sound);
    drained.await.unwrap().unwrap();
    assert_eq!(words(&neighbour).await, ["queued", "started", "succeeded"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_waits_for_its_checkpoint_is_not_hung() {
    let (windlass, link) = moody(Mood::Sound);
    let mut builder = Workflow::<()>::builder("patient");
    let retry = RetryPolicy::fixed(SECOND).attempts(2);
    let task = builder.task("say").retry(retry).heartbeat_timeout(2 * SECOND);
    task.run(async |ctx: Ctx<()>| {
        tokio::time::sleep(SECOND).await;
        ctx.checkpoint(&1).await?;
        Ok::<_, TaskError>(())
    });
    let workflow = builder.build().expect("the workflow is right");
    let worker = windlass.worker().register(&workflow).through(link.clone()).spawn().unwrap();
    let run = windlass.start(&workflow, ()).await.unwrap();
    tokio::time::sleep(SECOND / 2).await;
    link.set(Mood::Cut);
    tokio::time::sleep(8 * SECOND).await;
    link.set(Mood::Sound);
    run.wait_timeout(600 * SECOND).await.unwrap();
    assert_eq!(words(&run).await, ["queued", "started", "succeeded"]);
    worker.drain().await.unwrap();
}
