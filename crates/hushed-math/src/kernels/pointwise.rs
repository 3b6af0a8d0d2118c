//! Arithmetic on whole limbs: slices of residues in [0, q), equal in length, results in [0, q).

use super::{Kernel, portable};
use crate::modulus::Modulus;

/// Word-by-word operations modulo one q, with the kernel chosen at construction.
///
/// Every method panics if its slices differ in length.
pub struct Pointwise {
    modulus: Modulus,
    kernel: Kernel,
}

impl Pointwise {
    pub(crate) fn new(modulus: Modulus, kernel: Kernel) -> Pointwise {
        Pointwise { modulus, kernel }
    }

    /// The modulus q.
    pub fn modulus(&self) -> &Modulus {
        &self.modulus
    }

    /// a ← a + b.
    pub fn add_assign(&self, a: &mut [u64], b: &[u64]) {
        same_length(a, b);
        match &self.kernel {
            Kernel::Portable => portable::add_assign(&self.modulus, a, b),
        }
    }

    /// a ← a − b.
    pub fn sub_assign(&self, a: &mut [u64], b: &[u64]) {
        same_length(a, b);
        match &self.kernel {
            Kernel::Portable => portable::sub_assign(&self.modulus, a, b),
        }
    }

    /// a ← −a.
    pub fn neg_assign(&self, a: &mut [u64]) {
        match &self.kernel {
            Kernel::Portable => portable::neg_assign(&self.modulus, a),
        }
    }

    /// a ← a·b.
    pub fn mul_assign(&self, a: &mut [u64], b: &[u64]) {
        same_length(a, b);
        match &self.kernel {
            Kernel::Portable => portable::mul_assign(&self.modulus, a, b),
        }
    }

    /// acc ← acc + a·b.
    pub fn mul_add_assign(&self, acc: &mut [u64], a: &[u64], b: &[u64]) {
        same_length(acc, a);
        same_length(acc, b);
        match &self.kernel {
            Kernel::Portable => portable::mul_add_assign(&self.modulus, acc, a, b),
        }
    }

    /// a ← s·a for one residue s in [0, q).
    pub fn mul_scalar_assign(&self, a: &mut [u64], s: u64) {
        assert!(s < self.modulus.value(), "a scalar below q");
        match &self.kernel {
            Kernel::Portable => portable::mul_scalar_assign(&self.modulus, a, s),
        }
    }

    /// acc ← acc + Σ a_i·b_i, reduced once at the end (or every few thousand terms).
    ///
    /// # Panics
    /// If the lists or any of the slices differ in length.
    pub fn dot_assign(&self, acc: &mut [u64], a: &[&[u64]], b: &[&[u64]]) {
        assert_eq!(a.len(), b.len(), "as many left as right factors");
        a.iter().chain(b).for_each(|x| same_length(acc, x));
        match &self.kernel {
            Kernel::Portable => portable::dot_assign(&self.modulus, acc, a, b),
        }
    }

    /// out_i ← the integer of (−p/2, p/2) that x_i in [0, p) stands for, modulo q; p = `from`.
    pub fn lift_centred(&self, out: &mut [u64], x: &[u64], from: &Modulus) {
        same_length(out, x);
        match &self.kernel {
            Kernel::Portable => portable::lift_centred(&self.modulus, out, x, from),
        }
    }

    /// out_i ← x_i mod q for any words x_i.
    pub fn reduce(&self, out: &mut [u64], x: &[u64]) {
        same_length(out, x);
        match &self.kernel {
            Kernel::Portable => portable::reduce(&self.modulus, out, x),
        }
    }
}

fn same_length(a: &[u64], b: &[u64]) {
    assert_eq!(a.len(), b.len(), "limbs of one length");
}
