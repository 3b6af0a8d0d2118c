//! Measures where accuracy is lost: runs the same texts or images in the clear, with approximated functions and rounded
//! numbers, and privately, and compares them after every stage. For a model that generates, it compares the token after
//! each row of a text, found privately as in generation, with all rows of the text in one pass.
//!
//! Both parties run here, in two threads with fresh keys, and their shares are combined: a tool for the owner of the
//! weights, never part of a session with another party.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use hushed_model::plain;
use hushed_model::{Block, Item, Model, Program, Step, largest};
use hushed_net::memory_pair;
use hushed_twopc::Link;
use hushed_twopc::share::Share;
use serde::Serialize;

use crate::circuit::cache::Cache;
use crate::circuit::prefix::{Prefix, without_head};
use crate::circuit::token::{Adds, open_largest, predicts_tokens};
use crate::shares::Shares;
use crate::{Acts, Clear, Input, Layers, Protocol, RunError, Terms, run, run_next};

/// One stage's errors over all texts, relative to the root mean square of the clear values there.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    /// The step that ends it: a norm, the pooling or the head.
    pub stage: String,
    /// From the clear run to the one with approximated functions and rounded numbers.
    pub approximation: f64,
    /// From there to the private run: the protocols round at random.
    pub protocol: f64,
    /// From the clear to the private run.
    pub total: f64,
    /// The largest single difference between clear and private, in the values' own units.
    pub worst: f64,
}

/// One text's answers.
#[derive(Clone, Debug)]
pub struct Answer {
    /// In the clear.
    pub clear: Vec<f64>,
    /// With the approximated functions.
    pub approximated: Vec<f64>,
    /// With the protocols.
    pub private: Vec<f64>,
}

/// The token after a row of a text, for a model that generates.
#[derive(Clone, Debug, Serialize)]
pub struct Position {
    /// The text.
    pub text: usize,
    /// The row.
    pub row: usize,
    /// The likeliest token in the clear.
    pub clear: u32,
    /// The token found privately.
    pub private: u32,
    /// The lead of the likeliest token's clear logit over all others.
    pub margin: f64,
}

/// What [`verify`] finds.
#[derive(Default)]
pub struct Report {
    /// One entry per stage.
    pub stages: Vec<Stage>,
    /// One per text; empty for a model that generates.
    pub answers: Vec<Answer>,
    /// One per row of every text, for a model that generates.
    pub positions: Vec<Position>,
}

impl Report {
    /// The stage at which the error grew most.
    pub fn worst_stage(&self) -> Option<&Stage> {
        let before = std::iter::once(0.0).chain(self.stages.iter().map(|s| s.total));
        let grown = self.stages.iter().zip(before);
        grown.max_by(|(a, x), (b, y)| (a.total - x).total_cmp(&(b.total - y))).map(|(stage, _)| stage)
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

/// What a party sends to the comparison.
enum Sent {
    /// Its share after a stage.
    Stage(Acts<Share>),
    /// At the client: the tokens after the rows of a text.
    Tokens(Vec<u32>),
}

/// Runs texts or images in three ways, calling `progress` after each item. Texts that begin with rows of the public
/// `head` are run behind these.
///
/// # Errors
/// The first error of either party's runs.
pub fn verify<T: Clone + Into<Item>>(
    model: &Model,
    items: &[T],
    head: &[u32],
    mut progress: impl FnMut(usize),
) -> Result<Report, RunError> {
    let whole: Vec<Item> = items.iter().cloned().map(Into::into).collect();
    let (public, items): (Vec<usize>, Vec<Item>) = whole.iter().map(|item| without_head(head, item.clone())).unzip();
    let most = public.iter().copied().max().unwrap_or(0);
    let ran = Prefix::of_head(&model.program(), head.get(..most).unwrap_or(head))?;
    let ran: Vec<Arc<Prefix>> = public.iter().map(|&rows| Arc::new(ran.first(rows))).collect();
    let none = public.iter().map(|&rows| Ok(Arc::new(Prefix::of_rows(rows)?)));
    let none: Vec<Arc<Prefix>> = none.collect::<Result<_, RunError>>()?;
    let shapes = Model::shapes_only(&model.public);
    let (client, server) = memory_pair();
    let (to_main, from_client) = channel();
    let (server_to_main, from_server) = channel();
    std::thread::scope(|scope| {
        let lengths: Vec<Input> =
            items.iter().map(|item| Input::Lengths(vec![item.rows().total], Terms::default())).collect();
        let known: Vec<Input> = items.iter().map(input).collect();
        let prefixes = &ran;
        let server = scope.spawn(move || {
            let mut session = Protocol::establish(server, Arc::new(Layers::default()), Link::LAN)?;
            party(&mut session, model, (&lengths, prefixes), &server_to_main)
        });
        let client = scope.spawn(move || {
            let mut session = Protocol::establish(client, Arc::new(Layers::default()), Link::LAN)?;
            party(&mut session, &shapes, (&known, &none), &to_main)
        });
        let report = compare(model, (&whole, &items, &ran), &from_client, &from_server, &mut progress);
        // A party that stopped closed its channel, which ended `compare`; its error is the cause.
        for done in [client.join(), server.join()] {
            match done {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        report
    })
}

/// The client's input.
fn input(item: &Item) -> Input {
    Input::of(vec![item.clone()], Terms::default())
}

/// Whether a stage ends here.
fn ends(step: &Step) -> bool {
    matches!(step.block, Block::Norm(_) | Block::Pool(_) | Block::Vocabulary(_) | Block::Head(_) | Block::Classes(_))
}

/// Runs one party and sends a copy of its share after every stage.
fn party(
    party: &mut Protocol,
    model: &Model,
    (inputs, prefixes): (&[Input], &[Arc<Prefix>]),
    out: &Sender<Sent>,
) -> Result<(), RunError> {
    let program = model.program_of_all_logits();
    for (input, prefix) in inputs.iter().zip(prefixes) {
        // A closed channel means that the other side of `verify` has stopped, so nothing is left to compare.
        let mut open = true;
        let last = behind(party, &program, prefix, input, |step, x| {
            if ends(step) && open {
                open = out.send(Sent::Stage(x.clone())).is_ok();
            }
        })?;
        if predicts_tokens(&program) {
            let tokens = open_largest(party, &last, Adds::default(), 1)?;
            if let Some(tokens) = tokens {
                let tokens = tokens.into_iter().flatten().collect();
                open = open && out.send(Sent::Tokens(tokens)).is_ok();
            }
        }
        if !open {
            return Ok(());
        }
    }
    Ok(())
}

/// One run of a text behind the rows of a prefix, or of an item without one.
fn behind<S: Shares>(
    on: &mut S,
    program: &Program,
    prefix: &Arc<Prefix>,
    input: &Input,
    see: impl FnMut(&Step, &Acts<S::Share>),
) -> Result<Acts<S::Share>, RunError> {
    match prefix.rows() {
        0 => run(on, program, input, see),
        _ => run_next(on, program, &mut Cache::after(Arc::clone(prefix)), input, see),
    }
}

fn compare(
    model: &Model,
    (whole, items, prefixes): (&[Item], &[Item], &[Arc<Prefix>]),
    client: &Receiver<Sent>,
    server: &Receiver<Sent>,
    progress: &mut impl FnMut(usize),
) -> Result<Report, RunError> {
    let program = model.program_of_all_logits();
    let stages: Vec<&Step> = program.steps().iter().filter(|s| ends(s)).collect();
    let mut sums: Vec<Sums> = stages.iter().map(|_| Sums::default()).collect();
    let mut report = Report::default();
    let mut in_clear = Clear::default();
    for (done, ((whole, item), prefix)) in whole.iter().zip(items).zip(prefixes).enumerate() {
        let (mut clear, mut approx) = (Vec::new(), Vec::new());
        plain::run(&program, vec![whole.clone()], |step, x| {
            if ends(step) {
                let rows = x.values.data().chunks_exact(x.values.cols().max(1));
                let public = if rows.len() > prefix.rows() { prefix.rows() } else { 0 };
                clear.push(rows.skip(public).flatten().copied().collect::<Vec<f64>>());
            }
        })?;
        behind(&mut in_clear, &program, prefix, &input(item), |step, x| {
            if ends(step) {
                approx.push(x.values());
            }
        })?;
        let mut last = Vec::new();
        for ((sum, clear), approx) in sums.iter_mut().zip(&clear).zip(&approx) {
            let (Ok(Sent::Stage(a)), Ok(Sent::Stage(b))) = (client.recv(), server.recv()) else {
                return Ok(report);
            };
            // Only the server's acts have the numbers of a pending norm.
            last = b.opened(&a).values();
            sum.add(clear, approx, &last);
        }
        let (clear, approx) = (clear.pop().unwrap_or_default(), approx.pop());
        if predicts_tokens(&program) {
            let Ok(Sent::Tokens(tokens)) = client.recv() else {
                return Ok(report);
            };
            let rows = clear.chunks_exact(model.body.outputs().max(1));
            let positions = rows.zip(tokens).enumerate();
            let position = |(row, (logits, private))| Position::new((done, row), logits, private);
            report.positions.extend(positions.map(position));
        } else {
            let end = |v: Vec<f64>| model.public.finish(v);
            report.answers.push(Answer {
                clear: end(clear),
                approximated: end(approx.unwrap_or_default()),
                private: end(last),
            });
        }
        progress(done + 1);
    }
    let stages = stages.iter().zip(sums);
    report.stages = stages.map(|(step, s)| s.stage(step.id.to_string())).collect();
    Ok(report)
}

impl Position {
    fn new((text, row): (usize, usize), logits: &[f64], private: u32) -> Position {
        let clear = largest(logits);
        let (mut first, mut second) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        for &logit in logits {
            second = second.max(first.min(logit));
            first = first.max(logit);
        }
        Position { text, row, clear, private, margin: first - second }
    }

    /// Whether both runs found the same token.
    pub fn agrees(&self) -> bool {
        self.clear == self.private
    }
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
