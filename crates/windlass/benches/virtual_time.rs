//! How long a day takes in the test kit:
//! `cargo bench -p windlass --features testing --bench virtual_time`.

use std::time::{Duration, Instant};

use windlass::testing::TestEngine;
use windlass::{TaskError, Workflow};

const DAY: Duration = Duration::from_secs(86_400);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let mut times: Vec<Duration> = runtime.expect("a runtime can be built").block_on(async {
        let mut nap = Workflow::<()>::builder("nap");
        let day = nap.sleep("day", DAY).add();
        nap.task("wake").after(&day).run(async |_| Ok::<_, TaskError>(()));
        let nap = nap.build().expect("the workflow is valid");
        let test = TestEngine::new().register(&nap);
        let mut times = Vec::new();
        for _ in 0..1_000 {
            let run = test.start(&nap, ()).await.expect("the workflow is known");
            test.run_until_idle().await;
            let begin = Instant::now();
            test.advance(DAY).await;
            times.push(begin.elapsed());
            assert!(run.get().await.expect("it was started").state.is_final());
        }
        times
    });
    times.sort();
    println!("a run that sleeps a day, woken by advance(24 h), 1000 times:");
    println!("median {:?}, 99th percentile {:?}", times[500], times[990]);
}
