//! The attention of a layer: from refreshed columns to centred columns that the norm after it takes (MOAI, Algorithms
//! 2, 3, 9, 4).
//!
//! | step | primes of a vector | what is in its factors |
//! |---|---|---|
//! | Q, K of a head: one map of 2·dh rows; in pairs from there on | l − 1 | gain and offset of the norm before; 1/√dh and the argument of the exponential, half of it in each; no bias of K |
//! | Q·Kᵀ, the real parts of m diagonals | l − 2 | padding: [`crate::ops::key_mask`] |
//! | p, y, e: [`crate::ops::softmax`] | min(l − 6, s − k) − 2 = e | |
//! | V, projected where it is used, in pairs | e | gain of the norm before; no bias |
//! | P·V | e − 1 | |
//! | × 1/Σe, on dh/2 pairs instead of m diagonals | min(e − 1, s − k') − 1 | |
//! | output, of parted pairs | one fewer | κ and the centring of the norm after; the bias of V, which weights that sum to 1 let through |
//!
//! With l = 14 levels, s = 14, k = 8 or 7 and k' ≤ 10: 14, 13, 12, 8 | 5, 4 | 3, 2, 1 or 6, 5 | 4, 3, 2.
//!
//! A head with a fixed pattern ("the row before") is a rotation of V and two masks.
//!
//! *Memory.* Heads go in groups whose sums share bootstraps; a group's exponentials wait for them, all else of a head
//! is gone before the next. What is alive at the worst moment, when the last head of a group makes its scores, at N =
//! 2^16, 384 columns, 12 heads in pairs, m = 128 and 8 baby steps, besides the keys: 6.8 GiB of columns, 2.1 of rotated
//! keys, 1.5 of queries, their rotations and decompositions, 3 of exponentials, 2.3 of the output's sums: 15.6 GiB,
//! which a test counts. 4 baby steps take 14.5 GiB, and half as many rotations more; heads one at a time take 1.5 GiB
//! less, and twice the bootstraps of sums.
//!
//! [`attention_stored`] holds neither columns nor sums of the output beside the heads: queries, keys and values of all
//! heads are made while nothing else is alive, and wait on disk, as does what each head gives. Of the columns it keeps
//! what the residual sum reads, on disk too.

use hushed_ckks::Scale;
use hushed_model::{Attention, StepId, same};
use rayon::prelude::*;

use crate::choices::{AttentionChoice, HeadChoice, NormChoice};
use crate::error::FheError;
use crate::ops::acts::{Acts, StoredActs, centred};
use crate::ops::key_mask::KeyMask;
use crate::ops::mask::RowsKnown;
use crate::ops::norm::{above, below, centred_scale, divisor, scale_of};
use crate::ops::softmax::{Softmax, Weights, weight_scale, weights};
use crate::packing::products::{attend, scores_with};
use crate::packing::{Columns, Diagonals, Interleave, PackingError, Pairs};
use crate::plan::placement::Placement;
use crate::slots::Slots;
use hushed_lower::LinearMap;

/// Columns that are copied at a time to the lower level at which V is projected.
const NARROW_BLOCK: usize = 64;

/// Rows of the maps of queries and keys that are applied at a time: an even number, as their results go in pairs.
const PROJECTED: usize = 32;

/// An attention block of a run: the model's layer, what was calibrated for it, and where the plan places it.
pub struct AttentionLayer<'a, V> {
    /// The step it runs under.
    pub at: StepId,
    /// Weights and shapes of the model.
    pub block: &'a Attention,
    /// Intervals and degrees of its heads.
    pub choice: &'a AttentionChoice,
    /// Of the norm after it, whose κ is in the output's map.
    pub norm: &'a NormChoice,
    /// Rows that hold tokens.
    pub rows: &'a RowsKnown<V>,
    /// Baby steps, heads at a time, primes of refreshed sums.
    pub placement: &'a Placement,
}

/// κ·(y − mean of y) by columns, y the attention's output with its biases, at the scale [`centred_scale`] of the level
/// it ends at.
///
/// # Errors
/// Another number of heads or columns than the choices or the layer have; too few levels; where values are visible,
/// [`FheError::Range`] for sums outside their intervals.
pub fn attention<S: Slots>(
    on: &S,
    x: &Acts<S::Value>,
    layer: &AttentionLayer<'_, S::Value>,
) -> Result<Vec<S::Value>, FheError> {
    let run = Run::new(on, x, layer)?;
    run.all(Source::Columns(&x.columns), Output::new(&run, false)?)
}

/// As [`attention`], bit for bit, with less in memory: queries, keys and values of all heads are made first and
/// spilled, so that the columns are dropped before the scores. Returned beside the result: the primes of the columns
/// that the residual sum reads, spilled as well.
///
/// # Errors
/// As [`attention`] and [`Slots::store`].
pub fn attention_stored<S: Slots>(
    on: &S,
    x: Acts<S::Value>,
    layer: &AttentionLayer<'_, S::Value>,
) -> Result<(Vec<S::Value>, StoredActs<S>), FheError> {
    let run = Run::new(on, &x, layer)?;
    let source = run.stored(&x.columns)?;
    // As much as the residual sum reads.
    let limbs = above(on, below(on, run.limbs.heads, 1)?)?;
    run.site("kept");
    let kept = StoredActs::new(on, x, limbs)?;
    Ok((run.all(source, Output::new(&run, true)?)?, kept))
}

/// Primes of a layer's vectors.
struct Limbs {
    /// P and V where they are multiplied.
    values: usize,
    /// What the output's map takes.
    heads: usize,
}

impl Limbs {
    fn new<S: Slots>(
        on: &S,
        columns: usize,
        softmax: Option<&Softmax>,
        degree: usize,
        statistics: usize,
    ) -> Result<Limbs, FheError> {
        let diagonals = below(on, columns, 2)?;
        let Some(softmax) = softmax else {
            // Only fixed patterns: where exponentials would end.
            let depth = (degree + 1).next_power_of_two().trailing_zeros() as usize;
            let heads = below(on, diagonals, depth)?;
            let values = above(on, heads)?;
            return Ok(Limbs { values, heads });
        };
        let p = below(on, diagonals, softmax.exponential_levels())?;
        let values = below(
            on,
            p.min(below(on, statistics, softmax.first().levels())?),
            2,
        )?;
        let attended = below(on, values, 1)?;
        let inverse = below(on, statistics, softmax.second().levels())?;
        let heads = below(on, attended.min(inverse), 1)?;
        Ok(Limbs { values, heads })
    }
}

/// The maps of a layer, gains and offsets in them.
struct Maps {
    query: LinearMap,
    /// Without its bias, which no softmax sees.
    key: LinearMap,
    /// Without its bias, which is in the output's.
    value: LinearMap,
    output: LinearMap,
}

impl Maps {
    fn new<S: Slots>(
        on: &S,
        at: StepId,
        x: &Acts<S::Value>,
        layer: &Attention,
        kappa: f64,
    ) -> Result<Maps, FheError> {
        let inner = layer.heads.count * layer.heads.width;
        let query = x.folded(on, at.part("query"), &layer.query)?;
        let mut key = x.folded(on, at.part("key"), &layer.key)?;
        let mut value = x.folded(on, at.part("value"), &layer.value)?;
        let at = at.part("output");
        for map in [&query, &key, &value] {
            same(at, "columns of all heads", map.rows, inner)?;
        }
        same(at, "columns of all heads", layer.output.inputs, inner)?;
        let mut output = centred(on, at, &layer.output, kappa)?;
        key.bias = None;
        let through = value.bias.take().unwrap_or_default();
        let rows = output.weights.chunks_exact(inner.max(1));
        if let Some(bias) = &mut output.bias {
            for (bias, row) in bias.iter_mut().zip(rows) {
                *bias += row.iter().zip(&through).map(|(w, b)| w * b).sum::<f64>();
            }
        }
        Ok(Maps {
            query,
            key,
            value,
            output,
        })
    }
}

/// One layer over one batch.
struct Run<'a, S: Slots> {
    on: &'a S,
    layer: &'a AttentionLayer<'a, S::Value>,
    /// dh.
    width: usize,
    layout: Interleave,
    maps: Maps,
    keys: KeyMask<'a, S::Value>,
    softmaxes: Vec<Option<Softmax>>,
    /// Primes of the columns.
    columns: usize,
    limbs: Limbs,
}

/// What the heads are made of.
enum Source<'a, S: Slots> {
    /// The columns: a head's queries, keys and values are made when it is their turn.
    Columns(&'a [S::Value]),
    /// Made before, head by head, and put away in pairs.
    Stored {
        /// Queries, then keys, in the blocks in which they were made.
        query_key: Vec<Vec<S::Stored>>,
        values: Vec<Option<S::Stored>>,
    },
}

impl<'a, S: Slots> Run<'a, S> {
    fn new(
        on: &'a S,
        x: &Acts<S::Value>,
        layer: &'a AttentionLayer<'a, S::Value>,
    ) -> Result<Self, FheError> {
        let AttentionLayer {
            at, block, choice, ..
        } = *layer;
        let maps = Maps::new(on, at, x, block, layer.norm.scale)?;
        on.at(at.part("rows"));
        let keys = KeyMask::new(on, layer.rows)?;
        let columns = x.columns.first().map_or(on.top(), |v| on.limbs(v));
        let (given, count) = (choice.heads.len(), block.heads.count);
        same(at, "heads of the calibration", given, count)?;
        let mut softmaxes: Vec<Option<Softmax>> = Vec::with_capacity(count);
        for head in &choice.heads {
            let before = softmaxes.iter().flatten().next();
            let softmax = match (head, before.filter(|_| on.only_shapes())) {
                (HeadChoice::Previous, _) => None,
                (_, Some(like)) => Some(Softmax::of(like.polynomial().clone(), head, choice)?),
                (_, None) => Some(Softmax::new(head, choice)?),
            };
            let number = softmaxes.len();
            softmaxes.push(softmax.map(|softmax| softmax.of_head(number)));
        }
        let any = softmaxes.iter().flatten().next();
        let statistics = layer.placement.statistics;
        let limbs = Limbs::new(on, columns, any, choice.degree, statistics)?;
        Ok(Run {
            on,
            layer,
            width: block.heads.width,
            layout: layer.rows.layout(),
            maps,
            keys,
            softmaxes,
            columns,
            limbs,
        })
    }

    fn site(&self, step: &'static str) {
        self.on.at(self.layer.at.part(step));
    }

    /// The heads that have a softmax, with it.
    fn learned(&self) -> Vec<(usize, &Softmax)> {
        let heads = self.softmaxes.iter().enumerate();
        heads
            .filter_map(|(h, softmax)| Some((h, softmax.as_ref()?)))
            .collect()
    }

    /// The others.
    fn fixed(&self) -> Vec<usize> {
        let heads = self.softmaxes.iter().enumerate();
        heads
            .filter_map(|(h, softmax)| softmax.is_none().then_some(h))
            .collect()
    }

    /// All heads and the output's map.
    fn all(
        &self,
        mut source: Source<'_, S>,
        mut output: Output<'_, S>,
    ) -> Result<Vec<S::Value>, FheError> {
        let together = self.layer.placement.heads_together.max(1);
        for heads in self.learned().chunks(together) {
            self.learned_heads(heads, &mut source, &mut output)?;
        }
        for heads in self.fixed().chunks(together) {
            self.fixed_heads(heads, &mut source, &mut output)?;
        }
        output.finish()
    }

    /// Queries, keys and values of all heads, in the order and groups in which [`Run::all`] takes them, put away.
    fn stored<'s>(&self, x: &[S::Value]) -> Result<Source<'s, S>, FheError> {
        let count = self.softmaxes.len();
        let mut query_key: Vec<Vec<S::Stored>> = (0..count).map(|_| Vec::new()).collect();
        let mut values: Vec<Option<S::Stored>> = (0..count).map(|_| None).collect();
        let learned = self.learned();
        for &(h, softmax) in &learned {
            let mut blocks = Vec::new();
            self.queries_and_keys(h, softmax, x, |_, pairs| {
                blocks.push(self.on.store(pairs)?);
                Ok(())
            })?;
            if let Some(place) = query_key.get_mut(h) {
                *place = blocks;
            }
        }
        let together = self.layer.placement.heads_together.max(1);
        let unit = self.on.default_scale();
        let mut put = |heads: &[usize], limbs: usize, target: Scale| -> Result<(), FheError> {
            let made = self.project(heads, x, limbs, target)?;
            for (&h, made) in heads.iter().zip(made) {
                if let Some(value) = values.get_mut(h) {
                    *value = Some(self.on.store(made.into_vectors())?);
                }
            }
            Ok(())
        };
        for heads in learned.chunks(together) {
            let target = self.value_scale(heads)?;
            let heads: Vec<usize> = heads.iter().map(|&(h, _)| h).collect();
            put(&heads, self.limbs.values, target)?;
        }
        for heads in self.fixed().chunks(together) {
            put(heads, above(self.on, self.limbs.heads)?, unit)?;
        }
        Ok(Source::Stored { query_key, values })
    }

    /// A group of heads with a softmax each.
    fn learned_heads(
        &self,
        heads: &[(usize, &Softmax)],
        source: &mut Source<'_, S>,
        output: &mut Output<'_, S>,
    ) -> Result<(), FheError> {
        let mut exponentials = Vec::with_capacity(heads.len());
        for &(h, softmax) in heads {
            exponentials.push((softmax, self.exponentials(h, softmax, source)?));
        }
        self.site("weigh");
        let (on, at) = (self.on, self.layer.at.part("weigh"));
        let weights = weights(
            on,
            at,
            exponentials,
            &self.keys,
            self.layer.placement.statistics,
        )?;
        let which: Vec<usize> = heads.iter().map(|&(h, _)| h).collect();
        let target = self.value_scale(heads)?;
        let mut values = self.values(&which, source, self.limbs.values, target)?;
        for (&(h, softmax), w) in heads.iter().zip(weights) {
            let columns = self.attended(softmax, w, values.next(self, h)?)?;
            output.add(h, columns)?;
        }
        Ok(())
    }

    /// The map of the queries and keys of head `h`, and the scale of its results.
    fn query_key(&self, h: usize, softmax: &Softmax) -> Result<(LinearMap, Scale), FheError> {
        let (on, dh) = (self.on, self.width);
        let (factor, _) = softmax.argument();
        let range = h * dh..(h + 1) * dh;
        // 1/√dh.
        let scale = self.layer.block.heads.scale;
        // Half of the factor in each, so that one bound serves both.
        let half = (factor * scale.abs()).sqrt();
        let query = self.maps.query.rows(range.clone());
        let query = query.times(half.copysign(scale));
        let map = LinearMap::stacked(vec![query, self.maps.key.rows(range).times(half)]).bounded();
        let limbs = below(on, self.columns, 1)?;
        // Arguments at twice what their first square is divided by; real parts double the scale themselves.
        let wanted = divisor(on, below(on, limbs, 1)?)? * divisor(on, limbs)?;
        Ok((map, scale_of(wanted.sqrt())?))
    }

    /// Queries of head `h` in pairs, then its keys in conjugate ones, [`PROJECTED`] columns at a time.
    fn queries_and_keys(
        &self,
        h: usize,
        softmax: &Softmax,
        x: &[S::Value],
        mut put: impl FnMut(Side, Vec<S::Value>) -> Result<(), FheError>,
    ) -> Result<(), FheError> {
        let (map, scale) = self.query_key(h, softmax)?;
        let (queries, keys) = (0..self.width, self.width..map.rows);
        for (range, side) in [(queries, Side::Queries), (keys, Side::Keys)] {
            for from in range.clone().step_by(PROJECTED) {
                let to = range.end.min(from + PROJECTED);
                self.site("query_key");
                let made = self.on.linear(&map.rows(from..to), x, scale)?;
                put(side, self.paired(made, side)?.into_vectors())?;
            }
        }
        Ok(())
    }

    /// p of head `h`, diagonal by diagonal.
    fn exponentials(
        &self,
        h: usize,
        softmax: &Softmax,
        source: &mut Source<'_, S>,
    ) -> Result<Vec<S::Value>, FheError> {
        let (on, keys, offset) = (self.on, &self.keys, softmax.argument().1);
        let (mut q, mut k) = (Vec::new(), Vec::new());
        match source {
            Source::Columns(x) => self.queries_and_keys(h, softmax, x, |side, pairs| {
                match side {
                    Side::Queries => q.extend(pairs),
                    Side::Keys => k.extend(pairs),
                }
                Ok(())
            })?,
            Source::Stored { query_key, .. } => {
                self.site("query_key");
                let blocks = query_key.get_mut(h).map(std::mem::take).unwrap_or_default();
                for block in blocks {
                    q.extend(on.load(block)?);
                }
                k = q.split_off(q.len() / 2);
            }
        }
        let [mut q, mut k] = [q, k].map(|x| Pairs::from_vectors(self.layout, x, self.width));
        if let (Some(first), Some(key)) = (q.vectors().first(), k.vectors().first())
            && let Some((one, rows)) = keys.columns(on, first, key, offset)?
        {
            q.push(one);
            k.push(rows);
        }
        self.site("scores");
        scores_with(
            on,
            &q,
            k,
            self.layer.placement.scores_baby,
            |first, diagonals| {
                self.site("weigh");
                let one = |(i, s)| {
                    let t = keys.argument(on, first + i, s, offset)?;
                    softmax.exponential(on, first + i, &t)
                };
                let p = diagonals.into_par_iter().enumerate().map(one);
                let p = p.collect::<Result<Vec<_>, FheError>>();
                self.site("scores");
                p
            },
        )
    }

    /// P·V and the last factor of P: pairs at half of the default scale, which parting them doubles.
    fn attended(
        &self,
        softmax: &Softmax,
        weights: Weights<S::Value>,
        v: Pairs<S::Value>,
    ) -> Result<Pairs<S::Value>, FheError> {
        let (on, width) = (self.on, v.width());
        self.site("weigh");
        let limbs = above(on, self.limbs.heads)?;
        let inverse = weights.inverse(on, softmax, scale_of(0.5 * divisor(on, limbs)?)?)?;
        let inverse = on.drop_to(&inverse, limbs)?;
        self.site("attend");
        let p = Diagonals::from_vectors(self.layout, weights.exponentials)?;
        let o = attend(on, p, v, self.layer.placement.attend_baby)?;
        let o = on.dot_grid(&[o.into_vectors()], &[vec![inverse]])?;
        let o = o.into_iter().flatten().collect();
        Ok(Pairs::from_vectors(self.layout, o, width))
    }

    /// Columns of a head two by two.
    fn paired(&self, columns: Vec<S::Value>, side: Side) -> Result<Pairs<S::Value>, FheError> {
        let columns = Columns::from_vectors(self.layout, columns);
        match side {
            Side::Queries => Pairs::new(self.on, columns),
            Side::Keys => Pairs::conjugate(self.on, columns),
        }
    }

    /// A group of heads in which row i attends to row i − 1, and row 0 to itself.
    fn fixed_heads(
        &self,
        heads: &[usize],
        source: &mut Source<'_, S>,
        output: &mut Output<'_, S>,
    ) -> Result<(), FheError> {
        let (on, layout, scale) = (self.on, self.layout, self.on.default_scale());
        // Parting pairs doubles it.
        let half = scale_of(0.5 * scale.value())?;
        let mut values = self.values(heads, source, above(on, self.limbs.heads)?, scale)?;
        let texts = layout.texts();
        let first = on.plain(|| {
            let mut first = vec![0.0; layout.slots()];
            first[..texts].fill(1.0);
            first
        });
        let later: Vec<f64> = first.iter().map(|f| 1.0 - f).collect();
        let back = layout.rotation(layout.rows() - 1);
        for &h in heads {
            let v = values.next(self, h)?;
            self.site("attend");
            let shift = |v: S::Value| -> Result<S::Value, FheError> {
                let mut sum = on.mul_vector(&v, &first, half)?;
                if back != 0 {
                    let before = on.rotate(&v, back)?;
                    on.add_assign(&mut sum, &on.mul_vector(&before, &later, half)?)?;
                }
                Ok(sum)
            };
            let width = v.width();
            let pairs = v.into_vectors().into_par_iter().map(shift);
            let pairs = pairs.collect::<Result<Vec<_>, FheError>>()?;
            output.add(h, Pairs::from_vectors(layout, pairs, width))?;
        }
        Ok(())
    }

    /// The scale of V that brings P·V to the default scale.
    fn value_scale(&self, heads: &[(usize, &Softmax)]) -> Result<Scale, FheError> {
        let on = self.on;
        let wanted = on.default_scale().value() * divisor(on, self.limbs.values)?;
        let softmaxes = heads.iter().map(|&(_, softmax)| softmax);
        scale_of(wanted / weight_scale(on, softmaxes)?.value())
    }

    /// V of some heads: made from the columns, all at once, or where they were put away.
    fn values<'s>(
        &self,
        heads: &[usize],
        source: &'s mut Source<'_, S>,
        limbs: usize,
        target: Scale,
    ) -> Result<Values<'s, S>, FheError> {
        Ok(match source {
            Source::Columns(x) => Values::Made(self.project(heads, x, limbs, target)?.into_iter()),
            Source::Stored { values, .. } => Values::Stored(values),
        })
    }

    /// V of some heads without biases, with `limbs` primes at `target`.
    fn project(
        &self,
        heads: &[usize],
        x: &[S::Value],
        limbs: usize,
        target: Scale,
    ) -> Result<Vec<Pairs<S::Value>>, FheError> {
        let (on, dh) = (self.on, self.width);
        self.site("value");
        let maps: Vec<LinearMap> = heads
            .iter()
            .map(|&h| self.maps.value.rows(h * dh..(h + 1) * dh))
            .collect();
        let map = LinearMap::stacked(maps).bounded();
        let from = above(on, limbs)?;
        let mut partial = None;
        for (number, block) in x.chunks(NARROW_BLOCK).enumerate() {
            let low = block.par_iter().map(|v| on.drop_to(v, from));
            let low = low.collect::<Result<Vec<_>, FheError>>()?;
            let start = number * NARROW_BLOCK;
            let part = map.columns(start..start + low.len());
            partial = Some(on.linear_add(&part, &low, target, partial)?);
        }
        let all = on.linear_finish(partial.ok_or(PackingError::Mismatch)?)?;
        let mut all = all.into_iter();
        let head = |_| self.paired(all.by_ref().take(dh).collect(), Side::Queries);
        heads.iter().map(head).collect()
    }
}

/// Which side of a product pairs are for.
#[derive(Clone, Copy)]
enum Side {
    /// The left one, and values.
    Queries,
    /// The right one.
    Keys,
}

/// V of a group of heads.
enum Values<'a, S: Slots> {
    Made(std::vec::IntoIter<Pairs<S::Value>>),
    Stored(&'a mut [Option<S::Stored>]),
}

impl<S: Slots> Values<'_, S> {
    /// Of head `h`, the next of its group.
    fn next(&mut self, run: &Run<'_, S>, h: usize) -> Result<Pairs<S::Value>, FheError> {
        let found = match self {
            Values::Made(values) => values.next(),
            Values::Stored(values) => {
                run.site("value");
                let stored = values.get_mut(h).and_then(Option::take);
                let pairs = stored.map(|v| run.on.load(v)).transpose()?;
                pairs.map(|v| Pairs::from_vectors(run.layout, v, run.width))
            }
        };
        Ok(found.ok_or(PackingError::Mismatch)?)
    }
}

/// The output's map, head after head.
struct Output<'a, S: Slots> {
    run: &'a Run<'a, S>,
    target: Scale,
    partial: Option<S::Partial>,
    /// What heads gave, where it waits on disk until all have: the map's sums are as many as the columns.
    waiting: Option<Vec<(usize, S::Stored)>>,
}

impl<'a, S: Slots> Output<'a, S> {
    fn new(run: &'a Run<'a, S>, stored: bool) -> Result<Self, FheError> {
        Ok(Output {
            target: centred_scale(run.on, below(run.on, run.limbs.heads, 1)?)?,
            run,
            partial: None,
            waiting: stored.then(Vec::new),
        })
    }

    /// Takes what head `h` gave.
    fn add(&mut self, h: usize, pairs: Pairs<S::Value>) -> Result<(), FheError> {
        self.run.site("output");
        match &mut self.waiting {
            Some(waiting) => waiting.push((h, self.run.on.store(pairs.into_vectors())?)),
            None => self.multiply(h, pairs)?,
        }
        Ok(())
    }

    /// The part of head `h`; the first one brings the biases.
    fn multiply(&mut self, h: usize, pairs: Pairs<S::Value>) -> Result<(), FheError> {
        let run = self.run;
        let columns = pairs.parted(run.on)?;
        let mut map = run.maps.output.columns(h * run.width..(h + 1) * run.width);
        if self.partial.is_none() {
            map.bias.clone_from(&run.maps.output.bias);
        }
        let partial = self.partial.take();
        let partial = run
            .on
            .linear_add(&map, columns.vectors(), self.target, partial)?;
        self.partial = Some(partial);
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<S::Value>, FheError> {
        self.run.site("output");
        for (h, stored) in self.waiting.take().unwrap_or_default() {
            let pairs = self.run.on.load(stored)?;
            let pairs = Pairs::from_vectors(self.run.layout, pairs, self.run.width);
            self.multiply(h, pairs)?;
        }
        match self.partial {
            Some(partial) => self.run.on.linear_finish(partial),
            None => Ok(Vec::new()),
        }
    }
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
