//! Scalar and row functions in f64.

use std::ops::Range;

use crate::blocks::{Activation, QUICK_GELU, Weigh};

/// The exact function, up to a few units in the last place.
pub fn activation(f: Activation, x: f64) -> f64 {
    match f {
        Activation::Gelu => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::QuickGelu => x / (1.0 + (-QUICK_GELU * x).exp()),
        Activation::Relu => x.max(0.0),
        Activation::Relu2 => x.max(0.0).powi(2),
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Tanh => x.tanh(),
        Activation::Elu if x < 0.0 => x.exp_m1(),
        Activation::Elu => x,
    }
}

/// Turns a row of scores into weights over the keys that it sees; the others, which are masked, become 0.
pub fn weigh(row: &mut [f64], seen: Range<usize>, by: Weigh) {
    match by {
        Weigh::Softmax => softmax(row, seen),
        Weigh::Sigmoid { bias } => {
            only(row, seen).iter_mut().for_each(|s| *s = logistic(*s + bias));
        }
    }
}

/// The part of a row that is seen; the rest becomes 0.
fn only(row: &mut [f64], seen: Range<usize>) -> &mut [f64] {
    let end = seen.end.min(row.len());
    let start = seen.start.min(end);
    row[..start].fill(0.0);
    row[end..].fill(0.0);
    &mut row[start..end]
}

/// 1/(1 + e^{−x}).
fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Softmax over the part of a row of scores that is seen; the rest, which is masked, becomes 0.
pub fn softmax(row: &mut [f64], seen: Range<usize>) {
    let row = only(row, seen);
    // The maximum cancels; subtracting it keeps the exponentials within (0, 1].
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row.iter_mut().for_each(|v| *v = (*v - max).exp());
    let sum = row.iter().sum::<f64>();
    row.iter_mut().for_each(|v| *v /= sum);
}

/// Rounds a row to 8 bits as BitNet b1.58 does before a linear layer (Ma et al. 2024): to multiples of a 127th of its
/// largest magnitude, ties to even.
pub fn round_to_8_bits(row: &mut [f64]) {
    // The least magnitude is that of the published code.
    let largest = row.iter().fold(1e-5_f64, |m, v| m.max(v.abs()));
    let scale = 127.0 / largest;
    for v in row {
        *v = (*v * scale).round_ties_even().clamp(-128.0, 127.0) / scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of Φ from Abramowitz and Stegun, Table 26.1, times x.
    #[test]
    fn gelu_values() {
        for (x, phi) in [(0.5, 0.691_462_461_274_013), (1.0, 0.841_344_746_068_543), (2.0, 0.977_249_868_051_821)] {
            assert!((activation(Activation::Gelu, x) - x * phi).abs() < 1e-14);
            assert!((activation(Activation::Gelu, -x) + x * (1.0 - phi)).abs() < 1e-14);
            assert!((activation(Activation::GeluTanh, x) - x * phi).abs() < 5e-4);
        }
        assert_eq!(activation(Activation::Gelu, -50.0), -0.0);
        assert_eq!(activation(Activation::Gelu, 50.0), 50.0);
        assert_eq!((activation(Activation::Relu, -1.0), activation(Activation::Relu, 2.0)), (0.0, 2.0));
        assert_eq!(activation(Activation::Relu2, -1.5), 0.0);
        assert_eq!(activation(Activation::Relu2, 1.5), 2.25);
    }

    /// σ(1) from a table of constants; masked keys have no weight at all.
    #[test]
    fn sigmoid_weights_stand_alone() {
        let mut row = [3.0, 800.0, -800.0, 5.0];
        weigh(&mut row, 0..3, Weigh::Sigmoid { bias: -2.0 });
        assert!((row[0] - 0.731_058_578_630_004_9).abs() < 1e-15);
        assert_eq!(row[1..], [1.0, 0.0, 0.0]);
    }

    /// Values of σ(1), σ(1.702), tanh 1 and 1/e from tables of constants.
    #[test]
    fn the_other_activations() {
        for (f, x, y) in [
            (Activation::Silu, 1.0, 0.731_058_578_630_004_9),
            (Activation::Silu, -1.0, 0.731_058_578_630_004_9 - 1.0),
            (Activation::Silu, -800.0, -0.0),
            (Activation::Silu, 50.0, 50.0),
            (Activation::QuickGelu, 1.0, 0.845_795_765_9),
            (Activation::QuickGelu, -1.0, 0.845_795_765_9 - 1.0),
            (Activation::Tanh, 1.0, 0.761_594_155_955_764_9),
            (Activation::Tanh, -1.0, -0.761_594_155_955_764_9),
            (Activation::Elu, -1.0, 0.367_879_441_171_442_3 - 1.0),
            (Activation::Elu, -99.0, -1.0),
            (Activation::Elu, 3.5, 3.5),
        ] {
            let found = activation(f, x);
            assert!((found - y).abs() < 1e-10, "{f:?}({x}) = {found}");
        }
    }

    /// A scale of 1, ties, and a row too small for a scale of its own.
    #[test]
    fn rows_of_8_bits() {
        let mut row = [-127.0, 2.5, -3.5, 0.5, 126.4, 0.0];
        round_to_8_bits(&mut row);
        assert_eq!(row, [-127.0, 2.0, -4.0, 0.0, 126.0, 0.0]);
        let mut row = [3.0, 1.0];
        round_to_8_bits(&mut row);
        assert!((row[0] - 3.0).abs() < 1e-15 && (row[1] - 3.0 * 42.0 / 127.0).abs() < 1e-15);
        let mut row = [1e-8, -1e-7, 0.0];
        round_to_8_bits(&mut row);
        assert!(row[0] == 0.0 && (row[1] + 1e-5 / 127.0).abs() < 1e-20 && row[2] == 0.0);
        round_to_8_bits(&mut []);
    }

    #[test]
    fn softmax_ignores_padding_and_large_scores() {
        let mut row = [1000.0, 1000.0 + 3f64.ln(), 9999.0];
        softmax(&mut row, 0..2);
        assert!((row[0] - 0.25).abs() < 1e-12 && (row[1] - 0.75).abs() < 1e-12);
        assert_eq!(row[2], 0.0);
        let mut row = [7.0, 3.0, 3.0, 9999.0];
        softmax(&mut row, 1..3);
        assert_eq!(row, [0.0, 0.5, 0.5, 0.0]);
        softmax(&mut row, 4..4);
        assert_eq!(row, [0.0; 4]);
    }
}
