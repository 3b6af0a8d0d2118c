//! Leaves by values of the whole degree.
//!
//! leaf(p, α, γ) = Σ_β ct(p, α, β) · NTT(πrhs(V_p[β, γ])). A product of limbs costs what it takes to fetch them, so the
//! work goes strip by strip of the values. πrhs has few leading coefficients, so one strip of its transform can be
//! computed alone; it is used at once, against the strips of the ciphertexts that all columns γ share. Each strip of
//! the sums is written once ([`RESIDENT`] permitting).

use super::leaf::Multiplier;
use crate::he::encode::right_prefix;
use crate::he::window::OltTiling;
use hushed_math::RnsBasis;
use hushed_rlwe::{Ciphertext, RlweParams};
use rayon::prelude::*;
use std::ops::Range;
use zeroize::Zeroizing;

/// Words of a strip, if the multipliers allow it: the strips of a sum and of a few factors stay in a first-level cache.
const STRIP: usize = 512;

/// Words of multiplier and ciphertext strips handled together: 1 MiB, half of a second-level cache.
const RESIDENT: usize = 1 << 17;

/// Words of multiplier residues held at a time, 8 MiB; at least those of one column.
const RESIDUES: usize = 1 << 20;

/// The leaves of `range`, in order, over the first `limbs` primes. `inputs[tiling.inputs_of(p, α)]` are ct(p, α, β).
pub(crate) fn leaves(
    params: &RlweParams,
    tiling: &OltTiling,
    limbs: usize,
    inputs: &[Ciphertext],
    multiplier: &impl Multiplier,
    range: Range<usize>,
) -> Vec<Ciphertext> {
    let mut columns: Vec<Column> = Vec::new();
    for leaf in range {
        let (p, alpha, gamma) = tiling.leaf(leaf);
        let sum = (alpha, Ciphertext::zero(params, limbs));
        match columns.last_mut() {
            Some(c) if (c.p, c.gamma) == (p, gamma) => c.sums.push(sum),
            _ => columns.push(Column { p, gamma, sums: vec![sum] }),
        }
    }
    let (_, mb, _) = tiling.blocks();
    let most = (RESIDUES / (mb * right_prefix(tiling.window()))).max(1);
    let share = columns.len().div_ceil(rayon::current_num_threads()).clamp(1, most);
    columns.par_chunks_mut(share).for_each(|columns| {
        for limb in 0..limbs {
            accumulate(params.basis(), tiling, limb, inputs, multiplier, columns);
        }
    });
    columns.into_iter().flat_map(|c| c.sums).map(|(_, ct)| ct).collect()
}

/// The leaves that share the multipliers of one column γ of product p.
struct Column {
    p: usize,
    gamma: usize,
    sums: Vec<(usize, Ciphertext)>,
}

/// Adds Σ_β to one limb of the sums of `columns`.
fn accumulate(
    basis: &RnsBasis,
    tiling: &OltTiling,
    limb: usize,
    inputs: &[Ciphertext],
    multiplier: &impl Multiplier,
    columns: &mut [Column],
) {
    let (kb, mb, _) = tiling.blocks();
    let (ntt, degree, prefix) = (basis.ntt(limb), tiling.degree(), right_prefix(tiling.window()));
    let residues = residues(basis, limb, mb, prefix, multiplier, columns);
    let strip = ntt.strip_unit(prefix).max(STRIP.min(degree));
    // Per β: one multiplier strip, and both parts of k' ciphertexts.
    let together = (RESIDENT / strip / (2 * kb + 1)).clamp(1, mb);
    let mut buffer = Zeroizing::new(vec![0u64; together * strip]);
    for start in (0..degree).step_by(strip) {
        let words = start..start + strip;
        for first in (0..mb).step_by(together) {
            let betas = first..(first + together).min(mb);
            for (column, residues) in columns.iter_mut().zip(residues.chunks_exact(mb * prefix)) {
                let (p, gamma) = (column.p, column.gamma);
                let blocks = residues.chunks_exact(prefix).skip(first);
                for ((beta, slot), prefix) in betas.clone().zip(buffer.chunks_exact_mut(strip)).zip(blocks) {
                    if multiplier.values(p, beta, gamma, limb).is_none() {
                        ntt.forward_strip(prefix, start, slot);
                    }
                }
                let ready = |beta| multiplier.values(p, beta, gamma, limb);
                let factors: Vec<&[u64]> = betas
                    .clone()
                    .zip(buffer.chunks_exact(strip))
                    .map(|(beta, slot)| ready(beta).map_or(slot, |r| &r[words.clone()]))
                    .collect();
                for (alpha, sum) in &mut column.sums {
                    let cts = &inputs[tiling.inputs_of(p, *alpha)][betas.clone()];
                    let b: Vec<&[u64]> = cts.iter().map(|c| &c.b.limb(limb)[words.clone()]).collect();
                    let a: Vec<&[u64]> = cts.iter().map(|c| &c.a.limb(limb)[words.clone()]).collect();
                    let pointwise = ntt.pointwise();
                    pointwise.dot_assign(&mut sum.b.limb_mut(limb)[words.clone()], &b, &factors);
                    pointwise.dot_assign(&mut sum.a.limb_mut(limb)[words.clone()], &a, &factors);
                }
            }
        }
    }
}

/// The coefficients of all blocks of `columns` modulo prime `limb`, `prefix` words each; zeros where a block is ready.
fn residues(
    basis: &RnsBasis,
    limb: usize,
    mb: usize,
    prefix: usize,
    multiplier: &impl Multiplier,
    columns: &[Column],
) -> Zeroizing<Vec<u64>> {
    let mut out = Zeroizing::new(vec![0u64; columns.len() * mb * prefix]);
    let mut integers = Zeroizing::new(vec![0i64; prefix]);
    for (column, out) in columns.iter().zip(out.chunks_exact_mut(mb * prefix)) {
        for (beta, out) in out.chunks_exact_mut(prefix).enumerate() {
            if multiplier.values(column.p, beta, column.gamma, limb).is_none() {
                multiplier.block(column.p, beta, column.gamma, &mut integers);
                multiplier.residues(basis.ntt(limb).pointwise(), out, &integers);
            }
        }
    }
    out
}

/// The transform modulo prime `limb` of a polynomial with leading coefficients `integers` and zeros beyond.
pub(crate) fn transform(
    basis: &RnsBasis,
    limb: usize,
    multiplier: &impl Multiplier,
    integers: &[i64],
    out: &mut [u64],
) {
    let mut residues = Zeroizing::new(vec![0u64; integers.len()]);
    multiplier.residues(basis.ntt(limb).pointwise(), &mut residues, integers);
    basis.ntt(limb).forward_strip(&residues, 0, out);
}
