//! RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2020) and CamemBERT (Martin et al. 2020): BERT's encoder,
//! with positions that count on from the padding id and a head without the pooler. They differ in their tokenizers.

use super::bert::{self, Config};
use super::{Encoder, Head, after_padding, finish};
use crate::arch::config::NetworkConfig;
use crate::arch::kind::Architecture;
use crate::blocks::Activation;
use crate::folder::fields::Table;
use crate::folder::json::Fields;
use crate::folder::json::typed;

pub(crate) const ENCODER: Encoder = Encoder {
    tensors: bert::TENSORS,
    projection: "",
    distances: None,
    shared: false,
    head: Head {
        architectures: &[
            "RobertaForSequenceClassification",
            "XLMRobertaForSequenceClassification",
            "CamembertForSequenceClassification",
        ],
        dense: "classifier.dense",
        activation: Activation::Tanh,
        classes: "classifier.out_proj",
    },
};

pub(crate) fn fields() -> Vec<Table> {
    bert::fields()
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    let config = typed::read::<Config>(f).map(|config| config.network(Architecture::Roberta));
    let config = config.and_then(|config| after_padding(f, config));
    finish(f, config, &ENCODER, ["hidden_size", "num_attention_heads"])
}
