//! What a client computes from a decoder's hidden states: the likelihood of a text's own tokens and its perplexity, if
//! all rows are answered, and which of several endings of a prompt is the likeliest.
//!
//! ```text
//! log p(token t + 1 | tokens 0 … t) = logit of token t + 1 by row t, less the logarithm of the sum over all tokens
//! log p(ending | prompt) = their sum over the ending's tokens
//! perplexity = exp(−mean over tokens 1 … n − 1)
//! ```

use std::path::Path;

use hushed_fhe::plan::public_plan::{AnswerRows, FhePlan};
use hushed_model::{
    Model, ModelError, Program, Task, TokenIds, TooLong, json_fault, likeliest_of, log_probabilities, log_sum, plain,
};
use serde::Deserialize;

use super::model::encoded;
use super::texts::{Answer, Head, hash_of_ids};
use crate::error::ServeError;
use crate::fhe::{FheJobError, PublicModel, read_plan};

/// What is asked of a decoder; a manifest that answers with less is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The next token of each text.
    Next,
    /// The likelihood of each text's own tokens.
    Likelihoods,
}

impl Wanted {
    /// Checks that a manifest answers with it.
    ///
    /// # Errors
    /// [`FheJobError::OtherAnswer`].
    pub fn check(self, plan: &FhePlan) -> Result<(), ServeError> {
        let planned = match (self, plan.answer) {
            (_, Some(AnswerRows::Rows)) | (Wanted::Next, Some(_)) => return Ok(()),
            (Wanted::Likelihoods, rows) => other(rows),
            (Wanted::Next, None) => other(None),
        };
        let asked = match self {
            Wanted::Next => "the next token",
            Wanted::Likelihoods => "the likelihood of its own tokens",
        };
        Err(FheJobError::OtherAnswer { planned, asked }.into())
    }

    /// [`Wanted::check`] for a manifest in a file.
    ///
    /// # Errors
    /// As [`read_plan`] and [`Wanted::check`].
    pub fn check_file(self, plan: &Path) -> Result<(), ServeError> {
        self.check(&read_plan(plan)?.0)
    }
}

/// What a manifest answers with, if not all rows of a decoder.
fn other(answer: Option<AnswerRows>) -> &'static str {
    match answer {
        Some(AnswerRows::Logits) => "the logits of its last row",
        Some(_) => "the hidden state of its last row",
        None => "what an encoder makes of it",
    }
}

/// A prompt with endings, to choose the likeliest. No `Debug`: it is private.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// What all texts of the item begin with.
    pub prompt: String,
    /// How each text goes on; two or more.
    pub endings: Vec<String>,
    /// The index of the right ending, from 0, if it is known.
    #[serde(default)]
    pub label: Option<usize>,
}

impl Item {
    /// Parses the items of a file, one per line.
    ///
    /// # Errors
    /// [`FheJobError::BadItem`] with its line.
    pub fn parse(lines: &[String]) -> Result<Vec<Item>, ServeError> {
        let item = |(line, text): (usize, &String)| {
            let bad = |why| FheJobError::BadItem { line, why };
            let item: Item = serde_json::from_str(text).map_err(|error| bad(json_fault(&error)))?;
            let count = item.endings.len();
            match count >= 2 && item.label.is_none_or(|label| label < count) {
                true => Ok(item),
                false => Err(bad("fewer than two endings, or a label that none of them has").into()),
            }
        };
        (1..).zip(lines).map(item).collect()
    }

    /// The texts of items as they are encrypted: each prompt with each of its endings.
    #[must_use]
    pub fn texts(items: &[Item]) -> Vec<String> {
        let texts = |item: &Item| {
            let whole = |ending: &String| format!("{}{ending}", item.prompt);
            item.endings.iter().map(whole).collect::<Vec<_>>()
        };
        items.iter().flat_map(texts).collect()
    }
}

/// The likelihood of a text's own tokens. No `Debug`: it is the private answer.
#[derive(Clone)]
pub struct Scored {
    /// Natural logarithms of the probabilities of its tokens from the second on, each given those before it.
    pub log_probabilities: Vec<f64>,
    /// The likeliest token in the place of each of these, and the logarithm of its probability.
    pub likeliest: Vec<(u32, f64)>,
}

impl Scored {
    /// From tokens, each with the logits, or the log probabilities, that predict it.
    fn of(predicted: impl Iterator<Item = Result<(u32, Vec<f64>), ServeError>>) -> Result<Scored, ServeError> {
        let (mut log_probabilities, mut likeliest) = (Vec::new(), Vec::new());
        for one in predicted {
            let (id, logits) = one?;
            let own = logits.get(id as usize).copied();
            log_probabilities.push(own.unwrap_or(f64::NEG_INFINITY) - log_sum(&logits));
            likeliest.extend(likeliest_of(&logits, 1));
        }
        Ok(Scored { log_probabilities, likeliest })
    }

    /// Their sum.
    #[must_use]
    pub fn log_likelihood(&self) -> f64 {
        self.log_probabilities.iter().sum()
    }

    /// exp(−their mean); `None` for a text of one token.
    #[must_use]
    pub fn perplexity(&self) -> Option<f64> {
        perplexity(std::slice::from_ref(self))
    }
}

/// Perplexity over the tokens of several texts; `None` if no token follows another.
#[must_use]
pub fn perplexity(texts: &[Scored]) -> Option<f64> {
    let count: usize = texts.iter().map(|t| t.log_probabilities.len()).sum();
    let sum: f64 = texts.iter().map(Scored::log_likelihood).sum();
    (count > 0).then(|| (-sum / count as f64).exp())
}

/// The choice made for an item. No `Debug`: it is the private answer.
#[derive(Clone)]
pub struct Chosen {
    /// The natural logarithm of each ending's probability given the prompt.
    pub log_likelihoods: Vec<f64>,
    /// Tokens of each ending.
    pub tokens: Vec<usize>,
    /// The likeliest ending; the first of equal ones.
    pub pick: usize,
    /// Its margin over the next, in logarithms.
    pub margin: f64,
    /// Whether it is the right one, if that is known.
    pub right: Option<bool>,
}

impl Head {
    /// The likelihoods of a text's tokens from `from` on, each given those before it, from the hidden states of all its
    /// rows.
    fn of_tokens(&self, rows: &[f64], ids: &[u32], from: usize) -> Result<Scored, ServeError> {
        let rows = rows.chunks(self.table.cols().max(1)).zip(ids.iter().skip(1));
        let rows = rows.skip(from.saturating_sub(1));
        Scored::of(rows.map(|(row, &id)| Ok((id, log_probabilities(&self.table, row)?))))
    }
}

impl Answer {
    /// The hidden states of a text, one row per token; or only that of its last token, or its logits, if the manifest
    /// answers with that alone; the whole answer for any other model.
    pub fn rows(&self, text: usize) -> impl DoubleEndedIterator<Item = &[f64]> {
        let numbers = self.embeddings.get(text).map_or(&[][..], Vec::as_slice);
        let width = self.head.as_ref().map(Head::width);
        numbers.chunks(width.unwrap_or(numbers.len()).max(1))
    }

    /// The last of these rows.
    #[must_use]
    pub fn last_row(&self, text: usize) -> &[f64] {
        self.rows(text).next_back().unwrap_or_default()
    }

    /// The likelihoods of the tokens of these texts, which must be those that were encrypted.
    ///
    /// # Errors
    /// [`FheJobError::OtherAnswer`] if not all rows are answered, [`FheJobError::OtherTexts`].
    pub fn scored(&self, texts: &[String]) -> Result<Vec<Scored>, ServeError> {
        let (head, ids) = self.sent(texts, TooLong::Cut)?;
        let one = |(rows, ids): (&Vec<f64>, &TokenIds)| head.of_tokens(rows, ids.ids(), 1);
        self.embeddings.iter().zip(&ids).map(one).collect()
    }

    /// The choices for these items, whose texts must be those that were encrypted.
    ///
    /// # Errors
    /// As [`Answer::scored`], and [`FheJobError::NotShared`].
    pub fn chosen(&self, items: &[Item]) -> Result<Vec<Chosen>, ServeError> {
        let (head, ids) = self.sent(&Item::texts(items), TooLong::Refuse)?;
        let prompt = |item: usize, text: &str| head.tokens(item, text, TooLong::Refuse);
        choose(items, &ids, prompt, |text, from| {
            let rows = self.embeddings.get(text).map_or(&[][..], Vec::as_slice);
            head.of_tokens(rows, ids[text].ids(), from)
        })
    }

    /// The head, and the tokens of the texts, which must be those of this answer.
    fn sent(&self, texts: &[String], too_long: TooLong) -> Result<(&Head, Vec<TokenIds>), ServeError> {
        let head = match (&self.head, self.rows) {
            (Some(head), Some(AnswerRows::Rows)) => head,
            (_, rows) => {
                let (planned, asked) = (other(rows), "the likelihood of its own tokens");
                return Err(FheJobError::OtherAnswer { planned, asked }.into());
            }
        };
        let ids = texts.iter().enumerate();
        let ids = ids.map(|(index, text)| head.tokens(index, text, too_long));
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        match self.texts.as_ref() == Some(&hash_of_ids(&ids).to_string()) {
            true => Ok((head, ids)),
            false => Err(FheJobError::OtherTexts.into()),
        }
    }
}

/// [`Answer::scored`] in the clear, by the holder of the model.
///
/// # Errors
/// [`ModelError::NotAGenerator`]; [`ServeError::Text`] if the model cannot read a text.
pub fn scored_in_clear(model: &Model, texts: &[String], too_long: TooLong) -> Result<Vec<Scored>, ServeError> {
    InClear::of(model)?.scored_texts(texts, too_long)
}

/// The same with the rows that ternary layers read rounded to 8 bits, as BitNet b1.58 was trained.
///
/// # Errors
/// As [`scored_in_clear`].
pub fn scored_in_clear_rounded(model: &Model, texts: &[String], too_long: TooLong) -> Result<Vec<Scored>, ServeError> {
    let mut clear = InClear::of(model)?;
    clear.rounded = true;
    clear.scored_texts(texts, too_long)
}

/// Like [`scored_in_clear`], from the texts' tokens.
///
/// # Errors
/// [`ModelError::NotAGenerator`].
pub fn tokens_scored_in_clear(model: &Model, ids: &[TokenIds]) -> Result<Vec<Scored>, ServeError> {
    let clear = InClear::of(model)?;
    ids.iter().map(|ids| clear.of_tokens(ids, 1)).collect()
}

/// [`Answer::chosen`] in the clear, by the holder of the model.
///
/// # Errors
/// As [`scored_in_clear`], and [`FheJobError::NotShared`].
pub fn chosen_in_clear(model: &Model, items: &[Item]) -> Result<Vec<Chosen>, ServeError> {
    let clear = InClear::of(model)?;
    let texts = Item::texts(items).into_iter().enumerate();
    let ids = texts.map(|(index, text)| clear.tokens(index, &text, TooLong::Refuse));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    let prompt = |item: usize, text: &str| clear.tokens(item, text, TooLong::Refuse);
    choose(items, &ids, prompt, |text, from| clear.of_tokens(&ids[text], from))
}

/// A model that gives the logits of all rows.
struct InClear<'a> {
    model: &'a Model,
    program: Program,
    /// Whether rows that ternary layers read are rounded to 8 bits.
    rounded: bool,
}

impl InClear<'_> {
    fn of(model: &Model) -> Result<InClear<'_>, ServeError> {
        if model.public.task() != Task::Generate {
            return Err(ModelError::NotAGenerator.into());
        }
        let program = model.program_of_all_logits();
        let rounded = false;
        Ok(InClear { model, program, rounded })
    }

    fn tokens(&self, index: usize, text: &str, too_long: TooLong) -> Result<TokenIds, ServeError> {
        let public = &self.model.public;
        let tokenizer = public.tokenizer().map_err(ModelError::from)?;
        encoded(tokenizer, index, text, public.max_tokens, too_long)
    }

    fn scored_texts(&self, texts: &[String], too_long: TooLong) -> Result<Vec<Scored>, ServeError> {
        let texts = texts.iter().enumerate();
        let ids = texts.map(|(index, text)| self.tokens(index, text, too_long));
        ids.map(|ids| self.of_tokens(&ids?, 1)).collect()
    }

    /// As [`Head::of_tokens`].
    fn of_tokens(&self, ids: &TokenIds, from: usize) -> Result<Scored, ServeError> {
        let text = vec![ids.clone()];
        let logits = match self.rounded {
            true => plain::run_rounded(&self.program, text)?,
            false => plain::run(&self.program, text, |_, _| ())?,
        };
        let next = ids.ids().iter().skip(1).enumerate();
        let next = next.skip(from.saturating_sub(1));
        Scored::of(next.map(|(row, &id)| Ok((id, logits.values.row(row).to_vec()))))
    }
}

/// The choices for items from their texts: `ids` has one entry per ending, and `found` gives the
/// likelihoods of a text's tokens from a given one on.
fn choose(
    items: &[Item],
    ids: &[TokenIds],
    prompt: impl Fn(usize, &str) -> Result<TokenIds, ServeError>,
    found: impl Fn(usize, usize) -> Result<Scored, ServeError>,
) -> Result<Vec<Chosen>, ServeError> {
    let mut texts = ids.iter().enumerate();
    let mut all = Vec::with_capacity(items.len());
    for (number, item) in items.iter().enumerate() {
        let prompt = prompt(number, &item.prompt)?;
        let (mut log_likelihoods, mut tokens) = (Vec::new(), Vec::new());
        for (text, ids) in texts.by_ref().take(item.endings.len()) {
            tokens.push(ending(&prompt, ids).ok_or(FheJobError::NotShared { item: number })?);
            log_likelihoods.push(found(text, prompt.ids().len())?.log_likelihood());
        }
        all.push(Chosen::of(log_likelihoods, tokens, item.label));
    }
    Ok(all)
}

impl Chosen {
    fn of(log_likelihoods: Vec<f64>, tokens: Vec<usize>, label: Option<usize>) -> Chosen {
        let mut order: Vec<usize> = (0..log_likelihoods.len()).collect();
        // Stable: the first of equal ones.
        order.sort_by(|&a, &b| log_likelihoods[b].total_cmp(&log_likelihoods[a]));
        let pick = order.first().copied().unwrap_or(0);
        let margin = match order.as_slice() {
            [first, second, ..] => log_likelihoods[*first] - log_likelihoods[*second],
            _ => 0.0,
        };
        Chosen { right: label.map(|label| label == pick), log_likelihoods, tokens, pick, margin }
    }
}

/// The number of tokens of a text after those of its prompt, with which it must begin.
fn ending(prompt: &TokenIds, whole: &TokenIds) -> Option<usize> {
    let rest = whole.ids().strip_prefix(prompt.ids())?.len();
    (rest > 0 && !prompt.ids().is_empty()).then_some(rest)
}

/// Checks, before anything is sent, that items can be encrypted for this manifest and chosen from by its answer.
///
/// # Errors
/// [`FheJobError::OtherAnswer`], [`FheJobError::NotShared`], [`FheJobError::TextTooLong`] if a text has more tokens
/// than the manifest has rows; also if a file cannot be read.
pub fn check_items(plan: &Path, public: &Path, items: &[Item]) -> Result<(), ServeError> {
    let (plan, _) = read_plan(plan)?;
    Wanted::Likelihoods.check(&plan)?;
    let path = public;
    let public = PublicModel::read(path, &plan.public_sha256)?;
    let bad = || FheJobError::BadPublic { path: path.to_owned() };
    let head = Head::of(&public, &plan).ok_or_else(bad)?;
    let mut index = 0;
    for (number, item) in items.iter().enumerate() {
        let prompt = head.tokens(index, &item.prompt, TooLong::Refuse)?;
        for text in Item::texts(std::slice::from_ref(item)) {
            let whole = head.tokens(index, &text, TooLong::Refuse)?;
            ending(&prompt, &whole).ok_or(FheJobError::NotShared { item: number })?;
            index += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|&line| line.to_owned()).collect()
    }

    #[test]
    fn items_are_read_and_what_is_none_is_named_by_its_line() {
        let good = r#"{"prompt": "a b", "endings": [" c", " d", " e"], "label": 2}"#;
        let open = r#"{"prompt": "x", "endings": [" y", " z"]}"#;
        let items = Item::parse(&lines(&[good, open])).unwrap();
        assert_eq!(Item::texts(&items), ["a b c", "a b d", "a b e", "x y", "x z"]);
        assert_eq!((items[0].label, items[1].label), (Some(2), None));
        for bad in [
            "",
            "a text",
            r#"{"prompt": "a", "endings": [" b"]}"#,
            r#"{"prompt": "a", "endings": [" b", " c"], "label": 2}"#,
            r#"{"prompt": "a", "endings": [" b", " c"], "labels": 1}"#,
            r#"{"endings": [" b", " c"]}"#,
        ] {
            let error = Item::parse(&lines(&[good, bad])).err().unwrap();
            assert_eq!(error.name(), "choices");
            assert!(error.to_string().contains("line 2"), "{error}");
        }
    }

    /// The committed items: each shares its prompt, they fit a batch of 256 with a canary, and each text the model.
    #[test]
    fn the_items_of_the_small_decoder_can_be_chosen_from() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/decoder-small");
        let folder = Path::new(folder);
        let public = hushed_model::PublicFiles::read(folder).unwrap();
        let public = public.parse().unwrap();
        let tokenizer = public.tokenizer().unwrap();
        let items = std::fs::read_to_string(folder.join("items.jsonl")).unwrap();
        let items = Item::parse(&items.lines().map(str::to_owned).collect::<Vec<_>>()).unwrap();
        assert_eq!((items.len(), Item::texts(&items).len()), (63, 252));
        let tokens = |text: &str| {
            let tokens = tokenizer.encode(text, public.max_tokens, TooLong::Refuse);
            tokens.unwrap()
        };
        for item in &items {
            let prompt = tokens(&item.prompt);
            assert!(item.label.is_some() && item.endings.len() == 4);
            for text in Item::texts(std::slice::from_ref(item)) {
                assert!(ending(&prompt, &tokens(&text)).is_some(), "{text}");
            }
        }
    }

    #[test]
    fn the_likeliest_ending_is_chosen() {
        let chosen = Chosen::of(vec![-4.0, -1.5, -3.0, -1.5], vec![1; 4], Some(3));
        assert_eq!((chosen.pick, chosen.margin), (1, 0.0));
        assert_eq!(chosen.right, Some(false));
        let chosen = Chosen::of(vec![-4.0, -1.5], vec![1; 2], None);
        assert_eq!((chosen.pick, chosen.margin, chosen.right), (1, 2.5, None));
        let text = |logs: &[f64]| Scored { log_probabilities: logs.to_vec(), likeliest: Vec::new() };
        assert_eq!(text(&[]).perplexity(), None);
        let halves = [text(&[0.5f64.ln(); 3]), text(&[0.125f64.ln()])];
        // exp(−(3·ln ½ + ln ⅛)/4) = 2^{6/4}.
        let both = perplexity(&halves).unwrap();
        assert!((both - 2f64.powf(1.5)).abs() < 1e-12);
    }
}
