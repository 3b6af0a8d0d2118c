//! Runs the nodes of a placed tape.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hushed_ckks::poly::Arithmetic;
use rayon::prelude::*;

use super::assign::assign;
use super::levels::{Heights, Limits, Outputs};
use super::record::Recorder;
use super::schedule::{Placed, Schedule};
use super::values::{Held, Rows, each, owned, owned_rows};
use super::{NodeId, Op, Tape};
use crate::error::FheError;
use crate::machines::rules;
use crate::machines::tiles::tiled;
use crate::machines::trace::TracedTape;
use crate::packing::PackingError;
use crate::slots::Slots;

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
}

/// Sees the values of nodes; its errors end the run.
pub(crate) type Watch<'w, V> = &'w mut dyn FnMut(NodeId, &V) -> Result<(), FheError>;

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
        let work = Work { on: self.0, tape, schedule, first: range.start };
        work.run(range, values, None, watch).map(drop)
    }
}

/// The inputs of a tape, by name.
pub(crate) type Inputs<S> = BTreeMap<&'static str, Vec<<S as Arithmetic>::Value>>;

/// Sees what a tape shows, by number.
pub(crate) type Look<'l, S> = &'l mut dyn FnMut(usize, &[<S as Arithmetic>::Value]) -> Result<(), FheError>;

/// Where levels come from, the primes of a tape's outputs, and the regions whose columns are spilled.
pub(crate) type Place<'p> = (Heights<'p>, Outputs, Vec<bool>);

/// Places a tape for these inputs.
///
/// # Errors
/// Those of the placement.
pub(crate) fn placed<S: Slots>(
    on: &S,
    tape: &mut Tape,
    inputs: &Inputs<S>,
    (heights, outputs, spilled): Place<'_>,
) -> Result<Schedule, FheError> {
    let place = |(&name, vectors): (&&'static str, &Vec<S::Value>)| {
        let first = vectors.first()?;
        Some((name, (on.limbs(first), on.scale(first))))
    };
    let limits = Limits { heights, inputs: inputs.iter().filter_map(place).collect(), outputs, spilled };
    assign(tape, on, &limits)
}

/// Places a tape for these inputs and runs it.
///
/// # Errors
/// Those of the placement and of the operations.
pub(crate) fn computed<S: Slots>(
    on: &S,
    mut tape: Tape,
    mut inputs: Inputs<S>,
    place: Place<'_>,
    look: Look<'_, S>,
) -> Result<Vec<S::Value>, FheError> {
    let mut schedule = placed(on, &mut tape, &inputs, place)?;
    let tracing = on.visit().is_some();
    if tracing {
        (tape, schedule) = tiled(tape, &schedule)?;
    }
    let mut values: BTreeMap<NodeId, Held<S>> = BTreeMap::new();
    for (i, node) in tape.nodes.iter().enumerate() {
        if let Op::Input(name) = node.op {
            values.insert(NodeId(i), Held::row(inputs.remove(name).ok_or(PackingError::Mismatch)?));
        }
    }
    let mut traced = Vec::new();
    let watch = &mut |id: NodeId, held: &Held<S>| {
        if let (true, Some(placed), Some(visits)) = (tracing, schedule.nodes.get(id.0), on.visit()) {
            traced.extend(rules::traced(&tape, id.0, placed, visits));
        }
        match (tape.shown.iter().position(|shown| *shown == id), held) {
            (Some(number), Held::Block(rows)) => look(number, rows.first().map(Vec::as_slice).unwrap_or_default()),
            _ => Ok(()),
        }
    };
    Local(on).run(&tape, &schedule, 0..tape.nodes.len(), &mut values, watch)?;
    let mut made = Vec::new();
    for (i, _) in tape.nodes.iter().enumerate().filter(|(_, node)| node.op == Op::Output) {
        if let Some(Held::Block(rows)) = values.remove(&NodeId(i)) {
            made.extend(owned_rows(rows).into_iter().flatten());
        }
    }
    if let (true, Some(end)) = (tracing, on.visit()) {
        on.trace(TracedTape { nodes: traced, end });
    }
    Ok(made)
}

/// Runs what is recorded by itself, with as many primes as arrive.
///
/// # Errors
/// As [`computed`].
pub(crate) fn alone<S: Slots>(
    on: &S,
    inputs: Inputs<S>,
    record: impl FnOnce(&mut Recorder) -> NodeId,
) -> Result<Vec<S::Value>, FheError> {
    let mut t = Recorder::new();
    let made = record(&mut t);
    t.output(made);
    let place = (Heights::Given(&|_, needed| needed), Outputs::AtLeast(on.floor()), Vec::new());
    computed(on, t.finish(), inputs, place, &mut |_, _| Ok(()))
}

/// Decompositions that several nodes rotate.
pub(super) struct Hoisted<'s, V> {
    of: NodeId,
    pub turn: &'s (dyn Fn(usize, usize) -> Result<V, FheError> + Sync),
    outer: Option<&'s Hoisted<'s, V>>,
}

impl<'s, V> Hoisted<'s, V> {
    pub fn find(mut this: Option<&'s Hoisted<'s, V>>, of: NodeId) -> Option<&'s Hoisted<'s, V>> {
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
    schedule: &'a Schedule,
    /// The first node of the run.
    first: usize,
}

pub(super) type Values<S> = BTreeMap<NodeId, Held<S>>;

/// A function of the number of a vector and the vector.
pub(super) type OfVector<'a, S> =
    &'a (dyn Fn(usize, &<S as Arithmetic>::Value) -> Result<<S as Arithmetic>::Value, FheError> + Sync);

impl<S: Slots> Work<'_, S> {
    /// Runs a range, and as much of what follows as rotates what was decomposed in it. Returns the next node.
    fn run(
        &self,
        range: Range<usize>,
        values: &mut Values<S>,
        outer: Option<&Hoisted<'_, S::Value>>,
        watch: Watch<'_, Held<S>>,
    ) -> Result<usize, FheError> {
        let mut i = range.start;
        while i < range.end {
            match self.schedule.hoists.get(&i) {
                Some(&(of, last)) if Hoisted::find(outer, of).is_none() => {
                    self.enter(i)?;
                    self.load(i, values)?;
                    let Some(Held::Block(x)) = values.get(&of) else {
                        return Err(PackingError::Mismatch.into());
                    };
                    let x = self.lowered(Arc::clone(x), self.placed(i)?.reads)?;
                    let hoisted = x.par_iter().flatten().map(|v| self.on.hoist(v)).collect::<Result<Vec<_>, _>>()?;
                    let turn =
                        |k: usize, by: usize| self.on.rotate_hoisted(hoisted.get(k).ok_or(PackingError::Mismatch)?, by);
                    let scope = Hoisted { of, turn: &turn, outer };
                    i = self.run(i..(last + 1).min(self.tape.nodes.len()), values, Some(&scope), watch)?;
                }
                _ => {
                    self.node(i, values, outer)?;
                    if let Some(made) = values.get(&NodeId(i)) {
                        watch(NodeId(i), made)?;
                    }
                    for &(id, limbs) in self.schedule.spills.get(&i).into_iter().flatten() {
                        if let Some(block) = values.remove(&id) {
                            values.insert(id, block.stored(self.on, limbs)?);
                        }
                    }
                    i += 1;
                }
            }
        }
        Ok(i)
    }

    pub(super) fn placed(&self, i: usize) -> Result<&Placed, FheError> {
        Ok(self.schedule.nodes.get(i).ok_or(PackingError::Mismatch)?)
    }

    /// Names the step of a node, unless it is that of the node before.
    fn enter(&self, i: usize) -> Result<(), FheError> {
        let step = self.tape.nodes.get(i).ok_or(PackingError::Mismatch)?.step;
        let before = i.checked_sub(1).filter(|_| i > self.first).and_then(|before| self.tape.nodes.get(before));
        if before.is_none_or(|before| before.step != step) {
            self.on.at(step);
        }
        Ok(())
    }

    /// Reads back the operands of a node that are on disk.
    fn load(&self, i: usize, values: &mut Values<S>) -> Result<(), FheError> {
        for id in &self.tape.nodes.get(i).ok_or(PackingError::Mismatch)?.inputs {
            if matches!(values.get(id), Some(Held::Stored(..)))
                && let Some(stored) = values.remove(id)
            {
                values.insert(*id, stored.loaded(self.on)?);
            }
        }
        Ok(())
    }

    /// Runs one node.
    fn node(&self, i: usize, values: &mut Values<S>, hoisted: Option<&Hoisted<'_, S::Value>>) -> Result<(), FheError> {
        let node = self.tape.nodes.get(i).ok_or(PackingError::Mismatch)?;
        self.enter(i)?;
        self.load(i, values)?;
        let mut made = self.value(i, values, hoisted).map_err(|error| error.at_step(node.step))?;
        if let (Held::Block(rows), true) = (&mut made, node.bound.is_finite() && !matches!(node.op, Op::Mark { .. })) {
            let within = |_: usize, v: S::Value| Ok(self.on.within(v, node.bound));
            made = Held::Block(Arc::new(owned(owned_rows(std::mem::take(rows)), &within)?));
        }
        values.insert(NodeId(i), made);
        for id in &node.inputs {
            if self.placed(id.0)?.last == Some(i) {
                values.remove(id);
            }
        }
        Ok(())
    }

    /// An operand, out of `values` if no later node reads it.
    pub(super) fn take(&self, values: &mut Values<S>, i: usize, k: usize) -> Result<Arc<Rows<S::Value>>, FheError> {
        let inputs = &self.tape.nodes[i].inputs;
        let id = inputs.get(k).ok_or(PackingError::Mismatch)?;
        let again = inputs.iter().filter(|other| *other == id).count() > 1;
        let found = match self.placed(id.0)?.last == Some(i) && !again {
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

    /// An operand with `limbs` primes at most, copied only if a later node reads it.
    pub(super) fn owned(
        &self,
        values: &mut Values<S>,
        i: usize,
        k: usize,
        limbs: usize,
    ) -> Result<Rows<S::Value>, FheError> {
        match Arc::try_unwrap(self.take(values, i, k)?) {
            Ok(x) => owned(x, &|_, v| if self.on.limbs(&v) > limbs { self.on.drop_to(&v, limbs) } else { Ok(v) }),
            Err(shared) => each(&shared, &|_, v| self.low(v, limbs, |v| Ok(v.clone()))),
        }
    }

    /// `f` of the vectors of the first operand, each dropped afterwards if no later node reads it.
    pub(super) fn mapped(
        &self,
        values: &mut Values<S>,
        i: usize,
        f: OfVector<'_, S>,
    ) -> Result<Rows<S::Value>, FheError> {
        let inputs = &self.tape.nodes[i].inputs;
        let x = match inputs.iter().all(|id| *id == inputs[0]) && self.placed(inputs[0].0)?.last == Some(i) {
            true => match values.remove(&inputs[0]) {
                Some(Held::Block(x)) => x,
                _ => return Err(PackingError::Mismatch.into()),
            },
            false => self.take(values, i, 0)?,
        };
        match Arc::try_unwrap(x) {
            Ok(x) => owned(x, &|k, v| f(k, &v)),
            Err(shared) => each(&shared, f),
        }
    }

    /// As [`Work::mapped`]; a vector alone, `constants` times.
    pub(super) fn spread(
        &self,
        values: &mut Values<S>,
        i: usize,
        constants: usize,
        f: OfVector<'_, S>,
    ) -> Result<Rows<S::Value>, FheError> {
        if self.tape.nodes[self.tape.nodes[i].inputs[0].0].shape != (1, 1) || constants == 1 {
            return self.mapped(values, i, f);
        }
        let x = self.take(values, i, 0)?;
        let all: Vec<&S::Value> = x.iter().flatten().collect();
        let of = |k: usize| f(k, all.get(k.min(all.len() - 1)).ok_or(PackingError::Mismatch)?);
        Ok(vec![(0..constants).into_par_iter().map(of).collect::<Result<_, _>>()?])
    }

    /// `f` of a vector with `limbs` primes at most.
    pub(super) fn low<T>(
        &self,
        v: &S::Value,
        limbs: usize,
        f: impl FnOnce(&S::Value) -> Result<T, FheError>,
    ) -> Result<T, FheError> {
        if self.on.limbs(v) > limbs { f(&self.on.drop_to(v, limbs)?) } else { f(v) }
    }

    pub(super) fn lowered(&self, x: Arc<Rows<S::Value>>, limbs: usize) -> Result<Arc<Rows<S::Value>>, FheError> {
        if x.iter().flatten().all(|v| self.on.limbs(v) <= limbs) {
            return Ok(x);
        }
        Ok(Arc::new(each(&x, &|_, v| self.low(v, limbs, |v| Ok(v.clone())))?))
    }
}
