//! Encryption and decryption. Messages arrive already scaled into Z_Q (see [`crate::message`]).

use hushed_math::poly::Domain;
use hushed_math::rng::{PublicSeed, SecretRng};
use hushed_math::{Coeff, Eval, RnsPoly, SecretPoly, sample};

use crate::ciphertext::{Ciphertext, SeededCiphertext, StreamDomain, small, uniform};
use crate::error::RlweError;
use crate::keys::{PublicKey, SecretKey};
use crate::message::check_limbs;

impl SecretKey {
    /// Encrypts `message` under this key: phase = message + e, at half the bytes of a public-key ciphertext. The
    /// ciphertext has the primes of the message, a prefix of the ciphertext primes.
    ///
    /// # Errors
    /// [`RlweError::IncompatibleParameters`], [`RlweError::LimbCount`], [`RlweError::Limbs`];
    /// [`hushed_math::MathError::Forked`].
    pub fn encrypt_seeded(&self, message: RnsPoly<Coeff>, rng: &mut SecretRng) -> Result<SeededCiphertext, RlweError> {
        let mut message = SecretPoly::new(message);
        let (seed, a) = self.uniform_for(message.expose(), rng)?;
        // Message and error are transformed together.
        let e = SecretPoly::new(self.error(a.ids(), rng));
        message.expose_mut().add_assign(e.expose());
        let b = self.hide(message.expose().clone(), &a);
        Ok(SeededCiphertext { seed, b })
    }

    /// As [`SecretKey::encrypt_seeded`] for a message in evaluation form.
    pub fn encrypt_seeded_eval(
        &self,
        message: &RnsPoly<Eval>,
        rng: &mut SecretRng,
    ) -> Result<SeededCiphertext, RlweError> {
        let (seed, a) = self.uniform_for(message, rng)?;
        let mut b = self.mask(&a, rng);
        b.add_assign(message);
        Ok(SeededCiphertext { seed, b })
    }

    /// A seed and its uniform part modulo the primes of `message`.
    fn uniform_for<D: Domain>(
        &self,
        message: &RnsPoly<D>,
        rng: &mut SecretRng,
    ) -> Result<(PublicSeed, RnsPoly<Eval>), RlweError> {
        self.check_process()?;
        rng.check()?;
        let params = self.params();
        let limbs = message.ids().len();
        if limbs == 0 || limbs > params.q_len() {
            return Err(RlweError::LimbCount { given: limbs, available: params.q_len() });
        }
        check_limbs(params, message, limbs)?;
        let seed = rng.public_seed();
        let ids = message.ids();
        let a = uniform(&seed, StreamDomain::Ciphertext, params.basis(), ids);
        Ok((seed, a))
    }

    /// b + a·s in coefficient form: message plus noise.
    ///
    /// # Errors
    /// [`RlweError::IncompatibleParameters`], [`RlweError::LimbCount`], [`RlweError::Limbs`];
    /// [`hushed_math::MathError::Forked`].
    pub fn decrypt_phase(&self, ct: &Ciphertext) -> Result<RnsPoly<Coeff>, RlweError> {
        self.check_process()?;
        ct.check(self.params())?;
        let mut phase = ct.b.clone();
        self.add_product(&mut phase, &ct.a);
        Ok(phase.into_coeff())
    }

    /// As [`SecretKey::decrypt_phase`], for parts in coefficient form, as in a response.
    pub(crate) fn phase(&self, b: RnsPoly<Coeff>, a: RnsPoly<Coeff>) -> Result<RnsPoly<Coeff>, RlweError> {
        self.check_process()?;
        check_limbs(self.params(), &a, a.ids().len())?;
        check_limbs(self.params(), &b, a.ids().len())?;
        let a = a.into_eval();
        let mut product = RnsPoly::<Eval>::zero(self.params().basis(), a.ids());
        self.add_product(&mut product, &a);
        let mut phase = product.into_coeff();
        phase.add_assign(&b);
        Ok(phase)
    }

    fn add_product(&self, acc: &mut RnsPoly<Eval>, a: &RnsPoly<Eval>) {
        for (j, &id) in a.ids().iter().enumerate() {
            let pointwise = self.params().basis().ntt(id).pointwise();
            pointwise.mul_add_assign(acc.limb_mut(j), a.limb(j), self.s().limb(id));
        }
    }
}

impl PublicKey {
    /// A fresh encryption of zero modulo the first `limbs` primes: (u·b + e_1, u·a + e_2) with ternary u.
    ///
    /// # Errors
    /// [`RlweError::LimbCount`]; [`hushed_math::MathError::Forked`].
    pub fn encrypt_zero(&self, rng: &mut SecretRng, limbs: usize) -> Result<Ciphertext, RlweError> {
        if limbs == 0 || limbs > self.params().q_len() {
            return Err(RlweError::LimbCount { given: limbs, available: self.params().q_len() });
        }
        let (b, a) = self.add_zero(Ciphertext::zero(self.params(), limbs), rng)?;
        Ok(Ciphertext { b: b.into_eval(), a: a.into_eval() })
    }

    /// `ct` plus a fresh encryption of zero, both parts in coefficient form: adding the errors there saves their
    /// transforms.
    pub(crate) fn add_zero(
        &self,
        ct: Ciphertext,
        rng: &mut SecretRng,
    ) -> Result<(RnsPoly<Coeff>, RnsPoly<Coeff>), RlweError> {
        rng.check()?;
        let params = self.params();
        ct.check(params)?;
        let ids = ct.b.ids().to_vec();
        let u = sample::ternary(rng, params.n());
        let u = SecretPoly::new(small(params.basis(), &ids, &u).into_eval());
        let mut part = |mut sum: RnsPoly<Eval>, key: &RnsPoly<Eval>| {
            for (j, &id) in ids.iter().enumerate() {
                let pointwise = params.basis().ntt(id).pointwise();
                pointwise.mul_add_assign(sum.limb_mut(j), u.expose().limb(j), key.limb(id));
            }
            let mut sum = sum.into_coeff();
            let e = sample::centred_binomial(rng, params.n());
            let e = SecretPoly::new(small(params.basis(), &ids, &e));
            sum.add_assign(e.expose());
            sum
        };
        let b = part(ct.b, &self.b);
        let a = part(ct.a, &self.a);
        Ok((b, a))
    }
}
