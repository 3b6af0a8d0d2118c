//! What each key has sent today.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::sessions::share::Caller;

/// Seconds of a day. Days are those of UTC.
const DAY: u64 = 86_400;

/// Texts by key, of one day.
#[derive(Default)]
pub struct Spent(Mutex<(u64, HashMap<Caller, u64>)>);

impl Spent {
    /// Counts `texts` more at a time in seconds since 1970, unless these would be more than `limit` in a day.
    ///
    /// # Errors
    /// The texts that are left today, and the seconds until tomorrow.
    pub fn charge(&self, caller: Caller, texts: u64, limit: u64, now: u64) -> Result<(), (u64, u64)> {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (day, spent) = &mut *guard;
        if *day != now / DAY {
            *day = now / DAY;
            spent.clear();
        }
        let own = spent.entry(caller).or_default();
        let left = limit.saturating_sub(*own);
        if texts > left {
            return Err((left, DAY - now % DAY));
        }
        *own += texts;
        Ok(())
    }

    /// Takes back what was counted for a request that was refused.
    pub fn refund(&self, caller: Caller, texts: u64) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = guard.1.get_mut(&caller) {
            *own = own.saturating_sub(texts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_so_many_texts_a_key() {
        let (spent, [ann, bob]) = (Spent::default(), [1, 2].map(|key| Caller([key; 32])));
        let noon = 20_000 * DAY + DAY / 2;
        assert_eq!(spent.charge(ann, 3, 4, noon), Ok(()));
        assert_eq!(spent.charge(ann, 2, 4, noon + 1), Err((1, DAY / 2 - 1)));
        assert_eq!(spent.charge(bob, 4, 4, noon), Ok(()));
        spent.refund(ann, 3);
        assert_eq!(spent.charge(ann, 4, 4, noon), Ok(()));
        assert_eq!(spent.charge(ann, 1, 4, noon + DAY / 2), Ok(()));
    }
}
