//! Leaves by blocks and by values of the whole degree give the same residues.

use super::*;
use crate::he::product::values;
use crate::he::window::{Encrypted, OltShape, Packing, Window};
use crate::he::wire::Wire;
use hushed_math::rng::{PublicSeed, PublicStream};

const LIMBS: usize = 2;

/// Arbitrary integers of this many bits.
struct Integers(u32);

impl Multiplier for Integers {
    fn bits(&self) -> u32 {
        self.0
    }

    fn block(&self, p: usize, beta: usize, gamma: usize, out: &mut [i64]) {
        for (i, out) in out.iter_mut().enumerate() {
            let place =
                [p, beta, gamma, i].iter().fold(1, |h: u64, &x| (h ^ x as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            *out = place as i64 >> (63 - self.0);
        }
    }
}

/// The same, held ready.
struct Held(Vec<PointMatrix>);

impl Multiplier for Held {
    fn bits(&self) -> u32 {
        40
    }

    fn block(&self, _: usize, _: usize, _: usize, _: &mut [i64]) {
        panic!("what is held is not made again");
    }

    fn points(&self, limb: usize) -> Option<&PointMatrix> {
        self.0.get(limb)
    }
}

fn check(shape: OltShape, batch: usize, window: Window, bits: u32) -> usize {
    let integers = Integers(bits);
    let params = RlweParams::olt_small().unwrap();
    let wire = Wire {
        degree: params.n(),
        input_bytes: 1,
        response_bytes: 1,
        response_bits: 1,
        product_limbs: LIMBS as u64,
        packing_limbs: LIMBS as u64,
    };
    let (left, packing) = (Encrypted::Left, Packing::InterLeave);
    let tiling = OltTiling::with_window(shape, batch, left, packing, window, &wire).unwrap();
    let (ids, mut stream) = (params.ciphertext_ids(LIMBS), PublicStream::new(&PublicSeed([7; 16]), 0));
    let mut uniform = || RnsPoly::uniform(params.basis(), &ids, &mut stream);
    let inputs: Vec<Ciphertext> = (0..tiling.inputs()).map(|_| Ciphertext { b: uniform(), a: uniform() }).collect();
    let all = 0..tiling.leaves();
    let expected = values::leaves(&params, &tiling, LIMBS, &inputs, &integers, all.clone());
    let points = (4 * window.mw * window.nw).next_power_of_two().clamp(128, params.n());
    let mut blocks = BlockInputs::new(&params, &tiling, LIMBS, points, 0..tiling.blocks().1);
    for ct in inputs {
        blocks.push(ct);
    }
    let parts = blocks.tables[0].parts(&blocks.rows[0][0]);
    let same = |leaves: Vec<Leaf>, range: Range<usize>| {
        assert_eq!(leaves.len(), range.len());
        for (leaf, expected) in leaves.into_iter().zip(&expected[range]) {
            let Leaf { b, a } = leaf;
            assert!(a.into_eval().data() == expected.a.data());
            let of_values = Leaf::of_values(&params, expected.clone(), window.mw);
            assert!(b == of_values.b && of_values.a.into_eval() == expected.a);
            let whole = expected.b.clone().into_coeff();
            for (limb, b) in b.iter().enumerate() {
                assert!(b.iter().eq(whole.limb(limb).iter().step_by(window.mw)));
            }
        }
    };
    let middle = all.end / 3..all.end - all.end / 3;
    for range in [all.clone(), 0..1, all.end - 1..all.end, middle] {
        same(leaves(&params, &tiling, &blocks, &integers, range.clone()), range.clone());
        if batch == 1 {
            let tables = block_tables(&params, &tiling, LIMBS, points);
            let held = Held(factors(&params, &tiling, &tables, &integers));
            same(leaves(&params, &tiling, &blocks, &held, range.clone()), range);
        }
    }
    parts
}

#[test]
fn blocks_give_the_leaves_of_values() {
    let n = RlweParams::olt_small().unwrap().n();
    let shape = |k, m, n| OltShape { k, m, n };
    let window = |kw, mw, nw| Window { kw, mw, nw };
    check(shape(n / 64, 40, 50), 1, window(n / 64, 16, 4), 40);
    // Several row blocks, an odd number of columns in the last panel.
    check(shape(3 * n / 64, 33, 27), 1, window(n / 64, 16, 3), 40);
    check(shape(n / 512, 64, 70), 1, window(n / 512, 32, 16), 40);
    // Batches, folded and not.
    check(shape(n / 64, 40, 9), 3, window(n / 64, 16, 4), 40);
    check(shape(n / 64, 8, 9), 5, window(n / 64, 32, 2), 40);
    check(shape(2 * n, 2, 2), 1, window(n, 1, 1), 40);
    // One block.
    check(shape(2, 300, 5), 1, window(2, n / 4, 2), 40);
}

/// With many blocks the points come part by part: for one product, for a batch whose columns do not fill whole panels,
/// and for several row blocks.
#[test]
fn parts_of_the_points_give_the_leaves_of_values() {
    let window = |kw| Window { kw, mw: 64, nw: 16 };
    for (m, parts) in [(64 * 30, 2), (64 * 60 - 3, 4)] {
        let shape = |k, n| OltShape { k, m, n };
        assert_eq!(check(shape(8, 9 * 16), 1, window(8), 21), parts);
        assert_eq!(check(shape(8, 17), 2, window(8), 30), parts);
        assert_eq!(check(shape(20, 5), 1, window(8), 21), parts);
    }
}
