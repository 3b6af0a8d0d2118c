//! What can go wrong with a model folder, a text or a forward pass. Each error says what to do where there is something
//! to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A model folder (or the public part of one) cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A text cannot be turned into token ids.
    #[error(transparent)]
    Text(#[from] TextError),
    /// An image cannot be turned into what a model reads.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A forward pass was asked for a layer that the model does not have.
    #[error("the model has {layers} layers, and layer {asked} was asked for")]
    NoSuchLayer {
        /// The layer asked for, from 0.
        asked: usize,
        /// How many there are.
        layers: usize,
    },
    /// Only the shapes of the model are known here, and a step needs its numbers.
    #[error("{site}: the weights are not here, only their shapes; load the model from its folder")]
    ShapesOnly {
        /// The step, as [`crate::StepId`] prints it.
        site: String,
    },
    /// Two things that belong together do not fit.
    #[error("{site}: {what} is {found}, expected {expected}")]
    Mismatch {
        /// The step.
        site: String,
        /// What was compared, such as `columns`.
        what: &'static str,
        /// As it is.
        found: usize,
        /// As it should be.
        expected: usize,
    },
    /// A step reads a value that is missing: a defect of the code that runs the program.
    #[error("{site}: a value that it reads is missing")]
    NoValue {
        /// The step.
        site: String,
    },
    /// What runs encoders alone was given another model.
    #[error(
        "the model is a {architecture}, and this needs an encoder of text: protocol fhe runs no other, and decoders neither embed nor classify"
    )]
    NotAnEncoder {
        /// As `config.json` names it.
        architecture: &'static str,
    },
    /// A text was to be continued by a model that answers otherwise.
    #[error("the model does not generate text; embed or classify with it")]
    NotAGenerator,
    /// An id that is not in the token table.
    #[error(
        "a token id is outside the model's vocabulary of {vocabulary}: the tokenizer belongs to another model"
    )]
    TokenOutOfRange {
        /// Rows of the token table.
        vocabulary: usize,
    },
}

/// Why an image was refused. Never contains any of its points.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The model reads text.
    #[error("the model takes text, and was given an image")]
    NoImages,
    /// Neither of the formats that are read.
    #[error("the image is neither PNG nor JPEG: convert it")]
    OtherFormat,
    /// Too many bytes to be decoded.
    #[error(
        "the image has {bytes} bytes, more than the {limit} that are accepted: make it smaller"
    )]
    TooManyBytes {
        /// Its size.
        bytes: usize,
        /// [`crate::images::MAX_IMAGE_BYTES`].
        limit: usize,
    },
    /// Too many points to be decoded, or none.
    #[error(
        "the image has {width} × {height} points; at most {points} are accepted, and {side} in a line: make it smaller"
    )]
    TooManyPoints {
        /// Points in a row.
        width: u32,
        /// Rows.
        height: u32,
        /// [`crate::images::MAX_POINTS`].
        points: u64,
        /// [`crate::images::MAX_SIDE`].
        side: u32,
    },
    /// A file that stops before its end.
    #[error("the image is truncated; fetch it again")]
    Truncated,
    /// Bytes that are no image.
    #[error("the image cannot be decoded ({source}); it is truncated or broken")]
    Broken {
        /// As the image crate says it.
        source: image::ImageError,
    },
    /// Another size than the model's, which does not resize.
    #[error("the image has {points} points, and the model takes {side} × {side} without resizing")]
    OtherSize {
        /// Its points.
        points: u64,
        /// The model's width and height.
        side: usize,
    },
    /// Patches that were cut for another model.
    #[error("the image was cut into patches of another size than this model's")]
    OtherPatches,
}

/// Why a text was refused. Never contains the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The model reads images.
    #[error("the model takes images, and was given a text; give a PNG or JPEG file (--image)")]
    NoText,
    /// Nothing to embed.
    #[error(
        "the text is empty (or only white space and control characters); give at least one visible character"
    )]
    Empty,
    /// More tokens than the model takes.
    #[error(
        "the text has {tokens} tokens and the model takes at most {limit}: shorten it, split it, or have it truncated (--truncate)"
    )]
    TooLong {
        /// Tokens, counting the first and last special ones.
        tokens: usize,
        /// The model's limit.
        limit: usize,
    },
    /// No position is left for a token after the text.
    #[error(
        "the text has {tokens} tokens and the model takes {limit} with what follows: shorten it"
    )]
    NoRoom {
        /// Tokens of the text.
        tokens: usize,
        /// The model's limit.
        limit: usize,
    },
    /// Too many bytes to be tokenised.
    #[error("the text has {bytes} bytes, more than the {limit} that are accepted: split it")]
    TooManyBytes {
        /// Its size.
        bytes: usize,
        /// [`crate::tokens::MAX_TEXT_BYTES`].
        limit: usize,
    },
    /// The tokenizer failed on it: its vocabulary has no entry for unknown words.
    #[error(
        "the tokenizer cannot encode this text: tokenizer.json is broken (a vocabulary without its unknown token?)"
    )]
    Tokenizer,
    /// The tokenizer produced a special token (`[CLS]`, `[SEP]`, `[PAD]`, `[MASK]`) from plain text.
    #[error("the tokenizer makes a special token out of plain text: tokenizer.json is not usable")]
    SpecialInside,
}

/// All reasons at once why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub struct FolderError {
    /// The folder, or what stands for it.
    pub folder: PathBuf,
    /// At least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the model folder {} cannot be used:",
            self.folder.display()
        )?;
        for problem in &self.problems {
            write!(f, "\n  - {problem}")?;
        }
        Ok(())
    }
}

/// One reason why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A file is not there.
    #[error("{file} is missing: {hint}")]
    MissingFile {
        /// Path inside the folder.
        file: String,
        /// What to do.
        hint: &'static str,
    },
    /// The operating system refused a read.
    #[error("{file} cannot be read: {source}")]
    Unreadable {
        /// Path inside the folder.
        file: String,
        /// Its reason.
        source: io::Error,
    },
    /// Larger than anything plausible.
    #[error("{file} has {bytes} bytes; at most {limit} are read")]
    TooLarge {
        /// Path inside the folder.
        file: String,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Not a JSON object.
    #[error("{file} is not the expected JSON: {source}")]
    NotJson {
        /// Path inside the folder.
        file: String,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A field that has no default is not there.
    #[error("{file}: the field `{field}` is missing")]
    MissingField {
        /// Path inside the folder.
        file: String,
        /// Its name.
        field: &'static str,
    },
    /// A field is of another type.
    #[error("{file}: the field `{field}` should be {expected}")]
    WrongType {
        /// Path inside the folder.
        file: String,
        /// Its name.
        field: &'static str,
        /// Such as `a whole number`.
        expected: &'static str,
    },
    /// A number outside what is accepted.
    #[error("{file}: `{field}` is {value}; {min} to {max} are supported")]
    OutOfRange {
        /// Path inside the folder.
        file: String,
        /// Its name.
        field: &'static str,
        /// As it is.
        value: f64,
        /// Least accepted.
        min: f64,
        /// Most accepted.
        max: f64,
    },
    /// A value that this program does not implement.
    #[error("{file}: `{field}` is {value}; supported: {supported}")]
    UnsupportedValue {
        /// Path inside the folder.
        file: String,
        /// Its name.
        field: &'static str,
        /// As it is, shortened.
        value: String,
        /// What would be accepted.
        supported: &'static str,
    },
    /// The heads do not divide the width.
    #[error("config.json: the width {width} is not a multiple of the number of heads, {heads}")]
    HeadsDoNotDivide {
        /// `hidden_size`, or `dim`.
        width: usize,
        /// `num_attention_heads`, or `n_heads`.
        heads: usize,
    },
    /// An architecture whose scores have a term that no protocol computes.
    #[error(
        "config.json: the attention of {model_type} adds a relative position bias to its scores, which neither protocol computes; use a model with absolute positions: bert, roberta, xlm-roberta, distilbert"
    )]
    AttentionBias {
        /// As `config.json` names it.
        model_type: &'static str,
    },
    /// A classifier whose head has an activation that no protocol computes there.
    #[error(
        "config.json: the head of {architecture} has a ReLU, and heads are computed with tanh only; use a sentence encoder, or a classifier of BERT, RoBERTa or XLM-RoBERTa"
    )]
    HeadActivation {
        /// The member of `architectures`.
        architecture: &'static str,
    },
    /// The head of the weights file is not valid: overlapping, overflowing or missing pieces, not UTF-8, not JSON.
    #[error("{file}: its header is invalid ({source}); fetch the file again")]
    Header {
        /// Path inside the folder.
        file: String,
        /// As the safetensors crate says it.
        source: safetensors::SafeTensorError,
    },
    /// The weights file is shorter than its first 8 bytes, or than these say the header is.
    #[error(
        "{file}: {bytes} bytes are too few for its header ({needed} needed); the file is truncated, fetch it again"
    )]
    TruncatedHeader {
        /// Path inside the folder.
        file: String,
        /// Size of the file.
        bytes: u64,
        /// Size that the header needs.
        needed: u64,
    },
    /// The tensors and the file do not end together.
    #[error(
        "{file}: the tensors take {declared} bytes and the file has {found}; it is truncated or not of this format, fetch it again"
    )]
    DataLength {
        /// Path inside the folder.
        file: String,
        /// By the header.
        declared: u64,
        /// In the file.
        found: u64,
    },
    /// A weights file that is read piece by piece was written meanwhile.
    #[error("{file}: it was written since this program opened it; start again")]
    Changed {
        /// Path inside the folder.
        file: String,
    },
    /// A tensor that the architecture needs is not there.
    #[error(
        "the weights: the tensor {name} is missing; is this the model that config.json describes?"
    )]
    MissingTensor {
        /// As it is usually called.
        name: String,
    },
    /// A tensor has another shape than config.json implies.
    #[error("the weights: {name} has the shape {found:?}, and config.json implies {expected:?}")]
    WrongShape {
        /// Its name.
        name: String,
        /// In the file.
        found: Vec<usize>,
        /// By the configuration.
        expected: Vec<usize>,
    },
    /// A tensor's numbers are of a type that is not read.
    #[error("the weights: {name} is stored as {found}; supported: F32, F16, BF16")]
    WrongNumbers {
        /// Its name.
        name: String,
        /// The type found.
        found: String,
    },
    /// A weight is not a number.
    #[error("the weights: {name} contains an infinity or NaN; fetch the file again")]
    NotFinite {
        /// Its name.
        name: String,
    },
    /// A layer that is declared ternary has other weights.
    #[error(
        "the weights: {name} is declared ternary and has a weight other than −s, 0 and s; quantise it, or take another model_type"
    )]
    NotTernary {
        /// Its name.
        name: String,
    },
    /// The scale of a ternary layer is no positive number.
    #[error("the weights: {name} is {value}, and has to be above zero and finite")]
    TernaryScale {
        /// Its name.
        name: String,
        /// As it is.
        value: f32,
    },
    /// The tokenizer's file does not follow the format.
    #[error("tokenizer.json was refused by the tokenizers library: {source}")]
    Tokenizer {
        /// As it says it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The tokenizer produces ids that the token table does not have.
    #[error(
        "tokenizer.json has the token id {id}, but config.json says vocab_size {vocabulary}: the two belong to different models"
    )]
    ForeignTokenizer {
        /// Largest id of the tokenizer.
        id: u64,
        /// Rows of the token table.
        vocabulary: usize,
    },
    /// A special token is not in the vocabulary.
    #[error("tokenizer.json: the token {token:?} is not in its vocabulary")]
    NoSuchToken {
        /// Such as `[CLS]`.
        token: String,
    },
    /// A special token has one id here and another there.
    #[error(
        "tokenizer.json gives {token:?} the id {tokenizer}, and config.json says {config}: the two belong to different models"
    )]
    SpecialTokenDiffers {
        /// Such as `[PAD]`.
        token: String,
        /// Its id by the tokenizer.
        tokenizer: u32,
        /// By the configuration.
        config: u32,
    },
}
