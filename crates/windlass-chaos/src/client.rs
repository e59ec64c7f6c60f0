//! The client: starts runs at a steady rate, repeats what was not answered, and remembers the
//! answers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::bail;
use windlass::store::RunFilter;
use windlass::{Error, RunId, RunState, Windlass, WorkflowName};

use crate::ledger::now_us;
use crate::workload::{Item, Repairs, Workflows, Workload, is_confirmed, tenant};

/// The pause before an unanswered request is repeated.
const REPEAT: Duration = Duration::from_millis(100);

/// One in this many starts is repeated although it was answered, as by a client that lost the
/// answer.
const REPEATED: u32 = 20;

/// The pause between two looks for halted keys.
const LOOK: Duration = Duration::from_millis(300);

/// The answers to the starts of one workload.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// When the first start was sent, in microseconds since 1970.
    pub(crate) began_at_us: u64,
    /// The run of each item.
    pub(crate) runs: BTreeMap<Item, RunId>,
    /// Items for which two answers named different runs.
    pub(crate) contradictions: Vec<Item>,
    /// How often a request failed and was repeated.
    pub(crate) repetitions: u64,
}

/// Starts all runs of a workload, spread over a time.
pub(crate) async fn send(
    windlass: &Windlass,
    workflows: &Workflows,
    workload: Workload,
    runs: u64,
    time: Duration,
) -> anyhow::Result<Answers> {
    let (keys, began) = (workload.keys(), Instant::now());
    let mut answers = Answers { began_at_us: now_us(), ..Answers::default() };
    // At most one item of a key in a batch: a batch that is repeated in part keeps the order.
    for first in (0..runs).step_by(usize::try_from(keys)?) {
        let planned = time.mul_f64(first as f64 / runs as f64);
        tokio::time::sleep(planned.saturating_sub(began.elapsed())).await;
        let items =
            (first..runs.min(first + keys)).map(|number| Item { key: number % keys, number });
        let items: Vec<Item> = items.collect();
        start(windlass, workflows, workload, &items, &mut answers).await?;
        if fastrand::u32(..REPEATED) == 0 {
            start(windlass, workflows, workload, &items, &mut answers).await?;
        }
        if workload == Workload::Trip {
            for item in items.into_iter().filter(|item| is_confirmed(*item)) {
                confirm(windlass, answers.runs[&item], item).await?;
            }
        }
    }
    Ok(answers)
}

/// Starts a batch and repeats it until every start is answered.
async fn start(
    windlass: &Windlass,
    workflows: &Workflows,
    workload: Workload,
    items: &[Item],
    answers: &mut Answers,
) -> anyhow::Result<()> {
    loop {
        let starts = items.iter().map(|item| {
            let start = windlass.start(workflows.of(workload), *item).tenant(tenant(*item));
            start.key(item.number.to_string())
        });
        let mut is_answered = true;
        match windlass.start_all(starts).await {
            Err(error) => {
                check_retryable(&error)?;
                is_answered = false;
            }
            Ok(started) => {
                for (item, started) in items.iter().zip(started) {
                    match started {
                        Err(error) => {
                            check_retryable(&error)?;
                            is_answered = false;
                        }
                        Ok(run) => {
                            let known = answers.runs.insert(*item, run.id());
                            if known.is_some_and(|known| known != run.id()) {
                                answers.contradictions.push(*item);
                            }
                        }
                    }
                }
            }
        }
        if is_answered {
            return Ok(());
        }
        answers.repetitions += 1;
        tokio::time::sleep(REPEAT).await;
    }
}

/// A fault may make a request fail for a time. Any other error is a defect.
fn check_retryable(error: &Error) -> anyhow::Result<()> {
    if error.is_retryable() {
        return Ok(());
    }
    bail!("a start was refused: {error}")
}

/// Sends the signal that a trip waits for, until it is accepted.
async fn confirm(windlass: &Windlass, run: RunId, item: Item) -> anyhow::Result<()> {
    let mut is_repeated = false;
    loop {
        match windlass.run(run).signal("confirmed", &item.number).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_retryable() => {
                is_repeated = true;
                tokio::time::sleep(REPEAT).await;
            }
            // The first request arrived, and the run has ended since.
            Err(_) if is_repeated => return Ok(()),
            Err(error) => bail!("the signal to run {run} was refused: {error}"),
        }
    }
}

/// Repairs halted keys and retries their runs, as an operator does, until it is dropped.
pub(crate) async fn repair_halted(windlass: &Windlass, repairs: &Repairs) -> anyhow::Result<()> {
    loop {
        tokio::time::sleep(LOOK).await;
        let filter = RunFilter {
            workflow: Some(WorkflowName::new(Workload::Halting.name())?),
            state: Some(RunState::Failed),
            limit: 100,
            ..RunFilter::default()
        };
        // The database may be down. The next look finds the same runs.
        let Ok(page) = windlass.list(filter).await else { continue };
        for run in page.runs {
            let Some(number) = run.key.and_then(|key| key.as_str().parse().ok()) else { continue };
            repairs.repair(Item { key: number % Workload::Halting.keys(), number })?;
            // Retried by the next look if this fails.
            let _ = windlass.run(run.id).retry().await;
        }
    }
}
