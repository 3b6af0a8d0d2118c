//! What a program has to know about the machine and the process it runs in.

pub mod cache;
pub mod cpu;
pub mod process;
