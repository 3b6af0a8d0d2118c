//! Grids of maps, with all slots random: in the clear against dense matrices, encrypted against the clear.

use std::sync::Arc;

use hushed_math::rng::SecretRng;
use num_complex::Complex64;

use super::{GridOptions, GridSplit, MapGrid, PreparedGrid};
use crate::keys::KeySpecs;
use crate::lintrans::LinTransError;
use crate::params::CkksParams;
use crate::testing::{Fixture, distance, norm_bits, random};
use crate::{Ciphertext, CkksError, Counts, Scale};

const LIMBS: usize = 4;

fn params() -> Arc<CkksParams> {
    CkksParams::insecure_shallow(9, LIMBS).unwrap()
}

/// Blocks of random entries: input i uses `columns[i]` places, output o `rows[o]`.
fn blocks(slots: usize, period: usize, (rows, columns): (&[usize], &[usize]), rng: &mut SecretRng) -> MapGrid {
    let mut grid = MapGrid::new(slots, period, columns.len(), rows.len()).unwrap();
    for (o, &rows) in rows.iter().enumerate() {
        for (i, &columns) in columns.iter().enumerate() {
            let entries = random(rng, rows * columns);
            let entry = |r: usize, c: usize| entries[r * columns + c] / columns as f64;
            grid.set_block([o, i], [rows, columns], entry).unwrap();
        }
    }
    grid
}

/// The outputs of an encrypted grid, the expected values, and the counts.
fn run(
    f: &mut Fixture,
    grid: &MapGrid,
    map: &PreparedGrid,
    limbs: usize,
) -> (Vec<Ciphertext>, Vec<Vec<Complex64>>, Counts) {
    let inputs: Vec<_> = (0..grid.inputs()).map(|_| f.random()).collect();
    let cts: Vec<_> = inputs.iter().map(|x| f.encrypt(x, limbs)).collect();
    f.evaluator.counters().reset();
    let out = map.apply(&f.evaluator, &cts.iter().collect::<Vec<_>>()).unwrap();
    let counts = f.evaluator.counters().snapshot();
    (out, grid.apply(&inputs).unwrap(), counts)
}

#[test]
fn blocks_in_the_clear_are_the_matrix_on_every_period() {
    let (slots, period, rows, columns) = (64, 16, 11, 16);
    let mut rng = SecretRng::insecure_from_seed(1);
    let entries = random(&mut rng, rows * columns);
    let mut grid = MapGrid::new(slots, period, 1, 1).unwrap();
    let entry = |r: usize, c: usize| entries[r * columns + c];
    grid.set_block([0, 0], [rows, columns], entry).unwrap();
    assert_eq!(grid.count(), rows + columns - 1);
    let x = random(&mut rng, slots);
    let out = grid.apply(std::slice::from_ref(&x)).unwrap();
    let mut expected = vec![Complex64::ZERO; slots];
    for (out, x) in expected.chunks_mut(period).zip(x.chunks(period)) {
        for (r, out) in out.iter_mut().enumerate().take(rows) {
            *out = (0..columns).map(|c| entry(r, c) * x[c]).sum();
        }
    }
    // Places that no row uses are zero, whatever the inputs hold there.
    assert!(distance(&out[0], &expected) < 1e-12);
}

#[test]
fn encrypted_grids_are_the_clear_ones_for_every_split() {
    let params = params();
    let mut rng = SecretRng::insecure_from_seed(2);
    // Two inputs, three outputs of different sizes.
    let (rows, columns) = ([16, 9, 16], [12, 16]);
    let grid = blocks(params.slots(), 16, (&rows, &columns), &mut rng);
    let n = params.n();
    let best = GridSplit::best(&grid, n, [LIMBS, 1, LIMBS]).unwrap();
    let splits = [
        best,
        GridSplit::diagonal(&grid).unwrap(),
        GridSplit::width(&grid, 8).unwrap(),
        GridSplit::width(&grid, 5).unwrap(),
        GridSplit::around(&grid, &[3, 0, -1]).unwrap(),
    ];
    for (i, split) in splits.into_iter().enumerate() {
        // Keys for the length of the ciphertexts, and longer ones.
        let limbs = [LIMBS - 1, LIMBS][i % 2];
        let (babies, giants) = split.key_switches();
        let terms = split.babies().len() * split.giants().len();
        let options = GridOptions { split: Some(split), key_limbs: Some(LIMBS), ..GridOptions::default() };
        let map = PreparedGrid::new(&params, &grid, limbs, options).unwrap();
        let mut specs = KeySpecs::new();
        map.add_keys(&mut specs);
        let mut f = Fixture::new(&params, &specs, 3);
        let (out, expected, counts) = run(&mut f, &grid, &map, LIMBS);
        assert_eq!(out.len(), 3);
        for (out, expected) in out.iter().zip(&expected) {
            assert_eq!(out.limbs(), limbs - 1);
            let (least, _) = f.bits(out, expected);
            assert!(least > 18.0, "split {i}: {least}");
            // The bound that flooding would rely on holds.
            norm_bits(&f, out, expected);
        }
        let found = (counts.key_switch, counts.mod_up, counts.mod_down);
        let switches = (babies + giants) as u64;
        assert_eq!(found, (switches, 2 + giants as u64, 6 + giants as u64));
        assert_eq!((counts.pt_mul, counts.rescale), (terms as u64, 3));
        assert_eq!(counts.rotation, switches);
    }
}

#[test]
fn a_width_cuts_offsets_into_babies_and_giants() {
    let mut rng = SecretRng::insecure_from_seed(4);
    let grid = blocks(256, 16, (&[16, 16], &[16]), &mut rng);
    // Offsets −15 … 15: giants −16, −8, 0, 8 for both outputs, babies 0 … 7.
    let split = GridSplit::width(&grid, 8).unwrap();
    assert_eq!(split.key_switches(), (7, 6));
    assert_eq!(split.rotations().len(), 10);
    assert_eq!(GridSplit::diagonal(&grid).unwrap().key_switches(), (30, 0));
}

#[test]
fn zeros_take_part_in_every_product() {
    let params = params();
    let counts = [0.0, 1.0].map(|entry| {
        let mut grid = MapGrid::new(params.slots(), 16, 1, 1).unwrap();
        let entry = |_, _| Complex64::from(entry);
        grid.set_block([0, 0], [16, 16], entry).unwrap();
        let map = PreparedGrid::new(&params, &grid, LIMBS, GridOptions::default()).unwrap();
        let mut specs = KeySpecs::new();
        map.add_keys(&mut specs);
        let mut f = Fixture::new(&params, &specs, 5);
        let (_, _, counts) = run(&mut f, &grid, &map, LIMBS);
        (counts, map.products(), map.plaintext_bytes(), specs)
    });
    assert_eq!(counts[0], counts[1]);
}

#[test]
fn inputs_and_shapes_that_do_not_fit_are_refused() {
    let params = params();
    let mut rng = SecretRng::insecure_from_seed(6);
    let slots = params.slots();
    let grid = blocks(slots, 16, (&[16], &[16, 16]), &mut rng);
    let map = PreparedGrid::new(&params, &grid, LIMBS, GridOptions::default()).unwrap();
    let mut f = Fixture::new(&params, &KeySpecs::new(), 7);
    let x = f.random();
    let (long, short) = (f.encrypt(&x, LIMBS), f.encrypt(&x, LIMBS - 1));
    let refused = |inputs: &[&Ciphertext]| match map.apply(&f.evaluator, inputs) {
        Err(CkksError::LinTrans(error)) => error,
        other => panic!("{:?}", other.map(|out| out.len())),
    };
    assert!(matches!(refused(&[&long]), LinTransError::Length { .. }));
    assert!(matches!(refused(&[&long, &short]), LinTransError::Level { .. }));
    assert!(matches!(refused(&[&long, &long]), LinTransError::Rlwe(_)));
    let finer = f.encoder.encode(&x, LIMBS, Scale::from_bits(41)).unwrap();
    let finer = f.encryptor.encrypt(&finer, &mut f.rng).unwrap();
    assert!(matches!(map.apply(&f.evaluator, &[&long, &finer]), Err(CkksError::ScaleMismatch { .. })));

    assert!(MapGrid::new(slots, 12, 1, 1).is_err() && MapGrid::new(16, 32, 1, 1).is_err());
    assert!(MapGrid::new(slots, 16, 0, 1).is_err());
    let mut grid = MapGrid::new(slots, 16, 1, 2).unwrap();
    let zeros = |count| vec![Complex64::ZERO; count];
    assert!(grid.set([2, 0], 0, zeros(16)).is_err() && grid.set([0, 0], 0, zeros(8)).is_err());
    assert!(grid.set_block([0, 0], [17, 1], |_, _| Complex64::ONE).is_err());
    grid.set([0, 0], 1, zeros(16)).unwrap();
    // The second output has no diagonals.
    assert_eq!(GridSplit::diagonal(&grid), Err(LinTransError::Empty));
    grid.set([1, 0], 0, zeros(16)).unwrap();
    // A split of another grid.
    let small = blocks(slots, 16, (&[2], &[2]), &mut rng);
    let options = GridOptions { split: Some(GridSplit::diagonal(&grid).unwrap()), ..GridOptions::default() };
    assert!(PreparedGrid::new(&params, &small, LIMBS, options).is_err());
    for limbs in [1, LIMBS + 9] {
        assert!(PreparedGrid::new(&params, &small, limbs, GridOptions::default()).is_err());
    }
    let elsewhere = blocks(2 * slots, 16, (&[2], &[2]), &mut rng);
    assert!(PreparedGrid::new(&params, &elsewhere, LIMBS, GridOptions::default()).is_err());
}
