//! A tape of a small encoder.

use std::collections::BTreeMap;
use std::sync::Arc;

use hushed_ckks::{CkksParams, Complex64};
use hushed_model::testing::tiny_config;
use hushed_model::{Matrix, Network, NetworkConfig, Pool, Program, StepId, TokenIds, plain, random_network};

use super::encoder::{COLUMNS, Encoder};
use super::exact::{Block, Functions, exact};
use super::{Op, Tape};
use crate::ops::functions::Function;
use crate::ops::mask::{REAL_ROWS, token_rows};
use crate::ops::pool::{Factor, unpack};
use crate::packing::Interleave;
use crate::plan::placement::Placement;
use crate::simulate::{Simulator, Watch};
use crate::testing::{Structure, largest, measure, packed};
use crate::{Choices, Slots};

const ROWS: usize = 16;
const SLOTS: usize = 128;

/// A model, texts for all places but one, and choices measured on them.
pub(super) struct Subject {
    pub network: Network,
    pub program: Program,
    pub texts: Vec<TokenIds>,
    pub embedded: Vec<Matrix<f64>>,
    pub choices: Choices,
    pub layout: Interleave,
    pub params: Arc<CkksParams>,
}

impl Subject {
    pub fn new(config: &NetworkConfig, pool: Pool, structure: &Structure) -> Subject {
        let network = random_network(config, pool, 5);
        let program = network.program();
        let text = |(t, length): (usize, usize)| {
            let id = |i: usize| ((i * 31 + t * 17 + i * i * t) % config.vocabulary) as u32;
            TokenIds::new((0..length).map(id).collect())
        };
        let texts: Vec<TokenIds> = [16, 3, 9, 1, 12, 5, 16].into_iter().enumerate().map(text).collect();
        let start = |text: &TokenIds| plain::start(&program, vec![text.clone()]).unwrap().values;
        let embedded: Vec<Matrix<f64>> = texts.iter().map(start).collect();
        let choices = measure(&network, &embedded, structure, ROWS, (15, 15)).choices;
        let layout = Interleave::new(SLOTS, ROWS).unwrap();
        let params = CkksParams::insecure_test(10, 14).unwrap();
        Subject { network, program, texts, embedded, choices, layout, params }
    }

    pub fn lengths(&self) -> Vec<usize> {
        self.embedded.iter().map(Matrix::rows).collect()
    }

    pub fn placement(&self, top: usize) -> Placement {
        Placement::plain(top, ROWS, self.network.layers[0].attention.heads.width)
    }

    pub fn tape(&self, on: &Simulator, private: bool) -> Tape {
        let encoder = Encoder {
            on,
            program: &self.program,
            choices: &self.choices,
            split: &self.placement(on.top()),
            layout: self.layout,
            lengths: (!private).then(|| self.lengths()),
            bound: largest(&self.embedded),
        };
        encoder.record().unwrap()
    }

    /// What the client sends, by the name of its input.
    pub fn sent(&self, private: bool) -> BTreeMap<&'static str, Vec<Vec<f64>>> {
        let columns = packed(self.layout, &self.embedded, largest(&self.embedded), |_, _, _| 0.0);
        let mut sent = BTreeMap::from([(COLUMNS, columns)]);
        if private {
            sent.insert(REAL_ROWS, vec![token_rows(self.layout, &self.lengths())]);
        }
        sent
    }

    pub fn answers(&self, factor: Factor, vectors: &[Vec<f64>]) -> Vec<Vec<f64>> {
        unpack(self.layout, &self.lengths(), self.program.width(), factor, vectors).unwrap()
    }
}

pub(super) fn outputs(tape: &Tape) -> Vec<usize> {
    (0..tape.nodes.len()).filter(|&i| tape.nodes[i].op == Op::Output).collect()
}

pub(super) fn complex(sent: BTreeMap<&'static str, Vec<Vec<f64>>>) -> BTreeMap<&'static str, Block> {
    let vector = |v: Vec<f64>| v.into_iter().map(Complex64::from).collect();
    sent.into_iter().map(|(name, block)| (name, vec![block.into_iter().map(vector).collect()])).collect()
}

pub(super) fn real(block: &Block) -> Vec<Vec<f64>> {
    block.iter().flatten().map(|v| v.iter().map(|z| z.re).collect()).collect()
}

/// Sees nothing.
struct Blind;

impl Watch for Blind {
    fn see(&self, _: StepId, _: &Function, _: &[f64]) {}
}

/// With the functions themselves, what is recorded is the model: in all layers, whoever knows the lengths, with heads
/// of a fixed pattern, merged blocks and replaced rows.
#[test]
fn a_tape_on_plain_numbers_is_the_model() {
    let structures = [
        (tiny_config(), Pool::Mean, Structure::default()),
        (tiny_config(), Pool::First, Structure { previous: vec![(0, 1)], ..Structure::default() }),
        (NetworkConfig { merged: vec![1], ..tiny_config() }, Pool::Mean, Structure::default()),
    ];
    for (config, pool, structure) in structures {
        let subject = Subject::new(&config, pool, &structure);
        let on = Simulator::new(&subject.params, SLOTS).unwrap().exact(Arc::new(Blind));
        for private in [false, true] {
            let tape = subject.tape(&on, private);
            let values = exact(&tape, &complex(subject.sent(private)), Functions::Exact).unwrap();
            let vectors: Vec<Vec<f64>> = outputs(&tape).into_iter().flat_map(|i| real(&values[i])).collect();
            let factor = if private && pool == Pool::Mean { Factor::Rows } else { Factor::One };
            let found = subject.answers(factor, &vectors);
            let expected = measure(&subject.network, &subject.embedded, &structure, ROWS, (15, 15)).pooled;
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                assert!((found - expected).abs() < 1e-9, "{found} and {expected}, private {private}");
            }
            println!("{} nodes", tape.nodes.len());
        }
        if structure.previous.is_empty() {
            let first = vec![subject.texts[0].clone()];
            let clear = plain::run(&subject.program, first, |_, _| ()).unwrap();
            let measured = measure(&subject.network, &subject.embedded, &structure, ROWS, (15, 15)).pooled;
            assert!(clear.values.row(0).iter().zip(&measured[0]).all(|(a, b)| (a - b).abs() < 1e-9));
        }
    }
}
