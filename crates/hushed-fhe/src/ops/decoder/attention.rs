//! Causal attention with a sigmoid (ENSI, §IV) or a softmax, in the frames of the giant steps.
//!
//! | step | primes of a vector | folded into it |
//! |---|---|---|
//! | Q, K of a head, in pairs | l − 1 | gain of the norm before; half in each: score factor, map of scores to [−1, 1] |
//! | rotated by giant and baby steps, then turned and masked: [`super::rope`] | l − 2 | the causal mask |
//! | Σ q'·k' and its real part, j = ab + r in the frame of ab | l − 3 | |
//! | masked scores, which are 0, to −1: [`super::weigh`] | l − 3 | |
//! | σ, a polynomial that is 0 at −1 | l − 3 − ⌈log2(degree + 1)⌉ = e | |
//! | or the exponential, as many levels; normalised and squared | e − 2 = e' | |
//! | P·V, V projected where it is used, in pairs | e − 1; e' − 1 | gain of the norm before |
//! | for a softmax, times the inverse of the second sum | e' − 2 | |
//! | output, of pairs split into columns | one fewer; the same if ternary | 1/bound |
//! | the root of a norm before the output, if any: [`super::sub_norm`] | one fewer | |
//!
//! Weights are functions of scores slot by slot, so they can be taken before the rotation that would bring a diagonal
//! home, and P·V needs them before it: no diagonal is rotated, neither home nor back. Key switches per head, besides
//! relinearisations, for p pairs: p·(b − 1) + p·(g − 1) rotations and m conjugations, then p·(b − 1) + p·(g − 1)
//! rotations and p conjugations. Plaintext products: (b + g + 1)·p. A softmax takes 3·(g − 1) more rotations, two
//! conjugations of its refreshed sums, and per layer b − 1 rotations and b + 1 plaintext products.
//!
//! A sigmoid's weights depend on no sum, so for long texts (m > p·b) P·V takes them as they are made, and no more than
//! a few giant steps of them are in memory.

use std::collections::BTreeMap;

use hushed_ckks::Scale;
use hushed_lower::LinearMap;

use super::layer::{CausalLayer, Keys, Limbs, Run};
use super::source::{Part, Source};
use super::weigh::{Weighed, Weighing};
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::levels::{above, divisor, scale_of};
use crate::ops::paired::Inputs;
use crate::packing::products::{Attending, attend_turned};
use crate::packing::{PackingError, Pairs};
use crate::slots::Slots;

/// The attention's output by columns, in the form its reader takes.
///
/// # Errors
/// [`FheError::Unsupported`] for a mask that is not causal; shapes that differ; too few levels.
pub fn attention<S: Slots>(
    on: &S,
    x: &Acts<S::Value>,
    layer: &CausalLayer<'_, S::Value>,
) -> Result<Vec<S::Value>, FheError> {
    let run = Run::new(on, x, layer)?.with_tokens()?;
    let mut read = Read::default();
    run.heads(Source::Columns(run.inputs(x)), |h, o| run.output(h, o, &mut read))?;
    run.finish(read)
}

/// As [`attention`], bit for bit, with less memory: queries, keys and values of all heads are made first and spilled,
/// so the columns are dropped before the scores. The heads' results are spilled too, as the output has as many sums as
/// columns.
///
/// # Errors
/// As [`attention`] and [`Slots::store`].
pub fn attention_spilled<S: Slots>(
    on: &S,
    x: Acts<S::Value>,
    layer: &CausalLayer<'_, S::Value>,
) -> Result<Vec<S::Value>, FheError> {
    let run = Run::new(on, &x, layer)?.with_tokens()?;
    let project = |part: Part| {
        run.site(part.site());
        run.project(part, run.inputs(&x))
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

/// The values that head `h` reads; the last head that shares them takes them.
fn values_of<V: Clone>(values: &mut BTreeMap<usize, Pairs<V>>, h: usize, shared: usize) -> Result<Pairs<V>, FheError> {
    let values = match h % shared == shared - 1 {
        true => values.remove(&(h / shared)),
        false => values.get(&(h / shared)).cloned(),
    };
    Ok(values.ok_or(PackingError::Mismatch)?)
}

/// The output map's sums over some heads, and sums of squares of their results if a norm precedes it.
struct Read<S: Slots> {
    partial: Option<S::Partial>,
    squares: Option<S::Sum>,
}

impl<S: Slots> Default for Read<S> {
    fn default() -> Self {
        Read { partial: None, squares: None }
    }
}

/// The primes of the result for columns with `columns` primes.
///
/// # Errors
/// Too few levels.
pub fn result_limbs<S: Slots>(on: &S, columns: usize, layer: &CausalLayer<'_, S::Value>) -> Result<usize, FheError> {
    Ok(Limbs::of(on, columns, layer)?.result)
}

impl<S: Slots> Run<'_, S> {
    /// Computes the heads one after another: `each` takes the number of a head and its result.
    fn heads(
        &self,
        mut source: Source<'_, S>,
        mut each: impl FnMut(usize, Pairs<S::Value>) -> Result<(), FheError>,
    ) -> Result<(), FheError> {
        let CausalLayer { layout, placement, .. } = *self.layer;
        let heads = &self.layer.block.heads;
        let shared = heads.shared().max(1);
        let mut take = |part: Part| {
            self.site(part.site());
            source.take(self.on, part, |x| self.project(part, x))
        };
        // Only a softmax has sums that share bootstraps.
        let together = match &self.weighing {
            Weighing::Sigmoid(_) => 1,
            Weighing::Softmax(..) => placement.heads_together.max(1),
        };
        let streams = self.streams();
        let mut keys = None;
        // The values of key heads whose query heads are not all done.
        let mut values = BTreeMap::new();
        for first in (0..heads.count).step_by(together) {
            let group = first..heads.count.min(first + together);
            let mut scored = Vec::with_capacity(group.len());
            for h in group.clone() {
                if h % shared == 0 {
                    drop(keys.take());
                    keys = Some(self.keys(take(Part::Key(h / shared))?)?);
                    let v = take(Part::Value(h / shared))?;
                    values.insert(h / shared, Pairs::from_vectors(layout, v, heads.width));
                }
                let query = take(Part::Query(h))?;
                let keys = keys.as_ref().ok_or(PackingError::Mismatch)?;
                if streams {
                    let values = values_of(&mut values, h, shared)?;
                    each(h, self.streamed(h, query, keys, values)?)?;
                } else {
                    scored.push((h, self.scored(h, query, keys)?));
                }
            }
            if streams {
                continue;
            }
            let (on, at) = (self.on, self.layer.at);
            if self.tokens.is_some() {
                self.site("weigh");
                // Two sums and the squares come before P·V.
                keys = keys.filter(|_| !group.end.is_multiple_of(shared));
            }
            let weighed = self.weighing.weights(on, at, scored, placement.statistics)?;
            for (h, weights) in group.zip(weighed) {
                let values = values_of(&mut values, h, shared)?;
                each(h, self.attended(h, weights, values)?)?;
            }
        }
        Ok(())
    }

    /// Whether P·V takes weights as they are made: b rotations of V are fewer than the diagonals.
    fn streams(&self) -> bool {
        let (layer, pairs) = (self.layer, self.layer.block.heads.width.div_ceil(2));
        let sigmoid = matches!(self.weighing, Weighing::Sigmoid(_));
        sigmoid && layer.layout.rows() > pairs * layer.placement.scores_baby
    }

    /// P·V with the weights of a sigmoid, as [`Run::attended`].
    fn streamed(
        &self,
        h: usize,
        query: Vec<S::Value>,
        keys: &Keys<S::Value>,
        values: Pairs<S::Value>,
    ) -> Result<Pairs<S::Value>, FheError> {
        let on = self.on;
        self.site("attend");
        let mut sums = Attending::new(on, values, self.layer.placement.scores_baby)?;
        self.scored_with(h, query, keys, |rows| {
            self.site("attend");
            sums.add(on, rows)
        })?;
        sums.finish()
    }

    /// P·V, and for a softmax its last factor, in pairs at half of the scale that the output takes: splitting pairs
    /// doubles it.
    fn attended(
        &self,
        h: usize,
        weights: Weighed<S::Value>,
        values: Pairs<S::Value>,
    ) -> Result<Pairs<S::Value>, FheError> {
        let (on, layer) = (self.on, self.layer);
        self.site("attend");
        let width = values.width();
        let o = attend_turned(on, weights.diagonals, values, layer.placement.scores_baby)?;
        let (Some(sum), Some(first)) = (weights.sum, o.vectors().first()) else {
            return Ok(o);
        };
        self.site("weigh");
        let limbs = above(on, self.limbs.attended)?;
        let wide = 0.5 * self.output.operands() * on.default_scale().value();
        let target = scale_of(wide * divisor(on, limbs)? / on.scale(first).value())?;
        let inverse = self.weighing.inverse(on, h, &sum, target)?;
        let inverse = on.drop_to(&inverse, limbs)?;
        self.site("attend");
        let o = on.dot_grid(&[o.into_vectors()], &[vec![inverse]])?;
        let o = o.into_iter().flatten().collect();
        Ok(Pairs::from_vectors(layer.layout, o, width))
    }

    /// The columns as the maps read them.
    fn inputs<'x>(&self, x: &'x Acts<S::Value>) -> Inputs<'x, S::Value> {
        Inputs::of(&x.columns, self.layer.placement.pairs)
    }

    /// Projects a part from the columns.
    fn project(&self, part: Part, x: Inputs<'_, S::Value>) -> Result<Vec<S::Value>, FheError> {
        let on = self.on;
        let (limbs, target) = match part {
            Part::Value(_) => self.values()?,
            _ => (None, on.default_scale()),
        };
        let conjugate = matches!(part, Part::Key(_));
        x.linear_in_pairs(on, &self.map(part), (limbs, target), conjugate)
    }

    /// The rows of a map that give a part, those of a pair side by side: for queries and keys (i, i + d'/2) or adjacent
    /// columns, as the model turns them; for values adjacent columns.
    fn map(&self, part: Part) -> LinearMap {
        let heads = &self.layer.block.heads;
        let of = |map: &LinearMap, head: usize| map.rows(head * heads.width..(head + 1) * heads.width);
        let turned = |map: LinearMap| match &self.layer.block.rope {
            Some(rope) => {
                let pairs = (0..heads.width / 2).map(|i| rope.pair(i, heads.width));
                map.picked(pairs.flat_map(|(a, b)| [a, b]))
            }
            None => map,
        };
        let map = match part {
            Part::Query(h) => {
                let (factor, widest) = self.factor(h / heads.shared().max(1));
                turned(of(&self.query, h)).times(factor * (widest / self.weighing.half(h)))
            }
            Part::Key(group) => turned(of(&self.key, group)).times(self.factor(group).0),
            Part::Value(group) => of(&self.value, group),
        };
        map.bounded()
    }

    /// √(factor of the scores over half the length of their interval), for the widest interval of the heads that share
    /// these keys, and that half.
    fn factor(&self, group: usize) -> (f64, f64) {
        let heads = &self.layer.block.heads;
        let all = (group * heads.shared()..).take(heads.shared());
        let widest = all.map(|h| self.weighing.half(h)).fold(0.0, f64::max);
        ((heads.scale / widest).sqrt(), widest)
    }

    /// The primes of the columns that V is computed from, and its scale. With a sigmoid P·V is then at half of the
    /// scale that the output takes.
    fn values(&self) -> Result<(Option<usize>, Scale), FheError> {
        let (on, weights) = (self.on, self.limbs.weights);
        let factor = match &self.weighing {
            Weighing::Sigmoid(_) => 0.5 * self.output.operands(),
            // The last factor corrects it.
            Weighing::Softmax(..) => 1.0,
        };
        let target = self.weighing.value_scale(on, weights, factor)?;
        Ok((Some(above(on, weights)?), target))
    }

    /// Adds the part of head `h` to the sums of the output map.
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
