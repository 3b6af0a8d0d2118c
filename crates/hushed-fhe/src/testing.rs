//! For tests of whole models: a BERT in the clear with the replacements that choices may have (fixed heads, frozen
//! rows), and choices measured on it, with its own texts as the sample.

use hushed_ckks::poly::Inverse;
use hushed_math::rng::splitmix::SplitMix;
use hushed_model::plain::activation as exact;
use hushed_model::{Attention, Block, Layer, Linear, Matrix, Model, Network, Norm, Pixels, Pool};

use super::choices::{
    ActivationChoice, AttentionChoice, Choices, ClassifierChoice, HeadChoice, Interval, LayerChoice, NormChoice,
};
use crate::ops::pool::Pooled;
use crate::packing::Interleave;
use crate::plan::FhePlanReport;
use crate::simulate::Vector;
use crate::tape::Tape;
use crate::tape::encoder::Encoder;
use crate::tape::layout::Hidden;
use crate::tape::levels::{Heights, Outputs};
use crate::tape::run::{Inputs, computed};
use crate::{FheError, Pass, Placement, RowsKnown, Simulator, Slots, token_rows};

/// The parts of a model that are replaced.
#[derive(Clone, Default)]
pub(crate) struct Structure {
    /// (layer, head): row i attends to row i − 1, and row 0 to itself.
    pub previous: Vec<(usize, usize)>,
    /// Row 0 leaves the first layers as its mean over the texts.
    pub frozen_layers: usize,
}

/// A model's run in the clear: its pooled rows, and choices from the measurements.
pub(crate) struct Measured {
    pub pooled: Vec<Vec<f64>>,
    pub choices: Choices,
}

/// Runs `texts` (token rows × d, embedded and normalised), with `rows` rows per text in the packing; `degrees` are
/// those of exponential and activation.
pub(crate) fn measure(
    network: &Network,
    texts: &[Matrix<f64>],
    structure: &Structure,
    rows: usize,
    degrees: (usize, usize),
) -> Measured {
    let mut x = texts.to_vec();
    let mut offset = vec![0.0; network.embedding.width];
    let mut layers = Vec::new();
    for (i, layer) in network.layers.iter().enumerate() {
        let fixed = |head: usize| structure.previous.contains(&(i, head));
        let frozen = i < structure.frozen_layers;
        let (choice, out) = measure_layer(layer, &x, &offset, rows, degrees, fixed, frozen);
        (x, offset) = (out, numbers(&layer.feed_forward_norm.offset));
        layers.push(choice);
    }
    let classifier = network.classifier.as_ref().map(|c| {
        let rows = x.iter().map(|x| linear(&c.dense, x.row(0)));
        // An empty row is the last norm's offset.
        let all = rows.chain([linear(&c.dense, &offset)]);
        let most = all.flatten().fold(0.0_f64, |m, v| m.max(v.abs()));
        ClassifierChoice { degree: 31, reach: 1.2 * most }
    });
    let pooled = x.iter().map(|x| {
        let used = match network.pool {
            Pool::First => 1,
            _ => x.rows(),
        };
        let mean = |j: usize| (0..used).map(|i| x.row(i)[j]).sum::<f64>() / used as f64;
        (0..x.cols()).map(mean).collect()
    });
    Measured { pooled: pooled.collect(), choices: Choices::unnamed(rows, layers, classifier) }
}

fn numbers(x: &Option<std::sync::Arc<[f32]>>) -> Vec<f64> {
    x.as_deref().unwrap().iter().map(|&v| f64::from(v)).collect()
}

fn linear(w: &Linear, x: &[f64]) -> Vec<f64> {
    let (weights, bias) = (w.weights.as_deref().unwrap(), numbers(&w.bias));
    let dot = |o: usize| -> f64 {
        let row = weights.row(o).iter().zip(x);
        bias[o] + row.map(|(&w, x)| f64::from(w) * x).sum::<f64>()
    };
    (0..w.outputs).map(dot).collect()
}

/// The minimum and maximum so far.
#[derive(Clone, Copy)]
struct Seen(f64, f64);

impl Seen {
    const NOTHING: Seen = Seen(f64::INFINITY, f64::NEG_INFINITY);

    fn see(&mut self, v: f64) {
        *self = Seen(self.0.min(v), self.1.max(v));
    }

    fn interval(self, margin: f64) -> Interval {
        let wide = margin * (self.1 - self.0).max(1e-3);
        Interval { low: self.0 - wide, high: self.1 + wide }
    }
}

/// Variances and numbers of a norm's rows.
struct NormSeen {
    variance: Seen,
    unit: f64,
}

impl NormSeen {
    const NOTHING: NormSeen = NormSeen { variance: Seen::NOTHING, unit: 0.0 };

    fn apply(&mut self, n: &Norm, row: &[f64], counts: bool) -> Vec<f64> {
        let d = row.len() as f64;
        let mean = row.iter().sum::<f64>() / d;
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / d + n.epsilon;
        let unit: Vec<f64> = row.iter().map(|v| (v - mean) / variance.sqrt()).collect();
        if counts {
            self.variance.see(variance);
        }
        self.unit = unit.iter().fold(self.unit, |m, v| m.max(v.abs()));
        let affine = unit.iter().zip(numbers(&n.gain)).zip(numbers(&n.offset));
        affine.map(|((v, g), o)| v * g + o).collect()
    }

    fn choice(&self, d: usize) -> NormChoice {
        let Seen(least, most) = self.variance;
        NormChoice {
            scale: (1.0 / (d as f64 * most * 1.2)).sqrt(),
            low: least / most / 1.5,
            bound: self.unit * 1.1,
            seed: 15,
            steps: 1,
        }
    }
}

/// Scores of a text's head, without the keys' bias and offset: one row per query, the last that of padding.
fn scores(a: &Attention, x: &Matrix<f64>, offset: &[f64], head: usize) -> Vec<Vec<f64>> {
    let dh = a.heads.width;
    let part = |v: Vec<f64>| v[head * dh..(head + 1) * dh].to_vec();
    let plain_key = Linear { bias: Some(vec![0.0; a.key.outputs].into()), ..a.key.clone() };
    let rows = (0..x.rows()).map(|i| x.row(i));
    let keys: Vec<Vec<f64>> = rows
        .clone()
        .map(|row| {
            let v: Vec<f64> = row.iter().zip(offset).map(|(x, o)| x - o).collect();
            part(linear(&plain_key, &v))
        })
        .collect();
    rows.chain([offset])
        .map(|row| {
            let q = part(linear(&a.query, row));
            let dot = |k: &Vec<f64>| q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>();
            keys.iter().map(|k| dot(k) * a.heads.scale).collect()
        })
        .collect()
}

/// Weights of a text's rows and of one padding row.
fn weights(scores: &[Vec<f64>], fixed: bool) -> Vec<Vec<f64>> {
    let row = |(i, row): (usize, &Vec<f64>)| -> Vec<f64> {
        if fixed {
            let key = i.saturating_sub(1);
            return (0..row.len()).map(|j| f64::from(u8::from(j == key))).collect();
        }
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|s| (s - top).exp()).sum();
        row.iter().map(|s| (s - top).exp() / sum).collect()
    };
    scores.iter().enumerate().map(row).collect()
}

fn softmax_choice(all: &[Vec<Vec<f64>>], rows: usize) -> HeadChoice {
    let (mut seen, mut least_maximum) = (Seen::NOTHING, f64::INFINITY);
    for row in all.iter().flatten() {
        row.iter().for_each(|&s| seen.see(s));
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        least_maximum = least_maximum.min(top);
    }
    let scores = seen.interval(0.1);
    let mut sums = Seen::NOTHING;
    let padded = ((scores.low - scores.high) / 2.0).exp();
    for row in all.iter().flatten() {
        let sum: f64 = row.iter().map(|s| ((s - scores.high) / 2.0).exp()).sum();
        sums.see(sum);
        sums.see(sum + (rows - row.len()) as f64 * padded);
    }
    HeadChoice::Softmax {
        scores,
        least_maximum,
        first: Interval { low: sums.0 / 1.2, high: sums.1 * 1.1 },
        second: Interval { low: 0.7 / rows as f64, high: 1.01 },
    }
}

fn measure_layer(
    layer: &Layer,
    texts: &[Matrix<f64>],
    offset: &[f64],
    rows: usize,
    degrees: (usize, usize),
    fixed: impl Fn(usize) -> bool,
    frozen: bool,
) -> (LayerChoice, Vec<Matrix<f64>>) {
    let (a, f) = (&layer.attention, layer.feed_forward.feed_forward());
    let mut heads = Vec::new();
    // By text and row, the last row that of padding.
    let mut attended: Vec<Vec<Vec<f64>>> = texts.iter().map(|x| vec![Vec::new(); x.rows() + 1]).collect();
    for head in 0..a.heads.count {
        let all: Vec<_> = texts.iter().map(|x| scores(a, x, offset, head)).collect();
        for ((x, s), out) in texts.iter().zip(&all).zip(&mut attended) {
            let values: Vec<_> = (0..x.rows()).map(|i| linear(&a.value, x.row(i))).collect();
            for (weights, out) in weights(s, fixed(head)).iter().zip(out) {
                out.extend((0..a.heads.width).map(|c| {
                    let column = values.iter().map(|v| v[head * a.heads.width + c]);
                    column.zip(weights).map(|(v, w)| v * w).sum::<f64>()
                }));
            }
        }
        heads.push(match fixed(head) {
            true => HeadChoice::Previous,
            false => softmax_choice(&all, rows),
        });
    }
    let (mut first, mut second) = (NormSeen::NOTHING, NormSeen::NOTHING);
    let mut columns = vec![Seen::NOTHING; f.map_or(0, |f| f.up.outputs)];
    // After each norm, padding rows equal its offset; so does a frozen first row inside the layer.
    let pad = numbers(&layer.attention_norm.offset);
    if let Some(f) = f {
        let seen = linear(&f.up, &pad).into_iter().zip(&mut columns);
        seen.for_each(|(v, c)| c.see(v));
    }
    let mut out = Vec::new();
    for (x, attended) in texts.iter().zip(&attended) {
        let mut y = Matrix::zero(x.rows(), x.cols());
        for (i, attended) in attended.iter().take(x.rows()).enumerate() {
            let counts = !(frozen && i == 0);
            let added = linear(&a.output, attended);
            let sum: Vec<f64> = added.iter().zip(x.row(i)).map(|(y, x)| y + x).collect();
            let row = first.apply(&layer.attention_norm, &sum, counts);
            let added = match &layer.feed_forward {
                Block::FeedForward(f) => {
                    let mut hidden = linear(&f.up, &row);
                    for (v, column) in hidden.iter_mut().zip(&mut columns) {
                        if counts {
                            column.see(*v);
                        }
                        *v = exact(f.activation, *v);
                    }
                    linear(&f.down, &hidden)
                }
                Block::Linear(w) => linear(w, &row),
                _ => panic!("no feed-forward"),
            };
            let sum: Vec<f64> = added.iter().zip(&row).map(|(y, x)| y + x).collect();
            let normed = second.apply(&layer.feed_forward_norm, &sum, counts);
            y.row_mut(i).copy_from_slice(&normed);
        }
        out.push(y);
    }
    let frozen_row = frozen.then(|| {
        let mean = |j: usize| out.iter().map(|y| y.row(0)[j]).sum::<f64>() / out.len() as f64;
        (0..a.output.outputs).map(mean).collect::<Vec<f64>>()
    });
    if let Some(row) = &frozen_row {
        out.iter_mut().for_each(|y| y.row_mut(0).copy_from_slice(row));
    }
    let steps = |range: fn(&HeadChoice) -> Option<(f64, f64)>| {
        let needed = heads.iter().filter_map(range).map(|(low, high)| {
            let inverse = Inverse::new(low / high, 1.0, 2e-4).unwrap();
            inverse.steps()
        });
        needed.max().unwrap_or(1)
    };
    let choice = LayerChoice {
        attention: AttentionChoice {
            degree: degrees.0,
            first_steps: steps(|h| match h {
                HeadChoice::Softmax { first, .. } => Some((first.low, first.high)),
                HeadChoice::Previous => None,
            }),
            second_steps: steps(|h| match h {
                HeadChoice::Softmax { second, .. } => Some((second.low, second.high)),
                HeadChoice::Previous => None,
            }),
            heads,
        },
        attention_norm: first.choice(a.output.outputs),
        activation: ActivationChoice {
            degree: degrees.1,
            columns: columns.iter().map(|c| c.interval(0.1).into()).collect(),
        },
        feed_forward_norm: second.choice(a.output.outputs),
        frozen_row,
    };
    (choice, out)
}

/// The vectors that a client sends, divided by the bound; `garbage` fills padding rows.
pub(crate) fn packed(
    layout: Interleave,
    texts: &[Matrix<f64>],
    bound: f64,
    garbage: impl Fn(usize, usize, usize) -> f64,
) -> Vec<Vec<f64>> {
    let width = texts.first().map_or(0, Matrix::cols);
    let column = |j: usize| {
        layout.vector(texts.len(), |text, row| {
            let x = &texts[text];
            if row < x.rows() { x.row(row)[j] / bound } else { garbage(text, row, j) }
        })
    };
    (0..width).map(column).collect()
}

/// The largest number of any text.
pub(crate) fn largest(texts: &[Matrix<f64>]) -> f64 {
    let all = texts.iter().flat_map(|x| x.data());
    all.fold(0.0, |m, v| m.max(v.abs()))
}

/// A pass over all layers, resumed after each from the contents of a checkpoint; `padding` fills padding rows.
pub(crate) fn resumed(
    on: &Simulator,
    network: &Network,
    choices: &Choices,
    x: &[Matrix<f64>],
    private: bool,
    bound: f64,
    padding: impl Fn(usize, usize, usize) -> f64,
) -> Result<Pooled<Vector>, FheError> {
    let layout = Interleave::new(on.slots(), choices.rows)?;
    let lengths: Vec<usize> = x.iter().map(Matrix::rows).collect();
    let vector = |v: Vec<f64>| on.vector(v, on.top()).unwrap();
    let rows = if private {
        RowsKnown::private(layout, vector(token_rows(layout, &lengths)))
    } else {
        RowsKnown::public(layout, lengths)?
    };
    let width = network.layers[0].attention.heads.width;
    let placement = Placement::plain(on.top(), choices.rows, width);
    let program = network.program_of_all_rows();
    let mut pass = Pass::new(on, &program, choices, placement, rows, bound)?;
    let columns = packed(layout, x, bound, padding).into_iter().map(vector);
    let mut x = pass.start(columns.collect())?;
    for i in 0..network.layers.len() {
        x = pass.layer(i, x)?;
        // A checkpoint has the columns and the number of the layer; the rest comes from the model.
        x = pass.resume(i + 1, x.columns)?;
    }
    pass.finish(x)
}

/// Runs a tape by itself, with as few primes as lead to `limbs` at its end.
pub(crate) fn alone<S: Slots>(on: &S, tape: Tape, inputs: Inputs<S>, limbs: usize) -> Result<Vec<S::Value>, FheError> {
    computed(on, tape, inputs, (Heights::Least, Outputs::Exactly(limbs), Vec::new()), &mut |_, _| Ok(()))
}

/// What the layers of an encoder read of the mask of token rows.
pub(crate) fn hidden<S: Slots>(encoder: &Encoder<'_, S>, real: S::Value) -> Inputs<S> {
    let (on, inputs) = (encoder.on, Inputs::<S>::from([(Hidden::Tokens.name(), vec![real])]));
    let place = (Heights::Least, Outputs::AtLeast(on.floor()), Vec::new());
    let made = computed(on, encoder.masks().unwrap(), inputs, place, &mut |_, _| Ok(())).unwrap();
    Hidden::ALL.iter().zip(made).map(|(which, v)| (which.name(), vec![v])).collect()
}

/// Images of gradients and of noise for a model.
pub(crate) fn images(model: &Model, count: usize) -> Vec<Pixels> {
    let preprocess = model.public.images.as_ref().unwrap();
    let mut dice = SplitMix(7);
    let mut image = |kind: usize| {
        let mut point = |place: usize| match kind % 3 {
            0 => dice.next_u64() as u8,
            1 => (place * (kind + 1) / 13) as u8,
            _ => (dice.next_u64() % 64) as u8 + (place / (kind + 3) * 7 % 192) as u8,
        };
        let points = (0..preprocess.side.pow(2) * 3).map(&mut point).collect();
        preprocess.of_points(points).unwrap()
    };
    (0..count).map(&mut image).collect()
}

/// Of a plan: bootstraps, rotations, relinearisations, products, rescales, and keys of rotations.
pub(crate) fn operations(plan: &FhePlanReport) -> [u64; 6] {
    let work = &plan.work;
    [work.bootstraps(), work.rotations, work.relinearisations, work.products, work.rescales, plan.rotation_keys as u64]
}
