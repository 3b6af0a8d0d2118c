//! GPT-2 and LLaMA-7B at their published sizes with random weights: the first token after a prompt, and for GPT-2 a
//! later one from the cache.

use std::sync::Arc;

use hushed_math::cpu::Cpu;
use hushed_model::{NetworkConfig, Program, TokenIds, gpt2_shapes, largest, llama_shapes, plain, random_gpt2};
use hushed_mpc::{Adds, Input, Layers, Prefix, Protocol, StepCost, Terms, TextCache, next_token, tokens_of_rows};
use hushed_net::{Party, Session};
use hushed_serve::MAX_AHEAD;
use serde_json::{Value, json};

use super::{BenchError, Between, How, Whole, median};
use crate::machine;
use crate::model::{operations, total};
use crate::stored::Stored;

const GPT2: &str = "gpt2";
const LLAMA: &str = "llama-7b";

/// A prompt, and the token to measure.
pub struct GenerateCase {
    model: &'static str,
    /// Tokens of the prompt.
    prompt: usize,
    /// Tokens of a public prefix before it.
    public: usize,
    token: Token,
    /// The weights, at a server that reads them from disk.
    stored: Option<Stored>,
    /// The model's answer in the clear, at the server.
    clear: Option<Clear>,
}

/// The most likely token in the clear, and the lead of its logit.
struct Clear {
    token: u32,
    lead: f64,
}

/// Which token.
#[derive(Clone, Copy, PartialEq)]
enum Token {
    /// The token after the prompt.
    First,
    /// A later token, with the rows before it cached.
    Later,
    /// The same, with the weights held transformed for one row.
    Held,
    /// The same, with products by weights and tables made ahead.
    Ahead,
    /// The same, with a pass that verifies [`DRAFTS`] drafts, whose rows are then dropped.
    Drafts,
}

/// Drafts per pass.
const DRAFTS: usize = 3;

pub fn cases() -> Vec<Box<dyn Whole>> {
    let case = |(model, public, prompt, token)| {
        let case: Box<dyn Whole> = Box::new(GenerateCase { model, prompt, public, token, stored: None, clear: None });
        case
    };
    let cases = [
        (GPT2, 0, 64, Token::First),
        (GPT2, 512, 64, Token::First),
        (GPT2, 0, 128, Token::First),
        (GPT2, 0, 32, Token::Later),
        (GPT2, 0, 128, Token::Later),
        (GPT2, 0, 128, Token::Held),
        (GPT2, 0, 32, Token::Ahead),
        (GPT2, 0, 128, Token::Ahead),
        (GPT2, 384, 128, Token::Ahead),
        // A text has at most 256 rows, including those that the runs add.
        (GPT2, 768, 240, Token::Ahead),
        (GPT2, 0, 128, Token::Drafts),
        (LLAMA, 0, 8, Token::First),
    ];
    cases.map(case).into()
}

impl Whole for GenerateCase {
    fn params(&self) -> Value {
        let token = match self.token {
            Token::First => "first",
            Token::Later => "later",
            Token::Held => "later, weights held transformed",
            Token::Ahead => "later, products made ahead",
            Token::Drafts => "later, with 3 drafts, products made ahead",
        };
        let weights = match self.model {
            LLAMA => "random, read from disk",
            _ => "random",
        };
        let mut params = json!({ "model": self.model, "prompt": self.prompt, "token": token, "weights": weights });
        if self.public > 0 {
            params["public"] = json!(self.public);
        }
        params
    }

    fn wanted(&self, how: How<'_>) -> bool {
        let named = how.only.is_some_and(|only| only.contains("llama"));
        how.wants(&self.params()) && (self.model != LLAMA || named)
    }

    fn prepare(&mut self) -> Result<(), BenchError> {
        if self.model == LLAMA {
            let config = NetworkConfig::llama_7b();
            let stored = Stored::new(&config)?;
            self.clear = Some(clear(&stored.program(&config)?, self.prompt, &config)?);
            self.stored = Some(stored);
        }
        Ok(())
    }

    fn measure(&self, session: Session, runs: usize, between: Between) -> Result<(Session, Value), BenchError> {
        measure(self, session, runs, between)
    }
}

/// Token ids spread over the table.
fn ids(rows: usize, config: &NetworkConfig) -> TokenIds {
    let ids = (0..rows as u32).map(|i| (i * 7919 + 101) % config.vocabulary as u32);
    TokenIds::new(ids.collect())
}

/// The first token after the prompt in the clear.
fn clear(program: &Program, prompt: usize, config: &NetworkConfig) -> Result<Clear, BenchError> {
    let logits = plain::run(program, vec![ids(prompt, config)], |_, _| ())?;
    let logits = logits.values.data();
    let token = largest(logits);
    let lead = |(other, logit): (usize, &f64)| match other == token as usize {
        true => f64::INFINITY,
        false => logits[token as usize] - logit,
    };
    let lead = logits.iter().enumerate().map(lead).fold(f64::INFINITY, f64::min);
    Ok(Clear { token, lead })
}

/// Makes as many passes ahead as are made together, and reports the cost per token.
fn make_ahead(backend: &mut Protocol, program: &Program) -> Result<Value, BenchError> {
    let (seen, used) = (backend.costs().len(), machine::process_seconds());
    backend.make_ahead(program, usize::from(MAX_AHEAD), Terms::default())?;
    let costs: Vec<StepCost> = backend.costs().iter().skip(seen).cloned().collect();
    let (time, sent, received, _) = total(&costs);
    let each = |sum: f64| sum / f64::from(MAX_AHEAD);
    Ok(json!({
        "passes": MAX_AHEAD,
        "seconds_a_token": each(time.as_secs_f64()),
        "cpu_seconds_a_token": each(machine::process_seconds() - used),
        "bytes_up_a_token": each(sent as f64),
        "bytes_down_a_token": each(received as f64),
    }))
}

fn measure(
    case: &GenerateCase,
    session: Session,
    runs: usize,
    between: Between,
) -> Result<(Session, Value), BenchError> {
    let config = match case.model {
        LLAMA => NetworkConfig::llama_7b(),
        _ => NetworkConfig::gpt2(),
    };
    let program = match (&case.stored, session.party()) {
        (Some(stored), _) => stored.program(&config)?,
        (None, Party::Client) if case.model == LLAMA => llama_shapes(&config).program(),
        (None, Party::Client) => gpt2_shapes(&config).program(),
        (None, Party::Server) => random_gpt2(&config, 1).program(),
    };
    let layers = Arc::new(match &case.stored {
        Some(_) => Layers::streaming(&program)?,
        None => Layers::default(),
    });
    let prefix = match (case.public, session.party()) {
        (0, _) => None,
        (rows, Party::Client) => Some(Prefix::of_rows(rows)?),
        (rows, Party::Server) => Some(Prefix::run(&program, ids(rows, &config))?),
    };
    let prefix = prefix.map(Arc::new);
    let fresh = || match &prefix {
        Some(prefix) => TextCache::after(Arc::clone(prefix)),
        None => TextCache::default(),
    };
    let mut backend = Protocol::establish(session, Arc::clone(&layers), between.forms())?;
    let mut text = fresh();
    let input = |is_client: bool, rows: usize| match is_client {
        true => Input::Texts(vec![ids(rows, &config)], Terms::default()),
        false => Input::Lengths(vec![rows], Terms::default()),
    };
    let pass = |backend: &mut Protocol, text: &mut TextCache, rows: usize| {
        let input = input(backend.ctx().is_client(), rows);
        next_token(backend, &program, text, &input, None)
    };
    // The first run converts the weights to integers, and is discarded. Weights read from disk are converted in every
    // run. What comes before the measured runs is not over the imitated network.
    backend.ctx().session.shape(None);
    if case.model != LLAMA {
        pass(&mut backend, &mut text, case.prompt)?;
    }
    let later = case.token != Token::First;
    if case.token == Token::Held && !backend.ctx().is_client() {
        layers.make_ready(1, u64::MAX)?;
    }
    let made = match case.token {
        Token::Ahead | Token::Drafts => Some(make_ahead(&mut backend, &program)?),
        _ => None,
    };
    let mut token = None;
    let (mut all_runs, mut busy): (Vec<Vec<StepCost>>, Vec<f64>) = (Vec::new(), Vec::new());
    for run in 0..runs + usize::from(later) {
        backend.ctx().session.shape(between.shape().filter(|_| !later || run > 0));
        let (seen, used) = (backend.costs().len(), machine::process_seconds());
        if case.token == Token::Drafts {
            let rows = 1 + DRAFTS;
            let input = input(backend.ctx().is_client(), rows);
            let adds = Adds::default();
            backend.spending_ahead(&[1; 1 + DRAFTS], |on| tokens_of_rows(on, &program, &mut text, &input, adds, 1))?;
            text.keep(text.rows() - DRAFTS)?;
        } else if case.token == Token::Ahead {
            backend.spending_ahead(&[1], |on| pass(on, &mut text, 1))?;
        } else if later {
            pass(&mut backend, &mut text, 1)?;
        } else {
            text = fresh();
            token = pass(&mut backend, &mut text, case.prompt)?;
        }
        // For later tokens, the first run prepares the layouts of one row.
        if !later || run > 0 {
            all_runs.push(backend.costs().iter().skip(seen).cloned().collect());
            busy.push(machine::process_seconds() - used);
        }
    }
    let seconds = |costs: &Vec<StepCost>| total(costs).0.as_secs_f64();
    let mean = |sum: u64| sum / runs.max(1) as u64;
    let every = || all_runs.iter().flatten().map(|c| &c.stats);
    let row = match backend.ctx().is_client() {
        true => json!({
            "name": "generate",
            "params": case.params(),
            "threads": std::thread::available_parallelism().map_or(1, usize::from),
            "seconds": median(all_runs.iter().map(seconds).collect()),
            "runs": runs,
            "bytes_up": mean(every().map(|s| s.bytes_sent).sum()),
            "bytes_down": mean(every().map(|s| s.bytes_received).sum()),
            "rounds": mean(every().map(|s| s.rounds).sum()),
            "cpu_seconds": median(busy),
            "peak_rss": machine::peak_memory(),
            "kernel": Cpu::get().kernel_name(),
            "token": token,
            "ahead": made,
            "ops": all_runs.last().map(|costs| operations(costs)),
        }),
        false => json!({
            "cpu_seconds": median(busy),
            "peak_rss": machine::peak_memory(),
            "clear_token": case.clear.as_ref().map(|clear| clear.token),
            "clear_lead": case.clear.as_ref().map(|clear| clear.lead),
        }),
    };
    Ok((backend.into_ctx().session, row))
}
