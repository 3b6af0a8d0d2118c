//! NomicBERT (Nussbaum et al. 2024, nomic-embed-text): BERT with rotary positions in the place of a table, a gate in
//! its feed-forward blocks and no biases. Token type 0, which every token of a text has, is added to the token vectors
//! as they are read.

use std::sync::Arc;

use serde::Deserialize;

use crate::arch::common::{
    self, BLOCK_FIELDS, Epsilon, Hidden, Layers, Positions, TokenId, Types, Vocabulary, Width, models,
};
use crate::arch::config::{NetworkConfig, ROPE};
use crate::arch::decoders::Theta;
use crate::arch::encoders::modernbert::Unscaled;
use crate::arch::kind::Architecture;
use crate::blocks::{Activation, Attention, Embedding, FeedForward, Mask, Pool, Queries, Rope, Weigh};
use crate::folder::fields::{
    COMMON, Entry, OFF, Table,
    Use::{Nothing, Only},
    read_by, unused,
};
use crate::folder::json::Fields;
use crate::folder::json::typed::{self, Size};
use crate::layers::{LayerReader, Source};
use crate::network::{Layer, Network};
use crate::program::Block;

/// Since version 5 of `transformers`.
#[derive(Deserialize)]
struct Config {
    num_hidden_layers: Layers,
    hidden_size: Width,
    num_attention_heads: Width,
    head_dim: Option<Width>,
    intermediate_size: Hidden,
    hidden_act: Option<Activation>,
    vocab_size: Vocabulary,
    max_position_embeddings: Positions,
    type_vocab_size: Option<Types>,
    layer_norm_eps: Option<Epsilon>,
    pad_token_id: Option<TokenId>,
    rope_parameters: Option<Unscaled>,
}

/// Of folders with their own code, which computes the same.
#[derive(Deserialize)]
struct Older {
    n_layer: Layers,
    n_embd: Width,
    n_head: Width,
    n_inner: Hidden,
    n_positions: Positions,
    vocab_size: Vocabulary,
    type_vocab_size: Option<Types>,
    layer_norm_epsilon: Option<Epsilon>,
    pad_token_id: Option<TokenId>,
    rotary_emb_base: Option<Theta>,
    /// Longer texts would have other angles.
    max_trained_positions: Option<Positions>,
}

/// Of both.
const FIELDS: &[Entry] = &[
    ("auto_map", Nothing),
    ("eos_token_id", Nothing),
    ("tie_word_embeddings", Nothing),
    ("is_decoder", Only(OFF, "an encoder (false)")),
    ("position_embedding_type", Only(&["\"absolute\"", "\"rotary\""], "rotary positions")),
];

const OLDER_FIELDS: &[Entry] = &[
    ("activation_function", Only(&["\"swiglu\""], "\"swiglu\"")),
    ("rotary_emb_fraction", Only(&["1.0", "1"], "all columns of a head (1.0)")),
    ("rotary_emb_interleaved", Only(OFF, "pairs of columns half a head apart (false)")),
    ("rotary_emb_scale_base", Only(OFF, "angles as they are (null)")),
    ("prenorm", Only(OFF, "norms after the blocks (false)")),
    ("parallel_block", Only(OFF, "one block after the other (false)")),
    ("causal", Only(OFF, "rows that see the whole text (false)")),
    ("qkv_proj_bias", Only(OFF, "linear layers without biases (false)")),
    ("mlp_fc1_bias", Only(OFF, "linear layers without biases (false)")),
    ("mlp_fc2_bias", Only(OFF, "linear layers without biases (false)")),
    ("use_rms_norm", Only(OFF, "norms that subtract the mean (false)")),
    ("scale_attn_weights", Only(&["true"], "scores divided by the root of a head's columns (true)")),
    ("scale_attn_by_inverse_layer_idx", Only(OFF, "the same scale in every layer (false)")),
    // Of texts that are longer than those of the training.
    ("rotary_scaling_factor", Nothing),
    ("reorder_and_upcast_attn", Nothing),
    ("attn_pdrop", Nothing),
    ("embd_pdrop", Nothing),
    ("resid_pdrop", Nothing),
    // How its code computes the same.
    ("dense_seq_output", Nothing),
    ("fused_bias_fc", Nothing),
    ("fused_dropout_add_ln", Nothing),
    ("last_layer_subset", Nothing),
    ("pad_vocab_size_multiple", Nothing),
    ("use_flash_attn", Nothing),
    ("use_xentropy", Nothing),
    // Of a head that is left out.
    ("summary_activation", Nothing),
    ("summary_first_dropout", Nothing),
    ("summary_proj_to_labels", Nothing),
    ("summary_type", Nothing),
    ("summary_use_proj", Nothing),
];

pub(crate) fn fields() -> Vec<Table> {
    vec![
        read_by::<Config>(),
        read_by::<Older>(),
        FIELDS.into(),
        OLDER_FIELDS.into(),
        BLOCK_FIELDS.into(),
        COMMON.into(),
        unused(),
    ]
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    let before = f.problem_count();
    models(f, &["NomicBertModel", "NomicBertForMaskedLM", "NomicBertForPreTraining"]);
    let config = match f.get("n_embd") {
        Some(_) => {
            common::heads_divide(f, "n_embd", "n_head");
            typed::read::<Older>(f).map(Older::newer)
        }
        None => {
            common::heads_divide(f, "hidden_size", "num_attention_heads");
            typed::read::<Config>(f)
        }
    };
    if !common::merged(f, None).is_empty() {
        f.unsupported(common::MERGED, "feed-forward blocks without a gate");
    }
    if f.problem_count() > before {
        return None;
    }
    let config = config?;
    let (width, heads) = (config.hidden_size.0, config.num_attention_heads.0);
    if config.head_dim.is_some_and(|columns| columns.0 * heads != width) || !(width / heads).is_multiple_of(2) {
        f.unsupported("head_dim", "an even number, the width divided by the heads");
        return None;
    }
    Some(NetworkConfig {
        architecture: Architecture::Nomic,
        layers: config.num_hidden_layers.0,
        width,
        heads,
        rope: Some(Rope { theta: config.rope_parameters.map_or(1000.0, |rope| rope.rope_theta.0), ..ROPE }),
        hidden: config.intermediate_size.0,
        vocabulary: config.vocab_size.0,
        positions: config.max_position_embeddings.0,
        token_types: config.type_vocab_size.map_or(2, |rows| rows.0),
        activation: config.hidden_act.unwrap_or(Activation::Silu),
        epsilon: config.layer_norm_eps.map_or(1e-12, |epsilon| epsilon.0),
        padding_id: config.pad_token_id.map(|id| id.0 as u32),
        ..NetworkConfig::base()
    })
}

impl Older {
    fn newer(self) -> Config {
        let trained = self.max_trained_positions.map_or(2048, |rows| rows.0);
        Config {
            num_hidden_layers: self.n_layer,
            hidden_size: self.n_embd,
            num_attention_heads: self.n_head,
            head_dim: None,
            intermediate_size: self.n_inner,
            hidden_act: None,
            vocab_size: self.vocab_size,
            max_position_embeddings: Size(self.n_positions.0.min(trained)),
            type_vocab_size: self.type_vocab_size,
            layer_norm_eps: self.layer_norm_epsilon,
            pad_token_id: self.pad_token_id,
            rope_parameters: self.rotary_emb_base.map(Unscaled::of),
        }
    }
}

/// The layers of a configuration that [`read`] made.
pub(crate) fn network<S: Source>(from: &mut LayerReader<'_, S>, pool: Pool) -> Result<Network, S::Error> {
    let c = from.config;
    let (vocabulary, positions, width) = (c.vocabulary, c.positions, c.width);
    let mut tokens = from.matrix("embeddings.word_embeddings.weight", vocabulary, width)?;
    let types = from.matrix("embeddings.token_type_embeddings.weight", c.token_types, width)?;
    if let (Some(tokens), Some(types)) = (&mut tokens, &types) {
        for i in 0..vocabulary {
            tokens.row_mut(i).iter_mut().zip(types.row(0)).for_each(|(v, t)| *v += t);
        }
    }
    Ok(Network {
        embedding: Embedding {
            vocabulary,
            positions,
            placed: false,
            width,
            tokens: tokens.map(Arc::new),
            stored: None,
            offsets: None,
            typed: false,
            second: None,
        },
        embedding_norm: from.norm("emb_ln")?,
        projection: None,
        layers: (0..c.layers).map(|i| from.nomic_layer(i)).collect::<Result<_, _>>()?,
        pool,
        classifier: None,
    })
}

impl<S: Source> LayerReader<'_, S> {
    fn nomic_layer(&mut self, i: usize) -> Result<Layer, S::Error> {
        let c = self.config;
        let (d, hidden) = (c.width, c.hidden);
        let name = |part: &str| format!("encoder.layers.{i}.{part}");
        let [query, key, value] = self.above_each_other(&name("attn.Wqkv"), d, [d; 3])?;
        Ok(Layer {
            attention: Attention {
                query,
                key,
                value,
                query_norm: None,
                key_norm: None,
                sub_norm: None,
                output: self.linear_if(&name("attn.out_proj"), d, d, false)?,
                heads: c.split(),
                rope: c.rope,
                distances: None,
                weigh: Weigh::Softmax,
                mask: Mask::Full,
                queries: Queries::All,
            },
            attention_norm: self.norm(&name("norm1"))?,
            feed_forward: Block::FeedForward(FeedForward {
                up: self.linear_if(&name("mlp.fc11"), d, hidden, false)?,
                gate: Some(self.linear_if(&name("mlp.fc12"), d, hidden, false)?),
                activation: c.activation,
                tolerance: c.tolerance,
                sub_norm: None,
                down: self.linear_if(&name("mlp.fc2"), hidden, d, false)?,
            }),
            feed_forward_norm: self.norm(&name("norm2"))?,
        })
    }
}
