//! RoBERTa (Liu et al. 2019) and XLM-RoBERTa (Conneau et al. 2020): BERT's encoder, with positions that count on from
//! the padding id and a head without the pooler. The two differ only in their tokenizers.

use super::bert;
use super::names::{Encoder, Head, Names};
use crate::blocks::Activation;

pub(super) const NAMES: Names = Names {
    encoder: Some(Encoder {
        tensors: bert::TENSORS,
        head: Head {
            architectures: &["RobertaForSequenceClassification", "XLMRobertaForSequenceClassification"],
            dense: "classifier.dense",
            activation: Activation::Tanh,
            classes: "classifier.out_proj",
        },
    }),
    positions_after_padding: Some(1),
    ..bert::NAMES
};
