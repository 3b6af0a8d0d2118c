//! Leaves: sums over β of encrypted blocks times multiplier blocks, in evaluation form.
//!
//! leaf(p, α, γ) = Σ_β ct(p, α, β) · NTT(πrhs(V_p[β, γ])). Multipliers are transformed on the fly from integers unless
//! they are held ready. Work is ordered so that what is used again is still in the second-level cache: for one
//! prime, [`BETAS`] ciphertext limbs meet the multipliers of many columns γ in turn.
//!
//! Every block is transformed and multiplied whatever its values are: weights and shares are secrets. Only the
//! coefficients that the packing leaves empty are skipped.

use super::window::OltPlan;
use hushed_math::RnsBasis;
use hushed_rlwe::{Ciphertext, RlweParams};
use rayon::prelude::*;
use std::ops::Range;
use zeroize::Zeroizing;

/// Blocks along m that are handled together: 8 multiplier limbs and 16 ciphertext limbs of N = 2^13 words are 1.5 MiB.
const BETAS: usize = 8;

/// The matrix in the clear, cut into blocks.
pub(crate) trait Multiplier: Sync {
    /// Writes the coefficients of πrhs of block (β, γ) of product `p`: the first [`super::encode::right_prefix`] ones.
    fn block(&self, p: usize, beta: usize, gamma: usize, out: &mut [i64]);

    /// The block's transform modulo prime `limb`, where it is held ready.
    fn ready(&self, _p: usize, _beta: usize, _gamma: usize, _limb: usize) -> Option<&[u64]> {
        None
    }
}

/// The leaves of `range`, in order, over the first `limbs` primes. `inputs[plan.inputs_of(p, α)]` are ct(p, α, β).
pub(crate) fn leaves(
    params: &RlweParams,
    plan: &OltPlan,
    limbs: usize,
    inputs: &[Ciphertext],
    multiplier: &impl Multiplier,
    range: Range<usize>,
) -> Vec<Ciphertext> {
    let mut columns: Vec<Column> = Vec::new();
    for leaf in range {
        let (p, alpha, gamma) = plan.leaf(leaf);
        let sum = (alpha, Ciphertext::zero(params, limbs));
        match columns.last_mut() {
            Some(c) if (c.p, c.gamma) == (p, gamma) => c.sums.push(sum),
            _ => columns.push(Column {
                p,
                gamma,
                sums: vec![sum],
            }),
        }
    }
    let threads = rayon::current_num_threads();
    let share = columns.len().div_ceil(threads).max(1);
    columns.par_chunks_mut(share).for_each(|columns| {
        for limb in 0..limbs {
            accumulate(params.basis(), plan, limb, inputs, multiplier, columns);
        }
    });
    columns
        .into_iter()
        .flat_map(|c| c.sums)
        .map(|(_, ct)| ct)
        .collect()
}

/// The leaves that share the multipliers of one column γ of product p.
struct Column {
    p: usize,
    gamma: usize,
    sums: Vec<(usize, Ciphertext)>,
}

fn accumulate(
    basis: &RnsBasis,
    plan: &OltPlan,
    limb: usize,
    inputs: &[Ciphertext],
    multiplier: &impl Multiplier,
    columns: &mut [Column],
) {
    let (_, mb, _) = plan.blocks();
    let (ntt, degree) = (basis.plan(limb), plan.degree());
    let mut integers = Zeroizing::new(vec![0i64; super::encode::right_prefix(plan.window())]);
    let mut buffer = Zeroizing::new(vec![0u64; BETAS * degree]);
    for first in (0..mb).step_by(BETAS) {
        let betas = first..(first + BETAS).min(mb);
        for column in columns.iter_mut() {
            let (p, gamma) = (column.p, column.gamma);
            for (beta, slot) in betas.clone().zip(buffer.chunks_exact_mut(degree)) {
                if multiplier.ready(p, beta, gamma, limb).is_some() {
                    continue;
                }
                multiplier.block(p, beta, gamma, &mut integers);
                transform(basis, limb, &integers, slot);
            }
            let factors: Vec<&[u64]> = betas
                .clone()
                .zip(buffer.chunks_exact(degree))
                .map(|(beta, slot)| multiplier.ready(p, beta, gamma, limb).unwrap_or(slot))
                .collect();
            for (alpha, sum) in &mut column.sums {
                let cts = &inputs[plan.inputs_of(p, *alpha)][betas.clone()];
                let b: Vec<&[u64]> = cts.iter().map(|ct| ct.b.limb(limb)).collect();
                ntt.pointwise()
                    .dot_assign(sum.b.limb_mut(limb), &b, &factors);
                let a: Vec<&[u64]> = cts.iter().map(|ct| ct.a.limb(limb)).collect();
                ntt.pointwise()
                    .dot_assign(sum.a.limb_mut(limb), &a, &factors);
            }
        }
    }
}

/// The transform modulo prime `limb` of a polynomial whose first coefficients are `integers` and whose others are zero.
pub(crate) fn transform(basis: &RnsBasis, limb: usize, integers: &[i64], out: &mut [u64]) {
    let modulus = basis.modulus(limb);
    let (head, tail) = out.split_at_mut(integers.len());
    for (residue, &x) in head.iter_mut().zip(integers) {
        *residue = modulus.reduce_signed(x);
    }
    tail.fill(0);
    basis.plan(limb).forward(out);
}
