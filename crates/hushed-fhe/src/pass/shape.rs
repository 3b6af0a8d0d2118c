//! The programs that a pass accepts: encoders, each layer in two halves with a norm before or after each, and decoders
//! with norms before the halves and causal attention.

use std::ops::Range;

use hushed_model::{Attention, Block, Kind, Linear, Mask, ModelError, Pool, Program, Step, StepId, Weigh};

use crate::error::FheError;
use crate::ops::head;
use crate::ops::sigmoid::causal;
use crate::plan::public_plan::AnswerRows;
use crate::tape::encoder::{begins_with_norm, has_rms_norms};

/// Checks that a program can be run, before anything is planned and without its weights.
///
/// # Errors
/// [`FheError::Unsupported`] for a program of another shape, and for a decoder with biases.
pub fn can_run(program: &Program) -> Result<(), FheError> {
    if has_rms_norms(program) {
        return decoder(program);
    }
    if let Some(Step { id, block: Block::Head(classifier), .. }) = program.steps().last() {
        head::supported(*id, classifier)?;
    }
    let mut layers = program.layers().into_iter();
    layers.try_for_each(|layer| supported(program, layer))
}

/// Refuses what a recorded circuit does not compute.
fn computed(program: &Program, step: &Step) -> Result<(), FheError> {
    if let (Block::Attention(a), Some(_)) = (&step.block, program.vocabulary()) {
        causal(step.id, a)?;
    }
    let what = match &step.block {
        Block::Attention(a) if a.mask != Mask::Full && program.vocabulary().is_none() => {
            "attention with rows that do not see all others"
        }
        Block::Attention(a) if a.distances.is_some() => "a bias of the scores by distance",
        Block::Attention(a) if a.weigh != Weigh::Softmax => "attention by another function than a softmax",
        Block::Attention(a) if a.rope.is_some() => "rotary positions",
        Block::Attention(a) if a.heads.keys != a.heads.count => "attention with heads that share keys",
        Block::Attention(a) if a.sub_norm.is_some() || a.query_norm.is_some() || a.key_norm.is_some() => {
            "attention with norms inside"
        }
        Block::FeedForward(f) if f.gate.is_some() => "a gate in a feed-forward block",
        _ => return Ok(()),
    };
    Err(FheError::Unsupported { what: format!("{}: {what}", step.id), remedy: "such a model runs in protocol 2pc" })
}

/// Accepts decoders with norm, attention, sum, norm, feed-forward and sum in each layer, without biases.
pub fn causal_layers(program: &Program) -> Result<(), FheError> {
    let biased = |w: &Linear| w.bias.iter().flat_map(|b| b.iter()).any(|b| *b != 0.0);
    if program.linears().any(biased) {
        return Err(FheError::Unsupported {
            what: "a decoder with biases".to_owned(),
            remedy: "decoders without biases can be run: a bias would fill rows of padding",
        });
    }
    let layers = program.layers();
    let shape = |steps: &[Step]| {
        use Block::{Add, Attention, FeedForward, Norm};
        let blocks: Vec<&Block> = steps.iter().map(|step| &step.block).collect();
        matches!(blocks.as_slice(), [Norm(_), Attention(_), Add, Norm(_), FeedForward(_), Add])
    };
    let each = layers.iter().all(|steps| program.steps().get(steps.clone()).is_some_and(shape));
    let after = program.steps().get(layers.last().map_or(0, |steps| steps.end)..).unwrap_or_default();
    let after: Vec<&Block> = after.iter().map(|step| &step.block).collect();
    match after.as_slice() {
        [Block::Pool(Pool::Last), Block::Norm(_), Block::Vocabulary(_)] if each => Ok(()),
        _ => Err(FheError::Unsupported {
            what: "a program of this shape".to_owned(),
            remedy: "supported decoders have norm, attention, sum, norm, feed-forward and sum in each layer",
        }),
    }
}

fn decoder(program: &Program) -> Result<(), FheError> {
    causal_layers(program)?;
    let mut attentions = program.attentions();
    attentions.try_for_each(|block| causal(StepId::outside("attention"), block).and_then(|_| heads(block)))
}

/// Refuses what the circuit of packed rows does not compute of a decoder. A softmax would take three more levels, and a
/// sigmoid of degree 15 already takes all fourteen.
pub(crate) fn packed_decoder(program: &Program) -> Result<(), FheError> {
    let refused = |what| Err(FheError::Unsupported { what, remedy: "omit --texts to plan a batch" });
    for Step { id, block, .. } in program.steps() {
        let sub_norm = match block {
            Block::Attention(a) if a.weigh == Weigh::Softmax => {
                return refused(format!("{id}: softmax attention of a decoder, in packed rows"));
            }
            Block::Attention(a) => {
                causal(*id, a)?;
                &a.sub_norm
            }
            Block::FeedForward(f) => &f.sub_norm,
            _ => continue,
        };
        if sub_norm.is_some() {
            return refused(format!("{id}: a norm inside a block, in packed rows"));
        }
    }
    match has_rms_norms(program) {
        true => Ok(()),
        false => refused("a decoder with LayerNorm, in packed rows".to_owned()),
    }
}

/// Refuses what the circuit does not compute of heads.
fn heads(a: &Attention) -> Result<(), FheError> {
    let what = if a.query_norm.is_some() || a.key_norm.is_some() {
        "norms of queries and keys"
    } else if a.heads.query_columns() != a.query.inputs {
        "heads that together have other columns than the width"
    } else if a.rope.is_some_and(|rope| rope.columns.is_some()) {
        "rotary positions in some columns only"
    } else {
        return Ok(());
    };
    let what = format!("attention with {what}");
    Err(FheError::Unsupported { what, remedy: "such a model runs in the clear" })
}

/// Checks that the client can compute logits from a decoder's answer: from hidden states it needs the public token
/// embedding table alone. Nothing is refused if the model has no numbers.
///
/// # Errors
/// [`FheError::Unsupported`] for a head that is not that table.
pub fn head_is_public(program: &Program, answer: AnswerRows) -> Result<(), FheError> {
    let tokens = program.embedding().and_then(|table| table.tokens.as_ref());
    let head = program.vocabulary().and_then(|head| head.weights.as_ref());
    match (tokens, head) {
        (Some(tokens), Some(head)) if tokens != head && answer != AnswerRows::Logits => Err(FheError::Unsupported {
            what: "hidden states of a decoder whose head is not its table of token vectors".to_owned(),
            remedy: "such a decoder is answered with the logits of last rows: --answer last",
        }),
        _ => Ok(()),
    }
}

/// Accepts models with a norm after each residual sum, or before each block and after the last layer: a block shares
/// levels with one norm, and the client computes what is before the layers from the token table, or the map of patches,
/// alone.
pub fn supported(program: &Program, layer: Range<usize>) -> Result<(), FheError> {
    use Kind::{Add, Attention, FeedForward, Norm};
    let shape = match begins_with_norm(program) {
        true => [Norm, Attention, Add, Norm, FeedForward, Add],
        false => [Attention, Add, Norm, FeedForward, Add, Norm],
    };
    let before = program.steps().get(program.before_layers()).unwrap_or_default();
    if let Some(step) = before.iter().find(|step| matches!(step.block, Block::Linear(_))) {
        return Err(FheError::Unsupported {
            what: format!("{}: a linear layer between the token table and the layers", step.id),
            remedy: "encoders whose token table is as wide as their layers can be run",
        });
    }
    let start = layer.start;
    let steps = program.steps().get(layer).unwrap_or_default();
    let kinds = steps.iter().map(|step| step.id.kind());
    steps.iter().try_for_each(|step| computed(program, step))?;
    // Operands are steps of the layer, or the step before it.
    let near = |step: &Step| step.operands.iter().all(|edge| edge.from + 1 >= start);
    match start > 0 && kinds.eq(shape) && steps.iter().all(near) {
        true => Ok(()),
        false => Err(FheError::shape(steps.first().map_or(StepId::outside("layer"), |s| s.id))),
    }
}

/// The error for a layer that the program does not have.
pub fn no_layer(layers: usize, asked: usize) -> FheError {
    ModelError::NoSuchLayer { asked, layers }.into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hushed_model::testing::{ternary_config, ternary_network, tiny_shapes};
    use hushed_model::{DecoderNetwork, Matrix, NetworkConfig, vit_shapes};

    use super::*;

    #[test]
    fn what_cannot_run_is_refused_by_name() {
        can_run(&tiny_shapes().program()).unwrap();
        let good = ternary_network(&ternary_config(2, 2), 1);
        can_run(&good.program_of_all_rows()).unwrap();
        let mut softmax = good.clone();
        softmax.layers[1].attention.weigh = Weigh::Softmax;
        can_run(&softmax.program_of_all_rows()).unwrap();
        let mut encoder = tiny_shapes();
        encoder.layers[1].attention.rope = good.layers[0].attention.rope;
        assert!(can_run(&encoder.program()).unwrap_err().to_string().contains("rotary positions"));
        let mut encoder = tiny_shapes();
        if let Block::FeedForward(block) = &mut encoder.layers[1].feed_forward {
            block.gate = Some(block.up.clone());
        }
        assert!(can_run(&encoder.program()).unwrap_err().to_string().contains("a gate"));
        // In its last layer only the last row: another circuit.
        assert!(can_run(&good.program()).is_err());
        type Change = fn(&mut DecoderNetwork);
        let changes: [(&str, Change); 2] = [
            ("causal", |n| n.layers[1].attention.mask = Mask::Full),
            ("biases", |n| {
                let query = &mut n.layers[0].attention.query;
                query.bias = Some(vec![0.5; query.outputs].into());
            }),
        ];
        let config = NetworkConfig { layers: 2, ..NetworkConfig::vit_base() };
        let vision = vit_shapes(&config);
        can_run(&vision.program_of_all_rows()).unwrap();
        // In its last layer only the first row: another circuit.
        assert!(can_run(&vision.program()).is_err());
        let mut seen = vision.clone();
        seen.layers[1].attention.mask = Mask::Window { reach: 2 };
        let refused = can_run(&seen.program_of_all_rows()).err().unwrap().to_string();
        assert!(refused.contains("layer.1.attention: attention with rows that do not see all others"), "{refused}");
        for (named, change) in changes {
            let mut network = good.clone();
            change(&mut network);
            let refused = can_run(&network.program_of_all_rows()).err().unwrap();
            assert!(matches!(refused, FheError::Unsupported { .. }));
            assert!(refused.to_string().contains(named), "{refused}");
        }
    }

    #[test]
    fn a_head_of_its_own_is_read_at_its_logits_alone() {
        let mut network = ternary_network(&ternary_config(2, 2), 1);
        let answers = [AnswerRows::Last, AnswerRows::Rows, AnswerRows::Logits];
        let program = network.program_of_all_rows();
        assert!(answers.map(|a| head_is_public(&program, a).is_ok()) == [true; 3]);
        let other = Matrix::zero(network.head.outputs, network.head.inputs);
        network.head.weights = Some(Arc::new(other));
        let program = network.program_of_all_rows();
        can_run(&program).unwrap();
        assert!(answers.map(|a| head_is_public(&program, a).is_ok()) == [false, false, true]);
    }
}
