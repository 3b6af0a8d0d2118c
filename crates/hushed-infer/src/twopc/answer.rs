//! The whole way from a party's input to the client's answer.

use hushed_model::{Model, Site};
use hushed_net::Party;
use hushed_twopc::func::{Format, narrow};

use super::acts::Acts;
use super::backend::TwopcBackend;
use super::formats::{ANSWER, RAW_ANSWER};
use super::{Input, RunError, refuse_classifier};

/// Runs the model on a batch of texts as one of the two parties; both call it with the same model (the client's has shapes only).
/// The client gets one embedding a text, the server `None`.
pub fn embeddings(
    backend: &mut TwopcBackend,
    model: &Model,
    input: Input,
) -> Result<Option<Vec<Vec<f64>>>, RunError> {
    refuse_classifier(&model.bert)?;
    let pooled = model.forward(backend, input)?;
    let (words, format) = reveal(backend, model, &pooled)?;
    let width = pooled.width();
    Ok(words.map(|words| {
        let values: Vec<f64> = words.iter().map(|&w| format.decode(w)).collect();
        values
            .chunks_exact(width)
            .map(|row| model.public.finish(row.to_vec()))
            .collect()
    }))
}

/// Opens the answer to the client at its certified precision. Where the folder asks for vectors of length one the division happens
/// before, on shares, so that the length stays unknown.
fn reveal(
    backend: &mut TwopcBackend,
    model: &Model,
    pooled: &Acts,
) -> Result<(Option<Vec<u64>>, Format), RunError> {
    let (share, format) = if model.public.normalise {
        (backend.unit(Site::root("unit"), pooled)?, ANSWER)
    } else {
        let party = backend.ctx().party();
        let (share, format) = pooled.share();
        let shift = format.frac - RAW_ANSWER.frac;
        (narrow(party, share, shift, RAW_ANSWER.ring), RAW_ANSWER)
    };
    let words = backend.ctx().open_to(Party::Client, &share)?;
    Ok((words, format))
}
