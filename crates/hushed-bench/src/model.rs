//! Layers, whole models and a vision transformer with random weights in realistic ranges, with a breakdown of their
//! time and bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hushed_math::cpu::Cpu;
use hushed_model::{
    Item, Matrix, NetworkConfig, Pixels, Pool, Program, TokenIds, cosine, llama_shapes, network_shapes, plain,
    random_llama, random_network, random_vit, vit_shapes,
};
use hushed_mpc::{Input, Layers, Protocol, StepCost, Terms, run};
use hushed_net::{Party, Session};
use serde_json::{Value, json};

use super::{BenchError, Between, How, Whole, median};
use crate::machine;

/// The preset that takes an image.
const VISION: &str = "vit-base";

/// The decoder preset, of which one layer is measured, with all rows going through it.
const DECODER: &str = "llama-7b";

/// One case to run.
pub struct ModelCase {
    /// `minilm`, `bert-base`, `bert-large`, `vit-base`, `llama-7b`.
    preset: &'static str,
    config: NetworkConfig,
    tokens: usize,
    /// One layer, without embedding and pooling.
    layer: bool,
}

impl Whole for ModelCase {
    fn params(&self) -> Value {
        json!({ "model": self.preset, "tokens": self.tokens, "weights": "random" })
    }

    /// Cases that take minutes and several gigabytes run only if named.
    fn wanted(&self, how: How<'_>) -> bool {
        let long = match self.layer {
            true => self.preset == DECODER,
            false => ["bert-large", VISION].contains(&self.preset),
        };
        how.wants(&self.params()) && (!long || how.only.is_some())
    }

    fn measure(&self, session: Session, runs: usize, between: Between) -> Result<(Session, Value), BenchError> {
        measure(self, session, runs, between)
    }
}

impl ModelCase {
    fn name(&self) -> &'static str {
        if self.layer { "layer" } else { "model" }
    }

    /// The program with shapes only, or with random numbers.
    fn program(&self, numbers: bool) -> Program {
        match (self.preset, numbers) {
            (VISION, false) => vit_shapes(&self.config).program(),
            (VISION, true) => random_vit(&self.config, 1).program(),
            (DECODER, false) => llama_shapes(&self.config).program_of_all_rows(),
            (DECODER, true) => random_llama(&self.config, 1).program_of_all_rows(),
            (_, false) => network_shapes(&self.config, Pool::Mean).program(),
            (_, true) => random_network(&self.config, Pool::Mean, 1).program(),
        }
    }

    /// Whether a step is part of the measurement.
    fn counts(&self, cost: &StepCost) -> bool {
        !self.layer || cost.step.layer().is_some()
    }
}

/// One layer of each size.
pub fn layers() -> Vec<Box<dyn Whole>> {
    let sizes = [("minilm", 16), ("minilm", 128), ("bert-base", 128), ("bert-large", 128), (DECODER, 8)];
    let one = |(preset, tokens)| {
        let mut config = config(preset);
        config.layers = 1;
        // The lookup is not measured, so a small table saves time and memory.
        config.vocabulary = 256;
        boxed(ModelCase { preset, config, tokens, layer: true })
    };
    sizes.map(one).into()
}

/// Whole models, including the private lookup.
pub fn models() -> Vec<Box<dyn Whole>> {
    let sizes = [("minilm", 16), ("minilm", 128), ("bert-base", 128), ("bert-large", 128), (VISION, 197)];
    let whole = |(preset, tokens)| boxed(ModelCase { preset, config: config(preset), tokens, layer: false });
    sizes.map(whole).into()
}

fn boxed(case: ModelCase) -> Box<dyn Whole> {
    Box::new(case)
}

fn config(preset: &str) -> NetworkConfig {
    match preset {
        VISION => return NetworkConfig::vit_base(),
        DECODER => return NetworkConfig::llama_7b(),
        _ => {}
    }
    let (layers, width, heads, hidden) = match preset {
        "minilm" => (6, 384, 12, 1536),
        "bert-base" => (12, 768, 12, 3072),
        _ => (24, 1024, 16, 4096),
    };
    NetworkConfig { layers, width, heads, hidden, ..NetworkConfig::large() }
}

fn measure(case: &ModelCase, session: Session, runs: usize, between: Between) -> Result<(Session, Value), BenchError> {
    let client = session.party() == Party::Client;
    let random = case.program(true);
    let own = if client { case.program(false) } else { random.clone() };
    let before = session.stats();
    let start = Instant::now();
    let mut backend = Protocol::establish(session, Arc::new(Layers::default()), between.forms())?;
    let setup = start.elapsed();
    let spent = backend.ctx().session.stats().since(&before);
    let setup_bytes = spent.bytes_sent + spent.bytes_received;

    // The first run converts the weights to integers, and is discarded.
    let mut all_runs: Vec<Vec<StepCost>> = Vec::new();
    let mut busy = Vec::new();
    let mut answer = None;
    for run in 0..=runs {
        backend.ctx().session.shape(between.shape().filter(|_| run > 0));
        let (seen, used) = (backend.costs().len(), machine::processor_seconds());
        answer = forward(&own, &mut backend, case)?;
        if run > 0 {
            let costs = backend.costs().iter().skip(seen);
            all_runs.push(costs.filter(|c| case.counts(c)).cloned().collect());
            busy.push(machine::processor_seconds() - used);
        }
    }
    let row = if let Some(answer) = answer {
        let (error, cosine) = compare(&random, case, &answer)?;
        let seconds = |costs: &Vec<StepCost>| total(costs).0.as_secs_f64();
        let mean = |sum: u64| sum / runs.max(1) as u64;
        let every = || all_runs.iter().flatten().map(|c| &c.stats);
        json!({
            "name": case.name(),
            "params": case.params(),
            "threads": std::thread::available_parallelism().map_or(1, usize::from),
            "seconds": median(all_runs.iter().map(seconds).collect()),
            "runs": runs,
            "setup_seconds": setup.as_secs_f64(),
            "setup_bytes": setup_bytes,
            "bytes_up": mean(every().map(|s| s.bytes_sent).sum()),
            "bytes_down": mean(every().map(|s| s.bytes_received).sum()),
            "rounds": mean(every().map(|s| s.rounds).sum()),
            "cpu_seconds": median(busy),
            "peak_rss": machine::peak_memory(),
            "error": error,
            "precision": (error > 0.0).then(|| -error.log2()),
            "cosine": cosine,
            "kernel": Cpu::get().kernel_name(),
            "ops": all_runs.last().map(|costs| operations(costs)),
        })
    } else {
        json!({ "cpu_seconds": median(busy), "peak_rss": machine::peak_memory() })
    };
    Ok((backend.into_ctx().session, row))
}

/// The pooled row or the logits, at the client.
fn forward(program: &Program, backend: &mut Protocol, case: &ModelCase) -> Result<Option<Vec<f64>>, BenchError> {
    let client = backend.ctx().is_client();
    let input = if client {
        Input::of(vec![item(case)], Terms::default())
    } else {
        Input::Lengths(vec![case.tokens], Terms::default())
    };
    let pooled = run(backend, program, &input, |_, _| ())?;
    let (share, format) = pooled.share();
    let words = backend.ctx().open_to(Party::Client, share)?;
    Ok(words.map(|words| words.iter().map(|w| format.decode(*w)).collect()))
}

/// Pixels of all shades, or token ids spread over the table.
fn item(case: &ModelCase) -> Item {
    if case.preset != VISION {
        return TokenIds::new(ids(case)).into();
    }
    let (patches, inputs) = (case.tokens - 1, 3 * case.config.patch_side.pow(2));
    let point = |i: usize| ((i * 7919 + 101) % 256) as f32 / 127.5 - 1.0;
    let data = (0..patches * inputs).map(point).collect();
    let patches = Matrix::new(patches, inputs, data);
    Pixels::new(patches.unwrap_or_else(|| Matrix::zero(0, inputs))).into()
}

/// Token ids spread over the table.
fn ids(case: &ModelCase) -> Vec<u32> {
    let vocabulary = case.config.vocabulary as u32;
    (0..case.tokens as u32).map(|i| (i * 7919 + 101) % vocabulary).collect()
}

/// Largest error and cosine, compared with the model in the clear.
fn compare(program: &Program, case: &ModelCase, answer: &[f64]) -> Result<(f64, f64), BenchError> {
    let clear = plain::run(program, vec![item(case)], |_, _| ())?;
    let clear = clear.values.data();
    let differences = answer.iter().zip(clear).map(|(a, b)| (a - b).abs());
    Ok((differences.fold(0.0, f64::max), cosine(answer, clear)))
}

pub fn total(costs: &[StepCost]) -> (Duration, u64, u64, u64) {
    costs.iter().fold((Duration::ZERO, 0, 0, 0), |sum, c| {
        let s = &c.stats;
        (sum.0 + c.time, sum.1 + s.bytes_sent, sum.2 + s.bytes_received, sum.3 + s.rounds)
    })
}

/// Calls, seconds, bytes and rounds per operation, over all layers.
pub fn operations(costs: &[StepCost]) -> Value {
    let mut by_name: BTreeMap<String, Vec<StepCost>> = BTreeMap::new();
    for cost in costs {
        let name = cost.step.within_layer().to_string();
        by_name.entry(name).or_default().push(cost.clone());
    }
    let rows = by_name.iter().map(|(name, costs)| {
        let (time, up, down, rounds) = total(costs);
        json!({
            "op": name, "calls": costs.len(), "seconds": time.as_secs_f64(),
            "bytes_up": up, "bytes_down": down, "rounds": rounds,
        })
    });
    rows.collect()
}
