//! The imaginary parts of a vector.

/// The imaginary parts of a vector.
#[derive(Clone, Debug, Default)]
pub(super) enum Imaginary {
    /// A vector of real numbers.
    #[default]
    Zero,
    /// A pair.
    Known(Vec<f64>),
    /// A sum of products of pairs.
    Unknown,
}

impl Imaginary {
    pub(super) fn values(&self) -> Option<&[f64]> {
        match self {
            Imaginary::Known(values) => Some(values),
            _ => None,
        }
    }

    /// Applies a function that maps 0 to 0 to the known numbers.
    pub(super) fn each(&mut self, f: impl Fn(&mut [f64])) {
        if let Imaginary::Known(values) = self {
            f(values);
        }
    }

    /// The imaginary parts of a sum.
    pub(super) fn join(&mut self, other: &Imaginary, f: impl Fn(&mut f64, f64)) {
        let sum = match (std::mem::take(self), other) {
            (Imaginary::Zero, Imaginary::Zero) => Imaginary::Zero,
            (Imaginary::Unknown, _) | (_, Imaginary::Unknown) => Imaginary::Unknown,
            (Imaginary::Known(a), Imaginary::Zero) => Imaginary::Known(a),
            (a, Imaginary::Known(b)) => {
                let mut a = match a {
                    Imaginary::Known(a) => a,
                    _ => vec![0.0; b.len()],
                };
                a.iter_mut().zip(b).for_each(|(a, &b)| f(a, b));
                Imaginary::Known(a)
            }
        };
        *self = sum;
    }
}
