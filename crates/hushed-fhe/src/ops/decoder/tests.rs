use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_model::{
    Activation, Architecture, Block, DecoderNetwork, Matrix, NetworkConfig, Program, TokenIds,
    Weigh, WeightScale, cosine, plain, random_llama,
};

use crate::calibrate::decoder::{Degrees, measure};
use crate::choices::Choices;
use crate::ops::pool::unpack;
use crate::packing::Interleave;
use crate::plan::placement::Placement;
use crate::simulate::{Op, Simulator, Vector};
use crate::{DecoderPass, FheError};

pub(crate) const ROWS: usize = 16;
pub(crate) const SLOTS: usize = 128;

/// A ternary decoder of two layers and 16 columns whose attention is a sigmoid.
pub(crate) fn config(heads: usize, keys: usize) -> NetworkConfig {
    NetworkConfig {
        architecture: Architecture::BitNet,
        layers: 2,
        width: 16,
        heads,
        key_heads: Some(keys),
        hidden: 40,
        vocabulary: 97,
        positions: 64,
        activation: Activation::Silu,
        sub_norms: false,
        ternary: Some(WeightScale::Factor),
        weigh: Weigh::Sigmoid { bias: -2.75 },
        tied: true,
        ..NetworkConfig::bitnet_2b()
    }
}

/// With token vectors of the size that trained ones have beside what layers add.
pub(crate) fn network(config: &NetworkConfig, seed: u64) -> DecoderNetwork {
    let mut network = random_llama(config, seed);
    let tokens = network.embedding.tokens.take().unwrap();
    let larger = tokens.data().iter().map(|v| 20.0 * v).collect();
    let larger = Matrix::new(tokens.rows(), tokens.cols(), larger).map(Arc::new);
    network.embedding.tokens.clone_from(&larger);
    network.head.weights = larger;
    network
}

/// Texts for every place of a batch, of different lengths.
pub(crate) fn texts(config: &NetworkConfig, places: usize) -> Vec<TokenIds> {
    let text = |t: usize| {
        let length = [16, 3, 9, 1, 12, 5, 16, 7][t % 8];
        let id = |i: usize| ((i * 31 + t * 17 + i * i * (t + 1)) % config.vocabulary) as u32;
        TokenIds::new((0..length).map(id).collect())
    };
    (0..places).map(text).collect()
}

/// Columns of right-aligned texts over `bound`.
pub(crate) fn columns(
    program: &Program,
    texts: &[TokenIds],
    layout: Interleave,
    bound: f64,
) -> Vec<Vec<f64>> {
    let rows: Vec<Matrix<f64>> = texts
        .iter()
        .map(|text| plain::start(program, vec![text.clone()]).unwrap().values)
        .collect();
    let column = |j: usize| {
        layout.vector(texts.len(), |t, row| {
            let first = layout.rows() - rows[t].rows();
            match row.checked_sub(first) {
                Some(row) => rows[t].row(row)[j] / bound,
                None => 0.0,
            }
        })
    };
    (0..program.embedding().width).map(column).collect()
}

/// The last rows, normalised, as the clear model has them before its head.
pub(crate) fn hidden(program: &Program, text: &TokenIds) -> Vec<f64> {
    let mut found = Vec::new();
    plain::run(program, vec![text.clone()], |step, x| {
        if matches!(step.block, Block::Norm(_)) && step.id.layer().is_none() {
            found = x.values.row(0).to_vec();
        }
    })
    .unwrap();
    found
}

pub(crate) struct Subject {
    pub program: Program,
    pub texts: Vec<TokenIds>,
    pub choices: Choices,
    pub bound: f64,
    pub layout: Interleave,
}

impl Subject {
    pub fn new(config: &NetworkConfig, slots: usize, degrees: (usize, usize)) -> Subject {
        let program = network(config, 3).program();
        let layout = Interleave::new(slots, ROWS).unwrap();
        let texts = texts(config, layout.texts());
        let seen = measure(&program, &texts).unwrap();
        let degrees = Degrees {
            scores: degrees.0,
            activation: degrees.1,
        };
        let mut choices = Choices::unnamed(ROWS, Vec::new(), None);
        choices.decoder = Some(seen.choice(&program, degrees).unwrap());
        let tokens = program.embedding().tokens.as_ref().unwrap();
        let bound = tokens.data().iter().fold(0.0_f32, |m, v| m.max(v.abs()));
        Subject {
            program,
            texts,
            choices,
            bound: bound.into(),
            layout,
        }
    }

    pub fn placement(&self, top: usize) -> Placement {
        Placement::plain(top, ROWS, 8)
    }

    pub fn simulated(&self, on: &Simulator) -> Result<Vec<Vec<f64>>, FheError> {
        let placement = self.placement(on.top());
        let mut pass = DecoderPass::new(
            on,
            &self.program,
            &self.choices,
            placement,
            self.layout,
            self.bound,
        )?;
        let columns = columns(&self.program, &self.texts, self.layout, self.bound);
        let columns = columns.into_iter().map(|v| on.vector(v, on.top()).unwrap());
        let pooled = pass.run(columns.collect())?;
        let vectors: Vec<Vec<f64>> = pooled.vectors.iter().map(|v| v.values().to_vec()).collect();
        let lengths = vec![1; self.texts.len()];
        Ok(unpack(self.layout, &lengths, pooled.width, pooled.factor, &vectors).unwrap())
    }
}

use crate::slots::Slots;

fn params() -> Arc<CkksParams> {
    CkksParams::insecure_test(9, 2).unwrap()
}

/// The whole decoder, every place taken, beside the clear model's last rows.
#[test]
fn a_simulated_decoder_is_the_clear_one() {
    let (_, params) = crate::plan::public_plan::insecure_plan(9, 14, 16).unwrap();
    for (heads, keys) in [(2, 2), (2, 1)] {
        let subject = Subject::new(&config(heads, keys), SLOTS, (31, 31));
        let exact = Simulator::new(&params, SLOTS).unwrap();
        let with_errors = Simulator::new(&params, SLOTS).unwrap().with_errors(5);
        for on in [exact, with_errors] {
            let found = subject.simulated(&on).unwrap();
            let mut worst = 1.0_f64;
            for (text, found) in subject.texts.iter().zip(&found) {
                let expected = hidden(&subject.program, text);
                worst = worst.min(cosine(found, &expected));
            }
            println!("{heads} heads over {keys}: cosine {worst:.7}");
            assert!(worst > 0.9995, "{worst}");
        }
    }
}
