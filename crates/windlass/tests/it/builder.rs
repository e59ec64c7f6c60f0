//! What the workflow builder accepts, and what it says about the rest.

use std::time::Duration;

use windlass::{
    ErrorKind, Failure, RetryPolicy, Task, TaskError, TaskName, Trigger, Workflow, WorkflowBuilder,
};

const HUNDRED_YEARS: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

async fn ok<C>(_: C) -> Result<u64, TaskError> {
    Ok(1)
}

async fn ok_reading<C, V>(_: C, _: V) -> Result<u64, TaskError> {
    Ok(1)
}

/// The message of `build`, after `declare` did its part, without the error's code.
fn refusal(declare: impl FnOnce(&mut WorkflowBuilder<u64>)) -> String {
    let mut builder = Workflow::<u64>::builder("order");
    declare(&mut builder);
    let error = builder.build().expect_err("the definition is wrong");
    assert_eq!(error.kind(), ErrorKind::Definition);
    assert!(!error.is_retryable());
    error.to_string().strip_suffix(" [WL-0001]").expect("the code is shown").to_owned()
}

#[test]
fn a_definition_has_the_declared_tasks_edges_and_policies() {
    let mut order = Workflow::<u64>::builder("order").version(2);
    let charge = order
        .task("charge")
        .retry(RetryPolicy::exponential().attempts(7))
        .timeout(Duration::from_secs(30))
        .queue("payments")
        .priority(-100)
        .run(ok);
    let pack = order.task("pack").run(ok);
    let night = order.sleep("night", HUNDRED_YEARS).after_all([&charge, &pack]).add();
    let ship = order
        .task("ship")
        .reads((charge.optional(), &pack.optional()))
        .after(&night)
        .after(&charge)
        .trigger(Trigger::NoneFailed)
        .run(ok_reading);
    assert_eq!(ship.name(), "ship");
    let order = order.build().unwrap();

    assert_eq!((order.name().as_str(), order.version().get()), ("order", 2));
    let tasks = order.definition().tasks();
    assert_eq!(tasks[0].retry.max_attempts(), 7);
    assert_eq!(tasks[0].timeout, Some(Duration::from_secs(30)));
    assert_eq!(tasks[0].queue.as_str(), "payments");
    assert_eq!(tasks[0].priority.get(), -100);
    let parents =
        |task: usize| tasks[task].parents.iter().map(|parent| parent.0).collect::<Vec<_>>();
    assert!(parents(1).is_empty());
    assert_eq!(parents(2), [0, 1]);
    assert_eq!(parents(3), [0, 1, 2], "an edge that is declared twice is one");
    assert_eq!(tasks[3].trigger, Trigger::NoneFailed);
    assert_eq!(tasks[1].queue.as_str(), "default");
}

#[test]
fn a_workflow_needs_a_name_a_version_and_a_task() {
    let empty = Workflow::<u64>::builder("").version(0).build().unwrap_err();
    assert_eq!(empty.to_string(), "workflow name is empty [WL-0001]");
    for version in [0, 2_147_483_648] {
        let wrong = Workflow::<u64>::builder("order").version(version).build().unwrap_err();
        assert_eq!(
            wrong.to_string(),
            format!(
                "workflow \"order\" has version {version}, not within 1 to 2147483647 [WL-0001]"
            )
        );
    }
    assert_eq!(refusal(|_| {}), "workflow \"order\" has no tasks");
}

#[test]
fn names_that_cannot_be_used_are_refused() {
    let message = refusal(|order| drop(order.task("a\nb").run(ok)));
    let expected =
        r#"workflow "order", task "a\nb": task name "a\nb" has a control character at byte 1"#;
    assert_eq!(message, expected);
    let message = refusal(|order| drop(order.task("charge").queue("").run(ok)));
    assert_eq!(message, r#"workflow "order", task "charge": queue name is empty"#);
    let message = refusal(|order| {
        order.task("charge").run(ok);
        order.task("charge").run(ok);
    });
    assert_eq!(message, r#"workflow "order", task "charge": the name is used twice"#);
}

#[test]
fn policies_that_make_no_sense_are_refused() {
    let message = refusal(|order| {
        order.task("charge").retry(RetryPolicy::exponential().attempts(0)).run(ok);
    });
    let expected = r#"workflow "order", task "charge": attempts is 0, not within 1 to 10000"#;
    assert_eq!(message, expected);
    let message = refusal(|order| drop(order.task("charge").timeout(Duration::ZERO).run(ok)));
    assert_eq!(message, r#"workflow "order", task "charge": the timeout is zero"#);
    let message = refusal(|order| drop(order.sleep("nap", HUNDRED_YEARS * 2).add()));
    let expected =
        r#"workflow "order", task "nap": it sleeps 6307200000s, the limit is 3153600000s"#;
    assert_eq!(message, expected);
    for priority in [101, -101] {
        let message = refusal(|order| drop(order.task("charge").priority(priority).run(ok)));
        let expected = format!(
            r#"workflow "order", task "charge": priority {priority} is not within -100 to 100"#
        );
        assert_eq!(message, expected);
    }
    let message =
        refusal(|order| drop(order.on_failure("apologise").priority(101).run(ok_reading)));
    let expected = r#"workflow "order", task "apologise": priority 101 is not within -100 to 100"#;
    assert_eq!(message, expected);
}

#[test]
fn an_on_failure_task_is_the_only_one_and_the_last() {
    let message = refusal(|order| {
        order.task("charge").run(ok);
        order.on_failure("apologise").run(ok_reading);
        order.on_failure("refund").run(ok_reading);
    });
    let expected = r#"workflow "order", task "refund": "apologise" is the on-failure task already"#;
    assert_eq!(message, expected);
    let message = refusal(|order| {
        let apologise = order
            .on_failure("apologise")
            .timeout(Duration::from_secs(1))
            .run(async |_, _: Vec<(TaskName, Failure)>| Ok::<_, TaskError>(()));
        order.task("charge").after(&apologise).run(ok);
    });
    let expected =
        r#"workflow "order", task "charge": its parent "apologise" is the on-failure task"#;
    assert_eq!(message, expected);
}

#[test]
fn a_handle_of_another_workflow_is_refused_wherever_it_is_used() {
    let mut other = Workflow::<u64>::builder("other");
    let foreign: Task<u64> = other.task("foreign").run(ok);
    type Use = fn(&mut WorkflowBuilder<u64>, &Task<u64>);
    let uses: [Use; 6] = [
        |order, foreign| drop(order.task("ship").after(foreign).run(ok)),
        |order, foreign| drop(order.task("ship").after_all([foreign]).run(ok)),
        |order, foreign| drop(order.task("ship").reads(foreign).run(ok_reading)),
        |order, foreign| drop(order.task("ship").reads(foreign.optional()).run(ok_reading)),
        |order, foreign| {
            drop(order.task("ship").reads(&vec![foreign.clone()]).run(ok_reading));
        },
        |order, foreign| drop(order.sleep("ship", Duration::ZERO).after(foreign).add()),
    ];
    for used in uses {
        // A task of the same index and name in this workflow does not hide it.
        let message = refusal(|order| {
            order.task("foreign").run(ok);
            used(order, &foreign);
        });
        let expected =
            r#"workflow "order", task "ship": its parent "foreign" belongs to another workflow"#;
        assert_eq!(message, expected);
    }
}

#[test]
fn an_output_that_may_be_missing_can_only_be_read_as_optional() {
    let declare = |trigger| {
        move |order: &mut WorkflowBuilder<u64>| {
            let charge = order.task("charge").run(ok);
            let pack = order.task("pack").run(ok);
            let reads = (charge.optional(), &pack, &charge);
            order.task("ship").trigger(trigger).reads(reads).run(ok_reading);
        }
    };
    for trigger in [Trigger::AllFinished, Trigger::AnyFailed, Trigger::NoneFailed] {
        let expected = "workflow \"order\", task \"ship\": it reads the output of \"pack\", but \
            may run when that did not succeed; read it as optional";
        assert_eq!(refusal(declare(trigger)), expected);
    }
    let mut order = Workflow::<u64>::builder("order");
    declare(Trigger::AllSucceeded)(&mut order);
    assert!(order.build().is_ok());
}

#[test]
fn of_several_problems_the_one_declared_first_is_reported() {
    let mut other = Workflow::<u64>::builder("other");
    let foreign = other.task("foreign").run(ok);
    let message = refusal(|order| {
        order.task("fine").run(ok);
        order.task("first").timeout(Duration::ZERO).run(ok);
        order.task("second").after(&foreign).run(ok);
        order.task("third").priority(101).run(ok);
        order.task("fine").run(ok);
    });
    assert_eq!(message, r#"workflow "order", task "first": the timeout is zero"#);
    let message = refusal(|order| {
        order.task("first").timeout(Duration::ZERO).run(ok);
        order.task("first").run(ok);
    });
    assert_eq!(message, r#"workflow "order", task "first": the timeout is zero"#);
    let message = refusal(|order| {
        order.task("first").priority(101).run(ok);
        order.task("second").timeout(Duration::ZERO).run(ok);
        order.task("third").after(&foreign).run(ok);
    });
    assert_eq!(
        message,
        r#"workflow "order", task "first": priority 101 is not within -100 to 100"#
    );
}

#[test]
fn one_task_or_edge_over_the_limit_is_refused() {
    let tasks = |count: usize| {
        let mut order = Workflow::<u64>::builder("order");
        for task in 0..count {
            order.sleep(task.to_string(), Duration::ZERO).add();
        }
        order.build()
    };
    assert!(tasks(50_000).is_ok());
    let error = tasks(50_001).unwrap_err();
    assert_eq!(
        error.to_string(),
        "workflow \"order\" has 50001 tasks, the limit is 50000 [WL-0001]"
    );
    let message = refusal(|order| {
        let charge = order.task("charge").run(ok);
        order.task("ship").after_all(std::iter::repeat_n(&charge, 500_001)).run(ok);
    });
    assert_eq!(message, "workflow \"order\" has 500001 edges, the limit is 500000");
}

#[test]
fn ten_thousand_tasks_are_built_as_a_chain_and_as_a_fan() {
    const TASKS: usize = 10_000;
    let mut order = Workflow::<u64>::builder("order");
    let mut last = order.task("first").run(ok);
    for link in 0..TASKS {
        last = order.task(format!("link-{link}")).reads(&last).run(ok_reading);
    }
    let parts: Vec<_> = (0..TASKS)
        .map(|part| order.task(format!("part-{part}")).reads(&last).run(ok_reading))
        .collect();
    order.task("sum").reads(&parts).run(ok_reading);
    let order = order.build().unwrap();

    let tasks = order.definition().tasks();
    assert_eq!(tasks.len(), 2 * TASKS + 2);
    assert_eq!(tasks[2 * TASKS + 1].parents.len(), TASKS);
}
