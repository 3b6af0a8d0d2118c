//! How good a model's answers are, by what is known of some texts.

use std::path::PathBuf;

use hushed_model::{Item, Model, ProblemType, Task, TokenIds};
use hushed_serve::fhe::{Item as Choice, chosen_in_clear, perplexity, tokens_scored_in_clear};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::images::{self, Read};
use crate::input::{self, Truncate, read_lines};
use crate::labels::{self, likeness, rank_correlation};

/// Labelled texts or images, of which none is fitted.
#[derive(clap::Args)]
// A verb takes these besides its own.
#[group(skip)]
pub struct Known {
    /// Show how good answers are before and after. Of a classifier, a file of labels and texts, tab-separated (of
    /// images, labels and paths; where several labels may be right, those of a text separated by `|`): its accuracy,
    /// the share of texts with exactly the labels given. Of embeddings and of a head of one number, a file of pairs,
    /// text, text and a number: the rank correlation of cosines or scores with the numbers, as `verify --labels` has it
    #[arg(long, value_name = "FILE.tsv", env = "HUSHED_LABELS")]
    labels: Option<PathBuf>,

    /// With a model that generates: show the perplexity of these texts, one per line, instead of that of every fourth
    #[arg(long, value_name = "FILE", env = "HUSHED_PERPLEXITY")]
    perplexity: Option<PathBuf>,

    /// With a model that generates: show how often it chooses the right ending; a file as for `clear --choices`, with
    /// a label in every item
    #[arg(long, value_name = "FILE", env = "HUSHED_CHOICES")]
    choices: Option<PathBuf>,
}

/// A measure, and what it is taken over.
pub enum Measure {
    /// The share of items whose classes are the ones given.
    Classes(Vec<Item>, Vec<Vec<usize>>),
    /// The rank correlation of what is said of pairs with their scores.
    Pairs(Vec<Item>, Vec<f64>),
    /// The perplexity of texts.
    Texts(Vec<TokenIds>),
    /// The share of items whose right ending is the likeliest.
    Choices(Vec<Choice>),
}

impl Known {
    /// The measures of what was given, all of which is read and checked; `held` are texts that are not fitted.
    pub fn measures(&self, model: &Model, held: &[Item], too_long: &Truncate) -> Result<Vec<Measure>, CliError> {
        let (public, task, problem) = (&model.public, model.public.task(), model.public.config.problem);
        let given = [&self.labels, &self.perplexity, &self.choices].map(Option::is_some);
        match (task, given) {
            (Task::Generate, [true, ..]) => {
                return Err(other("--labels", "--perplexity or --choices"));
            }
            (Task::Classify | Task::Embed, [_, true, _]) => {
                return Err(other("--perplexity", "--labels"));
            }
            (Task::Classify | Task::Embed, [.., true]) => {
                return Err(other("--choices", "--labels"));
            }
            _ => {}
        }
        let mut measures = Vec::new();
        if let Some(path) = &self.labels {
            let lines = read_lines(path)?;
            measures.push(match public.labels() {
                Some(_) if problem == ProblemType::Regression && !public.config.scores() => {
                    return Err(other("--labels", "no labels, because its numbers are values"));
                }
                Some(names) if !public.config.scores() => {
                    let (items, classes) = labels::classes(&lines, names, problem)?;
                    let read = match public.config.patch_side {
                        0 => Read::Texts(items),
                        _ => Read::Images(images::files(&items)?),
                    };
                    Measure::Classes(read.items(public, too_long)?, classes)
                }
                _ => {
                    let (texts, scores) = labels::pairs(&lines)?;
                    Measure::Pairs(labels::paired(texts, public, too_long)?, scores)
                }
            });
        }
        if task == Task::Generate {
            let text = |item: &Item| match item {
                Item::Text(ids) => Some(ids.clone()),
                Item::Image(_) => None,
            };
            measures.push(Measure::Texts(match &self.perplexity {
                Some(path) => too_long.tokens(public, &read_lines(path)?)?,
                None => held.iter().filter_map(text).collect(),
            }));
        }
        if let Some(path) = &self.choices {
            let items = input::items(path)?;
            if let Some(index) = items.iter().position(|item| item.label.is_none()) {
                return Err(CliError::Labels { line: index + 1, expected: "an item with a \"label\"" });
            }
            measures.push(Measure::Choices(items));
        }
        Ok(measures)
    }
}

fn other(given: &'static str, instead: &'static str) -> CliError {
    CliError::OtherTask { given, instead }
}

impl Measure {
    /// Its value for a model; `None` where it is undefined, as the perplexity of single tokens.
    pub fn of(&self, model: &Model) -> Result<Option<f64>, CliError> {
        let share = |right: usize, all: usize| Some(right as f64 / all.max(1) as f64);
        match self {
            Measure::Classes(items, classes) => {
                let answers = answers(model, items)?;
                let both = answers.iter().zip(classes);
                let right = both.filter(|(logits, given)| labels::named(&model.public, logits).as_ref() == Some(given));
                Ok(share(right.count(), classes.len()))
            }
            Measure::Pairs(items, scores) => {
                let answers = answers(model, items)?;
                let found = likeness(answers.iter().map(Vec::as_slice), scores.len());
                let ranks = rank_correlation(&found, scores);
                Ok(Some(ranks).filter(|ranks| ranks.is_finite()))
            }
            Measure::Texts(texts) => Ok(perplexity(&tokens_scored_in_clear(model, texts)?)),
            Measure::Choices(items) => {
                let chosen = chosen_in_clear(model, items)?;
                let right = chosen.iter().filter(|item| item.right == Some(true));
                Ok(share(right.count(), items.len()))
            }
        }
    }

    /// What it is called, and how many it is taken over.
    fn name(&self) -> (&'static str, usize) {
        match self {
            Measure::Classes(_, classes) => ("accuracy", classes.len()),
            Measure::Pairs(_, scores) => ("rank_correlation", scores.len()),
            Measure::Texts(texts) => ("perplexity", texts.len()),
            Measure::Choices(items) => ("accuracy", items.len()),
        }
    }

    /// Adds its values for the model before and after to an object, and returns them in words.
    pub fn show(&self, object: &mut Value, [before, after]: [Option<f64>; 2]) -> String {
        let (name, count) = self.name();
        object[name] = json!({ "over": count, "before": before, "after": after });
        let [before, after] = [before, after].map(|value| match value {
            Some(value) => format!("{value:.4}"),
            None => "none".to_owned(),
        });
        let name = name.replace('_', " ");
        format!("; {name} over {count}: {before} before and {after} after")
    }
}

/// The answers to items, one by one.
fn answers(model: &Model, items: &[Item]) -> Result<Vec<Vec<f64>>, CliError> {
    let each = items.iter().map(|item| Ok(model.embed(vec![item.clone()])?.concat()));
    each.collect()
}
