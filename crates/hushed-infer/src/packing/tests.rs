use hushed_model::Matrix;
use proptest::prelude::*;

use super::products::{attend, baby_steps, scores, scores_by_paper};
use super::{Clear, Columns, Diagonals, Interleave, PackingError};

/// Entries that no two places of a batch share, so that a wrong place shows.
fn matrices(texts: usize, rows: usize, cols: usize, seed: u64) -> Vec<Matrix<f64>> {
    let entry = |i: usize| ((i as u64 + 1).wrapping_mul(seed | 1) % 10_007) as f64 / 1000.0 - 5.0;
    let one = |t| {
        Matrix::new(
            rows,
            cols,
            (0..rows * cols)
                .map(|i| entry(t * rows * cols + i))
                .collect(),
        )
        .unwrap()
    };
    (0..texts).map(one).collect()
}

fn product(a: &Matrix<f64>, b: &Matrix<f64>, transposed: bool) -> Matrix<f64> {
    let cols = if transposed { b.rows() } else { b.cols() };
    let entry = |i: usize, j: usize| {
        let term = |k: usize| a.row(i)[k] * if transposed { b.row(j)[k] } else { b.row(k)[j] };
        (0..a.cols()).map(term).sum()
    };
    Matrix::new(
        a.rows(),
        cols,
        (0..a.rows())
            .flat_map(|i| (0..cols).map(move |j| entry(i, j)))
            .collect(),
    )
    .unwrap()
}

fn close(a: &Matrix<f64>, b: &Matrix<f64>) -> bool {
    let rows = |m: &Matrix<f64>| {
        (0..m.rows())
            .flat_map(|r| m.row(r).to_vec())
            .collect::<Vec<_>>()
    };
    let pairs = rows(a)
        .into_iter()
        .zip(rows(b))
        .all(|(x, y)| (x - y).abs() < 1e-9);
    pairs && a.rows() == b.rows() && a.cols() == b.cols()
}

#[test]
fn rows_must_divide_the_slots() {
    assert_eq!(
        Interleave::new(16, 3),
        Err(PackingError::Rows { rows: 3, slots: 16 })
    );
    assert_eq!(
        Interleave::new(16, 32),
        Err(PackingError::Rows {
            rows: 32,
            slots: 16
        })
    );
    let layout = Interleave::new(16, 4).unwrap();
    let five = matrices(5, 4, 2, 3);
    assert!(matches!(
        Columns::pack(layout, &five),
        Err(PackingError::TooMany {
            texts: 5,
            room: 4,
            ..
        })
    ));
    let short = matrices(1, 2, 2, 3);
    assert!(matches!(
        Columns::pack(layout, &short),
        Err(PackingError::RowCount { found: 2, .. })
    ));
}

#[test]
fn baby_steps_of_a_bert_head() {
    // 128 rows, 64 columns: 16 and 8, where the paper takes 8,128.
    assert_eq!(
        64 * (baby_steps(128, 64) + 128 / baby_steps(128, 64) - 2) + 128 - baby_steps(128, 64),
        1520
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn packing_is_undone(log_slots in 0u32..7, log_rows in 0u32..5, width in 1usize..5, seed in any::<u64>()) {
        prop_assume!(log_rows <= log_slots);
        let layout = Interleave::new(1 << log_slots, 1 << log_rows).unwrap();
        let texts = matrices(layout.texts(), layout.rows(), width, seed);
        let back = Columns::pack(layout, &texts).unwrap().unpack(texts.len()).unwrap();
        prop_assert!(back.iter().zip(&texts).all(|(a, b)| close(a, b)));
        let square = matrices(layout.texts(), layout.rows(), layout.rows(), seed);
        let back = Diagonals::pack(layout, &square).unwrap().unpack(square.len()).unwrap();
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
        let packed = Diagonals::pack(layout, &texts).unwrap();
        for (text, matrix) in texts.iter().enumerate() {
            for row in 0..layout.rows() {
                let slot = layout.slot(text, row);
                let sum: f64 = packed.vectors().iter().map(|d| d[slot]).sum();
                prop_assert!((sum - matrix.row(row).iter().sum::<f64>()).abs() < 1e-9);
            }
        }
    }

    /// Lemma 3.1 and algorithm 8, whole: attention without its softmax, by both ways, and the rotations that they declare.
    #[test]
    fn products_agree_with_the_clear(log_rows in 0u32..4, log_baby in 0u32..4, width in 1usize..4, seed in any::<u64>()) {
        prop_assume!(log_baby <= log_rows);
        let (m, b) = (1usize << log_rows, 1usize << log_baby);
        let layout = Interleave::new(32, m).unwrap();
        let texts = layout.texts();
        let (q, k) = (matrices(texts, m, width, seed), matrices(texts, m, width, seed ^ 0x55));
        let v = matrices(texts, m, width + 1, seed ^ 0xAA);
        let pack = |x: &[Matrix<f64>]| Columns::pack(layout, x).unwrap();
        let clear = Clear::default();
        let s = scores(&clear, &pack(&q), &pack(&k), b).unwrap();
        let g = m / b;
        prop_assert_eq!(clear.rotations(), width * (b + g - 2) + m - b);
        prop_assert_eq!(clear.finished(), m);
        let by_paper = Clear::default();
        let same = scores_by_paper(&by_paper, &pack(&q), &pack(&k)).unwrap();
        prop_assert_eq!(by_paper.rotations(), width * (m - 1));
        let out = Clear::default();
        let o = attend(&out, &s, &pack(&v), b).unwrap().unpack(texts).unwrap();
        prop_assert_eq!(out.rotations(), m - b + (width + 1) * (b + g - 2));
        let (s, same) = (s.unpack(texts).unwrap(), same.unpack(texts).unwrap());
        for t in 0..texts {
            let want = product(&q[t], &k[t], true);
            prop_assert!(close(&s[t], &want) && close(&same[t], &want));
            prop_assert!(close(&o[t], &product(&want, &v[t], false)));
        }
    }
}
