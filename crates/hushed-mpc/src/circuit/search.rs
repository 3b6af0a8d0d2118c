//! A private search. A query's embedding stays shared, as do its products with the server's documents. The client
//! learns which documents are nearest, in order, and their scores only if the operator allows it.
//!
//! Query and documents are vectors of length one, so a product is a cosine and needs no further scaling. The indices of
//! the nearest are opened one after another (`circuit/top.rs`); the server sees the same messages whichever they are.
//! Scores are the cosines of these documents only, rounded exactly.

use hushed_model::{Program, Rows, StepId};
use hushed_net::Party;
use hushed_twopc::func::norm::UNIT_ROW;
use hushed_twopc::share::Ring;

use crate::circuit::top::open_top;
use crate::circuit::{Acts, run};
use crate::formats::{COSINE, LINEAR, RECORD, RECORD_BITS, RECORD_GUARD, SCORE, UNIT};
use crate::index::{Index, RecordText};
use crate::shares::{Counting, Local, Shares};
use crate::{Input, RunError};

/// Records fetched at once.
const TOGETHER: usize = 8;

/// A document found. No `Debug`: it is private.
#[derive(Clone, PartialEq)]
pub struct Hit {
    /// Its index, from 0.
    pub place: u32,
    /// Its record, if records were asked for.
    pub record: Option<String>,
    /// Its cosine to the query, a multiple of 2^−12, if scores were asked for.
    pub score: Option<f64>,
}

/// What a search asks of an index besides the query; the server knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The number of documents, from 1 to as many as there are.
    pub top: usize,
    /// Whether to fetch their records.
    pub records: bool,
    /// Whether to open their scores.
    pub scores: bool,
}

impl Wanted {
    /// What it counts against a client's limit of texts: every opened index, every record and every score.
    pub fn charge(&self) -> usize {
        self.top * (1 + usize::from(self.records) + usize::from(self.scores))
    }
}

/// Returns to the client the documents nearest to one text, nearest first; ties come in any order.
///
/// # Errors
/// As [`run`](crate::run); [`RunError::Unsupported`] for several texts, an index of another width, or more documents
/// than there are.
pub fn search<S: Shares>(
    on: &mut S,
    program: &Program,
    index: &Index,
    input: &Input,
    wanted: Wanted,
) -> Result<Option<Vec<Hit>>, RunError> {
    let unsupported = |what| RunError::Unsupported { site: "search".to_owned(), what };
    if input.rows().texts().len() != 1 {
        return Err(unsupported("a search for several texts at once"));
    }
    if !(1..=index.documents()).contains(&wanted.top) || wanted.records && !index.has_records() {
        return Err(unsupported("what is asked of this index"));
    }
    let pooled = run(on, program, input, |_, _| ())?;
    nearest(on, &pooled, index, wanted)
}

/// The bits that a search opens to the client, counted from the steps that open them.
///
/// # Errors
/// As [`search`].
pub fn search_opened_bits(index: &Index, wanted: Wanted) -> Result<u64, RunError> {
    let mut on = Counting::new()?;
    let row = on.known(Party::Client, index.width(), Vec::new);
    let row = on.shared(&row, LINEAR.ring);
    let row = Acts::new(row, LINEAR, Rows::unpadded(&[1]), index.width());
    nearest(&mut on, &row, index, wanted)?;
    Ok(on.opened_bits())
}

/// The part of a search after the query's embedding.
fn nearest<S: Shares>(
    on: &mut S,
    pooled: &Acts<S::Share>,
    index: &Index,
    wanted: Wanted,
) -> Result<Option<Vec<Hit>>, RunError> {
    if (pooled.rows().total(), pooled.width()) != (1, index.width()) {
        return Err(RunError::Unsupported { site: "search".to_owned(), what: "an index of another width" });
    }
    let (share, format) = pooled.share();
    let query = on.step(StepId::outside("unit"), |on| {
        let unit = on.unit_rows(share, format, 1, index.width())?;
        on.rescale(&unit, UNIT_ROW.frac - UNIT.frac, UNIT.ring)
    })?;
    let cosines = on.step(StepId::outside("documents"), |on| {
        let products = on.cosines(&query, index)?;
        Ok(on.narrow(&products, 2 * UNIT.frac - COSINE.frac, COSINE.ring))
    })?;
    let shape = (1, index.documents());
    let nearest = open_top(on, &cosines, shape, wanted.top, "nearest")?;
    let fault = nearest.fault;
    let places = nearest.places.map(|rows| rows.into_iter().flatten());
    let places: Option<Vec<u32>> = places.map(Iterator::collect);
    let scores = match wanted.scores {
        true => on.step(StepId::outside("scores"), |on| {
            let cosines = S::Share::concat(COSINE.ring, &nearest.values);
            on.open(&cosines, COSINE.frac - SCORE.frac, SCORE.ring)
        })?,
        false => None,
    };
    let records = match wanted.records {
        true => on.step(StepId::outside("records"), |on| records(on, places.as_deref(), index, wanted.top))?,
        false => None,
    };
    if let Some(fault) = fault {
        return Err(fault);
    }
    let (mut records, mut scores) =
        (records.map(Vec::into_iter), scores.map(|s| s.into_iter().map(|word| SCORE.decode(word))));
    let hit = |place| Hit {
        place,
        record: records.as_mut().and_then(Iterator::next),
        score: scores.as_mut().and_then(Iterator::next),
    };
    Ok(places.map(|places| places.into_iter().map(hit).collect()))
}

/// Opens the records at these places to the client.
fn records<S: Shares>(
    on: &mut S,
    places: Option<&[u32]>,
    index: &Index,
    count: usize,
) -> Result<Option<Vec<String>>, RunError> {
    // A few at a time: a one-hot row is as long as the index.
    let mut rows = Vec::with_capacity(count.div_ceil(TOGETHER));
    for first in (0..count).step_by(TOGETHER) {
        let some = TOGETHER.min(count - first);
        let places = on.known(Party::Client, some, || {
            let places = places.into_iter().flatten().skip(first).take(some);
            places.map(|&p| i64::from(p)).collect()
        });
        rows.push(on.records(&places, index)?);
    }
    let rows = S::Share::concat(Ring::new(RECORD_BITS), &rows);
    let words = on.open(&rows, RECORD_GUARD, RECORD)?;
    let columns = index.record_columns().max(1);
    Ok(words.map(|words| words.chunks_exact(columns).map(RecordText::of_words).collect()))
}
