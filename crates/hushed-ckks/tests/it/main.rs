//! Integration tests of the crate in one binary, because linking takes longer than most of them.

mod bootstrap;
mod examples;
mod lattigo;
