//! Arithmetic on whole limbs: slices of residues in [0, q), equal in length, results in [0, q).

#[cfg(target_arch = "x86_64")]
use super::ifma;
use super::portable;
use crate::cpu::Cpu;
use crate::modulus::Modulus;

/// Word-by-word operations modulo one q, with the kernel chosen at construction.
///
/// Every method panics if its slices differ in length.
pub struct Pointwise {
    modulus: Modulus,
    #[cfg(target_arch = "x86_64")]
    ifma: Option<ifma::Limb>,
}

/// Calls a function of the chosen kernel: all have the same names and arguments.
macro_rules! run {
    ($self:ident.$name:ident($($argument:expr),*)) => {{
        #[cfg(target_arch = "x86_64")]
        if let Some(limb) = &$self.ifma {
            return limb.$name($($argument),*);
        }
        portable::$name(&$self.modulus, $($argument),*)
    }};
}

impl Pointwise {
    /// Arithmetic modulo q by the best kernel of `cpu`.
    pub fn with_cpu(modulus: Modulus, cpu: Cpu) -> Pointwise {
        let _ = cpu;
        Pointwise {
            #[cfg(target_arch = "x86_64")]
            ifma: cpu.ifma().map(|token| ifma::Limb::new(token, &modulus)),
            modulus,
        }
    }

    /// The modulus q.
    pub fn modulus(&self) -> &Modulus {
        &self.modulus
    }

    /// a ← a + b.
    pub fn add_assign(&self, a: &mut [u64], b: &[u64]) {
        same_length(a, b);
        run!(self.add_assign(a, b))
    }

    /// a ← a − b.
    pub fn sub_assign(&self, a: &mut [u64], b: &[u64]) {
        same_length(a, b);
        run!(self.sub_assign(a, b))
    }

    /// a ← −a.
    pub fn neg_assign(&self, a: &mut [u64]) {
        run!(self.neg_assign(a))
    }

    /// a ← a·b.
    pub fn mul_assign(&self, a: &mut [u64], b: &[u64]) {
        same_length(a, b);
        run!(self.mul_assign(a, b))
    }

    /// acc ← acc + a·b.
    pub fn mul_add_assign(&self, acc: &mut [u64], a: &[u64], b: &[u64]) {
        same_length(acc, a);
        same_length(acc, b);
        run!(self.mul_add_assign(acc, a, b))
    }

    /// a ← s·a for one residue s in [0, q).
    pub fn mul_scalar_assign(&self, a: &mut [u64], s: u64) {
        assert!(s < self.modulus.value(), "a scalar below q");
        run!(self.mul_scalar_assign(a, s))
    }

    /// acc ← acc + Σ a_i·b_i, reduced once at the end (or every few thousand terms).
    ///
    /// # Panics
    /// If the lists or any of the slices differ in length.
    pub fn dot_assign(&self, acc: &mut [u64], a: &[&[u64]], b: &[&[u64]]) {
        assert_eq!(a.len(), b.len(), "as many left as right factors");
        a.iter().chain(b).for_each(|x| same_length(acc, x));
        run!(self.dot_assign(acc, a, b))
    }

    /// out_i ← the integer of (−p/2, p/2) that x_i in [0, p) stands for, modulo q; p = `from`.
    pub fn lift_centred(&self, out: &mut [u64], x: &[u64], from: &Modulus) {
        same_length(out, x);
        run!(self.lift_centred(out, x, from))
    }

    /// out_i ← x_i mod q for any signed x_i.
    pub fn reduce_signed(&self, out: &mut [u64], x: &[i64]) {
        assert_eq!(out.len(), x.len(), "limbs of one length");
        run!(self.reduce_signed(out, x))
    }

    /// out_i ← x_i mod q for any words x_i.
    pub fn reduce(&self, out: &mut [u64], x: &[u64]) {
        same_length(out, x);
        run!(self.reduce(out, x))
    }
}

fn same_length(a: &[u64], b: &[u64]) {
    assert_eq!(a.len(), b.len(), "limbs of one length");
}
