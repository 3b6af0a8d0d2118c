//! Computes one node.

use std::sync::Arc;

use hushed_ckks::poly::Weight;
use hushed_ckks::{CkksError, Scale};
use rayon::prelude::*;

use super::functions::SlotFunction;
use super::run::{Hoisted, Values, Work};
use super::values::{Held, Rows, owned, owned_rows, split};
use super::{Mark, NodeId, Op, Plain};
use crate::error::FheError;
use crate::ops::levels::{divisor, scale_of};
use crate::ops::norm;
use crate::packing::{PackingError, in_twos};
use crate::slots::{OwnedMask, Slots};

impl<S: Slots> Work<'_, S> {
    /// The value of node `i`, from those that it reads.
    ///
    /// # Errors
    /// A value that is missing, and those of the operations.
    pub fn value(
        &self,
        i: usize,
        values: &mut Values<S>,
        hoisted: Option<&Hoisted<'_, S::Value>>,
    ) -> Result<Held<S>, FheError> {
        let (on, node, placed) = (self.on, &self.tape.nodes[i], self.placed(i)?);
        let (constants, reads, target) = (&self.tape.constants, placed.reads, placed.target);
        let block = |rows: Rows<S::Value>| Ok(Held::Block(Arc::new(rows)));
        let chosen = || target.ok_or(PackingError::Mismatch);
        match &node.op {
            Op::Input(_) => values.remove(&NodeId(i)).ok_or_else(|| PackingError::Mismatch.into()),
            Op::Linear { map, rows } => {
                let (x, map) = (self.take(values, i, 0)?, &constants.maps[*map]);
                if *rows == (0..map.rows) {
                    return block(vec![on.linear_at(map, &x[0], (reads, chosen()?))?]);
                }
                block(vec![on.linear_at(&map.rows(rows.clone()), &x[0], (reads, chosen()?))?])
            }
            Op::LinearSum { map, columns, first } => {
                let sums = self.begun_sums(values, i)?;
                let x = self.take(values, i, node.inputs.len() - 1)?;
                let whole = &constants.maps[*map];
                let mut part = whole.columns(columns.clone());
                if *first {
                    part.bias.clone_from(&whole.bias);
                }
                Ok(Held::Sums(on.linear_add_at(&part, &x[0], (reads, chosen()?), sums)?))
            }
            Op::TernarySum { map, columns, .. } => {
                let sums = self.begun_sums(values, i)?;
                let x = self.take(values, i, node.inputs.len() - 1)?;
                let x = self.lowered(x, reads)?;
                Ok(Held::Sums(on.ternary_add(&constants.maps[*map].columns(columns.clone()), &x[0], sums)?))
            }
            Op::SquareSum { .. } => {
                let begun = self.begun(values, i)?;
                let x = self.take(values, i, node.inputs.len() - 1)?;
                let scale = x[0].first().map(|v| on.scale(v)).ok_or(PackingError::Mismatch)?;
                let mut sum = match begun {
                    Some(Held::Squares(begun)) => begun,
                    None => on.sum(reads, scale.times(scale))?,
                    _ => return Err(PackingError::Mismatch.into()),
                };
                for v in &x[0] {
                    on.add_product(&mut sum, v, v, Weight::ONE)?;
                }
                Ok(Held::Squares(sum))
            }
            Op::Finished | Op::TernaryFinished => {
                let mut all = None;
                for id in &node.inputs {
                    all = Some(match (all, values.remove(id)) {
                        (None, Some(part)) => part,
                        (Some(Held::Sums(sums)), Some(Held::Sums(part))) => Held::Sums(on.linear_join(sums, part)?),
                        _ => return Err(PackingError::Mismatch.into()),
                    });
                }
                match all {
                    Some(Held::Sums(sums)) if node.op == Op::Finished => block(vec![on.linear_finish(sums)?]),
                    Some(Held::Sums(sums)) => block(vec![on.ternary_finish(sums)?]),
                    Some(Held::Squares(sum)) => block(vec![vec![on.finish(sum)?]]),
                    _ => Err(PackingError::Mismatch.into()),
                }
            }
            Op::Kept => Ok(Held::Block(self.take(values, i, 0)?)),
            Op::Maps { grid } => {
                let (grid, target) = (&constants.grids[*grid], chosen()?);
                let mut x: Vec<S::Value> = Vec::new();
                for k in 0..node.inputs.len() {
                    x.extend(self.owned(values, i, k, reads)?.into_iter().flatten());
                    if grid.conjugates {
                        let from = x.len() - self.count(node.inputs[k]);
                        let all = x[from..].par_iter().map(|v| on.conjugate(v));
                        let all = all.collect::<Result<Vec<_>, FheError>>()?;
                        x.extend(all);
                    }
                }
                let (grid, split) = (grid.make)().map_err(CkksError::from)?;
                block(vec![on.maps(&grid, &split, &x, target)?])
            }
            Op::Dot => {
                let (left, right) = (self.take(values, i, 0)?, self.take(values, i, 1)?);
                // Products are over the fewest primes of their operands.
                let fewest = [&left, &right].into_iter().flat_map(|x| x.iter().flatten()).map(|v| on.limbs(v)).min();
                let right = if fewest > Some(reads) { self.lowered(right, reads)? } else { right };
                block(on.dot_grid(&left, &right)?)
            }
            Op::DotProduct => {
                let (a, b) = (self.take(values, i, 0)?, self.take(values, i, 1)?);
                block(vec![vec![self.products(a[0].iter().zip(&b[0]), reads)?]])
            }
            Op::Mul if node.inputs[0] == node.inputs[1] => {
                block(self.mapped(values, i, &|_, v| self.products(std::iter::once((v, v)), reads))?)
            }
            Op::Mul => {
                let b = self.take(values, i, 1)?;
                let others: Vec<&S::Value> = b.iter().flatten().collect();
                let product = |k: usize, v: &S::Value| {
                    let other = others.get(k.min(others.len() - 1)).ok_or(PackingError::Mismatch)?;
                    self.products(std::iter::once((v, *other)), reads)
                };
                block(self.mapped(values, i, &product)?)
            }
            Op::Combine { numbers } => {
                let x = self.take(values, i, 0)?;
                block(vec![vec![self.multiples(x[0].iter().zip(&constants.numbers[*numbers]), reads, chosen()?)?]])
            }
            Op::CombineVectors { vectors } => {
                let (x, plain) = (self.take(values, i, 0)?, &constants.vectors[*vectors]);
                let mut sum = on.sum(reads, scale_of(chosen()?.value() * divisor(on, reads)?)?)?;
                for (k, v) in x.iter().flatten().enumerate() {
                    on.add_multiples(&mut sum, v, &self.numbers(plain, k)?)?;
                }
                block(vec![vec![on.finish(sum)?]])
            }
            Op::Scaled { numbers } => {
                let (c, target) = (&constants.numbers[*numbers], chosen()?);
                let one = |k: usize, v: &S::Value| {
                    let c = c.get(k.min(c.len() - 1)).ok_or(PackingError::Mismatch)?;
                    self.multiples(std::iter::once((v, c)), reads, target)
                };
                block(self.spread(values, i, c.len(), &one)?)
            }
            Op::AddNumbers { numbers } => {
                let c = &constants.numbers[*numbers];
                let add = |k: usize, v: S::Value| on.add_constant(v, c[k.min(c.len() - 1)]);
                block(owned(self.owned(values, i, 0, reads)?, &add)?)
            }
            Op::Add | Op::Sub => {
                let b = self.take(values, i, 1)?;
                let others: Vec<&S::Value> = b.iter().flatten().collect();
                let subtracts = node.op == Op::Sub;
                let add = |k: usize, mut v: S::Value| {
                    let other = others.get(k.min(others.len() - 1)).ok_or(PackingError::Mismatch)?;
                    if subtracts {
                        on.sub_assign(&mut v, other)?
                    } else {
                        on.add_assign(&mut v, other)?
                    }
                    Ok(v)
                };
                let a = match node.inputs[0] == node.inputs[1] {
                    true => (*b).clone(),
                    false => self.owned(values, i, 0, reads)?,
                };
                block(owned(a, &add)?)
            }
            Op::Total => {
                let mut sum: Option<S::Value> = None;
                for k in 0..node.inputs.len() {
                    for v in self.take(values, i, k)?.iter().flatten() {
                        match &mut sum {
                            Some(sum) => on.add_assign(sum, v)?,
                            None => sum = Some(self.low(v, reads, |v| Ok(v.clone()))?),
                        }
                    }
                }
                block(vec![vec![sum.ok_or(PackingError::Mismatch)?]])
            }
            Op::AddVectors { vectors } => {
                let plain = &constants.vectors[*vectors];
                let add = |k: usize, v: S::Value| match of_vector(plain, k)? {
                    Plain::Pairs(make) => on.add_pairs(v, &on.plain_pairs(|| make())),
                    plain => on.add_vector(v, &on.plain(|| plain.numbers())),
                };
                block(owned(self.owned(values, i, 0, reads)?, &add)?)
            }
            Op::MulVectors { vectors } => {
                let (plain, target) = (&constants.vectors[*vectors], chosen()?);
                let one = |k: usize, v: &S::Value| match of_vector(plain, k)? {
                    Plain::Pairs(make) => self.low(v, reads, |v| on.mul_pairs(v, &on.plain_pairs(|| make()), target)),
                    plain => self.low(v, reads, |v| on.mul_vector(v, &on.plain(|| plain.numbers()), target)),
                };
                block(self.spread(values, i, plain.len(), &one)?)
            }
            Op::Apply { function } => {
                let x = self.owned(values, i, 0, reads)?.into_iter().flatten().collect();
                block(vec![self.applied(&constants.functions[*function], x, chosen()?)?])
            }
            Op::Rotate { by } => {
                let width = node.shape.1.max(1);
                let turn = |k: usize, v: S::Value| match by.get(k / width) {
                    Some(0) => Ok(v),
                    Some(by) => on.rotate(&v, *by),
                    None => Err(PackingError::Mismatch.into()),
                };
                block(owned(self.owned(values, i, 0, reads)?, &turn)?)
            }
            Op::Rotations { by } => {
                let x = self.take(values, i, 0)?;
                if let Some(hoisted) = Hoisted::find(hoisted, node.inputs[0]) {
                    let turned = |k: usize| by.iter().map(|&by| (hoisted.turn)(k, by)).collect();
                    return block((0..x[0].len()).into_par_iter().map(turned).collect::<Result<_, _>>()?);
                }
                let x = self.lowered(x, reads)?;
                block(x[0].par_iter().map(|v| self.rotations(v, by)).collect::<Result<_, _>>()?)
            }
            Op::Pair { conjugate } => {
                let x = self.owned(values, i, 0, reads)?.into_iter().flatten().collect();
                let join = |a, b| if *conjugate { on.pair_conjugate(a, b) } else { on.pair(a, b) };
                block(vec![in_twos(x, join)?])
            }
            Op::Parts { width } => {
                let x = self.take(values, i, 0)?;
                let parts = x
                    .par_iter()
                    .flatten()
                    .map(|v| self.low(v, reads, |v| on.parts(v)))
                    .collect::<Result<Vec<_>, _>>()?;
                block(vec![parts.into_iter().flatten().take(*width).collect()])
            }
            Op::Real => block(self.mapped(values, i, &|_, v| self.low(v, reads, |v| on.real(v)))?),
            Op::Conjugate => block(self.mapped(values, i, &|_, v| self.low(v, reads, |v| on.conjugate(v)))?),
            Op::ReadAs { factor } => {
                let read = |_: usize, v: S::Value| on.read_as(v, *factor);
                block(owned(self.owned(values, i, 0, reads)?, &read)?)
            }
            Op::Row { row } => {
                if placed.takes
                    && let Some(Held::Block(x)) = values.get_mut(&node.inputs[0])
                    && let Some(row) = Arc::get_mut(x).and_then(|x| x.get_mut(*row))
                {
                    return block(vec![std::mem::take(row)]);
                }
                let x = self.take(values, i, 0)?;
                block(vec![x.get(*row).ok_or(PackingError::Mismatch)?.clone()])
            }
            Op::Cut { range } => {
                let all = self.count(node.inputs[0]);
                // The first vectors may be taken.
                let here = |row: &[S::Value]| {
                    let taken = all.checked_sub(row.len())?;
                    let here = range.start.checked_sub(taken)?..range.end.checked_sub(taken)?;
                    (here.end <= row.len()).then_some(here)
                };
                if placed.takes
                    && let Some(Held::Block(x)) = values.get_mut(&node.inputs[0])
                    && let Some([row]) = Arc::get_mut(x).map(Vec::as_mut_slice)
                {
                    let here = here(row).ok_or(PackingError::Mismatch)?;
                    return block(vec![row.drain(..here.end).skip(here.start).collect()]);
                }
                let x = self.take(values, i, 0)?;
                if let [row] = x.as_slice() {
                    let here = here(row).ok_or(PackingError::Mismatch)?;
                    return block(vec![row.get(here).ok_or(PackingError::Mismatch)?.to_vec()]);
                }
                let cut: Vec<S::Value> = x.iter().flatten().take(range.end).skip(range.start).cloned().collect();
                if cut.len() != range.len() {
                    return Err(PackingError::Mismatch.into());
                }
                block(vec![cut])
            }
            Op::Split { columns } => {
                let x = self.owned(values, i, 0, reads)?.into_iter().flatten().collect();
                block(split(x, (*columns).max(1)))
            }
            Op::Join => {
                let mut all: Vec<S::Value> = Vec::new();
                for k in 0..node.inputs.len() {
                    all.extend(self.owned(values, i, k, reads)?.into_iter().flatten());
                }
                block(vec![all])
            }
            Op::Turn => {
                let mut rows: Vec<_> = self.owned(values, i, 0, reads)?.into_iter().map(Vec::into_iter).collect();
                let column = |_| rows.iter_mut().filter_map(Iterator::next).collect();
                block((0..node.shape.0).map(column).collect())
            }
            Op::Mark { mark } => match placed.refresh {
                Some(limbs) => block(vec![self.refreshed(*mark, i, values, limbs)?]),
                None => Ok(Held::Block(self.lowered(self.take(values, i, 0)?, placed.limbs)?)),
            },
            Op::Output => Ok(Held::Block(self.lowered(self.take(values, i, 0)?, reads)?)),
        }
    }

    /// The unfinished sums that a node adds to, if others began them.
    fn begun(&self, values: &mut Values<S>, i: usize) -> Result<Option<Held<S>>, FheError> {
        match self.tape.nodes[i].inputs.as_slice() {
            [sums, _] => Ok(Some(values.remove(sums).ok_or(PackingError::Mismatch)?)),
            _ => Ok(None),
        }
    }

    /// The same, of a map.
    fn begun_sums(&self, values: &mut Values<S>, i: usize) -> Result<Option<S::Partial>, FheError> {
        match self.begun(values, i)? {
            Some(Held::Sums(begun)) => Ok(Some(begun)),
            None => Ok(None),
            Some(_) => Err(PackingError::Mismatch.into()),
        }
    }

    /// Relinearised and rescaled once.
    fn products<'v>(
        &self,
        mut factors: impl Iterator<Item = (&'v S::Value, &'v S::Value)>,
        reads: usize,
    ) -> Result<S::Value, FheError>
    where
        S: 'v,
    {
        let (on, (a, b)) = (self.on, factors.next().ok_or(PackingError::Mismatch)?);
        let mut sum = on.sum(reads, on.scale(a).times(on.scale(b)))?;
        on.add_product(&mut sum, a, b, Weight::ONE)?;
        for (a, b) in factors {
            on.add_product(&mut sum, a, b, Weight::ONE)?;
        }
        on.finish(sum)
    }

    fn multiples<'v>(
        &self,
        terms: impl Iterator<Item = (&'v S::Value, &'v f64)>,
        reads: usize,
        target: Scale,
    ) -> Result<S::Value, FheError>
    where
        S: 'v,
    {
        let wide = scale_of(target.value() * divisor(self.on, reads)?)?;
        let mut sum = self.on.sum(reads, wide)?;
        for (v, &factor) in terms {
            self.on.add_multiple(&mut sum, v, factor)?;
        }
        self.on.finish(sum)
    }

    fn numbers(&self, plain: &[Plain], k: usize) -> Result<Vec<f64>, FheError> {
        let plain = of_vector(plain, k)?;
        Ok(self.on.plain(|| plain.numbers()))
    }

    /// Vectors of the block of a node.
    fn count(&self, id: NodeId) -> usize {
        let (rows, columns) = self.tape.nodes[id.0].shape;
        rows * columns
    }

    fn applied(&self, f: &SlotFunction, x: Vec<S::Value>, target: Scale) -> Result<Vec<S::Value>, FheError> {
        if f.is_at_default() && target != self.on.default_scale() {
            return Err(PackingError::Mismatch.into());
        }
        f.evaluate(self.on, x, target)
    }

    fn rotations(&self, v: &S::Value, by: &[usize]) -> Result<Vec<S::Value>, FheError> {
        if by.iter().all(|&by| by == 0) {
            return Ok(by.iter().map(|_| v.clone()).collect());
        }
        let hoisted = self.on.hoist(v)?;
        let turn = |&by: &usize| if by == 0 { Ok(v.clone()) } else { self.on.rotate_hoisted(&hoisted, by) };
        by.iter().map(turn).collect()
    }

    /// A statistic is read as another message at the scale a refresh takes, and read back.
    fn refreshed(&self, mark: Mark, i: usize, values: &mut Values<S>, limbs: usize) -> Result<Vec<S::Value>, FheError> {
        let (on, node) = (self.on, &self.tape.nodes[i]);
        let mask = match (mark, node.inputs.get(1)) {
            (Mark::Vectors, _) => {
                let x = owned_rows(self.take(values, i, 0)?);
                return on.refresh(node.step, x.into_iter().flatten().collect(), limbs);
            }
            (Mark::Statistic { mask: Some(mask) }, _) => {
                Some(OwnedMask::Public(self.numbers(&self.tape.constants.vectors[mask], 0)?))
            }
            (_, Some(_)) => Some(OwnedMask::Private(self.take(values, i, 1)?[0][0].clone())),
            (_, None) => None,
        };
        let mut x = owned_rows(self.take(values, i, 0)?).into_iter().flatten();
        let v = x.next().ok_or(PackingError::Mismatch)?;
        let v = if let Some(mask) = mask { on.used(v, &mask) } else { v };
        Ok(vec![norm::refreshed(on, node.step, v, limbs)?])
    }
}

/// Of vector `k`, or the one for all.
fn of_vector(plain: &[Plain], k: usize) -> Result<&Plain, FheError> {
    Ok(plain.get(k.min(plain.len().saturating_sub(1))).ok_or(PackingError::Mismatch)?)
}
