//! The operations of a run on vectors of slots, encrypted or not.

use std::sync::Arc;

use hushed_ckks::maps::{GridSplit, MapGrid};
use hushed_ckks::poly::{PolyError, SlotArithmetic};
use hushed_ckks::{Complex64, Scale};

use hushed_lower::LinearMap;
use hushed_model::StepId;

use crate::error::FheError;
use crate::machines::trace::TracedTape;
use crate::ops::folded::{Folded, Polynomials};
use crate::ops::functions::Function;

/// Vectors refreshed in one call: a pair for each ciphertext that a bootstrap takes through its steps together.
pub(crate) const REFRESH_TILE: usize = 8;

/// A 0/1 mask over slots, encrypted if lengths are private.
#[derive(Clone)]
pub enum OwnedMask<V> {
    /// A plaintext vector.
    Public(Vec<f64>),
    /// An encrypted vector.
    Private(V),
}

/// Arithmetic on vectors of slots with levels and scales ([`SlotArithmetic`]), and the other operations of a
/// transformer: plaintext vectors, rotations, sums of products over two lists, scalar matrices, refreshes.
///
/// Slots hold real numbers. A *pair* ([`Slots::pair`]) packs two vectors as the real and the imaginary parts of one.
/// Pairs can be rotated, added, conjugated, mapped ([`Slots::maps`], [`Slots::linear`]), and multiplied with plaintext
/// vectors (including vectors of pairs) and, in [`Slots::dot_grid`], with each other; nothing else. A *level* is one
/// rescale; `limbs` counts primes. Operands of a sum have the same scale, so each operation that rescales takes the
/// scale of its result; none is chosen implicitly.
pub trait Slots: SlotArithmetic<Error = FheError, Value: Send + Sync> + Sync {
    /// A vector prepared for several rotations (hoisting: it is decomposed once).
    type Hoisted<'a>: Send + Sync
    where
        Self: 'a;
    /// Partial sums of a linear map.
    type Partial: Send;
    /// Spilled vectors: on disk, not in memory.
    type Stored: Send;

    /// Names the step of the model that later calls belong to (`layer.0.attention.scores`), for plans, counters and
    /// progress. Nothing is computed.
    fn at(&self, id: StepId) {
        let _ = id;
    }

    /// Where the nodes of a run are told apart: begins a visit of the counters, and returns its number.
    fn visit(&self) -> Option<usize> {
        None
    }

    /// Keeps a tape whose nodes were told apart.
    fn trace(&self, tape: TracedTape) {
        let _ = tape;
    }

    /// Whether only shapes count and nothing is computed. Maps then have no weights, and every column may have the same
    /// polynomial. The operations are the same, as they never depend on numbers.
    fn only_shapes(&self) -> bool {
        false
    }

    /// Whether fits are tried where only shapes count and stand-ins are used.
    fn tries_fits(&self) -> bool {
        false
    }

    /// The function that `fit` makes of the choices; where only shapes count, `stand_in`, which takes the same
    /// operations.
    ///
    /// # Errors
    /// Those of `fit` and `stand_in`.
    fn fitted<T, E: Into<FheError>>(
        &self,
        fit: impl FnOnce() -> Result<T, E>,
        stand_in: impl FnOnce() -> Result<T, PolyError>,
    ) -> Result<T, FheError> {
        if !self.only_shapes() {
            return fit().map_err(E::into);
        }
        if self.tries_fits() {
            fit().map_err(E::into)?;
        }
        Ok(stand_in()?)
    }

    /// What was folded and fitted before, if this arithmetic keeps it.
    fn folded(&self) -> Option<&Folded> {
        None
    }

    /// The map of step `id`: the one that was kept, or the one that `fold` makes of the model's numbers.
    ///
    /// # Errors
    /// Those of `fold`.
    fn map(&self, id: StepId, fold: impl FnOnce() -> Result<LinearMap, FheError>) -> Result<Arc<LinearMap>, FheError> {
        match self.folded() {
            Some(folded) => folded.map(id, fold),
            None => Ok(Arc::new(fold()?)),
        }
    }

    /// The polynomials of activations, those that were kept among them.
    fn polynomials(&self) -> Arc<Polynomials> {
        self.folded().map(Folded::polynomials).unwrap_or_default()
    }

    /// The numbers of a plaintext vector, one per slot; empty if only shapes count.
    fn plain(&self, numbers: impl FnOnce() -> Vec<f64>) -> Vec<f64> {
        match self.only_shapes() {
            true => Vec::new(),
            false => numbers(),
        }
    }

    /// Applies `f` to every slot of `x`: the result is at scale `target`, `levels` below x. `compute` approximates `f`
    /// by polynomials; an implementation may use the exact function instead.
    ///
    /// # Errors
    /// The errors of `compute`: too few levels.
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

    /// [`Slots::apply`] for a single number `t` that the server knows in the clear.
    fn value(&self, f: &Function, t: f64, compute: impl FnOnce() -> f64) -> f64 {
        let _ = (f, t);
        compute()
    }

    /// Number of slots of a vector.
    fn slots(&self) -> usize;

    /// The scale of a refresh's input and output, for numbers within 1.
    fn default_scale(&self) -> Scale;

    /// The fewest primes a vector can be refreshed with: level 0.
    fn floor(&self) -> usize;

    /// The most primes of a refreshed vector.
    fn top(&self) -> usize;

    /// The same vector, declaring that only slots where the mask is 1 are used later; others may exceed what a refresh
    /// takes. Where values are visible, those are clamped to the bound.
    fn used(&self, x: Self::Value, rows: &OwnedMask<Self::Value>) -> Self::Value {
        let _ = rows;
        x
    }

    /// The first `limbs` primes of a vector.
    ///
    /// # Errors
    /// If the vector has fewer.
    fn drop_to(&self, x: &Self::Value, limbs: usize) -> Result<Self::Value, FheError>;

    /// acc += x, over the fewer primes of the two.
    ///
    /// # Errors
    /// If the scales differ.
    fn add_assign(&self, acc: &mut Self::Value, x: &Self::Value) -> Result<(), FheError>;

    /// acc −= x, over the fewer primes of the two.
    ///
    /// # Errors
    /// If the scales differ.
    fn sub_assign(&self, acc: &mut Self::Value, x: &Self::Value) -> Result<(), FheError>;

    /// x + v, with one number of v per slot, encoded at the scale of x.
    ///
    /// # Errors
    /// Unless v has a number for every slot.
    fn add_vector(&self, x: Self::Value, v: &[f64]) -> Result<Self::Value, FheError>;

    /// x + v, with one pair of v per slot, encoded at the scale of x.
    ///
    /// # Errors
    /// Unless v has a pair for every slot.
    fn add_pairs(&self, x: Self::Value, v: &[Complex64]) -> Result<Self::Value, FheError>;

    /// x ⊗ v (slot by slot) at scale `target`, one level below x.
    ///
    /// # Errors
    /// Unless v has a number for every slot and x has a level.
    fn mul_vector(&self, x: &Self::Value, v: &[f64], target: Scale) -> Result<Self::Value, FheError>;

    /// The pairs of a plaintext vector, one per slot; empty if only shapes count.
    fn plain_pairs(&self, pairs: impl FnOnce() -> Vec<Complex64>) -> Vec<Complex64> {
        match self.only_shapes() {
            true => Vec::new(),
            false => pairs(),
        }
    }

    /// x ⊗ v (slot by slot, complex numbers) at scale `target`, one level below x.
    ///
    /// # Errors
    /// Unless v has a pair for every slot and x has a level.
    fn mul_pairs(&self, x: &Self::Value, v: &[Complex64], target: Scale) -> Result<Self::Value, FheError>;

    /// Prepares `x` for rotations.
    ///
    /// # Errors
    /// Only those of the engine.
    fn hoist<'a>(&'a self, x: &'a Self::Value) -> Result<Self::Hoisted<'a>, FheError>;

    /// Slot i of the result is slot i + `by` of x, modulo the number of slots.
    ///
    /// # Errors
    /// If there is no key for this rotation.
    fn rotate_hoisted(&self, x: &Self::Hoisted<'_>, by: usize) -> Result<Self::Value, FheError>;

    /// [`Slots::hoist`] and one rotation.
    ///
    /// # Errors
    /// As [`Slots::rotate_hoisted`].
    fn rotate(&self, x: &Self::Value, by: usize) -> Result<Self::Value, FheError> {
        self.rotate_hoisted(&self.hoist(x)?, by)
    }

    /// a + i·b, of real vectors or pairs of the same scale and primes. Takes no key and no level.
    ///
    /// # Errors
    /// If scales or primes differ.
    fn pair(&self, a: Self::Value, b: Self::Value) -> Result<Self::Value, FheError>;

    /// a − i·b.
    ///
    /// # Errors
    /// As [`Slots::pair`].
    fn pair_conjugate(&self, a: Self::Value, b: Self::Value) -> Result<Self::Value, FheError>;

    /// The real parts, at twice the scale: x + x̄. One conjugation, which is a key switch.
    ///
    /// # Errors
    /// If there is no key for conjugations.
    fn real(&self, x: &Self::Value) -> Result<Self::Value, FheError>;

    /// Both parts, each at twice the scale. One conjugation.
    ///
    /// # Errors
    /// As [`Slots::real`].
    fn parts(&self, x: &Self::Value) -> Result<[Self::Value; 2], FheError>;

    /// a − i·b of a pair a + i·b. One conjugation.
    ///
    /// # Errors
    /// As [`Slots::real`].
    fn conjugate(&self, x: &Self::Value) -> Result<Self::Value, FheError>;

    /// The outputs of a grid of linear maps at scale `target`, one level below the input with the fewest primes. All
    /// inputs have the same scale. `split` chooses the rotations of inputs and of sums; each input is decomposed once.
    ///
    /// # Errors
    /// For a different number of slots or inputs than the grid's, scales that differ, or a missing level or key.
    fn maps(
        &self,
        grid: &MapGrid,
        split: &GridSplit,
        x: &[Self::Value],
        target: Scale,
    ) -> Result<Vec<Self::Value>, FheError>;

    /// `grid[i][j]` = Σ_k `left[k][i]` ⊗ `right[k][j]`; each sum is relinearised once and rescaled once. Operands are
    /// dropped to the fewest primes among them; all of `left` have the same scale, and so do all of `right`.
    ///
    /// # Errors
    /// If lengths or scales differ within a side, or there is no level.
    fn dot_grid(
        &self,
        left: &[Vec<Self::Value>],
        right: &[Vec<Self::Value>],
    ) -> Result<Vec<Vec<Self::Value>>, FheError>;

    /// Adds the products of a block of columns to `partial`; the finished results are at scale `target`. The map of the
    /// first block holds the biases, if any. Of pairs, both parts are mapped.
    ///
    /// # Errors
    /// If blocks differ in rows, primes or scales.
    fn linear_add(
        &self,
        map: &LinearMap,
        x: &[Self::Value],
        target: Scale,
        partial: Option<Self::Partial>,
    ) -> Result<Self::Partial, FheError> {
        let limbs = x.first().map_or(0, |x| self.limbs(x));
        self.linear_add_at(map, x, (limbs, target), partial)
    }

    /// As [`Slots::linear_add`], of the first primes of the operands; more are not read, so nothing is copied. `at`:
    /// the primes that are read, and the scale of the finished results, which have one level fewer.
    ///
    /// # Errors
    /// As [`Slots::linear_add`], or if operands have fewer primes.
    fn linear_add_at(
        &self,
        map: &LinearMap,
        x: &[Self::Value],
        at: (usize, Scale),
        partial: Option<Self::Partial>,
    ) -> Result<Self::Partial, FheError>;

    /// The sum of two partial sums of the same map.
    ///
    /// # Errors
    /// If they differ in rows, primes or scales.
    fn linear_join(&self, a: Self::Partial, b: Self::Partial) -> Result<Self::Partial, FheError>;

    /// The results, one level below the operands.
    ///
    /// # Errors
    /// If there is no level.
    fn linear_finish(&self, partial: Self::Partial) -> Result<Vec<Self::Value>, FheError>;

    /// The whole map at once, of operands with the same scale and primes: results are at `target`, one level below.
    ///
    /// # Errors
    /// As [`Slots::linear_add`].
    fn linear(&self, map: &LinearMap, x: &[Self::Value], target: Scale) -> Result<Vec<Self::Value>, FheError> {
        self.linear_finish(self.linear_add(map, x, target, None)?)
    }

    /// As [`Slots::linear`], of the first primes of the operands. `at` as in [`Slots::linear_add_at`].
    ///
    /// # Errors
    /// As [`Slots::linear_add_at`].
    fn linear_at(&self, map: &LinearMap, x: &[Self::Value], at: (usize, Scale)) -> Result<Vec<Self::Value>, FheError> {
        self.linear_finish(self.linear_add_at(map, x, at, None)?)
    }

    /// As [`Slots::linear_add`], for weights −b, 0 and b without biases, where b is the map's bound. Their signs are
    /// what is multiplied: integers, which keep the scale of the operands. A partial sum is of one kind.
    ///
    /// # Errors
    /// If blocks differ in rows, primes or scales, or a weight is another number.
    fn ternary_add(
        &self,
        map: &LinearMap,
        x: &[Self::Value],
        partial: Option<Self::Partial>,
    ) -> Result<Self::Partial, FheError>;

    /// The results, with the primes and the scale of the operands.
    ///
    /// # Errors
    /// Only those of the engine.
    fn ternary_finish(&self, partial: Self::Partial) -> Result<Vec<Self::Value>, FheError>;

    /// Refreshes vectors to `limbs` primes, between [`Slots::floor`] and [`Slots::top`], at [`Slots::default_scale`].
    /// Two vectors share a bootstrap; an odd one out costs less than a full one. A slot beyond 1 comes out wrong.
    ///
    /// # Errors
    /// Below [`Slots::floor`] primes; where values are visible, [`FheError::Range`] for a value above 1, naming `id`.
    fn refresh(&self, id: StepId, x: Vec<Self::Value>, limbs: usize) -> Result<Vec<Self::Value>, FheError>;

    /// Spills vectors to disk and frees their memory, until [`Slots::load`] reads them back. Dropping the handle
    /// deletes them.
    ///
    /// # Errors
    /// [`FheError::File`] if the disk is full, [`FheError::Unsupported`] if there is no folder for them.
    fn store(&self, x: Vec<Self::Value>) -> Result<Self::Stored, FheError>;

    /// Reads spilled vectors back, bit for bit.
    ///
    /// # Errors
    /// [`FheError::File`] if the file is not what was written.
    fn load(&self, stored: Self::Stored) -> Result<Vec<Self::Value>, FheError>;
}
