//! What workers say of the tasks they hold.

use windlass_core::{Decision, Parking, TaskId, TaskState};

use super::PostgresStore;
use super::fault::Fault;
use super::journal::Parked;
use super::run::Verb;
use super::unsound;
use super::work::Work;
use crate::store::{Answer, Completion, Held, Refusal, Release};

impl PostgresStore {
    pub(super) async fn finish_once(
        &self,
        completions: &[Completion],
    ) -> Result<Vec<Answer>, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let mut work = self.lock_runs(&tx, completions.iter().map(|one| one.task.run)).await?;
        // One that is parked may be refused, and then keeps its lease.
        let ended = completions.iter().filter(|one| parking(one).is_none());
        let held = ended.map(|one| Held { task: one.task, fence: one.fence });
        work.take_first_claims(&tx, held).await?;
        work.load(&tx, completions.iter().map(|one| one.task)).await?;
        work.load_for_ends(&tx, &ends(&work, completions)).await?;
        let parked = Parked::load(&tx, completions.iter().filter_map(parking)).await?;
        let mut answers = Vec::with_capacity(completions.len());
        for completion in completions {
            let held = Held { task: completion.task, fence: completion.fence };
            if let Some(answer) = judge(&work, held, Verb::Finish) {
                answers.push(answer);
                continue;
            }
            // What an earlier one of the batch changed may have made more of it necessary.
            work.load_for_ends(&tx, &ends(&work, std::slice::from_ref(completion))).await?;
            let now = work.now;
            let Some((run, moves)) = work.run(held.task.run) else { continue };
            let unsound = unsound::of(held.task.run);
            if let Decision::Park(parking) = &completion.decision {
                let Some(judged) = parked.judge(held.task, parking, now) else {
                    answers.push(Answer::Refused(Refusal::Invalid));
                    continue;
                };
                run.give_up_lease(held.task.index, Verb::Finish).map_err(&unsound)?;
                run.park(moves, held.task.index, judged).map_err(&unsound)?;
            } else {
                run.give_up_lease(held.task.index, Verb::Finish).map_err(&unsound)?;
                run.apply_decision(moves, now, held.task.index, completion.decision.clone())
                    .map_err(&unsound)?;
            }
            answers.push(Answer::Accepted);
        }
        self.conclude(tx, &work).await?;
        Ok(answers)
    }

    pub(super) async fn release_once(&self, releases: &[Release]) -> Result<Vec<Answer>, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let mut work = self.lock_runs(&tx, releases.iter().map(|one| one.task.run)).await?;
        work.load(&tx, releases.iter().map(|one| one.task)).await?;
        let mut answers = Vec::with_capacity(releases.len());
        for release in releases {
            let held = Held { task: release.task, fence: release.fence };
            if let Some(answer) = judge(&work, held, Verb::Release) {
                answers.push(answer);
                continue;
            }
            let until = (!release.delay.is_zero()).then(|| work.now + release.delay);
            if let Some((run, moves)) = work.run(held.task.run) {
                run.hand_back(moves, held.task.index, until).map_err(unsound::of(held.task.run))?;
            }
            answers.push(Answer::Accepted);
        }
        self.conclude(tx, &work).await?;
        Ok(answers)
    }
}

/// How a completion lets its function wait, if it does.
fn parking(completion: &Completion) -> Option<(TaskId, &Parking)> {
    match &completion.decision {
        Decision::Park(parking) => Some((completion.task, parking)),
        Decision::Succeed(_) | Decision::Fail(_) | Decision::Retry { .. } | Decision::Skip => None,
    }
}

/// The tasks that completions will end, and how.
fn ends(work: &Work, completions: &[Completion]) -> Vec<(TaskId, TaskState)> {
    let end = |one: &Completion| {
        let run = work.runs.get(&one.task.run)?;
        let task = run.tasks.get(&one.task.index)?;
        if task.refusal(one.fence).is_some() {
            return None;
        }
        let decision: &Decision = &one.decision;
        Some((one.task, run.ending(one.task.index, decision)?))
    };
    completions.iter().filter_map(end).collect()
}

/// The answer to a write with this fence, `None` if it is to be applied.
fn judge(work: &Work, held: Held, verb: Verb) -> Option<Answer> {
    let Some(task) = work.task(held.task) else {
        return Some(Answer::Refused(Refusal::UnknownTask));
    };
    if task.answered == Some((held.fence, verb)) {
        return Some(Answer::AcceptedAlready);
    }
    task.refusal(held.fence).map(Answer::Refused)
}
