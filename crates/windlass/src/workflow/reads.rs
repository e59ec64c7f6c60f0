//! What a task reads of its parents, by type.
//!
//! A read is declared with the handles of the parents, and that is at once the
//! edge of the DAG, the type of the handler's argument and the plan by which the
//! worker finds the value. There is no other way to an output, so a handler cannot
//! ask for one that may not be there.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use windlass_core::{Failure, Payload, TaskState};

use super::handler::payload_failure;
use super::{BuilderId, Task};
use crate::store::{Claimed, ParentEnd};

/// The state of a [`TaskBuilder`](super::TaskBuilder) whose handler is called with
/// the context alone.
#[derive(Clone, Copy, Debug)]
pub struct ReadsNothing;

/// The state of a [`TaskBuilder`](super::TaskBuilder) whose handler is called with
/// the context and what it reads of the parents.
#[derive(Clone, Copy, Debug)]
pub struct Reads<V>(pub(super) V);

/// The output of a parent that may not have succeeded, from [`Task::optional`].
///
/// The handler gets `None` if the parent failed, was skipped or was cancelled.
pub struct Optional<O>(Task<O>);

impl<O> Task<O> {
    /// The output as something that may be missing when the reader runs. A task
    /// with any trigger but [`AllSucceeded`](windlass_core::Trigger::AllSucceeded)
    /// can read its parents in this way only.
    pub fn optional(&self) -> Optional<O> {
        Optional(self.clone())
    }
}

impl<O> Clone for Optional<O> {
    fn clone(&self) -> Self {
        Optional(self.0.clone())
    }
}

impl<O> fmt::Debug for Optional<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Optional").field(&self.0).finish()
    }
}

/// What a task can read, and what its handler gets for it.
///
/// | read | the handler gets |
/// |---|---|
/// | `&task` where it is a `Task<A>` | `A` |
/// | `task.optional()` or `&task.optional()` | `Option<A>` |
/// | `&tasks` where it is a `Vec<Task<A>>`, or a slice of it | `Vec<A>` |
/// | the same with [`Optional<A>`](Optional) | `Vec<Option<A>>` |
/// | a tuple of one to eight of these | the tuple of what each gives |
///
/// The trait cannot be implemented elsewhere.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read",
    label = "not a handle, or handles, of tasks",
    note = "pass `&task`, `task.optional()`, `&vec_of_tasks`, or a tuple of up to eight of these"
)]
pub trait Readable {
    /// What the handler gets.
    type Values: 'static;
    /// How the worker finds it.
    #[doc(hidden)]
    type Plan: Plan<Values = Self::Values>;

    /// Adds the edges.
    #[doc(hidden)]
    fn declare(self, edges: &mut Edges) -> Self::Plan;
}

/// How a worker finds what a handler reads.
pub trait Plan: Send + Sync + 'static {
    /// What the handler gets.
    type Values;

    /// Finds it among the parents' ends.
    fn take(&self, claimed: &Claimed) -> Result<Self::Values, Failure>;
}

/// The edges to a task, as its builder collects them.
#[derive(Debug)]
pub struct Edges {
    builder: BuilderId,
    pub(super) parents: Vec<String>,
    /// The first parent that must have succeeded for the handler to be called.
    pub(super) required: Option<Arc<str>>,
    /// The first parent of another builder.
    pub(super) foreign: Option<Arc<str>>,
}

impl Edges {
    pub(super) fn new(builder: BuilderId) -> Self {
        Edges { builder, parents: Vec::new(), required: None, foreign: None }
    }

    pub(super) fn add<O>(&mut self, parent: &Task<O>) {
        if parent.builder != self.builder {
            self.foreign.get_or_insert_with(|| Arc::clone(&parent.name));
            return;
        }
        self.parents.push(parent.name().to_owned());
    }
}

impl<O: DeserializeOwned + 'static> Readable for &Task<O> {
    type Values = O;
    type Plan = Task<O>;

    fn declare(self, edges: &mut Edges) -> Task<O> {
        edges.add(self);
        edges.required.get_or_insert_with(|| Arc::clone(&self.name));
        self.clone()
    }
}

impl<O: DeserializeOwned + 'static> Plan for Task<O> {
    type Values = O;

    fn take(&self, claimed: &Claimed) -> Result<O, Failure> {
        match parent_end(self, claimed) {
            Some(end) if end.state == TaskState::Succeeded => decode(self, end, claimed),
            Some(_) | None => Err(payload_failure(read_of(self, claimed), "is missing")),
        }
    }
}

impl<O: DeserializeOwned + 'static> Readable for Optional<O> {
    type Values = Option<O>;
    type Plan = Optional<O>;

    fn declare(self, edges: &mut Edges) -> Optional<O> {
        edges.add(&self.0);
        self
    }
}

impl<O: DeserializeOwned + 'static> Readable for &Optional<O> {
    type Values = Option<O>;
    type Plan = Optional<O>;

    fn declare(self, edges: &mut Edges) -> Optional<O> {
        self.clone().declare(edges)
    }
}

impl<O: DeserializeOwned + 'static> Plan for Optional<O> {
    type Values = Option<O>;

    fn take(&self, claimed: &Claimed) -> Result<Option<O>, Failure> {
        match parent_end(&self.0, claimed) {
            Some(end) if end.state == TaskState::Succeeded => {
                decode(&self.0, end, claimed).map(Some)
            }
            Some(_) => Ok(None),
            None => Err(payload_failure(read_of(&self.0, claimed), "is missing")),
        }
    }
}

impl<'a, R> Readable for &'a [R]
where
    &'a R: Readable,
{
    type Values = Vec<<&'a R as Readable>::Values>;
    type Plan = Vec<<&'a R as Readable>::Plan>;

    fn declare(self, edges: &mut Edges) -> Self::Plan {
        self.iter().map(|read| read.declare(edges)).collect()
    }
}

impl<'a, R> Readable for &'a Vec<R>
where
    &'a R: Readable,
{
    type Values = Vec<<&'a R as Readable>::Values>;
    type Plan = Vec<<&'a R as Readable>::Plan>;

    fn declare(self, edges: &mut Edges) -> Self::Plan {
        self.as_slice().declare(edges)
    }
}

impl<P: Plan> Plan for Vec<P> {
    type Values = Vec<P::Values>;

    fn take(&self, claimed: &Claimed) -> Result<Self::Values, Failure> {
        self.iter().map(|plan| plan.take(claimed)).collect()
    }
}

macro_rules! readable_tuple {
    ($($name:ident $place:tt),+) => {
        impl<$($name: Readable),+> Readable for ($($name,)+) {
            type Values = ($($name::Values,)+);
            type Plan = ($($name::Plan,)+);

            fn declare(self, edges: &mut Edges) -> Self::Plan {
                ($(self.$place.declare(edges),)+)
            }
        }

        impl<$($name: Plan),+> Plan for ($($name,)+) {
            type Values = ($($name::Values,)+);

            fn take(&self, claimed: &Claimed) -> Result<Self::Values, Failure> {
                Ok(($(self.$place.take(claimed)?,)+))
            }
        }
    };
}

readable_tuple!(A 0);
readable_tuple!(A 0, B 1);
readable_tuple!(A 0, B 1, C 2);
readable_tuple!(A 0, B 1, C 2, D 3);
readable_tuple!(A 0, B 1, C 2, D 3, E 4);
readable_tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
readable_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
readable_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

fn parent_end<'a, O>(parent: &Task<O>, claimed: &'a Claimed) -> Option<&'a ParentEnd> {
    let at = claimed.parents.binary_search_by_key(&parent.index, |end| end.index).ok()?;
    Some(&claimed.parents[at])
}

fn decode<O: DeserializeOwned>(
    parent: &Task<O>,
    end: &ParentEnd,
    claimed: &Claimed,
) -> Result<O, Failure> {
    // A sleep that is over has no output; it reads as `()`, which is `null`.
    let decoded = match &end.output {
        Some(output) => output.decode(),
        None => Payload::default().decode(),
    };
    decoded.map_err(|error| payload_failure(read_of(parent, claimed), error))
}

fn read_of<O>(parent: &Task<O>, claimed: &Claimed) -> String {
    format!("output of task {:?}, read by task {:?},", parent.name(), claimed.spec.name)
}
