//! Which architectures there are.

/// Whose fields and tensors a folder uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// `bert`.
    Bert,
    /// `roberta`, `xlm-roberta` and `camembert`.
    Roberta,
    /// `distilbert`.
    DistilBert,
    /// `electra`.
    Electra,
    /// `albert`.
    Albert,
    /// `mpnet`.
    MpNet,
    /// `modernbert`.
    ModernBert,
    /// `clip_text_model`.
    ClipText,
    /// `nomic_bert`.
    Nomic,
    /// `gpt2`.
    Gpt2,
    /// `llama`.
    Llama,
    /// `mistral`.
    Mistral,
    /// `qwen2`.
    Qwen2,
    /// `qwen3`.
    Qwen3,
    /// `phi3`.
    Phi3,
    /// `gemma`.
    Gemma,
    /// `gemma3_text`.
    Gemma3,
    /// `granite`.
    Granite,
    /// `olmo2`.
    Olmo2,
    /// `smollm3`.
    SmolLm3,
    /// `bitnet`.
    BitNet,
    /// `vit`.
    Vit,
    /// `dinov2`.
    Dinov2,
    /// `clip_vision_model`.
    ClipVision,
}

/// What a model is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// One vector per text or image.
    Embed,
    /// One number per class, for a text or an image.
    Classify,
    /// The continuation of a text, token by token.
    Generate,
}

/// By `model_type`.
pub(crate) const MODEL_TYPES: [(&str, Architecture); 26] = [
    ("bert", Architecture::Bert),
    ("roberta", Architecture::Roberta),
    ("xlm-roberta", Architecture::Roberta),
    ("camembert", Architecture::Roberta),
    ("distilbert", Architecture::DistilBert),
    ("electra", Architecture::Electra),
    ("albert", Architecture::Albert),
    ("mpnet", Architecture::MpNet),
    ("modernbert", Architecture::ModernBert),
    ("clip_text_model", Architecture::ClipText),
    ("nomic_bert", Architecture::Nomic),
    ("gpt2", Architecture::Gpt2),
    ("llama", Architecture::Llama),
    ("mistral", Architecture::Mistral),
    ("qwen2", Architecture::Qwen2),
    ("qwen3", Architecture::Qwen3),
    ("phi3", Architecture::Phi3),
    ("gemma", Architecture::Gemma),
    ("gemma3_text", Architecture::Gemma3),
    ("granite", Architecture::Granite),
    ("olmo2", Architecture::Olmo2),
    ("smollm3", Architecture::SmolLm3),
    ("bitnet", Architecture::BitNet),
    ("vit", Architecture::Vit),
    ("dinov2", Architecture::Dinov2),
    ("clip_vision_model", Architecture::ClipVision),
];

impl Architecture {
    /// Its `model_type` in `config.json`; the first one if there are several.
    pub(crate) fn model_type(self) -> &'static str {
        let mut types = MODEL_TYPES.iter();
        types.find(|(_, a)| *a == self).map_or("", |(name, _)| name)
    }

    /// All `model_type`s that are read.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MODEL_TYPES.iter().map(|(name, _)| *name)
    }

    /// Whether it continues texts.
    pub(crate) fn decodes(self) -> bool {
        match self {
            Architecture::Gpt2
            | Architecture::Llama
            | Architecture::Mistral
            | Architecture::Qwen2
            | Architecture::Qwen3
            | Architecture::Phi3
            | Architecture::Gemma
            | Architecture::Gemma3
            | Architecture::Granite
            | Architecture::Olmo2
            | Architecture::SmolLm3
            | Architecture::BitNet => true,
            Architecture::Bert
            | Architecture::Roberta
            | Architecture::DistilBert
            | Architecture::Electra
            | Architecture::Albert
            | Architecture::MpNet
            | Architecture::ModernBert
            | Architecture::ClipText
            | Architecture::Nomic
            | Architecture::Vit
            | Architecture::Dinov2
            | Architecture::ClipVision => false,
        }
    }

    /// Whether it is a decoder whose rows may be pooled into an embedding.
    pub(crate) fn pools_like_llama(self) -> bool {
        self.decodes() && self != Architecture::Gpt2
    }

    /// Whether it reads images.
    pub(crate) fn sees(self) -> bool {
        self.vision().is_some()
    }
}
