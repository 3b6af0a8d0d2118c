//! `hushed decrypt`: decrypts the reply to a batch.

use std::path::PathBuf;

use hushed_fhe::AnswerRows;
use hushed_model::counted;
use hushed_serve::fhe::{self, Answer, CanaryOutcome, Chosen, Head, Item, Scored, Wanted, perplexity};
use serde_json::{Value, json};

use super::encrypt::Files;
use crate::connect::at_least_one;
use crate::error::CliError;
use crate::graphs;
use crate::input::{Given, items, read_lines};
use crate::output::{Output, answer, answer_text};

/// Decrypt the answers of a run
#[derive(clap::Args)]
#[command(
    after_help = "Numbers are rounded to what the manifest certifies. If it has a canary, the canary's answer is compared with the \
published one, here and nowhere else. If it differs, the batch cannot be trusted: nothing is printed without \
--anyway, and the keys are retired, so that nothing more is encrypted for them. A right canary proves nothing \
about a server that cheats on single texts.

Of a decoder each text is answered with the hidden state of its last row, or its logits. The likeliest next \
tokens are made of it here. What follows them takes another run: to send back a token that was read from a reply \
would tell the server something about the key (docs/ensi.md).

Where the manifest says `--answer rows` it is answered with the hidden states of all rows (with --json all of \
them are in `hidden_states`), and the likelihoods of the text's own tokens are made of them here: --choices FILE \
shows which ending of each item is the likeliest, --perplexity FILE the likelihood and the perplexity of each \
text. FILE is what was encrypted: the texts are not in the reply.

Do not publish the numbers, or report them with an error: each decryption reveals a little about the secret key. \
Decryptions are counted.

Examples:
  hushed decrypt --manifest manifest.json --public model.public --keys keys --reply reply
  hushed decrypt --manifest manifest.json --public model.public --keys keys --reply reply --json
  hushed decrypt --manifest manifest.json --public model.public --keys keys --reply reply --top 10
  hushed decrypt --manifest manifest.json --public model.public --keys keys --reply reply \\
    --choices items.jsonl
  hushed decrypt --manifest manifest.json --public model.public --keys keys --reply reply \\
    --perplexity texts.txt --json
  hushed decrypt --manifest manifest.json --keys keys --reply reply --npy answers.npy     a network"
)]
pub struct Args {
    #[command(flatten)]
    files: Files,

    /// The reply
    #[arg(long, value_name = "FILE")]
    reply: PathBuf,

    /// Print the answers even if the canary's is wrong
    #[arg(long)]
    anyway: bool,

    /// Of a network: also write the answers to FILE as an array of numpy, one entry of its first dimension per input
    #[arg(long, value_name = "FILE.npy")]
    npy: Option<PathBuf>,

    #[command(flatten)]
    next: Next,

    /// For a decoder that is read at all rows: the items that were encrypted. Shows the likelihood of each ending, the
    /// likeliest, and how often that is the right one
    #[arg(long, value_name = "FILE", env = "HUSHED_CHOICES")]
    choices: Option<PathBuf>,

    /// For a decoder that is read at all rows: the texts that were encrypted, one per line. Shows the likelihood and
    /// the perplexity of each
    #[arg(long, value_name = "FILE", conflicts_with = "choices", env = "HUSHED_PERPLEXITY")]
    perplexity: Option<PathBuf>,
}

/// What is shown of answers.
pub enum View<'a> {
    /// Embeddings and logits; for a decoder the likeliest next tokens.
    Next(&'a Next),
    /// Likelihoods of the texts that were encrypted.
    Texts(&'a [String]),
    /// Choices between the endings of the items that were encrypted.
    Items(&'a [Item]),
}

impl<'a> View<'a> {
    /// The likelihoods of what was given.
    pub fn of(given: &'a Given) -> View<'a> {
        match given {
            Given::Texts(texts) => View::Texts(texts),
            Given::Items(items) => View::Items(items),
        }
    }
}

/// What is shown of a decoder's answers.
#[derive(clap::Args)]
pub struct Next {
    /// For a decoder: show the K likeliest next tokens of each text, with the logarithms of their probabilities
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = at_least_one)]
    top: usize,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let files = &self.files;
        if files.of_network() {
            let npy = self.npy.as_deref();
            return graphs::decrypt(&files.plan, &files.keys, &self.reply, npy, out);
        }
        if self.npy.is_some() {
            return Err(CliError::OtherTask { given: "--npy", instead: "--json" });
        }
        // Read before the key is used: a file that cannot be read costs no decryption.
        let given = match (&self.choices, &self.perplexity) {
            (Some(path), _) => Some(Given::Items(items(path)?)),
            (None, Some(path)) => Some(Given::Texts(read_lines(path)?)),
            (None, None) => None,
        };
        if given.is_some() {
            Wanted::Likelihoods.check_file(&files.plan)?;
        }
        let opened = fhe::decrypt(&files.plan, files.public()?, &files.keys, &self.reply)?;
        let view = given.as_ref().map_or(View::Next(&self.next), View::of);
        show(out, &opened, self.anyway, &view)
    }
}

impl Next {
    /// Prints the likeliest tokens after a text.
    fn show(
        &self,
        out: &Output,
        head: &Head,
        (index, tokens): (usize, usize),
        rows: &[&[f64]],
    ) -> Result<(), CliError> {
        let last = rows.last().copied().unwrap_or_default();
        let next = head.likeliest(last, self.top)?;
        let listed: Vec<Value> =
            next.iter().map(|t| json!({ "id": t.id, "text": t.text, "log_probability": t.log_probability })).collect();
        let mut object = json!({
            "text_index": index, "tokens": tokens, "next": listed,
        });
        match head.answer() {
            AnswerRows::Logits => object["logits"] = json!(last),
            AnswerRows::Last => object["hidden_state"] = json!(last),
            AnswerRows::Rows => {
                object["hidden_state"] = json!(last);
                object["hidden_states"] = json!(rows);
            }
        }
        out.result(object, || {
            let shown = next.iter().map(|t| format!("{:?} {:.3}", t.text, t.log_probability));
            let shown: Vec<String> = shown.collect();
            format!("text {index}, {}: next {}", counted(tokens, "token"), shown.join(", "))
        })
    }
}

/// Prints the answers, unless the canary's is wrong and they are not wanted `anyway`.
pub fn show(out: &Output, opened: &Answer, anyway: bool, view: &View<'_>) -> Result<(), CliError> {
    match opened.check_canary() {
        Err(_) if anyway => {
            out.note("the canary's answer is not the published one: these numbers are not to be trusted")
        }
        checked => checked?,
    }
    let found = match view {
        View::Next(next) => show_answers(out, opened, next)?,
        View::Texts(texts) => show_likelihoods(out, &opened.scored(texts)?, None)?,
        View::Items(items) => show_choices(out, &opened.chosen(items)?)?,
    };
    let (checked, told) = checked(opened.canary);
    let mut object = json!({
        "texts": opened.embeddings.len(), "decryptions": opened.decryptions, "labels": opened.labels,
    });
    let (more, words) = found;
    for more in [checked, more] {
        if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
            object.extend(more);
        }
    }
    out.summary(
        object,
        &format!(
            "{}{words}; {told}; {} opened with this key so far",
            counted(opened.embeddings.len(), "text"),
            counted(usize::try_from(opened.decryptions).unwrap_or(usize::MAX), "ciphertext")
        ),
    )
}

/// What is known of the server's work, as an object and in words.
fn checked(canary: Option<CanaryOutcome>) -> (Value, String) {
    let object = json!({
        "canary": canary.map(|c| json!({ "cosine": c.cosine, "least": c.least, "good": c.is_good() })),
        "unchecked": canary.is_none(),
    });
    let told = match canary {
        Some(canary) => format!("the canary's cosine is {:.5}", canary.cosine),
        None => "unchecked, as the manifest has no canary".to_owned(),
    };
    (object, told)
}

/// What the last line adds about all texts, as an object and in words.
pub type Whole = (Value, String);

fn show_answers(out: &Output, opened: &Answer, next: &Next) -> Result<Whole, CliError> {
    let classes = opened.labels.as_deref().map(|labels| (labels, opened.problem));
    let texts = opened.embeddings.iter().zip(&opened.tokens);
    for (index, (numbers, &tokens)) in texts.enumerate() {
        if let Some(head) = &opened.head {
            let rows: Vec<&[f64]> = opened.rows(index).collect();
            next.show(out, head, (index, tokens), &rows)?;
            continue;
        }
        let object = answer(index, tokens, numbers, classes);
        out.result(object, || answer_text(index, tokens, numbers, classes))?;
    }
    Ok((Value::Null, String::new()))
}

/// Prints the likelihoods of texts; `rounded` are those by a model that rounds what ternary layers read to 8 bits.
pub fn show_likelihoods(out: &Output, texts: &[Scored], rounded: Option<&[Scored]>) -> Result<Whole, CliError> {
    let int8 = |p: f64| format!(" ({p:.3} with activations of 8 bits)");
    for (index, text) in texts.iter().enumerate() {
        let (tokens, sum) = (text.log_probabilities.len() + 1, text.log_likelihood());
        let likeliest = text.likeliest.iter();
        let likeliest = likeliest.map(|(id, log)| json!({ "id": id, "log_probability": log }));
        let mut object = json!({
            "text_index": index, "tokens": tokens, "log_likelihood": sum, "perplexity": text.perplexity(),
            "log_probabilities": text.log_probabilities, "likeliest": likeliest.collect::<Vec<_>>(),
        });
        let rounded = rounded.and_then(|rounded| rounded.get(index));
        if let Some(rounded) = rounded {
            object["log_likelihood_int8"] = json!(rounded.log_likelihood());
            object["perplexity_int8"] = json!(rounded.perplexity());
        }
        out.result(object, || {
            let perplexity = text
                .perplexity()
                .map_or_else(|| "no perplexity: there is one token".to_owned(), |p| format!("perplexity {p:.3}"));
            let rounded = rounded.and_then(Scored::perplexity);
            let rounded = rounded.map_or_else(String::new, int8);
            format!("text {index}, {}: log-likelihood {sum:.4}, {perplexity}{rounded}", counted(tokens, "token"))
        })?;
    }
    let all = perplexity(texts);
    let mut object = json!({ "perplexity": all });
    let mut words = all.map_or_else(String::new, |p| format!("; perplexity {p:.3}"));
    if let Some(rounded) = rounded.map(perplexity) {
        object["perplexity_int8"] = json!(rounded);
        words += &rounded.map_or_else(String::new, int8);
    }
    Ok((object, words))
}

/// Prints the choices of items.
pub fn show_choices(out: &Output, items: &[Chosen]) -> Result<Whole, CliError> {
    for (index, item) in items.iter().enumerate() {
        let object = json!({
            "item": index, "log_likelihoods": item.log_likelihoods, "tokens": item.tokens, "pick": item.pick,
            "margin": item.margin, "right": item.right,
        });
        out.result(object, || {
            let all = item.log_likelihoods.iter().map(|l| format!("{l:.4}"));
            let right = match item.right {
                Some(true) => ", right",
                Some(false) => ", wrong",
                None => "",
            };
            let all = all.collect::<Vec<_>>().join(", ");
            format!("item {index}: ending {} of [{all}]{right}", item.pick)
        })?;
    }
    let known = items.iter().filter(|item| item.right.is_some()).count();
    let right = items.iter().filter(|item| item.right == Some(true)).count();
    let accuracy = (known > 0).then(|| right as f64 / known as f64);
    let words = match known {
        0 => format!(" in {}", counted(items.len(), "item")),
        known => format!(" in {}; {right} of {known} right", counted(items.len(), "item")),
    };
    let object = json!({
        "items": items.len(), "labelled": known, "right": right, "accuracy": accuracy,
    });
    Ok((object, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A single text leaves no place for a canary: a script that reads JSON must not take its answer for checked.
    #[test]
    fn an_answer_without_a_canary_is_unchecked() {
        let (object, told) = checked(None);
        assert_eq!(object, json!({ "canary": null, "unchecked": true }));
        assert!(told.starts_with("unchecked"), "{told}");
        for (cosine, good) in [(0.75, true), (0.25, false)] {
            let least = 0.5;
            let (object, told) = checked(Some(CanaryOutcome { cosine, least }));
            let canary = json!({ "cosine": cosine, "least": least, "good": good });
            assert_eq!(object, json!({ "canary": canary, "unchecked": false }));
            assert!(told.contains(&cosine.to_string()) && !told.contains("unchecked"), "{told}");
        }
    }
}
