//! The whole way from a party's input to the client's answer.

use hushed_model::{Model, Site};
use hushed_net::Party;
use hushed_twopc::func::Format;
use hushed_twopc::gadget::open_rounded;
use hushed_twopc::share::Share;
use hushed_twopc::{Ctx, TwopcError};

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

/// Opens the answer to the client, rounded to its last place. Where the folder asks for vectors of length one the division happens before,
/// on shares, so that the length stays unknown.
fn reveal(
    backend: &mut TwopcBackend,
    model: &Model,
    pooled: &Acts,
) -> Result<(Option<Vec<u64>>, Format), RunError> {
    if model.public.normalise {
        let (unit, format) = backend.unit(Site::root("unit"), pooled)?;
        let words = open(backend.ctx(), &unit, format, ANSWER)?;
        return Ok((words, ANSWER));
    }
    let (share, format) = pooled.share();
    let words = open(backend.ctx(), share, format, RAW_ANSWER)?;
    Ok((words, RAW_ANSWER))
}

/// Opens `x` of `from` to the client in `to`: the only words that a run opens. This rounding is exact, so that one answer shows
/// nothing of x below the last place of `to`. x itself depends on the shares by the run's own roundings: the mean of many
/// answers to one text is finer than one.
fn open(
    ctx: &mut Ctx,
    x: &Share,
    from: Format,
    to: Format,
) -> Result<Option<Vec<u64>>, TwopcError> {
    open_rounded(ctx, Party::Client, x, from.frac - to.frac, to.ring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twopc::formats::LINEAR;
    use hushed_twopc::func::norm::UNIT_ROW;
    use hushed_twopc::testing::{run_pair, share};

    /// Both kinds of answer, a value in many sharings: the client gets what the value alone gives. A truncation by each party gives one of
    /// two words, by the low bits of its share.
    #[test]
    fn f5_answers_do_not_depend_on_the_shares() {
        for (from, to) in [(UNIT_ROW, ANSWER), (LINEAR, RAW_ANSWER)] {
            for value in [0.6201, -0.031_25, 0.0, -0.999_999] {
                let word = from.encode(value);
                let (x0, x1) = share(from.ring, &[word; 400], 5);
                let open = |ctx: &mut Ctx, x: &Share| open(ctx, x, from, to).unwrap();
                let (client, server) = run_pair(|ctx| open(ctx, &x0), |ctx| open(ctx, &x1));
                assert!(server.is_none());
                assert_eq!(client.unwrap(), [to.encode(value); 400], "{value}");
            }
        }
    }
}
