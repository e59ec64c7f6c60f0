//! Workflows of any size, shared by the tests and the benchmark of large ones.

use windlass::{Task, TaskError, Workflow, WorkflowBuilder};

fn root(builder: &mut WorkflowBuilder<()>) -> Task<u64> {
    builder.task("root").run(async |_| Ok::<u64, TaskError>(1))
}

/// Each task adds one to what the one before it gave.
pub(crate) fn chain(n: usize) -> Workflow<()> {
    let mut builder = Workflow::builder("chain");
    let mut last = root(&mut builder);
    for i in 1..n {
        last = builder
            .task(format!("link-{i}"))
            .reads(&last)
            .run(async |_, before: u64| Ok::<u64, TaskError>(before + 1));
    }
    builder.build().expect("a chain is a DAG")
}

/// One task, n that read its output, and one that adds up theirs.
pub(crate) fn fan_out(n: usize) -> Workflow<()> {
    let mut builder = Workflow::builder("fan-out");
    let root = root(&mut builder);
    let parts: Vec<_> = (0..n)
        .map(|i| {
            let part = builder.task(format!("part-{i}")).reads(&root);
            part.run(async |_, one: u64| Ok::<u64, TaskError>(one))
        })
        .collect();
    builder
        .task("sum")
        .reads(&parts[..])
        .run(async |_, parts: Vec<u64>| Ok::<u64, TaskError>(parts.iter().sum()));
    builder.build().expect("a fan-out is a DAG")
}

/// Each task has up to four parents among those before it.
pub(crate) fn random(n: usize) -> Workflow<()> {
    let mut rng = fastrand::Rng::with_seed(n as u64);
    let mut builder = Workflow::builder("random");
    let mut tasks = vec![root(&mut builder)];
    for i in 1..n {
        let parents: Vec<_> =
            (0..rng.usize(1..=4)).map(|_| tasks[rng.usize(..tasks.len())].clone()).collect();
        let task = builder.task(format!("task-{i}")).after_all(&parents);
        tasks.push(task.run(async |_| Ok::<u64, TaskError>(0)));
    }
    builder.build().expect("edges that go back make no cycle")
}
