//! A graph in the clear, in f64: the oracle for every private run.

use std::sync::Arc;

use super::ops::{Conv2d, Function, Op, Window};
use super::shapes::{place, places};
use super::{Graph, Node};
use crate::blocks::Linear;
use crate::error::ModelError;
use crate::matrix::Matrix;
use crate::plain::{activation, times_transposed};

/// A value: its shape, and its numbers in row-major order. No `Debug`: it may be private.
#[derive(Clone, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    data: Vec<f64>,
}

impl Tensor {
    /// Takes as many numbers as the shape has; `None` if there are more or fewer.
    pub fn new(shape: Vec<usize>, data: Vec<f64>) -> Option<Tensor> {
        let count = shape.iter().try_fold(1_usize, |all, &size| all.checked_mul(size));
        (count == Some(data.len())).then_some(Tensor { shape, data })
    }

    /// The sizes of its dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its numbers, the last dimension fastest.
    pub fn data(&self) -> &[f64] {
        &self.data
    }
}

impl Graph {
    /// The values of the outputs for these inputs, one per input of the graph, in its order.
    ///
    /// # Errors
    /// [`ModelError::Mismatch`] if an input has another size; [`ModelError::ShapesOnly`] without weights.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, ModelError> {
        self.run_seen(inputs, |_, _| ())
    }

    /// The same, showing the value of every node with its number.
    ///
    /// # Errors
    /// Those of [`Graph::run`].
    pub fn run_seen(&self, inputs: &[Tensor], mut seen: impl FnMut(usize, &[f64])) -> Result<Vec<Tensor>, ModelError> {
        same("the network", "inputs", inputs.len(), self.inputs.len())?;
        // The last node that reads each value, after which it is dropped; outputs are kept.
        let mut last: Vec<usize> = (0..self.nodes.len()).collect();
        for (number, node) in self.nodes.iter().enumerate() {
            node.operands.iter().for_each(|&from| last[from] = number);
        }
        self.outputs.iter().for_each(|&number| last[number] = usize::MAX);
        let mut values: Vec<Option<Vec<f64>>> = vec![None; self.nodes.len()];
        for (number, node) in self.nodes.iter().enumerate() {
            let value = match self.inputs.iter().position(|&input| input == number) {
                Some(input) => self.input(node, &inputs[input])?,
                None => {
                    let missing = || ModelError::NoValue { site: node.name.clone() };
                    let reads = node.operands.iter().map(|&from| values[from].as_deref().ok_or_else(missing));
                    self.value(number, &reads.collect::<Result<Vec<_>, _>>()?)?
                }
            };
            seen(number, &value);
            values[number] = Some(value);
            for &from in node.operands.iter().filter(|&&from| last[from] == number) {
                values[from] = None;
            }
        }
        let answer = self.outputs.iter().map(|&number| {
            let node = &self.nodes[number];
            let data = values[number].clone().ok_or_else(|| ModelError::NoValue { site: node.name.clone() })?;
            Ok(Tensor { shape: node.shape.clone(), data })
        });
        answer.collect()
    }

    /// The value of a node from those that it reads.
    ///
    /// # Errors
    /// [`ModelError::ShapesOnly`] without weights; [`ModelError::NoValue`] for an input.
    pub fn value(&self, number: usize, reads: &[&[f64]]) -> Result<Vec<f64>, ModelError> {
        let node = &self.nodes[number];
        value(node, reads, self.first_shape(node))
    }

    /// The same with every weight 1 and every bias 0: of values that are 0 or positive, which numbers of a linear
    /// operation's value depend on them.
    ///
    /// # Errors
    /// Those of [`Graph::value`].
    pub fn reached(&self, number: usize, reads: &[&[f64]]) -> Result<Vec<f64>, ModelError> {
        let mut node = self.nodes[number].clone();
        match &mut node.op {
            Op::Linear { linear, .. } | Op::Conv2d(Conv2d { linear, .. }) => {
                let ones = vec![1.0; linear.outputs * linear.inputs];
                linear.weights = Matrix::new(linear.outputs, linear.inputs, ones).map(Arc::new);
                linear.bias = Some(vec![0.0; linear.outputs].into());
            }
            Op::BatchNorm(norm) => norm.map = Some(vec![[1.0, 0.0]; norm.channels].into()),
            Op::Function { of: Function::Affine { factor, offset }, .. } => (*factor, *offset) = (1.0, 0.0),
            _ => {}
        }
        value(&node, reads, self.first_shape(&node))
    }

    /// The values of the nodes that depend on no input, by number; `None` for the others.
    ///
    /// # Errors
    /// [`ModelError::ShapesOnly`] without weights.
    pub fn constants(&self) -> Result<Vec<Option<Vec<f64>>>, ModelError> {
        let mut found: Vec<Option<Vec<f64>>> = Vec::with_capacity(self.nodes.len());
        for (number, node) in self.nodes.iter().enumerate() {
            let reads: Option<Vec<&[f64]>> = node.operands.iter().map(|&from| found[from].as_deref()).collect();
            found.push(match (&node.op, reads) {
                (Op::Input, _) | (_, None) => None,
                (_, Some(reads)) => Some(self.value(number, &reads)?),
            });
        }
        Ok(found)
    }

    /// The shape of the first value that a node reads.
    fn first_shape(&self, node: &Node) -> &[usize] {
        node.operands.first().map(|&from| self.nodes[from].shape.as_slice()).unwrap_or_default()
    }

    fn input(&self, node: &Node, given: &Tensor) -> Result<Vec<f64>, ModelError> {
        same(&node.name, "dimensions", given.shape.len(), node.shape.len())?;
        let sizes = given.shape.iter().zip(&node.shape);
        sizes.into_iter().try_for_each(|(&found, &expected)| same(&node.name, "a dimension", found, expected))?;
        Ok(given.data.clone())
    }
}

/// The value of a node that reads these; `shape` is that of the first.
fn value(node: &Node, reads: &[&[f64]], shape: &[usize]) -> Result<Vec<f64>, ModelError> {
    let first = reads.first().copied().unwrap_or_default();
    let two = |f: fn(f64, f64) -> f64| {
        let second = reads.get(1).copied().unwrap_or_default();
        first.iter().zip(second).map(|(&a, &b)| f(a, b)).collect()
    };
    Ok(match &node.op {
        Op::Input => return Err(ModelError::NoValue { site: node.name.clone() }),
        Op::Constant { value, .. } => here(node, value)?.iter().map(|&v| f64::from(v)).collect(),
        Op::Linear { linear: layer, .. } => {
            let rows = first.len() / layer.inputs.max(1);
            linear(node, Matrix::new(rows, layer.inputs, first.to_vec()), layer, 0..layer.outputs)?.data().to_vec()
        }
        Op::Conv2d(conv) => convolved(node, first, shape, conv)?,
        Op::AvgPool2d(window) => averaged(first, shape, window, &node.shape),
        Op::Mean { dims, .. } => means(first, shape, &places(dims, shape.len()).unwrap_or_default()),
        Op::BatchNorm(norm) => {
            let map = here(node, &norm.map)?;
            let each = first.chunks_exact((first.len() / norm.channels.max(1)).max(1)).zip(map.iter());
            each.flat_map(|(channel, [gain, offset])| channel.iter().map(move |v| v * gain + offset)).collect()
        }
        Op::Norm(norm) => norm.value(first).ok_or_else(|| ModelError::ShapesOnly { site: node.name.clone() })?,
        Op::Function { of, .. } => first.iter().map(|&v| of.at(v)).collect(),
        Op::Add => two(|a, b| a + b),
        Op::Mul => two(|a, b| a * b),
        Op::Concat { dim } => {
            let at = place(*dim, node.shape.len()).unwrap_or_default();
            let before = node.shape[..at].iter().product::<usize>().max(1);
            let part = |i: usize| reads.iter().flat_map(move |read| read.chunks_exact(read.len() / before).nth(i));
            (0..before).flat_map(part).flatten().copied().collect()
        }
        Op::Reshape(_) => first.to_vec(),
    })
}

impl Function {
    /// Its value at x.
    pub fn at(&self, x: f64) -> f64 {
        match self {
            Function::Known(f) => activation(*f, x),
            Function::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Function::Exp => x.exp(),
            Function::InverseRoot => 1.0 / x.sqrt(),
            Function::Square => x * x,
            Function::Affine { factor, offset } => factor * x + offset,
            Function::Interp(points) => interpolated(points, x),
        }
    }
}

fn interpolated(points: &[[f64; 2]], x: f64) -> f64 {
    let after = points.partition_point(|[at, _]| *at <= x);
    match (after.checked_sub(1).and_then(|before| points.get(before)), points.get(after)) {
        (Some([x0, y0]), Some([x1, y1])) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
        (Some([_, y]), None) | (None, Some([_, y])) => *y,
        (None, None) => 0.0,
    }
}

/// `X·Wᵀ + b` for some rows of W.
fn linear(
    node: &Node,
    x: Option<Matrix<f64>>,
    layer: &Linear,
    rows: std::ops::Range<usize>,
) -> Result<Matrix<f64>, ModelError> {
    let x = x.ok_or_else(|| ModelError::NoValue { site: node.name.clone() })?;
    let (weights, bias) = (here(node, &layer.weights)?, here(node, &layer.bias)?);
    let mut y = match rows.len() == weights.rows() {
        true => times_transposed(&x, weights),
        false => times_transposed(&x, &weights.rows_of(rows.clone())),
    };
    for row in y.data_mut().chunks_exact_mut(rows.len().max(1)) {
        row.iter_mut().zip(&bias[rows.clone()]).for_each(|(v, &b)| *v += f64::from(b));
    }
    Ok(y)
}

/// Each group as one matrix product: its patches × its rows of the weights.
fn convolved(node: &Node, x: &[f64], shape: &[usize], conv: &Conv2d) -> Result<Vec<f64>, ModelError> {
    let [_, rows, columns] = [node.shape[0], node.shape[1], node.shape[2]];
    let (inputs, outputs) = (conv.inputs / conv.groups, conv.outputs / conv.groups);
    let mut value = Vec::with_capacity(conv.outputs * rows * columns);
    for group in 0..conv.groups {
        let mut patches = Matrix::zero(rows * columns, conv.linear.inputs);
        let channels = group * inputs..(group + 1) * inputs;
        for place in 0..rows * columns {
            let at = [place / columns, place % columns];
            let numbers = channels.clone().flat_map(|channel| patch(x, shape, &conv.window, channel, at));
            patches.row_mut(place).iter_mut().zip(numbers).for_each(|(to, v)| *to = v.unwrap_or(0.0));
        }
        let y = linear(node, Some(patches), &conv.linear, group * outputs..(group + 1) * outputs)?; // places × outputs
        for output in 0..outputs {
            value.extend((0..rows * columns).map(|place| y.row(place)[output]));
        }
    }
    Ok(value)
}

fn averaged(x: &[f64], shape: &[usize], window: &Window, to: &[usize]) -> Vec<f64> {
    let (rows, columns) = (to[1], to[2]);
    let places = (0..to[0]).flat_map(|channel| (0..rows * columns).map(move |place| (channel, place)));
    let mean = |(channel, place): (usize, usize)| {
        let numbers = patch(x, shape, window, channel, [place / columns, place % columns]);
        let (sum, inside, all) = numbers.fold((0.0, 0_usize, 0_usize), |(sum, inside, all), v| {
            (sum + v.unwrap_or(0.0), inside + usize::from(v.is_some()), all + 1)
        });
        let count = if window.counts_padding { all } else { inside };
        sum / count as f64
    };
    places.map(mean).collect()
}

/// The means over some dimensions, one dimension after another.
fn means(x: &[f64], shape: &[usize], places: &[usize]) -> Vec<f64> {
    let (mut x, mut shape) = (x.to_vec(), shape.to_vec());
    for &place in places {
        let (size, after) = (shape[place], shape[place + 1..].iter().product::<usize>());
        let mut sums = vec![0.0; x.len() / size];
        for (i, v) in x.iter().enumerate() {
            sums[i / (size * after) * after + i % after] += v;
        }
        sums.iter_mut().for_each(|sum| *sum /= size as f64);
        (x, shape[place]) = (sums, 1);
    }
    x
}

/// The numbers of one window of a channel, row by row; `None` in the padding.
fn patch<'a>(
    x: &'a [f64],
    shape: &'a [usize],
    window: &'a Window,
    channel: usize,
    at: [usize; 2],
) -> impl Iterator<Item = Option<f64>> + 'a {
    let (rows, columns) = (shape[1], shape[2]);
    let place = move |i: usize, step: usize| at[i] * window.stride[i] + step * window.dilation[i];
    (0..window.kernel[0]).flat_map(move |i| {
        (0..window.kernel[1]).map(move |j| {
            let row = place(0, i).checked_sub(window.padding[0]).filter(|&row| row < rows)?;
            let column = place(1, j).checked_sub(window.padding[1]).filter(|&column| column < columns)?;
            Some(x[(channel * rows + row) * columns + column])
        })
    })
}

fn here<'a, T: ?Sized>(node: &Node, numbers: &'a Option<Arc<T>>) -> Result<&'a Arc<T>, ModelError> {
    numbers.as_ref().ok_or_else(|| ModelError::ShapesOnly { site: node.name.clone() })
}

fn same(site: &str, what: &'static str, found: usize, expected: usize) -> Result<(), ModelError> {
    match found == expected {
        true => Ok(()),
        false => Err(ModelError::Mismatch { site: site.to_owned(), what, found, expected }),
    }
}
