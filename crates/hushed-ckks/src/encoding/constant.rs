//! Complex constants without a transform: c = re + im·i is re + im·X^(N/2), because X^(N/2) is i in every slot.
//!
//! In evaluation form X^(N/2) takes the residue ψ^(N/2) =: I in the first half of the values and −I in the second
//! (value k is at ψ^(2·rev(k)+1), and rev(k) is even exactly in the first half). So a constant is one residue per
//! half-limb.

use num_complex::Complex64;

use crate::error::CkksError;
use crate::params::CkksParams;
use crate::scale::Scale;

/// Largest magnitude of the real or imaginary integer.
const LIMIT: f64 = (1u128 << 120) as f64;

/// A constant as a Gaussian integer near scale·c.
#[derive(Clone, Copy)]
pub struct Constant {
    re: i128,
    im: i128,
}

/// A constant under one prime.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConstantResidue {
    /// Residue in the first half of the values.
    pub first: u64,
    /// Residue in the second half.
    pub second: u64,
}

impl Constant {
    /// The Gaussian integer nearest to `scale`·`value`.
    ///
    /// # Errors
    /// [`CkksError::ValueOutOfRange`].
    pub fn new(value: Complex64, scale: Scale) -> Result<Self, CkksError> {
        let part = |x: f64| {
            let scaled = (x * scale.value()).round();
            if scaled.abs() < LIMIT {
                Ok(scaled as i128)
            } else {
                Err(CkksError::ValueOutOfRange { scale: scale.log2() })
            }
        };
        Ok(Self { re: part(value.re)?, im: part(value.im)? })
    }

    /// The integer `value`.
    pub fn integer(value: i64) -> Self {
        Self { re: value.into(), im: 0 }
    }

    /// i.
    pub fn imaginary_unit() -> Self {
        Self { re: 0, im: 1 }
    }

    /// Its residues under modulus `id` of the basis, in constant time with respect to the constant.
    ///
    /// # Panics
    /// If the basis has no such modulus.
    pub fn residue(&self, params: &CkksParams, id: usize) -> ConstantResidue {
        let m = params.rlwe().basis().modulus(id);
        let reduce = |x: i128| {
            let r = m.reduce_u128(x.unsigned_abs());
            let sign = (x >> 127) as u64;
            r ^ ((r ^ m.neg(r)) & sign)
        };
        let (re, im) = (reduce(self.re), m.mul(reduce(self.im), params.imaginary(id)));
        ConstantResidue { first: m.add(re, im), second: m.sub(re, im) }
    }
}
