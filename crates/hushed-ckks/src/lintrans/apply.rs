//! Products of prepared matrices with ciphertexts.
//!
//! Double-hoisted baby-step giant-step (Bossuat, Mouchet, Troncoso-Pastoriza and Hubaux, EUROCRYPT 2021, Algorithm 6),
//! with Galois keys whose result is permuted (`hushed_rlwe::hybrid`):
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
//! Several ciphertexts are processed together: keys and diagonals are read, and uniform halves of keys expanded, only
//! once.

use std::borrow::Cow;
use std::sync::Arc;

use hushed_math::{Coeff, Eval, RnsPoly};
use hushed_rlwe::hybrid::{Decomposed, EvalKeys, Extended, decompose, decompose_raised, mod_down, mod_down_rescale};
use hushed_rlwe::{RlweError, RlweParams};
use rayon::prelude::*;

use crate::ciphertext::Ciphertext;
use crate::counters::Switches;
use crate::error::CkksError;
use crate::evaluator::Evaluator;
use crate::lintrans::memory::Pair;
use crate::lintrans::pass::{Baby, Pass};
use crate::lintrans::{LinTransError, LinearTransform, Parts};

impl LinearTransform {
    /// The matrix times each ciphertext, with one prime fewer, scale by [`LinearTransform::output_scale`] and error by
    /// the noise model. All are processed in one pass over keys and diagonals.
    ///
    /// # Errors
    /// [`CkksError::LinTrans`] with [`LinTransError::Level`] for a ciphertext with fewer primes than
    /// [`LinearTransform::limbs`] (longer ones are truncated), with `MissingKey`, or with `Codec` or `File` if a file
    /// of diagonals is damaged or cannot be read; [`CkksError::NoKeys`], [`CkksError::OtherParameters`].
    pub fn apply_many(&self, evaluator: &Evaluator, inputs: &[&Ciphertext]) -> Result<Vec<Ciphertext>, CkksError> {
        let operation = "linear transform";
        let keys = evaluator.keys(operation)?;
        let mut shorter = Vec::new();
        for ct in inputs {
            if !self.common.params.same_ring(ct.basis()) {
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

    /// As [`LinearTransform::apply_many`] for one ciphertext.
    pub fn apply(&self, evaluator: &Evaluator, ct: &Ciphertext) -> Result<Ciphertext, CkksError> {
        let mut products = self.apply_many(evaluator, &[ct])?;
        products.pop().ok_or(CkksError::LinTrans(LinTransError::Empty))
    }

    /// The matrix times each of `inputs`, parts only.
    ///
    /// # Errors
    /// [`LinTransError::Level`] for an input of another length than [`LinearTransform::limbs`], [`LinTransError::Rlwe`]
    /// with `MissingKey` for a missing key, or `GadgetMismatch` for a map of raised ciphertexts.
    pub fn apply_parts(
        &self,
        keys: &EvalKeys,
        inputs: &[(&RnsPoly<Eval>, &RnsPoly<Eval>)],
    ) -> Result<Vec<Parts>, LinTransError> {
        let mut digits = Vec::new();
        for (b, a) in inputs {
            let differ = a.ids() != b.ids();
            self.check_limbs(if differ { 0 } else { b.ids().len() })?;
            digits.push(decompose(self.common.params.rlwe(), &self.common.gadget, a)?);
        }
        let b: Vec<_> = inputs.iter().map(|&(b, _)| b).collect();
        let a: Vec<_> = inputs.iter().map(|&(_, a)| a).collect();
        self.product(keys, &b, &a, &digits)
    }

    /// The matrix times each raised input, given as both parts modulo q_0 under the sparse secret in coefficient form.
    /// The results are under the main secret modulo all primes but the last; their phase is that of the raised input
    /// times the matrix.
    ///
    /// # Errors
    /// As [`LinearTransform::apply_parts`], with `GadgetMismatch` for a map that is not [`LinearTransform::raised`].
    pub fn apply_raised(
        &self,
        keys: &EvalKeys,
        inputs: &[(RnsPoly<Coeff>, RnsPoly<Coeff>)],
    ) -> Result<Vec<Parts>, LinTransError> {
        let params = self.common.params.rlwe();
        let (mut raised, mut digits) = (Vec::new(), Vec::new());
        for (b, a) in inputs {
            digits.push(decompose_raised(params, &self.common.gadget, a, self.limbs())?);
            raised.push(mod_raise(params, b, self.limbs())?);
        }
        let b: Vec<_> = raised.iter().collect();
        self.product(keys, &b, &[], &digits)
    }

    fn check_limbs(&self, found: usize) -> Result<(), LinTransError> {
        if found == self.limbs() {
            return Ok(());
        }
        Err(LinTransError::Level { limbs: found, needed: self.limbs(), available: self.common.params.max_limbs() })
    }

    /// `a` is needed only for rotations by 0 without a key.
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
                let (params, special) = (self.common.params.rlwe(), total.special);
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
        let (params, special) = (self.common.params.rlwe(), self.common.gadget.special());
        let weights = (0..self.limbs()).map(|id| params.p_modulo(special, id));
        weights.chain(std::iter::repeat_n(0, special)).collect()
    }

    /// For each giant and each input, Σ d ⊙ rotated inputs over Q·P.
    fn inner_sums(
        &self,
        keys: &EvalKeys,
        b: &[&RnsPoly<Eval>],
        a: &[&RnsPoly<Eval>],
        digits: &[Decomposed],
    ) -> Result<Vec<Vec<Extended>>, LinTransError> {
        let params = self.common.params.rlwe();
        let special = self.common.gadget.special();
        let babies: Vec<Option<Baby>> = self
            .babies
            .iter()
            .map(|&k| match self.needs_key(k) {
                false => Ok(None),
                true => Ok(Some((self.common.key(keys, k)?, self.common.permutation(k)))),
            })
            .collect::<Result<_, LinTransError>>()?;
        let ids = self.common.ids();
        let scratch = || Extended {
            special,
            b: RnsPoly::scratch(params.basis(), &ids),
            a: RnsPoly::scratch(params.basis(), &ids),
        };
        let mut sums: Vec<Vec<Extended>> = self.giants.iter().map(|_| b.iter().map(|_| scratch()).collect()).collect();
        let weights = self.weights();
        Extended::by_limb(sums.iter_mut().flatten(), ids.len()).into_par_iter().enumerate().try_for_each(
            |(j, mut out)| {
                let pass = Pass {
                    map: self,
                    babies: &babies,
                    parts: [b, a],
                    digits: digits.iter().map(|digits| digits.limb(j)).collect(),
                    weight: weights[j],
                    limb: j,
                    id: ids[j],
                };
                pass.run(&mut out)
            },
        )?;
        Ok(sums)
    }

    /// Rotates the sums and adds them up over Q·P, to one total per input.
    fn giant_steps(&self, keys: &EvalKeys, sums: Vec<Vec<Extended>>) -> Result<Vec<Extended>, LinTransError> {
        let params = self.common.params.rlwe();
        let ids = self.common.ids();
        let mut totals: Option<Vec<Extended>> = None;
        // The giant by 0 comes first, if there is one.
        for (giant, sums) in self.giants.iter().zip(sums) {
            if giant.rotation == 0 {
                totals = Some(sums);
                continue;
            }
            let key = self.common.key(keys, giant.rotation)?;
            let permutation = self.common.permutation(giant.rotation);
            let special = self.common.gadget.special();
            let (mut b_parts, mut digits) = (Vec::new(), Vec::new());
            for sum in sums {
                let a = mod_down(params, sum.a, special)?;
                digits.push(decompose(params, &self.common.gadget, &a)?);
                b_parts.push(sum.b);
            }
            let digits: Vec<&Decomposed> = digits.iter().collect();
            let fresh = totals.is_none();
            let totals = totals.get_or_insert_with(|| {
                let zero = |_| Extended::zero(params, self.limbs(), special);
                (0..b_parts.len()).map(zero).collect()
            });
            let limbs = Extended::by_limb(totals.iter_mut(), ids.len());
            limbs.into_par_iter().enumerate().for_each(|(j, out)| {
                let mut work = Pair::many(params.basis(), out.len());
                let mut products: Vec<_> = work.iter_mut().map(Pair::parts).collect();
                let pointwise = params.basis().ntt(ids[j]).pointwise();
                key.multiply_limb(&digits, j, &mut products);
                for (([sum_b, sum_a], b), [total_b, total_a]) in products.into_iter().zip(&b_parts).zip(out) {
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
        let (counters, gadget) = (evaluator.counters(), &self.common.gadget);
        let (babies, giants) = self.key_switches();
        let limbs = self.limbs();
        let switches = Switches {
            up: inputs * (1 + giants),
            products: inputs * (babies + giants),
            down: inputs * (2 + giants),
            keys: babies + giants,
        };
        counters.switched(gadget, limbs, &switches);
        counters.rotation.many(switches.products);
        counters.pt_mul.many(inputs * self.products());
        counters.rescale.many(inputs);
        let words = 2 * (limbs + gadget.special());
        counters.products.many(inputs * (self.products() * words + 2 * limbs));
    }
}

/// `low`, coefficients modulo q_0, read as integers in (−q_0/2, q_0/2) under `limbs` primes: ModRaise of one part.
fn mod_raise(params: &RlweParams, low: &RnsPoly<Coeff>, limbs: usize) -> Result<RnsPoly<Eval>, LinTransError> {
    if low.ids() != [0] || !Arc::ptr_eq(low.basis(), params.basis()) {
        return Err(RlweError::IncompatibleParameters.into());
    }
    let basis = params.basis();
    let mut raised = RnsPoly::scratch(basis, &params.ciphertext_ids(limbs));
    let work: Vec<_> = raised.limbs_mut().collect();
    work.into_par_iter().for_each(|(id, limb)| {
        let specs = basis.ntt(id);
        specs.pointwise().lift_centred(limb, low.limb(0), basis.modulus(0));
        specs.forward(limb);
    });
    Ok(raised)
}
