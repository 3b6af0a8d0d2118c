//! Who sees what of a run.

use hushed_model::Program;
use serde::Serialize;

use crate::formats::SHORT;
use crate::{Answers, Terms, Wanted};

/// Something that a party sees.
#[derive(Clone, Debug, Serialize)]
pub struct Exposure {
    /// `client`, `server` or `network`.
    pub who: &'static str,
    /// What it sees.
    pub sees: String,
}

/// What a run opens to the client.
#[derive(Clone, Copy)]
pub(super) enum Opened {
    /// Embeddings, with this many bits a number if fewer than usual.
    Embeddings(Answers),
    /// The documents nearest to an embedding.
    Nearest(Wanted),
    /// The classes of a text or image.
    Classes {
        /// What is opened of them.
        answers: Answers,
        /// The number of classes.
        classes: usize,
    },
    /// The next tokens of a text.
    Tokens {
        /// What is opened of them.
        answers: Answers,
        /// Whether a pass verifies drafts.
        drafts: bool,
        /// Rows of the public prefix.
        public: usize,
    },
    /// Nothing: products are made ahead.
    Nothing,
}

/// The exposures, for texts with these numbers of rows, or for products made ahead for as many passes.
pub(super) fn exposures(program: &Program, tokens: &[usize], terms: Terms, opened: Opened) -> Vec<Exposure> {
    let images = program.patches().is_some();
    let mut all = Vec::new();
    let mut list = |who, sees| all.push(Exposure { who, sees });
    if let Opened::Nothing = opened {
        list("server", products(tokens, terms));
        return all;
    }
    list("server", inputs(tokens, terms, images));
    list("server", passes(opened, images).to_owned());
    list("client", answer(opened, tokens.len(), images));
    list("client", public_part(terms, images).to_owned());
    let count = match images {
        true => "images",
        false => "tokens (padded where the server sees it padded)",
    };
    list(
        "network",
        format!("sizes and times of the messages, from which the number of {count} follows; all else is inside TLS"),
    );
    match opened {
        Opened::Nearest(wanted) => list("server", search(wanted)),
        Opened::Tokens { drafts, public, .. } => {
            list(
                "server",
                format!("whether a text and the answer that is asked for may have more than {SHORT} rows together"),
            );
            if drafts {
                list(
                    "client",
                    "what follows drafts that were wrong as well: each row counts as a text by the server's limits"
                        .to_owned(),
                );
            }
            if public > 0 {
                list("client", prefix(public));
                list(
                    "server",
                    format!(
                        "with how many tokens of the public head of the model's folder a text begins ({public}), such as the first words of its chat template; all texts behind a public prefix begin alike"
                    ),
                );
            }
        }
        _ => {}
    }
    all
}

/// What the server sees of the inputs.
fn inputs(tokens: &[usize], terms: Terms, images: bool) -> String {
    let texts = tokens.len();
    match terms.padded {
        _ if images => format!(
            "the number of images ({texts}), that they are images, and the size that the model reads ({tokens:?} rows), the same for all of them"
        ),
        false => format!("the number of texts ({texts}) and of tokens in each ({tokens:?})"),
        true => format!(
            "the number of texts ({texts}) and the padded length of each ({tokens:?}); not how many of these are tokens"
        ),
    }
}

/// What the server sees of the passes.
fn passes(opened: Opened, images: bool) -> &'static str {
    match opened {
        Opened::Tokens { drafts: false, .. } => {
            "the number and times of the passes, one a token of the answer (with --pad-output as many as were asked for), temperature and seed; \
             nothing of the text, its continuation or any logit"
        }
        Opened::Tokens { drafts: true, .. } => {
            "the number and times of the passes, how many drafts each has and how many of them were right, temperature and seed: \
             so the number of tokens of the answer, whether the last tokens of the text occurred in it before (where drafts are looked up) and how predictable its continuation is; \
             nothing else of the text, of any draft or of any logit"
        }
        _ if images => {
            "when an image is asked about and how long the client takes; nothing of its points, its own size or its class"
        }
        _ => {
            "when a text is asked about and how long the client takes; nothing of the text, its token ids or its answer"
        }
    }
}

/// What the client gets for this many texts or images.
fn answer(opened: Opened, texts: usize, images: bool) -> String {
    let input = if images { "image" } else { "text" };
    let (of, each, answers, numbers) = match opened {
        Opened::Nothing => return "nothing".to_owned(),
        Opened::Embeddings(Answers::Bits(bits)) => {
            return format!(
                "its embedding, with {bits} bits a number: the operator rounds it with --answer-bits {bits}"
            );
        }
        Opened::Embeddings(_) => return "its embedding".to_owned(),
        Opened::Nearest(wanted) => return nearest(wanted),
        Opened::Classes { answers, classes } => ("the classes", input, answers, classes),
        Opened::Tokens { answers, drafts, .. } => {
            let each = match drafts {
                true => "row of a pass (a draft is one)",
                false => "pass",
            };
            ("the tokens", each, answers, 0)
        }
    };
    match (answers, opened) {
        (Answers::Top(top), _) => format!(
            "{of} of the {top} largest logits of each {each}, in order, each counted as a text by the server's limits: the operator has allowed it with --answers top:{top}; no logit"
        ),
        (Answers::Above(_), _) => format!(
            "for each of the {numbers} classes of each {each} whether its probability is above a threshold of the operator's ({answers}), one bit; no logit"
        ),
        (Answers::Logits, Opened::Classes { classes: 1, .. }) => {
            format!("the score of each {each}, the one number of the model's head, rounded to 2^-12")
        }
        (Answers::Logits, _) => format!(
            "all logits ({texts} x {numbers} numbers, each counted as a text by the server's limits), rounded to 2^-12: the operator has allowed it with --answers logits; many of them describe the head"
        ),
        (Answers::Label, Opened::Tokens { drafts: false, .. }) => {
            "the tokens of its answer, one a pass, each the largest of its logits (noise included); no logit".to_owned()
        }
        (Answers::Label, Opened::Tokens { .. }) => {
            "the tokens of its answer, one a row of each pass (a draft is one), each the largest of its logits (noise included); no logit".to_owned()
        }
        (Answers::Label | Answers::Bits(_), _) => {
            format!("the class of its {input}, that of the largest logit; no logit")
        }
    }
}

/// What the client gets from a search.
fn nearest(wanted: Wanted) -> String {
    format!(
        "the places of the {} documents nearest to its text, in order{}; {}",
        wanted.top,
        if wanted.records { ", and the beginnings of their texts" } else { "" },
        if wanted.scores {
            "their cosines, rounded to 2^-12: the operator has allowed it with --search-scores; those of a document to many texts give its vector"
        } else {
            "no cosine"
        }
    )
}

/// What the client gets before its first text.
fn public_part(terms: Terms, images: bool) -> &'static str {
    match terms.public_table {
        _ if images => {
            "the model's public part: sizes, names of the classes, how images become numbers, the functions of this version and what is declared of the model's; no weights"
        }
        false => {
            "the model's public part: sizes, tokenizer, pooling, the functions of this version and what is declared of the model's; no weights"
        }
        true => {
            "the model's public part: sizes, tokenizer, pooling, the functions of this version and what is declared of the model's; and its table of token vectors, \
             whole, which the operator has made public with --public-table: no other weights"
        }
    }
}

/// What the server sees of products made ahead.
fn products(passes: &[usize], terms: Terms) -> String {
    format!(
        "for how many passes of how many rows products are made ahead ({} of {}), whether of padded texts ({}) and with the public table ({}), and when; nothing of any text, which need not exist yet",
        passes.len(),
        passes.first().copied().unwrap_or(0),
        yes(terms.padded),
        yes(terms.public_table)
    )
}

/// What the client sees of a public prefix of this many rows.
fn prefix(rows: usize) -> String {
    format!(
        "the number of public tokens before the text ({rows}) and their SHA-256, to check them by; nothing of their keys and values"
    )
}

/// What the server sees of a search.
fn search(wanted: Wanted) -> String {
    format!(
        "how many documents are asked for ({}), and whether their texts ({}) and scores ({}) are; not which",
        wanted.top,
        yes(wanted.records),
        yes(wanted.scores)
    )
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_gets_is_said_of_every_kind_of_answer() {
        let tokens = |answers, drafts| Opened::Tokens { answers, drafts, public: 0 };
        let classes = |answers| Opened::Classes { answers, classes: 3 };
        let top = Answers::Top(2);
        for (opened, images, expected) in [
            (Opened::Embeddings(Answers::Label), false, "its embedding"),
            (classes(Answers::Label), false, "the class of its text, that of the largest logit; no logit"),
            (classes(Answers::Label), true, "the class of its image, that of the largest logit; no logit"),
            (classes(top), true, "the classes of the 2 largest logits of each image, in order, each counted as a text"),
            (
                classes(Answers::Logits),
                false,
                "all logits (5 x 3 numbers, each counted as a text by the server's limits), rounded to 2^-12",
            ),
            (
                classes(Answers::Above(300)),
                false,
                "for each of the 3 classes of each text whether its probability is above a threshold of the operator's (above:0.3), one bit",
            ),
            (
                tokens(Answers::Label, false),
                false,
                "the tokens of its answer, one a pass, each the largest of its logits (noise included); no logit",
            ),
            (
                tokens(Answers::Label, true),
                false,
                "the tokens of its answer, one a row of each pass (a draft is one), each the largest",
            ),
            (
                tokens(top, false),
                false,
                "the tokens of the 2 largest logits of each pass, in order, each counted as a text",
            ),
            (
                tokens(top, true),
                false,
                "the tokens of the 2 largest logits of each row of a pass (a draft is one), in order",
            ),
        ] {
            let said = answer(opened, 5, images);
            assert!(said.starts_with(expected), "{said}");
        }
    }

    #[test]
    fn the_server_is_said_to_see_drafts_alone_where_there_are_some() {
        let tokens = |drafts| Opened::Tokens { answers: Answers::Label, drafts, public: 0 };
        assert!(!passes(tokens(false), false).contains("draft"));
        assert!(passes(tokens(true), false).contains("how many drafts each has"));
        for (images, nothing) in [(true, "nothing of its points"), (false, "nothing of the text")] {
            assert!(passes(Opened::Embeddings(Answers::Label), images).contains(nothing));
        }
        let padded = |padded| Terms { padded, public_table: false };
        assert!(inputs(&[7, 9], padded(false), false).contains("of tokens in each ([7, 9])"));
        assert!(inputs(&[8, 16], padded(true), false).contains("not how many of these are tokens"));
        assert!(products(&[1; 6], padded(true)).contains("(6 of 1), whether of padded texts (yes)"));
    }
}
