//! Which lanes a run has to do with: the keys that its input has in the limits of its definition.

use crate::definition::Definition;
use crate::id::TaskIndex;
use crate::name::{LaneKey, LimitName, NameError, Tenant};
use crate::payload::Payload;
use crate::ring::Bucket;

use super::limit::{Bound, LaneLimit, LimitScope, WhenFull};

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

impl LaneLimit {
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

    /// The limits of a task, each with its lane; none where it does not apply.
    fn lanes<'a>(
        &'a self,
        definition: &'a Definition,
        tenant: &'a Tenant,
        task: TaskIndex,
    ) -> impl Iterator<Item = (&'a LaneLimit, LaneId)> {
        let places = self.0.iter().skip(definition.limits_before(task));
        definition.task(task).limits.iter().zip(places).filter_map(|(limit, place)| {
            let key = match place {
                Place::None => return None,
                Place::All => None,
                Place::Key(key) => Some(key.clone()),
            };
            let tenant = match limit.scope {
                LimitScope::Tenant => Some(tenant.clone()),
                LimitScope::Everyone => None,
            };
            Some((limit, LaneId { limit: limit.name.clone(), tenant, key }))
        })
    }

    /// The bucket that says who claims a task, if its key has an owner.
    pub fn bucket(
        &self,
        definition: &Definition,
        tenant: &Tenant,
        task: TaskIndex,
    ) -> Option<Bucket> {
        if !definition.task(task).is_owned() {
            return None;
        }
        let mut lanes = self.lanes(definition, tenant, task);
        lanes.find(|(limit, _)| limit.is_owned).map(|(_, lane)| Bucket::of(&lane))
    }

    /// The slots that a task needs, in the order in which it takes them.
    pub fn needs(&self, definition: &Definition, tenant: &Tenant, task: TaskIndex) -> Vec<Need> {
        let need = |(limit, lane): (&LaneLimit, LaneId)| Need {
            lane,
            bound: limit.bound,
            when_full: limit.when_full,
        };
        let mut needs: Vec<Need> = self.lanes(definition, tenant, task).map(need).collect();
        // The same order for all, whatever becomes of them where it is full: no two who wait have
        // what the other waits for.
        needs.sort_by_key(|need| need.bound.rank());
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
    /// What it bounds.
    pub bound: Bound,
    /// What becomes of the task if it is full.
    pub when_full: WhenFull,
}

impl Need {
    /// Whether its place is kept from one attempt to the next.
    pub(super) fn is_for_all_attempts(&self) -> bool {
        match self.bound {
            Bound::Slots(_) | Bound::Debounce(_) => true,
            Bound::Rate(_) | Bound::Breaker(_) => false,
        }
    }
}
