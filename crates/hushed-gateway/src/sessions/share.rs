//! Who asks, how much of a queue one key of the API may take, so that others find a place, and whose turn it is.

use std::collections::{HashMap, VecDeque};

/// Who asks: SHA-256 of the key of the API, or zeros where none is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caller(pub [u8; 32]);

/// The places of a queue, and whether several keys share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    places: usize,
    divided: bool,
}

impl Share {
    /// A queue of so many places, for users with so many keys.
    pub fn new(places: usize, keys: usize) -> Self {
        Self {
            places,
            divided: keys > 1,
        }
    }

    /// Whether somebody who has `own` of the `waiting` may have `new` more. With several keys nobody takes more than
    /// that leaves free: half of a queue where nobody else waits. One place may be taken whenever there is one.
    pub fn admits(&self, new: usize, own: usize, waiting: usize) -> bool {
        let free = self.places.checked_sub(waiting.saturating_add(new));
        free.is_some_and(|free| !self.divided || own + new <= free.max(1))
    }

    /// Most that somebody may have where nobody else waits.
    pub fn most(&self) -> usize {
        match self.divided {
            true => (self.places / 2).max(1),
            false => self.places,
        }
    }
}

/// Takes turns among those that have something waiting: next is who has been served longest ago.
#[derive(Default)]
pub struct Turns {
    /// At which count each was served last.
    served: HashMap<Caller, u64>,
    count: u64,
}

impl Turns {
    /// The place of the first thing of the caller whose turn it is, among what waits; `None` if nothing does. Among
    /// callers that are equal in this the first wins, so that one alone is served in the order given.
    pub fn choose(&self, waiting: impl Iterator<Item = Caller>) -> Option<usize> {
        let served = |caller| self.served.get(&caller).copied().unwrap_or(0);
        let next = waiting.map(served).enumerate().min_by_key(|&(_, at)| at);
        next.map(|(place, _)| place)
    }

    /// Takes the first thing of the caller whose turn it is out of a queue.
    pub fn take<T>(&mut self, queue: &mut VecDeque<T>, caller: impl Fn(&T) -> Caller) -> Option<T> {
        let next = queue.remove(self.choose(queue.iter().map(&caller))?)?;
        self.served(caller(&next));
        Some(next)
    }

    /// Something of this caller's has been taken.
    pub fn served(&mut self, caller: Caller) {
        self.count += 1;
        self.served.insert(caller, self.count);
    }
}

/// What comes before something new, of all that waits (who asked, and planned seconds, in its order): of the caller's
/// own the first `own`, and of every other's, since they take turns, the first `others`. Returns how many these are,
/// and their planned seconds.
pub fn before(
    waiting: impl Iterator<Item = (Caller, f64)>,
    caller: Caller,
    own: usize,
    others: usize,
) -> (usize, f64) {
    let mut counts: HashMap<Caller, usize> = HashMap::new();
    let first = waiting.filter(|&(of, _)| {
        let count = counts.entry(of).or_default();
        *count += 1;
        *count <= if of == caller { own } else { others }
    });
    first.fold((0, 0.0), |(n, sum), (_, planned)| (n + 1, sum + planned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_take_turns_and_one_alone_keeps_its_order() {
        let [a, b, c] = [1, 2, 3].map(|i| Caller([i; 32]));
        let order = |mut waiting: Vec<Caller>| {
            let (mut turns, mut places) = (Turns::default(), Vec::new());
            while let Some(place) = turns.choose(waiting.iter().copied()) {
                turns.served(waiting.remove(place));
                places.push(place);
            }
            places
        };
        assert_eq!(order(vec![a; 4]), [0, 0, 0, 0]);
        // a, b, c; a, b; a.
        assert_eq!(order(vec![a, a, a, b, b, c]), [0, 2, 3, 0, 1, 0]);
        // Who has had nothing yet comes before who has, whenever it came.
        let mut turns = Turns::default();
        turns.served(a);
        turns.served(b);
        assert_eq!(turns.choose([b, a].into_iter()), Some(1));
        assert_eq!(turns.choose([b, a, c].into_iter()), Some(2));
    }

    #[test]
    fn of_others_as_many_come_before_as_they_have_turns() {
        let [a, b] = [1, 2].map(|i| Caller([i; 32]));
        let waiting = || [(a, 1.0), (a, 2.0), (b, 4.0), (a, 8.0), (b, 16.0)].into_iter();
        assert_eq!(before(waiting(), a, usize::MAX, 1), (4, 15.0));
        assert_eq!(before(waiting(), b, usize::MAX, 2), (4, 23.0));
        assert_eq!(before(waiting(), b, 1, 1), (2, 5.0));
        assert_eq!(before(waiting(), Caller([3; 32]), 0, 0), (0, 0.0));
    }

    #[test]
    fn one_key_has_all_places_and_several_leave_some() {
        let one = Share::new(8, 1);
        assert!(one.admits(8, 0, 0) && !one.admits(9, 0, 0) && !one.admits(1, 8, 8));
        let several = Share::new(8, 2);
        assert!(several.admits(4, 0, 0) && !several.admits(5, 0, 0));
        assert!(several.admits(1, 3, 3) && !several.admits(1, 4, 4));
        // The next has half of what is left, and one place is always somebody's.
        assert!(several.admits(2, 0, 4) && !several.admits(3, 0, 4));
        assert!(several.admits(1, 0, 7) && !several.admits(1, 1, 7) && !several.admits(1, 0, 8));
        for places in 1..20 {
            let share = Share::new(places, 3);
            assert!(share.admits(share.most(), 0, 0), "{places}");
            assert!(!share.admits(share.most() + 1, 0, 0), "{places}");
        }
    }
}
