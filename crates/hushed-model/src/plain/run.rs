//! Runs a program in the clear, as published.

use std::ops::Range;

use super::{
    PlainActs, PlainCache, PlainScores, activate, add, attend, embed_after, embed_patches, functions, linear, multiply,
    norm, pool, scores, turn, weigh,
};
use crate::blocks::{Attention, Classifier, FeedForward, Linear, Mask, Norm, NormKind, Pool, Queries, Weigh};
use crate::error::{ImageError, ModelError, TextError};
use crate::images::{Item, Pixels};
use crate::matrix::Matrix;
use crate::program::{Block, KEY_NORM, Program, QUERY_NORM, SUB_NORM, Step, StepId, Values, same};
use crate::tokens::TokenIds;

/// The operation of a part of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// A lookup, a linear layer, a product, a sum or a pooling: only its result is shown.
    Values,
    /// A norm of this kind.
    Norm(NormKind),
    /// Weights of the keys that are not masked.
    Weigh(Weigh, Mask),
    /// A function of every element.
    Activation,
}

/// Whether a value goes into a step or comes out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Its operand.
    Input,
    /// Its result.
    Output,
}

/// A value shown to the caller.
#[derive(Clone, Copy)]
pub enum Seen<'a> {
    /// Rows × width per text.
    Acts(&'a PlainActs),
    /// Rows × rows per text and head.
    Scores(&'a PlainScores),
}

/// Runs a program over texts or images, showing the value of every step.
///
/// # Errors
/// [`ModelError`] if the program has shapes only, or a text does not fit it.
pub fn run<T: Into<Item>>(
    program: &Program,
    items: Vec<T>,
    see: impl FnMut(&Step, &PlainActs),
) -> Result<PlainActs, ModelError> {
    let items = items.into_iter().map(T::into).collect();
    steps_of(program, 0..program.steps().len(), items, None, see)
}

/// The same, showing the input and output of every part of a step.
///
/// # Errors
/// Those of [`run`].
pub fn run_parts<T: Into<Item>>(
    program: &Program,
    items: Vec<T>,
    see: impl FnMut(StepId, What, Moment, Seen<'_>),
) -> Result<PlainActs, ModelError> {
    run_parts_until(program, program.steps().len(), items, see)
}

/// The same for the steps before number `end`.
///
/// # Errors
/// Those of [`run`].
pub fn run_parts_until<T: Into<Item>>(
    program: &Program,
    end: usize,
    items: Vec<T>,
    see: impl FnMut(StepId, What, Moment, Seen<'_>),
) -> Result<PlainActs, ModelError> {
    let mut run = Run { items: items.into_iter().map(T::into).collect(), see, cache: None, rounded: false };
    program.run(0..end, None, |_, step, values| run.step(step, values))
}

/// Runs a program as BitNet b1.58 was trained: the rows that ternary layers read are rounded to 8 bits. No private run
/// does so; the difference shows what exact rows change.
///
/// # Errors
/// Those of [`run`].
pub fn run_rounded<T: Into<Item>>(program: &Program, items: Vec<T>) -> Result<PlainActs, ModelError> {
    let mut run = unseen(items.into_iter().map(T::into).collect());
    run.rounded = true;
    let all = 0..program.steps().len();
    program.run(all, None, |_, step, values| run.step(step, values))
}

/// The client's part of a model with a public token table or map of patches: everything before the first layer.
///
/// # Errors
/// Those of [`run`].
pub fn start<T: Into<Item>>(program: &Program, items: Vec<T>) -> Result<PlainActs, ModelError> {
    let items = items.into_iter().map(T::into).collect();
    steps_of(program, program.before_layers(), items, None, |_, _| ())
}

/// Runs only the steps of `range`, which read nothing but the value `x` of the step before it.
///
/// # Errors
/// Those of [`run`].
pub fn run_range(
    program: &Program,
    range: Range<usize>,
    x: PlainActs,
    see: impl FnMut(&Step, &PlainActs),
) -> Result<PlainActs, ModelError> {
    steps_of(program, range, Vec::new(), Some(x), see)
}

/// Runs the next rows of a text whose earlier rows are in the cache. No row may be padding.
///
/// # Errors
/// Those of [`run`]. After an error the cache is no longer usable.
pub fn run_next(program: &Program, cache: &mut PlainCache, text: TokenIds) -> Result<PlainActs, ModelError> {
    let rows = text.rows();
    same(StepId::outside("cache"), "rows without padding", rows.real, rows.total)?;
    let mut run = unseen(vec![text.into()]);
    run.cache = Some(cache);
    let all = 0..program.steps().len();
    let value = program.run(all, None, |_, step, values| run.step(step, values))?;
    cache.rows += rows.total;
    Ok(value)
}

/// One attention block.
///
/// # Errors
/// Those of [`run`].
pub fn attention(id: StepId, x: &PlainActs, a: &Attention) -> Result<PlainActs, ModelError> {
    unseen(Vec::new()).attention(id, x, a)
}

fn steps_of(
    program: &Program,
    range: Range<usize>,
    items: Vec<Item>,
    before: Option<PlainActs>,
    mut see: impl FnMut(&Step, &PlainActs),
) -> Result<PlainActs, ModelError> {
    let mut run = unseen(items);
    program.run(range, before, |_, step, values| {
        let value = run.step(step, values)?;
        see(step, &value);
        Ok(value)
    })
}

fn unseen<'a>(items: Vec<Item>) -> Run<'a, impl FnMut(StepId, What, Moment, Seen<'_>)> {
    Run { items, see: |_: StepId, _: What, _: Moment, _: Seen<'_>| (), cache: None, rounded: false }
}

/// The same numbers in rows of so many columns.
fn regrouped(at: StepId, data: Vec<f64>, cols: usize) -> Result<Matrix<f64>, ModelError> {
    let (found, rows) = (data.len(), data.len() / cols.max(1));
    Matrix::new(rows, cols, data).ok_or_else(|| ModelError::Mismatch {
        site: at.to_string(),
        what: "columns in parts",
        found,
        expected: rows * cols,
    })
}

fn text(item: Item) -> Result<TokenIds, ModelError> {
    match item {
        Item::Text(text) => Ok(text),
        Item::Image(_) => Err(ImageError::NoImages.into()),
    }
}

fn image(item: Item) -> Result<Pixels, ModelError> {
    match item {
        Item::Image(image) => Ok(image),
        Item::Text(_) => Err(TextError::NoText.into()),
    }
}

struct Run<'a, F> {
    items: Vec<Item>,
    see: F,
    /// Keys and values of earlier rows.
    cache: Option<&'a mut PlainCache>,
    /// Whether rows that ternary layers read are rounded to 8 bits.
    rounded: bool,
}

impl<F: FnMut(StepId, What, Moment, Seen<'_>)> Run<'_, F> {
    fn step(&mut self, step: &Step, values: &Values<PlainActs>) -> Result<PlainActs, ModelError> {
        let id = step.id;
        match &step.block {
            Block::Embed(e) => {
                let texts = std::mem::take(&mut self.items).into_iter();
                let texts = texts.map(text).collect::<Result<_, _>>()?;
                let first = self.first();
                Ok(self.given(id, embed_after(id, texts, e, first)?))
            }
            Block::Patches(p) => {
                let images = std::mem::take(&mut self.items).into_iter();
                let images = images.map(image).collect::<Result<Vec<_>, _>>()?;
                Ok(self.given(id, embed_patches(id, &images, p)?))
            }
            Block::Norm(n) => {
                let x = values.get(step, 0)?;
                self.show(id, What::Norm(n.kind), Moment::Input, Seen::Acts(x));
                let y = norm(id, x.clone(), n)?;
                self.show(id, What::Norm(n.kind), Moment::Output, Seen::Acts(&y));
                Ok(y)
            }
            Block::Attention(a) => self.attention(id, values.get(step, 0)?, a),
            Block::FeedForward(f) => self.feed_forward(id, values.get(step, 0)?, f),
            Block::Add => {
                let sum = add(id, values.get(step, 0)?, values.get(step, 1)?)?;
                Ok(self.given(id, sum))
            }
            Block::Pool(p) => Ok(self.given(id, pool(values.get(step, 0)?, p))),
            Block::Head(c) => self.head(id, values.get(step, 0)?, c),
            Block::Linear(w) | Block::Vocabulary(w) | Block::Classes(w) => {
                let y = self.linear(id, values.get(step, 0)?, w)?;
                Ok(self.given(id, y))
            }
        }
    }

    /// Attention as in the paper (Vaswani et al. 2017).
    fn attention(&mut self, id: StepId, x: &PlainActs, a: &Attention) -> Result<PlainActs, ModelError> {
        let layer = |run: &mut Self, part, w| {
            let id = id.part(part);
            let y = run.linear(id, x, w)?;
            Ok::<_, ModelError>(run.given(id, y))
        };
        let mut q = layer(self, "query", &a.query)?; // m × h·dh
        let mut k = layer(self, "key", &a.key)?; // m × g·dh
        let v = layer(self, "value", &a.value)?; // m × g·dh
        q = self.head_norm(id, QUERY_NORM, q, a.query_norm.as_deref())?;
        k = self.head_norm(id, KEY_NORM, k, a.key_norm.as_deref())?;
        if let Some(rope) = &a.rope {
            let (width, first) = (a.heads.width, self.first());
            q = turn(id.part("query"), q, rope, width, first)?;
            k = turn(id.part("key"), k, rope, width, first)?;
        }
        if let Some(pooling) = a.queries.pool() {
            q = pool(&q, &pooling); // 1 × h·dh
        }
        if let Some(cache) = &mut self.cache {
            let o = cache.attend(id, &q, k, v, a)?; // m × h·dh
            let o = self.sub_norm(id, o, a.sub_norm.as_ref())?;
            return self.linear(id.part("output"), &o, &a.output);
        }
        let at = id.part("scores");
        let mut s = scores(at, &q, &k, &a.heads)?; // h of m × m
        if let Some(distances) = &a.distances {
            s.add(at, distances)?;
        }
        self.show(at, What::Values, Moment::Output, Seen::Scores(&s));
        let at = id.part("weigh");
        let mask = match a.queries {
            Queries::All => a.mask,
            Queries::First | Queries::Last => Mask::Full,
        };
        let what = What::Weigh(a.weigh, mask);
        self.show(at, what, Moment::Input, Seen::Scores(&s));
        let p = weigh(s, a.weigh, &mask); // h of m × m
        self.show(at, what, Moment::Output, Seen::Scores(&p));
        let at = id.part("attend");
        let o = self.given(at, attend(at, &p, &v, &a.heads)?); // m × h·dh
        let o = self.sub_norm(id, o, a.sub_norm.as_ref())?;
        let at = id.part("output");
        let y = self.linear(at, &o, &a.output)?;
        Ok(self.given(at, y)) // m × d
    }

    /// The number of rows of the text that were run before.
    fn first(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.rows())
    }

    /// A linear layer, of rows rounded to 8 bits if they are to be and it is ternary.
    fn linear(&self, id: StepId, x: &PlainActs, w: &Linear) -> Result<PlainActs, ModelError> {
        if !(self.rounded && w.ternary) {
            return linear(id, x, w);
        }
        let mut x = x.clone();
        let width = x.values.cols().max(1);
        let rows = x.values.data_mut().chunks_exact_mut(width);
        rows.for_each(functions::round_to_8_bits);
        linear(id, &x, w)
    }

    fn feed_forward(&mut self, id: StepId, x: &PlainActs, f: &FeedForward) -> Result<PlainActs, ModelError> {
        let at = id.part("up");
        let up = self.linear(at, x, &f.up)?;
        let up = self.given(at, up); // m × hidden
        let y = match &f.gate {
            None => self.function(id.part("activation"), up, f.activation), // m × hidden
            Some(gate) => {
                let at = id.part("gate");
                let y = self.linear(at, x, gate)?;
                let y = self.given(at, y); // m × hidden
                let y = self.function(id.part("activation"), y, f.activation);
                let at = id.part("product");
                self.given(at, multiply(at, y, &up)?) // m × hidden
            }
        };
        let y = self.sub_norm(id, y, f.sub_norm.as_ref())?;
        let at = id.part("down");
        let y = self.linear(at, &y, &f.down)?;
        Ok(self.given(at, y)) // m × d
    }

    /// The norm inside a block, if it has one.
    fn sub_norm(&mut self, id: StepId, x: PlainActs, n: Option<&Norm>) -> Result<PlainActs, ModelError> {
        let (at, Some(n)) = (id.part(SUB_NORM), n) else {
            return Ok(x);
        };
        self.show(at, What::Norm(n.kind), Moment::Input, Seen::Acts(&x));
        let y = norm(at, x, n)?;
        self.show(at, What::Norm(n.kind), Moment::Output, Seen::Acts(&y));
        Ok(y)
    }

    /// The norm of queries or keys, if there is one: of as many columns at a time as it has.
    fn head_norm(
        &mut self,
        id: StepId,
        parts: [&'static str; 2],
        x: PlainActs,
        n: Option<&Norm>,
    ) -> Result<PlainActs, ModelError> {
        let Some(n) = n else { return Ok(x) };
        let at = parts.into_iter().fold(id, StepId::part);
        self.show(at, What::Norm(n.kind), Moment::Input, Seen::Acts(&x));
        let (rows, cols) = (x.values.rows(), x.values.cols());
        let apart = regrouped(at, x.values.data().to_vec(), n.width)?;
        let normed = norm(at, PlainActs { rows: x.rows.clone(), values: apart }, n)?;
        let values = regrouped(at, normed.values.data().to_vec(), cols)?;
        same(at, "rows", values.rows(), rows)?;
        let y = PlainActs { rows: x.rows, values };
        self.show(at, What::Norm(n.kind), Moment::Output, Seen::Acts(&y));
        Ok(y)
    }

    fn head(&mut self, id: StepId, x: &PlainActs, c: &Classifier) -> Result<PlainActs, ModelError> {
        let x = self.given(id.part("first"), pool(x, &Pool::First)); // 1 × d
        let at = id.part("dense");
        let x = self.linear(at, &x, &c.dense)?;
        let x = self.given(at, x); // 1 × d
        let x = self.function(id.part("activation"), x, c.activation); // 1 × d
        let at = id.part("classes");
        let y = self.linear(at, &x, &c.classes)?;
        Ok(self.given(at, y)) // 1 × k
    }

    fn function(&mut self, id: StepId, x: PlainActs, f: crate::blocks::Activation) -> PlainActs {
        self.show(id, What::Activation, Moment::Input, Seen::Acts(&x));
        let y = activate(x, f);
        self.show(id, What::Activation, Moment::Output, Seen::Acts(&y));
        y
    }

    /// Shows a result and returns it.
    fn given(&mut self, id: StepId, x: PlainActs) -> PlainActs {
        self.show(id, What::Values, Moment::Output, Seen::Acts(&x));
        x
    }

    fn show(&mut self, id: StepId, what: What, moment: Moment, seen: Seen<'_>) {
        (self.see)(id, what, moment, seen);
    }
}
