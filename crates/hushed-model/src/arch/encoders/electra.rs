//! ELECTRA's discriminator (Clark et al. 2020): BERT's encoder, whose token table may be narrower than its layers.

use serde::Deserialize;

use super::bert::{self, Config};
use super::{Encoder, Head, finish};
use crate::arch::common::Width;
use crate::arch::config::{Form, NetworkConfig};
use crate::arch::kind::Architecture;
use crate::blocks::Activation;
use crate::folder::fields::{
    Entry, Table,
    Use::{Nothing, Only},
    read_by,
};
use crate::folder::json::Fields;
use crate::folder::json::typed;

#[derive(Deserialize)]
struct Own {
    embedding_size: Option<Width>,
}

const FIELDS: &[Entry] = &[
    ("use_cache", Nothing),
    // Of a head that is refused by `architectures`.
    ("summary_type", Nothing),
    ("summary_use_proj", Nothing),
    ("summary_activation", Nothing),
    ("summary_last_dropout", Nothing),
    ("head_mask", Only(&[], "all heads (null)")),
];

pub(crate) const ENCODER: Encoder = Encoder {
    tensors: bert::TENSORS,
    projection: "embeddings_project",
    distances: None,
    shared: false,
    head: Head {
        architectures: &["ElectraForSequenceClassification"],
        dense: "classifier.dense",
        activation: Activation::Gelu,
        classes: "classifier.out_proj",
    },
};

pub(crate) fn fields() -> Vec<Table> {
    [vec![read_by::<Own>(), FIELDS.into()], bert::fields()].concat()
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    let config = typed::read::<Config>(f).map(|config| config.network(Architecture::Electra));
    let own = typed::read::<Own>(f);
    let config = config.zip(own).map(|(config, own)| {
        let table_width = own.embedding_size.map_or(128, |width| width.0);
        let form =
            Form { table_width: Some(table_width).filter(|&columns| columns != config.width), ..Form::default() };
        NetworkConfig { form, ..config }
    });
    finish(f, config, &ENCODER, ["hidden_size", "num_attention_heads"])
}
