//! `hushed plan`: what a private run will cost and reveal, before it runs. Needs only the folder's public part.

mod drafts;
mod fhe;
mod machines;
mod sum;
mod words;

use std::path::PathBuf;

use clap::ValueEnum;
use hushed_model::{Graph, counted};
use hushed_mpc::plan::{Entry, Pace, Plan, PlanError, Request};
use hushed_mpc::{Answers, Link, Memory, NoLink, parse_bandwidth, parse_round_trip};
use hushed_serve::{MAX_AHEAD, MAX_DRAFTS, MAX_PASS_TOKENS, MAX_SESSIONS, Net, ServeError, read_prefix};
use serde_json::json;

use crate::connect::at_least_one;
use crate::error::CliError;
use crate::input::PublicHead;
use crate::output::Output;
use sum::Sum;

pub use fhe::{DEFAULT_SET, read_choices};

/// Print what a private run will cost and who will see what, before it runs
#[derive(clap::Args)]
#[command(
    after_help = "Bytes and rounds are exact; seconds are estimates for one core a party, without the network and with it, and \
memory is an estimate too. Forms of steps are chosen for the network, as `embed --net` has them chosen. Rounds \
are messages in sequence, two for a request and its response; `embed` reports how often the client waited, once \
for both. Several numbers of tokens are one pass over several texts, as with `embed --batch`.

With --protocol fhe the plan is for a batch that the server computes alone: levels, bootstraps, keys and memory. \
Counts are exact; seconds are counts times prices, from a table or, with --measure, of this machine.

Examples:
  hushed plan DIR --protocol 2pc --tokens 16
  hushed plan DIR --tokens 9,14,30 --bucket 16
  hushed plan DIR --tokens 16,128 --steps --json
  hushed plan DIR --tokens 16 --net internet
  hushed plan DIR --tokens 16 --rtt 40ms --bandwidth 50mbit
  hushed plan DIR --tokens 32 --max-tokens 20
  hushed plan DIR --tokens 32 --max-tokens 20 --ahead 19
  hushed plan DIR --tokens 32 --max-tokens 20 --ahead 19 --draft 3
  hushed plan DIR --tokens 32 --public-prefix system.txt
  hushed plan DIR --tokens 8 --max-memory 8 --max-sessions 1
  hushed plan DIR --images 1 --answers logits
  hushed plan DIR --protocol fhe --rows 128 --texts 256 --calibration calibration-fhe.json \\
    --max-memory 22
  hushed plan DIR --protocol fhe --rows 128 --machines 1,4,16,64 --cores 2 --net 10gbit
  hushed plan DIR --protocol fhe --calibration DIR/calibration-fhe.json --manifest manifest.json"
)]
pub struct Args {
    /// The model folder; its weights are not read
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// How the two parties will compute
    #[arg(long, value_enum, default_value = "2pc", env = "HUSHED_PROTOCOL")]
    protocol: Protocol,

    /// Tokens of each text of a pass, special ones included
    #[arg(long, value_name = "N,…", value_delimiter = ',', env = "HUSHED_TOKENS")]
    tokens: Vec<usize>,

    /// With a model of images: images per pass
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "tokens")]
    images: usize,

    /// Tokens that a model of text adds; the plan of the prompt is that of the first one
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = at_least_one
    )]
    max_tokens: usize,

    /// Precompute the products with weights and tables for N texts, or with --max-tokens for N later tokens, at a time,
    /// as `embed --ahead N` and `generate --ahead N` do
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=i64::from(MAX_AHEAD)), env = "HUSHED_AHEAD")]
    ahead: u16,

    /// With a model that generates: also show the cost of a pass that verifies N draft tokens (`generate --draft N`),
    /// and the acceptance rate above which drafting pays. With --ahead N products are counted for every row
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=i64::from(MAX_DRAFTS)))]
    draft: u16,

    /// Pad texts to a multiple of N tokens, as `embed --bucket N` does
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), env = "HUSHED_BUCKET")]
    bucket: Option<u32>,

    /// The table of token vectors is public, as with `serve --public-table` and `embed --public-table`
    #[arg(long, env = "HUSHED_PUBLIC_TABLE")]
    public_table: bool,

    /// With a model that generates: a file with the public text before the prompt, as with `serve --public-prefix`
    #[arg(long, value_name = "FILE", env = "HUSHED_PUBLIC_PREFIX")]
    public_prefix: Option<PathBuf>,

    #[command(flatten)]
    head: PublicHead,

    /// With a classifier or a model that generates: what the client learns of each result, as with `serve --answers`
    #[arg(long, value_name = "label|top:K|above:P|logits", env = "HUSHED_ANSWERS")]
    answers: Option<Answers>,

    /// With a model that embeds: the numbers of embeddings are rounded to this many bits, as with `serve --answer-bits`
    #[arg(long, value_name = "N", conflicts_with = "answers", env = "HUSHED_ANSWER_BITS", value_parser = clap::value_parser!(u8).range(6..=15))]
    answer_bits: Option<u8>,

    /// Memory that the server may use, in GiB. 2pc: show whether `serve --max-memory` holds the weights, with
    /// `--max-ahead` and `--max-drafts` if --ahead and --draft are given. fhe: a run that needs more spills vectors to
    /// disk, and is refused if that is not enough
    #[arg(long, value_name = "GIB", env = "HUSHED_MAX_MEMORY", value_parser = clap::value_parser!(u32).range(1..))]
    max_memory: Option<u32>,

    /// Concurrent sessions, as with `serve --max-sessions`, for --max-memory in 2pc
    #[arg(
        long,
        value_name = "N",
        default_value_t = MAX_SESSIONS,
        env = "HUSHED_MAX_SESSIONS"
    )]
    max_sessions: usize,

    /// The network for which forms of steps are chosen: lan, wan, internet, or as in 40ms/50mbit, or a bandwidth alone,
    /// as in 10gbit [default: what --rtt and --bandwidth say, or lan]
    #[arg(long, value_name = "NET", env = "HUSHED_NET", value_parser = net)]
    net: Option<Net>,

    /// The round trip of the network whose seconds are estimated, as in 40ms [default: that of --net]
    #[arg(long, value_name = "TIME", value_parser = parse_round_trip)]
    rtt: Option<u32>,

    /// Its bandwidth each way, as in 50mbit [default: that of --net]
    #[arg(long, value_name = "RATE", value_parser = parse_bandwidth)]
    bandwidth: Option<u32>,

    /// Show every step of the model
    #[arg(long, env = "HUSHED_STEPS")]
    steps: bool,

    #[command(flatten)]
    fhe: fhe::Args,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// Interactive, both parties compute on shares
    #[value(name = "2pc")]
    TwoPc,
    /// Not interactive, the server computes alone on ciphertexts
    #[value(name = "fhe")]
    Fhe,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let graph = Graph::is_in(&self.dir);
        if self.tokens.is_empty() && self.images == 0 && !graph && !self.fhe.sized() {
            return Err(CliError::NoTokens);
        }
        match self.protocol {
            Protocol::Fhe if graph => self.fhe.graph(&self.dir, out),
            Protocol::TwoPc => self.twopc(out),
            Protocol::Fhe if self.max_tokens > 1 => Err(CliError::NoGeneration),
            Protocol::Fhe => {
                let (link, _) = self.links()?;
                let request = fhe::Request {
                    dir: &self.dir,
                    tokens: &self.tokens,
                    bucket: self.bucket.map(|n| n as usize),
                    steps: self.steps,
                    max_memory: self.limit(),
                    link,
                };
                self.fhe.run(&request, out)
            }
        }
    }

    fn twopc(&self, out: &Output) -> Result<(), CliError> {
        let (link, network) = self.links()?;
        let request = Request {
            tokens: self.tokens.clone(),
            images: self.images,
            bucket: self.bucket.map(|n| n as usize),
            public_table: self.public_table,
            max_tokens: self.max_tokens,
            ahead: self.ahead.into(),
            draft: self.draft.into(),
            answers: self.answer_bits.map(Answers::Bits).or(self.answers),
            prefix: self.public_prefix.as_deref().map(read_prefix).transpose()?,
            pace: Pace::measure().map_err(PlanError::from)?,
            head: self.head.is_on(),
            link,
            network,
        };
        let plans = Plan::of_folder(&self.dir, &request)?;
        let Some((first, later)) = plans.split_first() else {
            return Ok(());
        };
        self.show(out, "plan", first, summary)?;
        if let Some(limit) = self.limit() {
            let memory = Memory::of_folder(&self.dir, &request, MAX_PASS_TOKENS)?;
            self.server(out, memory, limit)?;
        }
        if self.draft > 0 {
            drafts::show(out, &self.dir, &request)?;
        }
        if self.ahead > 0 {
            let plan = Plan::ahead_of_folder(&self.dir, &request)?;
            self.show(out, "ahead", &plan, made_ahead)?;
        }
        let Some(last) = later.last() else {
            return Ok(());
        };
        self.show(out, "last_token", last, |last| one_token(last, self.max_tokens))?;
        let all = Sum::of(&plans);
        out.result(all.json(self.max_tokens), || format!("all {}: {}", counted(self.max_tokens, "token"), all.text()))
    }

    /// The link of the forms, and the network whose seconds are estimated, if one is given.
    fn links(&self) -> Result<(Link, Option<Link>), CliError> {
        let named = match self.net {
            Some(Net::Link(link)) => Some(link),
            Some(Net::Auto) | None => None,
        };
        let known = named.unwrap_or_default();
        let network = match (self.rtt, self.bandwidth) {
            (None, None) => None,
            (rtt, bandwidth) => {
                let (rtt, bandwidth) = (rtt.unwrap_or(known.microseconds()), bandwidth.unwrap_or(known.kilobits()));
                Some(Link::new(rtt, bandwidth).map_err(ServeError::NoLink)?)
            }
        };
        Ok((named.or(network).unwrap_or_default(), network))
    }

    fn limit(&self) -> Option<u64> {
        self.max_memory.map(|gib| u64::from(gib) << 30)
    }

    /// Shows where a server with this limit keeps its weights.
    fn server(&self, out: &Output, memory: Memory, limit: u64) -> Result<(), CliError> {
        let (sessions, streams) = (self.max_sessions, memory.streams(self.max_sessions, limit));
        let (held, streaming) = (memory.server(sessions), memory.streaming(sessions));
        let needed = if streams { streaming } else { held };
        let object = json!({ "server": {
            "weights": if streams { "streamed" } else { "held" }, "sessions": sessions,
            "bytes": needed, "allowed": limit, "bytes_held": held, "bytes_streamed": streaming,
        } });
        out.result(object, || {
            let place = match streams {
                true => "reads its weights from disk in every pass",
                false => "holds its weights",
            };
            let enough = if needed > limit { ", more than allowed" } else { "" };
            format!(
                "a server of {} in {} GiB {place}: {} MB{enough} ({} MB held, {} MB read from disk)",
                counted(sessions, "session"),
                limit >> 30,
                needed / 1_000_000,
                held / 1_000_000,
                streaming / 1_000_000
            )
        })
    }

    fn show(
        &self,
        out: &Output,
        name: &'static str,
        plan: &Plan,
        text: impl Fn(&Plan) -> String,
    ) -> Result<(), CliError> {
        if self.steps {
            for step in &plan.steps {
                out.result(json!({ "step": step }), || describe(step))?;
            }
        }
        let mut object = json!(plan);
        if let Some(fields) = object.as_object_mut() {
            fields.remove("steps");
        }
        out.result(json!({ name: object }), || text(plan))
    }
}

/// A network; a bandwidth alone has the round trip of a LAN.
fn net(text: &str) -> Result<Net, NoLink> {
    let alone = |_| parse_bandwidth(text).and_then(|bandwidth| Link::new(Link::LAN.microseconds(), bandwidth));
    text.parse().or_else(|known: NoLink| alone(()).map(Net::Link).map_err(|_| known))
}

/// The plan of products that are made ahead, as text.
fn made_ahead(plan: &Plan) -> String {
    let alone = Sum::of(std::slice::from_ref(plan));
    format!(
        "made ahead, {} for {}: {}; {} MB at the server until they are used",
        counted(plan.tokens.len(), "set"),
        counted(plan.tokens.first().copied().unwrap_or(0), "row"),
        alone.text(),
        plan.memory.stock / 1_000_000
    )
}

/// The plan of one later token, as text.
fn one_token(plan: &Plan, number: usize) -> String {
    let alone = Sum::of(std::slice::from_ref(plan));
    format!("token {number} alone: {}", alone.text())
}

fn describe(step: &Entry) -> String {
    format!(
        "{:<34} up {:>9} B  down {:>9} B  rounds {:>3}  {:.3} s",
        step.site, step.bytes_up, step.bytes_down, step.rounds, step.seconds
    )
}

fn summary(plan: &Plan) -> String {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let mut text = format!(
        "texts of {:?} tokens, protocol {}\n\
         client to server   {:9.2} MB\n\
         server to client   {:9.2} MB\n\
         making OTs         {:9.2} MB, both ways\n\
         keys of the client {:9.2} MB with their proof, once a session\n\
         rounds             {:>9}\n\
         opened             {:>9} bits to the client: what one that cheats learns, of a function that it chooses (SECURITY.md)\n\
         time               {:9.2} s on one core a party, without the network\n\
         with the network   {:9.2} s over {}, with the forms for {}\n\
         memory             {:9.0} MB at the client, {:.0} MB at the server and {:.0} MB more a session (estimates)\n\
         wrong decryptions  2^{:.0} for all of it\n\
         large truncations  {}\n\
         distance           2^{:.0}: masks are uniform and add nothing, it is what a wrong decryption may show\n\
         hiding             {}",
        plan.tokens,
        plan.protocol,
        megabytes(plan.bytes_up),
        megabytes(plan.bytes_down),
        megabytes(plan.ot_bytes),
        megabytes(plan.setup_bytes_up + plan.setup_bytes_down),
        plan.rounds,
        plan.opened_bits,
        plan.seconds,
        plan.seconds_in_all,
        plan.network,
        plan.link,
        megabytes(plan.memory.client),
        megabytes(plan.memory.weights),
        megabytes(plan.memory.session),
        plan.failure_log2,
        plan.large_truncation_log2.map_or_else(|| "none: wraps are computed".to_owned(), |bits| format!("2^{bits:.0}")),
        plan.distance_log2,
        plan.hiding,
    );
    for exposure in &plan.exposures {
        text += &format!("\nseen by the {}: {}", exposure.who, exposure.sees);
    }
    text
}
