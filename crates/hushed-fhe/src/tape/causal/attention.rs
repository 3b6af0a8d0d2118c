//! Causal attention with a sigmoid (ENSI, §IV) or a softmax, in the frames of the giant steps.
//!
//! | step | primes of a vector | folded into it |
//! |---|---|---|
//! | Q, K of a head, in pairs | l − 1 | gain of the norm before; half in each: score factor, map of scores to [−1, 1] |
//! | rotated by giant and baby steps, then turned and masked: [`crate::ops::rope`] | l − 2 | the causal mask |
//! | Σ q'·k' and its real part, j = ab + r in the frame of ab | l − 3 | |
//! | masked scores, which are 0, to −1 | l − 3 | |
//! | σ, a polynomial that is 0 at −1: [`crate::ops::sigmoid`] | l − 3 − ⌈log2(degree + 1)⌉ = e | |
//! | or the exponential, as many levels; normalised and squared | e − 2 = e' | |
//! | P·V, V projected where it is used, in pairs | e − 1; e' − 1 | gain of the norm before |
//! | for a softmax, times the inverse of the second sum | e' − 2 | |
//! | output, of pairs split into columns | one fewer; the same if ternary | 1/bound |
//! | the root of a norm before the output, if any: [`super::sums`] | one fewer | |
//!
//! Weights are functions of scores slot by slot, so they can be taken before the rotation that would bring a diagonal
//! home, and P·V needs them before it: no diagonal is rotated, neither home nor back. Key switches per head, besides
//! relinearisations, for p pairs: p·(b − 1) + p·(g − 1) rotations and m conjugations, then p·(b − 1) + p·(g − 1)
//! rotations and p conjugations. Plaintext products: (b + g + 1)·p. A softmax takes 3·(g − 1) more rotations, two
//! conjugations of its refreshed sums, and per layer b − 1 rotations and b + 1 plaintext products.
//!
//! A sigmoid's weights depend on no sum, so for long texts (m > p·b) P·V takes them as they are made, and no more than
//! a few giant steps of them are in memory.
//!
//! *Softmax.* As for encoders ([`crate::ops::softmax`]): p ≈ e^{s/2}, p/Σp, its square, and 1/Σ of the squares after
//! P·V. Sums are over the keys of a text up to the row, so padding has to be masked as well: by one more column of Q
//! and K, which carries the token rows R and the causal mask. All other scores are at −1, where p is 0. Sums are
//! rotated home frame by frame, and the first inverse back to the frames: 3·(g − 1) rotations per head. The sums of
//! rows before a text, which see no key, are set to 1:
//!
//! ```text
//! diagonal ab + r of t, in the frame of ab  =  s − 1 + (1 + c)·[causal]·Rot_r(R)
//! Σp  =  1 − R + Σ_a Rot_ab( Σ_r p )
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use hushed_lower::LinearMap;
use hushed_model::{Attention, Linear, StepId, Weigh, same};

use super::Frames;
use super::norm::RmsNorm;
use super::paired::Vectors;
use super::sums::{Form, Last, Sums};
use crate::choices::{ChoicesError, HeadChoice, ScoresChoice};
use crate::error::FheError;
use crate::ops::acts::reading;
use crate::ops::rope::{Turned, seen, turns};
use crate::ops::sigmoid::{Sigmoid, causal};
use crate::ops::softmax::{Softmax, highest};
use crate::packing::products::GIANTS;
use crate::slots::Slots;
use crate::tape::attention::refreshed;
use crate::tape::functions::SlotFunction;
use crate::tape::record::Recorder;
use crate::tape::{NodeId, Plain};

/// An attention block, and what was chosen for it.
pub(crate) struct CausalBlock<'a> {
    pub at: StepId,
    pub block: &'a Attention,
    pub choice: &'a ScoresChoice,
    /// The norm before the output map, if there is one.
    pub sub_norm: Option<RmsNorm<'a>>,
    /// On the residual sum.
    pub bound: f64,
    /// Heads whose sums are refreshed together.
    pub together: usize,
}

/// The functions from scores to weights of all heads.
enum Weighing {
    Sigmoid(Vec<Arc<Sigmoid>>),
    /// With 1 in rows of tokens.
    Softmax(Vec<Arc<Softmax>>, NodeId),
}

impl Weighing {
    fn new<S: Slots>(on: &S, layer: &CausalBlock<'_>, tokens: Option<NodeId>) -> Result<Self, FheError> {
        let CausalBlock { at, block, choice, .. } = *layer;
        same(at, "heads of the calibration", choice.heads(), block.heads.count)?;
        causal(at, block)?;
        match (block.weigh, choice) {
            (Weigh::Sigmoid { bias }, ScoresChoice::Sigmoid(choice)) => {
                let heads = Sigmoid::of_heads(on, block, bias, choice)?;
                Ok(Weighing::Sigmoid(heads.into_iter().map(Arc::new).collect()))
            }
            (Weigh::Softmax, ScoresChoice::Softmax(choice)) => {
                let tokens = tokens.ok_or_else(|| without_tokens(at))?;
                let head =
                    |(h, head): (usize, &HeadChoice)| Ok(Arc::new(Softmax::masked(on, head, choice)?.of_head(h)));
                let heads = choice.heads.iter().enumerate().map(head).collect::<Result<_, FheError>>()?;
                Ok(Weighing::Softmax(heads, tokens))
            }
            _ => {
                let what = format!("{at}: the calibration is for another function of scores");
                Err(ChoicesError::Unusable { what }.into())
            }
        }
    }

    /// Half the length of the interval of a head's scores that is mapped to [−1, 1].
    fn half(&self, head: usize) -> f64 {
        let half = match self {
            Weighing::Sigmoid(heads) => heads.get(head).map(|sigmoid| sigmoid.interval().half()),
            Weighing::Softmax(heads, _) => heads.get(head).map(|softmax| 1.0 / softmax.argument().0),
        };
        half.unwrap_or(1.0)
    }
}

/// The error of a softmax over texts of which the client sent no rows of tokens.
pub(crate) fn without_tokens(at: StepId) -> FheError {
    FheError::Unsupported {
        what: format!("{at}: softmax attention without the rows of tokens"),
        remedy: "a request of this plan has a vector of them",
    }
}

/// The keys of a head, turned and masked, a row for each pair.
#[derive(Clone, Copy)]
struct Keys {
    /// By baby step.
    rotated: NodeId,
    /// For the diagonal.
    diagonal: NodeId,
}

/// Takes the first diagonal of each frame, and the frame.
type EachFrames<'e> = &'e mut dyn FnMut(&mut Recorder, Vec<(usize, NodeId)>);

/// One block that is being recorded.
struct Run<'a> {
    f: &'a Frames,
    layer: &'a CausalBlock<'a>,
    x: Vectors,
    query: Arc<LinearMap>,
    key: Arc<LinearMap>,
    value: Arc<LinearMap>,
    weighing: Weighing,
}

/// The output of the block divided by the bound, by columns, from the normed columns x with these gains and offsets.
///
/// # Errors
/// [`FheError::Unsupported`] for a mask that is not causal; choices for another function, intervals without a fit.
pub(crate) fn attention<S: Slots>(
    t: &mut Recorder,
    on: &S,
    f: &Frames,
    (x, columns): (Vectors, (&[f64], &[f64])),
    layer: &CausalBlock<'_>,
) -> Result<NodeId, FheError> {
    let CausalBlock { at, block, sub_norm, bound, .. } = *layer;
    let output = at.part("output");
    let last = Last::divided(on, output, &block.output, (bound, sub_norm.as_ref()), Form::output(block))?;
    let run = Run::new(on, f, (x, columns), layer)?;
    let mut sums = Sums::new(t, last, sub_norm);
    run.heads(t, &mut |t, h, pairs| {
        let width = block.heads.width;
        t.at(output);
        let columns = t.parts(pairs, width);
        sums.add(t, h * width..(h + 1) * width, columns);
    });
    t.at(output);
    sums.finish(t, on)
}

impl<'a> Run<'a> {
    fn new<S: Slots>(
        on: &S,
        f: &'a Frames,
        (x, columns): (Vectors, (&[f64], &[f64])),
        layer: &'a CausalBlock<'a>,
    ) -> Result<Run<'a>, FheError> {
        let (at, block) = (layer.at, layer.block);
        let weighing = Weighing::new(on, layer, f.tokens)?;
        // Biases are zeros: a decoder with other biases is refused before it begins.
        let map = |part, w: &Linear| {
            on.map(at.part(part), || Ok(LinearMap { bias: None, ..reading(on, at.part(part), w, columns)? }))
        };
        let (query, key, value) = (map("query", &block.query)?, map("key", &block.key)?, map("value", &block.value)?);
        Ok(Run { f, layer, x, query, key, value, weighing })
    }

    /// Records the heads one after another: `each` takes the number of a head and its result, in pairs.
    fn heads(&self, t: &mut Recorder, each: &mut dyn FnMut(&mut Recorder, usize, NodeId)) {
        let heads = &self.layer.block.heads;
        let shared = heads.shared().max(1);
        let tokens = self.tokens(t);
        let (mut keys, mut values) = (None, BTreeMap::new());
        let mut keys_of = |t: &mut Recorder, h: usize| match keys {
            Some((group, keys)) if group == h / shared => keys,
            _ => {
                let made = self.keys(t, h / shared, tokens);
                keys = Some((h / shared, made));
                made
            }
        };
        let mut values_of =
            |t: &mut Recorder, h: usize| *values.entry(h / shared).or_insert_with(|| self.values(t, h / shared));
        let softmax = match &self.weighing {
            Weighing::Sigmoid(heads) => {
                for (h, sigmoid) in heads.iter().enumerate() {
                    let (keys, v) = (keys_of(t, h), values_of(t, h));
                    let raw = self.query(t, h);
                    let pairs = self.by_sigmoid(t, (h, sigmoid, raw), keys, v);
                    each(t, h, pairs);
                }
                return;
            }
            Weighing::Softmax(heads, tokens) => (heads, *tokens),
        };
        let (functions, rows) = softmax;
        // Heads that share values have weights of one scale.
        let high = highest(functions.iter().map(AsRef::as_ref));
        let functions: Vec<(usize, &Arc<Softmax>)> = functions.iter().enumerate().collect();
        for group in functions.chunks(self.layer.together.max(1)) {
            let mut scored = Vec::with_capacity(group.len());
            for &(h, softmax) in group {
                let keys = keys_of(t, h);
                let mut p = Vec::new();
                let raw = self.query(t, h);
                self.scores(t, (h, raw), keys, &mut |t, frames| {
                    t.at(self.layer.at.part("weigh"));
                    p.extend(frames.into_iter().map(|(giant, s)| {
                        let argument = t.add_numbers(s, vec![-1.0]);
                        t.within(argument, 1.0);
                        let softmax = Arc::clone(softmax);
                        let function = t.function(SlotFunction::Exponential { softmax, first: giant });
                        let p = t.apply(function, argument);
                        t.within(p, 1.0)
                    }));
                });
                scored.push((softmax, p));
            }
            let weighed = self.weights(t, scored, (rows, high));
            for (&(h, softmax), (e, sum)) in group.iter().zip(weighed) {
                let v = values_of(t, h);
                let o = self.attended(t, &e, v);
                t.at(self.layer.at.part("weigh"));
                let second = t.function(SlotFunction::SecondInverse(Arc::clone(softmax)));
                let inverse = t.apply(second, sum);
                t.at(self.layer.at.part("attend"));
                let o = t.dot(o, inverse);
                let o = t.turn(o);
                each(t, h, o);
            }
        }
    }

    /// The result of a head whose weights are sigmoids. P·V takes them as they are made if b rotations of V are fewer
    /// than the diagonals.
    fn by_sigmoid(
        &self,
        t: &mut Recorder,
        (h, sigmoid, raw): (usize, &Arc<Sigmoid>, NodeId),
        keys: Keys,
        v: NodeId,
    ) -> NodeId {
        let (columns, b) = (&self.f.columns, self.f.baby());
        let streams = columns.rows() > t.count(v) * b;
        let rotated = streams.then(|| {
            t.at(self.layer.at.part("attend"));
            columns.turned_values(t, v)
        });
        let (mut all, mut sum) = (Vec::new(), None);
        self.scores(t, (h, raw), keys, &mut |t, frames| {
            let made: Vec<(usize, NodeId)> =
                frames.into_iter().map(|(giant, s)| (giant, self.sigmoids(t, sigmoid, giant, s))).collect();
            let Some(rotated) = rotated else {
                all.extend(made.into_iter().map(|(_, p)| p));
                return;
            };
            t.at(self.layer.at.part("attend"));
            let (giants, rows): (Vec<usize>, Vec<NodeId>) = made.into_iter().unzip();
            let left = stacked(t, &rows, b);
            let left = t.turn(left);
            let grid = t.dot(left, rotated);
            sum = Some(columns.homed(t, grid, &giants, sum));
        });
        sum.unwrap_or_else(|| self.attended(t, &all, v))
    }

    /// The weights of the scores of a frame: masked ones, which are 0, give 0.
    fn sigmoids(&self, t: &mut Recorder, sigmoid: &Arc<Sigmoid>, giant: usize, s: NodeId) -> NodeId {
        let (interval, layout) = (sigmoid.interval(), self.f.columns.texts.layout);
        let (m, texts) = (layout.rows(), layout.texts());
        let shift = |r: usize| {
            let shift = move |slot: usize| match seen(m, giant, r, slot / texts) {
                true => -interval.middle() / interval.half(),
                false => -1.0,
            };
            Plain::Numbers(Arc::new(move || (0..layout.slots()).map(shift).collect()))
        };
        let argument = t.add_vectors(s, (0..self.f.baby()).map(shift).collect());
        t.within(argument, 1.0);
        let function = t.function(SlotFunction::Sigmoid(Arc::clone(sigmoid)));
        t.apply(function, argument)
    }

    /// P·V with the weights of all frames, in pairs.
    fn attended(&self, t: &mut Recorder, weights: &[NodeId], v: NodeId) -> NodeId {
        t.at(self.layer.at.part("attend"));
        let left = stacked(t, weights, self.f.baby());
        let left = t.turn(left);
        self.f.columns.attend_turned(t, left, v)
    }

    /// The weights of heads taken together without their last factor, frame by frame, and the sum to divide by.
    fn weights(
        &self,
        t: &mut Recorder,
        heads: Vec<(&Arc<Softmax>, Vec<NodeId>)>,
        (tokens, high): (NodeId, f64),
    ) -> Vec<(Vec<NodeId>, NodeId)> {
        let (at, columns) = (self.layer.at.part("weigh"), &self.f.columns);
        t.at(at);
        let mut sums = Vec::with_capacity(heads.len());
        for (_, p) in &heads {
            let sum = self.over_frames(t, p, tokens);
            sums.push(t.within(sum, 1.0));
        }
        let sums = refreshed(t, at, "first_sum", &sums, 1.0);
        let back: Vec<usize> = self.f.giants().iter().map(|giant| columns.rotation(columns.rows() - giant)).collect();
        let (mut all, mut second) = (Vec::with_capacity(heads.len()), Vec::with_capacity(heads.len()));
        for ((softmax, p), sum) in heads.into_iter().zip(sums) {
            let first = t.function(SlotFunction::FirstInverse(Arc::clone(softmax)));
            let inverse = t.apply(first, sum);
            let frames = t.rotations(inverse, back.clone());
            let mut squares = Vec::with_capacity(p.len());
            for (a, p) in p.into_iter().enumerate() {
                let inverse = t.cut(frames, a..a + 1);
                let y = t.mul(p, inverse);
                t.within(y, 1.0);
                let e = t.mul(y, y);
                squares.push(t.within(e, 1.0));
            }
            let sum = self.over_frames(t, &squares, tokens);
            second.push(t.within(sum, high));
            all.push(squares);
        }
        let second = refreshed(t, at, "second_sum", &second, high);
        all.into_iter().zip(second).collect()
    }

    /// Sums each row over the diagonals, those of each frame home; rows that see no key get 1.
    fn over_frames(&self, t: &mut Recorder, frames: &[NodeId], tokens: NodeId) -> NodeId {
        let mut home = Vec::with_capacity(frames.len());
        for (&frame, giant) in frames.iter().zip(self.f.giants()) {
            let sum = t.total(&[frame]);
            home.push(self.f.columns.turned(t, sum, giant));
        }
        let sum = t.total(&home);
        let sum = t.add_numbers(sum, vec![1.0]);
        let real = t.scaled(tokens, vec![-1.0]);
        t.add(sum, real)
    }

    /// The scores of head `h` with these queries, diagonal by diagonal in the frames of a few giant steps at a
    /// time.
    fn scores(&self, t: &mut Recorder, (h, raw): (usize, NodeId), keys: Keys, each: EachFrames<'_>) {
        let (at, columns, b) = (self.layer.at, &self.f.columns, self.f.baby());
        for giants in self.f.giants().chunks(GIANTS) {
            t.at(at.part("rope"));
            let back = giants.iter().map(|giant| columns.rotation(columns.rows() - giant)).collect();
            let turned = t.rotations(raw, back);
            let which: Vec<Turned> = giants.iter().map(|&giant| Turned::Query(giant)).collect();
            let queries = self.queries(t, h, turned, &which);
            t.at(at.part("scores"));
            let grid = t.dot(queries, keys.rotated);
            let mut frames = Vec::with_capacity(giants.len());
            for (a, &giant) in giants.iter().enumerate() {
                let mut frame = t.row(grid, a);
                if giant == 0 {
                    // The diagonal is never masked.
                    let queries = self.queries(t, h, raw, &[Turned::DiagonalQuery]);
                    let first = t.dot(queries, keys.diagonal);
                    let rest = (b > 1).then(|| t.cut(frame, 1..b));
                    frame = t.join(&[first].into_iter().chain(rest).collect::<Vec<_>>());
                }
                frames.push((giant, t.real(frame)));
            }
            each(t, frames);
        }
    }

    /// Rotated queries, turned and masked, a row for each pair; for a softmax with one more row, a constant where the
    /// causal mask is 1.
    fn queries(&self, t: &mut Recorder, h: usize, rotated: NodeId, which: &[Turned]) -> NodeId {
        let turned = self.turned(t, rotated, true, which);
        let Weighing::Softmax(heads, tokens) = &self.weighing else {
            return stacked(t, &[turned], which.len());
        };
        let constant = 1.0 + heads.get(h).map_or(0.0, |softmax| softmax.argument().1);
        let mask = |&which: &Turned| {
            let (layout, heads, baby) = (self.f.columns.texts.layout, self.layer.block.heads, self.f.baby());
            Plain::Numbers(Arc::new(move || {
                turns(layout, &heads, None, 0, baby, which).iter().map(|z| constant * z.re).collect()
            }))
        };
        let zeros = t.scaled(*tokens, vec![0.0; which.len()]);
        let asking = t.add_vectors(zeros, which.iter().map(mask).collect());
        stacked(t, &[turned, asking], which.len())
    }

    /// The rows of tokens, as keys of a softmax.
    fn tokens(&self, t: &mut Recorder) -> Option<Keys> {
        let Weighing::Softmax(_, tokens) = self.weighing else { return None };
        t.at(self.layer.at.part("rows"));
        Some(self.turned_keys(t, tokens, false))
    }

    /// The conjugate keys of a key head, turned and masked, and the token rows.
    fn keys(&self, t: &mut Recorder, group: usize, tokens: Option<Keys>) -> Keys {
        let at = self.layer.at;
        t.at(at.part("query_key"));
        let map = self.turned_map(&self.key, group).times(self.factor(group).0).bounded();
        let raw = self.projected(t, map, true);
        t.at(at.part("rope"));
        let keys = self.turned_keys(t, raw, true);
        let Some(tokens) = tokens else { return keys };
        Keys {
            rotated: stacked(t, &[keys.rotated, tokens.rotated], self.f.baby()),
            diagonal: stacked(t, &[keys.diagonal, tokens.diagonal], 1),
        }
    }

    fn turned_keys(&self, t: &mut Recorder, raw: NodeId, rope: bool) -> Keys {
        let (columns, b) = (&self.f.columns, self.f.baby());
        let diagonal = self.turned(t, raw, rope, &[Turned::DiagonalKey]);
        let rotated = t.rotations(raw, (0..b).map(|r| columns.rotation(r)).collect());
        let which: Vec<Turned> = (0..b).map(Turned::Key).collect();
        Keys { rotated: self.turned(t, rotated, rope, &which), diagonal: stacked(t, &[diagonal], 1) }
    }

    /// Each pair times the plaintexts of its turns, or of masks alone without `rope`.
    fn turned(&self, t: &mut Recorder, x: NodeId, rope: bool, which: &[Turned]) -> NodeId {
        let (layout, block, baby) = (self.f.columns.texts.layout, self.layer.block, self.f.baby());
        let (heads, rope) = (block.heads, block.rope.filter(|_| rope));
        let pairs = t.count(x) / which.len().max(1);
        let plain = |i: usize, which: Turned| {
            Plain::Pairs(Arc::new(move || turns(layout, &heads, rope.as_ref(), i, baby, which)))
        };
        let all = (0..pairs).flat_map(|i| which.iter().map(move |&which| plain(i, which)));
        let all = all.collect();
        t.mul_vectors(x, all)
    }

    /// The queries of a head in pairs, those of a pair side by side.
    fn query(&self, t: &mut Recorder, h: usize) -> NodeId {
        t.at(self.layer.at.part("query_key"));
        let (factor, widest) = self.factor(h / self.layer.block.heads.shared().max(1));
        let map = self.turned_map(&self.query, h).times(factor * (widest / self.weighing.half(h)));
        self.projected(t, map.bounded(), false)
    }

    /// The values of a key head in pairs.
    fn values(&self, t: &mut Recorder, group: usize) -> NodeId {
        t.at(self.layer.at.part("value"));
        let width = self.layer.block.heads.width;
        let map = self.value.rows(group * width..(group + 1) * width).bounded();
        self.projected(t, map, false)
    }

    fn projected(&self, t: &mut Recorder, map: LinearMap, conjugate: bool) -> NodeId {
        let rows = 0..map.rows;
        let map = t.map(map);
        self.x.linear_in_pairs(t, map, rows, conjugate)
    }

    /// The rows of a head: columns (i, i + d'/2) or adjacent ones, as the model turns them.
    fn turned_map(&self, map: &LinearMap, head: usize) -> LinearMap {
        let width = self.layer.block.heads.width;
        let map = map.rows(head * width..(head + 1) * width);
        match &self.layer.block.rope {
            Some(rope) => {
                let pairs = (0..width / 2).map(|i| rope.pair(i, width));
                map.picked(pairs.flat_map(|(a, b)| [a, b]))
            }
            None => map,
        }
    }

    /// √(factor of the scores over half the length of their interval), for the widest interval of the heads that share
    /// these keys, and that half.
    fn factor(&self, group: usize) -> (f64, f64) {
        let heads = &self.layer.block.heads;
        let all = (group * heads.shared()..).take(heads.shared());
        let widest = all.map(|h| self.weighing.half(h)).fold(0.0, f64::max);
        ((heads.scale / widest).sqrt(), widest)
    }
}

/// The weights of head `h` of a sigmoid from its queries and conjugate keys, in pairs.
///
/// # Errors
/// As [`attention`].
#[cfg(test)]
pub(crate) fn weights_alone<S: Slots>(
    t: &mut Recorder,
    on: &S,
    f: &Frames,
    layer: &CausalBlock<'_>,
    (h, [query, key]): (usize, [NodeId; 2]),
) -> Result<NodeId, FheError> {
    let ones = vec![1.0; layer.block.query.inputs];
    let x = Vectors { node: query, paired: false };
    let run = Run::new(on, f, (x, (&ones, &vec![0.0; ones.len()])), layer)?;
    t.at(layer.at.part("rope"));
    let keys = run.turned_keys(t, key, true);
    let mut all = Vec::new();
    if let Weighing::Sigmoid(heads) = &run.weighing {
        run.scores(t, (h, query), keys, &mut |t, frames| {
            all.extend(frames.into_iter().map(|(giant, s)| run.sigmoids(t, &heads[h], giant, s)));
        });
    }
    Ok(t.join(&all))
}

/// Vectors as rows of this many.
fn stacked(t: &mut Recorder, parts: &[NodeId], columns: usize) -> NodeId {
    match parts {
        [one] if t.shape(*one).1 == columns => *one,
        _ => {
            let all = t.join(parts);
            t.split(all, columns)
        }
    }
}
