//! Causal attention with a sigmoid (ENSI, §IV), in the frames of the giant steps.
//!
//! | step | primes of a vector | folded into it |
//! |---|---|---|
//! | Q, K of a head, in pairs | l − 1 | gain of the norm before; the factor of the scores and the map of their interval to [−1, 1], half of it in each |
//! | rotated by the giant and the baby steps, then turned by their places and masked: [`super::rope`] | l − 2 | the causal mask |
//! | Σ q'·k' and its real part, j = ab + r in the frame of ab | l − 3 | |
//! | bias; masked scores, which are 0, to −1 | l − 3 | |
//! | σ, a polynomial that is 0 at −1 | l − 3 − ⌈log2(degree + 1)⌉ = e | |
//! | P·V, V projected where it is used, in pairs | e − 1 | gain of the norm before |
//! | output, of pairs split into columns | e − 2; e − 1 where it is ternary | 1/bound |
//! | where there is a norm before it, its root: [`super::sub_norm`] | one fewer | |
//!
//! σ works slot by slot, so it may be taken before the rotation that would bring a diagonal home, and P·V wants it
//! before that rotation: no diagonal is rotated, once there and once back. Key switches of a head, besides
//! relinearisations, for p pairs: p·(b − 1) + p·(g − 1) rotations and m conjugations, then p·(b − 1) + p·(g − 1)
//! rotations and p conjugations. Plaintext products: (b + g + 1)·p.
//!
//! A softmax would need sums over rows in the same frames; only the sigmoid is here.

use std::borrow::Cow;

use hushed_ckks::poly::{Polynomial, evaluate};
use hushed_lower::LinearMap;
use hushed_model::{Attention, Mask, StepId, Weigh, same};
use rayon::prelude::*;

use super::rope::{Turned, seen, turns};
use super::source::{Part, Source};
use super::sub_norm::SubNorm;
use crate::choices::fits;
use crate::choices::{Interval, ScoresChoice};
use crate::error::FheError;
use crate::ops::activation::levels;
use crate::ops::acts::Acts;
use crate::ops::after::{After, Last};
use crate::ops::functions::Function;
use crate::ops::levels::{above, below, divisor, scale_of};
use crate::packing::products::{GIANTS, attend_turned, rotations};
use crate::packing::{Columns, Interleave, PackingError, Pairs};
use crate::slots::Slots;

/// An attention block of a run.
pub struct SigmoidLayer<'a> {
    /// The step that plans, counters and progress name it by.
    pub at: StepId,
    /// Weights and shapes of the model.
    pub block: &'a Attention,
    /// Intervals and degree.
    pub choice: &'a ScoresChoice,
    /// The norm before the output's map, if there is one.
    pub sub_norm: Option<SubNorm<'a>>,
    /// What reads it.
    pub after: After<'a>,
    /// The packing; the last row of each text is row m − 1.
    pub layout: Interleave,
    /// b of m = b·g, for both products.
    pub baby: usize,
}

/// What [`After`] makes of the attention's output, by columns.
///
/// # Errors
/// [`FheError::Unsupported`] for another function or mask than a causal sigmoid; shapes that differ; too few levels.
pub fn attention<S: Slots>(
    on: &S,
    x: &Acts<S::Value>,
    layer: &SigmoidLayer<'_>,
) -> Result<Vec<S::Value>, FheError> {
    let run = Run::new(on, x, layer)?;
    let mut read = Read::default();
    run.heads(Source::Columns(&x.columns), |h, o| {
        run.output(h, o, &mut read)
    })?;
    run.finish(read)
}

/// As [`attention`], bit for bit, with less in memory: queries, keys and values of all heads are made first and
/// spilled, so that the columns are dropped before the scores; so are the results of heads, as the sums of the output
/// are as many as the columns.
///
/// # Errors
/// As [`attention`] and [`Slots::store`].
pub fn attention_spilled<S: Slots>(
    on: &S,
    x: Acts<S::Value>,
    layer: &SigmoidLayer<'_>,
) -> Result<Vec<S::Value>, FheError> {
    let run = Run::new(on, &x, layer)?;
    let project = |part: Part| {
        run.site(part.site());
        run.project(part, &x.columns)
    };
    let source = Source::spilled(on, &layer.block.heads, project)?;
    drop(x);
    let mut waiting = Vec::with_capacity(layer.block.heads.count);
    run.heads(source, |h, o| {
        run.site("output");
        waiting.push((h, on.store(o.into_vectors())?));
        Ok(())
    })?;
    let mut read = Read::default();
    for (h, o) in waiting {
        run.site("output");
        let o = Pairs::from_vectors(layer.layout, on.load(o)?, layer.block.heads.width);
        run.output(h, o, &mut read)?;
    }
    run.finish(read)
}

/// What the output's map has made of some heads, and the squares of these if there is a norm before it.
struct Read<S: Slots> {
    partial: Option<S::Partial>,
    squares: Option<S::Sum>,
}

impl<S: Slots> Default for Read<S> {
    fn default() -> Self {
        Read {
            partial: None,
            squares: None,
        }
    }
}

/// Primes of the result, of columns with `columns` primes.
///
/// # Errors
/// Too few levels.
pub fn result_limbs<S: Slots>(
    on: &S,
    columns: usize,
    layer: &SigmoidLayer<'_>,
) -> Result<usize, FheError> {
    Ok(Limbs::of(on, columns, layer)?.result)
}

/// The bias of a causal sigmoid.
///
/// # Errors
/// [`FheError::Unsupported`] for other weights and masks.
pub fn causal_sigmoid(at: StepId, block: &Attention) -> Result<f64, FheError> {
    match (block.weigh, block.mask) {
        (Weigh::Sigmoid { bias }, Mask::Causal) => Ok(bias),
        _ => Err(FheError::Unsupported {
            what: format!("{at}: attention other than by a causal sigmoid"),
            remedy: "decoders with attention_weights \"sigmoid\" can be run",
        }),
    }
}

/// Keys of a head, turned and masked.
struct Keys<V> {
    /// By pair, then by baby step.
    rotated: Vec<Vec<V>>,
    /// By pair, for the diagonal.
    diagonal: Vec<Vec<V>>,
}

/// Primes on the way from the columns to the result.
struct Limbs {
    /// Of turned queries and keys.
    turned: usize,
    weights: usize,
    /// Of what the output's map reads.
    attended: usize,
    result: usize,
}

impl Limbs {
    fn of<S: Slots>(on: &S, columns: usize, layer: &SigmoidLayer<'_>) -> Result<Limbs, FheError> {
        let turned = below(on, columns, 2)?;
        let weights = below(on, turned, 1 + levels(layer.choice.degree))?;
        let attended = below(on, weights, 1)?;
        let norm = layer.sub_norm.as_ref();
        let ternary = norm.is_none_or(SubNorm::keeps_ternary);
        let output = layer.after.levels(&layer.block.output, ternary);
        let read = below(on, attended, output)?;
        Ok(Limbs {
            turned,
            weights,
            attended,
            result: norm.map_or(Ok(read), |norm| norm.limbs(on, read))?,
        })
    }
}

/// One layer over one batch.
struct Run<'a, S: Slots> {
    on: &'a S,
    layer: &'a SigmoidLayer<'a>,
    query: LinearMap,
    key: LinearMap,
    value: LinearMap,
    output: Last,
    bias: f64,
    limbs: Limbs,
}

impl<'a, S: Slots> Run<'a, S> {
    fn new(on: &'a S, x: &Acts<S::Value>, layer: &'a SigmoidLayer<'a>) -> Result<Self, FheError> {
        let SigmoidLayer {
            at, block, choice, ..
        } = *layer;
        let bias = causal_sigmoid(at, block)?;
        same(
            at,
            "heads of the calibration",
            choice.heads.len(),
            block.heads.count,
        )?;
        // Biases are zeros: a decoder with others is refused before it begins.
        let map = |part, w| -> Result<LinearMap, FheError> {
            let mut map = x.folded(on, at.part(part), w)?;
            map.bias = None;
            Ok(map)
        };
        let columns = x.columns.first().map_or(on.top(), |v| on.limbs(v));
        let limbs = Limbs::of(on, columns, layer)?;
        let (after, w) = match &layer.sub_norm {
            Some(norm) => norm.last(layer.after, &block.output)?,
            None => (layer.after, Cow::Borrowed(&block.output)),
        };
        let output = after.last(on, at.part("output"), &w, limbs.attended, true)?;
        Ok(Run {
            on,
            layer,
            query: map("query", &block.query)?,
            key: map("key", &block.key)?,
            value: map("value", &block.value)?,
            output,
            bias,
            limbs,
        })
    }

    fn site(&self, step: &'static str) {
        self.on.at(self.layer.at.part(step));
    }

    /// The heads, one after the other: `each` takes the number of one and what it attended to.
    fn heads(
        &self,
        mut source: Source<'_, S>,
        mut each: impl FnMut(usize, Pairs<S::Value>) -> Result<(), FheError>,
    ) -> Result<(), FheError> {
        let SigmoidLayer { layout, baby, .. } = *self.layer;
        let heads = &self.layer.block.heads;
        let mut take = |part: Part| {
            self.site(part.site());
            source.take(self.on, part, |x| self.project(part, x))
        };
        for group in 0..heads.keys {
            let keys = self.keys(take(Part::Key(group))?)?;
            let values = take(Part::Value(group))?;
            let values = Pairs::from_vectors(layout, values, heads.width);
            let values = std::iter::repeat_n(values, heads.shared());
            for (h, values) in (group * heads.shared()..).zip(values) {
                let query = take(Part::Query(h))?;
                let weights = self.weights(h, query, &keys)?;
                self.site("attend");
                each(h, attend_turned(self.on, weights, values, baby)?)?;
            }
        }
        Ok(())
    }

    /// Queries, keys or values, from the columns.
    fn project(&self, part: Part, x: &[S::Value]) -> Result<Vec<S::Value>, FheError> {
        let shared = self.layer.block.heads.shared();
        match part {
            Part::Query(h) => {
                let map = self.query.clone().times(self.half(h / shared));
                self.pairs(&map, x, h, false)
            }
            Part::Key(group) => {
                let map = self.key.clone().times(self.half(group));
                self.pairs(&map, x, group, true)
            }
            Part::Value(group) => self.values(x, group),
        }
    }

    /// The widest interval of the heads that share a head of keys, 0 in it: their keys have one factor.
    fn scores(&self, group: usize) -> Interval {
        let shared = self.layer.block.heads.shared();
        let heads = self.layer.choice.heads.iter();
        let zero = Interval {
            low: 0.0,
            high: 0.0,
        };
        let widest = |wide: Interval, head: &Interval| Interval {
            low: wide.low.min(head.low),
            high: wide.high.max(head.high),
        };
        heads.skip(group * shared).take(shared).fold(zero, widest)
    }

    /// √(factor of the scores over half of their interval): in queries and in keys.
    fn half(&self, group: usize) -> f64 {
        let half = fits::masked(self.scores(group)).half();
        (self.layer.block.heads.scale / half).sqrt()
    }

    /// Rows of a map that are a head's, in pairs (i, i + d'/2) or as adjacent columns, as the model turns them.
    fn pairs(
        &self,
        map: &LinearMap,
        x: &[S::Value],
        head: usize,
        conjugate: bool,
    ) -> Result<Vec<S::Value>, FheError> {
        let (on, block) = (self.on, self.layer.block);
        let width = block.heads.width;
        let map = map.rows(head * width..(head + 1) * width).bounded();
        let made = on.linear(&map, x, on.default_scale())?;
        let pair = |i: usize| {
            let (a, b) = match &block.rope {
                Some(rope) => rope.pair(i, width),
                None => (2 * i, 2 * i + 1),
            };
            let (a, b) = (made[a].clone(), made[b].clone());
            match conjugate {
                true => on.pair_conjugate(a, b),
                false => on.pair(a, b),
            }
        };
        (0..width / 2).map(pair).collect()
    }

    /// `v`, of pair `i`, times the plaintext of its turn.
    fn turn(&self, v: &S::Value, i: usize, which: Turned) -> Result<S::Value, FheError> {
        let (on, layer, turned) = (self.on, self.layer, self.limbs.turned);
        let rope = layer.block.rope.as_ref();
        let plain = || turns(layer.layout, &layer.block.heads, rope, i, layer.baby, which);
        // Arguments of the polynomial at twice the divisor of their first rescale: taking real parts doubles the scale.
        let wanted = divisor(on, below(on, turned, 1)?)? * divisor(on, turned)?;
        on.mul_pairs(v, &on.plain_pairs(plain), scale_of(wanted.sqrt())?)
    }

    /// Conjugate keys of a head, turned and masked.
    fn keys(&self, raw: Vec<S::Value>) -> Result<Keys<S::Value>, FheError> {
        self.site("rope");
        let babies: Vec<usize> = (0..self.layer.baby)
            .map(|r| self.layer.layout.rotation(r))
            .collect();
        let one = |(i, v): (usize, &S::Value)| Ok(vec![self.turn(v, i, Turned::DiagonalKey)?]);
        let diagonal = raw.par_iter().enumerate().map(one);
        let diagonal = diagonal.collect::<Result<_, FheError>>()?;
        let turned = |(i, rotated): (usize, Vec<S::Value>)| {
            let all = rotated.iter().enumerate();
            all.map(|(r, v)| self.turn(v, i, Turned::Key(r))).collect()
        };
        let rotated = rotations(self.on, raw, &babies)?
            .into_par_iter()
            .enumerate();
        Ok(Keys {
            rotated: rotated.map(turned).collect::<Result<_, FheError>>()?,
            diagonal,
        })
    }

    /// V of a head of values, in pairs, so that P·V is at half of the scale that the output takes: splitting pairs
    /// doubles it.
    fn values(&self, x: &[S::Value], group: usize) -> Result<Vec<S::Value>, FheError> {
        let (on, width) = (self.on, self.layer.block.heads.width);
        let weights = self.limbs.weights;
        let from = above(on, weights)?;
        let low = x.par_iter().map(|v| on.drop_to(v, from));
        let low = low.collect::<Result<Vec<_>, FheError>>()?;
        let map = self
            .value
            .rows(group * width..(group + 1) * width)
            .bounded();
        let target = scale_of(0.5 * self.output.operands() * divisor(on, weights)?)?;
        let columns = on.linear(&map, &low, target)?;
        let pairs = Pairs::new(on, Columns::from_vectors(self.layer.layout, columns))?;
        Ok(pairs.into_vectors())
    }

    /// Weights of head `h`, of its queries, diagonal by diagonal, in the frames of their giant steps.
    fn weights(
        &self,
        h: usize,
        raw: Vec<S::Value>,
        keys: &Keys<S::Value>,
    ) -> Result<Vec<S::Value>, FheError> {
        let (on, layer) = (self.on, self.layer);
        let (layout, baby) = (layer.layout, layer.baby);
        let m = layout.rows();
        let group = h / layer.block.heads.shared();
        let hoisted = raw.par_iter().map(|v| on.hoist(v));
        let hoisted = hoisted.collect::<Result<Vec<_>, FheError>>()?;
        let sigmoid = Sigmoid::new(self, h, group)?;
        let giants: Vec<usize> = (0..m).step_by(baby).collect();
        let mut done = Vec::with_capacity(m);
        for giants in giants.chunks(GIANTS) {
            self.site("rope");
            let back = |(i, query): (usize, &S::Hoisted<'_>)| {
                let turn = |&giant: &usize| {
                    let rotated = on.rotate_hoisted(query, layout.rotation(m - giant))?;
                    self.turn(&rotated, i, Turned::Query(giant))
                };
                giants.iter().map(turn).collect()
            };
            let queries = hoisted.par_iter().enumerate().map(back);
            let queries = queries.collect::<Result<Vec<Vec<S::Value>>, FheError>>()?;
            self.site("scores");
            let mut grid = on.dot_grid(&queries, &keys.rotated)?;
            drop(queries);
            if giants.first() == Some(&0) {
                let one = |(i, v): (usize, &S::Value)| {
                    Ok(vec![self.turn(v, i, Turned::DiagonalQuery)?])
                };
                let query = raw.par_iter().enumerate().map(one);
                let query = query.collect::<Result<Vec<_>, FheError>>()?;
                let first = on
                    .dot_grid(&query, &keys.diagonal)?
                    .into_iter()
                    .flatten()
                    .next();
                let place = grid.first_mut().and_then(|row| row.first_mut());
                *place.ok_or(PackingError::Mismatch)? = first.ok_or(PackingError::Mismatch)?;
            }
            for (row, &giant) in grid.into_iter().zip(giants) {
                let row = row.into_par_iter().enumerate();
                let row = row.map(|(r, s)| sigmoid.of(on, &on.real(&s)?, giant, r));
                let row: Vec<S::Value> = row.collect::<Result<_, FheError>>()?;
                done.extend(row);
            }
        }
        Ok(done)
    }

    /// Adds the part of head `h` to the sums of the output's map.
    fn output(&self, h: usize, o: Pairs<S::Value>, read: &mut Read<S>) -> Result<(), FheError> {
        self.site("output");
        let width = self.layer.block.heads.width;
        let columns = o.into_columns(self.on)?;
        let columns = columns.vectors();
        if let Some(norm) = &self.layer.sub_norm {
            read.squares = Some(norm.add(self.on, read.squares.take(), columns)?);
        }
        let mut map = self.output.map().columns(h * width..(h + 1) * width);
        map.bias = None;
        let partial = read.partial.take();
        read.partial = Some(self.output.add(self.on, &map, columns, partial)?);
        Ok(())
    }

    fn finish(&self, read: Read<S>) -> Result<Vec<S::Value>, FheError> {
        let y = self.output.finish(self.on, read.partial)?;
        match &self.layer.sub_norm {
            Some(norm) => norm.finish(self.on, read.squares, y),
            None => Ok(y),
        }
    }
}

/// The sigmoid of one head.
struct Sigmoid {
    f: Function,
    interval: Interval,
    polynomial: Polynomial,
    layout: Interleave,
}

impl Sigmoid {
    fn new<S: Slots>(run: &Run<'_, S>, head: usize, group: usize) -> Result<Self, FheError> {
        let scores = run.scores(group);
        let interval = fits::masked(scores);
        Ok(Sigmoid {
            f: Function::Sigmoid {
                head,
                scores: interval,
                bias: run.bias,
            },
            polynomial: fits::sigmoid(scores, run.bias, run.layer.choice.degree)?,
            interval,
            layout: run.layer.layout,
        })
    }

    /// Of the scores of diagonal `giant` + `r` in its frame: masked ones, which are 0, give 0.
    fn of<S: Slots>(
        &self,
        on: &S,
        s: &S::Value,
        giant: usize,
        r: usize,
    ) -> Result<S::Value, FheError> {
        let (m, texts) = (self.layout.rows(), self.layout.texts());
        let shift = |slot: usize| match seen(m, giant, r, slot / texts) {
            true => -self.interval.middle() / self.interval.half(),
            false => -1.0,
        };
        let shift = on.plain(|| (0..self.layout.slots()).map(shift).collect());
        let t = on.within(on.add_vector(s.clone(), &shift)?, 1.0);
        let target = on.default_scale();
        let compute = || evaluate(on, &t, &self.polynomial, target);
        on.apply(&self.f, &t, (self.polynomial.depth(), target), compute)
    }
}
