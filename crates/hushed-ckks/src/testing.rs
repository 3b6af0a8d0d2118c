//! Helpers for this crate's tests: keys of a small insecure ring, random messages, precision in bits.

use std::sync::Arc;

use hushed_math::rng::SecretRng;

use crate::encoding::Encoder;
use crate::encrypt::{Decryptor, Encryptor};
use crate::evaluator::Evaluator;
use crate::keys::{EvalKeys, KeySpecs, SecretKey};
use crate::params::CkksParams;
use crate::{Ciphertext, Complex64};

/// Keys, encoder and evaluator of one parameter set, all derived from one seed.
pub(crate) struct Fixture {
    pub(crate) params: Arc<CkksParams>,
    pub(crate) encoder: Arc<Encoder>,
    pub(crate) key: Arc<SecretKey>,
    pub(crate) encryptor: Encryptor,
    pub(crate) decryptor: Decryptor,
    pub(crate) evaluator: Evaluator,
    pub(crate) rng: SecretRng,
}

impl Fixture {
    /// A fixture with the keys of `specs`.
    pub(crate) fn new(params: &Arc<CkksParams>, specs: &KeySpecs, seed: u64) -> Self {
        let mut rng = SecretRng::insecure_from_seed(seed);
        let key = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
        let keys = EvalKeys::generate(&key, specs, &mut rng).unwrap();
        let encoder = Arc::new(Encoder::new(params));
        Self {
            params: params.clone(),
            encryptor: Encryptor::new(params, &key).unwrap(),
            decryptor: Decryptor::new(&encoder, &key).unwrap(),
            evaluator: Evaluator::new(params, Arc::new(keys)).unwrap(),
            encoder,
            key,
            rng,
        }
    }

    /// Uniform values in the square [-1, 1]².
    pub(crate) fn random(&mut self) -> Vec<Complex64> {
        random(&mut self.rng, self.params.slots())
    }

    /// An encryption at the default scale.
    pub(crate) fn encrypt(&mut self, values: &[Complex64], limbs: usize) -> Ciphertext {
        let scale = self.params.default_scale();
        let plain = self.encoder.encode(values, limbs, scale).unwrap();
        self.encryptor.encrypt(&plain, &mut self.rng).unwrap()
    }

    /// Least and mean bits of precision of `ct` against `expected`; see [`bits`].
    pub(crate) fn bits(&self, ct: &Ciphertext, expected: &[Complex64]) -> (f64, f64) {
        bits(&self.decryptor.decrypt_raw(ct).unwrap(), expected)
    }
}

/// log2 of the error norm of `ct`, and of the bound that `ct` carries, which must be above it.
pub(crate) fn norm_bits(f: &Fixture, ct: &Ciphertext, expected: &[Complex64]) -> (f64, f64) {
    let found = f.decryptor.decrypt_raw(ct).unwrap();
    let squares = found.iter().zip(expected).map(|(x, y)| (x - y).norm_sqr());
    // The coefficient norm is the root mean square over the slots.
    let norm = (squares.sum::<f64>() / found.len() as f64).sqrt();
    let bound = ct.noise().norm();
    assert!(norm <= bound, "norm {norm:e}, bound {bound:e}");
    (norm.log2(), bound.log2())
}

/// Uniform values in the square [-1, 1]².
pub(crate) fn random(rng: &mut SecretRng, count: usize) -> Vec<Complex64> {
    let mut uniform = || (rng.next_u64() >> 11) as f64 / 4_503_599_627_370_496.0 - 1.0;
    (0..count).map(|_| Complex64::new(uniform(), uniform())).collect()
}

/// The largest |a_k − b_k|.
pub(crate) fn distance(a: &[Complex64], b: &[Complex64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let apart = a.iter().zip(b).map(|(x, y)| (x - y).norm());
    apart.fold(0.0, f64::max)
}

/// Least and mean of −log2|error| over real and imaginary parts.
pub(crate) fn bits(found: &[Complex64], expected: &[Complex64]) -> (f64, f64) {
    assert_eq!(found.len(), expected.len());
    let parts = found.iter().zip(expected).flat_map(|(x, y)| {
        let error = x - y;
        [error.re, error.im]
    });
    // An error of zero counts as one too small for an f64 near 1 to show.
    let bits: Vec<f64> = parts.map(|e| -e.abs().max(2f64.powi(-60)).log2()).collect();
    let least = bits.iter().copied().fold(f64::INFINITY, f64::min);
    (least, bits.iter().sum::<f64>() / bits.len() as f64)
}

/// Applies `f` slot by slot.
pub(crate) fn map2(x: &[Complex64], y: &[Complex64], f: impl Fn(Complex64, Complex64) -> Complex64) -> Vec<Complex64> {
    x.iter().zip(y).map(|(&x, &y)| f(x, y)).collect()
}
