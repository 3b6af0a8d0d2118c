//! Where accuracy is lost under CKKS, step by step: the same texts on four rungs, each with one more source of error
//! than the rung above it.
//!
//! | rung | what runs | what it adds |
//! |---|---|---|
//! | clear | the model, in f64 | nothing: the others are compared with it |
//! | polynomial | the circuit over [`Simulator::new`] | approximations, rows replaced by constants, fixed heads |
//! | predicted | the same over [`Simulator::with_errors`] | simulated errors of rescales and refreshes |
//! | encrypted | the same over [`super::Encrypted`], on its own key, every step decrypted | everything |
//!
//! MOAI's Figures 3 and 6 show such errors for the outputs of layers and for the steps of one layer. Errors are
//! relative to the root mean square of the clear values of the step. The errors that the encrypted run and the
//! prediction add to the polynomials are compared only by size, as each draws its own noise.
//!
//! A text that leaves a calibrated interval gets a wrong answer, and under encryption may spoil the texts that share
//! its ciphertexts. The simulation detects it ([`FheError::Range`]): the text is found, named, left out from that layer
//! on, and not encrypted.
//!
//! The circuit is placed as by a plan for these texts and this memory, so its levels are those of a run.
//!
//! This decrypts ciphertexts in the middle of a run. It is a tool for the owner of both model and key, on one machine,
//! and never part of a session with another party.

mod answers;
mod clear;
mod compare;
#[cfg(test)]
mod decoder_tests;
#[cfg(test)]
mod images_tests;
mod key;
mod options;
mod packed;
mod range;
mod report;
mod rung;
mod subject;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_ckks::bootstrap::Bootstrapper;
use hushed_ckks::keys::KeySpecs;
use hushed_model::{Item, Model, StepId};

pub use answers::{Answer, Retrieval, retrieval};
pub use compare::{Difference, Stage};
pub use options::{Event, OnKey, Options, OutOfRange, Which};
pub use report::Report;

use crate::choices::Choices;
use crate::error::FheError;
use crate::run::job::bootstrap;
use crate::simulate::Simulator;
use answers::answers;
use clear::Clear;
use compare::{Counted, Waiting};
use key::TestKey;
use range::settle;
use rung::Rung;
use subject::Subject;

/// Compares the rungs over `texts`, which must fit one batch unless they are in packed rows.
///
/// # Errors
/// [`FheError::Packing`] for too many texts or a text that is too long, [`FheError::Choices`] for choices of another
/// model, [`FheError::Levels`] for parameters with too few levels, [`FheError::Unsupported`] for too little memory,
/// [`FheError::File`] for a folder or disk that cannot be written. Values out of range are not an error: see
/// [`Report::out_of_range`].
pub fn verify<T: Clone + Into<Item>>(
    model: &Model,
    choices: &Choices,
    params: &Arc<CkksParams>,
    texts: &[T],
    options: &Options,
    progress: &(dyn Fn(Event) + Sync),
) -> Result<Report, FheError> {
    let texts: &[Item] = &texts.iter().cloned().map(T::into).collect::<Vec<_>>();
    if let Some(together) = options.together {
        return packed::verify(model, choices, params, texts, (options, together), progress);
    }
    let mut subject = Subject::new(model, choices, params, texts, options)?;
    let bootstrap = bootstrap(params)?;
    let on_key = options.encrypted.as_ref();
    subject.place(&bootstrap.1, on_key.and_then(|on| on.max_memory))?;
    subject.compare(texts, bootstrap, on_key, progress)
}

impl Subject<'_> {
    fn compare(
        &self,
        texts: &[Item],
        (bootstrapper, keys): (Arc<Bootstrapper>, KeySpecs),
        on_key: Option<&OnKey>,
        progress: &(dyn Fn(Event) + Sync),
    ) -> Result<Report, FheError> {
        let simulated = self.walk(texts, None, progress)?;
        let Some(on_key) = on_key else {
            return Ok(simulated);
        };
        let mut out_of_range = simulated.out_of_range;
        let mut key = TestKey::new(self, &out_of_range, bootstrapper, &keys, on_key)?;
        let mut report = self.walk(texts, Some(&mut key), progress)?;
        out_of_range.append(&mut report.out_of_range);
        report.out_of_range = out_of_range;
        Ok(report)
    }

    fn walk(
        &self,
        texts: &[Item],
        mut key: Option<&mut TestKey>,
        progress: &(dyn Fn(Event) + Sync),
    ) -> Result<Report, FheError> {
        let mut clear = Clear::new(&self.program, texts)?;
        let mut alive = self.lengths.clone();
        if let Some(key) = &mut key {
            key.start(self, &clear.embedded(), &mut alive)?;
        }
        let (exact, layout) = self.simulator(texts.len(), false)?;
        let (noisy, _) = self.simulator(texts.len(), true)?;
        let mut polynomial = Rung::simulated(self, &exact, layout, &clear.embedded())?;
        let mut predicted = Rung::simulated(self, &noisy, layout, &clear.embedded())?;
        let mut report = Report { stages: Vec::new(), answers: Vec::new(), out_of_range: Vec::new() };
        for i in 0..self.program.layers().len() {
            let layer = |rung| progress(Event::Layer { layer: i, rung });
            let mut simulated = |which, rung: &mut Rung<'_, Simulator>| {
                layer(which);
                settle(self, i, which, rung, &mut alive, &mut report.out_of_range)
            };
            let shown = simulated(Which::Polynomial, &mut polynomial)?;
            let Some(by_polynomials) = shown else {
                return Ok(report);
            };
            let Some(with_noise) = simulated(Which::Predicted, &mut predicted)? else {
                return Ok(report);
            };
            let in_clear = clear.layer(&self.program, i)?;
            let counted = Counted {
                rows: clear.compared(&alive),
                frozen: self.choices.layers.get(i).is_some_and(|l| l.frozen_row.is_some()),
            };
            let mut waiting = Waiting {
                stages: compare::stages(&in_clear, &by_polynomials, &with_noise, &counted),
                clear: in_clear,
                polynomial: by_polynomials,
                counted,
            };
            drop(with_noise);
            if let Some(key) = &mut key {
                layer(Which::Encrypted);
                let mut take = |at: StepId, found| waiting.encrypted(at, &found);
                key.layer(self, i, &mut take, &|now| progress(Event::Step(now)))?;
            }
            report.stages.extend(waiting.stages);
        }
        let pooled = clear.pool(&self.program)?;
        let mut found = vec![
            (Which::Polynomial, polynomial.pool(self, &alive)?),
            (Which::Predicted, predicted.pool(self, &alive)?),
        ];
        if let Some(key) = &mut key {
            found.push((Which::Encrypted, key.pool(self)?));
        }
        report.answers = answers(&self.model.public, &pooled, &found, &alive);
        Ok(report)
    }
}
