//! Products of prepared matrices with ciphertexts.
//!
//! Double-hoisted baby-step giant-step (Bossuat, Mouchet, Troncoso-Pastoriza and Hubaux, EUROCRYPT 2021, Algorithm 6), with
//! Galois keys whose result is permuted (`hushed_rlwe::hybrid`):
//!
//! ```text
//! digits of a, once                                                      [decompose]
//! for each prime of Q·P:
//!   for each baby k:   r_k = φ_k(P·(b, 0) + Σ digits·key_k)              no transform
//!   for each giant G:  u_G = Σ_k d_(G+k) ⊙ r_k                           one reduction
//! for each giant G ≠ 0: digits of ⌊a part of u_G / P⌉, times key_G, plus the b part, all permuted by φ_G; summed over Q·P
//! divide by P and by the last prime                                      [mod_down_rescale]
//! ```
//!
//! Several ciphertexts go together: keys and diagonals are read, and uniform halves of keys expanded, once for all.

use std::borrow::Cow;
use std::sync::Arc;

use hushed_math::cache::prefetch;
use hushed_math::{Automorphism, Coeff, Eval, Pointwise, RnsPoly};
use hushed_rlwe::hybrid::{
    Decomposed, EvalKeys, Extended, KeyStrips, SwitchKey, decompose, decompose_raised, mod_down,
    mod_down_rescale,
};
use hushed_rlwe::{RlweError, RlweParams};
use rayon::prelude::*;

use crate::ciphertext::Ciphertext;
use crate::error::CkksError;
use crate::evaluator::Evaluator;
use crate::lintrans::memory::Pair;
use crate::lintrans::transform::EncodedGiant;
use crate::lintrans::{LinTransError, LinearTransform, Parts};

/// Words of a limb that are worked on at a time: with the sixteen or so rotations that a sum has, what the second-level
/// cache holds.
const STRIP: usize = 1 << 10;

/// Words of products that are kept until they are rotated: half of a second-level cache of two megabytes.
const RUN_WORDS: usize = 1 << 17;

/// The same for products with keys: a strip of the digits stays in the cache while all keys go over it.
const KEY_STRIP: usize = 1 << 11;

impl LinearTransform {
    /// The matrix times each ciphertext: one prime less, scale and error as [`LinearTransform::output_scale`] and the noise model
    /// say. All go through in one pass over keys and diagonals.
    ///
    /// # Errors
    /// [`CkksError::LinTrans`] with [`LinTransError::Level`] for a ciphertext with fewer primes than [`LinearTransform::limbs`]
    /// (longer ones are cut), or with `MissingKey`; [`CkksError::NoKeys`], [`CkksError::OtherParameters`].
    pub fn apply_many(
        &self,
        evaluator: &Evaluator,
        inputs: &[&Ciphertext],
    ) -> Result<Vec<Ciphertext>, CkksError> {
        let operation = "linear transform";
        let keys = evaluator.keys(operation)?;
        let mut shorter = Vec::new();
        for ct in inputs {
            if !self.params.same_ring(ct.basis()) {
                return Err(CkksError::OtherParameters { operation });
            }
            self.check_limbs(ct.limbs().min(self.limbs()))?;
            shorter.push(if ct.limbs() > self.limbs() {
                Cow::Owned(evaluator.drop_to(ct, self.limbs())?)
            } else {
                Cow::Borrowed(*ct)
            });
        }
        let parts: Vec<_> = shorter.iter().map(|ct| (ct.b(), ct.a())).collect();
        let products = self.apply_parts(keys, &parts)?;
        self.count(evaluator, inputs.len());
        let both = products.into_iter().zip(inputs);
        both.map(|((b, a), ct)| {
            let noise = self.noise(ct.noise(), ct.scale());
            let product = Ciphertext::from_parts(b, a, self.output_scale(ct.scale()))?;
            Ok(product.with_noise(noise))
        })
        .collect()
    }

    /// As [`LinearTransform::apply_many`] for one.
    ///
    /// # Errors
    /// As there.
    pub fn apply(&self, evaluator: &Evaluator, ct: &Ciphertext) -> Result<Ciphertext, CkksError> {
        let mut products = self.apply_many(evaluator, &[ct])?;
        products
            .pop()
            .ok_or(CkksError::LinTrans(LinTransError::Empty))
    }

    /// The matrix times each of `inputs`, parts only.
    ///
    /// # Errors
    /// [`LinTransError::Level`] for an input of another length than [`LinearTransform::limbs`], [`LinTransError::Rlwe`] with
    /// `MissingKey` for a key that is not there, or `GadgetMismatch` for a map of raised ciphertexts.
    pub fn apply_parts(
        &self,
        keys: &EvalKeys,
        inputs: &[(&RnsPoly<Eval>, &RnsPoly<Eval>)],
    ) -> Result<Vec<Parts>, LinTransError> {
        let mut digits = Vec::new();
        for (b, a) in inputs {
            let differ = a.ids() != b.ids();
            self.check_limbs(if differ { 0 } else { b.ids().len() })?;
            digits.push(decompose(self.params.rlwe(), &self.gadget, a)?);
        }
        let b: Vec<_> = inputs.iter().map(|&(b, _)| b).collect();
        let a: Vec<_> = inputs.iter().map(|&(_, a)| a).collect();
        self.product(keys, &b, &a, &digits)
    }

    /// The matrix times each raised input: both parts modulo q_0 under the sparse secret, as coefficients. The results are under
    /// the main secret, modulo all primes but the last, and their phase is that of the raised input, times the matrix.
    ///
    /// # Errors
    /// As [`LinearTransform::apply_parts`], with `GadgetMismatch` for a map that is not [`LinearTransform::raised`].
    pub fn apply_raised(
        &self,
        keys: &EvalKeys,
        inputs: &[(RnsPoly<Coeff>, RnsPoly<Coeff>)],
    ) -> Result<Vec<Parts>, LinTransError> {
        let params = self.params.rlwe();
        let (mut raised, mut digits) = (Vec::new(), Vec::new());
        for (b, a) in inputs {
            digits.push(decompose_raised(params, &self.gadget, a, self.limbs())?);
            raised.push(mod_raise(params, b, self.limbs())?);
        }
        let b: Vec<_> = raised.iter().collect();
        self.product(keys, &b, &[], &digits)
    }

    fn check_limbs(&self, found: usize) -> Result<(), LinTransError> {
        if found == self.limbs() {
            return Ok(());
        }
        Err(LinTransError::Level {
            limbs: found,
            needed: self.limbs(),
            available: self.params.max_limbs(),
        })
    }

    /// `a` is needed for rotations by 0 that need no key.
    fn product(
        &self,
        keys: &EvalKeys,
        b: &[&RnsPoly<Eval>],
        a: &[&RnsPoly<Eval>],
        digits: &[Decomposed],
    ) -> Result<Vec<Parts>, LinTransError> {
        if b.is_empty() {
            return Ok(Vec::new());
        }
        let sums = self.inner_sums(keys, b, a, digits)?;
        let totals = self.giant_steps(keys, sums)?;
        totals
            .into_iter()
            .map(|total| {
                let (params, special) = (self.params.rlwe(), total.special);
                let (b, a) = rayon::join(
                    || mod_down_rescale(params, total.b, special),
                    || mod_down_rescale(params, total.a, special),
                );
                Ok((b?, a?))
            })
            .collect()
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
        b: &[&RnsPoly<Eval>],
        a: &[&RnsPoly<Eval>],
        digits: &[Decomposed],
    ) -> Result<Vec<Vec<Extended>>, LinTransError> {
        let params = self.params.rlwe();
        let special = self.gadget.special();
        let babies: Vec<Option<Baby>> = self
            .babies
            .iter()
            .map(|&k| match self.needs_key(k) {
                false => Ok(None),
                true => Ok(Some((self.key(keys, k)?, self.permutation(k)))),
            })
            .collect::<Result<_, LinTransError>>()?;
        let ids = params.extended_ids_with(self.limbs(), special);
        let scratch = || Extended {
            special,
            b: RnsPoly::scratch(params.basis(), &ids),
            a: RnsPoly::scratch(params.basis(), &ids),
        };
        let mut sums: Vec<Vec<Extended>> = self
            .giants
            .iter()
            .map(|_| b.iter().map(|_| scratch()).collect())
            .collect();
        let weights = self.weights();
        by_limb(sums.iter_mut().flatten(), ids.len())
            .into_par_iter()
            .enumerate()
            .for_each(|(j, mut out)| {
                let pass = Pass {
                    map: self,
                    babies: &babies,
                    parts: [b, a],
                    digits: digits.iter().map(|digits| digits.limb(j)).collect(),
                    weight: weights[j],
                    limb: j,
                    id: ids[j],
                };
                pass.run(&mut out);
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

    pub(crate) fn count(&self, evaluator: &Evaluator, inputs: usize) {
        let (counters, gadget) = (evaluator.counters(), &self.gadget);
        let (babies, giants) = self.key_switches();
        let (limbs, special) = (self.limbs(), gadget.special());
        let up = gadget.digits().len() * (limbs + special);
        counters.key_switch.many(inputs * (babies + giants));
        counters.rotation.many(inputs * (babies + giants));
        counters.mod_up.many(inputs * (1 + giants));
        counters.mod_down.many(inputs * (2 + giants));
        counters.pt_mul.many(inputs * self.products());
        counters.rescale.many(inputs);
        let down = limbs + special;
        counters
            .ntt
            .many(inputs * ((1 + giants) * up + (2 + giants) * down));
    }
}

/// `low`, coefficients modulo q_0, as the integers of (−q_0/2, q_0/2) under `limbs` primes: ModRaise of one part.
fn mod_raise(
    params: &RlweParams,
    low: &RnsPoly<Coeff>,
    limbs: usize,
) -> Result<RnsPoly<Eval>, LinTransError> {
    if low.ids() != [0] || !Arc::ptr_eq(low.basis(), params.basis()) {
        return Err(RlweError::IncompatibleParameters.into());
    }
    let basis = params.basis();
    let mut raised = RnsPoly::scratch(basis, &params.ciphertext_ids(limbs));
    let work: Vec<_> = raised.limbs_mut().collect();
    work.into_par_iter().for_each(|(id, limb)| {
        let plan = basis.plan(id);
        plan.pointwise()
            .lift_centred(limb, low.limb(0), basis.modulus(0));
        plan.forward(limb);
    });
    Ok(raised)
}

/// A rotation of the input: its key, and how the product is permuted.
type Baby<'a> = (&'a SwitchKey, Arc<Automorphism>);

/// The inner sums under one prime.
struct Pass<'a> {
    map: &'a LinearTransform,
    /// None for the input itself.
    babies: &'a [Option<Baby<'a>>],
    /// b of each input; a of each, if it is needed.
    parts: [&'a [&'a RnsPoly<Eval>]; 2],
    /// The digits of each input.
    digits: Vec<Vec<&'a [u64]>>,
    /// P modulo the prime.
    weight: u64,
    /// Number of the limb.
    limb: usize,
    /// Number of the prime.
    id: usize,
}

impl Pass<'_> {
    /// `out[giant·inputs + c]` ← the sum of a giant for input c.
    ///
    /// Rotations by multiples of 2^j slots leave runs of n/2^(j+1) values among themselves, so the work goes run by run, in the cache
    /// for all maps but those with a stride of few slots.
    fn run(&self, out: &mut [[&mut [u64]; 2]]) {
        let n = self.map.params.n();
        let orbits = self.babies.iter().flatten().map(|(_, turn)| turn.orbit());
        let least = orbits.max().unwrap_or(1).max(STRIP).min(n);
        // Longer runs of whole orbits, as far as the cache goes: keys are then read in longer pieces.
        let words = 2 * self.babies.len() * self.inputs();
        let run = (RUN_WORDS / words + 1).next_power_of_two() / 2;
        let run = run.clamp(least, n);
        let count = self.digits.first().map_or(0, Vec::len);
        let mut keys: Vec<_> = self
            .babies
            .iter()
            .map(|baby| baby.as_ref().map(|(key, _)| key.strips(self.id, count)))
            .collect();
        let (mut products, mut room) = (self.map.memory(), Vec::new());
        products.resize(2 * self.babies.len() * self.inputs() * run, 0);
        for first in (0..n).step_by(run) {
            self.products(first, &mut keys, &mut products, &mut room);
            self.sums(first, &products, &mut room, out);
        }
        self.map.give_back(products);
    }

    fn inputs(&self) -> usize {
        self.parts[0].len()
    }

    fn pointwise(&self) -> &Pointwise {
        let basis = self.map.params.rlwe().basis();
        basis.plan(self.id).pointwise()
    }

    /// P·(b, 0) + Σ digits·key of each baby before its permutation, or P·(b, a) for the input itself, for one run of values: pair number
    /// baby·inputs + c. All keys go over one strip of digits while that is in the cache.
    fn products(
        &self,
        first: usize,
        keys: &mut [Option<KeyStrips<'_>>],
        products: &mut [u64],
        room: &mut Vec<u64>,
    ) {
        let (inputs, pointwise) = (self.inputs(), self.pointwise());
        let run = products.len() / (2 * keys.len() * inputs);
        let strip = KEY_STRIP.min(run);
        let mut words = Vec::new();
        let mut lifted = vec![0; 2 * inputs * strip];
        for start in (0..run).step_by(strip) {
            let here = first + start..first + start + strip;
            self.lift(here.start, &mut lifted);
            for (key, pairs) in keys
                .iter_mut()
                .zip(products.chunks_exact_mut(2 * inputs * run))
            {
                let pairs = pairs
                    .chunks_exact_mut(2 * run)
                    .zip(lifted.chunks_exact(2 * strip));
                let Some(key) = key else {
                    for (pair, lifted) in pairs {
                        for (part, lifted) in pair.chunks_exact_mut(run).zip(lifted.chunks(strip)) {
                            part[start..start + strip].copy_from_slice(lifted);
                        }
                    }
                    continue;
                };
                let [key_b, key_a] = key.next_strip(strip, room);
                for ((pair, lifted), digits) in pairs.zip(&self.digits) {
                    words.clear();
                    words.extend(digits.iter().map(|digit| &digit[here.clone()]));
                    let (b, a) = pair.split_at_mut(run);
                    let b = &mut b[start..start + strip];
                    let a = &mut a[start..start + strip];
                    pointwise.dot_pair([&mut *b, a], &words, [&key_b, &key_a]);
                    if self.weight != 0 {
                        pointwise.add_assign(b, &lifted[..strip]);
                    }
                }
            }
        }
    }

    /// P·b, and P·a where it is needed, of each input, for some values from number `start` on.
    fn lift(&self, start: usize, lifted: &mut [u64]) {
        let strip = lifted.len() / (2 * self.inputs());
        for (index, polys) in self.parts.iter().enumerate() {
            for (poly, pair) in polys.iter().zip(lifted.chunks_exact_mut(2 * strip)) {
                let out = &mut pair[index * strip..(index + 1) * strip];
                // P is zero under the special primes, which the inputs do not have.
                match self.weight {
                    0 => out.fill(0),
                    weight => {
                        let limb = &poly.limb(self.limb)[start..start + strip];
                        self.pointwise().mul_scalar(out, limb, weight);
                    }
                }
            }
        }
    }

    /// Σ d ⊙ φ(product) for each giant, for one run of values, strip by strip: the rotated strips are made once and stay in the
    /// cache.
    fn sums(
        &self,
        first: usize,
        products: &[u64],
        turned: &mut Vec<u64>,
        out: &mut [[&mut [u64]; 2]],
    ) {
        let (inputs, babies) = (self.inputs(), self.babies.len());
        let run = products.len() / (2 * babies * inputs);
        let strip = STRIP.min(run);
        turned.resize(2 * babies * strip, 0);
        for start in (0..run).step_by(strip) {
            let here = first + start..first + start + strip;
            for c in 0..inputs {
                for (_, plain) in self.map.giants.iter().flat_map(|giant| &giant.terms) {
                    prefetch(plain.strip(self.limb, here.start, strip));
                }
                let rooms = turned.chunks_exact_mut(2 * strip);
                let pairs = products.chunks_exact(2 * run).skip(c).step_by(inputs);
                for ((baby, pair), room) in self.babies.iter().zip(pairs).zip(rooms) {
                    let parts = pair.chunks_exact(run).zip(room.chunks_exact_mut(strip));
                    for (part, room) in parts {
                        match baby {
                            Some((_, turn)) => turn.apply_strip(part, first, here.start, room),
                            None => room.copy_from_slice(&part[start..start + strip]),
                        }
                    }
                }
                for (giant, out) in self.map.giants.iter().zip(out.chunks_exact_mut(inputs)) {
                    let [b, a] = &mut out[c];
                    let out = [&mut b[here.clone()], &mut a[here.clone()]];
                    self.giant(giant, here.start, turned, out);
                }
            }
        }
    }

    /// Σ d ⊙ rotated input over the terms of one giant, for one strip.
    fn giant(&self, giant: &EncodedGiant, start: usize, turned: &[u64], out: [&mut [u64]; 2]) {
        let strip = out[0].len();
        let plain = giant.terms.iter().map(|(_, plain)| plain);
        let diagonals: Vec<&[u64]> = plain
            .map(|plain| plain.strip(self.limb, start, strip))
            .collect();
        let part = |index: usize| -> Vec<&[u64]> {
            let places = giant.terms.iter().map(|&(baby, _)| 2 * baby + index);
            places
                .map(|place| &turned[place * strip..(place + 1) * strip])
                .collect()
        };
        let keys = [&part(0)[..], &part(1)[..]];
        let repeat = giant.terms.first().map_or(1, |(_, plain)| plain.repeat());
        match repeat {
            1 => self.pointwise().dot_pair(out, &diagonals, keys),
            _ => self
                .pointwise()
                .dot_pair_repeated(out, &diagonals, repeat.trailing_zeros(), keys),
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
