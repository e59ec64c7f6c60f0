//! Places of which nobody takes all.
//!
//! Whatever a server has so many of, places for requests or memory for bodies, is a room: what is
//! taken of it is counted for all and for each origin, and one origin has a share of it at most.
//! Nobody waits here: whoever finds no place is told so at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::connections::Origin;

/// Places, so many of which one origin may have.
#[derive(Debug)]
pub(crate) struct Room {
    most: usize,
    most_of_one: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Origins without a place are not kept.
    of: HashMap<Origin, usize>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// Everything is taken.
    All,
    /// The origin has its share.
    Share,
}

impl Room {
    /// So many places, of which one origin may have so many percent, and at least `least`.
    pub(crate) fn new(most: usize, percent: u8, least: usize) -> Arc<Self> {
        let share = most.saturating_mul(percent.min(100).into()).div_ceil(100);
        let most_of_one = share.max(least).min(most);
        Arc::new(Room { most, most_of_one, taken: Mutex::default() })
    }

    /// How many places one origin may have.
    pub(crate) fn share(&self) -> usize {
        self.most_of_one
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes so many places for an origin, or none.
    pub(crate) fn take(self: &Arc<Self>, origin: Origin, count: usize) -> Result<Place, Full> {
        let mut place = self.begin(origin);
        place.grow(count)?;
        Ok(place)
    }

    /// Takes no places yet; the result grows.
    pub(crate) fn begin(self: &Arc<Self>, origin: Origin) -> Place {
        Place { room: Arc::clone(self), origin, count: 0 }
    }
}

/// Places that are taken for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Place {
    room: Arc<Room>,
    origin: Origin,
    count: usize,
}

impl Place {
    /// Takes so many more, or none.
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), Full> {
        if more == 0 {
            return Ok(());
        }
        let Room { most, most_of_one, .. } = *self.room;
        let mut taken = self.room.taken();
        if taken.all.saturating_add(more) > most {
            return Err(Full::All);
        }
        let own = taken.of.get(&self.origin).copied().unwrap_or(0);
        if own.saturating_add(more) > most_of_one {
            return Err(Full::Share);
        }
        taken.all += more;
        taken.of.insert(self.origin, own + more);
        drop(taken);
        self.count += more;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.count == 0 {
            return;
        }
        let mut taken = self.room.taken();
        taken.all -= self.count;
        if let Some(own) = taken.of.get_mut(&self.origin) {
            *own -= self.count;
            if *own == 0 {
                taken.of.remove(&self.origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(last: u8) -> Origin {
        Origin::Machine([192, 0, 2, last].into())
    }

    #[test]
    fn one_origin_takes_its_share_and_others_the_rest() {
        let room = Room::new(4, 50, 1);
        let own: Vec<_> = (0..2).map(|_| room.take(machine(1), 1).unwrap()).collect();
        assert_eq!(room.take(machine(1), 1).unwrap_err(), Full::Share);
        let others = [room.take(machine(2), 1).unwrap(), room.take(Origin::Socket, 1).unwrap()];
        assert_eq!(room.take(machine(3), 1).unwrap_err(), Full::All);
        drop(others);
        assert_eq!(room.take(machine(1), 1).unwrap_err(), Full::Share);
        drop(own);
        assert!(room.take(machine(1), 2).is_ok());
        assert!(room.taken().of.is_empty() && room.taken().all == 0, "nothing is left behind");
    }

    #[test]
    fn a_place_grows_whole_or_not_at_all() {
        let room = Room::new(10, 50, 1);
        let mut place = room.take(machine(1), 3).unwrap();
        assert_eq!(place.grow(3), Err(Full::Share));
        assert_eq!(place.grow(2), Ok(()));
        assert_eq!(place.count, 5);
        drop(place);
        assert_eq!(room.taken().all, 0);
    }

    #[test]
    fn a_share_is_never_less_than_one_needs_nor_more_than_there_is() {
        for (most, percent, least, of_one) in
            [(1, 50, 1, 1), (0, 50, 1, 0), (100, 50, 80, 80), (100, 255, 1, 100), (3, 50, 1, 2)]
        {
            let room = Room::new(most, percent, least);
            assert_eq!(room.most_of_one, of_one, "{most} {percent} {least}");
            assert!(room.take(machine(1), of_one).is_ok());
            assert!(room.take(machine(1), of_one + 1).is_err());
        }
    }
}
