//! Who sees what in a run.

use hushed_model::Program;
use serde::Serialize;

use super::search::smaller::merged_layers;
use crate::dry::FheOptions;
use crate::plan::public_plan::{AnswerRows, Lengths};
use crate::{Choices, HeadChoice};

/// One thing that a party sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FheExposure {
    /// `client`, `server`, `network` or `everybody`.
    pub who: &'static str,
    /// What the party sees.
    pub sees: String,
}

/// The list for one batch.
pub(super) fn exposures(program: &Program, choices: &Choices, options: &FheOptions, places: usize) -> Vec<FheExposure> {
    let (rows, lengths) = (options.rows, options.lengths);
    let (decodes, images) = (program.vocabulary().is_some(), program.patches().is_some());
    let see = |who, sees: String| FheExposure { who, sees };
    let length = match lengths {
        _ if images => "nothing of an image's size but the model's".to_owned(),
        Lengths::Public if options.per_place > 1 => format!(
            "the number of tokens of every text, and which texts share the rows of a place, up to {} of them",
            options.per_place
        ),
        Lengths::Public => "the number of tokens of every text".to_owned(),
        Lengths::Bucket(n) => {
            format!("the number of tokens of every text, rounded up to a multiple of {n}")
        }
        Lengths::Private => {
            format!("nothing of a text's length but that it is at most {rows} tokens")
        }
    };
    let answers = match program.classes().map(|classes| classes.outputs) {
        Some(k) => format!("of each of its texts {k} logits, one a class, not their pooled row"),
        None if decodes && options.answer == AnswerRows::Rows => format!(
            "of each of its texts the hidden states of all rows, {} numbers a token, after the last norm: what the likelihood of its own tokens \
             follows from. They say far more of the weights than last rows or likely tokens would, with every text, and it opens as many ciphertexts \
             of each reply as there are {}, all counted",
            program.width(),
            match &options.placement {
                Some(placement) if placement.columns > 1 => "vectors of columns",
                _ => "pairs of columns",
            }
        ),
        None if decodes && options.answer == AnswerRows::Logits => format!(
            "of each of its texts the logits of the next token, {} numbers: the logits of {} texts give the head up to a square matrix (Carlini et \
             al., 2024)",
            program.vocabulary().map_or(0, |head| head.outputs),
            program.width() + 1
        ),
        None if decodes => format!(
            "of each of its texts the hidden state of the last row, {} numbers, after the last norm: all logits of the next token follow from it, \
             and it says more of the weights than the likeliest token would",
            program.width()
        ),
        None => "the answers of its texts".to_owned(),
    };
    let table = match decodes {
        true if options.answer == AnswerRows::Logits => {
            "the table of token vectors of the model, whole: it looks up for itself. No other weights"
        }
        true => {
            "the table of token vectors of the model, whole, which is also its head: it looks up and makes logits for itself. No other weights"
        }
        false if images => {
            "the map of patches, the class token and the positions of the model, whole: it makes the rows of an image for itself. No other weights"
        }
        false => {
            "the table of token vectors, the positions and the first norm of the model, whole: it looks up and normalises for itself. No other weights"
        }
    };
    let mut all = vec![
        see("server", length),
        see(
            "server",
            format!(
                "which keys a batch is for, when it arrives and when it is fetched, and {}",
                match lengths {
                    Lengths::Public => format!("how many of its {places} places have a text"),
                    Lengths::Bucket(_) | Lengths::Private => format!(
                        "that it has up to {places} texts: places without a text look like the others"
                    ),
                }
            ),
        ),
        see("server", "nothing of the texts, their token ids, embeddings or answers".to_owned()),
        see("client", table.to_owned()),
        see(
            "client",
            "the model's public part (sizes, tokenizer, pooling), and of the calibration its hash, degrees and steps, by the counts below".to_owned(),
        ),
        see("client", format!("{answers}, with the error that the plan states")),
        see(
            "readers of the plan",
            "of the reply the largest number that the last layer's weights allow, and its largest error in a simulation over the weights, both as \
             powers of two; and the canary's answer, if there is a canary, to about 14 bits"
                .to_owned(),
        ),
        see(
            "network",
            "sizes and times of messages, which follow from the plan alone; all else is inside TLS".to_owned(),
        ),
    ];
    let fixed: Vec<String> = choices
        .layers
        .iter()
        .enumerate()
        .flat_map(|(i, layer)| {
            let heads = layer.attention.heads.iter().enumerate();
            heads
                .filter(|(_, head)| matches!(head, HeadChoice::Previous))
                .map(move |(h, _)| format!("head {h} of layer {i}"))
        })
        .collect();
    if !fixed.is_empty() {
        all.push(see(
            "client, server and network",
            format!(
                "by the number of operations, which heads attend to the row before whatever the text is: {}",
                fixed.join(", ")
            ),
        ));
    }
    let frozen: Vec<String> = choices
        .layers
        .iter()
        .enumerate()
        .filter(|(_, layer)| layer.frozen_row.is_some())
        .map(|(i, _)| i.to_string())
        .collect();
    if !frozen.is_empty() {
        all.push(see(
            "client, server and network",
            format!(
                "by the number of operations, after which layers the first row of a text is a constant: {}",
                frozen.join(", ")
            ),
        ));
    }
    let merged = merged_layers(program);
    if !merged.is_empty() {
        let merged: Vec<String> = merged.iter().map(usize::to_string).collect();
        all.push(see(
            "client, server and network",
            format!(
                "by the number of operations, in which layers the feed-forward block is one linear layer: {}",
                merged.join(", ")
            ),
        ));
    }
    all.push(see(
        "server alone",
        "intervals, constants and coefficients of approximations. A text that leaves the calibrated ranges gets a meaningless \
         answer, and may spoil the others of its batch"
            .to_owned(),
    ));
    all
}
