use hushed_model::Matrix;
use proptest::prelude::*;

use super::products::{attend, baby_steps, scores};
use super::{Columns, Diagonals, Interleave, PackingError, Pairs};
use crate::simulate::{Op, Vector};
use crate::{FheError, LinearMap, Simulator, Slots};
use hushed_ckks::CkksParams;
use hushed_ckks::poly::Arithmetic as _;

fn simulator(slots: usize) -> Simulator {
    Simulator::new(&CkksParams::insecure_test(7, 4).unwrap(), slots).unwrap()
}

/// The same packing with simulated vectors.
fn raised(on: &Simulator, packed: &Columns<Vec<f64>>) -> Columns<Vector> {
    packed.map(|v| on.vector(v.clone(), on.top())).unwrap()
}

fn rotations(on: &Simulator) -> u64 {
    on.tally().counts().total(Op::Rotate)
}

/// Entries that differ at all places of a batch, so that a wrong place is noticed.
fn matrices(texts: usize, rows: usize, cols: usize, seed: u64) -> Vec<Matrix<f64>> {
    let entry = |i: usize| ((i as u64 + 1).wrapping_mul(seed | 1) % 10_007) as f64 / 1000.0 - 5.0;
    let one = |t| Matrix::new(rows, cols, (0..rows * cols).map(|i| entry(t * rows * cols + i)).collect()).unwrap();
    (0..texts).map(one).collect()
}

fn product(a: &Matrix<f64>, b: &Matrix<f64>, transposed: bool) -> Matrix<f64> {
    let cols = if transposed { b.rows() } else { b.cols() };
    let entry = |i: usize, j: usize| {
        let term = |k: usize| a.row(i)[k] * if transposed { b.row(j)[k] } else { b.row(k)[j] };
        (0..a.cols()).map(term).sum()
    };
    Matrix::new(a.rows(), cols, (0..a.rows()).flat_map(|i| (0..cols).map(move |j| entry(i, j))).collect()).unwrap()
}

fn close(a: &Matrix<f64>, b: &Matrix<f64>) -> bool {
    let rows = |m: &Matrix<f64>| (0..m.rows()).flat_map(|r| m.row(r).to_vec()).collect::<Vec<_>>();
    let pairs = rows(a).into_iter().zip(rows(b)).all(|(x, y)| (x - y).abs() < 1e-9);
    pairs && a.rows() == b.rows() && a.cols() == b.cols()
}

#[test]
fn rows_must_divide_the_slots() {
    assert_eq!(Interleave::new(16, 3), Err(PackingError::Rows { rows: 3, slots: 16 }));
    assert_eq!(Interleave::new(16, 32), Err(PackingError::Rows { rows: 32, slots: 16 }));
}

#[test]
fn baby_steps_of_a_real_head() {
    // 128 rows, 64 columns, where the paper takes 8,128.
    let rotations = |b: usize| 32 * (b + 128 / b - 2) + 128 - b;
    assert_eq!((rotations(16), rotations(8)), (816, 824));
    assert_eq!((baby_steps(128, 64), baby_steps(128, 32)), (8, 8));
    assert_eq!((baby_steps(1, 5), baby_steps(2, 5)), (1, 2));
}

/// MOAI's Table 5, by counters: a head of BERT-base, m = 128, d' = 64, and every key switch of a rotation or
/// conjugation.
#[test]
fn key_switches_of_a_real_head() {
    const M: usize = 128;
    const WIDTH: usize = 64;
    let params = CkksParams::insecure_test(8, 4).unwrap();
    let on = Simulator::new(&params, M).unwrap().counting();
    let layout = Interleave::new(M, M).unwrap();
    let vector = || on.vector(vec![0.0; M], on.top()).unwrap();
    let columns = || Columns::from_vectors(layout, (0..WIDTH).map(|_| vector()).collect());
    let diagonals = || Diagonals::from_vectors(layout, (0..M).map(|_| vector()).collect()).unwrap();
    let switches = |work: &dyn Fn()| {
        on.tally().reset();
        work();
        let counts = on.tally().counts();
        (counts.total(Op::Rotate), counts.total(Op::Conjugate))
    };
    let b = 16;
    let ours = switches(&|| drop(scores(&on, &columns(), &columns(), b).unwrap()));
    assert_eq!(ours, (816, 128));
    let ours = switches(&|| {
        let pairs = Pairs::new(&on, columns()).unwrap();
        drop(attend(&on, diagonals(), pairs, b).unwrap().into_columns(&on).unwrap());
    });
    assert_eq!(ours, (816, 32));
    // Products with weights need none.
    let weights = LinearMap { rows: WIDTH, columns: WIDTH, weights: vec![0.5; WIDTH * WIDTH], bound: 1.0, bias: None };
    let scale = on.default_scale();
    let linear = switches(&|| drop(on.linear(&weights, columns().vectors(), scale).unwrap()));
    assert_eq!(linear, (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn packing_is_undone(log_slots in 0u32..7, log_rows in 0u32..5, width in 1usize..5, seed in any::<u64>()) {
        prop_assume!(log_rows <= log_slots);
        let layout = Interleave::new(1 << log_slots, 1 << log_rows).unwrap();
        let texts = matrices(layout.texts(), layout.rows(), width, seed);
        let back = Columns::pack(layout, &texts).unpack(texts.len());
        prop_assert!(back.iter().zip(&texts).all(|(a, b)| close(a, b)));
        let square = matrices(layout.texts(), layout.rows(), layout.rows(), seed);
        let back = Diagonals::pack(layout, &square).unpack(square.len());
        prop_assert!(back.iter().zip(&square).all(|(a, b)| close(a, b)));
    }

    /// Lemma 5.1: a rotation by j·B of the slots is a rotation by j of every text.
    #[test]
    fn rotations_are_of_every_text(log_rows in 0u32..5, by in 0usize..40, seed in any::<u64>()) {
        let layout = Interleave::new(64, 1 << log_rows).unwrap();
        let texts = matrices(layout.texts(), layout.rows(), 1, seed);
        let m = layout.rows();
        let mut slots = layout.vector(texts.len(), |text, row| texts[text].row(row)[0]);
        slots.rotate_left(layout.rotation(by));
        prop_assert_eq!(slots, layout.vector(texts.len(), |text, row| texts[text].row((row + by) % m)[0]));
    }

    /// Lemma 4.1: the sum of the diagonals holds the sum of each row, in the row's own slot.
    #[test]
    fn diagonals_sum_to_rows(log_rows in 0u32..4, seed in any::<u64>()) {
        let layout = Interleave::new(32, 1 << log_rows).unwrap();
        let texts = matrices(layout.texts(), layout.rows(), layout.rows(), seed);
        let packed = Diagonals::pack(layout, &texts);
        for (text, matrix) in texts.iter().enumerate() {
            for row in 0..layout.rows() {
                let slot = layout.slot(text, row);
                let sum: f64 = packed.vectors().iter().map(|d| d[slot]).sum();
                prop_assert!((sum - matrix.row(row).iter().sum::<f64>()).abs() < 1e-9);
            }
        }
    }

    /// Lemma 3.1 and algorithm 8 together: attention without its softmax, and the rotations it declares.
    #[test]
    fn products_agree_with_the_clear(log_rows in 0u32..4, log_baby in 0u32..4, width in 1usize..4, seed in any::<u64>()) {
        prop_assume!(log_baby <= log_rows);
        let (m, b) = (1usize << log_rows, 1usize << log_baby);
        let layout = Interleave::new(32, m).unwrap();
        let texts = layout.texts();
        let (q, k) = (matrices(texts, m, width, seed), matrices(texts, m, width, seed ^ 0x55));
        let v = matrices(texts, m, width + 1, seed ^ 0xAA);
        let g = m / b;
        let count = |n: usize| n as u64;
        let on = simulator(32);
        let pack = |x: &[Matrix<f64>]| raised(&on, &Columns::pack(layout, x));
        let (q_packed, k_packed, v_packed) = (pack(&q), pack(&k), pack(&v));
        let s = scores(&on, &q_packed, &k_packed, b).unwrap();
        prop_assert_eq!(rotations(&on), count(width.div_ceil(2) * (b + g - 2) + m - b));
        let counts = on.tally().counts();
        prop_assert_eq!((counts.total(Op::Conjugate), counts.total(Op::Relinearise)), (count(m), count(m)));
        prop_assert_eq!(counts.total(Op::Tensor), count(m * width.div_ceil(2)));
        on.tally().reset();
        let pairs = Pairs::new(&on, v_packed).unwrap();
        let o = attend(&on, s.clone(), pairs, b).unwrap();
        let in_pairs = (width + 1).div_ceil(2);
        prop_assert_eq!(rotations(&on), count(m - b + in_pairs * (b + g - 2)));
        prop_assert_eq!(on.tally().counts().total(Op::Tensor), count(m * in_pairs));
        let o = o.into_columns(&on).unwrap();
        prop_assert_eq!(on.tally().counts().total(Op::Conjugate), count(in_pairs));
        let values = |v: &Vector| Ok::<_, PackingError>(v.values().to_vec());
        let s = s.map(values).unwrap().unpack(texts);
        let o = o.map(values).unwrap().unpack(texts);
        for t in 0..texts {
            let want = product(&q[t], &k[t], true);
            prop_assert!(close(&s[t], &want));
            let want = product(&want, &v[t], false);
            prop_assert!(close(&o[t], &want));
        }
    }
}

/// The imaginary parts of Q·Kᵀ cannot be read, and pairs are refused where real vectors are expected.
#[test]
fn pairs_are_refused_as_real_vectors() {
    let on = simulator(8);
    let vector = |x: f64| on.vector(vec![x; 8], on.top()).unwrap();
    let pair = |a, b| on.pair(vector(a), vector(b)).unwrap();
    let [a, b] = on.parts(&pair(0.5, -0.25)).unwrap();
    assert_eq!((a.values()[3], b.values()[3]), (0.5, -0.25));
    assert_eq!(on.scale(&a).value(), 2.0 * on.default_scale().value());
    // i·(c + i·d) = −d + i·c.
    let both = on.pair(pair(0.5, 0.25), pair(0.125, -0.25)).unwrap();
    let [a, b] = on.parts(&both).unwrap();
    assert_eq!((a.values()[3], b.values()[3]), (0.75, 0.375));
    assert!(on.refresh(hushed_model::StepId::outside("here"), vec![pair(0.5, 0.5)], on.top()).is_err());
    let of_pairs = on.dot_grid(&[vec![pair(0.5, 0.25)]], &[vec![pair(0.5, -0.25)]]);
    let product = of_pairs.unwrap().remove(0).remove(0);
    assert!((on.real(&product).unwrap().values()[0] - 0.3125).abs() < 1e-12);
    assert!(on.parts(&product).is_err());
    assert!(on.pair(product, vector(0.5)).is_err());
}

#[test]
fn products_of_other_shapes_are_refused() {
    let on = simulator(8);
    let pack = |rows: usize, cols: usize| {
        let layout = Interleave::new(8, rows).unwrap();
        let texts = matrices(layout.texts(), rows, cols, 3);
        raised(&on, &Columns::pack(layout, &texts))
    };
    for (q, k, baby) in [
        (pack(4, 2), pack(2, 2), 1),
        (pack(4, 2), pack(4, 1), 1),
        (pack(4, 2), pack(4, 2), 0),
        (pack(4, 2), pack(4, 2), 3),
    ] {
        let found = scores(&on, &q, &k, baby).err();
        assert!(matches!(found, Some(FheError::Packing(PackingError::Mismatch))));
    }
}
