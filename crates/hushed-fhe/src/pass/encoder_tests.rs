//! A whole small BERT in the simulator compared with the model in the clear.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_ckks::poly::Arithmetic;
use hushed_model::testing::{data_lines, tiny_config, tiny_golden};
use hushed_model::{
    Matrix, Model, Network, NetworkConfig, Pool, TokenIds, TooLong, cosine, plain as clear, random_network,
};

use super::*;
use crate::ops::pool::unpack;
use crate::packing::{Interleave, SequencePacking};
use crate::plan::public_plan::Lengths;
use crate::simulate::{Batch, Op, Vector};
use crate::testing::{Measured, Structure, largest, measure, packed, resumed};
use crate::{HeadChoice, Simulator};

const M: usize = 16;
const SLOTS: usize = 128;

fn layout() -> Interleave {
    Interleave::new(SLOTS, M).unwrap()
}

fn params() -> Arc<CkksParams> {
    CkksParams::insecure_test(10, 14).unwrap()
}

fn network(pool: Pool) -> Network {
    random_network(&tiny_config(), pool, 5)
}

/// Texts of different lengths, in all places but the last.
fn texts() -> Vec<TokenIds> {
    let config = tiny_config();
    let text = |(t, length): (usize, usize)| {
        let id = |i: usize| ((i * 31 + t * 17 + i * i * t) % config.vocabulary) as u32;
        TokenIds::new((0..length).map(id).collect())
    };
    [16, 3, 9, 1, 12, 5, 16].into_iter().enumerate().map(text).collect()
}

/// Embeds and normalises, as a client does.
fn embedded(network: &Network, texts: &[TokenIds]) -> Vec<Matrix<f64>> {
    let start = |text: &TokenIds| clear::start(&network.program_of_all_rows(), vec![text.clone()]).unwrap().values;
    texts.iter().map(start).collect()
}

/// The pooled rows from the simulator.
fn run(
    on: &Simulator,
    network: &Network,
    choices: &Choices,
    x: &[Matrix<f64>],
    private: bool,
) -> Result<Vec<Vec<f64>>, FheError> {
    run_bounded(on, network, choices, x, private, largest(x))
}

/// The same with another bound on the client's numbers.
fn run_bounded(
    on: &Simulator,
    network: &Network,
    choices: &Choices,
    x: &[Matrix<f64>],
    private: bool,
    bound: f64,
) -> Result<Vec<Vec<f64>>, FheError> {
    run_padded(on, network, choices, x, private, bound, |_, _, _| 0.0)
}

/// The same with `garbage` in padding rows.
fn run_padded(
    on: &Simulator,
    network: &Network,
    choices: &Choices,
    x: &[Matrix<f64>],
    private: bool,
    bound: f64,
    padding: impl Fn(usize, usize, usize) -> f64,
) -> Result<Vec<Vec<f64>>, FheError> {
    let lengths: Vec<usize> = x.iter().map(Matrix::rows).collect();
    let pooled = resumed(on, network, choices, x, private, bound, padding)?;
    if on.only_shapes() {
        return Ok(Vec::new());
    }
    let vectors: Vec<Vec<f64>> = pooled.vectors.iter().map(|v| v.values().to_vec()).collect();
    Ok(unpack(layout(), &lengths, pooled.width, pooled.factor, &vectors)?)
}

fn assert_close(found: &[Vec<f64>], expected: &[Vec<f64>], least: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let c = cosine(found, expected);
        assert!(c > least, "cosine {c}");
    }
}

fn measured(network: &Network, x: &[Matrix<f64>], structure: &Structure) -> Measured {
    measure(network, x, structure, M, (15, 15))
}

/// The answers of texts that share places, up to four in each.
fn shared(on: &Simulator, network: &Network, choices: &Choices, x: &[Matrix<f64>], bound: f64) -> Vec<Vec<f64>> {
    let width = network.layers[0].attention.heads.width;
    let placement = Placement { per_place: 4, ..Placement::plain(on.top(), M, width) };
    let program = network.program_of_all_rows();
    let batch = Batch { program: &program, choices, placement: &placement, lengths: Lengths::Public, bound };
    batch.run(on, M, x, None).unwrap()
}

/// Nothing of a text is in the answers of those that share its place: each is as it is alone, and as in the clear.
#[test]
fn texts_that_share_places_answer_as_they_do_alone() {
    let replaced = Structure { previous: vec![(0, 1)], frozen_layers: 1 };
    for (pool, structure) in
        [(Pool::Mean, Structure::default()), (Pool::First, Structure::default()), (Pool::Mean, replaced)]
    {
        let network = network(pool);
        let text = |(t, length): (usize, usize)| {
            let id = |i: usize| ((i * 31 + t * 17 + i * i * t) % tiny_config().vocabulary) as u32;
            TokenIds::new((0..length).map(id).collect())
        };
        let texts: Vec<TokenIds> = [16, 3, 9, 1, 12, 5, 4, 2, 7, 6].into_iter().enumerate().map(text).collect();
        let x = embedded(&network, &texts);
        let (measured, bound) = (measured(&network, &x, &structure), largest(&x));
        let on = || Simulator::new(&params(), SLOTS).unwrap();
        let found = shared(&on(), &network, &measured.choices, &x, bound);
        for (text, found) in x.iter().zip(&found) {
            let alone = shared(&on(), &network, &measured.choices, std::slice::from_ref(text), bound);
            let far = found.iter().zip(&alone[0]).fold(0.0_f64, |far, (a, b)| far.max((a - b).abs()));
            assert!(far < 1e-6, "{far:e}");
        }
        match structure.frozen_layers {
            0 => assert_close(&found, &plain(&network, &texts), 0.9999),
            _ => assert_close(&found, &measured.pooled, 0.9999),
        }
        // Five places instead of ten, with errors as small as those of texts alone.
        let noisy = shared(&on().with_errors(1), &network, &measured.choices, &x, bound);
        let apart = shared(&on().with_errors(1), &network, &measured.choices, &x[..1], bound);
        let error = |noisy: &[f64], exact: &[f64]| {
            let squares = noisy.iter().zip(exact).map(|(a, b)| (a - b).powi(2));
            (squares.sum::<f64>() / exact.len() as f64).sqrt()
        };
        let (most, one) =
            (noisy.iter().zip(&found).map(|(a, b)| error(a, b)).fold(0.0, f64::max), error(&apart[0], &found[0]));
        println!("errors {most:.1e}, alone {one:.1e}");
        assert!(most < 10.0 * one, "{most:e} and {one:e}");
    }
}

/// Places are shared only as a placement says, and not by a classifier's texts.
#[test]
fn places_are_shared_as_planned() {
    let on = Simulator::new(&params(), SLOTS).unwrap();
    let network = network(Pool::Mean);
    let x = embedded(&network, &texts());
    let measured = measured(&network, &x, &Structure::default());
    let program = network.program_of_all_rows();
    let pass = |per_place: usize, placed: usize| {
        let packing = SequencePacking::one_each(M, per_place, &[M, 3]).unwrap();
        let placement = Placement { per_place: placed, ..Placement::plain(on.top(), M, 8) };
        let rows = RowsKnown::shared(layout(), packing).unwrap();
        Pass::new(&on, &program, &measured.choices, placement, rows, 8.0).map(drop)
    };
    assert!(pass(1, 1).is_ok() && pass(2, 2).is_ok());
    for (per_place, placed) in [(1, 2), (2, 1), (3, 2)] {
        assert!(matches!(pass(per_place, placed), Err(FheError::Packing(PackingError::Mismatch))));
    }
}

/// The model in the clear, from `hushed-model`.
fn plain(network: &Network, texts: &[TokenIds]) -> Vec<Vec<f64>> {
    let one = |text: &TokenIds| {
        let pooled = clear::run(&network.program_of_all_rows(), vec![text.clone()], |_, _| ()).unwrap();
        pooled.values.row(0).to_vec()
    };
    texts.iter().map(one).collect()
}

#[test]
fn every_text_of_a_batch_agrees_with_the_clear_model() {
    let on = Simulator::new(&params(), SLOTS).unwrap().with_errors(1);
    for pool in [Pool::Mean, Pool::First] {
        let network = network(pool);
        let (texts, x) = (texts(), embedded(&network, &texts()));
        let expected = plain(&network, &texts);
        let measured = measured(&network, &x, &Structure::default());
        assert_close(&measured.pooled, &expected, 1.0 - 1e-9);
        for private in [false, true] {
            let found = run(&on, &network, &measured.choices, &x, private).unwrap();
            assert_close(&found, &expected, 0.999);
        }
    }
}

/// A pruned feed-forward is one map, and the block begins as low as it can.
#[test]
fn merged_feed_forwards_agree_with_the_clear_model() {
    for merged in [vec![0], vec![1], vec![0, 1]] {
        let on = Simulator::new(&params(), SLOTS).unwrap().with_errors(1);
        let count = merged.len() as u64;
        let config = NetworkConfig { merged, ..tiny_config() };
        let network = random_network(&config, Pool::Mean, 5);
        let (texts, x) = (texts(), embedded(&network, &texts()));
        let expected = plain(&network, &texts);
        let choices = measured(&network, &x, &Structure::default()).choices;
        choices.check(&network.program_of_all_rows()).unwrap();
        let found = run(&on, &network, &choices, &x, false).unwrap();
        assert_close(&found, &expected, 0.999);
        let whole = Simulator::new(&params(), SLOTS).unwrap().with_errors(1);
        let tiny = self::network(Pool::Mean);
        let other = measured(&tiny, &x, &Structure::default()).choices;
        assert!(other.check(&network.program_of_all_rows()).is_err());
        run(&whole, &tiny, &other, &x, false).unwrap();
        let terms = |on: &Simulator| on.tally().counts().total(Op::LinearTerm);
        let (d, hidden) = (config.width as u64, config.hidden as u64);
        assert_eq!(terms(&whole) - terms(&on), count * (2 * d * hidden - d * d));
        // There are no polynomials of hidden columns: fewer products of vectors.
        let products = |on: &Simulator| on.tally().counts().total(Op::Tensor);
        assert!(products(&on) < products(&whole));
    }
}

/// The model folders in the repository, with their own tokens.
#[test]
fn other_architectures_agree_with_the_clear_model() {
    let on = Simulator::new(&params(), SLOTS).unwrap().with_errors(1);
    for name in ["roberta", "roberta-classifier", "xlm-roberta", "distilbert"] {
        let model = Model::load(&tiny_golden(name)).unwrap();
        let lines = data_lines("sample.txt").unwrap().into_iter().take(7);
        let ids = lines.map(|text| model.tokens(&text, TooLong::Cut).unwrap());
        let texts: Vec<TokenIds> = ids.map(|ids| TokenIds::new(ids.ids().iter().copied().take(M).collect())).collect();
        let x = embedded(model.encoder().unwrap(), &texts);
        let expected = plain(model.encoder().unwrap(), &texts);
        let choices = measured(model.encoder().unwrap(), &x, &Structure::default()).choices;
        choices.check(&model.program_of_all_rows()).unwrap();
        for private in [false, true] {
            let found = run(&on, model.encoder().unwrap(), &choices, &x, private).unwrap();
            assert_close(&found, &expected, 0.999);
        }
    }
}

/// A text alone, in another place, and in a full batch has the same answer.
#[test]
fn a_text_alone_is_the_text_in_a_batch() {
    let on = Simulator::new(&params(), SLOTS).unwrap();
    let network = network(Pool::Mean);
    let x = embedded(&network, &texts());
    let choices = measured(&network, &x, &Structure::default()).choices;
    for private in [false, true] {
        let all = run(&on, &network, &choices, &x, private).unwrap();
        for text in [1, 4] {
            let alone = [x[text].clone()];
            let bound = largest(&x);
            // The same bound, so that only the batch differs.
            let scaled = run_bounded(&on, &network, &choices, &alone, private, bound).unwrap();
            let worst = all[text].iter().zip(&scaled[0]).map(|(a, b)| (a - b).abs());
            assert!(worst.fold(0.0, f64::max) < 1e-4);
        }
    }
}

/// A client fills padding rows with zeros (the first layer's [`crate::ops::key_mask`] needs this). One that does not
/// spoils its own text: no other text of the batch changes, and a text without padding is not affected.
#[test]
fn hostile_padding_reaches_no_other_text() {
    const HOSTILE: usize = 1;
    let on = Simulator::new(&params(), SLOTS).unwrap();
    let network = network(Pool::Mean);
    let x = embedded(&network, &texts());
    let choices = measured(&network, &x, &Structure::default()).choices;
    let padding = |text: usize, row: usize, j: usize| match text {
        HOSTILE => 0.1 * if (row + j).is_multiple_of(3) { 1.0 } else { -1.0 },
        _ => 0.0,
    };
    for private in [false, true] {
        let bound = largest(&x);
        let clean = run(&on, &network, &choices, &x, private).unwrap();
        let hostile = run_padded(&on, &network, &choices, &x, private, bound, padding).unwrap();
        for (text, (clean, hostile)) in clean.iter().zip(&hostile).enumerate() {
            let off = clean.iter().zip(hostile).map(|(a, b)| (a - b).abs());
            let off = off.fold(0.0, f64::max);
            // The padding has an effect, which shows that it is read.
            assert_eq!(off > 1e-3, text == HOSTILE, "{private} {text}: {off:e}");
            assert!(text == HOSTILE || off < 1e-9, "{private} {text}: {off:e}");
        }
    }
}

/// A head with a fixed pattern and frozen first rows, with public and private lengths.
#[test]
fn replacements_are_followed() {
    let on = Simulator::new(&params(), SLOTS).unwrap().with_errors(2);
    let network = network(Pool::Mean);
    let x = embedded(&network, &texts());
    let structure = Structure { previous: vec![(0, 1), (1, 3)], frozen_layers: 1 };
    let measured = measured(&network, &x, &structure);
    let heads = &measured.choices.layers[0].attention.heads;
    assert!(matches!(heads[1], HeadChoice::Previous));
    for private in [false, true] {
        let found = run(&on, &network, &measured.choices, &x, private).unwrap();
        assert_close(&found, &measured.pooled, 0.999);
    }
    // The replacements change the answers.
    let plain = plain(&network, &texts());
    let worst = plain.iter().zip(&measured.pooled).map(|(a, b)| cosine(a, b));
    assert!(worst.fold(1.0, f64::min) < 0.999);
}

/// A run without numbers has the same operations, for all lengths, public or private.
#[test]
fn operations_depend_on_shapes_alone() {
    let network = network(Pool::Mean);
    let x = embedded(&network, &texts());
    let choices = measured(&network, &x, &Structure::default()).choices;
    let on = Simulator::new(&params(), SLOTS).unwrap();
    let dry = Simulator::new(&params(), SLOTS).unwrap().counting();
    for private in [false, true] {
        on.tally().reset();
        dry.tally().reset();
        run(&on, &network, &choices, &x, private).unwrap();
        run(&dry, &network, &choices, &x[..2], private).unwrap();
        let (on, dry) = (on.tally().counts(), dry.tally().counts());
        assert_eq!(on.operations, dry.operations);
        assert_eq!(on.visits, dry.visits);
        // Softmax and norms do not rotate.
        let rotating = ["scores", "attend", "output", "pool", "rows"];
        for count in &on.operations {
            let site = count.site.to_string();
            let step = site.rsplit('.').next().unwrap_or_default();
            match count.op {
                Op::Rotate => assert!(rotating.contains(&step), "{} rotates", count.site),
                // Refreshed sums are conjugated.
                Op::Hoist => assert!(rotating.contains(&step) || step == "weigh", "{} hoists", count.site),
                _ => {}
            }
        }
        // Three wide refreshes for two layers, 32 columns each, two per bootstrap; plus four variances and the sums.
        let wide = 3 * 32;
        let sums = 2 * 4 * 2;
        assert_eq!(on.total(Op::Refreshed), wide + 4 + sums);
    }
}

#[test]
fn a_wider_model_with_higher_degrees() {
    let config = NetworkConfig { layers: 1, heads: 2, hidden: 128, ..tiny_config() };
    let network = random_network(&config, Pool::Mean, 8);
    let x = embedded(&network, &texts());
    let choices = measure(&network, &x, &Structure::default(), M, (31, 31)).choices;
    let on = Simulator::new(&params(), SLOTS).unwrap();
    let found = run(&on, &network, &choices, &x, false).unwrap();
    assert_close(&found, &plain(&network, &texts()), 0.9999);
}

/// Twelve levels for attention and seven for the feed-forward are enough, plus one before the pooling; with one fewer
/// the step is named before anything is computed.
#[test]
fn a_run_uses_the_levels_of_the_ledger() {
    let on = Simulator::new(&params(), SLOTS).unwrap();
    let network = network(Pool::Mean);
    let x = embedded(&network, &texts());
    let choices = measured(&network, &x, &Structure::default()).choices;
    let lengths: Vec<usize> = x.iter().map(Matrix::rows).collect();
    let program = network.program_of_all_rows();
    let pass = |attention: usize, feed_forward: usize| {
        let placement = Placement {
            attention: on.floor() + attention,
            feed_forward: on.floor() + feed_forward,
            ..Placement::plain(on.top(), M, 8)
        };
        let rows = RowsKnown::public(layout(), lengths.clone()).unwrap();
        Pass::new(&on, &program, &choices, placement, rows, largest(&x))
    };
    let mut enough = pass(12, 7).unwrap();
    let columns = || -> Vec<Vector> {
        let columns = packed(layout(), &x, largest(&x), |_, _, _| 0.0);
        let columns = columns.into_iter().map(|v| on.vector(v, on.top()).unwrap());
        columns.collect()
    };
    let mut acts = enough.start(columns()).unwrap();
    let enough_for_attention = on.floor() + 12;
    for i in 0..2 {
        acts = enough.layer(i, acts).unwrap();
        let out = [enough_for_attention, on.floor() + 1][i];
        assert!(acts.columns.iter().all(|v| on.limbs(v) == out));
    }
    let pooled = enough.finish(acts).unwrap();
    let vectors: Vec<Vec<f64>> = pooled.vectors.iter().map(|v| v.values().to_vec()).collect();
    let found = unpack(layout(), &lengths, pooled.width, pooled.factor, &vectors).unwrap();
    assert_close(&found, &plain(&network, &texts()), 0.999);
    // The step that lacks a level is named, by a counting run too.
    for (attention, feed_forward, named) in [(11, 7, "layer.0.attention.norm"), (12, 6, "layer.0.feed_forward.norm")] {
        let mut few = pass(attention, feed_forward).unwrap();
        let refused = few.run(columns()).err().unwrap();
        let lacks = |step: &StepId| step.to_string() == named;
        assert!(matches!(&refused, FheError::Levels { step, .. } if lacks(step)), "{refused}");
    }
}

#[test]
fn refusals() {
    let network = network(Pool::Mean);
    let x = embedded(&network, &texts());
    let choices = measured(&network, &x, &Structure::default()).choices;
    // A chain that is too short is refused at a named step.
    let short = Simulator::new(&CkksParams::insecure_test(10, 10).unwrap(), SLOTS).unwrap();
    let refused = run(&short, &network, &choices, &x, false).err().unwrap();
    assert!(matches!(&refused, FheError::Levels { step, .. } if step.layer() == Some(0)));
    // Choices of another model.
    let on = Simulator::new(&params(), SLOTS).unwrap();
    let mut fewer = choices.clone();
    fewer.layers.pop();
    assert!(run(&on, &network, &fewer, &x, false).is_err());
    let mut narrow = choices.clone();
    narrow.layers[0].activation.columns.pop();
    assert!(run(&on, &network, &narrow, &x, false).is_err());
    // A value that a refresh cannot take is detected where numbers are visible.
    let mut tight = choices.clone();
    tight.layers[0].attention_norm.scale *= 4.0;
    let refused = run(&on, &network, &tight, &x, false).err().unwrap();
    assert!(matches!(refused, FheError::Range { .. }), "{refused}");
    // Poolings that only 2pc supports.
    let mut last = network.clone();
    last.pool = Pool::Last;
    let refused = run(&on, &last, &choices, &x, false).err().unwrap();
    assert!(matches!(refused, FheError::Unsupported { .. }));
}
