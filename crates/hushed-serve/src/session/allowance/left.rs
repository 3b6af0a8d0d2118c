//! What is left of a client's allowance, for metrics.

use std::collections::BTreeMap;

use super::{ClientCounts, Clients, Counts, Limits, Rate};
use crate::files::now;

/// What clients may still have now, of those that have had something in the window.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Texts, by client.
    pub(crate) texts: BTreeMap<String, u64>,
    /// Opened bits, by client.
    pub(crate) bits: BTreeMap<String, u64>,
}

impl ClientCounts {
    pub(crate) fn left(&self) -> Left {
        self.batches.lock().counts.left(self.limits, now())
    }
}

impl Counts {
    pub(super) fn left(&self, limits: Limits, now: u64) -> Left {
        let of = |rate: Option<Rate>, clients: &Clients| match rate {
            None => BTreeMap::new(),
            Some(rate) => {
                let left = |parts| rate.amount.saturating_sub(rate.had(parts, now));
                clients.iter().map(|(name, parts)| (name.clone(), left(parts))).collect()
            }
        };
        Left { texts: of(limits.texts, &self.clients), bits: of(limits.bits, &self.bits) }
    }
}
