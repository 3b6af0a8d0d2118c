//! ALBERT (Lan et al. 2020): an encoder whose layers are all the same one, behind a narrower token table.

use serde::Deserialize;

use super::bert::{self, Config};
use super::{Encoder, Head, Tensors, finish};
use crate::arch::common::Width;
use crate::arch::config::{Form, NetworkConfig};
use crate::arch::kind::Architecture;
use crate::blocks::Activation;
use crate::folder::fields::{
    Entry, Table,
    Use::{Nothing, Only, Read},
    read_by,
};
use crate::folder::json::Fields;
use crate::folder::json::typed;

#[derive(Deserialize)]
struct Own {
    embedding_size: Option<Width>,
}

const FIELDS: &[Entry] = &[
    ("num_hidden_groups", Only(&["1"], "1: the same layer everywhere")),
    ("inner_group_num", Only(&["1"], "1: one layer at a time")),
    ("merged_feed_forward", Read),
    ("classifier_dropout_prob", Nothing),
    ("down_scale_factor", Nothing),
    ("gap_size", Nothing),
    ("net_structure_type", Nothing),
    ("num_memory_blocks", Nothing),
];

pub(crate) const ENCODER: Encoder = Encoder {
    tensors: Tensors {
        layers: "encoder.albert_layer_groups.0.albert_layers.0",
        query: "attention.query",
        key: "attention.key",
        value: "attention.value",
        output: "attention.dense",
        attention_norm: "attention.LayerNorm",
        up: "ffn",
        down: "ffn_output",
        feed_forward_norm: "full_layer_layer_norm",
    },
    projection: "encoder.embedding_hidden_mapping_in",
    distances: None,
    shared: true,
    head: Head {
        architectures: &["AlbertForSequenceClassification"],
        dense: "pooler",
        activation: Activation::Tanh,
        classes: "classifier",
    },
};

pub(crate) fn fields() -> Vec<Table> {
    [vec![read_by::<Own>(), FIELDS.into()], bert::fields()].concat()
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    let config = typed::read::<Config>(f).map(|config| config.network(Architecture::Albert));
    let own = typed::read::<Own>(f);
    let config = config.zip(own).map(|(config, own)| {
        let table_width = Some(own.embedding_size.map_or(128, |width| width.0));
        NetworkConfig { form: Form { table_width, ..Form::default() }, ..config }
    });
    let config = finish(f, config, &ENCODER, ["hidden_size", "num_attention_heads"])?;
    if !config.merged.is_empty() {
        f.unsupported("merged_feed_forward", "layers of their own: all of this model are one");
        return None;
    }
    Some(config)
}
