//! Layouts and answers that were made before: the same shapes recur layer after layer.

use super::answer::Answer;
use super::{Layout, OltSpec};
use crate::error::TwopcError;
use crate::he::window::OltShape;
use crate::link::Link;
use hushed_rlwe::RlweParams;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// A cache of product layouts: the same shapes recur layer after layer.
pub struct Layouts {
    params: Arc<RlweParams>,
    link: Link,
    known: Mutex<HashMap<OltSpec, Arc<Layout>>>,
    sums: Mutex<HashMap<[OltSpec; 2], Arc<[Answer]>>>,
    rows: Mutex<HashMap<OltSpec, Arc<Answer>>>,
}

/// The most layouts that are kept.
const MAX_LAYOUTS: usize = 1 << 10;

impl Layouts {
    /// An empty cache for sessions over [`Link::LAN`].
    pub fn new(params: Arc<RlweParams>) -> Self {
        Self::over(Link::LAN, params)
    }

    /// An empty cache for sessions over this link.
    pub fn over(link: Link, params: Arc<RlweParams>) -> Self {
        Self { params, link, known: Mutex::default(), sums: Mutex::default(), rows: Mutex::default() }
    }

    /// The parameters.
    pub fn params(&self) -> &Arc<RlweParams> {
        &self.params
    }

    /// The link by which layouts are chosen.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The layout of `spec`.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn of(&self, spec: &OltSpec) -> Result<Arc<Layout>, TwopcError> {
        let make = || Ok(Arc::new(Layout::new(&self.params, &self.link, spec)?));
        known(&self.known, *spec, make)
    }

    /// The responses to the two transformations of `specs`, whose results have the same shape and are added.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn of_sum(&self, specs: [OltSpec; 2]) -> Result<Arc<[Answer]>, TwopcError> {
        let with_spare = |spare_bits| {
            let [one, other] = specs.map(|spec| self.of(&OltSpec { spare_bits, ..spec }));
            Ok::<_, TwopcError>([one?, other?])
        };
        known(&self.sums, specs, || Ok(Answer::of_sum(&self.params, &self.link, with_spare(0)?, with_spare(1)?).into()))
    }

    /// The responses to a product of rows with weights: to one transformation, or to two with a part of the rows each.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn of_rows(&self, spec: &OltSpec) -> Result<Arc<Answer>, TwopcError> {
        let rows = spec.shape.k;
        // Between powers of two: further above one, ciphertexts are filled well enough.
        let first = (rows / 2 + 1).next_power_of_two();
        let some = |k, spare_bits| self.of(&OltSpec { shape: OltShape { k, ..spec.shape }, spare_bits, ..*spec });
        let two = |spare_bits| Ok::<_, TwopcError>([some(first, spare_bits)?, some(rows - first, spare_bits)?]);
        known(&self.rows, *spec, || {
            let all = self.of(spec)?;
            Ok(Arc::new(match first < rows && rows <= first + first / 4 {
                true => Answer::of_rows((&self.params, &self.link), all, two(0)?, two(1)?),
                false => Answer::alone(all),
            }))
        })
    }
}

/// The value of `key`, made if it is not there yet.
fn known<K: Eq + Hash, V: ?Sized>(
    table: &Mutex<HashMap<K, Arc<V>>>,
    key: K,
    make: impl FnOnce() -> Result<Arc<V>, TwopcError>,
) -> Result<Arc<V>, TwopcError> {
    // A poisoned lock guards only a table of public values, which is complete after every insertion.
    let mut known = table.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(value) = known.get(&key) {
        return Ok(Arc::clone(value));
    }
    let value = make()?;
    // A text that is continued asks for new layouts with every row. They are quick to make again.
    if known.len() >= MAX_LAYOUTS {
        known.clear();
    }
    known.insert(key, Arc::clone(&value));
    Ok(value)
}
