//! What durable functions remember, and the signals they wait for.
//!
//! Steps are recorded under a lock of the lease alone, in one statement for all functions of a
//! worker: this is what a function waits for between its steps.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{
    Call, Failure, Payload, PayloadError, RunId, RunState, SignalId, SignalKey, StepChange,
    StepKind, StepName, StepRecord, StepResult, StepState, StepWrite, TaskId, Timestamp,
};

use super::PostgresStore;
use super::fault::Fault;
use super::keys::Mail;
use super::pool::{Params, Tx};
use super::statements as sql;
use super::time::At;
use super::work::{Work, pairs, task_id};
use super::writes::{Writes, params};
use crate::store::memory::steps::too_many_signals;
use crate::store::{
    Answer, Held, NewSignal, PAGE_MAX, Recording, Refusal, SIGNALS_MAX, Signalled, StoreError,
    TakeSignal, Taken, Which, wrong_state,
};

/// What is known of the calls of some tasks.
pub(super) type Steps = HashMap<TaskId, BTreeMap<Call, StepRecord>>;

impl PostgresStore {
    pub(super) async fn record_once(&self, recordings: &[Recording]) -> Result<Vec<Answer>, Fault> {
        let is_open = |step: &StepWrite| matches!(step.change, StepChange::Open { .. });
        let has_open = recordings.iter().any(|one| one.steps.iter().any(is_open));
        let mut connection = self.pool.get().await?;
        let now = match has_open {
            true => self.now_of(&connection.query(&sql::CLOCK, &[]).await?)?,
            // Nothing that has a result waits for a time.
            false => Timestamp::from_micros(0),
        };
        let held: BTreeSet<Held> = recordings.iter().map(|one| one.held).collect();
        let place: BTreeMap<Held, i64> = held.iter().copied().zip(1..).collect();
        let (runs, indices) = pairs(held.iter().map(|held| &held.task));
        let fences: Vec<i64> = held.iter().map(|held| held.fence.0.cast_signed()).collect();
        let mut places = Vec::new();
        let mut columns = Columns::default();
        // What makes no sense is judged alone, lest it take the place of another's in the columns.
        let is_sound = |recording: &Recording| {
            recording.steps.iter().all(|step| StepRecord::after(None, step, now).is_some())
        };
        // A call that is written about twice is written once, and then once more.
        let mut seen = BTreeSet::new();
        let is_first = |recording: &Recording| {
            let calls = recording.steps.iter().map(|step| (recording.held, step.call));
            // All are seen, also those behind one that was before.
            let seen_before = calls.filter(|call| !seen.insert(*call)).count();
            seen_before == 0 && is_sound(recording)
        };
        let is_first: Vec<bool> = recordings.iter().map(is_first).collect();
        for (recording, _) in recordings.iter().zip(&is_first).filter(|(_, is_first)| **is_first) {
            for step in &recording.steps {
                places.push(place[&recording.held]);
                let record = StepRecord::after(None, step, now);
                record.iter().try_for_each(|record| columns.push(record))?;
            }
        }
        let Columns {
            calls,
            kinds,
            names,
            numbers,
            failures,
            dues,
            values,
            reasons,
            children,
            keys,
        } = &columns;
        let params: Params<'_> = &[
            &runs, &indices, &fences, &places, calls, kinds, names, numbers, failures, dues,
            values, reasons, children, keys,
        ];
        let rows = connection.query(&sql::RECORD_STEPS, params).await?;
        let known: HashMap<i64, bool> =
            rows.iter().map(|row| (row.get("n"), row.get("is_clashing"))).collect();
        drop(connection);
        let mut answers = Vec::with_capacity(recordings.len());
        for (recording, is_first) in recordings.iter().zip(is_first) {
            answers.push(match known.get(&place[&recording.held]) {
                Some(false) if is_first => Answer::Accepted,
                Some(_) => self.record_again(recording, now).await?,
                None => Answer::Refused(self.refusal(recording.held).await?),
            });
        }
        Ok(answers)
    }

    /// Records calls of which some have been recorded: before an answer was lost, or otherwise.
    async fn record_again(&self, recording: &Recording, now: Timestamp) -> Result<Answer, Fault> {
        let Recording { held, steps } = recording;
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let mut work = self.lock_runs(&tx, [held.task.run]).await?;
        work.load(&tx, [held.task]).await?;
        if let Some(refusal) = refusal_of(&work, *held) {
            return Ok(Answer::Refused(refusal));
        }
        let known = load_steps(&tx, [&held.task]).await?;
        let Some(records) = merged(known.get(&held.task), steps, now) else {
            return Ok(Answer::Refused(Refusal::Invalid));
        };
        let mut writes = Writes::default();
        write_steps(&mut writes, records.iter().map(|record| (held.task, record)))?;
        tx.commit(writes).await?;
        Ok(Answer::Accepted)
    }

    /// Why a write with this fence was refused.
    pub(super) async fn refusal(&self, held: Held) -> Result<Refusal, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let mut work = self.lock_runs(&tx, [held.task.run]).await?;
        work.load(&tx, [held.task]).await?;
        Ok(refusal_of(&work, held).unwrap_or(Refusal::LeaseLost))
    }

    pub(super) async fn take_signals_once(
        &self,
        takes: &[TakeSignal],
    ) -> Result<Vec<Taken>, Fault> {
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let mut work = self.lock_runs(&tx, takes.iter().map(|take| take.held.task.run)).await?;
        work.load(&tx, takes.iter().map(|take| take.held.task)).await?;
        let mut steps = steps_at(&tx, takes).await?;
        let mut signals = load_signals(&tx, takes).await?;
        let mut mail = Mail::load(&tx, &work, takes).await?;
        let mut answers = Vec::with_capacity(takes.len());
        let mut records = Vec::new();
        let (mut runs, mut taken) = (Vec::new(), Vec::new());
        for take in takes {
            let TakeSignal { held, call, name, key, which } = take;
            if let Some(refusal) = refusal_of(&work, *held) {
                answers.push(Err(refusal));
                continue;
            }
            let known = steps.entry(held.task).or_default();
            if let Some(StepRecord { state: done @ StepState::Done { .. }, .. }) = known.get(call) {
                answers.push(which.taken_before(done));
                continue;
            }
            let mailbox = work.mailbox(take);
            let waiting = match &mailbox {
                Some(mailbox) => mail.boxes.entry(mailbox.clone()).or_default(),
                None => signals.entry((held.task.run, name.clone())).or_default(),
            };
            let (newest, number) = match which {
                Which::UpTo(newest, number) => (newest, *number),
                Which::Newest => {
                    answers.push(Ok(waiting.newest.map(|(_, id)| Signalled::Newest(id))));
                    continue;
                }
            };
            let Some((seq, value)) = waiting.first_up_to(*newest) else {
                answers.push(Ok(None));
                continue;
            };
            let result = StepResult::Value(value.clone());
            let change = StepChange::Done { number, result };
            let (name, kind, key) = (name.clone(), StepKind::Signal, key.clone());
            let write = StepWrite { call: *call, name, kind, key, change };
            let Some(record) = StepRecord::after(known.get(call), &write, work.now) else {
                answers.push(Err(Refusal::Invalid));
                continue;
            };
            known.insert(*call, record.clone());
            records.push((held.task, record));
            waiting.take_first();
            if let Some(mailbox) = mailbox {
                mail.taken.push((mailbox, seq));
            } else {
                runs.push(*held.task.run.as_uuid());
                taken.push(seq);
            }
            answers.push(Ok(Some(Signalled::Value(value))));
        }
        if !records.is_empty() {
            let mut writes = Writes::default();
            write_steps(&mut writes, records.iter().map(|(task, record)| (*task, record)))?;
            if !taken.is_empty() {
                writes.push(&sql::TAKE_SIGNALS, params![runs, taken]);
            }
            mail.write(&mut writes);
            tx.commit(writes).await?;
        }
        Ok(answers)
    }

    pub(super) async fn signal_once(&self, signal: &NewSignal) -> Result<(), Fault> {
        signal.check(self.payload_limit).map_err(StoreError::Conflict)?;
        let NewSignal { id, run, name, value } = signal;
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let mut work = self.lock_runs(&tx, [*run]).await?;
        let Some(state) = work.runs.get(run).map(|run| run.state) else {
            return Err(StoreError::NotFound(format!("run {run}")).into());
        };
        let most = i64::try_from(match state {
            RunState::Running => SIGNALS_MAX,
            // One that was sent before it ended is sent.
            RunState::Succeeded | RunState::Failed | RunState::Cancelled => 0,
        });
        let most = most.unwrap_or(i64::MAX);
        let at = At(work.now);
        let params: Params<'_> =
            &[run.as_uuid(), id.as_uuid(), &name.as_str(), &value.as_str(), &at, &most];
        let waiters: Params<'_> = &[run.as_uuid(), &name.as_str()];
        let all = [(&sql::SEND_SIGNAL, params), (&sql::SIGNAL_WAITERS, waiters)];
        let [sent, waiters] = tx.query_all(all).await?;
        let told = |column| sent.first().is_some_and(|row| row.get::<_, bool>(column));
        if told("is_known") {
            return Ok(());
        }
        if state != RunState::Running {
            return Err(wrong_state(*run, state, "running", "signalled").into());
        }
        if !told("has_room") {
            return Err(too_many_signals(signal).into());
        }
        let waiters: Vec<TaskId> = waiters.iter().map(task_id).collect();
        self.resume_waiting(&tx, &mut work, waiters).await?;
        self.conclude(tx, &mut work).await
    }

    pub(super) async fn list_steps_once(
        &self,
        task: TaskId,
        after: Option<Call>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, Fault> {
        let after = after.map_or(0, |call| call.0.cast_signed());
        let most = i64::try_from(limit.min(PAGE_MAX)).unwrap_or(i64::MAX);
        let index = task.index.0.cast_signed();
        let params: Params<'_> = &[task.run.as_uuid(), &index, &after, &most];
        let rows = self.read(&sql::LIST_STEPS, params).await?;
        let record = |row: &Row| step_of(row).map_err(|error| unreadable(task, &error).into());
        rows.iter().map(record).collect()
    }
}

fn unreadable(task: TaskId, error: &str) -> StoreError {
    StoreError::Corrupt(format!("a step of task {task} {error}"))
}

fn refusal_of(work: &Work, held: Held) -> Option<Refusal> {
    match work.task(held.task) {
        Some(task) => task.refusal(held.fence),
        None => Some(Refusal::UnknownTask),
    }
}

/// What is known of the calls of tasks.
pub(super) async fn load_steps<'a>(
    tx: &Tx<'_>,
    tasks: impl IntoIterator<Item = &'a TaskId>,
) -> Result<Steps, Fault> {
    let (runs, indices) = pairs(tasks);
    if runs.is_empty() {
        return Ok(Steps::new());
    }
    read_steps(&tx.query(&sql::STEPS, &[&runs, &indices]).await?)
}

fn read_steps(rows: &[Row]) -> Result<Steps, Fault> {
    let mut steps = Steps::new();
    for row in rows {
        let task = task_id(row);
        let record = step_of(row).map_err(|error| unreadable(task, &error))?;
        steps.entry(task).or_default().insert(record.call, record);
    }
    Ok(steps)
}

/// What is known of the calls that ask for signals.
async fn steps_at(tx: &Tx<'_>, takes: &[TakeSignal]) -> Result<Steps, Fault> {
    let (runs, indices) = pairs(takes.iter().map(|take| &take.held.task));
    let calls: Vec<i32> = takes.iter().map(|take| take.call.0.cast_signed()).collect();
    read_steps(&tx.query(&sql::STEPS_AT, &[&runs, &indices, &calls]).await?)
}

/// Signals of one name to a run or to a key.
#[derive(Default)]
pub(super) struct Waiting {
    /// Those that may be taken, the oldest first, with their places.
    oldest: VecDeque<(i64, Payload)>,
    /// The newest that waits, with its place, if someone looks for it.
    newest: Option<(i64, SignalId)>,
    /// The places of those that functions were told of.
    told: HashMap<SignalId, i64>,
}

impl Waiting {
    /// The oldest, if it came no later than another.
    fn first_up_to(&self, newest: SignalId) -> Option<(i64, Payload)> {
        let first = self.oldest.front().cloned();
        first.filter(|(seq, _)| self.told.get(&newest).is_some_and(|newest| seq <= newest))
    }

    /// Takes the oldest.
    fn take_first(&mut self) {
        let first = self.oldest.pop_front().map(|(seq, _)| seq);
        // Nobody is left behind the newest.
        self.newest = self.newest.filter(|(seq, _)| Some(*seq) != first);
    }

    /// Takes in a row that tells of one of them: of the oldest, with what it says, or only of its
    /// place.
    pub(super) fn read(&mut self, row: &Row) -> Result<(), PayloadError> {
        let (id, seq) = (SignalId::from_uuid(row.get("id")), row.get::<_, i64>("seq"));
        match (row.get::<_, Option<&str>>("value"), row.get("is_newest")) {
            (Some(value), _) => self.oldest.push_back((seq, Payload::from_json(value)?)),
            (None, true) => self.newest = Some((seq, id)),
            (None, false) => drop(self.told.insert(id, seq)),
        }
        Ok(())
    }
}

/// The questions for signals to some places: which there are, how many are to be taken there,
/// whether someone looks, and of which signals they were told.
pub(super) struct Questions<K> {
    pub(super) places: Vec<K>,
    pub(super) most: Vec<i64>,
    pub(super) looks: Vec<bool>,
    /// By the place among the places.
    pub(super) told: Vec<(usize, Uuid)>,
}

impl<K: Ord + Clone> Questions<K> {
    pub(super) fn of(asked: impl IntoIterator<Item = (K, Which)>) -> Self {
        let mut all: BTreeMap<K, Vec<Which>> = BTreeMap::new();
        for (place, which) in asked {
            all.entry(place).or_default().push(which);
        }
        let (mut most, mut looks, mut told) = (Vec::new(), Vec::new(), Vec::new());
        for (place, which) in all.values().enumerate() {
            let marks = which.iter().filter_map(|which| match which {
                Which::UpTo(id, _) => Some((place, *id.as_uuid())),
                Which::Newest => None,
            });
            let marks: Vec<_> = marks.collect();
            most.push(i64::try_from(marks.len()).unwrap_or(i64::MAX));
            looks.push(which.len() > marks.len());
            told.extend(marks);
        }
        Questions { places: all.into_keys().collect(), most, looks, told }
    }
}

/// The signals to locked runs that functions ask for.
async fn load_signals(
    tx: &Tx<'_>,
    takes: &[TakeSignal],
) -> Result<HashMap<(RunId, StepName), Waiting>, Fault> {
    let own = takes.iter().filter(|take| take.key.is_none());
    let asked = own.map(|take| ((take.held.task.run, take.name.as_str()), take.which));
    let Questions { places, most, looks, told } = Questions::of(asked);
    if places.is_empty() {
        return Ok(HashMap::new());
    }
    let runs: Vec<Uuid> = places.iter().map(|(run, _)| *run.as_uuid()).collect();
    let names: Vec<&str> = places.iter().map(|(_, name)| *name).collect();
    let told_runs: Vec<Uuid> = told.iter().map(|(place, _)| runs[*place]).collect();
    let told: Vec<Uuid> = told.into_iter().map(|(_, id)| id).collect();
    let params: Params<'_> = &[&runs, &names, &most, &looks, &told_runs, &told];
    let mut signals: HashMap<(RunId, StepName), Waiting> = HashMap::new();
    for row in tx.query(&sql::WAITING_SIGNALS, params).await? {
        let run = RunId::from_uuid(row.get("run_id"));
        let wrong = |error: String| StoreError::Corrupt(format!("a signal to run {run} {error}"));
        let name = StepName::new(row.get::<_, &str>("name"));
        let name = name.map_err(|error| wrong(error.to_string()))?;
        let waiting = signals.entry((run, name)).or_default();
        waiting.read(&row).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(signals)
}

/// The records of calls once these are written, `None` if one contradicts what is known.
pub(super) fn merged(
    known: Option<&BTreeMap<Call, StepRecord>>,
    steps: &[StepWrite],
    now: Timestamp,
) -> Option<Vec<StepRecord>> {
    let records = StepRecord::after_all(|call| known?.get(&call), steps, now)?;
    Some(records.into_values().collect())
}

/// One row of steps.
pub(super) fn step_of(row: &Row) -> Result<StepRecord, String> {
    let word: &str = row.get("kind");
    let kind = StepKind::ALL.into_iter().find(|kind| kind.word() == word);
    let name = StepName::new(row.get::<_, &str>("name")).map_err(|error| error.to_string())?;
    let failure = row.get::<_, Option<&str>>("failure").map(serde_json::from_str::<Failure>);
    let failure = failure.transpose().map_err(|error| error.to_string())?;
    let state = match row.get::<_, Option<i32>>("number") {
        Some(number) => {
            let result = match failure {
                Some(failure) => StepResult::Failed(failure),
                None => {
                    let value = row.get::<_, Option<&str>>("value").unwrap_or("null");
                    let value = Payload::from_json(value).map_err(|error| error.to_string())?;
                    StepResult::Value(value)
                }
            };
            StepState::Done { number: number.cast_unsigned(), result }
        }
        None => StepState::Open {
            failures: row.get::<_, i32>("failures").cast_unsigned(),
            failure,
            due: row.get::<_, Option<At>>("due").map(|due| due.0),
            children_max: row.get::<_, Option<i32>>("children_max").map(i32::cast_unsigned),
        },
    };
    let key = row.get::<_, Option<&str>>("key").map(SignalKey::new).transpose();
    Ok(StepRecord {
        call: Call(row.get::<_, i32>("call").cast_unsigned()),
        name,
        kind: kind.ok_or_else(|| format!("has no known kind: {word:?}"))?,
        key: key.map_err(|error| error.to_string())?,
        state,
    })
}

/// The columns of rows of steps.
#[derive(Default)]
struct Columns {
    calls: Vec<i32>,
    kinds: Vec<&'static str>,
    names: Vec<String>,
    numbers: Vec<Option<i32>>,
    failures: Vec<i32>,
    dues: Vec<Option<At>>,
    values: Vec<Option<String>>,
    reasons: Vec<Option<String>>,
    children: Vec<Option<i32>>,
    keys: Vec<Option<String>>,
}

impl Columns {
    fn push(&mut self, record: &StepRecord) -> Result<(), Fault> {
        let (number, failures, due, value, reason) = match &record.state {
            StepState::Open { failures, failure, due, children_max: _ } => {
                (None, *failures, *due, None, failure.as_ref())
            }
            StepState::Done { number, result: StepResult::Value(value) } => {
                (Some(*number), 0, None, Some(value.as_str()), None)
            }
            StepState::Done { number, result: StepResult::Failed(failure) } => {
                (Some(*number), 0, None, None, Some(failure))
            }
        };
        let reason = reason.map(serde_json::to_string).transpose();
        let reason = reason.map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.calls.push(record.call.0.cast_signed());
        self.kinds.push(record.kind.word());
        self.names.push(record.name.to_string());
        self.numbers.push(number.map(u32::cast_signed));
        self.failures.push(failures.cast_signed());
        self.dues.push(due.map(At));
        self.values.push(value.filter(|value| *value != "null").map(str::to_owned));
        self.reasons.push(reason);
        self.children.push(record.children_max().map(u32::cast_signed));
        self.keys.push(record.key.as_ref().map(ToString::to_string));
        Ok(())
    }
}

/// Writes records of tasks whose runs are locked.
fn write_steps<'r>(
    writes: &mut Writes<'_>,
    records: impl IntoIterator<Item = (TaskId, &'r StepRecord)>,
) -> Result<(), Fault> {
    let (mut tasks, mut columns) = (Vec::new(), Columns::default());
    for (task, record) in records {
        tasks.push(task);
        columns.push(record)?;
    }
    if tasks.is_empty() {
        return Ok(());
    }
    let (runs, indices) = pairs(&tasks);
    let Columns { calls, kinds, names, numbers, failures, dues, values, reasons, children, keys } =
        columns;
    let params = params![
        runs, indices, calls, kinds, names, numbers, failures, dues, values, reasons, children,
        keys
    ];
    writes.push(&sql::WRITE_STEPS, params);
    Ok(())
}

impl Work {
    /// Writes what functions remember.
    pub(super) fn write_steps(&self, writes: &mut Writes<'_>) -> Result<(), Fault> {
        if !self.moves.left.is_empty() {
            let (runs, indices) = pairs(self.moves.left.iter().map(|(task, _)| task));
            let calls: Vec<i32> =
                self.moves.left.iter().map(|(_, call)| call.0.cast_signed()).collect();
            writes.push(&sql::LEAVE_STEPS, params![runs, indices, calls]);
        }
        write_steps(writes, self.moves.steps.iter().map(|(task, record)| (*task, record)))
    }
}
