//! Smaller models that a search may ask instead of the whole one.

use hushed_model::{Block, NetworkConfig, Pool, Program, random_network, random_vit};

use crate::choices::{Choices, HeadChoice};

/// Rows per text of a run that only asks for levels.
pub(in crate::plan) const THIN_ROWS: usize = 2;

/// A model with one head and a few columns that needs as many levels: levels depend only on degrees and steps, which
/// the heads of a layer share.
pub(in crate::plan) fn thin(program: &Program, choices: &Choices) -> (Program, Choices) {
    let labels = program.classes().map(|_| vec![String::new(); 2]);
    let images = program.patches().is_some();
    let like = if images { NetworkConfig::vit_base() } else { NetworkConfig::large() };
    let config = NetworkConfig {
        layers: choices.layers.len(),
        width: 2,
        heads: 1,
        hidden: 1,
        merged: merged_layers(program),
        vocabulary: 1,
        positions: THIN_ROWS,
        patch_side: 1,
        labels,
        ..like
    };
    let mut choices = choices.clone();
    for layer in &mut choices.layers {
        let heads = &mut layer.attention.heads;
        // A head with a softmax, if there is one.
        heads.sort_by_key(|head| *head == HeadChoice::Previous);
        heads.truncate(1);
        layer.activation.columns.truncate(1);
        layer.frozen_row = None;
    }
    if images {
        return (random_vit(&config, 1).program_of_all_rows(), choices);
    }
    let pool = pool_of(program).unwrap_or(Pool::Mean);
    (random_network(&config, pool, 1).program_of_all_rows(), choices)
}

/// The layers whose feed-forward block is one linear layer.
pub(in crate::plan) fn merged_layers(program: &Program) -> Vec<usize> {
    let layers = program.feed_forwards().enumerate();
    let merged = layers.filter(|(_, block)| block.is_none());
    merged.map(|(layer, _)| layer).collect()
}

/// The pooling at the end of a program.
fn pool_of(program: &Program) -> Option<Pool> {
    match program.steps().last()?.block {
        Block::Pool(pool) => Some(pool),
        _ => None,
    }
}

/// The first layers of a model and their choices.
pub(crate) fn shortened(program: &Program, choices: &Choices, layers: usize) -> (Program, Choices) {
    let mut choices = choices.clone();
    if let (Some(norm), Some(next)) = (&mut choices.norm, choices.layers.get(layers.max(1))) {
        // It reads what the next layer would read.
        *norm = next.attention_norm.clone();
    }
    choices.layers.truncate(layers.max(1));
    if let Some(decoder) = &mut choices.decoder {
        decoder.layers.truncate(layers.max(1));
    }
    (program.first_layers(layers), choices)
}
