//! Pruned feed-forward blocks: one linear layer in place of two with an activation between them (the Orion kernels
//! paper, §III-D). The layer is the one nearest to the block on sample texts, by least squares over their rows; nothing
//! is trained. A layer without an activation takes one level under encryption, and between two parties no protocol but
//! a product.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Map, Value, json};

use crate::blocks::Linear;
use crate::body::Body;
use crate::error::{FolderError, ModelError, Problem};
use crate::folder::config::{CONFIG, MERGED};
use crate::folder::declared::FUNCTIONS;
use crate::folder::public::PublicFiles;
use crate::folder::report;
use crate::folder::weights::{WEIGHTS, Weights};
use crate::images::Item;
use crate::layers::{self, Source, merged_name};
use crate::matrix::Matrix;
use crate::model::Model;
use crate::plain::{self, PlainActs};
use crate::program::{Block, Step};

/// Rows of the sample for every column, at least: fewer would be fitted, and not the block.
pub const LEAST_ROWS: usize = 2;

/// What is added to the squares of every column, of their mean: columns may depend on each other.
const RIDGE: f64 = 1e-6;

/// One layer that was fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Which.
    pub layer: usize,
    /// Rows of the sample.
    pub rows: usize,
    /// The share of the variance of the block's results that the linear layer gives.
    pub explained: f64,
}

/// Why nothing was pruned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PruneError {
    /// A layer that the model does not have, that has been pruned or is named twice, or whose activation gates.
    #[error("layer {layer}: {what}")]
    Layer {
        /// As it was asked for.
        layer: usize,
        /// Why it cannot be.
        what: &'static str,
    },
    /// Too small a sample.
    #[error(
        "the sample has {rows} rows, and a layer of {columns} columns is fitted to {LEAST_ROWS} a column at least; \
         give more texts"
    )]
    Sample {
        /// Tokens of all texts.
        rows: usize,
        /// Of the layer.
        columns: usize,
    },
    /// A layer whose fit is no number: the model gives such on the sample, or larger ones than f32 holds.
    #[error("layer {layer}: its fit to the sample is not finite")]
    NotFinite {
        /// Which.
        layer: usize,
    },
    /// The model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The folder to write.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file or folder.
        path: String,
        /// By the system.
        source: std::io::Error,
    },
}

/// Puts a linear layer in place of the feed-forward block of each of `layers`, in order: later ones are fitted to what
/// they read behind earlier ones.
///
/// # Errors
/// Layers that there are not, that are named twice or have a gate; too few rows; a fit that is not finite; what the
/// model refuses.
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
    let at =
        |step: &Step| step.id.layer() == Some(layer) && matches!(step.block, Block::FeedForward(_));
    let Some(number) = program.steps().iter().position(at) else {
        let what = "it has no feed-forward block";
        return Err(PruneError::Layer { layer, what });
    };
    let read = program.steps()[number]
        .operands
        .first()
        .map(|edge| edge.from);
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
    Ok(Fit {
        layer,
        rows,
        explained,
    })
}

/// The feed-forward of every layer.
fn blocks(model: &mut Model) -> Vec<&mut Block> {
    match &mut model.body {
        Body::Encoder(network) => (network.layers.iter_mut())
            .map(|layer| &mut layer.feed_forward)
            .collect(),
        Body::Decoder(decoder) => (decoder.layers.iter_mut())
            .map(|layer| &mut layer.feed_forward)
            .collect(),
        Body::Vision(vision) => (vision.layers.iter_mut())
            .map(|layer| &mut layer.feed_forward)
            .collect(),
    }
}

fn blocks_at(model: &mut Model, layer: usize) -> Option<&Block> {
    blocks(model).into_iter().nth(layer).map(|block| &*block)
}

/// Sums over rows for a least-squares fit of y = W·x + b, d columns each; x with a 1 behind it.
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
        Sums {
            d,
            rows: 0,
            squares: Matrix::zero(d + 1, d + 1),
            products: Matrix::zero(d, d + 1),
            energy: 0.0,
        }
    }

    /// Adds the rows of a text that are tokens.
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

    /// The layer, and the share of the variance of y that it gives.
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

/// L with L·Lᵀ = `a`, which is symmetric and positive definite, below the diagonal and on it.
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

/// x with L·Lᵀ·x = `b`.
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
        done.iter_mut()
            .zip(row)
            .for_each(|(x, l)| *x -= l * last[0]);
    }
    x
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> PruneError + use<> {
    let path = path.display().to_string();
    move |source| PruneError::Write { path, source }
}

/// Writes `model`, which was pruned, to the new folder `to`, with all that is public in the folder `from` that it was
/// read from, but `functions.json`: it was measured on the model as it was. Numbers are f32; tensors that are not used
/// are left out.
///
/// # Errors
/// A folder that cannot be written, or exists; what the source refuses.
pub fn write(model: &Model, from: &Path, to: &Path) -> Result<(), PruneError> {
    let (_, weights) = report::open(from).map_err(ModelError::from)?;
    let config = &model.public.config;
    let program = model.program();
    let linear = |step: &Step| match (step.id.layer(), &step.block) {
        (Some(layer), Block::Linear(w)) => {
            let (name, transposed) = merged_name(config, layer);
            Some((name, (w.clone(), transposed)))
        }
        _ => None,
    };
    let merged = program.steps().iter().filter_map(linear).collect();
    let mut source = Merging {
        weights: &weights,
        merged,
        tensors: BTreeMap::new(),
    };
    let unreadable = |problem| FolderError {
        folder: from.to_owned(),
        problems: vec![problem],
    };
    layers::body(config, model.public.pool, &mut source)
        .map_err(|problem| ModelError::from(unreadable(problem)))?;
    let files = PublicFiles::read(from).map_err(ModelError::from)?;
    fs::create_dir(to).map_err(failed(to))?;
    let written = fill(to, &files, &config.merged, &source.tensors);
    if written.is_err() {
        // Half a folder would only be in the way.
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

/// `config.json` with the layers that were merged.
fn configured(bytes: &[u8], merged: &[usize]) -> Vec<u8> {
    // It has been parsed before.
    let mut object: Map<String, Value> = serde_json::from_slice(bytes).unwrap_or_default();
    object.insert(MERGED.to_owned(), json!(merged));
    let mut bytes = serde_json::to_vec_pretty(&object).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Shape and bytes, little-endian.
type Tensor = (Vec<usize>, Vec<u8>);

/// The tensors of a folder, but those of merged layers, kept as they are asked for.
struct Merging<'a> {
    weights: &'a Weights<File>,
    /// By their names, and whether their matrices are stored transposed.
    merged: BTreeMap<String, (Linear, bool)>,
    tensors: BTreeMap<String, Tensor>,
}

impl Merging<'_> {
    /// The tensor of a merged layer, if it is one's.
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
        self.tensors
            .insert(name.to_owned(), (shape.to_vec(), bytes));
        // The layers that are made of it are not used.
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
