//! When tasks became ready in lanes of rates, debounces and breakers, and who stayed in lanes of
//! which the newest stay: by what limits say, without what lanes remember.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use windlass::testing::invariants::Violation;
use windlass::{RunId, Timestamp, WhenFull};
use windlass_core::{
    Bound, EventBody, EventId, LaneId, LaneKeys, RunEventKind, TaskEvent, TaskEventKind, TaskId,
    TaskState,
};

use super::Evidence;
use super::breakers::Breaker;
use super::fairness::merged;
use super::times::was_swept_between;

const RATE: &str = "G5 no more in a time than a rate lets";
const QUIET: &str = "G5 only the last goes on, once it is quiet";
const NEWEST: &str = "G5 the newest stay";

/// What the cancellation of a run says whose place others have.
const SUPERSEDED: &str = "a newer run has its place in the lane of a limit";

/// What the walk knows of a lane.
enum Lane {
    /// When attempts became ready that need a token.
    Rate {
        interval: Duration,
        burst: u64,
        at: Vec<Timestamp>,
    },
    /// Who waits, since when others were put off, and until when.
    Debounce {
        quiet: Duration,
        at_most: Duration,
        waiting: Option<(TaskId, Timestamp, Timestamp)>,
    },
    Breaker(Breaker),
    /// Who is in it, in the order of coming.
    Newest {
        slots: usize,
        rivals: Vec<TaskId>,
    },
}

impl Lane {
    fn new(bound: Bound, when_full: WhenFull) -> Option<Lane> {
        match bound {
            Bound::Slots(slots) if when_full == WhenFull::CancelOldest => {
                Some(Lane::Newest { slots: slots as usize, rivals: Vec::new() })
            }
            Bound::Slots(_) => None,
            Bound::Rate(rate) => {
                let interval = rate.per / rate.count.max(1);
                Some(Lane::Rate { interval, burst: u64::from(rate.burst), at: Vec::new() })
            }
            Bound::Debounce(it) => {
                Some(Lane::Debounce { quiet: it.quiet, at_most: it.at_most, waiting: None })
            }
            Bound::Breaker(breaker) => Some(Lane::Breaker(Breaker::new(breaker))),
        }
    }
}

/// What the walk knows of all lanes.
#[derive(Default)]
struct Walk {
    lanes: BTreeMap<LaneId, Lane>,
    /// The lanes of each task.
    of_task: BTreeMap<TaskId, Vec<LaneId>>,
    /// Runs with tasks of whose lanes not all can be followed.
    unseen: BTreeSet<RunId>,
    /// Who waits in a lane.
    blocked: BTreeSet<TaskId>,
    /// Runs whose places others had at some time.
    superseded: BTreeSet<RunId>,
    /// Tasks whose next turn is that of another attempt.
    begins: BTreeSet<TaskId>,
    /// Whose place others have, since when, and whether they only waited.
    out: BTreeMap<TaskId, (Timestamp, bool)>,
    wrong: Vec<(&'static str, String)>,
}

impl Walk {
    fn of(evidence: &Evidence<'_>) -> Self {
        let mut walk = Walk::default();
        let mut mixed = BTreeSet::new();
        for file in evidence.files {
            let Some(definition) = evidence.definition(file) else { continue };
            let Ok(keys) = LaneKeys::of(definition, &file.input) else { continue };
            for index in definition.indices() {
                let task = TaskId { run: file.run.id, index };
                let needs = keys.needs(definition, &file.run.tenant, index);
                for (place, need) in needs.iter().enumerate() {
                    // Who has its turn in one lane and waits in the next leaves no trace of it.
                    let is_rate = matches!(need.bound, Bound::Rate(_));
                    let is_seen = needs.len() == 1 || is_rate && place + 1 == needs.len();
                    if !is_seen {
                        mixed.insert(need.lane.clone());
                    }
                    if let Some(lane) = Lane::new(need.bound, need.when_full) {
                        walk.lanes.entry(need.lane.clone()).or_insert(lane);
                        walk.of_task.entry(task).or_default().push(need.lane.clone());
                    }
                }
            }
        }
        walk.lanes.retain(|lane, _| !mixed.contains(lane));
        for (task, lanes) in &walk.of_task {
            if lanes.iter().any(|lane| !walk.lanes.contains_key(lane)) {
                walk.unseen.insert(task.run);
            }
        }
        walk
    }

    /// Others have the place of a task from now on.
    fn take_out(&mut self, task: TaskId, at: Timestamp) {
        self.superseded.insert(task.run);
        self.out.insert(task, (at, self.blocked.contains(&task)));
    }

    /// Follows an event.
    fn follow(&mut self, at: Timestamp, task: TaskId, event: &TaskEvent) {
        let is_another =
            matches!(event.kind, TaskEventKind::Retrying { .. } | TaskEventKind::Reset);
        if is_another || event.from == TaskState::Pending {
            self.begins.insert(task);
        }
        let begins = event.to == TaskState::Ready && self.begins.remove(&task);
        if matches!(event.kind, TaskEventKind::Blocked { .. }) {
            self.blocked.insert(task);
        } else if event.from == TaskState::Waiting {
            self.blocked.remove(&task);
        }
        let lanes = self.of_task.get(&task).cloned().unwrap_or_default();
        let mut taken = Vec::new();
        for id in lanes {
            let is_blocked = matches!(
                &event.kind,
                TaskEventKind::Blocked { limit, key } if (limit, key) == (&id.limit, &id.key)
            );
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            match lane {
                Lane::Rate { at: times, .. } => times.extend(begins.then_some(at)),
                Lane::Breaker(breaker) => {
                    let wrong = breaker.follow(at, task, event, begins, is_blocked);
                    self.wrong.extend(
                        wrong.map(|(promise, text)| (promise, format!("{text} in {id:?} at {at}"))),
                    );
                }
                Lane::Debounce { quiet, at_most, waiting } => {
                    let before = waiting.filter(|(other, ..)| *other != task);
                    if is_blocked {
                        let since = before.map_or(at, |(_, since, _)| since);
                        let until = (at + *quiet).min(since + *at_most);
                        taken.extend(before.map(|(other, ..)| other));
                        *waiting = Some((task, since, until));
                    } else if waiting.is_some_and(|(other, ..)| other == task) {
                        let early = waiting.filter(|(.., until)| begins && at < *until);
                        if let Some((_, _, until)) = early {
                            let text = format!("task {task} goes on at {at}, not {until}, {id:?}");
                            self.wrong.push((QUIET, text));
                        }
                        *waiting = None;
                    } else if begins && event.attempt == 0 && !self.out.contains_key(&task) {
                        self.wrong.push((QUIET, format!("task {task} did not wait in {id:?}")));
                    }
                }
                Lane::Newest { slots, rivals } => {
                    let enters = is_blocked || event.to == TaskState::Ready;
                    if enters && !rivals.contains(&task) && !self.out.contains_key(&task) {
                        rivals.push(task);
                        while rivals.len() > *slots {
                            taken.push(rivals.remove(0));
                        }
                    }
                    if event.to.is_final() {
                        rivals.retain(|other| *other != task);
                    }
                }
            }
        }
        taken.into_iter().for_each(|other| self.take_out(other, at));
        if let Some((since, true)) = self.out.get(&task)
            && event.to == TaskState::Ready
        {
            let text = format!("task {task} goes on at {at}, others have its place since {since}");
            self.wrong.push((NEWEST, text));
        }
    }

    /// Whoever has lost its place is cancelled by the first look after that, unless it has ended.
    fn judge_end(
        &mut self,
        at: Timestamp,
        task: TaskId,
        event: &TaskEvent,
        promotes: &[Timestamp],
    ) {
        let Some((since, _)) = self.out.get(&task).copied() else { return };
        let is_start = matches!(event.kind, TaskEventKind::Started { .. });
        let is_over = event.to.is_final();
        if (is_start || is_over) && was_swept_between(promotes, since, at) {
            let word = event.kind.word();
            let text = format!("task {task} {word} at {at}, others have its place since {since}");
            self.wrong.push((NEWEST, text));
        }
        if is_over {
            self.out.remove(&task);
        }
    }

    /// What is wrong with how many became ready in some time.
    fn rates(&mut self) {
        for (id, lane) in &self.lanes {
            let Lane::Rate { interval, burst, at } = lane else { continue };
            let micros = interval.as_micros().max(1);
            let is_too_much = |(first, last): &(usize, usize)| {
                let time = at[*last].since(at[*first]).as_micros();
                (last - first + 1) as u128 > u128::from(*burst) + time / micros
            };
            let windows =
                (0..at.len()).flat_map(|first| (first..at.len()).map(move |l| (first, l)));
            if let Some((first, last)) = windows.into_iter().find(is_too_much) {
                let (from, to, count) = (at[first], at[last], last - first + 1);
                let text = format!("{count} become ready from {from} to {to} in {id:?}");
                self.wrong.push((RATE, text));
            }
        }
    }
}

/// G5: what limits in a time say holds for when tasks become ready.
pub(super) fn limits_in_a_time_are_kept(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let mut walk = Walk::of(evidence);
    let times: BTreeMap<EventId, Timestamp> =
        evidence.task_events().map(|(_, line, _)| (line.id, line.at)).collect();
    let promotes = evidence.world.truth.lock().promotes.clone();
    for (id, _, task, event) in merged(evidence) {
        let Some(at) = times.get(&id).copied() else { continue };
        walk.follow(at, task, event);
        walk.judge_end(at, task, event, &promotes);
    }
    walk.rates();
    for file in evidence.files {
        let is_superseded = file.events.iter().any(|event| match &event.body {
            EventBody::Run(body) => matches!(
                &body.kind,
                RunEventKind::Cancelled { reason: Some(reason) } if reason == SUPERSEDED
            ),
            EventBody::Task(_) => false,
        });
        let run = file.run.id;
        if is_superseded && !walk.superseded.contains(&run) && !walk.unseen.contains(&run) {
            let text = format!("run {run} is cancelled, nobody has its place");
            walk.wrong.push((NEWEST, text));
        }
    }
    violations.extend(walk.wrong.into_iter().map(|(promise, text)| Violation { promise, text }));
}
