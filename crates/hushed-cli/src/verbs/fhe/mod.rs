//! The verbs of runs under encryption.

pub mod decrypt;
pub mod embed;
pub mod encrypt;
pub mod keygen;
pub mod keys;
pub mod next;
mod ray;
pub mod run;
pub mod score;
