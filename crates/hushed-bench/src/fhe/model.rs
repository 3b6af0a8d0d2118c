//! A whole encoder on a full batch, with random weights in realistic ranges, from a client's columns to pooled rows,
//! compared with the clear: the part of an encrypted run that can be repeated without a model's files. `make encrypted`
//! runs the real model.

use hushed_fhe::ops::pool::{Pooled, unpack};
use hushed_fhe::packing::Interleave;
use hushed_fhe::{Choices, FheError, Pass, Placement, RowsKnown, Slots};
use hushed_model::{Network, PlainActs, Rows, cosine, plain};
use serde_json::{Value, json};

use super::bed::{Bed, ROWS, counted, layout};
use super::layer::{Planned, each_model, input_bound, random_columns, rows_of};
use crate::{BenchError, How};

/// Texts compared with the clear.
const COMPARED: [usize; 4] = [0, 77, 128, 255];

/// One row per model.
pub fn models(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    each_model(how, |size| {
        let params = json!({ "set": "n16-boot-14x40", "model": size.model, "layers": size.layers, "rows": ROWS, "width": size.width, "hidden": size.hidden });
        how.wants(&params).then(|| one(&size.random(size.layers), &params, how.threads))
    })
}

fn one(network: &Network, about: &Value, threads: usize) -> Result<Value, BenchError> {
    let Planned { params, choices, plan } = Planned::new(&network.program_of_all_rows(), threads)?;
    let placement = &plan.placement;
    let (layout, width) = (layout(&params)?, network.embedding.width);
    let counts = counted(&params, |on| {
        let columns = (0..width).map(|_| on.vector(Vec::new(), placement.upload));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        run(on, network, &choices, placement, layout, columns).map(drop)
    })?;
    let mut bed = Bed::new(&params, &counts)?;
    let (table, columns) = random_columns(&mut bed, width, placement.upload, 1)?;
    let (pooled, taken) = bed.take(|on| run(on, network, &choices, placement, layout, columns))?;
    let opened = |ct| -> Result<Vec<f64>, BenchError> {
        let values = bed.decryptor.decrypt_raw(ct)?;
        Ok(values.into_iter().map(|v| v.re).collect())
    };
    let vectors = pooled.vectors.iter().map(opened);
    let vectors = vectors.collect::<Result<Vec<_>, _>>()?;
    let lengths = vec![ROWS; layout.texts()];
    let found = unpack(layout, &lengths, pooled.width, pooled.factor, &vectors);
    let found = found.map_err(FheError::from)?;
    let mut least = 1.0_f64;
    for text in COMPARED {
        least = least.min(cosine(&found[text], &clear(network, &table, layout, text)?));
    }
    let parts = json!({
        "cosine_min": least,
        "compared": COMPARED.len(),
        "planned_seconds": plan.work.seconds,
        "planned_memory": plan.memory.total(),
        "planned_disk": plan.disk,
        "core_seconds_per_text": taken.seconds * threads as f64 / bed.texts() as f64,
        "placement": placement,
    });
    Ok(bed.row("fhe.model", about, threads, &taken, parts))
}

/// The server's work, from columns to its reply.
fn run<S: Slots>(
    on: &S,
    network: &Network,
    choices: &Choices,
    placement: &Placement,
    layout: Interleave,
    columns: Vec<S::Value>,
) -> Result<Pooled<S::Value>, FheError> {
    let rows = RowsKnown::public(layout, vec![ROWS; layout.texts()])?;
    let bound = input_bound(network.embedding.width);
    let program = network.program_of_all_rows();
    let mut pass = Pass::new(on, &program, choices, placement.clone(), rows, bound)?;
    pass.run(columns)
}

/// The mean row of a text, in the clear.
fn clear(network: &Network, table: &[Vec<f64>], layout: Interleave, text: usize) -> Result<Vec<f64>, BenchError> {
    let mut x = PlainActs { rows: Rows::unpadded(&[ROWS]), values: rows_of(table, layout, text)? };
    let program = network.program_of_all_rows();
    for layer in program.layers() {
        x = plain::run_range(&program, layer, x, |_, _| ())?;
    }
    let mean = |j: usize| (0..ROWS).map(|row| x.values.row(row)[j]).sum::<f64>() / ROWS as f64;
    Ok((0..table.len()).map(mean).collect())
}
