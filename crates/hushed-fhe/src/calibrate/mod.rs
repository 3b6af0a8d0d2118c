//! Calibration: the intervals that a model's approximations under CKKS must cover, measured in the clear over sample
//! texts, and the cheapest degrees that are accurate enough.
//!
//! 1. [`clear`]: texts run through the circuit of an encrypted run in the clear, padding rows included.
//! 2. [`measure`]: intervals, with exact functions. First for the model as it is; then with replacements (rows that
//!    hardly depend on the text become constants, heads that always attend to the row before become fixed), as these
//!    change the numbers in later layers.
//! 3. [`margins`]: choices from intervals, for given degrees.
//! 4. Here: candidates are compared with the exact model on held-out texts, in a simulation of the run
//!    ([`crate::simulate`]): the lowest degree of the exponential that is accurate enough, then that of the activation,
//!    finally with simulated errors. Intervals are then measured over all texts.
//!
//! The cost of a candidate is its levels, and then its relinearisations: of the 128 diagonals of every head in the
//! attention half of a layer, of the hidden columns in the other half. Inverses and inverse roots take single vectors,
//! so they are as precise as levels allow.
//!
//! Outside its interval an approximation is wrong, and so is the answer of that text; far outside it grows until it
//! harms the other texts of a batch (docs/fhe-circuit.md states how far for each step). Texts made to leave intervals
//! belong in the sample, and so do all words ([`vocabulary()`]): they widen intervals, and accuracy is judged by the
//! others. [`reaches`] measures how much of the intervals is used by texts outside the sample.

mod clear;
pub(crate) mod decoder;
pub(crate) mod decoder_search;
mod head;
mod margins;
mod measure;
mod reach;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use hushed_ckks::{CkksError, CkksParams};
use hushed_model::folder::weight_files;
use hushed_model::{Body, Model, Network, TokenIds, cosine, length, nearness};
use sha2::{Digest, Sha256};

pub use crate::choices::read::MAX_ACTIVATION;
use crate::plan::public_plan::{hex, named};
use crate::{Candidate, Choices, ChoicesError, FheError, LayerChoice, MAX_ROWS, Report, VERSION};
use clear::Clear;
use margins::{DEGREES, Degrees};
use measure::{LayerSeen, Seen, Structure};
pub use reach::{Quantity, Reach, reaches};
pub use vocabulary::vocabulary;

/// The goal of a calibration, and the limits of its search.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Rows per text, padding included.
    pub rows: usize,
    /// Required minimum over held-out texts of the cosine to the exact embedding.
    pub wanted: f64,
    /// Of every this many texts, the last is held out.
    pub hold_out: usize,
    /// Maximum number of layers whose first row may be replaced by a constant.
    pub most_frozen: usize,
    /// The degree of activations, from 1 to [`MAX_ACTIVATION`]; none: the lowest that is enough.
    pub activation: Option<usize>,
    /// The parameter set whose levels and errors the candidates are simulated with.
    pub parameters: String,
    /// Seed of simulated errors.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            rows: 128,
            wanted: 0.9995,
            hold_out: 4,
            most_frozen: 4,
            activation: None,
            parameters: "n16-boot-14x40".to_owned(),
            seed: 1,
        }
    }
}

/// The texts of a calibration, and the hashes that identify it.
pub struct Sample<'a> {
    /// Ordinary texts, measured or held out.
    pub texts: &'a [TokenIds],
    /// Texts made to leave intervals: all are measured, none is judged.
    pub hostile: &'a [TokenIds],
    /// Likewise, but measured only at the end: [`vocabulary()`], too many to measure while structures are compared.
    pub broad: &'a [TokenIds],
    /// SHA-256 of the file they are from, in hexadecimal.
    pub sha256: &'a str,
    /// SHA-256 of the weights, in hexadecimal.
    pub model_sha256: &'a str,
}

/// A head with at least this mean weight on the row before becomes fixed.
const ALWAYS: f64 = 0.9;
/// Width of ln Σ e^{s/2} within a head, in nats, above which no inverse is worth its steps.
const WIDEST: f64 = 8.0;
/// A first row that is never farther from its mean than this, relative to the mean's length, is replaced by the mean.
const NEARLY_CONSTANT: f64 = 0.12;
/// Maximum ordinary texts that are measured, and held out, while structures and degrees are compared.
const COMPARED: (usize, usize) = (64, 24);

/// Measures and searches. `progress` is called with a line about each stage.
///
/// # Errors
/// Fails if texts are longer than the rows, or too few; with errors of the model; with [`FheError::Choices`] if no
/// candidate reaches the required cosine.
pub fn calibrate(
    model: &Model,
    sample: &Sample<'_>,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<Choices, FheError> {
    let search = Search::new(model, sample, options)?;
    options.check()?;
    if let Body::Decoder(_) = model.body {
        return search.decoder(progress);
    }
    progress("measuring the model as it is");
    let network = model.encoder()?;
    let none = Structure::none(network);
    let seen = search.measure(&none, &search.measured)?;
    let (structures, fixed) = structures(&none, &seen.layers, options.most_frozen(network));
    progress(&format!(
        "{fixed} heads always look at the row before; the first row is nearly constant in {} layers",
        structures[0].frozen.len()
    ));
    let exact = search.exact()?;
    let mut report = Report {
        wanted: options.wanted,
        held_out: search.held_out.len(),
        candidates: Vec::new(),
    };
    let activations = options.activation.as_ref();
    let activations = activations.map_or(&DEGREES[..], std::slice::from_ref);
    let ample = Degrees {
        activation: options.activation.unwrap_or(Degrees::AMPLE.activation),
        ..Degrees::AMPLE
    };
    // Replacements are chosen first, at ample degrees; then degrees.
    let mut best: Option<(f64, Structure, Seen)> = None;
    for structure in structures {
        let seen = search.measure(&structure, &search.measured)?;
        let candidate = search.try_out(&structure, &seen, ample, &exact, false)?;
        progress(&shown(&candidate));
        let least = candidate.cosine_min;
        report.candidates.push(candidate);
        if best.as_ref().is_none_or(|(found, ..)| least > *found) {
            best = Some((least, structure, seen));
        }
    }
    let Some((_, structure, seen)) = best else {
        return refuse("there is nothing to calibrate".to_owned());
    };
    let mut tried = |degrees: Degrees, with_errors: bool| -> Result<bool, FheError> {
        let candidate = search.try_out(&structure, &seen, degrees, &exact, with_errors)?;
        progress(&shown(&candidate));
        let enough = candidate.cosine_min >= options.wanted;
        let chosen = candidate.chosen;
        report.candidates.push(candidate);
        Ok(if with_errors { chosen } else { enough })
    };
    let mut found = None;
    for exponential in DEGREES {
        let degrees = Degrees {
            exponential,
            ..ample
        };
        // A degree that is not enough with an ample activation cannot be chosen.
        if found.is_none() && tried(degrees, false)? {
            for &activation in activations {
                let degrees = Degrees {
                    exponential,
                    activation,
                };
                if tried(degrees, true)? {
                    found = Some(degrees);
                    break;
                }
            }
        }
    }
    let Some(mut degrees) = found else {
        return refuse(no_candidate(options));
    };
    progress("measuring all texts");
    let seen = search.measure(&structure, sample.texts)?;
    let seen = search.measure_more(&structure, sample.broad, seen)?;
    // These intervals are wider than those used to choose degrees.
    loop {
        let mut candidate = search.try_out(&structure, &seen, degrees, &exact, true)?;
        candidate.name = format!("intervals of all texts; {}", candidate.name);
        progress(&shown(&candidate));
        let (enough, next) = (candidate.chosen, degrees.next(activations));
        report.candidates.push(candidate);
        if enough {
            break;
        }
        let Some(next) = next else {
            return refuse(no_candidate(options));
        };
        degrees = next;
    }
    // The last candidate is the chosen one.
    let last = report.candidates.len() - 1;
    for candidate in &mut report.candidates[..last] {
        candidate.chosen = false;
    }
    let mut choices = search.choices(&structure, &seen, degrees)?;
    choices.texts = sample.texts.len() + sample.hostile.len() + sample.broad.len();
    choices.report = report;
    choices.check(&network.program())?;
    Ok(choices)
}

fn no_candidate(options: &Options) -> String {
    let with = options.activation;
    let with = with.map_or(String::new(), |degree| {
        format!(" with activations of degree {degree}")
    });
    format!(
        "no degrees{with} bring every held-out text within a cosine of {} of the exact embedding",
        options.wanted
    )
}

/// Answers computed with the approximations of a calibration, in a simulation at the levels of a parameter set; with
/// errors drawn from `seed`, if there is one. `None` for a text that leaves an interval too far for a refresh.
///
/// # Errors
/// Fails if the choices belong to another model or need more levels, or texts are longer than their rows.
pub fn embed(
    model: &Model,
    choices: &Choices,
    texts: &[TokenIds],
    params: &Arc<CkksParams>,
    seed: Option<u64>,
) -> Result<Vec<Option<Vec<f64>>>, FheError> {
    let program = model.program_of_all_rows();
    choices.check(&program)?;
    check_rows(texts, choices.rows)?;
    if choices.decoder.is_some() {
        return decoder_search::answers(&program, choices, texts, (params, seed), &mut None);
    }
    let clear = Clear {
        model,
        params,
        rows: choices.rows,
    };
    let answers = clear.answers(choices, texts, seed)?.into_iter();
    let finish = |row| model.public.finish(row);
    Ok(answers.map(|answer| answer.map(finish)).collect())
}

/// The SHA-256 of a model's weights files in the order of their names, in hexadecimal, by which a calibration
/// identifies the model.
///
/// # Errors
/// Those of reading the files.
pub fn weights_sha256(folder: &Path) -> io::Result<String> {
    let (mut digest, mut block) = (Sha256::new(), vec![0; 1 << 20]);
    for path in weight_files(folder).map_err(io::Error::other)? {
        let mut file = File::open(path)?;
        loop {
            match file.read(&mut block)? {
                0 => break,
                n => digest.update(block.get(..n).unwrap_or_default()),
            }
        }
    }
    Ok(hex(&digest.finalize()))
}

impl Options {
    fn check(&self) -> Result<(), FheError> {
        match self.activation {
            Some(degree) if !(1..=MAX_ACTIVATION).contains(&degree) => refuse(format!(
                "activations of degree {degree}: from 1 to {MAX_ACTIVATION} can be asked for"
            )),
            _ => Ok(()),
        }
    }

    /// The parameter set.
    ///
    /// # Errors
    /// Fails if the name is unknown.
    pub fn params(&self) -> Result<Arc<CkksParams>, FheError> {
        Ok(named(&self.parameters).map_err(CkksError::from)?)
    }

    /// A classifier reads the first row of the last layer, so that row is not replaced.
    fn most_frozen(&self, network: &Network) -> usize {
        let readable = network.layers.len() - usize::from(network.classifier.is_some());
        self.most_frozen.min(readable)
    }
}

struct Search<'a> {
    model: &'a Model,
    sample: &'a Sample<'a>,
    options: &'a Options,
    params: Arc<CkksParams>,
    measured: Vec<TokenIds>,
    held_out: Vec<TokenIds>,
}

impl<'a> Search<'a> {
    fn new(
        model: &'a Model,
        sample: &'a Sample<'a>,
        options: &'a Options,
    ) -> Result<Search<'a>, FheError> {
        let hold_out = options.hold_out.max(2);
        let is_held_out = |i: usize| (i + 1).is_multiple_of(hold_out);
        let pick = |held: bool| -> Vec<TokenIds> {
            let all = sample.texts.iter().enumerate();
            all.filter(|(i, _)| is_held_out(*i) == held)
                .map(|(_, text)| text.clone())
                .collect()
        };
        let (mut measured, mut held_out) = (pick(false), pick(true));
        thin(&mut measured, COMPARED.0);
        thin(&mut held_out, COMPARED.1);
        if measured.is_empty() || held_out.is_empty() {
            return refuse(format!(
                "{} texts are too few: of every {hold_out}, one is held out",
                sample.texts.len()
            ));
        }
        check_rows(sample.texts, options.rows)?;
        check_rows(sample.hostile, options.rows)?;
        check_rows(sample.broad, options.rows)?;
        Ok(Search {
            model,
            sample,
            options,
            params: options.params()?,
            measured,
            held_out,
        })
    }

    /// Measures these texts and those made to leave intervals.
    fn measure(&self, structure: &Structure, texts: &[TokenIds]) -> Result<Seen, FheError> {
        let nothing = Seen::nothing(self.model.encoder()?);
        let (seen, _) = self.clear().measured(structure, texts, nothing, true)?;
        self.measure_more(structure, self.sample.hostile, seen)
    }

    /// Adds texts that are not ordinary.
    fn measure_more(
        &self,
        structure: &Structure,
        texts: &[TokenIds],
        seen: Seen,
    ) -> Result<Seen, FheError> {
        Ok(self.clear().measured(structure, texts, seen, false)?.0)
    }

    fn clear(&self) -> Clear<'_> {
        Clear {
            model: self.model,
            params: &self.params,
            rows: self.options.rows,
        }
    }

    fn exact(&self) -> Result<Vec<Vec<f64>>, FheError> {
        Ok(self.model.embed(self.held_out.clone())?)
    }

    /// Minimum and mean cosine of the held-out texts to the exact answers; 0 if there are too few levels.
    fn judged(
        &self,
        choices: &Choices,
        exact: &[Vec<f64>],
        seed: Option<u64>,
    ) -> Result<(f64, f64), FheError> {
        let found = match embed(self.model, choices, &self.held_out, &self.params, seed) {
            Err(FheError::Levels { .. }) => return Ok((0.0, 0.0)),
            found => found?,
        };
        let classifies = self.model.encoder()?.classifier.is_some();
        Ok(compared(exact, &found, classifies))
    }

    /// Rows per text, and levels of a chain after a refresh.
    fn sizes(&self) -> (usize, usize) {
        let levels = self.params.chain().eval_mod.start - self.params.bootstrap_limbs();
        (self.options.rows, levels)
    }

    fn choices(
        &self,
        structure: &Structure,
        seen: &Seen,
        degrees: Degrees,
    ) -> Result<Choices, FheError> {
        let layers = self
            .model
            .encoder()?
            .layers
            .iter()
            .zip(&seen.layers)
            .enumerate();
        let sizes = self.sizes();
        let layers = layers.map(|(i, (layer, seen))| {
            let frozen = structure.frozen.get(i).map(Vec::as_slice);
            let context = (&structure.fixed[i][..], frozen);
            margins::layer(layer, seen, context, degrees, sizes)
        });
        Ok(Choices {
            version: VERSION,
            sample_sha256: self.sample.sha256.to_owned(),
            model_sha256: self.sample.model_sha256.to_owned(),
            texts: self.measured.len(),
            rows: self.options.rows,
            layers: layers.collect::<Result<Vec<LayerChoice>, _>>()?,
            classifier: head::choice(self.model.encoder()?, &seen.head)?,
            decoder: None,
            report: Report::default(),
        })
    }

    /// Tries one set of degrees on the held-out texts; with errors too, if it is accurate enough without.
    fn try_out(
        &self,
        structure: &Structure,
        seen: &Seen,
        degrees: Degrees,
        exact: &[Vec<f64>],
        with_errors: bool,
    ) -> Result<Candidate, FheError> {
        let choices = self.choices(structure, seen, degrees)?;
        let (cosine_min, cosine_mean) = self.judged(&choices, exact, None)?;
        let wanted = self.options.wanted;
        let mut noisy = None;
        if with_errors && cosine_min >= wanted {
            noisy = Some(self.judged(&choices, exact, Some(self.options.seed))?.0);
        }
        let (attention_levels, feed_forward_levels) = degrees.levels();
        Ok(Candidate {
            name: format!(
                "exponential {}, activation {}; first row given after {} layers, {} heads fixed",
                degrees.exponential,
                degrees.activation,
                structure.frozen.len(),
                structure.fixed.iter().flatten().filter(|f| **f).count()
            ),
            attention_levels,
            feed_forward_levels,
            cosine_min,
            cosine_mean,
            cosine_min_with_errors: noisy,
            chosen: noisy.is_some_and(|least| least >= wanted),
        })
    }
}

/// Possible replacements: the fixed heads, with the first row constant after all layers where it is nearly so, or after
/// one or two fewer. Also returns the number of fixed heads.
fn structures(none: &Structure, seen: &[LayerSeen], most_frozen: usize) -> (Vec<Structure>, usize) {
    let mut fixed = none.fixed.clone();
    for (layer, fixed) in seen.iter().zip(&mut fixed) {
        for (head, fixed) in layer.heads.iter().zip(fixed) {
            let wide = head.first.greatest - head.first.least > WIDEST;
            *fixed = wide && head.previous() > ALWAYS;
        }
    }
    let rows: Vec<Vec<f64>> = seen
        .iter()
        .take(most_frozen)
        .map(LayerSeen::first_row)
        .take_while(|(_, farthest)| *farthest < NEARLY_CONSTANT)
        .map(|(row, _)| margins::rounded_row(&row))
        .collect();
    let count = fixed.iter().flatten().filter(|f| **f).count();
    let all = (rows.len().saturating_sub(2)..=rows.len()).rev();
    let structure = |frozen: usize| Structure {
        frozen: rows[..frozen].to_vec(),
        fixed: fixed.clone(),
    };
    (all.map(structure).collect(), count)
}

/// At most `most` of the texts, evenly spread.
fn thin(texts: &mut Vec<TokenIds>, most: usize) {
    let count = texts.len();
    if count > most {
        *texts = (0..most).map(|i| texts[i * count / most].clone()).collect();
    }
}

/// Minimum and mean cosine; 0 for a missing answer. For logits, their nearness relative to the root mean square
/// instead: a single logit has no angle, and the angle of small logits means nothing.
fn compared(exact: &[Vec<f64>], found: &[Option<Vec<f64>>], logits: bool) -> (f64, f64) {
    let squares: f64 = exact.iter().map(|x| length(x).powi(2)).sum();
    let size = (squares / exact.len().max(1) as f64).sqrt();
    let cosines = exact.iter().zip(found).map(|(a, b)| {
        let c = match (b, logits) {
            (None, _) => 0.0,
            (Some(b), true) => nearness(b, a, size),
            (Some(b), false) => cosine(a, b),
        };
        if c.is_finite() { c } else { 0.0 }
    });
    let cosines: Vec<f64> = cosines.collect();
    let least = cosines.iter().copied().fold(1.0, f64::min);
    (
        least,
        cosines.iter().sum::<f64>() / cosines.len().max(1) as f64,
    )
}

fn shown(c: &Candidate) -> String {
    let errors = match c.cosine_min_with_errors {
        Some(least) => format!(", with errors at least {least:.6}"),
        None => String::new(),
    };
    format!(
        "{}: {} + {} levels, cosine at least {:.6}, {:.6} on average{errors}",
        c.name, c.attention_levels, c.feed_forward_levels, c.cosine_min, c.cosine_mean
    )
}

fn check_rows(texts: &[TokenIds], rows: usize) -> Result<(), FheError> {
    if rows == 0 || rows > MAX_ROWS {
        return refuse(format!("{rows} rows per text; must be 1 to {MAX_ROWS}"));
    }
    match texts.iter().position(|t| t.rows().real > rows) {
        None => Ok(()),
        Some(i) => refuse(format!(
            "text {i} has {} tokens, more than {rows} rows",
            texts[i].rows().real
        )),
    }
}

fn refuse<T>(what: String) -> Result<T, FheError> {
    Err(ChoicesError::Unusable { what }.into())
}

/// Only the intervals, for fixed degrees and without replacements: to try a model on few texts.
///
/// # Errors
/// As [`calibrate`].
pub fn intervals(
    model: &Model,
    sample: &Sample<'_>,
    options: &Options,
    exponential: usize,
    activation: usize,
) -> Result<Choices, FheError> {
    let search = Search::new(model, sample, options)?;
    let none = Structure::none(model.encoder()?);
    let seen = search.measure(&none, sample.texts)?;
    let degrees = Degrees {
        exponential,
        activation,
    };
    search.choices(&none, &seen, degrees)
}
