//! Tests of the crate from outside, in one binary: linking it costs more than most of them.

mod calibration;
mod folders;
mod golden;
