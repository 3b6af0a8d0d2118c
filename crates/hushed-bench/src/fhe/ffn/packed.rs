//! As many vectors as there are texts of one row: the packed rows of one text ([`Layout`]), two columns per place.

use std::sync::Arc;

use hushed_ckks::keys::KeySpecs;
use hushed_ckks::maps::{GridOptions, PreparedGrid};
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Complex64, Encoder, Evaluator, Plaintext, Scale};
use hushed_fhe::packing::{Layout, Spread};
use hushed_fhe::{FheError, LinearMap};

use super::super::bed::Normal;
use super::shape::{Map, Shape, plain_scale};
use crate::BenchError;

/// A grid of maps of pairs and of their conjugates, and the bias of each output vector.
struct PackedMap {
    grid: PreparedGrid,
    biases: Vec<Plaintext>,
}

impl Map for PackedMap {
    fn apply(&self, on: &Evaluator, x: &[Ciphertext]) -> Result<Vec<Ciphertext>, CkksError> {
        let conjugates = x.iter().map(|ct| on.conjugate(ct));
        let conjugates = conjugates.collect::<Result<Vec<_>, _>>()?;
        let all: Vec<&Ciphertext> = x.iter().chain(&conjugates).collect();
        let mut out = self.grid.apply(on, &all)?;
        for (ct, bias) in out.iter_mut().zip(&self.biases) {
            on.add_plain_assign(ct, bias)?;
        }
        Ok(out)
    }

    fn add_keys(&self, params: &CkksParams, specs: &mut KeySpecs) -> Result<(), CkksError> {
        self.grid.add_keys(specs);
        specs.merge(&params.key_specs(self.grid.limbs(), false, &[], true)?);
        Ok(())
    }

    fn diagonals(&self) -> (usize, usize) {
        let split = self.grid.split();
        let count = split.babies().len() * split.giants().len();
        (count, self.grid.plaintext_bytes())
    }
}

/// Each vector is a text of one row.
pub(super) struct Packed {
    layout: Layout,
}

impl Packed {
    /// As many vectors as fit with `places` places each.
    pub(super) fn new(params: &Arc<CkksParams>, places: usize) -> Result<Self, BenchError> {
        let layout = Layout::new(params.slots(), 1, places).map_err(FheError::from)?;
        Ok(Self { layout })
    }

    fn spread(&self, width: usize) -> Result<Spread, BenchError> {
        Ok(self.layout.spread(width, 1).map_err(FheError::from)?)
    }
}

impl Shape for Packed {
    fn name(&self) -> &'static str {
        "packed rows"
    }

    fn vectors(&self) -> usize {
        self.layout.texts()
    }

    fn in_pairs(&self) -> bool {
        true
    }

    fn map(
        &self,
        encoder: &Encoder,
        (_, layer): (usize, &LinearMap),
        limbs: usize,
        [from, to]: [Scale; 2],
    ) -> Result<Box<dyn Map>, BenchError> {
        let params = encoder.params();
        let (rows, columns) = (self.spread(layer.rows)?, self.spread(layer.columns)?);
        let weight = |row: usize, column: usize| layer.weights[row * layer.columns + column];
        let grid = self.layout.map([&rows, &columns], weight);
        let options = GridOptions { plain_scale: Some(plain_scale(params, limbs, from, to)), ..GridOptions::default() };
        let grid = grid.and_then(|grid| PreparedGrid::new(params, &grid, limbs, options));
        let grid = grid.map_err(CkksError::from)?;
        let bias = layer.bias.as_deref().unwrap_or_default();
        let of = |_: usize, _: usize, row: usize| bias.get(row).copied().unwrap_or(0.0);
        let scale = grid.output_scale(from);
        let biases = (0..rows.vectors()).map(|v| rows.pack(self.layout, v, of));
        let biases = biases.map(|bias| encoder.encode(&bias, limbs - 1, scale));
        Ok(Box::new(PackedMap { biases: biases.collect::<Result<_, _>>()?, grid }))
    }

    /// Unused places hold numbers too, which a map must not see.
    fn pack(&self, layer: &LinearMap, x: &[Vec<f64>], random: &mut Normal) -> Result<Vec<Vec<Complex64>>, BenchError> {
        let columns = self.spread(layer.columns)?;
        let mut vectors = Vec::with_capacity(columns.vectors());
        for vector in 0..columns.vectors() {
            let mut slots = columns.pack(self.layout, vector, |text, _, column| x[text][column]);
            for (slot, z) in slots.iter_mut().enumerate() {
                if columns.columns_at(vector, slot % self.layout.columns()).is_none() {
                    *z = Complex64::new(random.next(), random.next());
                }
            }
            vectors.push(slots);
        }
        Ok(vectors)
    }

    fn unpack(&self, layer: &LinearMap, opened: &[Vec<Complex64>]) -> Result<Vec<Vec<f64>>, BenchError> {
        let rows = self.spread(layer.rows)?;
        let at = |text: usize, row: usize| {
            let (vector, place, part) = rows.place(row);
            let z = opened[vector][self.layout.slot(text, 0, place)];
            [z.re, z.im][part]
        };
        let vector = |text| (0..layer.rows).map(|row| at(text, row)).collect();
        Ok((0..self.layout.texts()).map(vector).collect())
    }
}
