//! Sums over the places of a text in packed rows, for statistics (docs/one-text.md).
//!
//! Adding rotations by 1, 2, 4 … sums each aligned block of places at its first place; the other places mix in the next
//! block. A mask removes those, and rotations the other way copy the sum over the whole block; they mix nothing in, as
//! all other places are zero.

use super::{Layout, PackingError};
use crate::{FheError, Slots};

/// 1 at places where sums are correct, 0 elsewhere.
pub type Firsts<'a> = dyn Fn(usize) -> f64 + 'a;

/// Sums each aligned block of `length` places into all places of the block, one level below `x`, with twice
/// log2(`length`) rotations. `masked` multiplies the sums by the mask it is given, and may include a factor per slot
/// that is the same throughout a block.
///
/// # Errors
/// [`PackingError::Mismatch`] unless `length` is a power of two and at most the places of a row; too few levels, and
/// those of the arithmetic.
pub fn over_places<S: Slots>(
    on: &S,
    layout: Layout,
    x: &S::Value,
    length: usize,
    masked: impl FnOnce(&S::Value, &Firsts<'_>) -> Result<S::Value, FheError>,
) -> Result<S::Value, FheError> {
    if !length.is_power_of_two() || length > layout.columns() {
        return Err(PackingError::Mismatch.into());
    }
    let steps = (0..length.trailing_zeros()).map(|k| 1_usize << k);
    let sum = doubled(on, x.clone(), steps.clone())?;
    let first = |place: usize| f64::from(u8::from(place.is_multiple_of(length)));
    let masked = masked(&sum, &first)?;
    doubled(on, masked, steps.map(|step| layout.slots() - step))
}

/// Sums the squares of all columns of a row into all its places, two levels below the vectors of pairs `x`, which are
/// zero in places without columns. For centred columns this gives the variance of a norm. `masked` is as in
/// [`over_places`].
///
/// # Errors
/// [`PackingError::Mismatch`] if there are no vectors, and as [`over_places`].
pub fn squares<S: Slots>(
    on: &S,
    layout: Layout,
    x: &[S::Value],
    masked: impl FnOnce(&S::Value, &Firsts<'_>) -> Result<S::Value, FheError>,
) -> Result<S::Value, FheError> {
    let conjugates = x.iter().map(|z| Ok(vec![on.conjugate(z)?]));
    let conjugates = conjugates.collect::<Result<Vec<_>, FheError>>()?;
    let x: Vec<Vec<S::Value>> = x.iter().map(|z| vec![z.clone()]).collect();
    let mut grid = on.dot_grid(&x, &conjugates)?;
    let sum = grid.pop().and_then(|mut row| row.pop());
    let sum = sum.ok_or(PackingError::Mismatch)?;
    // Taking real parts doubles the scale and removes the imaginary part of the errors.
    let sum = on.real(&sum)?;
    over_places(on, layout, &sum, layout.columns(), masked)
}

/// x plus its rotation by the first step, then that plus its rotation by the next step, and so on.
fn doubled<S: Slots>(on: &S, mut x: S::Value, steps: impl Iterator<Item = usize>) -> Result<S::Value, FheError> {
    for step in steps {
        let turned = on.rotate(&x, step)?;
        on.add_assign(&mut x, &turned)?;
    }
    Ok(x)
}

#[cfg(test)]
mod tests {
    use hushed_ckks::CkksParams;
    use hushed_ckks::poly::Arithmetic as _;
    use hushed_math::rng::splitmix::SplitMix;

    use super::*;
    use crate::simulate::{Op, Simulator, Vector};

    fn random(count: usize, seed: u64) -> Vec<f64> {
        let mut rng = SplitMix(seed);
        let one = |_| (rng.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        (0..count).map(one).collect()
    }

    /// A quarter of the sums, at the places where they are correct.
    fn quarter(on: &Simulator) -> impl Fn(&Vector, &Firsts<'_>) -> Result<Vector, FheError> {
        move |sum, first| {
            let mask: Vec<f64> = (0..on.slots()).map(|slot| 0.25 * first(slot % 32)).collect();
            on.mul_vector(sum, &mask, on.default_scale())
        }
    }

    #[test]
    fn sums_are_those_of_the_definition_in_every_slot() {
        let params = CkksParams::insecure_test(11, 4).unwrap();
        let on = Simulator::new(&params, params.slots()).unwrap();
        let layout = Layout::new(params.slots(), 16, 32).unwrap();
        let x = random(layout.slots(), 1);
        let vector = on.vector(x.clone(), on.top()).unwrap();
        for length in [1, 8, 32] {
            on.tally().reset();
            let sums = over_places(&on, layout, &vector, length, quarter(&on)).unwrap();
            assert_eq!(on.limbs(&sums), on.top() - 1);
            let rotations = on.tally().counts().total(Op::Rotate);
            assert_eq!(rotations, 2 * u64::from(length.trailing_zeros()));
            for (slot, found) in sums.values().iter().enumerate() {
                let first = slot / length * length;
                let expected: f64 = x[first..first + length].iter().sum();
                assert!((found - 0.25 * expected).abs() < 1e-12);
            }
        }
        assert!(over_places(&on, layout, &vector, 64, quarter(&on)).is_err());
        assert!(over_places(&on, layout, &vector, 3, quarter(&on)).is_err());
    }

    #[test]
    fn squares_of_pairs_are_summed_over_a_row() {
        let params = CkksParams::insecure_test(11, 4).unwrap();
        let on = Simulator::new(&params, params.slots()).unwrap();
        let layout = Layout::new(params.slots(), 16, 32).unwrap();
        let x: Vec<Vec<f64>> = (0..4).map(|i| random(layout.slots(), i)).collect();
        let pair = |i: usize| {
            let [a, b] = [&x[i], &x[i + 1]].map(|x| on.vector(x.clone(), on.top()).unwrap());
            on.pair(a, b).unwrap()
        };
        let sums = squares(&on, layout, &[pair(0), pair(2)], quarter(&on)).unwrap();
        assert_eq!(on.limbs(&sums), on.top() - 2);
        for (slot, found) in sums.values().iter().enumerate() {
            let first = slot / 32 * 32;
            let all = x.iter().flat_map(|x| &x[first..first + 32]);
            let expected: f64 = all.map(|v| v * v).sum();
            assert!((found - 0.25 * expected).abs() < 1e-12);
        }
        assert!(squares(&on, layout, &[], quarter(&on)).is_err());
    }
}
