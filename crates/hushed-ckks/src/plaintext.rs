//! Encoded messages.

use std::fmt;

use hushed_math::{Eval, RnsPoly};
use zeroize::Zeroize;

use crate::noise::Noise;
use crate::scale::Scale;

/// An encoded message over a prefix of the prime chain: integers near `scale` times the message. Encoded weights are
/// secrets of the server, so `Debug` shows only the shape, and the value is erased on drop.
#[derive(Clone)]
pub struct Plaintext {
    pub(crate) poly: RnsPoly<Eval>,
    pub(crate) scale: Scale,
    pub(crate) noise: Noise,
}

impl Plaintext {
    /// A plaintext from a polynomial over a prefix of the ciphertext primes. `noise` is what is known about its slots.
    pub fn new(poly: RnsPoly<Eval>, scale: Scale, noise: Noise) -> Self {
        Self { poly, scale, noise }
    }

    /// The polynomial.
    pub fn poly(&self) -> &RnsPoly<Eval> {
        &self.poly
    }

    /// The factor between the message and the integers.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Number of primes.
    pub fn limbs(&self) -> usize {
        self.poly.ids().len()
    }

    /// Bound on the message and its rounding error.
    pub fn noise(&self) -> Noise {
        self.noise
    }
}

impl Drop for Plaintext {
    fn drop(&mut self) {
        self.poly.zeroize();
    }
}

/// Shows primes and scale only: the bound in `noise` may be the exact modulus of the largest slot.
impl fmt::Debug for Plaintext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plaintext").field("poly", &self.poly).field("scale", &self.scale).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::{CkksParams, Encoder};

    #[test]
    fn debug_shows_the_shape_only() {
        let params = CkksParams::insecure_test(8, 2).unwrap();
        let encoder = Encoder::new(&params);
        let values = vec![0.734_375.into(); params.slots()];
        let plain = encoder.encode(&values, 2, params.default_scale()).unwrap();
        assert_eq!(plain.noise().magnitude(), 0.734_375);
        let shown = format!("{plain:?}");
        assert!(shown.contains("n = 256") && !shown.contains("734"), "{shown}");
    }
}
