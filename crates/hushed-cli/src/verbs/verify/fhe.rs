//! `hushed verify --protocol fhe`: from the clear to ciphertexts in four stages, as a table and a picture.

use std::fs;
use std::path::{Path, PathBuf};

use hushed_fhe::FheError;
use hushed_fhe::calibrate::weights_sha256;
use hushed_fhe::plan::public_plan::{Lengths, named};
use hushed_fhe::verify::{
    Answer, Difference, Event, OnKey, Options, OutOfRange, Report, Stage, Which, retrieval, verify,
};
use hushed_model::{Matrix, Model, cosine, counted, likeliest};
use hushed_serve::fhe::default_calibration;
use serde_json::{Map, Value, json};

use super::plot;
use crate::connect::at_least_one;
use crate::error::CliError;
use crate::graphs::{self, Subject};
use crate::images::Read;
use crate::input::{self, Truncate};
use crate::labels::rank_correlation;
use crate::lengths::Learns;
use crate::machine::Machine;
use crate::output::Output;
use crate::overwrite::Overwrite;
use crate::running::Running;
use crate::verbs::plan::{DEFAULT_SET, read_choices};

/// Arguments of this protocol only.
#[derive(clap::Args)]
// As in `plan`: a separate group would have the name of the verb's.
#[group(skip)]
pub struct Args {
    /// fhe: the file that `hushed calibrate --protocol fhe` wrote [default: DIR/calibration-fhe.json]
    #[arg(long, value_name = "FILE", env = "HUSHED_CALIBRATION", help_heading = "With --protocol fhe")]
    calibration: Option<PathBuf>,

    /// fhe: rows of each text, padding included, a power of two; by default the longest text rounded up. --truncate
    /// cuts to it
    #[arg(long, value_name = "N", env = "HUSHED_ROWS", value_parser = clap::value_parser!(u16).range(4..), help_heading = "With --protocol fhe")]
    rows: Option<u16>,

    /// fhe: compare as a plan for requests of K texts would run them, as many as fit in packed rows: each text is run
    /// by itself, and only answers are compared
    #[arg(long, value_name = "K", env = "HUSHED_TEXTS", value_parser = at_least_one, conflicts_with = "encrypted", help_heading = "With --protocol fhe")]
    texts: Option<usize>,

    /// fhe: the first K layers only, pooled after the last of them
    #[arg(long, value_name = "K", env = "HUSHED_LAYERS", value_parser = clap::value_parser!(u16).range(1..), help_heading = "With --protocol fhe")]
    layers: Option<u16>,

    /// fhe: what the server of such a run learns of a text's length: padding is masked by plain numbers (`public`) or
    /// by a ciphertext (`bucket`, `private`)
    #[arg(long, value_enum, default_value = "public", env = "HUSHED_LENGTHS", help_heading = "With --protocol fhe")]
    lengths: Learns,

    /// fhe: the seed of the simulated errors
    #[arg(long, value_name = "N", default_value_t = 1, env = "HUSHED_SEED", help_heading = "With --protocol fhe")]
    seed: u64,

    /// fhe: a file of queries, one per line, to the other texts; compare rankings in the clear and with errors
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "labels",
        env = "HUSHED_QUERIES",
        help_heading = "With --protocol fhe"
    )]
    queries: Option<PathBuf>,

    /// fhe: show every step of a layer, not only its output
    #[arg(long, env = "HUSHED_STEPS", help_heading = "With --protocol fhe")]
    steps: bool,

    /// fhe: plot the errors of all steps to FILE (SVG)
    #[arg(long, value_name = "FILE.svg", env = "HUSHED_PLOT", help_heading = "With --protocol fhe")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    overwrite: Overwrite,

    /// fhe: also run on ciphertexts, with a key made here, decrypting every step: minutes per layer or more with the
    /// parameters of real runs
    #[arg(long, env = "HUSHED_ENCRYPTED", help_heading = "With --protocol fhe")]
    encrypted: bool,

    /// fhe: with --encrypted, memory for everything, in GiB: a run that needs more spills to disk, and is refused if
    /// that is not enough [default: seven eighths of what is free]
    #[arg(long, value_name = "GIB", env = "HUSHED_MAX_MEMORY", value_parser = clap::value_parser!(u32).range(1..), help_heading = "With --protocol fhe")]
    max_memory: Option<u32>,

    /// fhe: with --encrypted, a folder on a fast disk for spilled vectors; nothing is left in it [default: that of
    /// temporary files]
    #[arg(long, value_name = "DIR", env = "HUSHED_SPILL", help_heading = "With --protocol fhe")]
    spill: Option<PathBuf>,

    /// fhe: the parameter set [default: n16-boot-14x40; of a network the cheapest that can run it]
    #[arg(long, value_name = "SET", env = "HUSHED_PARAMETERS", help_heading = "With --protocol fhe")]
    parameters: Option<String>,
}

/// The answers of a stage: its name, and how to find them.
type Rung = (&'static str, fn(&Answer) -> Option<&[f64]>);

const RUNGS: [Rung; 3] = [
    ("polynomial", |a| Some(&a.polynomial)),
    ("predicted", |a| Some(&a.predicted)),
    ("encrypted", |a| a.encrypted.as_deref()),
];

impl Args {
    /// The parameter set of a model.
    fn set(&self) -> &str {
        self.parameters.as_deref().unwrap_or(DEFAULT_SET)
    }

    /// A network's answers under a key beside those in the clear.
    pub fn graph(&self, dir: &Path, bytes: &[u8], out: &Output) -> Result<(), CliError> {
        let calibration = self.calibration.clone().unwrap_or_else(|| default_calibration(dir));
        let subject = Subject { dir, calibration: &calibration, parameters: self.parameters.as_deref() };
        graphs::verify(&subject, bytes, out)
    }

    pub fn run(
        &self,
        out: &Output,
        dir: &Path,
        mut given: Read,
        scores: &[f64],
        too_long: &Truncate,
    ) -> Result<(), CliError> {
        self.plot.as_ref().map_or(Ok(()), |path| self.overwrite.check(path))?;
        let documents = given.len();
        if let Some(path) = &self.queries {
            let mut texts = given.texts()?;
            texts.extend(input::read_lines(path)?);
            given = Read::Texts(texts);
        }
        let parameters = self.set();
        let params = named(parameters).map_err(|source| CliError::Preset { name: parameters.to_owned(), source })?;
        let beside = dir.join("calibration-fhe.json");
        let choices = read_choices(self.calibration.as_deref().unwrap_or(&beside))?;
        let model = Model::load(dir)?;
        if !scores.is_empty() && model.public.config.scores() {
            return Err(CliError::OtherTask {
                given: "--labels under encryption",
                instead: "--input, or --protocol 2pc",
            });
        }
        let weights = weights_sha256(dir)
            .map_err(|source| CliError::ReadInput { path: dir.join("model.safetensors"), source })?;
        let program = model.program_of_all_rows();
        let made_for = choices.check(&program);
        made_for.and_then(|()| choices.check_model(&weights)).map_err(FheError::from)?;
        let rows = self.rows.map(|n| usize::from(n).next_power_of_two());
        let limit = rows.unwrap_or(choices.rows).min(choices.rows);
        let items = given.within(&model.public, limit, too_long)?;
        let longest = items.iter().map(|item| item.rows().real).max().unwrap_or(0);
        let rows = rows.unwrap_or(longest.next_power_of_two().max(4));
        if rows > choices.rows {
            let (given, limit) = (rows, choices.rows);
            return Err(CliError::Tokens { given, least: 3, limit });
        }
        if parameters.starts_with("insecure") {
            out.result(
                json!({ "insecure": true, "parameters": parameters }),
                || {
                    format!(
                        "INSECURE: {} is a ring for tests; what is measured on it says nothing of the time or the security of a run",
                        parameters
                    )
                },
            )?;
        }
        let options = Options {
            rows,
            layers: self.layers.map(usize::from),
            lengths: match self.lengths {
                Learns::Public => Lengths::Public,
                Learns::Bucket | Learns::Private => Lengths::Private,
            },
            seed: self.seed,
            together: self.texts,
            encrypted: self.encrypted.then(|| self.on_key()),
        };
        let layers = options.layers.map_or(program.layers().len(), |k| k.min(program.layers().len()));
        let report = if self.encrypted {
            let bar = Running::new(out, "placing");
            let progress = |event| match event {
                Event::Step(now) => bar.told(&now.into()),
                Event::Layer { layer, rung } => bar.meanwhile(format!("layer {} with {}", layer + 1, words(rung))),
                // Not with --encrypted.
                Event::Text { .. } => {}
            };
            let report = verify(&model, &choices, &params, &items, &options, &progress)?;
            bar.end();
            report
        } else {
            let (steps, what) = match self.texts {
                Some(_) => (2 * items.len(), "runs"),
                None => (2 * layers, "layers"),
            };
            let bar = out.progress(steps as u64, what);
            let report = verify(&model, &choices, &params, &items, &options, &|_| bar.inc(1))?;
            bar.finish_and_clear();
            report
        };

        for gone in &report.out_of_range {
            out.result(json!({ "out_of_range": gone }), || left(gone))?;
        }
        for answer in &report.answers {
            let tokens = items[answer.text].rows().real;
            let cosines = cosines(answer);
            let shown: Vec<String> = cosines.iter().map(|(name, c)| format!("{name} {c:.6}")).collect();
            let cosine: Map<String, Value> = cosines.into_iter().map(|(name, c)| (name.to_owned(), json!(c))).collect();
            let object = json!({ "text_index": answer.text, "tokens": tokens, "cosine": cosine });
            out.result(object, || format!("text {:<4} cosine to the clear answer: {}", answer.text, shown.join(", ")))?;
        }
        self.table(out, &report)?;
        if let Some(path) = &self.plot {
            let title = format!(
                "{}, {rows} rows a text, {} ({})",
                counted(items.len(), "text"),
                self.set(),
                counted(layers, "layer")
            );
            fs::write(path, plot::svg(&report.stages, &title))
                .map_err(|source| CliError::WriteFile { path: path.clone(), source })?;
        }
        let head = program.vocabulary().and_then(|head| head.weights.as_deref());
        self.end(out, &report, &Texts { documents, texts: items.len(), scores, head })
    }

    fn on_key(&self) -> OnKey {
        let given = self.max_memory.map(|gib| u64::from(gib) << 30);
        let free = || Machine::read().memory_free.map(|bytes| bytes / 8 * 7);
        OnKey { max_memory: given.or_else(free), spill: self.spill.clone() }
    }

    fn table(&self, out: &Output, report: &Report) -> Result<(), CliError> {
        if !report.stages.is_empty() {
            out.note(
                "differences over the RMS of the clear step: RMS (bits), largest; noise is what comes on top of the polynomials",
            );
        }
        for stage in &report.stages {
            let name = if stage.is_output() { "layer" } else { "step" };
            if self.steps || stage.is_output() {
                out.result(json!({ name: stage }), || line(stage))?;
            }
        }
        Ok(())
    }

    fn end(&self, out: &Output, report: &Report, of: &Texts<'_>) -> Result<(), CliError> {
        let Texts { documents, texts, scores, head } = *of;
        let answers = &report.answers;
        let worst = |of: fn(&Stage) -> Option<Difference>| {
            let stage = report.worst_layer(of);
            stage.map(|s| format!("layer.{}", s.layer))
        };
        let (approximations, noise) = (worst(|s| Some(s.polynomial)), worst(|s| Some(s.predicted_noise)));
        // None without an encrypted run.
        let (encrypted, measured) = (worst(|s| s.encrypted), worst(|s| s.encrypted_noise));
        let mut end = json!({
            "texts": texts, "left_out": texts - answers.len(), "parameters": self.set(), "seed": self.seed,
            "worst_layer": { "polynomial": approximations, "noise": noise, "encrypted": encrypted, "measured_noise": measured },
        });
        let named = |name: &Option<String>| name.clone().unwrap_or("no layer".to_owned());
        let mut text = format!("{}, {} left out", counted(texts, "text"), texts - answers.len());
        if self.texts.is_none() {
            text +=
                &format!("; most is lost to polynomials in {}, to noise in {}", named(&approximations), named(&noise));
        }
        if let (Some(encrypted), Some(measured)) = (&encrypted, &measured) {
            text += &format!("\nencrypted, most is lost in {encrypted}, and to measured noise in {measured}");
        }
        let all: Vec<&Answer> = answers.iter().collect();
        let (found, asked): (Vec<&Answer>, Vec<&Answer>) = all.iter().copied().partition(|a| a.text < documents);
        for (name, of) in RUNGS {
            let cosines: Vec<f64> = answers.iter().filter_map(|a| Some(cosine(&a.clear, of(a)?))).collect();
            if cosines.is_empty() {
                continue;
            }
            let least = cosines.iter().copied().fold(f64::INFINITY, f64::min);
            let mean = cosines.iter().sum::<f64>() / cosines.len() as f64;
            if let Some(head) = head {
                let next = next_tokens(answers, head, of)?;
                end[name] = json!({ "cosine_min": least, "cosine_mean": mean, "next": next.json() });
                text += &format!(
                    "\n{name}: least cosine {least:.6}, mean {mean:.6}; likeliest next token the same for {} of {}, its log probability differs by at most {:.4}",
                    next.same, next.texts, next.farthest
                );
                continue;
            }
            let nearest = retrieval(&all, &all, of);
            let mut object = json!({ "cosine_min": least, "cosine_mean": mean, "nearest": nearest });
            text += &format!(
                "\n{name}: least cosine {least:.6}, mean {mean:.6}; nearest other text the same for {} of {}",
                nearest.match_count, nearest.queries
            );
            if !asked.is_empty() {
                let ranked = retrieval(&asked, &found, of);
                object["retrieval"] = json!(ranked);
                text += &format!(
                    "; first document the same for {} of {}, {} of {} of documents in the other order",
                    ranked.match_count,
                    counted(ranked.queries, "query"),
                    ranked.swapped,
                    counted(ranked.pairs, "pair")
                );
            }
            if let Some((clear, private, agreement)) = correlations(answers, scores, of) {
                object["rank_correlation"] = json!({ "clear": clear, "private": private, "agreement": agreement });
                text += &format!(
                    "; rank correlation with the labels {private:.4}, in the clear {clear:.4}; with the clear ranking {agreement:.6}"
                );
            }
            end[name] = object;
        }
        out.summary(end, &text)
    }
}

/// What the summary of a comparison needs to know of the texts.
#[derive(Clone, Copy)]
struct Texts<'a> {
    /// The number of documents; the remaining texts are queries.
    documents: usize,
    texts: usize,
    scores: &'a [f64],
    /// The head of a decoder.
    head: Option<&'a Matrix<f32>>,
}

/// The next tokens of a rung compared with the clear ones.
#[derive(Default)]
struct NextTokens {
    texts: usize,
    /// Texts whose likeliest token is the same.
    same: usize,
    /// The largest difference of the logarithm of that token's probability.
    farthest: f64,
}

impl NextTokens {
    fn json(&self) -> Value {
        json!({ "texts": self.texts, "same": self.same, "log_probability_max_difference": self.farthest })
    }
}

fn next_tokens(
    answers: &[Answer],
    head: &Matrix<f32>,
    of: impl Fn(&Answer) -> Option<&[f64]>,
) -> Result<NextTokens, CliError> {
    let mut next = NextTokens::default();
    for answer in answers {
        let Some(found) = of(answer) else { continue };
        let found = likeliest(head, found, head.rows())?;
        let clear = likeliest(head, &answer.clear, 1)?;
        let (Some(first), Some(clear)) = (found.first(), clear.first()) else {
            continue;
        };
        let same = found.iter().find(|token| token.0 == clear.0);
        let apart = same.map_or(f64::INFINITY, |token| (token.1 - clear.1).abs());
        next.texts += 1;
        next.same += usize::from(first.0 == clear.0);
        next.farthest = next.farthest.max(apart);
    }
    Ok(next)
}

fn cosines(answer: &Answer) -> Vec<(&'static str, f64)> {
    let of = |(name, of): &Rung| Some((*name, cosine(&answer.clear, of(answer)?)));
    RUNGS.iter().filter_map(of).collect()
}

/// Rank correlations over the pairs whose texts are both left: clear cosines with the labels, a rung's with the labels,
/// and a rung's with the clear ones.
fn correlations(answers: &[Answer], scores: &[f64], of: impl Fn(&Answer) -> Option<&[f64]>) -> Option<(f64, f64, f64)> {
    let at = |text: usize| answers.iter().find(|a| a.text == text);
    let (mut clear, mut private, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    for (i, score) in scores.iter().enumerate() {
        if let (Some(a), Some(b)) = (at(2 * i), at(2 * i + 1)) {
            clear.push(cosine(&a.clear, &b.clear));
            private.push(cosine(of(a)?, of(b)?));
            labels.push(*score);
        }
    }
    (!labels.is_empty()).then(|| {
        (rank_correlation(&clear, &labels), rank_correlation(&private, &labels), rank_correlation(&clear, &private))
    })
}

fn left(gone: &OutOfRange) -> String {
    let who = match gone.text {
        Some(text) => format!("text {text} leaves its calibrated range"),
        None => "the texts together leave their calibrated range".to_owned(),
    };
    let (rung, message) = (words(gone.rung), &gone.message);
    match gone.layer {
        Some(layer) => {
            format!("{who} in layer {layer}, with {rung}, and is left out from there: {message}")
        }
        None => format!("{who}, with {rung}, and is left out: {message}"),
    }
}

fn words(rung: Which) -> &'static str {
    match rung {
        Which::Polynomial => "polynomials alone",
        Which::Predicted => "simulated errors",
        Which::Encrypted => "ciphertexts",
    }
}

fn line(stage: &Stage) -> String {
    let shown = |d: &Difference| format!("{:.2e} ({:4.1}) {:.1e}", d.rms, d.bits, d.max);
    let mut line = format!(
        "{:<26} clear {:<7.4} polynomial {}  predicted noise {}  predicted {}",
        stage.site,
        stage.clear_rms,
        shown(&stage.polynomial),
        shown(&stage.predicted_noise),
        shown(&stage.predicted),
    );
    if let (Some(noise), Some(all)) = (&stage.encrypted_noise, &stage.encrypted) {
        line += &format!("  encrypted noise {}  encrypted {}", shown(noise), shown(all));
    }
    line
}
