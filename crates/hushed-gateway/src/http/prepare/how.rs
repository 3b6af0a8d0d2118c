//! How the texts of a request for embeddings are run, in the words of every API that asks for some.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_model::{Matryoshka, Public, TooLong};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::http::fields::{Fields, wrong};
use crate::http::refusal::Refusal;
use crate::http::served::Served;

/// Names under which models keep the prompts of queries and of documents, as in sentence-transformers.
const ROLES: [(&str, &[&str]); 4] = [
    ("query", &["query", "search_query"]),
    ("search_query", &["search_query", "query"]),
    ("passage", &["passage", "document", "corpus", "search_document"]),
    ("document", &["document", "passage", "corpus", "search_document"]),
];

/// How texts are run, and what is done with their embeddings on this machine.
pub struct How {
    /// What is embedded of a text that is too long.
    pub too_long: TooLong,
    /// Put before every text.
    prompt: String,
    /// Whether to scale embeddings to length one here.
    pub normalise: bool,
    /// The first numbers are kept; `None`: all.
    dimensions: Option<usize>,
}

impl How {
    /// Reads `truncate`, `truncation_direction`, `truncate_prompt_tokens`, `dimensions`, `normalize`, `prompt_name`
    /// and `input_type`.
    ///
    /// # Errors
    /// 400 for a value that this model does not offer.
    pub fn of(served: &Served, fields: &mut Fields) -> Result<How, Refusal> {
        let public = &served.shared.public;
        let too_long = too_long(served, fields)?;
        let (dimensions, matryoshka) = dimensions(public, fields)?;
        let normalise = fields.flag("normalize")?;
        if normalise == Some(false) && public.normalise {
            let message = "this model returns only normalised embeddings";
            return Err(Refusal::field("normalize", "unsupported", message));
        }
        // A model's embeddings have length one by themselves, unless they were cut.
        let cut = public.normalise && matryoshka;
        let normalise = cut || (normalise == Some(true) && !public.normalise);
        Ok(How { too_long, prompt: prompt(public, fields)?, normalise, dimensions })
    }

    /// The texts with their prompt.
    pub fn texts(&self, texts: Vec<Zeroizing<String>>) -> Vec<Zeroizing<String>> {
        match self.prompt.as_str() {
            "" => texts,
            prompt => texts.iter().map(|text| Zeroizing::new([prompt, text].concat())).collect(),
        }
    }

    /// An embedding as the request wants it.
    pub fn vector(&self, embedding: &[f32]) -> Zeroizing<Vec<f32>> {
        let kept = self.dimensions.and_then(|n| embedding.get(..n)).unwrap_or(embedding);
        match self.normalise {
            true => unit(kept),
            false => Zeroizing::new(kept.to_vec()),
        }
    }
}

fn too_long(served: &Served, fields: &mut Fields) -> Result<TooLong, Refusal> {
    let asked = match fields.take("truncate") {
        None => None,
        Some(Value::Bool(cut)) => Some((cut, false)),
        // The words of other servers with this API.
        Some(Value::String(word)) => Some(match word.to_ascii_uppercase().as_str() {
            "NONE" => (false, false),
            "END" => (true, false),
            "START" => (true, true),
            _ => return Err(wrong("truncate", "true, false, \"NONE\", \"END\" or \"START\"")),
        }),
        Some(_) => return Err(wrong("truncate", "true or false")),
    };
    let most = served.shared.max_tokens;
    let all = fields.take("truncate_prompt_tokens").map(|value| match value.as_i64() {
        Some(-1) => Ok((true, false)),
        Some(n) if usize::try_from(n).is_ok_and(|n| n == most) => Ok((true, false)),
        _ => Err(wrong("truncate_prompt_tokens", &format!("-1 or {most}, the most tokens of a text here"))),
    });
    let asked = asked.or(all.transpose()?);
    let side = fields.text("truncation_direction")?.or(fields.text("truncation_side")?);
    let left = match side.map(|side| side.to_ascii_lowercase()).as_deref() {
        None => asked.is_some_and(|(_, left)| left),
        Some("right") => false,
        Some("left") => true,
        Some(_) => return Err(wrong("truncation_direction", "\"Left\" or \"Right\"")),
    };
    Ok(match (asked.map_or(served.truncate, |(cut, _)| cut), left) {
        (false, _) => TooLong::Refuse,
        (true, false) => TooLong::Cut,
        (true, true) => TooLong::CutLeft,
    })
}

/// How many numbers are kept if not all, and whether they are scaled to length one again.
fn dimensions(public: &Public, fields: &mut Fields) -> Result<(Option<usize>, bool), Refusal> {
    let width = public.config.width;
    let Some(asked) = fields.whole("dimensions")?.map(|n| usize::try_from(n).unwrap_or(usize::MAX)) else {
        return Ok((None, false));
    };
    if asked == width {
        return Ok((None, false));
    }
    if asked < width && public.matryoshka.allows(asked) {
        return Ok((Some(asked), true));
    }
    let message = match &public.matryoshka {
        Matryoshka::No => format!(
            "this model's embeddings have {width} dimensions, and its folder does not say that they may be cut \
             (`matryoshka_dimensions` or `is_matryoshka` in config.json)"
        ),
        Matryoshka::Any => format!("this model's embeddings have from 1 to {width} dimensions"),
        Matryoshka::To(these) => {
            let these: Vec<String> = these.iter().map(usize::to_string).collect();
            format!("this model's embeddings have {width} dimensions, or {}", these.join(", "))
        }
    };
    Err(Refusal::field("dimensions", "unsupported", message))
}

fn prompt(public: &Public, fields: &mut Fields) -> Result<String, Refusal> {
    let (named, kind) = (fields.text("prompt_name")?, fields.text("input_type")?);
    let found = match (&named, kind.as_deref()) {
        (None, None) => return Ok(String::new()),
        (Some(name), _) => {
            let names: Vec<&str> = public.prompts.keys().map(String::as_str).collect();
            let found = public.prompts.get(name).cloned();
            found.ok_or_else(|| match names.as_slice() {
                [] => ("prompt_name", "this model has no prompts: leave `prompt_name` out".to_owned()),
                names => ("prompt_name", format!("this model's prompts are: {}", names.join(", "))),
            })
        }
        (None, Some(kind)) => match ROLES.iter().find(|(name, _)| *name == kind) {
            // A model without prompts takes every text as it is.
            Some((_, names)) => {
                Ok(names.iter().find_map(|name| public.prompts.get(*name)).cloned().unwrap_or_default())
            }
            None => Err(("input_type", "`input_type` must be \"query\" or \"passage\"".to_owned())),
        },
    };
    let prompt = found.map_err(|(field, why)| Refusal::field(field, "unsupported", why))?;
    if !prompt.is_empty() && !public.pools_prompts {
        let why = "this model leaves prompts out of its pooling, which is not supported";
        return Err(Refusal::field(if named.is_some() { "prompt_name" } else { "input_type" }, "unsupported", why));
    }
    Ok(prompt)
}

/// The same direction with length one.
pub fn unit(vector: &[f32]) -> Zeroizing<Vec<f32>> {
    let length = vector.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
    let scale = length.sqrt().max(f64::MIN_POSITIVE).recip();
    let scaled = vector.iter().map(|&x| (f64::from(x) * scale) as f32);
    Zeroizing::new(scaled.collect())
}
