//! What a circuit makes of a model's numbers alone, kept for other runs of the same circuit.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use hushed_ckks::poly::Polynomial;
use hushed_lower::LinearMap;
use hushed_model::{Activation, StepId};

use crate::choices::{Column, fits};
use crate::error::FheError;

/// The linear maps of a circuit with everything folded in, by step, and the polynomials of its activations.
///
/// What is folded into a map depends on the layout of vectors, so one of these belongs to one plan.
#[derive(Default)]
pub struct Folded {
    maps: Kept<StepId, LinearMap>,
    polynomials: Arc<Polynomials>,
}

impl Folded {
    /// The map of step `id`, which `fold` makes the first time.
    ///
    /// # Errors
    /// Those of `fold`.
    pub(crate) fn map(
        &self,
        id: StepId,
        fold: impl FnOnce() -> Result<LinearMap, FheError>,
    ) -> Result<Arc<LinearMap>, FheError> {
        self.maps.get(id, fold)
    }

    pub(crate) fn polynomials(&self) -> Arc<Polynomials> {
        Arc::clone(&self.polynomials)
    }
}

/// A cache of polynomials by function, degree and interval: columns and layers share many intervals.
#[derive(Default)]
pub struct Polynomials(Kept<Key, Polynomial>);

/// The function's name (it has no order or hash of its own), the degree, and the bits of the column's numbers.
type Key = (String, usize, [u64; 4]);

impl Polynomials {
    /// Returns the polynomial in t, for x in `column` mapped to [−1, 1].
    ///
    /// # Errors
    /// [`FheError::Poly`] if the interval is empty or the degree has no fit.
    pub fn get(&self, f: Activation, column: Column, degree: usize) -> Result<Arc<Polynomial>, FheError> {
        let key = (format!("{f:?}"), degree, <[f64; 4]>::from(column).map(f64::to_bits));
        self.0.get(key, || Ok(fits::activation(f, column, degree)?))
    }
}

/// Values by what they are made of.
struct Kept<K, V>(Mutex<HashMap<K, Arc<V>>>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> Kept<K, V> {
    /// The value of `key`, which `make` makes the first time: outside the lock, so threads work in parallel, and two
    /// may make the same.
    fn get(&self, key: K, make: impl FnOnce() -> Result<V, FheError>) -> Result<Arc<V>, FheError> {
        let held = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = held().get(&key) {
            return Ok(Arc::clone(found));
        }
        let made = Arc::new(make()?);
        held().insert(key, Arc::clone(&made));
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::Interval;

    #[test]
    fn a_step_is_folded_once_and_an_interval_fitted_once() {
        let (folded, id) = (Folded::default(), StepId::outside("up"));
        let first = folded.map(id, || Ok(LinearMap::identity(2))).unwrap();
        let again = folded.map(id, || panic!("folded twice")).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let other = folded.map(id.part("gate"), || Ok(LinearMap::identity(3)));
        assert_eq!(other.unwrap().rows, 3);

        let polynomials = folded.polynomials();
        let get = |low: f64, degree: usize| {
            let column = Column::from(Interval { low, high: 2.0 });
            polynomials.get(Activation::Gelu, column, degree).unwrap()
        };
        let first = get(-1.0, 15);
        assert!(Arc::ptr_eq(&first, &get(-1.0, 15)));
        for other in [get(-1.5, 15), get(-1.0, 7)] {
            assert!(!Arc::ptr_eq(&first, &other));
        }
        assert_eq!(polynomials.0.0.lock().unwrap().len(), 3);
    }
}
