//! Stand-ins for fits where only shapes are counted: operations and levels follow from degrees and steps, and a search
//! counts the same circuit at dozens of placements.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use hushed_ckks::poly::{InverseSqrt, PolyError, Polynomial};

use super::NormChoice;

/// A polynomial in t of this degree, without a zero coefficient.
///
/// # Errors
/// As [`Polynomial::chebyshev`].
pub fn polynomial(degree: usize) -> Result<Polynomial, PolyError> {
    let coefficients = (0..=degree).map(|k| 1.0 / (k + 1) as f64);
    Polynomial::chebyshev(coefficients.collect(), -1.0, 1.0)
}

/// 1/√x with a seed and steps as in `choice`, on a range of its own; fitted once for each pair of them.
///
/// # Errors
/// As [`InverseSqrt::with_steps`].
pub fn root(choice: &NormChoice) -> Result<InverseSqrt, PolyError> {
    static FITTED: Mutex<BTreeMap<(usize, usize), InverseSqrt>> = Mutex::new(BTreeMap::new());
    let mut fitted = FITTED.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (choice.seed, choice.steps);
    if let Some(found) = fitted.get(&key) {
        return Ok(found.clone());
    }
    let root = InverseSqrt::with_steps(0.05, 1.0, choice.seed, choice.steps)?;
    fitted.insert(key, root.clone());
    Ok(root)
}
