//! What a map and a grid of maps share: the ciphertexts and keys that they are for, and the scale and noise of their
//! products.

use std::sync::Arc;

use hushed_math::Automorphism;
use hushed_rlwe::RlweError;
use hushed_rlwe::hybrid::{EvalKeys, Gadget, KeySpec, KeySpecs, KeyUse, SwitchKey};

use crate::lintrans::LinTransError;
use crate::noise::{Noise, worst};
use crate::params::CkksParams;
use crate::scale::Scale;

/// Ciphertexts, keys and scale that diagonals are encoded for.
pub(crate) struct Common {
    pub(crate) params: Arc<CkksParams>,
    /// Number of primes of the ciphertexts.
    pub(crate) limbs: usize,
    /// The shape of the keys, which may also serve longer ciphertexts.
    pub(crate) gadget: Gadget,
    /// Scale of the diagonals.
    pub(crate) plain_scale: Scale,
}

impl Common {
    /// The primes of Q·P.
    pub(crate) fn ids(&self) -> Vec<usize> {
        let rlwe = self.params.rlwe();
        rlwe.extended_ids_with(self.limbs, self.gadget.special())
    }

    /// Scale of the product with a ciphertext of scale `input`.
    pub(crate) fn output_scale(&self, input: Scale) -> Scale {
        let dropped = self.params.prime(self.limbs - 1);
        input.times(self.plain_scale).over_prime(dropped)
    }

    /// Adds the keys of these rotations, with exactly its gadget.
    pub(crate) fn add_keys(&self, specs: &mut KeySpecs, rotations: Vec<usize>) {
        for k in rotations {
            let spec = self.spec(k);
            specs.insert(spec.key, spec.limbs, spec.special);
        }
    }

    /// The key of a rotation, with exactly its gadget.
    pub(crate) fn key<'k>(&self, keys: &'k EvalKeys, rotation: usize) -> Result<&'k SwitchKey, LinTransError> {
        let spec = self.spec(rotation);
        let exact = keys.iter().find(|key| key.spec() == spec);
        exact.ok_or_else(|| {
            let same = keys.iter().filter(|key| key.key_use() == spec.key);
            LinTransError::Rlwe(RlweError::MissingKey {
                key: spec.key,
                limbs: spec.limbs,
                longest: same.map(|key| key.gadget().limbs()).max().unwrap_or(0),
            })
        })
    }

    fn spec(&self, rotation: usize) -> KeySpec {
        let element = self.element(rotation);
        KeySpec {
            key: if self.gadget.is_raised() { KeyUse::Raised(element) } else { KeyUse::Galois(element) },
            limbs: self.gadget.limbs(),
            special: self.gadget.special(),
        }
    }

    pub(crate) fn permutation(&self, rotation: usize) -> Arc<Automorphism> {
        let basis = self.params.rlwe().basis();
        basis.automorphism(self.element(rotation))
    }

    fn element(&self, rotation: usize) -> usize {
        self.params.rotation_element(rotation as i64)
    }

    /// Noise of the product with ciphertexts of at most this noise, at this scale. `sums` are the largest row sums of
    /// moduli and of squared moduli, the sum over diagonals of their largest modulus, and the number of diagonals; all
    /// are for the output in which they are largest.
    pub(crate) fn noise(&self, input: Noise, scale: Scale, sums: [f64; 4], giants: usize) -> Noise {
        if !input.is_known() {
            return Noise::UNKNOWN;
        }
        let n = self.params.n();
        let [l1, l2, _, count] = sums;
        // Each product with a diagonal contributes the error of its encoding.
        let encoding = Noise::encoded(n, self.plain_scale, 0.0).deviation();
        let products = count.sqrt() * encoding * input.magnitude();
        Noise::new(input.magnitude() * l1, input.deviation() * l2.sqrt())
            .with_norm(self.norm(input, scale, sums, giants))
            .plus(products, 0.0)
            .rounded(n, self.output_scale(scale))
    }

    /// A bound on the norm of that error before the last rounding: |Σ d ⊙ φ(e)| ≤ Σ max|d|·|e| over the diagonals d.
    /// Each rotated input adds a key-switch error, each encoded diagonal a rounding error that multiplies message and
    /// error, and each giant step a rounding by P and a key switch at the scale of the products.
    fn norm(&self, input: Noise, scale: Scale, sums: [f64; 4], giants: usize) -> f64 {
        let (n, [_, _, diagonals, count]) = (self.params.n(), sums);
        let [ratios, _] = self.params.digit_ratios(&self.gadget, self.limbs);
        let switching = worst::switching(n, ratios);
        let error = input.norm() + switching / scale.value();
        let encoding = count * worst::encoding(n) / self.plain_scale.value() + worst::DOUBLES * diagonals;
        let meets = input.magnitude() + (n as f64).sqrt() * error;
        let giants = giants as f64 * (switching + worst::rounding(n));
        let products = scale.times(self.plain_scale).value();
        diagonals * error + encoding * meets + giants / products
    }
}
