//! Sums, and products with plaintexts and constants. They need no keys and no transforms.

use num_complex::Complex64;

use super::Evaluator;
use super::limbs::{add_multiple, blank, each, each_part, truncate};
use crate::ciphertext::Ciphertext;
use crate::encoding::Constant;
use crate::error::CkksError;
use crate::noise::Noise;
use crate::plaintext::Plaintext;
use crate::scale::Scale;

impl Evaluator {
    /// left + right.
    ///
    /// # Errors
    /// [`CkksError::ScaleMismatch`], [`CkksError::OtherParameters`].
    pub fn add(&self, left: &Ciphertext, right: &Ciphertext) -> Result<Ciphertext, CkksError> {
        let limbs = self.check_pair(left, right, "add")?;
        left.scale.check(right.scale, "add")?;
        self.counters.add.one();
        let mut out = blank(left, limbs);
        out.noise = sum(left, right.noise, right.scale);
        each_part(&mut out, |part, j, ntt, out| {
            let (x, y) = (part.of(left).limb(j), part.of(right).limb(j));
            ntt.pointwise().add(out, x, y);
        });
        Ok(out)
    }

    /// acc ← acc + other.
    ///
    /// # Errors
    /// As [`Evaluator::add`].
    pub fn add_assign(&self, acc: &mut Ciphertext, other: &Ciphertext) -> Result<(), CkksError> {
        let limbs = self.check_pair(acc, other, "add")?;
        acc.scale.check(other.scale, "add")?;
        self.counters.add.one();
        truncate(acc, limbs);
        acc.noise = sum(acc, other.noise, other.scale);
        each_part(acc, |part, j, ntt, acc| {
            ntt.pointwise().add_assign(acc, part.of(other).limb(j));
        });
        Ok(())
    }

    /// left − right.
    ///
    /// # Errors
    /// As [`Evaluator::add`].
    pub fn sub(&self, left: &Ciphertext, right: &Ciphertext) -> Result<Ciphertext, CkksError> {
        let limbs = self.check_pair(left, right, "sub")?;
        left.scale.check(right.scale, "sub")?;
        self.counters.add.one();
        let mut out = blank(left, limbs);
        out.noise = sum(left, right.noise, right.scale);
        each_part(&mut out, |part, j, ntt, out| {
            let (x, y) = (part.of(left).limb(j), part.of(right).limb(j));
            ntt.pointwise().sub(out, x, y);
        });
        Ok(out)
    }

    /// acc ← acc − other.
    ///
    /// # Errors
    /// As [`Evaluator::add`].
    pub fn sub_assign(&self, acc: &mut Ciphertext, other: &Ciphertext) -> Result<(), CkksError> {
        let limbs = self.check_pair(acc, other, "sub")?;
        acc.scale.check(other.scale, "sub")?;
        self.counters.add.one();
        truncate(acc, limbs);
        acc.noise = sum(acc, other.noise, other.scale);
        each_part(acc, |part, j, ntt, acc| {
            ntt.pointwise().sub_assign(acc, part.of(other).limb(j));
        });
        Ok(())
    }

    /// ct ← −ct.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`].
    pub fn neg_assign(&self, ct: &mut Ciphertext) -> Result<(), CkksError> {
        self.check(ct, "neg")?;
        each_part(ct, |_, _, ntt, limb| ntt.pointwise().neg_assign(limb));
        Ok(())
    }

    /// ct ← ct + plain.
    ///
    /// # Errors
    /// [`CkksError::ScaleMismatch`], [`CkksError::OtherParameters`].
    pub fn add_plain_assign(&self, ct: &mut Ciphertext, plain: &Plaintext) -> Result<(), CkksError> {
        self.check(ct, "add_plain")?;
        self.check_plain(plain, "add_plain")?;
        truncate(ct, ct.limbs().min(plain.limbs()));
        ct.scale.check(plain.scale, "add_plain")?;
        ct.noise = sum(ct, plain.noise, plain.scale);
        each(&mut ct.b, |j, ntt, limb| {
            ntt.pointwise().add_assign(limb, plain.poly.limb(j));
        });
        Ok(())
    }

    /// ct·plain, not rescaled: the result has the product of the scales.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`].
    pub fn mul_plain(&self, ct: &Ciphertext, plain: &Plaintext) -> Result<Ciphertext, CkksError> {
        self.check(ct, "mul_plain")?;
        self.check_plain(plain, "mul_plain")?;
        self.counters.pt_mul.one();
        let mut out = blank(ct, ct.limbs().min(plain.limbs()));
        self.counters.products.many(2 * out.limbs());
        out.scale = ct.scale.times(plain.scale);
        out.noise = ct.noise.product(plain.noise, self.params.n());
        each_part(&mut out, |part, j, ntt, out| {
            ntt.pointwise().mul(out, part.of(ct).limb(j), plain.poly.limb(j));
        });
        Ok(out)
    }

    /// acc ← acc + ct·plain; `acc` must have the scale of the product.
    ///
    /// # Errors
    /// As [`Evaluator::add`]. [`CkksError::LevelTooLow`] if `ct` or `plain` has fewer primes than `acc`.
    pub fn mul_plain_add_assign(
        &self,
        acc: &mut Ciphertext,
        ct: &Ciphertext,
        plain: &Plaintext,
    ) -> Result<(), CkksError> {
        let operation = "mul_plain_add";
        self.check_pair(acc, ct, operation)?;
        self.check_plain(plain, operation)?;
        acc.scale.check(ct.scale.times(plain.scale), operation)?;
        self.check_long(acc, ct.limbs().min(plain.limbs()), operation)?;
        self.counters.pt_mul.one();
        self.counters.add.one();
        self.counters.products.many(2 * acc.limbs());
        let product = ct.noise.product(plain.noise, self.params.n());
        acc.noise = sum(acc, product, ct.scale.times(plain.scale));
        each_part(acc, |part, j, ntt, acc| {
            let (x, y) = (part.of(ct).limb(j), plain.poly.limb(j));
            ntt.pointwise().mul_add_assign(acc, x, y);
        });
        Ok(())
    }

    /// ct ← ct + value in every slot.
    ///
    /// # Errors
    /// [`CkksError::ValueOutOfRange`], [`CkksError::OtherParameters`].
    pub fn add_scalar_assign(&self, ct: &mut Ciphertext, value: Complex64) -> Result<(), CkksError> {
        self.check(ct, "add_scalar")?;
        let constant = Constant::new(value, ct.scale)?;
        ct.noise = ct.noise.plus_rounded(value.norm(), ct.scale);
        each(&mut ct.b, |j, ntt, limb| {
            let residue = constant.residue(&self.params, j);
            let (first, second) = limb.split_at_mut(limb.len() / 2);
            ntt.pointwise().add_scalar_assign(first, residue.first);
            ntt.pointwise().add_scalar_assign(second, residue.second);
        });
        Ok(())
    }

    /// ct·value with the constant at `scale`, not rescaled: the result has the product of the scales.
    ///
    /// # Errors
    /// [`CkksError::ValueOutOfRange`], [`CkksError::OtherParameters`].
    pub fn mul_scalar(&self, ct: &Ciphertext, value: Complex64, scale: Scale) -> Result<Ciphertext, CkksError> {
        self.check(ct, "mul_scalar")?;
        let constant = Constant::new(value, scale)?;
        let mut out = blank(ct, ct.limbs());
        self.counters.scalar_mul.one();
        self.counters.products.many(2 * ct.limbs());
        out.scale = ct.scale.times(scale);
        out.noise = ct.noise.times_rounded(value.norm(), scale);
        each_part(&mut out, |part, j, ntt, out| {
            let residue = constant.residue(&self.params, j);
            let half = out.len() / 2;
            let (first, second) = out.split_at_mut(half);
            let from = part.of(ct).limb(j);
            let pointwise = ntt.pointwise();
            pointwise.mul_scalar(first, &from[..half], residue.first);
            pointwise.mul_scalar(second, &from[half..], residue.second);
        });
        Ok(out)
    }

    /// acc ← acc + ct·value with the constant at `scale`; `acc` must have the scale of the product.
    ///
    /// # Errors
    /// As [`Evaluator::mul_scalar`] and [`Evaluator::add`]; [`CkksError::LevelTooLow`] if `ct` has fewer primes than
    /// `acc`.
    pub fn mul_scalar_add_assign(
        &self,
        acc: &mut Ciphertext,
        ct: &Ciphertext,
        value: Complex64,
        scale: Scale,
    ) -> Result<(), CkksError> {
        let operation = "mul_scalar_add";
        self.check_pair(acc, ct, operation)?;
        acc.scale.check(ct.scale.times(scale), operation)?;
        self.check_long(acc, ct.limbs(), operation)?;
        let constant = Constant::new(value, scale)?;
        self.counters.scalar_mul.one();
        self.counters.add.one();
        self.counters.products.many(2 * acc.limbs());
        let product = ct.noise.times_rounded(value.norm(), scale);
        acc.noise = sum(acc, product, ct.scale.times(scale));
        each_part(acc, |part, j, ntt, acc| {
            let residue = constant.residue(&self.params, j);
            add_multiple(ntt, acc, part.of(ct).limb(j), residue);
        });
        Ok(())
    }

    /// ct ← ct·value for an integer: scale and level stay the same.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`].
    pub fn mul_int_assign(&self, ct: &mut Ciphertext, value: i64) -> Result<(), CkksError> {
        self.check(ct, "mul_int")?;
        ct.noise = ct.noise.times(value.unsigned_abs() as f64);
        self.mul_constant(ct, Constant::integer(value));
        Ok(())
    }

    /// ct ← i·ct: X^(N/2) is i in every slot, so scale, level and error stay the same.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`].
    pub fn mul_i_assign(&self, ct: &mut Ciphertext) -> Result<(), CkksError> {
        self.check(ct, "mul_i")?;
        self.mul_constant(ct, Constant::imaginary_unit());
        Ok(())
    }

    /// Multiplies the residues; the caller updates scale and noise.
    fn mul_constant(&self, ct: &mut Ciphertext, constant: Constant) {
        self.counters.scalar_mul.one();
        self.counters.products.many(2 * ct.limbs());
        each_part(ct, |_, j, ntt, limb| {
            let residue = constant.residue(&self.params, j);
            let (first, second) = limb.split_at_mut(limb.len() / 2);
            ntt.pointwise().mul_scalar_assign(first, residue.first);
            ntt.pointwise().mul_scalar_assign(second, residue.second);
        });
    }

    pub(super) fn check_plain(&self, plain: &Plaintext, operation: &'static str) -> Result<(), CkksError> {
        if self.params.same_ring(plain.poly.basis()) {
            return Ok(());
        }
        Err(CkksError::OtherParameters { operation })
    }

    /// Checks that an operand of `limbs` primes covers all primes of `acc`.
    fn check_long(&self, acc: &Ciphertext, limbs: usize, operation: &'static str) -> Result<(), CkksError> {
        if limbs >= acc.limbs() {
            return Ok(());
        }
        Err(CkksError::LevelTooLow { operation, limbs, needed: acc.limbs() })
    }
}

/// Noise of `acc` plus a message whose `scale` matches that of `acc`.
fn sum(acc: &Ciphertext, other: Noise, scale: Scale) -> Noise {
    acc.noise.sum(other.read_at(scale, acc.scale))
}
