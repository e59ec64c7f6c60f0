//! Signals to keys, and who waits for them.
//!
//! Whoever sends a signal to a key, takes one, or is about to wait for one, locks the mailbox, and
//! so comes before or after each of the others. Nobody who sends locks a run: it leaves a note for
//! the runs that wait, once for each time that a function is parked, and the next sweep of what is
//! due lets them go on. The first of them that asks takes the signal; the others wait again. So
//! none is lost with a function that was let go on and never asked.

use std::collections::{BTreeSet, HashMap, HashSet};

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{
    Call, Fence, RunId, SignalKey, StepName, StepRecord, TaskId, TaskState, Tenant, Timestamp,
};

use super::PostgresStore;
use super::fault::Fault;
use super::journal::{Questions, Waiting};
use super::notify::Kinds;
use super::pool::{Params, Tx};
use super::run::Narrow;
use super::statements as sql;
use super::time::At;
use super::work::{Work, pairs, task_id};
use super::writes::{Writes, params};
use crate::store::memory::mailboxes::mailbox_is_full;
use crate::store::{Mailbox, NewKeySignal, SIGNALS_MAX, StoreError, TakeSignal};

impl PostgresStore {
    pub(super) async fn signal_key_once(&self, signal: &NewKeySignal) -> Result<(), Fault> {
        signal.check(self.payload_limit).map_err(StoreError::Conflict)?;
        let NewKeySignal { id, to, value, keep_for } = signal;
        let (tenant, key, name) = (to.tenant.as_str(), to.key.as_str(), to.name.as_str());
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let (tenants, keys) = (vec![tenant], vec![key]);
        let lock: Params<'_> = &[&tenants, &keys];
        let [_, clock] = tx.query_all([(&sql::LOCK_MAILBOXES, lock), (&sql::CLOCK, &[])]).await?;
        let now = self.now_of(&clock)?;
        let (at, expires_at) = (At(now), At(now + *keep_for));
        let most = i64::try_from(SIGNALS_MAX).unwrap_or(i64::MAX);
        let forget: Params<'_> = &[&tenant, &key, id.as_uuid(), &at];
        let send: Params<'_> =
            &[&tenant, &key, &name, id.as_uuid(), &value.as_str(), &at, &expires_at, &most];
        let all = [(&sql::FORGET_KEY_SIGNAL, forget), (&sql::SEND_KEY_SIGNAL, send)];
        let [_, sent] = tx.query_all(all).await?;
        let told = |column| sent.first().is_some_and(|row| row.get::<_, bool>(column));
        if told("is_known") {
            return Ok(());
        }
        if !told("has_room") {
            return Err(mailbox_is_full(to).into());
        }
        tx.commit(Writes::default()).await?;
        if told("has_notes") {
            self.notifier.notify(Kinds::TIMERS);
        }
        Ok(())
    }
}

/// The columns of mailboxes.
fn columns<'a>(
    mailboxes: impl IntoIterator<Item = &'a Mailbox>,
) -> (Vec<&'a str>, Vec<&'a str>, Vec<&'a str>) {
    let (mut tenants, mut keys, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for Mailbox { tenant, key, name } in mailboxes {
        tenants.push(tenant.as_str());
        keys.push(key.as_str());
        names.push(name.as_str());
    }
    (tenants, keys, names)
}

/// The mailbox that a row is about.
fn mailbox_of(row: &Row) -> Result<Mailbox, Fault> {
    let wrong = |error| StoreError::Corrupt(format!("a signal to a key: {error}"));
    Ok(Mailbox {
        tenant: Tenant::new(row.get::<_, &str>("tenant")).map_err(wrong)?,
        key: SignalKey::new(row.get::<_, &str>("key")).map_err(wrong)?,
        name: StepName::new(row.get::<_, &str>("name")).map_err(wrong)?,
    })
}

/// Locks mailboxes, and answers those in which a signal waits.
pub(super) async fn signalled(
    tx: &Tx<'_>,
    mailboxes: &BTreeSet<Mailbox>,
    now: Timestamp,
) -> Result<HashSet<Mailbox>, Fault> {
    if mailboxes.is_empty() {
        return Ok(HashSet::new());
    }
    let (tenants, keys, names) = columns(mailboxes);
    let (lock, at): (Params<'_>, _) = (&[&tenants, &keys], At(now));
    let look: Params<'_> = &[&tenants, &keys, &names, &at];
    let [_, rows] =
        tx.query_all([(&sql::LOCK_MAILBOXES, lock), (&sql::SIGNALLED_KEYS, look)]).await?;
    rows.iter().map(mailbox_of).collect()
}

/// Signals to keys that functions ask for, and those that they take.
#[derive(Default)]
pub(super) struct Mail {
    pub(super) boxes: HashMap<Mailbox, Waiting>,
    /// By their mailboxes and places.
    pub(super) taken: Vec<(Mailbox, i64)>,
}

impl Mail {
    /// Locks the mailboxes that functions of locked runs ask, and loads what they ask for.
    pub(super) async fn load(
        tx: &Tx<'_>,
        work: &Work,
        takes: &[TakeSignal],
    ) -> Result<Self, Fault> {
        let asked = takes.iter().filter_map(|take| Some((work.mailbox(take)?, take.which)));
        let Questions { places, most, looks, told } = Questions::of(asked);
        let mut mail = Mail::default();
        if places.is_empty() {
            return Ok(mail);
        }
        let (tenants, keys, names) = columns(&places);
        let (told_tenants, told_keys, _) = columns(told.iter().map(|(place, _)| &places[*place]));
        let told: Vec<Uuid> = told.iter().map(|(_, id)| *id).collect();
        let (lock, at): (Params<'_>, _) = (&[&tenants, &keys], At(work.now));
        let look: Params<'_> =
            &[&tenants, &keys, &names, &most, &looks, &told_tenants, &told_keys, &told, &at];
        let all = [(&sql::LOCK_MAILBOXES, lock), (&sql::WAITING_KEY_SIGNALS, look)];
        let [_, rows] = tx.query_all(all).await?;
        for row in &rows {
            let mailbox = mailbox_of(row)?;
            let key = mailbox.key.clone();
            let wrong = |error| StoreError::Corrupt(format!("a signal to key {key:?} {error}"));
            mail.boxes.entry(mailbox).or_default().read(row).map_err(wrong)?;
        }
        Ok(mail)
    }

    /// Writes down which were taken.
    pub(super) fn write<'a>(&'a self, writes: &mut Writes<'a>) {
        if !self.taken.is_empty() {
            let (tenants, keys, names) = columns(self.taken.iter().map(|(mailbox, _)| mailbox));
            let places: Vec<i64> = self.taken.iter().map(|(_, place)| *place).collect();
            writes.push(&sql::TAKE_KEY_SIGNALS, params![tenants, keys, names, places]);
        }
    }
}

impl PostgresStore {
    /// Lets functions of locked runs go on that were told of a signal.
    pub(super) async fn resume_told(
        &self,
        tx: &Tx<'_>,
        work: &mut Work,
        runs: &BTreeSet<RunId>,
    ) -> Result<(), Fault> {
        if runs.is_empty() {
            return Ok(());
        }
        let runs: Vec<Uuid> = runs.iter().map(|run| *run.as_uuid()).collect();
        let rows = tx.query(&sql::TOLD_WAITERS, &[&runs]).await?;
        self.resume_waiting(tx, work, rows.iter().map(task_id).collect()).await
    }
}

impl Work {
    /// Where the signal comes that a function of a locked run asks for, if it is one to a key.
    pub(super) fn mailbox(&self, take: &TakeSignal) -> Option<Mailbox> {
        let tenant = self.runs.get(&take.held.task.run)?.tenant.clone();
        Some(Mailbox { tenant, key: take.key.clone()?, name: take.name.clone() })
    }

    /// Where the signal comes that an open call of a locked run waits for, if it is one to a key.
    pub(super) fn awaited(&self, run: RunId, step: &StepRecord) -> Option<Mailbox> {
        let tenant = self.runs.get(&run)?.tenant.clone();
        let key = step.key.clone().filter(|_| step.number().is_none())?;
        Some(Mailbox { tenant, key, name: step.name.clone() })
    }

    /// Writes who waits for signals to keys, and who does not any more.
    pub(super) fn write_key_waiters<'a>(&'a self, writes: &mut Writes<'a>) {
        // One that was parked by this verb has not been noted, and one that was never claimed
        // waited in a lane.
        let was_noted = |task: &&TaskId| {
            self.task(**task)
                .is_some_and(|task| task.stored_in == Some(Narrow::Timers) && task.fence > Fence(0))
        };
        let unparked: BTreeSet<&TaskId> = self.moves.unparked.iter().filter(was_noted).collect();
        if !unparked.is_empty() {
            let (runs, indices) = pairs(unparked);
            writes.push(&sql::LOCK_KEY_WAITERS, params![runs.clone(), indices.clone()]);
            writes.push(&sql::DELETE_KEY_WAITERS, params![runs, indices]);
        }
        let waits = |(task, ..): &&(TaskId, Call, Mailbox)| {
            self.task(*task).is_some_and(|task| task.state == TaskState::Waiting)
        };
        let waiting: Vec<_> = self.moves.key_waits.iter().filter(waits).collect();
        if !waiting.is_empty() {
            let (runs, indices) = pairs(waiting.iter().map(|(task, ..)| task));
            let calls: Vec<i32> = waiting.iter().map(|(_, call, _)| call.0.cast_signed()).collect();
            let (tenants, keys, names) = columns(waiting.iter().map(|(.., mailbox)| mailbox));
            let params = params![runs, indices, calls, tenants, keys, names];
            writes.push(&sql::INSERT_KEY_WAITERS, params);
        }
    }
}
