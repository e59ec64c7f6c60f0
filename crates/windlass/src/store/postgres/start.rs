//! Definitions and starts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use uuid::Uuid;
use windlass_core::{
    Definition, Effect, EventBody, LaneKeys, PayloadLimit, Progress, RunEvent, RunEventKind, RunId,
    RunState, TaskIndex, TaskKind, Timestamp, Version, WorkflowName,
};

use super::PostgresStore;
use super::fault::Fault;
use super::lanes::keys_text;
use super::names::{Names, Unnamed};
use super::pool::{Params, Tx};
use super::run::{Run, Task};
use super::statements as sql;
use super::time::At;
use super::work::Work;
use super::writes::{Param, Writes, params};
use crate::store::records::{another_start, differing_parts};
use crate::store::{NewRun, Started, StoreError};

impl PostgresStore {
    /// Makes definitions known, all or none.
    pub(super) async fn register_in(
        &self,
        tx: &Tx<'_>,
        definitions: &[Arc<Definition>],
    ) -> Result<(), Fault> {
        // Nothing is to be done for most workers that join, and they need not wait for each other.
        let (known, _) =
            self.newest_definitions(tx, definitions.iter().map(|one| key_of(one))).await?;
        let is_known = |one: &Arc<Definition>| {
            known.get(&key_of(one)).is_some_and(|known| known.definition == *one)
        };
        if definitions.iter().all(is_known) {
            return Ok(());
        }
        let names: Vec<&str> = definitions.iter().map(|one| one.name().as_str()).collect();
        let params: Params<'_> = &[&names];
        let all = [(&sql::LOCK_DEFINITIONS, params), (&sql::CLOCK, &[])];
        let [_, clock] = tx.query_all(all).await?;
        let now = self.now_of(&clock)?;
        for definition in definitions {
            let (known, _) = self.newest_definitions(tx, [key_of(definition)]).await?;
            let known = known.into_values().next();
            let mut revision = 1;
            if let Some(known) = known {
                if known.definition == *definition {
                    continue;
                }
                if let Some(difference) = definition.shape_difference(&known.definition) {
                    let (name, version) = key_of(definition);
                    return Err(StoreError::Conflict(format!(
                        "workflow {name:?} version {version} is registered with another shape: \
                         {difference}; give the new one another version"
                    ))
                    .into());
                }
                revision = known.revision + 1;
            }
            let body = serde_json::to_string(&definition.to_draft())
                .map_err(|error| StoreError::Corrupt(format!("a definition: {error}")))?;
            let count = definition.tasks().len() - usize::from(definition.on_failure().is_some());
            let open = i32::try_from(count).unwrap_or(i32::MAX);
            let (name, version) = (definition.name().as_str(), definition.version().get());
            let version = version.cast_signed();
            let row = tx
                .query(
                    &sql::INSERT_DEFINITION,
                    &[&name, &version, &revision, &body, &open, &At(now)],
                )
                .await?;
            let id: Option<i32> = row.first().map(|row| row.get(0));
            insert_definition_tasks(tx, id.unwrap_or_default(), definition).await?;
        }
        Ok(())
    }

    pub(super) async fn register_once(&self, definition: &Arc<Definition>) -> Result<(), Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        self.register_in(&tx, std::slice::from_ref(definition)).await?;
        tx.commit(Writes::default()).await.map(drop)
    }

    /// A definition as the database knows it, which it does from now on.
    pub(super) async fn known_or_new(
        &self,
        tx: &Tx<'_>,
        definition: &Arc<Definition>,
    ) -> Result<Known, Fault> {
        let key = key_of(definition);
        let (mut known, _) = self.newest_definitions(tx, [key.clone()]).await?;
        if known.get(&key).is_none_or(|known| known.definition != *definition) {
            self.register_in(tx, std::slice::from_ref(definition)).await?;
            (known, _) = self.newest_definitions(tx, [key.clone()]).await?;
        }
        let missing = || StoreError::Corrupt(format!("workflow {:?} is not there", key.0));
        Ok(known.remove(&key).ok_or_else(missing)?)
    }

    /// The newest revisions of some definitions, and the time.
    pub(super) async fn newest_definitions(
        &self,
        tx: &Tx<'_>,
        keys: impl IntoIterator<Item = (WorkflowName, Version)>,
    ) -> Result<(Definitions, Timestamp), Fault> {
        let keys: Vec<_> = keys.into_iter().collect();
        let names: Vec<&str> = keys.iter().map(|(name, _)| name.as_str()).collect();
        let versions: Vec<i32> =
            keys.iter().map(|(_, version)| version.get().cast_signed()).collect();
        let params: Params<'_> = &[&names, &versions];
        let [rows, clock] =
            tx.query_all([(&sql::NEWEST_DEFINITIONS, params), (&sql::CLOCK, &[])]).await?;
        let ids = rows.iter().map(|row| row.get::<_, i32>("id"));
        let definitions = tx.names().definitions(tx, ids).await?;
        let known = |row: &tokio_postgres::Row| {
            let id: i32 = row.get("id");
            let definition = Arc::clone(&definitions[&id]);
            (key_of(&definition), Known { id, revision: row.get("revision"), definition })
        };
        Ok((rows.iter().map(known).collect(), self.now_of(&clock)?))
    }

    pub(super) async fn start_once(
        &self,
        runs: &[NewRun],
    ) -> Result<Vec<Result<Started, StoreError>>, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let (known, now) = self.newest_definitions(&tx, keys_of(runs)).await?;
        let Some(new) = surely_new(runs, &known, self.payload_limit) else {
            return self.start_carefully(tx, runs, &known, now, |_| Writes::default()).await;
        };
        let mut work = begin(tx.names(), now, &new)?;
        match self.settle_lanes(&tx, &mut work).await {
            // One of them is there, and is not what this start says: its place in a lane makes no
            // sense.
            Err(Fault::Answer(StoreError::Corrupt(_)) | Fault::Unsound { .. }) => {
                drop(tx);
                let tx = connection.begin();
                return self.start_in(tx, runs, |_| Writes::default()).await;
            }
            settled => settled?,
        }
        let mut writes = Writes::default();
        // Two batches with the same ids take them in the same order.
        let mut sorted = new.clone();
        sorted.sort_unstable_by_key(|(run, _)| run.id);
        let columns = RunColumns::of(&sorted)?;
        writes.push(&sql::INSERT_NEW_RUNS, columns.into_params(now));
        writes.append(work.writes(tx.names())?);
        match self.conclude_with(tx, &work, writes).await {
            Ok(_) => Ok(runs.iter().map(|run| Ok(Started { run: run.id, is_new: true })).collect()),
            Err(fault) if is_used_id(&fault) => {
                self.start_in(connection.begin(), runs, |_| Writes::default()).await
            }
            Err(fault) => Err(fault),
        }
    }

    /// Starts runs in a transaction that has begun, together with what else is to be written.
    pub(super) async fn start_in(
        &self,
        tx: Tx<'_>,
        runs: &[NewRun],
        more: impl FnOnce(&[Result<Started, StoreError>]) -> Writes<'static>,
    ) -> Result<Vec<Result<Started, StoreError>>, Fault> {
        let (known, now) = self.newest_definitions(&tx, keys_of(runs)).await?;
        self.start_carefully(tx, runs, &known, now, more).await
    }

    /// Starts runs of which some may be there already, by their ids or by their keys, or are
    /// to be refused.
    async fn start_carefully(
        &self,
        tx: Tx<'_>,
        runs: &[NewRun],
        known: &Definitions,
        now: Timestamp,
        more: impl FnOnce(&[Result<Started, StoreError>]) -> Writes<'static>,
    ) -> Result<Vec<Result<Started, StoreError>>, Fault> {
        let refused = |run: &NewRun| {
            let wrong = run.check(self.payload_limit).err();
            let known = known.get(&(run.workflow.clone(), run.version));
            let lanes = known.and_then(|known| LaneKeys::of(&known.definition, &run.input).err());
            wrong.or(lanes.map(|error| error.to_string())).map(StoreError::Conflict)
        };
        let mut answers: Vec<Option<Result<Started, StoreError>>> =
            runs.iter().map(|run| refused(run).map(Err)).collect();
        let mut open: Vec<Wanted<'_>> = runs
            .iter()
            .enumerate()
            .filter(|(position, _)| answers[*position].is_none())
            .map(|(position, run)| {
                let known = known.get(&(run.workflow.clone(), run.version));
                Wanted { position, run, known }
            })
            .collect();
        let mut new = Vec::new();
        while !open.is_empty() {
            let (round, later) = next_round(open);
            let made = insert_runs(&tx, At(now), &round).await?;
            let mut rest = Vec::new();
            for one in round {
                match one.known {
                    // Of one id there is one in a round: this is who made the run.
                    Some(known) if made.contains(&one.run.id) => {
                        answers[one.position] = Some(Ok(Started { run: one.run.id, is_new: true }));
                        new.push((one.position, one.run, known));
                    }
                    Some(_) | None => rest.push(one),
                }
            }
            // What has the id of a run that was just made can only be answered with it.
            let (named, later) = later.into_iter().partition(|one| made.contains(&one.run.id));
            rest.extend::<Vec<_>>(named);
            open = later;
            for (position, answer) in find_existing(&tx, At(now), &rest).await? {
                answers[position] = Some(answer);
            }
        }
        new.sort_unstable_by_key(|(position, _, _)| *position);
        let new: Vec<_> = new.into_iter().map(|(_, run, known)| (run, known)).collect();
        let mut work = begin(tx.names(), now, &new)?;
        self.settle_lanes(&tx, &mut work).await?;
        let answers: Vec<_> = answers.into_iter().flatten().collect();
        let mut writes = work.writes(tx.names())?;
        writes.append(more(&answers));
        self.conclude_with(tx, &work, writes).await?;
        Ok(answers)
    }
}

/// The newest definitions by their workflows and versions.
pub(super) type Definitions = HashMap<(WorkflowName, Version), Known>;

fn keys_of(runs: &[NewRun]) -> HashSet<(WorkflowName, Version)> {
    runs.iter().map(|run| (run.workflow.clone(), run.version)).collect()
}

/// The definitions of runs none of which should be there already; `None` if one may be, or is
/// to be refused.
fn surely_new<'a>(
    runs: &'a [NewRun],
    known: &'a Definitions,
    limit: PayloadLimit,
) -> Option<Vec<(&'a NewRun, &'a Known)>> {
    let mut ids = HashSet::with_capacity(runs.len());
    let new = |run: &'a NewRun| {
        let is_new = run.key.is_none() && run.check(limit).is_ok() && ids.insert(run.id);
        let known = known.get(&(run.workflow.clone(), run.version));
        let is_lane = |known: &&Known| LaneKeys::of(&known.definition, &run.input).is_ok();
        known.filter(|known| is_new && is_lane(known)).map(|known| (run, known))
    };
    runs.iter().map(new).collect()
}

/// Whether runs were not made because one of them is there already.
fn is_used_id(fault: &Fault) -> bool {
    let Fault::Database(error) = fault else { return false };
    error.as_db_error().is_some_and(|error| error.constraint() == Some("runs_pkey"))
}

/// What the first tasks of new runs do. Tenants have their numbers, and with them their turns among
/// others, in the order of their first starts. A first start that is refused because its run id is
/// taken may give its tenant a number as well.
fn begin(names: &Names, now: Timestamp, new: &[(&NewRun, &Known)]) -> Result<Work, Fault> {
    let mut unnamed = Unnamed::default();
    for (run, _) in new {
        if names.tenant(&run.tenant).is_none() && !unnamed.tenants.contains(&run.tenant) {
            unnamed.tenants.push(run.tenant.clone());
        }
    }
    if !unnamed.is_empty() {
        return Err(Fault::Unnamed(unnamed));
    }
    let mut work = Work::new(now);
    for (run, known) in new {
        begin_one(&mut work, run, known)?;
    }
    Ok(work)
}

/// What the first tasks of a new run do.
pub(super) fn begin_one(work: &mut Work, run: &NewRun, known: &Known) -> Result<(), Fault> {
    let started = RunEvent { kind: RunEventKind::Started, from: None, to: RunState::Running };
    work.moves.events.push((run.id, EventBody::Run(started)));
    work.moves.begun.push(run.id);
    let (progress, effects) = Progress::start(&known.definition);
    let mut one = Run {
        id: run.id,
        definition_id: known.id,
        definition: Arc::clone(&known.definition),
        tenant: run.tenant.clone(),
        priority: run.priority,
        state: RunState::Running,
        round: 1,
        lane_keys: lane_keys(run, known)?,
        ended_at: None,
        progress,
        tasks: match known.definition.has_limits() {
            // A task that finds its lane full may be skipped, with all that follows.
            true => known.definition.indices().map(|index| (index, Task::new())).collect(),
            false => roots(&effects),
        },
        is_changed: false,
        ahead: None,
    };
    one.apply_effects(&mut work.moves, work.now, effects, run.delay)?;
    work.runs.insert(run.id, one);
    Ok(())
}

/// The keys that a new run has in the limits of its definition.
fn lane_keys(run: &NewRun, known: &Known) -> Result<LaneKeys, StoreError> {
    let keys = LaneKeys::of(&known.definition, &run.input);
    keys.map_err(|error| StoreError::Conflict(error.to_string()))
}

/// Makes the rows of runs that begin together with what else a verb does.
pub(super) fn write_born<'w>(writes: &mut Writes<'w>, work: &'w Work) -> Result<(), Fault> {
    let mut born: Vec<(&NewRun, &Known)> =
        work.born.iter().map(|(run, known)| (run, known)).collect();
    if !born.is_empty() {
        born.sort_unstable_by_key(|(run, _)| run.id);
        writes.push(&sql::INSERT_NEW_RUNS, RunColumns::of(&born)?.into_params(work.now));
    }
    Ok(())
}

/// A definition that the database knows.
#[derive(Clone)]
pub(super) struct Known {
    id: i32,
    revision: i32,
    pub(super) definition: Arc<Definition>,
}

/// A start of a batch that has no answer yet.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    position: usize,
    run: &'a NewRun,
    /// None if nobody has registered its workflow.
    known: Option<&'a Known>,
}

/// Takes those out of a batch that one statement answers as if they came one after the
/// other: for each id the first, unless one with its key has to wait, or was first and is of
/// an unknown workflow. Answers them, and those that are left for later rounds.
///
/// Nearly always the first round is the only one. Another follows when an id is there twice
/// and a key answered for the first that has it.
fn next_round(open: Vec<Wanted<'_>>) -> (Vec<Wanted<'_>>, Vec<Wanted<'_>>) {
    let mut ids = HashSet::with_capacity(open.len());
    let mut keys = HashSet::new();
    open.into_iter().partition(|one| {
        let run = one.run;
        let key = run.key.as_ref().map(|key| (&run.tenant, &run.workflow, key));
        let is_next = ids.insert(run.id) && !key.is_some_and(|key| keys.contains(&key));
        if !is_next || one.known.is_none() {
            keys.extend(key);
        }
        is_next
    })
}

fn roots(effects: &[Effect]) -> BTreeMap<TaskIndex, Task> {
    let root = |effect: &Effect| match effect {
        Effect::Unblock(index) => Some((*index, Task::new())),
        Effect::Skip(_) | Effect::EndRun(_) => None,
    };
    effects.iter().filter_map(root).collect()
}

fn key_of(definition: &Definition) -> (WorkflowName, Version) {
    (definition.name().clone(), definition.version())
}

async fn insert_definition_tasks(
    tx: &Tx<'_>,
    id: i32,
    definition: &Definition,
) -> Result<(), Fault> {
    let kind = |kind| match kind {
        TaskKind::Handler => "handler",
        TaskKind::Sleep(_) => "sleep",
        TaskKind::OnFailure => "on_failure",
    };
    let tasks = definition.tasks();
    let indices: Vec<i32> = definition.indices().map(|index| index.0.cast_signed()).collect();
    let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    let kinds: Vec<&str> = tasks.iter().map(|task| kind(task.kind)).collect();
    let parents: Vec<i32> =
        tasks.iter().map(|task| i32::try_from(task.parents.len()).unwrap_or(i32::MAX)).collect();
    let attempts: Vec<i32> =
        tasks.iter().map(|task| task.retry.max_attempts().cast_signed()).collect();
    let params =
        &[&id as _, &indices as _, &names as _, &kinds as _, &parents as _, &attempts as _];
    tx.query(&sql::INSERT_DEFINITION_TASKS, params).await?;
    Ok(())
}

/// Makes the rows of runs; answers which were made.
async fn insert_runs(tx: &Tx<'_>, now: At, round: &[Wanted<'_>]) -> Result<HashSet<RunId>, Fault> {
    let mut sorted: Vec<(&NewRun, &Known)> =
        round.iter().filter_map(|one| Some((one.run, one.known?))).collect();
    if sorted.is_empty() {
        return Ok(HashSet::new());
    }
    // Two batches with the same keys or ids take them in the same order. Those with one key
    // stay in theirs: the first has it.
    sorted.sort_by(|(a, _), (b, _)| {
        let id = |run: &NewRun| run.key.is_none().then_some(run.id);
        (&a.key, &a.tenant, &a.workflow, id(a)).cmp(&(&b.key, &b.tenant, &b.workflow, id(b)))
    });
    let columns = RunColumns::of(&sorted)?;
    let keys: Vec<Option<&str>> =
        sorted.iter().map(|(run, _)| run.key.as_ref().map(|key| key.as_str())).collect();
    let RunColumns { ids, definitions, workflows, versions, .. } = &columns;
    let RunColumns { tenants, opens, priorities, metadata, inputs, lane_keys, .. } = &columns;
    let insert: Params<'_> = &[
        ids,
        definitions,
        workflows,
        versions,
        tenants,
        opens,
        priorities,
        &now,
        &keys,
        metadata,
        inputs,
        lane_keys,
    ];
    let made = |rows: &[tokio_postgres::Row]| -> HashSet<RunId> {
        rows.iter().map(|row| RunId::from_uuid(row.get(0))).collect()
    };
    if keys.iter().all(Option::is_none) {
        return Ok(made(&tx.query(&sql::INSERT_RUNS, insert).await?));
    }
    let drop: Params<'_> = &[ids, tenants, workflows, &keys, &now];
    let [rows, dropped] =
        tx.query_all([(&sql::INSERT_RUNS, insert), (&sql::DROP_KEPT, drop)]).await?;
    Ok(&made(&rows) - &made(&dropped))
}

/// The columns of rows of runs.
struct RunColumns<'a> {
    ids: Vec<Uuid>,
    definitions: Vec<i32>,
    workflows: Vec<&'a str>,
    versions: Vec<i32>,
    tenants: Vec<&'a str>,
    opens: Vec<i32>,
    priorities: Vec<i16>,
    metadata: Vec<Option<String>>,
    inputs: Vec<&'a str>,
    lane_keys: Vec<Option<String>>,
}

impl<'a> RunColumns<'a> {
    fn of(new: &[(&'a NewRun, &Known)]) -> Result<Self, Fault> {
        let metadata = |run: &NewRun| {
            let text = (!run.metadata.is_empty()).then(|| serde_json::to_string(&run.metadata));
            text.transpose().map_err(|error| StoreError::Corrupt(error.to_string()))
        };
        let open = |known: &Known| Progress::start(&known.definition).0.open().cast_signed();
        let mut opens = HashMap::new();
        for (_, known) in new {
            opens.entry(known.id).or_insert_with(|| open(known));
        }
        let runs = || new.iter().map(|(run, _)| *run);
        Ok(RunColumns {
            ids: runs().map(|run| *run.id.as_uuid()).collect(),
            definitions: new.iter().map(|(_, known)| known.id).collect(),
            workflows: runs().map(|run| run.workflow.as_str()).collect(),
            versions: runs().map(|run| run.version.get().cast_signed()).collect(),
            tenants: runs().map(|run| run.tenant.as_str()).collect(),
            opens: new.iter().map(|(_, known)| opens[&known.id]).collect(),
            priorities: runs().map(|run| run.priority.get()).collect(),
            metadata: runs().map(metadata).collect::<Result<_, _>>()?,
            inputs: runs().map(|run| run.input.as_str()).collect(),
            lane_keys: new
                .iter()
                .map(|(run, known)| keys_text(&lane_keys(run, known)?))
                .collect::<Result<_, _>>()?,
        })
    }

    /// The parameters of [`sql::INSERT_NEW_RUNS`].
    fn into_params(self, now: Timestamp) -> Vec<Param<'a>> {
        params![
            self.ids,
            self.definitions,
            self.workflows,
            self.versions,
            self.tenants,
            self.opens,
            self.priorities,
            At(now),
            self.metadata,
            self.inputs,
            self.lane_keys,
        ]
    }
}

/// What the starts that made no run name, by their ids or by their keys, by their positions.
async fn find_existing(
    tx: &Tx<'_>,
    now: At,
    rest: &[Wanted<'_>],
) -> Result<Vec<(usize, Result<Started, StoreError>)>, Fault> {
    if rest.is_empty() {
        return Ok(Vec::new());
    }
    let runs = || rest.iter().map(|one| one.run);
    let ids: Vec<Uuid> = runs().map(|run| *run.id.as_uuid()).collect();
    let tenants: Vec<&str> = runs().map(|run| run.tenant.as_str()).collect();
    let workflows: Vec<&str> = runs().map(|run| run.workflow.as_str()).collect();
    let keys: Vec<Option<&str>> =
        runs().map(|run| run.key.as_ref().map(|key| key.as_str())).collect();
    let rows = tx.query(&sql::EXISTING_RUNS, &[&ids, &tenants, &workflows, &keys, &now]).await?;
    let mut found: HashMap<usize, &tokio_postgres::Row> = HashMap::new();
    for row in &rows {
        let number = usize::try_from(row.get::<_, i64>("n") - 1).unwrap_or_default();
        // The id names a run before the key does.
        if row.get("is_named") || !found.contains_key(&number) {
            found.insert(number, row);
        }
    }
    let answer = |(number, one): (usize, &Wanted<'_>)| {
        let new = one.run;
        let answer = match (found.get(&number), one.known) {
            (Some(row), _) => judge_existing(row, new),
            (None, None) => {
                let what = format!("workflow {:?} version {}", new.workflow, new.version);
                Err(StoreError::NotFound(what))
            }
            // Whoever made it went away again in between.
            (None, Some(_)) => {
                return Err(Fault::Unavailable(format!("run {} was in the way", new.id)));
            }
        };
        Ok((one.position, answer))
    };
    rest.iter().enumerate().map(answer).collect()
}

/// The answer to a start whose id or key is that of a run which is there.
fn judge_existing(row: &tokio_postgres::Row, new: &NewRun) -> Result<Started, StoreError> {
    let run = RunId::from_uuid(row.get("id"));
    let is_own = row.get::<_, &str>("tenant") == new.tenant.as_str();
    let key = new.key.as_ref().map(|key| key.as_str());
    let mut differing = differing_parts([
        ("workflow", row.get::<_, &str>("workflow") == new.workflow.as_str()),
        ("input", row.get::<_, &str>("input") == new.input.as_str()),
        ("key", row.get::<_, Option<&str>>("key") == key),
    ]);
    if is_own && differing.is_empty() {
        return Ok(Started { run, is_new: false });
    }
    if !is_own {
        differing.clear();
    }
    Err(another_start(new, run, row.get("is_named"), &differing))
}
