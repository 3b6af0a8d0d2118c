//! `POST /predict`: the classes of texts, as far as the server opens them.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hushed_model::{ProblemType, Task};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::request::{harmless, merged, shaped};
use crate::http::fields::{Fields, wrong};
use crate::http::prepare::how::How;
use crate::http::prepare::{Asker, embed};
use crate::http::refusal::Refusal;
use crate::http::served::Served;
use crate::sessions::texts::{Answer, Reading};

const INPUTS: &str = "a text, a list of one text or of the two texts of a pair, or a list of such lists";

/// What is made of logits.
#[derive(Clone, Copy)]
enum Scores {
    Raw,
    /// Each class on its own.
    Sigmoid,
    /// Classes that exclude each other.
    Softmax,
}

/// `POST /predict`
pub async fn route(State(served): State<Arc<Served>>, asker: Asker, body: Bytes) -> Response {
    let answered = async { classes(&served, asker, merged(Fields::parse(&body)?)?, false).await };
    shaped(answered.await)
}

/// The classes of every text, the likeliest first. `listed`: as a list of lists even for one text, which is how Hugging
/// Face's client reads them.
pub async fn classes(
    served: &Arc<Served>,
    asker: Asker,
    mut fields: Fields,
    listed: bool,
) -> Result<Response, Refusal> {
    let public = &served.shared.public;
    let (texts, several) = inputs(fields.take("inputs"))?;
    let raw = match fields.take("raw_scores") {
        None => false,
        Some(Value::Bool(raw)) => raw,
        Some(_) => return Err(wrong("raw_scores", "true or false")),
    };
    let scores = match fields.text("function_to_apply")?.as_deref() {
        _ if raw => Scores::Raw,
        Some("none") => Scores::Raw,
        Some("sigmoid") => Scores::Sigmoid,
        Some("softmax") => Scores::Softmax,
        Some(_) => return Err(wrong("function_to_apply", "\"softmax\", \"sigmoid\" or \"none\"")),
        None if public.config.problem == ProblemType::SingleLabel && !public.config.scores() => Scores::Softmax,
        None => Scores::Sigmoid,
    };
    let top = fields.whole("top_k")?.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    harmless(&mut fields)?;
    let how = How::of(served, &mut fields)?;
    fields.finish()?;
    let names: Vec<String> = public.labels().unwrap_or_default().to_vec();
    embed(served, texts, how.too_long, (Task::Classify, asker), move |answers| {
        let mut all: Vec<Value> = answers.iter().map(|answer| scored(answer, &names, scores, top)).collect();
        match (several || listed, all.pop()) {
            (false, Some(one)) => Json(one),
            (_, last) => Json(Value::from_iter(all.into_iter().chain(last))),
        }
        .into_response()
    })
    .await
}

/// The texts and pairs, and whether a list of them was given.
fn inputs(given: Option<Value>) -> Result<(Vec<Reading>, bool), Refusal> {
    let one = |value: Value| {
        let mut texts = match value {
            Value::Array(list) => list.into_iter(),
            text => vec![text].into_iter(),
        };
        let mut next = || match texts.next() {
            None => Some(None),
            Some(Value::String(text)) => Some(Some(Zeroizing::new(text))),
            Some(_) => None,
        };
        let (text, second, none) = (next()??, next()?, next()?);
        none.is_none().then_some(Reading { text, second })
    };
    let refused = || wrong("inputs", INPUTS);
    match given {
        None => Err(Refusal::field("inputs", "missing", "`inputs` is missing")),
        Some(Value::Array(list)) if list.first().is_some_and(Value::is_array) => {
            let texts: Option<Vec<_>> = list.into_iter().map(one).collect();
            Ok((texts.ok_or_else(refused)?, true))
        }
        Some(value) => Ok((vec![one(value).ok_or_else(refused)?], false)),
    }
}

/// Labels with their scores, which are null where the server opens no logits.
fn scored(answer: &Answer, names: &[String], scores: Scores, top: usize) -> Value {
    let values = &answer.values;
    if values.is_empty() {
        return answer.labels.iter().take(top).map(|label| json!({ "label": label, "score": null })).collect();
    }
    let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = values.iter().map(|&x| f64::from(x - largest).exp()).sum();
    let of = |x: f32| match scores {
        Scores::Raw => f64::from(x),
        Scores::Sigmoid => 1.0 / (1.0 + f64::from(-x).exp()),
        Scores::Softmax => f64::from(x - largest).exp() / sum,
    };
    let mut pairs: Vec<(&String, f64)> = names.iter().zip(values.iter().map(|&x| of(x))).collect();
    pairs.sort_by(|a, b| b.1.total_cmp(&a.1));
    pairs.into_iter().take(top).map(|(label, score)| json!({ "label": label, "score": score })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_pairs_alone_or_in_a_list() {
        let read = |json: Value| match inputs(Some(json)) {
            Ok((texts, several)) => {
                let pairs = texts.iter().filter(|text| text.second.is_some()).count();
                Ok((texts.len(), pairs, several))
            }
            Err(refusal) => Err(refusal.name),
        };
        assert_eq!(read(json!("a")), Ok((1, 0, false)));
        assert_eq!(read(json!(["a"])), Ok((1, 0, false)));
        assert_eq!(read(json!(["a", "b"])), Ok((1, 1, false)));
        assert_eq!(read(json!([["a"], ["b", "c"]])), Ok((2, 1, true)));
        for wrong in [json!(["a", "b", "c"]), json!([["a", 1]]), json!([["a"], 1]), json!([[]]), json!(7), json!([])] {
            assert_eq!(read(wrong.clone()), Err("wrong-type"), "{wrong}");
        }
    }

    #[test]
    fn scores_of_logits() {
        let names = ["no", "yes"].map(str::to_owned);
        let answer = |values: &[f32], labels: &[&str]| Answer {
            values: Zeroizing::new(values.to_vec()),
            labels: labels.iter().map(|&l| l.to_owned()).collect(),
            tokens: 3,
        };
        let of = |scores| scored(&answer(&[0.0, 1.0], &[]), &names, scores, 9);
        let soft = of(Scores::Softmax);
        assert_eq!(soft[0]["label"], json!("yes"));
        assert!((soft[0]["score"].as_f64().unwrap() - 0.731_058_578).abs() < 1e-6);
        assert_eq!(of(Scores::Sigmoid)[1]["score"], json!(0.5));
        assert_eq!(of(Scores::Raw)[0]["score"], json!(1.0));
        let label = scored(&answer(&[], &["yes"]), &names, Scores::Softmax, 9);
        assert_eq!(label, json!([{ "label": "yes", "score": null }]));
    }
}
