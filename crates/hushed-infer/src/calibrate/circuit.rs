//! The forward pass of an encrypted run, in the clear and in f64: rows of padding are computed and masked as they are
//! there, biases of keys and values go where they go there, rows can be frozen and heads fixed. Which functions stand
//! for softmax, activation and inverse root is left to [`Functions`]: exact ones that measure, or polynomials.
//!
//! All rows of padding of a text are alike but the first, into which a rotation may bring the last real row. So two are
//! computed, whatever the number of rows: texts cost what their tokens cost.

use std::sync::Arc;

use hushed_model::{
    Activation, Attention, Block, Classifier, FeedForward, Heads, Linear, Mask, Matrix, Norm,
    PlainActs, Pool, Program, Rows, StepId, TextRows, TokenIds, Weigh, here, plain,
};

use crate::ckks::{FheError, Half, halves};

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

    /// Rows without their means to x̂, rows of deviation 1. Rows of padding and a frozen row are whatever they are;
    /// they are masked after.
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

/// A refusal of what is not done under encryption.
fn unsupported<T>(what: &str) -> Result<T, FheError> {
    Err(FheError::Unsupported {
        what: what.to_owned(),
        remedy: "encoders with a sum and a norm after each block can be run",
    })
}

fn without_bias(w: &Linear) -> Linear {
    Linear {
        bias: Some(Arc::from(vec![0.0; w.outputs])),
        ..w.clone()
    }
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
    fn one_head(
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

impl<F: Functions> Circuit<F> {
    /// The pooled rows of texts, or their logits.
    pub fn run(&mut self, program: &Program, texts: Vec<TokenIds>) -> Result<Acts, FheError> {
        // The client's own, exact.
        let embedded = self.padded(&plain::start(program, texts)?);
        let (layers, halves) = (program.before_layers().end, halves(program));
        let range = layers..program.steps().len();
        program.run(range, Some(embedded), |number, step, values| {
            let at = step.id;
            match &step.block {
                Block::Attention(a) => self.attention(at, values.get(step, 0)?, a),
                Block::FeedForward(f) => self.feed_forward(at, values.get(step, 0)?, f),
                Block::Add => {
                    let (a, b) = (values.get(step, 0)?, values.get(step, 1)?);
                    let sum = plain::add(at, &a.real(true), &b.real(true))?;
                    Ok(Acts::values(sum.rows, sum.values))
                }
                Block::Norm(n) => match halves.get(number).copied().flatten() {
                    Some(half) => self.norm(at, half, values.take(step, 0)?, n),
                    None => unsupported("a norm after no block"),
                },
                Block::Pool(p) => {
                    let pooled = plain::pool(&values.get(step, 0)?.real(true), p);
                    Ok(Acts::values(pooled.rows, pooled.values))
                }
                Block::Head(c) => self.head(at, values.get(step, 0)?, c),
                Block::Embed(_) => unsupported("a second embedding"),
            }
        })
    }

    fn attention(&mut self, at: StepId, x: &Acts, a: &Attention) -> Result<Acts, FheError> {
        let (Weigh::Softmax, Mask::Full) = (a.weigh, a.mask);
        let layer = at.layer().unwrap_or(0);
        let bare = x.real(false);
        let q = plain::linear(at.part("query"), &x.real(true), &a.query)?.values;
        let k = plain::linear(at.part("key"), &bare, &without_bias(&a.key))?.values;
        let v = plain::linear(at.part("value"), &bare, &without_bias(&a.value))?.values;
        let mut context = Matrix::zero(v.rows(), v.cols());
        for block in x.rows.blocks() {
            for head in 0..a.heads.count {
                let operands = [&q, &k, &v];
                self.one_head(layer, head, block.clone(), operands, a.heads, &mut context);
            }
        }
        // Weights of a row sum to 1: what every value has goes through.
        let offsets = PlainActs {
            rows: Rows::unpadded(&[1]),
            values: Matrix::new(1, x.offset.len(), x.offset.clone()).unwrap_or(Matrix::zero(0, 0)),
        };
        let bias = plain::linear(at.part("value"), &offsets, &a.value)?.values;
        for row in context.data_mut().chunks_exact_mut(bias.cols()) {
            row.iter_mut().zip(bias.data()).for_each(|(c, b)| *c += b);
        }
        let context = PlainActs {
            rows: x.rows.clone(),
            values: context,
        };
        let out = plain::linear(at.part("output"), &context, &a.output)?;
        Ok(Acts::values(out.rows, out.values))
    }

    fn feed_forward(&mut self, at: StepId, x: &Acts, f: &FeedForward) -> Result<Acts, FheError> {
        let mut hidden = plain::linear(at.part("up"), &x.real(true), &f.up)?;
        let layer = at.layer().unwrap_or(0);
        self.functions
            .activate(layer, f.activation, &mut hidden.values);
        let out = plain::linear(at.part("down"), &hidden, &f.down)?;
        Ok(Acts::values(out.rows, out.values))
    }

    fn norm(&mut self, at: StepId, half: Half, x: Acts, n: &Norm) -> Result<Acts, FheError> {
        let (gain, offset) = (here(at, &n.gain)?, here(at, &n.offset)?);
        let layer = at.layer().unwrap_or(0);
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

    fn head(&mut self, at: StepId, x: &Acts, c: &Classifier) -> Result<Acts, FheError> {
        let first = plain::pool(&x.real(true), &Pool::First);
        let mut arguments = plain::linear(at.part("dense"), &first, &c.dense)?;
        self.functions.squash(c.activation, &mut arguments.values);
        let logits = plain::linear(at.part("classes"), &arguments, &c.classes)?;
        Ok(Acts::values(logits.rows, logits.values))
    }
}
