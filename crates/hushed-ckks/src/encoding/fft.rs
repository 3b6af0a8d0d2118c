//! The canonical embedding: slots z_j = m(ζ^(5^j)), ζ = e^(iπ/N), in O(n log n).
//!
//! With n = N/2 and ζ^(N/2·5^j) = i, a real polynomial m is represented by the complex w_k = m_k + i·m_(k+n), k < n,
//! and z_j = Σ_k w_k·ζ^(5^j·k), a transform of length n over the orbit of 5 (Cheon, Han, Kim, Kim and Song, SAC 2018,
//! Algorithm 1). Butterflies of length `len` use the roots of order 4·len at 5^j, j < len/2. A message with period m <
//! n is a polynomial in X^(n/m), and the same tables serve its shorter transform.

use num_complex::Complex64;

use super::roots::roots_of_unity;

/// Tables for n slots and every smaller power of two.
pub(super) struct SlotTransform {
    n: usize,
    /// Roots for the layer of length 2h, at h − 1 .. 2h − 1.
    twiddles: Vec<Complex64>,
}

impl SlotTransform {
    /// Tables for `n` slots, a power of two.
    pub(super) fn new(n: usize) -> Self {
        let order = 4 * n.max(1);
        let roots = roots_of_unity(order);
        let mut twiddles = Vec::with_capacity(n);
        let mut half = 1;
        while half < n {
            let step = order / (8 * half);
            let mask = 8 * half - 1;
            let mut power = 1;
            for _ in 0..half {
                twiddles.push(roots[power * step]);
                power = (power * 5) & mask;
            }
            half *= 2;
        }
        Self { n, twiddles }
    }

    /// Coefficients w to slots z, in place; the length is a power of two up to n.
    pub(super) fn forward(&self, values: &mut [Complex64]) {
        debug_assert!(values.len().is_power_of_two() && values.len() <= self.n);
        reverse_order(values);
        let mut half = 1;
        while half < values.len() {
            let twiddles = &self.twiddles[half - 1..2 * half - 1];
            for block in values.chunks_exact_mut(2 * half) {
                let (low, high) = block.split_at_mut(half);
                for ((x, y), t) in low.iter_mut().zip(high).zip(twiddles) {
                    let (u, v) = (*x, *y * t);
                    *x = u + v;
                    *y = u - v;
                }
            }
            half *= 2;
        }
    }

    /// Slots z to coefficients w, in place.
    pub(super) fn inverse(&self, values: &mut [Complex64]) {
        debug_assert!(values.len().is_power_of_two() && values.len() <= self.n);
        let mut half = values.len() / 2;
        while half > 0 {
            let twiddles = &self.twiddles[half - 1..2 * half - 1];
            for block in values.chunks_exact_mut(2 * half) {
                let (low, high) = block.split_at_mut(half);
                for ((x, y), t) in low.iter_mut().zip(high).zip(twiddles) {
                    let (u, v) = (*x, *y);
                    *x = u + v;
                    *y = (u - v) * t.conj();
                }
            }
            half /= 2;
        }
        reverse_order(values);
        let inverse = 1.0 / values.len() as f64;
        for value in values {
            *value *= inverse;
        }
    }
}

/// Swaps each element with the one at its bit-reversed index.
fn reverse_order(values: &mut [Complex64]) {
    let bits = values.len().trailing_zeros();
    for i in 0..values.len() {
        let j = hushed_math::ntt::reverse_bits(i, bits);
        if i < j {
            values.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_evaluations_at_powers_of_five() {
        let n = 32;
        let transform = SlotTransform::new(n);
        let roots = roots_of_unity(4 * n);
        let w: Vec<Complex64> = (0..n).map(|k| Complex64::new((k as f64).sin(), (3.0 * k as f64).cos())).collect();
        let mut z = w.clone();
        transform.forward(&mut z);
        let mut power = 1;
        for (j, z) in z.iter().enumerate() {
            let direct: Complex64 = w.iter().enumerate().map(|(k, w)| w * roots[power * k % (4 * n)]).sum();
            assert!((z - direct).norm() < 1e-12, "slot {j}");
            power = power * 5 % (4 * n);
        }
        transform.inverse(&mut z);
        assert!(z.iter().zip(&w).all(|(x, y)| (x - y).norm() < 1e-13));
    }
}
