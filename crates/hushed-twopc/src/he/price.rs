//! What a plan costs: work and traffic, and the prices that steer the choice of windows.

use super::error::HeError;
use super::interleave::automorphisms;
use super::window::{Encrypted, OltPlan, OltShape, Packing, Window, check};
use super::wire::{PlanCost, Wire};

/// Prices in nanoseconds, measured on one core with the IFMA kernels. They only steer the choice of windows; both
/// parties must use the same ones, so they belong to the protocol's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    /// One byte on the wire.
    pub byte_ns: u64,
    /// One automorphism with key switching, per packing prime.
    pub automorphism_ns: u64,
    /// One layer of a multiplier's transform, per product prime: ⌈log2(mw·nw)⌉ layers, the others are copies.
    pub layer_ns: u64,
    /// One ciphertext × plaintext product and accumulation, per product prime.
    pub product_ns: u64,
    /// One leaf's move from the product to the packing modulus, per dropped prime.
    pub rescale_ns: u64,
    /// One correlated OT with the work on it, where a product over OT is weighed against one over RLWE.
    pub cot_ns: u64,
}

/// The prices used by both parties: 200 Mbit/s, one core.
pub const PRICES: Prices = Prices {
    byte_ns: 40,
    automorphism_ns: 85_000,
    layer_ns: 700,
    product_ns: 3_500,
    rescale_ns: 85_000,
    cot_ns: 45,
};

/// Picoseconds of the two ways of making leaves, measured on one core with the IFMA kernels
/// (`cargo bench -p hushed-math --bench blocks`). Each party may have its own: they steer nothing that the other sees.
struct Work {
    /// By values, for each prime: a coefficient of one layer of a multiplier's transform, and of its products with both
    /// parts.
    layer: u128,
    product: u128,
    /// By blocks, for each prime: a point of a multiplier's transform, of its product with one block, of a block of a
    /// ciphertext that is transformed, and of a block of a leaf that is transformed back.
    factor: u128,
    block_product: u128,
    block: u128,
    leaf: u128,
    /// A coefficient of a whole transform.
    transform: u128,
    /// A coefficient of a transform in a modulus switch of values, with the passes over memory between them.
    switch: u128,
}

const WORK: Work = Work {
    layer: 130,
    product: 750,
    factor: 2_600,
    block_product: 120,
    block: 2_600,
    leaf: 2_000,
    transform: 1_600,
    switch: 3_000,
};

/// Least points of a block: the least degree of the transforms' vector kernels.
const LEAST_POINTS: usize = 128;

/// Points of the blocks in which the products of `plan` are made, of `product` primes of which leaves keep `packing`;
/// none where they are made by values of the whole degree: whichever is less work.
pub(super) fn block_points(plan: &OltPlan, product: usize, packing: usize) -> Option<usize> {
    let least = (2 * multiplier_coefficients(plan)).next_power_of_two();
    let lengths = (0..3).map(|more| least.max(LEAST_POINTS) << more);
    let costs = lengths
        .filter(|length| 2 * length <= plan.degree())
        .map(|length| (WORK.by_blocks(plan, length, product, packing), length));
    let (cost, length) = costs.min()?;
    (cost < WORK.by_values(plan, product, packing)).then_some(length)
}

impl Work {
    /// Leaves by values of the whole degree; of both parts, each prime that is dropped takes a transform and one for
    /// each that stays.
    fn by_values(&self, plan: &OltPlan, product: usize, packing: usize) -> u128 {
        let (products, multipliers) = counts(plan);
        let layers = u128::from(multiplier_coefficients(plan).next_power_of_two().ilog2()).max(5);
        let dropped: usize = (packing..product).map(|stay| 2 * (1 + stay)).sum();
        let sums = product as u128 * (multipliers * layers * self.layer + products * self.product);
        let switches = plan.leaves() as u128 * dropped as u128 * self.switch;
        plan.degree() as u128 * (sums + switches)
    }

    /// Leaves by blocks of `length` points, of which the tree takes one part as values.
    fn by_blocks(&self, plan: &OltPlan, length: usize, product: usize, packing: usize) -> u128 {
        let (products, multipliers) = counts(plan);
        let kept = length - multiplier_coefficients(plan);
        // Both parts.
        let points = 2 * (plan.degree().div_ceil(kept) * length) as u128;
        let (inputs, leaves) = (plan.inputs() as u128, plan.leaves() as u128);
        let each = multipliers * length as u128 * self.factor
            + products * points * self.block_product
            + inputs * points * self.block
            + leaves * points * self.leaf;
        product as u128 * each + packing as u128 * leaves * plan.degree() as u128 * self.transform
    }
}

/// Products and multipliers.
fn counts(plan: &OltPlan) -> (u128, u128) {
    let (_, mb, nb) = plan.blocks();
    let multipliers = plan.batch() as u128 * mb as u128 * nb as u128;
    (plan.leaves() as u128 * mb as u128, multipliers)
}

fn multiplier_coefficients(plan: &OltPlan) -> usize {
    plan.window().mw * plan.window().nw
}

impl OltPlan {
    /// The cheapest windows for `batch` products of `shape` with `encrypted` travelling, at [`PRICES`].
    ///
    /// # Errors
    /// [`HeError::Shape`] if a dimension is zero or the product's counts overflow.
    pub fn choose(
        shape: OltShape,
        batch: usize,
        encrypted: Encrypted,
        packing: Packing,
        wire: &Wire,
    ) -> Result<Self, HeError> {
        check(shape, batch)?;
        let inner = match encrypted {
            Encrypted::Left => shape,
            Encrypted::Right => shape.transposed(),
        };
        let mut best: Option<(u64, Window)> = None;
        let mut mw = 1;
        while mw <= wire.degree {
            let mut previous_kw = 0;
            for blocks in 1..=inner.k {
                let kw = inner.k.div_ceil(blocks);
                if kw == previous_kw || kw * mw > wire.degree {
                    continue;
                }
                previous_kw = kw;
                // The widest nw gives the fewest leaves and transforms; then spread the columns evenly.
                let widest = (wire.degree / (kw * mw)).min(inner.n);
                let nw = inner.n.div_ceil(inner.n.div_ceil(widest));
                let window = Window { kw, mw, nw };
                let plan = Self::bare(inner, batch, encrypted, packing, window, wire);
                let nanoseconds = price(&plan, wire).nanoseconds;
                if best.is_none_or(|(least, _)| nanoseconds < least) {
                    best = Some((nanoseconds, window));
                }
            }
            if mw >= inner.m * batch {
                break;
            }
            mw *= 2;
        }
        let (_, window) = best.ok_or(HeError::Shape {
            k: shape.k,
            m: shape.m,
            n: shape.n,
            batch,
        })?;
        Self::with_window(shape, batch, encrypted, packing, window, wire)
    }

    /// The cheaper of both sides travelling encrypted.
    ///
    /// # Errors
    /// As [`OltPlan::choose`].
    pub fn choose_side(shape: OltShape, batch: usize, wire: &Wire) -> Result<Self, HeError> {
        let left = Self::choose(shape, batch, Encrypted::Left, Packing::InterLeave, wire)?;
        let right = Self::choose(shape, batch, Encrypted::Right, Packing::InterLeave, wire)?;
        Ok(if right.cost.nanoseconds < left.cost.nanoseconds {
            right
        } else {
            left
        })
    }

    /// A plan with given windows (benchmarks and tests fix them).
    ///
    /// # Errors
    /// [`HeError::Window`] if mw is no power of two, a window is zero or kw·mw·nw > N; [`HeError::Shape`] as in
    /// [`OltPlan::choose`].
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
            return Err(HeError::Window {
                kw,
                mw,
                nw,
                degree: wire.degree,
            });
        }
        let inner = match encrypted {
            Encrypted::Left => shape,
            Encrypted::Right => shape.transposed(),
        };
        let mut plan = Self::bare(inner, batch, encrypted, packing, window, wire);
        plan.cost = price(&plan, wire);
        plan.cost.bytes_out = bytes_out(&plan, wire);
        Ok(plan)
    }
}

/// Everything in closed form; `bytes_out` without the rounding of each response to whole bytes.
pub(super) fn price(plan: &OltPlan, wire: &Wire) -> PlanCost {
    let (OltShape { k, n, .. }, Window { mw, nw, .. }) = (plan.inner_shape(), plan.window());
    let (_, mb, nb) = plan.blocks();
    let leaves = plan.leaves() as u64;
    let inputs = plan.inputs() as u64;
    let responses = plan.responses() as u64;
    let full = plan.leaves_per_response();
    let rest = plan.leaves() % full;
    // All responses but the last are alike.
    let full_responses = (plan.leaves() / full) as u64;
    let wanted = (plan.batch() * k * n) as u64;
    let switched = match plan.packing() {
        Packing::InterLeave => {
            let of = |leaves| automorphisms(plan.degree(), leaves);
            full_responses * of(full) + of(rest)
        }
        Packing::Krdy => 0,
        // A tree over single coefficients.
        Packing::PackLwes => wanted,
    };
    let products = leaves * mb as u64;
    let transforms = (plan.batch() * mb * nb) as u64;
    let bytes_in = inputs * wire.input_bytes;
    let bytes_out = responses * wire.response_bytes + (wanted * wire.response_bits).div_ceil(8);
    let layers = u64::from((mw * nw).next_power_of_two().ilog2()).max(5);
    let dropped = wire.product_limbs - wire.packing_limbs;
    let nanoseconds = (bytes_in + bytes_out)
        .saturating_mul(PRICES.byte_ns)
        .saturating_add(switched.saturating_mul(PRICES.automorphism_ns * wire.packing_limbs))
        .saturating_add(transforms.saturating_mul(layers * PRICES.layer_ns * wire.product_limbs))
        .saturating_add(products.saturating_mul(PRICES.product_ns * wire.product_limbs))
        .saturating_add(leaves.saturating_mul(PRICES.rescale_ns * dropped));
    PlanCost {
        inputs,
        transforms,
        products,
        automorphisms: switched,
        responses,
        bytes_in,
        bytes_out,
        nanoseconds,
    }
}

/// Bytes of all responses: a header and the a part each, and b at the wanted coefficients, each response padded to
/// whole bytes.
pub(super) fn bytes_out(plan: &OltPlan, wire: &Wire) -> u64 {
    (0..plan.responses())
        .map(|index| {
            let wanted = plan.wanted_in_response(index) as u64;
            wire.response_bytes + (wanted * wire.response_bits).div_ceil(8)
        })
        .sum()
}
