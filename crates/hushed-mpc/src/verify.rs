//! Where accuracy goes: the same texts in the clear, with approximated functions and rounded numbers, and privately,
//! compared after every stage.
//!
//! Both parties run here, in two threads on fresh keys, and their shares are combined: a tool for the holder of the
//! weights, never part of a session with another party.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use hushed_model::plain;
use hushed_model::tokens::TokenIds;
use hushed_model::{Block, Model, Step};
use hushed_net::memory_pair;
use hushed_twopc::share::Share;
use serde::Serialize;

use crate::{Acts, Clear, Input, Layers, Protocol, RunError, Terms, run};

/// Errors of one stage over all texts, relative to the root mean square of the clear values there.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    /// The step that ends it: a norm, or the pooling.
    pub stage: String,
    /// Clear to approximated functions and rounded numbers.
    pub approximation: f64,
    /// From there to the private run: protocols, which round at random.
    pub protocol: f64,
    /// Clear to private.
    pub total: f64,
    /// Largest single difference, clear to private, in the values' own units.
    pub worst: f64,
}

/// One text's answers.
#[derive(Clone, Debug)]
pub struct Answer {
    /// In the clear.
    pub clear: Vec<f64>,
    /// As the approximated functions give it.
    pub approximated: Vec<f64>,
    /// As the protocols give it.
    pub private: Vec<f64>,
}

/// What [`verify`] finds.
pub struct Report {
    /// Stage by stage.
    pub stages: Vec<Stage>,
    /// Text by text.
    pub answers: Vec<Answer>,
}

impl Report {
    /// The stage whose error grew most over the one before it.
    pub fn worst_stage(&self) -> Option<&Stage> {
        let before = std::iter::once(0.0).chain(self.stages.iter().map(|s| s.total));
        let grown = self.stages.iter().zip(before);
        grown
            .max_by(|(a, x), (b, y)| (a.total - x).total_cmp(&(b.total - y)))
            .map(|(stage, _)| stage)
    }
}

/// Sums over the texts, one per stage.
#[derive(Default)]
struct Sums {
    clear: f64,
    approximation: f64,
    protocol: f64,
    total: f64,
    worst: f64,
}

/// Runs the texts three ways. `progress` is called after every text.
///
/// # Errors
/// Those of the runs; the first of either party.
pub fn verify(
    model: &Model,
    texts: &[TokenIds],
    mut progress: impl FnMut(usize),
) -> Result<Report, RunError> {
    let shapes = Model::shapes_only(&model.public);
    let (client, server) = memory_pair();
    let (to_main, from_client) = channel();
    let (server_to_main, from_server) = channel();
    std::thread::scope(|scope| {
        let lengths: Vec<Input> = texts
            .iter()
            .map(|t| Input::Lengths(vec![t.ids().len()], Terms::default()))
            .collect();
        let ids: Vec<Input> = texts
            .iter()
            .map(|t| Input::Texts(vec![t.clone()], Terms::default()))
            .collect();
        let server = scope.spawn(move || {
            let mut session = Protocol::establish(server, Arc::new(Layers::default()))?;
            party(&mut session, model, &lengths, &server_to_main)
        });
        let client = scope.spawn(move || {
            let mut session = Protocol::establish(client, Arc::new(Layers::default()))?;
            party(&mut session, &shapes, &ids, &to_main)
        });
        let report = compare(model, texts, &from_client, &from_server, &mut progress);
        // A party that stopped has closed its end, which ended `compare`; its error is the cause.
        for done in [client.join(), server.join()] {
            match done {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        report
    })
}

/// Whether a stage ends here.
fn ends(step: &Step) -> bool {
    matches!(step.block, Block::Norm(_) | Block::Pool(_))
}

/// One party's runs, with a copy of its share after every stage.
fn party(
    party: &mut Protocol,
    model: &Model,
    inputs: &[Input],
    out: &Sender<Acts<Share>>,
) -> Result<(), RunError> {
    let program = model.program();
    for input in inputs {
        // A closed channel means that the other side of `verify` has stopped: nothing is left to compare.
        let mut open = true;
        run(party, &program, input, |step, x| {
            if ends(step) && open {
                open = out.send(x.clone()).is_ok();
            }
        })?;
        if !open {
            return Ok(());
        }
    }
    Ok(())
}

fn compare(
    model: &Model,
    texts: &[TokenIds],
    client: &Receiver<Acts<Share>>,
    server: &Receiver<Acts<Share>>,
    progress: &mut impl FnMut(usize),
) -> Result<Report, RunError> {
    let program = model.program();
    let stages: Vec<&Step> = program.steps().iter().filter(|s| ends(s)).collect();
    let mut sums: Vec<Sums> = stages.iter().map(|_| Sums::default()).collect();
    let mut answers = Vec::with_capacity(texts.len());
    let mut in_clear = Clear::default();
    for (done, text) in texts.iter().enumerate() {
        let (mut clear, mut approx) = (Vec::new(), Vec::new());
        plain::run(&program, vec![text.clone()], |step, x| {
            if ends(step) {
                clear.push(x.values.data().to_vec());
            }
        })?;
        let input = Input::Texts(vec![text.clone()], Terms::default());
        run(&mut in_clear, &program, &input, |step, x| {
            if ends(step) {
                approx.push(x.values());
            }
        })?;
        let mut last = Vec::new();
        for ((sum, clear), approx) in sums.iter_mut().zip(&clear).zip(&approx) {
            let (Ok(a), Ok(b)) = (client.recv(), server.recv()) else {
                return Ok(Report {
                    stages: Vec::new(),
                    answers,
                });
            };
            // The server's has the numbers of a norm that waits.
            last = b.opened(&a).values();
            sum.add(clear, approx, &last);
        }
        let end = |v: &[Vec<f64>]| model.public.finish(v.last().cloned().unwrap_or_default());
        answers.push(Answer {
            clear: end(&clear),
            approximated: end(&approx),
            private: model.public.finish(last),
        });
        progress(done + 1);
    }
    let stages = stages.iter().zip(sums);
    Ok(Report {
        stages: stages
            .map(|(step, s)| s.stage(step.id.to_string()))
            .collect(),
        answers,
    })
}

impl Sums {
    fn add(&mut self, clear: &[f64], approx: &[f64], private: &[f64]) {
        for ((c, a), p) in clear.iter().zip(approx).zip(private) {
            self.clear += c * c;
            self.approximation += (a - c).powi(2);
            self.protocol += (p - a).powi(2);
            self.total += (p - c).powi(2);
            self.worst = self.worst.max((p - c).abs());
        }
    }

    fn stage(self, stage: String) -> Stage {
        let relative = |x: f64| (x / self.clear.max(f64::MIN_POSITIVE)).sqrt();
        Stage {
            stage,
            approximation: relative(self.approximation),
            protocol: relative(self.protocol),
            total: relative(self.total),
            worst: self.worst,
        }
    }
}
