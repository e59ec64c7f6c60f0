//! Signals to keys, and who waits for them.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{Payload, RunId, SignalId, SignalKey, StepName, TaskId, Tenant, Timestamp};

use super::children::Notice;
use super::state::State;
use crate::planted::{Planted, PlantedBug};
use crate::store::{Mailbox, NewKeySignal, SIGNALS_MAX, StoreError};

/// Signals to keys, and who waits for them.
#[derive(Default)]
pub(super) struct Mailboxes {
    /// The signals to each key, the oldest first.
    signals: BTreeMap<(Tenant, SignalKey), Vec<Letter>>,
    /// When signals are forgotten.
    expiries: BTreeSet<(Timestamp, Tenant, SignalKey, SignalId)>,
    /// The functions that are parked until a signal comes, and whether they were told of one.
    waiters: BTreeMap<Mailbox, BTreeMap<TaskId, bool>>,
    /// What each of them waits for.
    awaited: BTreeMap<TaskId, BTreeSet<Mailbox>>,
}

/// A signal to a key.
struct Letter {
    id: SignalId,
    name: StepName,
    expires_at: Timestamp,
    /// What it says, until it is taken.
    value: Option<Payload>,
}

impl Mailboxes {
    /// The signals of a mailbox that can be taken, the oldest first.
    fn waiting(&self, mailbox: &Mailbox, now: Timestamp) -> impl Iterator<Item = &Letter> {
        let Mailbox { tenant, key, name } = mailbox;
        let all = self.signals.get(&(tenant.clone(), key.clone()));
        let mine = all.into_iter().flatten().filter(move |letter| letter.name == *name);
        mine.filter(move |letter| letter.expires_at > now && letter.value.is_some())
    }

    /// The newest signal of a mailbox, if there is one.
    pub(super) fn newest(&self, mailbox: &Mailbox, now: Timestamp) -> Option<SignalId> {
        self.waiting(mailbox, now).last().map(|letter| letter.id)
    }

    /// What the oldest signal of a mailbox says, if it came no later than another.
    pub(super) fn first(
        &self,
        mailbox: &Mailbox,
        newest: SignalId,
        now: Timestamp,
    ) -> Option<Payload> {
        let all = self.signals.get(&(mailbox.tenant.clone(), mailbox.key.clone()))?;
        let place = |id| all.iter().position(|letter| letter.id == id);
        let first = self.waiting(mailbox, now).next()?;
        let is_in_time = place(first.id) <= place(newest) && place(newest).is_some();
        first.value.clone().filter(|_| is_in_time)
    }

    /// Notes that the oldest signal of a mailbox was taken.
    pub(super) fn take(&mut self, mailbox: &Mailbox, now: Timestamp) {
        let Mailbox { tenant, key, name } = mailbox;
        let all = self.signals.get_mut(&(tenant.clone(), key.clone()));
        let mut mine = all.into_iter().flatten().filter(|letter| letter.name == *name);
        let is_first = |letter: &&mut Letter| letter.expires_at > now && letter.value.is_some();
        if let Some(first) = mine.find(is_first) {
            first.value = None;
        }
    }

    /// A function waits for signals from now on.
    pub(super) fn wait(&mut self, task: TaskId, mailboxes: BTreeSet<Mailbox>) {
        for mailbox in &mailboxes {
            self.waiters.entry(mailbox.clone()).or_default().insert(task, false);
        }
        if !mailboxes.is_empty() {
            self.awaited.insert(task, mailboxes);
        }
    }

    /// A function waits no more.
    pub(super) fn leave(&mut self, task: TaskId) {
        for mailbox in self.awaited.remove(&task).into_iter().flatten() {
            if let Some(waiters) = self.waiters.get_mut(&mailbox) {
                waiters.remove(&task);
                if waiters.is_empty() {
                    self.waiters.remove(&mailbox);
                }
            }
        }
    }

    /// Tells those who wait for a signal that one came. Answers the runs of those who were not
    /// told before.
    fn tell(&mut self, mailbox: &Mailbox, planted: Planted) -> BTreeSet<RunId> {
        let mut told = BTreeSet::new();
        let most = if planted.has(PlantedBug::KeySignalTellsOne) { 1 } else { usize::MAX };
        for (task, is_told) in self.waiters.get_mut(mailbox).into_iter().flatten().take(most) {
            if !*is_told {
                *is_told = true;
                told.insert(task.run);
            }
        }
        told
    }

    /// Whether a function that waits was told of a signal.
    pub(super) fn is_told(&self, task: TaskId, mailbox: &Mailbox) -> bool {
        self.waiters.get(mailbox).and_then(|waiters| waiters.get(&task)) == Some(&true)
    }

    /// The functions of a run that were told of a signal.
    fn told(&self, run: RunId) -> Vec<TaskId> {
        let first = TaskId { run, index: windlass_core::TaskIndex(0) };
        let mine = self.awaited.range(first..).take_while(|(task, _)| task.run == run);
        mine.filter(|(task, all)| all.iter().any(|one| self.is_told(**task, one)))
            .map(|(task, _)| *task)
            .collect()
    }

    /// Forgets signals whose time is over, at most `limit`.
    pub(super) fn expire(&mut self, now: Timestamp, limit: usize) {
        for _ in 0..limit {
            let Some(first) = self.expiries.first().filter(|first| first.0 <= now).cloned() else {
                return;
            };
            self.expiries.remove(&first);
            let (_, tenant, key, id) = first;
            self.forget((tenant, key), id);
        }
    }

    fn forget(&mut self, key: (Tenant, SignalKey), id: SignalId) {
        if let Some(letters) = self.signals.get_mut(&key) {
            letters.retain(|letter| letter.id != id);
            if letters.is_empty() {
                self.signals.remove(&key);
            }
        }
    }
}

impl State {
    pub(super) fn signal_key(&mut self, signal: NewKeySignal) -> Result<(), StoreError> {
        let now = self.shared.now;
        signal.check(self.shared.payload_limit).map_err(StoreError::Conflict)?;
        let NewKeySignal { id, to, value, keep_for } = signal;
        let key = (to.tenant.clone(), to.key.clone());
        let mailboxes = &mut self.shared.mailboxes;
        let known = mailboxes.signals.get(&key).into_iter().flatten();
        match known.map(|one| (one.id, one.expires_at)).find(|(known, _)| *known == id) {
            Some((_, expires_at)) if expires_at > now => return Ok(()),
            Some((_, expires_at)) => {
                mailboxes.expiries.remove(&(expires_at, to.tenant.clone(), to.key.clone(), id));
                mailboxes.forget(key.clone(), id);
            }
            None => {}
        }
        if mailboxes.waiting(&to, now).count() >= SIGNALS_MAX {
            return Err(mailbox_is_full(&to));
        }
        let expires_at = now + keep_for;
        mailboxes.expiries.insert((expires_at, to.tenant.clone(), to.key.clone(), id));
        let letter = Letter { id, name: to.name.clone(), expires_at, value: Some(value) };
        mailboxes.signals.entry(key).or_default().push(letter);
        let told = mailboxes.tell(&to, self.shared.planted);
        self.shared.wakes.timers |= !told.is_empty();
        self.shared.notices.extend(told.into_iter().map(Notice::Signalled));
        Ok(())
    }

    /// Lets functions go on that were told of a signal.
    pub(super) fn resume_told(&mut self, notices: &[Notice]) -> Result<(), StoreError> {
        let told = notices.iter().filter_map(|notice| match notice {
            Notice::Signalled(run) => Some(*run),
            Notice::Ended(_) | Notice::Cancelled(_) | Notice::Superseded(_) => None,
        });
        for run in told.collect::<BTreeSet<RunId>>() {
            for task in self.shared.mailboxes.told(run) {
                if let Some(run) = self.runs.get_mut(&task.run) {
                    run.resume(&mut self.shared, task.index)?;
                }
            }
        }
        Ok(())
    }
}

/// Nobody takes what is sent to the key.
pub(in crate::store) fn mailbox_is_full(to: &Mailbox) -> StoreError {
    let Mailbox { tenant, key, name } = to;
    let text = format!(
        "key {key:?} of tenant {tenant:?} has {SIGNALS_MAX} signals {name:?} that nobody took, \
         this is one more"
    );
    StoreError::Conflict(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn send(state: &mut State, id: u128, key: &str, seconds: u64) {
        let to = Mailbox {
            tenant: Tenant::default(),
            key: SignalKey::new(key).unwrap(),
            name: StepName::new("paid").unwrap(),
        };
        let (id, keep_for) = (SignalId::from_random(id), Duration::from_secs(seconds));
        state.signal_key(NewKeySignal { id, to, value: Payload::default(), keep_for }).unwrap();
    }

    #[test]
    fn nothing_is_left_of_signals_whose_time_is_over() {
        let mut state = State::new(Timestamp::from_micros(0), Default::default());
        for id in 0..3 {
            send(&mut state, id, "pay_1", 60);
        }
        send(&mut state, 3, "pay_2", 61);
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let mailboxes = &mut state.shared.mailboxes;
        mailboxes.expire(at(60), 2);
        assert_eq!(mailboxes.expiries.len(), 2, "a sweep has a limit");
        mailboxes.expire(at(60), 2);
        let keys: Vec<&str> = mailboxes.signals.keys().map(|(_, key)| key.as_str()).collect();
        assert_eq!(keys, ["pay_2"]);
        mailboxes.expire(at(61), 2);
        assert!(mailboxes.signals.is_empty() && mailboxes.expiries.is_empty());
    }
}
