//! Products are exact modulo every prime, with any kernel and number of threads, from memory and from files.

mod encrypted;
mod exact;
