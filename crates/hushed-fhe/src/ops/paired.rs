//! Two columns in each vector, for runs that lack the memory for one column per vector.
//!
//! Columns 2k and 2k + 1 are the real and the imaginary part of vector z_k, which halves the memory of the columns.
//! Maps read pairs as they are:
//!
//! ```text
//! Σ_k (w_2k − i·w_2k+1)·z_k = Σ_k (w_2k·x_2k + w_2k+1·x_2k+1) + i·(…)
//! ```
//!
//! So a row takes as many products as with single columns, and its result is a real part. Removing the rest takes one
//! conjugation per result, or per two results that are read as a pair; splitting the columns would take one per pair for
//! each map, and room for the columns.

use hushed_ckks::Scale;
use hushed_lower::LinearMap;
use rayon::prelude::*;

use crate::error::FheError;
use crate::ops::levels::{dropped, scale_of};
use crate::packing::PackingError;
use crate::slots::Slots;

/// Vectors dropped, split or multiplied at once.
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

    /// Applies each map, with results at scale `target`. If `limbs` is given, the columns are dropped to that many
    /// primes first.
    ///
    /// # Errors
    /// Fails for a map of another number of columns, too few levels, and pairs without a key for conjugations.
    pub fn linear<S: Slots<Value = V>>(
        &self,
        on: &S,
        maps: &[LinearMap],
        limbs: Option<usize>,
        target: Scale,
    ) -> Result<Vec<Vec<V>>, FheError>
    where
        V: Send + Sync,
    {
        if !self.paired {
            return self.applied(on, maps, limbs, target);
        }
        let made = self.complex(on, maps, limbs, target)?;
        let real = |made: Vec<V>| made.par_iter().map(|u| on.real(u)).collect();
        made.into_iter().map(real).collect()
    }

    /// As [`Inputs::linear`], with results 2k and 2k + 1 of a map in one vector, a + i·b; a − i·b if `conjugate`. Of an
    /// odd number of results, the last stands alone.
    ///
    /// # Errors
    /// As [`Inputs::linear`].
    pub fn linear_in_pairs<S: Slots<Value = V>>(
        &self,
        on: &S,
        maps: &[LinearMap],
        limbs: Option<usize>,
        target: Scale,
        conjugate: bool,
    ) -> Result<Vec<Vec<V>>, FheError>
    where
        V: Clone + Send + Sync,
    {
        let join = |a: V, b: V, conjugate: bool| match conjugate {
            false => on.pair(a, b),
            true => on.pair_conjugate(a, b),
        };
        let pair = |a: V, b: Option<V>| match (b, self.paired) {
            (None, false) => Ok(a),
            (None, true) => on.real(&a),
            (Some(b), false) => join(a, b, conjugate),
            // u ± i·v plus the conjugate of u ∓ i·v is twice the pair of the real parts of u and v.
            (Some(b), true) => {
                let other = join(a.clone(), b.clone(), !conjugate)?;
                let mut sum = join(a, b, conjugate)?;
                on.add_assign(&mut sum, &on.conjugate(&other)?)?;
                on.read_as(sum, 0.5)
            }
        };
        let made = match self.paired {
            false => self.applied(on, maps, limbs, target)?,
            true => self.complex(on, maps, limbs, target)?,
        };
        let pairs = |made: Vec<V>| -> Result<Vec<V>, FheError> {
            twos(made)
                .into_par_iter()
                .map(|(a, b)| pair(a, b))
                .collect()
        };
        made.into_iter().map(pairs).collect()
    }

    /// Vectors whose real parts are the results of each map of pairs, at half of scale `target`: a real part has twice
    /// its vector's scale.
    fn complex<S: Slots<Value = V>>(
        &self,
        on: &S,
        maps: &[LinearMap],
        limbs: Option<usize>,
        target: Scale,
    ) -> Result<Vec<Vec<V>>, FheError>
    where
        V: Send + Sync,
    {
        let halves: Vec<LinearMap> = maps.iter().map(LinearMap::by_parity).collect();
        let made = self.applied(on, &halves, limbs, scale_of(0.5 * target.value())?)?;
        let turn = |(a, b): (V, Option<V>)| match b {
            Some(b) => on.pair_conjugate(a, b),
            None => Ok(a),
        };
        let turned = |made: Vec<V>| twos(made).into_iter().map(turn).collect();
        made.into_iter().map(turned).collect()
    }

    /// Applies each map to the vectors. Dropped vectors are never all in memory.
    fn applied<S: Slots<Value = V>>(
        &self,
        on: &S,
        maps: &[LinearMap],
        limbs: Option<usize>,
        target: Scale,
    ) -> Result<Vec<Vec<V>>, FheError>
    where
        V: Send + Sync,
    {
        let Some(limbs) = limbs else {
            let linear = |map| on.linear(map, self.vectors, target);
            return maps.iter().map(linear).collect();
        };
        let mut partials: Vec<Option<S::Partial>> = maps.iter().map(|_| None).collect();
        let firsts = (0..).step_by(BLOCK);
        for (first, block) in firsts.zip(self.vectors.chunks(BLOCK)) {
            let low = dropped(on, block, limbs)?;
            for (map, partial) in maps.iter().zip(&mut partials) {
                let mut part = map.columns(first..first + low.len());
                if first == 0 {
                    part.bias.clone_from(&map.bias);
                }
                *partial = Some(on.linear_add(&part, &low, target, partial.take())?);
            }
        }
        let finish = |partial: Option<S::Partial>| match partial {
            Some(partial) => on.linear_finish(partial),
            None => Ok(Vec::new()),
        };
        partials.into_iter().map(finish).collect()
    }
}

/// Two by two.
fn twos<V>(vectors: Vec<V>) -> Vec<(V, Option<V>)> {
    let mut rest = vectors.into_iter();
    let next = || rest.next().map(|a| (a, rest.next()));
    std::iter::from_fn(next).collect()
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
    let mut pairs = Vec::with_capacity(columns.len() / 2);
    let mut rest = columns.into_iter();
    while let Some(a) = rest.next() {
        let b = rest.next().ok_or(PackingError::Mismatch)?;
        pairs.push(on.pair(a, b)?);
    }
    Ok(pairs)
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
            weights: (0..rows * columns)
                .map(|i| ((7 * i) % 11) as f64 / 8.0 - 0.5)
                .collect(),
            bound: 2.0,
            bias: Some((0..rows).map(|row| row as f64 / 4.0).collect()),
        }
    }

    /// More pairs than a block, an odd number of results, all at one scale; conjugations depend on results alone.
    #[test]
    fn maps_of_pairs_are_those_of_their_columns() {
        let params = CkksParams::insecure_test(5, 4).unwrap();
        let on = Simulator::new(&params, SLOTS).unwrap();
        let width = 2 * (BLOCK + 3);
        let column = |j: usize| {
            (0..SLOTS)
                .map(|s| ((5 * j + s) % 7) as f64 / 64.0)
                .collect()
        };
        let columns: Vec<Vector> = (0..width)
            .map(|j| on.vector(column(j), on.top()).unwrap())
            .collect();
        let pairs = joined(&on, columns.clone()).unwrap();
        let maps = [map(5, width), map(2, width)];
        let target = on.default_scale();
        for limbs in [None, Some(on.top() - 1)] {
            let single = Inputs::of(&columns, false);
            let paired = Inputs::of(&pairs, true);
            let conjugations = || on.tally().counts().total(Op::Conjugate);
            let expected = single.linear(&on, &maps, limbs, target).unwrap();
            let before = conjugations();
            let found = paired.linear(&on, &maps, limbs, target).unwrap();
            assert_eq!(conjugations() - before, 7);
            let check = |a: &Vector, b: &Vector| {
                assert!(on.scale(a).matches(target) && on.limbs(a) == on.limbs(b));
                for (a, b) in a.values().iter().zip(b.values()) {
                    assert!((a - b).abs() < 1e-6, "{a} {b}");
                }
            };
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                check(found, expected);
            }
            for conjugate in [false, true] {
                let of = |x: Inputs<'_, Vector>| {
                    x.linear_in_pairs(&on, &maps, limbs, target, conjugate)
                        .unwrap()
                };
                let expected = of(single);
                let before = conjugations();
                let found = of(paired);
                assert_eq!(conjugations() - before, 4);
                for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                    check(found, expected);
                    let [_, found] = on.parts(found).unwrap();
                    let [_, expected] = on.parts(expected).unwrap();
                    for (a, b) in found.values().iter().zip(expected.values()) {
                        assert!((a - b).abs() < 1e-6, "{a} {b}");
                    }
                }
            }
        }
    }
}
