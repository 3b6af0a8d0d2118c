//! Who sees what of a run.

use hushed_model::{Block, Program};

use super::Exposure;
use crate::circuit::token::predicts_tokens;
use crate::{Answers, Terms, Wanted};

/// What the client gets of a model that embeds.
const EMBEDDING: &str = "its embedding";

/// The same of classifiers.
const CLASS_OF_TEXT: &str = "the class of its text, that of the largest logit; no logit";
const CLASS_OF_IMAGE: &str = "the class of its image, that of the largest logit; no logit";

/// The same of models that generate.
const TOKENS: &str = "the tokens of its answer, one a pass, each the largest of its logits (noise included); no logit";

/// The same with drafts.
const TOKENS_OF_ROWS: &str = "the tokens of its answer, one a row of each pass (a draft is one), each the largest of its logits (noise included); no logit";

/// What the server gets of them, without drafts.
const PASSES: &str = "the number and times of the passes, one a token of the answer (with --pad-output as many as were asked for), temperature and seed; \
                      nothing of the text, its continuation or any logit";

/// Changes the list where the operator opens more than the largest of the `logits` numbers of each of so many texts or
/// images.
pub(super) fn open_more(all: &mut [Exposure], answers: Answers, texts: usize, logits: usize) {
    let known = [CLASS_OF_TEXT, CLASS_OF_IMAGE, TOKENS, TOKENS_OF_ROWS];
    let plain = |e: &&mut Exposure| known.contains(&e.sees.as_str());
    let Some(answer) = all.iter_mut().find(plain) else {
        return;
    };
    let (of, each) = match answer.sees.as_str() {
        TOKENS => ("the tokens", "pass"),
        TOKENS_OF_ROWS => ("the tokens", "row of a pass (a draft is one)"),
        _ => ("the classes", "text"),
    };
    answer.sees = match answers {
        Answers::Label => return,
        Answers::Top(top) => format!(
            "{of} of the {top} largest logits of each {each}, in order, each counted as a text by the server's limits: the operator has allowed it with --answers top:{top}; no logit"
        ),
        Answers::Logits => format!(
            "all logits ({texts} x {logits} numbers, each counted as a text by the server's limits), rounded to 2^-12: the operator has allowed it with --answers logits; many of them describe the head"
        ),
    };
}

/// The list, for texts of these numbers of rows.
pub(super) fn exposures(program: &Program, tokens: &[usize], terms: Terms) -> Vec<Exposure> {
    let generates = predicts_tokens(program);
    let mut all: Vec<Exposure> = Vec::new();
    let mut list = |who, sees: &str| {
        all.push(Exposure {
            who,
            sees: sees.to_owned(),
        });
    };
    let texts = tokens.len();
    let images = program.patches().is_some();
    list(
        "server",
        &match terms.padded {
            _ if images => format!(
                "the number of images ({texts}), that they are images, and the size that the model reads ({tokens:?} rows), the same for all of them"
            ),
            false => format!("the number of texts ({texts}) and of tokens in each ({tokens:?})"),
            true => format!(
                "the number of texts ({texts}) and the padded length of each ({tokens:?}); not how many of these are tokens"
            ),
        },
    );
    match generates {
        false if images => list(
            "server",
            "when an image is asked about and how long the client takes; nothing of its points, its own size or its class",
        ),
        false => list(
            "server",
            "when a text is asked about and how long the client takes; nothing of the text, its token ids or its answer",
        ),
        true => list("server", PASSES),
    }
    let head = program.steps().last().map(|step| &step.block);
    list(
        "client",
        match head {
            Some(Block::Vocabulary(_)) => TOKENS,
            Some(Block::Classes(_)) => CLASS_OF_IMAGE,
            Some(Block::Head(_)) => CLASS_OF_TEXT,
            _ => EMBEDDING,
        },
    );
    list(
        "client",
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
        },
    );
    list(
        "network",
        match images {
            true => {
                "sizes and times of the messages, from which the number of images follows; all else is inside TLS"
            }
            false => {
                "sizes and times of the messages, from which the number of tokens (padded where the server sees it padded) follows; all else is inside TLS"
            }
        },
    );
    all
}

/// What is seen of products that are made ahead of so many passes.
pub(super) fn ahead_exposures(passes: usize, terms: Terms) -> Vec<Exposure> {
    let yes = |is: bool| if is { "yes" } else { "no" };
    let sees = format!(
        "for how many passes products are made ahead ({passes}), whether of padded texts ({}) and with the public table ({}), and when; nothing of any text, which need not exist yet",
        yes(terms.padded),
        yes(terms.public_table)
    );
    let who = "server";
    vec![Exposure { who, sees }]
}

/// Changes the list for passes that verify drafts.
pub(super) fn with_drafts(all: &mut Vec<Exposure>) {
    for exposure in all.iter_mut() {
        let shown = match exposure.sees.as_str() {
            PASSES => {
                "the number and times of the passes, how many drafts each has and how many of them were right, temperature and seed: \
                 so the number of tokens of the answer, whether the last tokens of the text occurred in it before (where drafts are looked up) and how predictable its continuation is; \
                 nothing else of the text, of any draft or of any logit"
            }
            TOKENS => TOKENS_OF_ROWS,
            _ => continue,
        };
        shown.clone_into(&mut exposure.sees);
    }
    all.push(Exposure {
        who: "client",
        sees: "what follows drafts that were wrong as well: each row counts as a text by the server's limits".to_owned(),
    });
}

/// What is seen of a public prefix of so many rows.
pub(super) fn prefix_exposure(rows: usize) -> Option<Exposure> {
    (rows > 0).then(|| Exposure {
        who: "client",
        sees: format!(
            "the number of tokens of the server's public prefix ({rows}) and its SHA-256, to check a file of it by; nothing of its keys and values"
        ),
    })
}

/// The list of a search for a text of this many rows.
pub(super) fn search_exposures(
    program: &Program,
    rows: usize,
    terms: Terms,
    wanted: Wanted,
) -> Vec<Exposure> {
    let mut all = exposures(program, &[rows], terms);
    let answer = |e: &&mut Exposure| e.who == "client" && e.sees == EMBEDDING;
    if let Some(answer) = all.iter_mut().find(answer) {
        answer.sees = format!(
            "the places of the {} documents nearest to its text, in order{}; {}",
            wanted.top,
            if wanted.records {
                ", and the beginnings of their texts"
            } else {
                ""
            },
            if wanted.scores {
                "their cosines, rounded to 2^-12: the operator has allowed it with --search-scores; those of a document to many texts give its vector"
            } else {
                "no cosine"
            }
        );
    }
    all.push(Exposure {
        who: "server",
        sees: format!(
            "how many documents are asked for ({}), and whether their texts ({}) and scores ({}) are; not which",
            wanted.top,
            if wanted.records { "yes" } else { "no" },
            if wanted.scores { "yes" } else { "no" }
        ),
    });
    all
}
