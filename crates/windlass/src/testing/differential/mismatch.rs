//! What a person needs to find out why two stores disagree.

use std::collections::VecDeque;
use std::fmt;

use super::compare::Difference;
use super::reply::Reply;
use super::verb::Verb;

/// Two stores that were asked the same disagree.
///
/// Its text names the seed and the step, shows what differs on both sides, and tells
/// the last steps. The same seed finds it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The seed of the story.
    pub seed: u64,
    /// The number of the step after which it was found; step 0 asks for the time.
    pub step: usize,
    /// What differs, and how.
    difference: Difference,
    /// The last steps with the left store's answers, the newest at the end.
    told: Vec<String>,
}

impl Mismatch {
    pub(super) fn new(
        seed: u64,
        step: usize,
        difference: Difference,
        told: &VecDeque<(Verb, Reply)>,
    ) -> Self {
        let first = (step + 1).saturating_sub(told.len());
        let told = told.iter().zip(first..);
        let told = told.map(|((verb, reply), step)| format!("{step:>6} {verb}\n       → {reply}"));
        Mismatch { seed, step, difference, told: told.collect() }
    }

    /// What differs: an answer, or a run, its tasks or its history.
    pub fn what(&self) -> &str {
        &self.difference.what
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { seed, step, difference, told } = self;
        writeln!(f, "the stores disagree after step {step} of seed {seed}: {}", difference.what)?;
        writeln!(f, "left:  {}\nright: {}", difference.left, difference.right)?;
        writeln!(f, "the last steps, with the left store's answers:")?;
        told.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl std::error::Error for Mismatch {}
