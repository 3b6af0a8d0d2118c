//! The calibration of a decoder: intervals over all texts, and the cheapest degrees with which the last rows of
//! held-out texts are close enough to the exact ones, with simulated errors.

use hushed_model::{Program, Weigh};

use super::decoder::{Degrees, measure};
use super::embed::{answers, refuse};
use super::neighbours;
use super::search::{Judged, Search, no_candidate, shown};
use crate::clear::last_row;
use crate::ledger;
use crate::{Candidate, Choices, DecoderChoice, FheError, HeadChoice, Report, ScoresChoice, VERSION};

/// Degrees to try, ordered by their levels.
const TRIED: [Degrees; 6] = [
    Degrees { scores: 15, activation: 15 },
    Degrees { scores: 15, activation: 31 },
    Degrees { scores: 31, activation: 15 },
    Degrees { scores: 31, activation: 31 },
    Degrees { scores: 31, activation: 63 },
    Degrees { scores: 63, activation: 63 },
];

impl Search<'_> {
    /// The choices of a decoder.
    pub(super) fn decoder(&self, progress: &mut dyn FnMut(&str)) -> Result<Choices, FheError> {
        let program = &self.program;
        let held_out = self.held_out.iter();
        let exact = held_out.map(|text| last_row(program, text)).collect::<Result<Vec<_>, _>>()?;
        let mut choices = Choices {
            version: VERSION,
            sample_sha256: self.sha256.to_owned(),
            model_sha256: self.model_sha256.to_owned(),
            texts: self.count(),
            rows: self.options.rows,
            layers: Vec::new(),
            classifier: None,
            decoder: None,
            norm: None,
            report: Report { wanted: self.options.wanted, held_out: exact.len(), candidates: Vec::new() },
        };
        // Degrees are chosen on texts that were not measured; the final intervals are measured over all texts.
        progress("measuring the model");
        let mut seen = measure(program, &self.measured, &self.hostile)?;
        let list = tried(self.options.activation);
        let mut tried = list.iter().copied();
        let mut all = false;
        let mut outside = None;
        while let Some(degrees) = tried.next() {
            choices.decoder = Some(seen.choice(program, degrees, self.sizes())?);
            let mut candidate = self.candidate(program, &choices, degrees, &exact, &mut outside)?;
            if all {
                candidate.name = format!("intervals of all texts; {}", candidate.name);
            }
            progress(&shown(&candidate));
            let chosen = candidate.chosen;
            choices.report.candidates.push(candidate);
            if !chosen {
                continue;
            }
            if all {
                self.resolved(&choices)?;
                return Ok(choices);
            }
            progress("measuring all texts");
            let more = [&self.hostile[..], &self.broad[..]].concat();
            seen = measure(program, &self.texts, &more)?;
            all = true;
            // The same degrees again: these intervals are wider.
            let from = list.iter().position(|d| *d == degrees).unwrap_or(0);
            tried = list[from..].iter().copied();
        }
        let mut what = no_candidate(self.options);
        if let Some(wide) = choices.decoder.as_ref().and_then(wide) {
            what.push_str(&wide);
        }
        if let Some(outside) = outside {
            what.push_str(&format!("; a text leaves its interval: {outside}"));
        }
        refuse(what)
    }

    /// Compares the answers of held-out texts with `exact`, with errors if they are close enough without. `outside`:
    /// where the first text of all candidates left an interval.
    fn candidate(
        &self,
        program: &Program,
        choices: &Choices,
        degrees: Degrees,
        exact: &[Vec<f64>],
        outside: &mut Option<String>,
    ) -> Result<Candidate, FheError> {
        let mut judged = |seed| -> Result<Judged, FheError> {
            let how = (&self.params, seed);
            let mut found = match answers(program, choices, &self.held_out, how, outside) {
                Err(FheError::Levels { .. }) => return Ok(Judged::default()),
                Err(error) => match choices.decoder.as_ref().and_then(wide) {
                    Some(wide) => return refuse(format!("{error}{wide}")),
                    None => return Err(error),
                },
                Ok(found) => found,
            };
            neighbours::rounded(&mut found, self.kept_bits(choices)?);
            Ok(Judged::new(exact, &found, false))
        };
        let (clear, wanted) = (judged(None)?, self.options.wanted);
        let mut noisy = None;
        if clear.least >= wanted {
            noisy = Some(judged(Some(self.options.seed))?);
        }
        // A norm inside a block takes a level, and a last map that is ternary saves one.
        let inside = usize::from(program.attentions().any(|a| a.sub_norm.is_some()));
        let ternary = usize::from(program.linears().any(|w| w.ternary));
        let softmax = program.attentions().any(|a| a.weigh == Weigh::Softmax);
        let function = if softmax { "exponential" } else { "sigmoid" };
        let attention = ledger::causal_attention(degrees.scores, softmax);
        let gated = program.feed_forwards().flatten().any(|f| f.gate.is_some());
        let feed_forward = ledger::NORM + ledger::feed_forward(degrees.activation, gated);
        Ok(Candidate {
            name: format!("{function} {}, activation {}", degrees.scores, degrees.activation),
            attention_levels: attention + inside - ternary,
            feed_forward_levels: feed_forward + inside - ternary,
            cosine_min: clear.least,
            cosine_mean: clear.mean,
            cosine_min_with_errors: noisy.map(|noisy| noisy.least),
            neighbours: noisy.map(|noisy| noisy.neighbours),
            chosen: noisy.is_some_and(|noisy| noisy.is_enough(wanted)),
        })
    }
}

/// The head of a softmax whose sums have the widest range, if no inverse is worth its steps there: rows that see few
/// keys have the sums of a few scores alone.
fn wide(decoder: &DecoderChoice) -> Option<String> {
    let mut widest = (1.0, 0, 0);
    for (i, layer) in decoder.layers.iter().enumerate() {
        let ScoresChoice::Softmax(softmax) = &layer.scores else { continue };
        for (h, head) in softmax.heads.iter().enumerate() {
            if let HeadChoice::Softmax { first, .. } = head {
                let ratio = first.high / first.low;
                widest = if ratio > widest.0 { (ratio, i, h) } else { widest };
            }
        }
    }
    let (ratio, i, h) = widest;
    let factor = |x: f64| format!("10^{:.1}", x.log10());
    (ratio > WIDE_SUMS).then(|| {
        format!(
            "; of layer {i}, head {h}, sums of exponentials differ by a factor of {}, and of more than {} an inverse takes \
             too many steps",
            factor(ratio),
            factor(WIDE_SUMS)
        )
    })
}

/// Ends of the sums of a head, margins included, whose ratio an inverse of eight steps still covers to a tenth.
const WIDE_SUMS: f64 = 1e4;

/// The degrees to try; with a degree of activations that was asked for, those of scores only.
fn tried(activation: Option<usize>) -> Vec<Degrees> {
    let asked = |degrees: Degrees| Degrees { activation: activation.unwrap_or(degrees.activation), ..degrees };
    let mut tried = TRIED.map(asked).to_vec();
    tried.dedup();
    tried
}
