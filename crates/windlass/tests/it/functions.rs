//! Durable functions as their users see them, in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass::testing::TestEngine;
use windlass::{
    Ctx, ErrorKind, Function, RetryPolicy, RunState, TaskError, TaskState, Timestamp, Workflow,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// What happened outside of Windlass.
#[derive(Clone, Default)]
struct Effects(Arc<Mutex<Vec<String>>>);

impl Effects {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().expect("no handler panics with it").push(what.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().expect("no handler panics with it").clone()
    }
}

/// A function that is given a place for its effects.
fn function<F, Fut, O>(effects: &Effects, body: F) -> Function<u32, O>
where
    F: Fn(Ctx<u32>, Effects) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, TaskError>> + Send + 'static,
    O: serde::Serialize + serde::de::DeserializeOwned + 'static,
{
    let effects = effects.clone();
    let builder = Function::<u32, O>::builder("function");
    let builder = builder.retry(RetryPolicy::fixed(SECOND).attempts(3));
    builder.run(move |ctx| body(ctx, effects.clone())).expect("the function is valid")
}

#[tokio::test]
async fn a_step_that_is_recorded_is_not_run_again_after_a_crash() {
    let effects = Effects::default();
    let crashing = function(&effects, async |ctx, effects| {
        let one = ctx.step("one", async || {
            effects.note("one");
            Ok::<_, TaskError>(1)
        });
        let one = one.await?;
        if ctx.attempt() == 1 {
            panic!("the process dies here");
        }
        let two = ctx.step("two", async || {
            effects.note("two");
            Ok::<_, TaskError>(one + 1)
        });
        two.await
    });
    let test = TestEngine::new().register(&crashing);
    let run = test.start(&crashing, 0).await.unwrap();
    test.advance(2 * SECOND).await;
    assert_eq!(run.output(crashing.output()).await.unwrap(), 2);
    assert_eq!(effects.all(), ["one", "two"]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_loop_may_use_one_name_for_many_steps() {
    let effects = Effects::default();
    let counting = function(&effects, async |ctx, effects| {
        let mut sum = 0;
        for place in 0..*ctx.input() {
            let add = ctx.step("add", async || {
                effects.note(place.to_string());
                Ok::<_, TaskError>(place)
            });
            sum += add.await?;
            if place == 2 {
                ctx.sleep(HOUR).await?;
            }
        }
        Ok(sum)
    });
    let test = TestEngine::new().register(&counting);
    let run = test.start(&counting, 5).await.unwrap();
    test.advance(HOUR).await;
    assert_eq!(run.output(counting.output()).await.unwrap(), 10);
    assert_eq!(effects.all(), ["0", "1", "2", "3", "4"]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn steps_at_once_may_end_in_any_order_and_are_replayed_in_that_order() {
    let effects = Effects::default();
    let racing = function(&effects, async |ctx, effects| {
        let path = async |name: &'static str, pauses: [u64; 2]| {
            for pause in pauses {
                let step = ctx.step(name, async || {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    effects.note(format!("{name} {pause}"));
                    Ok::<_, TaskError>(())
                });
                step.await?;
            }
            Ok::<_, TaskError>(())
        };
        let (a, b) = tokio::join!(path("a", [30, 10]), path("b", [10, 60]));
        a.and(b)?;
        ctx.sleep(HOUR).await?;
        if ctx.attempt() == 1 {
            panic!("once more");
        }
        Ok(())
    });
    let test = TestEngine::new().register(&racing);
    let run = test.start(&racing, 0).await.unwrap();
    test.advance(HOUR + 10 * SECOND).await;
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    assert_eq!(effects.all(), ["b 10", "a 30", "a 10", "b 60"]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_sleep_needs_no_worker_and_is_never_early() {
    let effects = Effects::default();
    let sleepy = function(&effects, async |ctx, effects| {
        let begin = ctx.now().await?;
        ctx.sleep(24 * HOUR).await?;
        effects.note("awake");
        let end = ctx.now().await?;
        Ok(end.since(begin).as_secs())
    });
    let test = TestEngine::new().slots(1).register(&sleepy);
    let run = test.start(&sleepy, 0).await.unwrap();
    test.advance(24 * HOUR - SECOND).await;
    let task = &run.tasks().await.unwrap()[0];
    assert_eq!((task.state, task.worker, task.attempt), (TaskState::Scheduled, None, 0));
    assert!(effects.all().is_empty(), "{:?}", effects.all());
    test.advance(SECOND).await;
    assert_eq!(run.output(sleepy.output()).await.unwrap(), 86_400);
    test.history(&run).await.assert_task(
        "function",
        &["queued", "started", "parked", "queued", "started", "succeeded"],
    );
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_sleep_until_a_time_that_has_passed_is_none() {
    let effects = Effects::default();
    let late = function(&effects, async |ctx, _| {
        ctx.sleep_until(Timestamp::from_micros(0)).await?;
        ctx.sleep(Duration::ZERO).await
    });
    let test = TestEngine::new().register(&late);
    let run = test.start(&late, 0).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_failing_step_is_tried_again_later_and_holds_no_slot_meanwhile() {
    let effects = Effects::default();
    let stubborn = function(&effects, async |ctx, effects| {
        ctx.step("before", async || {
            effects.note("before");
            Ok::<_, TaskError>(())
        })
        .await?;
        let step = ctx.step("flaky", async || {
            effects.note("flaky");
            match effects.all().iter().filter(|effect| *effect == "flaky").count() {
                3 => Ok(7),
                tries => Err(TaskError::new(format!("try {tries}"))),
            }
        });
        step.retry(RetryPolicy::fixed(HOUR).attempts(3)).await
    });
    let test = TestEngine::new().slots(1).register(&stubborn);
    let run = test.start(&stubborn, 0).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.tasks().await.unwrap()[0].state, TaskState::Scheduled);
    test.advance(HOUR).await;
    assert_eq!(effects.all(), ["before", "flaky", "flaky"]);
    test.advance(HOUR).await;
    assert_eq!(run.output(stubborn.output()).await.unwrap(), 7);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_step_without_attempts_left_gives_its_error_to_the_function() {
    let effects = Effects::default();
    let careful = function(&effects, async |ctx, effects| {
        let charge = ctx.step("charge", async || {
            effects.note("charge");
            Err::<(), _>(TaskError::new("card declined").code("declined"))
        });
        let charge = charge.retry(RetryPolicy::none()).await;
        let error = charge.expect_err("it always fails").to_string();
        ctx.sleep(HOUR).await?;
        let note = ctx.step("note", async || {
            effects.note("note");
            Ok::<_, TaskError>(())
        });
        note.await?;
        Ok(error)
    });
    let test = TestEngine::new().register(&careful);
    let run = test.start(&careful, 0).await.unwrap();
    test.advance(HOUR).await;
    assert_eq!(run.output(careful.output()).await.unwrap(), "card declined");
    assert_eq!(effects.all(), ["charge", "note"]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_function_that_fails_with_a_step_goes_on_from_that_step_when_its_run_is_retried() {
    let effects = Effects::default();
    let failing = function(&effects, async |ctx, effects| {
        let step = async |name: &'static str, works: bool| {
            let step = ctx.step(name, async || {
                effects.note(name);
                if works { Ok(()) } else { Err(TaskError::new("out of order").code("broken")) }
            });
            step.retry(RetryPolicy::none()).await
        };
        step("a", true).await?;
        step("b", effects.all().len() > 2).await?;
        step("c", true).await
    });
    let test = TestEngine::new().register(&failing);
    let run = test.start(&failing, 0).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.get().await.unwrap().state, RunState::Failed);
    let failure = run.tasks().await.unwrap()[0].failure.clone().expect("it failed");
    assert_eq!(failure.to_string(), "broken: out of order");
    assert_eq!(effects.all(), ["a", "b"], "one attempt of the function: the step had its own");
    effects.note("mended");
    run.retry().await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    assert_eq!(effects.all(), ["a", "b", "mended", "b", "c"]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn other_code_than_what_was_recorded_runs_nothing_and_names_both() {
    let effects = Effects::default();
    let changing = function(&effects, async |ctx, effects| {
        let is_new = effects.all().contains(&"deployed".to_owned());
        let name = if is_new { "reserve" } else { "charge" };
        let step = async |name: &'static str| {
            let step = ctx.step(name, async || {
                effects.note(name);
                Ok::<_, TaskError>(())
            });
            step.await
        };
        step("first").await?;
        step(name).await?;
        ctx.sleep(HOUR).await?;
        step("last").await
    });
    let test = TestEngine::new().register(&changing);
    let run = test.start(&changing, 0).await.unwrap();
    test.run_until_idle().await;
    effects.note("deployed");
    test.advance(2 * HOUR).await;
    assert_eq!(run.get().await.unwrap().state, RunState::Failed);
    let failure = run.tasks().await.unwrap()[0].failure.clone().expect("it failed");
    let expected = format!(
        "divergence: call 2 of task \"function\" of run {} is step \"charge\" in its record, and \
         step \"reserve\" in the code",
        run.id()
    );
    assert_eq!(failure.to_string(), expected);
    assert_eq!(effects.all(), ["first", "charge", "deployed"]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_function_that_is_changed_in_place_goes_on_as_it_began() {
    let effects = Effects::default();
    let changing = function(&effects, async |ctx, effects| {
        let step = async |name: &'static str| {
            let step = ctx.step(name, async || {
                effects.note(format!("{name} {}", ctx.input()));
                Ok::<_, TaskError>(())
            });
            step.await
        };
        step("first").await?;
        let is_deployed = effects.all().contains(&"deployed".to_owned());
        if is_deployed && ctx.patched("check").await? {
            step("check").await?;
        }
        step("charge").await?;
        ctx.sleep(HOUR).await?;
        step("last").await
    });
    let test = TestEngine::new().register(&changing);
    let old = test.start(&changing, 1).await.unwrap();
    test.run_until_idle().await;
    effects.note("deployed");
    let new = test.start(&changing, 2).await.unwrap();
    test.advance(3 * HOUR).await;
    for run in [old, new] {
        assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    }
    let of = |number: &str| {
        let effects = effects.all();
        let mine = effects.iter().filter_map(|effect| effect.strip_suffix(number));
        mine.map(|effect| effect.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of("1"), ["first", "charge", "last"]);
    assert_eq!(of("2"), ["first", "check", "charge", "last"]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_function_that_leaves_out_recorded_calls_diverges() {
    for is_waiting in [false, true] {
        let effects = Effects::default();
        let changing = function(&effects, move |ctx, effects: Effects| async move {
            if effects.all().is_empty() {
                let slow = ctx.step("slow", async || {
                    tokio::time::sleep(SECOND).await;
                    Err::<(), _>(TaskError::new("later"))
                });
                let fast = ctx.step("fast", async || Ok::<_, TaskError>(()));
                let slow = slow.retry(RetryPolicy::fixed(HOUR));
                tokio::try_join!(slow, fast)?;
            } else if is_waiting {
                // The call that is not recorded as done would be run, and the other is not made.
                ctx.step("slow", async || {
                    effects.note("slow");
                    Ok::<_, TaskError>(())
                })
                .await?;
            }
            Ok(())
        });
        let test = TestEngine::new().register(&changing);
        let run = test.start(&changing, 0).await.unwrap();
        test.advance(2 * SECOND).await;
        effects.note("deployed");
        test.advance(2 * HOUR).await;
        let failure = run.tasks().await.unwrap()[0].failure.clone().expect("it failed");
        let text = failure.to_string();
        let unmet = if is_waiting { "call 2" } else { "call 1" };
        assert!(text.starts_with(&format!("divergence: {unmet} of task")), "{text}");
        assert_eq!(effects.all(), ["deployed"]);
    }
}

#[tokio::test]
async fn a_result_that_is_not_of_the_type_any_more_names_run_step_and_type() {
    let effects = Effects::default();
    let changing = function(&effects, async |ctx, effects| {
        if effects.all().is_empty() {
            ctx.step("count", async || Ok::<_, TaskError>("seven".to_owned())).await?;
        } else {
            ctx.step("count", async || Ok::<_, TaskError>(7_u64)).await?;
        }
        ctx.sleep(HOUR).await
    });
    let test = TestEngine::new().register(&changing);
    let run = test.start(&changing, 0).await.unwrap();
    test.run_until_idle().await;
    effects.note("deployed");
    test.advance(2 * HOUR).await;
    let failure = run.tasks().await.unwrap()[0].failure.clone().expect("it failed");
    let text = failure.to_string();
    let expected = format!(
        "payload: result of call 1 (\"count\") of task \"function\" of run {} as u64: ",
        run.id()
    );
    assert!(text.starts_with(&expected), "{text}");
    effects.0.lock().unwrap().clear();
    run.retry().await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded, "rolled back, it goes on");
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn signals_are_kept_when_sent_early_and_taken_once_and_in_order() {
    let effects = Effects::default();
    let listening = function(&effects, async |ctx, effects| {
        for _ in 0..3 {
            let word = ctx.signal::<String>("word").await?;
            effects.note(word);
            ctx.sleep(SECOND).await?;
        }
        Ok(())
    });
    let test = TestEngine::new().register(&listening);
    let start = test.start(&listening, 0).delay(HOUR);
    let run = start.await.unwrap();
    run.signal("word", "one").await.unwrap();
    run.signal("other", "unheard").await.unwrap();
    run.signal("word", "two").await.unwrap();
    test.advance(2 * HOUR).await;
    assert_eq!(run.tasks().await.unwrap()[0].state, TaskState::Waiting);
    assert_eq!(run.tasks().await.unwrap()[0].available_at, None);
    run.signal("word", "three").await.unwrap();
    test.advance(SECOND).await;
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    let mut heard = effects.all();
    heard.dedup();
    assert_eq!(heard.last().map(String::as_str), Some("three"));
    let error = run.signal("word", "four").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("is succeeded, only a running run"), "{error}");
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_wait_for_a_signal_ends_with_its_timeout() {
    let effects = Effects::default();
    let waiting = function(&effects, async |ctx, _| {
        let first = ctx.signal::<u32>("go").timeout(HOUR).await?;
        let second = ctx.signal::<()>("go").timeout(HOUR).await?;
        Ok((first, second.is_some()))
    });
    let test = TestEngine::new().register(&waiting);
    let run = test.start(&waiting, 0).await.unwrap();
    test.advance(HOUR - SECOND).await;
    assert_eq!(run.tasks().await.unwrap()[0].state, TaskState::Waiting);
    test.advance(2 * SECOND).await;
    run.signal("go", &()).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.output(waiting.output()).await.unwrap(), (None, true));
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_select_between_a_signal_and_a_sleep_gives_the_same_when_it_is_replayed() {
    let effects = Effects::default();
    let choosing = function(&effects, async |ctx, effects| {
        let first = tokio::select! {
            word = ctx.signal::<String>("word") => word?,
            slept = ctx.sleep(HOUR) => { slept?; "nothing".to_owned() }
        };
        let step = ctx.step("act", async || {
            effects.note(first.clone());
            Ok::<_, TaskError>(())
        });
        step.await?;
        ctx.sleep(HOUR).await?;
        Ok(first)
    });
    let test = TestEngine::new().register(&choosing);
    let timed_out = test.start(&choosing, 0).await.unwrap();
    let signalled = test.start(&choosing, 1).await.unwrap();
    test.advance(HOUR / 2).await;
    signalled.signal("word", "go").await.unwrap();
    test.advance(HOUR).await;
    timed_out.signal("word", "too late").await.unwrap();
    test.advance(HOUR).await;
    assert_eq!(timed_out.output(choosing.output()).await.unwrap(), "nothing");
    assert_eq!(signalled.output(choosing.output()).await.unwrap(), "go");
    assert_eq!(effects.all(), ["go", "nothing"]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_sleep_ends_in_time_while_another_step_is_at_work() {
    let effects = Effects::default();
    let busy = function(&effects, async |ctx, effects| {
        let work = ctx.step("work", async || {
            tokio::time::sleep(HOUR).await;
            effects.note("worked");
            Ok::<_, TaskError>(())
        });
        let remind = async {
            ctx.sleep(60 * SECOND).await?;
            let step = ctx.step("remind", async || {
                effects.note("reminded");
                Ok::<_, TaskError>(())
            });
            step.await
        };
        tokio::try_join!(work, remind)?;
        Ok(())
    });
    let test = TestEngine::new().register(&busy);
    let run = test.start(&busy, 0).await.unwrap();
    test.advance(2 * HOUR).await;
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    assert_eq!(effects.all(), ["reminded", "worked"]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn time_and_chance_stay_the_same() {
    let effects = Effects::default();
    let chancy = function(&effects, async |ctx, effects| {
        let now = ctx.now().await?;
        effects.note(format!("{} {} {}", now, ctx.random(), ctx.uuid()));
        ctx.sleep(HOUR).await
    });
    let test = TestEngine::new().register(&chancy);
    for input in 0..2 {
        test.start(&chancy, input).await.unwrap();
    }
    test.advance(2 * HOUR).await;
    let mut seen = effects.all();
    assert_eq!(seen.len(), 4);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 2, "the same in both attempts, another in each run: {seen:?}");
}

#[tokio::test]
async fn a_task_of_a_dag_can_be_a_function() {
    let mut order = Workflow::<u32>::builder("order");
    let charge = order.task("charge").run(async |ctx: Ctx<u32>| {
        let cents = ctx.step("ask", async || Ok::<_, TaskError>(100)).await?;
        ctx.sleep(HOUR).await?;
        Ok::<u32, TaskError>(cents * ctx.input())
    });
    let ship = order.task("ship").reads(&charge).run(async |ctx: Ctx<u32>, cents: u32| {
        ctx.signal::<()>("packed").await?;
        Ok::<_, TaskError>(cents + 1)
    });
    let order = order.build().unwrap();
    let test = TestEngine::new().register(&order);
    let run = test.start(&order, 3).await.unwrap();
    test.advance(HOUR).await;
    run.signal("packed", &()).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.output(&ship).await.unwrap(), 301);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn what_cannot_be_asked_for_is_an_error_that_says_why() {
    let effects = Effects::default();
    let asking = function(&effects, async |ctx, effects| {
        let long = "x".repeat(201);
        let named = ctx.step(&long, async || Ok::<_, TaskError>(())).await;
        effects.note(named.unwrap_err().to_string());
        effects.note(ctx.sleep(Duration::MAX).await.unwrap_err().to_string());
        let far = Timestamp::from_micros(253_402_300_800_000_000);
        effects.note(ctx.sleep_until(far).await.unwrap_err().to_string());
        let large = "x".repeat(2 << 20);
        let large = ctx.step("large", async || Ok::<_, TaskError>(large)).await;
        effects.note(large.unwrap_err().to_string());
        Ok(())
    });
    let test = TestEngine::new().register(&asking);
    let run = test.start(&asking, 0).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    let said = effects.all();
    assert!(
        said[0].starts_with("step name \"xxxxxxxxxxxxxxxxxxxxxxxx\"… has 201 bytes"),
        "{said:?}"
    );
    assert!(said[1].contains("is over the limit of"), "{said:?}");
    assert!(said[2].contains("lies behind the year 9999"), "{said:?}");
    assert!(said[3].starts_with("result of step \"large\" "), "{said:?}");
    let error = run.signal("", &()).await.unwrap_err();
    assert!(error.to_string().contains("step name is empty"), "{error}");
}

#[tokio::test]
async fn a_cancelled_function_is_not_woken() {
    let effects = Effects::default();
    let waiting = function(&effects, async |ctx, effects| {
        ctx.signal::<()>("go").timeout(HOUR).await?;
        effects.note("went on");
        Ok(())
    });
    let test = TestEngine::new().register(&waiting);
    let run = test.start(&waiting, 0).await.unwrap();
    test.run_until_idle().await;
    run.cancel("not needed").await.unwrap();
    test.advance(2 * HOUR).await;
    assert_eq!(run.get().await.unwrap().state, RunState::Cancelled);
    assert!(effects.all().is_empty());
    test.assert_promises_kept().await;
}

/// A function that doubles its input, and fails for 13.
fn doubling() -> Function<u32, u32> {
    let double = async |ctx: Ctx<u32>| {
        ctx.sleep(SECOND).await?;
        match ctx.input() {
            13 => Err(TaskError::new("unlucky").code("thirteen").permanent()),
            number => Ok(2 * number),
        }
    };
    Function::new("double", double).expect("the function is valid")
}

#[tokio::test]
async fn a_function_waits_for_a_run_that_it_started() {
    let effects = Effects::default();
    let double = doubling();
    let child = double.clone();
    let parent = function(&effects, move |ctx, effects: Effects| {
        let child = child.clone();
        async move {
            effects.note("attempt");
            let first = ctx.run(&child, 21).await?;
            let second = ctx.run(&child, 13).await.expect_err("it fails").to_string();
            Ok((first, second))
        }
    });
    let test = TestEngine::new().slots(1).register(&parent).register(&double);
    let run = test.start(&parent, 0).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.tasks().await.unwrap()[0].state, TaskState::Waiting);
    test.advance(3 * SECOND).await;
    assert_eq!(run.output(parent.output()).await.unwrap(), (42, "unlucky".to_owned()));
    assert_eq!(effects.all().len(), 3, "it is run again when a child has ended");
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_run_that_nobody_waits_for_is_started_once_and_outlives_its_starter() {
    let effects = Effects::default();
    let double = doubling();
    let child = double.clone();
    let parent = function(&effects, move |ctx, _| {
        let child = child.clone();
        async move {
            let id = ctx.start(&child, 4).await?;
            ctx.sleep(SECOND).await?;
            Ok(id)
        }
    });
    let test = TestEngine::new().register(&parent).register(&double);
    let run = test.start(&parent, 0).await.unwrap();
    test.run_until_idle().await;
    run.cancel("enough").await.unwrap();
    test.advance(5 * SECOND).await;
    let runs = test.windlass().list(Default::default()).await.unwrap().runs;
    let states: Vec<_> = runs.iter().map(|run| (run.workflow.as_str(), run.state)).collect();
    assert_eq!(runs.len(), 2, "{states:?}");
    let child = runs.iter().find(|run| run.workflow.as_str() == "double").unwrap();
    assert_eq!(child.state, RunState::Succeeded);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_map_gives_all_results_in_the_order_of_its_inputs() {
    for most in [1, 3, 100] {
        let effects = Effects::default();
        let double = doubling();
        let child = double.clone();
        let parent = function(&effects, move |ctx, _| {
            let child = child.clone();
            async move {
                let none = ctx.map(&child, []).await?;
                assert!(none.is_empty());
                let all = ctx.map(&child, 10..*ctx.input()).concurrency(most).await?;
                let told = |end: Result<u32, TaskError>| end.map_err(|error| error.to_string());
                Ok(all.into_iter().map(told).collect::<Vec<_>>())
            }
        });
        let test = TestEngine::new().register(&parent).register(&double);
        let run = test.start(&parent, 17).await.unwrap();
        test.run_until_idle().await;
        let open = test.windlass().list(Default::default()).await.unwrap().runs.len() - 1;
        assert_eq!(open, most.min(7));
        test.advance(60 * SECOND).await;
        let ends = run.output(parent.output()).await.unwrap();
        let unlucky = Err("unlucky".to_owned());
        let expected = [Ok(20), Ok(22), Ok(24), unlucky, Ok(28), Ok(30), Ok(32)];
        assert_eq!(ends, expected);
        test.assert_promises_kept().await;
    }
}

#[tokio::test]
async fn a_cancelled_function_takes_the_runs_that_it_waits_for_with_it() {
    let effects = Effects::default();
    let double = doubling();
    let child = double.clone();
    let parent = function(&effects, move |ctx, _| {
        let child = child.clone();
        async move { Ok(ctx.map(&child, 0..5).await?.len()) }
    });
    let test = TestEngine::new().register(&parent).register(&double);
    let run = test.start(&parent, 0).await.unwrap();
    test.run_until_idle().await;
    run.cancel("not needed").await.unwrap();
    test.advance(10 * SECOND).await;
    let runs = test.windlass().list(Default::default()).await.unwrap().runs;
    assert_eq!(runs.len(), 6);
    assert!(runs.iter().all(|run| run.state == RunState::Cancelled), "{runs:#?}");
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_random_key_of_a_step_is_the_same_when_the_step_is_tried_again() {
    let effects = Effects::default();
    let keyed = function(&effects, async |ctx, effects| {
        for name in ["a", "b"] {
            let step = ctx.step(name, async || {
                effects.note(format!("{name} {}", ctx.uuid()));
                let tries = effects.all().iter().filter(|one| one.starts_with(name)).count();
                if tries < 2 { Err(TaskError::new("again")) } else { Ok(()) }
            });
            step.retry(RetryPolicy::fixed(SECOND)).await?;
        }
        Ok(())
    });
    let test = TestEngine::new().register(&keyed);
    let run = test.start(&keyed, 0).await.unwrap();
    test.advance(5 * SECOND).await;
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    let seen = effects.all();
    assert_eq!((&seen[0], &seen[2]), (&seen[1], &seen[3]), "{seen:?}");
    assert_ne!(seen[0].trim_start_matches("a "), seen[2].trim_start_matches("b "));
}

#[tokio::test]
async fn a_call_within_a_step_is_refused() {
    let effects = Effects::default();
    let nested = function(&effects, async |ctx, effects| {
        let outer = ctx.step("outer", async || {
            let inner = ctx.step("inner", async || Ok::<_, TaskError>(())).await;
            effects.note(inner.unwrap_err().to_string());
            Ok::<_, TaskError>(())
        });
        outer.await
    });
    let test = TestEngine::new().register(&nested);
    let run = test.start(&nested, 0).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    assert_eq!(
        effects.all(),
        ["step \"inner\" is called within a step; call it behind or beside the step"]
    );
}

#[tokio::test]
async fn a_call_of_another_task_of_the_runtime_comes_to_its_end() {
    let effects = Effects::default();
    let spawning = function(&effects, async |ctx, effects| {
        let other = ctx.clone();
        let task =
            tokio::spawn(async move { other.step("there", async || Ok::<_, TaskError>(7)).await });
        let seven = task.await.map_err(|error| TaskError::new(error.to_string()))??;
        effects.note("back");
        Ok(seven)
    });
    let test = TestEngine::new().register(&spawning);
    let run = test.start(&spawning, 0).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.output(spawning.output()).await.unwrap(), 7);
}

#[tokio::test]
async fn a_call_that_loses_a_select_holds_up_nothing() {
    for _ in 0..20 {
        let effects = Effects::default();
        let racing = function(&effects, async |ctx, _| {
            for _ in 0..3 {
                let pause = Duration::from_millis(10);
                let work = async || {
                    tokio::time::sleep(pause).await;
                    Ok::<_, TaskError>(())
                };
                tokio::select! {
                    done = ctx.step("left", work) => done?,
                    done = ctx.step("right", work) => done?,
                }
                tokio::select! {
                    slept = ctx.sleep(SECOND) => slept?,
                    word = ctx.signal::<()>("never") => word?,
                }
            }
            Ok(())
        });
        let test = TestEngine::new().register(&racing);
        let run = test.start(&racing, 0).await.unwrap();
        test.advance(10 * SECOND).await;
        assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
        test.assert_promises_kept().await;
    }
}

#[tokio::test]
async fn a_join_that_became_a_sequence_diverges_and_does_not_hang() {
    let effects = Effects::default();
    let changing = function(&effects, async |ctx, effects| {
        let a = async || {
            tokio::time::sleep(SECOND).await;
            Ok::<_, TaskError>(())
        };
        let b = async || Ok::<_, TaskError>(());
        if effects.all().is_empty() {
            tokio::try_join!(ctx.step("a", a), ctx.step("b", b))?;
        } else {
            ctx.step("a", a).await?;
            ctx.step("b", b).await?;
        }
        ctx.sleep(HOUR).await
    });
    let test = TestEngine::new().register(&changing);
    let run = test.start(&changing, 0).await.unwrap();
    test.advance(2 * SECOND).await;
    effects.note("deployed");
    test.advance(2 * HOUR).await;
    let failure = run.tasks().await.unwrap()[0].failure.clone().expect("it failed");
    assert!(failure.to_string().starts_with("divergence: call 2 of task"), "{failure}");
}
