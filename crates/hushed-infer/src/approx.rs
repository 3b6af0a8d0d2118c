//! The `approx` backend: the clear model with the functions that the two-party protocols compute instead of GELU and softmax.
//!
//! It separates the two reasons why a private answer differs from the clear one: the approximations (this backend against
//! [`Plain`]) and the fixed-point protocols (a private run against this backend).

use hushed_model::plain::{Plain, PlainActs, PlainScores};
use hushed_model::tokens::TokenIds;
use hushed_model::{
    Activation, Backend, Embedding, Heads, Linear, Mask, ModelError, Norm, Pool, Site, Weigh,
};
use hushed_twopc::func::{gelu, softmax};

/// Runs a model in the clear with the protocols' functions.
pub struct Approx;

impl Backend for Approx {
    type Input = Vec<TokenIds>;
    type Acts = PlainActs;
    type Scores = PlainScores;
    type Error = ModelError;

    fn embed(
        &mut self,
        at: Site,
        x: Vec<TokenIds>,
        e: &Embedding,
    ) -> Result<PlainActs, ModelError> {
        Plain.embed(at, x, e)
    }

    fn norm(&mut self, at: Site, x: PlainActs, n: &Norm) -> Result<PlainActs, ModelError> {
        Plain.norm(at, x, n)
    }

    fn add(&mut self, at: Site, a: &PlainActs, b: &PlainActs) -> Result<PlainActs, ModelError> {
        Plain.add(at, a, b)
    }

    fn pool(&mut self, at: Site, x: PlainActs, p: &Pool) -> Result<PlainActs, ModelError> {
        Plain.pool(at, x, p)
    }

    fn linear(&mut self, at: Site, x: &PlainActs, w: &Linear) -> Result<PlainActs, ModelError> {
        Plain.linear(at, x, w)
    }

    fn scores(
        &mut self,
        at: Site,
        q: &PlainActs,
        k: &PlainActs,
        h: &Heads,
    ) -> Result<PlainScores, ModelError> {
        Plain.scores(at, q, k, h)
    }

    fn weigh(
        &mut self,
        _: Site,
        mut s: PlainScores,
        _: Weigh,
        _: &Mask,
    ) -> Result<PlainScores, ModelError> {
        for (heads, text) in s.texts.iter_mut().zip(s.rows.texts()) {
            for head in heads {
                for i in 0..head.rows() {
                    let (real, padding) = head.row_mut(i).split_at_mut(text.real);
                    softmax::approximation(real);
                    padding.fill(0.0);
                }
            }
        }
        Ok(s)
    }

    fn attend(
        &mut self,
        at: Site,
        p: &PlainScores,
        v: &PlainActs,
        h: &Heads,
    ) -> Result<PlainActs, ModelError> {
        Plain.attend(at, p, v, h)
    }

    fn activation(
        &mut self,
        at: Site,
        mut x: PlainActs,
        f: Activation,
    ) -> Result<PlainActs, ModelError> {
        match f {
            Activation::Gelu | Activation::GeluTanh => {
                let values = x.values.data_mut().iter_mut();
                values.for_each(|v| *v = gelu::approximation(*v));
                Ok(x)
            }
            Activation::Relu => Plain.activation(at, x, f),
        }
    }
}
