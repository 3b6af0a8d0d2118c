//! `hushed plan --protocol fhe`: the ledger of a batch under encryption, and the run manifest.

use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use hushed_ckks::CkksParams;
use hushed_ckks::keys::KeySpecs;
use hushed_fhe::packing::sequences::texts_a_batch;
use hushed_fhe::plan::declared;
use hushed_fhe::plan::offer::Offer;
use hushed_fhe::plan::public_plan::{AnswerRows, Canary, Lengths, hex, named};
use hushed_fhe::plan::{
    FheOptions, FhePlanReport, Goal, Prices, assumed_choices, measure_prices, pace, packed_placement, reference,
};
use hushed_fhe::run::job::bootstrap;
use hushed_fhe::{Choices, FheError, FhePlan, MAX_BYTES, answer_in_clear, can_run, head_is_public};
use hushed_model::{Model, ModelError, PublicFiles, TooLong, random_model, without_mark};
use hushed_mpc::Link;
use hushed_serve::fhe::{PublicModel, default_calibration, write_network_plan, write_plan};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::error::CliError;
use crate::graphs::{self, Subject};
use crate::lengths::Learns;
use crate::output::Output;
use crate::overwrite::Overwrite;
use crate::verbs::plan::machines;
use crate::verbs::plan::words::{describe, priced, summary};

/// The parameter set of models.
pub const DEFAULT_SET: &str = "n16-boot-14x40";

/// The least cosine between a canary's answer and the clear one.
const LEAST_COSINE: f64 = 0.999;

/// Further arguments of `--protocol fhe`.
#[derive(clap::Args)]
// A verb takes these besides its own: both are called Args, and groups are named after them.
#[group(skip)]
pub struct Args {
    /// fhe: list the placements that were tried, with their costs
    #[arg(long, help_heading = "With --protocol fhe")]
    verbose: bool,

    /// fhe: rows of each text, padding included, a power of two [default: the longest of --tokens, rounded up]
    #[arg(long, value_name = "N", env = "HUSHED_ROWS", help_heading = "With --protocol fhe")]
    rows: Option<usize>,

    /// fhe: number of texts at a time, of a network inputs of a request; a few are packed into rows, for the latency of
    /// one text (docs/one-text.md) [default: a batch, as many as fit]
    #[arg(long, value_name = "N", env = "HUSHED_TEXTS", help_heading = "With --protocol fhe")]
    texts: Option<usize>,

    /// fhe: plan every number of texts that can be run at a time, print what each costs, and choose the one that
    /// answers soonest, or takes the fewest seconds per text
    #[arg(
        long,
        value_name = "GOAL",
        value_enum,
        conflicts_with = "texts",
        env = "HUSHED_GOAL",
        help_heading = "With --protocol fhe"
    )]
    goal: Option<Least>,

    /// fhe: let up to N texts share the rows of one place of a batch: a batch then takes more short texts, each of
    /// which costs less. For models that embed, with --lengths public
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=64),
        conflicts_with_all = ["texts", "goal"],
        env = "HUSHED_PACK",
        help_heading = "With --protocol fhe"
    )]
    pack: u16,

    /// fhe: a file with the number of tokens of a text on each line: costs per text are those of texts like these
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["texts", "goal"],
        env = "HUSHED_TOKEN_COUNTS",
        help_heading = "With --protocol fhe"
    )]
    token_counts: Option<PathBuf>,

    /// fhe: the file that `hushed calibrate --protocol fhe` wrote; without it degrees and steps are assumed
    #[arg(long, value_name = "FILE", env = "HUSHED_CALIBRATION", help_heading = "With --protocol fhe")]
    calibration: Option<PathBuf>,

    /// fhe: what the server learns of a text's length; `bucket` needs --bucket N. Of a
    /// decoder's texts it learns nothing
    #[arg(long, value_enum, default_value = "public", env = "HUSHED_LENGTHS", help_heading = "With --protocol fhe")]
    lengths: Learns,

    /// fhe: threads of the server [default: as many as this machine has]
    #[arg(long, visible_alias = "cores", value_name = "N", env = "HUSHED_THREADS", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "With --protocol fhe")]
    threads: Option<u16>,

    #[command(flatten)]
    machines: machines::Args,

    /// fhe: first measure what operations cost on this machine: `quick` takes some seconds, `whole` takes half a minute
    /// and 6 GiB more, for a bootstrap
    #[arg(long, value_name = "WHAT", value_enum, env = "HUSHED_MEASURE", help_heading = "With --protocol fhe")]
    measure: Option<Measure>,

    /// fhe: take prices of operations from the JSON of another plan
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "measure",
        env = "HUSHED_PRICES",
        help_heading = "With --protocol fhe"
    )]
    prices: Option<PathBuf>,

    /// fhe: the client's uplink, in Mbit/s; it decides the level at which columns are uploaded
    #[arg(long, value_name = "MBIT", default_value_t = 100, env = "HUSHED_UPLINK", value_parser = clap::value_parser!(u32).range(1..), help_heading = "With --protocol fhe")]
    uplink: u32,

    /// fhe: write the run manifest, which client and server share, to FILE
    #[arg(
        long = "manifest",
        alias = "public-plan",
        visible_alias = "out",
        value_name = "FILE",
        requires = "calibration",
        env = "HUSHED_MANIFEST_OUT",
        help_heading = "With --protocol fhe"
    )]
    public_plan: Option<PathBuf>,

    /// fhe: write the public model to FILE, from which clients embed: table of token vectors, positions, first norm
    #[arg(
        long,
        value_name = "FILE",
        requires = "public_embedding",
        env = "HUSHED_PUBLIC_MODEL",
        help_heading = "With --protocol fhe"
    )]
    public_model: Option<PathBuf>,

    /// fhe: allow the table of token vectors, the positions and the first norm to be public
    #[arg(long, env = "HUSHED_PUBLIC_EMBEDDING", help_heading = "With --protocol fhe")]
    public_embedding: bool,

    #[command(flatten)]
    overwrite: Overwrite,

    /// fhe: a text whose answer the manifest states, so that clients can check a run
    #[arg(
        long,
        value_name = "TEXT",
        requires = "public_plan",
        env = "HUSHED_CANARY",
        help_heading = "With --protocol fhe"
    )]
    canary: Option<String>,

    /// fhe: the rows of a text at which a decoder is read
    #[arg(long, value_enum, default_value = "last", env = "HUSHED_ANSWER", help_heading = "With --protocol fhe")]
    answer: Rows,

    /// fhe: the parameter set [default: n16-boot-14x40; of a network the cheapest that can run it]
    #[arg(long, value_name = "SET", env = "HUSHED_PARAMETERS", help_heading = "With --protocol fhe")]
    parameters: Option<String>,
}

/// The rows of a text at which a decoder is read.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rows {
    /// The last one, from which the next token follows: its hidden state, or its logits if the head is not the table of
    /// token vectors
    Last,
    /// All: the hidden states of every token, from which the likelihoods of a text's own tokens follow
    Rows,
}

impl Rows {
    /// The rows for a model whose head is, or is not, the table of token vectors.
    fn rows(self, tied: bool) -> AnswerRows {
        match self {
            Rows::Last if tied => AnswerRows::Last,
            Rows::Last => AnswerRows::Logits,
            Rows::Rows => AnswerRows::Rows,
        }
    }
}

/// What a plan should minimise.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Least {
    /// Seconds per run: few texts at a time
    Latency,
    /// Seconds per text: many at a time
    Throughput,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measure {
    /// All but bootstraps
    Quick,
    /// All
    Whole,
}

/// A plan and what it was made from.
struct Made<'a> {
    choices: &'a Choices,
    params: &'a Arc<CkksParams>,
    bootstrap: &'a KeySpecs,
    options: &'a FheOptions,
    report: &'a FhePlanReport,
}

/// The arguments of both protocols' plans.
pub struct Request<'a> {
    pub dir: &'a Path,
    pub tokens: &'a [usize],
    pub bucket: Option<usize>,
    pub steps: bool,
    /// Bytes that the server may use.
    pub max_memory: Option<u64>,
    /// The network between machines.
    pub link: Link,
}

impl Args {
    /// The parameter set of a model.
    fn set(&self) -> &str {
        self.parameters.as_deref().unwrap_or(DEFAULT_SET)
    }

    /// Whether the rows of texts are given.
    pub fn sized(&self) -> bool {
        self.rows.is_some() || self.token_counts.is_some()
    }

    /// The plan of a network.
    pub fn graph(&self, dir: &Path, out: &Output) -> Result<(), CliError> {
        self.public_plan.as_ref().map_or(Ok(()), |path| self.overwrite.check(path))?;
        let calibration = self.calibration.clone().unwrap_or_else(|| default_calibration(dir));
        let subject = Subject { dir, calibration: &calibration, parameters: self.parameters.as_deref() };
        let circuit = graphs::plan(&subject, self.texts.unwrap_or(1), out)?;
        self.public_plan.as_ref().map_or(Ok(()), |path| Ok(write_network_plan(path, circuit.plan())?))
    }

    pub fn run(&self, request: &Request<'_>, out: &Output) -> Result<(), CliError> {
        let written = [&self.public_plan, &self.public_model];
        written.into_iter().flatten().try_for_each(|path| self.overwrite.check(path))?;
        let files = PublicFiles::read(request.dir).map_err(hushed_model::ModelError::from)?;
        let public = files.parse().map_err(hushed_model::ModelError::from)?;
        let counts = self.token_counts.as_deref().map(read_counts).transpose()?;
        let all = request.tokens.iter().chain(counts.iter().flatten());
        let longest = match &public.images {
            Some(images) => images.patches() + 1,
            None => all.copied().max().unwrap_or(0),
        };
        let rows = self.rows.unwrap_or(longest).next_power_of_two();
        let limit = public.max_tokens;
        if longest > limit || rows < 4 || rows > limit.next_power_of_two() {
            let given = longest.max(rows);
            return Err(CliError::Tokens { given, least: 3, limit });
        }
        let offers = self.public_plan.is_some() || self.public_model.is_some();
        if offers && public.images.is_some() {
            let what = "a request of images".to_owned();
            return Err(FheError::Unsupported { what, remedy: "plan, calibrate and verify take images" }.into());
        }
        let name = self.set();
        let params = named(name).map_err(|source| CliError::Preset { name: name.to_owned(), source })?;
        can_run(&Model::shapes_only(&public).program_of_all_rows())?;
        // Counts do not depend on weights; if the folder has none, random ones are used.
        let shapes = |_| random_model(&public);
        let model = match offers {
            true => Model::load(request.dir)?,
            false => Model::load(request.dir).unwrap_or_else(shapes),
        };
        let program = model.program_of_all_rows();
        can_run(&program)?;
        let choices = match &self.calibration {
            Some(path) => {
                let choices = read_choices(path)?;
                choices.check(&program).map_err(FheError::from)?;
                Some(choices)
            }
            None => None,
        };
        let threads =
            self.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
        let mut options = FheOptions {
            rows,
            texts: self.texts(counts.as_deref(), rows, &params)?,
            per_place: self.pack.into(),
            lengths: match program.vocabulary() {
                // A sigmoid needs no padding mask, and a softmax's is encrypted: nobody has to know where a text ends.
                Some(_) => Lengths::Private,
                None => self.lengths.declared(request.bucket)?,
            },
            answer: self.answer.rows(public.config.tied),
            max_memory: request.max_memory,
            uplink: f64::from(self.uplink) * 1e6 / 8.0,
            prices: self.prices(&params, threads)?,
            placement: None,
        };
        head_is_public(&program, options.answer)?;
        let plain = assumed_choices(&program, rows);
        let used = choices.as_ref().unwrap_or(&plain);
        let (_, bootstrap) = bootstrap(&params)?;
        let assumed = choices.is_none();
        if self.texts.is_some() {
            options.placement = packed_placement(&program, used, &params, &options)?;
        }
        let mut plan = match self.goal {
            Some(least) => {
                let goal = match least {
                    Least::Latency => Goal::Latency,
                    Least::Throughput => Goal::Throughput,
                };
                let model = (&program, used, assumed);
                let curve = goal.plan(model, &params, &bootstrap, &options)?;
                for point in &curve.points {
                    out.result(json!({ "curve": point }), || priced(point))?;
                }
                options = curve.options;
                curve.report
            }
            None => FhePlanReport::new(&program, used, assumed, &params, &bootstrap, &options)?,
        };

        if request.steps {
            for step in &plan.steps {
                out.result(json!({ "step": step }), || describe(step))?;
            }
        }
        let made = Made { choices: used, params: &params, bootstrap: &bootstrap, options: &options, report: &plan };
        // What a manifest declares depends on the weights, and is printed as it is written.
        if offers {
            out.note("planned; reading the weights and packing the public model …");
        }
        let public = self.public(request.dir, &model)?;
        let offered = match &public {
            Some(public) => self.offered(&model, public, &made, out)?,
            None => None,
        };
        if let Some(offered) = &offered {
            plan.reply = offered.reply;
            plan.reply_bits = offered.reply_bits(&params);
        }
        let mut object = json!(plan);
        if let Some(fields) = object.as_object_mut() {
            fields.remove("steps");
        }
        out.result(json!({ "plan": object }), || summary(&plan, offered.is_some(), self.verbose))?;
        self.machines.show((&program, used), &params, &options, &plan, (request.link, out))?;
        self.publish(public.as_ref(), offered.as_ref(), out)
    }

    /// Texts of the batch: those asked for, or as many as fit of those with these numbers of tokens; else one a place.
    fn texts(&self, counts: Option<&[usize]>, rows: usize, params: &CkksParams) -> Result<usize, CliError> {
        let places = (params.slots() / rows).saturating_sub(usize::from(self.canary.is_some()));
        Ok(match counts {
            Some(counts) => texts_a_batch(rows, self.pack.into(), places, counts).map_err(FheError::from)?,
            None if self.pack > 1 => places,
            None => self.texts.unwrap_or(usize::MAX),
        })
    }

    /// The public model, if it or a manifest is asked for.
    fn public(&self, dir: &Path, model: &Model) -> Result<Option<PublicModel>, CliError> {
        let asked = self.public_plan.is_some() || self.public_model.is_some();
        let public = asked.then(|| PublicModel::from_folder(dir, model));
        Ok(public.transpose()?)
    }

    /// The manifest, if it is asked for.
    fn offered(
        &self,
        model: &Model,
        public: &PublicModel,
        made: &Made<'_>,
        out: &Output,
    ) -> Result<Option<FhePlan>, CliError> {
        let (Some(_), Some(calibration)) = (&self.public_plan, &self.calibration) else {
            return Ok(None);
        };
        out.note("running the manifest's own texts in the clear …");
        let exposures = made.report.exposures.iter();
        let known = self.canary.as_deref();
        let known = known.map(|text| model.tokens(text, TooLong::Refuse));
        let known = known.transpose()?;
        let tokenizer = model.public.tokenizer().map_err(ModelError::from)?;
        let offer = Offer {
            program: &model.program_of_all_rows(),
            choices: made.choices,
            parameters: self.set(),
            params: made.params,
            bootstrap: made.bootstrap,
            options: made.options,
            placement: &made.report.placement,
            public_sha256: public.hash().0,
            calibration_sha256: Sha256::digest(read(calibration)?).into(),
            texts: &declared::texts(tokenizer, made.options.rows, known),
            canary: self.canary(model, made.options.rows)?,
            exposures: exposures.map(|e| format!("{}: {}", e.who, e.sees)).collect(),
        };
        out.note("adding up the errors of every step, which the manifest declares: a minute or two …");
        let plan = offer.plan()?;
        out.note("the manifest is made");
        Ok(Some(plan))
    }

    /// Writes what clients need.
    fn publish(&self, public: Option<&PublicModel>, offered: Option<&FhePlan>, out: &Output) -> Result<(), CliError> {
        if let (Some(path), Some(public)) = (&self.public_model, public) {
            public.write(path)?;
            let object = json!({ "public_model": path, "sha256": public.hash().to_string() });
            out.result(object, || format!("written: the public model, {}", path.display()))?;
        }
        let (Some(path), Some(plan)) = (&self.public_plan, offered) else {
            return Ok(());
        };
        write_plan(path, plan)?;
        let hash = hex(&plan.hash());
        let object = json!({ "public_plan": path, "sha256": hash, "keys": plan.keys.len() });
        out.result(object, || format!("written: the run manifest {hash}, {}", path.display()))
    }

    /// The canary with its embedding in the clear.
    fn canary(&self, model: &Model, rows: usize) -> Result<Option<Canary>, CliError> {
        let Some(text) = &self.canary else {
            return Ok(None);
        };
        let tokens = model.tokens(text, TooLong::Refuse)?;
        let given = tokens.ids().len();
        if given > rows {
            return Err(CliError::Tokens { given, least: 3, limit: rows });
        }
        let answer = self.answer.rows(model.public.config.tied);
        let embedding = answer_in_clear(model, &tokens, answer)?;
        Ok(Some(Canary { text: text.clone(), embedding, least_cosine: LEAST_COSINE }))
    }

    fn prices(&self, params: &Arc<CkksParams>, threads: usize) -> Result<Prices, CliError> {
        if let Some(path) = &self.prices {
            let bytes = read(path)?;
            let bytes = without_mark(&bytes);
            // One object, or the output of --steps --json: one object per line, the plan among them.
            let lines = bytes.split(|&byte| byte == b'\n');
            let prices = iter::once(bytes).chain(lines).find_map(|text| {
                let text: serde_json::Value = serde_json::from_slice(text).ok()?;
                [&text["plan"]["prices"], &text["prices"], &text]
                    .into_iter()
                    .find_map(|value| serde_json::from_value(value.clone()).ok())
            });
            return prices.ok_or_else(|| CliError::Prices { path: path.clone() });
        }
        Ok(match self.measure {
            Some(what) => measure_prices(params, threads, what == Measure::Whole)?,
            None => reference(threads).at_pace(pace(params)?),
        })
    }
}

/// The numbers of tokens in the lines of a file.
fn read_counts(path: &Path) -> Result<Vec<usize>, CliError> {
    let bytes = read(path)?;
    let counts = bytes.split(|&byte| byte == b'\n').zip(1..);
    let counts = counts.filter(|(line, _)| !line.trim_ascii().is_empty()).map(|(bytes, line)| {
        let count = str::from_utf8(bytes.trim_ascii()).ok().and_then(|count| count.parse::<usize>().ok());
        count.filter(|&count| count > 0).ok_or_else(|| CliError::TokenCount { path: path.to_owned(), line })
    });
    let counts: Vec<usize> = counts.collect::<Result<_, _>>()?;
    match counts.is_empty() {
        true => Err(CliError::TokenCount { path: path.to_owned(), line: 1 }),
        false => Ok(counts),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    fs::read(path).map_err(|source| CliError::ReadInput { path: path.to_owned(), source })
}

/// Reads a calibration for fhe.
pub fn read_choices(path: &Path) -> Result<Choices, CliError> {
    let unreadable = |source| CliError::ReadInput { path: path.to_owned(), source };
    let length = fs::metadata(path).map_err(unreadable)?.len();
    if length > MAX_BYTES as u64 {
        let limit = (MAX_BYTES >> 20) as u64;
        let path = path.to_owned();
        return Err(CliError::InputTooLarge { path, limit });
    }
    Ok(Choices::from_json(&read(path)?).map_err(FheError::from)?)
}
