//! Random weights in realistic ranges, for when no checkpoint is available or wanted.
//!
//! Matrices are uniform with standard deviation 0.8/√inputs (0.04 at 384 inputs; published BERT encoders: 0.03 to
//! 0.06), so that activations have the same size at every width. Gains are near 1, everything else is small. The
//! numbers come from SplitMix64 (Steele, Lea, Flood 2014): they are public test data, not secrets. This crate imports
//! no other, so it has its own eight lines, like `hushed_math::rng::splitmix`; golden files depend on the sequence.

use std::convert::Infallible;

use super::reader::Source;
use crate::arch::config::WeightScale;

/// A source of tensors with random numbers.
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A uniform number with this mean and standard deviation.
    fn around(&mut self, mean: f32, deviation: f32) -> f32 {
        let unit = (self.next_u64() >> 40) as f32 / (1u64 << 24) as f32; // [0, 1)
        mean + deviation * (unit - 0.5) * 12f32.sqrt()
    }

    /// Random numbers for the tensor `name`.
    pub(crate) fn numbers(&mut self, name: &str, shape: &[usize]) -> Vec<f32> {
        const GAINS: [&str; 14] = [
            "LayerNorm.weight",
            "layernorm.weight",
            "layernorm_before.weight",
            "layernorm_after.weight",
            "norm.weight",
            "layer_norm.weight",
            "layrnorm.weight",
            "layer_norm1.weight",
            "layer_norm2.weight",
            "norm1.weight",
            "norm2.weight",
            "ln_1.weight",
            "ln_2.weight",
            "ln_f.weight",
        ];
        let (mean, deviation) = match (name, shape) {
            (n, _) if GAINS.iter().any(|gain| n.ends_with(gain)) => (0.9, 0.1),
            (_, &[_, channels, rows, columns]) => (0.0, 0.8 / ((channels * rows * columns) as f32).sqrt()),
            (n, _) if n.starts_with("embeddings.") => (0.0, 0.04),
            ("wte.weight" | "wpe.weight" | "lm_head.weight" | "embed_tokens.weight", _) => (0.0, 0.04),
            // GPT-2 stores its matrices transposed.
            (n, &[inputs, _]) if n.starts_with("h.") => (0.0, 0.8 / (inputs as f32).sqrt()),
            (_, &[_, inputs]) => (0.0, 0.8 / (inputs as f32).sqrt()),
            _ => (0.0, 0.1),
        };
        (0..shape.iter().product()).map(|_| self.around(mean, deviation)).collect()
    }
}

impl Source for Random {
    type Error = Infallible;

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vec<f32>>, Infallible> {
        Ok(Some(self.numbers(name, shape)))
    }

    /// Values −s, 0 and s, a third each, with the same standard deviation.
    fn ternary(
        &mut self,
        _: &str,
        [outputs, inputs]: [usize; 2],
        _: WeightScale,
    ) -> Result<Option<Vec<f32>>, Infallible> {
        let scale = 0.8 * (1.5 / inputs as f32).sqrt();
        let sign = |_| (self.next_u64() % 3) as f32 - 1.0;
        Ok(Some((0..outputs * inputs).map(sign).map(|s| scale * s).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn ranges() {
        let numbers = Random::new(1).numbers("x.weight", &[250, 400]);
        let mean = numbers.iter().map(|&v| f64::from(v)).sum::<f64>() / 1e5;
        let variance = numbers.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 1e-3 && (variance.sqrt() - 0.04).abs() < 1e-3, "{mean} {variance}");
        assert_eq!(numbers, Random::new(1).numbers("y.weight", &[250, 400]));
    }
}
