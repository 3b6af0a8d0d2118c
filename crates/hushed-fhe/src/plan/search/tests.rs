//! The search compared with all placements of small programs, and its errors if none exists.

use hushed_ckks::keys::KeySpecs;
use hushed_model::testing::{long, ternary_config, ternary_network};
use hushed_model::{NetworkConfig, Pool, Weigh, random_network};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseError};

use crate::choices::ScoresChoice;
use crate::dry::counted;
use crate::plan::public_plan::Lengths;
use crate::plan::tests::options;
use crate::plan::*;

/// A layer and the steps around it: at most ten steps.
struct Subject {
    params: Arc<CkksParams>,
    program: Program,
    choices: Choices,
    rows: usize,
    lengths: Lengths,
}

impl Subject {
    fn plan(&self, asked: FheOptions) -> Result<FhePlanReport, FheError> {
        let (program, choices) = (&self.program, &self.choices);
        let asked = FheOptions { rows: self.rows, lengths: self.lengths, ..asked };
        let keys = KeySpecs::new();
        FhePlanReport::new(program, choices, true, &self.params, &keys, &asked)
    }

    fn at(&self, placement: Placement) -> Option<FhePlanReport> {
        let placement = Some(placement);
        let asked = FheOptions { placement, ..options(Lengths::Public) };
        self.plan(asked).ok()
    }
}

/// The numbers that determine the levels of a layer.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    heads: usize,
    degrees: [usize; 2],
    steps: [usize; 3],
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let degrees = prop::array::uniform2(prop::sample::select(vec![3usize, 5, 7, 12]));
    let all = (1..4usize, degrees, prop::array::uniform3(1..4usize));
    all.prop_map(|(heads, degrees, steps)| Drawn { heads, degrees, steps })
}

fn of_each_kind() -> impl Strategy<Value = [Drawn; KINDS]> {
    prop::array::uniform4(drawn())
}

/// An encoder with public lengths, a decoder with either attention (the softmax reads which rows are tokens), and an
/// encoder with private lengths.
const KINDS: usize = 4;

fn subject(kind: usize, drawn: Drawn, (rows, hidden): (usize, usize)) -> Subject {
    let Drawn { heads, degrees: [exponential, activation], steps: [first, second, root] } = drawn;
    let config = NetworkConfig {
        layers: 1,
        width: 2 * heads,
        heads,
        hidden,
        vocabulary: 4,
        positions: rows,
        ..NetworkConfig::large()
    };
    let program = match kind {
        0 | 3 => random_network(&config, Pool::Mean, 1).program_of_all_rows(),
        _ => {
            let sigmoid = Weigh::Sigmoid { bias: -2.0 };
            let config = NetworkConfig {
                layers: 1,
                width: 4 * heads,
                hidden,
                positions: rows,
                weigh: if kind == 1 { sigmoid } else { Weigh::Softmax },
                ..ternary_config(heads, heads)
            };
            ternary_network(&config, 1).program_of_all_rows()
        }
    };
    let mut choices = assumed_choices(&program, rows);
    let softmax = |a: &mut crate::AttentionChoice| {
        (a.degree, a.first_steps, a.second_steps) = (exponential, first + 2, second + 2);
    };
    for layer in &mut choices.layers {
        softmax(&mut layer.attention);
        layer.activation.degree = activation;
        for norm in [&mut layer.attention_norm, &mut layer.feed_forward_norm] {
            (norm.seed, norm.steps) = (3, root);
        }
    }
    for layer in choices.decoder.iter_mut().flat_map(|d| &mut d.layers) {
        match &mut layer.scores {
            ScoresChoice::Softmax(a) => softmax(a),
            ScoresChoice::Sigmoid(s) => s.degree = exponential,
        }
        layer.activation.degree = activation;
        for norm in [&mut layer.attention_norm, &mut layer.feed_forward_norm] {
            (norm.seed, norm.steps) = (3, root);
        }
    }
    Subject {
        params: CkksParams::n16_boot().unwrap(),
        program,
        choices,
        rows,
        lengths: match kind {
            0 | 1 => Lengths::Public,
            _ => Lengths::Private,
        },
    }
}

/// The same programs each time, and others at each run of the long form. There are programs for which the search misses
/// something quicker: one was drawn, of a single layer, that another placement runs in 18 % less time.
fn one_draw() -> ProptestConfig {
    let rng_seed = match long() {
        true => RngSeed::Random,
        false => RngSeed::Fixed(1),
    };
    ProptestConfig { cases: 1, rng_seed, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(one_draw())]

    #[test]
    fn no_levels_are_cheaper(drawn in of_each_kind()) {
        for (kind, drawn) in drawn.into_iter().enumerate() {
            levels(kind, drawn)?;
        }
    }

    #[test]
    fn no_sizes_are_cheaper(drawn in of_each_kind()) {
        for (kind, drawn) in drawn.into_iter().enumerate() {
            sizes(kind, drawn)?;
        }
    }
}

/// Over all primes of an upload, of columns before either half and of statistics, no placement that runs is quicker
/// than the one found.
fn levels(kind: usize, drawn: Drawn) -> Result<(), TestCaseError> {
    let subject = subject(kind, drawn, (2, 4));
    let found = subject.plan(options(Lengths::Public)).unwrap();
    let best = &found.placement;
    let on = Simulator::new(&subject.params, subject.params.slots()).unwrap();
    let primes = on.floor()..=on.top();
    let mut ran = 0;
    for statistics in primes.clone() {
        for attention in primes.clone() {
            // A placement that does not run with a feed-forward at the top runs with no other.
            let at = |upload, feed_forward| Placement { upload, attention, feed_forward, statistics, ..best.clone() };
            if subject.at(at(attention, on.top())).is_none() {
                continue;
            }
            for feed_forward in primes.clone() {
                for upload in [on.floor(), attention, on.top()] {
                    let Some(other) = subject.at(at(upload, feed_forward)) else {
                        continue;
                    };
                    ran += 1;
                    prop_assert!(
                        other.work.seconds >= found.work.seconds * (1.0 - 1e-9),
                        "{kind}: {} s and not {} s with {:?}, found {best:?}",
                        other.work.seconds,
                        found.work.seconds,
                        other.placement
                    );
                }
            }
        }
    }
    prop_assert!(ran > 0, "{drawn:?}");
    Ok(())
}

/// At the levels found, with anything on disk, no sizes are quicker if memory is unlimited. With less and less memory,
/// down to a fiftieth above the minimum of any sizes, there is a plan, and none that fits is much quicker.
fn sizes(kind: usize, drawn: Drawn) -> Result<(), TestCaseError> {
    let subject = subject(kind, drawn, (8, 32));
    let free = subject.plan(options(Lengths::Public)).unwrap();
    let floor = Simulator::new(&subject.params, subject.params.slots()).unwrap().floor();
    let mut all = Vec::new();
    for upload in [floor, free.placement.upload] {
        let spills = [(false, false), (false, true), (true, false), (true, true)];
        for (spill_attention, spill_feed_forward) in spills {
            for scores_baby in [1, 2, 4, 8] {
                for attend_baby in [1, 2, 4, 8] {
                    for heads_together in [1, 2, 4] {
                        let other = Placement {
                            upload,
                            spill_attention,
                            spill_feed_forward,
                            scores_baby,
                            attend_baby,
                            heads_together,
                            ..free.placement.clone()
                        };
                        all.extend(subject.at(other));
                    }
                }
            }
        }
    }
    let least = all.iter().map(|p| p.memory.total()).min().unwrap();
    // Sizes shrink one after another, which may not reach the exact minimum.
    let least = least + least / 50;
    let most = free.memory.total();
    for part in 0..=8 {
        let room = least + most.saturating_sub(least) * part / 8;
        let those = all.iter().filter(|p| p.memory.total() <= room).map(|p| p.work.seconds);
        let quickest = those.fold(f64::INFINITY, f64::min);
        let asked = FheOptions { max_memory: Some(room), ..options(Lengths::Public) };
        // Shrinking step by step is not exact: at most three hundredths dearer.
        let found = subject.plan(asked).unwrap();
        prop_assert!(found.memory.total() <= room);
        prop_assert!(
            found.work.seconds <= quickest * 1.03,
            "{} s and not {quickest} s in {room}: {:?}",
            found.work.seconds,
            found.placement
        );
    }
    let quickest = all.iter().map(|p| p.work.seconds).fold(f64::INFINITY, f64::min);
    // More heads at a time are taken for half a hundredth each, not for less.
    prop_assert!(free.work.seconds <= quickest * 1.01, "{:?}", free.placement);
    Ok(())
}

/// A dry run counts a function once for all equal vectors: counts, visits, peaks and keys equal those of counting each.
#[test]
fn a_function_counted_once_is_counted_as_often() {
    for kind in 0..KINDS {
        let drawn = Drawn { heads: 3, degrees: [5, 12], steps: [2, 3, 1] };
        let subject = subject(kind, drawn, (8, 32));
        let (program, choices) = (&subject.program, &subject.choices);
        let mut asked = FheOptions { rows: 8, texts: 1, ..options(subject.lengths) };
        let on = || Simulator::new(&subject.params, subject.params.slots()).unwrap().counting();
        let mut placements = vec![Placement::plain(on().top(), 8, 4)];
        if kind == 0 {
            let packed = packed_placement(program, choices, &subject.params, &asked);
            placements.extend(packed.unwrap());
            assert_eq!(placements.len(), 2);
        }
        asked.texts = usize::MAX;
        for placement in placements {
            // On one thread: with several, peaks depend on their pace.
            let alone = rayon::ThreadPoolBuilder::new().num_threads(1);
            let count = || counted(&on(), program, choices, &asked, &placement).unwrap();
            let each = alone.build().unwrap().install(count);
            let once = dry_run(program, choices, &subject.params, &asked, &placement).unwrap();
            assert!(each.counts.total(Op::Relinearise) > 0);
            assert_eq!(once.counts, each.counts);
            assert_eq!(
                (once.reply, once.reply_limbs, once.reply_scale),
                (each.reply, each.reply_limbs, each.reply_scale)
            );
        }
    }
}

/// Choices for which no number of primes suffices are refused by the step that lacks levels, with a remedy.
#[test]
fn levels_that_are_lacking_are_a_steps() {
    for kind in 0..KINDS {
        let drawn = Drawn { heads: 1, degrees: [5, 5], steps: [1, 1, 1] };
        for (half, name) in ["layer.0.attention", "layer.0.feed_forward"].iter().enumerate() {
            let mut subject = subject(kind, drawn, (2, 4));
            let Choices { layers, decoder, .. } = &mut subject.choices;
            let encoder = layers.iter_mut().map(|l| [&mut l.attention_norm, &mut l.feed_forward_norm]);
            let decoder = decoder.iter_mut().flat_map(|d| &mut d.layers);
            let decoder = decoder.map(|l| [&mut l.attention_norm, &mut l.feed_forward_norm]);
            // Two levels each.
            encoder.chain(decoder).for_each(|norms| norms[half].steps = 9);
            let refused = subject.plan(options(Lengths::Public)).err().unwrap();
            let text = refused.to_string();
            let FheError::Levels { step, needed, available } = refused else {
                panic!("{kind}: {text}");
            };
            assert!(step.to_string().starts_with(name), "{kind}: {text}");
            assert!(needed > available && text.contains("choose lower degrees or fewer steps"), "{text}");
        }
    }
}

/// With less memory than one vector per column needs, a decoder's columns are paired, and an encoder is refused.
#[test]
fn columns_come_in_pairs_where_memory_is_lacking() {
    let drawn = Drawn { heads: 32, degrees: [7, 7], steps: [1, 1, 1] };
    let [encoder, decoder] = [0, 1].map(|kind| subject(kind, drawn, (2, 32)));
    let free = decoder.plan(options(Lengths::Public)).unwrap();
    assert!(!free.placement.pairs);
    let floor = Simulator::new(&decoder.params, decoder.params.slots()).unwrap().floor();
    let least = |pairs| {
        let smallest = Placement {
            upload: floor,
            spill_attention: true,
            spill_feed_forward: true,
            scores_baby: 1,
            attend_baby: 1,
            heads_together: 1,
            hidden_block: 16,
            pairs,
            ..free.placement.clone()
        };
        let asked = FheOptions { placement: Some(smallest), ..options(Lengths::Public) };
        decoder.plan(asked).unwrap()
    };
    let (alone, paired) = (least(false), least(true));
    let [alone, less] = [&alone, &paired].map(|plan| plan.memory.total());
    assert!(less < alone, "{less} {alone}");
    assert!(paired.work.key_switches() > free.work.key_switches());
    let asked = |room| FheOptions { max_memory: Some(room), ..options(Lengths::Public) };
    let found = decoder.plan(asked(less + (alone - less) / 2)).unwrap();
    assert!(found.placement.pairs && found.memory.total() < alone);
    let refused = encoder.plan(asked(less / 2)).err().unwrap().to_string();
    assert!(refused.contains("allow more memory"), "{refused}");
    let placement = Some(found.placement);
    let asked = FheOptions { placement, ..options(Lengths::Public) };
    let refused = encoder.plan(asked).err().unwrap().to_string();
    assert!(refused.contains("columns in pairs"), "{refused}");
}
