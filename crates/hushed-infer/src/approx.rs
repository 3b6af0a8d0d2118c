//! The `approx` backend: the clear model with the functions that the two-party protocols compute instead of GELU and softmax, and with every
//! number rounded where a run's formats round it.
//!
//! It separates the two reasons why a private answer differs from the clear one: functions and formats (this backend against
//! [`Plain`]), and the protocols, which round at random and not to nearest (a private run against this backend).

use std::collections::HashMap;
use std::sync::Arc;

use hushed_model::plain::{Plain, PlainActs, PlainScores};
use hushed_model::tokens::TokenIds;
use hushed_model::{
    Activation, Backend, Embedding, FeedForward, Heads, Linear, Mask, Matrix, ModelError, Norm,
    NormKind, Pool, Site, Weigh,
};
use hushed_twopc::func::softmax;

use crate::twopc::formats::{
    ACTIVATION, ATTENDED, EMBEDDING, INVERSE, PORTION, QUERY, VALUE, WEIGHED, WEIGHT_FRAC,
};
use crate::twopc::{Function, divides_first};

/// Runs a model in the clear with the protocols' functions and formats.
#[derive(Default)]
pub struct Approx {
    /// Layers with rounded weights, made at their first use: an instance is for one model.
    layers: HashMap<Site, Linear>,
}

/// Fraction bits of a centred number in a norm's sum of squares, and in its product with the root (`func::norm`).
const SQUARED_FRAC: u32 = 7;
const CENTRED_FRAC: u32 = 11;

/// `x` to the nearest multiple of 2^−frac.
fn round(x: f64, frac: u32) -> f64 {
    let unit = f64::from(frac).exp2();
    (x * unit).round() / unit
}

fn round_all(x: &mut [f64], frac: u32) {
    x.iter_mut().for_each(|v| *v = round(*v, frac));
}

impl Approx {
    /// The layer with its weights as a run rounds them. A run multiplies gains and scales in before, which changes an error of half a unit by
    /// these factors and no more.
    fn layer(&mut self, at: &Site, w: &Linear) -> Linear {
        let rounded = || {
            let mut layer = w.clone();
            layer.weights = w.weights.as_deref().map(|weights| {
                let mut weights = Matrix::clone(weights);
                let round = |v: &mut f32| *v = round(f64::from(*v), WEIGHT_FRAC) as f32;
                weights.data_mut().iter_mut().for_each(round);
                Arc::new(weights)
            });
            layer
        };
        self.layers
            .entry(at.clone())
            .or_insert_with(rounded)
            .clone()
    }
}

impl Backend for Approx {
    type Input = Vec<TokenIds>;
    type Acts = PlainActs;
    type Scores = PlainScores;
    type Error = ModelError;

    fn embed(
        &mut self,
        at: Site,
        x: Vec<TokenIds>,
        e: &Embedding,
    ) -> Result<PlainActs, ModelError> {
        let mut x = Plain.embed(at, x, e)?;
        round_all(x.values.data_mut(), EMBEDDING.frac);
        Ok(x)
    }

    fn norm(&mut self, at: Site, x: PlainActs, n: &Norm) -> Result<PlainActs, ModelError> {
        let shapes_only = || ModelError::ShapesOnly {
            site: at.path().to_owned(),
        };
        let gain = n.gain.as_deref().ok_or_else(shapes_only)?;
        let offset = n.offset.as_deref().ok_or_else(shapes_only)?;
        let mut x = x;
        let width = n.width as f64;
        for row in x.values.data_mut().chunks_exact_mut(n.width) {
            if n.kind == NormKind::LayerNorm {
                let mean = row.iter().sum::<f64>() / width;
                row.iter_mut().for_each(|v| *v -= mean);
            }
            let squares = row.iter().map(|c| round(*c, SQUARED_FRAC).powi(2));
            let root = 1.0 / (squares.sum::<f64>() + width * n.epsilon).sqrt();
            // The row before its gain and offset is what the next layers read.
            for ((v, &g), &o) in row.iter_mut().zip(gain).zip(offset) {
                let y = round(*v, CENTRED_FRAC) * root * width.sqrt();
                let gain = round(f64::from(g), WEIGHT_FRAC);
                *v = round(y, ACTIVATION.frac) * gain + f64::from(o);
            }
        }
        Ok(x)
    }

    fn add(&mut self, at: Site, a: &PlainActs, b: &PlainActs) -> Result<PlainActs, ModelError> {
        Plain.add(at, a, b)
    }

    fn pool(&mut self, at: Site, x: PlainActs, p: &Pool) -> Result<PlainActs, ModelError> {
        Plain.pool(at, x, p)
    }

    fn linear(&mut self, at: Site, x: &PlainActs, w: &Linear) -> Result<PlainActs, ModelError> {
        let layer = self.layer(&at, w);
        Plain.linear(at, x, &layer)
    }

    fn scores(
        &mut self,
        at: Site,
        q: &PlainActs,
        k: &PlainActs,
        h: &Heads,
    ) -> Result<PlainScores, ModelError> {
        // The factor of the scores is in the query before it is rounded.
        let factor = h.scale * std::f64::consts::LOG2_E;
        let (mut q, mut k) = (q.clone(), k.clone());
        q.values.data_mut().iter_mut().for_each(|v| *v *= factor);
        round_all(q.values.data_mut(), QUERY.frac);
        round_all(k.values.data_mut(), QUERY.frac);
        let bare = Heads { scale: 1.0, ..*h };
        let mut s = Plain.scores(at, &q, &k, &bare)?;
        for head in s.texts.iter_mut().flatten() {
            let natural = |v: &mut f64| {
                *v = round(*v, softmax::SCORES.frac) / std::f64::consts::LOG2_E;
            };
            head.data_mut().iter_mut().for_each(natural);
        }
        Ok(s)
    }

    /// Exponentials as [`Backend::attend`] below wants them: their sums are divided by there.
    fn weigh(
        &mut self,
        _: Site,
        mut s: PlainScores,
        _: Weigh,
        _: &Mask,
    ) -> Result<PlainScores, ModelError> {
        for (heads, text) in s.texts.iter_mut().zip(s.rows.texts()) {
            for head in heads {
                for i in 0..head.rows() {
                    let (real, padding) = head.row_mut(i).split_at_mut(text.real);
                    softmax::approximation(real);
                    // The largest exponential of a row is 1.
                    let largest = real.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
                    real.iter_mut().for_each(|e| *e /= largest);
                    round_all(real, WEIGHED.frac);
                    padding.fill(0.0);
                }
            }
        }
        Ok(s)
    }

    fn attend(
        &mut self,
        at: Site,
        p: &PlainScores,
        v: &PlainActs,
        h: &Heads,
    ) -> Result<PlainActs, ModelError> {
        let mut v = v.clone();
        round_all(v.values.data_mut(), VALUE.frac);
        let mut p = p.clone();
        for head in p.texts.iter_mut().flatten() {
            if divides_first(head.rows(), *h) {
                for i in 0..head.rows() {
                    let row = head.row_mut(i);
                    let inverse = round(1.0 / row.iter().sum::<f64>(), INVERSE.frac);
                    row.iter_mut().for_each(|e| *e *= inverse);
                    round_all(row, PORTION.frac);
                }
            }
        }
        let mut o = Plain.attend(at, &p, &v, h)?;
        for ((rows, _), heads) in o.rows.clone().blocks().zip(&p.texts) {
            if divides_first(rows.len(), *h) {
                for row in rows {
                    round_all(o.values.row_mut(row), ACTIVATION.frac);
                }
                continue;
            }
            for (j, e) in heads.iter().enumerate() {
                for (i, row) in rows.clone().enumerate() {
                    let sum: f64 = e.row(i).iter().sum();
                    let inverse = round(1.0 / sum, INVERSE.frac);
                    let part = &mut o.values.row_mut(row)[j * h.width..(j + 1) * h.width];
                    round_all(part, ATTENDED.frac);
                    part.iter_mut().for_each(|v| *v *= inverse);
                    round_all(part, ACTIVATION.frac);
                }
            }
        }
        Ok(o)
    }

    fn feed_forward(
        &mut self,
        at: Site,
        x: &PlainActs,
        f: &FeedForward,
    ) -> Result<PlainActs, ModelError> {
        let mut y = self.linear(at.then("up"), x, &f.up)?;
        apply(&Function::of(f), &mut y);
        self.linear(at.then("down"), &y, &f.down)
    }

    fn activation(
        &mut self,
        _: Site,
        mut x: PlainActs,
        f: Activation,
    ) -> Result<PlainActs, ModelError> {
        apply(&Function::new(f, None), &mut x);
        Ok(x)
    }
}

/// The function at every element. Its result is `scale` times what it should be when it is rounded.
fn apply(function: &Function, x: &mut PlainActs) {
    let scale = function.scale();
    let rounded = |v: f64| round(function.approximation(v) * scale, ACTIVATION.frac) / scale;
    let values = x.values.data_mut().iter_mut();
    values.for_each(|v| *v = rounded(*v));
}
