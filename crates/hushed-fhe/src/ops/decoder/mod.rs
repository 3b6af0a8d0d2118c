//! A decoder layer of LLaMA's shape on columns: norm, causal attention with a sigmoid or a softmax, sum, norm, gated
//! feed-forward, sum (ENSI, arXiv 2509.09424, with the form of attention in docs/ensi.md).
//!
//! Texts are *right-aligned*: the last token of every text is in row m − 1, and rows before its first token are zeros.
//! They stay zeros without a mask: no layer has a bias, a norm multiplies rows, and a row of attention is a sum over
//! itself and earlier rows. Between the halves of a layer, columns are x/bound, where x is the residual stream.

pub mod attention;
pub mod last;
pub mod layer;
#[cfg(test)]
mod paired_tests;
pub mod rms;
pub mod rope;
pub mod rows;
mod scores;
#[cfg(test)]
mod softmax_tests;
mod source;
#[cfg(test)]
mod spill_tests;
pub mod sub_norm;
#[cfg(test)]
pub(crate) mod tests;
pub mod weigh;
