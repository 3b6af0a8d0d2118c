//! Products of ciphertexts: tensors, their sums, and relinearisation.
//!
//! (b_1 + a_1·s)·(b_2 + a_2·s) = d_0 + d_1·s + d_2·s². A [`Tensor`] is (d_0, d_1, d_2). Tensors of equal scale can be
//! added and then relinearised once, and relinearisation is nearly all the cost of a product. A relinearisation
//! followed by a rescale divides by P·q_last at once: P·d_i joins the inner products modulo Q·P, which saves the
//! transforms of one of the two divisions.

use hushed_math::{Eval, RnsPoly};
use hushed_rlwe::hybrid::{KeyUse, SwitchKey, switch_add, switch_add_rescale};
use num_complex::Complex64;
use rayon::prelude::*;

use super::Evaluator;
use super::limbs::{Part, add_combination, each};
use crate::ciphertext::{Ciphertext, check_limbs};
use crate::counters::Switches;
use crate::encoding::Constant;
use crate::error::CkksError;
use crate::noise::Noise;
use crate::plaintext::Plaintext;
use crate::scale::Scale;

/// A sum of products, not relinearised: d_0 + d_1·s + d_2·s² = scale·message + error.
#[derive(Clone)]
pub struct Tensor {
    pub(super) d: [RnsPoly<Eval>; 3],
    pub(super) scale: Scale,
    pub(super) noise: Noise,
    /// Whether d_2 may be nonzero.
    pub(super) quadratic: bool,
}

impl Tensor {
    /// Number of primes.
    pub fn limbs(&self) -> usize {
        self.d[0].ids().len()
    }

    /// The factor between the message and the integers.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// What is known about the size of the message and its error.
    pub fn noise(&self) -> Noise {
        self.noise
    }

    /// d_0, d_1, d_2.
    pub fn parts(&self) -> &[RnsPoly<Eval>; 3] {
        &self.d
    }

    /// The same integers, read as `factor` times the message; see [`Ciphertext::read_as`].
    ///
    /// # Errors
    /// [`CkksError::InvalidScale`] unless the new scale is positive and finite.
    pub fn read_as(self, factor: f64) -> Result<Self, CkksError> {
        let scale = Scale::new(self.scale.value() / factor)?;
        Ok(Self { scale, noise: self.noise.times(factor), ..self })
    }
}

impl Evaluator {
    /// The empty sum over the first `limbs` primes, for products and multiples at `scale`.
    ///
    /// # Errors
    /// [`CkksError::LimbCount`].
    pub fn empty_tensor(&self, limbs: usize, scale: Scale) -> Result<Tensor, CkksError> {
        check_limbs(&self.params, "empty_tensor", limbs)?;
        let ids = self.params.rlwe().ciphertext_ids(limbs);
        Ok(Tensor {
            d: [0; 3].map(|_| RnsPoly::zero(self.params.rlwe().basis(), &ids)),
            scale,
            noise: Noise::exact(0.0),
            quadratic: false,
        })
    }

    /// The product, not relinearised.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`].
    pub fn tensor(&self, left: &Ciphertext, right: &Ciphertext) -> Result<Tensor, CkksError> {
        self.tensor_over(left, right, left.limbs().min(right.limbs()))
    }

    /// The product over the first `limbs` primes, not relinearised.
    ///
    /// # Errors
    /// [`CkksError::LevelTooLow`] if an operand has fewer, [`CkksError::LimbCount`], [`CkksError::OtherParameters`].
    pub fn tensor_over(&self, left: &Ciphertext, right: &Ciphertext, limbs: usize) -> Result<Tensor, CkksError> {
        let shared = self.check_pair(left, right, "tensor")?;
        check_limbs(&self.params, "tensor", limbs)?;
        if shared < limbs {
            return Err(CkksError::LevelTooLow { operation: "tensor", limbs: shared, needed: limbs });
        }
        self.counters.ct_mul.one();
        self.counters.products.many(4 * limbs);
        let ids: Vec<usize> = (0..limbs).collect();
        let mut out = Tensor {
            d: [0; 3].map(|_| RnsPoly::scratch(left.basis(), &ids)),
            scale: left.scale.times(right.scale),
            noise: left.noise.product(right.noise, self.params.n()),
            quadratic: true,
        };
        each_limb(&mut out, |j, d| {
            let ntt = left.basis().ntt(j);
            ntt.pointwise().tensor(d, parts(left, j), parts(right, j));
        });
        Ok(out)
    }

    /// acc ← acc + left·right, so that the sum of products is relinearised only once.
    ///
    /// # Errors
    /// [`CkksError::ScaleMismatch`], [`CkksError::OtherParameters`]; [`CkksError::LevelTooLow`] if an operand has fewer
    /// primes than `acc`.
    pub fn tensor_add_assign(&self, acc: &mut Tensor, left: &Ciphertext, right: &Ciphertext) -> Result<(), CkksError> {
        let limbs = self.check_pair(left, right, "tensor_add")?;
        self.check_tensor(acc, "tensor_add")?;
        acc.scale.check(left.scale.times(right.scale), "tensor_add")?;
        if limbs < acc.limbs() {
            return Err(CkksError::LevelTooLow { operation: "tensor_add", limbs, needed: acc.limbs() });
        }
        self.counters.ct_mul.one();
        self.counters.products.many(4 * acc.limbs());
        acc.quadratic = true;
        let product = left.noise.product(right.noise, self.params.n());
        let product = product.read_at(left.scale.times(right.scale), acc.scale);
        acc.noise = acc.noise.sum(product);
        each_limb(acc, |j, d| {
            let ntt = left.basis().ntt(j);
            ntt.pointwise().tensor_add_assign(d, parts(left, j), parts(right, j));
        });
        Ok(())
    }

    /// acc ← acc + value·ct, with the constant encoded at the ratio of the scales of `acc` and `ct`.
    ///
    /// # Errors
    /// As [`Evaluator::tensor_add_combination`].
    pub fn tensor_add_multiple(&self, acc: &mut Tensor, ct: &Ciphertext, value: Complex64) -> Result<(), CkksError> {
        self.tensor_add_combination(acc, &[(value, ct)])
    }

    /// acc ← acc + Σ value·ct, each constant encoded at the ratio of the scales of `acc` and its ciphertext; `acc` is
    /// read and written once for all of them.
    ///
    /// # Errors
    /// [`CkksError::LevelTooLow`] if a ciphertext has fewer primes than `acc`, [`CkksError::ValueOutOfRange`],
    /// [`CkksError::OtherParameters`]; `acc` is unchanged then.
    pub fn tensor_add_combination(
        &self,
        acc: &mut Tensor,
        terms: &[(Complex64, &Ciphertext)],
    ) -> Result<(), CkksError> {
        let operation = "tensor_add_combination";
        self.check_tensor(acc, operation)?;
        let mut constants = Vec::with_capacity(terms.len());
        let mut noise = acc.noise;
        for &(value, ct) in terms {
            self.check(ct, operation)?;
            if ct.limbs() < acc.limbs() {
                return Err(CkksError::LevelTooLow { operation, limbs: ct.limbs(), needed: acc.limbs() });
            }
            let scale = acc.scale.over(ct.scale);
            constants.push(Constant::new(value, scale)?);
            noise = noise.sum(ct.noise.times_rounded(value.norm(), scale));
        }
        acc.noise = noise;
        self.counters.scalar_mul.many(terms.len());
        self.counters.add.many(terms.len());
        self.counters.products.many(2 * acc.limbs() * constants.len());
        let [d0, d1, _] = &mut acc.d;
        for (d, part) in [(d0, Part::B), (d1, Part::A)] {
            each(d, |j, ntt, limb| {
                let from: Vec<&[u64]> = terms.iter().map(|(_, ct)| part.of(ct).limb(j)).collect();
                let residues = constants.iter().map(|c| c.residue(&self.params, j));
                add_combination(ntt, limb, &from, &residues.collect::<Vec<_>>());
            });
        }
        Ok(())
    }

    /// acc ← acc + ct·plain, over the primes of `acc`.
    ///
    /// # Errors
    /// [`CkksError::ScaleMismatch`] unless the product has the scale of `acc`, [`CkksError::OtherParameters`],
    /// [`CkksError::LevelTooLow`] if `ct` or `plain` has fewer primes than `acc`.
    pub fn tensor_add_plain(&self, acc: &mut Tensor, ct: &Ciphertext, plain: &Plaintext) -> Result<(), CkksError> {
        let operation = "tensor_add_plain";
        self.check(ct, operation)?;
        self.check_plain(plain, operation)?;
        self.check_tensor(acc, operation)?;
        let limbs = ct.limbs().min(plain.limbs());
        if limbs < acc.limbs() {
            return Err(CkksError::LevelTooLow { operation, limbs, needed: acc.limbs() });
        }
        acc.scale.check(ct.scale.times(plain.scale), operation)?;
        self.counters.pt_mul.one();
        self.counters.add.one();
        self.counters.products.many(2 * acc.limbs());
        let product = ct.noise.product(plain.noise, self.params.n());
        acc.noise = acc.noise.sum(product);
        let [d0, d1, _] = &mut acc.d;
        for (d, from) in [(d0, &ct.b), (d1, &ct.a)] {
            each(d, |j, ntt, limb| {
                let (x, y) = (from.limb(j), plain.poly.limb(j));
                ntt.pointwise().mul_add_assign(limb, x, y);
            });
        }
        Ok(())
    }

    /// Relinearises and rescales a sum of products and multiples. Without products there is nothing to relinearise.
    ///
    /// # Errors
    /// As [`Evaluator::relinearize_rescale`].
    pub fn finish_tensor(&self, tensor: Tensor) -> Result<Ciphertext, CkksError> {
        if tensor.quadratic {
            return self.relinearize_rescale(&tensor);
        }
        let [b, a, _] = tensor.d;
        let ct = Ciphertext::from_parts(b, a, tensor.scale)?.with_noise(tensor.noise);
        self.rescale(&ct)
    }

    /// acc ← acc + other, for tensors of equal length.
    ///
    /// # Errors
    /// [`CkksError::ScaleMismatch`], [`CkksError::OtherParameters`], [`CkksError::LevelTooLow`] if the lengths differ.
    pub fn add_tensor(&self, acc: &mut Tensor, other: &Tensor) -> Result<(), CkksError> {
        self.check_tensor(acc, "add_tensor")?;
        self.check_tensor(other, "add_tensor")?;
        acc.scale.check(other.scale, "add_tensor")?;
        if acc.limbs() != other.limbs() {
            return Err(CkksError::LevelTooLow {
                operation: "add_tensor",
                limbs: acc.limbs().min(other.limbs()),
                needed: acc.limbs().max(other.limbs()),
            });
        }
        self.counters.add.one();
        acc.quadratic |= other.quadratic;
        acc.noise = acc.noise.sum(other.noise.read_at(other.scale, acc.scale));
        for (acc, other) in acc.d.iter_mut().zip(&other.d) {
            each(acc, |j, ntt, limb| {
                ntt.pointwise().add_assign(limb, other.limb(j));
            });
        }
        Ok(())
    }

    /// Relinearises a tensor, keeping its scale.
    ///
    /// # Errors
    /// [`CkksError::NoKeys`], [`CkksError::MissingKey`] if no relinearisation key is long enough,
    /// [`CkksError::OtherParameters`].
    pub fn relinearize(&self, tensor: &Tensor) -> Result<Ciphertext, CkksError> {
        let (key, limbs) = self.relin_key(tensor, "relinearize")?;
        let [d0, d1, d2] = &tensor.d;
        let (b, a) = switch_add([d0, d1], d2, key)?;
        self.counters.switched(key.gadget(), limbs, &Switches::ONE);
        let noise = self.switched(tensor.noise, key.gadget(), limbs, tensor.scale, false);
        Ok(Ciphertext::from_parts(b, a, tensor.scale)?.with_noise(noise))
    }

    /// Relinearises and rescales a tensor with one division.
    ///
    /// # Errors
    /// As [`Evaluator::relinearize`], and [`CkksError::LevelTooLow`] if only one prime is left.
    pub fn relinearize_rescale(&self, tensor: &Tensor) -> Result<Ciphertext, CkksError> {
        let (key, limbs) = self.relin_key(tensor, "relinearize_rescale")?;
        let q = self.last_prime(limbs, "relinearize_rescale")?;
        let [d0, d1, d2] = &tensor.d;
        let (b, a) = switch_add_rescale([d0, d1], d2, key)?;
        // A prime that a division drops is transformed back instead of forth: the count is the same.
        self.counters.switched(key.gadget(), limbs, &Switches::ONE);
        self.counters.rescale.one();
        self.counters.products.many(2 * limbs);
        let noise = self.switched(tensor.noise, key.gadget(), limbs, tensor.scale, true);
        Ok(Ciphertext::from_parts(b, a, tensor.scale.over_prime(q))?.with_noise(noise))
    }

    /// left·right, relinearised but not rescaled.
    ///
    /// # Errors
    /// As [`Evaluator::relinearize`].
    pub fn mul(&self, left: &Ciphertext, right: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.relinearize(&self.tensor(left, right)?)
    }

    /// left·right, relinearised and rescaled.
    ///
    /// # Errors
    /// As [`Evaluator::relinearize_rescale`].
    pub fn mul_rescale(&self, left: &Ciphertext, right: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.relinearize_rescale(&self.tensor(left, right)?)
    }

    fn relin_key(&self, tensor: &Tensor, operation: &'static str) -> Result<(&SwitchKey, usize), CkksError> {
        self.check_tensor(tensor, operation)?;
        let limbs = tensor.limbs();
        Ok((self.key(operation, KeyUse::Relin, None, limbs)?, limbs))
    }

    fn check_tensor(&self, tensor: &Tensor, operation: &'static str) -> Result<(), CkksError> {
        if self.params.same_ring(tensor.d[0].basis()) {
            return Ok(());
        }
        Err(CkksError::OtherParameters { operation })
    }
}

/// Both parts of limb `j`.
fn parts(ct: &Ciphertext, j: usize) -> [&[u64]; 2] {
    [ct.b.limb(j), ct.a.limb(j)]
}

/// Calls `f` with limb j of all three parts.
fn each_limb(tensor: &mut Tensor, f: impl Fn(usize, [&mut [u64]; 3]) + Sync) {
    let [d0, d1, d2] = &mut tensor.d;
    let limbs: Vec<_> = d0
        .limbs_mut()
        .zip(d1.limbs_mut())
        .zip(d2.limbs_mut())
        .map(|(((j, x), (_, y)), (_, z))| (j, [x, y, z]))
        .collect();
    limbs.into_par_iter().for_each(|(j, d)| f(j, d));
}
