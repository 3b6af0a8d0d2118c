//! Arithmetic on whole limbs: slices of residues in [0, q), equal in length, results in [0, q).

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::fma;
#[cfg(target_arch = "x86_64")]
use super::ifma;
use super::portable;
use crate::machine::cpu::Cpu;
use crate::modulus::Modulus;
use zeroize::Zeroize;

/// Words that go through two kernels one after the other.
const STRIP: usize = 256;

/// Word-by-word operations modulo one q, with the kernel chosen at construction.
///
/// Every method panics if its slices differ in length.
pub struct Pointwise {
    modulus: Modulus,
    #[cfg(target_arch = "x86_64")]
    ifma: Option<ifma::Limb>,
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fma: Option<fma::Limb>,
}

/// Calls a function of the chosen kernel: all have the same names and arguments.
macro_rules! run {
    ($self:ident.$name:ident $(::<$flag:literal>)? ($($argument:expr),*)) => {{
        #[cfg(target_arch = "x86_64")]
        if let Some(limb) = &$self.ifma {
            return limb.$name$(::<$flag>)?($($argument),*);
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if let Some(limb) = &$self.fma {
            return limb.$name$(::<$flag>)?($($argument),*);
        }
        portable::$name$(::<$flag>)?(&$self.modulus, $($argument),*)
    }};
}

impl Pointwise {
    /// Arithmetic modulo q by the best kernel of `cpu`.
    pub fn with_cpu(modulus: Modulus, cpu: Cpu) -> Pointwise {
        let _ = cpu;
        Pointwise {
            #[cfg(target_arch = "x86_64")]
            ifma: cpu.ifma().map(|token| ifma::Limb::new(token, &modulus)),
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            fma: cpu.fma().map(|token| fma::Limb::new(token, &modulus)),
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
        self.check_scalar(s);
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

    /// out ← a + b.
    pub fn add(&self, out: &mut [u64], a: &[u64], b: &[u64]) {
        same_length(out, a);
        same_length(out, b);
        run!(self.add(out, a, b))
    }

    /// out ← a − b.
    pub fn sub(&self, out: &mut [u64], a: &[u64], b: &[u64]) {
        same_length(out, a);
        same_length(out, b);
        run!(self.sub(out, a, b))
    }

    /// out ← a·b.
    pub fn mul(&self, out: &mut [u64], a: &[u64], b: &[u64]) {
        same_length(out, a);
        same_length(out, b);
        run!(self.mul(out, a, b))
    }

    /// out ← s·a for one residue s in [0, q).
    pub fn mul_scalar(&self, out: &mut [u64], a: &[u64], s: u64) {
        same_length(out, a);
        self.check_scalar(s);
        run!(self.mul_scalar(out, a, s))
    }

    /// acc ← acc + s·a for one residue s in [0, q).
    pub fn mul_scalar_add_assign(&self, acc: &mut [u64], a: &[u64], s: u64) {
        same_length(acc, a);
        self.check_scalar(s);
        run!(self.mul_scalar_add_assign(acc, a, s))
    }

    /// a ← a + s, each word, for one residue s in [0, q).
    pub fn add_scalar_assign(&self, a: &mut [u64], s: u64) {
        self.check_scalar(s);
        run!(self.add_scalar_assign(a, s))
    }

    /// a ← (a − b)·s for one residue s in [0, q).
    pub fn sub_mul_scalar_assign(&self, a: &mut [u64], b: &[u64], s: u64) {
        same_length(a, b);
        self.check_scalar(s);
        run!(self.sub_mul_scalar_assign(a, b, s))
    }

    /// out ← (sum − lifted)·inv for one residue `inv` in [0, q): the last step of a division by other moduli, with the
    /// remainder in `lifted` and the inverse of the divisor in `inv`.
    pub fn mod_down_finish(&self, out: &mut [u64], sum: &[u64], lifted: &[u64], inv: u64) {
        same_length(out, sum);
        same_length(out, lifted);
        self.check_scalar(inv);
        run!(self.mod_down_finish(out, sum, lifted, inv))
    }

    /// acc ← acc + (sum − lifted)·inv, as [`Pointwise::mod_down_finish`].
    pub fn mod_down_finish_add_assign(&self, acc: &mut [u64], sum: &[u64], lifted: &[u64], inv: u64) {
        same_length(acc, sum);
        same_length(acc, lifted);
        self.check_scalar(inv);
        run!(self.mod_down_finish_add_assign(acc, sum, lifted, inv))
    }

    /// acc ← acc + Σ s_i·a_i for residues s_i in [0, q), reduced as [`Pointwise::dot_assign`].
    ///
    /// # Panics
    /// If there is not one scalar per slice, a scalar is not below q, or lengths differ.
    pub fn dot_scalars_assign(&self, acc: &mut [u64], a: &[&[u64]], s: &[u64]) {
        assert_eq!(a.len(), s.len(), "one scalar a slice");
        a.iter().for_each(|x| same_length(acc, x));
        s.iter().for_each(|&s| self.check_scalar(s));
        run!(self.dot_scalars_assign(acc, a, s))
    }

    /// `out[0]` ← Σ d_i·`keys[0]_i` and `out[1]` ← Σ d_i·`keys[1]_i`: both halves of a key switch (or of products with
    /// a plaintext), reading every digit once. Reduced as [`Pointwise::dot_assign`]; zeros if there are no digits.
    ///
    /// # Panics
    /// If the three lists or any of the slices differ in length.
    pub fn dot_pair(&self, out: [&mut [u64]; 2], d: &[&[u64]], keys: [&[&[u64]]; 2]) {
        check_pair(&out, d, keys);
        run!(self.dot_pair::<false>(out, d, keys))
    }

    /// As [`Pointwise::dot_pair`], where each word of the d_i stands for 2^`log_repeat` ≥ 8 equal consecutive ones.
    ///
    /// # Panics
    /// If the three lists differ in length, `log_repeat` < 3, the slices of `keys` differ in length from `out` or that
    /// length is not a multiple of 8, or a d_i has too few words.
    pub fn dot_pair_repeated(&self, out: [&mut [u64]; 2], d: &[&[u64]], log_repeat: u32, keys: [&[&[u64]]; 2]) {
        let words = out[0].len().div_ceil(1 << log_repeat);
        let enough = d.iter().all(|d| d.len() >= words);
        let whole = out[0].len().is_multiple_of(8) && log_repeat >= 3;
        assert!(enough && whole, "whole runs of at least 8 words");
        check_pair(&out, keys[0], keys);
        assert_eq!(d.len(), keys[0].len(), "as many digits as parts of the keys");
        run!(self.dot_pair_repeated(out, d, log_repeat, keys))
    }

    /// The kernel for vectors of eight, if there is one: for passes that fuse other steps with products.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn ifma(&self) -> Option<&ifma::Limb> {
        self.ifma.as_ref()
    }

    /// As [`Pointwise::dot_pair`], added to `acc`.
    ///
    /// # Panics
    /// As [`Pointwise::dot_pair`].
    pub fn dot_pair_assign(&self, acc: [&mut [u64]; 2], d: &[&[u64]], keys: [&[&[u64]]; 2]) {
        check_pair(&acc, d, keys);
        run!(self.dot_pair::<true>(acc, d, keys))
    }

    /// out ← (x_0·y_0, x_0·y_1 + x_1·y_0, x_1·y_1): the tensor product of two ciphertexts (b, a), in one pass.
    pub fn tensor(&self, out: [&mut [u64]; 3], x: [&[u64]; 2], y: [&[u64]; 2]) {
        out.iter().for_each(|z| same_length(z, x[0]));
        same_lengths(x[0], &[x[1], y[0], y[1]]);
        run!(self.tensor::<false>(out, x, y))
    }

    /// acc ← acc + (x_0·y_0, x_0·y_1 + x_1·y_0, x_1·y_1).
    pub fn tensor_add_assign(&self, acc: [&mut [u64]; 3], x: [&[u64]; 2], y: [&[u64]; 2]) {
        acc.iter().for_each(|z| same_length(z, x[0]));
        same_lengths(x[0], &[x[1], y[0], y[1]]);
        run!(self.tensor::<true>(acc, x, y))
    }

    /// out_i ← the integer in (−p/2, p/2) that x_i in [0, p) represents, modulo q; p = `from`.
    pub fn lift_centred(&self, out: &mut [u64], x: &[u64], from: &Modulus) {
        same_length(out, x);
        run!(self.lift_centred(out, x, from))
    }

    /// a_i ← (a_i − c_i)·s for the integer c_i in (−p/2, p/2) that x_i in [0, p) represents, p = `from`, and one
    /// residue s in [0, q): a division by p with remainder x.
    pub fn sub_centred_mul_scalar_assign(&self, a: &mut [u64], x: &[u64], from: &Modulus, s: u64) {
        same_length(a, x);
        self.check_scalar(s);
        #[cfg(target_arch = "x86_64")]
        if let Some(limb) = &self.ifma {
            let back = self.modulus.mul(s, self.modulus.reduce(from.value()));
            return limb.sub_centred_mul_scalar_assign(a, x, from, [s, back]);
        }
        let mut lifted = [0; STRIP];
        for (a, x) in a.chunks_mut(STRIP).zip(x.chunks(STRIP)) {
            let lifted = &mut lifted[..x.len()];
            self.lift_centred(lifted, x, from);
            self.sub_mul_scalar_assign(a, lifted, s);
        }
        lifted.zeroize();
    }

    /// out_i ← x_i mod q for any signed x_i.
    pub fn reduce_signed(&self, out: &mut [u64], x: &[i64]) {
        assert_eq!(out.len(), x.len(), "limbs of one length");
        run!(self.reduce_signed(out, x))
    }

    /// out_i ← x_i mod q for signed x_i of magnitudes below q.
    pub fn lift_signed(&self, out: &mut [u64], x: &[i64]) {
        assert_eq!(out.len(), x.len(), "limbs of one length");
        run!(self.lift_signed(out, x))
    }

    /// The same for numbers of 32 bits, fewer than q has.
    pub fn lift_small(&self, out: &mut [u64], x: &[i32]) {
        let fits = out.len() == x.len() && self.modulus.bits() > 32;
        assert!(fits, "limbs of one length, of a larger modulus");
        run!(self.lift_small(out, x))
    }

    /// out_i ← x_i mod q for any words x_i.
    pub fn reduce(&self, out: &mut [u64], x: &[u64]) {
        same_length(out, x);
        run!(self.reduce(out, x))
    }

    fn check_scalar(&self, s: u64) {
        assert!(s < self.modulus.value(), "a scalar below q");
    }
}

fn check_pair(out: &[&mut [u64]; 2], d: &[&[u64]], keys: [&[&[u64]]; 2]) {
    let counts = d.len() == keys[0].len() && d.len() == keys[1].len();
    assert!(counts, "as many digits as parts of the keys");
    same_length(out[0], out[1]);
    [d, keys[0], keys[1]].iter().for_each(|list| same_lengths(out[0], list));
}

fn same_lengths(a: &[u64], others: &[&[u64]]) {
    others.iter().for_each(|b| same_length(a, b));
}

fn same_length(a: &[u64], b: &[u64]) {
    assert_eq!(a.len(), b.len(), "limbs of one length");
}
