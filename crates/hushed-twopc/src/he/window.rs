//! The tiling of one oblivious linear transformation: partition windows, counts and cost.
//!
//! U = Q·V, with Q (k×m) encrypted by its owner and V (m×n) in the clear at the other party, is cut into blocks of
//! kw×mw and mw×nw with kw·mw·nw ≤ N (BumbleBee, NDSS 2025, §III-A). Block products ("leaves") carry kw·nw wanted
//! coefficients each, at multiples of mw; up to mw leaves are interleaved into one response (§III-C, Figure 6). Both
//! parties derive the same tiling from public shapes alone, so everything here is integer arithmetic. Windows are
//! chosen by time and traffic ([`PRICES`](super::price::PRICES)). Memory plays no part: transformed multipliers, the
//! largest need of a window, are made ahead only as far as the server's budget reaches and otherwise while the product
//! runs, so any window fits; and a budget is not a public shape. In a batch of narrow products (attention heads) an
//! encrypted block with mw ≥ 2m carries the rows of ⌊mw/m⌋ products side by side ("folded"): the multiplier for one of
//! them is zero against the others. That costs only input traffic that would have been zeros.
//!
//! Counts, with k' = ⌈k/kw⌉, m' = ⌈m/mw⌉, n' = ⌈n/nw⌉, L = batch·k'·n' leaves:
//!   ciphertexts in        ⌈batch/fold⌉·k'·m'
//!   multiplier transforms batch·m'·n' (a column block whose leaves fall into two responses is transformed twice)
//!   products              batch·k'·m'·n'
//!   responses             ⌈L/mw⌉
//!   automorphisms         Σ over responses of the tree's inner nodes (full trees: mw − 1)

use super::error::HeError;
use super::wire::{OltCost, Wire};

/// Shape of a product Q·V: Q is k×m, V is m×n, all row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OltShape {
    /// Rows of the left matrix.
    pub k: usize,
    /// Columns of the left matrix, rows of the right one.
    pub m: usize,
    /// Columns of the right matrix.
    pub n: usize,
}

impl OltShape {
    /// The shape of the transposed product Vᵀ·Qᵀ.
    pub fn transposed(self) -> Self {
        Self { k: self.n, m: self.m, n: self.k }
    }
}

/// Which operand travels encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encrypted {
    /// The left operand, by its owner.
    Left,
    /// The right operand: the tiling works on Vᵀ·Qᵀ.
    Right,
}

/// How leaves become responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    /// InterLeave (BumbleBee, Figure 6): up to mw leaves per response.
    InterLeave,
    /// One response per leaf (Cheetah's layout, the baseline "KRDY").
    Krdy,
    /// Every wanted coefficient packed alone, with one automorphism each (Chen, Dai, Kim, Song, ACNS 2021: the baseline
    /// "PackLWEs"), without its final trace: what that would clean is not sent.
    PackLwes,
}

/// Partition windows; kw·mw·nw ≤ N and mw is a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Rows of an encrypted block.
    pub kw: usize,
    /// Inner dimension of a block.
    pub mw: usize,
    /// Columns of a multiplier block.
    pub nw: usize,
}

/// A tiling for `batch` products of one shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OltTiling {
    shape: OltShape,
    encrypted: Encrypted,
    packing: Packing,
    batch: usize,
    degree: usize,
    window: Window,
    pub(super) cost: OltCost,
}

impl OltTiling {
    /// A tiling with these windows, without its cost.
    pub(super) fn bare(
        shape: OltShape,
        batch: usize,
        encrypted: Encrypted,
        packing: Packing,
        window: Window,
        wire: &Wire,
    ) -> Self {
        Self { shape, encrypted, packing, batch, degree: wire.degree, window, cost: OltCost::default() }
    }

    /// The shape that the tiling computes: that of the transposed product if the right operand is encrypted.
    pub fn inner_shape(&self) -> OltShape {
        self.shape
    }

    /// Which operand of the caller's product is encrypted.
    pub fn encrypted(&self) -> Encrypted {
        self.encrypted
    }

    /// How leaves become responses.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Number of independent products.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Ring degree N.
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// The partition windows.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Work and traffic.
    pub fn cost(&self) -> OltCost {
        self.cost
    }

    /// Blocks along k, m and n: (k', m', n').
    pub fn blocks(&self) -> (usize, usize, usize) {
        let Window { kw, mw, nw } = self.window;
        (self.shape.k.div_ceil(kw), self.shape.m.div_ceil(mw), self.shape.n.div_ceil(nw))
    }

    /// Number of products whose encrypted rows share a ciphertext: 1 unless mw ≥ 2m.
    pub fn fold(&self) -> usize {
        (self.window.mw / self.shape.m).clamp(1, self.batch)
    }

    /// Ciphertexts of the encrypted operand.
    pub fn inputs(&self) -> usize {
        let (kb, mb, _) = self.blocks();
        self.batch.div_ceil(self.fold()) * kb * mb
    }

    /// Input `index` as (its first product of the batch, row block α, inner block β).
    pub fn input(&self, index: usize) -> (usize, usize, usize) {
        let (kb, mb, _) = self.blocks();
        (index / (kb * mb) * self.fold(), index / mb % kb, index % mb)
    }

    /// The inputs of product `p`, row block α, for β = 0, 1, …
    pub fn inputs_of(&self, p: usize, alpha: usize) -> std::ops::Range<usize> {
        let (kb, mb, _) = self.blocks();
        let first = (p / self.fold() * kb + alpha) * mb;
        first..first + mb
    }

    /// Where product `p` begins along the inner dimension of its folded block.
    pub fn fold_offset(&self, p: usize) -> usize {
        p % self.fold() * self.shape.m
    }

    /// Number of leaves, batch·k'·n'.
    pub fn leaves(&self) -> usize {
        let (kb, _, nb) = self.blocks();
        self.batch * kb * nb
    }

    /// Leaf `index` as (product of the batch, row block α, column block γ). α runs fastest, so that one transformed
    /// multiplier serves neighbouring leaves.
    pub fn leaf(&self, index: usize) -> (usize, usize, usize) {
        let (kb, _, nb) = self.blocks();
        (index / (kb * nb), index % kb, index / kb % nb)
    }

    /// Number of leaves that one response can hold.
    pub fn leaves_per_response(&self) -> usize {
        match self.packing {
            Packing::InterLeave => self.window.mw,
            Packing::Krdy => 1,
            Packing::PackLwes => (self.degree / (self.window.kw * self.window.nw)).max(1),
        }
    }

    /// Number of responses.
    pub fn responses(&self) -> usize {
        self.leaves().div_ceil(self.leaves_per_response())
    }

    /// The leaves of response `index`.
    pub fn response_leaves(&self, index: usize) -> std::ops::Range<usize> {
        let per = self.leaves_per_response();
        (index * per)..((index + 1) * per).min(self.leaves())
    }

    /// Size of the interleaving tree of response `index`: a power of two, 1 for a leaf sent as is. A response with
    /// fewer leaves than mw has a smaller tree; the coefficients that this leaves uncleaned are not sent.
    pub fn tree_size(&self, index: usize) -> usize {
        match self.packing {
            Packing::InterLeave => self.response_leaves(index).len().next_power_of_two(),
            Packing::Krdy => 1,
            Packing::PackLwes => self.wanted_in_response(index).next_power_of_two(),
        }
    }

    /// Largest tree of the tiling; inputs are scaled by its inverse.
    pub fn largest_tree(&self) -> usize {
        match self.packing {
            Packing::InterLeave | Packing::Krdy => self.tree_size(0),
            Packing::PackLwes => (0..self.responses()).map(|i| self.tree_size(i)).max().unwrap_or(1),
        }
    }

    /// Wanted coefficients of response `index`.
    fn wanted_in_response(&self, index: usize) -> usize {
        self.wanted_in(self.response_leaves(index))
    }

    /// Wanted coefficients of each response.
    pub(super) fn wanted_by_response(&self) -> Vec<u64> {
        (0..self.responses()).map(|index| self.wanted_in_response(index) as u64).collect()
    }

    /// Wanted coefficients of some leaves.
    pub(super) fn wanted_in(&self, leaves: std::ops::Range<usize>) -> usize {
        leaves.map(|leaf| self.wanted_in_leaf(leaf)).sum()
    }

    fn wanted_in_leaf(&self, leaf: usize) -> usize {
        let (_, alpha, gamma) = self.leaf(leaf);
        let Window { kw, nw, .. } = self.window;
        kw.min(self.shape.k - alpha * kw) * nw.min(self.shape.n - gamma * nw)
    }
}

pub(super) fn check(shape: OltShape, batch: usize) -> Result<(), HeError> {
    let OltShape { k, m, n } = shape;
    // Dimensions up to 2^21 keep every product of three of them, and the byte counts, inside u64.
    let limit = 1 << 21;
    let good = [k, m, n, batch].iter().all(|&d| (1..=limit).contains(&d));
    let small = k.checked_mul(n).and_then(|v| v.checked_mul(batch)).is_some_and(|v| v <= 1 << 34);
    if good && small { Ok(()) } else { Err(HeError::Shape { k, m, n, batch }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;

    fn wire() -> Wire {
        Wire {
            degree: 8192,
            input_bytes: 102_400,
            response_bytes: 102_400,
            response_bits: 66,
            product_limbs: 2,
            packing_limbs: 2,
        }
    }

    #[test]
    fn counts_follow_from_the_windows() {
        let shape = OltShape { k: 128, m: 768, n: 768 };
        let window = Window { kw: 128, mw: 64, nw: 1 };
        let tiling = OltTiling::with_window(shape, 1, Encrypted::Left, Packing::InterLeave, window, &wire()).unwrap();
        let cost = tiling.cost();
        assert_eq!((cost.inputs, cost.responses, cost.automorphisms), (12, 12, 12 * 63));
        assert_eq!((cost.products, cost.transforms), (12 * 768, 12 * 768));
        assert_eq!(cost.bytes_out, 12 * (102_400 + 8192 * 66 / 8));
    }

    #[test]
    fn the_target_shapes_stay_within_the_papers_bytes() {
        // The paper's megabyte is 2^20 bytes: Table II has 5.02 and 1.38; the first is held to a rounder figure.
        for (shape, limit) in
            [(OltShape { k: 128, m: 768, n: 768 }, 5_000_000), (OltShape { k: 1, m: 50257, n: 768 }, 1_447_034)]
        {
            let tiling =
                OltTiling::choose(shape, 1, Encrypted::Left, Packing::InterLeave, &wire(), &Link::LAN).unwrap();
            let cost = tiling.cost();
            assert!(cost.bytes_in + cost.bytes_out <= limit, "{tiling:?}");
        }
    }

    #[test]
    fn the_smaller_side_is_the_cheaper_one() {
        let wire = wire();
        let tall = OltShape { k: 2000, m: 64, n: 3 };
        let price = |shape, side| {
            let tiling = OltTiling::choose(shape, 1, side, Packing::InterLeave, &wire, &Link::LAN).unwrap();
            tiling.cost().nanoseconds
        };
        assert!(price(tall, Encrypted::Right) < price(tall, Encrypted::Left));
        let wide = tall.transposed();
        assert!(price(wide, Encrypted::Left) < price(wide, Encrypted::Right));
    }

    #[test]
    fn impossible_shapes_and_windows_are_refused() {
        let wire = wire();
        let shape = OltShape { k: 0, m: 1, n: 1 };
        let chosen = OltTiling::choose(shape, 1, Encrypted::Left, Packing::InterLeave, &wire, &Link::LAN);
        assert!(chosen.is_err());
        let shape = OltShape { k: 4, m: 4, n: 4 };
        for window in [
            Window { kw: 4, mw: 3, nw: 1 },
            Window { kw: 0, mw: 4, nw: 1 },
            Window { kw: 128, mw: 64, nw: 2 },
            Window { kw: usize::MAX, mw: 4, nw: 2 },
        ] {
            assert!(OltTiling::with_window(shape, 1, Encrypted::Left, Packing::InterLeave, window, &wire).is_err());
        }
    }
}
