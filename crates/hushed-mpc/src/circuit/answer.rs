//! From a party's input to the client's answer.

use std::fmt;
use std::str::FromStr;

use hushed_model::{Model, ProblemType, Public, Rows, Task};
use hushed_net::Party;
use hushed_twopc::func::Format;

use crate::circuit::token::{Adds, open_above, open_largest};
use crate::circuit::{Acts, open, run};
use crate::formats::{ANSWER, LINEAR};
use crate::shares::{Counting, Shares};
use crate::{Input, Protocol, RunError};

/// The most top indices that are opened per row.
pub const MAX_TOP: u16 = 100;

/// The fewest and the most bits of a number of an embedding that is opened more coarsely than usual.
pub const ANSWER_BITS: std::ops::RangeInclusive<u8> = 6..=15;

/// The thresholds of a probability, in thousandths.
pub const THRESHOLDS: std::ops::RangeInclusive<u16> = 1..=999;

/// The usual one.
const HALF: u16 = 500;

/// What is opened of a text: only the operator decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// The index of the largest.
    #[default]
    Label,
    /// The indices of this many of the largest, in order: from 1 to [`MAX_TOP`].
    Top(u16),
    /// Of classes that do not exclude each other, those whose probability is above this many thousandths, from
    /// [`THRESHOLDS`]: one bit per class.
    Above(u16),
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
        given.unwrap_or(match (model.task(), model.config.problem) {
            (Task::Classify, ProblemType::MultiLabel) if outputs > 1 => Self::Above(HALF),
            (Task::Classify, _) => Self::of_classes(outputs),
            (Task::Embed | Task::Generate, _) => Self::Label,
        })
    }

    /// The number of opened indices of largest logits; `None` if other things are opened.
    pub fn top(self) -> Option<usize> {
        match self {
            Self::Label | Self::Bits(_) => Some(1),
            Self::Top(top) => Some(top.into()),
            Self::Above(_) | Self::Logits => None,
        }
    }

    /// The logit above which a class is opened, where they are opened by that; otherwise that of a probability of one
    /// half.
    pub fn threshold(self) -> f64 {
        match self {
            Self::Above(thousandths) => {
                let probability = f64::from(thousandths) / 1e3;
                (probability / (1.0 - probability)).ln()
            }
            _ => 0.0,
        }
    }

    /// Whether a client that asks for `other` has it from this. A label is the least that a classifier opens, also
    /// where several may be right.
    pub fn includes(self, other: Answers) -> bool {
        match (self, other) {
            (Self::Logits, _) | (Self::Above(_), Self::Label) => true,
            (Self::Above(_), _) | (_, Self::Above(_)) => self == other,
            _ => matches!((self.top(), other.top()), (Some(ours), Some(theirs)) if ours >= theirs),
        }
    }

    /// What a row of this many logits counts against a client's limit of texts: every opened index of a largest one, or
    /// every logit. The bits of [`Answers::Above`] are one answer.
    pub fn charge(self, logits: usize) -> usize {
        match self {
            Self::Logits => logits,
            Self::Above(_) => 1,
            _ => self.top().unwrap_or(1),
        }
    }

    /// Whether a model with this many outputs can open this much.
    ///
    /// # Errors
    /// What it needs.
    pub fn suits(self, model: &Public, outputs: usize) -> Result<(), &'static str> {
        let (task, problem) = (model.task(), model.config.problem);
        match (self, task) {
            (Self::Label | Self::Top(_), Task::Classify) if outputs < 2 => {
                Err("a head of one number has no label: logits")
            }
            (Self::Label | Self::Top(_), Task::Classify) if problem == ProblemType::MultiLabel => {
                Err("several or none of its classes may be right (problem_type), and no largest: above:P, or logits")
            }
            (Self::Label | Self::Top(_), Task::Classify) if problem == ProblemType::Regression => {
                Err("its numbers are values (problem_type), and none of them is a label: logits")
            }
            (Self::Top(top), Task::Classify | Task::Generate) if usize::from(top) > outputs => {
                Err("top:K needs at least K classes or tokens")
            }
            (Self::Above(thousandths), _) if !THRESHOLDS.contains(&thousandths) => Err("P is from 0.001 to 0.999"),
            (Self::Above(_), Task::Classify) if problem != ProblemType::MultiLabel => {
                Err("above:P needs classes of which several or none may be right (problem_type)")
            }
            (Self::Bits(_), Task::Embed) if !model.normalise => {
                Err("fewer bits (--answer-bits) need embeddings of length one")
            }
            (Self::Bits(bits), Task::Embed) if !ANSWER_BITS.contains(&bits) => Err("bits are from 6 to 15"),
            (Self::Bits(_), Task::Classify | Task::Generate) | (Self::Top(_), Task::Embed) => {
                Err("top:K needs a head of several numbers, fewer bits (--answer-bits) a model that embeds")
            }
            (Self::Above(_) | Self::Logits, Task::Embed | Task::Generate) => {
                Err("above:P and logits need a classifier")
            }
            _ => Ok(()),
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
        let above = || {
            let thousandths = 1e3 * text.strip_prefix("above:")?.parse::<f64>().ok()?;
            THRESHOLDS.into_iter().find(|&whole| (f64::from(whole) - thousandths).abs() < 1e-6)
        };
        match text {
            "label" => Ok(Self::Label),
            "logits" => Ok(Self::Logits),
            _ => match (top(), bits(), above()) {
                (Some(top @ 1..=MAX_TOP), ..) => Ok(Self::Top(top)),
                (_, Some(bits), _) if ANSWER_BITS.contains(&bits) => Ok(Self::Bits(bits)),
                (.., Some(thousandths)) => Ok(Self::Above(thousandths)),
                _ => Err(
                    "label, logits, top:K with K from 1 to 100, above:P with P from 0.001 to 0.999 in thousandths, or bits:N with N from 6 to 15",
                ),
            },
        }
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label => f.write_str("label"),
            Self::Top(top) => write!(f, "top:{top}"),
            Self::Above(thousandths) => write!(f, "above:{}", f64::from(*thousandths) / 1e3),
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

/// As [`embeddings`], for a classifier: the client gets the classes of each text that `answers` gives, the largest
/// first, or those above a threshold in their own order. No logit is opened.
///
/// # Errors
/// Those of the run; [`RunError::Unsupported`] for a model that is no classifier, or does not have such an answer.
pub fn labels(
    party: &mut Protocol,
    model: &Model,
    input: &Input,
    answers: Answers,
) -> Result<Option<Vec<Vec<u32>>>, RunError> {
    if model.public.task() != Task::Classify {
        return Err(unsupported("labels: the model is not a classifier"));
    }
    answers.suits(&model.public, model.body.outputs()).map_err(unsupported)?;
    let logits = run(party, &model.program(), input, |_, _| ())?;
    open_places(party, &logits, answers)
}

/// Opens the places of rows of logits that `answers` gives to the client.
pub(crate) fn open_places<S: Shares>(
    on: &mut S,
    logits: &Acts<S::Share>,
    answers: Answers,
) -> Result<Option<Vec<Vec<u32>>>, RunError> {
    match (answers, answers.top()) {
        (Answers::Above(_), _) => open_above(on, logits, answers.threshold()),
        (_, Some(top)) => open_largest(on, logits, Adds::default(), top),
        (_, None) => Err(unsupported("places: logits are opened")),
    }
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
    match (model.public.task(), answers) {
        (Task::Embed, _) => drop(open(&mut on, &row, answers.unit(model.public.normalise))?),
        (_, Answers::Logits) => drop(open(&mut on, &row, None)?),
        _ => drop(open_places(&mut on, &row, answers)?),
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
        for answers in [
            Answers::Label,
            Answers::Logits,
            Answers::Top(1),
            Answers::Top(100),
            Answers::Bits(6),
            Answers::Bits(15),
            Answers::Above(1),
            Answers::Above(500),
            Answers::Above(999),
        ] {
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
            "above:",
            "above:0",
            "above:1",
            "above:0.0005",
            "above:0.12345",
            "above:nan",
        ] {
            assert!(wrong.parse::<Answers>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_client_asks_for_is_had_from_what_is_opened() {
        let (label, top, above, logits) = (Answers::Label, Answers::Top(2), Answers::Above(500), Answers::Logits);
        for (opened, asked) in
            [(label, label), (top, label), (above, label), (above, above), (logits, above), (logits, top)]
        {
            assert!(opened.includes(asked), "{opened} {asked}");
        }
        for (opened, asked) in
            [(label, top), (label, above), (top, above), (above, top), (above, Answers::Above(501)), (above, logits)]
        {
            assert!(!opened.includes(asked), "{opened} {asked}");
        }
    }

    #[test]
    fn a_threshold_is_the_logit_of_its_probability() {
        assert_eq!(Answers::Above(500).threshold(), 0.0);
        let probability = |logit: f64| 1.0 / (1.0 + (-logit).exp());
        for thousandths in [1, 300, 999] {
            let found = probability(Answers::Above(thousandths).threshold());
            assert!((found - f64::from(thousandths) / 1e3).abs() < 1e-12);
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
