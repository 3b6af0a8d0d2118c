//! Runs in the clear: both shares as one number, in the words of the rings. What overflows a ring in a run overflows
//! here. What the protocols approximate is approximated by their formulas, but for reciprocals and
//! inverse roots, which are exact. Rounding is to nearest, where that of shares
//! could go either way.

use std::sync::Arc;

use hushed_math::product_small;
use hushed_model::{Embedding, ModelError, StepId, here};
use hushed_net::Party;
use hushed_twopc::func::Format;
use hushed_twopc::func::inverse::Positive;
use hushed_twopc::func::norm::{NormShape, UNIT_ROW};
use hushed_twopc::func::sigmoid;
use hushed_twopc::func::softmax::{self, SCORES};
use hushed_twopc::he::{Kept, MatmulShape, PastShape};
use hushed_twopc::share::{Ring, Share};

use super::{Known, Shares, products, rows_times};
use crate::circuit::function::Function;
use crate::circuit::product::{Product, add_bias};
use crate::formats::{ACTIVATION, EMBEDDING, LINEAR, MAIN, RECORD_BITS};
use crate::index::Index;
use crate::lookup::Table;
use crate::weights::embed;
use crate::weights::held::Layers;
use crate::{Input, RunError};

/// Computes the two parties' result.
#[derive(Default)]
pub struct Clear {
    /// With the integer weights.
    layers: Arc<Layers>,
}

impl Clear {
    /// Uses layers that may be shared; an instance is for one model.
    pub fn new(layers: Arc<Layers>) -> Clear {
        Clear { layers }
    }
}

/// Rounds `x` to the nearest multiple of 2^−frac.
fn round(x: f64, frac: u32) -> f64 {
    let unit = f64::from(frac).exp2();
    (x * unit).round() / unit
}

fn decoded(x: &Share, frac: u32) -> Vec<f64> {
    let format = Format { ring: x.ring(), frac };
    x.words().iter().map(|&w| format.decode(w)).collect()
}

fn encoded(x: &[f64], format: Format) -> Share {
    let words = x.iter().map(|&v| format.encode(v)).collect();
    Share::new(format.ring, words)
}

/// x/2^shift, rounded to nearest.
fn shifted(x: &Share, shift: u32, to: Ring) -> Share {
    let half = if shift == 0 { 0 } else { 1i64 << (shift - 1) };
    let ring = x.ring();
    let words = x.words().iter().map(|&w| {
        let rounded = ring.decode(w).wrapping_add(half) >> shift;
        rounded as u64
    });
    Share::new(to, words.collect())
}

impl Shares for Clear {
    type Share = Share;

    fn step<T>(&mut self, _: StepId, run: impl FnOnce(&mut Self) -> Result<T, RunError>) -> Result<T, RunError> {
        run(self)
    }

    fn takes(&self, input: &Input) -> bool {
        matches!(input, Input::Texts(..) | Input::Images(_))
    }

    fn knows(&self, _: Party) -> bool {
        true
    }

    fn shared(&self, x: &Known, ring: Ring) -> Share {
        let values = x.values.as_deref().into_iter().flatten();
        Share::new(ring, values.map(|&v| v as u64).collect())
    }

    fn lookup(
        &mut self,
        places: &Known,
        second: Option<&Known>,
        e: &Embedding,
        table: Table,
    ) -> Result<Share, RunError> {
        let seconds = second.and_then(|known| known.values.as_deref()).into_iter().flatten();
        let seconds = seconds.copied().chain(std::iter::repeat(0));
        embed::of_numbers(e, table, |[table, last]| {
            let mut words = Vec::with_capacity(places.len * e.width);
            for (&id, second) in places.values.as_deref().into_iter().flatten().zip(seconds) {
                let first = id as usize * e.width;
                let row = table.get(first..first + e.width);
                let row = row.ok_or(ModelError::TokenOutOfRange { vocabulary: e.vocabulary })?;
                let last = last.iter().map(|v| second * i64::from(embed::integer(v)));
                let row = row.iter().map(|v| i64::from(embed::integer(v))).zip(last.chain(std::iter::repeat(0)));
                words.extend(row.map(|(v, more)| (v + more) as u64));
            }
            Ok(Share::new(EMBEDDING.ring, words))
        })?
    }

    fn product(&mut self, id: StepId, x: &Share, rows: usize, product: &Product) -> Result<Share, RunError> {
        let layer = self.layers.get(id, product)?;
        let (weights, bias) = here(id, &layer.numbers)?;
        let (columns, inputs) = (weights.columns(), product.inputs);
        let mut words = product_small(x.words(), columns, rows, inputs, product.outputs);
        add_bias(&mut words, bias);
        Ok(Share::new(MAIN, words))
    }

    fn cosines(&mut self, x: &Share, index: &Index) -> Result<Share, RunError> {
        let vectors = here(StepId::outside("documents"), index.vectors())?.columns();
        let words = product_small(x.words(), vectors, 1, index.width(), index.documents());
        Ok(Share::new(x.ring(), words))
    }

    fn records(&mut self, places: &Known, index: &Index) -> Result<Share, RunError> {
        let table = here(StepId::outside("records"), index.records())?.columns();
        let mut words = Vec::with_capacity(places.len * index.record_columns());
        for &place in places.values.as_deref().into_iter().flatten() {
            // The table is stored by columns.
            let column = |column: &[i32]| column.get(place as usize).copied();
            let row = table.chunks_exact(index.documents()).map(column);
            let row: Option<Vec<i32>> = row.collect();
            let vocabulary = index.documents();
            let row = row.ok_or(ModelError::TokenOutOfRange { vocabulary })?;
            words.extend(row.into_iter().map(|n| n as u64));
        }
        Ok(Share::new(Ring::new(RECORD_BITS), words))
    }

    fn matmul(&mut self, x: &Share, y: &Share, shape: &MatmulShape) -> Result<Share, RunError> {
        Ok(Share::new(x.ring(), products(x.words(), y.words(), shape)))
    }

    fn matmul_past(&mut self, x: &Share, y: &Share, shape: &PastShape, _: &mut Kept) -> Result<Share, RunError> {
        self.matmul(x, y, &shape.product)
    }

    fn times_known(&mut self, x: &Share, y: &Known, shape: &MatmulShape, _: u32) -> Result<Share, RunError> {
        let numbers = y.values.as_deref().filter(|numbers| numbers.len() == y.len);
        let numbers = numbers.ok_or(RunError::WrongInput)?;
        let numbers: Vec<u64> = numbers.iter().map(|&v| v as u64).collect();
        Ok(Share::new(x.ring(), products(x.words(), &numbers, shape)))
    }

    fn known_times(&mut self, coefficients: &Known, x: &Share, texts: usize, width: usize) -> Result<Share, RunError> {
        let rows = coefficients.len / texts.max(1);
        let values = coefficients.values.as_deref().into_iter().flatten();
        let chosen: Vec<u64> = values.map(|&c| c as u64).collect();
        let words = rows_times(&chosen, x.words(), rows, width);
        Ok(Share::new(MAIN, words))
    }

    fn add_known(&self, x: &Share, y: &Known) -> Share {
        match &y.values {
            Some(values) => x.add_public_each(Party::Client, values),
            None => x.clone(),
        }
    }

    fn narrow(&self, x: &Share, shift: u32, to: Ring) -> Share {
        shifted(x, shift, to)
    }

    fn rescale(&mut self, x: &Share, shift: u32, to: Ring) -> Result<Share, RunError> {
        Ok(shifted(x, shift, to))
    }

    fn exponentials(&mut self, x: &Share, widths: &[usize], to: Format) -> Result<Share, RunError> {
        let mut values = decoded(x, SCORES.frac);
        let mut rest = values.as_mut_slice();
        for width in widths {
            let (row, later) = rest.split_at_mut(*width);
            rest = later;
            row.iter_mut().for_each(|s| *s /= std::f64::consts::LOG2_E);
            softmax::approximation(row);
            // The largest exponential of a row is 1.
            let largest = row.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
            row.iter_mut().for_each(|e| *e /= largest);
        }
        Ok(encoded(&values, to))
    }

    fn sigmoids(&mut self, x: &Share, to: Format) -> Result<Share, RunError> {
        let arguments = decoded(x, sigmoid::ARGUMENT.frac).into_iter();
        let values: Vec<f64> = arguments.map(sigmoid::approximation).collect();
        Ok(encoded(&values, to))
    }

    fn reciprocal(&mut self, x: &Share, _: Positive, scale: f64, to: Format) -> Result<Share, RunError> {
        let inverse = |x: f64| if x == 0.0 { 0.0 } else { scale / x };
        let values: Vec<f64> = decoded(x, 0).into_iter().map(inverse).collect();
        Ok(encoded(&values, to))
    }

    fn scale_rows(&mut self, x: &Share, _: usize, columns: usize, factors: &Share) -> Result<Share, RunError> {
        let rows = x.words().chunks_exact(columns.max(1)).zip(factors.words());
        let words = rows.flat_map(|(row, f)| row.iter().map(move |x| x.wrapping_mul(*f)));
        Ok(Share::new(x.ring(), words.collect()))
    }

    fn multiply(&mut self, x: &Share, y: &Share) -> Result<Share, RunError> {
        let words = x.words().iter().zip(y.words());
        let words = words.map(|(x, y)| x.wrapping_mul(*y));
        Ok(Share::new(x.ring(), words.collect()))
    }

    fn maxima(&mut self, x: &Share, _: usize, columns: usize) -> Result<Share, RunError> {
        let ring = x.ring();
        let rows = x.words().chunks_exact(columns.max(1));
        let largest = rows.map(|row| row.iter().map(|&w| ring.decode(w)).max().unwrap_or(0));
        Ok(Share::new(ring, largest.map(|v| v as u64).collect()))
    }

    fn tournament(&mut self, x: &Share, rows: usize, columns: usize) -> Result<Vec<[Share; 2]>, RunError> {
        let ring = x.ring();
        let places: Vec<u64> = (0..rows).flat_map(|_| 0..columns as u64).collect();
        let (mut levels, mut width) = (vec![[x.clone(), Share::new(ring, places)]], columns);
        while width > 1
            && let Some([x, places]) = levels.last()
        {
            let (half, words) = (width / 2, x.words());
            let winner = |row: usize, j: usize| {
                let (a, b) = (row * width + j, row * width + j + half);
                match j == half || ring.decode(words[a]) >= ring.decode(words[b]) {
                    true => a + if j == half { half } else { 0 },
                    false => b,
                }
            };
            let winners = (0..rows).flat_map(|row| (0..width - half).map(move |j| (row, j)));
            let winners: Vec<usize> = winners.map(|(row, j)| winner(row, j)).collect();
            let level = [x.gather(&winners), places.gather(&winners)];
            levels.push(level);
            width -= half;
        }
        Ok(levels)
    }

    fn largest_of_few(&mut self, x: &Share, with: &Share, rows: usize, columns: usize) -> Result<[Share; 2], RunError> {
        let value = |i: &usize| x.ring().decode(x.words()[*i]);
        let row = |r: usize| (r * columns..(r + 1) * columns).max_by_key(value);
        let places: Vec<usize> = (0..rows).filter_map(row).collect();
        Ok([x.gather(&places), with.gather(&places)])
    }

    fn pick(&mut self, x: &Share, lengths: &[usize], places: &Known) -> Result<Share, RunError> {
        let places = places.values.as_ref().ok_or(RunError::WrongInput)?;
        let mut start = 0;
        let picked = lengths.iter().zip(places.iter()).map(|(length, place)| {
            start += length;
            start - length + *place as usize
        });
        Ok(x.gather(&picked.collect::<Vec<_>>()))
    }

    fn apply(&mut self, f: &Function, x: &Share) -> Result<Share, RunError> {
        let scale = f.scale();
        let values = decoded(x, LINEAR.frac).into_iter();
        let values: Vec<f64> = values.map(|v| scale * f.approximation(v / scale)).collect();
        Ok(encoded(&values, ACTIVATION))
    }

    fn normalise(&mut self, x: &Share, from: Format, shape: NormShape) -> Result<Share, RunError> {
        let width = shape.width as f64;
        let mut values = decoded(x, from.frac);
        for row in values.chunks_exact_mut(shape.width.max(1)) {
            if shape.centre {
                let mean = row.iter().sum::<f64>() / width;
                row.iter_mut().for_each(|v| *v -= mean);
            }
            let frac = shape.reach.squared_frac();
            let squares = row.iter().map(|c| round(*c, frac).powi(2));
            // At least one unit; a sum beyond its ring wraps around.
            let unit = f64::from(2 * frac).exp2().recip();
            let sum = squares.sum::<f64>() + (width * shape.epsilon).max(unit);
            let sum = sum % f64::from(shape.reach.squares + 1).exp2();
            // A sum beyond its format loses its highest bit; the root is then zero.
            let root = match sum < f64::from(shape.reach.squares).exp2() {
                true => (width / sum.max(unit)).sqrt(),
                false => 0.0,
            };
            let root = round(root, shape.reach.root_frac(shape.width));
            row.iter_mut().for_each(|v| *v = round(*v, shape.reach.centred_frac()) * root);
        }
        Ok(encoded(&values, ACTIVATION))
    }

    fn unit_rows(&mut self, x: &Share, from: Format, _: usize, width: usize) -> Result<Share, RunError> {
        let mut values = decoded(x, from.frac);
        for row in values.chunks_exact_mut(width.max(1)) {
            let length = row.iter().map(|v| v * v).sum::<f64>().sqrt();
            let factor = 1.0 / length.max(f64::MIN_POSITIVE);
            row.iter_mut().for_each(|v| *v *= factor);
        }
        Ok(encoded(&values, UNIT_ROW))
    }

    fn open(&mut self, x: &Share, shift: u32, to: Ring) -> Result<Option<Vec<u64>>, RunError> {
        Ok(Some(shifted(x, shift, to).into_words()))
    }
}
