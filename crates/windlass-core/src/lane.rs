//! Limits: how many tasks with the same key are under way at once.
//!
//! A task definition has any number of limits. Each has lanes, one for every key that inputs
//! have, and a lane has slots. A task takes a slot in its lane of each limit before it becomes
//! ready, one limit after the other in the order of their names, those that it does not wait for
//! first, and keeps them until it has ended: through retries, backoffs, sleeps and waits. That
//! all who wait take them in one order is why no two tasks can wait for each other. Who finds a lane full waits in it, first come, first
//! served; with one slot that makes a lane a stream whose messages are taken in order.
//!
//! This module does not know what is stored where, nor who is woken.

mod queue;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::definition::Definition;
use crate::id::{TaskId, TaskIndex};
use crate::name::{LaneKey, LimitName, NAME_BYTES_MAX, NameError, Tenant};
use crate::payload::Payload;
use crate::time::Timestamp;

pub use queue::{Lane, Waiter};

/// The most limits of a task.
pub const LIMITS_MAX: usize = 8;

/// The most slots of a lane.
pub const SLOTS_MAX: u32 = 100_000;

/// What becomes of a task whose lane is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// It waits until it has a slot.
    #[default]
    Wait,
    /// It is skipped.
    Skip,
}

impl WhenFull {
    fn is_default(&self) -> bool {
        *self == WhenFull::default()
    }
}

/// Whose tasks share the lanes of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// Each tenant has lanes of its own.
    #[default]
    Tenant,
    /// All tenants share the lanes.
    Everyone,
}

impl LimitScope {
    fn is_default(&self) -> bool {
        *self == LimitScope::default()
    }
}

/// A limit as someone wrote it down.
///
/// ```
/// use windlass_core::{Limit, WhenFull};
///
/// // One at a time and in order for each value of the input's field `customer`.
/// let stream = Limit::per("customer", 1);
/// // Twenty at once for each provider, whoever's and in whatever workflow.
/// let provider = Limit::per("payment.provider", 20).named("provider").across_tenants();
/// // One at once of all; who comes meanwhile is skipped.
/// let only = Limit::of(1).when_full(WhenFull::Skip);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Its name, if it is to be shared with other tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The field of the input that is the key, behind dots if it lies deeper; one lane for
    /// all if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// How many tasks have a slot at once.
    pub slots: u32,
    /// What becomes of a task that finds no slot.
    #[serde(default, skip_serializing_if = "WhenFull::is_default")]
    pub when_full: WhenFull,
    /// Whose tasks share the lanes.
    #[serde(default, skip_serializing_if = "LimitScope::is_default")]
    pub scope: LimitScope,
}

impl Limit {
    /// At most so many at once for each value of a field of the input, such as `customer` or
    /// `order.customer.id`. What has no such field, or something there that is neither text,
    /// number nor truth, is not limited.
    pub fn per(field: impl Into<String>, slots: u32) -> Self {
        Limit { field: Some(field.into()), ..Limit::of(slots) }
    }

    /// At most so many at once of all.
    pub fn of(slots: u32) -> Self {
        let (when_full, scope) = (WhenFull::default(), LimitScope::default());
        Limit { name: None, field: None, slots, when_full, scope }
    }

    /// Gives it a name: all tasks with a limit of this name, of whatever workflow, share its
    /// lanes. Without a name, only tasks of the same name and workflow do.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Lets all tenants share the lanes; otherwise each has lanes of its own.
    #[must_use]
    pub fn across_tenants(mut self) -> Self {
        self.scope = LimitScope::Everyone;
        self
    }

    /// What becomes of a task that finds its lane full; it waits if nothing is said.
    #[must_use]
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    pub(crate) fn check(&self, workflow: &str, task: &str) -> Result<LaneLimit, LimitError> {
        let Limit { field, slots, when_full, scope, .. } = self.clone();
        let name = self.name.clone().unwrap_or_else(|| match &field {
            Some(field) => format!("{workflow}/{task}/{field}"),
            None => format!("{workflow}/{task}"),
        });
        if !(1..=SLOTS_MAX).contains(&slots) {
            return Err(LimitError::Slots { name, slots });
        }
        if let Some(field) = &field
            && (field.len() > NAME_BYTES_MAX || field.split('.').any(str::is_empty))
        {
            return Err(LimitError::Field { name, field: field.clone() });
        }
        let name = LimitName::new(name).map_err(LimitError::Name)?;
        Ok(LaneLimit { name, field, slots, when_full, scope })
    }
}

/// A limit that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// Its name cannot be used.
    #[error(transparent)]
    Name(NameError),
    /// It has no slots, or too many.
    #[error("limit {name:?} has {slots} slots, not within 1 to {SLOTS_MAX}")]
    Slots {
        /// The limit.
        name: String,
        /// How many it was given.
        slots: u32,
    },
    /// No field can be called so.
    #[error(
        "limit {name:?} is by {field:?}, which is no field: names between dots, \
         {NAME_BYTES_MAX} bytes at most"
    )]
    Field {
        /// The limit.
        name: String,
        /// What was given.
        field: String,
    },
}

/// A limit of a task that passed every check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneLimit {
    /// Its name: limits of one name share their lanes.
    pub name: LimitName,
    /// The field of the input that is the key.
    pub field: Option<String>,
    /// How many tasks have a slot at once.
    pub slots: u32,
    /// What becomes of a task that finds no slot.
    pub when_full: WhenFull,
    /// Whose tasks share the lanes.
    pub scope: LimitScope,
}

impl LaneLimit {
    pub(crate) fn to_draft(&self) -> Limit {
        let LaneLimit { name, field, slots, when_full, scope } = self.clone();
        Limit { name: Some(name.as_str().to_owned()), field, slots, when_full, scope }
    }

    /// Whether an input has a lane here, and the key of it.
    fn place(&self, input: &serde_json::Value) -> Result<Place, LaneError> {
        let Some(field) = &self.field else { return Ok(Place::All) };
        let value = field.split('.').try_fold(input, |value, name| value.get(name));
        let text = match value {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(serde_json::Value::Number(number)) => number.to_string(),
            Some(serde_json::Value::Bool(truth)) => truth.to_string(),
            Some(
                serde_json::Value::Null
                | serde_json::Value::Array(_)
                | serde_json::Value::Object(_),
            )
            | None => return Ok(Place::None),
        };
        let wrong = |error| LaneError { limit: self.name.clone(), field: field.clone(), error };
        LaneKey::new(text).map(Place::Key).map_err(wrong)
    }
}

/// An input with a value that cannot be the key of a lane.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limit {limit:?}: the input's field {field:?}: {error}")]
pub struct LaneError {
    /// The limit.
    pub limit: LimitName,
    /// The field that its keys come from.
    pub field: String,
    /// What is wrong with the value.
    pub error: NameError,
}

/// Where a run stands in one of its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// It is not limited.
    None,
    /// In the only lane.
    All,
    /// In the lane of this key.
    Key(LaneKey),
}

impl Place {
    fn text(&self) -> Option<&str> {
        match self {
            Place::None => None,
            Place::All => Some(""),
            Place::Key(key) => Some(key.as_str()),
        }
    }
}

/// The keys that a run has in all limits of its definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneKeys(Vec<Place>);

impl LaneKeys {
    /// The keys of an input.
    ///
    /// # Errors
    ///
    /// If a value cannot be a key: it is empty, too long or has control characters.
    pub fn of(definition: &Definition, input: &Payload) -> Result<LaneKeys, LaneError> {
        if !definition.has_limits() {
            return Ok(LaneKeys::default());
        }
        // A payload is JSON that can be read.
        let input = input.decode::<serde_json::Value>().unwrap_or_default();
        let limits = definition.tasks().iter().flat_map(|task| &task.limits);
        limits.map(|limit| limit.place(&input)).collect::<Result<_, _>>().map(LaneKeys)
    }

    /// Whether no lane limits the run.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|place| *place == Place::None)
    }

    /// As texts to be stored: none where the run is not limited, empty for the only lane.
    pub fn to_texts(&self) -> Vec<Option<&str>> {
        self.0.iter().map(Place::text).collect()
    }

    /// Read back.
    pub fn from_texts<'a>(
        texts: impl IntoIterator<Item = Option<&'a str>>,
    ) -> Result<LaneKeys, NameError> {
        let place = |text| match text {
            None => Ok(Place::None),
            Some("") => Ok(Place::All),
            Some(key) => LaneKey::new(key).map(Place::Key),
        };
        texts.into_iter().map(place).collect::<Result<_, _>>().map(LaneKeys)
    }

    /// The slots that a task needs, in the order in which it takes them.
    pub fn needs(&self, definition: &Definition, tenant: &Tenant, task: TaskIndex) -> Vec<Need> {
        let places = self.0.iter().skip(definition.limits_before(task));
        let need = |(limit, place): (&LaneLimit, &Place)| {
            let key = match place {
                Place::None => return None,
                Place::All => None,
                Place::Key(key) => Some(key.clone()),
            };
            let tenant = match limit.scope {
                LimitScope::Tenant => Some(tenant.clone()),
                LimitScope::Everyone => None,
            };
            let lane = LaneId { limit: limit.name.clone(), tenant, key };
            Some(Need { lane, slots: limit.slots, when_full: limit.when_full })
        };
        let limits = definition.task(task).limits.iter();
        let mut needs: Vec<Need> = limits.zip(places).filter_map(need).collect();
        // Whoever is skipped waits for nothing, and is so before it waits for anything else.
        needs.sort_by_key(|need| need.when_full != WhenFull::Skip);
        needs
    }
}

/// A lane of a limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId {
    /// The limit.
    pub limit: LimitName,
    /// Whose lane it is; none if all share it.
    pub tenant: Option<Tenant>,
    /// Its key; none if the limit has one lane for all.
    pub key: Option<LaneKey>,
}

/// A slot that a task needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The lane.
    pub lane: LaneId,
    /// How many slots it has.
    pub slots: u32,
    /// What becomes of the task if it is full.
    pub when_full: WhenFull,
}

/// A task that has slots, or waits for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entrant {
    /// The slots that it needs, in the order in which it takes them.
    pub needs: Vec<Need>,
    /// The places that it has taken in the first of their lanes. All but the last have a slot.
    pub places: Vec<u64>,
}

/// What follows for a task that needs slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has all of them.
    Ready,
    /// It waits in this lane.
    Wait(LaneId),
    /// It is not to run, since this lane is full.
    Skip(LaneId),
}

/// The lanes that a verb of a store has to do with, and who is in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// The lanes.
    pub lanes: BTreeMap<LaneId, Lane>,
    /// Who has slots in them, or waits.
    pub entrants: BTreeMap<TaskId, Entrant>,
    /// Whether a lane that is not here is one in which nobody is; otherwise it is unknown.
    pub is_whole: bool,
    /// The lanes in which a slot may have become free since they were last looked at.
    open: BTreeSet<LaneId>,
    /// The lanes that have changed since it was last asked.
    changed: BTreeSet<LaneId>,
    /// The places that were taken and given up since.
    moves: Vec<PlaceMove>,
}

/// Who may go on, and what must be known before more can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Tasks that have all that they need.
    pub ready: Vec<TaskId>,
    /// Who would have a slot, and where, if all the lanes that it needs were known.
    pub stuck: Vec<(LaneId, TaskId)>,
    /// Lanes in which who waits first is not known.
    pub unsettled: Vec<LaneId>,
}

/// A place in a lane that was taken or given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceMove {
    /// Whose place it is.
    pub task: TaskId,
    /// The lane.
    pub lane: LaneId,
    /// The place, and how many slots the lane has, if it was taken.
    pub taken: Option<(u64, u32)>,
}

impl Lanes {
    /// All lanes there are.
    pub fn whole() -> Self {
        Lanes { is_whole: true, ..Lanes::default() }
    }

    /// A task wants its slots.
    pub fn request(&mut self, task: TaskId, needs: Vec<Need>, now: Timestamp) -> Verdict {
        self.entrants.entry(task).or_insert(Entrant { needs, places: Vec::new() });
        self.go_on(task, now)
    }

    /// A task that has the slots it asked for so far asks for the next.
    fn go_on(&mut self, task: TaskId, now: Timestamp) -> Verdict {
        while let Some(entrant) = self.entrants.get_mut(&task)
            && let Some(need) = entrant.needs.get(entrant.places.len())
        {
            let lane = self.lanes.entry(need.lane.clone()).or_default();
            if need.when_full == WhenFull::Skip && !lane.has_room(need.slots) {
                let id = need.lane.clone();
                self.vacate(task);
                return Verdict::Skip(id);
            }
            let (seq, has_slot) = lane.enter(task, need.slots, now);
            let (id, taken) = (need.lane.clone(), Some((seq, need.slots)));
            entrant.places.push(seq);
            self.changed.insert(id.clone());
            self.moves.push(PlaceMove { task, lane: id.clone(), taken });
            if !has_slot {
                return Verdict::Wait(id);
            }
        }
        Verdict::Ready
    }

    /// A task gives up all its places.
    pub fn vacate(&mut self, task: TaskId) {
        let Some(entrant) = self.entrants.remove(&task) else { return };
        for (need, seq) in entrant.needs.into_iter().zip(entrant.places) {
            if let Some(lane) = self.lanes.get_mut(&need.lane) {
                lane.leave(seq);
            }
            self.open.insert(need.lane.clone());
            self.changed.insert(need.lane.clone());
            self.moves.push(PlaceMove { task, lane: need.lane, taken: None });
        }
    }

    /// A lane that was looked up.
    pub fn insert(&mut self, id: LaneId, lane: Lane) {
        self.open.insert(id.clone());
        self.lanes.insert(id, lane);
    }

    /// More is known of a lane than when it was last asked who may go on.
    pub fn reopen(&mut self, id: LaneId) {
        self.open.insert(id);
    }

    /// Gives the slots that are free to those who wait.
    pub fn admit(&mut self, now: Timestamp) -> Admitted {
        let mut admitted = Admitted::default();
        while let Some(id) = self.open.pop_first() {
            while let Some(task) = self.lanes.get(&id).and_then(Lane::next) {
                if !self.missing(task).is_empty() {
                    admitted.stuck.push((id.clone(), task));
                    break;
                }
                if let Some(lane) = self.lanes.get_mut(&id) {
                    lane.admit();
                }
                self.changed.insert(id.clone());
                // Who waited is not skipped any more: such lanes come first.
                if self.go_on(task, now) == Verdict::Ready {
                    admitted.ready.push(task);
                }
            }
            if self.lanes.get(&id).is_some_and(Lane::is_unsettled) {
                admitted.unsettled.push(id);
            }
        }
        admitted
    }

    /// The lanes that a task needs and that are not known.
    pub fn missing(&self, task: TaskId) -> BTreeSet<LaneId> {
        let Some(entrant) = self.entrants.get(&task).filter(|_| !self.is_whole) else {
            return BTreeSet::new();
        };
        let lanes = entrant.needs.iter().map(|need| &need.lane);
        lanes.filter(|lane| !self.lanes.contains_key(lane)).cloned().collect()
    }

    /// What has changed since it was last asked: lanes, and places in them.
    pub fn take_changes(&mut self) -> (BTreeSet<LaneId>, Vec<PlaceMove>) {
        let changed = std::mem::take(&mut self.changed);
        if self.is_whole {
            for id in &changed {
                if self.lanes.get(id).is_some_and(Lane::is_idle) {
                    self.lanes.remove(id);
                }
            }
        }
        (changed, std::mem::take(&mut self.moves))
    }
}
