//! The functions of a calibration as an encrypted run computes them: the same polynomials, iterations and order, in
//! f64; and, if wanted, normal errors of the size that refreshes and rescales make.
//!
//! Vectors that are refreshed are within 1 there, so an error of 2^-19 of full scale is an absolute one: of Σp, of Σe,
//! of v, of x̂/bound. All others get 2^-22: scores mapped to [−1, 1], exponentials, their quotients, squares, hidden
//! columns, centred columns.

use hushed_ckks::poly::{Inverse, InverseSqrt, Polynomial};
use hushed_model::{Activation, Matrix, Network, Norm, Rows, StepId, TextRows, here};
use rayon::prelude::*;

use super::circuit::Functions;
use crate::ckks::{
    Choices, FheError, Half, HeadChoice, Interval, LayerChoice, NormChoice, fits, head,
};
use crate::splitmix::SplitMix;

/// Deviations of simulated errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// Of refreshed numbers, of full scale.
    pub refresh: f64,
    /// Of everything else that is rescaled.
    pub rescale: f64,
    /// Of the generator.
    pub seed: u64,
}

impl Default for Errors {
    fn default() -> Self {
        Errors {
            refresh: 2f64.powi(-19),
            rescale: 2f64.powi(-22),
            seed: 1,
        }
    }
}

/// The softmax of one head.
struct Head {
    scores: Interval,
    exponential: Polynomial,
    first: Inverse,
    second: Inverse,
    /// Σe is divided by this before it is refreshed.
    most: f64,
}

struct NormFunction {
    choice: NormChoice,
    root: InverseSqrt,
}

struct Layer {
    /// None for a fixed pattern.
    heads: Vec<Option<Head>>,
    columns: Vec<(Interval, Polynomial)>,
    norms: [NormFunction; 2],
    frozen: Option<Vec<f64>>,
}

/// Polynomials in place of functions.
pub(super) struct Approximate {
    layers: Vec<Layer>,
    /// Of a classifier: its tanh, and the reach that the argument is divided by.
    head: Option<(head::Squash, f64)>,
    errors: Option<Normal>,
    rescale: f64,
    refresh: f64,
}

impl Approximate {
    /// # Errors
    /// [`FheError::Choices`] for choices of another model, [`FheError::Poly`] where a fit is refused.
    pub fn new(
        network: &Network,
        choices: &Choices,
        errors: Option<Errors>,
    ) -> Result<Approximate, FheError> {
        choices.check(network)?;
        let layers = choices.layers.iter().zip(&network.layers);
        let layers = layers.map(|(choice, layer)| {
            Layer::new(
                choice,
                layer.feed_forward.activation,
                &layer.feed_forward_norm,
            )
        });
        let head = choices.classifier.as_ref().zip(network.classifier.as_ref());
        let head = head.map(|(choice, c)| {
            Ok::<_, FheError>((head::Squash::new(c.activation, choice)?, choice.reach))
        });
        Ok(Approximate {
            layers: layers.collect::<Result<_, _>>()?,
            head: head.transpose()?,
            rescale: errors.map_or(0.0, |e| e.rescale),
            refresh: errors.map_or(0.0, |e| e.refresh),
            errors: errors.map(|e| Normal(SplitMix(e.seed))),
        })
    }
}

impl Layer {
    fn new(choice: &LayerChoice, f: Activation, norm: &Norm) -> Result<Layer, FheError> {
        let columns = choice.activation.columns.par_iter().map(|&column| {
            let polynomial = fits::activation(f, column, choice.activation.degree)?;
            Ok::<_, FheError>((fits::domain(column), polynomial))
        });
        let heads = choice.attention.heads.par_iter().map(|head| {
            let HeadChoice::Softmax {
                scores,
                first,
                second,
                ..
            } = *head
            else {
                return Ok(None);
            };
            let exponential = fits::exponential(head, choice.attention.degree)?;
            let steps = (choice.attention.first_steps, choice.attention.second_steps);
            let most = second.high.max(1.0);
            Ok::<_, FheError>(Some(Head {
                scores,
                first: Inverse::with_steps(first.low / first.high, 1.0, steps.0)?,
                second: Inverse::with_steps(second.low / most, 1.0, steps.1)?,
                exponential,
                most,
            }))
        });
        let root = |n: &NormChoice| -> Result<NormFunction, FheError> {
            Ok(NormFunction {
                choice: n.clone(),
                root: fits::root(n)?,
            })
        };
        let frozen = choice.frozen_row.as_ref().map(|row| hats(row, norm));
        Ok(Layer {
            heads: heads.collect::<Result<_, _>>()?,
            columns: columns.collect::<Result<_, _>>()?,
            norms: [
                root(&choice.attention_norm)?,
                root(&choice.feed_forward_norm)?,
            ],
            frozen: frozen.transpose()?,
        })
    }
}

/// x̂ of a row of values after a norm. A column with gain 0 has its offset as value, whatever x̂ is.
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

impl Functions for Approximate {
    fn fixed(&self, layer: usize, head: usize) -> bool {
        self.layers[layer].heads[head].is_none()
    }

    fn weigh(
        &mut self,
        layer: usize,
        head: usize,
        text: TextRows,
        padding: usize,
        scores: &mut Matrix<f64>,
    ) {
        let Some(h) = &self.layers[layer].heads[head] else {
            return;
        };
        let (noise, fine, coarse) = (&mut self.errors, self.rescale, self.refresh);
        let mut err = |size: f64| noise.as_mut().map_or(0.0, |n| size * n.next());
        let (pads, unit) = (padding as f64, 1.0 / h.scores.half());
        for i in 0..text.total {
            let row = scores.row_mut(i);
            for s in row.iter_mut() {
                let t = (*s - h.scores.middle()) * unit + err(fine);
                *s = h.exponential.eval(t) + err(fine);
            }
            // What keys of padding add is known and taken off; their errors stay.
            let padded = pads.sqrt() * err(fine);
            let sum = row.iter().sum::<f64>() + padded + err(coarse);
            let inverse = h.first.eval(sum);
            let square = |p: f64| (p * inverse).powi(2);
            row.iter_mut().for_each(|p| *p = square(*p) + err(fine));
            let sum = row.iter().sum::<f64>() + pads.sqrt() * err(fine);
            let inverse = h.second.eval(sum / h.most + err(coarse)) / h.most;
            row.iter_mut().for_each(|e| *e *= inverse);
        }
    }

    fn activate(&mut self, layer: usize, _: Activation, x: &mut Matrix<f64>) {
        let columns = &self.layers[layer].columns;
        let (noise, fine) = (&mut self.errors, self.rescale);
        let width = columns.len().max(1);
        // An error of the result; that of the argument is of the same size, with a slope of about 1 to 4.
        let mut errors = vec![0.0; if noise.is_some() { x.data().len() } else { 0 }];
        if let Some(noise) = noise {
            errors
                .iter_mut()
                .for_each(|e| *e = 4.0 * fine * noise.next());
        }
        let rows = x.data_mut().par_chunks_mut(width).enumerate();
        rows.for_each(|(i, row)| {
            for (j, (v, (column, polynomial))) in row.iter_mut().zip(columns).enumerate() {
                let t = (*v - column.middle()) / column.half();
                *v = polynomial.eval(t) + errors.get(i * width + j).copied().unwrap_or(0.0);
            }
        });
    }

    fn normalise(&mut self, layer: usize, half: Half, _: &Rows, x: &mut Matrix<f64>) {
        let norm = &self.layers[layer].norms[usize::from(half == Half::FeedForward)];
        let (noise, fine, coarse) = (&mut self.errors, self.rescale, self.refresh);
        let mut err = |size: f64| noise.as_mut().map_or(0.0, |n| size * n.next());
        let (scale, bound) = (norm.choice.scale, norm.choice.bound);
        let width = x.cols();
        for row in x.data_mut().chunks_exact_mut(width) {
            row.iter_mut().for_each(|v| *v = scale * *v + err(fine));
            let v = row.iter().map(|v| v * v).sum::<f64>() + err(coarse);
            let factor = norm.root.eval(v) * (width as f64).sqrt();
            row.iter_mut()
                .for_each(|v| *v = *v * factor + bound * err(coarse));
        }
    }

    fn squash(&mut self, _: Activation, x: &mut Matrix<f64>) {
        let Some((squash, reach)) = &self.head else {
            return;
        };
        let (noise, coarse) = (&mut self.errors, self.refresh);
        for v in x.data_mut() {
            let error = noise.as_mut().map_or(0.0, |n| coarse * n.next());
            *v = squash.eval(*v / reach + error);
        }
    }

    fn freezes(&self, layer: usize) -> bool {
        self.layers[layer].frozen.is_some()
    }

    fn frozen(&self, layer: usize) -> Vec<f64> {
        self.layers[layer].frozen.clone().unwrap_or_default()
    }
}

/// Normal numbers (sums of twelve uniform ones on SplitMix64: no logarithms; beyond six deviations there are none):
/// errors of a simulation, nothing secret.
struct Normal(SplitMix);

impl Normal {
    fn next(&mut self) -> f64 {
        // Four uniform numbers of 16 bits in each word.
        let quarter = |z: u64, i: u32| f64::from((z >> (16 * i)) as u16) / 65536.0;
        let three = (0..3).map(|_| {
            let z = self.0.next();
            (0..4).map(|i| quarter(z, i)).sum::<f64>()
        });
        three.sum::<f64>() - 6.0
    }
}
