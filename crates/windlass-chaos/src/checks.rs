//! The checks: the database, the answers to the client and the ledger must tell the same story.
//!
//! Nothing here uses the engine's own view of its history; `windlass audit` does that.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tokio_postgres::Client;
use uuid::Uuid;

use crate::client::Answers;
use crate::ledger::{Mark, Note};
use crate::workload::{
    CHILDREN, Ending, Item, LIMITED_TASK, RATE_BURST, RATE_PER_SECOND, Workload, has_no_flight,
};

/// A run as the database shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) workflow: String,
    pub(crate) key: Option<String>,
    pub(crate) state: String,
}

/// A task as the database shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) state: String,
    pub(crate) fence: u64,
    pub(crate) output: Option<String>,
}

/// Everything that is compared.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    pub(crate) answers: BTreeMap<Workload, Answers>,
    pub(crate) runs: HashMap<Uuid, Run>,
    pub(crate) tasks: HashMap<(Uuid, String), Task>,
    /// The number of child runs of each parent.
    pub(crate) children: HashMap<Uuid, usize>,
    /// The nominal times of the schedule in microseconds since 1970, with the number of runs each.
    pub(crate) beats: Vec<(i64, i64)>,
    /// The nominal times between which the schedule was enabled, in the same unit.
    pub(crate) beats_expected: (i64, i64),
    pub(crate) notes: Vec<Note>,
}

/// The interval of the schedule.
pub(crate) const BEAT_US: i64 = 1_000_000;

const RUNS: &str = "select id, workflow, key, state from windlass.runs";

const TASKS: &str = "select t.run_id, d.name, t.state, t.fence, t.output::text
    from windlass.tasks t
    join windlass.runs r on r.id = t.run_id
    join windlass.definition_tasks d on d.definition_id = r.definition_id and d.idx = t.idx";

const CHILDREN_OF: &str = "select run_id, count(*) from windlass.children group by run_id";

const BEATS: &str = "select
        (extract(epoch from (metadata ->> 'windlass.nominal')::timestamptz) * 1000000)::bigint, count(*)
    from windlass.runs where workflow = 'beat' group by 1 order by 1";

impl Evidence {
    /// Reads what the database shows.
    pub(crate) async fn read(&mut self, client: &Client) -> anyhow::Result<()> {
        for row in client.query(RUNS, &[]).await? {
            let run = Run { workflow: row.get(1), key: row.get(2), state: row.get(3) };
            self.runs.insert(row.get(0), run);
        }
        for row in client.query(TASKS, &[]).await? {
            let fence = u64::try_from(row.get::<_, i64>(3))?;
            let task = Task { state: row.get(2), fence, output: row.get(4) };
            self.tasks.insert((row.get(0), row.get(1)), task);
        }
        for row in client.query(CHILDREN_OF, &[]).await? {
            self.children.insert(row.get(0), usize::try_from(row.get::<_, i64>(1))?);
        }
        let beats = client.query(BEATS, &[]).await?;
        self.beats = beats.iter().map(|row| (row.get(0), row.get(1))).collect();
        Ok(())
    }

    /// Returns every contradiction.
    pub(crate) fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (workload, answers) in &self.answers {
            self.check_answers(*workload, answers, &mut found);
            self.check_endings(*workload, answers, &mut found);
            self.check_newest(*workload, answers, &mut found);
            self.check_limit(*workload, answers, &mut found);
        }
        self.check_attempts(&mut found);
        self.check_order(&mut found);
        self.check_rate(&mut found);
        self.check_trips(&mut found);
        self.check_children(&mut found);
        self.check_schedule(&mut found);
        found
    }

    /// Returns how many attempts noted their end although a later attempt of the task had begun:
    /// those of frozen workers, whose writes must be refused.
    pub(crate) fn stale_attempts(&self) -> usize {
        let mut newest = HashMap::new();
        let mut stale = 0;
        for note in &self.notes {
            let newest = newest.entry((note.run, note.task.as_str())).or_insert(note.fence);
            *newest = note.fence.max(*newest);
            stale += usize::from(note.mark == Mark::End && note.fence < *newest);
        }
        stale
    }

    /// G1 and G12: every answered start has its run, and every key one run.
    fn check_answers(&self, workload: Workload, answers: &Answers, found: &mut Vec<String>) {
        let name = workload.name();
        for item in &answers.contradictions {
            found.push(format!("{name} {}: two answers named different runs", item.number));
        }
        let stored = self.runs.values().filter(|run| run.workflow == name && run.key.is_some());
        let stored = stored.count();
        if stored != answers.runs.len() {
            let answered = answers.runs.len();
            found.push(format!("{name}: {answered} runs were answered, {stored} are stored"));
        }
        for (item, id) in &answers.runs {
            let run = self.runs.get(id.as_uuid());
            let key = item.number.to_string();
            if !run.is_some_and(|run| run.workflow == name && run.key.as_deref() == Some(&key)) {
                found.push(format!("{name} {}: run {id} is {run:?}", item.number));
            }
        }
    }

    /// G1 and G8: every run ended as its input demands.
    fn check_endings(&self, workload: Workload, answers: &Answers, found: &mut Vec<String>) {
        for (item, id) in &answers.runs {
            let state = self.runs.get(id.as_uuid()).map(|run| run.state.as_str());
            let task = self.tasks.get(&(*id.as_uuid(), workload.last_task().to_owned()));
            let ended = task.map(|task| (task.state.as_str(), task.output.as_deref()));
            let has = |number: u64| ended == Some(("succeeded", Some(number.to_string().as_str())));
            let is_skipped = ended.is_some_and(|(state, _)| state == "skipped");
            let ending = workload.ending(*item);
            let is_right = match ending {
                Ending::Succeeded(number) => state == Some("succeeded") && has(number),
                Ending::SucceededWithTokens => state == Some("succeeded"),
                Ending::Failed => state == Some("failed"),
                Ending::SucceededOrSkipped(number) => {
                    state == Some("succeeded") && (is_skipped || has(number))
                }
                Ending::SucceededOrCancelled(number) => {
                    state == Some("cancelled") || state == Some("succeeded") && has(number)
                }
            };
            if !is_right {
                let (name, number) = (workload.name(), item.number);
                found.push(format!(
                    "{name} {number}: run {id} is {state:?} with {ended:?}, not {ending:?}"
                ));
            }
            if workload == Workload::Order && ending == Ending::Failed {
                let refund = self.tasks.get(&(*id.as_uuid(), "refund".to_owned()));
                if refund.is_none_or(|refund| refund.state != "succeeded") {
                    found.push(format!("order {}: refund is {refund:?}", item.number));
                }
            }
        }
    }

    /// Where newer runs replace older ones, the newest of each key succeeds.
    fn check_newest(&self, workload: Workload, answers: &Answers, found: &mut Vec<String>) {
        if !matches!(workload.ending(Item { key: 0, number: 0 }), Ending::SucceededOrCancelled(_)) {
            return;
        }
        // Ascending by key, then number: the last one of a key stays.
        let newest: BTreeMap<u64, _> =
            answers.runs.iter().map(|(item, id)| (item.key, id)).collect();
        for (key, id) in newest {
            let state = self.runs.get(id.as_uuid()).map(|run| run.state.as_str());
            if state != Some("succeeded") {
                found.push(format!("{} key {key}: its newest run is {state:?}", workload.name()));
            }
        }
    }

    /// The accepted attempts of a workload in the order of the ledger: item, first line, last line.
    fn accepted(&self, workload: Workload) -> Vec<(Item, usize, usize)> {
        let mut begun = HashMap::new();
        let mut accepted = Vec::new();
        for (line, note) in self.notes.iter().enumerate() {
            if note.workflow != workload.name() || note.task != LIMITED_TASK {
                continue;
            }
            let task = self.tasks.get(&(note.run, note.task.clone()));
            if task.is_none_or(|task| task.fence != note.fence) {
                continue;
            }
            match note.mark {
                Mark::Begin => {
                    begun.insert(note.run, line);
                }
                Mark::End => {
                    if let Some(first) = begun.get(&note.run) {
                        accepted.push((note.item, *first, line));
                    }
                }
                Mark::Step { .. } | Mark::Undo { .. } => {}
            }
        }
        accepted
    }

    /// G5: accepted attempts of one key overlap at most as often as the limit allows. An accepted
    /// attempt held its lease from its first note to its last, so no stale attempt is among them.
    fn check_limit(&self, workload: Workload, answers: &Answers, found: &mut Vec<String>) {
        let Some(slots) = workload.slots() else { return };
        let mut edges = BTreeMap::<u64, Vec<(usize, bool)>>::new();
        for (item, first, last) in self.accepted(workload) {
            let id = answers.runs.get(&item);
            let task = id.and_then(|id| self.tasks.get(&(*id.as_uuid(), LIMITED_TASK.to_owned())));
            if !task.is_some_and(|task| task.state == "succeeded" || task.state == "failed") {
                continue;
            }
            edges.entry(item.key).or_default().extend([(first, true), (last, false)]);
        }
        for (key, mut edges) in edges {
            edges.sort_unstable();
            let (mut running, mut most) = (0_usize, 0);
            for (_, is_begin) in edges {
                running = if is_begin { running + 1 } else { running.saturating_sub(1) };
                most = most.max(running);
            }
            if most > slots {
                found.push(format!("{} key {key}: {most} ran at once", workload.name()));
            }
        }
    }

    /// G3: the accepted attempt of a task that succeeded did run, from its begin to its end.
    fn check_attempts(&self, found: &mut Vec<String>) {
        let noted: BTreeSet<_> = self
            .notes
            .iter()
            .filter(|note| note.mark == Mark::End)
            .map(|note| (note.run, note.task.as_str(), note.fence))
            .collect();
        for ((run, name), task) in &self.tasks {
            let workflow = self.runs.get(run).map(|run| run.workflow.as_str());
            let is_noted = name == LIMITED_TASK || workflow == Some("order") && name != "window";
            if is_noted
                && task.state == "succeeded"
                && !noted.contains(&(*run, name.as_str(), task.fence))
            {
                let fence = task.fence;
                found.push(format!(
                    "{name} of run {run} succeeded, but attempt {fence} never ended"
                ));
            }
        }
    }

    /// G6: with one slot, first attempts begin in the order of the starts.
    fn check_order(&self, found: &mut Vec<String>) {
        for workload in Workload::ALL.into_iter().filter(|it| it.slots() == Some(1)) {
            let (mut seen, mut newest) = (BTreeSet::new(), BTreeMap::new());
            let notes = self.notes.iter().filter(|note| note.workflow == workload.name());
            for note in notes.filter(|note| note.mark == Mark::Begin) {
                let Item { key, number } = note.item;
                if !seen.insert(number) {
                    continue;
                }
                let before = newest.insert(key, number);
                if before.is_some_and(|before| before > number) {
                    let name = workload.name();
                    found.push(format!("{name} key {key}: {number} began after {before:?}"));
                }
            }
        }
    }

    /// A rate limit lets at most its burst and what has accrued since become ready, so no more can
    /// have begun.
    fn check_rate(&self, found: &mut Vec<String>) {
        let Some(answers) = self.answers.get(&Workload::Rated) else { return };
        let mut begun = BTreeMap::<u64, BTreeMap<u64, u64>>::new();
        let notes = self.notes.iter().filter(|note| note.workflow == Workload::Rated.name());
        for note in notes.filter(|note| note.mark == Mark::Begin) {
            begun.entry(note.item.key).or_default().entry(note.item.number).or_insert(note.at_us);
        }
        for (key, firsts) in begun {
            let mut times: Vec<u64> = firsts.into_values().collect();
            times.sort_unstable();
            for (count, at_us) in (1_u64..).zip(times) {
                let elapsed_us = at_us.saturating_sub(answers.began_at_us);
                // One more for the clock of the database, which is read in microseconds as well.
                let most =
                    u64::from(RATE_BURST) + 1 + elapsed_us * u64::from(RATE_PER_SECOND) / 1_000_000;
                if count > most {
                    found.push(format!("rated key {key}: {count} began, {most} were allowed"));
                    break;
                }
            }
        }
    }

    /// G14 and compensation: a trip returns what its steps returned, and one that fails is undone
    /// in reverse order.
    fn check_trips(&self, found: &mut Vec<String>) {
        let Some(answers) = self.answers.get(&Workload::Trip) else { return };
        let mut steps = HashMap::<(u64, &str), BTreeSet<u64>>::new();
        let mut undone = HashMap::<(u64, &str), (usize, BTreeSet<u64>)>::new();
        for (line, note) in self.notes.iter().enumerate() {
            // Undo runs have a workflow of their own and the input of the trip.
            if !note.workflow.starts_with(Workload::Trip.name()) {
                continue;
            }
            match &note.mark {
                Mark::Step { name, token } => {
                    steps.entry((note.item.number, name)).or_default().insert(*token);
                }
                Mark::Undo { name, token } => {
                    let undone = undone.entry((note.item.number, name));
                    undone.or_insert((line, BTreeSet::new())).1.insert(*token);
                }
                Mark::Begin | Mark::End => {}
            }
        }
        let names = ["car", "hotel", "flight"];
        for (item, id) in &answers.runs {
            let number = item.number;
            let undo = |name| undone.get(&(number, name));
            if has_no_flight(*item) {
                match (undo("hotel"), undo("car")) {
                    (Some((hotel, hotels)), Some((car, cars))) => {
                        let is_noted = |name, tokens: &BTreeSet<u64>| {
                            steps.get(&(number, name)).is_some_and(|it| tokens.is_subset(it))
                        };
                        // A compensation receives the recorded result, whenever it runs.
                        let is_one = hotels.len() == 1 && cars.len() == 1;
                        if !is_one || !is_noted("hotel", hotels) || !is_noted("car", cars) {
                            found.push(format!("trip {number}: undone with {hotels:?}, {cars:?}"));
                        }
                        if hotel > car {
                            found.push(format!("trip {number}: the car was undone first"));
                        }
                    }
                    _ => found.push(format!("trip {number}: failed and was not undone")),
                }
                continue;
            }
            if names.iter().any(|name| undo(name).is_some()) {
                found.push(format!("trip {number}: succeeded and was undone"));
            }
            let task = self.tasks.get(&(*id.as_uuid(), "trip".to_owned()));
            let output = task.and_then(|task| task.output.as_deref()).unwrap_or_default();
            let tokens: Vec<u64> = serde_json::from_str(output).unwrap_or_default();
            let is_noted = tokens.len() == names.len()
                && names.iter().zip(&tokens).all(|(name, token)| {
                    steps.get(&(number, *name)).is_some_and(|noted| noted.contains(token))
                });
            if !is_noted {
                found.push(format!("trip {number}: returned {output:?}, which its steps did not"));
            }
        }
        let undo_runs: Vec<_> =
            self.runs.values().filter(|run| run.workflow == "trip~undo").collect();
        let failed = answers.runs.keys().filter(|item| has_no_flight(**item)).count();
        let succeeded = undo_runs.iter().filter(|run| run.state == "succeeded").count();
        if undo_runs.len() != failed || succeeded != failed {
            let all = undo_runs.len();
            found.push(format!("{failed} trips failed, {succeeded} of {all} undo runs succeeded"));
        }
    }

    /// Every parent started each of its children once.
    fn check_children(&self, found: &mut Vec<String>) {
        let Some(answers) = self.answers.get(&Workload::Report) else { return };
        for (item, id) in &answers.runs {
            let children = self.children.get(id.as_uuid()).copied().unwrap_or_default();
            if children as u64 != CHILDREN {
                found.push(format!("report {}: it has {children} children", item.number));
            }
        }
        let runs = self.runs.values().filter(|run| run.workflow == "count");
        let (all, expected) = (runs.count() as u64, CHILDREN * answers.runs.len() as u64);
        if all != expected {
            found.push(format!("{all} child runs exist, {expected} were started"));
        }
    }

    /// G15: every nominal time has one run.
    fn check_schedule(&self, found: &mut Vec<String>) {
        let (first, last) = self.beats_expected;
        let expected = (first..=last).step_by(usize::try_from(BEAT_US).unwrap_or(1));
        let expected: BTreeMap<i64, i64> = expected.map(|at| (at, 1)).collect();
        let fired: BTreeMap<i64, i64> = self.beats.iter().copied().collect();
        if fired != expected {
            let missing: Vec<_> = expected.keys().filter(|at| !fired.contains_key(at)).collect();
            let extra: Vec<_> =
                fired.iter().filter(|(at, n)| expected.get(at) != Some(n)).collect();
            found.push(format!("schedule: {missing:?} did not fire, {extra:?} is unexpected"));
        }
    }
}
