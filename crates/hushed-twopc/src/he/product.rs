//! Leaves: sums over β of encrypted blocks times multiplier blocks, in evaluation form.
//!
//! leaf(p, α, γ) = Σ_β ct(p, α, β) · NTT(πrhs(V_p[β, γ])). Multipliers are transformed on the fly from integers unless
//! they are held ready. Work is ordered so that what is used again is still in the second-level cache: for one
//! prime, a few blocks β of all rows α meet the multipliers of many columns γ in turn ([`RESIDENT`]), strip by strip ([`STRIP`]).
//!
//! Every block is transformed and multiplied whatever its values are: weights and shares are secrets. Only the
//! coefficients that the packing leaves empty are skipped.

use super::window::OltPlan;
use hushed_math::RnsBasis;
use hushed_rlwe::{Ciphertext, RlweParams};
use rayon::prelude::*;
use std::ops::Range;
use zeroize::Zeroizing;

/// Words of multipliers and ciphertexts that are handled together: 2 MiB, a second-level cache.
const RESIDENT: usize = 1 << 18;

/// Words of a limb that are multiplied with all that they meet before the next are touched: with up to 8 multiplier limbs,
/// 32 KiB of a first-level cache.
const STRIP: usize = 512;

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
    let (kb, mb, _) = plan.blocks();
    let (pointwise, degree) = (basis.plan(limb).pointwise(), plan.degree());
    // Of each β: one multiplier limb, and both parts of k' ciphertexts.
    let together = (RESIDENT / degree / (2 * kb + 1)).clamp(1, mb);
    let mut integers = Zeroizing::new(vec![0i64; super::encode::right_prefix(plan.window())]);
    let mut buffer = Zeroizing::new(vec![0u64; together * degree]);
    for first in (0..mb).step_by(together) {
        let betas = first..(first + together).min(mb);
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
            // (accumulator, the ciphertext limbs that it sums)
            let mut rows: Vec<(&mut [u64], Vec<&[u64]>)> =
                Vec::with_capacity(2 * column.sums.len());
            for (alpha, sum) in &mut column.sums {
                let cts = &inputs[plan.inputs_of(p, *alpha)][betas.clone()];
                rows.push((
                    sum.b.limb_mut(limb),
                    cts.iter().map(|ct| ct.b.limb(limb)).collect(),
                ));
                rows.push((
                    sum.a.limb_mut(limb),
                    cts.iter().map(|ct| ct.a.limb(limb)).collect(),
                ));
            }
            for start in (0..degree).step_by(STRIP) {
                let strip = start..(start + STRIP).min(degree);
                let factors: Vec<&[u64]> = factors.iter().map(|f| &f[strip.clone()]).collect();
                for (sum, cts) in &mut rows {
                    let cts: Vec<&[u64]> = cts.iter().map(|c| &c[strip.clone()]).collect();
                    pointwise.dot_assign(&mut sum[strip.clone()], &cts, &factors);
                }
            }
        }
    }
}

/// The transform modulo prime `limb` of a polynomial whose first coefficients are `integers` and whose others are zero.
pub(crate) fn transform(basis: &RnsBasis, limb: usize, integers: &[i64], out: &mut [u64]) {
    let modulus = basis.modulus(limb);
    for (residue, &x) in out.iter_mut().zip(integers) {
        *residue = modulus.reduce_signed(x);
    }
    basis.plan(limb).forward_prefix(out, integers.len());
}
