//! A model as data: a flat list of typed steps with edges. Every way of running a model interprets this list.
//!
//! Edges carry one type of value: a matrix of rows × width for a batch of texts. A program is the published model:
//! nothing is folded, and [`plain`](crate::plain) runs it as it is. Its numbers may be absent: a party that has only
//! the public part of a model has the same list with shapes.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::{Serialize, Serializer};

use crate::blocks::{Attention, Classifier, Embedding, FeedForward, Linear, Norm, NormReach, Patches, Pool};
use crate::error::ModelError;

/// The steps of a model, each after the steps that it reads.
#[derive(Clone)]
pub struct Program {
    steps: Vec<Step>,
}

/// One step: a block and its operands.
#[derive(Clone)]
pub struct Step {
    /// Its name.
    pub id: StepId,
    /// Its operation.
    pub block: Block,
    /// The steps whose values it reads, in order.
    pub operands: Vec<Edge>,
}

/// The operation of a step. Its parts form one block because private protocols share levels, products and ciphertexts
/// between them.
#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "a program has few steps")]
pub enum Block {
    /// The first step, which reads the texts: for every token, a row of the token table plus one of positions.
    Embed(Embedding),
    /// The first step, which reads the images: one row per patch, preceded by one for the class token.
    Patches(Patches),
    /// Normalises each row of its operand.
    Norm(Norm),
    /// Multi-head attention of its operand over the rows of a text.
    Attention(Attention),
    /// Two linear layers with an activation between them.
    FeedForward(FeedForward),
    /// A linear layer: a feed-forward block whose activation was pruned and whose layers were merged (the Orion kernels
    /// paper, §III-D).
    Linear(Linear),
    /// The sum of its two operands.
    Add,
    /// One row per text of its operand.
    Pool(Pool),
    /// The numbers of a classifier, from the first row of each text.
    Head(Classifier),
    /// The head of a language model, without a bias: for every row, one number per token of the vocabulary, before any
    /// softmax.
    Vocabulary(Linear),
    /// The head of a classifier that is a linear layer: one number per class for every row.
    Classes(Linear),
}

/// The kind of block that a step is part of. Protocol steps, which are in no model, belong to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// [`Block::Embed`] and [`Block::Patches`].
    Embed,
    /// [`Block::Norm`].
    Norm,
    /// [`Block::Attention`].
    Attention,
    /// [`Block::FeedForward`], or [`Block::Linear`] in its place.
    FeedForward,
    /// [`Block::Add`].
    Add,
    /// [`Block::Pool`], [`Block::Head`], [`Block::Vocabulary`] and [`Block::Classes`].
    Answer,
    /// A step of a protocol.
    Outside,
}

/// A value that a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The number of the step that produces it.
    pub from: usize,
    /// No later step reads it.
    pub last: bool,
}

/// The part name of a norm inside a block; `norm` is taken by steps before some blocks.
pub(crate) const SUB_NORM: &str = "sub_norm";
/// The part names of the norms of queries and of keys.
pub(crate) const QUERY_NORM: [&str; 2] = ["query", "norm"];
pub(crate) const KEY_NORM: [&str; 2] = ["key", "norm"];

/// The name of a step or of a part of one. Names are ordered by position in the program; the text is for people.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepId {
    number: usize,
    kind: Kind,
    layer: Option<usize>,
    name: &'static str,
    /// A part, and a part of that part.
    parts: [&'static str; 2],
}

impl Step {
    /// The norm of this step, or those inside its block, with their names.
    pub fn norms(&self) -> impl Iterator<Item = (StepId, &Norm)> {
        let inside = |parts: &[&'static str]| parts.iter().fold(self.id, |id, part| id.part(part));
        let norms = match &self.block {
            Block::Norm(norm) => [Some((self.id, norm)), None, None],
            Block::Attention(a) => {
                let [query, key] = self.head_norms();
                [query, key, a.sub_norm.as_ref().map(|norm| (inside(&[SUB_NORM]), norm))]
            }
            Block::FeedForward(f) => [f.sub_norm.as_ref().map(|norm| (inside(&[SUB_NORM]), norm)), None, None],
            _ => [None, None, None],
        };
        norms.into_iter().flatten()
    }

    /// The norms of queries and of keys, with their names.
    pub fn head_norms(&self) -> [Option<(StepId, &Norm)>; 2] {
        let Block::Attention(a) = &self.block else { return [None, None] };
        [(&a.query_norm, QUERY_NORM), (&a.key_norm, KEY_NORM)]
            .map(|(norm, parts)| Some((parts.into_iter().fold(self.id, StepId::part), norm.as_deref()?)))
    }

    /// The norm before the last linear layer of its block, with its name.
    pub fn sub_norm(&self) -> Option<(StepId, &Norm)> {
        let norm = match &self.block {
            Block::Attention(a) => a.sub_norm.as_ref(),
            Block::FeedForward(f) => f.sub_norm.as_ref(),
            _ => None,
        };
        norm.map(|norm| (self.id.part(SUB_NORM), norm))
    }

    /// In the order of [`Step::norms`].
    fn norms_mut(&mut self) -> impl Iterator<Item = &mut Norm> {
        let norms = match &mut self.block {
            Block::Norm(norm) => [Some(norm), None, None],
            Block::Attention(a) => [a.query_norm.as_deref_mut(), a.key_norm.as_deref_mut(), a.sub_norm.as_mut()],
            Block::FeedForward(f) => [f.sub_norm.as_mut(), None, None],
            _ => [None, None, None],
        };
        norms.into_iter().flatten()
    }
}

impl Block {
    /// Its linear layers.
    pub fn linears(&self) -> Vec<&Linear> {
        match self {
            Block::Attention(a) => vec![&a.query, &a.key, &a.value, &a.output],
            Block::FeedForward(f) => f.gate.iter().chain([&f.up, &f.down]).collect(),
            Block::Head(c) => vec![&c.dense, &c.classes],
            Block::Linear(w) | Block::Vocabulary(w) | Block::Classes(w) => vec![w],
            Block::Patches(patches) => vec![&patches.linear],
            Block::Embed(_) | Block::Norm(_) | Block::Add | Block::Pool(_) => Vec::new(),
        }
    }

    /// The feed-forward block, if it is one.
    pub fn feed_forward(&self) -> Option<&FeedForward> {
        match self {
            Block::FeedForward(feed_forward) => Some(feed_forward),
            _ => None,
        }
    }

    /// The same, mutable.
    pub fn feed_forward_mut(&mut self) -> Option<&mut FeedForward> {
        match self {
            Block::FeedForward(feed_forward) => Some(feed_forward),
            _ => None,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Block::Embed(_) | Block::Patches(_) => Kind::Embed,
            Block::Norm(_) => Kind::Norm,
            Block::Attention(_) => Kind::Attention,
            Block::FeedForward(_) | Block::Linear(_) => Kind::FeedForward,
            Block::Add => Kind::Add,
            Block::Pool(_) | Block::Head(_) | Block::Vocabulary(_) | Block::Classes(_) => Kind::Answer,
        }
    }
}

/// The name of no step.
impl Default for StepId {
    fn default() -> StepId {
        StepId::outside("")
    }
}

/// Serialised as its text.
impl Serialize for StepId {
    fn serialize<T: Serializer>(&self, to: T) -> Result<T::Ok, T::Error> {
        to.collect_str(self)
    }
}

impl StepId {
    /// A protocol step that is in no model, such as `answer`.
    pub const fn outside(name: &'static str) -> StepId {
        StepId { number: usize::MAX, kind: Kind::Outside, layer: None, name, parts: [""; 2] }
    }

    /// The name of a part of this step, or of a part of this part.
    #[must_use]
    pub fn part(self, part: &'static str) -> StepId {
        let parts = match self.parts {
            ["", _] => [part, ""],
            [first, _] => [first, part],
        };
        StepId { parts, ..self }
    }

    /// The kind of the step, also for its parts.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The name without the layer, like `attention.weigh`: the same for that step of every layer.
    #[must_use]
    pub const fn within_layer(self) -> StepId {
        StepId { number: usize::MAX, layer: None, ..self }
    }

    /// The layer that the step belongs to, if any: for progress and checkpoints.
    pub const fn layer(&self) -> Option<usize> {
        self.layer
    }
}

/// Prints a name like `layer.3.attention.weigh`.
impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layer = self.layer.map(|layer| format!("layer.{layer}"));
        let parts = self.parts.into_iter().filter(|part| !part.is_empty());
        let all = layer.as_deref().into_iter().chain([self.name]).chain(parts);
        // Padded as a whole: tables of steps have columns.
        f.pad(&all.collect::<Vec<_>>().join("."))
    }
}

impl fmt::Debug for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Program {
    /// The steps in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The same steps with declared reaches for their norms, by name.
    #[must_use]
    pub fn reaching(mut self, norms: &BTreeMap<String, NormReach>) -> Program {
        for step in &mut self.steps {
            let names: Vec<String> = step.norms().map(|(id, _)| id.to_string()).collect();
            for (name, norm) in names.iter().zip(step.norms_mut()) {
                norm.reach = norms.get(name).copied();
            }
        }
        self
    }

    /// The same steps with changed blocks, from the first to the last.
    ///
    /// # Errors
    /// The first of `change`.
    pub fn changed<E>(mut self, change: impl FnMut(&mut Step) -> Result<(), E>) -> Result<Program, E> {
        self.steps.iter_mut().try_for_each(change)?;
        Ok(self)
    }

    /// The norms with their names, including those inside blocks.
    pub fn norms(&self) -> impl Iterator<Item = (StepId, &Norm)> {
        self.steps.iter().flat_map(Step::norms)
    }

    /// The same without the numbers that take memory: the token table, and the weights of linear layers but for the
    /// classes of a head, which are few. Biases and norms stay.
    #[must_use]
    pub fn without_weights(mut self) -> Program {
        for step in &mut self.steps {
            let linears = match &mut step.block {
                Block::Attention(a) => vec![&mut a.query, &mut a.key, &mut a.value, &mut a.output],
                Block::FeedForward(f) => {
                    let first = f.gate.iter_mut();
                    first.chain([&mut f.up, &mut f.down]).collect()
                }
                Block::Head(c) => vec![&mut c.dense],
                Block::Linear(w) | Block::Vocabulary(w) => vec![w],
                Block::Embed(e) => {
                    (e.tokens, e.stored) = (None, None);
                    Vec::new()
                }
                _ => Vec::new(),
            };
            for w in linears {
                (w.weights, w.stored) = (None, None);
            }
        }
        self
    }

    /// The steps of each layer. Everything before a layer ends in one value, and the layer reads nothing else.
    pub fn layers(&self) -> Vec<Range<usize>> {
        let mut layers: Vec<Range<usize>> = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            let Some(layer) = step.id.layer else { continue };
            match layers.get_mut(layer) {
                Some(range) => range.end = number + 1,
                None => layers.push(number..number + 1),
            }
        }
        layers
    }

    /// The steps before the first layer.
    pub fn before_layers(&self) -> Range<usize> {
        let first = self.layers().into_iter().next();
        0..first.map_or(self.steps.len(), |layer| layer.start)
    }

    /// The same with only its first `count` layers, at least one. What follows the layers reads the last one left.
    #[must_use]
    pub fn first_layers(&self, count: usize) -> Program {
        let layers = self.layers();
        let cut = match (layers.get(count.max(1)), layers.last()) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => return self.clone(),
        };
        let moved = |number: usize| match number {
            n if n >= cut.end => n - cut.len(),
            n => n.min(cut.start - 1),
        };
        let kept = self.steps.iter().enumerate();
        let kept = kept.filter(|(number, _)| !cut.contains(number));
        let steps = kept.map(|(number, step)| {
            let mut step = step.clone();
            step.id.number = moved(number);
            for edge in &mut step.operands {
                edge.from = moved(edge.from);
            }
            step
        });
        Program { steps: steps.collect() }
    }

    /// Runs the steps of `range` in order. `step` gets each step's number and computes its value from earlier values,
    /// which are dropped after their last use. From before the range only the last step's value is read, `before`.
    /// Returns the last value.
    ///
    /// # Errors
    /// Those of `step`; [`ModelError::NoValue`] if there are no steps.
    pub fn run<V, E: From<ModelError>>(
        &self,
        range: Range<usize>,
        before: Option<V>,
        mut step: impl FnMut(usize, &Step, &mut Values<V>) -> Result<V, E>,
    ) -> Result<V, E> {
        let mut values = Values { held: self.steps.iter().map(|_| None).collect() };
        if let Some(before) = before {
            values.put(range.start.saturating_sub(1), before);
        }
        let last = range.end.saturating_sub(1);
        for (number, this) in self.steps.iter().enumerate() {
            if range.contains(&number) {
                let value = step(number, this, &mut values)?;
                values.put(number, value);
                values.ended(this);
            }
        }
        let answer = values.held.get_mut(last).and_then(Option::take);
        Ok(answer.ok_or_else(|| ModelError::NoValue { site: "the last step".to_owned() })?)
    }

    /// The token table, if the program reads texts.
    pub fn embedding(&self) -> Option<&Embedding> {
        match self.steps.first().map(|step| &step.block) {
            Some(Block::Embed(e)) => Some(e),
            _ => None,
        }
    }

    /// What turns images into rows, if the program reads images.
    pub fn patches(&self) -> Option<&Patches> {
        match self.steps.first().map(|step| &step.block) {
            Some(Block::Patches(patches)) => Some(patches),
            _ => None,
        }
    }

    /// Columns of the first step's value, `d`.
    pub fn width(&self) -> usize {
        let patches = self.patches().map(|patches| patches.linear.outputs);
        let table = self.embedding().map(|table| table.width);
        table.or(patches).unwrap_or(0)
    }

    /// The norm after the embedding, if the layers do not begin with norms of their own.
    pub fn embedding_norm(&self) -> Option<&Norm> {
        let before = self.steps.get(self.before_layers()).unwrap_or_default();
        before.iter().find_map(|step| match &step.block {
            Block::Norm(norm) => Some(norm),
            _ => None,
        })
    }

    /// The attention blocks of all layers, in order.
    pub fn attentions(&self) -> impl Iterator<Item = &Attention> {
        self.steps.iter().filter_map(|step| match &step.block {
            Block::Attention(attention) => Some(attention),
            _ => None,
        })
    }

    /// The feed-forward blocks of all layers, in order; `None` for one linear layer in place of a block.
    pub fn feed_forwards(&self) -> impl Iterator<Item = Option<&FeedForward>> {
        self.steps.iter().filter_map(|step| match &step.block {
            Block::FeedForward(feed_forward) => Some(Some(feed_forward)),
            Block::Linear(_) => Some(None),
            _ => None,
        })
    }

    /// The head of a text classifier, if the program ends in one.
    pub fn classifier(&self) -> Option<&Classifier> {
        match self.steps.last().map(|step| &step.block) {
            Some(Block::Head(classifier)) => Some(classifier),
            _ => None,
        }
    }

    /// The map to one number per class, if the program ends in one: that of a text classifier's head, or of images.
    pub fn classes(&self) -> Option<&Linear> {
        match self.steps.last().map(|step| &step.block) {
            Some(Block::Head(classifier)) => Some(&classifier.classes),
            Some(Block::Classes(classes)) => Some(classes),
            _ => None,
        }
    }

    /// The head of a language model, if the program ends in one.
    pub fn vocabulary(&self) -> Option<&Linear> {
        match self.steps.last().map(|step| &step.block) {
            Some(Block::Vocabulary(head)) => Some(head),
            _ => None,
        }
    }

    /// All linear layers, in order.
    pub fn linears(&self) -> impl Iterator<Item = &Linear> {
        self.steps.iter().flat_map(|step| step.block.linears())
    }
}

/// Builds a program step by step.
pub(crate) struct Builder {
    steps: Vec<Step>,
    layer: Option<usize>,
}

/// The value of a step that has been added.
#[derive(Clone, Copy)]
pub(crate) struct Value(usize);

impl Builder {
    /// A program that begins with this block.
    pub(crate) fn new(name: &'static str, first: Block) -> (Builder, Value) {
        let mut builder = Builder { steps: Vec::new(), layer: None };
        let first = builder.step(name, first, &[]);
        (builder, first)
    }

    /// The following steps belong to this layer, or to none.
    pub(crate) fn layer(&mut self, layer: Option<usize>) {
        self.layer = layer;
    }

    /// Adds a step that reads values of earlier ones.
    pub(crate) fn step(&mut self, name: &'static str, block: Block, operands: &[Value]) -> Value {
        let number = self.steps.len();
        let edge = |value: &Value| Edge { from: value.0, last: true };
        for step in &mut self.steps {
            for earlier in &mut step.operands {
                earlier.last &= operands.iter().all(|value| value.0 != earlier.from);
            }
        }
        self.steps.push(Step {
            id: StepId { number, kind: block.kind(), layer: self.layer, name, parts: [""; 2] },
            block,
            operands: operands.iter().map(edge).collect(),
        });
        Value(number)
    }

    /// The program. Its answer is the value of the last step.
    pub(crate) fn finish(self) -> Program {
        Program { steps: self.steps }
    }
}

/// The values of a running program: made by steps, read over edges, dropped after their last use.
pub struct Values<V> {
    held: Vec<Option<V>>,
}

impl<V> Values<V> {
    /// The value of a step's operand.
    ///
    /// # Errors
    /// [`ModelError::NoValue`] if it is missing: a defect of the code that runs the program.
    pub fn get(&self, step: &Step, operand: usize) -> Result<&V, ModelError> {
        let held = self.held.get(edge(step, operand)?.from);
        held.and_then(Option::as_ref).ok_or_else(|| gone(step))
    }

    /// The value itself. Unless this is its last use, what later steps read must be [put back](Values::put_back).
    ///
    /// # Errors
    /// Those of [`Values::get`].
    pub fn take(&mut self, step: &Step, operand: usize) -> Result<V, ModelError> {
        let held = self.held.get_mut(edge(step, operand)?.from);
        held.and_then(Option::take).ok_or_else(|| gone(step))
    }

    /// Puts back what later steps read of an operand that was taken.
    ///
    /// # Errors
    /// Those of [`Values::get`].
    pub fn put_back(&mut self, step: &Step, operand: usize, value: V) -> Result<(), ModelError> {
        self.put(edge(step, operand)?.from, value);
        Ok(())
    }

    fn put(&mut self, number: usize, value: V) {
        if let Some(held) = self.held.get_mut(number) {
            *held = Some(value);
        }
    }

    /// Drops values that were read for the last time.
    fn ended(&mut self, step: &Step) {
        for edge in step.operands.iter().filter(|edge| edge.last) {
            if let Some(held) = self.held.get_mut(edge.from) {
                *held = None;
            }
        }
    }
}

fn edge(step: &Step, operand: usize) -> Result<Edge, ModelError> {
    let edge = step.operands.get(operand).copied();
    edge.ok_or_else(|| gone(step))
}

fn gone(step: &Step) -> ModelError {
    ModelError::NoValue { site: step.id.to_string() }
}

/// The numbers of a layer, for a step that needs them.
///
/// # Errors
/// [`ModelError::ShapesOnly`] if they are absent.
pub fn here<T>(at: StepId, numbers: &Option<T>) -> Result<&T, ModelError> {
    numbers.as_ref().ok_or_else(|| ModelError::ShapesOnly { site: at.to_string() })
}

/// Checks that two sizes that belong together are equal.
///
/// # Errors
/// [`ModelError::Mismatch`] if they differ.
pub fn same(at: StepId, what: &'static str, found: usize, expected: usize) -> Result<(), ModelError> {
    if found == expected {
        return Ok(());
    }
    Err(ModelError::Mismatch { site: at.to_string(), what, found, expected })
}

#[cfg(test)]
mod tests {
    use super::{Program, Step};
    use crate::testing::{ternary_config, ternary_network, tiny_shapes};

    /// Names, numbers, operands and their last uses.
    fn shape(program: &Program) -> Vec<String> {
        let steps = program.steps().iter();
        let line = |step: &Step| format!("{} {}: {:?}", step.id.number, step.id, step.operands);
        steps.map(line).collect()
    }

    #[test]
    fn the_first_layers_are_those_of_a_shorter_model() {
        let (mut encoder, mut decoder) = (tiny_shapes(), ternary_network(&ternary_config(2, 2), 1));
        let whole = [encoder.program(), decoder.program_of_all_rows()];
        encoder.layers.truncate(1);
        decoder.layers.truncate(1);
        let short = [encoder.program(), decoder.program_of_all_rows()];
        for (whole, short) in whole.iter().zip(&short) {
            assert_eq!(whole.layers().len(), 2);
            for count in [0, 1] {
                assert_eq!(shape(&whole.first_layers(count)), shape(short));
            }
            assert_eq!(shape(&whole.first_layers(2)), shape(whole));
        }
    }
}
