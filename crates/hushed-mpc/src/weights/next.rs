//! Layers that a server reads from the files of its model folder in every pass: each is built when the pass asks for
//! it, or earlier by a thread while the layer before it runs.

use std::panic::resume_unwind;
use std::thread::{Builder, JoinHandle};

use hushed_model::StepId;
use hushed_twopc::he::PreparedWeights;

use crate::RunError;
use crate::circuit::product::{Layer, Product};

/// The products of a pass, in order.
pub(crate) type Order = [(StepId, Product)];

/// The layer that a session will ask for next.
#[derive(Default)]
pub(crate) struct NextLayer {
    made: Option<(StepId, JoinHandle<Result<Layer, RunError>>)>,
    /// The memory of a layer that the session has used, for building another.
    used: Option<PreparedWeights>,
}

impl NextLayer {
    /// Returns this layer, and starts building the one after it.
    pub(crate) fn layer(&mut self, order: &Order, id: StepId, product: &Product) -> Result<Layer, RunError> {
        let layer = match self.made.take() {
            Some((at, made)) if at == id => made.join().unwrap_or_else(|why| resume_unwind(why)),
            _ => product.layer(id, self.used.take()),
        };
        let mut rest = order.iter().skip_while(|(at, _)| *at != id);
        self.begin(rest.nth(1));
        layer
    }

    /// Starts building a layer. If no thread is available, it is built when it is asked for.
    pub(crate) fn begin(&mut self, next: Option<&(StepId, Product)>) {
        self.made = next.cloned().and_then(|(id, product)| {
            let (name, room) = ("next layer".to_owned(), self.used.take());
            let made = Builder::new().name(name).spawn(move || product.layer(id, room));
            Some((id, made.ok()?))
        });
    }

    /// Takes back a used layer. Sessions do not share it.
    pub(crate) fn used(&mut self, layer: Layer) {
        self.used = layer.numbers.map(|(weights, _)| weights);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hushed_model::testing::tiny_golden;
    use hushed_model::{Model, Program, TokenIds};

    use crate::testing::run_pair_with;
    use crate::{Input, Layers, Protocol, Terms, TextCache, next_token};

    const PROMPT: [u32; 5] = [5, 40, 0, 17, 9];
    const TOKENS: usize = 3;

    /// LLaMA with its own head and with tied weights, and GPT-2, whose matrices are stored transposed.
    #[test]
    fn weights_read_in_every_pass_are_those_that_are_held() {
        for name in ["llama", "llama-tied", "gpt2", "gpt2-sharded"] {
            let [held, stored] = [Model::load, Model::open].map(|read| {
                let model = read(&tiny_golden(name)).unwrap();
                (model.program(), model)
            });
            let layers = Layers::default();
            layers.prepare(&held.1).unwrap();
            let streaming = Layers::streaming(&stored.0).unwrap();
            assert_eq!(streaming.streamed.len(), layers.len(), "{name}");
            for (id, product) in &streaming.streamed {
                let ours = product.layer(*id, None).unwrap().numbers.unwrap();
                let theirs = layers.get(*id, product).unwrap();
                let theirs = theirs.numbers.as_ref().unwrap();
                assert!(ours.0.columns() == theirs.0.columns() && ours.1 == theirs.1);
            }
            let shapes = Model::shapes_only(&held.1.public).program();
            let run = |program: &Program, layers| tokens(&shapes, program, Arc::new(layers));
            let (found, expected) = (run(&stored.0, streaming), run(&held.0, layers));
            // Each step sends as many bytes in as many messages.
            assert_eq!(found.1, expected.1, "{name}");
            for tokens in [found.0, expected.0] {
                assert_likely(&held.1, &tokens);
            }
        }
    }

    /// Continues a text between two parties: returns its tokens and each step's cost.
    fn tokens(shapes: &Program, program: &Program, layers: Arc<Layers>) -> (Vec<u32>, Vec<(String, [u64; 3])>) {
        let go = |on: &mut Protocol, program: &Program, client: bool| {
            let (mut text, mut tokens) = (TextCache::default(), PROMPT.to_vec());
            for pass in 0..TOKENS {
                let new = if pass == 0 { PROMPT.len() } else { 1 };
                let ids = tokens[tokens.len() - new..].to_vec();
                let input = match client {
                    true => Input::Texts(vec![TokenIds::new(ids)], Terms::default()),
                    false => Input::Lengths(vec![new], Terms::default()),
                };
                let token = next_token(on, program, &mut text, &input, None).unwrap();
                tokens.push(token.unwrap_or(0));
            }
            let costs = on.costs().iter().map(|cost| {
                let s = &cost.stats;
                (cost.step.to_string(), [s.bytes_sent, s.bytes_received, s.rounds])
            });
            (tokens, costs.collect())
        };
        let (client, server) = run_pair_with(&layers, |on| go(on, shapes, true), |on| go(on, program, false));
        (client.0, server.1)
    }

    /// Checks the tokens wherever the clear model is sure.
    fn assert_likely(model: &Model, tokens: &[u32]) {
        for length in PROMPT.len()..tokens.len() {
            let before = TokenIds::new(tokens[..length].to_vec());
            let logits = model.embed(vec![before]).unwrap().remove(0);
            let largest = logits.iter().copied().fold(f64::MIN, f64::max);
            assert!(largest - logits[tokens[length] as usize] < 0.05);
        }
    }
}
