//! What undoes the steps of functions, and how often it did.

use std::sync::Arc;

use windlass::TaskError;
use windlass_core::TaskId;

use crate::dice::{Dice, mix, mix_large};
use crate::scenario::undoable_name;
use crate::world::World;

impl World {
    /// Undoes the step of a function with this label: it takes a while, and may fail.
    pub(crate) async fn undo(self: Arc<World>, task: TaskId, label: u64) -> Result<(), TaskError> {
        let count = {
            let undos = &mut self.truth.lock().undos;
            let count = undos.entry((task, undoable_name(label))).or_default();
            *count += 1;
            *count
        };
        self.trace(|| format!("task {task}: step {label:x} is undone, try {count}"));
        let number = mix_large(mix(self.scenario.seed, 7), task.run.as_uuid().as_u128());
        let mut dice = Dice::from_number(mix(mix(number, label), count));
        let longest = dice.pick(&[0, 20, 300, 3_000]);
        tokio::time::sleep(dice.millis(0..=longest)).await;
        match dice.chance(self.scenario.temper.fails) {
            true => Err(TaskError::new("simulated: it cannot be undone now")),
            false => Ok(()),
        }
    }
}
