//! The cost of a tiling in work and traffic, and the prices by which windows are chosen.

use super::error::HeError;
use super::interleave::automorphisms;
use super::window::{Encrypted, OltShape, OltTiling, Packing, Window, check};
use super::wire::{OltCost, Wire};
use crate::link::{COT_NS, LAN_BYTE_NS, Link};

/// Prices of traffic and of one core's work with the IFMA kernels. They only steer the choice of windows, but both
/// parties must use the same ones, so they belong to the protocol's version. What a byte takes is the
/// [`Link`](crate::Link)'s where windows are chosen. Where kernels are slower, all of them are:
/// by a factor of 1.2 to 2.9 on AVX2 (`docs/benchmarks.md`, "olt").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    /// Nanoseconds per byte on the wire.
    pub byte_ns: u64,
    /// Per correlated OT with the work on it, to weigh a product over OT against one over RLWE.
    pub cot_ns: u64,
    /// Per input and product prime: encrypting, writing, reading and expanding it.
    pub input_ns: u64,
    /// Per response and packing prime: answering and opening it.
    pub response_ns: u64,
    /// Per automorphism and prime of its products: the packing primes and two special ones.
    pub automorphism_ns: u64,
    /// Picoseconds per coefficient.
    pub work: Work,
}

/// Picoseconds of the two ways to make leaves (`cargo bench -p hushed-math --bench blocks`), per prime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// By values, per coefficient: one layer of a multiplier's transform, its products with both parts, and the inverse
    /// transform of both parts of a leaf.
    layer: u64,
    product: u64,
    back: u64,
    /// By blocks, per point: a multiplier's transform, its product with one block, the transform of a ciphertext's
    /// block, and the inverse transform of a leaf's block.
    factor: u64,
    block_product: u64,
    block: u64,
    leaf: u64,
    /// Per coefficient of a leaf, for each pair of a dropped prime and a remaining one.
    switch: u64,
}

/// The prices used by both parties: 200 Mbit/s, one core.
pub const PRICES: Prices = Prices {
    byte_ns: LAN_BYTE_NS,
    cot_ns: COT_NS,
    input_ns: 100_000,
    response_ns: 450_000,
    automorphism_ns: 26_000,
    work: Work {
        layer: 130,
        product: 750,
        back: 2_200,
        factor: 2_600,
        block_product: 120,
        block: 2_600,
        leaf: 2_000,
        switch: 1_000,
    },
};

/// The kernels' present times. They decide how each party makes leaves, which the other does not see; [`PRICES`], which
/// both must share, stay as agreed.
const KERNELS: Work = Work {
    layer: 190,
    product: 770,
    back: 2_200,
    factor: 2_200,
    block_product: 85,
    block: 2_800,
    leaf: 1_500,
    ..PRICES.work
};

/// Of windows whose times differ by at most one part in this many, the one with the fewest bytes is taken.
const CLOSE: u64 = 20;

/// Special primes of the interleaving keys.
const SPECIAL_PRIMES: u64 = 2;

/// The fewest points of a block: the least degree of the transforms' vector kernels.
const LEAST_POINTS: usize = 128;

/// Points of the blocks by which to make the products of `tiling` over `product` primes; `None` if making them by
/// values of the whole degree is less work.
pub(super) fn block_points(tiling: &OltTiling, product: usize) -> Option<usize> {
    leaves(&KERNELS, tiling, product as u64).1
}

/// Nanoseconds for all leaves over the product primes, and the points of blocks.
fn leaves(work: &Work, tiling: &OltTiling, product: u64) -> (u64, Option<usize>) {
    let least = (2 * multiplier_coefficients(tiling)).next_power_of_two();
    let lengths = (0..3).map(|more| least.max(LEAST_POINTS) << more);
    let blocks = lengths
        .filter(|length| 2 * length <= tiling.degree())
        .map(|length| (work.by_blocks(tiling, length), Some(length)));
    let all = blocks.chain([(work.by_values(tiling), None)]);
    let (picoseconds, points) = all.min_by_key(|(cost, _)| *cost).unwrap_or((0, None));
    let nanoseconds = u64::try_from(picoseconds / 1000).unwrap_or(u64::MAX);
    (nanoseconds.saturating_mul(product), points)
}

impl Work {
    /// Picoseconds for leaves by values of the whole degree, per prime.
    fn by_values(&self, tiling: &OltTiling) -> u128 {
        let (products, multipliers) = counts(tiling);
        let layers = u128::from(multiplier_coefficients(tiling).next_power_of_two().ilog2()).max(5);
        let each = multipliers * layers * u128::from(self.layer)
            + products * u128::from(self.product)
            + tiling.leaves() as u128 * u128::from(self.back);
        tiling.degree() as u128 * each
    }

    /// Picoseconds for leaves by blocks of `length` points, per prime.
    fn by_blocks(&self, tiling: &OltTiling, length: usize) -> u128 {
        let (products, multipliers) = counts(tiling);
        let kept = length - multiplier_coefficients(tiling);
        // Both parts.
        let points = 2 * (tiling.degree().div_ceil(kept) * length) as u128;
        let (inputs, leaves) = (tiling.inputs() as u128, tiling.leaves() as u128);
        multipliers * length as u128 * u128::from(self.factor)
            + products * points * u128::from(self.block_product)
            + inputs * points * u128::from(self.block)
            + leaves * points * u128::from(self.leaf)
    }
}

/// Number of products and of multipliers.
fn counts(tiling: &OltTiling) -> (u128, u128) {
    let (_, mb, nb) = tiling.blocks();
    let multipliers = tiling.batch() as u128 * mb as u128 * nb as u128;
    (tiling.leaves() as u128 * mb as u128, multipliers)
}

fn multiplier_coefficients(tiling: &OltTiling) -> usize {
    tiling.window().mw * tiling.window().nw
}

impl OltTiling {
    /// The cheapest windows for `batch` products of `shape` with `encrypted` travelling over `link`, at [`PRICES`]; of
    /// those that take nearly the same time, the windows that send the least.
    ///
    /// # Errors
    /// [`HeError::Shape`] if a dimension is zero or the product's counts overflow.
    pub fn choose(
        shape: OltShape,
        batch: usize,
        encrypted: Encrypted,
        packing: Packing,
        wire: &Wire,
        link: &Link,
    ) -> Result<Self, HeError> {
        check(shape, batch)?;
        let inner = match encrypted {
            Encrypted::Left => shape,
            Encrypted::Right => shape.transposed(),
        };
        let mut all = Vec::new();
        let mut mw = 1;
        while mw <= wire.degree {
            let mut previous_kw = 0;
            for blocks in 1..=inner.k {
                let kw = inner.k.div_ceil(blocks);
                if kw == previous_kw || kw * mw > wire.degree {
                    continue;
                }
                previous_kw = kw;
                // The widest nw gives the fewest leaves; then spread the columns evenly.
                let widest = (wire.degree / (kw * mw)).min(inner.n);
                let nw = inner.n.div_ceil(inner.n.div_ceil(widest));
                let window = Window { kw, mw, nw };
                let tiling = Self::bare(inner, batch, encrypted, packing, window, wire);
                all.push((price(&tiling, wire), window));
            }
            if mw >= inner.m * batch {
                break;
            }
            mw *= 2;
        }
        let time = |cost: &OltCost| cost.nanoseconds_over(link);
        let least = all.iter().map(|(cost, _)| time(cost)).min().unwrap_or(0);
        // Within the accuracy of the prices, bytes decide: they are paid for on every network.
        let quick = all.into_iter().filter(|(cost, _)| time(cost) <= least.saturating_add(least / CLOSE));
        let best = quick.min_by_key(|(cost, _)| (cost.bytes_in + cost.bytes_out, time(cost)));
        let (_, window) = best.ok_or(HeError::Shape { k: shape.k, m: shape.m, n: shape.n, batch })?;
        Self::with_window(shape, batch, encrypted, packing, window, wire)
    }

    /// A tiling with given windows (benchmarks and tests fix them).
    ///
    /// # Errors
    /// [`HeError::Window`] if mw is not a power of two, a window is zero or kw·mw·nw > N; [`HeError::Shape`] as in
    /// [`OltTiling::choose`].
    pub fn with_window(
        shape: OltShape,
        batch: usize,
        encrypted: Encrypted,
        packing: Packing,
        window: Window,
        wire: &Wire,
    ) -> Result<Self, HeError> {
        check(shape, batch)?;
        let Window { kw, mw, nw } = window;
        let volume = kw.checked_mul(mw).and_then(|v| v.checked_mul(nw));
        if kw == 0 || nw == 0 || !mw.is_power_of_two() || volume.is_none_or(|v| v > wire.degree) {
            return Err(HeError::Window { kw, mw, nw, degree: wire.degree });
        }
        let inner = match encrypted {
            Encrypted::Left => shape,
            Encrypted::Right => shape.transposed(),
        };
        let mut tiling = Self::bare(inner, batch, encrypted, packing, window, wire);
        tiling.cost = price(&tiling, wire);
        tiling.cost.bytes_out = bytes_out(&tiling.wanted_by_response(), wire);
        Ok(tiling)
    }
}

/// The cost in closed form; `bytes_out` does not round each response up to whole bytes.
pub(super) fn price(tiling: &OltTiling, wire: &Wire) -> OltCost {
    let OltShape { k, n, .. } = tiling.inner_shape();
    let (_, mb, nb) = tiling.blocks();
    let leaves = tiling.leaves() as u64;
    let inputs = tiling.inputs() as u64;
    let responses = tiling.responses() as u64;
    let full = tiling.leaves_per_response();
    let rest = tiling.leaves() % full;
    // All responses but the last are alike.
    let full_responses = (tiling.leaves() / full) as u64;
    let wanted = (tiling.batch() * k * n) as u64;
    let switched = match tiling.packing() {
        Packing::InterLeave => {
            let of = |leaves| automorphisms(tiling.degree(), leaves);
            full_responses * of(full) + of(rest)
        }
        Packing::Krdy => 0,
        // A tree over single coefficients.
        Packing::PackLwes => wanted,
    };
    let products = leaves * mb as u64;
    let transforms = (tiling.batch() * mb * nb) as u64;
    let bytes_in = inputs * wire.input_bytes;
    let bytes_out = responses * wire.response_bytes + (wanted * wire.response_bits).div_ceil(8);
    let (product, packing) = (wire.product_limbs, wire.packing_limbs);
    let pairs: u64 = (packing..product).sum();
    let switches = (leaves * tiling.degree() as u64 * PRICES.work.switch / 1000).saturating_mul(pairs);
    let answering = Answering { responses, automorphisms: switched, bytes_out, packing_limbs: packing };
    let nanoseconds = sending((inputs, bytes_in), product)
        .saturating_add(answering.nanoseconds())
        .saturating_add(self::leaves(&PRICES.work, tiling, product).0)
        .saturating_add(switches);
    OltCost {
        inputs,
        transforms,
        products,
        automorphisms: switched,
        responses,
        opened: wanted,
        bytes_in,
        bytes_out,
        nanoseconds,
    }
}

/// Nanoseconds for ciphertexts over `product` primes, from encrypting to expanding.
pub(super) fn sending((inputs, bytes_in): (u64, u64), product: u64) -> u64 {
    bytes_in.saturating_mul(PRICES.byte_ns).saturating_add(inputs.saturating_mul(PRICES.input_ns * product))
}

/// What responses cost, once their leaves are made.
pub(super) struct Answering {
    pub(super) responses: u64,
    pub(super) automorphisms: u64,
    pub(super) bytes_out: u64,
    pub(super) packing_limbs: u64,
}

impl Answering {
    /// The part of a tiling's cost.
    pub(super) fn of(cost: &OltCost, packing_limbs: u64) -> Self {
        let OltCost { responses, automorphisms, bytes_out, .. } = *cost;
        Self { responses, automorphisms, bytes_out, packing_limbs }
    }

    /// At [`PRICES`].
    pub(super) fn nanoseconds(&self) -> u64 {
        let Self { responses, automorphisms, bytes_out, packing_limbs } = *self;
        let automorphism = PRICES.automorphism_ns * (packing_limbs + SPECIAL_PRIMES);
        bytes_out
            .saturating_mul(PRICES.byte_ns)
            .saturating_add(responses.saturating_mul(PRICES.response_ns * packing_limbs))
            .saturating_add(automorphisms.saturating_mul(automorphism))
    }
}

/// Bytes of responses with so many wanted coefficients: each has a header, the a part, and b at these coefficients,
/// padded to whole bytes.
pub(super) fn bytes_out(wanted: &[u64], wire: &Wire) -> u64 {
    wanted.iter().map(|wanted| wire.response_bytes + (wanted * wire.response_bits).div_ceil(8)).sum()
}
