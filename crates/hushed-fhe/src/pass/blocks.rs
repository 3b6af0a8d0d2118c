//! The blocks of a decoder's program: norm, attention, sum, norm, feed-forward and sum in each layer, without biases.

use hushed_model::{Attention, Block, FeedForward, ModelError, Norm, Pool, Program, Step, StepId};

use crate::error::FheError;

/// The blocks of a decoder's program.
pub(super) struct Parts<'a> {
    pub layers: Vec<Layer<'a>>,
    pub norm: (StepId, &'a Norm),
    pub last: StepId,
}

/// The blocks of a layer, with their ids.
pub(super) struct Layer<'a> {
    pub attention_norm: (StepId, &'a Norm),
    pub attention: (StepId, &'a Attention),
    pub attention_sum: StepId,
    pub feed_forward_norm: (StepId, &'a Norm),
    pub feed_forward: (StepId, &'a FeedForward),
    pub feed_forward_sum: StepId,
}

impl<'a> Parts<'a> {
    pub fn of(program: &'a Program) -> Result<Parts<'a>, FheError> {
        let refused = || FheError::Unsupported {
            what: "a program of this shape".to_owned(),
            remedy: "supported decoders have norm, attention, sum, norm, feed-forward and sum in each layer",
        };
        for w in program.linears() {
            if w.bias.iter().flat_map(|b| b.iter()).any(|b| *b != 0.0) {
                return Err(FheError::Unsupported {
                    what: "a decoder with biases".to_owned(),
                    remedy: "decoders without biases can be run: a bias would fill rows of padding",
                });
            }
        }
        let steps = program.steps();
        let layers = program.layers().into_iter().map(|range| {
            let steps = steps.get(range).unwrap_or_default();
            Layer::of(steps).ok_or_else(refused)
        });
        let layers = layers.collect::<Result<Vec<_>, _>>()?;
        let after = program.layers().last().map_or(0, |range| range.end);
        match steps.get(after..).unwrap_or_default() {
            [
                Step { id: last, block: Block::Pool(Pool::Last), .. },
                Step { id, block: Block::Norm(norm), .. },
                Step { block: Block::Vocabulary(_), .. },
            ] => Ok(Parts { layers, norm: (*id, norm), last: *last }),
            _ => Err(refused()),
        }
    }

    pub fn layer(&self, i: usize) -> Result<&Layer<'a>, FheError> {
        let layers = self.layers.len();
        let layer = self.layers.get(i);
        Ok(layer.ok_or(ModelError::NoSuchLayer { asked: i, layers })?)
    }
}

impl<'a> Layer<'a> {
    fn of(steps: &'a [Step]) -> Option<Layer<'a>> {
        let [a, b, c, d, e, f] = steps else {
            return None;
        };
        match [&a.block, &b.block, &c.block, &d.block, &e.block, &f.block] {
            [
                Block::Norm(first),
                Block::Attention(attention),
                Block::Add,
                Block::Norm(second),
                Block::FeedForward(feed_forward),
                Block::Add,
            ] => Some(Layer {
                attention_norm: (a.id, first),
                attention: (b.id, attention),
                attention_sum: c.id,
                feed_forward_norm: (d.id, second),
                feed_forward: (e.id, feed_forward),
                feed_forward_sum: f.id,
            }),
            _ => None,
        }
    }
}
