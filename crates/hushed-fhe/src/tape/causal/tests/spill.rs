//! Spilling to disk changes no byte of a decoder's answer and no operation; and the memory of a batch of real size.

use hushed_ckks::{Ciphertext, CkksParams};
use hushed_model::NetworkConfig;
use hushed_model::testing::{ternary_config as config, ternary_network as network};

use super::{SLOTS, Subject, sums, test_params};
use crate::choices::Choices;
use crate::packing::Interleave;
use crate::pass::Viewer;
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;
use crate::simulate::{Counts, Op, Simulator, Vector};
use crate::slots::Slots;
use crate::{Acts, Pass};

/// Nothing on disk, then attention, then the feed-forward, then both.
fn placements(of: &Placement) -> [Placement; 4] {
    [(false, false), (true, false), (false, true), (true, true)].map(|(attention, feed_forward)| Placement {
        spill_attention: attention,
        spill_feed_forward: feed_forward,
        ..of.clone()
    })
}

fn nothing<V: Clone + 'static>() -> Viewer<'static, V> {
    sums(|_, _: &Acts<V>| Ok(()))
}

fn peak(counts: &Counts, site: &str) -> u64 {
    let mut peaks = counts.peaks.iter();
    let found = peaks.find(|peak| peak.site.to_string() == site);
    found.unwrap().residues
}

#[test]
fn what_is_put_on_disk_changes_no_byte_of_a_decoders_answer() {
    for (keys, sub_norms) in [(2, false), (1, false), (2, true)] {
        let config = NetworkConfig { sub_norms, ..config(2, keys) };
        let subject = Subject::new(&config, SLOTS, (15, 15));
        let on = Simulator::new(&test_params(), SLOTS).unwrap().with_errors(5);
        let found = placements(&subject.placement(on.top())).map(|placement| {
            on.tally().reset();
            let how = (placement, AnswerRows::Last);
            let found = subject.run_at(&on, subject.vectors(&on), how, nothing());
            let values: Vec<Vec<f64>> = found.unwrap().vectors.iter().map(|v: &Vector| v.values().to_vec()).collect();
            (values, on.tally().counts())
        });
        let [(answer, plain), rest @ ..] = &found;
        assert_eq!((plain.disk, plain.total(Op::Store)), (0, 0));
        for (found, counts) in rest {
            assert_eq!(found, answer);
            let mut operations = counts.operations.clone();
            operations.retain(|count| !matches!(count.op, Op::Store | Op::Load));
            assert_eq!(operations, plain.operations);
            assert_eq!(counts.rotations, plain.rotations);
            assert_eq!(counts.total(Op::Store), counts.total(Op::Load));
            assert!(counts.disk > 0 && counts.total(Op::Store) > 0);
        }
        let [attention, feed_forward, both] = rest.each_ref().map(|(_, counts)| counts);
        let [scores, down] = ["layer.1.attention.scores", "layer.1.feed_forward.down"];
        assert!(peak(attention, scores) < peak(plain, scores));
        assert!(peak(feed_forward, down) < peak(plain, down));
        assert!(both.peak() < plain.peak());
    }
}

/// The same encrypted, with and without norms inside blocks: the answer's bytes, the engine's operations, the
/// simulation's prediction of disk use, and the answer compared with the clear model's.
#[test]
fn a_decoder_under_a_key_gives_the_same_bytes_from_disk() {
    // With two baby steps P·V takes the weights as they are made.
    for (sub_norms, baby) in [(false, 2), (true, 4)] {
        let config = NetworkConfig { sub_norms, ..config(2, 1) };
        under_a_key(&config, baby);
    }
}

fn under_a_key(config: &NetworkConfig, baby: usize) {
    let params = test_params();
    let slots = params.slots();
    let subject = Subject::new(config, slots, (15, 15));
    let inside = subject.program.attentions().all(|a| a.sub_norm.is_some());
    assert_eq!(inside, config.sub_norms);
    let placement = Placement { scores_baby: baby, ..subject.placement(params.fresh_limbs()) };
    let [plain, .., both] = placements(&placement);
    let (keys, sent, counts, folder) = subject.under_a_key(&params, &both);
    let run = |placement: Placement| {
        let start = keys.on.evaluator().counters().snapshot();
        let how = (placement, AnswerRows::Last);
        let found = subject.run_at(&keys.on, sent.clone(), how, nothing());
        let done = keys.on.evaluator().counters().snapshot().since(&start);
        (found.unwrap().vectors, done)
    };
    let (before, one) = run(plain);
    assert_eq!(keys.on.spilled().written, 0);
    let (after, two) = run(both);
    assert_eq!(one, two);
    assert_eq!(before.len(), after.len());
    for (one, two) in before.iter().zip(&after) {
        assert!(one.a() == two.a() && one.b() == two.b());
    }
    let bytes = |op: Op| -> u64 {
        let those = counts.operations.iter().filter(|c| c.op == op);
        those.map(|c| c.times * Ciphertext::list_bytes(&params, c.limbs, 1) as u64).sum()
    };
    let used = keys.on.spilled();
    assert_eq!((used.written, used.read, used.peak), (bytes(Op::Store), bytes(Op::Load), counts.disk));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

    subject.assert_answers(&keys, &before);
}

/// A model of 256 columns, 4 heads of 64 and 4 layers over texts of 128 rows, at N = 2^16: the bootstraps of a batch,
/// and the cost of its operations by the price table (an estimate, printed).
#[test]
fn what_a_batch_of_256_columns_takes() {
    let config = NetworkConfig { layers: 4, width: 256, hidden: 704, positions: 128, ..config(4, 4) };
    let program = network(&config, 1).program_of_all_rows();
    let params = CkksParams::preset("n16-boot-14x40").unwrap();
    let norm = crate::NormChoice { scale: 0.01, low: 0.02, bound: 4.0, seed: 15, steps: 1 };
    let interval = crate::Interval::from([-6.0, 6.0]);
    for degree in [15, 31] {
        let layer = crate::DecoderLayerChoice {
            attention_norm: norm.clone(),
            scores: crate::ScoresChoice::Sigmoid(crate::SigmoidChoice { degree, heads: vec![interval; 4] }),
            attention_sub_norm: None,
            attention_bound: 8.0,
            feed_forward_norm: norm.clone(),
            activation: crate::ActivationChoice { degree, columns: vec![interval.into(); 704] },
            feed_forward_sub_norm: None,
            feed_forward_bound: 8.0,
        };
        let mut choices = Choices::unnamed(128, Vec::new(), None);
        choices.decoder = Some(crate::DecoderChoice { layers: vec![layer; 4], norm: norm.clone() });
        let levels = crate::ops::activation::levels(degree);
        let count = |placement: Placement| {
            let on = Simulator::new(&params, params.slots()).unwrap().counting();
            let layout = Interleave::new(params.slots(), 128).unwrap();
            let limbs = placement.upload;
            let read = (layout, AnswerRows::Last, None);
            let mut pass = Pass::last(&on, (&program, &choices), placement, read, 1.0).unwrap();
            let columns = (0..256).map(|_| on.vector(Vec::new(), limbs).unwrap());
            pass.run(columns.collect()).unwrap();
            on.tally().counts()
        };
        let (floor, top) = (params.bootstrap_limbs(), params.fresh_limbs());
        // The floor, and the levels of a half whose last map is ternary.
        let limbs = floor + 5 + levels;
        let placement = Placement {
            upload: limbs,
            attention: limbs,
            feed_forward: floor + 3 + levels,
            ..Placement::plain(top, 128, 64)
        };
        // Peaks of one thread, as in a plan.
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build();
        let [counts, .., spilled] = alone.unwrap().install(|| placements(&placement).map(count));
        // In GiB: a residue is 2^16 words of 8 bytes.
        let gib = [&counts, &spilled].map(|counts| counts.peak() as f64 / 2048.0);
        println!("degree {degree}: {:.2} GiB of vectors, {:.2} with a disk", gib[0], gib[1]);
        assert_eq!(spilled.total(Op::Bootstrap), counts.total(Op::Bootstrap));
        assert_eq!(spilled.rotations, counts.rotations);
        assert!(gib[0] < 15.7 && gib[1] < 7.0, "{gib:?}");
        // Columns seven times, two per bootstrap; the statistics of nine norms; and the roots that come in below their
        // columns: all but the last norm's, and with degree 15 those before feed-forward only in the last layer.
        let roots = if degree == 15 { 4 + 1 } else { 8 };
        assert_eq!(counts.total(Op::Bootstrap), 7 * 128 + 9 + roots);
        let prices = crate::plan::reference(1);
        let cost = |count: &crate::simulate::Count| prices.seconds(count.op, count.limbs) * count.times as f64;
        let seconds: f64 = counts.operations.iter().map(cost).sum();
        println!(
            "degree {degree}: {:.2} bootstraps and {:.1} core-s a text (estimate)",
            counts.total(Op::Bootstrap) as f64 / 256.0,
            seconds / 256.0
        );
    }
}
