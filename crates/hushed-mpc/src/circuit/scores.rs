//! How scores come to the function that weighs them: by the factor in the queries, in which format, with what addend
//! where they are masked.

use hushed_model::Weigh;
use hushed_twopc::func::Format;
use hushed_twopc::func::sigmoid::{self, ARGUMENT};
use hushed_twopc::func::softmax::SCORES;

use crate::formats::{MASKED, QUERY};

/// Bits by which queries of a sigmoid are larger than its argument: then they have about the size of those of a
/// softmax, and their rounding does no more.
pub(crate) const LARGER: u32 = 4;

/// How scores come to the function that weighs them.
pub(crate) struct Scores {
    /// What queries are multiplied by, beside what the model multiplies scores by.
    pub factor: f64,
    /// The function's argument.
    pub format: Format,
    /// Bits that a product of queries and keys has too many for it.
    pub shift: u32,
    /// Added to a score that is masked.
    masked: f64,
}

impl Scores {
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
