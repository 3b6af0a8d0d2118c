//! The fixed-point formats of a two-party run, in one place, with the bounds that they rest on.
//!
//! BumbleBee (NDSS 2025) keeps 64-bit shares with 18 fraction bits throughout. Here the main ring has 48 bits and
//! activations 16 fraction bits: a response coefficient of a linear layer, over two 50-bit primes, is cut to 58 bits of
//! a and 48 of b instead of 74 and 64 (one prime alone carries rings of at most 37 bits), and the result needs no
//! truncation of its own, because whatever reads it wants fewer bits and going down is free. What overflows: |x| ≥ 2^13
//! in a residual or linear result; the largest that MiniLM shows is 223.

use hushed_twopc::func::Format;
use hushed_twopc::share::Ring;

/// Activations between layers: what a linear layer reads.
pub const ACTIVATION: Format = Format::new(48, 16);
/// What an activation gives, with its scale in it, where it is multiplied with another layer's result: a product of
/// less than 2^11 in magnitude, in units of the scale.
pub const GATE: Format = Format::new(38, 14);
/// The other factor.
pub const GATED: Format = Format::new(38, 11);
/// The same where what gates is a square: a product of less than 2^15.
pub const SQUARE_GATE: Format = Format::new(40, 12);
/// The other factor.
pub const SQUARE_GATED: Format = Format::new(40, 11);
/// What a norm inside a block reads: its rows may be small, those of the first tokens under a sigmoid above all.
pub const INNER: Format = Format::new(48, 23);
/// Fraction bits of weights as integers.
pub const WEIGHT_FRAC: u32 = 16;
/// Weights as integers are at most 2^22: |w| ≤ 64, gains and activation scales included.
pub const WEIGHT_BITS: u32 = 22;
/// Results of linear layers, and residual sums.
pub const LINEAR: Format = Format::new(48, ACTIVATION.frac + WEIGHT_FRAC);
/// Token vectors and positions, |x| < 2^5. The products with one-hot rows have no rounding of their own, but the error
/// of a response: one unit of 2^-24 at most, in about a quarter of the entries.
pub const EMBEDDING: Format = Format::new(48, 24);
/// Token vectors as integers are at most 2^28: |x| ≤ 16.
pub const TABLE_BITS: u32 = 28;
/// A position vector is at most this: with a token vector it stays below 2^5.
pub const POSITION_LIMIT: f64 = 16.0;
/// A layer's bias, with the offset of the norm before it, is at most this: it leaves the products as much of the 2^13
/// that a linear result may reach.
pub const BIAS_LIMIT: f64 = 4096.0;
/// Queries and keys in the product that gives scores: 24 fraction bits and |score·log₂e| < 2^9.
pub const QUERY: Format = Format::new(35, 12);
/// Queries and keys before rotary positions turn them, in a ring that holds their products with cosines and sines and
/// still [`QUERY`]'s when these lose their last bits, which is then local.
pub const TURNED: Format = Format::new(QUERY.ring.bits() + TURN_FRAC + 4, QUERY.frac + 4);
/// Fraction bits of cosines and sines: 2^−17 of a number is lost.
pub const TURN_FRAC: u32 = 16;
/// The client's addend to its share of the scores of padding, in units of log 2. As long as |score·log₂e| ≤ 248 for
/// every token, and any token may serve as padding, a masked score is at least 16 below its row's maximum, where the
/// exponential is cut off, and a difference of two stays below 2^10. MiniLM's scores reach 89, and 160 in magnitude in
/// rows of `[PAD]`.
pub const MASKED: f64 = -512.0;
/// Exponentials, at most 1.092, in the product with V.
pub const WEIGHED: Format = Format::new(40, 13);
/// V in that product: |v| < 2^4·2^f holds sums over 256 keys in 38 bits.
pub const VALUE: Format = Format::new(40, 12);
/// The product before its division by the row's sum, cut to what the division needs.
pub const ATTENDED: Format = Format::new(33, 10);
/// Exponentials times the inverse of their row's sum, before they are cut to [`PORTION`]: 29 fraction bits, at most
/// 1.05, a sign and a spare bit.
pub const QUOTIENT: Ring = Ring::new(32);
/// Exponentials divided by their row's sum, at most 1.05, in the product with V, |v| < 2^4·2^f: for texts shorter than
/// a head is wide.
pub const PORTION: Format = Format::new(33, 14);
/// 1 / the row's sum.
pub const INVERSE: Format = Format::new(33, 16);
/// Bits of a row sum of exponentials: 256 keys of at most 1.092, with 13 fraction bits.
pub const SUM_BITS: u32 = 22;
/// The formats of a sum over keys that exponentials weigh.
#[derive(Clone, Copy)]
pub struct Sums {
    /// As [`WEIGHED`].
    pub weighed: Format,
    /// As [`VALUE`].
    pub value: Format,
    /// Weights that a sigmoid gives, each at most 1, in the product with V, |v| < 2^4: nothing divides it, so that it
    /// grows with the number of keys. V is in the same ring there.
    pub standing: Format,
    /// As [`ATTENDED`].
    pub attended: Format,
    /// As [`INVERSE`].
    pub inverse: Format,
    /// As [`SUM_BITS`].
    pub bits: u32,
}
/// [`Sums::standing`] of the keys of one text.
const STANDING: Format = Format::new(41, 15);
/// Sums of 256 keys' values, below 2^4 each, a sign and a spare bit.
const _: () =
    assert!(STANDING.ring.bits() >= MAX_TOKENS.ilog2() + 4 + STANDING.frac + VALUE.frac + 2);
/// Those of the keys of one text.
pub const SUMS: Sums = Sums {
    weighed: WEIGHED,
    value: VALUE,
    standing: STANDING,
    attended: ATTENDED,
    inverse: INVERSE,
    bits: SUM_BITS,
};
/// Bits that sums over up to [`MAX_KEYS`] keys have more, and their inverse more after the point.
const MORE: u32 = (MAX_KEYS / MAX_TOKENS).ilog2();
/// Those of the keys of a public prefix and of the text behind it.
pub const PREFIXED: Sums = Sums {
    weighed: Format::new(WEIGHED.ring.bits() + MORE, WEIGHED.frac),
    value: Format::new(VALUE.ring.bits() + MORE, VALUE.frac),
    standing: Format::new(STANDING.ring.bits() + MORE, STANDING.frac),
    attended: Format::new(ATTENDED.ring.bits() + MORE, ATTENDED.frac),
    inverse: Format::new(INVERSE.ring.bits() + MORE, INVERSE.frac + MORE),
    bits: SUM_BITS + MORE,
};
/// Keys of a public prefix as integers are at most 2^22: |k| ≤ 1024.
pub const KEY_BITS: u32 = 22;
/// Its values as integers are at most 2^16: |v| ≤ 16, as everywhere.
pub const VALUE_BITS: u32 = VALUE.frac + 4;
/// The operand of a column's maximum: |x| < 2^12, and padding 2^13 below.
pub const MAXIMUM: Format = Format::new(28, 12);
const _: () = assert!(MAXIMUM.ring.bits() + LINEAR.frac - MAXIMUM.frac == LINEAR.ring.bits());
/// The answer where the folder asks for vectors of length one, rounded to this exactly before it is revealed. Finer
/// bits would show the grid of the fixed-point numbers behind it, and so the model.
pub const ANSWER: Format = Format::new(16, 13);
/// The answer otherwise: |x| < 2^15.
pub const RAW_ANSWER: Format = Format::new(28, 12);

/// Logits where the largest is looked for: |x| < 2^10, Gumbel noise and a client's biases included, so that differences
/// fit the ring.
pub const LOGIT: Format = Format::new(24, 12);

/// A query of length one in its product with the documents', and these: the product has 32 fraction bits and is at most
/// 1.01, so that two bits are spare.
pub const UNIT: Format = Format::new(36, 16);
/// Their product where the nearest is looked for: within ±1.01, less 2^3 where a document has been found, so that
/// differences stay below that.
pub const COSINE: Format = Format::new(20, 16);
/// A cosine that is opened: rounded to this exactly, as an answer is.
pub const SCORE: Format = Format::new(16, 12);
const _: () = assert!(SCORE.ring.bits() + COSINE.frac - SCORE.frac == COSINE.ring.bits());
/// A number of a record: three bytes.
pub const RECORD: Ring = Ring::new(24);
/// What a response may be off by, with its carry: it is rounded away before a record is opened.
pub const RECORD_GUARD: u32 = 2;
/// A number of a record in its lookup.
pub const RECORD_BITS: u32 = RECORD.bits() + RECORD_GUARD;

/// The longest text: [`SUM_BITS`] and [`VALUE`] rest on it.
pub const MAX_TOKENS: usize = 256;
/// Most keys of a row, those of a public prefix included: [`PREFIXED`] rests on it.
pub const MAX_KEYS: usize = 1024;

/// The main ring.
pub const MAIN: Ring = ACTIVATION.ring;
