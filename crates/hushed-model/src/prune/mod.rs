//! Pruned feed-forward blocks: one linear layer in place of two with an activation between them (the Orion kernels
//! paper, §III-D). The layer is the least-squares fit to the block over the rows of sample texts; nothing is trained. A
//! layer without an activation takes one level under encryption, and between two parties no protocol but a product.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Map, Value, json};

use crate::arch;
use crate::arch::common::MERGED;
use crate::blocks::Linear;
use crate::body::Body;
use crate::error::{FolderError, ModelError, Problem};
use crate::folder::config::CONFIG;
use crate::folder::declared::FUNCTIONS;
use crate::folder::json::without_mark;
use crate::folder::public::PublicFiles;
use crate::folder::report;
use crate::folder::weights::{WEIGHTS, Weights};
use crate::images::Item;
use crate::layers::Source;
use crate::matrix::Matrix;
use crate::model::Model;
use crate::plain::{self, PlainActs};
use crate::program::{Block, Step};

/// The fewest rows of the sample per column: with fewer, the fit would follow the sample and not the block.
pub const LEAST_ROWS: usize = 2;

/// Ridge added to the squares of every column, as a share of their mean: columns may depend on each other.
const RIDGE: f64 = 1e-6;

/// One fitted layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The number of the layer.
    pub layer: usize,
    /// Rows of the sample.
    pub rows: usize,
    /// The share of the variance of the block's results that the linear layer explains.
    pub explained: f64,
}

/// Why nothing was pruned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PruneError {
    /// A layer that does not exist, is pruned already or named twice, or whose activation is gated.
    #[error("layer {layer}: {what}")]
    Layer {
        /// The layer as requested.
        layer: usize,
        /// Why it cannot be pruned.
        what: &'static str,
    },
    /// The sample is too small.
    #[error(
        "the sample has {rows} rows, and a layer of {columns} columns is fitted to {LEAST_ROWS} a column at least; \
         give more texts"
    )]
    Sample {
        /// Tokens in all texts.
        rows: usize,
        /// Columns of the layer.
        columns: usize,
    },
    /// A layer whose fit is not finite: the model's results on the sample are not, or exceed f32.
    #[error("layer {layer}: its fit to the sample is not finite")]
    NotFinite {
        /// The number of the layer.
        layer: usize,
    },
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The folder cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file or folder.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// Replaces the feed-forward block of each of `layers` by a linear layer, in order: later ones are fitted to what they
/// read behind the earlier replacements.
///
/// # Errors
/// Fails if a layer does not exist, is named twice or has a gate, if there are too few rows, if a fit is not finite, or
/// if the model refuses the sample.
pub fn prune(model: &mut Model, layers: &[usize], sample: &[Item]) -> Result<Vec<Fit>, PruneError> {
    let blocks = blocks(model).len();
    for (i, &layer) in layers.iter().enumerate() {
        if layers[..i].contains(&layer) {
            let what = "it is named twice";
            return Err(PruneError::Layer { layer, what });
        }
        let what = match blocks_at(model, layer) {
            None if layer >= blocks => "the model has no such layer",
            Some(Block::FeedForward(f)) if f.gate.is_some() => "its activation is a gate's",
            Some(Block::FeedForward(f)) if f.sub_norm.is_some() => "it has a norm inside",
            Some(Block::FeedForward(_)) => continue,
            _ => "it is a linear layer already",
        };
        return Err(PruneError::Layer { layer, what });
    }
    layers.iter().map(|&i| fit(model, i, sample)).collect()
}

fn fit(model: &mut Model, layer: usize, sample: &[Item]) -> Result<Fit, PruneError> {
    let program = model.program_of_all_rows();
    let at = |step: &Step| step.id.layer() == Some(layer) && matches!(step.block, Block::FeedForward(_));
    let Some(number) = program.steps().iter().position(at) else {
        let what = "it has no feed-forward block";
        return Err(PruneError::Layer { layer, what });
    };
    let read = program.steps()[number].operands.first().map(|edge| edge.from);
    let mut sums = Sums::new(model.public.config.width);
    for item in sample {
        let (mut seen, mut x) = (0, None);
        plain::run(&program, vec![item.clone()], |_, value: &PlainActs| {
            match seen {
                i if Some(i) == read => x = Some(value.clone()),
                i if i == number => sums.add(x.as_ref(), value),
                _ => (),
            }
            seen += 1;
        })?;
    }
    let columns = model.public.config.width;
    if sums.rows < LEAST_ROWS * columns {
        let rows = sums.rows;
        return Err(PruneError::Sample { rows, columns });
    }
    let (linear, explained) = sums.solve();
    let numbers = linear.weights.iter().flat_map(|weights| weights.data());
    let mut numbers = numbers.chain(linear.bias.iter().flat_map(|bias| bias.iter()));
    if !numbers.all(|v| v.is_finite()) {
        return Err(PruneError::NotFinite { layer });
    }
    let rows = sums.rows;
    if let Some(block) = blocks(model).into_iter().nth(layer) {
        *block = Block::Linear(linear);
    }
    let merged = &mut model.public.config.merged;
    merged.push(layer);
    merged.sort_unstable();
    Ok(Fit { layer, rows, explained })
}

/// The feed-forward blocks of all layers.
fn blocks(model: &mut Model) -> Vec<&mut Block> {
    match &mut model.body {
        Body::Encoder(network) => (network.layers.iter_mut()).map(|layer| &mut layer.feed_forward).collect(),
        Body::Decoder(decoder) => (decoder.layers.iter_mut()).map(|layer| &mut layer.feed_forward).collect(),
        Body::Embedder(embedder) => (embedder.layers.iter_mut()).map(|layer| &mut layer.feed_forward).collect(),
        Body::Vision(vision) => (vision.layers.iter_mut()).map(|layer| &mut layer.feed_forward).collect(),
    }
}

fn blocks_at(model: &mut Model, layer: usize) -> Option<&Block> {
    blocks(model).into_iter().nth(layer).map(|block| &*block)
}

/// Sums over rows for a least-squares fit of y = W·x + b, d columns each, where x has a 1 appended.
struct Sums {
    d: usize,
    rows: usize,
    /// Σ x·xᵀ, (d + 1)².
    squares: Matrix<f64>,
    /// Σ y·xᵀ, d × (d + 1).
    products: Matrix<f64>,
    /// Σ y².
    energy: f64,
}

impl Sums {
    fn new(d: usize) -> Sums {
        Sums { d, rows: 0, squares: Matrix::zero(d + 1, d + 1), products: Matrix::zero(d, d + 1), energy: 0.0 }
    }

    /// Adds the rows of a text that are not padding.
    fn add(&mut self, x: Option<&PlainActs>, y: &PlainActs) {
        let Some(x) = x else { return };
        for (rows, real) in y.rows.blocks() {
            for row in rows.start..rows.start + real {
                let with_one: Vec<f64> = x.values.row(row).iter().copied().chain([1.0]).collect();
                let y = y.values.row(row);
                for (i, v) in with_one.iter().enumerate() {
                    let sums = self.squares.row_mut(i).iter_mut();
                    sums.zip(&with_one).for_each(|(s, w)| *s += v * w);
                }
                for (o, v) in y.iter().enumerate() {
                    let sums = self.products.row_mut(o).iter_mut();
                    sums.zip(&with_one).for_each(|(s, w)| *s += v * w);
                    self.energy += v * v;
                }
                self.rows += 1;
            }
        }
    }

    /// The fitted layer, and the share of the variance of y that it explains.
    fn solve(&self) -> (Linear, f64) {
        let d = self.d;
        let mean = (0..d).map(|i| self.squares.row(i)[i]).sum::<f64>() / d as f64;
        let mut squares = self.squares.clone();
        for i in 0..d {
            squares.row_mut(i)[i] += RIDGE * mean;
        }
        let lower = cholesky(squares);
        let (mut weights, mut bias) = (Matrix::zero(d, d), Vec::with_capacity(d));
        let (mut residual, mut variance) = (self.energy, self.energy);
        for o in 0..d {
            let products = self.products.row(o);
            let solved = solve(&lower, products);
            // ‖y − Wx‖² = y² − 2·w·(Σ y·x) + w·(Σ x·xᵀ)·w
            let image = (0..=d).map(|i| dot(self.squares.row(i), &solved));
            let quadratic: f64 = image.zip(&solved).map(|(v, w)| v * w).sum();
            residual += quadratic - 2.0 * dot(products, &solved);
            variance -= products[d].powi(2) / self.rows as f64;
            let row = weights.row_mut(o).iter_mut().zip(&solved);
            row.for_each(|(to, w)| *to = *w as f32);
            bias.push(solved[d] as f32);
        }
        let linear = Linear {
            inputs: d,
            outputs: d,
            weights: Some(Arc::new(weights)),
            stored: None,
            bias: Some(bias.into()),
            ternary: false,
        };
        (linear, 1.0 - residual / variance.max(f64::MIN_POSITIVE))
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The lower triangular L with L·Lᵀ = `a`, for a symmetric positive definite `a`.
fn cholesky(mut a: Matrix<f64>) -> Matrix<f64> {
    for i in 0..a.rows() {
        for j in 0..=i {
            let sum = a.row(i)[j] - dot(&a.row(i)[..j], &a.row(j)[..j]);
            a.row_mut(i)[j] = match i == j {
                true => sum.max(f64::MIN_POSITIVE).sqrt(),
                false => sum / a.row(j)[j],
            };
        }
    }
    a
}

/// Solves L·Lᵀ·x = `b`.
fn solve(lower: &Matrix<f64>, b: &[f64]) -> Vec<f64> {
    let n = b.len();
    let mut x = b.to_vec();
    for i in 0..n {
        x[i] = (x[i] - dot(&lower.row(i)[..i], &x[..i])) / lower.row(i)[i];
    }
    for i in (0..n).rev() {
        x[i] /= lower.row(i)[i];
        let (done, last) = x.split_at_mut(i);
        let row = lower.row(i)[..i].iter();
        done.iter_mut().zip(row).for_each(|(x, l)| *x -= l * last[0]);
    }
    x
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> PruneError + use<> {
    let path = path.display().to_string();
    move |source| PruneError::Write { path, source }
}

/// Writes `model`, which was pruned, to the new folder `to`, with everything public from its source folder `from`
/// except `functions.json`, which was measured on the original model. Numbers are f32; unused tensors are left out.
///
/// # Errors
/// Fails if the folder exists or cannot be written, or if the source is refused.
pub fn write(model: &Model, from: &Path, to: &Path) -> Result<(), PruneError> {
    let (_, weights) = report::open(from).map_err(ModelError::from)?;
    let config = &model.public.config;
    let program = model.program();
    let linear = |step: &Step| match (step.id.layer(), &step.block) {
        (Some(layer), Block::Linear(w)) => {
            let (name, transposed) = config.architecture.merged_name(layer);
            Some((name, (w.clone(), transposed)))
        }
        _ => None,
    };
    let merged = program.steps().iter().filter_map(linear).collect();
    let mut source = Merging { weights: &weights, merged, tensors: BTreeMap::new() };
    let unreadable = |problem| FolderError { folder: from.to_owned(), problems: vec![problem] };
    arch::body(config, model.public.pool, &mut source).map_err(|problem| ModelError::from(unreadable(problem)))?;
    let files = PublicFiles::read(from).map_err(ModelError::from)?;
    fs::create_dir(to).map_err(failed(to))?;
    let written = fill(to, &files, &config.merged, &source.tensors);
    if written.is_err() {
        // Do not leave half a folder behind.
        fs::remove_dir_all(to).map_err(failed(to))?;
    }
    written
}

/// Writes the files of the new folder.
fn fill(
    to: &Path,
    files: &PublicFiles,
    merged: &[usize],
    tensors: &BTreeMap<String, Tensor>,
) -> Result<(), PruneError> {
    for (name, bytes) in files.iter().filter(|(name, _)| *name != FUNCTIONS) {
        let path = to.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed(folder))?;
        }
        let bytes = match name {
            CONFIG => configured(bytes, merged),
            _ => bytes.to_vec(),
        };
        fs::write(&path, bytes).map_err(failed(&path))?;
    }
    let views = tensors.iter().map(|(name, (shape, bytes))| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
        view.map(|view| (name.clone(), view))
    });
    let path = to.join(WEIGHTS);
    let views = views.collect::<Result<Vec<_>, _>>();
    let written = views.and_then(|views| safetensors::serialize_to_file(views, None, &path));
    written.map_err(|error| failed(&path)(std::io::Error::other(error)))
}

/// `config.json` with the list of merged layers.
fn configured(bytes: &[u8], merged: &[usize]) -> Vec<u8> {
    // The bytes have been parsed before.
    let mut object: Map<String, Value> = serde_json::from_slice(without_mark(bytes)).unwrap_or_default();
    object.insert(MERGED.to_owned(), json!(merged));
    let mut bytes = serde_json::to_vec_pretty(&object).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Shape and bytes, little-endian.
type Tensor = (Vec<usize>, Vec<u8>);

/// The tensors of a folder except those of merged layers, kept as they are requested.
struct Merging<'a> {
    weights: &'a Weights<File>,
    /// Each layer by name, and whether its matrix is stored transposed.
    merged: BTreeMap<String, (Linear, bool)>,
    tensors: BTreeMap<String, Tensor>,
}

impl Merging<'_> {
    /// The tensor called `name`, if it belongs to a merged layer.
    fn own(&self, name: &str) -> Option<Vec<f32>> {
        let (layer, part) = name.rsplit_once('.')?;
        let (linear, transposed) = self.merged.get(layer)?;
        if part == "bias" {
            return Some(linear.bias.as_ref()?.to_vec());
        }
        let weights = linear.weights.as_ref()?;
        if !transposed {
            return Some(weights.data().to_vec());
        }
        let column = |c: usize| (0..weights.rows()).map(move |r| weights.row(r)[c]);
        Some((0..weights.cols()).flat_map(column).collect())
    }
}

impl Source for Merging<'_> {
    type Error = Problem;
    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vec<f32>>, Problem> {
        let numbers = match self.own(name) {
            Some(own) => own,
            None => self.weights.read(name, shape)?,
        };
        let bytes = numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.tensors.insert(name.to_owned(), (shape.to_vec(), bytes));
        // The layers that are built from it are not used.
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
