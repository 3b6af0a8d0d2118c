//! `config.json`: the architecture and its sizes.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub(crate) mod ends;
pub(crate) mod labels;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::arch::{self, Architecture, Task};
use crate::blocks::{Activation, Heads, NormReach, Rope, Tolerance, Weigh};
use crate::error::Problem;
use crate::folder::decoder::{self, Biases, WeightScale};
use crate::folder::fields;
use crate::folder::json::{self, Fields};
use crate::folder::vision;
use crate::images::CHANNELS;

/// The file's name in a model folder.
pub(crate) const CONFIG: &str = "config.json";

/// The checked sizes of a model: every number is within the bounds below, and the heads divide the width.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkConfig {
    /// The architecture whose names the folder uses.
    pub architecture: Architecture,
    /// Layers.
    pub layers: usize,
    /// Columns of the activations, `d`.
    pub width: usize,
    /// Attention heads.
    pub heads: usize,
    /// Key and value heads, a divisor of `heads`; `None`: as many.
    pub key_heads: Option<usize>,
    /// Rotary positions, instead of a position table.
    pub rope: Option<Rope>,
    /// Which linear layers have biases, if the architecture leaves that open.
    pub biases: Biases,
    /// How attention turns scores into weights.
    pub weigh: Weigh,
    /// Whether there are norms inside attention and feed-forward, before their last linear layers.
    pub sub_norms: bool,
    /// Set if the layers' linear maps are ternary: how their scales are stored.
    pub ternary: Option<WeightScale>,
    /// Columns inside the feed-forward block.
    pub hidden: usize,
    /// Layers whose feed-forward block is one linear layer, in order: their activations were pruned.
    pub merged: Vec<usize>,
    /// Rows of the token table; 0 if the model reads images.
    pub vocabulary: usize,
    /// Rows of the position table that tokens can use: the longest text, or the rows of every image.
    pub positions: usize,
    /// Side of a patch in pixels, if the model reads images; otherwise 0.
    pub patch_side: usize,
    /// Rows of the position table before these, which no token uses.
    pub first_position: usize,
    /// Rows of the token-type table, of which only row 0 is used; 0 if there is none.
    pub token_types: usize,
    /// The activation inside the feed-forward block.
    pub activation: Activation,
    /// What is declared about its arguments, in a separate file.
    pub tolerance: Option<Tolerance>,
    /// What is declared about norms, by step name, in the same file.
    pub norms: BTreeMap<String, NormReach>,
    /// ε of the norms.
    pub epsilon: f64,
    /// Id of the padding token, if config.json gives it.
    pub padding_id: Option<u32>,
    /// Names of the classes, if the model is a classifier.
    pub labels: Option<Vec<String>>,
    /// Whether a language model's head uses the token table as its weights.
    pub tied: bool,
    /// Whether one class excludes the others, so that the largest logit is the answer: not with several labels at once,
    /// and not if the numbers are values.
    pub exclusive: bool,
    /// Ids of the tokens that end a generated text, if config.json gives any.
    pub end_tokens: Vec<u32>,
}

/// Bounds that keep a hostile folder from requesting absurd amounts of memory; far above every published BERT.
const MAX_LAYERS: usize = 256;
const MAX_WIDTH: usize = 1 << 14;
const MAX_HIDDEN: usize = 1 << 16;
const MAX_VOCABULARY: usize = 1 << 20;
const MAX_POSITIONS: usize = 1 << 16;
/// Layers whose feed-forward block is one linear layer; written by `hushed prune`.
pub(crate) const MERGED: &str = "merged_feed_forward";
/// ε if a configuration does not specify it.
const EPSILON: f64 = 1e-12;
const GPT2_EPSILON: f64 = 1e-5;
const LLAMA_EPSILON: f64 = 1e-6;
const BITNET_EPSILON: f64 = 1e-5;

const MODEL_TYPES: &str = "bert, roberta, xlm-roberta, distilbert, gpt2, llama, bitnet, vit";
/// An architecture whose attention adds a bias that depends on the distance of two tokens.
const RELATIVE: &str = "mpnet";
const ACTIVATIONS: &[(&str, Activation)] = &[
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

impl NetworkConfig {
    /// Parses `config.json`; `None` if and only if a problem was added.
    pub fn parse(bytes: &[u8], problems: &mut Vec<Problem>) -> Option<NetworkConfig> {
        let before = problems.len();
        let object = json::object(CONFIG, bytes, problems)?;
        let mut f = Fields::new(CONFIG, &object, problems);

        let architecture = architecture(&mut f);
        if let Some(architecture) = architecture {
            fields::refuse(&mut f, &fields::config(architecture));
        }
        // Further problems of a folder with an unknown architecture are reported under BERT's names.
        let names = architecture.unwrap_or(Architecture::Bert).names();
        match architecture {
            Some(Architecture::Gpt2) => decoder::gpt2(&mut f),
            Some(Architecture::Llama) => decoder::llama(&mut f),
            Some(Architecture::BitNet) => decoder::bitnet(&mut f),
            Some(Architecture::Vit) => {}
            _ => encoder_only(&mut f),
        }
        f.must_be_off("add_cross_attention", "one model, without another's output (false)");
        let bitnet = architecture == Some(Architecture::BitNet);
        let ternary = match bitnet {
            true => Some(decoder::weight_scale(&mut f)),
            false => {
                f.must_be_off("quantization_config", "weights that are not quantised");
                None
            }
        };
        let decodes = architecture.is_some_and(Architecture::decodes);
        let (gpt2, llama) =
            (architecture == Some(Architecture::Gpt2), architecture.is_some_and(Architecture::like_llama));
        let activation = f.choice(
            names.fields.activation,
            ACTIVATIONS,
            match architecture {
                Some(Architecture::Gpt2) => Some(Activation::GeluTanh),
                Some(Architecture::Llama) => Some(Activation::Silu),
                Some(Architecture::BitNet) => Some(Activation::Relu2),
                _ => None,
            },
            "gelu, gelu_python, gelu_new, gelu_fast, gelu_pytorch_tanh, quick_gelu, relu, relu2, silu, swish, tanh, elu",
        );
        let layers = f.size(names.fields.layers, 1, MAX_LAYERS);
        let width = f.size(names.fields.width, 1, MAX_WIDTH);
        let heads = f.size(names.fields.heads, 1, MAX_WIDTH);
        let hidden = match (width, f.get(names.fields.hidden)) {
            (Some(width), None) if gpt2 => Some(4 * width),
            _ => f.size(names.fields.hidden, 1, MAX_HIDDEN),
        };
        let sees = architecture.is_some_and(Architecture::sees);
        let grid = sees.then(|| vision::grid(&mut f));
        let vocabulary = match sees {
            true => Some(0),
            false => f.size("vocab_size", 1, MAX_VOCABULARY),
        };
        let padding_id = match decodes {
            // Padding is masked, so an id that is no token (−1, or beyond the vocabulary) counts as none.
            true => f.get("pad_token_id").and_then(|id| {
                let id = u32::try_from(id.as_u64()?).ok()?;
                (vocabulary? > id as usize).then_some(id)
            }),
            false if sees => None,
            false => token(&mut f, "pad_token_id").or(names.positions_after_padding),
        };
        let first_position = match names.positions_after_padding {
            Some(default) => padding_id.unwrap_or(default) as usize + 1,
            None => 0,
        };
        // Older GPT-2 configurations call this field differently.
        let rows = match f.get(names.fields.positions) {
            None if gpt2 => "n_ctx",
            _ => names.fields.positions,
        };
        let positions = match grid {
            Some(grid) => grid.map(|(patches, _)| patches + 1),
            None => {
                let rows = f.size(rows, first_position + 3, MAX_POSITIONS);
                rows.map(|rows| rows - first_position)
            }
        };
        let token_types = match names.fields.token_types {
            None => Some(0),
            Some(field) if f.get(field).is_some() => f.size(field, 1, 1024),
            Some(_) => Some(2),
        };
        let default = match architecture {
            Some(Architecture::Gpt2) => GPT2_EPSILON,
            Some(Architecture::Llama) => LLAMA_EPSILON,
            Some(Architecture::BitNet) => BITNET_EPSILON,
            _ => EPSILON,
        };
        let epsilon = match names.fields.epsilon {
            Some(field) => f.real_or(field, default, 0.0, 1.0),
            None => default,
        };
        let tied = decodes && f.flag_or("tie_word_embeddings", gpt2);
        let end_tokens = decodes.then(|| ends::read(&mut f, vocabulary));
        let end_tokens = end_tokens.flatten().unwrap_or_default();

        let labels = match &names.encoder {
            Some(encoder) => labels::parse(&mut f, encoder.head.architectures),
            None if sees => vision::labels(&mut f),
            None => None,
        };
        let exclusive = labels.is_none() || labels::exclusive(&mut f);
        if let (Some(width), Some(heads)) = (width, heads)
            && !width.is_multiple_of(heads)
        {
            f.problem(Problem::HeadsDoNotDivide { width, heads });
        }
        let (mut key_heads, mut rope, mut biases) = (None, None, Biases::default());
        let (mut weigh, mut sub_norms) = (Weigh::Softmax, false);
        if llama {
            weigh = decoder::weigh(&mut f);
            sub_norms = f.flag_or("sub_norms", bitnet);
            key_heads = decoder::key_heads(&mut f, width, heads);
            rope = decoder::rope(&mut f, bitnet);
            biases = decoder::biases(&mut f);
        }
        if sees {
            biases.attention = f.flag_or("qkv_bias", true);
        }
        let merged = f.places(MERGED, layers.unwrap_or(MAX_LAYERS));
        if llama && !merged.is_empty() {
            f.unsupported(MERGED, "feed-forward blocks without a gate");
        }
        if problems.len() > before {
            return None;
        }
        Some(NetworkConfig {
            architecture: architecture?,
            layers: layers?,
            width: width?,
            heads: heads?,
            key_heads,
            rope,
            biases,
            weigh,
            sub_norms,
            ternary,
            hidden: hidden?,
            merged,
            vocabulary: vocabulary?,
            positions: positions?,
            patch_side: grid.flatten().map_or(0, |(_, side)| side),
            first_position,
            token_types: token_types?,
            activation: activation?,
            tolerance: None,
            norms: BTreeMap::new(),
            epsilon,
            padding_id,
            labels,
            exclusive,
            tied,
            end_tokens,
        })
    }

    /// BERT-base uncased (Devlin et al. 2019): 12 layers of 768 columns.
    pub fn base() -> NetworkConfig {
        NetworkConfig { layers: 12, width: 768, heads: 12, hidden: 3072, ..NetworkConfig::large() }
    }

    /// BERT-large uncased: 24 layers of 1024 columns.
    pub fn large() -> NetworkConfig {
        NetworkConfig {
            architecture: Architecture::Bert,
            layers: 24,
            width: 1024,
            heads: 16,
            key_heads: None,
            rope: None,
            biases: Biases::default(),
            weigh: Weigh::Softmax,
            sub_norms: false,
            ternary: None,
            hidden: 4096,
            merged: Vec::new(),
            vocabulary: 30522,
            positions: 512,
            patch_side: 0,
            first_position: 0,
            token_types: 2,
            activation: Activation::Gelu,
            tolerance: None,
            norms: BTreeMap::new(),
            epsilon: EPSILON,
            padding_id: Some(0),
            labels: None,
            exclusive: true,
            tied: false,
            end_tokens: Vec::new(),
        }
    }

    /// GPT-2 with 124 million parameters (Radford et al. 2019): 12 layers of 768 columns.
    pub fn gpt2() -> NetworkConfig {
        NetworkConfig {
            architecture: Architecture::Gpt2,
            vocabulary: 50257,
            positions: 1024,
            token_types: 0,
            activation: Activation::GeluTanh,
            epsilon: GPT2_EPSILON,
            padding_id: None,
            tied: true,
            end_tokens: vec![50256],
            ..NetworkConfig::base()
        }
    }

    /// LLaMA with 7 billion parameters (Touvron et al. 2023): 32 layers of 4096 columns.
    pub fn llama_7b() -> NetworkConfig {
        NetworkConfig {
            architecture: Architecture::Llama,
            layers: 32,
            width: 4096,
            heads: 32,
            rope: Some(decoder::ROPE),
            hidden: 11008,
            vocabulary: 32000,
            positions: 2048,
            token_types: 0,
            activation: Activation::Silu,
            epsilon: LLAMA_EPSILON,
            padding_id: None,
            end_tokens: vec![2],
            ..NetworkConfig::large()
        }
    }

    /// ViT-base with 16 × 16-pixel patches of 224 × 224-pixel images (Dosovitskiy et al. 2021), for 1000 classes.
    pub fn vit_base() -> NetworkConfig {
        NetworkConfig {
            architecture: Architecture::Vit,
            vocabulary: 0,
            positions: 197,
            patch_side: 16,
            token_types: 0,
            padding_id: None,
            labels: Some((0..1000).map(|i| format!("LABEL_{i}")).collect()),
            biases: Biases { attention: true, feed_forward: true },
            ..NetworkConfig::base()
        }
    }

    /// BitNet b1.58 with 2 billion parameters (Ma et al. 2025): 30 layers of 2560 columns, five key and value heads.
    pub fn bitnet_2b() -> NetworkConfig {
        NetworkConfig {
            architecture: Architecture::BitNet,
            layers: 30,
            width: 2560,
            heads: 20,
            key_heads: Some(5),
            rope: Some(Rope { theta: 500_000.0, ..decoder::ROPE }),
            sub_norms: true,
            ternary: Some(WeightScale::Factor),
            hidden: 6912,
            vocabulary: 128_256,
            positions: 4096,
            activation: Activation::Relu2,
            epsilon: BITNET_EPSILON,
            tied: true,
            end_tokens: vec![128_001],
            ..NetworkConfig::llama_7b()
        }
    }

    /// What the model is used for.
    pub fn task(&self) -> Task {
        match &self.labels {
            _ if self.architecture.decodes() => Task::Generate,
            Some(_) => Task::Classify,
            None => Task::Embed,
        }
    }

    /// How Q, K and V split into heads; the scores are scaled by 1/√dh.
    pub fn split(&self) -> Heads {
        let width = self.width / self.heads;
        Heads {
            count: self.heads,
            keys: self.key_heads.unwrap_or(self.heads),
            width,
            scale: 1.0 / (width as f64).sqrt(),
        }
    }

    /// Numbers in all tensors in use.
    pub fn parameters(&self) -> usize {
        if self.architecture.like_llama() {
            return self.llama_parameters();
        }
        let (d, hidden) = (self.width, self.hidden);
        let wide = (d * hidden + hidden) + (hidden * d + d);
        let layer = 4 * (d * d + d) + 4 * d;
        let merged = self.merged.len();
        let layers = self.layers * layer + (self.layers - merged) * wide + merged * (d * d + d);
        let classes = self.labels.as_ref().map(Vec::len);
        if self.architecture.sees() {
            return self.vision_parameters(layers, classes.unwrap_or(0));
        }
        let mut head = classes.map_or(0, |k| d * d + d + k * d + k);
        if self.task() == Task::Generate && !self.tied {
            head += self.vocabulary * d;
        }
        (self.vocabulary + self.first_position + self.positions + self.token_types) * d + 2 * d + layers + head
    }

    /// Numbers in all tensors of a vision transformer whose layers, with biases, have `layers` of them.
    fn vision_parameters(&self, layers: usize, classes: usize) -> usize {
        let (d, patch) = (self.width, CHANNELS * self.patch_side.pow(2));
        let layers = match self.biases.attention {
            true => layers,
            false => layers - self.layers * 3 * d,
        };
        let rows = patch * d + d + (self.positions + 1) * d;
        rows + layers + 2 * d + classes * (d + 1)
    }

    /// Numbers in all tensors of a LLaMA-like decoder.
    fn llama_parameters(&self) -> usize {
        let (d, hidden, split) = (self.width, self.hidden, self.split());
        let (q, k) = (split.query_columns(), split.key_columns());
        let biases = usize::from(self.biases.attention) * (q + 2 * k + d)
            + usize::from(self.biases.feed_forward) * (2 * hidden + d);
        let sub_norms = usize::from(self.sub_norms) * (q + hidden);
        let layer = d * (2 * q + 2 * k) + 3 * d * hidden + biases + sub_norms + 2 * d;
        let tables = if self.tied { 1 } else { 2 };
        tables * self.vocabulary * d + self.layers * layer + d
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
    let mut types = arch::MODEL_TYPES.iter();
    types.find(|(of, _)| *of == name).map(|(_, a)| *a)
}

/// The class of an encoder's configuration whose head is not read: for single tokens, answers in a text, pairs of
/// texts. A language model's head is left out of an encoder.
pub(crate) fn other_head(bytes: &[u8], architecture: Architecture) -> Option<String> {
    const WITHOUT: [&str; 4] = ["Model", "ForMaskedLM", "ForPreTraining", "ForCausalLM"];
    let value: Value = serde_json::from_slice(json::without_mark(bytes)).ok()?;
    let known = architecture.encoder().head.architectures;
    let read = |name: &str| WITHOUT.iter().any(|end| name.ends_with(end)) || known.contains(&name);
    let mut names = value.get("architectures")?.as_array()?.iter();
    let other = names.find(|name| !name.as_str().is_some_and(read))?;
    Some(json::shown(other))
}

/// Refuses what is unsupported in an encoder's configuration.
fn encoder_only(f: &mut Fields<'_>) {
    f.choice("position_embedding_type", &[("absolute", ())], Some(()), "\"absolute\"");
    f.must_be_off("is_decoder", "an encoder (false)");
}

/// The id of a token, if the field is present.
fn token(f: &mut Fields<'_>, field: &'static str) -> Option<u32> {
    let id = f.optional_size(field, 0, MAX_VOCABULARY)?;
    u32::try_from(id).ok()
}

fn architecture(f: &mut Fields<'_>) -> Option<Architecture> {
    if f.get("model_type").and_then(Value::as_str) == Some(RELATIVE) {
        f.problem(Problem::AttentionBias { model_type: RELATIVE });
        return None;
    }
    f.choice("model_type", &arch::MODEL_TYPES, None, MODEL_TYPES)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            r#"{"model_type":"gpt3","hidden_act":"mish","num_hidden_layers":0,"hidden_size":100,"num_attention_heads":7,
            "intermediate_size":"many","vocab_size":99999999999,"position_embedding_type":"relative_key","is_decoder":true}"#,
        );
        assert_eq!(problems.len(), 9, "{problems:#?}");
        assert!(problems.iter().any(|p| matches!(p, Problem::HeadsDoNotDivide { .. })));
        assert!(problems.iter().any(|p| matches!(p, Problem::MissingField { field: "max_position_embeddings", .. })));
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

    #[test]
    fn a_relative_bias_is_named() {
        let (_, problems) = parse(&GOOD.replace("\"bert\"", "\"mpnet\""));
        let [problem @ Problem::AttentionBias { .. }] = &problems[..] else { panic!("{problems:?}") };
        assert!(problem.to_string().contains("relative position bias"));
    }

    /// The names that published configurations use.
    #[test]
    fn activations() {
        for (name, activation) in ACTIVATIONS {
            let text = GOOD.replace("\"gelu\"", &format!("\"{name}\""));
            assert_eq!(parse(&text).0.unwrap().activation, *activation, "{name}");
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
