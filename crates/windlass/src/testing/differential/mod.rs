//! Two stores, one random story: they must say and hold the same.
//!
//! [`run`] draws verbs from a seed, gives each to both stores at the same time of
//! their clocks, and compares the answers and then what the stores hold: runs,
//! tasks and histories. The promise is stronger than the
//! [`contract`](super::contract)'s: what a store answers is a function of what it was
//! asked, down to the order of a claim and the words of an error. Only the numbers of
//! events are a store's own; they must grow.
//!
//! The left store is the reference and is read more often: after every step it is
//! asked what happened to each run that has not ended, which tells whose state to
//! compare. Give it the cheaper one. The right store is asked for one run a step (two
//! or three reads), for every run that is at work each [`WHOLE_EVERY`] steps, and for
//! everything at the end.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use windlass::Timestamp;
//! use windlass::clock::VirtualClock;
//! use windlass::store::{MemoryStore, Store};
//! use windlass::testing::contract::Subject;
//! use windlass::testing::differential;
//!
//! struct Memory(Arc<VirtualClock>, Arc<MemoryStore>);
//!
//! #[async_trait::async_trait]
//! impl Subject for Memory {
//!     fn store(&self) -> Arc<dyn Store> {
//!         self.1.clone()
//!     }
//!
//!     async fn advance(&self, by: Duration) {
//!         self.0.advance(by);
//!     }
//! }
//!
//! fn memory() -> Memory {
//!     let clock = Arc::new(VirtualClock::new(Timestamp::from_micros(0)));
//!     Memory(clock.clone(), Arc::new(MemoryStore::with_clock(clock)))
//! }
//!
//! let statistics = differential::run(&memory(), &memory(), 7, 300).await;
//! let statistics = statistics.unwrap_or_else(|mismatch| panic!("{mismatch}"));
//! assert!(statistics.count("finish: accepted") > 0);
//! # }
//! ```
//!
//! The comparison says nothing about verbs that meet each other: one is answered
//! before the next is asked.

mod compare;
mod dice;
mod draw;
mod known;
mod mismatch;
mod reply;
mod statistics;
mod verb;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub use self::mismatch::Mismatch;
pub use self::statistics::Statistics;

use self::compare::{Comparison, Difference};
use self::dice::Dice;
use self::known::Known;
use self::reply::Reply;
use self::verb::Verb;
use super::contract::Subject;
use crate::store::Store;

/// How many steps pass between two comparisons of all that is at work.
pub const WHOLE_EVERY: usize = 200;

/// How many steps pass between two questions why a run does not go on.
const WHY_EVERY: usize = 5;

/// How many steps a [`Mismatch`] tells of.
const STEPS_TOLD: usize = 20;

/// Drives two fresh stores, whose clocks show the same time, through `steps` verbs
/// drawn from `seed`, and compares what they say and hold.
///
/// # Errors
///
/// The first difference, or the first answer that no store may give to a sequence
/// of verbs without faults: [`Unavailable`](crate::store::StoreError::Unavailable) or
/// [`Corrupt`](crate::store::StoreError::Corrupt).
pub async fn run(
    left: &dyn Subject,
    right: &dyn Subject,
    seed: u64,
    steps: usize,
) -> Result<Statistics, Mismatch> {
    let mut story = Story::new(Side::new(left), Side::new(right), seed);
    // Before anything happens, both clocks must show the same time.
    story.step(Verb::Advance(Duration::ZERO)).await?;
    for number in 1..=steps {
        story.number = number;
        let verb = draw::draw(&mut story.dice, &story.known);
        story.step(verb).await?;
    }
    story.end().await
}

/// One of the two stores, and the hand on its clock.
struct Side<'a> {
    subject: &'a dyn Subject,
    store: Arc<dyn Store>,
}

impl<'a> Side<'a> {
    fn new(subject: &'a dyn Subject) -> Self {
        Side { subject, store: subject.store() }
    }
}

/// What was done, and what is known from the answers.
struct Story<'a> {
    left: Side<'a>,
    right: Side<'a>,
    seed: u64,
    dice: Dice,
    /// What is asked besides, which changes nothing of the story.
    side_dice: Dice,
    known: Known,
    comparison: Comparison,
    statistics: Statistics,
    /// The number of the step under way.
    number: usize,
    told: VecDeque<(Verb, Reply)>,
}

impl<'a> Story<'a> {
    fn new(left: Side<'a>, right: Side<'a>, seed: u64) -> Self {
        Story {
            comparison: Comparison::new(left.store.clone(), right.store.clone()),
            left,
            right,
            seed,
            dice: Dice::new(seed),
            side_dice: Dice::new(!seed),
            known: Known::default(),
            statistics: Statistics::default(),
            number: 0,
            told: VecDeque::with_capacity(STEPS_TOLD + 1),
        }
    }

    /// Asks both stores, and compares the answers and then the states.
    async fn step(&mut self, verb: Verb) -> Result<(), Mismatch> {
        let reply = verb.call(&self.left).await;
        let other = verb.call(&self.right).await;
        self.told.push_back((verb.clone(), reply.clone()));
        if self.told.len() > STEPS_TOLD {
            self.told.pop_front();
        }
        let compared = match reply.difference(&other) {
            Some(difference) => Err(difference),
            None => self.go_on(&verb, &reply).await,
        };
        compared.map_err(|difference| self.mismatch(difference))
    }

    /// Learns from an answer that both stores gave, and compares their states.
    async fn go_on(&mut self, verb: &Verb, reply: &Reply) -> Result<(), Difference> {
        self.statistics.count_reply(verb.name(), reply);
        self.known.learn(verb, reply, &mut self.dice);
        let mut named = verb.runs();
        named.extend(reply.runs());
        loop {
            let events = self.comparison.look(&named).await?;
            named.clear();
            for event in events {
                self.statistics.count_event(&event);
                named.extend(self.known.learn_event(&event));
            }
            // What undoes others is heard of by what is undone.
            if named.is_empty() {
                break;
            }
        }
        if self.number.is_multiple_of(WHY_EVERY) {
            let why = self.comparison.compare_why(&mut self.side_dice).await?;
            why.iter().for_each(|why| self.statistics.count_why(why));
        }
        if self.number.is_multiple_of(WHOLE_EVERY) {
            self.comparison.compare_working().await
        } else {
            self.comparison.compare_one(&mut self.dice).await
        }
    }

    async fn end(mut self) -> Result<Statistics, Mismatch> {
        match self.comparison.compare_everything(&mut self.dice).await {
            Ok(()) => Ok(self.statistics),
            Err(difference) => Err(self.mismatch(difference)),
        }
    }

    fn mismatch(&self, difference: Difference) -> Mismatch {
        Mismatch::new(self.seed, self.number, difference, &self.told)
    }
}
