//! Model folders, the tokenizer, and each transformer written once.
//!
//! This crate contains no cryptography. It turns a Hugging Face folder and a text or image into numbers and layers,
//! gives each model as a [`Program`], and runs it in the clear ([`plain`], `f64`). That is the oracle for every private
//! way to run it.
#![forbid(unsafe_code)]

pub mod arch;
pub mod blocks;
pub mod body;
pub mod calibrate;
pub mod decoder;
pub mod error;
pub mod folder;
#[cfg(feature = "testing")]
pub mod fuzz;
pub mod generate;
pub mod graph;
pub mod images;
mod layers;
pub mod matrix;
pub mod model;
pub mod network;
mod numbers;
pub mod plain;
pub mod program;
pub mod prune;
pub mod rows;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tokens;
pub mod vectors;
pub mod vit;

pub use arch::config::{Biases, Form, HeadNorms, NetworkConfig, Norms, WeightScale};
pub use arch::{Architecture, Task};
pub use blocks::{
    Activation, Attention, Classifier, Distances, Embedding, FeedForward, Heads, Linear, Mask, Norm, NormKind,
    NormReach, Pairs, Patches, Pool, QUICK_GELU, Queries, Rope, RopeScaling, Tolerance, Weigh,
};
pub use body::Body;
pub use calibrate::{Calibration, CalibrationError, Range, Ranges, calibrate, calibrate_layers};
pub use decoder::{DecoderNetwork, EmbedderNetwork, NormOrder};
pub use error::{FolderError, ImageError, ModelError, Problem, TextError};
pub use folder::{
    Declared, FUNCTIONS, Matryoshka, ProblemType, Public, PublicFiles, Report, ScoreFn, Similarity, Stored, Summary,
    Warning, check, counted, json_fault, json_words, without_mark,
};
pub use generate::drafts::prompt_lookup;
pub use generate::{Continued, Ending, drafted, greedy, largest, likeliest, likeliest_of, log_probabilities, log_sum};
pub use graph::{Graph, NodeFault, Port, Tensor};
pub use images::{Item, Pixels, Preprocess, Resample, ResizeTo};
pub use matrix::Matrix;
pub use model::{
    Model, gpt2_shapes, llama_shapes, network_shapes, random_gpt2, random_llama, random_model, random_network,
    random_vit, stored_llama, vit_shapes, write_random_llama,
};
pub use network::{Layer, Network};
pub use plain::{PlainActs, PlainScores};
pub use program::{Block, Edge, Kind, Program, Step, StepId, Values, here, same};
pub use rows::{Rows, TextRows};
pub use tokens::chat::{ChatError, ChatTemplate, Message, Prompt, Role};
pub use tokens::{Decoder, Piece, TokenIds, Tokenizer, TooLong};
pub use vectors::{cosine, length, nearness};
pub use vit::VisionNetwork;
