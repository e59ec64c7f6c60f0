//! Writing what a verb changed, in a few statements for all of it.

use std::collections::BTreeSet;

use uuid::Uuid;
use windlass_core::{Payload, RunId, TaskId, TaskState};

use super::PostgresStore;
use super::fault::Fault;
use super::history::write_history;
use super::names::{Names, Unnamed};
use super::pool::Sql;
use super::run::{Narrow, Run, Task, is_active};
use super::statements as sql;
use super::time::At;
use super::unsound;
use super::work::{Work, corrupt, pairs, task_id};
use super::writes::{Writes, params};
use crate::store::StoreError;

/// How many locks the turns of all tenants in all levels share. Two that share one wait for
/// each other for no need; the server's table of locks has room for this many of each of
/// dozens of transactions.
const TURN_LOCKS: i32 = 128;

/// What the columns of an active task are in every narrow table.
#[derive(Default)]
struct Carried {
    runs: Vec<Uuid>,
    indices: Vec<i32>,
    fences: Vec<i64>,
    attempts: Vec<i32>,
    max_attempts: Vec<i32>,
    answered_fences: Vec<Option<i64>>,
    answered_verbs: Vec<Option<&'static str>>,
}

impl Carried {
    fn push(&mut self, run: &Run, id: TaskId, task: &Task) {
        self.runs.push(*id.run.as_uuid());
        self.indices.push(id.index.0.cast_signed());
        self.fences.push(task.fence.0.cast_signed());
        self.attempts.push(task.attempt.cast_signed());
        let max_attempts = run.definition.task(id.index).retry.max_attempts();
        self.max_attempts.push(max_attempts.cast_signed());
        self.answered_fences.push(task.answered.map(|(fence, _)| fence.0.cast_signed()));
        self.answered_verbs.push(task.answered.map(|(_, verb)| verb.word()));
    }

    /// What all tasks are, if they are alike.
    fn alike(&self) -> Option<Shared> {
        Some(Shared {
            fence: *alike(&self.fences)?,
            attempt: *alike(&self.attempts)?,
            max_attempts: *alike(&self.max_attempts)?,
            answered_fence: *alike(&self.answered_fences)?,
            answered_verb: *alike(&self.answered_verbs)?,
        })
    }
}

/// What active tasks that are alike have in common.
struct Shared {
    fence: i64,
    attempt: i32,
    max_attempts: i32,
    answered_fence: Option<i64>,
    answered_verb: Option<&'static str>,
}

impl PostgresStore {
    /// What a task that must have no row, and has one, says of its run: that it contradicts itself.
    /// The server tells which key is there already; where row level security is on, it does not,
    /// and is asked.
    pub(super) async fn stray_row(&self, fault: Fault, work: &Work) -> Fault {
        let Fault::Database(error) = &fault else { return fault };
        let answer = error.as_db_error().filter(|one| one.constraint() == Some("task_rows_pkey"));
        let Some(answer) = answer else { return fault };
        let detail = answer.detail().unwrap_or_default();
        let mut words = detail.split(|letter: char| !letter.is_ascii_hexdigit() && letter != '-');
        let id = match words.find_map(|word| Uuid::parse_str(word).ok()) {
            Some(id) => Some(id),
            None => self.find_stray(work).await,
        };
        let Some(id) = id else { return fault };
        let run = RunId::from_uuid(id);
        let text = format!("run {run}: a task that nothing has happened to has a row");
        unsound::of(run)(StoreError::Corrupt(text))
    }

    /// The run of a task that is taken to have no row, and has one.
    async fn find_stray(&self, work: &Work) -> Option<Uuid> {
        let new = work.changed().filter(|(_, _, task)| !task.has_row).map(|(_, id, _)| id);
        let (runs, indices): (Vec<Uuid>, Vec<i32>) =
            new.map(|id| (*id.run.as_uuid(), id.index.0.cast_signed())).unzip();
        // What cannot be asked now is told by the next who meets it.
        let rows = self.read(&sql::STRAY_ROW, &[&runs, &indices]).await.ok()?;
        rows.first().map(|row| row.get(0))
    }
}

impl Work {
    /// Everything that is to be written.
    pub(super) fn writes(&self, names: &Names) -> Result<Writes<'_>, Fault> {
        let mut writes = Writes::default();
        super::start::write_born(&mut writes, self)?;
        self.write_removals(&mut writes);
        self.write_tasks(&mut writes)?;
        self.write_runs(&mut writes);
        self.write_timers(&mut writes)?;
        self.write_deadlines(&mut writes);
        self.write_resets(&mut writes);
        self.write_checkpoints(&mut writes);
        self.write_steps(&mut writes)?;
        self.write_key_waiters(&mut writes);
        self.write_lanes(&mut writes)?;
        self.write_notes(&mut writes);
        self.write_dead_letters(&mut writes)?;
        write_history(&mut writes, self.now, &self.moves.events)?;
        self.write_put_back(&mut writes)?;
        // Last, so that the turns are locked for as short a time as can be.
        self.write_enqueued(&mut writes, names)?;
        Ok(writes)
    }

    fn changed(&self) -> impl Iterator<Item = (&Run, TaskId, &Task)> {
        let tasks = |run: &'_ Run| run.id;
        self.runs.values().flat_map(move |run| {
            let id = tasks(run);
            run.tasks
                .iter()
                .map(move |(index, task)| (run, TaskId { run: id, index: *index }, task))
        })
    }

    fn get(&self, id: TaskId) -> Result<(&Run, &Task), Fault> {
        let run = self.runs.get(&id.run).ok_or_else(|| corrupt(id, "its run is not locked"))?;
        let task = run.tasks.get(&id.index).ok_or_else(|| corrupt(id, "it is not loaded"))?;
        Ok((run, task))
    }

    /// Takes tasks out of the narrow tables that have them no more.
    fn write_removals(&self, writes: &mut Writes<'_>) {
        let removals: [(Narrow, &[TaskState], _); 3] = [
            (Narrow::Ready, &[TaskState::Ready], &sql::DELETE_READY),
            (Narrow::Leases, &[TaskState::Running], &sql::DELETE_LEASES),
            (Narrow::Timers, &[TaskState::Scheduled, TaskState::Waiting], &sql::DELETE_TIMERS),
        ];
        // What waits for another time, or for something else, has another row.
        let anew: BTreeSet<TaskId> = self.moves.scheduled.iter().map(|(id, _)| *id).collect();
        for (table, states, statement) in removals {
            let is_gone = |id: TaskId, task: &Task| {
                let stays = states.contains(&task.state) && !anew.contains(&id);
                task.stored_in == Some(table) && !stays
            };
            let gone = self.changed().filter(|(_, id, task)| is_gone(*id, task));
            let gone: Vec<TaskId> = gone.map(|(_, id, _)| id).collect();
            if gone.is_empty() {
                continue;
            }
            let (runs, indices) = pairs(&gone);
            writes.push_checked(statement, params![runs, indices], move |deleted| {
                if deleted.len() == gone.len() {
                    return Ok(());
                }
                let deleted: BTreeSet<TaskId> = deleted.iter().map(task_id).collect();
                Err(match gone.iter().find(|id| !deleted.contains(id)) {
                    Some(id) => corrupt(*id, "it is not where it stood"),
                    None => StoreError::Corrupt("a task stood in two places".to_owned()).into(),
                })
            });
        }
    }

    fn write_tasks<'a>(&'a self, writes: &mut Writes<'a>) -> Result<(), Fault> {
        let (mut new, mut changed) = (TaskColumns::default(), TaskColumns::default());
        for (run, id, task) in self.changed() {
            if !task.is_to_write(run.progress.parents(id.index)) {
                continue;
            }
            if task.has_row { &mut changed } else { &mut new }.push(run, id, task)?;
        }
        if let Some(new) = new.insert_alike(writes) {
            new.write(writes, &sql::INSERT_TASKS);
        }
        changed.write(writes, &sql::UPDATE_TASKS);
        Ok(())
    }

    fn write_runs(&self, writes: &mut Writes<'_>) {
        let changed: Vec<&Run> = self.runs.values().filter(|run| run.is_to_write()).collect();
        if changed.is_empty() {
            return;
        }
        let open = |run: &&Run| if run.state.is_final() { 0 } else { run.progress.open() };
        let ids: Vec<Uuid> = changed.iter().map(|run| *run.id.as_uuid()).collect();
        let states: Vec<&str> = changed.iter().map(|run| run.state.word()).collect();
        let rounds: Vec<i32> = changed.iter().map(|run| run.round.cast_signed()).collect();
        let open: Vec<i32> = changed.iter().map(|run| open(run).cast_signed()).collect();
        let failed: Vec<i32> =
            changed.iter().map(|run| run.progress.failed().cast_signed()).collect();
        let ends: Vec<Option<At>> = changed.iter().map(|run| run.ended_at.map(At)).collect();
        let is_alike = (alike(&states), alike(&rounds), alike(&open), alike(&failed), alike(&ends));
        if let (Some(state), Some(round), Some(open), Some(failed), Some(end)) = is_alike {
            let params = params![ids, *state, *round, *open, *failed, *end];
            writes.push(&sql::UPDATE_RUNS_ALIKE, params);
        } else {
            writes.push(&sql::UPDATE_RUNS, params![ids, states, rounds, open, failed, ends]);
        }
    }

    fn write_timers(&self, writes: &mut Writes<'_>) -> Result<(), Fault> {
        if self.moves.scheduled.is_empty() {
            return Ok(());
        }
        let mut carried = Carried::default();
        let (mut dues, mut are_waiting) = (Vec::new(), Vec::new());
        for (id, due) in &self.moves.scheduled {
            let (run, task) = self.get(*id)?;
            if !matches!(task.state, TaskState::Scheduled | TaskState::Waiting) {
                continue;
            }
            carried.push(run, *id, task);
            dues.push(At(*due));
            are_waiting.push(task.state == TaskState::Waiting);
        }
        writes.push(
            &sql::SCHEDULE,
            params![
                carried.runs,
                carried.indices,
                dues,
                carried.fences,
                carried.attempts,
                carried.max_attempts,
                carried.answered_fences,
                carried.answered_verbs,
                are_waiting,
            ],
        );
        Ok(())
    }

    fn write_resets(&self, writes: &mut Writes<'_>) {
        if !self.moves.reset.is_empty() {
            let (runs, indices) = pairs(self.moves.reset.iter().map(|(task, _)| task));
            let failures = || self.moves.reset.iter().map(|(_, failure)| failure.as_ref());
            let codes: Vec<Option<String>> =
                failures().map(|one| one.map(|one| one.code.word().to_owned())).collect();
            let messages: Vec<Option<String>> =
                failures().map(|one| one.map(|one| one.message.clone())).collect();
            writes.push(&sql::DELETE_NOTES, params![runs.clone(), indices.clone()]);
            writes.push(&sql::DELETE_CHECKPOINTS, params![runs.clone(), indices.clone()]);
            let forget = params![runs.clone(), indices.clone(), codes, messages];
            writes.push(&sql::FORGET_STEPS, forget);
            writes.push(&sql::FORGET_CHILDREN, params![runs, indices]);
        }
    }

    fn write_put_back<'a>(&'a self, writes: &mut Writes<'a>) -> Result<(), Fault> {
        if self.moves.put_back.is_empty() {
            return Ok(());
        }
        let mut carried = Carried::default();
        let (mut definitions, mut routes, mut tenants) = (Vec::new(), Vec::new(), Vec::new());
        let (mut tags, mut ages) = (Vec::new(), Vec::new());
        for id in &self.moves.put_back {
            let (run, task) = self.get(*id)?;
            let place = task.place.ok_or_else(|| corrupt(*id, "nobody knows where it stood"))?;
            carried.push(run, *id, task);
            definitions.push(run.definition_id);
            routes.push(place.route);
            tenants.push(run.tenant.as_str());
            tags.push(place.tag);
            ages.push(place.seq);
        }
        writes.push(
            &sql::PUT_BACK,
            params![
                carried.runs,
                carried.indices,
                definitions,
                routes,
                tenants,
                tags,
                ages,
                carried.fences,
                carried.attempts,
                carried.max_attempts,
                carried.answered_fences,
                carried.answered_verbs,
            ],
        );
        Ok(())
    }

    fn write_enqueued(&self, writes: &mut Writes<'_>, names: &Names) -> Result<(), Fault> {
        if self.moves.enqueued.is_empty() {
            return Ok(());
        }
        let mut carried = Carried::default();
        let mut places = Places::default();
        let mut unnamed = Unnamed::default();
        for id in &self.moves.enqueued {
            let (run, task) = self.get(*id)?;
            // The same verb may have ended it.
            if task.state != TaskState::Ready {
                continue;
            }
            let key = run.route_key(id.index);
            match (names.route(&key), names.tenant(&run.tenant)) {
                (Some(route), Some(tenant)) => {
                    carried.push(run, *id, task);
                    places.push(run.definition_id, route.id, route.level, tenant);
                }
                (route, tenant) => {
                    if route.is_none() {
                        unnamed.routes.insert(key);
                    }
                    if tenant.is_none() && !unnamed.tenants.contains(&run.tenant) {
                        unnamed.tenants.push(run.tenant.clone());
                    }
                }
            }
        }
        if !unnamed.is_empty() {
            return Err(Fault::Unnamed(unnamed));
        }
        if carried.runs.is_empty() {
            return Ok(());
        }
        let turn = |(level, tenant): (&i32, &i32)| {
            level.wrapping_mul(31).wrapping_add(*tenant).rem_euclid(TURN_LOCKS)
        };
        let turns: BTreeSet<i32> = places.levels.iter().zip(&places.tenants).map(turn).collect();
        let turns: Vec<i32> = turns.into_iter().collect();
        writes.push(&sql::LOCK_TURNS, params![turns]);
        let place = (
            alike(&places.definitions),
            alike(&places.routes),
            alike(&places.levels),
            alike(&places.tenants),
        );
        if let (
            (Some(&definition), Some(&route), Some(&level), Some(&tenant)),
            Some(Shared { fence, attempt, max_attempts, answered_fence, answered_verb }),
        ) = (place, carried.alike())
        {
            let params = params![
                carried.runs,
                carried.indices,
                definition,
                route,
                level,
                tenant,
                fence,
                attempt,
                max_attempts,
                answered_fence,
                answered_verb,
            ];
            writes.push(&sql::ENQUEUE_ALIKE, params);
            return Ok(());
        }
        let params = params![
            carried.runs,
            carried.indices,
            places.definitions,
            places.routes,
            places.levels,
            places.tenants,
            carried.fences,
            carried.attempts,
            carried.max_attempts,
            carried.answered_fences,
            carried.answered_verbs,
        ];
        writes.push(&sql::ENQUEUE, params);
        Ok(())
    }
}

/// The columns of a place in a queue.
#[derive(Default)]
struct Places {
    definitions: Vec<i32>,
    routes: Vec<i32>,
    levels: Vec<i32>,
    tenants: Vec<i32>,
}

impl Places {
    fn push(&mut self, definition: i32, route: i32, level: i32, tenant: i32) {
        self.definitions.push(definition);
        self.routes.push(route);
        self.levels.push(level);
        self.tenants.push(tenant);
    }
}

/// The columns of rows of tasks.
#[derive(Default)]
struct TaskColumns<'a> {
    carried: Carried,
    states: Vec<&'static str>,
    pending: Vec<Option<i32>>,
    failed: Vec<Option<i32>>,
    skipped: Vec<Option<i32>>,
    failures: Vec<Option<String>>,
    outputs: Vec<Option<&'a str>>,
}

impl<'a> TaskColumns<'a> {
    fn push(&mut self, run: &Run, id: TaskId, task: &'a Task) -> Result<(), Fault> {
        self.carried.push(run, id, task);
        // A fence that is the task's takes no room, and neither does a counter that is 0.
        if task.answered.is_some_and(|(fence, _)| fence == task.fence) {
            self.carried.answered_fences.pop();
            self.carried.answered_fences.push(None);
        }
        let count = |count: u32| (count > 0).then_some(count.cast_signed());
        self.states.push(if is_active(task.state) { "active" } else { task.state.word() });
        let tally = run.progress.parents(id.index);
        self.pending.push(count(tally.pending));
        self.failed.push(count(tally.failed));
        self.skipped.push(count(tally.skipped));
        let failure = task.failure.as_ref().map(serde_json::to_string).transpose();
        self.failures.push(failure.map_err(|error| corrupt(id, error))?);
        let output = task.output.as_ref().map(Payload::as_str);
        self.outputs.push(output.filter(|output| *output != "null"));
        Ok(())
    }

    fn write(self, writes: &mut Writes<'a>, statement: &'static Sql) {
        let TaskColumns { carried, states, pending, failed, skipped, failures, outputs } = self;
        if carried.runs.is_empty() {
            return;
        }
        let params = params![
            carried.runs,
            carried.indices,
            states,
            carried.fences,
            carried.attempts,
            pending,
            failed,
            skipped,
            carried.answered_fences,
            carried.answered_verbs,
            failures,
            outputs,
        ];
        writes.push(statement, params);
    }

    /// Writes rows that differ in nothing but their tasks, which costs two thirds of what the
    /// same rows cost otherwise. Gives them back if they are not alike.
    fn insert_alike(self, writes: &mut Writes<'a>) -> Option<Self> {
        let TaskColumns { carried, states, pending, failed, skipped, failures, outputs } = &self;
        let is_bare = alike(failures) == Some(&None) && alike(outputs) == Some(&None);
        let parents = (alike(pending), alike(failed), alike(skipped));
        let (
            (Some(&pending), Some(&failed), Some(&skipped)),
            Some(&state),
            Some(Shared { fence, attempt, answered_fence, answered_verb, .. }),
            true,
        ) = (parents, alike(states), carried.alike(), is_bare)
        else {
            return Some(self);
        };
        let Carried { runs, indices, .. } = self.carried;
        let params = params![
            runs,
            indices,
            state,
            fence,
            attempt,
            pending,
            failed,
            skipped,
            answered_fence,
            answered_verb,
        ];
        writes.push(&sql::INSERT_TASKS_ALIKE, params);
        None
    }
}

/// What all items are, if they are alike and there are any.
pub(super) fn alike<T: PartialEq>(items: &[T]) -> Option<&T> {
    let first = items.first()?;
    items.iter().all(|item| item == first).then_some(first)
}
