//! Vectors, rotations, grids of products, linear maps and refreshes.

use std::mem::discriminant;
use std::sync::{Mutex, PoisonError};

use hushed_ckks::gemm::GemmWeights;
use hushed_ckks::maps::{GridSplit, MapGrid};
use hushed_ckks::poly::Ladder;
use hushed_ckks::{Ciphertext, CkksError, Complex64, Scale};
use hushed_model::StepId;
use rayon::prelude::*;

use super::errors::mix;
use super::imaginary::Imaginary;
use super::pairs::{check_known, check_real};
use super::tally::{Held, OnDisk, Op};
use super::{Applied, Simulator, TOLERANCE, Vector, check_limbs, check_scales, linear, rounded};
use crate::error::FheError;
use crate::machines::trace::TracedTape;
use crate::ops::folded::Folded;
use crate::ops::functions::Function;
use crate::packing::PackingError;
use crate::slots::{OwnedMask, REFRESH_TILE, Slots};
use hushed_lower::LinearMap;

/// A vector prepared for rotations.
#[derive(Debug)]
pub struct Hoisted<'a> {
    x: &'a Vector,
    _held: Held,
}

/// Unfinished sums of a linear map.
#[derive(Debug)]
pub struct Partial {
    rows: Vec<Vec<f64>>,
    /// The imaginary parts of the rows, once an operand was a pair.
    imaginary: Option<Vec<Vec<f64>>>,
    /// One per row; a row is released when it is finished.
    held: Vec<Held>,
    limbs: usize,
    from: Scale,
    target: Scale,
    /// Scale of the sums.
    wide: f64,
    id: u64,
}

/// Spilled vectors, kept here but counted as on disk.
#[derive(Debug)]
pub struct Stored {
    vectors: Vec<StoredVector>,
    _on_disk: OnDisk,
}

/// A vector that is not counted as memory.
#[derive(Debug)]
struct StoredVector {
    slots: Vec<f64>,
    imaginary: Imaginary,
    limbs: usize,
    scale: Scale,
    id: u64,
}

impl Slots for Simulator {
    type Hoisted<'a> = Hoisted<'a>;
    type Partial = Partial;
    type Stored = Stored;

    fn at(&self, id: StepId) {
        self.tally.at(id);
    }

    fn visit(&self) -> Option<usize> {
        self.traced.as_ref().map(|_| self.tally.visit())
    }

    fn trace(&self, tape: TracedTape) {
        if let Some(traced) = &self.traced {
            traced.lock().unwrap_or_else(PoisonError::into_inner).push(tape);
        }
    }

    fn only_shapes(&self) -> bool {
        self.counting
    }

    fn tries_fits(&self) -> bool {
        self.tries_fits
    }

    fn folded(&self) -> Option<&Folded> {
        self.folded.as_deref()
    }

    fn apply(
        &self,
        f: &Function,
        x: &Vector,
        (levels, target): (usize, Scale),
        compute: impl FnOnce() -> Result<Vector, FheError>,
    ) -> Result<Vector, FheError> {
        let Some(watch) = &self.watch else {
            return match &self.applied {
                Some(applied) => self.counted_once(applied, f, x, (levels, target), compute),
                None => compute(),
            };
        };
        watch.see(self.tally.site(), f, &x.slots);
        let limbs = Ladder::new(self, x.limbs, levels)?.limbs(levels);
        let slots = x.slots.iter().map(|&v| f.exact(v)).collect();
        Ok(self.make(slots, limbs, target, x.id))
    }

    fn value(&self, f: &Function, t: f64, compute: impl FnOnce() -> f64) -> f64 {
        match self.watch {
            Some(_) => f.exact(t),
            None => compute(),
        }
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn default_scale(&self) -> Scale {
        self.params.default_scale()
    }

    fn floor(&self) -> usize {
        self.params.bootstrap_limbs()
    }

    fn top(&self) -> usize {
        self.params.chain().eval_mod.start
    }

    fn used(&self, mut x: Vector, rows: &OwnedMask<Vector>) -> Vector {
        if self.watch.is_some() {
            return x;
        }
        let mask = match rows {
            OwnedMask::Public(mask) => mask.as_slice(),
            OwnedMask::Private(mask) => mask.values(),
        };
        let unused = x.slots.iter_mut().zip(mask).filter(|(_, m)| m.abs() < 0.5);
        unused.for_each(|(v, _)| *v = v.clamp(-1.0, 1.0));
        x
    }

    fn drop_to(&self, x: &Vector, limbs: usize) -> Result<Vector, FheError> {
        check_limbs(x, limbs)?;
        Ok(self.copy(x, limbs))
    }

    fn add_assign(&self, acc: &mut Vector, x: &Vector) -> Result<(), FheError> {
        self.join(acc, x, |a, x| *a += x)
    }

    fn sub_assign(&self, acc: &mut Vector, x: &Vector) -> Result<(), FheError> {
        self.join(acc, x, |a, x| *a -= x)
    }

    fn add_vector(&self, mut x: Vector, v: &[f64]) -> Result<Vector, FheError> {
        self.check_length(v)?;
        self.tally.count(Op::AddVector, x.limbs, 1);
        x.slots.iter_mut().zip(v).for_each(|(x, v)| *x += v);
        Ok(x)
    }

    fn add_pairs(&self, mut x: Vector, v: &[Complex64]) -> Result<Vector, FheError> {
        self.check_count(v.len())?;
        self.tally.count(Op::AddVector, x.limbs, 1);
        x.slots.iter_mut().zip(v).for_each(|(x, v)| *x += v.re);
        let imaginary = v.iter().map(|v| v.im).collect();
        x.imaginary.join(&Imaginary::Known(imaginary), |x, v| *x += v);
        Ok(x)
    }

    fn mul_vector(&self, x: &Vector, v: &[f64], target: Scale) -> Result<Vector, FheError> {
        self.check_length(v)?;
        let factor = self.factor_scale(x.scale, target, x.limbs)?;
        self.tally.count(Op::MulVector, x.limbs, 1);
        let mut v = v.to_vec();
        if let Some(errors) = &self.errors {
            errors.encoding(&mut v, mix(x.id, 0x656e), factor);
        }
        let times = |x: &[f64]| x.iter().zip(&v).map(|(x, v)| x * v).collect();
        let imaginary = match &x.imaginary {
            Imaginary::Known(values) => Imaginary::Known(times(values)),
            other => other.clone(),
        };
        let wide = x.scale.value() * factor;
        self.rescale_pair(times(&x.slots), imaginary, x.limbs, wide, mix(x.id, 0x6d75))
    }

    fn mul_pairs(&self, x: &Vector, v: &[Complex64], target: Scale) -> Result<Vector, FheError> {
        self.check_count(v.len())?;
        let factor = self.factor_scale(x.scale, target, x.limbs)?;
        self.tally.count(Op::MulVector, x.limbs, 1);
        let (mut re, mut im): (Vec<f64>, Vec<f64>) = v.iter().map(|v| (v.re, v.im)).unzip();
        if let Some(errors) = &self.errors {
            errors.encoding(&mut re, mix(x.id, 0x6572), factor);
            errors.encoding(&mut im, mix(x.id, 0x6569), factor);
        }
        let (slots, imaginary) = self.times_pairs(x, &re, &im)?;
        let wide = x.scale.value() * factor;
        self.rescale_pair(slots, imaginary, x.limbs, wide, mix(x.id, 0x6d70))
    }

    fn hoist<'a>(&'a self, x: &'a Vector) -> Result<Hoisted<'a>, FheError> {
        self.tally.count(Op::Hoist, x.limbs, 1);
        Ok(Hoisted { x, _held: Held::new(&self.tally, self.decomposed[x.limbs]) })
    }

    fn rotate_hoisted(&self, x: &Hoisted<'_>, by: usize) -> Result<Vector, FheError> {
        let (by, x) = (by % self.slots, x.x);
        let mut rotated = self.copy(x, x.limbs);
        if by != 0 {
            self.tally.rotate(by, x.limbs);
            rotated.id = mix(x.id, by as u64);
            // There is nothing to rotate if only shapes count.
            if !self.counting {
                rotated.slots.rotate_left(by);
                rotated.imaginary.each(|part| part.rotate_left(by));
                self.switched(&mut rotated.slots, rotated.id, x.scale);
                let id = mix(rotated.id, 0x696d);
                rotated.imaginary.each(|part| self.switched(part, id, x.scale));
            }
        }
        Ok(rotated)
    }

    fn pair(&self, a: Vector, b: Vector) -> Result<Vector, FheError> {
        self.joined(a, b, 1.0)
    }

    fn pair_conjugate(&self, a: Vector, b: Vector) -> Result<Vector, FheError> {
        self.joined(a, b, -1.0)
    }

    fn real(&self, x: &Vector) -> Result<Vector, FheError> {
        self.doubled(x)
    }

    fn parts(&self, x: &Vector) -> Result<[Vector; 2], FheError> {
        Ok([self.doubled(x)?, self.imaginary(x)?])
    }

    fn conjugate(&self, x: &Vector) -> Result<Vector, FheError> {
        Ok(self.conjugated(x))
    }

    fn maps(&self, grid: &MapGrid, split: &GridSplit, x: &[Vector], target: Scale) -> Result<Vec<Vector>, FheError> {
        self.mapped(grid, split, x, target)
    }

    fn dot_grid(&self, left: &[Vec<Vector>], right: &[Vec<Vector>]) -> Result<Vec<Vec<Vector>>, FheError> {
        let (Some(first_left), Some(first_right)) = (left.first(), right.first()) else {
            return Err(PackingError::Mismatch.into());
        };
        let (rows, columns) = (first_left.len(), first_right.len());
        let even = |side: &[Vec<Vector>], length: usize| side.iter().all(|x| x.len() == length);
        let (Some(a), Some(b)) = (first_left.first(), first_right.first()) else {
            return Err(PackingError::Mismatch.into());
        };
        if left.len() != right.len() || !even(left, rows) || !even(right, columns) {
            return Err(PackingError::Mismatch.into());
        }
        for (side, first) in [(left, a), (right, b)] {
            for x in side.iter().flatten() {
                check_scales(first.scale, x.scale)?;
                check_known(x)?;
            }
        }
        let all = left.iter().chain(right).flatten();
        let limbs = all.map(|x| x.limbs).min().unwrap_or(a.limbs);
        let wide = a.scale.times(b.scale).value();
        let one = |i: usize, j: usize| {
            let pairs = || left.iter().zip(right).map(move |(l, r)| (&l[i], &r[j]));
            let (slots, imaginary) = self.sum_of_products(pairs);
            let id = pairs().fold(0, |id, (left, right)| mix(id, mix(left.id, right.id)));
            self.tally.count(Op::Tensor, limbs, left.len());
            self.tally.count(Op::Relinearise, limbs, 1);
            self.rescale_pair(slots, imaginary, limbs, wide, id)
        };
        (0..rows).into_par_iter().map(|i| (0..columns).into_par_iter().map(|j| one(i, j)).collect()).collect()
    }

    fn linear_add_at(
        &self,
        map: &LinearMap,
        x: &[Vector],
        (limbs, target): (usize, Scale),
        partial: Option<Partial>,
    ) -> Result<Partial, FheError> {
        let first = x.first().ok_or(PackingError::Mismatch)?;
        let absent = self.counting && map.weights.is_empty();
        if x.len() != map.columns || !absent && map.weights.len() != map.rows * map.columns {
            return Err(PackingError::Mismatch.into());
        }
        for x in x {
            check_scales(first.scale, x.scale)?;
            check_known(x)?;
            check_limbs(x, limbs)?;
            if x.limbs != first.limbs {
                return Err(PackingError::Mismatch.into());
            }
        }
        let factor = self.factor_scale(first.scale, target, limbs)?;
        let mut sums = match partial {
            Some(partial) => {
                check_scales(partial.from, first.scale)?;
                check_scales(partial.target, target)?;
                if partial.limbs != limbs || partial.rows.len() != map.rows {
                    return Err(PackingError::Mismatch.into());
                }
                partial
            }
            None => self.begin(map, (first.scale, limbs), target, first.scale.value() * factor)?,
        };
        let terms = map.rows * map.columns;
        self.tally.count(Op::LinearTerm, limbs, terms);
        sums.id = x.iter().fold(sums.id, |id, x| mix(id, x.id));
        if sums.imaginary.is_none() && x.iter().any(|x| !matches!(x.imaginary, Imaginary::Zero)) {
            sums.imaginary = Some(sums.rows.iter().map(|row| vec![0.0; row.len()]).collect());
        }
        if !self.counting {
            // To the multiples that weights of so many digits are; with exact functions, to what a scale can hold.
            let digits = GemmWeights::usual_digits(&self.params);
            let coarser = GemmWeights::common_factor(map.bound, factor, digits);
            let step = if self.watch.is_some() { factor } else { factor / coarser };
            let weights: Vec<f64> = map.weights.iter().map(|&w| rounded(w, step)).collect();
            let views: Vec<&[f64]> = x.iter().map(|x| x.slots.as_slice()).collect();
            linear::accumulate(&mut sums.rows, &weights, &views);
            if let Some(rows) = &mut sums.imaginary {
                let zeros = vec![0.0; self.slots];
                let views = x.iter().map(|x| x.imaginary.values().unwrap_or(&zeros));
                let views: Vec<&[f64]> = views.collect();
                linear::accumulate(rows, &weights, &views);
            }
        }
        Ok(sums)
    }

    fn linear_join(&self, mut a: Partial, b: Partial) -> Result<Partial, FheError> {
        check_scales(a.from, b.from)?;
        check_scales(a.target, b.target)?;
        if a.limbs != b.limbs || a.rows.len() != b.rows.len() {
            return Err(PackingError::Mismatch.into());
        }
        let add = |to: &mut Vec<Vec<f64>>, from: &[Vec<f64>]| {
            to.iter_mut().flatten().zip(from.iter().flatten()).for_each(|(to, from)| *to += from);
        };
        add(&mut a.rows, &b.rows);
        match (&mut a.imaginary, b.imaginary) {
            (Some(to), Some(from)) => add(to, &from),
            (to @ None, from) => *to = from,
            (Some(_), None) => {}
        }
        a.id = mix(a.id, b.id);
        Ok(a)
    }

    fn linear_finish(&self, partial: Partial) -> Result<Vec<Vector>, FheError> {
        let (limbs, wide, id) = (partial.limbs, partial.wide, partial.id);
        let imaginary: Vec<Imaginary> = match partial.imaginary {
            Some(rows) => rows.into_iter().map(Imaginary::Known).collect(),
            None => partial.rows.iter().map(|_| Imaginary::Zero).collect(),
        };
        let rows = partial.rows.into_par_iter().zip(imaginary);
        let rows = rows.zip(partial.held).enumerate();
        rows.map(|(row, ((slots, imaginary), held))| {
            let finished = self.rescale_pair(slots, imaginary, limbs, wide, mix(id, row as u64));
            drop(held);
            finished
        })
        .collect()
    }

    fn ternary_add(&self, map: &LinearMap, x: &[Vector], partial: Option<Partial>) -> Result<Partial, FheError> {
        let first = x.first().ok_or(PackingError::Mismatch)?;
        let absent = self.counting && map.weights.is_empty();
        let signs: Vec<f64> = map.weights.iter().map(|w| w / map.bound).collect();
        if x.len() != map.columns
            || !signs.iter().all(|w| [-1.0, 0.0, 1.0].contains(w))
            || !absent && map.weights.len() != map.rows * map.columns
        {
            return Err(PackingError::Mismatch.into());
        }
        for x in x {
            check_scales(first.scale, x.scale)?;
            check_real(x)?;
            check_limbs(x, first.limbs)?;
        }
        let mut sums = match partial {
            Some(partial) => {
                check_scales(partial.from, first.scale)?;
                if partial.limbs != first.limbs || partial.rows.len() != map.rows {
                    return Err(PackingError::Mismatch.into());
                }
                partial
            }
            None => self.begin(map, (first.scale, first.limbs), first.scale, first.scale.value())?,
        };
        let terms = map.rows * map.columns;
        self.tally.count(Op::LinearTerm, first.limbs, terms);
        sums.id = x.iter().fold(sums.id, |id, x| mix(id, x.id));
        if !self.counting {
            let views: Vec<&[f64]> = x.iter().map(|x| x.slots.as_slice()).collect();
            linear::accumulate(&mut sums.rows, &signs, &views);
        }
        Ok(sums)
    }

    fn ternary_finish(&self, partial: Partial) -> Result<Vec<Vector>, FheError> {
        let (limbs, scale, id) = (partial.limbs, partial.from, partial.id);
        let rows = partial.rows.into_iter().zip(partial.held).enumerate();
        rows.map(|(row, (slots, held))| {
            self.check_room(&slots, limbs, scale.value())?;
            // The sum itself is the result.
            drop(held);
            Ok(self.make(slots, limbs, scale, mix(id, row as u64)))
        })
        .collect()
    }

    fn refresh(&self, id: StepId, x: Vec<Vector>, limbs: usize) -> Result<Vec<Vector>, FheError> {
        let (floor, top) = (self.floor(), self.top());
        if !(floor..=top).contains(&limbs) {
            return Err(CkksError::LimbCount { operation: "refresh", limbs, available: top }.into());
        }
        for pair in x.chunks(2) {
            for x in pair {
                check_limbs(x, floor)?;
                check_real(x)?;
                check_scales(pair[0].scale, x.scale)?;
            }
        }
        self.tally.count(Op::Refreshed, limbs, x.len());
        self.tally.count(Op::Bootstrap, limbs, x.len().div_ceil(2));
        let calls = x.len().div_ceil(REFRESH_TILE);
        self.tally.count(Op::BootstrapCall, limbs, calls);
        x.into_par_iter().map(|x| self.refresh_one(id, x, limbs)).collect()
    }

    fn store(&self, x: Vec<Vector>) -> Result<Stored, FheError> {
        let bytes = |x: &Vector| Ciphertext::list_bytes(&self.params, x.limbs, 1) as u64;
        let on_disk = OnDisk::new(&self.tally, x.iter().map(bytes).sum());
        let put = |x: Vector| {
            self.tally.count(Op::Store, x.limbs, 1);
            StoredVector { slots: x.slots, imaginary: x.imaginary, limbs: x.limbs, scale: x.scale, id: x.id }
        };
        Ok(Stored { vectors: x.into_iter().map(put).collect(), _on_disk: on_disk })
    }

    fn load(&self, stored: Stored) -> Result<Vec<Vector>, FheError> {
        let back = |put: StoredVector| {
            self.tally.count(Op::Load, put.limbs, 1);
            Vector { imaginary: put.imaginary, ..self.make(put.slots, put.limbs, put.scale, put.id) }
        };
        Ok(stored.vectors.into_iter().map(back).collect())
    }
}

impl Simulator {
    /// What `compute` counts and returns, computed once for all vectors like `x`.
    fn counted_once(
        &self,
        applied: &Mutex<Applied>,
        f: &Function,
        x: &Vector,
        (levels, target): (usize, Scale),
        compute: impl FnOnce() -> Result<Vector, FheError>,
    ) -> Result<Vector, FheError> {
        let scales = [x.scale, target].map(|scale| scale.value().to_bits());
        let limbs = (x.limbs, levels);
        let like = (self.tally.site(), discriminant(f), limbs, scales);
        let held = || applied.lock().unwrap_or_else(PoisonError::into_inner);
        let known = held().get(&like).cloned();
        if let Some((counted, limbs, scale, imaginary)) = known {
            self.tally.again(&counted);
            let y = self.make(Vec::new(), limbs, scale, 0);
            return Ok(Vector { imaginary, ..y });
        }
        let (y, counted) = self.tally.counted(compute);
        let y = y?;
        held().insert(like, (counted, y.limbs, y.scale, y.imaginary.clone()));
        Ok(y)
    }

    fn join(&self, acc: &mut Vector, x: &Vector, f: impl Fn(&mut f64, f64) + Copy) -> Result<(), FheError> {
        check_scales(acc.scale, x.scale)?;
        let limbs = acc.limbs.min(x.limbs);
        self.tally.count(Op::Add, limbs, 1);
        if acc.limbs > limbs {
            *acc = self.copy(acc, limbs);
        }
        acc.slots.iter_mut().zip(&x.slots).for_each(|(a, &x)| f(a, x));
        acc.imaginary.join(&x.imaginary, f);
        acc.id = mix(acc.id, x.id);
        Ok(())
    }

    /// Begins with only the biases.
    fn begin(
        &self,
        map: &LinearMap,
        (from, limbs): (Scale, usize),
        target: Scale,
        wide: f64,
    ) -> Result<Partial, FheError> {
        if map.bias.as_ref().is_some_and(|b| b.len() != map.rows) {
            return Err(PackingError::Mismatch.into());
        }
        let slots = if self.counting { 0 } else { self.slots };
        let bias = |row: usize| map.bias.as_ref().map_or(0.0, |b| b[row]);
        Ok(Partial {
            rows: (0..map.rows).map(|row| vec![rounded(bias(row), wide); slots]).collect(),
            imaginary: None,
            limbs,
            from,
            target,
            wide,
            id: 0,
            held: (0..map.rows).map(|_| Held::new(&self.tally, 2 * limbs)).collect(),
        })
    }

    fn refresh_one(&self, id: StepId, mut x: Vector, limbs: usize) -> Result<Vector, FheError> {
        let scale = self.default_scale();
        let bound = scale.over(x.scale).value();
        let bounded = self.watch.is_none();
        let outside = |v: &&f64| bounded && (v.is_nan() || v.abs() > bound * TOLERANCE);
        if let Some(&value) = x.slots.iter().find(outside) {
            return Err(FheError::Range { site: id.to_string(), value, bound });
        }
        let id = mix(x.id, 0x7266);
        let mut slots = std::mem::take(&mut x.slots);
        drop(x);
        if let Some(errors) = &self.errors {
            errors.refresh(&mut slots, id, bound, self.refresh_deviation);
        }
        Ok(self.make(slots, limbs, scale, id))
    }
}
