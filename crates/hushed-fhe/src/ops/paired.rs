//! Two columns in each vector, for runs that lack the memory for one column per vector.
//!
//! Columns 2k and 2k + 1 are the real and the imaginary part of vector z_k, which halves the memory of the columns.
//! Maps read pairs as they are:
//!
//! ```text
//! Σ_k (w_2k − i·w_2k+1)·z_k = Σ_k (w_2k·x_2k + w_2k+1·x_2k+1) + i·(…)
//! ```
//!
//! So a row takes as many products as with single columns and two rescales, and its result is a real part. Removing the
//! rest takes one conjugation per result, or per two results that are read as a pair; splitting the columns would take
//! one per pair for each map, and room for the columns.

use hushed_ckks::Scale;
use hushed_lower::LinearMap;
use rayon::prelude::*;

use crate::error::FheError;
use crate::ops::levels::scale_of;
use crate::packing::{PackingError, in_twos, twos};
use crate::slots::Slots;

/// Pairs split or multiplied at once.
pub const BLOCK: usize = 32;

/// The columns that a block's maps read, with one scale and number of primes.
pub struct Inputs<'a, V> {
    vectors: &'a [V],
    paired: bool,
}

impl<V> Clone for Inputs<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Inputs<'_, V> {}

impl<'a, V> Inputs<'a, V> {
    /// One column per vector, or two if `paired`.
    pub fn of(vectors: &'a [V], paired: bool) -> Self {
        Inputs { vectors, paired }
    }

    /// The results of `map` at scale `target`. If `limbs` is given, only that many primes of the columns are read.
    ///
    /// # Errors
    /// Fails for a map of another number of columns, too few levels, and pairs without a key for conjugations.
    pub fn linear<S: Slots<Value = V>>(
        &self,
        on: &S,
        map: &LinearMap,
        at: (Option<usize>, Scale),
    ) -> Result<Vec<V>, FheError>
    where
        V: Send + Sync,
    {
        match self.paired {
            false => self.applied(on, map, at),
            true => {
                let made = self.complex(on, map, at)?;
                made.par_iter().map(|u| on.real(u)).collect()
            }
        }
    }

    /// As [`Inputs::linear`], with results 2k and 2k + 1 in one vector, a + i·b; a − i·b if `conjugate`. Of an odd
    /// number of results, the last stands alone.
    ///
    /// # Errors
    /// As [`Inputs::linear`].
    pub fn linear_in_pairs<S: Slots<Value = V>>(
        &self,
        on: &S,
        map: &LinearMap,
        at: (Option<usize>, Scale),
        conjugate: bool,
    ) -> Result<Vec<V>, FheError>
    where
        V: Clone + Send + Sync,
    {
        let join = |a: V, b: V, conjugate: bool| match conjugate {
            false => on.pair(a, b),
            true => on.pair_conjugate(a, b),
        };
        if !self.paired {
            return in_twos(self.applied(on, map, at)?, |a, b| join(a, b, conjugate));
        }
        // u ± i·v plus the conjugate of u ∓ i·v is twice the pair of the real parts of u and v.
        let pair = |(u, v): (V, Option<V>)| {
            let Some(v) = v else {
                return on.real(&u);
            };
            let other = join(u.clone(), v.clone(), !conjugate)?;
            let mut sum = join(u, v, conjugate)?;
            on.add_assign(&mut sum, &on.conjugate(&other)?)?;
            on.read_as(sum, 0.5)
        };
        let made = twos(self.complex(on, map, at)?);
        made.into_par_iter().map(pair).collect()
    }

    /// Vectors whose real parts are the results of a map of pairs, at half of scale `target`: a real part has twice its
    /// vector's scale.
    fn complex<S: Slots<Value = V>>(
        &self,
        on: &S,
        map: &LinearMap,
        (limbs, target): (Option<usize>, Scale),
    ) -> Result<Vec<V>, FheError>
    where
        V: Send,
    {
        let half = scale_of(0.5 * target.value())?;
        let made = self.applied(on, &map.by_parity(), (limbs, half))?;
        in_twos(made, |a, b| on.pair_conjugate(a, b))
    }

    /// Applies a map to the vectors.
    fn applied<S: Slots<Value = V>>(
        &self,
        on: &S,
        map: &LinearMap,
        (limbs, target): (Option<usize>, Scale),
    ) -> Result<Vec<V>, FheError> {
        let whole = self.vectors.first().map_or(0, |v| on.limbs(v));
        on.linear_at(map, self.vectors, (limbs.unwrap_or(whole), target))
    }
}

/// Splits pairs into columns, within 1, at twice their scale. Takes one conjugation per pair.
///
/// # Errors
/// Fails without a key for conjugations.
pub fn split<S: Slots>(on: &S, pairs: &[S::Value]) -> Result<Vec<S::Value>, FheError> {
    let parts = pairs.par_iter().map(|pair| on.parts(pair));
    let parts = parts.collect::<Result<Vec<_>, FheError>>()?;
    let columns = parts.into_iter().flatten();
    Ok(columns.map(|column| on.within(column, 1.0)).collect())
}

/// Pairs columns: two per vector.
///
/// # Errors
/// Fails for an odd number of columns, and for scales or primes that differ.
pub fn joined<S: Slots>(on: &S, columns: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
    let pair = |(a, b): (_, Option<_>)| on.pair(a, b.ok_or(PackingError::Mismatch)?);
    twos(columns).into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use hushed_ckks::CkksParams;

    use super::*;
    use crate::simulate::{Op, Simulator, Vector};
    use hushed_ckks::poly::Arithmetic;

    const SLOTS: usize = 4;

    fn map(rows: usize, columns: usize) -> LinearMap {
        LinearMap {
            rows,
            columns,
            weights: (0..rows * columns).map(|i| ((7 * i) % 11) as f64 / 8.0 - 0.5).collect(),
            bound: 2.0,
            bias: Some((0..rows).map(|row| row as f64 / 4.0).collect()),
        }
    }

    /// Conjugations depend on the number of results alone, which may be odd.
    #[test]
    fn maps_of_pairs_are_those_of_their_columns() {
        let params = CkksParams::insecure_test(5, 4).unwrap();
        let on = Simulator::new(&params, SLOTS).unwrap();
        let width = 2 * (BLOCK + 3);
        let column = |j: usize| (0..SLOTS).map(|s| ((5 * j + s) % 7) as f64 / 64.0).collect();
        let columns: Vec<Vector> = (0..width).map(|j| on.vector(column(j), on.top()).unwrap()).collect();
        let pairs = joined(&on, columns.clone()).unwrap();
        let target = on.default_scale();
        for (rows, limbs) in [(5, None), (2, None), (5, Some(on.top() - 1))] {
            let map = map(rows, width);
            let (single, paired) = (Inputs::of(&columns, false), Inputs::of(&pairs, true));
            let check = |found: &[Vector], expected: &[Vector], conjugations: usize| {
                assert_eq!(found.len(), expected.len());
                let done = on.tally().counts().total(Op::Conjugate);
                assert_eq!(done, conjugations as u64);
                for (found, expected) in found.iter().zip(expected) {
                    let scale = on.scale(found).matches(target);
                    assert!(scale && on.limbs(found) == on.limbs(expected));
                    let [found, expected] = [found, expected].map(|v| on.parts(v).unwrap());
                    for (found, expected) in found.iter().zip(&expected) {
                        for (a, b) in found.values().iter().zip(expected.values()) {
                            assert!((a - b).abs() < 1e-6, "{a} {b}");
                        }
                    }
                }
            };
            let at = (limbs, target);
            let expected = single.linear(&on, &map, at).unwrap();
            on.tally().reset();
            let found = paired.linear(&on, &map, at).unwrap();
            check(&found, &expected, rows);
            for conjugate in [false, true] {
                let of = |x: Inputs<'_, Vector>| x.linear_in_pairs(&on, &map, at, conjugate);
                let expected = of(single).unwrap();
                on.tally().reset();
                check(&of(paired).unwrap(), &expected, rows.div_ceil(2));
            }
        }
    }
}
