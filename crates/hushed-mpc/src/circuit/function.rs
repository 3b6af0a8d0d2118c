//! Chooses the protocol for a model's activation.
//!
//! Smooth activations are piecewise curves ([`curve`]). Their error bound is the same at every argument, so the choices
//! are the width of the curve's domain and, for GELU, the number of segments. The model's declaration ([`Tolerance`])
//! decides: the narrowest domain and the fewest segments that satisfy it. Without a declaration every domain is the
//! widest, and GELU has eight segments: the rounding of the formats (2·10^−4 per element, at random) is then about as
//! large as the approximation's error, and sentence embeddings rank the same as with sixteen.

use hushed_model::{Activation, FeedForward, QUICK_GELU, Tolerance};
use hushed_twopc::func::Format;
use hushed_twopc::func::curve::{self, Curve, curve_scaled, curve_scaled_cost};
use hushed_twopc::func::relu::{most_squared, relu, relu_cost, squared_relu, squared_relu_cost};
use hushed_twopc::share::Share;
use hushed_twopc::{Cost, Ctx, Link, TwopcError};

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
    /// f(x) = g(stretch·x)/stretch, where g is the curve.
    Curve {
        curve: Curve,
        stretch: f64,
    },
    Relu,
    /// The square of ReLU.
    Relu2,
}

impl Function {
    /// The cheapest function that meets the tolerance.
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
        Function { kind: Kind::Curve { curve, stretch } }
    }

    /// The function of a feed-forward block.
    pub fn of(f: &FeedForward) -> Function {
        Function::new(f.activation, f.tolerance)
    }

    /// s: the preceding layer's result is multiplied by it, the following layer divides by it.
    pub fn scale(&self) -> f64 {
        match &self.kind {
            Kind::Curve { curve, stretch } => stretch * curve.kappa(),
            Kind::Relu | Kind::Relu2 => 1.0,
        }
    }

    /// The largest |x| it holds.
    pub fn range(&self) -> f64 {
        match &self.kind {
            Kind::Curve { curve, stretch } => curve.range() / stretch,
            Kind::Relu => f64::from(LINEAR.ring.bits() - LINEAR.frac - 2).exp2(),
            Kind::Relu2 => most_squared(),
        }
    }

    /// The greatest difference from the activation, not counting rounding.
    pub fn error(&self) -> f64 {
        match &self.kind {
            Kind::Curve { curve, stretch } => curve.error() / stretch,
            Kind::Relu | Kind::Relu2 => 0.0,
        }
    }

    /// The formats, in their product, of its result and of the values it gates.
    pub(crate) fn gates(&self) -> [Format; 2] {
        match &self.kind {
            Kind::Curve { .. } | Kind::Relu => [GATE, GATED],
            Kind::Relu2 => [SQUARE_GATE, SQUARE_GATED],
        }
    }

    /// The largest product of its result and the values it gates, without its scale.
    pub(crate) fn most_gated(&self) -> f64 {
        let [gate, gated] = self.gates();
        f64::from(gate.ring.bits() - gate.frac - gated.frac - 2).exp2() / self.scale()
    }

    /// A whole number that roughly undoes the scale, without exceeding the original size.
    pub(crate) fn back(&self) -> f64 {
        (1.0 / self.scale()).floor().max(1.0)
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match &self.kind {
            Kind::Curve { curve, .. } => curve.name(),
            Kind::Relu => "relu",
            Kind::Relu2 => "relu2",
        }
    }

    /// What the protocol computes, in the clear and without rounding.
    pub fn approximation(&self, x: f64) -> f64 {
        match &self.kind {
            Kind::Curve { curve, stretch } => curve.approximation(stretch * x) / stretch,
            Kind::Relu => x.max(0.0),
            Kind::Relu2 => x.max(0.0).powi(2),
        }
    }

    /// Computes s·f(x) in [`ACTIVATION`] from s·x in [`LINEAR`].
    pub(crate) fn run(&self, ctx: &mut Ctx, x: &Share) -> Result<Share, TwopcError> {
        match &self.kind {
            Kind::Curve { curve, .. } => curve_scaled(ctx, curve, x, LINEAR.frac, ACTIVATION),
            Kind::Relu => relu(ctx, x, LINEAR, ACTIVATION),
            Kind::Relu2 => squared_relu(ctx, x, LINEAR, ACTIVATION),
        }
    }

    /// The cost of running it on `n` elements over a link.
    pub fn cost(&self, link: &Link, n: usize) -> Cost {
        match &self.kind {
            Kind::Curve { curve, .. } => curve_scaled_cost(link, n, curve, ACTIVATION),
            Kind::Relu => relu_cost(link, n, LINEAR, ACTIVATION),
            Kind::Relu2 => squared_relu_cost(link, n, LINEAR, ACTIVATION),
        }
    }
}

/// The curve with fewer segments if its error is tolerated, else the other.
fn fewest(tolerance: Option<Tolerance>, [few, many]: [Curve; 2]) -> Curve {
    match tolerance {
        // Its own error, read from a file, is good enough.
        Some(t) if t.error < 0.999 * few.error() => many,
        _ => few,
    }
}

/// The choice above as text for the plan's hash; the curves' constants are in [`hushed_twopc::func::describe`].
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
                let worst = worst.map(|x| (f.approximation(x) - hushed_model::plain::activation(activation, x)).abs());
                let worst = worst.fold(0.0, f64::max);
                assert!(worst <= 1.01 * f.error(), "{activation:?}: {worst:e}");
            }
        }
    }

    #[test]
    fn what_is_declared_makes_it_cheaper_or_better() {
        let bytes = |t| {
            let cost = Function::new(Activation::Gelu, t).cost(&Link::LAN, 1 << 12);
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
