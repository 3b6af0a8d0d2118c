//! What a run needs of vectors of slots, encrypted or not.

use hushed_ckks::Scale;
use hushed_ckks::poly::Arithmetic;

use hushed_lower::LinearMap;
use hushed_model::StepId;

use crate::error::FheError;
use crate::ops::functions::Function;

/// A 0/1 mask over slots, encrypted where lengths are private.
#[derive(Clone)]
pub enum OwnedMask<V> {
    /// Numbers.
    Public(Vec<f64>),
    /// Encrypted.
    Private(V),
}

/// Arithmetic on vectors of slots, with levels and scales ([`Arithmetic`]), and what a transformer needs besides:
/// plaintext vectors, rotations, sums of products over two lists, matrices of scalars, refreshes.
///
/// Slots hold real numbers; in a *pair*, which [`Slots::pair`] makes of two vectors, those of one are the real and
/// those of the other the imaginary parts. Of pairs there are rotations, sums, products with vectors and with each
/// other in [`Slots::dot_grid`], and nothing else. A *level* is one rescale; `limbs` are primes. Vectors that are added
/// have one scale, so whoever makes a vector says at which scale; nothing assigns one.
pub trait Slots: Arithmetic<Error = FheError, Value: Send + Sync> + Sync {
    /// A vector prepared for several rotations (decomposed once).
    type Hoisted<'a>: Send + Sync
    where
        Self: 'a;
    /// Results of a linear map that have not got all their terms yet.
    type Partial: Send;
    /// Vectors that are put away: on a disk, not in memory.
    type Stored: Send;

    /// Says which step of the model the calls after this one belong to (`layer.0.attention.scores`): for plans,
    /// counters and progress. Nothing is computed.
    fn at(&self, id: StepId) {
        let _ = id;
    }

    /// Whether nothing is computed, and only shapes count: then maps come without weights, and every column may have
    /// the same polynomial. What is done is the same, as operations never follow from numbers.
    fn only_shapes(&self) -> bool {
        false
    }

    /// The numbers of a plaintext vector, one a slot; none where only shapes count.
    fn plain(&self, numbers: impl FnOnce() -> Vec<f64>) -> Vec<f64> {
        match self.only_shapes() {
            true => Vec::new(),
            false => numbers(),
        }
    }

    /// `f` of every slot of `x`, at the scale `target`, so many `levels` below: what `compute` makes of it by
    /// polynomials, unless the interpretation has the function itself.
    ///
    /// # Errors
    /// Those of `compute`: too few levels.
    fn apply(
        &self,
        f: &Function,
        x: &Self::Value,
        (levels, target): (usize, Scale),
        compute: impl FnOnce() -> Result<Self::Value, FheError>,
    ) -> Result<Self::Value, FheError> {
        let _ = (f, x, levels, target);
        compute()
    }

    /// What [`Slots::apply`] makes of the number `t`, known to whoever runs the circuit.
    fn value(&self, f: &Function, t: f64, compute: impl FnOnce() -> f64) -> f64 {
        let _ = (f, t);
        compute()
    }

    /// Slots of a vector.
    fn slots(&self) -> usize;

    /// The scale at which numbers within 1 can be refreshed, and at which they come out.
    fn default_scale(&self) -> Scale;

    /// Primes that a vector needs at least to be refreshed: level 0 of the ledger.
    fn floor(&self) -> usize;

    /// Primes of a refreshed vector, at most.
    fn top(&self) -> usize;

    /// The same vector, of which only slots will be used where the mask is 1: elsewhere it may be beyond what a refresh
    /// takes. Where values are visible they are cut to the bound there.
    fn used(&self, x: Self::Value, rows: &OwnedMask<Self::Value>) -> Self::Value {
        let _ = rows;
        x
    }

    /// The first `limbs` primes of a vector.
    ///
    /// # Errors
    /// If it has fewer.
    fn drop_to(&self, x: &Self::Value, limbs: usize) -> Result<Self::Value, FheError>;

    /// acc += x, over the primes of the shorter.
    ///
    /// # Errors
    /// If the scales differ.
    fn add_assign(&self, acc: &mut Self::Value, x: &Self::Value) -> Result<(), FheError>;

    /// acc −= x, over the primes of the shorter.
    ///
    /// # Errors
    /// If the scales differ.
    fn sub_assign(&self, acc: &mut Self::Value, x: &Self::Value) -> Result<(), FheError>;

    /// x + v, one number a slot, encoded at the scale of x.
    ///
    /// # Errors
    /// Unless there is a number for every slot.
    fn add_vector(&self, x: Self::Value, v: &[f64]) -> Result<Self::Value, FheError>;

    /// x ⊗ v at the scale `target`, one level below x.
    ///
    /// # Errors
    /// Unless there is a number for every slot, and a level.
    fn mul_vector(
        &self,
        x: &Self::Value,
        v: &[f64],
        target: Scale,
    ) -> Result<Self::Value, FheError>;

    /// Prepares rotations of `x`.
    ///
    /// # Errors
    /// None but the engine's.
    fn hoist<'a>(&'a self, x: &'a Self::Value) -> Result<Self::Hoisted<'a>, FheError>;

    /// Slot i of the result is slot i + `by`, indices modulo the number of slots.
    ///
    /// # Errors
    /// If there is no key for it.
    fn rotate_hoisted(&self, x: &Self::Hoisted<'_>, by: usize) -> Result<Self::Value, FheError>;

    /// One rotation.
    ///
    /// # Errors
    /// As [`Slots::rotate_hoisted`].
    fn rotate(&self, x: &Self::Value, by: usize) -> Result<Self::Value, FheError> {
        self.rotate_hoisted(&self.hoist(x)?, by)
    }

    /// a + i·b, of one scale and as many primes. No key, no level.
    ///
    /// # Errors
    /// If scales or primes differ.
    fn pair(&self, a: Self::Value, b: Self::Value) -> Result<Self::Value, FheError>;

    /// a − i·b.
    ///
    /// # Errors
    /// As [`Slots::pair`].
    fn pair_conjugate(&self, a: Self::Value, b: Self::Value) -> Result<Self::Value, FheError>;

    /// The real parts, at twice the scale: x + x̄ is twice what they are. One conjugation, which is a key switch.
    ///
    /// # Errors
    /// If there is no key for conjugations.
    fn real(&self, x: &Self::Value) -> Result<Self::Value, FheError>;

    /// Both parts, each at twice the scale. One conjugation.
    ///
    /// # Errors
    /// As [`Slots::real`].
    fn parts(&self, x: &Self::Value) -> Result<[Self::Value; 2], FheError>;

    /// `grid[i][j]` = Σ_k `left[k][i]` ⊗ `right[k][j]`: each sum is relinearised once and rescaled once. Operands are
    /// cut to the fewest primes among them; all of `left` have one scale, and all of `right` another.
    ///
    /// # Errors
    /// If lengths or scales differ within a side, or there is no level.
    fn dot_grid(
        &self,
        left: &[Vec<Self::Value>],
        right: &[Vec<Self::Value>],
    ) -> Result<Vec<Vec<Self::Value>>, FheError>;

    /// `partial` plus the products of a block of columns, to be at the scale `target` once finished. The first block
    /// brings the biases, if there are any.
    ///
    /// # Errors
    /// If blocks differ in rows, primes or scales.
    fn linear_add(
        &self,
        map: &LinearMap,
        x: &[Self::Value],
        target: Scale,
        partial: Option<Self::Partial>,
    ) -> Result<Self::Partial, FheError>;

    /// The results, one level below the operands.
    ///
    /// # Errors
    /// If there is no level.
    fn linear_finish(&self, partial: Self::Partial) -> Result<Vec<Self::Value>, FheError>;

    /// The map of all operands, which share scale and primes: the results at `target`, one level below.
    ///
    /// # Errors
    /// As [`Slots::linear_add`].
    fn linear(
        &self,
        map: &LinearMap,
        x: &[Self::Value],
        target: Scale,
    ) -> Result<Vec<Self::Value>, FheError> {
        self.linear_finish(self.linear_add(map, x, target, None)?)
    }

    /// The same vectors with `limbs` primes, between [`Slots::floor`] and [`Slots::top`], at [`Slots::default_scale`];
    /// two share a bootstrap. Every slot is within 1: others come out wrong.
    ///
    /// # Errors
    /// Below [`Slots::floor`] primes; where values are visible, [`FheError::Range`] for one beyond 1, with `id` in it.
    fn refresh(
        &self,
        id: StepId,
        x: Vec<Self::Value>,
        limbs: usize,
    ) -> Result<Vec<Self::Value>, FheError>;

    /// Puts vectors away until [`Slots::load`] brings them back; their memory is free after it. Dropped, they are gone
    /// from where they were.
    ///
    /// # Errors
    /// [`FheError::File`] if there is no room, [`FheError::Unsupported`] if there is no place for them.
    fn store(&self, x: Vec<Self::Value>) -> Result<Self::Stored, FheError>;

    /// The same vectors, to the bit.
    ///
    /// # Errors
    /// [`FheError::File`] if they are not what was put away.
    fn load(&self, stored: Self::Stored) -> Result<Vec<Self::Value>, FheError>;
}
