//! ENSI's algorithms 1 to 3 (arXiv 2509.09424) as printed; its product of ciphertexts is
//! [`super::packing::scores_by_extraction`]. A matrix has one vector per column, with the tokens in its slots.
//!
//! What is wrong with them, which the tests show: the work of algorithm 1 depends on the weights; algorithm 2 turns
//! tokens into each other, not columns. Equation 7 sums all coefficients of a Chebyshev series, the first of which has
//! to be halved: [`series`] does that.

use std::f64::consts::PI;

use hushed_ckks::poly::{PolyError, Polynomial, Weight, evaluate};
use hushed_fhe::packing::PackingError;
use hushed_fhe::{FheError, LinearMap, Slots};
use hushed_model::StepId;
use rayon::prelude::*;

/// Algorithm 1: a product with weights −1, 0 and 1. A column is added, subtracted or skipped according to its weight:
/// the server branches on weights, and its time tells how many are 0.
///
/// # Errors
/// [`PackingError::Mismatch`] for another number of columns; errors of the arithmetic.
pub fn pcmm<S: Slots>(on: &S, map: &LinearMap, columns: &[&S::Value]) -> Result<Vec<S::Value>, FheError> {
    let first = *columns.first().ok_or(PackingError::Mismatch)?;
    if columns.len() != map.columns {
        return Err(PackingError::Mismatch.into());
    }
    let output = |weights: &[f64]| -> Result<S::Value, FheError> {
        let mut y = first.clone();
        on.sub_assign(&mut y, first)?; // 0
        for (&w, x) in weights.iter().zip(columns) {
            if w == 1.0 {
                on.add_assign(&mut y, x)?;
            } else if w == -1.0 {
                on.sub_assign(&mut y, x)?;
            }
        }
        Ok(y)
    };
    map.weights.par_chunks(map.columns).map(output).collect()
}

/// Algorithm 2 for one vector: q ⊗ cos + (Rot₁(q) ⊗ neg + Rot₋₁(q) ⊗ pos) ⊗ sin, with neg = −1, 0, −1, 0, … and pos =
/// 0, 1, 0, 1, …. Two levels and two rotations. It is right for neighbouring *slots*: where a row is in one vector.
///
/// # Errors
/// Too few levels; no key for a rotation.
pub fn rope<S: Slots>(on: &S, q: &S::Value, cos: &[f64], sin: &[f64]) -> Result<S::Value, FheError> {
    let (slots, scale) = (on.slots(), on.default_scale());
    let every_other = |first: f64, second: f64| on.plain(|| [first, second].repeat(slots / 2));
    let mut turned = on.mul_vector(&on.rotate(q, 1)?, &every_other(-1.0, 0.0), scale)?;
    let back = on.mul_vector(&on.rotate(q, slots - 1)?, &every_other(0.0, 1.0), scale)?;
    on.add_assign(&mut turned, &back)?;
    let mut y = on.mul_vector(q, cos, scale)?;
    on.add_assign(&mut y, &on.mul_vector(&turned, sin, scale)?)?;
    Ok(y)
}

/// The polynomials of algorithm 3 for mean squares s in an interval: t = √s/√high, within 1 as a bootstrap takes it,
/// and 1/(√high·t).
///
/// # Errors
/// Refuses an interval that is not one.
pub fn roots(degree: usize, (low, high): (f64, f64)) -> Result<[Polynomial; 2], PolyError> {
    let most = high.sqrt();
    let sqrt = series(|s| s.sqrt() / most, degree, (low, high))?;
    let ends = ((low / high).sqrt(), 1.0);
    Ok([sqrt, series(|t| 1.0 / (most * t), degree, ends)?])
}

/// Algorithm 3: x·γ/√(mean square), by a square root, a bootstrap, an inverse and two products. `gain` is γ, of each
/// column. The bootstrap is at `at`, and to as many primes as there are. Also gives the levels that are used before the
/// bootstrap and after it. In the paper's favour, the squares are relinearised and rescaled once.
///
/// # Errors
/// Too few levels; where values are visible, [`FheError::Range`] for a mean square beyond the interval.
pub fn rms_norm<S: Slots>(
    on: &S,
    at: StepId,
    x: &[S::Value],
    gain: &[f64],
    [sqrt, inverse]: &[Polynomial; 2],
) -> Result<(Vec<S::Value>, [usize; 2]), FheError> {
    let first = x.first().ok_or(PackingError::Mismatch)?;
    let (limbs, scale) = (on.limbs(first), on.default_scale());
    let mut squares = on.sum(limbs, on.scale(first).times(on.scale(first)))?;
    for x in x {
        on.add_product(&mut squares, x, x, Weight::ONE)?;
    }
    let everywhere = |v: f64| on.plain(|| vec![v; on.slots()]);
    let mean = everywhere(1.0 / x.len() as f64);
    let s = on.mul_vector(&on.finish(squares)?, &mean, scale)?;
    let root = evaluate(on, &s, sqrt, scale)?;
    let before = limbs - on.limbs(&root);
    let mut fresh = on.refresh(at, vec![root], on.top())?;
    let root = fresh.pop().ok_or(PackingError::Mismatch)?;
    let inverse = vec![evaluate(on, &root, inverse, scale)?];
    let column = |(x, &gain): (&S::Value, &f64)| -> Result<S::Value, FheError> {
        let y = on.dot_grid(&[vec![x.clone()]], std::slice::from_ref(&inverse))?;
        let y = y.into_iter().flatten().next();
        on.mul_vector(&y.ok_or(PackingError::Mismatch)?, &everywhere(gain), scale)
    };
    let y = x.par_iter().zip(gain).map(column);
    let y = y.collect::<Result<Vec<_>, FheError>>()?;
    let after = y.first().map_or(0, |y| on.top() - on.limbs(y));
    Ok((y, [before, after]))
}

/// The Chebyshev interpolation of `f` (Section VI-A).
fn series(f: impl Fn(f64) -> f64, degree: usize, (low, high): (f64, f64)) -> Result<Polynomial, PolyError> {
    let nodes = degree + 1;
    let angle = |j: usize| PI * (j as f64 + 0.5) / nodes as f64;
    let at = |j: usize| f((high - low) / 2.0 * angle(j).cos() + (low + high) / 2.0);
    let values: Vec<f64> = (0..nodes).map(at).collect();
    let coefficient = |i: usize| {
        let terms = values.iter().enumerate();
        let sum: f64 = terms.map(|(j, f)| f * (i as f64 * angle(j)).cos()).sum();
        sum * if i == 0 { 1.0 } else { 2.0 } / nodes as f64
    };
    Polynomial::chebyshev((0..nodes).map(coefficient).collect(), low, high)
}

#[cfg(test)]
mod tests {
    use hushed_ckks::CkksParams;
    use hushed_ckks::poly::Arithmetic;
    use hushed_fhe::Simulator;
    use hushed_fhe::simulate::{Op, Vector};

    use super::*;

    const SLOTS: usize = 16;

    fn simulator() -> Simulator {
        Simulator::new(&CkksParams::n16_boot().unwrap(), SLOTS).unwrap()
    }

    /// No two are equal.
    fn column(on: &Simulator, c: usize) -> Vector {
        on.vector((0..SLOTS).map(|slot| entry(slot, c)).collect(), on.top()).unwrap()
    }

    fn entry(slot: usize, c: usize) -> f64 {
        ((slot * 16 + c + 1) * 7919 % 10_007) as f64 / 10_007.0
    }

    fn map(weights: &[f64], columns: usize) -> LinearMap {
        LinearMap { rows: weights.len() / columns, columns, weights: weights.to_vec(), bound: 1.0, bias: None }
    }

    #[test]
    fn algorithm_one_is_the_product_and_shows_how_many_weights_are_zero() {
        for (weights, additions) in [([1.0, -1.0, 0.0, -1.0, 1.0, 1.0], 5), ([0.0, 0.0, -1.0, 0.0, 0.0, 0.0], 1)] {
            let on = simulator();
            let columns: Vec<Vector> = (0..3).map(|c| column(&on, c)).collect();
            let found = pcmm(&on, &map(&weights, 3), &columns.iter().collect::<Vec<_>>()).unwrap();
            // Two for the zeros that sums begin with.
            assert_eq!(on.tally().counts().total(Op::Add), 2 + additions);
            for (row, found) in weights.chunks(3).zip(&found) {
                for (slot, found) in found.values().iter().enumerate() {
                    let terms = row.iter().enumerate();
                    let want: f64 = terms.map(|(c, w)| w * entry(slot, c)).sum();
                    assert!((found - want).abs() < 1e-9, "{slot}: {found} {want}");
                }
            }
        }
    }

    /// Neighbouring slots are neighbouring columns of a token if its row is in one vector. In columns they are
    /// neighbouring tokens: column 0 should meet column 1, but meets itself at the tokens beside.
    #[test]
    fn algorithm_two_turns_rows_but_in_columns_tokens() {
        let rows = |slot: usize| (slot / 4) as f64 * 0.3_f64.powi((slot % 4 / 2) as i32);
        let columns = |slot: usize| slot as f64;
        for angle in [&rows as &dyn Fn(usize) -> f64, &columns] {
            let on = simulator();
            let of = |f: fn(f64) -> f64| -> Vec<f64> { (0..SLOTS).map(|s| f(angle(s))).collect() };
            let q = column(&on, 0);
            let found = rope(&on, &q, &of(f64::cos), &of(f64::sin)).unwrap();
            assert_eq!(on.limbs(&q) - on.limbs(&found), 2);
            assert_eq!(on.tally().counts().total(Op::Rotate), 2);
            for (slot, &found) in found.values().iter().enumerate() {
                let (sin, cos) = angle(slot).sin_cos();
                let beside = match slot % 2 {
                    0 => -entry(slot + 1, 0),
                    _ => entry(slot - 1, 0),
                };
                let printed = entry(slot, 0) * cos + beside * sin;
                assert!((found - printed).abs() < 1e-9, "{slot}");
                // What column 0 should become in columns, unless it is not turned.
                let right = entry(slot, 0) * cos - entry(slot, 1) * sin;
                assert!(sin == 0.0 || (found - right).abs() > 1e-3, "{slot}");
            }
        }
    }

    #[test]
    fn algorithm_three_normalises_within_its_interval() {
        let on = simulator();
        let roots = roots(60, (0.1, 8.0)).unwrap();
        let columns: Vec<Vector> = (0..5).map(|c| column(&on, c)).collect();
        let gain = [1.0, 0.5, 2.0, -1.0, 1.5];
        let at = StepId::outside("norm");
        let (found, levels) = rms_norm(&on, at, &columns, &gain, &roots).unwrap();
        // Square, mean, map to [−1, 1] and a polynomial of degree 60; the last two again, and two products.
        assert_eq!(levels, [2 + 7, 7 + 2]);
        assert_eq!(on.tally().counts().total(Op::Bootstrap), 1);
        for slot in 0..SLOTS {
            let square = (0..5).map(|c| entry(slot, c).powi(2)).sum::<f64>() / 5.0;
            assert!(square > 0.1);
            for (c, found) in found.iter().enumerate() {
                let want = gain[c] * entry(slot, c) / square.sqrt();
                let found = found.values()[slot];
                assert!((found - want).abs() < 1e-6, "{slot} {c}: {found} {want}");
            }
        }
    }

    /// With the first coefficient as printed, all values are off by half of it.
    #[test]
    fn a_series_needs_half_of_the_first_coefficient() {
        let cubic = |x: f64| 1.0 + x * (2.0 - x * x);
        let series = series(cubic, 3, (-1.0, 3.0)).unwrap();
        for x in [-1.0, 0.2, 2.9] {
            assert!((series.eval(x) - cubic(x)).abs() < 1e-9, "{x}");
        }
    }
}
