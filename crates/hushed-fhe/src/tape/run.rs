//! Runs the nodes of a placed tape.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hushed_ckks::Scale;
use hushed_ckks::poly::Weight;
use rayon::prelude::*;

use super::functions::SlotFunction;
use super::schedule::{Placed, Schedule};
use super::values::{Held, Rows, each, owned, owned_rows};
use super::{Mark, NodeId, Op, Plain, Tape};
use crate::error::FheError;
use crate::ops::levels::{divisor, dropped};
use crate::packing::{PackingError, in_twos};
use crate::slots::{OwnedMask, Slots};

/// Runs nodes in their order. Every executor gives the same vectors for the same schedule, within its own errors.
pub(crate) trait Executor {
    /// The value of a node.
    type Value;

    /// Runs the nodes of `range`. `values` holds those that they read, and afterwards those that later nodes read;
    /// `watch` sees each of them as it is made.
    ///
    /// # Errors
    /// A value that is missing, and those of the operations.
    fn run(
        &self,
        tape: &Tape,
        schedule: &Schedule,
        range: Range<usize>,
        values: &mut BTreeMap<NodeId, Self::Value>,
        watch: Watch<'_, Self::Value>,
    ) -> Result<(), FheError>;

    /// As [`Executor::run`], for a range that was named by the hash of its schedule.
    ///
    /// # Errors
    /// [`FheError::Unsupported`] for the hash of another schedule.
    fn run_named(
        &self,
        tape: &Tape,
        schedule: &Schedule,
        (hash, range): (&str, Range<usize>),
        values: &mut BTreeMap<NodeId, Self::Value>,
        watch: Watch<'_, Self::Value>,
    ) -> Result<(), FheError> {
        if schedule.hash != hash {
            return Err(FheError::Unsupported {
                what: format!("nodes of schedule {hash}"),
                remedy: "both sides place the same tape in the same way",
            });
        }
        self.run(tape, schedule, range, values, watch)
    }
}

/// Sees the values of nodes.
pub(crate) type Watch<'w, V> = &'w mut dyn FnMut(NodeId, &V);

/// Vectors of slots on this machine: ciphertexts, numbers with their errors, or shapes.
pub(crate) struct Local<'a, S: Slots>(pub &'a S);

impl<S: Slots> Executor for Local<'_, S> {
    type Value = Held<S>;

    fn run(
        &self,
        tape: &Tape,
        schedule: &Schedule,
        range: Range<usize>,
        values: &mut BTreeMap<NodeId, Held<S>>,
        watch: Watch<'_, Held<S>>,
    ) -> Result<(), FheError> {
        let work = Work { on: self.0, tape, placed: &schedule.nodes };
        work.run(schedule, range, values, None, watch).map(drop)
    }
}

/// Decompositions that several nodes rotate.
pub(super) struct Hoisted<'s, V> {
    of: NodeId,
    turn: &'s (dyn Fn(usize, usize) -> Result<V, FheError> + Sync),
    outer: Option<&'s Hoisted<'s, V>>,
}

impl<'s, V> Hoisted<'s, V> {
    fn find(mut this: Option<&'s Hoisted<'s, V>>, of: NodeId) -> Option<&'s Hoisted<'s, V>> {
        while let Some(hoisted) = this.filter(|hoisted| hoisted.of != of) {
            this = hoisted.outer;
        }
        this
    }
}

/// A tape that is being run.
pub(super) struct Work<'a, S: Slots> {
    pub on: &'a S,
    pub tape: &'a Tape,
    pub placed: &'a [Placed],
}

type Values<S> = BTreeMap<NodeId, Held<S>>;

impl<S: Slots> Work<'_, S> {
    /// Runs a range, and as much of what follows as rotates what was decomposed in it. Returns the next node.
    fn run(
        &self,
        schedule: &Schedule,
        range: Range<usize>,
        values: &mut Values<S>,
        outer: Option<&Hoisted<'_, S::Value>>,
        watch: Watch<'_, Held<S>>,
    ) -> Result<usize, FheError> {
        let mut i = range.start;
        while i < range.end {
            match schedule.hoists.get(&i) {
                Some(&(of, last)) if Hoisted::find(outer, of).is_none() => {
                    let Some(Held::Block(x)) = values.get(&of) else {
                        return Err(PackingError::Mismatch.into());
                    };
                    let x = self.lowered(Arc::clone(x), self.placed[i].reads)?;
                    let hoisted = x.par_iter().flatten().map(|v| self.on.hoist(v)).collect::<Result<Vec<_>, _>>()?;
                    let turn =
                        |k: usize, by: usize| self.on.rotate_hoisted(hoisted.get(k).ok_or(PackingError::Mismatch)?, by);
                    let scope = Hoisted { of, turn: &turn, outer };
                    i = self.run(schedule, i..(last + 1).min(schedule.nodes.len()), values, Some(&scope), watch)?;
                }
                _ => {
                    self.node(i, values, outer)?;
                    if let Some(made) = values.get(&NodeId(i)) {
                        watch(NodeId(i), made);
                    }
                    i += 1;
                }
            }
        }
        Ok(i)
    }

    /// Runs one node.
    pub fn node(
        &self,
        i: usize,
        values: &mut Values<S>,
        hoisted: Option<&Hoisted<'_, S::Value>>,
    ) -> Result<(), FheError> {
        let node = self.tape.nodes.get(i).ok_or(PackingError::Mismatch)?;
        self.on.at(node.step);
        let mut made = self.value(i, values, hoisted).map_err(|error| error.at_step(node.step))?;
        if let (Held::Block(rows), true) = (&mut made, node.bound.is_finite() && !matches!(node.op, Op::Mark { .. })) {
            let within = |_: usize, v: S::Value| Ok(self.on.within(v, node.bound));
            made = Held::Block(Arc::new(owned(owned_rows(std::mem::take(rows)), &within)?));
        }
        values.insert(NodeId(i), made);
        for id in &node.inputs {
            if self.placed[id.0].last == Some(i) {
                values.remove(id);
            }
        }
        Ok(())
    }

    fn value(
        &self,
        i: usize,
        values: &mut Values<S>,
        hoisted: Option<&Hoisted<'_, S::Value>>,
    ) -> Result<Held<S>, FheError> {
        let (on, node, placed) = (self.on, &self.tape.nodes[i], &self.placed[i]);
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
                let x = self.take(values, i, usize::from(!first))?;
                let whole = &constants.maps[*map];
                let mut part = whole.columns(columns.clone());
                let mut sums = None;
                if *first {
                    part.bias.clone_from(&whole.bias);
                } else {
                    match values.remove(&node.inputs[0]) {
                        Some(Held::Sums(begun)) => sums = Some(begun),
                        _ => return Err(PackingError::Mismatch.into()),
                    }
                }
                Ok(Held::Sums(on.linear_add_at(&part, &x[0], (reads, chosen()?), sums)?))
            }
            Op::Finished => match values.remove(&node.inputs[0]) {
                Some(Held::Sums(sums)) => block(vec![on.linear_finish(sums)?]),
                _ => Err(PackingError::Mismatch.into()),
            },
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
            Op::Mul => {
                let (a, b) = (self.take(values, i, 0)?, self.take(values, i, 1)?);
                let others: Vec<&S::Value> = b.iter().flatten().collect();
                let product = |k: usize, v: &S::Value| {
                    let other = others.get(k.min(others.len() - 1)).ok_or(PackingError::Mismatch)?;
                    self.products(std::iter::once((v, *other)), reads)
                };
                block(each(&a, &product)?)
            }
            Op::Combine { numbers } => {
                let x = self.take(values, i, 0)?;
                block(vec![vec![self.multiples(x[0].iter().zip(&constants.numbers[*numbers]), reads, chosen()?)?]])
            }
            Op::Scaled { numbers } => {
                let (x, c, target) = (self.take(values, i, 0)?, &constants.numbers[*numbers], chosen()?);
                let one = |k: usize, v: &S::Value| {
                    let c = c.get(k.min(c.len() - 1)).ok_or(PackingError::Mismatch)?;
                    self.multiples(std::iter::once((v, c)), reads, target)
                };
                block(each(&x, &one)?)
            }
            Op::AddNumbers { numbers } => {
                let c = &constants.numbers[*numbers];
                let add = |k: usize, v: S::Value| on.add_constant(v, c[k.min(c.len() - 1)]);
                block(owned(self.owned(values, i, reads)?, &add)?)
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
                    false => self.owned(values, i, reads)?,
                };
                block(owned(a, &add)?)
            }
            Op::Total => {
                let mut sum: Option<S::Value> = None;
                for k in 0..node.inputs.len() {
                    for v in self.take(values, i, k)?.iter().flatten() {
                        match &mut sum {
                            Some(sum) => on.add_assign(sum, v)?,
                            None => sum = Some(self.low(v, reads)?),
                        }
                    }
                }
                block(vec![vec![sum.ok_or(PackingError::Mismatch)?]])
            }
            Op::AddVectors { vectors } => {
                let plain = &constants.vectors[*vectors];
                let add = |k: usize, v: S::Value| on.add_vector(v, &self.numbers(plain, k)?);
                block(owned(self.owned(values, i, reads)?, &add)?)
            }
            Op::MulVectors { vectors } => {
                let (x, plain, target) = (self.take(values, i, 0)?, &constants.vectors[*vectors], chosen()?);
                let x = self.lowered(x, reads)?;
                block(each(&x, &|k, v| on.mul_vector(v, &self.numbers(plain, k)?, target))?)
            }
            Op::Apply { function } => {
                let x = self.take(values, i, 0)?;
                let (x, f) = (self.lowered(x, reads)?, &constants.functions[*function]);
                block(vec![self.applied(f, &x[0], chosen()?)?])
            }
            Op::Rotate { by } => {
                let x = self.take(values, i, 0)?;
                let x = self.lowered(x, reads)?;
                block(each(&x, &|_, v| on.rotate(v, *by))?)
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
                let x = self.owned(values, i, reads)?.into_iter().flatten().collect();
                let join = |a, b| if *conjugate { on.pair_conjugate(a, b) } else { on.pair(a, b) };
                block(vec![in_twos(x, join)?])
            }
            Op::Parts { width } => {
                let x = self.take(values, i, 0)?;
                let x = self.lowered(x, reads)?;
                let parts = x.par_iter().flatten().map(|v| on.parts(v)).collect::<Result<Vec<_>, _>>()?;
                block(vec![parts.into_iter().flatten().take(*width).collect()])
            }
            Op::Real => {
                let x = self.take(values, i, 0)?;
                let x = self.lowered(x, reads)?;
                block(each(&x, &|_, v| on.real(v))?)
            }
            Op::ReadAs { factor } => {
                let read = |_: usize, v: S::Value| on.read_as(v, *factor);
                block(owned(self.owned(values, i, reads)?, &read)?)
            }
            Op::Row { row } => {
                if self.placed[node.inputs[0].0].only_rows
                    && let Some(Held::Block(x)) = values.get_mut(&node.inputs[0])
                    && let Some(row) = Arc::get_mut(x).and_then(|x| x.get_mut(*row))
                {
                    return block(vec![std::mem::take(row)]);
                }
                let x = self.take(values, i, 0)?;
                block(vec![x.get(*row).ok_or(PackingError::Mismatch)?.clone()])
            }
            Op::Cut { range } => {
                let x = self.take(values, i, 0)?;
                block(vec![x[0].get(range.clone()).ok_or(PackingError::Mismatch)?.to_vec()])
            }
            Op::Stack | Op::Join => {
                let mut all: Rows<S::Value> = Vec::new();
                for k in 0..node.inputs.len() {
                    all.extend(owned_rows(self.lowered(self.take(values, i, k)?, reads)?));
                }
                match node.op {
                    Op::Stack => block(all),
                    _ => block(vec![all.into_iter().flatten().collect()]),
                }
            }
            Op::Turn => {
                let mut rows: Vec<_> = self.owned(values, i, reads)?.into_iter().map(Vec::into_iter).collect();
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

    /// An operand, out of `values` if no later node reads it.
    fn take(&self, values: &mut Values<S>, i: usize, k: usize) -> Result<Arc<Rows<S::Value>>, FheError> {
        let inputs = &self.tape.nodes[i].inputs;
        let id = inputs.get(k).ok_or(PackingError::Mismatch)?;
        let again = inputs.iter().filter(|other| *other == id).count() > 1;
        let found = match self.placed[id.0].last == Some(i) && !again {
            true => values.remove(id),
            false => match values.get(id) {
                Some(Held::Block(x)) => return Ok(Arc::clone(x)),
                _ => None,
            },
        };
        match found {
            Some(Held::Block(x)) => Ok(x),
            _ => Err(PackingError::Mismatch.into()),
        }
    }

    /// The first operand with `limbs` primes, copied only if a later node reads it.
    fn owned(&self, values: &mut Values<S>, i: usize, limbs: usize) -> Result<Rows<S::Value>, FheError> {
        Ok(owned_rows(self.lowered(self.take(values, i, 0)?, limbs)?))
    }

    fn low(&self, v: &S::Value, limbs: usize) -> Result<S::Value, FheError> {
        if self.on.limbs(v) > limbs { self.on.drop_to(v, limbs) } else { Ok(v.clone()) }
    }

    fn lowered(&self, x: Arc<Rows<S::Value>>, limbs: usize) -> Result<Arc<Rows<S::Value>>, FheError> {
        if x.iter().flatten().all(|v| self.on.limbs(v) <= limbs) {
            return Ok(x);
        }
        Ok(Arc::new(x.iter().map(|row| dropped(self.on, row, limbs)).collect::<Result<_, _>>()?))
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
        let wide = crate::ops::levels::scale_of(target.value() * divisor(self.on, reads)?)?;
        let mut sum = self.on.sum(reads, wide)?;
        for (v, &factor) in terms {
            self.on.add_multiple(&mut sum, v, factor)?;
        }
        self.on.finish(sum)
    }

    fn numbers(&self, plain: &[Plain], k: usize) -> Result<Vec<f64>, FheError> {
        let plain = plain.get(k.min(plain.len().saturating_sub(1))).ok_or(PackingError::Mismatch)?;
        Ok(self.on.plain(|| plain.numbers()))
    }

    fn applied(&self, f: &SlotFunction, x: &[S::Value], target: Scale) -> Result<Vec<S::Value>, FheError> {
        if f.is_polynomial() && target != self.on.default_scale() {
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
        let Mark::Statistic { mask } = mark else {
            let x = owned_rows(self.take(values, i, 0)?);
            return on.refresh(node.step, x.into_iter().flatten().collect(), limbs);
        };
        let mask = match (mask, node.inputs.get(1)) {
            (Some(mask), _) => OwnedMask::Public(self.numbers(&self.tape.constants.vectors[mask], 0)?),
            (None, Some(_)) => OwnedMask::Private(self.take(values, i, 1)?[0][0].clone()),
            (None, None) => return Err(PackingError::Mismatch.into()),
        };
        let mut x = owned_rows(self.take(values, i, 0)?).into_iter().flatten();
        let v = on.used(x.next().ok_or(PackingError::Mismatch)?, &mask);
        Ok(vec![crate::ops::norm::refreshed(on, node.step, v, limbs)?])
    }
}
