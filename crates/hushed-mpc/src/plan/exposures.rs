//! Who sees what of a run.

use super::Exposure;
use crate::Terms;

/// The list, for texts of these numbers of rows.
pub(super) fn exposures(tokens: &[usize], terms: Terms) -> Vec<Exposure> {
    let list = |who, sees: &[&str]| {
        let sees: Vec<String> = sees.iter().map(|s| (*s).to_owned()).collect();
        sees.into_iter().map(move |sees| Exposure { who, sees })
    };
    let texts = tokens.len();
    let count = match terms.padded {
        false => format!("the number of texts ({texts}) and of tokens in each ({tokens:?})"),
        true => format!(
            "the number of texts ({texts}) and the padded length of each ({tokens:?}); not how many of these are tokens"
        ),
    };
    let mut all = vec![Exposure {
        who: "server",
        sees: count,
    }];
    all.extend(list(
        "server",
        &["when a text is asked about and how long the client takes; nothing of the text, its token ids or its embedding"],
    ));
    all.extend(list(
        "client",
        &[
            "its embedding",
            match terms.public_table {
                false => "the model's public part: sizes, tokenizer, pooling, the functions of this version and what is declared of the model's; no weights",
                true => "the model's public part: sizes, tokenizer, pooling, the functions of this version and what is declared of the model's; and its table of token vectors, \
                         whole, which the operator has made public with --public-table: no other weights",
            },
        ],
    ));
    all.extend(list(
        "network",
        &["sizes and times of the messages, from which the number of tokens (padded where the server sees it padded) follows; all else is inside TLS"],
    ));
    all
}
