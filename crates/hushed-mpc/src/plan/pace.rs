//! How fast this machine is beside the one of the table of prices, so that the seconds of a plan are its own.

use std::time::Instant;

use hushed_math::bits::{Block, LpnCode, PadHash};
use hushed_rlwe::{RlweError, RlweParams};
use hushed_twopc::TwopcError;
use serde::Serialize;

use crate::{Entry, RunError};

/// How many times as long a machine takes as that of the table: for products under encryption, and for oblivious
/// transfers with the work on them. They depend on different instructions (AVX-512 IFMA; VAES and memory).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pace {
    /// Products under encryption.
    pub products: f64,
    /// Oblivious transfers.
    pub transfers: f64,
}

impl Default for Pace {
    /// That of the table.
    fn default() -> Self {
        Self { products: 1.0, transfers: 1.0 }
    }
}

/// Seconds of [`transforms`] and of [`transfers`] at a pace of 1. Fitted: BGE-small at 128, 256 and 512 tokens took
/// 28.7, 58.9 and 160.6 s on an EPYC of family 25, model 17, with AVX-512 IFMA, one core per party and TLS on loopback,
/// where this says 24, 57 and 161: 0.43 of the table's seconds in products and 0.8 in transfers, most of whose time is
/// work on shares. A faster code alone, which is what is measured, makes transfers faster by less than this says:
/// the two figures are to be fitted anew when it changes. Without AVX-512 both parties' processor time was 1.68 and
/// 1.57 times as much for MiniLM, and this said 1.4 and 1.35: other parts of a product lose more than its transforms.
const TRANSFORMS: f64 = 0.85e-3;
const TRANSFERS: f64 = 0.163e-3;
/// Repetitions of which the shortest counts.
const REPEATS: usize = 12;
/// Transforms of one repetition.
const COUNT: usize = 24;
/// Rows of the code of one repetition, and pads; and log2 of its columns, as many as a cache close by holds.
const ROWS: usize = 1 << 14;
const LOG_COLUMNS: u32 = 16;

impl Pace {
    /// Measures this machine, on one core, for a twentieth of a second.
    ///
    /// # Errors
    /// None for the parameters of this version.
    pub fn measure() -> Result<Self, RunError> {
        let params = RlweParams::olt_full().map_err(|e| TwopcError::from(RlweError::from(e)))?;
        Ok(Self { products: shortest(transforms(&params)) / TRANSFORMS, transfers: shortest(transfers()) / TRANSFERS })
    }
}

fn shortest(mut work: impl FnMut()) -> f64 {
    let times = (0..REPEATS).map(|_| {
        let began = Instant::now();
        work();
        began.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

fn transforms(params: &RlweParams) -> impl FnMut() {
    let (basis, n) = (params.basis().clone(), params.n());
    let mut values: Vec<u64> = (0..n as u64).collect();
    move || (0..COUNT).for_each(|_| basis.ntt(0).forward(&mut values))
}

fn transfers() -> impl FnMut() {
    let (code, hash) = (LpnCode::new([1; 16], LOG_COLUMNS), PadHash::new([2; 16]));
    let secret: Vec<Block> = (0..code.columns() as u128).map(Block).collect();
    let (mut rows, mut out) = (vec![Block(0); ROWS], vec![Block(0); ROWS]);
    move || {
        code.encode(0, &secret, &mut rows);
        hash.pads(0, [Block(1)], &rows, [&mut out]);
    }
}

impl Entry {
    /// Its seconds on a machine of this pace, if they are those of the table.
    pub(super) fn seconds_at(&self, pace: Pace) -> f64 {
        let transfers = self.transfer_seconds();
        (self.seconds - transfers) * pace.products + transfers * pace.transfers
    }
}

#[cfg(test)]
mod tests {
    use hushed_model::Model;
    use hushed_model::testing::tiny_folder;

    use super::*;
    use crate::plan::{Plan, Request};

    #[test]
    fn a_pace_changes_seconds_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        tiny_folder(folder.path()).unwrap();
        assert!(Model::load(folder.path()).is_ok());
        let plan = |pace| {
            let request = Request { tokens: vec![8], max_tokens: 1, pace, ..Request::default() };
            Plan::of_folder(folder.path(), &request).unwrap().remove(0)
        };
        let (table, twice) = (plan(Pace::default()), plan(Pace { products: 2.0, transfers: 2.0 }));
        assert!((twice.seconds / table.seconds - 2.0).abs() < 1e-9);
        let slow = plan(Pace { products: 3.0, transfers: 1.0 });
        assert!(table.seconds < slow.seconds && slow.seconds < 3.0 * table.seconds);
        assert_eq!((slow.bytes_up, slow.rounds, slow.memory), (table.bytes_up, table.rounds, table.memory));
        let steps: f64 = slow.steps.iter().map(|step| step.seconds).sum();
        assert!((steps - slow.seconds).abs() < 1e-9);
    }

    #[test]
    fn this_machine_has_a_pace() {
        let pace = Pace::measure().unwrap();
        assert!(pace.products > 0.0 && pace.transfers > 0.0 && pace.products.is_finite() && pace.transfers.is_finite());
    }
}
