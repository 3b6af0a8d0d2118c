//! The modules after a sentence encoder and its longest input: `modules.json`, `1_Pooling/config.json`,
//! `sentence_bert_config.json`, `config_sentence_transformers.json` (the sentence-transformers layout).
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use serde_json::Value;

use crate::blocks::Pool;
use crate::error::Problem;
use crate::folder::config::CONFIG;
use crate::folder::fields;
use crate::folder::json::{self, Fields};

pub(crate) const MODULES: &str = "modules.json";
pub(crate) const POOLING: &str = "1_Pooling/config.json";
pub(crate) const NORMALIZE: &str = "2_Normalize/config.json";
pub(crate) const SENTENCE: &str = "sentence_bert_config.json";
pub(crate) const PROMPTS: &str = "config_sentence_transformers.json";

/// The modules after the transformer in `modules.json`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Modules {
    pub pooled: bool,
    pub normalise: bool,
}

const CHAIN: &str = "Transformer, then Pooling in the folder 1_Pooling, then perhaps Normalize";

/// Reads `modules.json`: a list of `{"type": "sentence_transformers.models.X", "path": …}`.
pub(crate) fn modules(bytes: &[u8], problems: &mut Vec<Problem>) -> Option<Modules> {
    let list: Vec<Value> = json::parsed(MODULES, bytes, problems)?;
    let text = |module: &Value, field: &str| module.get(field).and_then(Value::as_str).map(str::to_owned);
    let chain: Vec<(Option<String>, Option<String>)> = list
        .iter()
        .map(|m| (text(m, "type").and_then(|t| t.rsplit('.').next().map(str::to_owned)), text(m, "path")))
        .collect();
    let chain: Vec<(&str, &str)> =
        chain.iter().map(|(kind, path)| (kind.as_deref().unwrap_or("?"), path.as_deref().unwrap_or("?"))).collect();
    // Fixed paths instead of those in the file, so that no path outside the folder is ever opened.
    match chain.as_slice() {
        [("Transformer", "")] => Some(Modules { pooled: false, normalise: false }),
        [("Transformer", ""), ("Pooling", "1_Pooling")] => Some(Modules { pooled: true, normalise: false }),
        [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", _)] => {
            Some(Modules { pooled: true, normalise: true })
        }
        _ => {
            // All of them: the one that is not supported may be the last.
            let kinds = chain.iter().take(16).map(|(kind, path)| match *kind {
                "Transformer" | "Pooling" => format!("{kind} in {path:?}"),
                kind => kind.to_owned(),
            });
            let value: String = kinds.collect::<Vec<_>>().join(", ");
            let value = value.chars().filter(|c| !c.is_control()).take(300).collect();
            problems.push(Problem::UnsupportedValue {
                file: MODULES.to_owned(),
                field: "type",
                value,
                supported: CHAIN.into(),
            });
            None
        }
    }
}

/// The values of `pooling_mode`, since version 5.4.
const MODES: &[(&str, Pool)] =
    &[("cls", Pool::First), ("mean", Pool::Mean), ("lasttoken", Pool::Last), ("max", Pool::Max)];
/// A flag per mode, before.
const POOLS: &[(&str, Option<Pool>)] = &[
    ("pooling_mode_cls_token", Some(Pool::First)),
    ("pooling_mode_mean_tokens", Some(Pool::Mean)),
    ("pooling_mode_lasttoken", Some(Pool::Last)),
    ("pooling_mode_max_tokens", Some(Pool::Max)),
    ("pooling_mode_mean_sqrt_len_tokens", None),
    ("pooling_mode_weightedmean_tokens", None),
];

/// Reads `1_Pooling/config.json`: exactly one mode, and a width equal to the encoder's.
pub(crate) fn pooling(bytes: &[u8], width: Option<usize>, problems: &mut Vec<Problem>) -> Option<Pool> {
    let object = json::object(POOLING, bytes, problems)?;
    let mut f = Fields::new(POOLING, &object, problems);
    fields::refuse(&mut f, &[fields::POOLING.into()]);
    if let Some(width) = width {
        for field in ["word_embedding_dimension", "embedding_dimension"] {
            f.optional_size(field, width, width);
        }
    }
    // With it the flags count for nothing.
    if let Some(mode) = f.get("pooling_mode") {
        let only = match mode {
            Value::Array(modes) => match modes.as_slice() {
                [mode] => mode.as_str(),
                _ => None,
            },
            mode => mode.as_str(),
        };
        let found = MODES.iter().find(|(name, _)| Some(*name) == only);
        if found.is_none() {
            f.unsupported("pooling_mode", "mean, cls, lasttoken or max, one of them");
        }
        return found.map(|(_, pool)| *pool);
    }
    let on: Vec<_> = POOLS.iter().filter(|(name, _)| f.flag_or(name, false)).collect();
    match on.as_slice() {
        [(_, Some(pool))] => Some(*pool),
        [(name, None)] => {
            f.unsupported(
                name,
                "pooling_mode_mean_tokens, pooling_mode_cls_token, pooling_mode_lasttoken or pooling_mode_max_tokens",
            );
            None
        }
        _ => {
            let value = format!("{} modes at once", on.len());
            let supported = "exactly one of mean, cls, last token and max";
            f.problem(Problem::UnsupportedValue {
                file: POOLING.to_owned(),
                field: "pooling_mode",
                value,
                supported: supported.into(),
            });
            None
        }
    }
}

/// Checks `2_Normalize/config.json`: the embedding is normalised, and nothing else.
pub(crate) fn normalize(bytes: &[u8], problems: &mut Vec<Problem>) {
    if let Some(object) = json::object(NORMALIZE, bytes, problems) {
        fields::refuse(&mut Fields::new(NORMALIZE, &object, problems), &[fields::NORMALIZE.into()]);
    }
}

/// To which lengths an embedding may be cut, and scaled to length one again: what a model was trained for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Matryoshka {
    /// To none.
    #[default]
    No,
    /// To any.
    Any,
    /// To these.
    To(Vec<usize>),
}

impl Matryoshka {
    /// Whether an embedding may be cut to its first `dimensions` numbers.
    #[must_use]
    pub fn allows(&self, dimensions: usize) -> bool {
        match self {
            Self::No => false,
            Self::Any => dimensions > 0,
            Self::To(these) => these.contains(&dimensions),
        }
    }
}

/// Reads `is_matryoshka` and `matryoshka_dimensions` of `config.json`.
pub(crate) fn matryoshka(bytes: &[u8], width: usize, problems: &mut Vec<Problem>) -> Matryoshka {
    let Some(object) = json::object(CONFIG, bytes, problems) else {
        return Matryoshka::No;
    };
    let mut f = Fields::new(CONFIG, &object, problems);
    let any = f.flag_or("is_matryoshka", false);
    let size = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=width).contains(n));
    match f.get("matryoshka_dimensions").map(|given| given.as_array().map(|list| list.iter().map(size).collect())) {
        None if any => Matryoshka::Any,
        None => Matryoshka::No,
        Some(Some(Some(these))) => Matryoshka::To(these),
        Some(_) => {
            f.unsupported("matryoshka_dimensions", "a list of whole numbers from 1 to the embedding's length");
            Matryoshka::No
        }
    }
}

/// Whether `1_Pooling/config.json` pools the rows of a prompt with the text's own, as a private run always does.
/// `include_prompt: false` concerns texts after a prompt; without a prompt it changes nothing.
pub(crate) fn pools_prompts(bytes: &[u8], problems: &mut Vec<Problem>) -> bool {
    let object = json::object(POOLING, bytes, problems);
    object.is_none_or(|object| Fields::new(POOLING, &object, problems).flag_or("include_prompt", true))
}

/// The fields of `sentence_bert_config.json`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sentence {
    pub max_tokens: Option<usize>,
    pub lower_case: bool,
}

/// Whether `sentence_bert_config.json` is a cross-encoder's, as version 5.4 and later write it beside a `modules.json`.
pub(crate) fn is_of_cross_encoder(bytes: &[u8]) -> bool {
    let value: Value = serde_json::from_slice(json::without_mark(bytes)).unwrap_or_default();
    value.get("transformer_task").and_then(Value::as_str) == Some("sequence-classification")
}

/// The fields' table before which a cross-encoder's own comes.
fn tables(cross: bool, table: &'static [fields::Entry]) -> Vec<fields::Table> {
    let own = cross.then(|| fields::CROSS_ENCODER.into());
    own.into_iter().chain([table.into()]).collect()
}

/// Reads `sentence_bert_config.json`; `cross`: of a cross-encoder.
pub(crate) fn sentence(bytes: &[u8], cross: bool, problems: &mut Vec<Problem>) -> Option<Sentence> {
    let object = json::object(SENTENCE, bytes, problems)?;
    let mut f = Fields::new(SENTENCE, &object, problems);
    fields::refuse(&mut f, &tables(cross, fields::SENTENCE));
    let output = if cross { "logits" } else { "last_hidden_state" };
    let text = serde_json::json!({ "text": { "method": "forward", "method_output_name": output } });
    if f.get("modality_config").is_some_and(|given| *given != text) {
        f.unsupported("modality_config", "the last hidden states of a text, or a cross-encoder's logits");
    }
    // 3: the two special tokens and one token of the text.
    Some(Sentence {
        max_tokens: f.optional_size("max_seq_length", 3, 1 << 20),
        lower_case: f.flag_or("do_lower_case", false),
    })
}

/// How the embeddings of a model are compared. Without effect on an embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Similarity {
    /// The cosine.
    #[default]
    Cosine,
    /// The scalar product.
    Dot,
    /// Minus the distance.
    Euclidean,
    /// Minus the sum of the differences' magnitudes.
    Manhattan,
}

const SIMILARITIES: [(&str, Similarity); 4] = [
    ("cosine", Similarity::Cosine),
    ("dot", Similarity::Dot),
    ("euclidean", Similarity::Euclidean),
    ("manhattan", Similarity::Manhattan),
];

impl Similarity {
    /// Its name in `sentence-transformers`.
    #[must_use]
    pub fn name(self) -> &'static str {
        let mut names = SIMILARITIES.iter();
        names.find(|(_, s)| *s == self).map_or("", |(name, _)| name)
    }
}

/// The fields of `config_sentence_transformers.json`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Published {
    /// The prompts by name, which a caller may put before a text.
    pub prompts: BTreeMap<String, String>,
    pub similarity: Similarity,
}

/// Refuses a folder that silently puts a prompt before every text.
pub(crate) fn published(bytes: &[u8], cross: bool, problems: &mut Vec<Problem>) -> Published {
    let Some(object) = json::object(PROMPTS, bytes, problems) else {
        return Published::default();
    };
    let mut f = Fields::new(PROMPTS, &object, problems);
    fields::refuse(&mut f, &tables(cross, fields::SENTENCE_TRANSFORMERS));
    f.must_be_off("default_prompt_name", "no default prompt (null)");
    let known = "cosine, dot, euclidean, manhattan";
    let similarity = f.choice("similarity_fn_name", &SIMILARITIES, Some(Similarity::Cosine), known);
    let (given, none) = (f.get("prompts"), serde_json::Map::new());
    let table = match given {
        None => Some(&none),
        Some(given) => given.as_object(),
    };
    let text = |(name, text): (&String, &Value)| Some((name.clone(), text.as_str()?.to_owned()));
    let read: Option<BTreeMap<_, _>> = table.and_then(|t| t.iter().map(text).collect());
    if read.is_none() {
        f.unsupported("prompts", "an object of texts");
    }
    Published { prompts: read.unwrap_or_default(), similarity: similarity.unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_to_which_embeddings_may_be_cut() {
        let read = |text: &str| {
            let mut problems = Vec::new();
            let read = matryoshka(text.as_bytes(), 32, &mut problems);
            (read, problems.len())
        };
        assert_eq!(read("{}"), (Matryoshka::No, 0));
        assert_eq!(read(r#"{"is_matryoshka":true}"#), (Matryoshka::Any, 0));
        let (to, _) = read(r#"{"is_matryoshka":true,"matryoshka_dimensions":[8,16]}"#);
        assert!(to.allows(8) && !to.allows(9) && !Matryoshka::No.allows(8) && !Matryoshka::Any.allows(0));
        for wrong in ["[0]", "[33]", "8", "[\"8\"]"] {
            assert_eq!(read(&format!(r#"{{"matryoshka_dimensions":{wrong}}}"#)).1, 1, "{wrong}");
        }
    }

    #[test]
    fn what_a_normalize_module_takes() {
        let problems = |text: &str| {
            let mut problems = Vec::new();
            normalize(text.as_bytes(), &mut problems);
            problems.len()
        };
        assert_eq!(problems("{}"), 0);
        assert_eq!(problems(r#"{"module_input_name":"sentence_embedding","module_output_name":null}"#), 0);
        assert_eq!(problems(r#"{"module_input_name":"token_embeddings"}"#), 1);
    }

    #[test]
    fn chains() {
        let mut problems = Vec::new();
        let good = br#"[{"type":"sentence_transformers.models.Transformer","path":""},
            {"type":"sentence_transformers.models.Pooling","path":"1_Pooling"},{"type":"sentence_transformers.models.Normalize","path":"2_N"}]"#;
        assert_eq!(modules(good, &mut problems), Some(Modules { pooled: true, normalise: true }));
        assert!(problems.is_empty());
        let dense = br#"[{"type":"x.Transformer","path":""},{"type":"x.Pooling","path":"../etc"},{"type":"x.Dense","path":"2"}]"#;
        assert_eq!(modules(dense, &mut problems), None);
        assert!(matches!(problems[..], [Problem::UnsupportedValue { .. }]));
        for bad in [&b"{}"[..], b"[1,2", b"[1,2]", b"[]"] {
            problems.clear();
            assert_eq!(modules(bad, &mut problems), None);
            assert_eq!(problems.len(), 1);
        }
    }

    #[test]
    fn prompts_are_texts_by_their_names() {
        let read = |text: &str| {
            let mut problems = Vec::new();
            let prompts = published(text.as_bytes(), false, &mut problems).prompts;
            (prompts.into_iter().collect::<Vec<_>>(), problems.len())
        };
        let query = ("query".to_owned(), "query: ".to_owned());
        assert_eq!(read(r#"{"prompts":{"query":"query: "}}"#), (vec![query], 0));
        assert_eq!(read(r#"{"prompts":{},"default_prompt_name":null}"#), (vec![], 0));
        assert_eq!(read(r#"{"prompts":null}"#), (vec![], 0));
        for wrong in [r#"{"prompts":["query: "]}"#, r#"{"prompts":{"query":1}}"#, r#"{"default_prompt_name":"query"}"#]
        {
            assert_eq!(read(wrong), (vec![], 1), "{wrong}");
        }
    }

    #[test]
    fn rows_of_a_prompt_are_pooled_unless_the_folder_says_otherwise() {
        let pools = |text: &str| pools_prompts(text.as_bytes(), &mut Vec::new());
        assert!(pools("{}") && pools(r#"{"include_prompt":true}"#));
        assert!(!pools(r#"{"include_prompt":false}"#));
    }

    #[test]
    fn pools() {
        let mut problems = Vec::new();
        let mut pool = |text: &str| {
            problems.clear();
            let pool = pooling(text.as_bytes(), Some(8), &mut problems);
            (pool, problems.len())
        };
        assert_eq!(pool(r#"{"word_embedding_dimension":8,"pooling_mode_mean_tokens":true}"#), (Some(Pool::Mean), 0));
        assert_eq!(pool(r#"{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false}"#), (Some(Pool::First), 0));
        assert_eq!(pool(r#"{"pooling_mode_max_tokens":true}"#), (Some(Pool::Max), 0));
        assert_eq!(pool(r#"{"pooling_mode_weightedmean_tokens":true}"#), (None, 1));
        assert_eq!(pool(r#"{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true}"#), (None, 1));
        assert_eq!(pool(r#"{}"#), (None, 1));
        assert_eq!(pool(r#"{"word_embedding_dimension":9,"pooling_mode_mean_tokens":1}"#), (None, 3));
        // Since version 5.4.
        for (mode, expected) in [
            (r#""mean""#, (Some(Pool::Mean), 0)),
            (r#"["cls"]"#, (Some(Pool::First), 0)),
            (r#"["cls","mean"]"#, (None, 1)),
            (r#""weightedmean""#, (None, 1)),
            ("7", (None, 1)),
        ] {
            let text = format!(r#"{{"embedding_dimension":8,"pooling_mode":{mode},"pooling_mode_max_tokens":true}}"#);
            assert_eq!(pool(&text), expected, "{mode}");
        }
        let wide = r#"{"embedding_dimension":9,"pooling_mode":"mean"}"#;
        assert_eq!(pool(wide), (Some(Pool::Mean), 1));
    }

    #[test]
    fn a_model_names_its_similarity() {
        let read = |text: &str| {
            let mut problems = Vec::new();
            let similarity = published(text.as_bytes(), false, &mut problems).similarity;
            (similarity.name(), problems.len())
        };
        assert_eq!(read("{}"), ("cosine", 0));
        for name in ["cosine", "dot", "euclidean", "manhattan"] {
            let text = format!(r#"{{"similarity_fn_name":"{name}"}}"#);
            assert_eq!(read(&text), (name, 0));
        }
        assert_eq!(read(r#"{"similarity_fn_name":"maxsim"}"#), ("cosine", 1));
    }

    #[test]
    fn an_unsupported_module_is_named_wherever_it_is() {
        let mut problems = Vec::new();
        let many = br#"[{"type":"sentence_transformers.models.Transformer","path":""},
            {"type":"sentence_transformers.models.Pooling","path":"1_Pooling"},
            {"type":"sentence_transformers.models.Dense","path":"2_Dense"},
            {"type":"sentence_transformers.models.Normalize","path":"3_Normalize"}]"#;
        assert_eq!(modules(many, &mut problems), None);
        assert!(problems[0].to_string().contains("Dense, Normalize"), "{}", problems[0]);
    }
}
