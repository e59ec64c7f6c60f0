//! What workers say of the tasks they hold.

use std::collections::BTreeSet;

use windlass_core::{Decision, Parking, TaskId, TaskState};

use super::PostgresStore;
use super::fault::Fault;
use super::onward::Next;
use super::parking::Parked;
use super::pool::{Ask, Params, Tx};
use super::run::{Run, Verb};
use super::statements as sql;
use super::time::At;
use super::unsound;
use super::work::{Leases, Work, sorted_ids};
use crate::store::{Answer, Completion, Finished, Held, Refusal, Release};

/// How many tasks that become ready with an answer are claimed with it. Whoever gives tasks their
/// places in a queue keeps others from doing so until its commit: many are claimed after it.
const FOLLOWING_MAX: usize = 64;

impl PostgresStore {
    /// One of the tries of a call.
    pub(super) async fn finish_try(
        &self,
        completions: &[Completion],
        next: &Next<'_>,
    ) -> Result<Finished, Fault> {
        match next.lost() {
            None => self.finish_once(completions, Some(next)).await,
            Some(lost) => {
                self.finish_once(completions, None).await?;
                Err(lost.into())
            }
        }
    }

    pub(super) async fn finish_once(
        &self,
        completions: &[Completion],
        next: Option<&Next<'_>>,
    ) -> Result<Finished, Fault> {
        let mut connection = self.pool.get().await?;
        let held = completions.iter().map(|one| Held { task: one.task, fence: one.fence });
        let mut firsts = self.firsts.take(held);
        let refusable: BTreeSet<TaskId> =
            completions.iter().filter(|one| may_be_refused(one)).map(|one| one.task).collect();
        firsts.retain(|held| !refusable.contains(&held.task));
        if !firsts.is_empty() || next.is_some() {
            let tx = connection.begin();
            if let Some(finished) = self.finish_in(tx, completions, &firsts, next).await? {
                return Ok(finished);
            }
        }
        if next.is_some_and(Next::is_over) {
            let tx = connection.begin();
            if let Some(finished) = self.finish_in(tx, completions, &[], next).await? {
                return Ok(finished);
            }
        }
        // With none of them, nothing can turn out to be otherwise.
        let finished = self.finish_in(connection.begin(), completions, &[], None).await?;
        Ok(finished.unwrap_or_default())
    }

    /// `None` if one of those that should be claimed for the first time is not, if a run was
    /// written ahead and becomes something else, or if the worker may not have what follows.
    async fn finish_in(
        &self,
        tx: Tx<'_>,
        completions: &[Completion],
        firsts: &[Held],
        next: Option<&Next<'_>>,
    ) -> Result<Option<Finished>, Fault> {
        let leases = Leases::of(firsts);
        let params = leases.params();
        let take: Ask<'_> = (&sql::TAKE_LEASES, &params);
        let also = if firsts.is_empty() { &[] } else { std::slice::from_ref(&take) };
        let runs = sorted_ids(completions.iter().map(|one| one.task.run));
        let is_success = |one: &Completion| matches!(one.decision, Decision::Succeed(_));
        let is_ahead = (firsts.len(), runs.len()) == (completions.len(), completions.len())
            && completions.iter().all(is_success);
        let clock = self.clock.as_ref().map(|clock| At(clock.now()));
        let (all, counted): (Params<'_>, Params<'_>) = (&[&runs], &[&runs, &clock]);
        let lock = if is_ahead { (&sql::COUNT_ENDS, counted) } else { (&sql::LOCK_RUNS, all) };
        let (mut work, taken) = self.lock_runs_and(&tx, lock, also).await?;
        let count: usize = taken.iter().map(Vec::len).sum();
        let is_whole = (work.runs.len(), count) == (completions.len(), completions.len());
        if !taken.iter().all(|rows| work.remember_first_claims(rows)) || is_ahead && !is_whole {
            return Ok(None);
        }
        if is_ahead {
            work.runs.values_mut().for_each(Run::count_end_ahead);
        }
        let ended = completions.iter().filter(|one| !may_be_refused(one));
        let held = ended.map(|one| Held { task: one.task, fence: one.fence });
        work.take_first_claims(&tx, held).await?;
        work.load(&tx, completions.iter().map(|one| one.task)).await?;
        work.load_for_ends(&tx, &ends(&work, completions)).await?;
        let parked = Parked::load(&tx, &work, completions.iter().filter_map(parking)).await?;
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
            let is_alone = run.definition.tasks().len() == 1;
            if matches!(completion.decision, Decision::Continue(_)) && !is_alone {
                answers.push(Answer::Refused(Refusal::Invalid));
                continue;
            }
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
                run.end_attempt(moves, held.task.index, &completion.decision).map_err(&unsound)?;
            }
            answers.push(Answer::Accepted);
        }
        self.settle_lanes(&tx, &mut work).await?;
        if !work.runs.values().all(Run::is_as_ahead) {
            return Ok(None);
        }
        let follows = 1..=FOLLOWING_MAX;
        let claimed = match next.filter(|_| follows.contains(&work.moves.enqueued.len())) {
            Some(next) => self.conclude_and_claim(tx, &mut work, next).await?,
            None => self.conclude(tx, &mut work).await.map(|()| Some(Vec::new()))?,
        };
        Ok(claimed.map(|claimed| Finished { answers, claimed }))
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
        self.conclude(tx, &mut work).await?;
        Ok(answers)
    }
}

/// Whether a completion may be refused for what it says, and its task then keeps its lease.
fn may_be_refused(completion: &Completion) -> bool {
    match completion.decision {
        Decision::Park(_) | Decision::Continue(_) => true,
        Decision::Succeed(_) | Decision::Fail(_) | Decision::Retry { .. } | Decision::Skip => false,
    }
}

/// How a completion lets its function wait, if it does.
fn parking(completion: &Completion) -> Option<(TaskId, &Parking)> {
    match &completion.decision {
        Decision::Park(parking) => Some((completion.task, parking)),
        Decision::Succeed(_)
        | Decision::Fail(_)
        | Decision::Retry { .. }
        | Decision::Skip
        | Decision::Continue(_) => None,
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
