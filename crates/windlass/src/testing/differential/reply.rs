//! What a store answers, in a form that can be compared, counted and told.

use std::fmt;
use std::time::Duration;

use windlass_core::{RunId, StepRecord, Timestamp};

use super::compare::Difference;
use super::verb::short_task;
use crate::store::{
    Answer, Born, Claimed, DeadLetterPage, Discarded, HeartbeatAnswer, Lost, Redriven, Refusal,
    RunPage, Standing, Started, StoreError, Sweep, Taken, TaskRecord, ToUndo,
};

/// How late a sweep comes again at most that has left something.
const AGAIN_MAX: Duration = Duration::from_millis(50);

type Told<T> = Result<T, StoreError>;

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Now(Told<Timestamp>),
    Done(Told<()>),
    Started(Told<Vec<Told<Started>>>),
    Round(Told<u32>),
    Claimed(Told<Vec<Leased>>),
    Answers(Told<Vec<Answer>>),
    Heartbeat(Told<HeartbeatAnswer>),
    Swept(Told<Sweep>),
    Standing(Told<Standing>),
    Page(Told<RunPage>),
    Tasks(Told<Vec<TaskRecord>>),
    Task(Told<Option<TaskRecord>>),
    Taken(Told<Vec<Taken>>),
    Born(Told<Vec<Born>>),
    Steps(Told<Vec<StepRecord>>),
    Redriven(Told<Redriven>),
    Discarded(Told<Discarded>),
    Dead(Told<DeadLetterPage>),
    Undoing(Told<RunId>),
    ToUndo(Told<Result<Vec<Leased>, Refusal>>),
}

/// A claimed task that is equal to another if all its facts are.
#[derive(Clone)]
pub(super) struct Leased(pub(super) Claimed);

impl PartialEq for Leased {
    fn eq(&self, other: &Self) -> bool {
        let Claimed {
            task,
            fence,
            attempt,
            workflow,
            version,
            spec,
            tenant,
            input,
            parents,
            failures,
            checkpoint,
            last_failure,
            steps,
            at: _,
            round,
            afresh,
            trace,
        } = &self.0;
        let other = &other.0;
        *task == other.task
            && *fence == other.fence
            && *attempt == other.attempt
            && *workflow == other.workflow
            && *version == other.version
            && *spec == other.spec
            && *tenant == other.tenant
            && *input == other.input
            && *parents == other.parents
            && *failures == other.failures
            && *checkpoint == other.checkpoint
            && *last_failure == other.last_failure
            && *steps == other.steps
            && *round == other.round
            && *afresh == other.afresh
            && *trace == other.trace
    }
}

impl fmt::Debug for Leased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Reply {
    pub(super) fn claimed(claimed: Told<Vec<Claimed>>) -> Self {
        Reply::Claimed(claimed.map(|tasks| tasks.into_iter().map(Leased).collect()))
    }

    pub(super) fn to_undo(told: Told<ToUndo>) -> Self {
        let leased = |tasks: Vec<Claimed>| tasks.into_iter().map(Leased).collect();
        Reply::ToUndo(told.map(|told| told.map(leased)))
    }

    /// Where two answers differ, or where either is one that no store may give.
    pub(super) fn difference(&self, other: &Reply) -> Option<Difference> {
        if let (Reply::Claimed(Ok(left)), Reply::Claimed(Ok(right))) = (self, other) {
            return Difference::of_lists("task of the claim", left, right);
        }
        if let (Reply::Answers(Ok(left)), Reply::Answers(Ok(right))) = (self, other) {
            return Difference::of_lists("answer", left, right);
        }
        if let (Reply::Started(Ok(left)), Reply::Started(Ok(right))) = (self, other)
            && left != right
        {
            return Difference::of_lists("start", left, right);
        }
        if let (Reply::Page(Ok(left)), Reply::Page(Ok(right))) = (self, other)
            && left.runs != right.runs
        {
            return Difference::of_lists("run of the page", &left.runs, &right.runs);
        }
        let mut other = other.clone();
        other.forget_kept_deadlines(self);
        let is_fault = self.is_fault() || other.is_fault();
        (is_fault || *self != other).then(|| Difference::new("the answer", self, &other))
    }

    /// When a deadline that was kept is forgotten is a store's own matter: one that keeps it until
    /// it has passed may say that something is due earlier.
    fn forget_kept_deadlines(&mut self, known: &Reply) {
        let is_earlier = |this: Option<Timestamp>, known: Option<Timestamp>| {
            this.is_some_and(|this| known.is_none_or(|known| this < known))
        };
        if let (Reply::Swept(Ok(this)), Reply::Swept(Ok(known))) = (&mut *self, known) {
            // So is how soon a sweep comes again that has left something.
            let is_soon = |sweep: &Sweep, pause: Duration| {
                sweep.next_at.is_some_and(|next| next <= sweep.at + pause)
            };
            let is_alike = is_soon(this, AGAIN_MAX) && is_soon(known, Duration::ZERO);
            if is_alike || is_earlier(this.next_at, known.next_at) {
                this.next_at = known.next_at;
            }
        }
        if let (Reply::Standing(Ok(this)), Reply::Standing(Ok(known))) = (self, known)
            && is_earlier(this.outlook.promote_at, known.outlook.promote_at)
        {
            this.outlook.promote_at = known.outlook.promote_at;
        }
    }

    /// Whether it is an answer that nothing here gives a reason for.
    fn is_fault(&self) -> bool {
        if let Reply::Started(Ok(starts)) = self {
            return starts.iter().any(|start| is_fault(start.as_ref().err()));
        }
        is_fault(self.error())
    }

    /// The refusal of the whole request.
    fn error(&self) -> Option<&StoreError> {
        match self {
            Reply::Now(answer) => answer.as_ref().err(),
            Reply::Done(answer) => answer.as_ref().err(),
            Reply::Started(answer) => answer.as_ref().err(),
            Reply::Round(answer) => answer.as_ref().err(),
            Reply::Claimed(answer) => answer.as_ref().err(),
            Reply::Answers(answer) => answer.as_ref().err(),
            Reply::Heartbeat(answer) => answer.as_ref().err(),
            Reply::Swept(answer) => answer.as_ref().err(),
            Reply::Standing(answer) => answer.as_ref().err(),
            Reply::Page(answer) => answer.as_ref().err(),
            Reply::Tasks(answer) => answer.as_ref().err(),
            Reply::Task(answer) => answer.as_ref().err(),
            Reply::Taken(answer) => answer.as_ref().err(),
            Reply::Born(answer) => answer.as_ref().err(),
            Reply::Steps(answer) => answer.as_ref().err(),
            Reply::Redriven(answer) => answer.as_ref().err(),
            Reply::Discarded(answer) => answer.as_ref().err(),
            Reply::Dead(answer) => answer.as_ref().err(),
            Reply::Undoing(answer) => answer.as_ref().err(),
            Reply::ToUndo(answer) => answer.as_ref().err(),
        }
    }

    /// Whether the worker was told that its lease is lost.
    pub(super) fn is_lease_lost(&self) -> bool {
        matches!(self.error(), Some(StoreError::LeaseLost(_)))
    }

    /// The runs that the answer names.
    pub(super) fn runs(&self) -> Vec<RunId> {
        match self {
            Reply::Started(Ok(starts)) => starts.iter().flatten().map(|start| start.run).collect(),
            Reply::Claimed(Ok(tasks)) => tasks.iter().map(|leased| leased.0.task.run).collect(),
            Reply::Redriven(Ok(redriven)) => redriven.runs.clone(),
            Reply::Discarded(Ok(discarded)) => discarded.runs.clone(),
            Reply::Undoing(Ok(by)) => vec![*by],
            Reply::Now(_)
            | Reply::Done(_)
            | Reply::Started(Err(_))
            | Reply::Redriven(Err(_))
            | Reply::Discarded(Err(_))
            | Reply::Dead(_)
            | Reply::Round(_)
            | Reply::Claimed(Err(_))
            | Reply::Answers(_)
            | Reply::Heartbeat(_)
            | Reply::Swept(_)
            | Reply::Standing(_)
            | Reply::Page(_)
            | Reply::Tasks(_)
            | Reply::Task(_)
            | Reply::Taken(_)
            | Reply::Born(_)
            | Reply::Undoing(Err(_))
            | Reply::ToUndo(_)
            | Reply::Steps(_) => Vec::new(),
        }
    }

    /// What kinds of answers it holds, as words to count.
    pub(super) fn kinds(&self) -> Vec<&'static str> {
        if let Some(error) = self.error() {
            return vec![error_word(error)];
        }
        match self {
            Reply::Started(Ok(starts)) => starts.iter().map(start_word).collect(),
            Reply::Claimed(Ok(tasks)) if tasks.is_empty() => vec!["nothing"],
            Reply::Claimed(Ok(tasks)) => tasks.iter().flat_map(claim_words).collect(),
            Reply::Answers(Ok(answers)) => answers.iter().map(answer_word).collect(),
            Reply::Heartbeat(Ok(answer)) if answer.lost.is_empty() => vec!["all kept"],
            Reply::Heartbeat(Ok(answer)) => answer.lost.iter().map(lost_word).collect(),
            Reply::Swept(Ok(sweep)) => vec![sweep_word(sweep)],
            Reply::Page(Ok(page)) if page.runs.is_empty() => vec!["empty"],
            Reply::Page(Ok(page)) if page.next.is_some() => vec!["page with more behind it"],
            Reply::Task(Ok(None)) => vec!["none"],
            Reply::Tasks(Ok(tasks)) if tasks.is_empty() => vec!["empty"],
            Reply::Steps(Ok(steps)) if steps.is_empty() => vec!["empty"],
            Reply::Taken(Ok(answers)) => answers.iter().map(taken_word).collect(),
            Reply::Born(Ok(answers)) => answers.iter().map(born_word).collect(),
            Reply::Redriven(Ok(redriven)) => redriven_words(redriven),
            Reply::Discarded(Ok(discarded)) if discarded.letters == 0 => vec!["nothing"],
            Reply::Dead(Ok(page)) if page.letters.is_empty() => vec!["empty"],
            Reply::ToUndo(Ok(Err(refusal))) => vec![answer_word(&Answer::Refused(*refusal))],
            Reply::Now(_)
            | Reply::Done(_)
            | Reply::Started(Err(_))
            | Reply::Redriven(Err(_))
            | Reply::Discarded(_)
            | Reply::Dead(_)
            | Reply::Round(_)
            | Reply::Claimed(Err(_))
            | Reply::Answers(Err(_))
            | Reply::Heartbeat(Err(_))
            | Reply::Swept(Err(_))
            | Reply::Standing(_)
            | Reply::Page(_)
            | Reply::Tasks(_)
            | Reply::Task(_)
            | Reply::Taken(Err(_))
            | Reply::Born(Err(_))
            | Reply::Undoing(_)
            | Reply::ToUndo(_)
            | Reply::Steps(_) => vec!["done"],
        }
    }
}

fn is_fault(error: Option<&StoreError>) -> bool {
    match error {
        Some(StoreError::Unavailable(_) | StoreError::Corrupt(_)) => true,
        Some(
            StoreError::NotFound(_)
            | StoreError::Unreadable(_)
            | StoreError::Conflict(_)
            | StoreError::LeaseLost(_)
            | StoreError::Forbidden(_)
            | StoreError::Unauthenticated(_)
            | StoreError::Limited { .. }
            | StoreError::TermOver { .. },
        )
        | None => false,
    }
}

/// What each kind of conflict says, and what it is counted as.
const CONFLICTS: [(&str, &str); 10] = [
    ("another shape", "conflict of shapes"),
    ("idempotency key", "conflict of a key"),
    ("run id", "conflict of an id"),
    ("metadata", "conflict with a limit of metadata"),
    ("over the limit", "conflict with a limit of batches"),
    ("not in round", "conflict of rounds"),
    ("only a failed run", "conflict of a retry with a state"),
    ("can be signalled", "conflict of a signal with a state"),
    ("is there already", "conflict of an action"),
    ("only a running run", "conflict of a cancel with a state"),
];

fn error_word(error: &StoreError) -> &'static str {
    match error {
        StoreError::NotFound(_) => "not found",
        StoreError::Conflict(text) => {
            let known = CONFLICTS.iter().find(|(part, _)| text.contains(part));
            known.map_or("conflict", |(_, word)| word)
        }
        StoreError::LeaseLost(_) => "lease lost",
        StoreError::TermOver { .. } => "term over",
        StoreError::Forbidden(_) => "forbidden",
        StoreError::Unauthenticated(_) => "unauthenticated",
        StoreError::Limited { .. } => "limited",
        StoreError::Unreadable(_) => "unreadable",
        StoreError::Unavailable(_) => "unavailable",
        StoreError::Corrupt(_) => "corrupt",
    }
}

fn start_word(start: &Told<Started>) -> &'static str {
    match start {
        Ok(Started { is_new: true, .. }) => "new",
        Ok(Started { is_new: false, .. }) => "there already",
        Err(error) => error_word(error),
    }
}

fn claim_words(leased: &Leased) -> Vec<&'static str> {
    let claimed = &leased.0;
    let mut words = vec!["task"];
    words.extend((claimed.attempt > 1).then_some("further attempt"));
    words.extend((!claimed.parents.is_empty()).then_some("task with parents"));
    words.extend((!claimed.failures.is_empty()).then_some("task with failures"));
    words.extend((!claimed.steps.is_empty()).then_some("task with steps"));
    words.extend(claimed.checkpoint.is_some().then_some("task with a checkpoint"));
    words
}

fn answer_word(answer: &Answer) -> &'static str {
    match answer {
        Answer::Accepted => "accepted",
        Answer::AcceptedAlready => "accepted already",
        Answer::Refused(Refusal::LeaseLost) => "refused, lease lost",
        Answer::Refused(Refusal::RunCancelled) => "refused, run cancelled",
        Answer::Refused(Refusal::UnknownTask) => "refused, unknown task",
        Answer::Refused(Refusal::Invalid) => "refused, invalid",
    }
}

fn taken_word(taken: &Taken) -> &'static str {
    match taken {
        Ok(Some(_)) => "taken",
        Ok(None) => "none there",
        Err(refusal) => answer_word(&Answer::Refused(*refusal)),
    }
}

fn born_word(born: &Born) -> &'static str {
    match born {
        Born::Started(Started { is_new: true, .. }) => "new",
        Born::Started(Started { is_new: false, .. }) => "there already",
        Born::Refused(refusal) => answer_word(&Answer::Refused(*refusal)),
        Born::Failed(error) => error_word(error),
    }
}

fn redriven_words(redriven: &Redriven) -> Vec<&'static str> {
    let mut words = Vec::new();
    words.extend(redriven.runs.iter().map(|_| "run"));
    words.extend(redriven.refused.iter().map(|_| "refused"));
    words.extend(redriven.next.map(|_| "more to do"));
    if words.is_empty() { vec!["nothing"] } else { words }
}

fn lost_word(lost: &Lost) -> &'static str {
    match lost.refusal {
        Refusal::LeaseLost => "lost, lease lost",
        Refusal::RunCancelled => "lost, run cancelled",
        Refusal::UnknownTask => "lost, unknown task",
        Refusal::Invalid => "lost, invalid",
    }
}

fn sweep_word(sweep: &Sweep) -> &'static str {
    match (sweep.moved, sweep.next_at) {
        (0, _) => "nothing moved",
        (_, Some(next)) if next <= sweep.at => "moved, more to do",
        (_, _) => "moved",
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Claimed(Ok(tasks)) => {
                let show = |leased: &Leased| {
                    let claimed = &leased.0;
                    let task = short_task(claimed.task, claimed.fence);
                    format!("{task} {} of {}", claimed.spec.name, claimed.tenant)
                };
                write!(f, "[{}]", tasks.iter().map(show).collect::<Vec<_>>().join(", "))
            }
            Reply::Page(Ok(page)) => write!(f, "{} runs", page.runs.len()),
            Reply::Tasks(Ok(tasks)) => write!(f, "{} tasks", tasks.len()),
            Reply::Now(answer) => write!(f, "{answer:?}"),
            Reply::Done(answer) => write!(f, "{answer:?}"),
            Reply::Started(answer) => write!(f, "{answer:?}"),
            Reply::Round(answer) => write!(f, "{answer:?}"),
            Reply::Claimed(answer) => write!(f, "{answer:?}"),
            Reply::Answers(answer) => write!(f, "{answer:?}"),
            Reply::Heartbeat(answer) => write!(f, "{answer:?}"),
            Reply::Swept(answer) => write!(f, "{answer:?}"),
            Reply::Standing(answer) => write!(f, "{answer:?}"),
            Reply::Page(answer) => write!(f, "{answer:?}"),
            Reply::Tasks(answer) => write!(f, "{answer:?}"),
            Reply::Task(answer) => write!(f, "{answer:?}"),
            Reply::Taken(answer) => write!(f, "{answer:?}"),
            Reply::Born(answer) => write!(f, "{answer:?}"),
            Reply::Steps(answer) => write!(f, "{answer:?}"),
            Reply::Redriven(answer) => write!(f, "{answer:?}"),
            Reply::Discarded(answer) => write!(f, "{answer:?}"),
            Reply::Dead(Ok(page)) => write!(f, "{} dead letters", page.letters.len()),
            Reply::Dead(answer) => write!(f, "{answer:?}"),
            Reply::Undoing(answer) => write!(f, "{answer:?}"),
            Reply::ToUndo(answer) => write!(f, "{answer:?}"),
        }
    }
}
