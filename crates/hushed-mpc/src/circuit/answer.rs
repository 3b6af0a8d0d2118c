//! The whole way from a party's input to the client's answer.

use hushed_model::{Model, Task};

use crate::circuit::token::open_largest;
use crate::circuit::{open, run};
use crate::{Input, Protocol, RunError};

/// Runs the model on a batch of texts as one of the two parties; both call it with the same model (the client's has
/// shapes only). The client gets one embedding a text, the server `None`.
///
/// # Errors
/// Those of the run; [`RunError::Unsupported`] for a model that does not embed, whose numbers are not to be opened.
pub fn embeddings(
    party: &mut Protocol,
    model: &Model,
    input: &Input,
) -> Result<Option<Vec<Vec<f64>>>, RunError> {
    if model.public.task() != Task::Embed {
        return Err(unsupported("embeddings: the model has a head"));
    }
    let pooled = run(party, &model.program(), input, |_, _| ())?;
    let (words, format) = open(party, &pooled, model.public.normalise)?;
    Ok(words.map(|words| {
        let values: Vec<f64> = words.iter().map(|&w| format.decode(w)).collect();
        let rows = values.chunks_exact(pooled.width().max(1));
        rows.map(|row| model.public.finish(row.to_vec())).collect()
    }))
}

/// As [`embeddings`], for a classifier: the client gets the number of a class a text, that of the largest logit. No
/// logit is opened.
///
/// # Errors
/// Those of the run; [`RunError::Unsupported`] for a model that is no classifier.
pub fn labels(
    party: &mut Protocol,
    model: &Model,
    input: &Input,
) -> Result<Option<Vec<u32>>, RunError> {
    if model.public.task() != Task::Classify {
        return Err(unsupported("labels: the model is no classifier"));
    }
    let logits = run(party, &model.program(), input, |_, _| ())?;
    open_largest(party, &logits, None)
}

/// As [`labels`], with all logits of each text opened to the client, rounded to 2^−12: by the operator's word alone, as
/// many of them describe the head.
///
/// # Errors
/// As [`labels`].
pub fn logits(
    party: &mut Protocol,
    model: &Model,
    input: &Input,
) -> Result<Option<Vec<Vec<f64>>>, RunError> {
    if model.public.task() != Task::Classify {
        return Err(unsupported("logits: the model is no classifier"));
    }
    let logits = run(party, &model.program(), input, |_, _| ())?;
    let (words, format) = open(party, &logits, false)?;
    Ok(words.map(|words| {
        let values: Vec<f64> = words.iter().map(|&w| format.decode(w)).collect();
        let rows = values.chunks_exact(logits.width().max(1));
        rows.map(<[f64]>::to_vec).collect()
    }))
}

fn unsupported(what: &'static str) -> RunError {
    RunError::Unsupported {
        site: "the answer".to_owned(),
        what,
    }
}

#[cfg(test)]
mod tests {
    use hushed_twopc::func::norm::UNIT_ROW;
    use hushed_twopc::testing::share;

    use crate::circuit::round_and_open;
    use crate::formats::{ANSWER, LINEAR, RAW_ANSWER};
    use crate::testing::run_pair;

    /// Both kinds of answer, for a value in many sharings: the result depends on the value alone. A truncation by each
    /// party would give one of two words, depending on the low bits of its share.
    #[test]
    fn f5_answers_do_not_depend_on_the_shares() {
        for (from, to) in [(UNIT_ROW, ANSWER), (LINEAR, RAW_ANSWER)] {
            for value in [0.6201, -0.031_25, 0.0, -0.999_999] {
                let word = from.encode(value);
                let (x0, x1) = share(from.ring, &[word; 400], 5);
                let (client, server) = run_pair(
                    |party| round_and_open(party, &x0, from, to).unwrap(),
                    |party| round_and_open(party, &x1, from, to).unwrap(),
                );
                assert!(server.is_none());
                assert_eq!(client.unwrap(), [to.encode(value); 400], "{value}");
            }
        }
    }
}
