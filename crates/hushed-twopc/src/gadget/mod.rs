//! Protocols on shares, the layer between OTs and the functions of a model.
//!
//! Every function takes the [`Ctx`](crate::ctx::Ctx) first; both parties call it in the same order with the same public
//! arguments and get their shares of the result. Each has a `…_cost` function that declares what it sends. All
//! multiplicative steps are simultaneous exchanges, at one latency each.
//!
//! | gadget | rounds | bits sent by both parties, per element of ℓ bits |
//! |---|---|---|
//! | [`and`], [`or`] | 1 | 4 |
//! | [`all`] of k bits | ⌈log₂ k⌉ | 4(k−1) |
//! | [`msb`] of many | 2 + ⌈(ℓ−5)/3⌉ | 19 + 19(ℓ−5)/3 |
//! | [`msb`] of few | 1 + ⌈log₂(ℓ−1)⌉ | 2(ℓ−1) + 6(ℓ−2) − 2⌈log₂(ℓ−1)⌉ |
//! | [`less_than_public`] | as [`msb`] of `keep_bits` | as [`msb`], per threshold |
//! | [`is_zero`], [`equal()`] | ⌈log₂ ℓ⌉ | 4(ℓ−1) |
//! | [`one_hot`] | [`to_bits`], plus ⌈log₂ ℓ⌉ or one more | 4 per entry, plus the shorter rows before |
//! | [`mux`] | 1 | 2ℓ + 2 |
//! | [`select()`] of N values | 2 | 2(N−1)ℓ + 2·log₂ N |
//! | [`bit_to_arith`] | 1 | ℓ |
//! | [`truncate()`] | 1 | 1 + shift + (to − ℓ); none if to ≤ ℓ − shift |
//! | [`round()`] | as [`msb`] of shift + 1 bits, plus 1 | as [`msb`], plus to |
//! | [`square`] | 1 | (ℓ−1)(ℓ+2)/2 |
//! | [`mul`] | 1 | ℓ(ℓ+3) |
//! | [`mul_rows`] | 1 | ℓ(ℓ+1), plus 2ℓ per row |
//! | [`ole`] | 1 | bits + Σ (ℓ−j) |
//! | [`tables`] of 2^b entries | 2 | b + (2^b − 1)·ℓ |
//! | [`max_rows`], [`argmax_levels`] | ⌈log₂ cols⌉ times [`msb`] and [`mux`] | |
//! | [`largest_of_few`], groups of k | per level [`msb`], [`all`] of k − 1 bits, [`mux`] | of k(k−1)/2, k − 1, k − 1 |
//! | [`pick()`] one of k | 2⌈log₁₆ k⌉ | (k−1)ℓ and a little more |
//! | [`top_bits()`], k of them | as [`msb`] of many below them, plus ⌈(k−1)/2⌉ | as [`msb`] below, plus 17 for two |
//! | [`to_bits`], [`highest_one`], [`prefix_or`] | 1 + ⌈log₂⌉, … | 6 bits per node of Sklansky's tree |
//! | [`leading_one`] | few elements: as one comparison; others: as [`highest_one`] | few elements: ℓ − 1 comparisons |

mod bits;
mod boolean;
mod chain;
mod compare;
mod equal;
mod maximum;
mod multiply;
mod pairs;
mod pick;
mod planes;
mod round;
mod select;
mod table;
#[cfg(test)]
mod tests;
mod top_bits;
mod truncate;
#[cfg(test)]
mod view_tests;

pub use bits::{
    highest_one, highest_one_cost, leading_one, leading_one_cost, prefix_or, prefix_or_cost, to_bits, to_bits_cost,
};
pub use boolean::{all, all_cost, and, and_cost, or};
pub use compare::{less_than_public, less_than_public_cost, msb, msb_cost};
pub use equal::{equal, equal_cost, is_zero, is_zero_cost, one_hot, one_hot_cost};
pub use maximum::{
    argmax_levels, argmax_levels_cost, largest_of_few, largest_of_few_cost, max_of_rows, max_of_rows_cost, max_rows,
    max_rows_cost,
};
pub use multiply::{mul, mul_cost, mul_rows, mul_rows_cost, ole, ole_cost, square, square_cost};
pub use pick::{pick, pick_cost};
pub use round::{open_rounded, open_rounded_cost, round, round_cost};
pub(crate) use select::client_chooses;
pub use select::{bit_to_arith, bit_to_arith_cost, mux, mux_cost, select, select_cost};
#[cfg(any(test, feature = "testing"))]
pub(crate) use select::{offered, own_product};
pub use table::{listed, tables, tables_cost};
pub use top_bits::{top_bits, top_bits_cost};
pub use truncate::{Sign, truncate, truncate_cost};
