//! Products of a prepared grid with ciphertexts.
//!
//! ```text
//! digits of a of each input, once                                                [decompose]
//! for each prime of Q·P:
//!   r_(i, b) = φ_b(P·(b, 0) + Σ digits·key_b)     for all inputs while the key is there
//!   u_(o, G) = Σ_(i, b) d ⊙ r_(i, b)              for each run of equal diagonals a product of matrices
//! for each giant G ≠ 0: digits of ⌊a part of u / P⌉, times key_G, plus the b part, permuted; summed over Q·P
//! divide each output by P and by the last prime                                  [mod_down_rescale]
//! ```
//!
//! Rotations by single slots mix the runs of a limb, so all rotated inputs under one prime, 2·N words each, are kept in
//! memory while they are multiplied.

use std::borrow::Cow;

use hushed_math::{Eval, GemmScratch, RnsPoly, Room};
use hushed_rlwe::hybrid::{Decomposed, EvalKeys, Extended, decompose, mod_down, mod_down_rescale};
use rayon::prelude::*;

use super::PreparedGrid;
use crate::ciphertext::Ciphertext;
use crate::counters::Switches;
use crate::error::CkksError;
use crate::evaluator::Evaluator;
use crate::lintrans::{LinTransError, Pair, Parts};
use crate::noise::Noise;

/// One input: both parts and the digits of a.
struct Input<'a> {
    b: &'a RnsPoly<Eval>,
    a: &'a RnsPoly<Eval>,
    digits: Decomposed,
}

impl PreparedGrid {
    /// The outputs for inputs of one scale, with one prime fewer and scale [`PreparedGrid::output_scale`].
    ///
    /// # Errors
    /// [`CkksError::LinTrans`] with [`LinTransError::Length`] if the number of inputs is wrong,
    /// [`LinTransError::Level`] if one has fewer primes than [`PreparedGrid::limbs`] (longer ones are truncated), or
    /// `MissingKey`; [`CkksError::ScaleMismatch`], [`CkksError::NoKeys`], [`CkksError::OtherParameters`].
    pub fn apply(&self, evaluator: &Evaluator, inputs: &[&Ciphertext]) -> Result<Vec<Ciphertext>, CkksError> {
        let operation = "grid of linear maps";
        let keys = evaluator.keys(operation)?;
        let wrong = LinTransError::Length { expected: self.inputs, found: inputs.len() };
        let Some(first) = inputs.first().filter(|_| inputs.len() == self.inputs) else {
            return Err(wrong.into());
        };
        let scale = first.scale();
        let mut noise = Noise::exact(0.0);
        let mut cut = Vec::with_capacity(inputs.len());
        for ct in inputs {
            if !self.common.params.same_ring(ct.basis()) {
                return Err(CkksError::OtherParameters { operation });
            }
            scale.check(ct.scale(), operation)?;
            if ct.limbs() < self.common.limbs {
                return Err(LinTransError::Level {
                    limbs: ct.limbs(),
                    needed: self.common.limbs,
                    available: self.common.params.max_limbs(),
                }
                .into());
            }
            noise = noise.worse(ct.noise());
            cut.push(match ct.limbs() > self.common.limbs {
                true => Cow::Owned(evaluator.drop_to(ct, self.common.limbs)?),
                false => Cow::Borrowed(*ct),
            });
        }
        let input = |ct: &'_ Cow<'_, Ciphertext>| -> Result<Decomposed, LinTransError> {
            Ok(decompose(self.common.params.rlwe(), &self.common.gadget, ct.a())?)
        };
        let digits = cut.iter().map(input).collect::<Result<Vec<_>, _>>()?;
        let inputs: Vec<Input<'_>> =
            cut.iter().zip(digits).map(|(ct, digits)| Input { b: ct.b(), a: ct.a(), digits }).collect();
        let sums = self.inner_sums(keys, &inputs)?;
        drop(inputs);
        let outputs = self.giant_steps(keys, sums)?;
        self.count(evaluator);
        let giants = self.split.giants().len();
        let noise = self.common.noise(noise, scale, self.sums, giants);
        let outputs = outputs.into_iter().map(|(b, a)| {
            let product = Ciphertext::from_parts(b, a, self.output_scale(scale))?;
            Ok(product.with_noise(noise))
        });
        outputs.collect()
    }

    /// The sum of each giant, over Q·P.
    fn inner_sums(&self, keys: &EvalKeys, inputs: &[Input<'_>]) -> Result<Vec<Extended>, LinTransError> {
        let special = self.common.gadget.special();
        for &(rotation, _) in self.split.babies() {
            if rotation != 0 {
                self.common.key(keys, rotation)?;
            }
        }
        let params = self.common.params.rlwe();
        let zero = |_: &_| Extended::zero(params, self.common.limbs, special);
        let mut sums: Vec<Extended> = self.split.giants().iter().map(zero).collect();
        let ids = self.common.ids();
        Extended::by_limb(sums.iter_mut(), ids.len()).into_par_iter().enumerate().try_for_each(
            |(j, out)| -> Result<(), LinTransError> {
                let mut turned = Pair::many(params.basis(), self.split.babies().len());
                self.babies(keys, inputs, (j, ids[j]), &mut turned)?;
                self.multiply(j, &turned, out);
                Ok(())
            },
        )?;
        Ok(sums)
    }

    /// Every rotated input under prime `id`, limb j, baby by baby: parts b and a, N words each.
    fn babies(
        &self,
        keys: &EvalKeys,
        inputs: &[Input<'_>],
        (j, id): (usize, usize),
        turned: &mut [Pair],
    ) -> Result<(), LinTransError> {
        let params = self.common.params.rlwe();
        let (n, specs) = (params.n(), params.basis().ntt(id));
        let pointwise = specs.pointwise();
        // P·b of each input; P is zero modulo the special primes, which the inputs lack.
        let special = self.common.gadget.special();
        let weight = (j < self.common.limbs).then(|| params.p_modulo(special, id));
        let lift = |poly: &RnsPoly<Eval>, out: &mut [u64]| match weight {
            Some(weight) => pointwise.mul_scalar(out, poly.limb(j), weight),
            None => out.fill(0),
        };
        let lifted = inputs.iter().map(|input| {
            let mut room = Room::new();
            lift(input.b, room.words(n));
            room
        });
        let mut lifted: Vec<Room> = lifted.collect();
        let mut rooms = Vec::new();
        let digits: Vec<Vec<&[u64]>> = inputs.iter().map(|input| input.digits.limb(j)).collect();
        let mut turned = turned.iter_mut();
        for group in self.split.babies().chunk_by(|x, y| x.0 == y.0) {
            let rotation = group[0].0;
            let pairs = group.iter().zip(turned.by_ref());
            if rotation == 0 {
                for (&(_, input), pair) in pairs {
                    let [b, a] = pair.parts();
                    b.copy_from_slice(lifted[input].words(n));
                    lift(inputs[input].a, a);
                }
                continue;
            }
            let key = self.common.key(keys, rotation)?;
            let turn = self.common.permutation(rotation);
            let count = digits.first().map_or(0, Vec::len);
            let mut strips = key.strips(id, count);
            let [key_b, key_a] = strips.next_strip(n, &mut rooms);
            let keys = [&key_b[..], &key_a[..]];
            for (&(_, input), pair) in pairs {
                let [b, a] = pair.parts();
                let added = weight.map(|_| &*lifted[input].words(n));
                turn.dot_pair_strip(pointwise, [b, a], &digits[input], keys, added, [0, 0]);
            }
        }
        Ok(())
    }

    /// Adds the products of the diagonals with the rotated inputs to the sums of the giants, under limb j.
    fn multiply(&self, j: usize, turned: &[Pair], out: Vec<[&mut [u64]; 2]>) {
        let n = self.common.params.n();
        let (gemm, weights) = (&self.gemms[j], &self.weights[j]);
        let run = n / weights.len();
        let mut scratch = GemmScratch::new();
        let mut parts: [Vec<_>; 2] = Default::default();
        for [b, a] in out {
            parts[0].push(b.chunks_exact_mut(run));
            parts[1].push(a.chunks_exact_mut(run));
        }
        for (p, weights) in weights.iter().enumerate() {
            for (part, rows) in parts.iter_mut().enumerate() {
                let values = turned.iter().map(|pair| pair.part(part));
                let x: Vec<&[u64]> = values.map(|v| &v[p * run..(p + 1) * run]).collect();
                let mut out: Vec<&mut [u64]> = rows.iter_mut().flat_map(Iterator::next).collect();
                gemm.multiply_add(weights, &x, &mut out, &mut scratch);
            }
        }
    }

    /// Rotates the sums, adds them up per output, and divides.
    fn giant_steps(&self, keys: &EvalKeys, sums: Vec<Extended>) -> Result<Vec<Parts>, LinTransError> {
        let params = self.common.params.rlwe();
        let special = self.common.gadget.special();
        let mut totals: Vec<Option<Extended>> = (0..self.outputs).map(|_| None).collect();
        let mut sums = sums.into_iter();
        // Ascending, so the giants by 0 come first.
        for group in self.split.giants().chunk_by(|x, y| x.0 == y.0) {
            let sums: Vec<Extended> = sums.by_ref().take(group.len()).collect();
            let rotation = group[0].0;
            if rotation == 0 {
                for (&(_, output), sum) in group.iter().zip(sums) {
                    totals[output] = Some(sum);
                }
                continue;
            }
            let outputs: Vec<usize> = group.iter().map(|&(_, output)| output).collect();
            self.giant(keys, rotation, sums, (&outputs, &mut totals))?;
        }
        let divided = totals.into_iter().map(|total| {
            let total = total.ok_or(LinTransError::Empty)?;
            let (b, a) = rayon::join(
                || mod_down_rescale(params, total.b, special),
                || mod_down_rescale(params, total.a, special),
            );
            Ok((b?, a?))
        });
        divided.collect()
    }

    /// Rotates one sum of each of these outputs with a shared key and adds it to the output's total.
    fn giant(
        &self,
        keys: &EvalKeys,
        rotation: usize,
        sums: Vec<Extended>,
        (outputs, totals): (&[usize], &mut [Option<Extended>]),
    ) -> Result<(), LinTransError> {
        let params = self.common.params.rlwe();
        let special = self.common.gadget.special();
        let ids = self.common.ids();
        let key = self.common.key(keys, rotation)?;
        let permutation = self.common.permutation(rotation);
        let (mut b_parts, mut digits) = (Vec::new(), Vec::new());
        for sum in sums {
            let a = mod_down(params, sum.a, special)?;
            digits.push(decompose(params, &self.common.gadget, &a)?);
            b_parts.push(sum.b);
        }
        let digits: Vec<&Decomposed> = digits.iter().collect();
        let mut into = Vec::new();
        for (output, total) in totals.iter_mut().enumerate() {
            if outputs.contains(&output) {
                let zero = || Extended::zero(params, self.common.limbs, special);
                into.push(total.get_or_insert_with(zero));
            }
        }
        Extended::by_limb(into, ids.len()).into_par_iter().enumerate().for_each(|(j, out)| {
            let pointwise = params.basis().ntt(ids[j]).pointwise();
            let mut work = Pair::many(params.basis(), out.len());
            let mut products: Vec<[&mut [u64]; 2]> = work.iter_mut().map(Pair::parts).collect();
            key.multiply_limb(&digits, j, &mut products);
            for (([sum_b, sum_a], b), [total_b, total_a]) in products.into_iter().zip(&b_parts).zip(out) {
                pointwise.add_assign(sum_b, b.limb(j));
                permutation.apply_add_assign(pointwise.modulus(), sum_b, total_b);
                permutation.apply_add_assign(pointwise.modulus(), sum_a, total_a);
            }
        });
        Ok(())
    }

    fn count(&self, evaluator: &Evaluator) {
        let (counters, gadget) = (evaluator.counters(), &self.common.gadget);
        let (babies, giants) = self.split.key_switches();
        let switches = Switches {
            up: self.inputs + giants,
            products: babies + giants,
            down: 2 * self.outputs + giants,
            keys: self.split.rotations().len(),
        };
        counters.switched(gadget, self.common.limbs, &switches);
        counters.rotation.many(switches.products);
        let terms = self.split.babies().len() * self.split.giants().len();
        counters.pt_mul.many(terms);
        counters.rescale.many(self.outputs);
        let words = 2 * (self.common.limbs + gadget.special());
        counters.products.many(terms * words + 2 * self.common.limbs * self.outputs);
    }
}
