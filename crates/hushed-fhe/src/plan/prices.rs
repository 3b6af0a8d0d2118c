//! Seconds per operation by number of primes: from a table measured on one core ([`super::table`]), or measured on this
//! machine ([`super::measure`]).
//!
//! Prices are interpolated between the measured numbers of primes. A price is the wall time per operation while every
//! thread of the pool runs one, so a plan for two threads uses prices of two threads, not half of those of one.

use serde::{Deserialize, Serialize};

use crate::simulate::Op;

/// Seconds of each operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// The parameter set they apply to.
    pub set: String,
    /// Threads that ran one operation each.
    pub threads: usize,
    /// Whether they were measured on this machine; otherwise they are those of the machine in docs/benchmarks.md, times
    /// `pace`.
    pub measured: bool,
    /// How many times as long as that machine this one takes; 1 where it was not measured.
    #[serde(default = "one")]
    pub pace: f64,
    /// By number of primes, ascending.
    pub by_limbs: Vec<Point>,
    /// One product of a long sum, computed in strips that stay in the cache; per prime.
    pub grid_term: f64,
    /// One weight times one column; per prime.
    pub gemm_term: f64,
    /// A bootstrap of two vectors by primes of the results, ascending, without its share of the call.
    pub bootstrap: Vec<(usize, f64)>,
    /// A call of bootstraps beside its bootstraps, likewise: keys and matrices are read once for all of them.
    #[serde(default)]
    pub bootstrap_call: Vec<(usize, f64)>,
    /// Bytes per second to or from a disk, packing and digests included: assumed, never measured.
    #[serde(default = "disk")]
    pub disk: f64,
}

/// Default of [`Prices::disk`]: a disk that writes 0.63 GB/s and reads 0.51 (the one in docs/benchmarks.md, with other
/// work on it); packing takes another 1.2 core-seconds per GB.
pub(super) const DISK: f64 = 0.5e9;

/// Cost of encoding a diagonal of a map relative to a vector with few primes, from the time of whole maps.
const DIAGONAL: f64 = 0.19;

fn one() -> f64 {
    1.0
}

fn disk() -> f64 {
    DISK
}

/// Seconds at one number of primes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Primes.
    pub limbs: usize,
    /// A decomposition.
    pub hoist: f64,
    /// A rotation of a decomposed ciphertext.
    pub rotate_hoisted: f64,
    /// A product added to a sum.
    pub product: f64,
    /// Relinearisation and rescale.
    pub relinearise: f64,
    /// A rescale.
    pub rescale: f64,
    /// A multiple added to a sum.
    pub multiple: f64,
    /// An addition.
    pub add: f64,
    /// Encoding a vector of numbers.
    pub encode: f64,
    /// A product with an encoded vector.
    pub mul_plain: f64,
}

impl Prices {
    /// These prices on a machine that takes `pace` times as long.
    #[must_use]
    pub fn at_pace(mut self, pace: f64) -> Self {
        for p in &mut self.by_limbs {
            let all = [
                &mut p.hoist,
                &mut p.rotate_hoisted,
                &mut p.product,
                &mut p.relinearise,
                &mut p.rescale,
                &mut p.multiple,
                &mut p.add,
                &mut p.encode,
                &mut p.mul_plain,
            ];
            all.into_iter().for_each(|seconds| *seconds *= pace);
        }
        self.grid_term *= pace;
        self.gemm_term *= pace;
        self.bootstrap.iter_mut().chain(&mut self.bootstrap_call).for_each(|(_, seconds)| *seconds *= pace);
        self.pace *= pace;
        self
    }

    /// Seconds of one operation at `limbs` primes; for a bootstrap, of results with that many.
    #[must_use]
    pub fn seconds(&self, op: Op, limbs: usize) -> f64 {
        let at = |f: fn(&Point) -> f64| interpolate(self.by_limbs.iter().map(|p| (p.limbs, f(p))), limbs);
        match op {
            Op::Hoist => at(|p| p.hoist),
            Op::Rotate | Op::Conjugate => at(|p| p.rotate_hoisted),
            // Estimated from the others: half of a hoisted rotation is its inner product, and the products of residues
            // take two multiply-adds over a third more primes.
            Op::MapBaby => 0.5 * at(|p| p.rotate_hoisted),
            Op::MapGiant => at(|p| p.hoist + 0.75 * p.rotate_hoisted),
            // The product, and the diagonal, which is encoded for it at any number of primes.
            Op::MapTerm => {
                let encode = self.by_limbs.first().map_or(0.0, |p| p.encode);
                2.7 * self.gemm_term * limbs as f64 + DIAGONAL * encode
            }
            Op::Tensor => at(|p| p.product),
            // A simulation counts the rescale separately; the engine does both in one division.
            Op::Relinearise => at(|p| p.relinearise - p.rescale),
            Op::Rescale => at(|p| p.rescale),
            Op::Multiple => at(|p| p.multiple),
            Op::Add => at(|p| p.add),
            Op::AddVector => at(|p| p.encode + p.add / 2.0),
            Op::MulVector => at(|p| p.encode + p.mul_plain),
            Op::LinearTerm => self.gemm_term * limbs as f64,
            Op::Bootstrap => interpolate(self.bootstrap.iter().copied(), limbs),
            Op::BootstrapCall => interpolate(self.bootstrap_call.iter().copied(), limbs),
            // A bootstrap's price includes the vectors it refreshes; bytes have their own price.
            Op::Refreshed | Op::Store | Op::Load => 0.0,
        }
    }

    /// Seconds of a product that is one of many in a sum.
    #[must_use]
    pub fn grid_seconds(&self, limbs: usize) -> f64 {
        self.grid_term * limbs as f64
    }
}

/// The value at `limbs` on the line through the two nearest points.
fn interpolate(points: impl Iterator<Item = (usize, f64)>, limbs: usize) -> f64 {
    let points: Vec<(usize, f64)> = points.collect();
    let last = points.len().saturating_sub(1);
    let upper = points.iter().position(|&(l, _)| l >= limbs).unwrap_or(last);
    let upper = upper.max(1).min(last);
    match (points.get(upper.saturating_sub(1)), points.get(upper)) {
        (Some(&(a, x)), Some(&(b, y))) if a < b => {
            let share = (limbs as f64 - a as f64) / (b - a) as f64;
            (x + (y - x) * share).max(0.0)
        }
        (Some(&(_, x)), _) => x,
        _ => 0.0,
    }
}
