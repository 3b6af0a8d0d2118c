//! External tests of the crate, in one binary: linking it costs more than most of them.

mod architectures;
mod bitnet;
mod calibration;
mod chat;
mod decoders;
mod drafts;
mod embedders;
mod folders;
mod golden;
mod gpt2;
mod graphs;
mod llama;
mod pairs;
mod tokenizers;
mod variants;
mod vit;
