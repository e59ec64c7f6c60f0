//! Functions that wait for signals to keys, in virtual time.

use std::time::Duration;

use windlass::function::{OneOf2, OneOf3};
use windlass::testing::{CrashPlace, LinkCall, TestEngine, crash_everywhere};
use windlass::{Ctx, ErrorKind, Function, RunHandle, RunState, SignalId, TaskError, TaskState};

const HOUR: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);

/// Waits for the payment of its name.
fn settle() -> Function<String, u32> {
    let settle = async |ctx: Ctx<String>| ctx.signal::<u32>("paid").key(ctx.input()).await;
    Function::new("settle", settle).expect("the function is valid")
}

async fn state(run: &RunHandle) -> TaskState {
    run.tasks().await.expect("the run is there")[0].state
}

#[tokio::test]
async fn a_signal_to_a_key_reaches_the_function_that_waits_for_it_early_or_late() {
    let settle = settle();
    let test = TestEngine::new().register(&settle);
    let windlass = test.windlass();
    windlass.signal_key("early", "paid", &1).await.unwrap();
    let early = test.start(&settle, "early".to_owned()).await.unwrap();
    let late = test.start(&settle, "late".to_owned()).await.unwrap();
    test.advance(HOUR).await;
    assert_eq!(early.output(settle.output()).await.unwrap(), 1);
    assert_eq!(state(&late).await, TaskState::Waiting);
    assert_eq!(late.tasks().await.unwrap()[0].worker, None, "no worker has it while it waits");
    let steps = late.steps("settle").await.unwrap();
    assert_eq!(steps[0].key.as_ref().map(|key| key.as_str()), Some("late"));
    windlass.signal_key("late", "refunded", &0).await.unwrap();
    windlass.signal_key("late", "paid", &0).tenant("acme").await.unwrap();
    test.advance(HOUR).await;
    assert_eq!(state(&late).await, TaskState::Waiting, "neither is for it");
    windlass.signal_key("late", "paid", &2).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(late.output(settle.output()).await.unwrap(), 2);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_wait_for_a_key_ends_with_its_timeout_and_takes_what_came_at_the_last_moment() {
    let patient = async |ctx: Ctx<()>| {
        let first = ctx.signal::<u32>("paid").key("pay_1").timeout(HOUR).await?;
        let second = ctx.signal::<u32>("paid").key("pay_1").timeout(HOUR).await?;
        Ok::<_, TaskError>((first, second))
    };
    let patient = Function::new("patient", patient).unwrap();
    let test = TestEngine::new().register(&patient);
    let run = test.start(&patient, ()).await.unwrap();
    test.advance(HOUR - SECOND).await;
    assert_eq!(state(&run).await, TaskState::Waiting);
    test.advance(2 * SECOND).await;
    assert_eq!(state(&run).await, TaskState::Waiting, "it waits for the second");
    test.windlass().signal_key("pay_1", "paid", &7).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.output(patient.output()).await.unwrap(), (None, Some(7)));
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn the_first_of_a_key_a_signal_to_the_run_and_a_sleep_is_what_a_function_goes_on_with() {
    let race = async |ctx: Ctx<String>| {
        let paid = ctx.signal::<u32>("paid").key(ctx.input());
        let stopped = ctx.signal::<u32>("paid");
        let first = match ctx.wait_any((paid, stopped, ctx.sleep(2 * HOUR))).await? {
            OneOf3::First(cents) => format!("paid {cents}"),
            OneOf3::Second(number) => format!("run {number}"),
            OneOf3::Third(()) => "too late".to_owned(),
        };
        // Run again behind another rest, it comes to the same.
        ctx.sleep(HOUR).await?;
        Ok::<_, TaskError>(first)
    };
    let race = Function::new("race", race).unwrap();
    let test = TestEngine::new().register(&race);
    let start = |key: &str| test.start(&race, key.to_owned());
    let (paid, told) = (start("a").await.unwrap(), start("b").await.unwrap());
    let (late, both) = (start("c").await.unwrap(), start("d").await.unwrap());
    test.advance(HOUR).await;
    test.windlass().signal_key("a", "paid", &1).await.unwrap();
    told.signal("paid", &2).await.unwrap();
    both.signal("paid", &3).await.unwrap();
    test.windlass().signal_key("d", "paid", &4).await.unwrap();
    test.advance(2 * HOUR).await;
    test.windlass().signal_key("c", "paid", &5).await.unwrap();
    test.advance(2 * HOUR).await;
    let expected = [(paid, "paid 1"), (told, "run 2"), (late, "too late"), (both, "paid 4")];
    for (run, expected) in expected {
        assert_eq!(run.output(race.output()).await.unwrap(), expected);
    }
    // What came too late is there for the next who asks.
    let next = start("c").await.unwrap();
    test.advance(2 * HOUR).await;
    assert_eq!(next.output(race.output()).await.unwrap(), "paid 5");
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn keys_can_be_joined_and_selected() {
    let both = async |ctx: Ctx<()>| {
        let signal = |key: &str| ctx.signal::<u32>("paid").key(key);
        let (one, two) = tokio::join!(signal("one"), signal("two"));
        let step = ctx.step("count", async || {
            tokio::time::sleep(HOUR).await;
            Ok::<_, TaskError>(0)
        });
        // A wait beside a step that is at work.
        let first = match ctx.wait_any((signal("three"), step)).await? {
            OneOf2::First(three) => three,
            OneOf2::Second(zero) => zero,
        };
        Ok::<_, TaskError>((one?, two?, first))
    };
    let both = Function::new("both", both).unwrap();
    let test = TestEngine::new().register(&both);
    let run = test.start(&both, ()).await.unwrap();
    for (number, key) in [(2, "two"), (1, "one"), (3, "three")] {
        test.pass(SECOND).await;
        test.windlass().signal_key(key, "paid", &number).await.unwrap();
    }
    test.advance(2 * HOUR).await;
    assert_eq!(run.output(both.output()).await.unwrap(), (1, 2, 3));
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn each_signal_to_a_key_is_taken_by_one_of_those_who_wait() {
    let settle = settle();
    let test = TestEngine::new().register(&settle).workers(3);
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(test.start(&settle, "shared".to_owned()).await.unwrap());
    }
    test.advance(HOUR).await;
    for number in 1..=4 {
        test.windlass().signal_key("shared", "paid", &number).await.unwrap();
    }
    test.advance(HOUR).await;
    let mut taken = Vec::new();
    for run in &runs {
        if run.get().await.unwrap().state == RunState::Succeeded {
            taken.push(run.output(settle.output()).await.unwrap());
        } else {
            assert_eq!(state(run).await, TaskState::Waiting, "there is none left for it");
        }
    }
    taken.sort_unstable();
    assert_eq!(taken, [1, 2, 3, 4]);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_signal_is_not_lost_if_who_was_let_go_on_for_it_is_cancelled_or_crashes() {
    let settle = settle();
    let test = TestEngine::new().register(&settle);
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(test.start(&settle, "shared".to_owned()).await.unwrap());
    }
    test.advance(HOUR).await;
    test.windlass().signal_key("shared", "paid", &7).await.unwrap();
    runs[0].cancel("nobody wants it").await.unwrap();
    test.crash_worker_during("settle").await;
    test.advance(HOUR).await;
    let mut taken = 0;
    for run in &runs[1..] {
        taken += u32::from(run.get().await.unwrap().state == RunState::Succeeded);
    }
    assert_eq!(taken, 1);
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn a_function_that_waits_for_keys_ends_the_same_wherever_its_worker_dies() {
    let gathering = Function::new("gathering", async |ctx: Ctx<()>| {
        let early = ctx.signal::<u32>("number").key("order_1").await?;
        let late = ctx.signal::<u32>("number").key("order_1").timeout(HOUR).await?;
        let never = ctx.signal::<u32>("number").key("order_1").timeout(HOUR).await?;
        Ok::<_, TaskError>((early, late, never))
    });
    let report = crash_everywhere(&gathering.unwrap(), ())
        .drive(async |test, run| {
            test.windlass().signal_key("order_1", "number", &1).await.unwrap();
            while run.tasks().await.unwrap()[0].state != TaskState::Waiting {
                test.advance(SECOND).await;
            }
            test.windlass().signal_key("order_1", "number", &2).await.unwrap();
        })
        .await;
    assert_eq!(report.state(), RunState::Succeeded);
    for is_applied in [false, true] {
        let is_take = |place: &CrashPlace| {
            matches!(place, CrashPlace::Call { call: LinkCall::TakeSignals, is_applied: side, .. }
                if *side == is_applied)
        };
        assert!(report.places().iter().filter(|place| is_take(place)).count() >= 3, "{is_applied}");
    }
}

#[tokio::test]
async fn a_signal_to_a_key_is_kept_for_thirty_days_or_as_long_as_is_said() {
    let settle = settle();
    let test = TestEngine::new().register(&settle);
    let windlass = test.windlass();
    windlass.signal_key("usual", "paid", &1).await.unwrap();
    windlass.signal_key("long", "paid", &2).keep_for(31 * 24 * HOUR).await.unwrap();
    windlass.signal_key("short", "paid", &3).keep_for(HOUR).await.unwrap();
    test.advance(30 * 24 * HOUR).await;
    let mut runs = Vec::new();
    for key in ["usual", "long", "short"] {
        runs.push(test.start(&settle, key.to_owned()).await.unwrap());
    }
    test.run_until_idle().await;
    assert_eq!(state(&runs[0]).await, TaskState::Waiting);
    assert_eq!(runs[1].output(settle.output()).await.unwrap(), 2);
    assert_eq!(state(&runs[2]).await, TaskState::Waiting);
}

#[tokio::test]
async fn a_signal_that_is_sent_again_with_its_id_is_one_signal() {
    let settle = settle();
    let test = TestEngine::new().register(&settle);
    let id = SignalId::from_random(7);
    for _ in 0..3 {
        test.windlass().signal_key("pay_1", "paid", &1).id(id).await.unwrap();
    }
    let first = test.start(&settle, "pay_1".to_owned()).await.unwrap();
    let second = test.start(&settle, "pay_1".to_owned()).await.unwrap();
    test.advance(HOUR).await;
    let states = [state(&first).await, state(&second).await];
    assert!(states.contains(&TaskState::Succeeded) && states.contains(&TaskState::Waiting));
    test.assert_promises_kept().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_signal_to_a_key_is_told_before_it_is_sent() {
    let test = TestEngine::new();
    let long = "k".repeat(401);
    for (key, name, tenant, kept, text) in [
        ("", "paid", "acme", HOUR, "signal key is empty"),
        (long.as_str(), "paid", "acme", HOUR, "401 bytes, the limit is 400"),
        ("pay_1", "", "acme", HOUR, "step name is empty"),
        ("pay_1", "paid", "", HOUR, "tenant name is empty"),
        ("pay_1", "paid", "acme", Duration::ZERO, "kept for no time at all"),
        ("pay_1", "paid", "acme", Duration::MAX, "the limit is"),
    ] {
        let signal = test.windlass().signal_key(key, name, &1).tenant(tenant).keep_for(kept);
        let error = signal.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    let large = "x".repeat(2 << 20);
    let error = test.windlass().signal_key("pay_1", "paid", &large).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Payload, "{error}");
}

#[tokio::test]
async fn a_function_that_asks_for_a_wrong_key_or_type_is_told() {
    let wrong = Function::new("wrong", async |ctx: Ctx<String>| {
        ctx.signal::<u32>("paid").key(ctx.input()).await
    });
    let wrong = wrong.unwrap();
    let test = TestEngine::new().register(&wrong);
    let empty = test.start(&wrong, String::new()).await.unwrap();
    let typed = test.start(&wrong, "pay_1".to_owned()).await.unwrap();
    test.windlass().signal_key("pay_1", "paid", "a word").await.unwrap();
    test.advance(HOUR).await;
    for (run, text) in [(empty, "signal key is empty"), (typed, "signal \"paid\" to key \"pay_1\"")]
    {
        let failure = run.tasks().await.unwrap()[0].failure.clone().expect("it failed");
        assert!(failure.message.contains(text), "{failure}");
    }
}

#[tokio::test]
async fn a_call_that_asks_for_another_key_than_its_record_is_a_divergence() {
    let keys = std::sync::Arc::new(std::sync::Mutex::new(Some("one".to_owned())));
    let seen = keys.clone();
    let changing = Function::new("changing", move |ctx: Ctx<()>| {
        let key = seen.lock().expect("no handler panics with it").clone();
        async move {
            let signal = ctx.signal::<u32>("paid");
            match key {
                Some(key) => signal.key(key).await,
                None => signal.await,
            }
        }
    });
    let changing = changing.unwrap();
    for (other, text) in [
        (Some("two"), "signal \"paid\" to key \"two\" in the code"),
        (None, "and signal \"paid\" in the code"),
    ] {
        *keys.lock().unwrap() = Some("one".to_owned());
        let test = TestEngine::new().register(&changing);
        let run = test.start(&changing, ()).await.unwrap();
        test.advance(HOUR).await;
        *keys.lock().unwrap() = other.map(str::to_owned);
        test.windlass().signal_key("one", "paid", &1).await.unwrap();
        test.advance(HOUR).await;
        let failure = run.tasks().await.unwrap()[0].failure.clone().expect("it failed");
        assert_eq!(failure.code.word(), "divergence");
        let recorded = "is signal \"paid\" to key \"one\" in its record";
        assert!(failure.message.contains(recorded), "{failure}");
        assert!(failure.message.contains(text), "{failure}");
    }
}
