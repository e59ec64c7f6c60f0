//! What a worker does with the tasks it claims.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use windlass::store::{WorkerFilter, WorkerState};
use windlass::testing::{Point, Process, TestEngine};
use windlass::{Ctx, ErrorKind, RetryPolicy, RunState, TaskError, TaskState, Windlass, Workflow};

const SECOND: Duration = Duration::from_secs(1);

fn single<F, Fut>(handler: F) -> Workflow<()>
where
    F: Fn(Ctx<()>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), TaskError>> + Send + 'static,
{
    let mut builder = Workflow::<()>::builder("single");
    builder.task("work").retry(RetryPolicy::fixed(SECOND).attempts(2)).run(handler);
    builder.build().expect("the workflow is valid")
}

async fn failure_of(run: &windlass::RunHandle) -> String {
    let task = run.tasks().await.expect("memory answers").remove(0);
    task.failure.expect("it failed").to_string()
}

#[tokio::test]
async fn a_panic_is_a_failed_attempt_and_the_worker_lives_on() {
    let workflow = single(async |ctx| match ctx.attempt() {
        1 => panic!("attempt {} is unlucky", ctx.attempt()),
        _ => Ok(()),
    });
    let test = TestEngine::new().register(&workflow);
    let run = test.start(&workflow, ()).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(failure_of(&run).await, "panic: attempt 1 is unlucky");
    test.advance(SECOND).await;
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn an_attempt_that_takes_longer_than_its_timeout_may_clean_up_and_fails() {
    let cleaned = Arc::new(AtomicUsize::new(0));
    let seen = cleaned.clone();
    let mut builder = Workflow::<()>::builder("slow");
    builder.task("work").timeout(5 * SECOND).retry(RetryPolicy::none()).run(move |ctx: Ctx<()>| {
        let seen = seen.clone();
        async move {
            ctx.cancelled().await;
            seen.fetch_add(1, Ordering::SeqCst);
            Ok::<(), TaskError>(())
        }
    });
    let slow = builder.build().unwrap();
    let test = TestEngine::new().register(&slow);
    let run = test.start(&slow, ()).await.unwrap();
    let began = test.now();
    test.run_until_idle().await;
    assert_eq!(run.get().await.unwrap().state, RunState::Failed, "late is late");
    assert_eq!(failure_of(&run).await, "timeout: took longer than 5s");
    assert_eq!(test.now().since(began).as_secs(), 5);
    assert_eq!(cleaned.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_attempt_that_gives_no_sign_of_life_in_time_is_tried_again() {
    let cleaned = Arc::new(AtomicUsize::new(0));
    let seen = cleaned.clone();
    let mut builder = Workflow::<()>::builder("quiet");
    let task = builder.task("work").heartbeat_timeout(5 * SECOND);
    task.retry(RetryPolicy::fixed(SECOND).attempts(4)).run(move |ctx: Ctx<()>| {
        let seen = seen.clone();
        async move {
            // Each says that it lives in another way, but for the first.
            for step in 0..10 {
                tokio::select! {
                    () = tokio::time::sleep(4 * SECOND) => {}
                    () = ctx.cancelled() => {
                        seen.fetch_add(1, Ordering::SeqCst);
                        return Ok(());
                    }
                }
                match ctx.attempt() {
                    2 if step < 8 => ctx.heartbeat(),
                    3 if step < 8 => ctx.progress(&step)?,
                    4 => ctx.checkpoint(&step).await?,
                    _ => {}
                }
            }
            Ok::<(), TaskError>(())
        }
    });
    let quiet = builder.build().unwrap();
    let test = TestEngine::new().register(&quiet);
    let run = test.start(&quiet, ()).await.unwrap();
    let began = test.now();
    test.run_until_idle().await;
    assert_eq!(failure_of(&run).await, "timeout: gave no sign of life for 5s");
    assert_eq!(test.now().since(began).as_secs(), 5);
    // The others are quiet behind their eighth sign of life, and the last one never is.
    for attempt in [2, 3] {
        let began = test.now();
        test.advance(SECOND).await;
        assert_eq!(run.tasks().await.unwrap()[0].attempt, attempt);
        assert_eq!(test.now().since(began).as_secs(), 1 + 8 * 4 + 5, "attempt {attempt}");
    }
    test.advance(SECOND).await;
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    assert_eq!(cleaned.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_task_that_hangs_in_a_living_worker_is_given_to_another_after_its_visibility_timeout() {
    let mut builder = Workflow::<()>::builder("stuck");
    let task = builder.task("work").visibility_timeout(20 * SECOND);
    task.retry(RetryPolicy::fixed(SECOND).attempts(2)).run(async |ctx: Ctx<()>| {
        if ctx.attempt() == 1 {
            std::future::pending::<()>().await;
        }
        Ok::<(), TaskError>(())
    });
    let stuck = builder.build().unwrap();
    let test = TestEngine::new().workers(2).register(&stuck);
    let run = test.start(&stuck, ()).await.unwrap();
    let began = test.now();
    test.run_until_idle().await;
    let took = test.now().since(began);
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    assert!((20 * SECOND..22 * SECOND).contains(&took), "{took:?}");
    let words = ["queued", "started", "lease_expired", "started", "succeeded"];
    test.history(&run).await.assert_task("work", &words);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn an_attempt_that_ignores_its_timeout_is_dropped_and_fails() {
    let mut builder = Workflow::<()>::builder("slow");
    builder
        .task("work")
        .timeout(5 * SECOND)
        .retry(RetryPolicy::none())
        .run(|_| std::future::pending::<Result<(), TaskError>>());
    let slow = builder.build().unwrap();
    let test = TestEngine::new().register(&slow);
    let run = test.start(&slow, ()).await.unwrap();
    let began = test.now();
    test.run_until_idle().await;
    assert_eq!(failure_of(&run).await, "timeout: took longer than 5s");
    assert_eq!(test.now().since(began).as_secs(), 10, "the timeout and the grace for cleaning up");
}

#[tokio::test]
async fn a_cancelled_run_tells_its_running_handler_within_a_heartbeat() {
    let stopped = Arc::new(Notify::new());
    let bell = stopped.clone();
    let workflow = single(move |ctx| {
        let bell = bell.clone();
        async move {
            ctx.cancelled().await;
            bell.notify_one();
            Ok(())
        }
    });
    let test = TestEngine::new().register(&workflow).lease(15 * SECOND);
    let run = test.start(&workflow, ()).await.unwrap();
    tokio::time::timeout(SECOND, async {
        while run.tasks().await.unwrap()[0].state != TaskState::Running {
            test.pass(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("the task is started at once");
    run.cancel("changed my mind").await.unwrap();
    let began = test.now();
    stopped.notified().await;
    assert!(test.now().since(began) <= 5 * SECOND, "a third of the lease");
    test.advance(SECOND).await;
    let record = run.get().await.unwrap();
    assert_eq!(record.state, RunState::Cancelled);
    test.history(&run).await.assert_task("work", &["queued", "started", "cancelled"]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_handler_that_ignores_its_cancellation_is_dropped_after_a_while() {
    struct Bell(Arc<Notify>);
    impl Drop for Bell {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let dropped = Arc::new(Notify::new());
    let bell = dropped.clone();
    let workflow = single(move |_| {
        let bell = Bell(bell.clone());
        async move {
            let _bell = bell;
            std::future::pending().await
        }
    });
    let test = TestEngine::new().register(&workflow);
    let run = test.start(&workflow, ()).await.unwrap();
    test.pass(SECOND).await;
    run.cancel("no reason").await.unwrap();
    dropped.notified().await;
    assert_eq!(run.get().await.unwrap().state, RunState::Cancelled);
}

#[tokio::test]
async fn a_task_longer_than_many_leases_keeps_its_lease() {
    let workflow = single(async |_| {
        tokio::time::sleep(1_000 * SECOND).await;
        Ok(())
    });
    let test = TestEngine::new().register(&workflow).lease(2 * SECOND).workers(2);
    let run = test.start(&workflow, ()).await.unwrap();
    test.run_until_idle().await;
    test.history(&run).await.assert_task("work", &["queued", "started", "succeeded"]);
}

#[tokio::test]
async fn no_more_tasks_run_at_once_than_there_are_slots() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running, peak) = (now.clone(), most.clone());
    let workflow = single(move |_| {
        let (running, peak) = (running.clone(), peak.clone());
        async move {
            let others = running.fetch_add(1, Ordering::SeqCst);
            peak.fetch_max(others + 1, Ordering::SeqCst);
            // They end one by one, so that there is room for one while others run.
            tokio::time::sleep(SECOND + others as u32 * SECOND / 4).await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let test = TestEngine::new().register(&workflow).slots(3);
    for _ in 0..9 {
        test.start(&workflow, ()).await.unwrap();
    }
    test.run_until_idle().await;
    assert_eq!(most.load(Ordering::SeqCst), 3, "all slots are used, and not one more");
}

#[tokio::test]
async fn progress_of_a_running_task_is_seen_from_outside() {
    let workflow = single(async |ctx| {
        for percent in [10, 50, 90] {
            ctx.progress(&percent).expect("a number is JSON");
            tokio::time::sleep(10 * SECOND).await;
        }
        Ok(())
    });
    let test = TestEngine::new().register(&workflow);
    let run = test.start(&workflow, ()).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..6 {
        test.pass(5 * SECOND).await;
        if let Some(note) = &run.tasks().await.unwrap()[0].progress {
            seen.push(note.as_str().to_owned());
        }
    }
    seen.dedup();
    assert_eq!(seen, ["10", "50", "90"]);
    test.run_until_idle().await;
}

#[tokio::test]
async fn work_of_unknown_workflows_and_versions_is_left_alone() {
    let build = |version| {
        let mut builder = Workflow::<()>::builder("rolling").version(version);
        builder.task("work").run(async move |_| Ok::<_, TaskError>(()));
        builder.build().unwrap()
    };
    let (old, new) = (build(1), build(2));
    let test = TestEngine::new().register(&old);
    let (mine, theirs) = (test.start(&old, ()).await.unwrap(), test.start(&new, ()).await.unwrap());
    test.pass(60 * SECOND).await;
    assert_eq!(mine.get().await.unwrap().state, RunState::Succeeded);
    assert_eq!(theirs.tasks().await.unwrap()[0].state, TaskState::Ready);
    test.history(&theirs).await.assert_task("work", &["queued"]);

    let worker = test.windlass().worker().register(&new).spawn().unwrap();
    theirs.wait().await.unwrap();
    assert_eq!(theirs.get().await.unwrap().state, RunState::Succeeded);
    worker.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_running_tasks_end_and_claims_no_more() {
    let gate = Arc::new(Notify::new());
    let open = gate.clone();
    let workflow = single(move |_| {
        let open = open.clone();
        async move {
            open.notified().await;
            Ok(())
        }
    });
    let windlass = Windlass::memory();
    let worker = windlass.worker().register(&workflow).slots(1).lease(2 * SECOND).spawn().unwrap();
    let first = windlass.start(&workflow, ()).await.unwrap();
    let second = windlass.start(&workflow, ()).await.unwrap();
    tokio::time::sleep(SECOND).await;
    let drained = tokio::spawn(worker.drain());
    tokio::time::sleep(20 * SECOND).await;
    assert!(!drained.is_finished(), "it waits for the task, and keeps its lease ten times over");
    assert_eq!(first.tasks().await.unwrap()[0].state, TaskState::Running);
    gate.notify_one();
    drained.await.unwrap().unwrap();
    assert_eq!(first.get().await.unwrap().state, RunState::Succeeded);
    let words: Vec<_> = second.history().await.unwrap().iter().map(|e| e.word()).collect();
    assert_eq!(words, ["run_started", "queued"], "the freed slot was not filled");
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_within_its_grace_and_gives_unfinished_tasks_to_others() {
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let log = attempts.clone();
    let workflow = single(move |ctx| {
        log.lock().expect("no handler panics").push(ctx.attempt());
        async move {
            match ctx.attempt() {
                1 => std::future::pending().await,
                _ => Ok(()),
            }
        }
    });
    let windlass = Windlass::memory();
    let worker = windlass.worker().register(&workflow).grace(30 * SECOND).spawn().unwrap();
    let run = windlass.start(&workflow, ()).await.unwrap();
    tokio::time::sleep(SECOND).await;
    let began = tokio::time::Instant::now();
    worker.drain().await.unwrap();
    assert!(began.elapsed() <= 31 * SECOND, "{:?}", began.elapsed());
    let record = run.tasks().await.unwrap().remove(0);
    assert_eq!(record.failure.unwrap().code.word(), "interrupted");

    let successor = windlass.worker().register(&workflow).spawn().unwrap();
    run.wait().await.unwrap();
    assert_eq!(*attempts.lock().unwrap(), [1, 2]);
    successor.drain().await.unwrap();
}

#[tokio::test]
async fn a_worker_frozen_while_idle_just_goes_on() {
    let workflow = single(async |_| Ok(()));
    let test = TestEngine::new().register(&workflow);
    let first = test.start(&workflow, ()).await.unwrap();
    test.freeze_worker_at(Point::AfterCommit, "work", 3_600 * SECOND).await;
    assert_eq!(first.get().await.unwrap().state, RunState::Succeeded);
    test.advance(2 * 3_600 * SECOND).await;
    let second = test.start(&workflow, ()).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(second.get().await.unwrap().state, RunState::Succeeded);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn settings_outside_their_limits_are_refused_by_name() {
    let workflow = single(async |_| Ok(()));
    let windlass = Windlass::memory();
    let worker = || windlass.worker().register(&workflow);
    let refused = [
        (windlass.worker().name("w"), r#"worker "w" has no workflow registered"#),
        (worker().slots(0), "slots is 0, not within 1 to 100000"),
        (worker().slots(100_001), "slots is 100001, not within 1 to 100000"),
        (worker().lease(SECOND), "lease is 1s, the least is 2s"),
        (worker().poll(Duration::ZERO), "an interval of zero would never pause"),
        (
            worker().poll(Duration::MAX),
            "poll is 18446744073709551615.999999999s, the limit is 315360000s",
        ),
        (
            worker().grace(11 * 365 * 86_400 * SECOND),
            "grace is 346896000s, the limit is 315360000s",
        ),
        (worker().name("a\0"), "worker name \"a\\0\" has a control character at byte 1"),
        (worker().queues([""]), "queue name is empty"),
        (worker().name("w").queues(Vec::<String>::new()), r#"worker "w" serves no queue"#),
        (worker().register(&workflow), r#"workflow "single" version 1 is registered twice"#),
    ];
    for (builder, message) in refused {
        let error = builder.spawn().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert_eq!(error.to_string(), format!("{message} [WL-0002]"));
    }
}

#[tokio::test]
async fn a_worker_with_another_shape_of_a_known_workflow_gives_up_with_the_difference() {
    let windlass = Windlass::memory();
    let workflow = single(async |_| Ok(()));
    windlass.start(&workflow, ()).await.unwrap();
    let mut other = Workflow::<()>::builder("single");
    other.task("other").run(async |_| Ok::<_, TaskError>(()));
    let other = other.build().unwrap();
    let error = windlass.worker().register(&other).spawn().unwrap().ended().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains(r#"task "other" is "work" there"#), "{error}");
}

#[tokio::test(start_paused = true)]
async fn running_until_a_signal_ends_at_once_when_the_worker_gives_up() {
    let windlass = Windlass::memory();
    windlass.start(&single(async |_| Ok(())), ()).await.unwrap();
    let mut other = Workflow::<()>::builder("single");
    other.task("other").run(async |_| Ok::<_, TaskError>(()));
    let other = other.build().unwrap();
    let error = windlass.worker().register(&other).run_until(std::future::pending()).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn the_replacement_of_a_crashed_worker_is_another_worker() {
    let workflow = single(async |_| {
        tokio::time::sleep(SECOND).await;
        Ok(())
    });
    let test = TestEngine::new().register(&workflow);
    let lost = test.start(&workflow, ()).await.unwrap();
    test.crash_worker_during("work").await;
    let began = test.now();
    let next = test.start(&workflow, ()).await.unwrap();
    next.wait().await.unwrap();
    assert!(test.now().since(began) < 2 * SECOND, "it does not wait for the dead one's lease");
    test.run_until_idle().await;
    assert_eq!(lost.get().await.unwrap().state, RunState::Succeeded);
}

#[tokio::test]
async fn a_handler_is_told_that_the_worker_of_the_last_attempt_was_lost() {
    let mut builder = Workflow::<()>::builder("careful");
    let task = builder.task("work").run(async |ctx: Ctx<()>| {
        tokio::time::sleep(SECOND).await;
        let code = |failure: &windlass::Failure| failure.code.word().to_owned();
        Ok::<_, TaskError>(ctx.last_failure().map(code))
    });
    let careful = builder.build().unwrap();
    let test = TestEngine::new().register(&careful);
    let lost = test.start(&careful, ()).await.unwrap();
    test.crash_worker_during("work").await;
    test.run_until_idle().await;
    assert_eq!(lost.output(&task).await.unwrap().as_deref(), Some("lease_expired"));
    let calm = test.start(&careful, ()).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(calm.output(&task).await.unwrap(), None);
    test.assert_promises_kept().await;
}

#[tokio::test(start_paused = true)]
async fn a_frozen_process_does_no_duties() {
    let mut nap = Workflow::<()>::builder("nap");
    nap.sleep("nap", 10 * SECOND).add();
    let nap = nap.build().unwrap();
    let windlass = Windlass::memory();
    let process = Process::new();
    let duties = process.clone();
    let store = windlass.store().clone();
    tokio::spawn(async move { duties.run_duties(store, SECOND).await });
    let run = windlass.start(&nap, ()).await.unwrap();
    tokio::time::sleep(SECOND).await;
    process.freeze();
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(run.get().await.unwrap().state, RunState::Running);
    process.thaw();
    tokio::time::sleep(SECOND).await;
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    process.kill();
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_seen_while_it_works_drains_and_idles() {
    let gate = Arc::new(Notify::new());
    let open = gate.clone();
    let workflow = single(move |_| {
        let open = open.clone();
        async move {
            open.notified().await;
            Ok(())
        }
    });
    let windlass = Windlass::memory();
    let worker = windlass.worker().register(&workflow).name("mail-1").version("2.1");
    let worker = worker.metadata("region", "eu").spawn().unwrap();
    let seen = async || {
        let filter = WorkerFilter { with_dead: true, ..WorkerFilter::default() };
        windlass.workers(filter).await.unwrap().workers.remove(0)
    };
    tokio::time::sleep(90 * SECOND).await;
    let idle = seen().await;
    assert_eq!((idle.name.as_str(), idle.state), ("mail-1", WorkerState::Live));
    assert_eq!((idle.info.version.as_str(), idle.info.pid), ("2.1", Some(std::process::id())));
    assert_eq!(idle.info.metadata["region"], "eu");
    assert_eq!(idle.info.queues.len(), 1);
    assert_eq!(idle.workflows.len(), 1);
    let silence = idle.seen_at.expect("it lives").since(idle.joined_at);
    assert!((79..82).contains(&silence.as_secs()), "an idle worker was seen after {silence:?}");
    windlass.start(&workflow, ()).await.unwrap();
    tokio::time::sleep(SECOND).await;
    worker.begin_drain();
    tokio::time::sleep(SECOND).await;
    let draining = seen().await;
    assert_eq!((draining.state, draining.tasks), (WorkerState::Draining, 1));
    gate.notify_one();
    worker.ended().await.unwrap();
    let ended = seen().await;
    assert_eq!((ended.state, ended.tasks), (WorkerState::Dead, 0));
    assert!(ended.ended_at.is_some());
    assert!(windlass.workers(WorkerFilter::default()).await.unwrap().workers.is_empty());
}

#[tokio::test]
async fn what_a_worker_says_of_itself_is_refused_by_name_if_it_is_too_long() {
    let workflow = single(async |_| Ok(()));
    let windlass = Windlass::memory();
    let worker = || windlass.worker().register(&workflow);
    for (worker, wanted) in [
        (worker().host("x".repeat(257)), "host \"xxxx"),
        (worker().version("x".repeat(257)), "version \"xxxx"),
        (worker().metadata("k", "x".repeat(257)), "metadata \"xxxx"),
        (worker().leader_ttl(SECOND), "ttl of duties is 1s, the least is 2s"),
        (worker().leader_rotation(SECOND), "rotation of duties is 1s, their ttl is 10s"),
    ] {
        let error = worker.spawn().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.to_string().contains(wanted), "{error}");
    }
}
