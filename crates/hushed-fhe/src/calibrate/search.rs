//! The texts of a calibration, its options, and the measures by which candidates are compared.

use std::sync::Arc;

use hushed_ckks::{CkksError, CkksParams};
use hushed_model::{Item, Model, Program, StepId, TokenIds, cosine, length, nearness};

use super::clear::Clear;
use super::embed::{check_rows, refuse};
use super::margins::{self, Degrees};
use super::measure::{Seen, Structure, second_norm};
use super::{head, neighbours};
use crate::choices::read::MAX_ACTIVATION;
use crate::plan::public_plan::named;
use crate::resolution;
use crate::tape::encoder::begins_with_norm;
use crate::{Candidate, Choices, FheError, LayerChoice, Report, VERSION};

/// Maximum ordinary texts that are measured, and held out, while structures and degrees are compared.
const COMPARED: (usize, usize) = (64, 24);

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

/// The texts or images of a calibration, and the hashes that identify it.
pub struct Sample<'a, T = TokenIds> {
    /// Ordinary texts, measured or held out.
    pub texts: &'a [T],
    /// Texts made to leave intervals: all are measured, none is judged.
    pub hostile: &'a [T],
    /// Likewise, but measured only at the end: [`super::vocabulary()`], too many to measure while structures are
    /// compared.
    pub broad: &'a [T],
    /// SHA-256 of the file they are from, in hexadecimal.
    pub sha256: &'a str,
    /// SHA-256 of the weights, in hexadecimal.
    pub model_sha256: &'a str,
}

impl Options {
    pub(super) fn check(&self) -> Result<(), FheError> {
        match self.activation {
            Some(degree) if !(1..=MAX_ACTIVATION).contains(&degree) => {
                refuse(format!("activations of degree {degree}: from 1 to {MAX_ACTIVATION} can be asked for"))
            }
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

    /// A classifier reads the first row of the last layer, so that row is not replaced; nor is a row of a residual
    /// stream that goes on beside norms.
    pub(super) fn most_frozen(&self, program: &Program) -> usize {
        let readable = program.layers().len() - usize::from(program.classes().is_some());
        if begins_with_norm(program) { 0 } else { self.most_frozen.min(readable) }
    }
}

pub(super) struct Search<'a> {
    pub(super) model: &'a Model,
    pub(super) program: Program,
    pub(super) texts: Vec<Item>,
    pub(super) hostile: Vec<Item>,
    pub(super) broad: Vec<Item>,
    pub(super) sha256: &'a str,
    pub(super) model_sha256: &'a str,
    pub(super) options: &'a Options,
    pub(super) params: Arc<CkksParams>,
    pub(super) measured: Vec<Item>,
    pub(super) held_out: Vec<Item>,
}

impl<'a> Search<'a> {
    pub(super) fn new<T: Clone + Into<Item>>(
        model: &'a Model,
        sample: &Sample<'a, T>,
        options: &'a Options,
    ) -> Result<Search<'a>, FheError> {
        let items = |texts: &[T]| -> Vec<Item> { texts.iter().cloned().map(T::into).collect() };
        let (texts, hostile, broad) = (items(sample.texts), items(sample.hostile), items(sample.broad));
        let hold_out = options.hold_out.max(2);
        let is_held_out = |i: usize| (i + 1).is_multiple_of(hold_out);
        let pick = |held: bool| -> Vec<Item> {
            let all = texts.iter().enumerate();
            all.filter(|(i, _)| is_held_out(*i) == held).map(|(_, text)| text.clone()).collect()
        };
        let (mut measured, mut held_out) = (pick(false), pick(true));
        thin(&mut measured, COMPARED.0);
        thin(&mut held_out, COMPARED.1);
        if measured.is_empty() || held_out.is_empty() {
            return refuse(format!("{} texts are too few: of every {hold_out}, one is held out", texts.len()));
        }
        for texts in [&texts, &hostile, &broad] {
            check_rows(texts, options.rows)?;
        }
        Ok(Search {
            program: model.program_of_all_rows(),
            model,
            texts,
            hostile,
            broad,
            sha256: sample.sha256,
            model_sha256: sample.model_sha256,
            options,
            params: options.params()?,
            measured,
            held_out,
        })
    }

    /// Measures these texts and those made to leave intervals.
    pub(super) fn measure(&self, structure: &Structure, texts: &[Item]) -> Result<Seen, FheError> {
        let nothing = Seen::nothing(&self.program);
        let (seen, _) = self.clear().measured(structure, texts, nothing, true)?;
        self.measure_more(structure, &self.hostile, seen)
    }

    /// Adds texts that are not ordinary.
    pub(super) fn measure_more(&self, structure: &Structure, texts: &[Item], seen: Seen) -> Result<Seen, FheError> {
        Ok(self.clear().measured(structure, texts, seen, false)?.0)
    }

    fn clear(&self) -> Clear<'_> {
        Clear { model: self.model, params: &self.params, rows: self.options.rows }
    }

    pub(super) fn exact(&self) -> Result<Vec<Vec<f64>>, FheError> {
        Ok(self.model.embed(self.held_out.clone())?)
    }

    /// The held-out texts compared with the exact answers; nothing is right if there are too few levels.
    fn judged(&self, choices: &Choices, exact: &[Vec<f64>], seed: Option<u64>) -> Result<Judged, FheError> {
        let mut found = match self.clear().answers(choices, &self.held_out, seed) {
            Err(FheError::Levels { .. }) => return Ok(Judged::default()),
            found => found?,
        };
        let logits = self.program.classes().is_some();
        if !logits {
            neighbours::rounded(&mut found, self.kept_bits(choices)?);
        }
        let found = found.into_iter();
        let finish = |row| self.model.public.finish(row);
        let found: Vec<_> = found.map(|answer| answer.map(finish)).collect();
        Ok(Judged::new(exact, &found, logits))
    }

    /// The most bits after the point that clients can keep of an answer.
    pub(super) fn kept_bits(&self, choices: &Choices) -> Result<u32, FheError> {
        let form = resolution::at_best(&self.program, choices, &self.params)?;
        Ok(form.bits(&self.params))
    }

    /// How many texts there are, measured or held out.
    pub(super) fn count(&self) -> usize {
        self.texts.len() + self.hostile.len() + self.broad.len()
    }

    /// Checks that an answer is not rounded away.
    pub(super) fn resolved(&self, choices: &Choices) -> Result<(), FheError> {
        let form = resolution::at_best(&self.program, choices, &self.params)?;
        let logits = self.program.classes().is_some();
        resolution::check(&self.program, &form, &self.params, logits)
    }

    /// Rows per text, and levels of a chain after a refresh.
    pub(super) fn sizes(&self) -> (usize, usize) {
        let levels = self.params.chain().eval_mod.start - self.params.bootstrap_limbs();
        (self.options.rows, levels)
    }

    pub(super) fn choices(&self, structure: &Structure, seen: &Seen, degrees: Degrees) -> Result<Choices, FheError> {
        let (program, sizes) = (&self.program, self.sizes());
        let masked = if begins_with_norm(program) { margins::REFRESHED } else { margins::MASKED };
        let layers = seen.layers.iter().enumerate().map(|(i, seen)| {
            let frozen = structure.frozen.get(i).map(Vec::as_slice);
            let context = (&structure.fixed[i][..], frozen);
            let second = second_norm(program, i).ok_or_else(|| FheError::shape(StepId::outside("layer")))?;
            margins::layer(second, seen, context, degrees, (sizes, masked))
        });
        let after = begins_with_norm(program).then(|| margins::norm(&seen.norm, program.width(), 0.0, masked));
        Ok(Choices {
            version: VERSION,
            sample_sha256: self.sha256.to_owned(),
            model_sha256: self.model_sha256.to_owned(),
            texts: self.measured.len(),
            rows: self.options.rows,
            layers: layers.collect::<Result<Vec<LayerChoice>, _>>()?,
            classifier: head::choice(program, &seen.head)?,
            decoder: None,
            norm: after.transpose()?,
            report: Report::default(),
        })
    }

    /// Tries one set of degrees on the held-out texts; with errors too, if it is accurate enough without.
    pub(super) fn try_out(
        &self,
        structure: &Structure,
        seen: &Seen,
        degrees: Degrees,
        exact: &[Vec<f64>],
        with_errors: bool,
    ) -> Result<Candidate, FheError> {
        let choices = self.choices(structure, seen, degrees)?;
        let clear = self.judged(&choices, exact, None)?;
        let wanted = self.options.wanted;
        let mut noisy = None;
        if with_errors && clear.least >= wanted {
            noisy = Some(self.judged(&choices, exact, Some(self.options.seed))?);
        }
        let (attention_levels, feed_forward_levels) = degrees.levels();
        Ok(Candidate {
            name: format!(
                "exponential {}, activation {}; first row replaced by a constant after {} layers, {} heads fixed",
                degrees.exponential,
                degrees.activation,
                structure.frozen.len(),
                structure.fixed.iter().flatten().filter(|f| **f).count()
            ),
            attention_levels,
            feed_forward_levels,
            cosine_min: clear.least,
            cosine_mean: clear.mean,
            cosine_min_with_errors: noisy.map(|noisy| noisy.least),
            neighbours: noisy.map(|noisy| noisy.neighbours),
            chosen: noisy.is_some_and(|noisy| noisy.is_enough(wanted)),
        })
    }
}

/// How answers compare with exact ones.
#[derive(Clone, Copy, Default)]
pub(super) struct Judged {
    /// Minimum and mean cosine.
    pub least: f64,
    pub mean: f64,
    /// The share of texts whose nearest neighbour stays the same; 1 for logits.
    pub neighbours: f64,
}

impl Judged {
    pub(super) fn new(exact: &[Vec<f64>], found: &[Option<Vec<f64>>], logits: bool) -> Judged {
        let (least, mean) = compared(exact, found, logits);
        let neighbours = match logits {
            true => 1.0,
            false => neighbours::agreement(exact, found),
        };
        Judged { least, mean, neighbours }
    }

    pub(super) fn is_enough(&self, wanted: f64) -> bool {
        self.least >= wanted && self.neighbours >= neighbours::WANTED
    }
}

/// At most `most` of the texts, evenly spread.
fn thin(texts: &mut Vec<Item>, most: usize) {
    let count = texts.len();
    if count > most {
        *texts = (0..most).map(|i| texts[i * count / most].clone()).collect();
    }
}

pub(super) fn no_candidate(options: &Options) -> String {
    let with = options.activation;
    let with = with.map_or(String::new(), |degree| format!(" with activations of degree {degree}"));
    format!("no degrees{with} bring every held-out text within a cosine of {} of the exact embedding", options.wanted)
}

/// Minimum and mean cosine; 0 for a missing answer. For logits, their nearness relative to the root mean square
/// instead: a single logit has no angle, and the angle of small logits means nothing.
pub(super) fn compared(exact: &[Vec<f64>], found: &[Option<Vec<f64>>], logits: bool) -> (f64, f64) {
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
    (least, cosines.iter().sum::<f64>() / cosines.len().max(1) as f64)
}

pub(super) fn shown(c: &Candidate) -> String {
    let errors = match c.cosine_min_with_errors {
        Some(least) => {
            let stay = 100.0 * c.neighbours.unwrap_or(0.0);
            format!(", with errors at least {least:.6}, {stay:.0} % of nearest neighbours stay")
        }
        None => String::new(),
    };
    format!(
        "{}: {} + {} levels, cosine at least {:.6}, {:.6} on average{errors}",
        c.name, c.attention_levels, c.feed_forward_levels, c.cosine_min, c.cosine_mean
    )
}
