//! The error that a plan declares of its reply: the error of its own circuit in a simulation, if that is larger than
//! the error for which the parameter set is certified.
//!
//! Noise of the declared size hides the reply's error, and a client keeps no bits below it. A constant of the parameter
//! set would suffice for most circuits, but not for one whose last steps amplify errors: few tokens per text, large
//! gains, a head with large weights. The server does not know which texts a client sends, so the error is that of the
//! worst length, from one token to all rows: a mean over few rows averages few errors, and with hidden lengths the
//! shares of a text of one token are as many times larger as a batch has rows.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_model::{Matrix, Program, TokenIds, Tokenizer};

use crate::calibrate::shuffled;
use crate::choices::{Choices, ChoicesError};
use crate::error::FheError;
use crate::ops::folded::Folded;
use crate::plan::placement::Placement;
use crate::plan::public_plan::{AnswerRows, Lengths};
use crate::simulate::{Batch, Simulator, embedded, those_within};

/// Minimum numbers per deviation: for a classifier with few logits, errors are drawn several times.
const NUMBERS: usize = 64;

/// Lengths of the simulated texts, in tokens, besides that of all rows.
const LENGTHS: [usize; 5] = [1, 2, 3, 6, 12];

/// How much larger than the largest simulated error the declared one is at least: errors differ from word to word, by
/// a sixth for texts of one word, and each is estimated from [`NUMBERS`] draws.
const MARGIN: f64 = 1.25;

/// Texts for simulating errors, of all kinds of lengths, and `known`, such as a canary. The author of a plan and the
/// server that runs it use the same.
#[must_use]
pub fn texts(tokenizer: &Tokenizer, rows: usize, known: Option<TokenIds>) -> Vec<TokenIds> {
    let words = shuffled(tokenizer).into_iter().take(rows.saturating_sub(2).max(1));
    let mut texts = of_all_lengths(tokenizer.surrounded(words).ids(), rows);
    texts.extend(known);
    texts
}

/// The text cut to each of [`LENGTHS`], before its last token, and to `rows`.
fn of_all_lengths(ids: &[u32], rows: usize) -> Vec<TokenIds> {
    let most = ids.len().min(rows);
    let shorter = LENGTHS.into_iter().filter(|&length| length < most);
    let cut = |length: usize| {
        let first = ids.iter().take(length.saturating_sub(1));
        // A text of one token has no end.
        let last = if length > 1 { ids.last() } else { ids.first() };
        TokenIds::new(first.chain(last).copied().collect())
    };
    shorter.chain([most]).map(cut).collect()
}

/// What a plan declares for this simulated error: more by [`MARGIN`], and up to a power of two, as all further digits
/// would say something about the weights.
#[must_use]
pub fn declared(error: f64) -> f64 {
    (MARGIN * error).log2().ceil().exp2()
}

/// The circuit of a plan.
pub struct Circuit<'a> {
    /// The model, with weights.
    pub program: &'a Program,
    /// Its calibration.
    pub choices: &'a Choices,
    /// The parameter set.
    pub params: &'a Arc<CkksParams>,
    /// Where the run refreshes.
    pub placement: &'a Placement,
    /// Rows per text.
    pub rows: usize,
    /// Who knows which rows are tokens.
    pub lengths: Lengths,
    /// What a decoder is read at.
    pub answer: AnswerRows,
    /// The client's divisor of inputs.
    pub input_bound: f64,
    /// Where maps and polynomials are kept.
    pub folded: Arc<Folded>,
}

impl Circuit<'_> {
    /// The standard deviation of the error of a reply slot, for the text of `texts` with the largest. Texts that leave
    /// an interval are skipped: their errors are unbounded.
    ///
    /// # Errors
    /// [`FheError::Choices`] if no text is left; errors of the model and the simulation.
    pub fn deviation(&self, texts: &[TokenIds]) -> Result<f64, FheError> {
        let embedded = texts.iter().map(|text| embedded(self.program, text));
        let embedded: Vec<Matrix<f64>> = embedded.collect::<Result<_, _>>()?;
        let found = those_within(&embedded, &mut |texts| self.deviations(texts))?;
        let none = || ChoicesError::Unusable {
            what: format!(
                "none of {} texts stays within the intervals of the calibration, so that no error can be declared",
                texts.len()
            ),
        };
        let largest = found.into_iter().flatten().reduce(f64::max);
        Ok(largest.ok_or_else(none)?)
    }

    fn deviations(&self, texts: &[Matrix<f64>]) -> Result<Vec<f64>, FheError> {
        // Packed rows are run one text at a time.
        let slots = match self.placement.columns {
            1 => self.rows * texts.len().next_power_of_two(),
            columns => self.rows * columns,
        };
        let batch = Batch {
            program: self.program,
            choices: self.choices,
            placement: self.placement,
            lengths: self.lengths,
            bound: self.input_bound,
        };
        let run = |on: Simulator| match self.program.vocabulary() {
            Some(_) => batch.read_at(&on, self.rows, texts, self.answer),
            None => batch.run(&on, self.rows, texts, None),
        };
        let on = || {
            let on = Simulator::new(self.params, slots);
            on.map(|on| on.keeping(Arc::clone(&self.folded)))
        };
        let exact = run(on()?)?;
        let mut squares = vec![0.0; texts.len()];
        let numbers = exact.first().map_or(1, Vec::len).max(1);
        let draws = NUMBERS.div_ceil(numbers).min(4);
        for seed in 1..=draws as u64 {
            let noisy = run(on()?.with_errors(seed))?;
            for ((sum, a), b) in squares.iter_mut().zip(&exact).zip(&noisy) {
                let all = a.iter().zip(b).map(|(a, b)| (a - b).powi(2));
                *sum += all.sum::<f64>() / a.len().max(1) as f64;
            }
        }
        let mean = |sum: f64| (sum / draws as f64).sqrt();
        Ok(squares.into_iter().map(mean).collect())
    }
}

#[cfg(test)]
mod tests {
    use hushed_model::testing::{ternary_config, tiny_config};
    use hushed_model::{Pool, plain, random_network};

    use super::*;
    use crate::plan::offer::Offer;
    use crate::plan::public_plan::{FhePlan, named, reply_deviation};
    use crate::plan::{FheOptions, reference};
    use crate::run::job::bootstrap;
    use crate::run::reply::covers;
    use crate::tape::causal::tests::{Subject as Decoder, test_params};
    use crate::testing::{Structure, measure};

    const ROWS: usize = 16;
    const PARAMETERS: &str = "insecure-test/9/14";

    fn some(count: usize, length: usize) -> Vec<TokenIds> {
        let id = |t: usize, i: usize| ((i * 31 + t * 17 + i * i * t) % 90) as u32;
        (0..count).map(|t| TokenIds::new((0..length).map(|i| id(t, i)).collect())).collect()
    }

    /// What a plan declares for its model is at least the error of a text of any length: other words than those that
    /// were simulated, and none of them a canary. It was that of texts of 6 tokens and more, and a reply to a text of
    /// one token with hidden lengths was covered by noise a quarter of its error.
    #[test]
    fn m1_what_is_declared_covers_every_length() {
        let mut config = tiny_config();
        config.layers = 1;
        let network = random_network(&config, Pool::Mean, 5);
        let program = network.program_of_all_rows();
        let params = named(PARAMETERS).unwrap();
        let ids: Vec<u32> = (0..ROWS as u32).map(|i| 40 + i * 7 % 50).collect();
        let simulated = of_all_lengths(&ids, ROWS);
        let found: Vec<usize> = simulated.iter().map(|text| text.ids().len()).collect();
        assert_eq!(found, OF_TEXTS);
        let others = |length: usize| some(4, length);
        let all: Vec<TokenIds> = OF_TEXTS.into_iter().flat_map(others).collect();
        let embedded = all.iter().chain(&simulated);
        let embedded = embedded.map(|t| super::embedded(&program, t).unwrap());
        let embedded: Vec<Matrix<f64>> = embedded.collect();
        let choices = measure(&network, &embedded, &Structure::default(), ROWS, (15, 15)).choices;
        let width = network.layers[0].attention.heads.width;
        let batch = Placement::plain(params.fresh_limbs(), ROWS, width);
        let mut packed = batch.clone();
        packed.columns = network.embedding.width / 2;
        let shared = Placement { per_place: 4, ..batch.clone() };
        for placement in [batch, packed, shared] {
            for known in [Lengths::Public, Lengths::Private] {
                if placement.per_place > 1 && known != Lengths::Public {
                    continue;
                }
                let circuit = Circuit {
                    program: &program,
                    choices: &choices,
                    params: &params,
                    placement: &placement,
                    rows: ROWS,
                    lengths: known,
                    answer: AnswerRows::Last,
                    input_bound: 8.0,
                    folded: Arc::default(),
                };
                let worst = assert_covered(&circuit, &simulated, &others);
                let long = circuit.deviation(&simulated[3..]).unwrap();
                if placement.columns > 1 {
                    assert!(long < worst / 1.2, "{long:e} of {worst:e}");
                }
            }
        }
    }

    const OF_TEXTS: [usize; 6] = [1, 2, 3, 6, 12, ROWS];

    /// The largest error of texts of any length is within what is declared for `simulated`, and not far below.
    fn assert_covered(circuit: &Circuit<'_>, simulated: &[TokenIds], others: &dyn Fn(usize) -> Vec<TokenIds>) -> f64 {
        let least = declared(circuit.deviation(simulated).unwrap());
        let mut worst: f64 = 0.0;
        for length in OF_TEXTS {
            let error = circuit.deviation(&others(length)).unwrap();
            assert!(error <= least, "{length}: {error:e} of {least:e}");
            worst = worst.max(error);
        }
        // More would cost bits for nothing.
        assert!(worst > least / 5.0, "{worst:e} of {least:e}");
        worst
    }

    /// The same for decoders, whose texts end in the last row.
    #[test]
    fn m1_what_a_decoder_declares_covers_every_length() {
        let subject = Decoder::new(&ternary_config(4, 2), 128, (31, 31));
        let params = test_params();
        let [first, other] = [0, 6].map(|text: usize| subject.texts[text].ids());
        let simulated = of_all_lengths(first, ROWS);
        assert_eq!(simulated.len(), OF_TEXTS.len());
        let others = |length: usize| vec![TokenIds::new(other[..length].to_vec())];
        for answer in [AnswerRows::Last, AnswerRows::Rows] {
            let circuit = Circuit {
                program: &subject.program,
                choices: &subject.choices,
                params: &params,
                placement: &subject.placement(params.fresh_limbs()),
                rows: ROWS,
                lengths: Lengths::Private,
                answer,
                input_bound: subject.bound,
                folded: Arc::default(),
            };
            assert_covered(&circuit, &simulated, &others);
        }
    }

    /// Most circuits declare a constant of the parameter set. A circuit whose last norm has so wide a range that
    /// variances are little more than the error of their refresh has larger errors and declares them; a plan that does
    /// not is refused.
    #[test]
    fn c4_a_plan_declares_what_its_own_circuit_errs_by() {
        let mut config = tiny_config();
        config.layers = 1;
        let network = random_network(&config, Pool::Mean, 5);
        let texts = some(4, 9);
        let embedded =
            texts.iter().map(|t| plain::start(&network.program_of_all_rows(), vec![t.clone()]).unwrap().values);
        let embedded: Vec<Matrix<f64>> = embedded.collect();
        let good = measure(&network, &embedded, &Structure::default(), ROWS, (15, 15)).choices;
        let mut wide = good.clone();
        let norm = &mut wide.layers[0].feed_forward_norm;
        (norm.scale, norm.low, norm.steps) = (norm.scale / 20.0, norm.low / 400.0, 2);

        let params = named(PARAMETERS).unwrap();
        let (_, keys) = bootstrap(&params).unwrap();
        for lengths in [Lengths::Public, Lengths::Private] {
            let options = FheOptions {
                rows: ROWS,
                texts: usize::MAX,
                lengths,
                answer: AnswerRows::Last,
                max_memory: None,
                per_place: 1,
                uplink: 1e7,
                prices: reference(1),
                placement: None,
            };
            let width = network.layers[0].attention.heads.width;
            let placement = Placement::plain(params.fresh_limbs(), ROWS, width);
            let plan = |choices: &Choices, texts: &[TokenIds]| {
                let offer = Offer {
                    program: &network.program_of_all_rows(),
                    choices,
                    parameters: PARAMETERS,
                    params: &params,
                    bootstrap: &keys,
                    options: &options,
                    placement: &placement,
                    public_sha256: [0; 32],
                    calibration_sha256: [1; 32],
                    texts,
                    canary: None,
                    exposures: Vec::new(),
                };
                offer.plan()
            };
            let error = |choices: &Choices, plan: &FhePlan| {
                let circuit = Circuit {
                    program: &network.program_of_all_rows(),
                    choices,
                    params: &params,
                    placement: &placement,
                    rows: ROWS,
                    lengths,
                    answer: AnswerRows::Last,
                    input_bound: plan.input_bound,
                    folded: Arc::default(),
                };
                circuit.deviation(&texts).unwrap()
            };
            let usual = plan(&good, &texts).unwrap();
            let constant = |plan: &FhePlan| reply_deviation(&params, plan.reply.magnitude);
            let errs = error(&good, &usual);
            assert!(errs > 0.0 && errs < constant(&usual), "{errs:e}");
            assert_eq!(usual.reply.deviation, constant(&usual).max(declared(errs)));
            covers(&usual.reply, errs).unwrap();

            let more = plan(&wide, &texts).unwrap();
            let errs = error(&wide, &more);
            assert!(errs > 2.0 * constant(&more), "{errs:e}");
            assert_eq!(more.reply.deviation, declared(errs));
            assert!((1.25..2.5).contains(&(more.reply.deviation / errs)));
            // Clients accept this plan.
            FhePlan::from_json(&more.to_json().unwrap()).unwrap();
            covers(&more.reply, errs).unwrap();
            assert!(covers(&usual.reply, errs).is_err());

            // A text that leaves an interval is skipped, but not all texts may leave one.
            let mut narrow = good.clone();
            narrow.layers[0].attention_norm.scale *= 4.0;
            let refused = plan(&narrow, &texts).err().unwrap();
            assert!(matches!(refused, FheError::Choices(_)), "{refused}");
        }
    }
}
