//! What can go wrong with a model folder, a text or a forward pass. Where there is a remedy, the error names it.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::folder::faults::{counted, json_words};
use crate::graph::faults::NodeFault;

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
    /// An image cannot be turned into the model's input.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A forward pass asked for a layer that the model does not have.
    #[error("the model has {}, and layer {asked} was asked for", counted(*layers, "layer"))]
    NoSuchLayer {
        /// The layer asked for, from 0.
        asked: usize,
        /// How many there are.
        layers: usize,
    },
    /// A step needs the numbers of the model, but only its shapes are known.
    #[error("{site}: the weights are not here, only their shapes; load the model from its folder")]
    ShapesOnly {
        /// The step, as [`crate::StepId`] prints it.
        site: String,
    },
    /// Two things that belong together have different sizes.
    #[error("{site}: {what} is {found}, expected {expected}")]
    Mismatch {
        /// The step.
        site: String,
        /// What was compared, such as `columns`.
        what: &'static str,
        /// The actual value.
        found: usize,
        /// The expected value.
        expected: usize,
    },
    /// A step reads a value that is missing: a defect of the code that runs the program.
    #[error("{site}: a value that it reads is missing")]
    NoValue {
        /// The step.
        site: String,
    },
    /// A model that is not an encoder was given to code that runs only encoders.
    #[error(
        "the model is a {architecture}, and this needs an encoder of text: protocol fhe runs no other, and decoders neither embed nor classify"
    )]
    NotAnEncoder {
        /// As `config.json` names it.
        architecture: &'static str,
    },
    /// A model that does not generate text was asked to continue one.
    #[error("the model does not generate text; embed or classify with it")]
    NotAGenerator,
    /// An id that is not in the token table.
    #[error("a token id is outside the model's vocabulary of {vocabulary}: the tokenizer belongs to another model")]
    TokenOutOfRange {
        /// Rows of the token table.
        vocabulary: usize,
    },
}

/// Why an image was refused. Never contains any of its pixels.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The model reads text.
    #[error("the model takes text, and was given an image")]
    NoImages,
    /// Neither PNG nor JPEG.
    #[error("the image is neither PNG nor JPEG: convert it")]
    OtherFormat,
    /// Too many bytes to decode.
    #[error("the image has {bytes} bytes, more than the {limit} that are accepted: make it smaller")]
    TooManyBytes {
        /// Its size.
        bytes: usize,
        /// [`crate::images::MAX_IMAGE_BYTES`].
        limit: usize,
    },
    /// Too many pixels to decode, or none.
    #[error(
        "the image has {width} × {height} points; at most {points} are accepted, and {side} in a line: make it smaller"
    )]
    TooManyPoints {
        /// Pixels per row.
        width: u32,
        /// Rows.
        height: u32,
        /// [`crate::images::MAX_POINTS`].
        points: u64,
        /// [`crate::images::MAX_SIDE`].
        side: u32,
    },
    /// The file ends too early.
    #[error("the image is truncated; fetch it again")]
    Truncated,
    /// The bytes are not an image.
    #[error("the image cannot be decoded ({source}); it is truncated or broken")]
    Broken {
        /// The image crate's reason.
        source: image::ImageError,
    },
    /// Not the model's size, and the model does not resize.
    #[error("the image has {points} points, and the model takes {side} × {side} without resizing")]
    OtherSize {
        /// Its pixels.
        points: u64,
        /// The model's width and height.
        side: usize,
    },
    /// The patches were cut for another model.
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
    #[error("the text is empty (or only white space and control characters); give at least one visible character")]
    Empty,
    /// More tokens than the model takes.
    #[error(
        "the text has {} and the model takes at most {limit}: shorten it, split it, or have it truncated (--truncate)",
        counted(*tokens, "token")
    )]
    TooLong {
        /// Tokens, counting the first and last special ones.
        tokens: usize,
        /// The model's limit.
        limit: usize,
    },
    /// No position is left for a token after the text.
    #[error("the text has {} and the model takes {limit} with what follows: shorten it", counted(*tokens, "token"))]
    NoRoom {
        /// Tokens of the text.
        tokens: usize,
        /// The model's limit.
        limit: usize,
    },
    /// Too many bytes to tokenise.
    #[error("the text has {bytes} bytes, more than the {limit} that are accepted: split it")]
    TooManyBytes {
        /// Its size.
        bytes: usize,
        /// [`crate::tokens::MAX_TEXT_BYTES`].
        limit: usize,
    },
    /// The tokenizer failed: its vocabulary has no entry for unknown words.
    #[error(
        "the tokenizer cannot encode this text: tokenizer.json is broken (a vocabulary without its unknown token?)"
    )]
    Tokenizer,
    /// The tokenizer produced a special token (`[CLS]`, `[SEP]`, `[PAD]`, `[MASK]`) from plain text.
    #[error("the tokenizer makes a special token out of plain text: tokenizer.json is not usable")]
    SpecialInside,
    /// The model does not read pairs of texts.
    #[error(
        "the model does not read pairs of texts: it is no classifier, or its tokenizer.json does not say how two texts \
         are put together"
    )]
    NoPairs,
    /// The folder names no token that begins a text.
    #[error("this model's folder names no token that begins a text: leave out --begin")]
    NoBegin,
}

/// All the reasons why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub struct FolderError {
    /// The folder, or a description in its place.
    pub folder: PathBuf,
    /// At least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the model folder {} cannot be used:", self.folder.display())?;
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
    /// A file is missing.
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
        /// The system's reason.
        source: io::Error,
    },
    /// A file is larger than anything plausible.
    #[error("{file} has {bytes} bytes; at most {limit} are read")]
    TooLarge {
        /// Path inside the folder.
        file: String,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A file is not a JSON object.
    #[error("{file} is not the expected JSON: {}", json_words(source))]
    NotJson {
        /// Path inside the folder.
        file: String,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A file was downloaded in place of another.
    #[error("{file} is {found}")]
    InItsPlace {
        /// Path inside the folder.
        file: String,
        /// What it is, and what to do.
        found: &'static str,
    },
    /// A symbolic link leads nowhere.
    #[error("{file} is a symbolic link to {target}, which does not exist: fetch the files again")]
    BrokenLink {
        /// Path inside the folder.
        file: String,
        /// Where it leads.
        target: String,
    },
    /// The folder holds changes to another model.
    #[error(
        "the folder has an adapter_config.json: it holds an adapter (LoRA), not the model that it changes; merge the two (`merge_and_unload` of peft) and save the result"
    )]
    Adapter,
    /// The tensors are under several prefixes, none of which a folder uses.
    #[error("the weights: tensors of several models, under {prefixes}; save the one that config.json describes alone")]
    Prefixes {
        /// The prefixes, as a list.
        prefixes: String,
    },
    /// A node of `graph.json` cannot be used.
    #[error("graph.json: the node {node}: {fault}")]
    Node {
        /// Its name, shortened; `#n` for entry n of the inputs and nodes if it has none.
        node: String,
        /// The reason.
        fault: NodeFault,
    },
    /// A tensor belongs to no node.
    #[error("the weights: {name} belongs to no node of graph.json; leave it out, or name the node whose weight it is")]
    UnusedTensor {
        /// Its name, shortened.
        name: String,
    },
    /// A batch normalisation would take the root of a number that is not positive.
    #[error("the weights: {name} contains {value:e}, which is no variance; fetch the file again")]
    NegativeVariance {
        /// Its name.
        name: String,
        /// The number.
        value: f32,
    },
    /// The folder holds a graph, and the caller runs transformers.
    #[error(
        "the folder holds a network as a graph (graph.json): `hushed check` and `hushed clear` take it, other commands \
         do not yet (docs/networks.md)"
    )]
    IsGraph,
    /// A field without a default is missing.
    #[error("{file}: the field `{field}` is missing")]
    MissingField {
        /// Path inside the folder.
        file: String,
        /// Its name.
        field: &'static str,
    },
    /// A field has the wrong type.
    #[error("{file}: the field `{field}` should be {expected}")]
    WrongType {
        /// Path inside the folder.
        file: String,
        /// Its name.
        field: &'static str,
        /// Such as `a whole number`.
        expected: Cow<'static, str>,
    },
    /// A number is outside the accepted range.
    #[error("{file}: `{field}` is {value}; {min} to {max} are supported")]
    OutOfRange {
        /// Path inside the folder.
        file: String,
        /// Its name.
        field: &'static str,
        /// The actual value.
        value: f64,
        /// Least accepted value.
        min: f64,
        /// Largest accepted value.
        max: f64,
    },
    /// A value is not implemented.
    #[error("{file}: `{field}` is {value}; supported: {supported}")]
    UnsupportedValue {
        /// Path inside the folder.
        file: String,
        /// Its name.
        field: &'static str,
        /// The actual value, shortened.
        value: String,
        /// What is accepted.
        supported: Cow<'static, str>,
    },
    /// The width is not a multiple of the number of heads.
    #[error("config.json: the width {width} is not a multiple of the number of heads, {heads}")]
    HeadsDoNotDivide {
        /// `hidden_size`, or `dim`.
        width: usize,
        /// `num_attention_heads`, or `n_heads`.
        heads: usize,
    },
    /// The header of a weights file is invalid: overlapping, overflowing or missing pieces, not UTF-8, not JSON.
    #[error("{file}: its header is invalid ({source}); fetch the file again")]
    Header {
        /// Path inside the folder.
        file: String,
        /// The safetensors crate's reason.
        source: safetensors::SafeTensorError,
    },
    /// The weights file is shorter than its first 8 bytes, or than they say the header is.
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
    /// The tensors do not end where the file ends.
    #[error(
        "{file}: the tensors take {declared} bytes and the file has {found}; it is truncated or not of this format, fetch it again"
    )]
    DataLength {
        /// Path inside the folder.
        file: String,
        /// Bytes according to the header.
        declared: u64,
        /// Bytes in the file.
        found: u64,
    },
    /// A weights file was written while it was being read piece by piece.
    #[error("{file}: it was written since this program opened it; start again")]
    Changed {
        /// Path inside the folder.
        file: String,
    },
    /// A tensor that the architecture needs is missing.
    #[error("the weights: the tensor {name} is missing; is this the model that the folder describes?")]
    MissingTensor {
        /// Its usual name.
        name: String,
    },
    /// A tensor has another shape than the folder's description implies.
    #[error("the weights: {name} has the shape {found:?}, and {expected:?} is expected")]
    WrongShape {
        /// Its name.
        name: String,
        /// The shape in the file.
        found: Vec<usize>,
        /// The shape that the configuration implies.
        expected: Vec<usize>,
    },
    /// The numbers of a tensor have an unsupported type.
    #[error("the weights: {name} is stored as {found}; supported: F32, F16, BF16")]
    WrongNumbers {
        /// Its name.
        name: String,
        /// The type found.
        found: String,
    },
    /// A weight is not finite.
    #[error("the weights: {name} contains an infinity or NaN; fetch the file again")]
    NotFinite {
        /// Its name.
        name: String,
    },
    /// A layer declared ternary has other weights.
    #[error(
        "the weights: {name} is declared ternary and has a weight other than −s, 0 and s; quantise it, or take another model_type"
    )]
    NotTernary {
        /// Its name.
        name: String,
    },
    /// The scale of a ternary layer is not a positive finite number.
    #[error("the weights: {name} is {value}, and has to be above zero and finite")]
    TernaryScale {
        /// Its name.
        name: String,
        /// The actual value.
        value: f32,
    },
    /// The tokenizer's file does not have the right format.
    #[error("tokenizer.json was refused by the tokenizers library: {source}")]
    Tokenizer {
        /// The library's reason.
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
    /// A special token has one id in the tokenizer and another in the configuration.
    #[error(
        "tokenizer.json gives {token:?} the id {tokenizer}, and config.json says {config}: the two belong to different models"
    )]
    SpecialTokenDiffers {
        /// Such as `[PAD]`.
        token: String,
        /// Its id in the tokenizer.
        tokenizer: u32,
        /// Its id in the configuration.
        config: u32,
    },
}
