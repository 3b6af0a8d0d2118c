//! MOAI's lemmas on ciphertexts, for random matrices, rows and splits; texts differ and fill the slots.

use hushed_ckks::{Ciphertext, CkksParams};
use hushed_model::Matrix;
use proptest::prelude::*;

use super::testing::{Keys, random, seeded};
use crate::packing::products::{attend, scores};
use crate::packing::{Columns, Diagonals, Interleave, Pairs};
use crate::simulate::{Simulator, Vector};
use crate::{FheError, KeyDemand, Slots};

const LOG_N: u32 = 7;

fn matrices(texts: usize, rows: usize, columns: usize, seed: u64) -> Vec<Matrix<f64>> {
    let mut rng = seeded(seed);
    let mut one = |_| Matrix::new(rows, columns, random(&mut rng, rows * columns)).unwrap();
    (0..texts).map(&mut one).collect()
}

/// The results of a case: Q·Kᵀ, the sums of its diagonals' numbers, (Q·Kᵀ)·V, and V rotated by some rows.
struct Results<V> {
    scores: Diagonals<V>,
    sums: V,
    product: Columns<V>,
    turned: V,
}

fn compute<S: Slots>(
    on: &S,
    [q, k, v]: &[Columns<S::Value>; 3],
    baby: usize,
    by: usize,
) -> Result<Results<S::Value>, FheError> {
    let scores = scores(on, q, k, baby)?;
    let mut sums = scores.vectors()[0].clone();
    for diagonal in &scores.vectors()[1..] {
        on.add_assign(&mut sums, diagonal)?;
    }
    let turned = on.rotate(&v.vectors()[0], q.layout().rotation(by))?;
    let pairs = Pairs::new(on, v.clone())?;
    let product = attend(on, scores.clone(), pairs, baby)?.into_columns(on)?;
    Ok(Results { scores, sums, product, turned })
}

fn close(a: f64, b: f64) -> Result<(), TestCaseError> {
    prop_assert!((a - b).abs() < 1e-4, "{} {}", a, b);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Lemma 3.1 (columns times columns are diagonals), lemma 4.1 (their sum is the sum of each row), algorithm 8
    /// (diagonals times columns are columns), lemma 5.1 (one rotation rotates every text).
    #[test]
    fn products_sums_and_rotations_of_every_text(
        log_rows in 1u32..5,
        log_baby in 0u32..5,
        width in 1usize..4,
        by in 0usize..16,
        seed in any::<u64>(),
    ) {
        prop_assume!(log_baby <= log_rows);
        let (m, baby) = (1usize << log_rows, 1usize << log_baby);
        let params = CkksParams::insecure_test(LOG_N, 6).unwrap();
        let layout = Interleave::new(params.slots(), m).unwrap();
        let texts = layout.texts();
        let clear = [0u64, 1, 2].map(|i| matrices(texts, m, width, seed ^ i));
        let packed = clear.each_ref().map(|x| Columns::pack(layout, x));
        let limbs = params.fresh_limbs();

        // A run in the clear determines which keys are needed.
        let simulator = Simulator::new(&params, params.slots()).unwrap();
        let vectors = packed.each_ref().map(|x| {
            x.map(|v| simulator.vector(v.clone(), limbs)).unwrap()
        });
        let simulated: Results<Vector> = compute(&simulator, &vectors, baby, by).unwrap();
        let demand = KeyDemand::of(&params, &simulator.tally().counts());

        let mut keys = Keys::new(&params, |b| demand.specs(&params, b).unwrap());
        let columns: [Columns<Ciphertext>; 3] = packed
            .each_ref()
            .map(|x| x.map(|v| Ok::<_, FheError>(keys.encrypt(v, limbs))).unwrap());
        let found = compute(&keys.on, &columns, baby, by).unwrap();
        let open = |ct: &Ciphertext| Ok::<_, FheError>(keys.open(ct));
        let scores = found.scores.map(open).unwrap().unpack(texts);
        let product = found.product.map(open).unwrap().unpack(texts);
        let (sums, turned) = (keys.open(&found.sums), keys.open(&found.turned));
        for t in 0..texts {
            let [q, k, v] = clear.each_ref().map(|x| &x[t]);
            for row in 0..m {
                let dot = |key: usize| -> f64 {
                    q.row(row).iter().zip(k.row(key)).map(|(a, b)| a * b).sum()
                };
                for key in 0..m {
                    close(scores[t].row(row)[key], dot(key))?;
                }
                close(sums[layout.slot(t, row)], (0..m).map(dot).sum())?;
                close(turned[layout.slot(t, row)], v.row((row + by) % m)[0])?;
                for c in 0..width {
                    let expected = (0..m).map(|key| dot(key) * v.row(key)[c]).sum();
                    close(product[t].row(row)[c], expected)?;
                }
            }
        }
        // The simulation had the same scales.
        prop_assert!(found.sums.scale().matches(
            hushed_ckks::poly::Arithmetic::scale(&simulator, &simulated.sums)
        ));
    }
}
