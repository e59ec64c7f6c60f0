//! Runs that are over and go.
//!
//! There is no index of ends: one would be written with the end of every run. Runs are looked at
//! by their age instead, so many at a time, from the oldest to those that cannot be old enough;
//! then the next pass begins. Where a pass is, only this process knows, and nothing depends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;
use windlass_core::{RunId, RunState, Tenant, Timestamp, Undoing, Version, WorkflowName};

use super::PostgresStore;
use super::fault::Fault;
use super::handout::payload;
use super::pool::{Params, Tx};
use super::statements as sql;
use super::time::At;
use super::work::{run_state, sorted_ids};
use super::writes::{Writes, params};
use crate::store::retention::{rule_for, too_many};
use crate::store::{
    ArchivedRun, Mandate, PRUNE_MAX, PRUNE_TASKS_MAX, RETENTION_RULES_MAX, RetentionRule,
    StoreError, Sweep,
};

/// How many runs one sweep looks at.
const LOOK_MAX: i64 = 1_000;

/// How many runs behind each other are passed over that cannot be deleted.
const FAILED_MAX: usize = 10;

/// How many keys of runs that are gone are forgotten at once.
const KEYS_MAX: i64 = 1_000;

/// How many keys of what was handled are forgotten at once.
const HANDLED_MAX: i32 = 1_000;

/// The pause between two sweeps of one pass: others have the disk meanwhile.
const PRUNE_PAUSE: Duration = Duration::from_millis(50);

/// A run by its age.
type Place = (Timestamp, RunId);

/// What a transaction is to delete.
#[derive(Clone, Copy)]
enum Choice {
    /// So many of the next runs of the pass.
    Next(usize),
    /// This run.
    Only(RunId),
}

/// Where the pass of this process is.
#[derive(Default)]
pub(super) struct Pass(Mutex<Option<Place>>);

impl Pass {
    fn get(&self) -> Option<Place> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, place: Option<Place>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn before(now: Timestamp, time: Duration) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_sub(micros(time)))
}

fn rule(row: &Row) -> Result<RetentionRule, Fault> {
    let time = |column| Duration::from_micros(row.get::<_, i64>(column).unsigned_abs());
    let wrong = |error: String| StoreError::Corrupt(format!("a rule of retention: {error}"));
    let workflow = Some(row.get::<_, &str>("workflow")).filter(|name| !name.is_empty());
    Ok(RetentionRule {
        workflow: workflow
            .map(WorkflowName::new)
            .transpose()
            .map_err(|error| wrong(error.to_string()))?,
        state: run_state(row.get("state")).map_err(wrong)?,
        keep_for: time("keep_micros"),
        keep_key_for: time("keep_key_micros"),
        archives: row.get("archives"),
        with_dead_letters: row.get("with_dead_letters"),
    })
}

/// A run that is locked and may go.
struct Old {
    id: RunId,
    place: Place,
    definition: i32,
    round: u32,
    ended_at: Timestamp,
    rule: RetentionRule,
    /// The run that it undoes.
    undoes: Option<RunId>,
}

impl PostgresStore {
    pub(super) async fn list_retention_once(&self) -> Result<Vec<RetentionRule>, Fault> {
        self.read(&sql::LIST_RETENTION, &[]).await?.iter().map(rule).collect()
    }

    pub(super) async fn set_retention_once(&self, rule: &RetentionRule) -> Result<(), Fault> {
        rule.check().map_err(StoreError::Conflict)?;
        let workflow = rule.workflow.as_ref().map_or("", WorkflowName::as_str);
        let (keep, keep_key) = (micros(rule.keep_for), micros(rule.keep_key_for));
        let most = i64::try_from(RETENTION_RULES_MAX).unwrap_or(i64::MAX);
        let params: [&(dyn ToSql + Sync); 7] = [
            &workflow,
            &rule.state.word(),
            &keep,
            &keep_key,
            &rule.archives,
            &rule.with_dead_letters,
            &most,
        ];
        match self.read(&sql::SET_RETENTION, &params).await?.is_empty() {
            true => Err(too_many().into()),
            false => Ok(()),
        }
    }

    pub(super) async fn clear_retention_once(
        &self,
        workflow: Option<&WorkflowName>,
        state: RunState,
    ) -> Result<bool, Fault> {
        let workflow = workflow.map_or("", WorkflowName::as_str);
        let rows = self.read(&sql::CLEAR_RETENTION, &[&workflow, &state.word()]).await?;
        Ok(!rows.is_empty())
    }

    pub(super) async fn get_archived_run_once(
        &self,
        id: RunId,
    ) -> Result<Option<ArchivedRun>, Fault> {
        let rows = self.read(&sql::GET_ARCHIVED_RUN, &[id.as_uuid()]).await?;
        rows.first().map(archived).transpose()
    }

    pub(super) async fn prune_once(
        &self,
        mandate: Option<&Mandate>,
        limit: usize,
    ) -> Result<Sweep, Fault> {
        let mut tried = Vec::new();
        let sweep = self.prune_in(mandate, Choice::Next(limit.min(PRUNE_MAX)), &mut tried).await;
        let mut sweep = match sweep {
            Err(fault) if fault.may_be_of_one() && !tried.is_empty() => {
                self.prune_each(mandate, &tried).await?
            }
            other => other?,
        };
        if self.forget_handled(mandate).await? {
            sweep.next_at = Some(sweep.at + PRUNE_PAUSE);
        }
        Ok(sweep)
    }

    /// Deletes runs one by one, of which at least one cannot be deleted, and passes over that. The
    /// pass goes on where it was.
    async fn prune_each(&self, mandate: Option<&Mandate>, runs: &[RunId]) -> Result<Sweep, Fault> {
        let (mut moved, mut failed) = (0, 0);
        for run in runs {
            match self.prune_in(mandate, Choice::Only(*run), &mut Vec::new()).await {
                Ok(sweep) => (moved, failed) = (moved + sweep.moved, 0),
                Err(fault) if fault.may_be_of_one() && failed < FAILED_MAX => {
                    failed += 1;
                    self.undeletable.pass_over(*run, fault);
                }
                // So many behind each other are not to blame: nothing can be deleted.
                Err(fault) => return Err(fault),
            }
        }
        let at = self.now_once().await?;
        Ok(Sweep { at, moved, next_at: Some(at + PRUNE_PAUSE) })
    }

    /// Forgets keys of what tasks have handled, in a transaction of its own: whoever handles one
    /// of them again waits for it, and may have what a run that goes is waited for. Answers whether
    /// there may be more.
    async fn forget_handled(&self, mandate: Option<&Mandate>) -> Result<bool, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        self.now_of_sweep(&tx, mandate).await?;
        let rows = tx.query(&sql::PRUNE_HANDLED, &[&HANDLED_MAX]).await?;
        tx.commit(Writes::default()).await?;
        Ok(rows.first().is_some_and(|row| row.get::<_, i64>(0) >= i64::from(HANDLED_MAX)))
    }

    /// Deletes runs in one transaction; `tried` are those that it was about to delete.
    async fn prune_in(
        &self,
        mandate: Option<&Mandate>,
        choice: Choice,
        tried: &mut Vec<RunId>,
    ) -> Result<Sweep, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let now = self.now_of_sweep(&tx, mandate).await?;
        let (at, keys): (At, i64) = (At(now), KEYS_MAX);
        let expired: Params<'_> = &[&at, &keys];
        let all = [(&sql::LIST_RETENTION, &[] as Params<'_>), (&sql::EXPIRE_KEPT_KEYS, expired)];
        let [rules, expired] = tx.query_all(all).await?;
        let has_more_keys = i64::try_from(expired.len()).unwrap_or(i64::MAX) >= KEYS_MAX;
        let rules = rules.iter().map(rule).collect::<Result<Vec<_>, _>>()?;
        let Some(least) = rules.iter().map(|rule| rule.keep_for).min() else {
            tx.commit(Writes::default()).await?;
            let next_at = has_more_keys.then_some(now + PRUNE_PAUSE);
            return Ok(Sweep { at: now, moved: 0, next_at });
        };
        let (old, mut place) = match choice {
            Choice::Next(limit) => self.look(&tx, &rules, now, least, limit).await?,
            Choice::Only(run) => (vec![run], self.pass.get()),
        };
        let old = lock(&tx, &rules, now, old).await?;
        let old = self.spare(&tx, old).await?;
        tried.extend(old.iter().map(|one| one.id));
        let (old, cut_at) = self.cut(&tx, old).await?;
        place = cut_at.or(place);
        let ids = sorted_ids(old.iter().map(|one| one.id));
        let mut writes = Writes::default();
        if !ids.is_empty() {
            let archived = sorted_ids(old.iter().filter(|one| one.rule.archives).map(|it| it.id));
            if !archived.is_empty() {
                tx.query(&sql::ARCHIVE_RUNS, &[&archived, &at]).await?;
            }
            let until = |one: &Old| one.ended_at + one.rule.keep_key_for;
            let kept = old.iter().filter(|one| until(one) > now);
            let (kept, untils): (Vec<Uuid>, Vec<At>) =
                kept.map(|one| (*one.id.as_uuid(), At(until(one)))).unzip();
            if !kept.is_empty() {
                tx.query(&sql::KEEP_KEYS, &[&kept, &untils]).await?;
            }
            writes.push(&sql::PRUNE_RUNS, params![ids]);
        }
        tx.commit(writes).await?;
        self.pass.set(place);
        let next_at = (place.is_some() || has_more_keys).then_some(now + PRUNE_PAUSE);
        Ok(Sweep { at: now, moved: old.len(), next_at })
    }

    /// Looks at the next runs of the pass. Answers those that may go, and where the pass goes on,
    /// if it does.
    async fn look(
        &self,
        tx: &Tx<'_>,
        rules: &[RetentionRule],
        now: Timestamp,
        least: Duration,
        limit: usize,
    ) -> Result<(Vec<RunId>, Option<Place>), Fault> {
        let from = self.pass.get();
        let (at, id) = (from.map(|from| At(from.0)), from.map(|from| *from.1.as_uuid()));
        let horizon = At(before(now, least) + Duration::from_micros(1));
        let rows = tx.query(&sql::OLDEST_RUNS, &[&at, &id, &horizon, &LOOK_MAX]).await?;
        let is_last = i64::try_from(rows.len()).unwrap_or(i64::MAX) < LOOK_MAX;
        let (mut old, mut place) = (Vec::new(), None);
        for row in &rows {
            if old.len() >= limit {
                return Ok((old, place));
            }
            let id = RunId::from_uuid(row.get("id"));
            place = Some((row.get::<_, At>("created_at").0, id));
            if self.undeletable.has(id) {
                continue;
            }
            match rule_of(rules, row) {
                Ok(Some((rule, ended_at))) if ended_at + rule.keep_for <= now => old.push(id),
                Ok(_) => {}
                Err(fault) => self.undeletable.pass_over(id, fault),
            }
        }
        Ok((old, place.filter(|_| !is_last)))
    }

    /// Those of some runs that nobody needs any more.
    async fn spare(&self, tx: &Tx<'_>, mut old: Vec<Old>) -> Result<Vec<Old>, Fault> {
        if old.is_empty() {
            return Ok(old);
        }
        let others = old.iter().flat_map(|one| [one.undoes, Some(one.undone_by())]);
        let others = sorted_ids(others.flatten());
        let by = old.iter().map(Old::undone_by);
        let ids = sorted_ids(old.iter().map(|one| one.id).chain(by));
        let (needed, states): (Params<'_>, Params<'_>) = (&[&ids], &[&others]);
        let all = [(&sql::NEEDED_RUNS, needed), (&sql::STATES_OF_RUNS, states)];
        let [needed, states] = tx.query_all(all).await?;
        let (mut is_needed, mut is_dead) = (BTreeSet::new(), BTreeSet::new());
        for row in &needed {
            let run = RunId::from_uuid(row.get("run_id"));
            match row.get::<_, &str>("why") {
                "dead" => is_dead.insert(run),
                _ => is_needed.insert(run),
            };
        }
        let state = |row: &Row| (RunId::from_uuid(row.get("id")), row.get::<_, String>("state"));
        let states: BTreeMap<RunId, String> = states.iter().map(state).collect();
        old.retain(|one| {
            !is_needed.contains(&one.id)
                && (one.rule.with_dead_letters
                    || !is_dead.contains(&one.id) && !is_dead.contains(&one.undone_by()))
                && !one.undoes.is_some_and(|run| states.contains_key(&run))
                && states.get(&one.undone_by()).is_none_or(|state| state != "running")
        });
        Ok(old)
    }

    /// The oldest of some runs that have no more tasks together than one sweep deletes; and where
    /// the pass goes on, if it is not to pass over the others.
    async fn cut(
        &self,
        tx: &Tx<'_>,
        mut old: Vec<Old>,
    ) -> Result<(Vec<Old>, Option<Place>), Fault> {
        old.sort_unstable_by_key(|one| one.place);
        let definitions = tx.names().definitions(tx, old.iter().map(|one| one.definition)).await?;
        let (mut tasks, mut count) = (0, 0);
        for one in &old {
            tasks += definitions.get(&one.definition).map_or(0, |it| it.tasks().len());
            if count > 0 && tasks > PRUNE_TASKS_MAX {
                break;
            }
            count += 1;
        }
        let is_cut = count < old.len();
        old.truncate(count);
        let last = old.last().map(|one| one.place).filter(|_| is_cut);
        Ok((old, last))
    }
}

impl Old {
    fn undone_by(&self) -> RunId {
        RunId::of_undo(self.id, self.round)
    }
}

/// The rule that a row of a run falls under, and when it ended.
fn rule_of<'a>(
    rules: &'a [RetentionRule],
    row: &Row,
) -> Result<Option<(&'a RetentionRule, Timestamp)>, Fault> {
    let id = RunId::from_uuid(row.get("id"));
    let wrong = |error: String| StoreError::Corrupt(format!("run {id}: {error}"));
    let workflow = WorkflowName::new(row.get::<_, &str>("workflow"));
    let workflow = workflow.map_err(|error| wrong(error.to_string()))?;
    let state = run_state(row.get("state")).map_err(wrong)?;
    let ended_at = row.get::<_, Option<At>>("ended_at").map(|at| at.0);
    Ok(rule_for(rules, &workflow, state).zip(ended_at))
}

/// Locks those of some runs that nobody else has locked, and that are as old as they seemed.
async fn lock(
    tx: &Tx<'_>,
    rules: &[RetentionRule],
    now: Timestamp,
    runs: Vec<RunId>,
) -> Result<Vec<Old>, Fault> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let mut old = Vec::new();
    for row in tx.query(&sql::LOCK_OLD_RUNS, &[&sorted_ids(runs)]).await? {
        let Some((rule, ended_at)) = rule_of(rules, &row)? else { continue };
        if ended_at + rule.keep_for > now {
            continue;
        }
        let undoing: Option<&str> = row.get("undoes");
        let undoing = undoing.and_then(|text| serde_json::from_str::<Undoing>(text).ok());
        let id = RunId::from_uuid(row.get("id"));
        old.push(Old {
            id,
            place: (row.get::<_, At>("created_at").0, id),
            definition: row.get("definition_id"),
            round: row.get::<_, i32>("round").cast_unsigned(),
            ended_at,
            rule: rule.clone(),
            undoes: undoing.map(|undoing| undoing.run),
        });
    }
    Ok(old)
}

fn archived(row: &Row) -> Result<ArchivedRun, Fault> {
    let id = RunId::from_uuid(row.get("id"));
    let wrong = |error: String| StoreError::Corrupt(format!("archived run {id}: {error}"));
    let name = |error: windlass_core::NameError| wrong(error.to_string());
    let version = Version::new(row.get::<_, i32>("version").cast_unsigned());
    Ok(ArchivedRun {
        id,
        workflow: WorkflowName::new(row.get::<_, &str>("workflow")).map_err(name)?,
        version: version.ok_or_else(|| wrong("its version is 0".to_owned()))?,
        tenant: Tenant::new(row.get::<_, &str>("tenant")).map_err(name)?,
        state: run_state(row.get("state")).map_err(wrong)?,
        created_at: row.get::<_, At>("created_at").0,
        ended_at: row.get::<_, At>("ended_at").0,
        archived_at: row.get::<_, At>("archived_at").0,
        body: payload(row.get("body"), || format!("the body of archived run {id}"))?,
    })
}
