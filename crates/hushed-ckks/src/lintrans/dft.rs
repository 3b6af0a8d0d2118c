//! The map between slots and coefficients as a product of a few sparse matrices.
//!
//! Slot j of a polynomial is its value at ζ^(5^j), ζ = exp(πi/N). With t_k = m_k + i·m_(k+n), n = N/2 slots, the slots
//! are U·t, U\[j\]\[k\] = ζ^(5^j·k), and U = L_n·…·L_4·L_2·R, where R reverses the bits of the index and L_m is a layer
//! of butterflies on blocks of m,
//!
//! ```text
//! (x, y) at distance m/2  →  (x + w_j·y, x − w_j·y),   w_j = exp(2πi·5^j/4m), j the position in the half block
//! ```
//!
//! (the special transform of Cheon, Han, Kim, Kim and Song, EUROCRYPT 2018; factored as by Chen, Chillotti and Song,
//! EUROCRYPT 2019). SlotsToCoeffs is U·R and CoeffsToSlots R·U^(−1): the two reversals cancel as long as everything
//! between the maps treats all slots alike. Neighbouring layers are merged into one matrix: k layers from L_m on have
//! at most 2^(k+1) − 1 diagonals, at multiples of m/2, with the period 2^(k−1)·m of the last layer.

use std::f64::consts::PI;

use num_complex::Complex64;

use crate::lintrans::{Diagonals, LinTransError};

/// The direction of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Slots z → the polynomial whose coefficients are z (in bit-reversed order).
    SlotsToCoeffs,
    /// The inverse.
    CoeffsToSlots,
}

/// The factors in order of application, in the clear, before encoding.
#[derive(Clone, Debug)]
pub struct DftFactors {
    factors: Vec<Diagonals>,
}

impl DftFactors {
    /// The map for `slots` slots times `constant`, of which each factor takes an equal root. `layers` is the number of
    /// butterfly layers of each factor in order of application, log2(slots) in total.
    ///
    /// # Errors
    /// [`LinTransError::Dimension`] if `slots` is not a power of two, [`LinTransError::Layers`] if the layers do not
    /// add up or a factor has none.
    pub fn new(direction: Direction, slots: usize, layers: &[usize], constant: f64) -> Result<Self, LinTransError> {
        Diagonals::new(slots)?;
        let total = slots.trailing_zeros() as usize;
        if layers.iter().sum::<usize>() != total || layers.contains(&0) || layers.is_empty() {
            return Err(LinTransError::Layers { layers: layers.to_vec(), total });
        }
        let share = constant.abs().powf(1.0 / layers.len() as f64);
        let sign = constant.signum();
        let mut done = 0;
        let mut factors = Vec::with_capacity(layers.len());
        for (index, &count) in layers.iter().enumerate() {
            let mut merged: Option<Diagonals> = None;
            for step in done..done + count {
                let layer = match direction {
                    Direction::SlotsToCoeffs => layer(direction, slots, 2 << step)?,
                    Direction::CoeffsToSlots => layer(direction, slots, slots >> step)?,
                };
                merged = Some(match merged {
                    Some(before) => layer.after(&before)?,
                    None => layer,
                });
            }
            done += count;
            if let Some(mut factor) = merged {
                let sign = if index == 0 { sign } else { 1.0 };
                factor.scale(Complex64::new(sign * share, 0.0));
                factors.push(factor);
            }
        }
        Ok(Self { factors })
    }

    /// Splits the log2(`slots`) layers into `count` nearly equal groups. The excess goes to the end with the layer over
    /// all slots, whose diagonals wrap around and are therefore fewer.
    pub fn even_layers(direction: Direction, slots: usize, count: usize) -> Vec<usize> {
        let total = slots.trailing_zeros() as usize;
        let count = count.clamp(1, total.max(1));
        let mut layers = vec![total / count; count];
        for i in 0..total % count {
            layers[count - 1 - i] += 1;
        }
        if direction == Direction::CoeffsToSlots {
            layers.reverse();
        }
        layers
    }

    /// The matrices in order of application.
    pub fn factors(&self) -> &[Diagonals] {
        &self.factors
    }

    /// The whole map in the clear.
    ///
    /// # Errors
    /// [`LinTransError::Length`].
    pub fn apply(&self, x: &[Complex64]) -> Result<Vec<Complex64>, LinTransError> {
        self.factors.iter().try_fold(x.to_vec(), |x, factor| factor.apply(&x))
    }
}

/// L_m, or its inverse for CoeffsToSlots, with period m.
fn layer(direction: Direction, slots: usize, m: usize) -> Result<Diagonals, LinTransError> {
    let half = m / 2;
    let one = Complex64::new(1.0, 0.0);
    let mut power = 1_usize;
    let twiddles: Vec<Complex64> = (0..half)
        .map(|_| {
            let w = Complex64::from_polar(1.0, 2.0 * PI * power as f64 / (4 * m) as f64);
            power = power * 5 % (4 * m);
            w
        })
        .collect();
    let zero = vec![Complex64::ZERO; half];
    let join = |low: Vec<Complex64>, high: Vec<Complex64>| [low, high].concat();
    // Row j < half, then row j + half.
    let (main, above, below) = match direction {
        Direction::SlotsToCoeffs => {
            (join(vec![one; half], twiddles.iter().map(|w| -w).collect()), twiddles.clone(), vec![one; half])
        }
        Direction::CoeffsToSlots => {
            let halved: Vec<_> = twiddles.iter().map(|w| w.conj() * 0.5).collect();
            (join(vec![one * 0.5; half], halved.iter().map(|w| -w).collect()), vec![one * 0.5; half], halved)
        }
    };
    let mut layer = Diagonals::new(slots)?;
    layer.set(0, main)?;
    if m == slots {
        // Half the slots up is the same as half the slots down: one diagonal.
        layer.set(half as i64, join(above, below))?;
    } else {
        layer.set(half as i64, join(above, zero.clone()))?;
        layer.set(-(half as i64), join(zero, below))?;
    }
    Ok(layer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{distance, random};
    use hushed_math::rng::SecretRng;
    use proptest::prelude::*;

    fn reversed(x: &[Complex64]) -> Vec<Complex64> {
        let bits = x.len().trailing_zeros();
        (0..x.len()).map(|i| x[hushed_math::ntt::reverse_bits(i, bits)]).collect()
    }

    /// U·t by its definition.
    fn dense(t: &[Complex64]) -> Vec<Complex64> {
        let n = t.len();
        let mut power = 1_usize;
        (0..n)
            .map(|_| {
                let value = t
                    .iter()
                    .enumerate()
                    .map(|(k, t)| {
                        let exponent = (power * k) % (4 * n);
                        t * Complex64::from_polar(1.0, PI * exponent as f64 / (2 * n) as f64)
                    })
                    .sum();
                power = power * 5 % (4 * n);
                value
            })
            .collect()
    }

    fn vector(slots: usize, seed: u64) -> Vec<Complex64> {
        random(&mut SecretRng::insecure_from_seed(seed), slots)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn factors_are_the_dense_map_up_to_bit_reversal(log in 1_usize..9, count in 1_usize..4, seed in any::<u64>()) {
            let slots = 1 << log;
            let z = vector(slots, seed);
            for direction in [Direction::SlotsToCoeffs, Direction::CoeffsToSlots] {
                let layers = DftFactors::even_layers(direction, slots, count);
                let map = DftFactors::new(direction, slots, &layers, 1.0).unwrap();
                prop_assert_eq!(map.factors().len(), count.min(log));
                let out = map.apply(&z).unwrap();
                let error = match direction {
                    Direction::SlotsToCoeffs => distance(&out, &dense(&reversed(&z))),
                    Direction::CoeffsToSlots => distance(&dense(&reversed(&out)), &z),
                };
                prop_assert!(error < 1e-10, "{direction:?}: {error}");
            }
        }
    }

    #[test]
    fn constants_are_shared_and_the_two_maps_cancel() {
        let slots = 64;
        let z = vector(slots, 5);
        let down = DftFactors::new(Direction::SlotsToCoeffs, slots, &[2, 2, 2], -0.125).unwrap();
        let up = DftFactors::new(Direction::CoeffsToSlots, slots, &[3, 3], 8.0).unwrap();
        let back = up.apply(&down.apply(&z).unwrap()).unwrap();
        let negated: Vec<_> = z.iter().map(|z| -z).collect();
        assert!(distance(&back, &negated) < 1e-12);
        // Each factor takes the same share of |constant|.
        let greatest = |m: &Diagonals| m.iter().flat_map(|(_, d)| d.iter().map(|x| x.norm())).fold(0.0, f64::max);
        for factor in down.factors() {
            assert!((greatest(factor) - 0.5).abs() < 1e-12);
        }
    }

    #[test]
    fn merged_layers_have_the_expected_diagonals_and_periods() {
        let slots = 1 << 12;
        let up = DftFactors::new(Direction::CoeffsToSlots, slots, &[4, 4, 4], 1.0).unwrap();
        let shape: Vec<_> = up.factors().iter().map(|m| (m.count(), m.period())).collect();
        assert_eq!(shape, [(16, 1 << 12), (31, 1 << 8), (31, 1 << 4)]);
        let steps = [256, 16, 1];
        for (factor, step) in up.factors().iter().zip(steps) {
            assert!(factor.offsets().iter().all(|k| k % step == 0));
        }
        let down = DftFactors::new(Direction::SlotsToCoeffs, slots, &[4, 4, 4], 1.0).unwrap();
        let counts: Vec<_> = down.factors().iter().map(Diagonals::count).collect();
        assert_eq!(counts, [31, 31, 16]);
    }

    #[test]
    fn layers_must_add_up() {
        for layers in [&[][..], &[5], &[3, 0, 1], &[1, 1]] {
            assert!(matches!(
                DftFactors::new(Direction::CoeffsToSlots, 16, layers, 1.0),
                Err(LinTransError::Layers { .. })
            ));
        }
    }
}
