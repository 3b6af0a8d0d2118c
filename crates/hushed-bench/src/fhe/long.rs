//! A layer of ENSI's width for texts of 2,048 tokens: what one head does is measured, the rest is the plan's.
//!
//! Scores, sigmoids and P·V are the parts of a layer that grow with the square of a text. They are measured in a layer
//! with a single head, whose ciphertexts have the primes that they have in the wide layer; the other steps do the same
//! as for texts of 128 tokens, for fewer texts at once.

use hushed_fhe::plan::assumed_choices;
use hushed_model::{Block, Step, StepId};
use serde_json::{Value, json};

use super::bed::ROWS;
use super::layer::{Measured, Planned, named};
use super::llama::{decoder, sigmoid};
use crate::ckks::with_threads;
use crate::{BenchError, How};

/// Tokens of a text.
const TOKENS: usize = 2048;

/// Width, heads and hidden columns (arXiv 2509.09424).
const WIDE: (usize, usize, usize) = (1536, 16, 4096);

/// Hidden columns beside the one head: few, as they are not what is measured.
const HIDDEN: usize = 64;

/// Parts of the attention whose work depends on a text's length.
const PARTS: [&str; 3] = ["rope", "scores", "attend"];

fn about() -> Value {
    let (width, _, hidden) = WIDE;
    json!({ "set": "n16-boot-14x40", "model": "llama-ternary-head", "rows": TOKENS, "width": width, "hidden": hidden })
}

/// One head of the layer, measured, and the layer's cost by that and the plan; only if it is named.
pub fn head(how: How<'_>) -> Result<Option<Value>, BenchError> {
    let about = about();
    match named(how, &about) {
        true => with_threads(how.threads, || measured(&about, how.threads)).map(Some),
        false => Ok(None),
    }
}

fn measured(about: &Value, threads: usize) -> Result<Value, BenchError> {
    let (width, heads, _) = WIDE;
    // Placed as for texts of 128 tokens.
    let placement = Planned::new(&decoder(WIDE, ROWS, sigmoid(ROWS)), threads)?.plan.placement;
    let wide = Planned::of(&decoder(WIDE, TOKENS, sigmoid(TOKENS)), TOKENS, threads, Some(placement))?;
    let narrow = decoder((width / heads, 1, HIDDEN), TOKENS, sigmoid(TOKENS));
    let attends = |step: &&Step| matches!(step.block, Block::Attention(_));
    let attention = narrow.steps().iter().find(attends);
    let attention = attention.ok_or(BenchError::BadWeights)?.id.within_layer();
    let parts = PARTS.map(|part| attention.part(part));
    let in_head = |site: StepId| parts.contains(&site.within_layer());
    let (mut planned, mut rest) = (0.0, 0.0);
    for step in wide.plan.ledger(Some(0)) {
        match in_head(step.site) {
            true => planned += step.work.seconds / heads as f64,
            false => rest += step.work.seconds,
        }
    }
    let choices = assumed_choices(&narrow, TOKENS);
    let placement = &wide.plan.placement;
    let Measured { bed, taken, error } = Measured::new(&narrow, &choices, placement, &wide.params, TOKENS)?;
    let steps = bed.on.clock().seconds();
    let measured = steps.iter().filter(|(site, _)| in_head(*site));
    let head: f64 = measured.map(|(_, seconds)| seconds).sum();
    let layer = heads as f64 * head + rest;
    let parts = json!({
        "error": error,
        "head_seconds": head,
        "planned_head_seconds": planned,
        "planned_other_seconds": rest,
        "core_seconds_per_text_partly_planned": layer * threads as f64 / bed.texts() as f64,
        "planned_memory": wide.plan.memory.total(),
        "planned_disk": wide.plan.disk,
        "placement": placement,
        "steps": bed.steps(),
    });
    Ok(bed.row("fhe.layer", about, threads, &taken, parts))
}
