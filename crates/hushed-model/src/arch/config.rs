//! What the configurations of all architectures come down to.

use std::collections::BTreeMap;

use super::kind::{Architecture, Task};
use crate::blocks::{Activation, Heads, NormReach, Pairs, Rope, RopeScaling, Tolerance, Weigh};
use crate::folder::config::labels::ProblemType;

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
    /// Columns of a head; `None`: the width divided by the heads.
    pub head_width: Option<usize>,
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
    /// In what a decoder differs from LLaMA.
    pub form: Form,
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
    /// Rows of the token-type table, of which only row 0 is used, and row 1 by classifiers; 0 if there is none.
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
    /// Whether a decoder's rows are pooled into one vector, in the place of its head.
    pub pooled: bool,
    /// Whether a language model's head uses the token table as its weights.
    pub tied: bool,
    /// What the numbers of a classifier's head say.
    pub problem: ProblemType,
    /// Ids of the tokens that end a generated text, if config.json gives any.
    pub end_tokens: Vec<u32>,
}

/// Which linear layers of a LLaMA-like decoder have biases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// Query, key, value and output.
    pub attention: bool,
    /// Gate, up and down.
    pub feed_forward: bool,
}

/// The meaning of a stored `weight_scale`. `transformers` has two classes of layers, which differ in this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightScale {
    /// s (`autobitlinear`).
    Factor,
    /// 1/s (`bitlinear`).
    Divisor,
}

/// In what a decoder differs from LLaMA, and an encoder from BERT or ViT. The factors are multiplied into weights as
/// they are read.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    /// Factor of the token vectors, but not of a head that uses them.
    pub embedding_scale: f64,
    /// Factor of what a block adds to its operand.
    pub residual_scale: f64,
    /// Factor of the logits.
    pub logit_scale: f64,
    /// Factor of the scores, if it is not 1/√dh.
    pub score_scale: Option<f64>,
    /// Columns of the token table, where a linear layer widens them to the width.
    pub table_width: Option<usize>,
    /// Whether gains of norms are stored less one.
    pub gains_less_one: bool,
    /// Where the norms of a layer are.
    pub norms: Norms,
    /// Norms of queries and keys.
    pub head_norms: Option<HeadNorms>,
    /// Whether biases of attention are those of query, key and value alone.
    pub no_output_bias: bool,
    /// Whether Q, K and V are one matrix, and gate and up another.
    pub fused: bool,
    /// The rotary positions of each layer, where they differ; `None` for a layer without.
    pub ropes: Vec<Option<Rope>>,
    /// Columns of an embedding, where a linear layer without a bias makes it from the pooled row.
    pub projected: Option<usize>,
    /// How many rows to either side each layer of an encoder sees, where some see only so many; `None` for all.
    pub windows: Vec<Option<usize>>,
}

/// Where the norms of a layer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norms {
    /// Before each block.
    Before,
    /// After each block.
    After,
    /// Before and after.
    Around,
}

/// What a norm of queries or keys covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorms {
    /// Each head, with the same gains.
    Each,
    /// All columns.
    All,
}

impl Default for Form {
    fn default() -> Form {
        Form {
            embedding_scale: 1.0,
            residual_scale: 1.0,
            logit_scale: 1.0,
            score_scale: None,
            table_width: None,
            gains_less_one: false,
            norms: Norms::Before,
            head_norms: None,
            no_output_bias: false,
            fused: false,
            ropes: Vec::new(),
            projected: None,
            windows: Vec::new(),
        }
    }
}

/// LLaMA's rotary positions, as Hugging Face folders spell them.
pub(crate) const ROPE: Rope = Rope { theta: 10_000.0, pairs: Pairs::Halves, scaling: RopeScaling::None, columns: None };

impl NetworkConfig {
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
            head_width: None,
            key_heads: None,
            rope: None,
            biases: Biases::default(),
            weigh: Weigh::Softmax,
            sub_norms: false,
            form: Form::default(),
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
            epsilon: 1e-12,
            padding_id: Some(0),
            labels: None,
            problem: ProblemType::default(),
            pooled: false,
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
            epsilon: 1e-5,
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
            rope: Some(ROPE),
            hidden: 11008,
            vocabulary: 32000,
            positions: 2048,
            token_types: 0,
            activation: Activation::Silu,
            epsilon: 1e-6,
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
            rope: Some(Rope { theta: 500_000.0, ..ROPE }),
            sub_norms: true,
            ternary: Some(WeightScale::Factor),
            hidden: 6912,
            vocabulary: 128_256,
            positions: 4096,
            activation: Activation::Relu2,
            epsilon: 1e-5,
            tied: true,
            end_tokens: vec![128_001],
            ..NetworkConfig::llama_7b()
        }
    }

    /// Whether a classifier's answer is one number, as a cross-encoder's is: no class, but a score.
    pub fn scores(&self) -> bool {
        self.labels.as_ref().is_some_and(|labels| labels.len() == 1)
    }

    /// Whether the second text of a pair has a token type of its own. Only classifiers read pairs.
    pub fn typed(&self) -> bool {
        self.token_types > 1 && self.task() == Task::Classify
    }

    /// What the model is used for.
    pub fn task(&self) -> Task {
        match &self.labels {
            _ if self.architecture.decodes() && !self.pooled => Task::Generate,
            Some(_) => Task::Classify,
            None => Task::Embed,
        }
    }

    /// How Q, K and V split into heads; the scores are scaled by 1/√dh unless the form says otherwise.
    pub fn split(&self) -> Heads {
        let width = self.head_width.unwrap_or(self.width / self.heads);
        Heads {
            count: self.heads,
            keys: self.key_heads.unwrap_or(self.heads),
            width,
            scale: self.form.score_scale.unwrap_or(1.0 / (width as f64).sqrt()),
        }
    }
}
