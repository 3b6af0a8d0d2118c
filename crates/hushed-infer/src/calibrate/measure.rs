//! What approximations have to hold: intervals of everything that a softmax, an activation or a norm of an encrypted
//! run is given, measured with exact functions over texts.

use hushed_model::plain::activation;
use hushed_model::{Activation, Matrix, Network, Rows, TextRows};
use rayon::prelude::*;

use super::circuit::Functions;
use super::head::HeadArguments;
use crate::ckks::Half;

/// The least and the greatest of some numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    pub least: f64,
    pub greatest: f64,
}

impl Default for Span {
    fn default() -> Self {
        Span {
            least: f64::INFINITY,
            greatest: f64::NEG_INFINITY,
        }
    }
}

impl Span {
    pub fn add(&mut self, value: f64) {
        self.least = self.least.min(value);
        self.greatest = self.greatest.max(value);
    }
}

/// What one head was seen to do.
#[derive(Clone, Default)]
pub(super) struct HeadSeen {
    /// Of all queries, with real keys.
    pub scores: Span,
    /// Of real queries.
    pub maxima: Span,
    /// ln Σ e^{s/2} over real keys, of all queries.
    pub first: Span,
    /// Σ (p/Σp)², of all queries.
    pub second: Span,
    /// Weights of the row before, from row 1 on, and their number.
    previous: (f64, usize),
}

impl HeadSeen {
    /// How much of its weight a row gives to the one before, on average.
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
    fn add(&mut self, value: f64, ordinary: bool) {
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

/// What one norm was given.
#[derive(Clone, Default)]
pub(super) struct NormSeen {
    /// Variances of rows whose results are used, row 0 apart.
    pub later: Span,
    /// Of row 0, where it is used.
    pub first: Span,
    /// Of all other rows, whose results are masked.
    pub masked: Span,
    /// Largest |x̂| of rows that are used.
    pub largest: f64,
}

/// What one layer was seen to do.
#[derive(Clone, Default)]
pub(super) struct LayerSeen {
    pub heads: Vec<HeadSeen>,
    /// Arguments of the activation, column by column, in all rows.
    pub columns: Vec<ColumnSeen>,
    /// After attention, after feed-forward.
    pub norms: [NormSeen; 2],
    /// x̂ of row 0 after the layer, text by text.
    first_rows: Vec<Vec<f64>>,
    /// Variances of row 0 before it.
    pub first_variances: Span,
}

impl LayerSeen {
    /// The mean of row 0 over texts (x̂), and the greatest distance of a text's from it, relative to its length.
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

/// Which parts of a model an encrypted run replaces.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Structure {
    /// x̂ of row 0 after the first layers, where it is given: as many as there are.
    pub frozen: Vec<Vec<f64>>,
    /// Layer by layer and head by head: the fixed pattern.
    pub fixed: Vec<Vec<bool>>,
}

impl Structure {
    /// Nothing replaced.
    pub fn none(network: &Network) -> Structure {
        let heads = network
            .layers
            .iter()
            .map(|l| vec![false; l.attention.heads.count]);
        Structure {
            frozen: Vec::new(),
            fixed: heads.collect(),
        }
    }
}

/// Exact functions that measure.
pub(super) struct Exact<'a> {
    pub structure: &'a Structure,
    pub layers: Vec<LayerSeen>,
    /// Whether texts now are ordinary: what is usual is counted among these only.
    pub ordinary: bool,
    /// Of a classifier's head.
    pub head: HeadArguments,
}

impl<'a> Exact<'a> {
    pub fn new(network: &Network, structure: &'a Structure) -> Exact<'a> {
        let layers = network.layers.iter().map(|layer| LayerSeen {
            heads: vec![HeadSeen::default(); layer.attention.heads.count],
            columns: vec![ColumnSeen::default(); layer.feed_forward.up.outputs],
            ..LayerSeen::default()
        });
        Exact {
            structure,
            layers: layers.collect(),
            ordinary: true,
            head: HeadArguments::default(),
        }
    }
}

impl Functions for Exact<'_> {
    fn fixed(&self, layer: usize, head: usize) -> bool {
        self.structure.fixed[layer][head]
    }

    fn weigh(
        &mut self,
        layer: usize,
        head: usize,
        text: TextRows,
        _: usize,
        scores: &mut Matrix<f64>,
    ) {
        let seen = &mut self.layers[layer].heads[head];
        for i in 0..text.total {
            let row = scores.row_mut(i);
            let maximum = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            row.iter().for_each(|&s| seen.scores.add(s));
            let halves = |s: &f64| ((s - maximum) / 2.0).exp();
            let first: f64 = row.iter().map(halves).sum();
            row.iter_mut().for_each(|s| *s = (*s - maximum).exp());
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|e| *e /= sum);
            seen.first.add(first.ln() + maximum / 2.0);
            seen.second.add(sum / first.powi(2));
            if i < text.real {
                seen.maxima.add(maximum);
                if let Some(before) = i.checked_sub(1) {
                    seen.previous.0 += row[before];
                    seen.previous.1 += 1;
                }
            }
        }
    }

    fn activate(&mut self, layer: usize, f: Activation, x: &mut Matrix<f64>) {
        let columns = &mut self.layers[layer].columns;
        for row in x.data().chunks_exact(columns.len().max(1)) {
            let cells = columns.iter_mut().zip(row);
            cells.for_each(|(c, &v)| c.add(v, self.ordinary));
        }
        x.data_mut().par_chunks_mut(4096).for_each(|part| {
            part.iter_mut().for_each(|v| *v = activation(f, *v));
        });
    }

    fn normalise(&mut self, layer: usize, half: Half, rows: &Rows, x: &mut Matrix<f64>) {
        let freezes = self.freezes(layer);
        let seen = &mut self.layers[layer];
        let width = x.cols() as f64;
        for (block, real) in rows.blocks() {
            for (i, at) in block.enumerate() {
                let row = x.row_mut(at);
                let variance = row.iter().map(|v| v * v).sum::<f64>() / width;
                row.iter_mut().for_each(|v| *v /= variance.sqrt());
                let norm = &mut seen.norms[usize::from(half == Half::FeedForward)];
                let used = i < real && !(i == 0 && freezes);
                match i {
                    _ if !used => norm.masked.add(variance),
                    0 => norm.first.add(variance),
                    _ => norm.later.add(variance),
                }
                if used {
                    let largest = row.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
                    norm.largest = norm.largest.max(largest);
                }
                if i == 0 && half == Half::FeedForward && self.ordinary {
                    seen.first_rows.push(row.to_vec());
                    seen.first_variances.add(variance);
                }
            }
        }
    }

    fn squash(&mut self, f: Activation, x: &mut Matrix<f64>) {
        self.head.see(x.data());
        x.data_mut().iter_mut().for_each(|v| *v = activation(f, *v));
    }

    fn freezes(&self, layer: usize) -> bool {
        layer < self.structure.frozen.len()
    }

    fn frozen(&self, layer: usize) -> Vec<f64> {
        self.structure
            .frozen
            .get(layer)
            .cloned()
            .unwrap_or_default()
    }
}
