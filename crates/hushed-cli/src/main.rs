//! The `hushed` binary.
fn main() {}
