//! Which protocol computes a model's activation.
//!
//! Smooth ones are curves by segments ([`curve`]); their error is the same at every argument, so what a model can
//! choose is how wide the curve's domain is and, for GELU, how many segments it has. What is declared of the model
//! ([`Tolerance`]) decides: the narrowest domain and the fewest segments that do. Without a declaration GELU has eight
//! segments, because the roundings of the formats (2·10^−4 an element, at random) are then about as large as the
//! approximation's error, and no order of sentence embeddings differs from what sixteen give; and every domain is the
//! widest.

use hushed_model::{Activation, FeedForward, QUICK_GELU, Tolerance};
use hushed_twopc::func::Format;
use hushed_twopc::func::curve::{self, Curve, curve_scaled, curve_scaled_cost};
use hushed_twopc::func::relu::{most_squared, relu, relu_cost, squared_relu, squared_relu_cost};
use hushed_twopc::share::Share;
use hushed_twopc::{Cost, Ctx, TwopcError};

use crate::formats::{ACTIVATION, GATE, GATED, LINEAR, SQUARE_GATE, SQUARE_GATED};

/// Every activation.
const ALL: [Activation; 8] = [
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::QuickGelu,
    Activation::Relu,
    Activation::Relu2,
    Activation::Silu,
    Activation::Tanh,
    Activation::Elu,
];

/// A protocol for an activation: from s·x in [`LINEAR`] to s·f(x) in [`ACTIVATION`], s = [`Function::scale`].
#[derive(Clone, Copy, Debug)]
pub struct Function {
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// f(x) = g(stretch·x)/stretch, with g the curve.
    Curve {
        curve: Curve,
        stretch: f64,
    },
    Relu,
    /// Its square.
    Relu2,
}

impl Function {
    /// The cheapest that meets the request.
    pub fn new(activation: Activation, tolerance: Option<Tolerance>) -> Function {
        let (curve, stretch) = match activation {
            Activation::Relu => return Function { kind: Kind::Relu },
            Activation::Relu2 => return Function { kind: Kind::Relu2 },
            Activation::Gelu => (fewest(tolerance, [curve::GELU_EIGHT, curve::GELU]), 1.0),
            Activation::GeluTanh => {
                let curves = [curve::GELU_TANH_EIGHT, curve::GELU_TANH];
                (fewest(tolerance, curves), 1.0)
            }
            // x/(1 + e^(−ax)) = SiLU(ax)/a
            Activation::QuickGelu => (curve::SILU, QUICK_GELU),
            Activation::Silu => (curve::SILU, 1.0),
            Activation::Tanh => (curve::TANH, 1.0),
            Activation::Elu => (curve::ELU, 1.0),
        };
        let curve = match tolerance {
            Some(t) => curve.reaching(t.reach * stretch),
            None => curve,
        };
        Function {
            kind: Kind::Curve { curve, stretch },
        }
    }

    /// That of a feed-forward block.
    pub fn of(f: &FeedForward) -> Function {
        Function::new(f.activation, f.tolerance)
    }

    /// s: what the layer before multiplies its result by, and the layer after divides by.
    pub fn scale(&self) -> f64 {
        match &self.kind {
            Kind::Curve { curve, stretch } => stretch * curve.kappa(),
            Kind::Relu | Kind::Relu2 => 1.0,
        }
    }

    /// Largest |x| that it holds.
    pub fn range(&self) -> f64 {
        match &self.kind {
            Kind::Curve { curve, stretch } => curve.range() / stretch,
            Kind::Relu => f64::from(LINEAR.ring.bits() - LINEAR.frac - 2).exp2(),
            Kind::Relu2 => most_squared(),
        }
    }

    /// Greatest difference from the activation, roundings not counted.
    pub fn error(&self) -> f64 {
        match &self.kind {
            Kind::Curve { curve, stretch } => curve.error() / stretch,
            Kind::Relu | Kind::Relu2 => 0.0,
        }
    }

    /// Formats of its result and of what it gates, in their product.
    pub(crate) fn gates(&self) -> [Format; 2] {
        match &self.kind {
            Kind::Curve { .. } | Kind::Relu => [GATE, GATED],
            Kind::Relu2 => [SQUARE_GATE, SQUARE_GATED],
        }
    }

    /// Largest product of its result and what it gates, without its scale.
    pub(crate) fn most_gated(&self) -> f64 {
        let [gate, gated] = self.gates();
        f64::from(gate.ring.bits() - gate.frac - gated.frac - 2).exp2() / self.scale()
    }

    /// A whole number that brings what has its scale near its size again, and not above it.
    pub(crate) fn back(&self) -> f64 {
        (1.0 / self.scale()).floor().max(1.0)
    }

    /// What to call it.
    pub fn name(&self) -> &'static str {
        match &self.kind {
            Kind::Curve { curve, .. } => curve.name(),
            Kind::Relu => "relu",
            Kind::Relu2 => "relu2",
        }
    }

    /// What the protocol computes, in the clear and without its roundings.
    pub fn approximation(&self, x: f64) -> f64 {
        match &self.kind {
            Kind::Curve { curve, stretch } => curve.approximation(stretch * x) / stretch,
            Kind::Relu => x.max(0.0),
            Kind::Relu2 => x.max(0.0).powi(2),
        }
    }

    /// s·f(x) in [`ACTIVATION`] of s·x in [`LINEAR`].
    pub(crate) fn run(&self, ctx: &mut Ctx, x: &Share) -> Result<Share, TwopcError> {
        match &self.kind {
            Kind::Curve { curve, .. } => curve_scaled(ctx, curve, x, LINEAR.frac, ACTIVATION),
            Kind::Relu => relu(ctx, x, LINEAR, ACTIVATION),
            Kind::Relu2 => squared_relu(ctx, x, LINEAR, ACTIVATION),
        }
    }

    /// The cost of that for `n` elements.
    pub fn cost(&self, n: usize) -> Cost {
        match &self.kind {
            Kind::Curve { curve, .. } => curve_scaled_cost(n, curve, ACTIVATION),
            Kind::Relu => relu_cost(n, LINEAR, ACTIVATION),
            Kind::Relu2 => squared_relu_cost(n, LINEAR, ACTIVATION),
        }
    }
}

/// The curve of fewer segments where its error is tolerated, else the other.
fn fewest(tolerance: Option<Tolerance>, [few, many]: [Curve; 2]) -> Curve {
    match tolerance {
        // Its own error, read from a file, is enough.
        Some(t) if t.error < 0.999 * few.error() => many,
        _ => few,
    }
}

/// The choice above, as text for the plan's hash: constants of the curves are in [`hushed_twopc::func::describe`].
pub(crate) fn describe() -> String {
    let one = |a| {
        let f = Function::new(a, None);
        format!("{a:?}={}*{}", f.name(), f.scale())
    };
    ALL.map(one).join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tolerance(reach: f64, error: f64) -> Option<Tolerance> {
        Some(Tolerance { reach, error })
    }

    #[test]
    fn every_function_errs_as_it_says() {
        for activation in ALL {
            for tolerance in [None, tolerance(30.0, 2e-4)] {
                let f = Function::new(activation, tolerance);
                let reach = f.range().min(60.0);
                let worst = (-6000..=6000).map(|i| f64::from(i) / 6000.0 * reach);
                let worst = worst.map(|x| {
                    (f.approximation(x) - hushed_model::plain::activation(activation, x)).abs()
                });
                let worst = worst.fold(0.0, f64::max);
                assert!(worst <= 1.01 * f.error(), "{activation:?}: {worst:e}");
            }
        }
    }

    #[test]
    fn what_is_declared_makes_it_cheaper_or_better() {
        let bytes = |t| {
            let cost = Function::new(Activation::Gelu, t).cost(1 << 12);
            cost.bytes_client + cost.bytes_server
        };
        let any = bytes(None);
        assert!(bytes(tolerance(20.0, 1e-3)) < any);
        assert_eq!(bytes(tolerance(1e6, 1e-3)), any);
        let (better, wide) = (tolerance(20.0, 2e-4), tolerance(1e6, 1e-9));
        assert!(any < bytes(wide) && bytes(better) < bytes(wide));
        for t in [better, wide] {
            assert!(Function::new(Activation::Gelu, t).error() < 1.1e-4);
        }
        let narrow = Function::new(Activation::QuickGelu, tolerance(20.0, 1.0));
        assert!(narrow.range() >= 20.0 && narrow.range() < 60.0);
    }
}
