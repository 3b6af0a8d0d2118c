//! Roots of unity, accurate to the last bit of an f64 and identical on every machine.
//!
//! A library's sine may differ by a unit in the last place between machines, but the bytes of an encoding must not. So
//! angles are halved with square roots (which IEEE 754 rounds exactly) and roots are multiplied, all in pairs of f64
//! (Dekker 1971; error near 2^-104 per step) that are rounded once at the end.

use num_complex::Complex64;

/// e^(2πi·k/`order`) for k = 0 … order − 1, where `order` is a power of two and at least 4.
pub(super) fn roots_of_unity(order: usize) -> Vec<Complex64> {
    let quarter = order / 4;
    // e^(iπ/2 · 2^-t) for t = 0, 1, …: halving the right angle.
    let mut halved = vec![Root { re: Pair::from(0.0), im: Pair::from(1.0) }];
    for _ in 0..quarter.trailing_zeros() {
        let last = halved[halved.len() - 1];
        halved.push(last.half());
    }
    // Binary expansion of k: the table doubles with each bit, least significant first.
    let mut first = vec![Root { re: Pair::from(1.0), im: Pair::from(0.0) }];
    for step in halved.iter().skip(1).rev() {
        let turned: Vec<Root> = first.iter().map(|root| root.mul(*step)).collect();
        first.extend(turned);
    }
    let mut all: Vec<Complex64> = first.iter().map(Root::round).collect();
    // The other quarters follow exactly.
    for k in quarter..order {
        let before = all[k - quarter];
        all.push(Complex64::new(-before.im, before.re));
    }
    all
}

/// An unevaluated sum high + low with |low| ≤ ulp(high)/2.
#[derive(Clone, Copy)]
struct Pair {
    high: f64,
    low: f64,
}

impl Pair {
    fn from(x: f64) -> Self {
        Self { high: x, low: 0.0 }
    }

    /// high + low, for |high| ≥ |low| (Dekker's fast two-sum).
    fn normalised(high: f64, low: f64) -> Self {
        let sum = high + low;
        Self { high: sum, low: low - (sum - high) }
    }

    fn add(self, other: Self) -> Self {
        let sum = self.high + other.high;
        let part = sum - self.high;
        let error = (self.high - (sum - part)) + (other.high - part);
        Self::normalised(sum, error + self.low + other.low)
    }

    fn neg(self) -> Self {
        Self { high: -self.high, low: -self.low }
    }

    fn mul(self, other: Self) -> Self {
        let (product, error) = exact_product(self.high, other.high);
        let cross = self.high * other.low + self.low * other.high;
        Self::normalised(product, error + cross)
    }

    fn div(self, other: Self) -> Self {
        let first = self.high / other.high;
        let rest = self.add(other.mul(Self::from(first)).neg());
        let second = rest.high / other.high;
        let rest = rest.add(other.mul(Self::from(second)).neg());
        Self::normalised(first, second).add(Self::from(rest.high / other.high))
    }

    /// √self for self > 0: one Newton step doubles the bits of the f64 root.
    fn sqrt(self) -> Self {
        let first = self.high.sqrt();
        let rest = self.add(Self::from(first).mul(Self::from(first)).neg());
        Self::normalised(first, rest.high / (2.0 * first))
    }

    fn scaled(self, power_of_two: f64) -> Self {
        Self { high: self.high * power_of_two, low: self.low * power_of_two }
    }
}

/// a·b as product and error, both f64 (Veltkamp's split, without fused multiply-add, so the same everywhere).
fn exact_product(a: f64, b: f64) -> (f64, f64) {
    let split = |x: f64| {
        let wide = 134_217_729.0 * x; // 2^27 + 1
        let high = wide - (wide - x);
        (high, x - high)
    };
    let product = a * b;
    let ((ah, al), (bh, bl)) = (split(a), split(b));
    let error = ((ah * bh - product) + ah * bl + al * bh) + al * bl;
    (product, error)
}

#[derive(Clone, Copy)]
struct Root {
    re: Pair,
    im: Pair,
}

impl Root {
    fn mul(&self, other: Self) -> Self {
        Self {
            re: self.re.mul(other.re).add(self.im.mul(other.im).neg()),
            im: self.re.mul(other.im).add(self.im.mul(other.re)),
        }
    }

    /// The root of half the angle, for angles up to π/2: cos = √((1 + c)/2), sin = s/(2·cos).
    fn half(&self) -> Self {
        let re = Pair::from(1.0).add(self.re).scaled(0.5).sqrt();
        Self { re, im: self.im.div(re.scaled(2.0)) }
    }

    fn round(&self) -> Complex64 {
        Complex64::new(self.re.high, self.im.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_agree_with_the_library_to_its_last_bit() {
        for order in [4, 8, 64, 1 << 17] {
            let roots = roots_of_unity(order);
            assert_eq!(roots.len(), order);
            for (k, root) in roots.iter().enumerate() {
                // Only angles below π/4, where the library's argument is as accurate as its result.
                let (octant, angle) = (8 * k / order, k as f64 / order as f64);
                if octant == 0 {
                    let (sin, cos) = (std::f64::consts::TAU * angle).sin_cos();
                    assert!((root.re - cos).abs() <= f64::EPSILON / 2.0);
                    assert!((root.im - sin).abs() <= 2.0 * f64::EPSILON * sin);
                }
                assert!((root.norm_sqr() - 1.0).abs() <= 2.0 * f64::EPSILON);
            }
        }
    }

    #[test]
    fn a_root_times_its_inverse_is_one() {
        let order = 1 << 12;
        let roots = roots_of_unity(order);
        for k in 1..order {
            let one = roots[k] * roots[order - k];
            assert!((one - 1.0).norm() <= 2.0 * f64::EPSILON);
        }
    }
}
