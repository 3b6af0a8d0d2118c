//! Plans of models whose counts can be computed by hand, and the search under bounds.

use hushed_ckks::CkksParams;
use hushed_ckks::keys::KeySpecs;
use hushed_model::testing::{long, published_generator_of_all_rows, tiny_generator};
use hushed_model::{Network, NetworkConfig, Pool, Program, random_network, random_vit, vit_shapes};

use super::*;
use crate::choices::{ChoicesError, HeadChoice, ScoresChoice};
use crate::plan::public_plan::Lengths;
use crate::simulate::Op;

/// Two small layers: a dry run takes milliseconds.
pub(crate) fn small() -> Network {
    merged(2, &[])
}

/// This many small layers, some with a map for their feed-forward.
fn merged(layers: usize, merged: &[usize]) -> Network {
    let config = NetworkConfig {
        layers,
        merged: merged.to_vec(),
        width: 32,
        heads: 4,
        hidden: 64,
        vocabulary: 8,
        positions: 16,
        ..NetworkConfig::large()
    };
    random_network(&config, Pool::Mean, 1)
}

pub(crate) fn options(lengths: Lengths) -> FheOptions {
    FheOptions {
        rows: 16,
        texts: usize::MAX,
        lengths,
        answer: AnswerRows::Last,
        max_memory: None,
        per_place: 1,
        uplink: f64::INFINITY,
        prices: reference(1),
        placement: None,
    }
}

fn plan(options: &FheOptions) -> Result<FhePlanReport, FheError> {
    plan_of(&small(), options)
}

fn plan_of(network: &Network, options: &FheOptions) -> Result<FhePlanReport, FheError> {
    let params = CkksParams::n16_boot().map_err(hushed_ckks::CkksError::from)?;
    let program = network.program_of_all_rows();
    let choices = assumed_choices(&program, options.rows);
    FhePlanReport::new(&program, &choices, true, &params, &KeySpecs::new(), options)
}

/// A dry run counts stand-ins, which fit anything: a calibration of which a function has no fit is refused all the
/// same, by the step and the function.
/// A slower machine takes longer for everything, and makes the same choices.
#[test]
fn a_plan_of_a_slower_machine_is_the_same_with_other_seconds() {
    let usual = options(Lengths::Private);
    let slower = FheOptions { prices: reference(1).at_pace(3.0), ..usual.clone() };
    let (usual, slower) = (plan(&usual).unwrap(), plan(&slower).unwrap());
    assert_eq!(slower.placement, usual.placement);
    assert!((slower.work.seconds / usual.work.seconds - 3.0).abs() < 1e-9);
    assert!((slower.work.bootstrap_seconds / usual.work.bootstrap_seconds - 3.0).abs() < 1e-9);
    assert_eq!((usual.prices.pace, slower.prices.pace), (1.0, 3.0));
}

#[test]
fn a_calibration_without_a_fit_is_refused_by_name() {
    let program = small().program_of_all_rows();
    let good = assumed_choices(&program, 16);
    let params = CkksParams::n16_boot().unwrap();
    let (keys, options) = (KeySpecs::new(), options(Lengths::Public));
    let plan = |choices: &Choices, assumed| FhePlanReport::new(&program, choices, assumed, &params, &keys, &options);
    plan(&good, false).unwrap();
    // Relative to the least row maximum, the weights of its errors are infinite.
    let mut steep = good.clone();
    let HeadChoice::Softmax { scores, least_maximum, .. } = &mut steep.layers[1].attention.heads[2] else {
        panic!("a fixed pattern");
    };
    (scores.low, *least_maximum) = (-1500.0, -1490.0);
    // No root is fitted from above its range.
    let mut high = good.clone();
    high.layers[0].feed_forward_norm.low = 2.0;
    let mut unknown = good;
    let widest = &mut unknown.layers[1].activation.columns[5];
    (widest.high, widest.mean) = (9.0, f64::NAN);
    for (choices, at) in
        [(steep, "layer.1.attention"), (high, "layer.0.feed_forward.norm"), (unknown, "layer.1.feed_forward")]
    {
        plan(&choices, true).unwrap();
        let refused = plan(&choices, false).err().unwrap();
        let text = refused.to_string();
        let FheError::Choices(ChoicesError::Unfit { step, .. }) = refused else {
            panic!("{text}");
        };
        assert_eq!(step.to_string(), at);
        assert!(text.contains(at) && text.contains("hushed calibrate"), "{text}");
        let goal = Goal::Latency.plan((&program, &choices, false), &params, &keys, &options);
        assert_eq!(goal.err().unwrap().to_string(), text);
    }
}

/// Each goal chooses the plan that minimises it; few texts have the lowest latency.
#[test]
fn a_curve_has_a_plan_for_every_number_of_texts() {
    let network = small();
    let params = CkksParams::n16_boot().unwrap();
    let program = network.program_of_all_rows();
    let options = options(Lengths::Public);
    let choices = assumed_choices(&program, options.rows);
    let keys = KeySpecs::new();
    let curve = |goal: Goal, options: &FheOptions| {
        let model = (&program, &choices, true);
        goal.plan(model, &params, &keys, options).unwrap()
    };
    let soonest = curve(Goal::Latency, &options);
    let texts: Vec<usize> = soonest.points.iter().map(|p| p.texts).collect();
    // Sixteen places for all columns, or four for one head; then a batch.
    assert_eq!(texts, [128, 256, 512, 2048]);
    assert_eq!(soonest.report.texts, 128);
    assert_eq!(soonest.options.placement.unwrap().columns, 16);
    for (curve, cost) in [
        (soonest.points, (|p| p.seconds) as fn(&CurvePoint) -> f64),
        (curve(Goal::Throughput, &options).points, |p| p.seconds_per_text),
    ] {
        let chosen = curve.iter().find(|p| p.chosen).unwrap();
        assert_eq!(curve.iter().filter(|p| p.chosen).count(), 1);
        assert!(curve.iter().all(|p| cost(chosen) <= cost(p)));
    }
    // The same with private lengths.
    let private = FheOptions { lengths: Lengths::Private, ..options };
    let private = curve(Goal::Latency, &private).points;
    let texts: Vec<usize> = private.iter().map(|p| p.texts).collect();
    assert_eq!(texts, [128, 256, 512, 2048]);
}

#[test]
fn a_plan_counts_what_the_circuit_does() {
    let plan = plan(&options(Lengths::Public)).unwrap();
    assert_eq!((plan.texts, plan.places, plan.layers), (2048, 2048, 2));
    // Two refreshes of the columns in the first layer and one in the last, two columns per bootstrap.
    assert_eq!(plan.work.bootstraps_wide, 3 * 16);
    // A layer has two sums per head, two of which share a bootstrap, and two variances.
    assert_eq!(plan.work.bootstraps_narrow, 2 * (4 + 2));
    // Query, key, value, output, up, down.
    assert_eq!(plan.work.linear_terms, 2 * (4 * 32 * 32 + 2 * 32 * 64));
    let levels = CkksParams::n16_boot().unwrap().levels();
    for step in &plan.steps {
        let inside = |level: Option<usize>| level.is_none_or(|l| l <= levels);
        assert!(inside(step.level_before) && inside(step.level_after), "{step:?}");
        assert!(step.refreshed.iter().all(|r| r.1 <= levels), "{step:?}");
    }
    let all = (0..2).map(Some).chain([None]);
    let of_layers: f64 = all.flat_map(|layer| plan.ledger(layer)).map(|step| step.work.seconds).sum();
    assert!((of_layers - plan.work.seconds).abs() < 1e-6 * plan.work.seconds);
    assert!(plan.failure_log2 < -100.0 && plan.memory.total() > plan.memory.vectors);
    let p = &plan.placement;
    assert!(p.attention <= 18 && p.feed_forward < p.attention);
    // Nothing of the choices except their counts.
    let text = serde_json::to_string(&plan).unwrap();
    assert!(!text.contains("least_maximum") && !text.contains("\"low\""));
}

/// A reply is shortened before it leaves: a plan's bytes are those of the form stated to clients.
#[test]
fn the_bytes_of_a_reply_are_those_that_leave() {
    let (network, options) = (small(), options(Lengths::Public));
    let plan = plan_of(&network, &options).unwrap();
    let params = CkksParams::n16_boot().unwrap();
    let program = network.program_of_all_rows();
    let choices = assumed_choices(&program, options.rows);
    let run = dry_run(&program, &choices, &params, &options, &plan.placement).unwrap();
    let form = reply_form(&program, &choices, &params, &run, AnswerRows::Last).unwrap();
    let bytes = |limbs: usize| Ciphertext::list_bytes(&params, limbs, form.ciphertexts) as u64;
    assert_eq!((plan.reply, plan.bytes_down), (form, bytes(form.limbs)));
    assert_eq!(plan.reply_bits, form.bits(&params));
    assert!(form.limbs < run.reply_limbs && plan.bytes_down < bytes(run.reply_limbs));
}

#[test]
fn memory_is_a_limit() {
    let free = plan(&options(Lengths::Public)).unwrap();
    let tight = |bytes: u64| plan(&FheOptions { max_memory: Some(bytes), ..options(Lengths::Public) });
    let less = free.memory.total() - 1;
    match tight(less) {
        Ok(plan) => assert!(plan.memory.total() <= less),
        Err(error) => assert!(matches!(error, FheError::Unsupported { .. }), "{error}"),
    }
    assert!(matches!(tight(1 << 30), Err(FheError::Unsupported { .. })));
}

/// The visits to a step add up to the step, with nothing on disk and with both halves of a layer there, with public and
/// with private rows; and steps are visited more than once.
#[test]
fn visits_add_up_to_steps() {
    for lengths in [Lengths::Public, Lengths::Private] {
        let free = plan(&options(lengths)).unwrap();
        let spills = Placement { spill_attention: true, spill_feed_forward: true, ..free.placement.clone() };
        let spills = plan(&FheOptions { placement: Some(spills), ..options(lengths) });
        let low = plan(&FheOptions {
            placement: Some(Placement { upload: free.placement.attention, ..free.placement.clone() }),
            ..options(lengths)
        });
        for plan in [free, spills.unwrap(), low.unwrap()] {
            let table = &plan.timetable;
            // Steps are in the order of a run, after the one that a dry run lacks.
            let first = |step: &Step| table.visits().position(|(site, _)| site == step.site);
            assert!(plan.steps[1..].is_sorted_by_key(first));
            for step in &plan.steps {
                let visits = table.visits().filter(|(site, _)| *site == step.site);
                let sum: f64 = visits.map(|(_, seconds)| seconds).sum();
                let planned = step.work.seconds;
                let off = (sum - planned).abs();
                assert!(off <= 1e-9 * planned, "{} {sum} {planned}", step.site);
            }
            assert!((table.seconds() - plan.work.seconds).abs() < 1e-9 * plan.work.seconds);
            let scores = table.visits().filter(|v| v.0.to_string() == "layer.0.attention.scores");
            assert!(scores.count() > 4);
            // 32 columns, and no more than all of them.
            let refresh = "layer.0.attention.norm.refresh";
            let refresh = table.visits().position(|v| v.0.to_string() == refresh).unwrap();
            let done = [0, 16, 32, 64].map(|columns| table.done_of(refresh, columns));
            assert_eq!((done[0], done[2]), (0.0, done[3]));
            assert!(done[2] > 0.0 && (2.0 * done[1] - done[2]).abs() < 1e-9);
            assert!(done[2] <= table.seconds_of(refresh));
            // What is made of a mask of real rows comes first, and the mask is refreshed if it was uploaded with too
            // few primes for a norm.
            let at = &plan.placement;
            let few = at.upload < at.attention.max(at.statistics + 1);
            let first: Vec<String> = table.visits().map(|v| v.0.to_string()).take(3).collect();
            let rows = first.iter().filter(|site| *site == "input.rows").count();
            let hides = lengths == Lengths::Private;
            assert_eq!(rows, usize::from(hides), "{first:?} {at:?}");
            let of_rows = plan.steps.iter().find(|step| step.site.to_string() == "input.rows");
            assert_eq!(of_rows.is_some_and(|step| !step.refreshed.is_empty()), few && hides);
            assert_eq!((&*first[0], &*first[1 + rows]), ("input", "input.columns"));
        }
    }
}

/// With less and less memory more goes to disk, until nothing fits; a plan's time and bytes include what it says of the
/// disk.
#[test]
fn what_does_not_fit_goes_to_disk() {
    let free = plan(&options(Lengths::Public)).unwrap();
    assert!(!free.placement.spills() && (free.disk, free.work.disk_bytes) == (0, 0));
    let mut spilled = 0;
    for parts in (70..100).rev().step_by(3) {
        let limit = free.memory.total() / 100 * parts;
        let tight = plan(&FheOptions { max_memory: Some(limit), ..options(Lengths::Public) });
        let tight = match tight {
            Ok(plan) => plan,
            Err(error) => {
                assert!(matches!(error, FheError::Unsupported { .. }), "{error}");
                break;
            }
        };
        assert!(tight.memory.total() <= limit);
        assert_eq!(tight.placement.spills(), tight.disk > 0);
        let chosen = tight.alternatives.iter().filter(|a| a.chosen);
        assert!(chosen.clone().count() > 0);
        assert!(chosen.into_iter().all(|a| a.memory.is_some_and(|m| m <= limit)));
        let at_disk: u64 = tight.steps.iter().map(|s| s.work.disk_bytes).sum();
        assert_eq!(at_disk, tight.work.disk_bytes);
        assert!(at_disk >= 2 * tight.disk);
        assert!(tight.work.seconds >= at_disk as f64 / tight.prices.disk);
        spilled += usize::from(tight.placement.spills());
    }
    assert!(spilled > 0);
}

/// A plan that spills nothing is written as before spilling existed, so that it keeps its hash.
#[test]
fn a_placement_from_before_there_was_a_disk_is_one_without() {
    let plain = Placement::plain(18, 16, 8);
    let text = serde_json::to_string(&plain).unwrap();
    assert!(!text.contains("spill"));
    assert_eq!(serde_json::from_str::<Placement>(&text).unwrap(), plain);
    let spills = Placement { spill_attention: true, ..plain };
    let text = serde_json::to_string(&spills).unwrap();
    assert_eq!(serde_json::from_str::<Placement>(&text).unwrap(), spills);
    let prices = serde_json::to_value(reference(1)).unwrap();
    let mut before = prices.clone();
    before.as_object_mut().unwrap().remove("disk");
    assert_eq!(serde_json::from_value::<Prices>(before).unwrap(), reference(1));
}

#[test]
fn a_slow_uplink_is_spared() {
    let with = |uplink: f64| plan(&FheOptions { uplink, ..options(Lengths::Private) }).unwrap();
    let (fast, slow) = (with(f64::INFINITY), with(1e4));
    assert!(slow.bytes_up < fast.bytes_up);
    assert!(slow.work.bootstraps_wide > fast.work.bootstraps_wide);
    let hides = |e: &FheExposure| e.sees.contains("at most 16");
    assert!(fast.exposures.iter().any(hides));
}

/// The search looks at few layers; they include one with a feed-forward, wherever it is.
#[test]
fn layers_merged_into_a_map_may_be_the_first() {
    let none: &[usize] = &[];
    let costs = [none, &[2], &[0], &[0, 1], &[0, 1, 2, 3]].map(|places| {
        let plan = plan_of(&merged(4, places), &options(Lengths::Public));
        plan.unwrap().work.seconds
    });
    let alike = (costs[1] - costs[2]).abs() < 1e-9 * costs[1];
    assert!(alike, "one of four, not the last: {costs:?}");
    assert!(costs.is_sorted_by(|a, b| a >= b), "{costs:?}");
}

#[test]
fn a_pruned_block_is_listed() {
    let sees = |places: &[usize]| {
        let plan = plan_of(&merged(2, places), &options(Lengths::Private)).unwrap();
        let listed = |e: &&FheExposure| e.sees.contains("one linear layer");
        plan.exposures.iter().find(listed).map(|e| e.sees.clone())
    };
    assert_eq!(sees(&[]), None);
    assert!(sees(&[1]).unwrap().ends_with(": 1"));
}

/// Rotations are those stated for attention's products on pairs of columns; a conjugation per diagonal, pair and
/// refreshed sum; one per pair of uploaded columns; and log2(m) per column for the pooling.
#[test]
fn rotations_are_those_of_the_products() {
    let plan = plan(&options(Lengths::Public)).unwrap();
    let (m, pairs, heads) = (16, 8 / 2, 4);
    let (b, c) = (plan.placement.scores_baby, plan.placement.attend_baby);
    // Baby steps of K, giant steps of Q, results and their real parts; then diagonals, columns, sums, parts.
    let scores = pairs * (b - 1 + m / b - 1) + (m - b) + m;
    let attend = (m - c) + pairs * (c - 1) + pairs * (m / c - 1) + pairs;
    let sums = 2;
    let parted = 32 / 2;
    let pooled = 32 * 4;
    let expected = 2 * heads * (scores + sums + attend) + parted + pooled;
    assert_eq!(plan.work.rotations, expected as u64);
}

#[test]
fn prices_are_on_lines_between_what_was_measured() {
    let prices = reference(1);
    let [first, second] = [prices.by_limbs[0], prices.by_limbs[1]];
    let middle = (first.limbs + second.limbs) / 2;
    let found = prices.seconds(Op::Rotate, middle);
    assert!(first.rotate_hoisted < found && found < second.rotate_hoisted);
    assert_eq!(prices.seconds(Op::Rotate, first.limbs), first.rotate_hoisted);
    assert!(prices.seconds(Op::Bootstrap, 18) > prices.seconds(Op::Bootstrap, 6));
    assert!(reference(2).seconds(Op::Bootstrap, 18) < prices.seconds(Op::Bootstrap, 18));
    let text = serde_json::to_string(&prices).unwrap();
    assert_eq!(serde_json::from_str::<Prices>(&text).unwrap(), prices);
}

/// A vision transformer: the sums after blocks are refreshed and nothing after norms, one norm is after the layers, and
/// the client's columns are sent with the level that centres them.
#[test]
fn images_are_planned_with_norms_before_their_blocks() {
    let config =
        NetworkConfig { layers: 2, width: 32, heads: 4, hidden: 64, positions: 17, ..NetworkConfig::vit_base() };
    let program = random_vit(&config, 1).program_of_all_rows();
    let params = CkksParams::n16_boot().map_err(hushed_ckks::CkksError::from).unwrap();
    let choices = assumed_choices(&program, 32);
    let options = FheOptions { rows: 32, ..options(Lengths::Public) };
    let plan = FhePlanReport::new(&program, &choices, true, &params, &KeySpecs::new(), &options).unwrap();
    assert_eq!((plan.layers, plan.logits), (2, Some(1000)));
    assert!(plan.placement.upload > params.bootstrap_limbs());
    let wide = plan.steps.iter().filter(|step| step.refreshed.iter().any(|(vectors, _)| *vectors == 32));
    let wide: Vec<String> = wide.map(|step| step.site.to_string()).collect();
    let sums = ["attention.add.refresh", "feed_forward.add.refresh"];
    let expected: Vec<String> = (0..2).flat_map(|i| sums.map(|sum| format!("layer.{i}.{sum}"))).collect();
    let inside = |site: &&String| site.starts_with("layer");
    assert_eq!(wide.iter().filter(inside).cloned().collect::<Vec<_>>(), expected);
    let sees = plan.exposures.iter().map(|e| e.sees.as_str()).collect::<Vec<_>>().join("\n");
    assert!(sees.contains("map of patches") && !sees.contains("number of tokens"));
}

/// Packed rows leave a decoder fewer levels than the assumed degrees take.
pub(crate) fn shallow(program: &Program, rows: usize) -> Choices {
    let mut choices = assumed_choices(program, rows);
    for layer in choices.decoder.iter_mut().flat_map(|d| &mut d.layers) {
        if let ScoresChoice::Sigmoid(sigmoid) = &mut layer.scores {
            sigmoid.degree = 7;
        }
        layer.activation.degree = 7;
    }
    choices
}

/// Plans a published model, and prints what it costs.
fn costs(program: &Program, options: &FheOptions) -> FhePlanReport {
    let params = CkksParams::n16_boot().unwrap();
    let choices = assumed_choices(program, options.rows);
    let (_, keys) = crate::run::job::bootstrap(&params).unwrap();
    let mut options = options.clone();
    if options.texts == 1 {
        options.placement = packed_placement(program, &choices, &params, &options).unwrap();
    }
    let plan = FhePlanReport::new(program, &choices, true, &params, &keys, &options).unwrap();
    println!(
        "{} of {} rows: {:.0} core-seconds, {} bootstraps, {} key switches, {:.1} GiB of memory, {:.2} GiB of keys, {:.1} MiB up, {:.1} MiB down, {:?}",
        plan.texts,
        plan.rows,
        plan.work.seconds,
        plan.work.bootstraps(),
        plan.work.key_switches(),
        plan.memory.total() as f64 / f64::from(1 << 30),
        plan.key_bytes as f64 / f64::from(1 << 30),
        plan.bytes_up as f64 / f64::from(1 << 20),
        plan.bytes_down as f64 / f64::from(1 << 20),
        plan.placement
    );
    plan
}

/// ViT-base with 1000 classes, a batch and one image: what plans of it cost.
#[test]
fn a_published_vision_transformer_is_planned() {
    if !long() {
        return;
    }
    let config = NetworkConfig::vit_base();
    let thin = random_vit(&NetworkConfig { layers: 1, hidden: 1, ..config.clone() }, 1);
    let mut vision = vit_shapes(&config);
    // Numbers of norms, in the place of shapes alone.
    let norms = vision.layers.iter_mut().flat_map(|layer| [&mut layer.attention_norm, &mut layer.feed_forward_norm]);
    norms.chain([&mut vision.norm]).for_each(|norm| norm.clone_from(&thin.norm));
    vision.classes = thin.classes;
    let program = vision.program_of_all_rows();
    for texts in [usize::MAX, 1] {
        let plan = costs(&program, &FheOptions { rows: 256, texts, ..options(Lengths::Public) });
        assert_eq!((plan.layers, plan.width, plan.logits), (12, 768, Some(1000)));
    }
}

/// A published generator, a batch that is answered with last rows: what a plan of it costs.
#[test]
fn a_published_generator_is_planned() {
    if !long() {
        return;
    }
    let plan = costs(&published_generator_of_all_rows(), &FheOptions { rows: 128, ..options(Lengths::Private) });
    assert_eq!((plan.layers, plan.width, plan.logits), (12, 768, None));
}

/// A decoder with LayerNorm: its stream is refreshed after sums, columns are not put in pairs, and one prompt alone is
/// refused by name. Its logits take a level more.
#[test]
fn a_decoder_with_layer_norm_is_planned_for_a_batch() {
    let program = tiny_generator().program_of_all_rows();
    let params = CkksParams::n16_boot().unwrap();
    let choices = assumed_choices(&program, 16);
    let options = options(Lengths::Private);
    for (answer, logits) in [(AnswerRows::Last, None), (AnswerRows::Rows, None), (AnswerRows::Logits, Some(263))] {
        let options = FheOptions { answer, ..options.clone() };
        let plan = FhePlanReport::new(&program, &choices, true, &params, &KeySpecs::new(), &options).unwrap();
        assert_eq!((plan.layers, plan.answer, plan.logits), (2, Some(answer), logits));
        assert!(!plan.placement.pairs && plan.alternatives.iter().all(|tried| !tried.placement.pairs));
        let wide = plan.steps.iter().filter(|step| step.refreshed.iter().any(|(vectors, _)| *vectors == 32));
        let sites = wide.map(|step| step.site.to_string()).filter(|site| site.starts_with("layer"));
        assert!(sites.clone().count() == 4 && sites.clone().all(|site| site.ends_with(".add.refresh")));
    }
    let one = FheOptions { texts: 1, ..options };
    let refused = packed_placement(&program, &choices, &params, &one).unwrap_err().to_string();
    assert!(refused.contains("in packed rows"), "{refused}");
}
