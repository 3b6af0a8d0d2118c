//! The tower of CLIP (Radford et al. 2021) that reads texts: layers like those of the one that reads images, in which a
//! row sees those before it. Its answer is the last row, the token that ends the text, or a linear map of it.

use std::sync::Arc;

use serde::Deserialize;

use crate::arch::common::{self, Epsilon, Hidden, Layers, Positions, Vocabulary, Width};
use crate::arch::config::{Biases, Form, NetworkConfig};
use crate::arch::kind::Architecture;
use crate::arch::vision::{clip, named};
use crate::blocks::{Activation, Attention, Embedding, Mask, Pool};
use crate::decoder::{EmbedderNetwork, Layer};
use crate::folder::fields::{COMMON, Entry, Table, Use::Nothing, read_by, unused};
use crate::folder::json::Fields;
use crate::folder::json::typed;
use crate::layers::{LayerReader, Source};

#[derive(Deserialize)]
struct Config {
    num_hidden_layers: Layers,
    hidden_size: Width,
    num_attention_heads: Width,
    intermediate_size: Hidden,
    hidden_act: Option<Activation>,
    layer_norm_eps: Option<Epsilon>,
    vocab_size: Vocabulary,
    max_position_embeddings: Positions,
    projection_dim: Option<Width>,
}

const FIELDS: &[Entry] = &[
    ("attention_dropout", Nothing),
    ("dropout", Nothing),
    // In the library's configuration that of a quotation mark; padding is masked.
    ("pad_token_id", Nothing),
    // Where the end is, which is the last row of a text.
    ("eos_token_id", Nothing),
    ("tie_word_embeddings", Nothing),
    ("is_decoder", Nothing),
];

pub(crate) fn fields() -> Vec<Table> {
    vec![read_by::<Config>(), FIELDS.into(), COMMON.into(), unused()]
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    let before = f.problem_count();
    let config = typed::read::<Config>(f);
    let known = [("CLIPTextModelWithProjection", true), ("CLIPTextModel", false)];
    let projects = named(f, &known, "CLIPTextModel or CLIPTextModelWithProjection");
    common::heads_divide(f, "hidden_size", "num_attention_heads");
    let merged = common::merged(f, config.as_ref().map(|c| c.num_hidden_layers.0));
    if f.problem_count() > before {
        return None;
    }
    let config = config?;
    let projected = config.projection_dim.map_or(clip::PROJECTED, |columns| columns.0);
    Some(NetworkConfig {
        architecture: Architecture::ClipText,
        layers: config.num_hidden_layers.0,
        width: config.hidden_size.0,
        heads: config.num_attention_heads.0,
        hidden: config.intermediate_size.0,
        merged,
        vocabulary: config.vocab_size.0,
        positions: config.max_position_embeddings.0,
        token_types: 0,
        activation: config.hidden_act.unwrap_or(Activation::QuickGelu),
        epsilon: config.layer_norm_eps.map_or(clip::EPSILON, |epsilon| epsilon.0),
        padding_id: None,
        biases: Biases { attention: true, feed_forward: true },
        form: Form { projected: projects?.then_some(projected), ..Form::default() },
        ..NetworkConfig::base()
    })
}

/// The layers of a configuration that [`read`] made.
pub(crate) fn network<S: Source>(from: &mut LayerReader<'_, S>, pool: Pool) -> Result<EmbedderNetwork, S::Error> {
    let c = from.config;
    let (vocabulary, positions, width) = (c.vocabulary, c.positions, c.width);
    let (tokens, stored) = from.numbers("embeddings.token_embedding.weight", vocabulary, width)?;
    let offsets = from.matrix("embeddings.position_embedding.weight", positions, width)?.map(Arc::new);
    let layer = |i| {
        let layer = clip::VISION.layer(from, i)?;
        Ok(Layer { attention: Attention { mask: Mask::Causal, ..layer.attention }, ..layer })
    };
    let layers = (0..c.layers).map(layer).collect::<Result<_, _>>()?;
    let norm = from.norm("final_layer_norm")?;
    let project = |columns| from.linear_if("text_projection", width, columns, false);
    Ok(EmbedderNetwork {
        embedding: Embedding {
            vocabulary,
            positions,
            placed: true,
            width,
            tokens,
            stored,
            offsets,
            typed: false,
            second: None,
        },
        layers,
        norm,
        pool,
        projection: c.form.projected.map(project).transpose()?,
    })
}
