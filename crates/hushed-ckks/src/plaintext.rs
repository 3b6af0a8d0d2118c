//! Encoded messages.

use hushed_math::{Eval, RnsPoly};

use crate::noise::Noise;
use crate::scale::Scale;

/// An encoded message under the first primes of the chain: integers near `scale` times the message. Encodings of weights are
/// secrets of the server: `Debug` shows the shape only.
#[derive(Clone, Debug)]
pub struct Plaintext {
    pub(crate) poly: RnsPoly<Eval>,
    pub(crate) scale: Scale,
    pub(crate) noise: Noise,
}

impl Plaintext {
    /// The plaintext of this polynomial over a prefix of the ciphertext primes. `noise` is what is known of its slots.
    pub fn new(poly: RnsPoly<Eval>, scale: Scale, noise: Noise) -> Self {
        Self { poly, scale, noise }
    }

    /// The polynomial.
    pub fn poly(&self) -> &RnsPoly<Eval> {
        &self.poly
    }

    /// The factor between message and integers.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Number of primes.
    pub fn limbs(&self) -> usize {
        self.poly.ids().len()
    }

    /// Bound and rounding error of the message.
    pub fn noise(&self) -> Noise {
        self.noise
    }

    /// The polynomial alone.
    pub fn into_poly(self) -> RnsPoly<Eval> {
        self.poly
    }
}
