//! Encrypted runs. They occupy all cores for minutes, in which the deadlines of the tests in `it` would pass.

#[path = "../common/fhe_server.rs"]
mod fhe_server;
#[path = "../common/offered.rs"]
mod offered;
#[path = "../common/private.rs"]
mod private;

mod decoder;
mod decoder_rows;
mod fhe;
mod killed;
mod machines;
mod memory;
mod one;
mod remote;
