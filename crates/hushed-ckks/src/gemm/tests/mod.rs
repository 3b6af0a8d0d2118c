//! Products are exact modulo every prime, by any kernel, any number of threads, from memory and from files; and they are what
//! the naive loop computes.

mod encrypted;
mod exact;
