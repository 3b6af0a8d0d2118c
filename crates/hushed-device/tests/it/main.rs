//! Kernels and key switching in PoCL on the processor, word for word against `hushed-math` and `hushed-rlwe`.

mod bed;
mod bounds;
mod cards;
mod compiled;
mod points;
mod switches;
mod transforms;
