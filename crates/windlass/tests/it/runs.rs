//! Starting, finding and steering runs.

use std::sync::Arc;
use std::time::Duration;

use windlass::store::{MemoryStore, RunFilter};
use windlass::testing::TestEngine;
use windlass::{
    Ctx, ErrorKind, EventBody, PayloadLimit, RetryPolicy, RunEvent, RunEventKind, RunId, RunState,
    TaskError, TaskState, Tenant, Windlass, Workflow,
};

fn echo() -> Workflow<String> {
    let mut builder = Workflow::<String>::builder("echo");
    builder.task("say").run(async |ctx: Ctx<String>| Ok::<_, TaskError>(ctx.input().clone()));
    builder.build().expect("the workflow is valid")
}

/// Runs a workflow with an input, an output and a note of exactly the limit, and with each
/// of one byte more.
#[expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]
pub(crate) async fn payloads_at_the_limit(windlass: Windlass, limit: usize) {
    let mut sizes = Workflow::<String>::builder("sizes");
    let fits = sizes.task("fits").run(move |ctx: Ctx<String>| async move {
        ctx.progress(ctx.input())?;
        let error = ctx.progress(&(ctx.input().clone() + "x")).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "progress of task \"fits\" has {} bytes, the payload_limit is {limit} [WL-0003]",
                limit + 1
            )
        );
        Ok::<_, TaskError>(ctx.input().clone())
    });
    sizes.task("over").run(async |ctx: Ctx<String>| Ok::<_, TaskError>(ctx.input().clone() + "x"));
    let sizes = sizes.build().unwrap();
    let worker = windlass.worker().register(&sizes).spawn().unwrap();
    let input = "x".repeat(limit - 2);
    let error = windlass.start(&sizes, input.clone() + "x").await.unwrap_err();
    let has = format!("has {} bytes, the payload_limit is {limit}", limit + 1);
    assert_eq!(error.to_string(), format!("input of workflow \"sizes\" {has} [WL-0003]"));
    let run = windlass.start(&sizes, input.clone()).await.unwrap();
    assert_eq!(run.wait().await.unwrap().state, RunState::Failed);
    assert_eq!(run.output(&fits).await.unwrap(), input);
    let tasks = run.tasks().await.unwrap();
    let failure = tasks[1].failure.as_ref().unwrap();
    assert_eq!(failure.message, format!("output of task \"over\" {has}"));
    worker.drain().await.unwrap();
}

#[tokio::test]
async fn payloads_may_be_as_large_as_the_limit_that_is_set() {
    for limit in [1_024, 3 << 20] {
        let set = PayloadLimit::new(limit).unwrap();
        let store = MemoryStore::new().with_payload_limit(set);
        payloads_at_the_limit(Windlass::with_store(Arc::new(store)), limit).await;
    }
}

#[tokio::test]
async fn the_same_key_is_the_same_run_and_with_another_input_a_conflict() {
    let windlass = Windlass::memory();
    let echo = echo();
    let start = |input: &str| windlass.start(&echo, input.to_owned()).tenant("acme").key("k");
    let first = start("a").await.unwrap();
    assert_eq!(start("a").await.unwrap().id(), first.id());
    let error = start("b").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let text = format!(
        r#"idempotency key "k" was used for run {} with another start (different: input)"#,
        first.id()
    );
    assert_eq!(error.to_string(), format!("{text} [WL-0005]"));
    // Another tenant's key is another key.
    let other = windlass.start(&echo, "b".to_owned()).tenant("bolt").key("k").await.unwrap();
    assert_ne!(other.id(), first.id());
}

#[tokio::test]
async fn bad_starts_name_the_culprit_and_leave_nothing_behind() {
    let windlass = Windlass::memory();
    let echo = echo();
    let start = || windlass.start(&echo, "hello".to_owned());
    let refused = [
        (start().tenant(""), "tenant name is empty [WL-0002]".to_owned()),
        (
            start().key("a\nb"),
            r#"idempotency key "a\nb" has a control character at byte 1 [WL-0002]"#.to_owned(),
        ),
        (start().priority(101), "priority 101 is not within -100 to 100 [WL-0002]".to_owned()),
        (
            windlass.start(&echo, "x".repeat(1 << 20)),
            r#"input of workflow "echo" has 1048578 bytes, the payload_limit is 1048576 [WL-0003]"#
                .to_owned(),
        ),
    ];
    for (start, message) in refused {
        assert_eq!(start.await.unwrap_err().to_string(), message);
    }
    let error = start().delay(Duration::MAX).await.unwrap_err();
    assert!(error.to_string().contains("is over the limit of"), "{error}");
    assert!(windlass.list(RunFilter::default()).await.unwrap().runs.is_empty());
}

#[tokio::test]
async fn many_starts_at_once_are_judged_one_by_one() {
    let windlass = Windlass::memory();
    let echo = echo();
    let starts = (0..25_000).map(|i| {
        let start = windlass.start(&echo, i.to_string());
        if i == 13 { start.tenant("") } else { start }
    });
    let answers = windlass.start_all(starts).await.unwrap();
    assert_eq!(answers.len(), 25_000);
    let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert_eq!(refused.len(), 1);
    assert!(answers[13].is_err());
    assert_eq!(
        answers[24_999].as_ref().unwrap().get().await.unwrap().input.unwrap().as_str(),
        "\"24999\""
    );
}

#[tokio::test]
async fn a_run_that_does_not_exist_is_not_found() {
    let windlass = Windlass::memory();
    let run = windlass.run(RunId::from_parts(windlass::Timestamp::from_micros(0), 7));
    let text = format!("run {} does not exist [WL-0004]", run.id());
    assert_eq!(run.get().await.unwrap_err().to_string(), text);
    assert_eq!(run.wait().await.unwrap_err().to_string(), text);
    assert_eq!(run.cancel("").await.unwrap_err().to_string(), text);
    assert_eq!(run.retry().await.unwrap_err().to_string(), text);
    assert!(run.history().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_output_is_there_when_its_task_has_succeeded_and_not_before() {
    let echo = {
        let mut builder = Workflow::<String>::builder("echo");
        let say = builder
            .task("say")
            .run(async |ctx: Ctx<String>| Ok::<_, TaskError>(ctx.input().clone()));
        (builder.build().unwrap(), say)
    };
    let (echo, say) = echo;
    let test = TestEngine::new().register(&echo);
    let run = test.start(&echo, "hi".to_owned()).delay(Duration::from_secs(60)).await.unwrap();
    let error = run.output(&say).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains(r#"task "say" of run"#), "{error}");
    assert!(error.to_string().contains("is scheduled and has no output"), "{error}");
    test.advance(Duration::from_secs(60)).await;
    assert_eq!(run.output(&say).await.unwrap(), "hi");
}

#[tokio::test(start_paused = true)]
async fn waiting_with_a_limit_says_when_it_was_too_short() {
    let windlass = Windlass::memory();
    let run = windlass.start(&echo(), String::new()).await.unwrap();
    let error = run.wait_timeout(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_failed_run_goes_on_from_the_failed_task_and_keeps_what_succeeded() {
    let mut builder = Workflow::<()>::builder("order");
    let reserve = builder.task("reserve").run(async |_| Ok::<_, TaskError>("A7".to_owned()));
    let charge = builder.task("charge").after(&reserve).retry(RetryPolicy::none()).run(
        async |ctx: Ctx<()>| match ctx.fence().0 {
            1 => Err(TaskError::new("card declined").code("declined")),
            fence => Ok(fence),
        },
    );
    let ship = builder.task("ship").reads((&reserve, &charge)).run(
        async |_, (place, fence): (String, u64)| Ok::<_, TaskError>(format!("{place}-{fence}")),
    );
    builder.on_failure("apologise").run(async |_, failures| {
        let (task, failure) = &failures[0];
        Ok::<_, TaskError>(format!("{task}: {failure}"))
    });
    let order = builder.build().unwrap();

    let test = TestEngine::new().register(&order);
    let run = test.start(&order, ()).await.unwrap();
    test.run_until_idle().await;
    assert_eq!(run.get().await.unwrap().state, RunState::Failed);
    let tasks = run.tasks().await.unwrap();
    let states: Vec<_> = tasks.iter().map(|task| task.state).collect();
    use TaskState::{Failed, Skipped, Succeeded};
    assert_eq!(states, [Succeeded, Failed, Skipped, Succeeded]);
    assert_eq!(tasks[3].output.as_ref().unwrap().as_str(), r#""charge: declined: card declined""#);

    assert_eq!(run.retry().await.unwrap(), 2);
    test.run_until_idle().await;
    assert_eq!(run.get().await.unwrap().state, RunState::Succeeded);
    assert_eq!(run.output(&ship).await.unwrap(), "A7-2");
    let history = test.history(&run).await;
    history.assert_task("reserve", &["queued", "started", "succeeded"]);
    history.assert_task(
        "charge",
        &["queued", "started", "failed", "reset", "queued", "started", "succeeded"],
    );
    history.assert_task("apologise", &["queued", "started", "succeeded", "reset", "skipped"]);
    test.assert_promises_kept().await;
    assert_eq!(run.retry().await.unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn runs_are_listed_by_filter_and_page() {
    let windlass = Windlass::memory();
    let echo = echo();
    for i in 0..25 {
        let tenant = if i % 5 == 0 { "bolt" } else { "acme" };
        let start = windlass.start(&echo, i.to_string()).tenant(tenant);
        start.metadata("parity", if i % 2 == 0 { "even" } else { "odd" }).await.unwrap();
    }
    let acme = Some(Tenant::new("acme").unwrap());
    let mut filter = RunFilter { tenant: acme, limit: 7, ..RunFilter::default() };
    let mut inputs = Vec::new();
    loop {
        let page = windlass.list(filter.clone()).await.unwrap();
        assert!(page.runs.len() <= 7);
        for listed in page.runs {
            let input = windlass.run(listed.id).get().await.unwrap().input.unwrap();
            inputs.push(input.decode::<String>().unwrap());
        }
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    assert_eq!(inputs.len(), 20);
    inputs.sort();
    inputs.dedup();
    assert_eq!(inputs.len(), 20, "no run twice");
    let odd = Some(("parity".to_owned(), "odd".to_owned()));
    let page = windlass.list(RunFilter { metadata: odd, ..RunFilter::default() }).await.unwrap();
    assert_eq!(page.runs.len(), 12);
}

#[tokio::test]
async fn another_definition_of_a_known_workflow_is_a_conflict_also_when_it_is_started() {
    let windlass = Windlass::memory();
    let first = echo();
    windlass.start(&first, String::new()).await.unwrap();
    let mut other = Workflow::<String>::builder("echo");
    other.task("shout").run(async |_| Ok::<_, TaskError>(()));
    let other = other.build().unwrap();
    // Others of the same batch are not kept back by it.
    let starts = [windlass.start(&other, String::new()), windlass.start(&first, String::new())];
    let answers = windlass.start_all(starts).await.unwrap();
    assert_eq!(answers[0].as_ref().unwrap_err().kind(), ErrorKind::Conflict);
    assert!(answers[1].is_ok());
}

#[tokio::test]
async fn runs_that_are_due_together_begin_in_the_order_they_were_started() {
    let echo = echo();
    let test = TestEngine::new().register(&echo).slots(1);
    let mut runs = Vec::new();
    for i in 0..20 {
        let start = test.start(&echo, i.to_string()).delay(Duration::from_secs(60));
        runs.push(start.await.unwrap());
    }
    test.advance(Duration::from_secs(60)).await;
    let mut order = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        let history = run.history().await.unwrap();
        let started = history.iter().find(|event| event.word() == "started").unwrap();
        order.push((started.id, i));
    }
    order.sort();
    let order: Vec<_> = order.into_iter().map(|(_, i)| i).collect();
    assert_eq!(order, (0..20).collect::<Vec<_>>());
    let page = test.windlass().list(RunFilter::default()).await.unwrap();
    let listed: Vec<_> = page.runs.iter().rev().map(|run| run.id).collect();
    assert_eq!(listed, runs.iter().map(|run| run.id()).collect::<Vec<_>>(), "newest first");
}

#[tokio::test]
async fn metadata_and_reasons_that_no_store_could_keep_are_refused_or_cut() {
    let windlass = Windlass::memory();
    let echo = echo();
    let start = || windlass.start(&echo, String::new());
    let nul = start().metadata("note", "a\0b").await.unwrap_err();
    assert_eq!(nul.to_string(), r#"metadata "note" has a NUL at byte 1 [WL-0002]"#);
    let long = start().metadata("note", "x".repeat(1_025)).await.unwrap_err();
    assert_eq!(long.to_string(), r#"metadata "note" has 1025 bytes, the limit is 1024 [WL-0002]"#);
    let fits = start().metadata("note", "x".repeat(1_024)).await.unwrap();
    fits.cancel("\0".repeat(1 << 20)).await.unwrap();
    let history = fits.history().await.unwrap();
    let EventBody::Run(RunEvent { kind: RunEventKind::Cancelled { reason }, .. }) =
        &history.last().unwrap().body
    else {
        panic!("{history:?}");
    };
    let reason = reason.as_ref().unwrap();
    assert!(reason.len() <= 4_096 && !reason.contains('\0'));
}
