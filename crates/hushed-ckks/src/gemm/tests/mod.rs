//! Products are exact modulo every prime, by any kernel, any number of threads, from memory and from files.

mod encrypted;
mod exact;
