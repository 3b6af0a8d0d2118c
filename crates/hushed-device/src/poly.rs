//! Polynomials on a device.

use std::marker::PhantomData;
use std::sync::Arc;

use hushed_math::poly::Domain;
use hushed_math::{Coeff, Eval, RnsPoly};

use crate::error::DeviceError;
use crate::machine::{Argument, Machine};
use crate::memory::Words;
use crate::ring::{DeviceRing, Limb, memories};
use crate::text::Kernel;

/// A polynomial as residues in [0, q_i) on a device, limb after limb; as [`RnsPoly`], whose words it has.
pub struct DevicePoly<M: Machine, D> {
    ring: Arc<DeviceRing<M>>,
    ids: Box<[usize]>,
    words: Words<M>,
    domain: PhantomData<D>,
}

impl<M: Machine, D: Domain> DevicePoly<M, D> {
    /// Copies a polynomial to the device.
    ///
    /// # Errors
    /// [`DeviceError::Mismatch`] if it has another basis than the ring; [`DeviceError::OutOfMemory`],
    /// [`DeviceError::Call`].
    pub fn upload(ring: &Arc<DeviceRing<M>>, poly: &RnsPoly<D>) -> Result<Self, DeviceError> {
        if !Arc::ptr_eq(poly.basis(), ring.basis()) {
            return Err(DeviceError::Mismatch);
        }
        Ok(Self::with_words(ring, poly.ids(), ring.upload(&poly.data())?))
    }

    /// Copies it back.
    ///
    /// # Errors
    /// [`DeviceError::Call`]: also of a kernel that failed before.
    pub fn download(&self) -> Result<RnsPoly<D>, DeviceError> {
        let mut words = vec![0; self.words.len()];
        self.ring.machine().download(self.words.memory(), &mut words)?;
        let mut poly = RnsPoly::scratch(self.ring.basis(), &self.ids);
        for ((_, limb), words) in poly.limbs_mut().zip(words.chunks_exact(self.ring.basis().n())) {
            limb.copy_from_slice(words);
        }
        Ok(poly)
    }

    /// With arbitrary residues, to be overwritten.
    pub(crate) fn scratch(ring: &Arc<DeviceRing<M>>, ids: &[usize]) -> Result<Self, DeviceError> {
        Ok(Self::with_words(ring, ids, ring.room(ids.len() * ring.basis().n())?))
    }

    fn with_words(ring: &Arc<DeviceRing<M>>, ids: &[usize], words: Words<M>) -> Self {
        Self { ring: Arc::clone(ring), ids: ids.into(), words, domain: PhantomData }
    }

    /// The ring.
    pub fn ring(&self) -> &Arc<DeviceRing<M>> {
        &self.ring
    }

    /// The basis index of each limb's modulus.
    pub fn ids(&self) -> &[usize] {
        &self.ids
    }

    pub(crate) fn words(&self) -> &Words<M> {
        &self.words
    }

    /// Its limbs, for a transform in place.
    fn limbs(&self) -> Vec<Limb> {
        self.ids.iter().zip(0..).map(|(&id, place)| [id as u32, place, place]).collect()
    }

    fn relabel<E>(self) -> DevicePoly<M, E> {
        DevicePoly { ring: self.ring, ids: self.ids, words: self.words, domain: PhantomData }
    }

    /// self ← self + other.
    ///
    /// # Errors
    /// [`DeviceError::Mismatch`] for another ring or other moduli; [`DeviceError::Call`].
    pub fn add_assign(&mut self, other: &Self) -> Result<(), DeviceError> {
        self.pointwise(Kernel::Add, [self, other])
    }

    /// self ← self − other.
    ///
    /// # Errors
    /// As [`DevicePoly::add_assign`].
    pub fn sub_assign(&mut self, other: &Self) -> Result<(), DeviceError> {
        self.pointwise(Kernel::Subtract, [self, other])
    }

    /// self ← −self.
    ///
    /// # Errors
    /// [`DeviceError::Call`].
    pub fn neg_assign(&mut self) -> Result<(), DeviceError> {
        self.pointwise(Kernel::Negate, [self, self])
    }

    /// Multiplies limb j by `scalars[j]`, a residue of its modulus.
    ///
    /// # Errors
    /// [`DeviceError::Mismatch`] if there is not one reduced scalar per limb; [`DeviceError::Call`].
    pub fn mul_scalar_assign(&mut self, scalars: &[u64]) -> Result<(), DeviceError> {
        let basis = self.ring.basis();
        let reduced = self.ids.iter().zip(scalars).all(|(&id, &scalar)| scalar < basis.modulus(id).value());
        if scalars.len() != self.ids.len() || !reduced {
            return Err(DeviceError::Mismatch);
        }
        let numbers = self.ids.iter().map(|&id| id as u32).zip(scalars.iter().copied());
        let (factors, ids) = (self.ring.factors(numbers)?, self.primes()?);
        let arguments = memories([&self.words, &self.words, &self.words, self.ring.constants(), &ids, &factors]);
        // SAFETY: one prime of the basis and one factor per limb of the polynomial.
        unsafe { self.ring.launch(Kernel::MultiplyScalar, self.ids.len(), &arguments) }
    }

    fn pointwise(&self, kernel: Kernel, operands: [&Self; 2]) -> Result<(), DeviceError> {
        for operand in operands {
            self.check(operand)?;
        }
        let ids = self.primes()?;
        let [a, b] = operands.map(Self::words);
        // SAFETY: one prime of the basis per limb, and all polynomials have the same limbs.
        unsafe {
            let arguments = memories([&self.words, a, b, self.ring.constants(), &ids]);
            self.ring.launch(kernel, self.ids.len(), &arguments)
        }
    }

    fn primes(&self) -> Result<Arc<Words<M>>, DeviceError> {
        self.ring.short(&self.ids.iter().map(|&id| id as u32).collect::<Vec<_>>())
    }

    fn check(&self, other: &Self) -> Result<(), DeviceError> {
        let same = Arc::ptr_eq(&self.ring, &other.ring) && self.ids == other.ids;
        if same { Ok(()) } else { Err(DeviceError::Mismatch) }
    }
}

impl<M: Machine> DevicePoly<M, Coeff> {
    /// The values of this polynomial.
    ///
    /// # Errors
    /// [`DeviceError::Call`].
    pub fn into_eval(self) -> Result<DevicePoly<M, Eval>, DeviceError> {
        self.ring.forward(&self.words, &self.words, &self.limbs())?;
        Ok(self.relabel())
    }
}

impl<M: Machine> DevicePoly<M, Eval> {
    /// The coefficients of this polynomial.
    ///
    /// # Errors
    /// [`DeviceError::Call`].
    pub fn into_coeff(self) -> Result<DevicePoly<M, Coeff>, DeviceError> {
        self.ring.inverse(&self.words, &self.words, &self.limbs(), &vec![1; self.ids.len()])?;
        Ok(self.relabel())
    }

    /// self ← self·other.
    ///
    /// # Errors
    /// As [`DevicePoly::add_assign`].
    pub fn mul_assign(&mut self, other: &Self) -> Result<(), DeviceError> {
        self.pointwise(Kernel::Multiply, [self, other])
    }

    /// self ← self + a·b.
    ///
    /// # Errors
    /// As [`DevicePoly::add_assign`].
    pub fn mul_add_assign(&mut self, a: &Self, b: &Self) -> Result<(), DeviceError> {
        self.pointwise(Kernel::MultiplyAdd, [a, b])
    }

    /// a(X) → a(X^g), g odd (taken modulo 2n): a permutation of the values.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Call`].
    ///
    /// # Panics
    /// If g is even.
    pub fn automorphism(&self, g: usize) -> Result<Self, DeviceError> {
        assert!(g % 2 == 1, "Galois elements are odd");
        let image = Self::scratch(&self.ring, &self.ids)?;
        let g = (g % (2 * self.ring.basis().n())) as u32;
        let [out, from] = memories([&image.words, &self.words]);
        // SAFETY: both polynomials have the same limbs, and the permutation stays within a limb.
        unsafe { self.ring.launch(Kernel::Automorphism, self.ids.len(), &[out, from, Argument::Number(g)])? };
        Ok(image)
    }
}
