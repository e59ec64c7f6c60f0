//! Reasons in words.

use std::fmt;

use crate::id::RunId;
use crate::name::{LaneKey, LimitName};
use crate::time::Timestamp;

use super::{Count, Missing, Reason, Served, TimeCause};

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.is_more { " or more" } else { "" };
        write!(f, "{}{more}", self.at_least)
    }
}

/// Some names, and that there are more if there are.
fn list<T: fmt::Display>(names: &[T]) -> String {
    names.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// A lane by its limit and its key.
fn lane(limit: &LimitName, key: Option<&LaneKey>) -> String {
    let key = key.map_or_else(String::new, |key| format!(" of key {key:?}"));
    format!("the lane{key} of limit {limit:?}")
}

/// A time, and how far it is away in whole seconds.
fn when(at: Timestamp, now: Timestamp) -> String {
    let (ahead, past) = (at.since(now).as_secs(), now.since(at).as_secs());
    match at > now {
        true => format!("{at}, in {ahead} s"),
        false => format!("{at}, {past} s ago"),
    }
}

impl TimeCause {
    fn text(&self) -> String {
        match self {
            TimeCause::Delay => "a delay".to_owned(),
            TimeCause::Sleep => "a sleep".to_owned(),
            TimeCause::Backoff { failure } => format!("the pause after a failure ({failure})"),
            TimeCause::Call { call, name, failures: 0, .. } => format!("call {call} {name:?}"),
            TimeCause::Call { call, name, failures, failure } => {
                let why = failure.as_ref().map_or_else(String::new, |it| format!(" ({it})"));
                format!("call {call} {name:?}, which failed {failures} times{why}")
            }
        }
    }
}

/// A number with its noun: `1 worker`, `2 workers`.
fn count(number: impl Into<u64>, noun: &str) -> String {
    match number.into() {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

impl Served {
    fn text(&self) -> String {
        match self {
            Served::Free { workers, free_slots } => {
                let (serve, have) =
                    if *workers == 1 { ("serves", "has") } else { ("serve", "have") };
                let (workers, slots) = (count(*workers, "worker"), count(*free_slots, "free slot"));
                format!("{workers} {serve} it and {have} {slots}")
            }
            Served::Owner { worker_name, free_slots, .. } => format!(
                "only worker {worker_name:?} is given it, which owns its key and has {}",
                count(*free_slots, "free slot")
            ),
            Served::Busy { workers, draining } => format!(
                "no worker that serves it has a free slot: {workers} busy, {draining} draining"
            ),
            Served::Nobody { missing: Missing::Worker } => "there is no live worker".to_owned(),
            Served::Nobody { missing: Missing::Queue { served } } => {
                format!("no live worker serves the queue; they serve {}", list(served))
            }
            Served::Nobody { missing: Missing::Workflow { served } } => format!(
                "no live worker at the queue has handlers for the workflow; they have {}",
                list(served)
            ),
            Served::Nobody { missing: Missing::Version { served } } => format!(
                "no live worker at the queue has handlers for the version; they have {}",
                list(served)
            ),
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Served::Free { .. } => "it is claimed next, or what stands before it is",
            Served::Owner { free_slots: 0, .. } => "a task of that worker ends, or it does",
            Served::Owner { .. } => "it is claimed next, or what stands before it is",
            Served::Busy { .. } => "a task of theirs ends, or another worker starts",
            Served::Nobody { missing: Missing::Worker } => "a worker starts",
            Served::Nobody { missing: Missing::Queue { .. } } => {
                "a worker starts that serves the queue"
            }
            Served::Nobody { missing: Missing::Workflow { .. } } => {
                "a worker starts that registers the workflow"
            }
            Served::Nobody { missing: Missing::Version { .. } } => {
                "a worker starts that registers this version of the workflow"
            }
        }
    }
}

impl Reason {
    /// Its name in what people and programs see.
    pub const fn word(&self) -> &'static str {
        match self {
            Reason::Staged => "staged",
            Reason::Parents { .. } => "parents",
            Reason::RestOfRun { .. } => "rest_of_run",
            Reason::Time { .. } => "time",
            Reason::Due { .. } => "due",
            Reason::Signal { .. } => "signal",
            Reason::Children { .. } => "children",
            Reason::Lane { .. } => "lane",
            Reason::Rate { .. } => "rate",
            Reason::Quiet { .. } => "quiet",
            Reason::Breaker { .. } => "breaker",
            Reason::Superseded { .. } => "superseded",
            Reason::Ready { .. } => "ready",
            Reason::Running { .. } => "running",
            Reason::LeaseExpired { .. } => "lease_expired",
            Reason::NoLeader { .. } => "no_leader",
            Reason::Parked => "parked",
            Reason::Failed { .. } => "failed",
            Reason::Cancelled { .. } => "cancelled",
            Reason::Ended => "ended",
        }
    }

    /// The reason as a sentence, at the moment of the answer.
    pub fn text(&self, now: Timestamp) -> String {
        match self {
            Reason::Staged => "it was started inside a transaction and is not let into the queues \
                               yet"
            .to_owned(),
            Reason::Parents { pending, first } if first.is_empty() => {
                format!("it waits for {pending} tasks of its run")
            }
            Reason::Parents { pending, first } => {
                let more = if (first.len() as u64) < u64::from(*pending) { ", …" } else { "" };
                format!("it waits for {pending} tasks of its run: {}{more}", list(first))
            }
            Reason::RestOfRun { open } => {
                format!("it runs once all else has ended, if a task failed; {open} tasks are open")
            }
            Reason::Time { until, cause } => {
                format!("it waits until {}: {}", when(*until, now), cause.text())
            }
            Reason::Due { since, cause } => {
                format!("its time has come, {}: {}", when(*since, now), cause.text())
            }
            Reason::Signal { call, name, key, until, has_come } => {
                let to = key.as_ref().map_or_else(String::new, |key| format!(" to key {key:?}"));
                let until =
                    until.map_or_else(String::new, |it| format!(", or until {}", when(it, now)));
                let come = if *has_come { "; one has come" } else { "" };
                format!("call {call} waits for signal {name:?}{to}{until}{come}")
            }
            Reason::Children { call, name, open, goes_on_at, first } => {
                let until = match goes_on_at {
                    0 => String::new(),
                    most => format!(" until {most} are left"),
                };
                format!("call {call} {name:?} waits for {open} runs{until}: {}", list(first))
            }
            Reason::Rate { limit, key, before, until } => {
                let until =
                    until.map_or_else(String::new, |it| format!(" until {}", when(it, now)));
                let lane = lane(limit, key.as_ref());
                format!("it waits for a token in {lane}{until}; {before} wait before it")
            }
            Reason::Quiet { limit, key, until } => format!(
                "it waits until {} for others to come to {}, which would put it off",
                when(*until, now),
                lane(limit, key.as_ref())
            ),
            Reason::Breaker { limit, key, before, until: Some(until) } => format!(
                "too much has failed in {}: nothing is tried until {}; {before} wait before it",
                lane(limit, key.as_ref()),
                when(*until, now)
            ),
            Reason::Breaker { limit, key, before, until: None } => format!(
                "too much has failed in {}, and one is tried; {before} wait before it",
                lane(limit, key.as_ref())
            ),
            Reason::Superseded { limit, key } => {
                format!("a newer run has its place in {}", lane(limit, key.as_ref()))
            }
            Reason::Lane { limit, key, slots, held, before, holders } => {
                let holders: Vec<String> =
                    holders.iter().map(|it| format!("{} of run {}", it.task, it.run)).collect();
                format!(
                    "it waits for a slot in {}: {held} of {slots} are taken, {before} wait before it; \
                     {} there",
                    lane(limit, key.as_ref()),
                    match holders.is_empty() {
                        true => "nobody is".to_owned(),
                        false => list(&holders),
                    }
                )
            }
            Reason::Ready { queue, priority, own_before, all_before, served } => format!(
                "it is in queue {queue:?} with priority {}, behind {all_before} tasks, {own_before} \
                 of them its tenant's; {}",
                priority.get(),
                served.text()
            ),
            Reason::Running { worker, worker_name, since, lease_until, progress } => {
                let since =
                    since.map_or_else(String::new, |it| format!(" since {}", when(it, now)));
                let note = progress
                    .as_ref()
                    .map_or_else(String::new, |it| format!("; it last said {}", it.as_str()));
                let until = when(*lease_until, now);
                format!(
                    "worker {worker_name:?} ({worker}) runs it{since}; its lease lasts until \
                     {until}{note}"
                )
            }
            Reason::LeaseExpired { worker, worker_name, since } => format!(
                "worker {worker_name:?} ({worker}) had it and is lost; its lease ended at {}",
                when(*since, now)
            ),
            Reason::NoLeader { duty, last: Some(last), until } => {
                let until =
                    until.map_or_else(String::new, |it| format!(" until {}", when(it, now)));
                format!("nobody does the duty {duty}; {last:?} did{until}")
            }
            Reason::NoLeader { duty, last: None, .. } => format!("nobody ever did the duty {duty}"),
            Reason::Parked => {
                "its function is parked and waits for nothing that is recorded".into()
            }
            Reason::Failed { failure: Some(failure) } => format!("it failed: {failure}"),
            Reason::Failed { failure: None } => "it failed".to_owned(),
            Reason::Cancelled { why: Some(why) } => format!("it was cancelled: {why}"),
            Reason::Cancelled { why: None } => {
                "it was cancelled, for no reason that is told".into()
            }
            Reason::Ended => "it has ended".to_owned(),
        }
    }

    /// What would change it for a run, as a sentence; none of what is over for good.
    pub fn remedy(&self, run: RunId) -> Option<String> {
        let text = match self {
            Reason::Staged | Reason::Due { .. } => "the next sweep of the duty promote_due",
            Reason::Parents { .. } => "those tasks end; ask about them for what holds them back",
            Reason::RestOfRun { .. } => "the other tasks of the run end",
            Reason::Time { .. } => "the time comes",
            Reason::Signal { has_come: true, .. } => "the next sweep of the duty promote_due",
            Reason::Signal { key: None, name, .. } => {
                return Some(format!("somebody sends it: windlass signal {run} {name}"));
            }
            Reason::Signal { key: Some(key), name, .. } => {
                return Some(format!("somebody sends it: windlass signal --key {key} {name}"));
            }
            Reason::Children { .. } => "those runs end; ask about them for what holds them back",
            Reason::Lane { slots, held, before, .. } if held < slots && before.at_least == 0 => {
                "the next sweep of the duty promote_due"
            }
            Reason::Lane { .. } => {
                "a task that has a slot ends, or is seen to if it failed and halts the stream"
            }
            Reason::Rate { .. } => "the time comes, or those before it are cancelled",
            Reason::Quiet { .. } => "the time comes, or a newer one takes its place",
            Reason::Breaker { until: Some(_), .. } => "the time comes and an attempt succeeds",
            Reason::Breaker { until: None, .. } => "the attempt that is made succeeds",
            Reason::Superseded { .. } => "the next sweep of the duty promote_due cancels its run",
            Reason::Ready { served, .. } => served.remedy(),
            Reason::Running { .. } => "the handler ends, or its worker is lost",
            Reason::LeaseExpired { .. } => "the next sweep of the duty reap",
            Reason::NoLeader { .. } => "a worker starts, or another process that does duties",
            Reason::Parked => "nothing by itself; the run can be cancelled",
            Reason::Failed { .. } => "nothing by itself; the run can be retried",
            Reason::Cancelled { .. } | Reason::Ended => return None,
        };
        Some(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_workers_and_slots_agree_with_their_nouns() {
        let text = |workers, free_slots| Served::Free { workers, free_slots }.text();
        assert_eq!(text(1, 1), "1 worker serves it and has 1 free slot");
        assert_eq!(text(2, 4), "2 workers serve it and have 4 free slots");
    }
}
