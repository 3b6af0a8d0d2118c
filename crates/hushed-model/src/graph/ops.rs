//! The operations: their shapes, their tensors, and their attributes, which are those of torch's modules.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use super::attributes::Attributes;
use super::faults::{MAX_ELEMENTS, NodeFault};
use super::norm::RowNorm;
use super::shapes::{Size, bounded, joined, places, product, reshaped, without};
use crate::blocks::{Activation, Linear};

/// What a node computes.
#[derive(Clone)]
pub enum Op {
    /// A value that the caller gives.
    Input,
    /// A value that is stored: the tensor `{weights}.value`.
    Constant {
        /// Its shape.
        shape: Vec<usize>,
        /// Its numbers; `None` with shapes only.
        value: Option<Arc<[f32]>>,
    },
    /// `x·Wᵀ + b` of the last dimension.
    Linear {
        /// The layer; without a bias in the folder it has zeros.
        linear: Linear,
        /// Whether there is a bias in the folder.
        has_bias: bool,
    },
    /// A convolution over the last two of three dimensions: channels, rows, columns.
    Conv2d(Conv2d),
    /// The mean of each window over the last two of three dimensions.
    AvgPool2d(Window),
    /// The mean over dimensions, which become 1 each or are left out.
    Mean {
        /// Which ones; negative numbers count from the end.
        dims: Vec<i64>,
        /// Whether they become 1.
        keep: bool,
    },
    /// A factor and an offset for each channel, dimension 0.
    BatchNorm(BatchNorm),
    /// Each row with a mean of 0 and a variance of 1, or with a mean square of 1.
    Norm(RowNorm),
    /// A function of every number.
    Function {
        /// Which one.
        of: Function,
        /// The degree of the polynomial that replaces it under encryption, if the owner chose one.
        degree: Option<usize>,
    },
    /// The sum of two values.
    Add,
    /// The product of two values, number by number.
    Mul,
    /// Values one after another along a dimension.
    Concat {
        /// Which one; negative numbers count from the end.
        dim: i64,
    },
    /// The same numbers in the same order under another shape.
    Reshape(Vec<Size>),
}

/// A function of one number.
#[derive(Clone)]
pub enum Function {
    /// A published activation.
    Known(Activation),
    /// `1/(1 + e^{−x})`.
    Sigmoid,
    /// `e^x`.
    Exp,
    /// `1/√x` of positive numbers, a part of norms.
    InverseRoot,
    /// `x²`.
    Square,
    /// `factor·x + offset`.
    Affine {
        /// The factor.
        factor: f64,
        /// The offset.
        offset: f64,
    },
    /// Linear between these points (x, y), whose x increase; constant before the first and after the last.
    Interp(Arc<[[f64; 2]]>),
}

/// The windows of a convolution or a pooling. Pairs are rows, then columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Size of a window.
    pub kernel: [usize; 2],
    /// Distance between windows.
    pub stride: [usize; 2],
    /// Zeros on each side.
    pub padding: [usize; 2],
    /// Distance between the numbers of a window.
    pub dilation: [usize; 2],
    /// A mean counts the zeros of the padding.
    pub counts_padding: bool,
}

/// A convolution.
#[derive(Clone)]
pub struct Conv2d {
    /// Channels of the operand.
    pub inputs: usize,
    /// Channels of the result.
    pub outputs: usize,
    /// A divisor of both: channels are split into this many groups, and each group reads its own.
    pub groups: usize,
    /// Its windows.
    pub window: Window,
    /// As `outputs × (inputs/groups · kernel rows · kernel columns)`; the bias has one number per output, zeros without
    /// one.
    pub linear: Linear,
    /// Whether there is a bias in the folder.
    pub has_bias: bool,
}

/// A batch normalisation after training, as `gain·x + offset` for each channel.
#[derive(Clone)]
pub struct BatchNorm {
    /// Channels.
    pub channels: usize,
    /// ε, added to the variance.
    pub epsilon: f64,
    /// Whether the folder has a weight and a bias.
    pub affine: bool,
    /// Number of dimensions that it takes.
    pub(super) dimensions: [usize; 2],
    /// Per channel, gain and offset; `None` with shapes only.
    pub map: Option<Arc<[[f64; 2]]>>,
}

/// Largest size in an attribute.
const MAX_SIZE: usize = 1 << 20;
/// Most points of a table.
const MAX_POINTS: usize = 4096;
/// Largest degree of a polynomial.
const MAX_DEGREE: usize = 255;

/// By name, in the order of docs/networks.md.
pub(super) const OPS: [(&str, Reader); 24] = [
    ("Linear", linear),
    ("Conv2d", conv2d),
    ("AvgPool2d", avg_pool2d),
    ("BatchNorm1d", |a| batch_norm(a, [1, 2])),
    ("BatchNorm2d", |a| batch_norm(a, [3, 3])),
    ("LayerNorm", |a| norm(a, true)),
    ("RMSNorm", |a| norm(a, false)),
    ("Add", |a| two_or_value(a, Op::Add, |offset| Function::Affine { factor: 1.0, offset })),
    ("Mul", |a| two_or_value(a, Op::Mul, |factor| Function::Affine { factor, offset: 0.0 })),
    ("Mean", mean),
    ("Concat", concat),
    ("Square", |_| function(Function::Square, None)),
    ("ReLU", |a| known(a, Activation::Relu)),
    ("GELU", gelu),
    ("SiLU", |a| known(a, Activation::Silu)),
    ("ELU", elu),
    ("Tanh", |a| known(a, Activation::Tanh)),
    ("Sigmoid", |a| function(Function::Sigmoid, a.degree(MAX_DEGREE))),
    ("Exp", |a| function(Function::Exp, a.degree(MAX_DEGREE))),
    ("Interp", interp),
    ("Flatten", flatten),
    ("Reshape", reshape),
    ("Constant", constant),
    ("AdaptiveAvgPool2d", adaptive),
];

/// From the attributes of a node to its operation; faults go to the list that the attributes hold.
pub(super) type Reader = fn(&mut Attributes<'_>) -> Option<Op>;

/// What to use in place of operations that users will try.
pub(super) const INSTEAD: [(&str, &str); 8] = [
    ("MaxPool2d", ": use AvgPool2d"),
    ("LeakyReLU", ": use Interp, with a table of points"),
    ("Hardswish", ": use SiLU, or Interp with a table of points"),
    ("Conv1d", ": use Conv2d with a kernel of one row"),
    ("Softmax", ": leave it out, as the largest number stays the largest"),
    ("LogSoftmax", ": leave it out, as the largest number stays the largest"),
    ("Dropout", ": leave it out, as it does nothing after training"),
    ("Identity", ": leave it out"),
];

fn linear(a: &mut Attributes<'_>) -> Option<Op> {
    let inputs = a.size("in_features", None, 1, MAX_SIZE);
    let outputs = a.size("out_features", None, 1, MAX_SIZE);
    let has_bias = a.flag("bias", true);
    Some(Op::Linear { linear: shapes(inputs?, outputs?), has_bias })
}

/// A layer of which only the shape is known.
fn shapes(inputs: usize, outputs: usize) -> Linear {
    Linear { inputs, outputs, weights: None, stored: None, bias: None, ternary: false }
}

fn conv2d(a: &mut Attributes<'_>) -> Option<Op> {
    let inputs = a.size("in_channels", None, 1, MAX_SIZE);
    let outputs = a.size("out_channels", None, 1, MAX_SIZE);
    let groups = a.size("groups", Some(1), 1, MAX_SIZE);
    let window = window(a, false);
    let dilation = a.pair("dilation", Some([1, 1]), 1);
    let has_bias = a.flag("bias", true);
    a.only("padding_mode", "zeros");
    let (inputs, outputs, groups) = (inputs?, outputs?, groups?);
    let window = Window { dilation: dilation?, ..window? };
    if inputs % groups != 0 || outputs % groups != 0 {
        a.fault("groups", "a divisor of in_channels and out_channels");
        return None;
    }
    let Some(columns) = product(&[inputs / groups, window.kernel[0], window.kernel[1]]) else {
        a.fault("kernel_size", "smaller");
        return None;
    };
    let linear = shapes(columns, outputs);
    Some(Op::Conv2d(Conv2d { inputs, outputs, groups, window, linear, has_bias }))
}

/// Kernel, stride and padding, without dilation. The stride of windows that are `apart` is their size if it is not
/// given, and 1 for others.
fn window(a: &mut Attributes<'_>, apart: bool) -> Option<Window> {
    let kernel = a.pair("kernel_size", None, 1);
    let usual = kernel.filter(|_| apart).unwrap_or([1; 2]);
    let stride = a.pair("stride", Some(usual), 1);
    let padding = a.pair("padding", Some([0; 2]), 0);
    let (kernel, stride, padding) = (kernel?, stride?, padding?);
    Some(Window { kernel, stride, padding, dilation: [1; 2], counts_padding: true })
}

fn avg_pool2d(a: &mut Attributes<'_>) -> Option<Op> {
    let window = window(a, true);
    let counts_padding = a.flag("count_include_pad", true);
    a.off("ceil_mode");
    let window = window?;
    // As torch: a window beyond it would hold nothing but zeros.
    if window.padding.iter().zip(window.kernel).any(|(p, k)| 2 * p > k) {
        a.fault("padding", "at most half of kernel_size");
        return None;
    }
    Some(Op::AvgPool2d(Window { counts_padding, ..window }))
}

fn adaptive(a: &mut Attributes<'_>) -> Option<Op> {
    let size = a.pair("output_size", None, 1)?;
    if size != [1, 1] {
        a.fault("output_size", "1: use AvgPool2d for others");
        return None;
    }
    Some(Op::Mean { dims: vec![-2, -1], keep: true })
}

fn mean(a: &mut Attributes<'_>) -> Option<Op> {
    let (dims, keep) = (a.dims("dim"), a.flag("keepdim", false));
    Some(Op::Mean { dims: dims?, keep })
}

fn concat(a: &mut Attributes<'_>) -> Option<Op> {
    let dims = a.dims("dim")?;
    let [dim] = dims[..] else {
        a.fault("dim", "one dimension");
        return None;
    };
    Some(Op::Concat { dim })
}

fn batch_norm(a: &mut Attributes<'_>, dimensions: [usize; 2]) -> Option<Op> {
    let channels = a.size("num_features", None, 1, MAX_SIZE);
    let epsilon = a.real("eps", Some(1e-5), f64::MIN_POSITIVE, 1.0);
    let affine = a.flag("affine", true);
    Some(Op::BatchNorm(BatchNorm { channels: channels?, epsilon: epsilon?, affine, dimensions, map: None }))
}

fn norm(a: &mut Attributes<'_>, centred: bool) -> Option<Op> {
    let shape = a.sizes("normalized_shape", false, MAX_SIZE);
    // torch's default for a mean square is what separates two numbers of 24 bits.
    let usual = if centred { 1e-5 } else { f64::from(f32::EPSILON) };
    let epsilon = a.real("eps", Some(usual), f64::MIN_POSITIVE, 1.0);
    let has_gain = a.flag("elementwise_affine", true);
    let has_bias = centred && a.flag("bias", true) && has_gain;
    let degree = a.degree(MAX_DEGREE);
    let shape: Vec<usize> = shape?.into_iter().flatten().collect();
    if shape.is_empty() {
        a.fault("normalized_shape", "at least one size");
        return None;
    }
    let (gain, bias) = (None, None);
    Some(Op::Norm(RowNorm { shape, centred, epsilon: epsilon?, degree, has_gain, has_bias, gain, bias }))
}

fn two_or_value(a: &mut Attributes<'_>, two: Op, of: fn(f64) -> Function) -> Option<Op> {
    match a.has("value") {
        false => Some(two),
        true => function(of(a.real("value", None, f64::MIN, f64::MAX)?), None),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the end of readers, which may fail")]
fn function(of: Function, degree: Option<usize>) -> Option<Op> {
    Some(Op::Function { of, degree })
}

fn known(a: &mut Attributes<'_>, activation: Activation) -> Option<Op> {
    function(Function::Known(activation), a.degree(MAX_DEGREE))
}

fn elu(a: &mut Attributes<'_>) -> Option<Op> {
    if a.real("alpha", Some(1.0), 0.0, f64::MAX)? != 1.0 {
        a.fault("alpha", "1");
        return None;
    }
    known(a, Activation::Elu)
}

fn gelu(a: &mut Attributes<'_>) -> Option<Op> {
    let activation = match a.text("approximate") {
        None | Some("none") => Activation::Gelu,
        Some("tanh") => Activation::GeluTanh,
        Some(_) => {
            a.fault("approximate", "none or tanh");
            return None;
        }
    };
    known(a, activation)
}

fn interp(a: &mut Attributes<'_>) -> Option<Op> {
    let degree = a.degree(MAX_DEGREE);
    let (xp, fp) = (a.reals("xp", MAX_POINTS), a.reals("fp", MAX_POINTS));
    let (xp, fp) = (xp?, fp?);
    let rising = xp.windows(2).all(|pair| matches!(pair, [x, y] if x < y));
    if xp.len() < 2 || xp.len() != fp.len() || !rising {
        a.fault("xp", "at least two numbers that increase, as many as in fp");
        return None;
    }
    let points: Vec<[f64; 2]> = xp.into_iter().zip(fp).map(|(x, y)| [x, y]).collect();
    function(Function::Interp(points.into()), degree)
}

fn flatten(a: &mut Attributes<'_>) -> Option<Op> {
    let (from, to) = (a.dim("start_dim", 1), a.dim("end_dim", -1));
    Some(Op::Reshape(vec![Size::Flat(from?, to?)]))
}

fn reshape(a: &mut Attributes<'_>) -> Option<Op> {
    let sizes = a.sizes("shape", true, MAX_ELEMENTS)?;
    let sizes = sizes.into_iter().map(|size| size.map_or(Size::Rest, Size::Is));
    Some(Op::Reshape(sizes.collect()))
}

fn constant(a: &mut Attributes<'_>) -> Option<Op> {
    let shape = a.sizes("shape", false, MAX_ELEMENTS)?.into_iter().flatten().collect();
    Some(Op::Constant { shape, value: None })
}

impl Op {
    /// How many values it reads, where its node names so many.
    pub(super) fn operands(&self, named: usize) -> usize {
        match self {
            Op::Input | Op::Constant { .. } => 0,
            Op::Add | Op::Mul => 2,
            Op::Concat { .. } => named.max(1),
            _ => 1,
        }
    }

    /// The shape of its value, from those that it reads. An input has no shape but the one that the file gives it.
    pub(super) fn shape(&self, operands: &[&[usize]]) -> Result<Vec<usize>, NodeFault> {
        let first = operands.first().copied().unwrap_or_default();
        let refused = |expected: String| NodeFault::Shape { found: first.to_vec(), expected };
        let shape = match self {
            Op::Constant { shape, .. } => shape.clone(),
            Op::Input | Op::Function { .. } => first.to_vec(),
            Op::Linear { linear, .. } => match first.split_last() {
                Some((&last, before)) if last == linear.inputs => [before, &[linear.outputs]].concat(),
                _ => return Err(refused(format!("[…, {}]", linear.inputs))),
            },
            Op::Conv2d(conv) => {
                let (window, outputs) = (conv.window, conv.outputs);
                let images = first.first() == Some(&conv.inputs);
                let moved = window.moved(first).filter(|_| images);
                let [rows, columns] = moved.ok_or_else(|| {
                    refused(format!("[{}, rows, columns] with rows and columns for a window", conv.inputs))
                })?;
                let patches = product(&[rows, columns, conv.inputs / conv.groups, window.kernel[0], window.kernel[1]]);
                bounded(patches)?;
                vec![outputs, rows, columns]
            }
            Op::AvgPool2d(window) => {
                let expected = || refused("[channels, rows, columns] with rows and columns for a window".to_owned());
                let channels = first.first().copied().ok_or_else(expected)?;
                let [rows, columns] = window.moved(first).ok_or_else(expected)?;
                vec![channels, rows, columns]
            }
            Op::Mean { dims, keep } => match places(dims, first.len()) {
                Some(places) => without(first, &places, *keep),
                None => return Err(refused("one with each of these dimensions, once".to_owned())),
            },
            Op::Concat { dim } => joined(operands, *dim).ok_or_else(|| {
                let second = operands.iter().find(|shape| joined(&[first, shape], *dim).is_none());
                NodeFault::NotJoined { first: first.to_vec(), second: second.map_or(Vec::new(), |s| s.to_vec()) }
            })?,
            Op::BatchNorm(norm) => {
                let [least, most] = norm.dimensions;
                if first.first() != Some(&norm.channels) || !(least..=most).contains(&first.len()) {
                    let expected = match least {
                        1 => format!("[{0}] or [{0}, length]", norm.channels),
                        _ => format!("[{}, rows, columns]", norm.channels),
                    };
                    return Err(refused(expected));
                }
                first.to_vec()
            }
            Op::Norm(norm) if !first.ends_with(&norm.shape) => {
                let sizes: Vec<String> = norm.shape.iter().map(usize::to_string).collect();
                return Err(refused(format!("[…, {}]", sizes.join(", "))));
            }
            Op::Norm(_) => first.to_vec(),
            Op::Add | Op::Mul => match operands {
                [a, b] if a == b => a.to_vec(),
                [a, b] => return Err(NodeFault::OtherShapes { first: a.to_vec(), second: b.to_vec() }),
                _ => return Err(NodeFault::Operands { found: operands.len(), expected: 2 }),
            },
            Op::Reshape(sizes) => {
                reshaped(first, sizes).ok_or_else(|| refused("as many numbers as its own shape".to_owned()))?
            }
        };
        bounded(product(&shape))?;
        self.tensors().iter().try_for_each(|(_, shape)| bounded(product(shape)))?;
        Ok(shape)
    }

    /// The ends of its tensors' names, with their shapes.
    pub(super) fn tensors(&self) -> Vec<(&'static str, Vec<usize>)> {
        match self {
            Op::Constant { shape, .. } => vec![("value", shape.clone())],
            Op::Linear { linear: l, has_bias } => with_bias(vec![l.outputs, l.inputs], l.outputs, *has_bias),
            Op::Conv2d(c) => {
                let [rows, columns] = c.window.kernel;
                let weight = vec![c.outputs, c.inputs / c.groups, rows, columns];
                with_bias(weight, c.outputs, c.has_bias)
            }
            Op::BatchNorm(norm) => {
                let names: &[&str] = match norm.affine {
                    true => &["running_mean", "running_var", "weight", "bias"],
                    false => &["running_mean", "running_var"],
                };
                names.iter().map(|name| (*name, vec![norm.channels])).collect()
            }
            Op::Norm(norm) if norm.has_gain => {
                let bias = norm.has_bias.then(|| ("bias", norm.shape.clone()));
                [("weight", norm.shape.clone())].into_iter().chain(bias).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn with_bias(weight: Vec<usize>, outputs: usize, has_bias: bool) -> Vec<(&'static str, Vec<usize>)> {
    let bias = has_bias.then(|| ("bias", vec![outputs]));
    [("weight", weight)].into_iter().chain(bias).collect()
}

impl Window {
    /// Rows and columns of windows over a value of three dimensions; `None` if it has others, or no window fits.
    fn moved(&self, shape: &[usize]) -> Option<[usize; 2]> {
        let &[_, rows, columns] = shape else { return None };
        let [rows, columns] = [(rows, 0), (columns, 1)].map(|(size, i)| self.along(size, i));
        Some([rows?, columns?])
    }

    /// Windows along one dimension: `⌊(size + 2·padding − dilation·(kernel − 1) − 1)/stride⌋ + 1`.
    fn along(&self, size: usize, i: usize) -> Option<usize> {
        let of = |pair: [usize; 2]| pair.get(i).copied();
        let (kernel, stride) = (of(self.kernel)?, of(self.stride)?);
        let span = of(self.dilation)?.checked_mul(kernel.checked_sub(1)?)?.checked_add(1)?;
        let free = size.checked_add(2 * of(self.padding)?)?.checked_sub(span)?;
        Some(free.checked_div(stride)? + 1)
    }
}
