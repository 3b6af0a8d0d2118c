//! Attention's sigmoid: σ(x) = 1/(1 + e^−x) of each score on its own, without a maximum or a division (Ramapuram et al.
//! 2024).
//!
//! A curve like those of [`curve`](super::curve), in a finer unit because most weights are small: one of 1/128 is off
//! by 2·10^−5. Beyond 11 the weight is exactly 0 or 1, so a score can be masked by an addend.

use super::curve::{SIGMOID, curve_scaled, curve_scaled_cost};
use super::format::Format;
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::gadget::{Sign, truncate, truncate_cost};
use crate::link::Link;
use crate::share::Share;

/// x/L, L = 1/[`KAPPA`]: |x/L| < 15, with room for a sum on the way.
pub const ARGUMENT: Format = Format::new(22, 15);
/// The factor on x.
pub const KAPPA: f64 = SIGMOID.kappa();
/// The addend that masks a score, in units of L: with it no x of magnitude up to [`RANGE`] has any weight.
pub const SHUT: f64 = -8.0;
/// Largest |x| that may be masked: the curve looks for its segment in steps of L/256.
pub const RANGE: f64 = (15.0 + SHUT - 1.0 / 256.0) / KAPPA;

/// σ(x) in `to`, which has at least 15 fraction bits, from x/L in [`ARGUMENT`].
pub fn sigmoid(ctx: &mut Ctx, x: &Share, to: Format) -> Result<Share, TwopcError> {
    // The quadratics need more bits than the domain has.
    let x = truncate(ctx, x, 0, Sign::Bounded, SIGMOID.wide())?;
    let y = curve_scaled(ctx, &SIGMOID, &x, ARGUMENT.frac, to)?;
    Ok(y.add_public(ctx.party(), to.signed(0.5)))
}

/// The cost of [`sigmoid`] for `n` elements.
pub fn sigmoid_cost(link: &Link, n: usize, to: Format) -> Cost {
    truncate_cost(n, ARGUMENT.ring, 0, SIGMOID.wide()) + curve_scaled_cost(link, n, &SIGMOID, to)
}

/// The function of x/L that the protocol computes, in the clear and without rounding.
pub fn approximation(x: f64) -> f64 {
    0.5 + KAPPA * SIGMOID.approximation(x / KAPPA)
}

/// The constants on which both parties must agree, as text; the curve's are among those of all curves.
pub fn describe() -> String {
    format!("sigmoid {ARGUMENT:?} {SHUT}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal, run_counted, share};
    use hushed_math::rng::SecretRng;

    const TO: Format = Format::new(37, 15);

    fn run(x: &[f64], to: Format) -> Vec<f64> {
        let words: Vec<u64> = x.iter().map(|x| ARGUMENT.encode(KAPPA * x)).collect();
        let (client, server) = share(ARGUMENT.ring, &words, 31);
        let (a, b, stats) =
            run_counted(|ctx| sigmoid(ctx, &client, to).unwrap(), |ctx| sigmoid(ctx, &server, to).unwrap());
        assert_cost(&stats, sigmoid_cost(&Link::LAN, x.len(), to));
        reveal(&a, &b).iter().map(|&w| to.decode(w)).collect()
    }

    fn exact(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    #[test]
    fn weights_against_the_clear() {
        let mut next = SecretRng::insecure_from_seed(8);
        let fine = (-1600..=1600).map(|i| f64::from(i) / 20.0);
        let random = (0..2000).map(|_| (next.next_u64() % 40_000) as f64 / 1000.0 - 20.0);
        let x: Vec<f64> = fine.chain(random).chain([164.0, -164.0]).collect();
        for to in [TO, Format::new(48, 20)] {
            let unit = f64::from(ARGUMENT.frac).exp2().recip();
            let mut sum = 0.0;
            for (&x, y) in x.iter().zip(run(&x, to)) {
                // The argument's rounding matters where σ is steep.
                let slope = exact(x) * exact(-x) / KAPPA;
                let error = y - exact(x);
                assert!(error.abs() < 2.5e-4 + unit * (1.6 + slope), "{x}: {error:e}");
                assert!((-3.0 * unit..=1.0 + 3.0 * unit).contains(&y));
                sum += error;
            }
            assert!((sum / x.len() as f64).abs() < 0.15 * unit + 2e-5);
        }
    }

    /// Small weights keep their size: those of 1/128 to within a hundredth each, and a five-hundredth on average.
    #[test]
    fn small_weights() {
        for x in [-3.5, -4.85, -6.0] {
            let found = run(&vec![x; 400], TO);
            let mean = found.iter().sum::<f64>() / 400.0;
            assert!((mean / exact(x) - 1.0).abs() < 4e-3, "{x}: {mean}");
        }
    }

    #[test]
    fn what_is_masked_has_no_weight_at_all() {
        let most = RANGE;
        let scores = (-1000..=1000).map(|i| f64::from(i) / 1000.0 * most);
        let masked: Vec<f64> = scores.map(|s| s + SHUT / KAPPA).collect();
        assert!(run(&masked, TO).iter().all(|&y| y == 0.0));
        assert!(RANGE > 76.0 && approximation(-1.5) == 0.0 && approximation(1.5) == 1.0);
    }
}
