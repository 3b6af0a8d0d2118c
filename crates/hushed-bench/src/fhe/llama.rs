//! Ternary decoders with random weights, whose layers are measured: with sigmoid attention, as they are trained, and of
//! one size with a softmax too, so that the two can be compared.

use hushed_fhe::plan::assumed_choices;
use hushed_fhe::{Choices, HeadChoice, Interval, ScoresChoice};
use hushed_model::{Activation, NetworkConfig, Program, Weigh, random_llama};

/// Bound of |score| under a softmax with the random weights of [`decoder`].
const SCORES: f64 = 4.0;

/// Ternary decoders by width, heads and hidden columns: the repository's, with a sigmoid and with a softmax, the widest
/// that fits in the memory limit with one vector per column (twenty minutes), and ENSI's (arXiv 2509.09424), with two
/// columns per vector (most of an hour).
pub(super) const DECODERS: [Decoder; 4] = [
    ("llama-ternary-small", SMALL, sigmoid),
    ("llama-softmax-small", SMALL, |_| Weigh::Softmax),
    ("llama-ternary-640", (640, 8, 1728), sigmoid),
    ("llama-ternary-1536", (1536, 16, 4096), sigmoid),
];

/// Its name, its sizes, and what makes weights of scores, for texts of a number of rows.
type Decoder = (&'static str, Sizes, fn(usize) -> Weigh);

/// Width, heads and hidden columns.
pub(super) type Sizes = (usize, usize, usize);

const SMALL: Sizes = (256, 4, 704);

/// The sigmoid of texts of `rows` rows.
pub(super) fn sigmoid(rows: usize) -> Weigh {
    Weigh::Sigmoid { bias: -(rows as f64).ln() }
}

/// Two layers whose norms have gains of 1, as training with ternary maps leaves them.
pub(super) fn decoder((width, heads, hidden): Sizes, rows: usize, weigh: Weigh) -> Program {
    let config = NetworkConfig {
        layers: 2,
        width,
        heads,
        key_heads: None,
        hidden,
        vocabulary: 8,
        positions: rows,
        activation: Activation::Silu,
        sub_norms: false,
        weigh,
        ..NetworkConfig::bitnet_2b()
    };
    let mut network = random_llama(&config, 1);
    for layer in &mut network.layers {
        for norm in [&mut layer.attention_norm, &mut layer.feed_forward_norm] {
            norm.gain = Some(vec![1.0; width].into());
        }
    }
    network.program_of_all_rows()
}

/// Whether a decoder needs the rows of tokens, encrypted.
pub(super) fn attends_by_softmax(program: &Program) -> bool {
    let mut blocks = program.attentions();
    program.vocabulary().is_some() && blocks.any(|block| block.weigh == Weigh::Softmax)
}

/// [`assumed_choices`], with intervals for the scores of [`decoder`] under a softmax.
pub(super) fn chosen(program: &Program, rows: usize) -> Choices {
    let mut choices = assumed_choices(program, rows);
    let layers = choices.decoder.iter_mut();
    for layer in layers.flat_map(|decoder| &mut decoder.layers) {
        let ScoresChoice::Softmax(softmax) = &mut layer.scores else {
            continue;
        };
        softmax.heads.fill(HeadChoice::Softmax {
            scores: Interval { low: -SCORES, high: SCORES },
            least_maximum: -SCORES,
            // Σ e^{(s − 4)/2}: one key in the first row; in the last, less than twice that of scores of 0.
            first: Interval { low: (-SCORES).exp(), high: 2.0 * rows as f64 * (-SCORES / 2.0).exp() },
            second: Interval { low: 0.5 / rows as f64, high: 1.05 },
        });
    }
    choices
}

#[cfg(test)]
mod tests {
    use hushed_fhe::Simulator;
    use hushed_fhe::packing::Interleave;
    use hushed_fhe::simulate::Vector;

    use super::super::bed::{Normal, ROWS};
    use super::super::layer::{Planned, compare, input_bound, layer};
    use super::*;

    /// The layers of the rows, for one text, with the errors of ciphertexts. They are planned as for the rows.
    #[test]
    fn a_layer_with_either_attention_is_near_the_clear_one() {
        for weigh in [sigmoid(ROWS), Weigh::Softmax] {
            let program = decoder(SMALL, ROWS, weigh);
            let planned = Planned::new(&program, 2).unwrap();
            let placement = &planned.plan.placement;
            let on = Simulator::new(&planned.params, ROWS).unwrap();
            let on = on.with_errors(1);
            let layout = Interleave::new(ROWS, ROWS).unwrap();
            let (width, mut random) = (program.width(), Normal::new(3));
            let bound = input_bound(width);
            let mut column = || (0..ROWS).map(|_| random.next() / bound).collect();
            let table: Vec<Vec<f64>> = (0..width).map(|_| column()).collect();
            let vector = |v: &Vec<f64>| on.vector(v.clone(), placement.attention).unwrap();
            let real = attends_by_softmax(&program).then(|| vector(&vec![1.0; ROWS]));
            assert_eq!(real.is_some(), weigh == Weigh::Softmax);
            let run = (&program, &planned.choices, placement, layout);
            let columns = table.iter().map(vector).collect();
            let result = layer(&on, run, columns, (real, false)).unwrap();
            let open = |v: &Vector| Ok(v.pairs());
            let error = compare(open, &program, layout, &table, &result, 0).unwrap();
            assert!(error < 2e-3, "{weigh:?}: {error:e}");
        }
    }
}
