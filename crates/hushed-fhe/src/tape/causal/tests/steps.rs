//! Whole encrypted decoders with the result of every operation opened: client, server with evaluation keys only,
//! client.

use std::sync::Arc;

use hushed_model::{Activation, DecoderNetwork, NetworkConfig, Norm, TokenIds, Weigh};

use super::interpreted::{Computation, interpreted};
use super::{ROWS, Subject, config, network, sums, test_params};
use crate::ops::pool::Factor;
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;
use crate::slots::Slots;
use crate::{Acts, FheError};

/// A decoder, and the baby steps of its products.
struct Whole {
    subject: Subject,
    baby: usize,
}

impl Computation for Whole {
    fn run<S: Slots>(&self, on: &S, sent: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
        let placement = Placement { scores_baby: self.baby, ..self.subject.placement(on.top()) };
        let how = (placement, AnswerRows::Last);
        let nothing = sums(|_, _: &Acts<S::Value>| Ok(()));
        let answer = self.subject.run_at(on, sent, how, nothing)?;
        assert_eq!(answer.factor, Factor::One);
        Ok(answer.vectors)
    }
}

/// Norms inside blocks with gains of 1, which leave ternary maps ternary.
fn with_unit_gains(config: &NetworkConfig) -> DecoderNetwork {
    let mut network = network(config, 3);
    let unit = |norm: &mut Option<Norm>| {
        let norm = norm.as_mut().unwrap();
        norm.gain = Some(Arc::from(vec![1.0; norm.width]));
    };
    for layer in &mut network.layers {
        unit(&mut layer.attention.sub_norm);
        unit(&mut layer.feed_forward.feed_forward_mut().unwrap().sub_norm);
    }
    network
}

/// The errors of every operation of every step (normed columns, queries and keys turned, scores, weights, P·V, gates,
/// sums, refreshes) are those that the simulation predicts with the bootstraps of this ring, and the answer is within a
/// cosine of `least` of the clear model's. All columns are refreshed first, as the errors of bootstraps are those that
/// runs carry.
fn errs_as_predicted(subject: Subject, baby: usize, least: f64) -> Whole {
    let (params, whole) = (test_params(), Whole { subject, baby });
    let (sent, floor) = (whole.subject.sent(), params.bootstrap_limbs());
    let found = interpreted(&params, &whole, &sent, floor);
    let steps = found.assert_as_predicted();
    let inside = whole.subject.program.attentions().all(|a| a.sub_norm.is_some());
    for layer in 0..2 {
        let mut parts = vec![
            "attention.norm",
            "attention.query_key",
            "attention.rope",
            "attention.scores",
            "attention.value",
            "attention.attend",
            "attention.output",
            "attention.add",
            "attention.add.refresh",
            "feed_forward.norm",
            "feed_forward.up",
            "feed_forward.activation",
            "feed_forward.product",
            "feed_forward.down",
            "feed_forward.add",
        ];
        if inside {
            parts.extend(["attention.sub_norm", "feed_forward.sub_norm"]);
        }
        for part in parts {
            let step = format!("layer.{layer}.{part}");
            assert!(steps.contains(&step), "{step}");
        }
    }
    let answer = found.encrypted.iter().filter(|given| given.by == "result");
    let answer: Vec<Vec<f64>> = answer.map(|given| given.values.clone()).collect();
    whole.subject.assert_opened(&answer, least);
    whole
}

fn subject(network: &DecoderNetwork, degrees: (usize, usize)) -> Subject {
    Subject::of(network, test_params().slots(), degrees)
}

/// With few baby steps P·V takes a sigmoid's weights as they are made: two giant steps at a time, then the next.
#[test]
fn every_step_of_a_decoder_with_a_sigmoid() {
    let subject = subject(&network(&config(2, 2), 3), (15, 15));
    let whole = errs_as_predicted(subject, 2, 0.9999);
    let pairs = 16 / 2 / 2;
    assert!(whole.subject.layout.rows() > pairs * whole.baby);
}

#[test]
fn every_step_of_a_decoder_with_a_softmax() {
    let config = NetworkConfig { weigh: Weigh::Softmax, ..config(2, 1) };
    errs_as_predicted(subject(&network(&config, 3), (15, 15)), 4, 0.9999);
}

/// BitNet's own blocks: squared ReLU, norms inside. All texts fill their rows: in rows of padding there is nothing but
/// errors, which norms inside blocks multiply in every layer.
#[test]
fn every_step_of_a_decoder_with_norms_inside_and_squared_gates() {
    let config = NetworkConfig { sub_norms: true, activation: Activation::Relu2, ..config(2, 1) };
    let network = with_unit_gains(&config);
    let degrees = (15, 31);
    let mut subject = subject(&network, degrees);
    let text = |t: usize| {
        let id = |i: usize| ((i * 29 + t * 13 + i * i * (t + 2)) % 97) as u32;
        TokenIds::new((0..ROWS).map(id).collect())
    };
    let texts = (0..subject.layout.texts()).map(text).collect();
    subject.measure(texts, degrees);
    // Rows see one to sixteen keys, so the statistics of attention's norm span four decades, and its root errs there.
    errs_as_predicted(subject, 4, 0.995);
}
