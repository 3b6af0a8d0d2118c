//! `POST /rerank`: texts in the order of their scores for a query, as text-embeddings-inference answers (`texts`), or
//! as Jina and Cohere do (`documents`).
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hushed_model::{ScoreFn, Task};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::request::{TOKEN_IDS, harmless, merged, shaped};
use crate::http::fields::{Fields, wrong};
use crate::http::prepare::how::How;
use crate::http::prepare::{Asker, embed, other_task};
use crate::http::refusal::Refusal;
use crate::http::served::Served;
use crate::sessions::texts::{Answer, Reading};

/// How the answer is written.
struct Form {
    /// Jina's and Cohere's, with the model's name, in place of text-embeddings-inference's.
    model: Option<String>,
    /// The texts, if they are to be in the answer.
    texts: Option<Vec<Zeroizing<String>>>,
    /// Most results.
    top: usize,
    /// What is made of a logit.
    score: ScoreFn,
}

/// `POST /rerank`
pub async fn route(State(served): State<Arc<Served>>, asker: Asker, body: Bytes) -> Response {
    let answered = async { ranked(&served, asker, merged(Fields::parse(&body)?)?).await };
    shaped(answered.await)
}

async fn ranked(served: &Arc<Served>, asker: Asker, mut fields: Fields) -> Result<Response, Refusal> {
    let public = &served.shared.public;
    if public.task() == Task::Classify && !public.config.scores() {
        return Err(other_task("this model gives several numbers for each text, not one score: use /predict"));
    }
    let query = fields.text("query")?.ok_or_else(|| Refusal::field("query", "missing", "`query` is missing"))?;
    let query = Zeroizing::new(query);
    let listed = match fields.take("documents") {
        None => None,
        Some(Value::Array(list)) => Some(list.into_iter().map(document).collect::<Result<Vec<_>, _>>()?),
        Some(_) => return Err(wrong("documents", "a list of texts")),
    };
    let (texts, model) = match listed {
        Some(documents) => (documents, Some(served.named.model.clone())),
        None => (fields.texts("texts", TOKEN_IDS)?, None),
    };
    if texts.is_empty() {
        return Err(Refusal::field("texts", "missing", "there is no text"));
    }
    let shown = fields.flag("return_documents")?.or(fields.flag("return_text")?).unwrap_or(false);
    let top = fields.whole("top_n")?.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let score = match fields.flag("raw_scores")? {
        Some(true) => ScoreFn::Identity,
        _ => ScoreFn::Sigmoid,
    };
    harmless(&mut fields)?;
    let how = How::of(served, &mut fields)?;
    fields.finish()?;
    let pair = |text: &Zeroizing<String>| Reading { text: query.clone(), second: Some(text.clone()) };
    let pairs: Vec<Reading> = texts.iter().map(pair).collect();
    let form = Form { model, texts: shown.then_some(texts), top, score };
    embed(served, pairs, how.too_long, (Task::Classify, asker), move |answers| {
        Json(form.written(&answers)).into_response()
    })
    .await
}

/// A document: a text, or an object with one.
fn document(value: Value) -> Result<Zeroizing<String>, Refusal> {
    let text = match value {
        Value::String(text) => Some(text),
        Value::Object(mut object) => match object.remove("text") {
            Some(Value::String(text)) => Some(text),
            _ => None,
        },
        _ => None,
    };
    text.map(Zeroizing::new).ok_or_else(|| wrong("documents", "a list of texts"))
}

impl Form {
    /// The results, the largest score first; equal ones in the order of the texts.
    fn written(&self, answers: &[Arc<Answer>]) -> Value {
        let logit = |answer: &Arc<Answer>| answer.values.first().map_or(f64::NAN, |&logit| f64::from(logit));
        let mut order: Vec<(usize, f64)> = answers.iter().map(logit).enumerate().collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        let name = if self.model.is_some() { "relevance_score" } else { "score" };
        let results = order.into_iter().take(self.top).map(|(index, logit)| {
            let mut result = vec![("index", json!(index)), (name, json!(self.score.of(logit)))];
            if let Some(text) = self.texts.as_ref().and_then(|texts| texts.get(index)) {
                result.push(match self.model {
                    Some(_) => ("document", json!({ "text": text.as_str() })),
                    None => ("text", json!(text.as_str())),
                });
            }
            Value::from_iter(result)
        });
        let results = Value::from_iter(results);
        match &self.model {
            None => results,
            Some(model) => {
                let tokens: usize = answers.iter().map(|answer| answer.tokens).sum();
                json!({ "model": model, "results": results, "usage": { "total_tokens": tokens } })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_sorted_and_written_as_each_api_does() {
        let answer =
            |logit: f32| Arc::new(Answer { values: Zeroizing::new(vec![logit]), labels: Vec::new(), tokens: 3 });
        let answers = [answer(-1.0), answer(2.0), answer(0.0)];
        let texts = || Some(["a", "b", "c"].map(|text| Zeroizing::new(text.to_owned())).into());
        let form = Form { model: None, texts: None, top: 9, score: ScoreFn::Identity };
        let expected =
            json!([{ "index": 1, "score": 2.0 }, { "index": 2, "score": 0.0 }, { "index": 0, "score": -1.0 }]);
        assert_eq!(form.written(&answers), expected);
        let form = Form { texts: texts(), top: 1, ..form };
        assert_eq!(form.written(&answers), json!([{ "index": 1, "score": 2.0, "text": "b" }]));
        let form = Form { model: Some("m".to_owned()), texts: texts(), top: 2, score: ScoreFn::Sigmoid };
        let found = form.written(&answers);
        assert_eq!((&found["model"], &found["usage"]["total_tokens"]), (&json!("m"), &json!(9)));
        let second = json!({ "index": 2, "relevance_score": 0.5, "document": { "text": "c" } });
        assert_eq!((found["results"].as_array().map(Vec::len), &found["results"][1]), (Some(2), &second));
    }

    #[test]
    fn documents_are_texts_or_objects_with_one() {
        let read = |value: Value| document(value).map(|text| text.to_string()).map_err(|refusal| refusal.name);
        assert_eq!((read(json!("a")), read(json!({ "text": "b", "id": 7 }))), (Ok("a".to_owned()), Ok("b".to_owned())));
        for wrong in [json!(7), json!({ "title": "a" }), json!({ "text": 1 }), json!(["a"])] {
            assert_eq!(read(wrong), Err("wrong-type"));
        }
    }
}
