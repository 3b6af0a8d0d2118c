//! Arithmetic that opens the result of every operation and changes none: what a run computes, in its order on one
//! thread, so that interpretations can be compared step by step.

use std::sync::Mutex;

use hushed_ckks::maps::{GridSplit, MapGrid};
use hushed_ckks::poly::{Arithmetic, SlotArithmetic, Weight};
use hushed_ckks::{Complex64, Scale};
use hushed_lower::LinearMap;
use hushed_model::StepId;

use crate::FheError;
use crate::ops::functions::Function;
use crate::slots::{OwnedMask, Slots};

/// A result: the step, the operation, and the real parts of the slots.
pub(crate) struct Given {
    pub at: StepId,
    pub by: &'static str,
    pub values: Vec<f64>,
}

/// Opens a vector.
type Open<'a, V> = &'a (dyn Fn(&V) -> Vec<f64> + Sync);

/// The arithmetic `on`, with its results opened.
pub(crate) struct Opened<'a, S: Slots> {
    on: &'a S,
    open: Open<'a, S::Value>,
    at: Mutex<StepId>,
    given: Mutex<Vec<Given>>,
}

impl<'a, S: Slots> Opened<'a, S> {
    pub fn new(on: &'a S, open: Open<'a, S::Value>) -> Self {
        Opened { on, open, at: Mutex::new(StepId::outside("start")), given: Mutex::default() }
    }

    /// All results so far.
    pub fn into_given(self) -> Vec<Given> {
        self.given.into_inner().unwrap()
    }

    fn see(&self, by: &'static str, x: &S::Value) {
        let (at, values) = (*self.at.lock().unwrap(), (self.open)(x));
        self.given.lock().unwrap().push(Given { at, by, values });
    }

    fn one(&self, by: &'static str, x: Result<S::Value, FheError>) -> Result<S::Value, FheError> {
        x.inspect(|x| self.see(by, x))
    }

    fn all(&self, by: &'static str, x: Result<Vec<S::Value>, FheError>) -> Result<Vec<S::Value>, FheError> {
        x.inspect(|all| all.iter().for_each(|x| self.see(by, x)))
    }
}

impl<S: Slots> Arithmetic for Opened<'_, S> {
    type Value = S::Value;
    type Sum = S::Sum;
    type Error = FheError;

    fn limbs(&self, x: &S::Value) -> usize {
        self.on.limbs(x)
    }

    fn scale(&self, x: &S::Value) -> Scale {
        self.on.scale(x)
    }

    fn prime(&self, index: usize) -> u64 {
        self.on.prime(index)
    }

    fn level_primes(&self, limbs: usize) -> usize {
        self.on.level_primes(limbs)
    }

    fn sum(&self, limbs: usize, scale: Scale) -> Result<S::Sum, FheError> {
        self.on.sum(limbs, scale)
    }

    fn add_product(&self, sum: &mut S::Sum, a: &S::Value, b: &S::Value, weight: Weight) -> Result<(), FheError> {
        self.on.add_product(sum, a, b, weight)
    }

    fn add_multiple(&self, sum: &mut S::Sum, x: &S::Value, factor: f64) -> Result<(), FheError> {
        self.on.add_multiple(sum, x, factor)
    }

    fn finish(&self, sum: S::Sum) -> Result<S::Value, FheError> {
        self.one("finish", self.on.finish(sum))
    }

    fn add_constant(&self, x: S::Value, c: f64) -> Result<S::Value, FheError> {
        self.on.add_constant(x, c)
    }

    fn read_as(&self, x: S::Value, factor: f64) -> Result<S::Value, FheError> {
        self.on.read_as(x, factor)
    }

    fn within(&self, x: S::Value, bound: f64) -> S::Value {
        self.on.within(x, bound)
    }

    fn take_error(&self, x: S::Value) -> (S::Value, f64) {
        self.on.take_error(x)
    }

    fn with_error(&self, x: S::Value, deviation: f64) -> S::Value {
        self.on.with_error(x, deviation)
    }
}

impl<S: Slots> SlotArithmetic for Opened<'_, S> {
    fn add_multiples(&self, sum: &mut S::Sum, x: &S::Value, factors: &[f64]) -> Result<(), FheError> {
        self.on.add_multiples(sum, x, factors)
    }

    fn add_numbers(&self, x: S::Value, numbers: &[f64]) -> Result<S::Value, FheError> {
        self.on.add_numbers(x, numbers)
    }
}

impl<S: Slots> Slots for Opened<'_, S> {
    type Hoisted<'b>
        = S::Hoisted<'b>
    where
        Self: 'b;
    type Partial = S::Partial;
    type Stored = S::Stored;

    fn at(&self, id: StepId) {
        *self.at.lock().unwrap() = id;
        self.on.at(id);
    }

    fn only_shapes(&self) -> bool {
        self.on.only_shapes()
    }

    fn apply(
        &self,
        f: &Function,
        x: &S::Value,
        to: (usize, Scale),
        compute: impl FnOnce() -> Result<S::Value, FheError>,
    ) -> Result<S::Value, FheError> {
        self.one("apply", self.on.apply(f, x, to, compute))
    }

    fn value(&self, f: &Function, t: f64, compute: impl FnOnce() -> f64) -> f64 {
        self.on.value(f, t, compute)
    }

    fn slots(&self) -> usize {
        self.on.slots()
    }

    fn default_scale(&self) -> Scale {
        self.on.default_scale()
    }

    fn floor(&self) -> usize {
        self.on.floor()
    }

    fn top(&self) -> usize {
        self.on.top()
    }

    fn used(&self, x: S::Value, rows: &OwnedMask<S::Value>) -> S::Value {
        self.on.used(x, rows)
    }

    fn drop_to(&self, x: &S::Value, limbs: usize) -> Result<S::Value, FheError> {
        self.on.drop_to(x, limbs)
    }

    fn add_assign(&self, acc: &mut S::Value, x: &S::Value) -> Result<(), FheError> {
        self.on.add_assign(acc, x)?;
        self.see("add", acc);
        Ok(())
    }

    fn sub_assign(&self, acc: &mut S::Value, x: &S::Value) -> Result<(), FheError> {
        self.on.sub_assign(acc, x)?;
        self.see("subtract", acc);
        Ok(())
    }

    fn add_vector(&self, x: S::Value, v: &[f64]) -> Result<S::Value, FheError> {
        self.on.add_vector(x, v)
    }

    fn add_pairs(&self, x: S::Value, v: &[Complex64]) -> Result<S::Value, FheError> {
        self.on.add_pairs(x, v)
    }

    fn mul_vector(&self, x: &S::Value, v: &[f64], target: Scale) -> Result<S::Value, FheError> {
        self.one("multiply", self.on.mul_vector(x, v, target))
    }

    fn mul_pairs(&self, x: &S::Value, v: &[Complex64], target: Scale) -> Result<S::Value, FheError> {
        self.one("multiply", self.on.mul_pairs(x, v, target))
    }

    fn hoist<'b>(&'b self, x: &'b S::Value) -> Result<S::Hoisted<'b>, FheError> {
        self.on.hoist(x)
    }

    fn rotate_hoisted(&self, x: &S::Hoisted<'_>, by: usize) -> Result<S::Value, FheError> {
        self.one("rotate", self.on.rotate_hoisted(x, by))
    }

    fn rotate(&self, x: &S::Value, by: usize) -> Result<S::Value, FheError> {
        self.one("rotate", self.on.rotate(x, by))
    }

    fn pair(&self, a: S::Value, b: S::Value) -> Result<S::Value, FheError> {
        self.on.pair(a, b)
    }

    fn pair_conjugate(&self, a: S::Value, b: S::Value) -> Result<S::Value, FheError> {
        self.on.pair_conjugate(a, b)
    }

    fn real(&self, x: &S::Value) -> Result<S::Value, FheError> {
        self.one("real", self.on.real(x))
    }

    fn parts(&self, x: &S::Value) -> Result<[S::Value; 2], FheError> {
        let parts = self.on.parts(x)?;
        parts.iter().for_each(|x| self.see("parts", x));
        Ok(parts)
    }

    fn conjugate(&self, x: &S::Value) -> Result<S::Value, FheError> {
        self.one("conjugate", self.on.conjugate(x))
    }

    fn maps(
        &self,
        grid: &MapGrid,
        split: &GridSplit,
        x: &[S::Value],
        target: Scale,
    ) -> Result<Vec<S::Value>, FheError> {
        self.all("maps", self.on.maps(grid, split, x, target))
    }

    fn dot_grid(&self, left: &[Vec<S::Value>], right: &[Vec<S::Value>]) -> Result<Vec<Vec<S::Value>>, FheError> {
        let grid = self.on.dot_grid(left, right)?;
        grid.iter().flatten().for_each(|x| self.see("products", x));
        Ok(grid)
    }

    fn linear_add_at(
        &self,
        map: &LinearMap,
        x: &[S::Value],
        at: (usize, Scale),
        partial: Option<S::Partial>,
    ) -> Result<S::Partial, FheError> {
        self.on.linear_add_at(map, x, at, partial)
    }

    fn linear_join(&self, a: S::Partial, b: S::Partial) -> Result<S::Partial, FheError> {
        self.on.linear_join(a, b)
    }

    fn linear_finish(&self, partial: S::Partial) -> Result<Vec<S::Value>, FheError> {
        self.all("linear", self.on.linear_finish(partial))
    }

    fn ternary_add(
        &self,
        map: &LinearMap,
        x: &[S::Value],
        partial: Option<S::Partial>,
    ) -> Result<S::Partial, FheError> {
        self.on.ternary_add(map, x, partial)
    }

    fn ternary_finish(&self, partial: S::Partial) -> Result<Vec<S::Value>, FheError> {
        self.all("ternary", self.on.ternary_finish(partial))
    }

    fn refresh(&self, id: StepId, x: Vec<S::Value>, limbs: usize) -> Result<Vec<S::Value>, FheError> {
        self.all("refresh", self.on.refresh(id, x, limbs))
    }

    fn store(&self, x: Vec<S::Value>) -> Result<S::Stored, FheError> {
        self.on.store(x)
    }

    fn load(&self, stored: S::Stored) -> Result<Vec<S::Value>, FheError> {
        self.on.load(stored)
    }
}
