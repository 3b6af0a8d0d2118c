//! Rounds real numbers times factors to the nearest integers.
//!
//! One body, compiled for each register width. Constant time: no branch or index depends on a value.

use crate::machine::cpu::Cpu;

/// Writes to `out` the integers nearest to value · gain · factor, multiplied in f64 in this order. Ties go away from
/// zero, and values beyond 32 bits saturate, as [`f64::round`] and a cast do, for finite products. Returns the largest
/// magnitude.
///
/// # Panics
/// Unless there are as many gains and as much room as values.
pub fn round_scaled(values: &[f32], gains: &[f64], factor: f64, out: &mut [i32]) -> u32 {
    round_scaled_with(Cpu::get(), values, gains, factor, out)
}

fn round_scaled_with(cpu: Cpu, values: &[f32], gains: &[f64], factor: f64, out: &mut [i32]) -> u32 {
    let count = values.len();
    assert!(gains.len() == count && out.len() == count, "one of each");
    let _ = cpu;
    #[cfg(target_arch = "x86_64")]
    if cpu.ifma().is_some() || cpu.fma().is_some_and(|have| have.wide()) {
        // SAFETY: either token proves AVX-512 F and DQ.
        return unsafe { eight(values, gains, factor, out) };
    }
    #[cfg(target_arch = "x86_64")]
    if cpu.fma().is_some() {
        // SAFETY: the token proves AVX2.
        return unsafe { four(values, gains, factor, out) };
    }
    body(values, gains, factor, out)
}

/// # Safety
/// The processor has AVX-512 F and DQ.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512dq")]
unsafe fn eight(values: &[f32], gains: &[f64], factor: f64, out: &mut [i32]) -> u32 {
    body(values, gains, factor, out)
}

/// # Safety
/// The processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn four(values: &[f32], gains: &[f64], factor: f64, out: &mut [i32]) -> u32 {
    body(values, gains, factor, out)
}

#[inline(always)]
fn body(values: &[f32], gains: &[f64], factor: f64, out: &mut [i32]) -> u32 {
    let mut largest = 0;
    for ((out, &value), &gain) in out.iter_mut().zip(values).zip(gains) {
        let (magnitude, sign) = nearest(f64::from(value) * gain * factor);
        largest = largest.max(magnitude);
        *out = (magnitude ^ sign).wrapping_sub(sign) as i32;
    }
    largest
}

/// The magnitude of the nearest integer, and its sign in every bit.
///
/// Adding 2^52, where the last place is 1, rounds ties to even: where the even integer is the lower one, the result is
/// one more.
#[inline(always)]
fn nearest(x: f64) -> (u32, u32) {
    const UNIT: f64 = (1u64 << 52) as f64;
    let x = x.clamp(f64::from(i32::MIN), f64::from(i32::MAX));
    let even = x.abs() + UNIT;
    let tie_below = x.abs() - (even - UNIT) == 0.5;
    let sign = 0u32.wrapping_sub((x.to_bits() >> 63) as u32);
    (even.to_bits() as u32 + u32::from(tie_below), sign)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SecretRng;

    /// By definition.
    fn slow(value: f32, gain: f64, factor: f64) -> i32 {
        (f64::from(value) * gain * factor).round() as i32
    }

    fn check(values: &[f32], gains: &[f64], factor: f64) {
        let numbers = values.iter().zip(gains);
        let expected: Vec<i32> = numbers.map(|(&v, &g)| slow(v, g, factor)).collect();
        let largest = expected.iter().map(|v| v.unsigned_abs()).max();
        for cpu in Cpu::variants() {
            let mut found = vec![7; values.len()];
            let most = round_scaled_with(cpu, values, gains, factor, &mut found);
            assert_eq!(found, expected, "{}", cpu.kernel_name());
            assert_eq!(Some(most), largest, "{}", cpu.kernel_name());
        }
    }

    /// Ties, their neighbours, both zeros, the ends of 32 bits and values beyond them.
    #[test]
    fn edges_are_as_the_library_rounds_them() {
        let mut values = vec![0.0, f32::MIN_POSITIVE, 1e-45, f32::MAX, 2f32.powi(31)];
        for whole in [0, 1, 2, 3, 255, 256, 4_194_303, 4_194_304, 8_388_607] {
            let tie = whole as f32 + 0.5;
            values.extend([whole as f32, tie, tie.next_up(), tie.next_down()]);
        }
        values.extend(values.clone().iter().map(|v| -v));
        let ones = vec![1.0; values.len()];
        check(&values, &ones, 1.0);
        // The largest number below a half, which a sum with a half would carry to one; and the ends in f64.
        for gain in [0.5f64.next_down(), 2_147_483_647.5, 2_147_483_646.5, -0.5, 1e300] {
            check(&[1.0, -1.0, 3.0, 1.0, 0.0, -1.0, 5.0, 7.0, 1.0], &[gain; 9], 1.0);
        }
    }

    /// Products are rounded twice before they become integers, in the documented order.
    #[test]
    fn random_numbers_are_as_the_library_rounds_them() {
        let mut rng = SecretRng::insecure_from_seed(3);
        for factor in [65_536.0, 65_536.0 * std::f64::consts::LOG2_E, 0.1] {
            for length in [0, 1, 7, 8, 1000] {
                let mut bits = || rng.next_u64();
                let unit = |bits: u64| (bits >> 40) as f32 / 2f32.powi(23) - 1.0;
                let values: Vec<f32> = (0..length).map(|_| unit(bits())).collect();
                let gains: Vec<f64> = (0..length).map(|_| 3.0 * f64::from(unit(bits()))).collect();
                if length == 0 {
                    assert_eq!(round_scaled(&values, &gains, factor, &mut []), 0);
                    continue;
                }
                check(&values, &gains, factor);
                // Halves of small integers: half of them are ties.
                let ties: Vec<f32> = (0..length).map(|_| (bits() % 1001) as f32 / 2.0).collect();
                check(&ties, &vec![1.0; length], -1.0);
            }
        }
    }
}
