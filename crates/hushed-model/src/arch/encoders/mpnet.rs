//! MPNet (Song et al. 2020): BERT's encoder with RoBERTa's positions and head, and a bias of the scores by distance,
//! the same in all layers.

use super::bert::{self, Config};
use super::{Encoder, Head, Tensors, after_padding, finish, roberta};
use crate::arch::config::NetworkConfig;
use crate::arch::kind::Architecture;
use crate::folder::fields::{Entry, Table, Use::Only};
use crate::folder::json::Fields;
use crate::folder::json::typed;

const FIELDS: &[Entry] = &[("relative_attention_num_buckets", Only(&["32"], "32 buckets"))];

pub(crate) const ENCODER: Encoder = Encoder {
    tensors: Tensors {
        query: "attention.attn.q",
        key: "attention.attn.k",
        value: "attention.attn.v",
        output: "attention.attn.o",
        attention_norm: "attention.LayerNorm",
        ..bert::TENSORS
    },
    projection: "",
    distances: Some("encoder.relative_attention_bias"),
    shared: false,
    head: Head { architectures: &["MPNetForSequenceClassification"], ..roberta::ENCODER.head },
};

pub(crate) fn fields() -> Vec<Table> {
    [vec![FIELDS.into()], bert::fields()].concat()
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    let config = typed::read::<Config>(f).map(|config| config.network(Architecture::MpNet));
    let config = config.map(|config| NetworkConfig { token_types: 0, ..config });
    let config = config.and_then(|config| after_padding(f, config));
    finish(f, config, &ENCODER, ["hidden_size", "num_attention_heads"])
}
