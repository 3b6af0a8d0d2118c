//! The forward pass of an encrypted run, in the clear and in f64: rows of padding are computed and masked as they are there, biases of keys
//! and values go where they go there, rows can be frozen and heads fixed. Which functions stand for softmax, activation and inverse root is
//! left to [`Functions`]: exact ones that measure, or polynomials.
//!
//! All rows of padding of a text are alike but the first, into which a rotation may bring the last real row. So two are computed, whatever
//! the number of rows: texts cost what their tokens cost.

use std::sync::Arc;

use hushed_model::{
    Activation, Attention, Backend, Classifier, Embedding, FeedForward, Heads, Linear, Mask,
    Matrix, ModelError, Norm, Plain, PlainActs, PlainScores, Pool, Rows, Site, TextRows, TokenIds,
    Weigh,
};

use crate::ckks::FheError;

/// A half of a layer: what its norm follows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    Attention,
    FeedForward,
}

/// What a circuit computes beside linear maps.
pub(super) trait Functions {
    /// Whether a head has the fixed pattern of the row before.
    fn fixed(&self, layer: usize, head: usize) -> bool;

    /// Scores of one head, queries (padding too) × real keys, to weights; `padding` more keys are masked.
    fn weigh(
        &mut self,
        layer: usize,
        head: usize,
        text: TextRows,
        padding: usize,
        scores: &mut Matrix<f64>,
    );

    /// Arguments of an activation to its values.
    fn activate(&mut self, layer: usize, f: Activation, x: &mut Matrix<f64>);

    /// Rows without their means to x̂, rows of deviation 1. Rows of padding and a frozen row are whatever they are; they are masked after.
    fn normalise(&mut self, layer: usize, half: Half, rows: &Rows, x: &mut Matrix<f64>);

    /// Whether row 0 is frozen in a layer.
    fn freezes(&self, layer: usize) -> bool;

    /// x̂ of row 0 after a layer that freezes it.
    fn frozen(&self, layer: usize) -> Vec<f64>;

    /// Arguments of a classifier's tanh, one row a text, to its values.
    fn squash(&mut self, f: Activation, x: &mut Matrix<f64>);
}

/// Rows between two steps: the values are `gain`·x + `offset`, column by column.
pub(super) struct Acts {
    pub rows: Rows,
    /// 0 in rows of padding, after a norm.
    pub x: Matrix<f64>,
    gain: Vec<f64>,
    offset: Vec<f64>,
}

impl Acts {
    fn values(rows: Rows, x: Matrix<f64>) -> Acts {
        let width = x.cols();
        Acts {
            rows,
            x,
            gain: vec![1.0; width],
            offset: vec![0.0; width],
        }
    }

    /// gain·x, and the offsets if `with_offsets`.
    fn real(&self, with_offsets: bool) -> PlainActs {
        let mut values = self.x.clone();
        let offset = |j: usize| if with_offsets { self.offset[j] } else { 0.0 };
        for row in values.data_mut().chunks_exact_mut(self.gain.len()) {
            for (j, v) in row.iter_mut().enumerate() {
                *v = self.gain[j] * *v + offset(j);
            }
        }
        PlainActs {
            rows: self.rows.clone(),
            values,
        }
    }
}

/// The circuit of `rows` rows a text.
pub(super) struct Circuit<F> {
    pub functions: F,
    pub rows: usize,
}

/// A backend's refusal of what this model does not do under encryption.
fn unsupported<T>(what: &str) -> Result<T, FheError> {
    Err(FheError::Unsupported {
        what: what.to_owned(),
        remedy: "models of the shape of BERT with softmax attention can be run",
    })
}

fn without_bias(w: &Linear) -> Linear {
    Linear {
        bias: Some(Arc::from(vec![0.0; w.outputs])),
        ..w.clone()
    }
}

/// The layer a step lies in.
fn layer_of(at: &Site) -> usize {
    at.layer_index().unwrap_or(0)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl<F: Functions> Circuit<F> {
    /// Rows of the client's columns: real ones, then at most two of padding, all zero.
    fn padded(&self, x: &PlainActs) -> Acts {
        let of = |text: &TextRows| TextRows {
            real: text.real,
            total: text.real + self.rows.saturating_sub(text.real).min(2),
        };
        let rows = Rows::new(x.rows.texts().iter().map(of));
        let mut padded = Matrix::zero(rows.total(), x.values.cols());
        for ((from, real), (to, _)) in x.rows.blocks().zip(rows.blocks()) {
            for i in 0..real {
                padded
                    .row_mut(to.start + i)
                    .copy_from_slice(x.values.row(from.start + i));
            }
        }
        Acts::values(rows, padded)
    }

    /// One head of one text: its columns of `q`, `k`, `v` to those of `out`.
    fn head(
        &mut self,
        layer: usize,
        head: usize,
        block: (std::ops::Range<usize>, usize),
        [q, k, v]: [&Matrix<f64>; 3],
        heads: Heads,
        out: &mut Matrix<f64>,
    ) {
        let ((rows, real), width) = (block, heads.width);
        let columns = head * width..(head + 1) * width;
        let first = rows.start;
        if self.functions.fixed(layer, head) {
            for (i, row) in rows.enumerate() {
                // Row 0 keeps itself; a row of padding before has the value 0.
                let from = first + i.saturating_sub(1);
                let value = &v.row(from)[columns.clone()];
                out.row_mut(row)[columns.clone()].copy_from_slice(value);
            }
            return;
        }
        let text = TextRows {
            real,
            total: rows.len(),
        };
        let mut scores = Matrix::zero(text.total, real);
        for i in 0..text.total {
            let query = &q.row(first + i)[columns.clone()];
            for j in 0..real {
                scores.row_mut(i)[j] = heads.scale * dot(query, &k.row(first + j)[columns.clone()]);
            }
        }
        let padding = self.rows.saturating_sub(real);
        self.functions
            .weigh(layer, head, text, padding, &mut scores);
        for i in 0..text.total {
            let result = &mut out.row_mut(first + i)[columns.clone()];
            for (j, weight) in scores.row(i).iter().enumerate() {
                let value = &v.row(first + j)[columns.clone()];
                for (r, v) in result.iter_mut().zip(value) {
                    *r += weight * v;
                }
            }
        }
    }
}

impl<F: Functions> Backend for Circuit<F> {
    type Input = Vec<TokenIds>;
    type Acts = Acts;
    type Scores = PlainScores;
    type Error = FheError;

    fn embed(&mut self, at: Site, x: Vec<TokenIds>, e: &Embedding) -> Result<Acts, FheError> {
        let embedded = Plain.embed(at, x, e)?;
        Ok(Acts::values(embedded.rows, embedded.values))
    }

    fn attention(&mut self, at: Site, x: &Acts, a: &Attention) -> Result<Acts, FheError> {
        let (Weigh::Softmax, Mask::Full) = (a.weigh, a.mask);
        let bare = x.real(false);
        let q = Plain
            .linear(at.then("query"), &x.real(true), &a.query)?
            .values;
        let k = Plain
            .linear(at.then("key"), &bare, &without_bias(&a.key))?
            .values;
        let v = Plain
            .linear(at.then("value"), &bare, &without_bias(&a.value))?
            .values;
        let mut context = Matrix::zero(v.rows(), v.cols());
        for block in x.rows.blocks() {
            for head in 0..a.heads.count {
                let operands = [&q, &k, &v];
                self.head(
                    layer_of(&at),
                    head,
                    block.clone(),
                    operands,
                    a.heads,
                    &mut context,
                );
            }
        }
        // Weights of a row sum to 1: what every value has goes through.
        let offsets = PlainActs {
            rows: Rows::unpadded(&[1]),
            values: Matrix::new(1, x.offset.len(), x.offset.clone()).unwrap_or(Matrix::zero(0, 0)),
        };
        let bias = Plain.linear(at.then("value"), &offsets, &a.value)?.values;
        for row in context.data_mut().chunks_exact_mut(bias.cols()) {
            row.iter_mut().zip(bias.data()).for_each(|(c, b)| *c += b);
        }
        let context = PlainActs {
            rows: x.rows.clone(),
            values: context,
        };
        let out = Plain.linear(at.then("output"), &context, &a.output)?;
        Ok(Acts::values(out.rows, out.values))
    }

    fn feed_forward(&mut self, at: Site, x: &Acts, f: &FeedForward) -> Result<Acts, FheError> {
        let mut hidden = Plain.linear(at.then("up"), &x.real(true), &f.up)?;
        self.functions
            .activate(layer_of(&at), f.activation, &mut hidden.values);
        let out = Plain.linear(at.then("down"), &hidden, &f.down)?;
        Ok(Acts::values(out.rows, out.values))
    }

    fn norm(&mut self, at: Site, x: Acts, n: &Norm) -> Result<Acts, FheError> {
        let half = match at.in_layer() {
            "attention.norm" => Half::Attention,
            "feed_forward.norm" => Half::FeedForward,
            // The client's own, exact.
            _ => return Ok(self.padded(&Plain.norm(at, x.real(true), n)?)),
        };
        let (Some(gain), Some(offset)) = (&n.gain, &n.offset) else {
            let site = at.path().to_owned();
            return Err(ModelError::ShapesOnly { site }.into());
        };
        let layer = layer_of(&at);
        let Acts {
            rows,
            x: mut values,
            ..
        } = x;
        for row in values.data_mut().chunks_exact_mut(n.width) {
            let mean = row.iter().sum::<f64>() / n.width as f64;
            row.iter_mut().for_each(|v| *v -= mean);
        }
        self.functions.normalise(layer, half, &rows, &mut values);
        let freezes = self.functions.freezes(layer);
        let given = if freezes && half == Half::FeedForward {
            self.functions.frozen(layer)
        } else {
            vec![0.0; n.width]
        };
        for (block, real) in rows.blocks() {
            for i in block.start + real..block.end {
                values.row_mut(i).fill(0.0);
            }
            if freezes {
                values.row_mut(block.start).copy_from_slice(&given);
            }
        }
        Ok(Acts {
            rows,
            x: values,
            gain: gain.iter().map(|&g| f64::from(g)).collect(),
            offset: offset.iter().map(|&b| f64::from(b)).collect(),
        })
    }

    fn add(&mut self, at: Site, a: &Acts, b: &Acts) -> Result<Acts, FheError> {
        let sum = Plain.add(at, &a.real(true), &b.real(true))?;
        Ok(Acts::values(sum.rows, sum.values))
    }

    fn pool(&mut self, at: Site, x: Acts, p: &Pool) -> Result<Acts, FheError> {
        let pooled = Plain.pool(at, x.real(true), p)?;
        Ok(Acts::values(pooled.rows, pooled.values))
    }

    fn classify(&mut self, at: Site, x: Acts, c: &Classifier) -> Result<Acts, FheError> {
        let first = Plain.pool(at.then("first"), x.real(true), &Pool::First)?;
        let mut arguments = Plain.linear(at.then("dense"), &first, &c.dense)?;
        self.functions.squash(c.activation, &mut arguments.values);
        let logits = Plain.linear(at.then("classes"), &arguments, &c.classes)?;
        Ok(Acts::values(logits.rows, logits.values))
    }

    fn linear(&mut self, _: Site, _: &Acts, _: &Linear) -> Result<Acts, FheError> {
        unsupported("a linear layer by itself")
    }

    fn scores(&mut self, _: Site, _: &Acts, _: &Acts, _: &Heads) -> Result<PlainScores, FheError> {
        unsupported("scores by themselves")
    }

    fn weigh(
        &mut self,
        _: Site,
        _: PlainScores,
        _: Weigh,
        _: &Mask,
    ) -> Result<PlainScores, FheError> {
        unsupported("a softmax by itself")
    }

    fn attend(&mut self, _: Site, _: &PlainScores, _: &Acts, _: &Heads) -> Result<Acts, FheError> {
        unsupported("weights by themselves")
    }

    fn activation(&mut self, _: Site, _: Acts, _: Activation) -> Result<Acts, FheError> {
        unsupported("an activation by itself")
    }
}
