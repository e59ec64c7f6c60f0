//! Who is at work in which lane, by what handlers themselves note.

use std::sync::Arc;

use windlass::store::{Held, PAGE_MAX, Store};
use windlass_core::TaskState;

use crate::world::World;

/// A handler at work in lanes, until it is dropped.
pub(crate) struct InLanes {
    world: Arc<World>,
    held: Held,
}

impl Drop for InLanes {
    fn drop(&mut self) {
        self.world.truth.lock().in_lanes.retain(|(_, held)| *held != self.held);
    }
}

impl World {
    /// A handler is at work in these lanes, which have so many slots. Beside it are at most as
    /// many as fit, not counting those who have lost their task and do not know it.
    pub(crate) async fn enter_lanes(
        self: &Arc<World>,
        held: Held,
        lanes: Vec<(String, usize)>,
    ) -> Option<InLanes> {
        if lanes.is_empty() || !self.holds(held).await {
            return None;
        }
        for (lane, slots) in lanes {
            let others: Vec<Held> = {
                let in_lanes = &mut self.truth.lock().in_lanes;
                let others = in_lanes.iter().filter(|(other, _)| *other == lane);
                let others = others.map(|(_, held)| *held).collect();
                in_lanes.push((lane.clone(), held));
                others
            };
            let mut at_work = vec![held.task];
            for other in others {
                if !at_work.contains(&other.task) && self.holds(other).await {
                    at_work.push(other.task);
                }
            }
            if at_work.len() > slots {
                let text = format!("handlers of {at_work:?} are at work at once in {lane}");
                self.violate("G5 limits hold", text);
            }
        }
        Some(InLanes { world: Arc::clone(self), held })
    }

    /// Whether a task is running under this fence.
    async fn holds(&self, held: Held) -> bool {
        let tasks = self.store.list_tasks(held.task.run, None, PAGE_MAX).await.unwrap_or_default();
        let task = tasks.iter().find(|task| task.index == held.task.index);
        task.is_some_and(|task| task.state == TaskState::Running && task.fence == held.fence)
    }
}
