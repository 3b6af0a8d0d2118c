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
#[cfg(test)]
mod decoder_tests;
mod embed;
mod head;
#[cfg(test)]
mod images_tests;
mod margins;
mod measure;
mod neighbours;
mod reach;
mod search;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use hushed_model::folder::weight_files;
use hushed_model::{Body, Item, Model};
use sha2::{Digest, Sha256};

pub use crate::choices::read::MAX_ACTIVATION;
use crate::hex::hex;
use crate::pass::can_run;
use crate::{Choices, FheError, Report};
pub use embed::embed;
use embed::refuse;
use margins::{DEGREES, Degrees};
use measure::{LayerSeen, Seen, Structure};
pub use reach::{Quantity, Reach, reaches};
pub use search::{Options, Sample};
use search::{Search, no_candidate, shown};
pub(crate) use vocabulary::shuffled;
pub use vocabulary::vocabulary;

/// A head with at least this mean weight on the row before becomes fixed.
const ALWAYS: f64 = 0.9;
/// Width of ln Σ e^{s/2} within a head, in nats, above which no inverse is worth its steps.
const WIDEST: f64 = 8.0;
/// A first row that is never farther from its mean than this, relative to the mean's length, is replaced by the mean.
const NEARLY_CONSTANT: f64 = 0.12;

/// Measures and searches. `progress` is called with a line about each stage.
///
/// # Errors
/// Fails if texts are longer than the rows, or too few; with errors of the model; with [`FheError::Choices`] if no
/// candidate reaches the required cosine.
pub fn calibrate<T: Clone + Into<Item>>(
    model: &Model,
    sample: &Sample<'_, T>,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<Choices, FheError> {
    let search = Search::new(model, sample, options)?;
    options.check()?;
    if let Body::Decoder(_) = model.body {
        return search.decoder(progress);
    }
    progress("measuring the model as it is");
    let program = &search.program;
    can_run(program)?;
    let none = Structure::none(program);
    let seen = search.measure(&none, &search.measured)?;
    let (structures, fixed) = structures(&none, &seen.layers, options.most_frozen(program));
    progress(&format!(
        "{fixed} heads always look at the row before; the first row is nearly constant in {} layers",
        structures[0].frozen.len()
    ));
    let exact = search.exact()?;
    let mut report = Report { wanted: options.wanted, held_out: search.held_out.len(), candidates: Vec::new() };
    let activations = options.activation.as_ref();
    let activations = activations.map_or(&DEGREES[..], std::slice::from_ref);
    let ample = Degrees { activation: options.activation.unwrap_or(Degrees::AMPLE.activation), ..Degrees::AMPLE };
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
        let degrees = Degrees { exponential, ..ample };
        // A degree that is not enough with an ample activation cannot be chosen.
        if found.is_none() && tried(degrees, false)? {
            for &activation in activations {
                let degrees = Degrees { exponential, activation };
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
    let seen = search.measure(&structure, &search.texts)?;
    let seen = search.measure_more(&structure, &search.broad, seen)?;
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
    choices.texts = search.count();
    choices.report = report;
    choices.check(program)?;
    search.resolved(&choices)?;
    Ok(choices)
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
    let structure = |frozen: usize| Structure { frozen: rows[..frozen].to_vec(), fixed: fixed.clone() };
    (all.map(structure).collect(), count)
}

/// Only the intervals, for fixed degrees and without replacements: to try a model on few texts.
///
/// # Errors
/// As [`calibrate`].
pub fn intervals<T: Clone + Into<Item>>(
    model: &Model,
    sample: &Sample<'_, T>,
    options: &Options,
    exponential: usize,
    activation: usize,
) -> Result<Choices, FheError> {
    let search = Search::new(model, sample, options)?;
    let none = Structure::none(&search.program);
    let seen = search.measure(&none, &search.texts)?;
    let degrees = Degrees { exponential, activation };
    search.choices(&none, &seen, degrees)
}
