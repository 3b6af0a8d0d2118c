//! The intervals that approximations must cover: arguments of every softmax, activation and norm of an encrypted run.
//! Texts run through the circuit itself with exact functions instead of polynomials
//! ([`exact`](crate::Simulator::exact)), which records their arguments; norms are observed between steps.
//!
//! The circuit needs choices before there are any: those of [`open`] cover everything.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hushed_model::{Attention, Block, FeedForward, Kind, Matrix, Norm, Pool, Program, StepId, here};

use super::head::HeadArguments;
use crate::packing::Interleave;
use crate::simulate::{Vector, Watch};
use crate::tape::encoder::begins_with_norm;
use crate::{
    ActivationChoice, AttentionChoice, Choices, ClassifierChoice, FheError, Function, HeadChoice, Interval,
    LayerChoice, Look, NormChoice, Viewer,
};

/// The minimum and maximum of some numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    pub least: f64,
    pub greatest: f64,
}

impl Default for Span {
    fn default() -> Self {
        Span { least: f64::INFINITY, greatest: f64::NEG_INFINITY }
    }
}

impl Span {
    pub fn add(&mut self, value: f64) {
        self.least = self.least.min(value);
        self.greatest = self.greatest.max(value);
    }
}

/// Measurements of one head.
#[derive(Clone, Default)]
pub(super) struct HeadSeen {
    /// Scores of all queries with real keys.
    pub scores: Span,
    /// Row maxima of real queries.
    pub maxima: Span,
    /// ln Σ e^{s/2} over real keys, of all queries.
    pub first: Span,
    /// Σ (p/Σp)², of all queries.
    pub second: Span,
    /// Sum of the weights on the row before, from row 1 on, and their number.
    previous: (f64, usize),
}

impl HeadSeen {
    /// Adds a row's scores with the keys that it sees.
    pub fn row(&mut self, scores: &[f64]) {
        let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if scores.is_empty() {
            return;
        }
        scores.iter().for_each(|&s| self.scores.add(s));
        self.maxima.add(greatest);
        let half = |s: &f64| ((s - greatest) / 2.0).exp();
        let sum: f64 = scores.iter().map(half).sum();
        self.first.add(sum.ln() + greatest / 2.0);
        let squares = scores.iter().map(|s| (half(s) / sum).powi(2));
        self.second.add(squares.sum());
    }

    /// The mean weight of a row on the row before.
    pub fn previous(&self) -> f64 {
        self.previous.0 / self.previous.1.max(1) as f64
    }
}

/// Arguments of the activation in one hidden column.
#[derive(Clone, Default)]
pub(super) struct ColumnSeen {
    pub span: Span,
    count: usize,
    sum: f64,
    squares: f64,
}

impl ColumnSeen {
    pub fn add(&mut self, value: f64, ordinary: bool) {
        self.span.add(value);
        if !ordinary {
            return;
        }
        self.count += 1;
        self.sum += value;
        self.squares += value * value;
    }

    /// Mean and standard deviation over ordinary texts.
    pub fn bell(&self) -> (f64, f64) {
        let n = self.count.max(1) as f64;
        let mean = self.sum / n;
        (mean, (self.squares / n - mean * mean).max(0.0).sqrt())
    }
}

/// Measurements of one norm.
#[derive(Clone, Default)]
pub(super) struct NormSeen {
    /// Variances of rows whose results are used, except row 0.
    pub later: Span,
    /// Variances of row 0, if it is used.
    pub first: Span,
    /// Variances of all other rows, whose results are masked.
    pub masked: Span,
    /// Largest |x̂| in rows that are used.
    pub largest: f64,
}

impl NormSeen {
    fn see(&mut self, variance: f64, used: bool, row: usize) {
        match row {
            _ if !used => self.masked.add(variance),
            0 => self.first.add(variance),
            _ => self.later.add(variance),
        }
    }
}

/// Measurements of one layer.
#[derive(Clone, Default)]
pub(super) struct LayerSeen {
    pub heads: Vec<HeadSeen>,
    /// Arguments of the activation in all rows, one entry per column.
    pub columns: Vec<ColumnSeen>,
    /// The norms after attention and after feed-forward, or before each.
    pub norms: [NormSeen; 2],
    /// x̂ of row 0 after the layer, one entry per text.
    first_rows: Vec<Vec<f64>>,
}

impl LayerSeen {
    /// The mean of row 0 over texts (x̂), and the maximum distance of a text's row from it, relative to the mean's
    /// length.
    pub fn first_row(&self) -> (Vec<f64>, f64) {
        let width = self.first_rows.first().map_or(0, Vec::len);
        let share = 1.0 / self.first_rows.len().max(1) as f64;
        let mut mean = vec![0.0; width];
        for row in &self.first_rows {
            mean.iter_mut().zip(row).for_each(|(m, v)| *m += share * v);
        }
        let square = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>();
        let distance = |row: &Vec<f64>| {
            let apart: Vec<f64> = row.iter().zip(&mean).map(|(a, b)| a - b).collect();
            (square(&apart) / square(&mean).max(f64::MIN_POSITIVE)).sqrt()
        };
        let farthest = self.first_rows.iter().map(distance).fold(0.0, f64::max);
        (mean, farthest)
    }
}

/// The parts of a model that an encrypted run replaces.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Structure {
    /// x̂ of row 0 after each of the first layers, which replace it by these constants.
    pub frozen: Vec<Vec<f64>>,
    /// For each layer and head, whether it has the fixed pattern.
    pub fixed: Vec<Vec<bool>>,
}

impl Structure {
    /// Nothing replaced.
    pub fn none(program: &Program) -> Structure {
        let heads = program.attentions().map(|a| vec![false; a.heads.count]);
        Structure { frozen: Vec::new(), fixed: heads.collect() }
    }
}

/// Measurements of a model.
#[derive(Clone, Default)]
pub(super) struct Seen {
    pub layers: Vec<LayerSeen>,
    /// The norm after the layers, if they begin with norms.
    pub norm: NormSeen,
    pub head: HeadArguments,
}

impl Seen {
    pub fn nothing(program: &Program) -> Seen {
        let layers = blocks(program).map(|(heads, hidden)| LayerSeen {
            heads: vec![HeadSeen::default(); heads],
            columns: vec![ColumnSeen::default(); hidden],
            ..LayerSeen::default()
        });
        Seen { layers: layers.collect(), ..Seen::default() }
    }

    /// A norm, by its place among those of the layers and after them.
    fn norm(&mut self, place: usize) -> &mut NormSeen {
        match self.layers.get_mut(place / 2) {
            Some(layer) => &mut layer.norms[place % 2],
            None => &mut self.norm,
        }
    }
}

/// Heads and hidden columns of each layer; no columns if one linear layer replaces a feed-forward block.
fn blocks(program: &Program) -> impl Iterator<Item = (usize, usize)> {
    let sizes = |(a, f): (&Attention, Option<&FeedForward>)| (a.heads.count, f.map_or(0, |f| f.up.outputs));
    program.attentions().zip(program.feed_forwards()).map(sizes)
}

/// The norm at the end of a layer, or inside it if layers begin with norms: the one that a row is frozen after.
pub(super) fn second_norm(program: &Program, layer: usize) -> Option<&Norm> {
    let steps = program.layers().get(layer).cloned().and_then(|steps| program.steps().get(steps))?;
    let mut norms = steps.iter().filter_map(|step| match &step.block {
        Block::Norm(norm) => Some(norm),
        _ => None,
    });
    norms.nth(1)
}

/// With exact functions, scores are mapped to [−1, 1] from ±512: more than any model's, so that p of padding, e^{−512},
/// is negligible.
const SCORES: f64 = 512.0;

/// Choices that cover everything, with the lowest degrees: with exact functions, no polynomial is evaluated. x̂ is
/// within √d, and κ makes v the variance.
pub(super) fn open(program: &Program, structure: &Structure, rows: usize) -> Result<Choices, FheError> {
    let unit = Interval { low: 0.5, high: 1.0 };
    let softmax = HeadChoice::Softmax {
        scores: Interval { low: -SCORES, high: SCORES },
        least_maximum: SCORES,
        first: unit,
        second: unit,
    };
    let root = (program.width() as f64).sqrt();
    let norm = NormChoice { scale: 1.0 / root, low: unit.low, bound: root, seed: 1, steps: 0 };
    let layers = blocks(program).enumerate().map(|(i, (_, hidden))| {
        let head = |&fixed: &bool| match fixed {
            true => HeadChoice::Previous,
            false => softmax.clone(),
        };
        let frozen = structure.frozen.get(i);
        let frozen = frozen.zip(second_norm(program, i)).map(|(hats, norm)| values(hats, norm));
        Ok(LayerChoice {
            attention: AttentionChoice {
                degree: 1,
                first_steps: 1,
                second_steps: 1,
                heads: structure.fixed[i].iter().map(head).collect(),
            },
            attention_norm: norm.clone(),
            activation: ActivationChoice { degree: 1, columns: vec![unit.into(); hidden] },
            feed_forward_norm: norm.clone(),
            frozen_row: frozen.transpose()?,
        })
    });
    let classifier = program.classifier().map(|_| ClassifierChoice { degree: 3, reach: 1.0 });
    let layers = layers.collect::<Result<_, FheError>>()?;
    let mut choices = Choices::unnamed(rows, layers, classifier);
    choices.norm = begins_with_norm(program).then_some(norm);
    Ok(choices)
}

/// x̂ of a row of values after a norm. A column with gain 0 has its offset as its value for every x̂.
pub(super) fn hats(row: &[f64], norm: &Norm) -> Result<Vec<f64>, FheError> {
    let (gain, offset) = numbers(norm)?;
    let hat = |((v, &g), &b): ((&f64, &f32), &f32)| match g {
        0.0 => 0.0,
        g => (v - f64::from(b)) / f64::from(g),
    };
    Ok(row.iter().zip(gain).zip(offset).map(hat).collect())
}

/// The values of a row x̂ after a norm.
pub(super) fn values(hats: &[f64], norm: &Norm) -> Result<Vec<f64>, FheError> {
    let (gain, offset) = numbers(norm)?;
    let all = hats.iter().zip(gain).zip(offset);
    let value = |((x, &g), &b): ((&f64, &f32), &f32)| x * f64::from(g) + f64::from(b);
    Ok(all.map(value).collect())
}

fn numbers(norm: &Norm) -> Result<(&[f32], &[f32]), FheError> {
    let at = StepId::outside("norm");
    Ok((here(at, &norm.gain)?, here(at, &norm.offset)?))
}

/// Measures one batch of texts.
pub(super) struct Measure {
    layout: Interleave,
    /// Number of tokens of each text.
    lengths: Vec<usize>,
    /// Whether these texts are ordinary: means and deviations are of ordinary texts only.
    ordinary: bool,
    /// Number of layers whose row 0 is frozen.
    frozen: usize,
    /// The place of each norm among those of the layers and after them, and of the norm that reads each sum.
    norms: BTreeMap<StepId, usize>,
    /// Norms at the end of a layer.
    ends: Vec<StepId>,
    /// The norm of which first rows alone are read.
    first_only: Option<usize>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// One entry for all texts, or one per text.
    seen: Vec<Seen>,
    /// Heads between p and e of their softmax.
    heads: HashMap<(usize, usize), Rows>,
}

/// Values of one head per slot, which is per row.
struct Rows {
    /// The maximum score.
    maxima: Vec<f64>,
    /// p of the row before.
    before: Vec<f64>,
    /// Σp.
    sums: Vec<f64>,
}

impl Measure {
    /// Adds to earlier measurements, of all texts or of each.
    pub fn new(
        layout: Interleave,
        lengths: Vec<usize>,
        (seen, ordinary): (Vec<Seen>, bool),
        (program, structure): (&Program, &Structure),
    ) -> Arc<Measure> {
        let after = program.layers().last().map_or(0, |steps| steps.end);
        let (mut norms, mut ends, mut place) = (BTreeMap::new(), Vec::new(), 0);
        for (number, step) in program.steps().iter().enumerate().skip(program.before_layers().end) {
            norms.insert(step.id, place);
            if step.id.kind() == Kind::Norm {
                place += 1;
                ends.extend(program.layers().iter().any(|steps| steps.end == number + 1).then_some(step.id));
            }
        }
        let pooled = program.steps().iter().skip(after).any(|step| matches!(step.block, Block::Pool(Pool::First)));
        Arc::new(Measure {
            norms,
            ends,
            first_only: (pooled && begins_with_norm(program)).then(|| 2 * program.layers().len()),
            layout,
            lengths,
            ordinary,
            frozen: structure.frozen.len(),
            state: Mutex::new(State { seen, ..State::default() }),
        })
    }

    /// The measurements so far.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state().seen)
    }

    /// A viewer that measures norms.
    pub fn viewer(self: &Arc<Measure>) -> Viewer<'static, Vector> {
        let measure = Arc::clone(self);
        Box::new(move |at, look| {
            measure.look(at, look);
            Ok(())
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Text, row and slot of the token rows and of at most two padding rows: all others equal the second.
    fn rows(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let rows = self.layout.rows();
        let texts = self.lengths.iter().enumerate();
        texts.flat_map(move |(text, &real)| {
            (0..rows.min(real + 2)).map(move |row| (text, row, self.layout.slot(text, row)))
        })
    }

    /// Whether the result of a norm is read in a row of a text.
    fn used(&self, norm: usize, text: usize, row: usize) -> bool {
        let kept = match row {
            0 => norm / 2 >= self.frozen,
            _ => self.first_only != Some(norm),
        };
        kept && row < self.lengths[text]
    }

    /// The rows that a client sends, where a norm reads them.
    pub fn sent(&self, texts: &[Matrix<f64>]) {
        let mut state = self.state();
        for (text, x) in texts.iter().enumerate() {
            for row in 0..x.rows() {
                let numbers = x.row(row);
                let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
                let variance = numbers.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / numbers.len() as f64;
                state.of(text).norm(0).see(variance, self.used(0, text, row), row);
            }
        }
    }

    fn look(&self, at: StepId, look: Look<'_, Vector>) {
        let Some(&place) = self.norms.get(&at) else { return };
        let mut state = self.state();
        match (at.kind(), look) {
            (Kind::Add, Look::Centred { columns, scale }) => {
                let mut squares = vec![0.0; self.layout.slots()];
                for column in columns {
                    let slots = squares.iter_mut().zip(column.values());
                    slots.for_each(|(sum, v)| *sum += v * v);
                }
                for (text, row, slot) in self.rows() {
                    let variance = squares[slot] / (scale * scale * columns.len() as f64);
                    state.of(text).norm(place).see(variance, self.used(place, text, row), row);
                }
            }
            (Kind::Norm, Look::Columns { columns, gain, .. }) => {
                let bound = (gain.len() as f64).sqrt();
                let hat = |column: &Vector, slot: usize| bound * column.values()[slot];
                for (text, _, slot) in self.rows().filter(|&(text, row, _)| self.used(place, text, row)) {
                    let norm = state.of(text).norm(place);
                    let all = columns.iter().map(|c| hat(c, slot).abs());
                    norm.largest = all.fold(norm.largest, f64::max);
                }
                if let (Some(layer), true) = (at.layer(), self.ordinary && self.ends.contains(&at)) {
                    for text in 0..self.lengths.len() {
                        let slot = self.layout.slot(text, 0);
                        let row = columns.iter().map(|c| hat(c, slot)).collect();
                        state.of(text).layers[layer].first_rows.push(row);
                    }
                }
            }
            _ => (),
        }
    }

    fn scores(&self, at: (usize, usize), p: &Function, diagonal: usize, arguments: &[f64]) {
        let m = self.layout.rows();
        let key = |text: usize, row: usize| (row + diagonal) % m < self.lengths[text];
        let real = self.rows().filter(|&(text, row, _)| key(text, row));
        let mut state = self.state();
        let nothing =
            || Rows { maxima: vec![f64::NEG_INFINITY; arguments.len()], before: Vec::new(), sums: Vec::new() };
        let mut rows = state.heads.remove(&at).unwrap_or_else(nothing);
        for (text, _, slot) in real {
            let score = p.argument(arguments[slot]);
            rows.maxima[slot] = rows.maxima[slot].max(score);
            state.head(text, at).scores.add(score);
        }
        if diagonal == m - 1 {
            rows.before = arguments.iter().map(|&t| p.exact(t)).collect();
        }
        state.heads.insert(at, rows);
    }

    /// Records the sums of p.
    fn first(&self, at: (usize, usize), scores: Interval, sums: &[f64]) {
        let mut state = self.state();
        for (text, _, slot) in self.rows() {
            let ln = sums[slot].ln() + scores.high / 2.0;
            state.head(text, at).first.add(ln);
        }
        if let Some(rows) = state.heads.get_mut(&at) {
            rows.sums = sums.to_vec();
        }
    }

    /// Records the sums of e, which end a head's softmax.
    fn second(&self, at: (usize, usize), sums: &[f64]) {
        let mut state = self.state();
        let rows = state.heads.remove(&at);
        for (text, row, slot) in self.rows() {
            let seen = state.head(text, at);
            seen.second.add(sums[slot]);
            let Some(rows) = rows.as_ref().filter(|_| row < self.lengths[text]) else {
                continue;
            };
            seen.maxima.add(rows.maxima[slot]);
            if row > 0 {
                seen.previous.0 += (rows.before[slot] / rows.sums[slot]).powi(2) / sums[slot];
                seen.previous.1 += 1;
            }
        }
    }
}

impl State {
    /// The measurements that a text is counted in.
    fn of(&mut self, text: usize) -> &mut Seen {
        let last = self.seen.len() - 1;
        &mut self.seen[text.min(last)]
    }

    /// A head, by layer and number.
    fn head(&mut self, text: usize, (layer, head): (usize, usize)) -> &mut HeadSeen {
        &mut self.of(text).layers[layer].heads[head]
    }
}

impl Watch for Measure {
    fn see(&self, at: StepId, f: &Function, x: &[f64]) {
        let layer = at.layer().unwrap_or(0);
        match *f {
            Function::Exponential { head, diagonal, .. } => {
                self.scores((layer, head), f, diagonal, x);
            }
            Function::FirstInverse { head, scores } => self.first((layer, head), scores, x),
            Function::SecondInverse { head } => self.second((layer, head), x),
            Function::Activation { index, .. } => {
                let mut state = self.state();
                for (text, _, slot) in self.rows() {
                    let seen = &mut state.of(text).layers[layer].columns[index];
                    seen.add(f.argument(x[slot]), self.ordinary);
                }
            }
            Function::Head { .. } => {
                let mut state = self.state();
                for (slot, &t) in x.iter().enumerate() {
                    let text = slot % self.layout.texts();
                    state.of(text).head.see(&[f.argument(t)]);
                }
            }
            // Observed between steps: here masked rows have 1.
            Function::Root | Function::Sigmoid { .. } => (),
        }
    }
}
