//! The answers of the rungs, and whether a search with them finds the same documents.

use hushed_model::cosine;
use hushed_model::folder::Public;
use serde::Serialize;

use super::options::Which;

/// The embeddings of one text.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Index of the text in the input.
    pub text: usize,
    /// In the clear.
    pub clear: Vec<f64>,
    /// With polynomials.
    pub polynomial: Vec<f64>,
    /// With simulated errors.
    pub predicted: Vec<f64>,
    /// On a key.
    pub encrypted: Option<Vec<f64>>,
}

/// The answers of the remaining texts.
pub(super) fn answers(
    public: &Public,
    clear: &[Vec<f64>],
    rungs: &[(Which, Vec<Vec<f64>>)],
    alive: &[usize],
) -> Vec<Answer> {
    let end = |row: &Vec<f64>| public.finish(row.clone());
    let of = |which: Which, text: usize| {
        let rung = rungs.iter().find(|(w, _)| *w == which);
        rung.and_then(|(_, rows)| rows.get(text)).map(end)
    };
    let left = alive.iter().enumerate().filter(|(_, rows)| **rows > 0);
    left.filter_map(|(text, _)| {
        Some(Answer {
            text,
            clear: end(clear.get(text)?),
            polynomial: of(Which::Polynomial, text)?,
            predicted: of(Which::Predicted, text)?,
            encrypted: of(Which::Encrypted, text),
        })
    })
    .collect()
}

/// A search with one rung's embeddings compared with the same search in the clear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Retrieval {
    /// Queries.
    pub queries: usize,
    /// Queries whose first document is the same.
    pub match_count: usize,
    /// Queries whose first document differs.
    pub mismatch_count: usize,
    /// Queries with all documents in the same order.
    pub same_order: usize,
    /// Pairs of documents, over all queries.
    pub pairs: usize,
    /// Pairs in opposite order.
    pub swapped: usize,
}

/// Ranks documents by their cosine to each query, in the clear and with `found`. A document with the same text as a
/// query is not ranked for it. An answer that `found` lacks counts as an empty vector.
#[must_use]
pub fn retrieval(queries: &[&Answer], documents: &[&Answer], found: impl Fn(&Answer) -> Option<&[f64]>) -> Retrieval {
    let of = |a| found(a).unwrap_or_default();
    let mut all = Retrieval::default();
    for query in queries {
        let others = documents.iter().filter(|d| d.text != query.text);
        let cosines: Vec<(f64, f64)> =
            others.map(|d| (cosine(&query.clear, &d.clear), cosine(of(query), of(d)))).collect();
        let first = |of: fn(&(f64, f64)) -> f64| {
            let ranked = cosines.iter().enumerate();
            ranked.max_by(|a, b| of(a.1).total_cmp(&of(b.1))).map(|(i, _)| i)
        };
        let mut swapped = 0;
        for (i, a) in cosines.iter().enumerate() {
            swapped += cosines[..i].iter().filter(|b| (a.0 - b.0) * (a.1 - b.1) < 0.0).count();
        }
        let same = first(|c| c.0) == first(|c| c.1);
        all.queries += 1;
        all.match_count += usize::from(same);
        all.mismatch_count += usize::from(!same);
        all.same_order += usize::from(swapped == 0);
        all.pairs += cosines.len() * cosines.len().saturating_sub(1) / 2;
        all.swapped += swapped;
    }
    all
}
