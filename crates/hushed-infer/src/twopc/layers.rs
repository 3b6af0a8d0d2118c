//! The linear layers as they are run: norms folded in, scales folded in, residual columns beside.
//!
//! With y the normalised row that a norm leaves (before its gain γ and offset β), a layer W, b that reads the norm's result computes
//! W(γ∘y + β) + b = (W·diag γ)·y + (W·β + b). The residual sum after the block needs γ∘y + β itself: the rows of diag γ join the layers
//! that read the same y, so that query, key, value and residual are one product of one encrypted y.

use hushed_model::{Attention, FeedForward, Linear, Norm};

use super::formats::{LINEAR, WEIGHT_FRAC};
use super::function::Function;

/// Integer weights of `outputs` × `inputs` and a bias at twice the precision; numbers only at the server.
pub struct Fused {
    /// Columns of the argument.
    pub inputs: usize,
    /// Columns of the result.
    pub outputs: usize,
    /// w·2^[`WEIGHT_FRAC`], `inputs` × `outputs` (as the products want it: argument times this), and the bias in [`LINEAR`].
    pub numbers: Option<Numbers>,
}

/// A layer's integers.
pub struct Numbers {
    /// `inputs` × `outputs`, row by row.
    pub weights: Vec<i32>,
    /// `outputs`.
    pub bias: Vec<i64>,
}

/// One linear layer among those that read the same argument.
pub struct Part<'a> {
    /// The layer.
    pub linear: &'a Linear,
    /// Factor of its weights.
    pub scale: f64,
    /// Factor of its bias: differs where the weights undo a scale of the argument.
    pub bias_scale: f64,
}

impl<'a> Part<'a> {
    fn plain(linear: &'a Linear) -> Part<'a> {
        Part::scaled(linear, 1.0)
    }

    fn scaled(linear: &'a Linear, scale: f64) -> Part<'a> {
        Part {
            linear,
            scale,
            bias_scale: scale,
        }
    }
}

impl Fused {
    /// The layers `parts` side by side, all reading a row that `norm` (if any) still has to scale and shift, and, if `residual`, that
    /// scaled and shifted row itself as the last columns.
    pub fn new(norm: Option<&Norm>, parts: &[Part<'_>], residual: bool) -> Fused {
        let inputs = match parts.first() {
            Some(part) => part.linear.inputs,
            None => norm.map_or(0, |n| n.width),
        };
        let widths = parts.iter().map(|p| p.linear.outputs);
        let outputs = widths.sum::<usize>() + if residual { inputs } else { 0 };
        let numbers = numbers(norm, parts, residual, inputs, outputs);
        Fused {
            inputs,
            outputs,
            numbers,
        }
    }
}

fn numbers(
    norm: Option<&Norm>,
    parts: &[Part<'_>],
    residual: bool,
    inputs: usize,
    outputs: usize,
) -> Option<Numbers> {
    let (gain, offset) = match norm {
        Some(n) => (n.gain.as_deref()?.to_vec(), n.offset.as_deref()?.to_vec()),
        None => (vec![1.0; inputs], vec![0.0; inputs]),
    };
    let weight = |x: f64| (x * f64::from(1u32 << WEIGHT_FRAC)).round() as i32;
    let mut weights = vec![0i32; inputs * outputs];
    let mut bias = Vec::with_capacity(outputs);
    let mut first = 0;
    for part in parts {
        let w = part.linear.weights.as_deref()?;
        let b = part.linear.bias.as_deref()?;
        for o in 0..part.linear.outputs {
            let row = w.row(o);
            let mut sum = f64::from(b[o]);
            for (i, &v) in row.iter().enumerate() {
                sum += f64::from(v) * f64::from(offset[i]);
                weights[i * outputs + first + o] =
                    weight(f64::from(v) * f64::from(gain[i]) * part.scale);
            }
            bias.push(LINEAR.signed(sum * part.bias_scale));
        }
        first += part.linear.outputs;
    }
    if residual {
        for i in 0..inputs {
            weights[i * outputs + first + i] = weight(f64::from(gain[i]));
            bias.push(LINEAR.signed(f64::from(offset[i])));
        }
    }
    Some(Numbers { weights, bias })
}

/// Query (with the factor of the scores, in units of log 2), key, value and residual.
pub fn attention_input(norm: Option<&Norm>, a: &Attention) -> Fused {
    let parts = [
        Part::scaled(&a.query, a.heads.scale * std::f64::consts::LOG2_E),
        Part::plain(&a.key),
        Part::plain(&a.value),
    ];
    Fused::new(norm, &parts, true)
}

/// A layer by itself, such as the attention's last.
pub fn alone(norm: Option<&Norm>, linear: &Linear) -> Fused {
    Fused::new(norm, &[Part::plain(linear)], false)
}

/// The wide layer of a feed-forward block, scaled as its activation wants its argument, and the residual.
pub fn feed_forward_up(norm: Option<&Norm>, f: &FeedForward) -> Fused {
    let part = Part::scaled(&f.up, Function::of(f).scale());
    Fused::new(norm, &[part], true)
}

/// The layer back, which undoes the activation's scale.
pub fn feed_forward_down(f: &FeedForward) -> Fused {
    let part = Part {
        linear: &f.down,
        scale: 1.0 / Function::of(f).scale(),
        bias_scale: 1.0,
    };
    Fused::new(None, &[part], false)
}

/// A norm's gain and offset alone: what pooling reads.
pub fn affine(norm: &Norm) -> Fused {
    Fused::new(Some(norm), &[], true)
}
