//! Who led what, as the store saw it (G16).

use std::collections::{BTreeMap, BTreeSet};

use windlass::Timestamp;
use windlass::store::{Candidacy, Duty, LeaderRecord, Mandate, Standing};
use windlass_core::{CandidateId, Term};

use crate::world::World;

const PROMISE: &str = "G16 one leader per duty and term";

/// The terms that were, and what was done in them.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    /// The newest state of each duty.
    newest: BTreeMap<Duty, LeaderRecord>,
    /// Who led in each term.
    holders: BTreeMap<(Duty, Term), CandidateId>,
    /// Terms that were given up.
    given_up: BTreeSet<(Duty, Term)>,
    /// When leaders of each duty were heard of.
    heard: BTreeMap<Duty, Vec<Timestamp>>,
}

impl Terms {
    /// When leaders of a duty were heard of.
    pub(crate) fn heard(&self, duty: Duty) -> &[Timestamp] {
        self.heard.get(&duty).map_or(&[], Vec::as_slice)
    }

    /// Takes note of who leads a duty; answers what is wrong with that.
    fn learn(&mut self, leader: &LeaderRecord, at: Timestamp) -> Option<String> {
        let LeaderRecord { duty, term, .. } = leader;
        let before = self.newest.insert(*duty, leader.clone());
        let holder = leader.holder.as_ref()?.candidate;
        let first = *self.holders.entry((*duty, *term)).or_insert(holder);
        if first != holder {
            return Some(format!("term {term} of {duty} is {first}'s and {holder}'s"));
        }
        let before = before?;
        if *term < before.term {
            return Some(format!("{duty} went from term {} back to term {term}", before.term));
        }
        if *term > before.term && !before.is_free(at) {
            let text = format!("term {term} of {duty} began at {at}, before {before:?} was over");
            return Some(text);
        }
        None
    }

    /// Why a sweep in a term should have been refused.
    fn refuse(&self, mandate: &Mandate) -> Option<String> {
        let Mandate { duty, candidate, term } = mandate;
        let newest = self.newest.get(duty).map_or(Term(0), |leader| leader.term);
        let holder = self.holders.get(&(*duty, newest));
        let is_over = self.given_up.contains(&(*duty, newest));
        let is_leader = *term == newest && holder == Some(candidate) && !is_over;
        let text = || format!("{candidate} did {duty} in term {term}, now it is {newest}");
        (!is_leader).then(text)
    }
}

impl World {
    /// A candidacy was answered.
    pub(crate) fn note_lead(&self, candidacy: &Candidacy, standing: &Standing) {
        let at = standing.outlook.at;
        for leader in &standing.leaders {
            let wrong = {
                let terms = &mut self.truth.lock().terms;
                if leader.is_led_by(candidacy.candidate) {
                    terms.heard.entry(leader.duty).or_default().push(at);
                }
                terms.learn(leader, at)
            };
            if let Some(text) = wrong {
                self.violate(PROMISE, text);
            }
        }
        self.trace(|| {
            let led = |leader: &&LeaderRecord| leader.is_led_by(candidacy.candidate);
            let led = standing.leaders.iter().filter(led);
            let led: Vec<_> = led.map(|leader| (leader.duty.word(), leader.term.0)).collect();
            format!("{} leads {led:?}", candidacy.name)
        });
    }

    /// A candidate gave up what it led.
    pub(crate) fn note_resign(&self, candidate: CandidateId) {
        let terms = &mut self.truth.lock().terms;
        for leader in terms.newest.values_mut().filter(|leader| leader.is_led_by(candidate)) {
            terms.given_up.insert((leader.duty, leader.term));
            if let Some(holder) = &mut leader.holder {
                holder.is_given_up = true;
            }
        }
    }

    /// A sweep was accepted.
    pub(crate) fn note_mandate(&self, mandate: &Mandate) {
        let wrong = self.truth.lock().terms.refuse(mandate);
        if let Some(text) = wrong {
            self.violate("G16 a leader that was replaced changes nothing", text);
        }
    }
}
