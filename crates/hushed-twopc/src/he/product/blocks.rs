//! Leaves by blocks of the ciphertexts ([`BlockPlan`]).
//!
//! A multiplier polynomial has D = mw·nw leading coefficients. It is evaluated at L points, L ≥ 2·D, and the same
//! values serve every block of every ciphertext, so that for each prime and point the leaves are a product of matrices,
//! γ by β times β by (part, block).
//!
//! The blocks of the ciphertexts are transformed once, as they arrive ([`BlockInputs`]); multipliers a few columns γ at
//! a time, all of whose leaves are made at once. Leaves are left as coefficients, which is what their way into a
//! response begins with.

use super::leaf::{Leaf, Multiplier};
use crate::he::encode::right_prefix;
use crate::he::layout::MULTIPLIER_WORDS;
use crate::he::window::OltPlan;
use hushed_math::{BlockPlan, PointMatrix, RnsPoly};
use hushed_rlwe::{Ciphertext, RlweParams};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The ciphertexts of an encrypted operand, or of some of its inner blocks, cut into blocks and transformed.
pub(crate) struct BlockInputs {
    /// One a prime.
    plans: Vec<Arc<BlockPlan>>,
    /// The inner blocks β.
    betas: Range<usize>,
    /// For every row block of ciphertexts (as [`OltPlan::inputs_of`] counts them) and every prime, β by (part, block).
    rows: Vec<Vec<PointMatrix>>,
    /// Ciphertexts so far.
    arrived: usize,
}

/// The plans of the blocks of `plan`'s products, one for each of the first `limbs` primes.
pub(crate) fn block_plans(
    params: &RlweParams,
    plan: &OltPlan,
    limbs: usize,
    points: usize,
) -> Vec<Arc<BlockPlan>> {
    let (prefix, mw) = (right_prefix(plan.window()), plan.window().mw);
    (0..limbs)
        .map(|limb| params.basis().blocks(limb, prefix, points, mw))
        .collect()
}

impl BlockInputs {
    /// For the ciphertexts of `plan` over the first `limbs` primes, by blocks of `points`; those of inner blocks
    /// `betas`.
    pub(crate) fn new(
        params: &RlweParams,
        plan: &OltPlan,
        limbs: usize,
        points: usize,
        betas: Range<usize>,
    ) -> Self {
        Self {
            plans: block_plans(params, plan, limbs, points),
            betas,
            rows: Vec::new(),
            arrived: 0,
        }
    }

    /// Takes the next ciphertext.
    pub(crate) fn push(&mut self, ct: Ciphertext) {
        let mb = self.betas.len();
        let (row, beta) = (self.arrived / mb, self.arrived % mb);
        self.arrived += 1;
        if beta == 0 {
            let room = self.plans.iter().map(|plan| plan.polynomials(2, mb));
            self.rows.push(room.collect());
        }
        let (b, a) = (ct.b.into_coeff(), ct.a.into_coeff());
        let limbs = self.plans.iter().zip(&mut self.rows[row]).enumerate();
        for (limb, (plan, blocks)) in limbs {
            plan.put_polynomials(blocks, beta, &[b.limb(limb), a.limb(limb)]);
        }
    }
}

/// The leaves of `range`, in order, over the first `limbs` primes.
pub(crate) fn leaves(
    params: &RlweParams,
    plan: &OltPlan,
    inputs: &BlockInputs,
    multiplier: &impl Multiplier,
    range: Range<usize>,
) -> Vec<Leaf> {
    let ((kb, _, nb), mb) = (plan.blocks(), inputs.betas.len());
    let points = inputs.plans.first().map_or(1, |plan| plan.points());
    let panel = BlockPlan::PANEL;
    // Columns (product, γ), numbered through.
    let columns = range.start / kb..range.end.div_ceil(kb);
    let most = (MULTIPLIER_WORDS / (mb * points * panel)).max(1) * panel;
    let share = columns.len().div_ceil(rayon::current_num_threads());
    let share = share.next_multiple_of(panel).min(most);
    let mut jobs = Vec::new();
    for p in columns.start / nb..columns.end.div_ceil(nb) {
        let first = columns.start.max(p * nb) - p * nb;
        let end = columns.end.min((p + 1) * nb) - p * nb;
        // Whole panels, as multipliers that are held have them.
        for gamma in (first / panel * panel..end).step_by(share) {
            jobs.push((p, gamma..nb.min(gamma + share)));
        }
    }
    let job = Job {
        params,
        plan,
        inputs,
        multiplier,
        range,
    };
    let leaves = jobs
        .into_par_iter()
        .map(|(p, gammas)| job.columns(p, gammas));
    let leaves: Vec<Vec<Leaf>> = leaves.collect();
    leaves.into_iter().flatten().collect()
}

struct Job<'a, M> {
    params: &'a RlweParams,
    plan: &'a OltPlan,
    inputs: &'a BlockInputs,
    multiplier: &'a M,
    /// The leaves that are wanted.
    range: Range<usize>,
}

impl<M: Multiplier> Job<'_, M> {
    /// The leaves of columns γ of product `p` that are in the range, in order. `gammas` begins with a panel.
    fn columns(&self, p: usize, gammas: Range<usize>) -> Vec<Leaf> {
        let (kb, _, nb) = self.plan.blocks();
        let panels = gammas.start / BlockPlan::PANEL..gammas.end.div_ceil(BlockPlan::PANEL);
        // What is held is for all inner blocks.
        let whole = self.inputs.betas.len() == self.plan.blocks().1;
        let held: Option<Vec<&PointMatrix>> = (0..self.inputs.plans.len())
            .map(|limb| self.multiplier.points(limb).filter(|_| whole))
            .collect();
        let made;
        let (factors, panels) = match held {
            Some(held) => (held, panels),
            None => {
                let all = 0..panels.len();
                made = factors(
                    self.params,
                    self.plan,
                    &self.inputs.plans,
                    self.multiplier,
                    p,
                    [self.inputs.betas.clone(), gammas.clone()],
                );
                (made.iter().collect(), all)
            }
        };
        let number = |alpha: usize, gamma: usize| (p * nb + gamma) * kb + alpha;
        let mut leaves = Vec::with_capacity(kb * gammas.len());
        for alpha in 0..kb {
            let wanted = |gamma: &usize| self.range.contains(&number(alpha, *gamma));
            if !gammas.clone().any(|gamma| wanted(&gamma)) {
                continue;
            }
            let sums = self.row(p, alpha, &factors, panels.clone(), gammas.len());
            let sums = gammas.clone().zip(sums);
            leaves.extend(
                sums.filter(|(g, _)| wanted(g))
                    .map(|(g, s)| (number(alpha, g), s)),
            );
        }
        leaves.sort_unstable_by_key(|(number, _)| *number);
        leaves.into_iter().map(|(_, leaf)| leaf).collect()
    }

    /// The sums of `count` columns for row block α of product `p`.
    fn row(
        &self,
        p: usize,
        alpha: usize,
        factors: &[&PointMatrix],
        panels: Range<usize>,
        count: usize,
    ) -> Vec<Leaf> {
        let ids = self.params.ciphertext_ids(factors.len());
        let wanted = self.plan.degree() / self.plan.window().mw;
        let (_, mb, _) = self.plan.blocks();
        let row = self.plan.inputs_of(p, alpha).start / mb;
        let mut sums: Vec<_> = (0..count)
            .map(|_| {
                let b = vec![vec![0; wanted]; factors.len()];
                (b, RnsPoly::scratch(self.params.basis(), &ids))
            })
            .collect();
        let limbs = self
            .inputs
            .plans
            .iter()
            .zip(factors)
            .zip(&self.inputs.rows[row]);
        for (limb, ((plan, factors), blocks)) in limbs.enumerate() {
            let mut out: Vec<&mut [u64]> = sums
                .iter_mut()
                .flat_map(|(b, a)| [&mut b[limb][..], a.limb_mut(limb)])
                .collect();
            plan.multiply(factors, panels.clone(), blocks, &mut out);
        }
        let leaf = |(b, a)| Leaf { b, a };
        sums.into_iter().map(leaf).collect()
    }
}

/// The multipliers of inner blocks `betas` and columns `gammas` of product `p` by their values, modulo the prime of
/// each of `plans`: γ by β.
pub(crate) fn factors(
    params: &RlweParams,
    plan: &OltPlan,
    plans: &[Arc<BlockPlan>],
    multiplier: &impl Multiplier,
    p: usize,
    [betas, gammas]: [Range<usize>; 2],
) -> Vec<PointMatrix> {
    let (mb, prefix) = (betas.len(), right_prefix(plan.window()));
    let mut made: Vec<PointMatrix> = plans
        .iter()
        .map(|plan| plan.factors(gammas.len(), mb))
        .collect();
    let together = plans
        .first()
        .map_or(1, |plan| plan.terms_together())
        .min(mb);
    let size = BlockPlan::PANEL * prefix;
    let mut integers = Zeroizing::new(vec![0i64; together * size]);
    let mut residues = Zeroizing::new(vec![0u64; together * size]);
    for (panel, first) in gammas.clone().step_by(BlockPlan::PANEL).enumerate() {
        for beta in (0..mb).step_by(together) {
            let terms = beta..mb.min(beta + together);
            let integers = &mut integers[..terms.len() * size];
            let residues = &mut residues[..terms.len() * size];
            for (beta, integers) in terms.zip(integers.chunks_exact_mut(size)) {
                let lines = integers.chunks_exact_mut(prefix);
                for (gamma, integers) in (first..gammas.end).zip(lines) {
                    multiplier.block(p, betas.start + beta, gamma, integers);
                }
            }
            for (limb, (plan, made)) in plans.iter().zip(&mut made).enumerate() {
                params
                    .basis()
                    .plan(limb)
                    .pointwise()
                    .reduce_signed(residues, integers);
                plan.put_factors(made, panel, beta, residues);
            }
        }
    }
    made
}

#[cfg(test)]
mod tests;
