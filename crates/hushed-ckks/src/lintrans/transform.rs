//! A matrix prepared for ciphertexts of one length: split, encoded at its level over Q·P, and its product with ciphertexts.
//!
//! Double-hoisted baby-step giant-step (Bossuat, Mouchet, Troncoso-Pastoriza and Hubaux, EUROCRYPT 2021, Algorithm 6), with
//! Galois keys whose result is permuted (`hushed_rlwe::hybrid`):
//!
//! ```text
//! digits of a, once                              [decompose]
//! for each prime of Q·P:
//!   for each baby k:   r_k = φ_k(P·(b, 0) + Σ digits·key_k)           one pass, no transform
//!   for each giant G:  u_G = Σ_k d'_(G+k) ⊙ r_k                        lazily, one reduction
//! for each giant G ≠ 0: digits of ⌊a part of u_G / P⌉, times key_G, plus the b part, all permuted by φ_G; summed in Q·P
//! divide by P and by the last prime                                    [mod_down_rescale]
//! ```
//!
//! The diagonals carry the scale of the prime that is dropped, so the scale of a ciphertext is exactly what it was. Several
//! ciphertexts go together: keys and diagonals are read, and uniform halves of keys expanded, once for all.

use std::sync::Arc;

use hushed_math::{Automorphism, Eval, RnsPoly};
use hushed_rlwe::RlweError;
use hushed_rlwe::hybrid::{
    Decomposed, EvalKeyPlan, EvalKeys, Extended, Gadget, KeySpec, KeyUse, SwitchKey, decompose,
    mod_down, mod_down_rescale,
};
use rayon::prelude::*;

use crate::lintrans::memory::Pair;
use crate::lintrans::{CompactEncoder, CompactPlain, CostModel, Diagonals, LinTransError, Split};
use crate::params::CkksParams;
use crate::scale::Scale;

/// Words of a limb that are worked on at a time: with the sixteen or so rotations that a sum has, what the second-level
/// cache holds.
const STRIP: usize = 1 << 10;

/// Both parts of a ciphertext, (b, a), over the same first primes.
pub type Parts = (RnsPoly<Eval>, RnsPoly<Eval>);

/// How a matrix is prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Method {
    /// The cheapest split by [`CostModel`].
    #[default]
    DoubleHoisted,
    /// Every diagonal a rotation of the input, none of sums.
    Diagonal,
    /// Babies by 0 … width − 1.
    Width(usize),
}

/// How a matrix is prepared, and at what scale.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// How it is cut into rotations.
    pub method: Method,
    /// Scale of the diagonals; that of the prime that the product drops unless told otherwise, so that a ciphertext's scale
    /// stays exactly what it was.
    pub plain_scale: Option<Scale>,
    /// Number of special primes; the cheapest unless told otherwise.
    pub special: Option<usize>,
}

/// One giant step: its rotation and its encoded diagonals.
struct EncodedGiant {
    rotation: usize,
    /// (index of the baby, diagonal rotated back by the giant's rotation).
    terms: Vec<(usize, CompactPlain)>,
}

/// A matrix for ciphertexts of `limbs` primes.
pub struct LinearTransform {
    params: Arc<CkksParams>,
    gadget: Gadget,
    plain_scale: Scale,
    dim: usize,
    babies: Vec<usize>,
    giants: Vec<EncodedGiant>,
}

impl LinearTransform {
    /// Prepares `matrix` for ciphertexts of `limbs` primes; results have one less.
    ///
    /// # Errors
    /// [`LinTransError::Level`] unless 2 ≤ `limbs` ≤ all ciphertext primes; [`LinTransError::Dimension`],
    /// [`LinTransError::Empty`], [`LinTransError::Overflow`] for the matrix.
    pub fn new(
        params: &Arc<CkksParams>,
        matrix: &Diagonals,
        limbs: usize,
        options: Options,
    ) -> Result<Self, LinTransError> {
        let available = params.max_limbs();
        if limbs < 2 || limbs > available {
            return Err(LinTransError::Level {
                limbs,
                needed: 2,
                available,
            });
        }
        let mut best: Option<(f64, Gadget, Split)> = None;
        let choices = match options.special {
            Some(special) => special..=special,
            None => 1..=params.rlwe().p_len(),
        };
        for special in choices {
            // Too few special primes for one prime of the chain: not a choice.
            let Ok(gadget) = Gadget::new(params.rlwe(), limbs, special) else {
                continue;
            };
            let cost = CostModel::new(params.n(), limbs, special, gadget.digits().len());
            let slots = params.n() / 2;
            let split = match options.method {
                Method::DoubleHoisted => Split::best(matrix, slots, &cost)?,
                Method::Diagonal => Split::diagonal(matrix, slots)?,
                Method::Width(width) => Split::fixed(matrix, slots, width)?,
            };
            let total = split.cost(&cost);
            if best.as_ref().is_none_or(|(least, ..)| total < *least) {
                best = Some((total, gadget, split));
            }
        }
        let (_, gadget, split) = best.ok_or(LinTransError::NoGadget { limbs })?;
        Self::with_split(params, matrix, gadget, &split, options.plain_scale)
    }

    /// Prepares `matrix` in this split, for keys of this gadget.
    ///
    /// # Errors
    /// As [`LinearTransform::new`].
    pub fn with_split(
        params: &Arc<CkksParams>,
        matrix: &Diagonals,
        gadget: Gadget,
        split: &Split,
        plain_scale: Option<Scale>,
    ) -> Result<Self, LinTransError> {
        let limbs = gadget.limbs();
        let rlwe = params.rlwe();
        let ids = rlwe.extended_ids_with(limbs, gadget.special());
        let dropped = params.prime(limbs - 1);
        let plain_scale = plain_scale.unwrap_or(Scale::ONE.times_prime(dropped));
        let mut encoder = CompactEncoder::new(rlwe.basis(), &ids, plain_scale.value());
        let diagonals: std::collections::BTreeMap<_, _> = matrix.iter().collect();
        let mut giants = Vec::with_capacity(split.giants.len());
        for giant in &split.giants {
            let mut terms = Vec::with_capacity(giant.terms.len());
            for &(baby, offset) in &giant.terms {
                let values = diagonals.get(&offset).ok_or(LinTransError::Empty)?;
                let back = giant.rotation % values.len();
                let mut rotated = values.to_vec();
                rotated.rotate_right(back);
                terms.push((baby, encoder.encode(&rotated)?));
            }
            giants.push(EncodedGiant {
                rotation: giant.rotation,
                terms,
            });
        }
        Ok(Self {
            params: Arc::clone(params),
            gadget,
            plain_scale,
            dim: matrix.dim(),
            babies: split.babies.clone(),
            giants,
        })
    }

    /// Scale of a product with a ciphertext of this scale.
    pub fn output_scale(&self, input: Scale) -> Scale {
        let dropped = self.params.prime(self.limbs() - 1);
        input.times(self.plain_scale).over_prime(dropped)
    }

    /// Primes of the ciphertexts that it is for.
    pub fn limbs(&self) -> usize {
        self.gadget.limbs()
    }

    /// The shape of the keys that it needs.
    pub fn gadget(&self) -> &Gadget {
        &self.gadget
    }

    /// Rows and columns of the matrix. Inputs of a smaller matrix than there are slots repeat with this period.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Rotations that need a key, ascending, each once.
    pub fn rotations(&self) -> Vec<usize> {
        let giants = self.giants.iter().map(|giant| giant.rotation);
        let mut all: Vec<usize> = self.babies.iter().copied().chain(giants).collect();
        all.sort_unstable();
        all.dedup();
        all.retain(|&k| k != 0);
        all
    }

    /// Key switches of one product: hoisted ones, then those with a decomposition of their own.
    pub fn key_switches(&self) -> (usize, usize) {
        let babies = self.babies.iter().filter(|&&k| k != 0).count();
        let giants = self.giants.iter().filter(|giant| giant.rotation != 0);
        (babies, giants.count())
    }

    /// Products with plaintexts.
    pub fn products(&self) -> usize {
        self.giants.iter().map(|giant| giant.terms.len()).sum()
    }

    /// Adds the keys that it needs, with exactly its gadget.
    pub fn add_keys(&self, plan: &mut EvalKeyPlan) {
        for k in self.rotations() {
            plan.galois(self.element(k), self.gadget.limbs(), self.gadget.special());
        }
    }

    /// Bytes of the encoded diagonals.
    pub fn plaintext_bytes(&self) -> usize {
        let terms = self.giants.iter().flat_map(|giant| &giant.terms);
        terms.map(|(_, plain)| plain.bytes()).sum()
    }

    fn element(&self, rotation: usize) -> usize {
        self.params.rotation_element(rotation as i64)
    }

    fn permutation(&self, rotation: usize) -> Arc<Automorphism> {
        let basis = self.params.rlwe().basis();
        basis.automorphism(self.element(rotation))
    }

    /// The matrix times each of `inputs`: one prime less, the same scale.
    ///
    /// # Errors
    /// [`LinTransError::Level`] for an input of another length than [`LinearTransform::limbs`], [`LinTransError::Rlwe`] with
    /// `MissingKey` for a key that is not there.
    pub fn apply_parts(
        &self,
        keys: &EvalKeys,
        inputs: &[(&RnsPoly<Eval>, &RnsPoly<Eval>)],
    ) -> Result<Vec<Parts>, LinTransError> {
        let limbs = self.limbs();
        for (b, a) in inputs {
            let found = b.ids().len();
            if found != limbs || a.ids() != b.ids() {
                return Err(LinTransError::Level {
                    limbs: found,
                    needed: limbs,
                    available: self.params.max_limbs(),
                });
            }
        }
        if inputs.is_empty() {
            return Ok(Vec::new());
        }
        let sums = self.inner_sums(keys, inputs)?;
        let totals = self.giant_steps(keys, sums)?;
        totals
            .into_iter()
            .map(|total| {
                let special = total.special;
                let (b, a) = rayon::join(
                    || mod_down_rescale(self.params.rlwe(), total.b, special),
                    || mod_down_rescale(self.params.rlwe(), total.a, special),
                );
                Ok((b?, a?))
            })
            .collect()
    }

    fn key<'k>(&self, keys: &'k EvalKeys, rotation: usize) -> Result<&'k SwitchKey, LinTransError> {
        let spec = KeySpec {
            key: KeyUse::Galois(self.element(rotation)),
            limbs: self.gadget.limbs(),
            special: self.gadget.special(),
        };
        let exact = keys.iter().find(|key| key.spec() == spec);
        exact.ok_or_else(|| {
            LinTransError::Rlwe(RlweError::MissingKey {
                key: spec.key,
                limbs: spec.limbs,
                longest: 0,
            })
        })
    }

    /// P modulo each ciphertext prime, zero modulo the special ones.
    fn weights(&self) -> Vec<u64> {
        let basis = self.params.rlwe().basis();
        let special = &self.params.rlwe().literal().p[..self.gadget.special()];
        let weight = |id: usize| {
            let q = basis.modulus(id);
            special.iter().fold(1, |w, &p| q.mul(w, q.reduce(p)))
        };
        let extended = std::iter::repeat_n(0, special.len());
        (0..self.limbs()).map(weight).chain(extended).collect()
    }

    /// For each giant, for each input: Σ d ⊙ rotated inputs, over Q·P.
    fn inner_sums(
        &self,
        keys: &EvalKeys,
        inputs: &[(&RnsPoly<Eval>, &RnsPoly<Eval>)],
    ) -> Result<Vec<Vec<Extended>>, LinTransError> {
        let params = self.params.rlwe();
        let special = self.gadget.special();
        let babies: Vec<Option<(&SwitchKey, Arc<Automorphism>)>> = self
            .babies
            .iter()
            .map(|&k| match k {
                0 => Ok(None),
                k => Ok(Some((self.key(keys, k)?, self.permutation(k)))),
            })
            .collect::<Result<_, LinTransError>>()?;
        let digits: Vec<Decomposed> = if babies.iter().any(Option::is_some) {
            let each = |(_, a): &(_, &RnsPoly<Eval>)| decompose(params, &self.gadget, a);
            inputs.iter().map(each).collect::<Result<_, _>>()?
        } else {
            Vec::new()
        };
        let digits: Vec<&Decomposed> = digits.iter().collect();
        let ids = params.extended_ids_with(self.limbs(), special);
        let scratch = || Extended {
            special,
            b: RnsPoly::scratch(params.basis(), &ids),
            a: RnsPoly::scratch(params.basis(), &ids),
        };
        let mut sums: Vec<Vec<Extended>> = self
            .giants
            .iter()
            .map(|_| inputs.iter().map(|_| scratch()).collect())
            .collect();
        let weights = self.weights();
        by_limb(sums.iter_mut().flatten(), ids.len())
            .into_par_iter()
            .enumerate()
            .for_each(|(j, mut out)| {
                // rotated[baby·inputs + c]: input c rotated by a baby, under this prime.
                let mut rotated = Pair::many(params.basis(), babies.len() * inputs.len());
                let mut work = Pair::many(params.basis(), inputs.len());
                let pointwise = params.basis().plan(ids[j]).pointwise();
                for (baby, turned) in babies.iter().zip(rotated.chunks_mut(inputs.len())) {
                    let Some((key, permutation)) = baby else {
                        for ((b, a), pair) in inputs.iter().zip(turned) {
                            for (part, out) in [b, a].into_iter().zip(pair.parts()) {
                                match weights[j] {
                                    0 => out.fill(0),
                                    w => pointwise.mul_scalar(out, part.limb(j), w),
                                }
                            }
                        }
                        continue;
                    };
                    let mut sums: Vec<_> = work.iter_mut().map(Pair::parts).collect();
                    key.multiply_limb(&digits, j, &mut sums);
                    for (((b, _), [sum_b, sum_a]), pair) in inputs.iter().zip(sums).zip(turned) {
                        if weights[j] != 0 {
                            pointwise.mul_scalar_add_assign(sum_b, b.limb(j), weights[j]);
                        }
                        let [out_b, out_a] = pair.parts();
                        permutation.apply(sum_b, out_b);
                        permutation.apply(sum_a, out_a);
                    }
                }
                for (giant, outs) in self.giants.iter().zip(out.chunks_mut(inputs.len())) {
                    giant.multiply(j, pointwise, &rotated, outs);
                }
            });
        Ok(sums)
    }

    /// Rotates the sums and adds them up, over Q·P: one total an input.
    fn giant_steps(
        &self,
        keys: &EvalKeys,
        sums: Vec<Vec<Extended>>,
    ) -> Result<Vec<Extended>, LinTransError> {
        let params = self.params.rlwe();
        let ids = params.extended_ids_with(self.limbs(), self.gadget.special());
        let mut totals: Option<Vec<Extended>> = None;
        // The giant by 0, where there is one, is the first.
        for (giant, sums) in self.giants.iter().zip(sums) {
            if giant.rotation == 0 {
                totals = Some(sums);
                continue;
            }
            let key = self.key(keys, giant.rotation)?;
            let permutation = self.permutation(giant.rotation);
            let special = self.gadget.special();
            let (mut b_parts, mut digits) = (Vec::new(), Vec::new());
            for sum in sums {
                let a = mod_down(params, sum.a, special)?;
                digits.push(decompose(params, &self.gadget, &a)?);
                b_parts.push(sum.b);
            }
            let digits: Vec<&Decomposed> = digits.iter().collect();
            let fresh = totals.is_none();
            let totals = totals.get_or_insert_with(|| {
                let zero = |_| Extended::zero(params, self.limbs(), special);
                (0..b_parts.len()).map(zero).collect()
            });
            let limbs = by_limb(totals.iter_mut(), self.limbs() + special);
            limbs.into_par_iter().enumerate().for_each(|(j, out)| {
                let mut work = Pair::many(params.basis(), out.len());
                let mut products: Vec<_> = work.iter_mut().map(Pair::parts).collect();
                let pointwise = params.basis().plan(ids[j]).pointwise();
                key.multiply_limb(&digits, j, &mut products);
                for (([sum_b, sum_a], b), [total_b, total_a]) in
                    products.into_iter().zip(&b_parts).zip(out)
                {
                    pointwise.add_assign(sum_b, b.limb(j));
                    for (sum, total) in [(sum_b, total_b), (sum_a, total_a)] {
                        if fresh {
                            permutation.apply(sum, total);
                        } else {
                            permutation.apply_add_assign(pointwise.modulus(), sum, total);
                        }
                    }
                }
            });
        }
        totals.ok_or(LinTransError::Empty)
    }
}

impl EncodedGiant {
    /// outs[c] ← Σ terms d ⊙ rotated[baby][c] for limb `j`, strip by strip.
    fn multiply(
        &self,
        j: usize,
        pointwise: &hushed_math::Pointwise,
        rotated: &[Pair],
        outs: &mut [[&mut [u64]; 2]],
    ) {
        let Some(n) = outs.first().map(|[b, _]| b.len()) else {
            return;
        };
        let (inputs, strip) = (outs.len(), STRIP.min(n));
        let mut wide = vec![0; self.terms.len() * strip];
        for start in (0..n).step_by(strip) {
            for ((_, plain), room) in self.terms.iter().zip(wide.chunks_exact_mut(strip)) {
                plain.expand(j, start, room);
            }
            let diagonals: Vec<&[u64]> = self
                .terms
                .iter()
                .zip(wide.chunks_exact(strip))
                .map(|((_, plain), room)| match plain.repeat() {
                    1 => &plain.limb(j)[start..start + strip],
                    _ => room,
                })
                .collect();
            for (c, [out_b, out_a]) in outs.iter_mut().enumerate() {
                let range = start..start + strip;
                let part = |index: usize| -> Vec<&[u64]> {
                    let pairs = self
                        .terms
                        .iter()
                        .map(|&(baby, _)| &rotated[baby * inputs + c]);
                    pairs.map(|pair| &pair.part(index)[range.clone()]).collect()
                };
                pointwise.dot_pair(
                    [&mut out_b[range.clone()], &mut out_a[range.clone()]],
                    &diagonals,
                    [&part(0), &part(1)],
                );
            }
        }
    }
}

/// Limb j of both parts of each polynomial, for each j.
fn by_limb<'a>(
    polys: impl Iterator<Item = &'a mut Extended>,
    limbs: usize,
) -> Vec<Vec<[&'a mut [u64]; 2]>> {
    let mut out: Vec<Vec<[&mut [u64]; 2]>> = (0..limbs).map(|_| Vec::new()).collect();
    for Extended { b, a, .. } in polys {
        let both = b.limbs_mut().zip(a.limbs_mut());
        for (limb, ((_, b), (_, a))) in out.iter_mut().zip(both) {
            limb.push([b, a]);
        }
    }
    out
}
