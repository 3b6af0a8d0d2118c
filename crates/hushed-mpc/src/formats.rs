//! The fixed-point formats of a two-party run and the bounds they rest on, in one place.
//!
//! BumbleBee (NDSS 2025) keeps 64-bit shares with 18 fraction bits throughout. Here the main ring has 48 bits and
//! activations have 16 fraction bits. A response coefficient of a linear layer, over two 50-bit primes, is then cut to
//! 58 bits of a and 48 of b instead of 74 and 64 (one prime alone carries rings of at most 37 bits). The result needs
//! no truncation of its own, because whatever reads it wants fewer bits and narrowing is free. A residual or linear
//! result overflows at |x| ≥ 2^13; MiniLM's largest is 223.

use hushed_twopc::func::Format;
use hushed_twopc::share::Ring;

/// Activations between layers, as read by linear layers.
pub const ACTIVATION: Format = Format::new(48, 16);
/// An activation's result, including its scale, where it is multiplied by another layer's result: the product is below
/// 2^11 in magnitude, in units of the scale.
pub const GATE: Format = Format::new(38, 14);
/// The other factor.
pub const GATED: Format = Format::new(38, 11);
/// The same where the gate is a square: the product is below 2^15.
pub const SQUARE_GATE: Format = Format::new(40, 12);
/// The other factor.
pub const SQUARE_GATED: Format = Format::new(40, 11);
/// The input of a norm inside a block: its rows may be small, above all those of the first tokens under a sigmoid.
pub const INNER: Format = Format::new(48, 23);
/// Fraction bits of integer weights.
pub const WEIGHT_FRAC: u32 = 16;
/// Integer weights are at most 2^22: |w| ≤ 64, including gains and activation scales.
pub const WEIGHT_BITS: u32 = 22;
/// Results of linear layers, and residual sums.
pub const LINEAR: Format = Format::new(48, ACTIVATION.frac + WEIGHT_FRAC);
/// Token vectors and positions, |x| < 2^5. The products with one-hot rows add no rounding of their own, only the error
/// of a response: at most one unit of 2^-24, in about a quarter of the entries.
pub const EMBEDDING: Format = Format::new(48, 24);
/// Integer token vectors are at most 2^28: |x| ≤ 16.
pub const TABLE_BITS: u32 = 28;
/// The bound on a position vector: with a token vector it stays below 2^5.
pub const POSITION_LIMIT: f64 = 16.0;
/// The bound on a layer's bias, including the offset of the norm before it: it leaves the products as much again of the
/// 2^13 that a linear result may reach.
pub const BIAS_LIMIT: f64 = 4096.0;
/// Queries and keys in the product that gives scores: 24 fraction bits and |score·log₂e| < 2^9.
pub const QUERY: Format = Format::new(35, 12);
/// Queries and keys before rotary embedding, in a ring that holds their products with cosines and sines and, once these
/// lose their last bits (a local step), still holds [`QUERY`]'s.
pub const TURNED: Format = Format::new(QUERY.ring.bits() + TURN_FRAC + 4, QUERY.frac + 4);
/// Fraction bits of cosines and sines: an error of 2^−17 relative to the number.
pub const TURN_FRAC: u32 = 16;
/// What the client adds to its share of the scores of padding, in units of log 2. As long as |score·log₂e| ≤ 248 for
/// every token, and any token may serve as padding, a masked score is at least 16 below its row's maximum, where the
/// exponential is cut off, and the difference of two scores stays below 2^10. MiniLM's scores reach 89, and 160 in
/// magnitude in rows of `[PAD]`.
pub const MASKED: f64 = -512.0;
/// Exponentials, at most 1.092, in the product with V.
pub const WEIGHED: Format = Format::new(40, 13);
/// V in that product: with |v| < 2^4·2^f, sums over [`SHORT`] keys fit in 38 bits.
pub const VALUE: Format = Format::new(40, 12);
/// The product before its division by the row sum, cut to what the division needs.
pub const ATTENDED: Format = Format::new(33, 10);
/// Exponentials times the inverse of their row sum, before they are cut to [`PORTION`]: 29 fraction bits, at most 1.05,
/// a sign and a spare bit.
pub const QUOTIENT: Ring = Ring::new(32);
/// Exponentials divided by their row sum, at most 1.05, in the product with V, |v| < 2^4·2^f: for texts shorter than a
/// head is wide.
pub const PORTION: Format = Format::new(33, 14);
/// 1 / the row sum.
pub const INVERSE: Format = Format::new(33, 16);
/// Bits of a row sum of exponentials: [`SHORT`] keys of at most 1.092, with 13 fraction bits.
pub const SUM_BITS: u32 = 22;
/// The formats of a sum over keys weighted by exponentials.
#[derive(Clone, Copy)]
pub struct Sums {
    /// As [`WEIGHED`].
    pub weighed: Format,
    /// As [`VALUE`].
    pub value: Format,
    /// A sigmoid's weights, each at most 1, in the product with V, |v| < 2^4. Nothing divides the product, so it grows
    /// with the number of keys. V is in the same ring there.
    pub standing: Format,
    /// As [`ATTENDED`].
    pub attended: Format,
    /// As [`INVERSE`].
    pub inverse: Format,
    /// As [`SUM_BITS`].
    pub bits: u32,
}
/// [`Sums::standing`] for the keys of a short text.
const STANDING: Format = Format::new(41, 15);
/// Sums of so many keys' values, each below 2^4, a sign and a spare bit.
const _: () = assert!(STANDING.ring.bits() >= SHORT.ilog2() + 4 + STANDING.frac + VALUE.frac + 2);
/// The formats for up to [`SHORT`] keys of one text.
pub const SUMS: Sums =
    Sums { weighed: WEIGHED, value: VALUE, standing: STANDING, attended: ATTENDED, inverse: INVERSE, bits: SUM_BITS };
/// Extra bits of sums over up to [`MAX_KEYS`] keys, and extra fraction bits of their inverse.
const MORE: u32 = (MAX_KEYS / SHORT).ilog2();
/// The formats for a longer text, and for the keys of a public prefix and of the text after it.
pub const LONG: Sums = Sums {
    weighed: Format::new(WEIGHED.ring.bits() + MORE, WEIGHED.frac),
    value: Format::new(VALUE.ring.bits() + MORE, VALUE.frac),
    standing: Format::new(STANDING.ring.bits() + MORE, STANDING.frac),
    attended: Format::new(ATTENDED.ring.bits() + MORE, ATTENDED.frac),
    inverse: Format::new(INVERSE.ring.bits() + MORE, INVERSE.frac + MORE),
    bits: SUM_BITS + MORE,
};
/// Integer keys of a public prefix are at most 2^22: |k| ≤ 1024.
pub const KEY_BITS: u32 = 22;
/// Its integer values are at most 2^16: |v| ≤ 16, as everywhere.
pub const VALUE_BITS: u32 = VALUE.frac + 4;
/// The operand of a column maximum: |x| < 2^12, and padding lies 2^13 below.
pub const MAXIMUM: Format = Format::new(28, 12);
const _: () = assert!(MAXIMUM.ring.bits() + LINEAR.frac - MAXIMUM.frac == LINEAR.ring.bits());
/// The answer where the model folder asks for vectors of length one, rounded exactly to this before it is revealed.
/// Finer bits would show the grid of the underlying fixed-point numbers, and so the model.
pub const ANSWER: Format = Format::new(16, 13);
/// Any other answer: |x| < 2^15.
pub const RAW_ANSWER: Format = Format::new(28, 12);

/// Logits during the search for the largest: |x| < 2^10, including Gumbel noise and a client's biases, so that
/// differences fit the ring.
pub const LOGIT: Format = Format::new(24, 12);

/// A query of length one, and the documents, in their product: it has 32 fraction bits and is at most 1.01, which
/// leaves two bits spare.
pub const UNIT: Format = Format::new(36, 16);
/// The product during the search for the nearest: within ±1.01, lowered by 2^3 for a document already found, so that
/// differences stay below 2^3.
pub const COSINE: Format = Format::new(20, 16);
/// An opened cosine, rounded exactly like an answer.
pub const SCORE: Format = Format::new(16, 12);
const _: () = assert!(SCORE.ring.bits() + COSINE.frac - SCORE.frac == COSINE.ring.bits());
/// One number of a record: three bytes.
pub const RECORD: Ring = Ring::new(24);
/// Bits for a response's error, with its carry: they are rounded away before a record is opened.
pub const RECORD_GUARD: u32 = 2;
/// Bits of a record's number during its lookup.
pub const RECORD_BITS: u32 = RECORD.bits() + RECORD_GUARD;

/// The most keys of a row in the formats of [`SUMS`]. Keys and values of a text that is continued stay in the formats
/// of its first pass: whether it may become longer is agreed before that ([`is_long`]).
pub const SHORT: usize = 256;
/// The longest text that is not continued.
pub const MAX_TOKENS: usize = 512;
/// The most keys of a row, including those of a public prefix: [`LONG`] relies on it.
pub const MAX_KEYS: usize = 1024;

/// The longest text of a model; of one that is continued with its answer, and together with public rows before it.
#[must_use]
pub const fn longest(generates: bool) -> usize {
    if generates { MAX_KEYS } else { MAX_TOKENS }
}

/// The longest text that a server takes unless its operator says otherwise, after a public prefix or without one.
#[must_use]
pub const fn usual(generates: bool) -> usize {
    if generates { SHORT } else { MAX_TOKENS }
}

/// Whether a text of at most this many rows of its own, answer included, needs the formats of [`LONG`].
#[must_use]
pub const fn is_long(rows: usize) -> bool {
    rows > SHORT
}

/// The main ring.
pub const MAIN: Ring = ACTIVATION.ring;
