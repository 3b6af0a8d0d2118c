//! How scores are passed to the function that weighs them: the factor in the queries, the format, and what is added
//! where they are masked.

use hushed_model::{Attention, Weigh};
use hushed_twopc::func::Format;
use hushed_twopc::func::sigmoid::{self, ARGUMENT};
use hushed_twopc::func::softmax::SCORES;

use crate::formats::{MASKED, QUERY};

/// Bits by which a sigmoid's queries are scaled above its argument: they are then about as large as a softmax's, and
/// their rounding does no more harm.
pub(crate) const LARGER: u32 = 4;

/// How scores are passed to the function that weighs them.
pub(crate) struct Scores {
    /// The factor of the queries, besides the model's own scale of the scores.
    pub factor: f64,
    /// The function's argument.
    pub format: Format,
    /// Excess bits of a product of queries and keys over this format.
    pub shift: u32,
    /// Added to a masked score.
    masked: f64,
}

impl Scores {
    /// The factor of a block's queries, with the model's own scale of the scores.
    pub(crate) fn of_queries(a: &Attention) -> f64 {
        Scores::of(a.weigh).factor * a.heads.scale
    }

    pub(crate) fn of(weigh: Weigh) -> Scores {
        let product = 2 * QUERY.frac;
        match weigh {
            // In units of log 2.
            Weigh::Softmax => Scores {
                factor: std::f64::consts::LOG2_E,
                format: SCORES,
                shift: product - SCORES.frac,
                masked: MASKED,
            },
            Weigh::Sigmoid { .. } => Scores {
                factor: f64::from(1u32 << LARGER) * sigmoid::KAPPA,
                format: ARGUMENT,
                shift: product + LARGER - ARGUMENT.frac,
                masked: sigmoid::SHUT,
            },
        }
    }

    pub(crate) fn masked(&self) -> i64 {
        self.format.signed(self.masked)
    }
}
