//! Claims: which lanes to look at, from where on, and what the worker is told.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{
    Definition, EventBody, Failure, Fence, Payload, Priority, QueueName, RunId, StepRecord,
    TaskEvent, TaskEventKind, TaskId, TaskIndex, TaskKind, TaskSpec, TaskState, Tenant, Timestamp,
    WorkerId,
};

use super::PostgresStore;
use super::checkpoint::read_checkpoints;
use super::fault::Fault;
use super::floors::{Found, Front, Look};
use super::history::write_history;
use super::journal::step_of;
use super::leases::{Life, limit_leases};
use super::names::{Lane, LaneKey};
use super::pool::{Params, Tx};
use super::statements as sql;
use super::time::At;
use super::work::{pairs, task_id, task_state};
use super::writes::{Writes, params};
use crate::duties::LOOK_PAUSE_MAX;
use crate::store::{ClaimRequest, Claimed, ParentEnd, StoreError};

/// A task that was taken off its queue and leased.
struct Taken {
    id: TaskId,
    definition: i32,
    lane: i32,
    tenant: i32,
    slot: (i64, i64),
    fence: Fence,
    attempt: u32,
    at: Timestamp,
}

impl Taken {
    fn of(row: &Row) -> Self {
        Taken {
            id: task_id(row),
            definition: row.get("definition_id"),
            lane: row.get("lane_id"),
            tenant: row.get("tenant_id"),
            slot: (row.get("tag"), row.get("seq")),
            fence: Fence(row.get::<_, i64>("fence").cast_unsigned()),
            attempt: row.get::<_, i32>("attempt").cast_unsigned(),
            at: row.get::<_, At>("at").0,
        }
    }
}

/// What one look at the lanes has brought.
struct Catch {
    taken: Vec<Taken>,
    /// What is left in each lane.
    left: Vec<Left>,
}

/// What is left in a lane, as far as a look saw.
struct Left {
    /// Whether it is nothing that is not in the hands of others.
    is_dry: bool,
    /// The tag of what stood first in it before anything was taken, if that was looked at.
    first: Option<i64>,
}

/// How many to take of a lane.
struct Wanted {
    count: usize,
    /// Whether the lane has no more.
    is_all: bool,
    /// The tag of what stands first in it, if that was looked at.
    first: Option<i64>,
}

/// Something that stands in a lane.
struct Standing<T> {
    queue: QueueName,
    order: (std::cmp::Reverse<Priority>, (i64, i64)),
    item: T,
}

/// What is taken and in which order: one of each queue in turn, beginning with another one
/// at each claim; within a queue by priority, tag and age.
fn in_turn<T>(request: &ClaimRequest, mut standing: Vec<Standing<T>>, limit: usize) -> Vec<T> {
    standing.sort_by_key(|one| one.order);
    let mut queues: BTreeMap<QueueName, VecDeque<T>> = BTreeMap::new();
    for one in standing {
        queues.entry(one.queue).or_default().push_back(one.item);
    }
    let mut order: Vec<&QueueName> = request.queues.iter().collect();
    let first = request.seq.0 as usize % order.len().max(1);
    order.rotate_left(first);
    let mut taken = Vec::new();
    while taken.len() < limit && !order.is_empty() {
        order.retain(|queue| {
            if taken.len() == limit {
                return true;
            }
            let next = queues.get_mut(*queue).and_then(VecDeque::pop_front);
            let is_there = next.is_some();
            taken.extend(next);
            is_there
        });
    }
    taken
}

impl PostgresStore {
    /// One of the tries of a call.
    pub(super) async fn claim_try(
        &self,
        request: &ClaimRequest,
        tries: &AtomicU32,
    ) -> Result<Vec<Claimed>, Fault> {
        let is_first = tries.fetch_add(1, Ordering::Relaxed) == 0;
        if is_first && request.is_poll && self.finds_nothing(request).await? {
            return Ok(Vec::new());
        }
        match self.claim_once(request).await? {
            Some(claimed) => Ok(claimed),
            None if is_first => Ok(Vec::new()),
            None => {
                // The commit of an earlier try took place. What it took the worker does not
                // know of: it must hear that, and say so in a heartbeat.
                let ClaimRequest { worker, seq, .. } = request;
                let text = format!("the answer to claim {} of worker {worker} was lost", seq.0);
                Err(StoreError::Unavailable(text).into())
            }
        }
    }

    /// `None` if the number of the claim has been used.
    async fn claim_once(&self, request: &ClaimRequest) -> Result<Option<Vec<Claimed>>, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let lanes = self.names.serving(&request.queues, &request.handlers);
        let levels = self.levels_to_read(&lanes);
        let params: Params<'_> = &[&levels];
        let times = [(&sql::VIRTUAL_TIMES, params)];
        let times = if levels.is_empty() { &[] } else { times.as_slice() };
        let (life, now, times) = self.lock_worker_and(&tx, request.worker, times).await?;
        let Some(mut life) = life.filter(Life::is_live) else {
            self.peeks.forget(request.worker);
            return Err(StoreError::LeaseLost(request.worker).into());
        };
        if request.seq <= life.last_claim || self.peeks.has(request) {
            return Ok(None);
        }
        let holds = life.holds_tasks();
        if holds && life.lease_until <= now {
            return Ok(Some(Vec::new()));
        }
        let times = times.into_iter().flatten().map(|row| (row.get(0), row.get(1))).collect();
        let mut taken = self.take(&tx, request, &lanes, &times).await?;
        let is_short = taken.len() < request.limit;
        if is_short && self.names.read_lanes(&tx, taken.is_empty()).await? {
            let rest = ClaimRequest { limit: request.limit - taken.len(), ..request.clone() };
            let lanes = self.names.serving(&request.queues, &request.handlers);
            taken.extend(self.take(&tx, &rest, &lanes, &times).await?);
        }
        let taken_at = taken.iter().map(|one| one.at).max();
        let begins = taken_at.filter(|_| !holds);
        life.last_claim = request.seq;
        if let Some(at) = begins {
            life.lease_until = at + life.lease;
        }
        let names = self.names_of(&tx, &taken).await?;
        let mut writes = Writes::default();
        life.beat(&mut writes);
        let at = taken_at.unwrap_or(now);
        write_history(&mut writes, at, &names.started(&taken, request.worker))?;
        let is_limited = limit_leases(&mut writes, at, &names.limited(&taken));
        let questions = Questions::of(&names, &taken);
        let count = questions.ask(&mut writes);
        let mut rows = tx.commit(writes).await?;
        self.peeks.forget(request.worker);
        // Whoever reaps looks at least so often, and sees longer leases in time.
        if is_limited || begins.is_some() && life.lease < LOOK_PAUSE_MAX {
            self.hint_timers();
        }
        let answers = rows.split_off(rows.len().saturating_sub(count));
        Ok(Some(Facts::of(names, &questions, &answers).tell_all(&taken)))
    }

    /// Takes tasks off their queues and leases them, in the order in which they are to be
    /// handed out.
    ///
    /// Virtual times were read before.
    async fn take(
        &self,
        tx: &Tx<'_>,
        request: &ClaimRequest,
        lanes: &[(LaneKey, Lane)],
        virtual_times: &HashMap<i32, i64>,
    ) -> Result<Vec<Taken>, Fault> {
        if lanes.is_empty() || request.limit == 0 {
            return Ok(Vec::new());
        }
        let mut looked: Vec<i64> = Vec::new();
        let mut taken = Vec::new();
        for found in [Found::Nothing, Found::TooLittle] {
            let floor = |(_, lane): &(LaneKey, Lane)| self.floors.get(Front::Lane(lane.id), found);
            let floors: Vec<i64> = lanes.iter().map(floor).collect();
            // The second look is of use where it begins before the first.
            let is_lower = looked.is_empty() || floors.iter().zip(&looked).any(|(a, b)| a < b);
            if taken.len() < request.limit && is_lower {
                let began = Instant::now();
                let rest = request.limit - taken.len();
                let catch = self.take_from(tx, request, lanes, &floors, rest).await?;
                let took = began.elapsed();
                for (((_, lane), from), left) in lanes.iter().zip(&floors).zip(&catch.left) {
                    let tags = catch.taken.iter().filter(|one| one.lane == lane.id);
                    let last = tags.map(|one| one.slot.0).max();
                    // What comes stands behind virtual time. Of a lane that is dry, nothing is
                    // left up to it: others took it. One whose turn did not come still has
                    // its first.
                    let time = virtual_times.get(&lane.level).copied();
                    let first = left.first.zip(time).map(|(first, time)| first.min(time));
                    let at = last.max(time.filter(|_| left.is_dry)).or(first);
                    if left.is_dry || at.is_some() {
                        let look = Look { front: Front::Lane(lane.id), from: *from, took };
                        let at = at.map_or(*from, |tag| tag.max(*from));
                        self.floors.learn(look, at, left.is_dry);
                    }
                }
                taken.extend(catch.taken);
                looked = floors;
            }
        }
        let key_of: HashMap<i32, &LaneKey> =
            lanes.iter().map(|(key, lane)| (lane.id, key)).collect();
        let standing = taken.into_iter().filter_map(|one| {
            let key = key_of.get(&one.lane)?;
            let order = (std::cmp::Reverse(key.priority), one.slot);
            Some(Standing { queue: key.queue.clone(), order, item: one })
        });
        Ok(in_turn(request, standing.collect(), request.limit))
    }

    async fn take_from(
        &self,
        tx: &Tx<'_>,
        request: &ClaimRequest,
        lanes: &[(LaneKey, Lane)],
        floors: &[i64],
        limit: usize,
    ) -> Result<Catch, Fault> {
        let ids: Vec<i32> = lanes.iter().map(|(_, lane)| lane.id).collect();
        let wanted = match lanes {
            [_] => vec![Wanted { count: limit, is_all: false, first: None }],
            _ => self.choose(tx, request, lanes, floors, limit).await?,
        };
        let counts: Vec<i64> =
            wanted.iter().map(|one| i64::try_from(one.count).unwrap_or(i64::MAX)).collect();
        let seq = i64::try_from(request.seq.0).map_err(|_| {
            let text = format!("claim number {} is over the limit of {}", request.seq.0, i64::MAX);
            StoreError::Conflict(text)
        })?;
        let now = self.clock.as_ref().map(|clock| At(clock.now()));
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&ids, &floors, &counts, request.worker.as_uuid(), &seq, &now];
        let rows = tx.query(&sql::CLAIM, &params).await?;
        let taken: Vec<Taken> = rows.iter().map(Taken::of).collect();
        let left = |(lane, wanted): (&i32, &Wanted)| {
            let count = taken.iter().filter(|one| one.lane == *lane).count();
            Left { is_dry: wanted.is_all || count < wanted.count, first: wanted.first }
        };
        let left = ids.iter().zip(&wanted).map(left).collect();
        Ok(Catch { taken, left })
    }

    /// The levels whose virtual times are of use: of lanes that were dry before, or are to be
    /// swept.
    fn levels_to_read(&self, lanes: &[(LaneKey, Lane)]) -> Vec<i32> {
        let is_wanted =
            |front| self.floors.is_dry(front) || self.floors.get(front, Found::Nothing) == i64::MIN;
        let wanted = lanes.iter().filter(|(_, lane)| is_wanted(Front::Lane(lane.id)));
        let levels: BTreeSet<i32> = wanted.map(|(_, lane)| lane.level).collect();
        levels.into_iter().collect()
    }

    /// How many to take of each lane, by looking at what stands first in each.
    async fn choose(
        &self,
        tx: &Tx<'_>,
        request: &ClaimRequest,
        lanes: &[(LaneKey, Lane)],
        floors: &[i64],
        limit: usize,
    ) -> Result<Vec<Wanted>, Fault> {
        let ids: Vec<i32> = lanes.iter().map(|(_, lane)| lane.id).collect();
        let each = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = tx.query(&sql::CANDIDATES, &[&ids, &floors, &each]).await?;
        let key_of: HashMap<i32, &LaneKey> =
            lanes.iter().map(|(key, lane)| (lane.id, key)).collect();
        let standing = rows.iter().filter_map(|row| {
            let lane: i32 = row.get("lane_id");
            let key = key_of.get(&lane)?;
            let order = (std::cmp::Reverse(key.priority), (row.get("tag"), row.get("seq")));
            Some(Standing { queue: key.queue.clone(), order, item: lane })
        });
        let mut counts: HashMap<i32, usize> = HashMap::new();
        for lane in in_turn(request, standing.collect(), limit) {
            *counts.entry(lane).or_default() += 1;
        }
        let wanted = |lane: &i32| {
            let seen = rows.iter().filter(|row| row.get::<_, i32>("lane_id") == *lane);
            let tags: Vec<i64> = seen.map(|row| row.get("tag")).collect();
            let count = counts.get(lane).copied().unwrap_or_default();
            let is_all = count == tags.len() && tags.len() < limit;
            Wanted { count, is_all, first: tags.into_iter().min() }
        };
        Ok(ids.iter().map(wanted).collect())
    }

    /// What the numbers of tasks that were taken stand for.
    async fn names_of(&self, tx: &Tx<'_>, taken: &[Taken]) -> Result<Named, Fault> {
        let definitions = taken.iter().map(|one| one.definition);
        let definitions = self.names.definitions(tx, definitions).await?;
        let tenants: BTreeSet<i32> = taken.iter().map(|one| one.tenant).collect();
        let tenants = self.names.tenant_names(tx, &tenants).await?;
        Ok(Named { definitions, tenants })
    }
}

/// The definitions and tenants of tasks that were taken.
struct Named {
    definitions: HashMap<i32, Arc<Definition>>,
    tenants: HashMap<i32, Tenant>,
}

impl Named {
    fn spec(&self, one: &Taken) -> &Arc<TaskSpec> {
        self.definitions[&one.definition].task(one.id.index)
    }

    /// Those that have a visibility timeout.
    fn limited(&self, taken: &[Taken]) -> Vec<(TaskId, Duration)> {
        let limit = |one: &Taken| Some((one.id, self.spec(one).visibility_timeout?));
        taken.iter().filter_map(limit).collect()
    }

    /// What is written down of their beginning.
    fn started(&self, taken: &[Taken], worker: WorkerId) -> Vec<(RunId, EventBody)> {
        let event = |one: &Taken| {
            let event = TaskEvent {
                task: one.id.index,
                name: self.spec(one).name.clone(),
                kind: TaskEventKind::Started { worker },
                from: TaskState::Ready,
                to: TaskState::Running,
                fence: one.fence,
                attempt: one.attempt,
            };
            (one.id.run, EventBody::Task(event))
        };
        taken.iter().map(event).collect()
    }
}

/// What must be looked up for a worker to run the tasks it was given.
struct Questions {
    /// Whose inputs.
    runs: BTreeSet<RunId>,
    /// Whose ends.
    parents: BTreeSet<TaskId>,
    /// Whose failures.
    failed: BTreeSet<RunId>,
    /// Whose checkpoints: a first claim cannot find one.
    again: BTreeSet<TaskId>,
}

impl Questions {
    fn of(names: &Named, taken: &[Taken]) -> Self {
        let parents = taken.iter().flat_map(|one| {
            let parent = |index: &TaskIndex| TaskId { run: one.id.run, index: *index };
            names.spec(one).parents.iter().map(parent).collect::<Vec<_>>()
        });
        let is_on_failure = |one: &&Taken| names.spec(one).kind == TaskKind::OnFailure;
        Questions {
            runs: taken.iter().map(|one| one.id.run).collect(),
            parents: parents.collect(),
            failed: taken.iter().filter(is_on_failure).map(|one| one.id.run).collect(),
            again: taken.iter().filter(|one| one.fence > Fence(1)).map(|one| one.id).collect(),
        }
    }

    /// Puts a statement behind others for each question there is, in the order of the fields;
    /// answers how many.
    fn ask(&self, writes: &mut Writes<'_>) -> usize {
        if !self.runs.is_empty() {
            writes.push(&sql::INPUTS, params![uuids(&self.runs)]);
        }
        if !self.parents.is_empty() {
            let (runs, indices) = pairs(&self.parents);
            writes.push(&sql::ENDS, params![runs, indices]);
        }
        if !self.failed.is_empty() {
            writes.push(&sql::FAILURES, params![uuids(&self.failed)]);
        }
        if !self.again.is_empty() {
            let (runs, indices) = pairs(&self.again);
            writes.push(&sql::CHECKPOINTS, params![runs.clone(), indices.clone()]);
            writes.push(&sql::STEPS, params![runs, indices]);
        }
        self.are_asked().into_iter().filter(|is_asked| *is_asked).count()
    }

    fn are_asked(&self) -> [bool; 5] {
        let Questions { runs, parents, failed, again } = self;
        let again = !again.is_empty();
        [!runs.is_empty(), !parents.is_empty(), !failed.is_empty(), again, again]
    }
}

/// What is known of tasks that were taken.
struct Facts {
    names: Named,
    inputs: HashMap<RunId, (Result<Payload, String>, u32)>,
    ends: HashMap<TaskId, (Result<TaskState, String>, Option<String>)>,
    failures: HashMap<RunId, Vec<(TaskIndex, String)>>,
    checkpoints: HashMap<TaskId, Payload>,
    steps: HashMap<TaskId, Result<Vec<StepRecord>, String>>,
}

impl Facts {
    /// Reads the answers to the questions that were asked.
    fn of(names: Named, questions: &Questions, answers: &[Vec<Row>]) -> Self {
        let mut answers = answers.iter();
        let [inputs, ends, failed, checkpoints, step_rows] =
            questions.are_asked().map(|is_asked| {
                let rows = is_asked.then(|| answers.next()).flatten();
                rows.map(Vec::as_slice).unwrap_or_default()
            });
        let input = |row: &Row| {
            let input = Payload::from_json(row.get::<_, &str>(1));
            let round = row.get::<_, i32>(2).cast_unsigned();
            (RunId::from_uuid(row.get(0)), (input.map_err(|error| error.to_string()), round))
        };
        let inputs = inputs.iter().map(input).collect();
        let end = |row: &Row| {
            let index = TaskIndex(row.get::<_, i32>(1).cast_unsigned());
            let id = TaskId { run: RunId::from_uuid(row.get(0)), index };
            (id, (task_state(row.get(2)), row.get(3)))
        };
        let ends = ends.iter().map(end).collect();
        let mut failures: HashMap<RunId, Vec<(TaskIndex, String)>> = HashMap::new();
        for row in failed {
            let (run, index) = (RunId::from_uuid(row.get(0)), row.get::<_, i32>(1));
            failures.entry(run).or_default().push((TaskIndex(index.cast_unsigned()), row.get(2)));
        }
        let checkpoints = read_checkpoints(checkpoints);
        let mut steps: HashMap<TaskId, Result<Vec<StepRecord>, String>> = HashMap::new();
        for row in step_rows {
            let known = steps.entry(task_id(row)).or_insert_with(|| Ok(Vec::new()));
            match (known.as_mut(), step_of(row)) {
                (Ok(known), Ok(step)) => known.push(step),
                (Ok(_), Err(error)) => *known = Err(error),
                (Err(_), _) => {}
            }
        }
        Facts { names, inputs, ends, failures, checkpoints, steps }
    }

    /// What the worker is told of the tasks it was given.
    fn tell_all(&self, taken: &[Taken]) -> Vec<Claimed> {
        let told = |one: &Taken| match self.tell(one) {
            Ok(told) => Some(told),
            // The worker does not know of it, and its next heartbeat hands it back. It must not
            // keep the others from being worked on.
            Err(error) => {
                let run = one.id.run;
                tracing::error!(%run, task = %one.id, error, "a task cannot be handed out");
                None
            }
        };
        taken.iter().filter_map(told).collect()
    }

    fn tell(&self, one: &Taken) -> Result<Claimed, String> {
        let id = one.id;
        let definition = &self.names.definitions[&one.definition];
        let spec = self.names.spec(one);
        let missing = |what: &str| format!("it has no {what}");
        let parent = |index: &TaskIndex| {
            let parent = TaskId { run: id.run, index: *index };
            let (state, output) = self.ends.get(&parent).ok_or_else(|| missing("parents"))?;
            let state = state.clone()?;
            let has_output = match definition.task(*index).kind {
                TaskKind::Handler | TaskKind::OnFailure => state == TaskState::Succeeded,
                TaskKind::Sleep(_) => false,
            };
            let output =
                has_output.then(|| Payload::from_json(output.as_deref().unwrap_or("null")));
            let wrong = |error| format!("the output of task {parent}: {error}");
            let output = output.transpose().map_err(wrong)?;
            Ok::<_, String>(ParentEnd { index: *index, state, output })
        };
        let failed = match spec.kind {
            TaskKind::OnFailure => {
                self.failures.get(&id.run).map(Vec::as_slice).unwrap_or_default()
            }
            TaskKind::Handler | TaskKind::Sleep(_) => &[],
        };
        let failure = |(index, text): &(TaskIndex, String)| {
            let failure: Failure = serde_json::from_str(text).map_err(|error| error.to_string())?;
            Ok::<_, String>((definition.task(*index).name.clone(), failure))
        };
        let (input, round) = self.inputs.get(&id.run).ok_or_else(|| missing("input"))?;
        let input = input.clone().map_err(|error| format!("its input: {error}"))?;
        let tenant = self.names.tenants.get(&one.tenant).cloned();
        Ok(Claimed {
            task: id,
            fence: one.fence,
            attempt: one.attempt,
            workflow: definition.name().clone(),
            version: definition.version(),
            spec: spec.clone(),
            tenant: tenant.ok_or_else(|| missing("tenant"))?,
            input,
            parents: spec.parents.iter().map(parent).collect::<Result<_, _>>()?,
            failures: failed.iter().map(failure).collect::<Result<_, _>>()?,
            checkpoint: self.checkpoints.get(&id).cloned(),
            steps: match self.steps.get(&id).cloned() {
                Some(steps) => steps.map_err(|error| format!("a step of it {error}"))?,
                None => Vec::new(),
            },
            at: one.at,
            round: *round,
        })
    }
}

fn uuids(runs: &BTreeSet<RunId>) -> Vec<Uuid> {
    runs.iter().map(|run| *run.as_uuid()).collect()
}

/// A stored JSON text.
pub(super) fn payload(text: &str, what: impl Fn() -> String) -> Result<Payload, Fault> {
    let wrong = |error| StoreError::Corrupt(format!("{} {error}", what()));
    Ok(Payload::from_json(text).map_err(wrong)?)
}
