//! `hushed clear`: the same answer in the clear, by the holder of the model folder, to compare the private answer with.

use std::path::PathBuf;
use std::time::Instant;

use hushed_model::{Ending, Graph, Model, ModelError, Task, TokenIds, TooLong, counted, drafted, prompt_lookup};
use hushed_serve::{MAX_DRAFTS, fhe, read_prefix};
use serde_json::json;

use crate::error::CliError;
use crate::graphs;
use crate::images::Given;
use crate::input::{Begin, PairQuery, Truncate, items, read_lines};
use crate::output::{Output, answer, answer_text};
use crate::verbs::fhe::decrypt::{show_choices, show_likelihoods};

/// The number of tokens that a generator adds by default.
const MAX_TOKENS: usize = 32;

/// Embed, classify or continue texts in the clear, or classify images, with the weights of a model folder
#[derive(clap::Args)]
#[command(
    override_usage = "hushed clear [OPTIONS] <DIR> <TEXT|--input <FILE>|--image <FILE>|--choices <FILE>|--perplexity <FILE>>"
)]
#[command(after_help = "Examples:
  hushed clear DIR \"a small test\"
  hushed clear DIR --input texts.txt --json
  hushed clear DIR --max-tokens 32 \"Once upon a time\"
  hushed clear DIR --max-tokens 100 --draft 3 \"Once upon a time\"
  hushed clear DIR --public-prefix system.txt \"Which clause covers this?\"
  hushed clear DIR --perplexity texts.txt
  hushed clear DIR --image cat.jpg
  hushed clear DIR --query-file query.txt --input documents.txt
  hushed clear DIR --input numbers.jsonl       a network (docs/networks.md); also a .npy file")]
pub struct Args {
    /// The model folder (config.json, model.safetensors, tokenizer.json, …), or one with graph.json (docs/networks.md)
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    #[command(flatten)]
    given: Given,

    /// With a model that generates text: a file with one item per line, as for `encrypt --choices`; shows the
    /// likelihood of each ending, the likeliest, and how often that is the right one
    #[arg(long, value_name = "FILE", group = "Given", env = "HUSHED_CHOICES")]
    choices: Option<PathBuf>,

    /// With a model that generates text: a file with one text per line; shows the likelihood and the perplexity of
    /// each, and for a ternary model (BitNet) also with the numbers that its ternary layers read rounded to 8 bits
    #[arg(long, value_name = "FILE", group = "Given", env = "HUSHED_PERPLEXITY")]
    perplexity: Option<PathBuf>,

    #[command(flatten)]
    query: PairQuery,

    #[command(flatten)]
    too_long: Truncate,

    /// With a model that generates text: a file with a text to put before each text, as with `serve --public-prefix`
    #[arg(long, value_name = "FILE", env = "HUSHED_PUBLIC_PREFIX")]
    public_prefix: Option<PathBuf>,

    #[command(flatten)]
    begin: Begin,

    /// With a model that generates text: maximum tokens to add, the likeliest each time (32 if not given)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,

    /// With a model that generates text: verify N guesses of the next tokens in each pass, as `generate --draft N`
    /// does, and say how many were right
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=i64::from(MAX_DRAFTS)))]
    draft: u16,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        if Graph::is_in(&self.dir) {
            return self.graph(out);
        }
        if self.choices.is_some() || self.perplexity.is_some() {
            return self.likelihoods(out);
        }
        let given = self.given.read()?;
        let start = Instant::now();
        let model = Model::load(&self.dir)?;
        let load_seconds = start.elapsed().as_secs_f64();
        if model.public.task() == Task::Generate {
            return self.generate(out, &model, &given.texts()?, load_seconds);
        }
        if self.max_tokens.is_some() || self.public_prefix.is_some() || self.draft > 0 {
            return Err(ModelError::NotAGenerator.into());
        }

        let labels = model.public.labels();
        let classes = labels.map(|labels| (labels, model.public.config.problem));
        let items = match self.query.read(out, self.given.input())? {
            Some(query) => given.pairs(&model.public, &query, &self.too_long)?,
            None => given.items(&model.public, &self.too_long)?,
        };
        let in_text = |index| move |source| CliError::Text { index, source };

        let start = Instant::now();
        let bar = out.progress(items.len() as u64, "embedding");
        for (index, item) in items.into_iter().enumerate() {
            let count = item.rows().real;
            for numbers in model.embed(vec![item]).map_err(in_text(index))? {
                let mut object = answer(index, count, &numbers, classes);
                if let (true, [logit]) = (model.public.config.scores(), numbers.as_slice()) {
                    object["score"] = json!(model.public.score.of(*logit));
                }
                out.result(object, || answer_text(index, count, &numbers, classes))?;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        let seconds = start.elapsed().as_secs_f64();
        let mut end = json!({ "texts": given.len(), "seconds": seconds, "load_seconds": load_seconds });
        if let Some(labels) = labels {
            end["labels"] = json!(labels);
        }
        out.summary(
            end,
            &format!("{} in {seconds:.2} s, model read in {load_seconds:.2} s", counted(given.len(), "text")),
        )
    }

    /// Shows a network's answers to inputs.
    fn graph(&self, out: &Output) -> Result<(), CliError> {
        let bytes = self.given.numbers()?;
        let (given, query) = (bytes.is_none(), self.query.read(out, self.given.input())?.is_some());
        let generating = self.max_tokens.is_some() || self.public_prefix.is_some() || self.draft > 0;
        match bytes {
            Some(bytes) if !query && !generating => graphs::clear(&self.dir, &bytes, out),
            _ => {
                let given = if given { "images, choices or perplexity" } else { "options for texts" };
                Err(CliError::OtherTask { given, instead: "numbers: --input with JSON Lines or a .npy file" })
            }
        }
    }

    /// Shows the likelihoods of texts or endings.
    fn likelihoods(&self, out: &Output) -> Result<(), CliError> {
        let items = self.choices.as_deref().map(items).transpose()?;
        let texts = self.perplexity.as_deref().map(read_lines).transpose()?;
        let model = Model::load(&self.dir)?;
        let (object, words) = match items {
            Some(items) => show_choices(out, &fhe::chosen_in_clear(&model, &items)?)?,
            None => {
                let texts = texts.unwrap_or_default();
                let exact = fhe::scored_in_clear(&model, &texts, TooLong::Refuse)?;
                let ternary = model.program().linears().any(|layer| layer.ternary);
                let rounded = ternary.then(|| fhe::scored_in_clear_rounded(&model, &texts, TooLong::Refuse));
                show_likelihoods(out, &exact, rounded.transpose()?.as_deref())?
            }
        };
        out.summary(object, &format!("in the clear{words}"))
    }

    /// Continues each text greedily, showing it as it comes.
    fn generate(&self, out: &Output, model: &Model, texts: &[String], load_seconds: f64) -> Result<(), CliError> {
        let start = Instant::now();
        let most = self.max_tokens.map_or(MAX_TOKENS, |n| n as usize);
        let prefix = match &self.public_prefix {
            Some(path) => Some(model.public.prefix(&read_prefix(path)?)?),
            None => None,
        };
        let before = prefix.as_ref().map_or(&[][..], |prefix| prefix.ids());
        // At least one position is left for what follows.
        let limit = model.public.max_tokens.saturating_sub(before.len() + 1);
        let behind = prefix.is_some();
        let prompts = self.too_long.tokens_within(&model.public, texts, limit, behind)?;
        let prompts = self.begin.texts(&model.public, prompts)?;
        let drafts = usize::from(self.draft);
        let (mut made, mut passes, mut guessed, mut right) = (0, 0, 0, 0);
        for (index, prompt) in prompts.iter().enumerate() {
            let tokenizer = model.public.tokenizer().map_err(ModelError::from)?;
            let mut decoder = tokenizer.decoder();
            let decoder = decoder.as_mut().ok_or(ModelError::NotAGenerator)?;
            let (mut ids, mut text, mut written) = (Vec::new(), String::new(), Ok(()));
            let tokens = prompt.rows().real;
            let prompt = TokenIds::new([before, prompt.ids()].concat());
            let guess = (drafts, prompt_lookup);
            let done = drafted(model, &prompt, most, guess, |id, _| {
                let more = decoder.push(id);
                if written.is_ok() {
                    written = out.piece(&more);
                }
                text.push_str(&more);
                ids.push(id);
            });
            written?;
            let done = done.map_err(|source| CliError::Text { index, source })?;
            let rest = decoder.clone().finish();
            text.push_str(rest);
            made += ids.len();
            passes += done.passes;
            guessed += done.drafts;
            right += done.right;
            let object = json!({
                "text_index": index, "tokens": tokens, "generated": text, "ids": ids, "ending": name(done.ending),
            });
            // The text itself has been shown.
            out.result(object, || rest.to_owned())?;
        }
        let seconds = start.elapsed().as_secs_f64();
        let end = json!({
            "texts": texts.len(), "generated_tokens": made, "seconds": seconds, "load_seconds": load_seconds,
            "draft": (drafts > 0).then(|| json!({ "passes": passes, "drafts": guessed, "right": right })),
        });
        let mut note = format!("{} in {seconds:.2} s, model read in {load_seconds:.2} s", counted(made, "token"));
        if drafts > 0 {
            note += &format!("; {}, {right} of {} right", counted(passes, "pass"), counted(guessed, "draft"));
        }
        out.summary(end, &note)
    }
}

fn name(ending: Ending) -> &'static str {
    match ending {
        Ending::EndToken => "end-token",
        Ending::Most => "max-tokens",
        Ending::Positions => "positions",
    }
}
