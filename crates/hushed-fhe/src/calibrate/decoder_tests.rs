//! A decoder with LayerNorm, biases and a softmax, the tiny random GPT-2: its circuit is the model.

use hushed_model::testing::tiny_generator;
use hushed_model::{TokenIds, plain};

use super::decoder::{Degrees, measure};
use crate::calibrate::measure::Span;
use crate::clear::{all_rows, last_row};
use crate::inputs::bound_of_inputs;
use crate::plan::placement::Placement;
use crate::plan::public_plan::{AnswerRows, Lengths, named};
use crate::simulate::{Batch, embedded};
use crate::{Choices, Simulator, Slots};

const ROWS: usize = 16;

fn text(length: usize) -> TokenIds {
    TokenIds::new((0..length).map(|i| (i * 31 + length * 17) as u32 % 250).collect())
}

fn texts() -> Vec<TokenIds> {
    [16, 3, 1, 9, 5, 12, 2].map(text).to_vec()
}

/// Choices of these texts, and of the same with another end.
fn choices(program: &hushed_model::Program) -> Choices {
    let seen = measure(program, &texts(), &[changed(&text(16))]).unwrap();
    let degrees = Degrees { scores: 31, activation: 31 };
    let mut choices = Choices::unnamed(ROWS, Vec::new(), None);
    choices.decoder = Some(seen.choice(program, degrees, (ROWS, 14)).unwrap());
    choices.check(program).unwrap();
    choices
}

/// The same text with another last token.
fn changed(text: &TokenIds) -> TokenIds {
    let mut ids = text.ids().to_vec();
    *ids.last_mut().unwrap() = 7;
    TokenIds::new(ids)
}

fn nearness(found: &[f64], exact: &[f64]) -> f64 {
    assert_eq!(found.len(), exact.len());
    let square = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>();
    let apart = square(&mut found.iter().zip(exact).map(|(a, b)| a - b));
    (apart / square(&mut exact.iter().copied())).sqrt()
}

/// Last rows, all rows and logits, of texts of any length, with biases in the rows before them; a place without a text
/// gives zeros.
#[test]
fn a_decoder_with_layer_norm_is_the_model() {
    let model = tiny_generator();
    let program = model.program_of_all_rows();
    crate::pass::can_run(&program).unwrap();
    let (params, choices) = (named("insecure-test/9/14").unwrap(), choices(&program));
    let texts = texts();
    let rows: Vec<_> = texts.iter().map(|text| embedded(&program, text).unwrap()).collect();
    let bound = bound_of_inputs(&program, ROWS).unwrap();
    for (seed, most) in [(None, 0.01), (Some(7), 0.02)] {
        let mut on = Simulator::new(&params, 8 * ROWS).unwrap();
        if let Some(seed) = seed {
            on = on.with_errors(seed);
        }
        let placement = Placement::plain(on.top(), ROWS, 8);
        let batch =
            Batch { program: &program, choices: &choices, placement: &placement, lengths: Lengths::Private, bound };
        for read in [AnswerRows::Last, AnswerRows::Rows, AnswerRows::Logits] {
            let found = batch.read_at(&on, ROWS, &rows, read).unwrap();
            assert_eq!(found.len(), texts.len());
            for (text, found) in texts.iter().zip(&found) {
                let exact = match read {
                    AnswerRows::Last => last_row(&program, text).unwrap(),
                    AnswerRows::Rows => all_rows(&program, text).unwrap(),
                    AnswerRows::Logits => {
                        plain::run(&program, vec![text.clone()], |_, _| ()).unwrap().values.row(0).to_vec()
                    }
                };
                let apart = nearness(found, &exact);
                assert!(apart < most, "{read:?}, {} tokens: {apart}", text.ids().len());
            }
        }
    }
}

/// A later token changes no row before it.
#[test]
fn no_row_sees_a_token_after_it() {
    let model = tiny_generator();
    let program = model.program_of_all_rows();
    let (params, choices) = (named("insecure-test/9/14").unwrap(), choices(&program));
    let on = Simulator::new(&params, ROWS).unwrap();
    let placement = Placement::plain(on.top(), ROWS, 8);
    let bound = bound_of_inputs(&program, ROWS).unwrap();
    let batch = Batch { program: &program, choices: &choices, placement: &placement, lengths: Lengths::Private, bound };
    let [a, b] = [text(16), changed(&text(16))].map(|text| {
        let x = embedded(&program, &text).unwrap();
        batch.read_at(&on, ROWS, &[x], AnswerRows::Rows).unwrap().remove(0)
    });
    let (before, after) = (15 * program.width(), 16 * program.width());
    assert!(nearness(&a[..before], &b[..before]) < 1e-9);
    assert!(nearness(&a[before..after], &b[before..after]) > 0.01);
}

/// A row of padding is what the circuit makes of it: biases, offsets, and nothing of any key.
#[test]
fn padding_is_measured_as_the_circuit_has_it() {
    let program = tiny_generator().program_of_all_rows();
    let one = measure(&program, &[text(1)], &[]).unwrap();
    let choice = one.choice(&program, Degrees { scores: 15, activation: 15 }, (ROWS, 14)).unwrap();
    // Arguments of padding are in every interval: those of its first layer are W·offset + b.
    let steps = program.steps();
    let (mut offset, mut checked) = (Vec::new(), 0);
    for step in steps {
        match &step.block {
            hushed_model::Block::Norm(n) => offset = n.offset.as_ref().unwrap().to_vec(),
            hushed_model::Block::FeedForward(f) => {
                let (weights, bias) = (f.up.weights.as_ref().unwrap(), f.up.bias.as_ref().unwrap());
                let columns = &choice.layers[step.id.layer().unwrap()].activation.columns;
                for (j, column) in columns.iter().enumerate() {
                    let products = weights.row(j).iter().zip(&offset).map(|(w, x)| f64::from(*w) * f64::from(*x));
                    let argument = products.sum::<f64>() + f64::from(bias[j]);
                    let mut span = Span { least: column.low, greatest: column.high };
                    span.add(argument);
                    assert_eq!((span.least, span.greatest), (column.low, column.high));
                    checked += 1;
                }
            }
            _ => {}
        }
    }
    assert_eq!(checked, 256);
}

/// With columns on disk while a block runs the answers are the same.
#[test]
fn what_is_put_on_disk_changes_no_answer() {
    let program = tiny_generator().program_of_all_rows();
    let (params, choices) = (named("insecure-test/9/14").unwrap(), choices(&program));
    let rows: Vec<_> = texts().iter().map(|text| embedded(&program, text).unwrap()).collect();
    let bound = bound_of_inputs(&program, ROWS).unwrap();
    let [a, b] = [false, true].map(|spilled| {
        let on = Simulator::new(&params, 8 * ROWS).unwrap().with_errors(5);
        let placement =
            Placement { spill_attention: spilled, spill_feed_forward: spilled, ..Placement::plain(on.top(), ROWS, 8) };
        let batch =
            Batch { program: &program, choices: &choices, placement: &placement, lengths: Lengths::Private, bound };
        batch.read_at(&on, ROWS, &rows, AnswerRows::Last).unwrap()
    });
    for (a, b) in a.iter().zip(&b) {
        assert!(nearness(a, b) < 1e-3, "{}", nearness(a, b));
    }
}
