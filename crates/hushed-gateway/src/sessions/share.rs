//! Who asks, and how much of a queue one key of the API may take, so that others find a place.

/// Who asks: SHA-256 of the key of the API, or zeros where none is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

#[cfg(test)]
mod tests {
    use super::*;

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
