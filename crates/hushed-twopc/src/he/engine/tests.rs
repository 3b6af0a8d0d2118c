//! The noise of packing against its bound, where the modulus shrinks between product and interleaving.

use super::tree::Tree;
use super::*;
use crate::he::interleave::{interleave, slot};
use crate::he::product::Leaf;
use crate::he::window::{OltShape, Window};
use crate::he::{OltSpec, PreparedWeights};
use crate::testing::run_pair;
use hushed_math::{Coeff, RnsPoly};
use hushed_rlwe::{Interleaving, NoiseBound, RlweParams};

/// Coefficients of a polynomial that is small under all its primes.
fn small(poly: &RnsPoly<Coeff>) -> Vec<i64> {
    let centred = |limb: usize| -> Vec<i64> {
        let q = poly.basis().modulus(poly.ids()[limb]).value() as i64;
        let sign = |c: &u64| if *c as i64 > q / 2 { q } else { 0 };
        poly.limb(limb).iter().map(|c| *c as i64 - sign(c)).collect()
    };
    let first = centred(0);
    for limb in 1..poly.ids().len() {
        assert!(centred(limb) == first, "larger than a prime");
    }
    first
}

fn largest(values: impl Iterator<Item = i64>) -> f64 {
    values.map(|v| v.unsigned_abs()).max().unwrap_or(0) as f64
}

#[test]
fn the_tree_does_not_enlarge_the_rounding_of_the_modulus_switch() {
    const LEAVES: usize = 32;
    // One set of tables for both parties, so that their polynomials can be compared.
    let params = &RlweParams::olt_full().unwrap();
    let exchange = |ctx: &mut Ctx| {
        let all = HeContext::ALL_LEVELS;
        HeContext::exchange_with(params.clone(), all, ctx).unwrap()
    };
    let (owner, answerer) = run_pair(exchange, exchange);
    let (n, levels) = (params.n(), params.log_n());
    let shape = OltShape { k: 1, m: n, n: LEAVES };
    let window = Window { kw: 1, mw: n, nw: 1 };
    let spec = OltSpec {
        multiplier_bits: 63,
        window: Some(window),
        ..PreparedWeights::new(n, LEAVES, 30, vec![0; n * LEAVES]).unwrap().shape(1).spec(crate::share::Ring::Z64)
    };
    assert_eq!(spec.shape, shape);
    let layout = owner.layout(&spec).unwrap();
    assert_eq!((layout.product_limbs, layout.packing_limbs), (3, 2));

    let mut rng = SecretRng::insecure_from_seed(21);
    let mut random = |count: usize| -> Vec<u64> { (0..count).map(|_| rng.next_u64()).collect() };
    let message = layout.scale.scale_up(&random(n)).unwrap();
    let weights = random(n * LEAVES).iter().map(|&w| w as i32 >> 1).collect();
    let weights = PreparedWeights::new(n, LEAVES, 30, weights).unwrap();
    let ct = owner.secret().unwrap().encrypt_seeded(message, &mut rng).unwrap();
    let inputs = [ct.expand()];
    let source = weights.block_source(&layout);
    let leaves = crate::he::product::values::leaves(params, &layout.tiling, 3, &inputs, &source, 0..LEAVES);

    // The content of a leaf, including the product's noise, divided by the dropped prime: comparing with it leaves only
    // the noise added by switching and packing.
    let reference: Vec<RnsPoly<Coeff>> = leaves
        .iter()
        .map(|leaf| {
            let phase = owner.secret().unwrap().decrypt_phase(leaf).unwrap();
            phase.divide_by_last_and_round()
        })
        .collect();
    let own_rounding = NoiseBound { bounded: 0.5, variance: 0.0 };
    let switch = NoiseBound::ZERO.modulus_switch(params, 3, 2).add(&own_rounding);

    // A tree of all levels: every leaf counts 2^13 times.
    let answer = &Answer::alone(layout.clone());
    let (tree, term) = (Tree { he: &answerer, answer }, &answer.terms()[0]);
    let size: Vec<u64> = vec![n as u64; 2];
    let mut a = tree.lift(term, leaves[0].a.clone().into_coeff(), n);
    a.mul_scalar_assign(&size);
    let lifted = Ciphertext { b: leaves[0].b.clone().divide_by_last_and_round(), a: a.into_eval() };
    let mut off = owner.secret().unwrap().decrypt_phase(&lifted).unwrap();
    off.sub_assign(&reference[0]);
    let off = largest(small(&off).into_iter());
    assert!(off <= switch.value(), "{off} of {}", switch.value());

    let leaves: Vec<Leaf> = leaves.into_iter().map(|leaf| Leaf::of_values(params, leaf, n)).collect();
    let cells: Vec<Wanted> =
        (0..LEAVES).map(|leaf| Wanted { leaf, coefficient: 0, position: slot(leaf, n), cell: 0 }).collect();
    let keys = &answerer.published().unwrap().galois;
    let nodes = Interleaving::new(keys, n, 2).unwrap();
    let mut b = tree.place(term, &leaves, &cells);
    let a = interleave(&nodes, leaves, n, &|leaf| Ok(tree.lift(term, leaf.a, n)));
    b.add_assign(&nodes.into_b());
    let packed = Ciphertext { b: b.into_eval(), a: a.unwrap().unwrap().into_eval() };
    let mut expected = RnsPoly::<Coeff>::zero(params.basis(), reference[0].ids());
    for (i, leaf) in reference.iter().enumerate() {
        for limb in 0..2 {
            expected.limb_mut(limb)[slot(i, n)] = leaf.limb(limb)[0];
        }
    }
    let mut off = owner.secret().unwrap().decrypt_phase(&packed).unwrap();
    off.sub_assign(&expected);
    let off = largest(small(&off).into_iter());
    let bound = switch.interleave(params, 2, 2, levels).value();
    assert!(off <= bound, "{off} of {bound}");
}
