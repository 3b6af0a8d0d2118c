//! What the products need of vectors of slots; the same products run in the clear, where tests can look.

use std::cell::Cell;

/// Arithmetic on vectors of slots.
pub trait Vectors {
    /// A vector of slots.
    type V;
    /// A vector prepared for several rotations; encrypted: decomposed once.
    type Hoisted;
    /// A product that is not finished; encrypted: neither relinearised nor rescaled, so that a sum of products is finished once.
    type Product;
    /// Why a step failed.
    type Error;

    /// Prepares `v` for [`Vectors::rotate`].
    fn hoist(&self, v: &Self::V) -> Result<Self::Hoisted, Self::Error>;
    /// Slot i of the result is slot i + `by` of the vector, indices modulo the number of slots.
    fn rotate(&self, v: &Self::Hoisted, by: usize) -> Result<Self::V, Self::Error>;
    /// Slot by slot.
    fn product(&self, a: &Self::V, b: &Self::V) -> Result<Self::Product, Self::Error>;
    /// sum += a·b.
    fn add_product(
        &self,
        sum: &mut Self::Product,
        a: &Self::V,
        b: &Self::V,
    ) -> Result<(), Self::Error>;
    /// Finishes a sum of products.
    fn finish(&self, product: Self::Product) -> Result<Self::V, Self::Error>;
    /// sum += v.
    fn add_assign(&self, sum: &mut Self::V, v: &Self::V) -> Result<(), Self::Error>;
}

/// Vectors in the clear, and a count of their rotations.
#[derive(Debug, Default)]
pub struct Clear {
    rotations: Cell<usize>,
    finished: Cell<usize>,
}

impl Clear {
    /// Rotations by other than zero so far.
    pub fn rotations(&self) -> usize {
        self.rotations.get()
    }

    /// Sums of products finished so far; encrypted: relinearisations.
    pub fn finished(&self) -> usize {
        self.finished.get()
    }
}

impl Vectors for Clear {
    type V = Vec<f64>;
    type Hoisted = Vec<f64>;
    type Product = Vec<f64>;
    type Error = super::PackingError;

    fn hoist(&self, v: &Vec<f64>) -> Result<Vec<f64>, Self::Error> {
        Ok(v.clone())
    }

    fn rotate(&self, v: &Vec<f64>, by: usize) -> Result<Vec<f64>, Self::Error> {
        let mut turned = v.clone();
        let by = by % v.len().max(1);
        turned.rotate_left(by);
        self.rotations
            .set(self.rotations.get() + usize::from(by != 0));
        Ok(turned)
    }

    fn product(&self, a: &Vec<f64>, b: &Vec<f64>) -> Result<Vec<f64>, Self::Error> {
        Ok(a.iter().zip(b).map(|(a, b)| a * b).collect())
    }

    fn add_product(
        &self,
        sum: &mut Vec<f64>,
        a: &Vec<f64>,
        b: &Vec<f64>,
    ) -> Result<(), Self::Error> {
        for (sum, (a, b)) in sum.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
        Ok(())
    }

    fn finish(&self, product: Vec<f64>) -> Result<Vec<f64>, Self::Error> {
        self.finished.set(self.finished.get() + 1);
        Ok(product)
    }

    fn add_assign(&self, sum: &mut Vec<f64>, v: &Vec<f64>) -> Result<(), Self::Error> {
        for (sum, v) in sum.iter_mut().zip(v) {
            *sum += v;
        }
        Ok(())
    }
}
