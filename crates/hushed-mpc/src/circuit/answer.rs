//! From a party's input to the client's answer.

use std::fmt;
use std::str::FromStr;

use hushed_model::{Model, Public, Rows, Task};
use hushed_net::Party;
use hushed_twopc::func::Format;

use crate::circuit::token::{Adds, open_largest};
use crate::circuit::{Acts, open, run};
use crate::formats::{ANSWER, LINEAR};
use crate::shares::{Counting, Shares};
use crate::{Input, Protocol, RunError};

/// The most top indices that are opened per row.
pub const MAX_TOP: u16 = 100;

/// The fewest and the most bits of a number of an embedding that is opened more coarsely than usual.
pub const ANSWER_BITS: std::ops::RangeInclusive<u8> = 6..=15;

/// What is opened of a text: only the operator decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// The index of the largest.
    #[default]
    Label,
    /// The indices of this many of the largest, in order: from 1 to [`MAX_TOP`].
    Top(u16),
    /// All logits of a classifier, or the score of a head of one number.
    Logits,
    /// Embeddings of length one, with this many bits a number, from [`ANSWER_BITS`], in place of 16.
    Bits(u8),
}

impl Answers {
    /// What is opened of a head of this many numbers unless the operator says otherwise: of one number itself, because
    /// there is no largest.
    pub fn of_classes(numbers: usize) -> Answers {
        match numbers {
            1 => Self::Logits,
            _ => Self::Label,
        }
    }

    /// What is opened of a model with this many outputs: what the operator says, if anything.
    pub fn of_model(given: Option<Answers>, model: &Public, outputs: usize) -> Answers {
        given.unwrap_or(match model.task() {
            Task::Classify => Self::of_classes(outputs),
            Task::Embed | Task::Generate => Self::Label,
        })
    }

    /// The number of opened indices; `None` if logits are opened.
    pub fn top(self) -> Option<usize> {
        match self {
            Self::Label | Self::Bits(_) => Some(1),
            Self::Top(top) => Some(top.into()),
            Self::Logits => None,
        }
    }

    /// Whether this reveals at least as much as `other`.
    pub fn includes(self, other: Answers) -> bool {
        match (self.top(), other.top()) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(ours), Some(theirs)) => ours >= theirs,
        }
    }

    /// What a row of this many logits counts against a client's limit of texts: every opened index or logit.
    pub fn charge(self, logits: usize) -> usize {
        self.top().unwrap_or(logits)
    }

    /// Whether a model with this many outputs can open this much.
    pub fn suits(self, model: &Public, outputs: usize) -> bool {
        match (self, model.task()) {
            (Self::Label | Self::Top(_), Task::Classify) if outputs < 2 => false,
            (Self::Label, _) | (Self::Logits, Task::Classify) => true,
            (Self::Top(top), Task::Classify | Task::Generate) => usize::from(top) <= outputs,
            (Self::Bits(bits), Task::Embed) => model.normalise && ANSWER_BITS.contains(&bits),
            (Self::Top(_) | Self::Logits | Self::Bits(_), _) => false,
        }
    }

    /// The format of opened embeddings that are scaled to length one, if the model does that (`normalise`). Fewer bits
    /// than 16 hold numbers in [−1, 1) with as many places as fit; one beyond 1 − 2^-bits would wrap, which a vector of
    /// length one reaches only if it has no other number to speak of.
    pub fn unit(self, normalise: bool) -> Option<Format> {
        let format = match self {
            Self::Bits(bits) => Format::new(bits.into(), u32::from(bits).saturating_sub(1)),
            _ => ANSWER,
        };
        normalise.then_some(format)
    }
}

impl FromStr for Answers {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let top = || text.strip_prefix("top:")?.parse::<u16>().ok();
        let bits = || text.strip_prefix("bits:")?.parse::<u8>().ok();
        match text {
            "label" => Ok(Self::Label),
            "logits" => Ok(Self::Logits),
            _ => match (top(), bits()) {
                (Some(top @ 1..=MAX_TOP), _) => Ok(Self::Top(top)),
                (_, Some(bits)) if ANSWER_BITS.contains(&bits) => Ok(Self::Bits(bits)),
                _ => Err("label, logits, top:K with K from 1 to 100, or bits:N with N from 6 to 15"),
            },
        }
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label => f.write_str("label"),
            Self::Top(top) => write!(f, "top:{top}"),
            Self::Logits => f.write_str("logits"),
            Self::Bits(bits) => write!(f, "bits:{bits}"),
        }
    }
}

/// Runs the model on a batch of texts as one of the two parties; both call it with the same model (the client's has
/// shapes only). The client gets one embedding per text, rounded as `answers` says, the server `None`.
///
/// # Errors
/// Those of the run; [`RunError::Unsupported`] for a model that does not embed, whose numbers must not be opened.
pub fn embeddings(
    party: &mut Protocol,
    model: &Model,
    input: &Input,
    answers: Answers,
) -> Result<Option<Vec<Vec<f64>>>, RunError> {
    if model.public.task() != Task::Embed {
        return Err(unsupported("embeddings: the model has a head"));
    }
    let pooled = run(party, &model.program(), input, |_, _| ())?;
    let (words, format) = open(party, &pooled, answers.unit(model.public.normalise))?;
    Ok(words.map(|words| {
        let values: Vec<f64> = words.iter().map(|&w| format.decode(w)).collect();
        let rows = values.chunks_exact(pooled.width().max(1));
        rows.map(|row| model.public.finish(row.to_vec())).collect()
    }))
}

/// As [`embeddings`], for a classifier: the client gets the classes of the `top` largest logits of each text, largest
/// first. No logit is opened.
///
/// # Errors
/// Those of the run; [`RunError::Unsupported`] for a model that is no classifier, no class or more than there are.
pub fn labels(
    party: &mut Protocol,
    model: &Model,
    input: &Input,
    top: usize,
) -> Result<Option<Vec<Vec<u32>>>, RunError> {
    if model.public.task() != Task::Classify {
        return Err(unsupported("labels: the model is not a classifier"));
    }
    if model.body.outputs() < 2 {
        return Err(unsupported("labels: the head gives one number, of which no class is the largest"));
    }
    let logits = run(party, &model.program(), input, |_, _| ())?;
    open_largest(party, &logits, Adds::default(), top)
}

/// As [`labels`], but opens all logits of each text to the client, rounded to 2^−12. Only the operator can allow it, as
/// many logits describe the head.
///
/// # Errors
/// As [`labels`].
pub fn logits(party: &mut Protocol, model: &Model, input: &Input) -> Result<Option<Vec<Vec<f64>>>, RunError> {
    if model.public.task() != Task::Classify {
        return Err(unsupported("logits: the model is not a classifier"));
    }
    let logits = run(party, &model.program(), input, |_, _| ())?;
    let (words, format) = open(party, &logits, None)?;
    Ok(words.map(|words| {
        let values: Vec<f64> = words.iter().map(|&w| format.decode(w)).collect();
        let rows = values.chunks_exact(logits.width().max(1));
        rows.map(<[f64]>::to_vec).collect()
    }))
}

/// The bits that are opened to the client for one text or image, or for one row that gives a token: all that a client
/// can learn from it that does not keep to the protocol. They are counted from the steps that open them.
///
/// # Errors
/// [`RunError::Unsupported`] for answers that the model does not have.
pub fn opened_bits(model: &Model, answers: Answers) -> Result<u64, RunError> {
    let mut on = Counting::new()?;
    let width = model.body.outputs();
    let row = on.known(Party::Client, width, Vec::new);
    let row = on.shared(&row, LINEAR.ring);
    let row = Acts::new(row, LINEAR, Rows::unpadded(&[1]), width);
    match (model.public.task(), answers.top()) {
        (Task::Embed, _) => drop(open(&mut on, &row, answers.unit(model.public.normalise))?),
        (_, None) => drop(open(&mut on, &row, None)?),
        (_, Some(top)) => drop(open_largest(&mut on, &row, Adds::default(), top)?),
    }
    Ok(on.opened_bits())
}

fn unsupported(what: &'static str) -> RunError {
    RunError::Unsupported { site: "the answer".to_owned(), what }
}

#[cfg(test)]
mod tests {
    use super::Answers;
    use hushed_twopc::func::norm::UNIT_ROW;
    use hushed_twopc::testing::share;

    use crate::circuit::round_and_open;
    use crate::formats::{ANSWER, LINEAR, RAW_ANSWER};
    use crate::testing::run_pair;

    #[test]
    fn what_is_opened_is_read_as_it_is_written() {
        for answers in
            [Answers::Label, Answers::Logits, Answers::Top(1), Answers::Top(100), Answers::Bits(6), Answers::Bits(15)]
        {
            assert_eq!(answers.to_string().parse(), Ok(answers));
        }
        for wrong in [
            "",
            "top",
            "top:",
            "top:0",
            "top:101",
            "top:-1",
            "top:x",
            "Label",
            "top:70000",
            "bits:5",
            "bits:16",
            "bits:",
        ] {
            assert!(wrong.parse::<Answers>().is_err(), "{wrong}");
        }
    }

    /// Both kinds of answer, for one value in many sharings: the result depends on the value alone. If each party
    /// truncated locally, the result would be one of two words, depending on the low bits of its share.
    #[test]
    fn f5_answers_do_not_depend_on_the_shares() {
        let eight = Answers::Bits(8).unit(true).unwrap();
        for (from, to) in [(UNIT_ROW, ANSWER), (UNIT_ROW, eight), (LINEAR, RAW_ANSWER)] {
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
