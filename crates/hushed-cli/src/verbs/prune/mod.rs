//! `hushed prune`: linear layers in place of feed-forward blocks, and what that costs in accuracy.

mod measures;

use std::path::PathBuf;

use hushed_model::prune::{prune, write};
use hushed_model::{FUNCTIONS, Item, Model, ProblemType, Task, cosine, counted, largest};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::images::Given;
use crate::input::Truncate;
use crate::labels;
use crate::output::Output;
use crate::overwrite::refuse;
use measures::Known;

/// One item in this many is not fitted, but compared.
const HELD: usize = 4;

/// Replace feed-forward blocks by linear layers, and write the resulting model
#[derive(clap::Args)]
#[command(
    override_usage = "hushed prune [OPTIONS] --layers <LIST> --out <DIR2> <DIR> <--input <FILE>|--image <FILE>>",
    after_help = "A feed-forward block (two wide layers with an activation between them) becomes the one linear layer that is \
nearest to it on the sample, by least squares. Nothing is trained, so that answers change: what comes out is \
compared with the model as it was on every fourth text, which is not fitted. --labels (--perplexity, --choices) \
takes labelled texts besides, and shows how good answers to them were and are. Under encryption such a block \
takes one level and no polynomial, between two parties one product.

DIR2 is a model folder that every other verb takes. Which layers were pruned is public, as the sizes of a model \
are. Calibrations and keys of DIR are not DIR2's: make them again. functions.json is left out: make it by \
`hushed calibrate --declare` of DIR2.

Examples:
  hushed prune DIR --layers 5 --input data/calibration.txt --out pruned
  hushed prune DIR --layers 5 --input data/calibration.txt --labels pairs.tsv --out pruned
  hushed prune DIR --layers 2 --input texts.txt --labels labelled.tsv --out pruned
  hushed prune DIR --layers 1,3-5 --input texts.txt --perplexity held-out.txt --truncate \\
    --out pruned --json"
)]
pub struct Args {
    /// The model folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    #[command(flatten)]
    given: Given,

    /// The layers, counted from 0: 1,3-5; or all
    #[arg(long, value_name = "LIST")]
    layers: String,

    /// The folder to write, which must not exist
    #[arg(long, value_name = "DIR2")]
    out: PathBuf,

    #[command(flatten)]
    known: Known,

    #[command(flatten)]
    too_long: Truncate,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        refuse(&self.out, "give another --out")?;
        let given = self.given.read()?;
        if given.len() < HELD {
            let given = given.len();
            return Err(CliError::NoneCompared { given, least: HELD });
        }
        let whole = Model::load(&self.dir)?;
        let layers = layers(&self.layers, whole.public.config.layers)?;
        let items = given.items(&whole.public, &self.too_long)?;
        let (mut sample, mut held): (Vec<Item>, Vec<Item>) = Default::default();
        for (i, item) in items.into_iter().enumerate() {
            match i % HELD == HELD - 1 {
                true => held.push(item),
                false => sample.push(item),
            }
        }
        let measures = self.known.measures(&whole, &held, &self.too_long)?;
        let before = measures.iter().map(|measure| measure.of(&whole));
        let before = before.collect::<Result<Vec<_>, _>>()?;
        out.note(&format!("fitting {} to {} …", counted(layers.len(), "layer"), counted(sample.len(), "item")));
        let mut pruned = whole.clone();
        for fit in prune(&mut pruned, &layers, &sample)? {
            let object = json!({ "layer": fit.layer, "rows": fit.rows, "explained": fit.explained });
            out.result(object, || {
                let share = 100.0 * fit.explained;
                format!(
                    "layer {}: {share:.1} % of the variance is linear, over {}",
                    fit.layer,
                    counted(fit.rows, "row")
                )
            })?;
        }
        let (mut object, mut words) = compared(&whole, &pruned, held)?;
        for (measure, before) in measures.iter().zip(before) {
            words += &measure.show(&mut object, [before, measure.of(&pruned)?]);
        }
        write(&pruned, &self.dir, &self.out)?;
        object["written"] = json!(self.out);
        let declared = &whole.public.config;
        if declared.tolerance.is_some() || !declared.norms.is_empty() {
            object["left_out"] = json!(FUNCTIONS);
            let need = match declared.norms.is_empty() {
                true => "",
                false => ", whose norms the usual format does not hold without it",
            };
            out.warn(&format!(
                "{FUNCTIONS} of {} was measured before and is left out: run `hushed calibrate --declare` on {} before \
                 2pc{need}",
                self.dir.display(),
                self.out.display()
            ));
        }
        out.summary(object, &format!("{words}; written to {}", self.out.display()))
    }
}

/// Compares the answers of two models to the same items.
fn compared(whole: &Model, pruned: &Model, items: Vec<Item>) -> Result<(Value, String), CliError> {
    let (mut near, mut apart, mut named, mut same, count) = (Vec::new(), Vec::new(), true, 0, items.len());
    for item in items {
        let [before, after] = [whole, pruned].map(|model| model.embed(vec![item.clone()]));
        let (before, after) = (before?.concat(), after?.concat());
        near.push(cosine(&before, &after));
        apart.push(labels::farthest(&before, &after));
        let [before, after] = [before, after].map(|numbers| match whole.public.task() {
            Task::Generate => Some(vec![largest(&numbers) as usize]),
            Task::Classify | Task::Embed => labels::named(&whole.public, &numbers),
        });
        named &= before.is_some();
        same += usize::from(before == after);
    }
    let mean = |of: &[f64]| of.iter().sum::<f64>() / count.max(1) as f64;
    let what = match (whole.public.task(), named) {
        (Task::Embed, _) => {
            let (least, mean) = (near.iter().copied().fold(1.0, f64::min), mean(&near));
            let object = json!({ "compared": count, "cosine_min": least, "cosine_mean": mean });
            let words = format!("of {count} others: cosine {mean:.5} in the mean, {least:.5} least");
            return Ok((object, words));
        }
        (_, false) => {
            let (most, mean) = (apart.iter().copied().fold(0.0, f64::max), mean(&apart));
            let object = json!({ "compared": count, "difference_max": most, "difference_mean": mean });
            let words = format!("of {count} others: numbers differ by {mean:.4} in the mean, {most:.4} at most");
            return Ok((object, words));
        }
        (Task::Classify, true) if whole.public.config.problem == ProblemType::MultiLabel => "labels",
        (Task::Classify, true) => "label",
        (Task::Generate, true) => "next token",
    };
    let object = json!({ "compared": count, "same": same });
    Ok((object, format!("of {count} others {same} have the same {what}")))
}

/// Parses a list such as `1,3-5` of layers below `count`.
fn layers(list: &str, count: usize) -> Result<Vec<usize>, CliError> {
    if list == "all" {
        return Ok((0..count).collect());
    }
    let bad = || CliError::Layers { list: list.to_owned(), count };
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let place = |text: &str| text.trim().parse().ok().filter(|&place: &usize| place < count);
        let (first, last) = (place(first).ok_or_else(bad)?, place(last).ok_or_else(bad)?);
        all.extend(first..=last);
    }
    all.sort_unstable();
    all.dedup();
    match all.is_empty() {
        true => Err(bad()),
        false => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::layers;

    #[test]
    fn lists_of_layers() {
        assert_eq!(layers("1,3-5,4", 6).unwrap(), [1, 3, 4, 5]);
        assert_eq!(layers("all", 2).unwrap(), [0, 1]);
        for bad in ["", "6", "2-9", "5-3", "a", "1,,2", "-1"] {
            assert!(layers(bad, 6).is_err(), "{bad}");
        }
    }
}
