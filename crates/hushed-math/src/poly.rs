//! Polynomials of `Z[X]/(X^n + 1)` modulo a product of primes, as residues; the type names the domain.
//!
//! An [`RnsPoly`] has one limb of n residues per modulus. Moduli are named by their index in the basis, in any order
//! without repetition: `0..k`, or `0..k` with the special primes at the end. Operations on two polynomials require the
//! same basis and the same list; anything else is a bug in the caller and panics.

mod coeff;
mod eval;
mod secret;

use crate::error::MathError;
use crate::ntt::NttTables;
use crate::rng::PublicStream;
use crate::rns::RnsBasis;
use crate::words::Words;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use zeroize::Zeroize;

pub use secret::SecretPoly;

/// Domain marker: coefficients, constant term first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coeff;

/// Domain marker: values, in the order of [`crate::ntt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eval;

/// The two domains.
pub trait Domain: sealed::Sealed {
    /// Name used in messages.
    const NAME: &'static str;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Coeff {}
    impl Sealed for super::Eval {}
}

impl Domain for Coeff {
    const NAME: &'static str = "coefficients";
}

impl Domain for Eval {
    const NAME: &'static str = "values";
}

/// A polynomial as residues in [0, q_i), limb by limb.
pub struct RnsPoly<D> {
    basis: Arc<RnsBasis>,
    ids: Box<[usize]>,
    /// One buffer per limb: a limb dropped at one level can be reused at any other.
    data: Vec<Words>,
    domain: PhantomData<D>,
}

impl<D: Domain> RnsPoly<D> {
    /// The zero polynomial under the moduli `ids` of `basis`.
    ///
    /// # Panics
    /// If `ids` is empty, repeats an index or contains one that the basis lacks.
    pub fn zero(basis: &Arc<RnsBasis>, ids: &[usize]) -> RnsPoly<D> {
        check_ids(basis, ids);
        RnsPoly::with_words(basis, ids, many(ids.len(), || Words::zero(basis.n())))
    }

    /// A polynomial with arbitrary residues, to be overwritten limb by limb: avoids the cost of clearing memory.
    ///
    /// # Panics
    /// As [`RnsPoly::zero`].
    pub fn scratch(basis: &Arc<RnsBasis>, ids: &[usize]) -> RnsPoly<D> {
        check_ids(basis, ids);
        RnsPoly::with_words(basis, ids, many(ids.len(), || Words::scratch(basis.n())))
    }

    /// The polynomial with these residues, limb after limb in the order of `ids`.
    ///
    /// # Errors
    /// [`MathError::WrongLength`], or [`MathError::ResidueOutOfRange`] if a residue is not below its modulus. Checking
    /// a limb takes the same time whatever its residues are.
    ///
    /// # Panics
    /// As [`RnsPoly::zero`].
    pub fn from_data(basis: &Arc<RnsBasis>, ids: &[usize], data: &[u64]) -> Result<RnsPoly<D>, MathError> {
        check_ids(basis, ids);
        let (n, expected) = (basis.n(), ids.len() * basis.n());
        if data.len() != expected {
            return Err(MathError::WrongLength { expected, found: data.len() });
        }
        for (limb, (&id, residues)) in ids.iter().zip(data.chunks_exact(n)).enumerate() {
            let q = basis.modulus(id).value();
            if residues.iter().fold(0, |bad, &r| bad | u64::from(r >= q)) != 0 {
                return Err(MathError::ResidueOutOfRange { limb });
            }
        }
        Ok(RnsPoly::with_words(basis, ids, data.chunks_exact(n).map(Words::copy_of).collect()))
    }

    /// Public uniform residues from `stream`, limb after limb.
    ///
    /// # Panics
    /// As [`RnsPoly::zero`].
    pub fn uniform(basis: &Arc<RnsBasis>, ids: &[usize], stream: &mut PublicStream) -> RnsPoly<D> {
        let mut poly = RnsPoly::scratch(basis, ids);
        poly.each(|ntt, limb| stream.uniform_mod(ntt.modulus(), limb));
        poly
    }

    fn with_words(basis: &Arc<RnsBasis>, ids: &[usize], data: Vec<Words>) -> RnsPoly<D> {
        RnsPoly { basis: Arc::clone(basis), ids: ids.into(), data, domain: PhantomData }
    }

    /// Labels the same words as the other domain, without changing any residue: the last step of the transforms, also
    /// for callers that transform limb by limb on several threads.
    #[must_use]
    pub fn relabel<E: Domain>(self) -> RnsPoly<E> {
        RnsPoly { basis: self.basis, ids: self.ids, data: self.data, domain: PhantomData }
    }

    /// Moves the residues to another basis, where the same moduli have the indices `ids`; no word is copied.
    ///
    /// # Errors
    /// [`MathError::InvalidBasis`] if the degrees or any two moduli differ, [`MathError::WrongLength`] if the number of
    /// moduli differs.
    ///
    /// # Panics
    /// As [`RnsPoly::zero`].
    pub fn renumbered(self, basis: &Arc<RnsBasis>, ids: &[usize]) -> Result<RnsPoly<D>, MathError> {
        check_ids(basis, ids);
        if ids.len() != self.ids.len() {
            return Err(MathError::WrongLength { expected: self.ids.len(), found: ids.len() });
        }
        let differ = |(&id, &own): (&usize, &usize)| basis.modulus(id).value() != self.basis.modulus(own).value();
        if basis.n() != self.n() || ids.iter().zip(&self.ids).any(differ) {
            return Err(MathError::InvalidBasis { max: RnsBasis::MAX_LIMBS });
        }
        Ok(RnsPoly::with_words(basis, ids, self.data))
    }

    /// The basis.
    pub fn basis(&self) -> &Arc<RnsBasis> {
        &self.basis
    }

    /// The ring degree n.
    pub fn n(&self) -> usize {
        self.basis.n()
    }

    /// The basis index of each limb's modulus.
    pub fn ids(&self) -> &[usize] {
        &self.ids
    }

    /// The n residues of limb `j`, whose modulus is number `ids()[j]`.
    ///
    /// # Panics
    /// If there is no such limb.
    pub fn limb(&self, j: usize) -> &[u64] {
        &self.data[j]
    }

    /// The residues of limb `j`, for writing; each must be below the modulus.
    ///
    /// # Panics
    /// If there is no such limb.
    pub fn limb_mut(&mut self, j: usize) -> &mut [u64] {
        &mut self.data[j]
    }

    /// The modulus index and the residues of each limb, for writing; limbs may go to several threads.
    pub fn limbs_mut(&mut self) -> impl ExactSizeIterator<Item = (usize, &mut [u64])> + Send {
        let ids = self.ids.iter().copied();
        ids.zip(self.data.iter_mut().map(|limb| &mut **limb))
    }

    /// The modulus index and the residues of each limb.
    pub fn limbs(&self) -> impl ExactSizeIterator<Item = (usize, &[u64])> + Send {
        self.ids.iter().copied().zip(self.data.iter().map(|limb| &**limb))
    }

    /// Keeps the first `count` limbs and drops the others; nothing is copied.
    ///
    /// # Panics
    /// Unless 1 ≤ `count` ≤ the number of limbs.
    #[must_use]
    pub fn truncate_limbs(mut self, count: usize) -> RnsPoly<D> {
        assert!((1..=self.ids.len()).contains(&count), "limbs to keep");
        self.ids = self.ids[..count].into();
        self.data.truncate(count);
        self
    }

    /// A copy of all residues, limb after limb.
    pub fn data(&self) -> Vec<u64> {
        self.data.iter().flat_map(|limb| limb.iter().copied()).collect()
    }

    /// self ← self + other.
    ///
    /// # Panics
    /// If the bases or moduli differ.
    pub fn add_assign(&mut self, other: &RnsPoly<D>) {
        self.each_with(other, |ntt, a, b| ntt.pointwise().add_assign(a, b));
    }

    /// self ← self − other.
    ///
    /// # Panics
    /// If the bases or moduli differ.
    pub fn sub_assign(&mut self, other: &RnsPoly<D>) {
        self.each_with(other, |ntt, a, b| ntt.pointwise().sub_assign(a, b));
    }

    /// (self, other) ← (self + other, self − other), in one pass.
    ///
    /// # Panics
    /// If the bases or moduli differ.
    pub fn sum_and_difference(&mut self, other: &mut RnsPoly<D>) {
        const STRIP: usize = 512;
        self.check_shape(other);
        let mut differences = [0; STRIP];
        let limbs = self.data.iter_mut().zip(&mut other.data);
        for (&id, (a, b)) in self.ids.iter().zip(limbs) {
            let pointwise = self.basis.ntt(id).pointwise();
            for (a, b) in a.chunks_mut(STRIP).zip(b.chunks_mut(STRIP)) {
                let differences = &mut differences[..a.len()];
                pointwise.sub(differences, a, b);
                pointwise.add_assign(a, b);
                b.copy_from_slice(differences);
            }
        }
    }

    /// self ← −self.
    pub fn neg_assign(&mut self) {
        self.each(|ntt, a| ntt.pointwise().neg_assign(a));
    }

    /// Multiplies limb j by `scalars[j]`, a residue of its modulus.
    ///
    /// # Panics
    /// If there is not one reduced scalar per limb.
    pub fn mul_scalar_assign(&mut self, scalars: &[u64]) {
        assert_eq!(scalars.len(), self.ids.len(), "one scalar a limb");
        let mut scalars = scalars.iter();
        self.each(|ntt, a| {
            if let Some(&s) = scalars.next() {
                ntt.pointwise().mul_scalar_assign(a, s);
            }
        });
    }

    /// A copy of the limbs under the moduli `ids`, in that order.
    ///
    /// # Panics
    /// If this polynomial lacks one of them, or as [`RnsPoly::zero`].
    pub fn keep_limbs(&self, ids: &[usize]) -> RnsPoly<D> {
        let mut kept = RnsPoly::scratch(&self.basis, ids);
        for (j, id) in ids.iter().enumerate() {
            let source = self.ids.iter().position(|have| have == id);
            let Some(source) = source else { panic!("modulus {id} is not among {:?}", self.ids) };
            kept.limb_mut(j).copy_from_slice(self.limb(source));
        }
        kept
    }

    /// Calls `f` with the transform and the residues of each limb.
    fn each(&mut self, mut f: impl FnMut(&NttTables, &mut [u64])) {
        for (&id, limb) in self.ids.iter().zip(&mut self.data) {
            f(self.basis.ntt(id), limb);
        }
    }

    fn each_with<E: Domain>(&mut self, other: &RnsPoly<E>, mut f: impl FnMut(&NttTables, &mut [u64], &[u64])) {
        self.check_shape(other);
        let limbs = self.data.iter_mut().zip(&other.data);
        for (&id, (a, b)) in self.ids.iter().zip(limbs) {
            f(self.basis.ntt(id), a, b);
        }
    }

    fn check_shape<E: Domain>(&self, other: &RnsPoly<E>) {
        let same = Arc::ptr_eq(&self.basis, &other.basis) && self.ids == other.ids;
        assert!(same, "polynomials of one basis under the same moduli");
    }
}

impl RnsPoly<Coeff> {
    /// The values of this polynomial.
    pub fn into_eval(mut self) -> RnsPoly<Eval> {
        self.each(|ntt, limb| ntt.forward(limb));
        self.relabel()
    }
}

impl RnsPoly<Eval> {
    /// The coefficients of this polynomial.
    pub fn into_coeff(mut self) -> RnsPoly<Coeff> {
        self.each(|ntt, limb| ntt.inverse(limb));
        self.relabel()
    }
}

impl<D> Clone for RnsPoly<D> {
    fn clone(&self) -> RnsPoly<D> {
        RnsPoly { basis: Arc::clone(&self.basis), ids: self.ids.clone(), data: self.data.clone(), domain: PhantomData }
    }
}

/// Equal moduli and residues, over the same basis object. Not constant time: for public polynomials and tests.
impl<D> PartialEq for RnsPoly<D> {
    fn eq(&self, other: &RnsPoly<D>) -> bool {
        let mut limbs = self.data.iter().zip(&other.data);
        let same = Arc::ptr_eq(&self.basis, &other.basis) && self.ids == other.ids;
        same && limbs.all(|(a, b)| **a == **b)
    }
}

/// Prints the shape only: residues may be secret.
impl<D: Domain> fmt::Debug for RnsPoly<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RnsPoly({}, n = {}, moduli {:?})", D::NAME, self.n(), self.ids)
    }
}

impl<D> Zeroize for RnsPoly<D> {
    fn zeroize(&mut self) {
        self.data.iter_mut().for_each(Words::zeroize);
    }
}

/// Memory for `count` limbs.
fn many(count: usize, make: impl Fn() -> Words) -> Vec<Words> {
    (0..count).map(|_| make()).collect()
}

fn check_ids(basis: &RnsBasis, ids: &[usize]) {
    let repeats = ids.iter().enumerate().any(|(i, id)| ids[..i].contains(id));
    let known = ids.iter().all(|&id| id < basis.len());
    assert!(!ids.is_empty() && known && !repeats, "distinct moduli of the basis, at least one: {ids:?}");
}

#[cfg(test)]
mod tests;
