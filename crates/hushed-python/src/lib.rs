//! The extension module `hushed._native`: conversions between Python's objects and the libraries.
//!
//! What a Python user sees is in `python/hushed`: the signatures of `sentence-transformers`, numpy arrays, the errors.
//! Here a call takes plain objects, runs in its own thread without the interpreter's lock, and checks for signals
//! meanwhile ([`work`]).
#![forbid(unsafe_code)]

mod batch;
mod classifier;
mod command;
mod connection;
mod cross_encoder;
mod encoder;
mod errors;
mod generator;
mod kept;
mod machines;
mod network;
mod plan;
mod searcher;
mod server;
mod work;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::batch::{
        batch_choose, batch_forget, batch_next, batch_result, batch_score, batch_status, batch_submit,
        batch_submit_items,
    };
    #[pymodule_export]
    use super::classifier::Classifier;
    #[pymodule_export]
    use super::command::command;
    #[pymodule_export]
    use super::cross_encoder::CrossEncoder;
    #[pymodule_export]
    use super::encoder::Encoder;
    #[pymodule_export]
    use super::generator::{Generation, Generator};
    #[pymodule_export]
    use super::machines::{RunDriver, RunWorker};
    #[pymodule_export]
    use super::network::{is_network, network_decrypt, network_encrypt, network_keygen, network_plan, network_run};
    #[pymodule_export]
    use super::plan::plan;
    #[pymodule_export]
    use super::searcher::Searcher;
    #[pymodule_export]
    use super::server::Server;
}
