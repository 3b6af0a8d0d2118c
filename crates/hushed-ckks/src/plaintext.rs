//! Encoded messages.

use std::fmt;

use hushed_math::{Eval, RnsPoly};
use zeroize::Zeroize;

use crate::noise::Noise;
use crate::scale::Scale;

/// An encoded message under the first primes of the chain: integers near `scale` times the message. Encodings of
/// weights are secrets of the server: `Debug` shows the shape only, and it is erased when dropped.
#[derive(Clone)]
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
}

impl Drop for Plaintext {
    fn drop(&mut self) {
        self.poly.zeroize();
    }
}

/// Primes and scale: the bound in `noise` may be the exact modulus of the largest slot.
impl fmt::Debug for Plaintext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plaintext")
            .field("poly", &self.poly)
            .field("scale", &self.scale)
            .finish_non_exhaustive()
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
        assert!(
            shown.contains("n = 256") && !shown.contains("734"),
            "{shown}"
        );
    }
}
