//! One encoder layer of a single text of 128 rows, in packed rows (docs/one-text.md), with random weights in realistic
//! ranges, from refreshed columns to refreshed columns. Reports the plan's predictions next to the measurements.

use hushed_ckks::bootstrap::{BootstrapLiteral, Bootstrapper};
use hushed_ckks::{Ciphertext, CkksParams};
use hushed_fhe::ops::packed::rows::PackedRows;
use hushed_fhe::packing::{Layout, Spread};
use hushed_fhe::plan::public_plan::{AnswerRows, Lengths};
use hushed_fhe::plan::{FheOptions, FhePlanReport, assumed_choices, packed_placement, reference};
use hushed_fhe::{Acts, Choices, FheError, Pass, Placement, Slots};
use hushed_model::{Matrix, Network, PlainActs, Program, Rows, plain};
use serde_json::{Value, json};

use super::bed::{Bed, Normal, ROWS, counted, rotations};
use super::layer::{each_model, input_bound};
use crate::machine::processor_seconds;
use crate::{BenchError, How};

/// One row per model, for a layer of it.
pub fn texts(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    each_model(how, |size| {
        let params = json!({ "set": "n16-boot-14x40", "model": size.model, "rows": ROWS, "width": size.width, "hidden": size.hidden });
        // The first of two layers, which ends with a refresh, as all but the last do.
        how.wants(&params).then(|| one(&size.random(2), size.layers, &params, how.threads))
    })
}

fn one(network: &Network, layers: usize, about: &Value, threads: usize) -> Result<Value, BenchError> {
    let params = CkksParams::n16_boot()?;
    let program = network.program_of_all_rows();
    let choices = assumed_choices(&program, ROWS);
    let bootstrap = Bootstrapper::new(&params, BootstrapLiteral::default())?.key_specs();
    let mut options = FheOptions {
        rows: ROWS,
        texts: 1,
        lengths: Lengths::Public,
        answer: AnswerRows::Last,
        max_memory: None,
        per_place: 1,
        uplink: f64::INFINITY,
        prices: reference(threads),
        placement: None,
    };
    let placement = packed_placement(&program, &choices, &params, &options)?;
    let placement = placement.ok_or(BenchError::BadWeights)?;
    options.placement = Some(placement.clone());
    let plan = FhePlanReport::new(&program, &choices, true, &params, &bootstrap, &options)?;
    let layout = Layout::new(params.slots(), ROWS, placement.columns).map_err(FheError::from)?;
    let width = network.embedding.width;
    let limbs = placement.attention;
    let columns = layout.spread(width, 1).map_err(FheError::from)?;
    let run = (&program, &choices, &placement, layout);
    let counts = counted(&params, |on| {
        let vectors = (0..columns.vectors()).map(|_| on.vector(Vec::new(), limbs));
        layer(on, run, vectors.collect::<Result<_, _>>()?).map(drop)
    })?;
    let mut bed = Bed::new(&params, &counts)?;
    let mut random = Normal::new(3);
    let table: Vec<f64> = (0..ROWS * width).map(|_| random.next()).collect();
    // Divided as by a client.
    let bound = 2.0 * input_bound(width);
    let entry = |_: usize, row: usize, column: usize| table[row * width + column] / bound;
    let mut vectors = Vec::with_capacity(columns.vectors());
    for vector in 0..columns.vectors() {
        let pairs = columns.pack(layout, vector, entry);
        vectors.push(bed.encrypt_pairs(&pairs, limbs, params.default_scale())?);
    }
    let before = processor_seconds();
    let (result, taken) = bed.take(|on| layer(on, run, vectors))?;
    let processor = processor_seconds() - before;
    let planned: f64 = plan.ledger(Some(0)).iter().map(|s| s.work.seconds).sum();
    let parts = json!({
        "error": compare(&bed, &program, (layout, &columns), table, &result)?,
        "planned_seconds": planned,
        "planned_memory": plan.memory.total(),
        "processor_seconds": processor,
        "rotations": rotations(&counts),
        "layers": layers,
        "seconds_of_all_layers_extrapolated": layers as f64 * taken.seconds,
        "texts": 1,
        "seconds_per_text": taken.seconds,
        "bootstraps_per_text": taken.counts.bootstrap,
        "key_switches_per_text": taken.counts.key_switch,
        "placement": placement,
        "steps": bed.steps(),
    });
    Ok(bed.row("fhe.text", about, threads, &taken, parts))
}

/// A layer on one text that fills its rows.
fn layer<S: Slots>(
    on: &S,
    (program, choices, placement, layout): (&Program, &Choices, &Placement, Layout),
    vectors: Vec<S::Value>,
) -> Result<Acts<S::Value>, FheError> {
    let rows = PackedRows::new(layout, vec![ROWS])?;
    let bound = input_bound(program.width());
    let mut pass = Pass::packed(on, program, choices, placement.clone(), rows, bound)?;
    let x = pass.start(vectors)?;
    pass.layer(0, x)
}

/// The largest error of the text's numbers, compared with the clear.
fn compare(
    bed: &Bed,
    program: &Program,
    (layout, columns): (Layout, &Spread),
    table: Vec<f64>,
    result: &Acts<Ciphertext>,
) -> Result<f64, BenchError> {
    let width = program.width();
    let values = Matrix::new(ROWS, width, table).ok_or(BenchError::BadWeights)?;
    let rows = Rows::unpadded(&[ROWS]);
    let first = program.layers().into_iter().next().unwrap_or_default();
    let clear = plain::run_range(program, first, PlainActs { rows, values }, |_, _| ())?;
    let opened = result.columns.iter().map(|ct| bed.decryptor.decrypt_raw(ct));
    let opened = opened.collect::<Result<Vec<_>, _>>()?;
    let mut error = 0.0_f64;
    for row in 0..ROWS {
        for (column, expected) in clear.values.row(row).iter().enumerate() {
            let (vector, place, part) = columns.place(column);
            let z = opened[vector][layout.slot(0, row, place)];
            let v = if part == 0 { z.re } else { z.im };
            error = error.max((result.gain[column] * v + result.offset[column] - expected).abs());
        }
    }
    Ok(error)
}
