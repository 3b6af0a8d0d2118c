//! How vectors are laid out in slots, and the maps that they go through.

use hushed_ckks::keys::KeySpecs;
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Complex64, Encoder, Evaluator, Scale};
use hushed_fhe::LinearMap;

use super::super::bed::Normal;
use crate::BenchError;

/// A map for ciphertexts of a given length: drops one prime and adds the bias.
pub(super) trait Map {
    fn apply(&self, on: &Evaluator, x: &[Ciphertext]) -> Result<Vec<Ciphertext>, CkksError>;

    fn add_keys(&self, params: &CkksParams, specs: &mut KeySpecs) -> Result<(), CkksError>;

    /// The number of diagonals, and their bytes.
    fn diagonals(&self) -> (usize, usize);
}

/// How vectors are laid out in slots.
pub(super) trait Shape {
    fn name(&self) -> &'static str;

    /// Vectors computed at once.
    fn vectors(&self) -> usize;

    /// Whether slots hold pairs of columns, whose parts an activation processes separately.
    fn in_pairs(&self) -> bool;

    /// Map number `number` of the block for ciphertexts of `limbs` primes, from one scale to another.
    fn map(
        &self,
        encoder: &Encoder,
        layer: (usize, &LinearMap),
        limbs: usize,
        scales: [Scale; 2],
    ) -> Result<Box<dyn Map>, BenchError>;

    /// The slots of some vectors, as the first map reads them.
    fn pack(&self, layer: &LinearMap, x: &[Vec<f64>], random: &mut Normal) -> Result<Vec<Vec<Complex64>>, BenchError>;

    /// The vectors in the result of the last map.
    fn unpack(&self, layer: &LinearMap, opened: &[Vec<Complex64>]) -> Result<Vec<Vec<f64>>, BenchError>;
}

/// The scale of a map's diagonals for ciphertexts of `limbs` primes.
pub(super) fn plain_scale(params: &CkksParams, limbs: usize, from: Scale, to: Scale) -> Scale {
    to.times_prime(params.prime(limbs - 1)).over(from)
}
