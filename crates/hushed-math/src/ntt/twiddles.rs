//! The factors of a transform.

use super::reverse_bits;
use crate::modulus::Modulus;

/// The powers by which butterflies multiply: entry k of `forward` is ψ^rev(k), of `inverse` ψ^−rev(k). Layer ℓ of the
/// forward transform, with 2^ℓ blocks, uses entries 2^ℓ .. 2^(ℓ+1), one per block; the inverse the same in reverse.
pub(crate) struct Twiddles {
    pub(crate) forward: Vec<u64>,
    pub(crate) inverse: Vec<u64>,
    /// n^−1 mod q.
    pub(crate) scale: u64,
}

impl Twiddles {
    pub(super) fn new(n: usize, modulus: &Modulus, psi: u64) -> Twiddles {
        let log_n = n.trailing_zeros();
        let powers = |root: u64| {
            let mut table = vec![1; n];
            let mut power = 1;
            for i in 0..n {
                table[reverse_bits(i, log_n)] = power;
                power = modulus.mul(power, root);
            }
            table
        };
        // ψ^(2n−1) = ψ^−1, and n^−1 = −(q−1)/n since n·(q−1)/n = −1.
        let inverse = powers(modulus.pow(psi, 2 * n as u64 - 1));
        let scale = modulus.neg((modulus.value() - 1) / n as u64);
        Twiddles { forward: powers(psi), inverse, scale }
    }
}
