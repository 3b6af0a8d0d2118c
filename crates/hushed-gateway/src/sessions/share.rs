//! Callers: who they are, how much of a queue one API key may take so that others find a place, and whose turn it is.

use std::collections::{HashMap, VecDeque};

/// The caller: SHA-256 of the API key, or zeros if no key is required.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caller(pub [u8; 32]);

/// The places of a queue, and whether several keys share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    places: usize,
    divided: bool,
}

impl Share {
    /// A queue with `places` places, for users with `keys` keys.
    pub fn new(places: usize, keys: usize) -> Self {
        Self { places, divided: keys > 1 }
    }

    /// Whether a caller with `own` of the `waiting` places may take `new` more. With several keys nobody may hold more
    /// than is then left free: half of a queue where nobody else waits. A caller with none may take any free place.
    pub fn admits(&self, new: usize, own: usize, waiting: usize) -> bool {
        let free = self.places.checked_sub(waiting.saturating_add(new));
        free.is_some_and(|free| !self.divided || own + new <= free.max(1))
    }

    /// The most that a caller may have if nobody else waits.
    pub fn most(&self) -> usize {
        match self.divided {
            true => (self.places / 2).max(1),
            false => self.places,
        }
    }
}

/// Turns among callers with something waiting: next is the one served longest ago.
#[derive(Default)]
pub struct Turns {
    /// The count at which each caller was last served.
    served: HashMap<Caller, u64>,
    count: u64,
}

impl Turns {
    /// The position, among what waits, of the first item of the caller whose turn it is; `None` if nothing waits. Among
    /// equal callers the first wins, so that a single caller is served in order.
    pub fn choose(&self, waiting: impl Iterator<Item = Caller>) -> Option<usize> {
        let served = |caller| self.served.get(&caller).copied().unwrap_or(0);
        let next = waiting.map(served).enumerate().min_by_key(|&(_, at)| at);
        next.map(|(place, _)| place)
    }

    /// Takes the first item of the caller whose turn it is out of a queue.
    pub fn take<T>(&mut self, queue: &mut VecDeque<T>, caller: impl Fn(&T) -> Caller) -> Option<T> {
        let next = queue.remove(self.choose(queue.iter().map(&caller))?)?;
        self.served(caller(&next));
        Some(next)
    }

    /// Records that something of this caller's was taken.
    pub fn served(&mut self, caller: Caller) {
        self.count += 1;
        self.served.insert(caller, self.count);
    }
}

/// What comes before a new item, out of all that waits (caller and planned seconds, in order): the first `own` of the
/// caller's own items and, since callers take turns, the first `others` of every other caller's. Returns their number
/// and their planned seconds.
pub fn before(waiting: impl Iterator<Item = (Caller, f64)>, caller: Caller, own: usize, others: usize) -> (usize, f64) {
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
        // A caller who has had nothing yet comes before one who has, whenever it arrived.
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
        // The next caller gets half of what is left, and one place can always be taken.
        assert!(several.admits(2, 0, 4) && !several.admits(3, 0, 4));
        assert!(several.admits(1, 0, 7) && !several.admits(1, 1, 7) && !several.admits(1, 0, 8));
        for places in 1..20 {
            let share = Share::new(places, 3);
            assert!(share.admits(share.most(), 0, 0), "{places}");
            assert!(!share.admits(share.most() + 1, 0, 0), "{places}");
        }
    }
}
