//! How the time of large runs grows: `cargo bench -p windlass --bench scale`.
//!
//! Each shape is built and run on the memory store at growing sizes. If the time
//! grows linearly, the last column (time per task and edge, relative to the
//! smallest size) stays near 1.

use std::time::{Duration, Instant};

use windlass::{RunState, Windlass, Workflow};

#[path = "../tests/it/shapes.rs"]
mod shapes;

/// A workflow of about `n` tasks.
type Shape = fn(n: usize) -> Workflow<()>;

const SHAPES: [(&str, Shape); 3] =
    [("chain", shapes::chain), ("fan-out 1→n→1", shapes::fan_out), ("random", shapes::random)];

const SIZES: [usize; 4] = [2_500, 5_000, 10_000, 20_000];

/// The best of this many runs counts; the others were disturbed.
const REPEATS: usize = 3;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
    let runtime = runtime.expect("a runtime can be built");
    println!(
        "{:<14} {:>7} {:>7} {:>10} {:>10} {:>12} {:>6}",
        "shape", "tasks", "edges", "build ms", "run ms", "us per item", "ratio"
    );
    for (name, shape) in SHAPES {
        let mut first = None;
        for size in SIZES {
            let build = best(|| {
                let begin = Instant::now();
                std::hint::black_box(shape(size));
                begin.elapsed()
            });
            let workflow = shape(size);
            let run = best(|| runtime.block_on(run(&workflow)));
            let tasks = workflow.definition().tasks();
            let edges: usize = tasks.iter().map(|task| task.parents.len()).sum();
            let per_item = micros(build + run) / (tasks.len() + edges) as f64;
            let ratio = per_item / *first.get_or_insert(per_item);
            println!(
                "{name:<14} {:>7} {edges:>7} {:>10.1} {:>10.1} {per_item:>12.2} {ratio:>6.2}",
                tasks.len(),
                micros(build) / 1e3,
                micros(run) / 1e3
            );
        }
    }
}

fn best(mut measure: impl FnMut() -> Duration) -> Duration {
    (0..REPEATS).map(|_| measure()).min().unwrap_or_default()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

async fn run(workflow: &Workflow<()>) -> Duration {
    let windlass = Windlass::memory();
    let worker = windlass.worker().register(workflow).slots(500).spawn().expect("valid settings");
    let begin = Instant::now();
    let run = windlass.start(workflow, ()).await.expect("the workflow is valid");
    let record = run.wait().await.expect("memory answers");
    let time = begin.elapsed();
    assert_eq!(record.state, RunState::Succeeded);
    worker.drain().await.expect("nothing is left to do");
    time
}
