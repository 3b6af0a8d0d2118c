//! Functions on fixed-point shares: the non-linear parts of a transformer.
//!
//! A real number x is the integer ⌊x·2^f⌉ modulo 2^ℓ; every function documents the ring and the number of fraction bits
//! of its argument and its result. Two rules keep the traffic low, both from BumbleBee (NDSS 2025, §V-C) and taken
//! further: *going down is free* (in a ring with `shift` spare bits each party truncates alone, [`narrow`]), and *go up
//! once*, at the end, with one fused truncation and extension.
//!
//! | function | method | module |
//! |---|---|---|
//! | exp2 of a negative number | one 1-of-8 OT and one 14-bit product per element | [`exp2`] |
//! | softmax without its division | row maxima, clipping, exp2 | [`softmax`] |
//! | GELU, SiLU, ELU, tanh | the top bits, one short square, one 1-of-8 or 1-of-16 OT each way | [`curve`] |
//! | ReLU, squared ReLU | one comparison and one multiplexer; one square | [`relu`] |
//! | σ of a score, for attention without softmax | as tanh | [`sigmoid`] |
//! | 1/x and 1/√x of one number per row | highest bit and one polynomial, or a series on segments | [`inverse`] |
//! | LayerNorm, RMSNorm without gain and offset | a row's sum of squares and 1/√x, a product per element | [`norm`] |

pub mod curve;
pub mod exp2;
mod format;
pub mod inverse;
pub mod norm;
pub mod relu;
mod series;
pub mod sigmoid;
pub mod softmax;

pub use format::{Format, narrow, rescale, rescale_cost};

/// The constants of every function here, as text: parties that differ in one of them must not run together. New
/// constants belong in their module's part of this text.
pub fn describe() -> String {
    [
        exp2::describe(),
        softmax::describe(),
        curve::describe(),
        relu::describe(),
        sigmoid::describe(),
        inverse::describe(),
        norm::describe(),
    ]
    .join(" ")
}

#[cfg(test)]
mod tests;
