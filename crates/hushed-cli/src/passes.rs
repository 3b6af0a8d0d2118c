//! Texts in passes: how they are batched, how far they are, what they cost.

use std::collections::BTreeMap;

use hushed_model::counted;
use hushed_serve::{Answered, Client, Kind, MAX_AHEAD, Made, Options, Pass, Progress, Stats, StepCost};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::connect::at_least_one;
use crate::input::Truncate;
use crate::output::Output;

/// How texts are put into passes.
#[derive(clap::Args)]
pub struct PassArgs {
    #[command(flatten)]
    pub too_long: Truncate,

    /// Pad texts to a multiple of N tokens: the server learns only the padded lengths
    #[arg(long, value_name = "N", value_parser = at_least_one, env = "HUSHED_BUCKET")]
    pub bucket: Option<usize>,

    /// Maximum number of texts that go through the model together (fewer if the server's --max-pass-tokens requires)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one, env = "HUSHED_BATCH")]
    pub batch: usize,

    /// Look up token vectors in the model's table, if the server's operator has made it public; fetched once and kept
    #[arg(long, env = "HUSHED_PUBLIC_TABLE")]
    pub public_table: bool,

    /// Have the products with weights and tables made for N texts at a time, before they are run (fewer if the server's
    /// --max-ahead requires). A text then takes less time and traffic from when it is known; in all it takes as much.
    /// Not of images
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = clap::value_parser!(u16).range(..=i64::from(MAX_AHEAD)),
        env = "HUSHED_AHEAD"
    )]
    pub ahead: u16,
}

impl PassArgs {
    /// Whether an option is given that images do not have.
    pub fn are_of_texts(&self) -> bool {
        self.bucket.is_some() || self.public_table || self.ahead > 0
    }

    pub fn options(&self) -> Options {
        Options {
            too_long: self.too_long.choice(),
            bucket: self.bucket,
            batch: self.batch,
            public_table: self.public_table,
            ahead: self.ahead,
        }
    }
}

/// A bar over the layers of all texts, and what moves it.
pub fn progress(
    out: &Output,
    client: &Client,
    texts: usize,
    what: &'static str,
) -> (ProgressBar, Box<dyn FnMut(Progress) + Send>) {
    let layers = client.public().config.layers as u64;
    let bar = out.progress(texts as u64 * layers, what);
    let shown = bar.clone();
    let advance = move |p: Progress| {
        shown.set_position(p.text as u64 * layers + (p.layer * p.sharing) as u64);
    };
    (bar, Box::new(advance))
}

/// What all texts cost together.
#[derive(Default)]
pub struct Sum {
    tokens: Vec<usize>,
    /// What the server learned of these.
    rows: Vec<usize>,
    seconds: f64,
    phases: Vec<(&'static str, f64)>,
    /// What was made ahead for them.
    pub made: Made,
}

impl Sum {
    pub fn add<T>(&mut self, index: usize, answer: &Answered<T>) {
        self.tokens.push(answer.tokens);
        self.rows.push(answer.rows);
        if index == answer.pass.first {
            self.add_pass(&answer.pass);
        }
    }

    /// Adds answers that are not in the order in which they ran.
    pub fn add_all<T>(&mut self, answers: &[Answered<T>]) {
        let mut passes = BTreeMap::new();
        for answer in answers {
            self.tokens.push(answer.tokens);
            self.rows.push(answer.rows);
            passes.insert(answer.pass.first, &answer.pass);
        }
        passes.into_values().for_each(|pass| self.add_pass(pass));
    }

    fn add_pass(&mut self, pass: &Pass) {
        self.seconds += pass.cost.time.as_secs_f64();
        for cost in &pass.sites {
            let (name, seconds) = (phase(cost), cost.time.as_secs_f64());
            match self.phases.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += seconds,
                None => self.phases.push((name, seconds)),
            }
        }
    }

    pub fn json(&self, setup: f64, stats: &Stats) -> Value {
        let phases = self.phases.iter();
        let phases: Vec<Value> = std::iter::once(&("set-up", setup))
            .chain(phases)
            .map(|(phase, seconds)| json!({ "phase": phase, "seconds": seconds }))
            .collect();
        json!({
            "texts": self.tokens.len(),
            "tokens": self.tokens,
            "padded_tokens": self.rows,
            "seconds": self.seconds,
            "setup_seconds": setup,
            "phases": phases,
            "bytes_up": stats.bytes_sent,
            "bytes_down": stats.bytes_received,
            "wire_bytes_up": stats.wire_bytes_sent,
            "wire_bytes_down": stats.wire_bytes_received,
            "rounds": stats.rounds,
            "ahead": (self.made.passes > 0).then(|| json!({
                "texts": self.made.passes,
                "seconds": self.made.cost.time.as_secs_f64(),
                "bytes_up": self.made.cost.stats.bytes_sent,
                "bytes_down": self.made.cost.stats.bytes_received,
            })),
        })
    }

    /// In words, of things that have a number of units each.
    pub fn words(&self, setup: f64, stats: &Stats, (what, unit): (&str, &str)) -> String {
        let made = match self.made.passes {
            0 => String::new(),
            texts => format!(
                ", of these {:.1} MB and {:.2} s more made products of {} ahead",
                (self.made.cost.stats.bytes_sent + self.made.cost.stats.bytes_received) as f64 / 1e6,
                self.made.cost.time.as_secs_f64(),
                counted(texts, what),
            ),
        };
        format!(
            "{} in {:.2} s after {setup:.2} s of set-up; {:.1} MB up, {:.1} MB down, {}{made}; \
             the server learned the number of {what}s and of {unit}s{}: {:?}",
            counted(self.tokens.len(), what),
            self.seconds,
            stats.bytes_sent as f64 / 1e6,
            stats.bytes_received as f64 / 1e6,
            counted(stats.rounds, "round"),
            if self.rows == self.tokens { "" } else { ", rounded up" },
            self.rows,
        )
    }
}

/// The phase that a step counts towards in the summary.
fn phase(cost: &StepCost) -> &'static str {
    match cost.step.kind() {
        Kind::Embed => "lookup",
        Kind::Norm => "norms",
        Kind::Attention => "attention",
        Kind::FeedForward => "feed-forward",
        Kind::Add => "sums",
        Kind::Answer | Kind::Outside => "answer",
    }
}
