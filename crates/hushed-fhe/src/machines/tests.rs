//! Runs on several machines: by hand, and of small models.

use hushed_ckks::keys::KeySpecs;
use hushed_ckks::{Ciphertext, CkksParams};
use hushed_model::testing::{ternary_config, ternary_network};
use hushed_model::{NetworkConfig, Weigh};

use super::pieces::{Piece, Pieces};
use super::ranges::{Cuts, WorkRange};
use super::schedule::{Cluster, Outcome, schedule};
use super::trace::TracedTape;
use super::*;
use crate::plan::public_plan::Lengths;
use crate::plan::tests::{options, shallow, small};
use crate::plan::{assumed_choices, packed_placement, reference};

/// A plan and what its run takes on each of these numbers of machines.
fn planned(options: FheOptions, machines: &[usize], rate: f64) -> (FhePlanReport, Vec<OnMachines>) {
    planned_of(&small().program_of_all_rows(), options, machines, rate)
}

fn planned_of(
    program: &Program,
    mut options: FheOptions,
    machines: &[usize],
    rate: f64,
) -> (FhePlanReport, Vec<OnMachines>) {
    let params = CkksParams::n16_boot().unwrap();
    let mut choices = assumed_choices(program, options.rows);
    if options.texts != usize::MAX {
        choices = shallow(program, options.rows);
        options.placement = packed_placement(program, &choices, &params, &options).unwrap();
    }
    let plan = FhePlanReport::new(program, &choices, true, &params, &KeySpecs::new(), &options).unwrap();
    let found = on_machines((program, &choices), &params, &options, &plan, (machines, rate)).unwrap();
    (plan, found)
}

/// With lengths public and private, and of one text.
#[test]
fn one_machine_takes_what_the_plan_says_and_more_are_not_slower() {
    let sizes = [1, 2, 3, 8, 64, 65];
    for (lengths, texts) in [(Lengths::Public, usize::MAX), (Lengths::Private, usize::MAX), (Lengths::Public, 1)] {
        let (plan, found) = planned(FheOptions { texts, ..options(lengths) }, &sizes, 1.25e9);
        let one = &found[0];
        assert!((one.seconds / plan.work.seconds - 1.0).abs() < 1e-9, "{} {}", one.seconds, plan.work.seconds);
        // A range of each layer, and of what is before and after them.
        assert_eq!((one.moved, one.moved_in_all), (0, 0));
        assert!(one.ranges <= plan.layers + 2);
        assert_eq!((one.memory, one.keys), (plan.memory.total(), plan.key_bytes));
        for (two, size) in found.windows(2).zip(&sizes[1..]) {
            assert!(two[1].seconds <= two[0].seconds);
            assert_eq!(two[1].machines, *size);
            assert!(two[1].used <= *size && two[1].speed_up <= two[1].used as f64 + 1e-9);
            assert!(two[1].busy <= 1.0 + 1e-9);
        }
        let eight = &found[3];
        assert!(eight.speed_up > if texts == 1 { 1.0 } else { 2.0 }, "{eight:?}");
        // Every machine but the first gets the request, and values of others.
        assert!(eight.used == 1 || eight.moved_in_all > (eight.used as u64 - 1) * plan.bytes_up);
        assert_eq!(eight.keys, eight.used as u64 * plan.key_bytes);
        // Over a slow network one machine is the quickest.
        let (_, slow) = planned(FheOptions { texts, ..options(lengths) }, &[8], 1e3);
        assert_eq!((slow[0].machines, slow[0].used, slow[0].seconds), (8, 1, one.seconds));
    }
}

#[test]
fn runs_without_a_tape_are_refused() {
    let tapes = [TracedTape::default()];
    let params = CkksParams::n16_boot().unwrap();
    assert!(Pieces::new(&tapes, &Default::default(), &params, &reference(1)).is_none());
}

/// In a batch with either attention, and of one prompt alone.
#[test]
fn a_run_of_a_decoder_takes_what_the_plan_says() {
    let sigmoid = Weigh::Sigmoid { bias: -2.0 };
    for (weigh, texts) in [(sigmoid, usize::MAX), (Weigh::Softmax, usize::MAX), (sigmoid, 1)] {
        let config = NetworkConfig { layers: 1, positions: 16, weigh, ..ternary_config(4, 4) };
        let program = ternary_network(&config, 1).program_of_all_rows();
        let (plan, found) = planned_of(&program, FheOptions { texts, ..options(Lengths::Private) }, &[1, 4], 1.25e9);
        let (one, four) = (&found[0], &found[1]);
        assert!((one.seconds / plan.work.seconds - 1.0).abs() < 1e-9, "{} {}", one.seconds, plan.work.seconds);
        assert!(four.used > 1 && four.seconds < one.seconds, "{four:?}");
    }
}

fn piece(seconds: f64, reads: &[u32], makes: std::ops::Range<u32>) -> Piece {
    Piece { seconds, reads: reads.to_vec(), limbs: 4, finishes: None, adds: None, makes, node: 0 }
}

/// Each of a node of its own.
fn numbered(all: &mut [Piece]) {
    all.iter_mut().enumerate().for_each(|(i, piece)| piece.node = i);
}

/// Two chains of two pieces that a last one joins: 0 → 1, 2 → 3, and 4 reads both.
fn chains() -> Pieces {
    let mut all = vec![
        piece(1.0, &[0], 1..3),
        piece(1.0, &[1, 2], 3..4),
        piece(1.0, &[0], 4..6),
        piece(1.0, &[4, 5], 6..7),
        piece(1.0, &[3, 6], 7..8),
    ];
    numbered(&mut all);
    Pieces { all, vectors: vec![4, 4, 4, 2, 4, 4, 4, 4], given: vec![0], before: 0.5, ..Pieces::default() }
}

fn places(pieces: &Pieces, target: f64, machines: usize, rate: f64) -> (Vec<WorkRange>, Outcome) {
    let params = CkksParams::n16_boot().unwrap();
    let ranges = Cuts::new(pieces, &params).ranges(target);
    let outcome = schedule(pieces, &ranges, &Cluster { machines, rate, request: 100 });
    (ranges, outcome)
}

#[test]
fn ranges_end_where_little_is_alive_and_what_they_read_is_moved() {
    let params = CkksParams::n16_boot().unwrap();
    let bytes = |limbs: usize| Ciphertext::list_bytes(&params, limbs, 1) as u64;
    let pieces = chains();
    // After the second and the fourth piece, not after the first or the third.
    let (ranges, outcome) = places(&pieces, 2.0, 2, 1e12);
    assert_eq!(ranges.iter().map(|r| r.pieces.clone()).collect::<Vec<_>>(), [0..2, 2..4, 4..5]);
    assert_eq!(ranges[2].reads, [(3, bytes(2)), (6, bytes(4))]);
    assert!(ranges[..2].iter().all(|range| range.reads == [(0, bytes(4))]));
    // Both have the input; the last range reads one vector of each: the smaller one is moved.
    assert_eq!(outcome.places, [0, 1, 1]);
    assert_eq!(outcome.moved, [bytes(2), 100 + bytes(2)]);
    assert!((outcome.seconds - 3.5).abs() < 1e-3, "{}", outcome.seconds);
    assert_eq!(outcome.busy, [2.5, 3.5]);
    // Alone, a machine holds the input, one chain and the result of the other at most.
    let (ranges, outcome) = places(&pieces, f64::INFINITY, 1, 1.0);
    assert_eq!(peak(&pieces, &ranges, &outcome), 14);
    // Where moving it takes longer than a chain.
    let (_, outcome) = places(&pieces, 2.0, 2, bytes(4) as f64 / 10.0);
    assert!(outcome.seconds > pieces.seconds(), "{outcome:?}");
    // Ranges are all pieces, once, whatever their size.
    for target in [0.1, 1.0, 2.5, 3.0, f64::INFINITY] {
        let (ranges, alone) = places(&pieces, target, 1, 1e9);
        let all: Vec<usize> = ranges.iter().flat_map(|range| range.pieces.clone()).collect();
        assert_eq!(all, [0, 1, 2, 3, 4]);
        assert!((alone.seconds - pieces.seconds()).abs() < 1e-12);
        assert_eq!(alone.moved, [0]);
    }
}

/// Terms are added where they are made: one part of the sums of each machine is moved, not the terms.
#[test]
fn sums_stay_where_their_terms_are() {
    let params = CkksParams::n16_boot().unwrap();
    let mut pieces = Pieces { vectors: vec![4; 4], sums: vec![(2, 3)], given: vec![0, 1, 2], ..Pieces::default() };
    for v in 0..3 {
        pieces.all.push(Piece { adds: Some(0), ..piece(1.0, &[v], 0..0) });
    }
    pieces.all.push(Piece { finishes: Some((0, 1)), ..piece(1.0, &[], 3..4) });
    numbered(&mut pieces.all);
    let (ranges, outcome) = places(&pieces, 1.0, 3, 1e12);
    assert_eq!(ranges.len(), 4);
    let part = Ciphertext::list_bytes(&params, 3, 1) as u64;
    assert_eq!(ranges[3].finishes, [(0, part)]);
    assert_eq!(outcome.places[..3], [0, 1, 2]);
    assert_eq!(outcome.moved.iter().sum::<u64>(), 200 + 2 * 2 * part);
    assert!((outcome.seconds - 2.0).abs() < 1e-3);
}
