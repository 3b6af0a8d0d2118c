//! `config.json`: which architecture it is, and its fields.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub(crate) mod ends;
pub(crate) mod labels;
pub(crate) mod scores;

use serde_json::Value;

use crate::arch::Architecture;
use crate::arch::config::NetworkConfig;
use crate::arch::kind::MODEL_TYPES;
use crate::error::Problem;
use crate::folder::fields;
use crate::folder::json::{self, Fields};

/// The file's name in a model folder.
pub(crate) const CONFIG: &str = "config.json";

impl NetworkConfig {
    /// Parses `config.json`; `None` if and only if a problem was added. Of an unknown architecture nothing else is
    /// said.
    pub fn parse(bytes: &[u8], problems: &mut Vec<Problem>) -> Option<NetworkConfig> {
        let before = problems.len();
        let object = json::object(CONFIG, bytes, problems)?;
        let mut f = Fields::new(CONFIG, &object, problems);
        let architecture = architecture(&mut f)?;
        fields::refuse(&mut f, &architecture.fields());
        let config = architecture.read(&mut f);
        config.filter(|_| problems.len() == before)
    }
}

/// Whether a refused configuration belongs to a generator, so that its tokenizer is checked as one.
pub(crate) fn generates(bytes: &[u8]) -> bool {
    named(bytes).is_some_and(Architecture::decodes)
}

/// Whether a refused configuration belongs to a vision model, which has no tokenizer.
pub(crate) fn sees(bytes: &[u8]) -> bool {
    named(bytes).is_some_and(Architecture::sees)
}

/// The architecture that a configuration names, sound or not.
pub(crate) fn named(bytes: &[u8]) -> Option<Architecture> {
    let value: Value = serde_json::from_slice(json::without_mark(bytes)).ok()?;
    let name = value.get("model_type")?.as_str()?;
    let mut types = MODEL_TYPES.iter();
    types.find(|(of, _)| *of == name).map(|(_, a)| *a)
}

/// Whether a configuration is an object that names no known architecture.
pub(crate) fn is_of_unknown_architecture(bytes: &[u8]) -> bool {
    let value = serde_json::from_slice::<Value>(json::without_mark(bytes));
    value.is_ok_and(|value| value.is_object()) && named(bytes).is_none()
}

/// The class of an encoder's configuration whose head is not read: for single tokens, answers in a text, pairs of
/// texts. A language model's head is left out of an encoder.
pub(crate) fn other_head(bytes: &[u8], architecture: Architecture) -> Option<String> {
    const WITHOUT: [&str; 4] = ["Model", "ForMaskedLM", "ForPreTraining", "ForCausalLM"];
    let value: Value = serde_json::from_slice(json::without_mark(bytes)).ok()?;
    let known = architecture.encoder()?.head.architectures;
    let read = |name: &str| WITHOUT.iter().any(|end| name.ends_with(end)) || known.contains(&name);
    let mut names = value.get("architectures")?.as_array()?.iter();
    let other = names.find(|name| !name.as_str().is_some_and(read))?;
    Some(json::shown(other))
}

fn architecture(f: &mut Fields<'_>) -> Option<Architecture> {
    const FIELD: &str = "model_type";
    let Some(given) = f.get(FIELD) else {
        f.problem(Problem::MissingField { file: CONFIG.to_owned(), field: FIELD });
        return None;
    };
    let known = MODEL_TYPES.iter().find(|(name, _)| given.as_str() == Some(name));
    if known.is_none() {
        let names: Vec<&str> = MODEL_TYPES.iter().map(|(name, _)| *name).collect();
        f.unsupported(FIELD, names.join(", "));
    }
    known.map(|(_, architecture)| *architecture)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Activation;

    const GOOD: &str = r#"{"model_type":"bert","hidden_act":"gelu","num_hidden_layers":6,"hidden_size":384,"num_attention_heads":12,
        "intermediate_size":1536,"vocab_size":30522,"max_position_embeddings":512,"pad_token_id":0}"#;

    fn parse(text: &str) -> (Option<NetworkConfig>, Vec<Problem>) {
        let mut problems = Vec::new();
        let config = NetworkConfig::parse(text.as_bytes(), &mut problems);
        assert_eq!(config.is_none(), !problems.is_empty());
        (config, problems)
    }

    #[test]
    fn good() {
        let config = parse(GOOD).0.unwrap();
        assert_eq!((config.width, config.token_types, config.split().width), (384, 2, 32));
        // The published count, 22713216, minus the pooler, which is not used here (384² + 384).
        assert_eq!(config.parameters(), 22_713_216 - 384 * 384 - 384);
    }

    #[test]
    fn all_problems_at_once() {
        let (_, problems) = parse(
            r#"{"model_type":"bert","hidden_act":"mish","num_hidden_layers":0,"hidden_size":100,"num_attention_heads":7,
            "intermediate_size":"many","vocab_size":99999999999,"position_embedding_type":"relative_key","is_decoder":true}"#,
        );
        assert_eq!(problems.len(), 8, "{problems:#?}");
        assert!(problems.iter().any(|p| matches!(p, Problem::HeadsDoNotDivide { .. })));
        assert!(problems.iter().any(|p| matches!(p, Problem::MissingField { field: "max_position_embeddings", .. })));
    }

    /// Nothing else is said about a configuration of which no field is known.
    #[test]
    fn an_unknown_architecture_is_one_problem() {
        for text in [r#"{"model_type":"gpt3","hidden_act":"mish"}"#, r#"{"hidden_size":7}"#, r#"{"model_type":7}"#] {
            assert_eq!(parse(text).1.len(), 1, "{text}");
        }
        let (_, problems) = parse(r#"{"model_type":"gpt3"}"#);
        assert!(problems[0].to_string().contains("\"gpt3\"; supported: bert, roberta, "), "{}", problems[0]);
    }

    /// Against the published counts minus what is not used here: poolers and the heads of language models.
    #[test]
    fn published_configurations_of_other_architectures() {
        let pooler = 768 * 768 + 768;
        let roberta = r#"{"model_type":"roberta","hidden_act":"gelu","num_hidden_layers":12,"hidden_size":768,"num_attention_heads":12,
            "intermediate_size":3072,"vocab_size":50265,"max_position_embeddings":514,"type_vocab_size":1,"layer_norm_eps":1e-05,
            "pad_token_id":1,"bos_token_id":0,"eos_token_id":2}"#;
        let xlm = roberta.replace("roberta", "xlm-roberta").replace("50265", "250002");
        for (text, published) in [(roberta, 124_645_632), (&xlm, 278_043_648)] {
            let config = parse(text).0.unwrap();
            assert_eq!(config.architecture, Architecture::Roberta);
            assert_eq!((config.positions, config.first_position), (512, 2));
            assert_eq!((config.token_types, config.epsilon), (1, 1e-5));
            assert_eq!(config.parameters(), published - pooler);
        }
        // The padding id defaults to 1.
        let config = parse(&roberta.replace("\"pad_token_id\":1,", "")).0;
        assert_eq!(config, parse(roberta).0);

        let distilbert = r#"{"model_type":"distilbert","activation":"gelu","n_layers":6,"dim":768,"n_heads":12,"hidden_dim":3072,
            "vocab_size":30522,"max_position_embeddings":512,"pad_token_id":0,"sinusoidal_pos_embds":false,"tie_weights_":true}"#;
        let config = parse(distilbert).0.unwrap();
        assert_eq!((config.token_types, config.first_position), (0, 0));
        assert_eq!((config.epsilon, config.positions), (1e-12, 512));
        assert_eq!(config.parameters(), 66_362_880);
        // Fields of one architecture are not accepted for another.
        let (_, problems) = parse(&distilbert.replace("distilbert", "bert"));
        assert_eq!(problems.len(), 5, "{problems:?}");
    }

    /// Positions count from the row after the padding id, and some must be left.
    #[test]
    fn position_tables_that_are_too_short() {
        let roberta = GOOD.replace("bert", "roberta");
        for (rows, padding, left) in [(5, 1, Some(3)), (4, 1, None), (512, 510, None), (9, 0, Some(8))] {
            let text = roberta
                .replace("512", &rows.to_string())
                .replace("\"pad_token_id\":0", &format!("\"pad_token_id\":{padding}"));
            let (config, problems) = parse(&text);
            assert_eq!(config.map(|c| c.positions), left);
            assert!(problems.iter().all(|p| matches!(p, Problem::OutOfRange { .. })));
        }
    }

    /// The names that published configurations use.
    #[test]
    fn activations() {
        let published = [
            ("gelu", Activation::Gelu),
            ("gelu_python", Activation::Gelu),
            ("gelu_new", Activation::GeluTanh),
            ("gelu_fast", Activation::GeluTanh),
            ("gelu_pytorch_tanh", Activation::GeluTanh),
            ("quick_gelu", Activation::QuickGelu),
            ("relu", Activation::Relu),
            ("relu2", Activation::Relu2),
            ("silu", Activation::Silu),
            ("swish", Activation::Silu),
            ("tanh", Activation::Tanh),
            ("elu", Activation::Elu),
        ];
        for (name, activation) in published {
            let text = GOOD.replace("\"gelu\"", &format!("\"{name}\""));
            assert_eq!(parse(&text).0.unwrap().activation, activation, "{name}");
        }
        for name in ["mish", "GELU", "relu6", ""] {
            let text = GOOD.replace("\"gelu\"", &format!("\"{name}\""));
            assert_eq!(parse(&text).1.len(), 1, "{name}");
        }
    }

    #[test]
    fn not_json() {
        for text in ["", "[]", "{", "nul", &"[".repeat(100_000), "{\"a\":1}x", "\u{feff}\u{feff}{}"] {
            assert!(matches!(parse(text).1[..], [Problem::NotJson { .. }]), "{}", &text[..text.len().min(9)]);
        }
    }
}
