//! Whether the bits that a client keeps of an answer are enough for its columns.
//!
//! All columns of a reply share one bound, and a client rounds absolutely. So a column that is a thousand times as
//! large as the others costs the others ten bits, and with two or three steps left of them the nearest neighbour of a
//! text changes, while cosines, which the large column dominates, stay near 1.

use hushed_ckks::CkksParams;
use hushed_model::{Program, StepId, here};

use crate::choices::{Choices, ChoicesError};
use crate::error::FheError;
use crate::plan::public_plan::{ReplyForm, reply_deviation};

/// How many units of the last bit that is kept half of the columns must exceed: rounding is then an error of at most 4
/// % in them.
const UNITS: f64 = 8.0;

/// Checks that the typical column of an answer is not rounded away. Logits, whose differences count, are not looked at.
///
/// # Errors
/// [`FheError::Coarse`]; [`FheError::Model`] without numbers.
pub(crate) fn check(program: &Program, form: &ReplyForm, params: &CkksParams, logits: bool) -> Result<(), FheError> {
    if logits {
        return Ok(());
    }
    let (bits, typical) = (form.bits(params), typical(program)?);
    match typical >= UNITS * (-f64::from(bits)).exp2() {
        true => Ok(()),
        false => Err(FheError::Coarse { bits, magnitude: form.magnitude, typical }),
    }
}

/// The form of a reply with the least error that may be declared: a calibration knows no circuit.
///
/// # Errors
/// [`FheError::Choices`] without layers, [`FheError::Model`] without numbers.
pub(crate) fn at_best(program: &Program, choices: &Choices, params: &CkksParams) -> Result<ReplyForm, FheError> {
    let magnitude = largest(program, choices)?.log2().ceil().exp2();
    Ok(ReplyForm {
        ciphertexts: 1,
        limbs: 1,
        scale: params.default_scale().value(),
        magnitude,
        deviation: reply_deviation(params, magnitude),
    })
}

/// An upper bound on the numbers of a pooled row, or of a decoder's last row: both are outputs of the last norm.
pub(crate) fn largest(program: &Program, choices: &Choices) -> Result<f64, FheError> {
    let at = StepId::outside("pool");
    let none = || ChoicesError::Unusable { what: "the calibration has no layers".to_owned() };
    let (_, norm) = program.norms().last().ok_or_else(none)?;
    let last = choices.layers.last().map(|layer| &layer.feed_forward_norm);
    let last = choices.decoder.as_ref().map(|d| &d.norm).or(choices.norm.as_ref()).or(last);
    let bound = last.ok_or_else(none)?.bound;
    let (gain, offset) = (here(at, &norm.gain)?, here(at, &norm.offset)?);
    let columns = gain.iter().zip(offset.iter());
    let most = columns.map(|(&g, &o)| f64::from(g).abs() * bound + f64::from(o).abs());
    Ok(most.fold(1.0, f64::max))
}

/// The median over the columns of their root mean square after the last norm, whose rows have variance 1 before its
/// gains and offsets.
fn typical(program: &Program) -> Result<f64, FheError> {
    let at = StepId::outside("pool");
    let none = || ChoicesError::Unusable { what: "the model has no norm".to_owned() };
    let (_, norm) = program.norms().last().ok_or_else(none)?;
    let (gain, offset) = (here(at, &norm.gain)?, here(at, &norm.offset)?);
    let sizes = gain.iter().zip(offset.iter());
    let mut sizes: Vec<f64> = sizes.map(|(&g, &o)| f64::from(g).hypot(f64::from(o))).collect();
    sizes.sort_by(f64::total_cmp);
    Ok(sizes.get(sizes.len() / 2).copied().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use hushed_model::testing::tiny_config;
    use hushed_model::{Matrix, Pool, TokenIds, random_network};

    use super::*;
    use crate::plan::public_plan::named;
    use crate::simulate::embedded;
    use crate::testing::{Structure, measure};

    /// One column of the last norm a thousand times as large: every other column was kept to one bit, and nothing said
    /// so.
    #[test]
    fn m5_one_large_column_does_not_take_the_bits_of_all_others() {
        let params = named("insecure-test/9/14").unwrap();
        let texts: Vec<TokenIds> =
            (0..4).map(|t| TokenIds::new((0..9).map(|i| (i * 31 + t * 17) % 90).collect())).collect();
        for (factor, refused) in [(1.0, false), (4.0, false), (1000.0, true)] {
            let mut config = tiny_config();
            config.layers = 1;
            let mut network = random_network(&config, Pool::Mean, 5);
            let gain = &mut network.layers[0].feed_forward_norm.gain;
            let mut gains = gain.as_deref().unwrap().to_vec();
            gains[3] *= factor;
            *gain = Some(gains.into());
            let program = network.program_of_all_rows();
            let rows = texts.iter().map(|text| embedded(&program, text).unwrap());
            let rows: Vec<Matrix<f64>> = rows.collect();
            let choices = measure(&network, &rows, &Structure::default(), 16, (15, 15)).choices;
            let form = at_best(&program, &choices, &params).unwrap();
            let found = check(&program, &form, &params, false);
            match found {
                Err(FheError::Coarse { bits, .. }) => assert!(refused && bits <= 3, "{bits}"),
                found => assert!(!refused && found.is_ok()),
            }
            // Logits of any size are compared with each other.
            check(&program, &form, &params, true).unwrap();
            // With an error that leaves no bits, nothing is fine enough.
            let coarse = ReplyForm { deviation: form.magnitude, ..form };
            assert!(check(&program, &coarse, &params, false).is_err());
        }
    }
}
