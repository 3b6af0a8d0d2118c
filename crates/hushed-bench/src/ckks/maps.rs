//! Maps of the columns of one text in packed rows (docs/one-text.md): 128 rows of 256 places, two columns per place.

use std::sync::Arc;
use std::time::Instant;

use hushed_ckks::maps::{GridOptions, PreparedGrid};
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Complex64};
use hushed_fhe::packing::{Layout, Spread};
use serde_json::{Value, json};

use super::{Bench, with_threads};
use crate::machine::{peak_memory, processor_seconds};
use crate::{BenchError, How};

const ROWS: usize = 128;
const PLACES: usize = 256;

/// A map: its rows and columns, pairs of columns per head in its input, primes of the operands.
pub(super) struct Map {
    name: &'static str,
    rows: usize,
    columns: usize,
    group: usize,
    pub limbs: usize,
}

/// Levels as in docs/one-text.md; four primes are below level 0.
pub(super) const MAPS: [Map; 2] = [
    Map { name: "MiniLM, queries, keys and values", rows: 1152, columns: 384, group: 16, limbs: 18 },
    Map { name: "BERT-base, up", rows: 3072, columns: 768, group: 32, limbs: 13 },
];

/// Measures the inference parameter set.
pub fn maps(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || {
        let params = CkksParams::n16_boot()?;
        let texts = params.slots() / (ROWS * PLACES);
        let mut out = Vec::new();
        for map in &MAPS {
            let description = json!({
                "set": params.literal().name,
                "map": map.name,
                "rows": map.rows,
                "columns": map.columns,
                "texts": texts,
                "tokens": ROWS,
            });
            if how.wants(&description) {
                out.push(one(&params, map, description, how)?);
            }
        }
        Ok(out)
    })
}

/// Weights whose rows have a norm of about 1.
fn weight(row: usize, column: usize, columns: usize) -> f64 {
    let value = ((row * 7919 + column * 104_729) % 10_007) as f64 / 5_003.5 - 1.0;
    value * (3.0 / columns as f64).sqrt()
}

/// A prepared map, with its keys and random inputs.
pub(super) struct Run {
    pub bench: Bench,
    prepared: PreparedGrid,
    layout: Layout,
    outputs: Spread,
    inputs: Spread,
    values: Vec<Vec<Complex64>>,
    cts: Vec<Ciphertext>,
    key_bytes: usize,
    encode_seconds: f64,
}

impl Run {
    pub fn new(params: &Arc<CkksParams>, map: &Map) -> Result<Run, BenchError> {
        let layout = Layout::new(params.slots(), ROWS, PLACES).map_err(hushed_fhe::FheError::from)?;
        let spread = |width, group| -> Result<Spread, BenchError> {
            Ok(layout.spread(width, group).map_err(hushed_fhe::FheError::from)?)
        };
        let (outputs, inputs) = (spread(map.rows, map.group)?, spread(map.columns, map.group)?);
        let grid = layout.map([&outputs, &inputs], |r, c| weight(r, c, map.columns));
        let grid = grid.map_err(CkksError::from)?;
        let start = Instant::now();
        let prepared = PreparedGrid::new(params, &grid, map.limbs, GridOptions::default());
        let prepared = prepared.map_err(CkksError::from)?;
        let encode_seconds = start.elapsed().as_secs_f64();
        let mut specs = params.key_specs(map.limbs, false, &[], true)?;
        prepared.add_keys(&mut specs);
        let key_bytes = specs.memory_bytes(params.rlwe()).map_err(CkksError::from)?;
        let mut bench = Bench::new(params, &specs)?;
        // All slots, including those of unused places.
        let values: Vec<Vec<Complex64>> = (0..inputs.vectors()).map(|_| bench.random()).collect();
        let cts = values.iter().map(|x| bench.encrypt(x, map.limbs)).collect::<Result<Vec<_>, _>>()?;
        Ok(Run { bench, prepared, layout, outputs, inputs, values, cts, key_bytes, encode_seconds })
    }

    /// Conjugates the inputs and maps both.
    pub fn apply(&self) -> Result<Vec<Ciphertext>, CkksError> {
        let evaluator = &self.bench.evaluator;
        let conjugates = self.cts.iter().map(|ct| evaluator.conjugate(ct));
        let conjugates = conjugates.collect::<Result<Vec<_>, _>>()?;
        let all: Vec<&Ciphertext> = self.cts.iter().chain(&conjugates).collect();
        self.prepared.apply(evaluator, &all)
    }

    /// Vectors that it reads and writes, conjugates not included.
    pub fn vectors(&self) -> usize {
        self.inputs.vectors() + self.outputs.vectors()
    }

    pub fn plaintext_bytes(&self) -> usize {
        self.prepared.plaintext_bytes()
    }
}

fn one(params: &Arc<CkksParams>, map: &Map, description: Value, how: How<'_>) -> Result<Value, BenchError> {
    let run = Run::new(params, map)?;
    let Run { bench, prepared, outputs, inputs, values, .. } = &run;
    let layout = run.layout;
    let before = bench.evaluator.counters().snapshot();
    let images = run.apply()?;
    let counts = bench.evaluator.counters().snapshot().since(&before);
    // The product of every row of the text with the weights, computed in f64 without the diagonals.
    let entry = |row: usize, column: usize| {
        let (vector, place) = (column / 2 / inputs.used(), column / 2 % inputs.used());
        let z = values[vector][layout.slot(0, row, place)];
        if column.is_multiple_of(2) { z.re } else { z.im }
    };
    let product = |_: usize, row: usize, r: usize| -> f64 {
        let terms = (0..map.columns).map(|c| weight(r, c, map.columns) * entry(row, c));
        terms.sum()
    };
    let mut least = f64::INFINITY;
    let mut mean = 0.0;
    for (v, image) in images.iter().enumerate() {
        let (worst, bits) = bench.precision(image, &outputs.pack(layout, v, product))?;
        least = least.min(worst);
        mean += bits / images.len() as f64;
    }
    // The minimum of several runs is the time on an otherwise idle machine. Processor time, because other work on the
    // machine lengthens it less.
    let (mut seconds, mut processor) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..how.runs.max(1) {
        let (start, before) = (Instant::now(), processor_seconds());
        drop(run.apply()?);
        seconds = seconds.min(start.elapsed().as_secs_f64());
        processor = processor.min(processor_seconds() - before);
    }
    let (hoisted, giants) = prepared.split().key_switches();
    Ok(json!({
        "name": "lintrans",
        "params": description,
        "primes": map.limbs,
        "levels_used": map.limbs - images.first().map_or(0, Ciphertext::limbs),
        "threads": how.threads,
        "seconds": seconds,
        "processor_seconds": processor,
        "runs": how.runs,
        "rotations": counts.rotation,
        "hoisted": hoisted,
        "giants": giants,
        "products": prepared.products(),
        "precision_bits_min": least,
        "precision_bits_mean": mean,
        "key_bytes": run.key_bytes,
        "plaintext_bytes": prepared.plaintext_bytes(),
        "encode_seconds": run.encode_seconds,
        "peak_rss": peak_memory(),
    }))
}
