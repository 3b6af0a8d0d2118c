//! Inputs and outputs of the products: multipliers in the clear, and leaves.

use hushed_math::{Coeff, PointMatrix, Pointwise, RnsPoly};
use hushed_rlwe::{Ciphertext, RlweParams};
use std::ops::Range;
use zeroize::{Zeroizing, optimization_barrier};

/// The matrix in the clear, cut into blocks.
pub(crate) trait Multiplier: Sync {
    /// Public bound: no coefficient is above 2^`bits` in magnitude.
    fn bits(&self) -> u32;

    /// Writes the coefficients of πrhs of block (β, γ) of product `p`: the first [`crate::he::encode::right_prefix`] of
    /// them.
    fn block(&self, p: usize, beta: usize, gamma: usize, out: &mut [i64]);

    /// Writes the coefficients of several inner blocks β of a column, if they have at most 30 bits: `prefix` of each,
    /// starting `stride` words after those of the previous block.
    fn blocks(&self, p: usize, betas: Range<usize>, gamma: usize, (prefix, stride): (usize, usize), out: &mut [i32]) {
        let mut wide = Zeroizing::new(vec![0; prefix]);
        for (beta, out) in betas.zip(out.chunks_mut(stride)) {
            self.block(p, beta, gamma, &mut wide);
            out.iter_mut().zip(&wide[..]).for_each(|(out, &v)| *out = v as i32);
        }
    }

    /// Reduces coefficients modulo a prime.
    fn residues(&self, pointwise: &Pointwise, out: &mut [u64], integers: &[i64]) {
        match self.bits() < pointwise.modulus().bits() {
            true => pointwise.lift_signed(out, integers),
            false => pointwise.reduce_signed(out, integers),
        }
    }

    /// The block's transform modulo prime `limb`, if it is held ready.
    fn values(&self, _p: usize, _beta: usize, _gamma: usize, _limb: usize) -> Option<&[u64]> {
        None
    }

    /// All blocks of all products modulo prime `limb`, γ by β, by their values at the points of blocks, if they are
    /// held ready.
    fn points(&self, _limb: usize) -> Option<&PointMatrix> {
        None
    }
}

/// A sum of products, in coefficients.
#[derive(Clone)]
pub(crate) struct Leaf {
    /// Of b only the coefficients at multiples of mw, per prime: the others are never sent, and the tree cancels their
    /// part of the phase along with everything else that is not wanted.
    pub(crate) b: Vec<Vec<u64>>,
    /// All of a.
    pub(crate) a: RnsPoly<Coeff>,
}

impl Leaf {
    /// self ← self + other.
    pub(crate) fn add_assign(&mut self, params: &RlweParams, other: &Leaf) {
        self.a.add_assign(&other.a);
        for (limb, (b, other)) in self.b.iter_mut().zip(&other.b).enumerate() {
            params.basis().ntt(limb).pointwise().add_assign(b, other);
        }
    }

    /// Takes what is needed of the sum `ct`, which is held by values.
    pub(crate) fn of_values(params: &RlweParams, ct: Ciphertext, mw: usize) -> Leaf {
        let wanted = |(id, values): (usize, &[u64])| {
            let mut wanted = vec![0; values.len() / mw];
            params.basis().every(id, mw).take(values, 0, &mut wanted);
            wanted
        };
        Leaf { b: ct.b.limbs().map(wanted).collect(), a: ct.a.into_coeff() }
    }
}

/// Writes zeros. Not by `zeroize`, which writes each number of a vector, and then each byte, separately.
pub(in crate::he) fn erase(numbers: &mut [i32]) {
    numbers.fill(0);
    optimization_barrier(numbers);
}
