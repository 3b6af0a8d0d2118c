//! Named parameter sets. A name gives the ring degree, the purpose and the usable levels.
//!
//! A test builds every preset, so none is refused. log2(QP), group by group:
//!
//! | name | q0 | stc | levels | eval_mod | cts | p | sum | limit |
//! |---|---|---|---|---|---|---|---|---|
//! | `n16-boot-14x40` | 50 | 3×40 | 14×40 | 8×50 | 3×50 | 8×50 to 12×50 | 1680 | 1684 |
//! | `n16-boot-14x40-precise` | 50 | 3×40 | 14×40 | 6×50, 2×30, 45 | 3×50 | 7×50 to 12×50 | 1660 | 1684 |
//! | `n16-boot-14x35` | 45 | 3×35 | 14×35 | 8×50 | 4×50 | 8×50 to 12×50 | 1640 | 1684 |
//! | `n15-boot-3x40` | 50 | 2×40 | 3×40 | 8×48 | 2×48 | 46, 2×32 | 840 | 841 |
//! | `n15-shallow-16x40` | 50 | – | 16×40 | – | – | 3×50 | 840 | 841 |
//! | `n14-shallow-6x40` | 50 | – | 6×40 | – | – | 2×50 | 390 | 417 |
//!
//! `n16-boot-14x40-precise` spends 5 bits and a prime on EvalMod's first square: after a bootstrap with full slots the
//! worst slot has one bit more than with `n16-boot-14x40` ([`MEASURED`]), at the price of larger keys and slower first
//! steps.
//!
//! `n16-boot-14x35` has levels of 35 bits, so a bootstrap has room for a fourth factor of CoeffsToSlots: it is faster,
//! and every rescale adds an error that is 2^5 times as large.
//!
//! The sum is the largest for any key. Keys for the whole chain have room for eight special primes (seven in the
//! precise set), those for shorter ciphertexts for up to twelve
//! ([`most_special`](hushed_rlwe::RlweParams::most_special)): three digits instead of four at 28 to 26 primes, and two
//! instead of three at 25 to 20, where EvalMod is. With eight throughout, keys of a bootstrap take a sixth more and it
//! 3 to 7 % more time.
//!
//! `n15-boot-3x40` has EvalMod primes of 48 bits so that two of them fit into a key-switching digit (96 bits, below the
//! 110 of P): eight digits instead of thirteen with 49-bit primes. This costs a bootstrap about two bits of precision.
//! Its p0 has 46 bits, so that the ephemeral secret sees 96 bits, the largest published value for this degree; a third
//! special prime makes up for what P lost.

use std::sync::Arc;

use super::{CkksLiteral, CkksParams, PrimeGroup};
use crate::error::CkksParamsError;

/// Names of the presets, for [`CkksParams::preset`].
pub const PRESETS: &[&str] = &[
    "n16-boot-14x40",
    "n16-boot-14x40-precise",
    "n16-boot-14x35",
    "n15-boot-3x40",
    "n15-shallow-16x40",
    "n14-shallow-6x40",
];

/// Names of the presets without bootstrapping, the cheapest first.
pub const SHALLOW: &[&str] = &["n14-shallow-6x40", "n15-shallow-16x40"];

/// Bits left after a bootstrap of full slots, uniform in the unit square: in the worst slot and on average. Measured
/// once (docs/benchmarks.md), not computed. Only `certified_bits` is promised.
const MEASURED: [(&str, [f64; 2]); 4] = [
    ("n16-boot-14x40", [16.4, 20.2]),
    ("n16-boot-14x40-precise", [17.5, 20.3]),
    ("n16-boot-14x35", [16.1, 20.1]),
    ("n15-boot-3x40", [15.3, 19.9]),
];

/// The measurement for the preset of this name.
pub(super) fn measured_bits(name: &str) -> Option<[f64; 2]> {
    let row = MEASURED.iter().find(|(preset, _)| *preset == name);
    row.map(|&(_, bits)| bits)
}

const N16_BOOT: CkksLiteral = CkksLiteral {
    name: "n16-boot-14x40",
    log_n: 16,
    q0_bits: 50,
    stc: PrimeGroup::new(3, 40),
    levels: PrimeGroup::new(14, 40),
    eval_mod: PrimeGroup::new(8, 50),
    wide_square: false,
    cts: PrimeGroup::new(3, 50),
    cts_layers: &[],
    special: PrimeGroup::new(12, 50),
    p0_bits: None,
    log_scale: 40,
    certified_bits: 14,
};

const N16_PRECISE: CkksLiteral = CkksLiteral { name: "n16-boot-14x40-precise", wide_square: true, ..N16_BOOT };

const N16_FAST: CkksLiteral = CkksLiteral {
    name: "n16-boot-14x35",
    q0_bits: 45,
    stc: PrimeGroup::new(3, 35),
    levels: PrimeGroup::new(14, 35),
    cts: PrimeGroup::new(4, 50),
    cts_layers: &[5, 4, 3, 3],
    log_scale: 35,
    ..N16_BOOT
};

const N15_SHALLOW: CkksLiteral = CkksLiteral {
    name: "n15-shallow-16x40",
    log_n: 15,
    q0_bits: 50,
    stc: PrimeGroup::NONE,
    levels: PrimeGroup::new(16, 40),
    eval_mod: PrimeGroup::NONE,
    wide_square: false,
    cts: PrimeGroup::NONE,
    cts_layers: &[],
    special: PrimeGroup::new(3, 50),
    p0_bits: None,
    log_scale: 40,
    certified_bits: 18,
};

const N14_SHALLOW: CkksLiteral = CkksLiteral {
    name: "n14-shallow-6x40",
    log_n: 14,
    levels: PrimeGroup::new(6, 40),
    special: PrimeGroup::new(2, 50),
    ..N15_SHALLOW
};

impl CkksParams {
    /// The preset named `name`, one of [`PRESETS`].
    ///
    /// # Errors
    /// [`CkksParamsError::UnknownPreset`] for any other name.
    pub fn preset(name: &str) -> Result<Arc<Self>, CkksParamsError> {
        match name {
            "n16-boot-14x40" => Self::n16_boot(),
            "n16-boot-14x40-precise" => Self::n16_boot_precise(),
            "n16-boot-14x35" => Self::n16_boot_fast(),
            "n15-boot-3x40" => Self::n15_boot(),
            "n15-shallow-16x40" => Self::n15_shallow(),
            "n14-shallow-6x40" => Self::n14_shallow(),
            _ => Err(CkksParamsError::UnknownPreset { available: PRESETS }),
        }
    }

    /// For inference: N = 2^16, 14 levels of 40 bits after a bootstrap.
    pub fn n16_boot() -> Result<Arc<Self>, CkksParamsError> {
        Self::new(N16_BOOT)
    }

    /// As [`CkksParams::n16_boot`], with a more precise bootstrap.
    pub fn n16_boot_precise() -> Result<Arc<Self>, CkksParamsError> {
        Self::new(N16_PRECISE)
    }

    /// As [`CkksParams::n16_boot`], with levels of 35 bits and a faster bootstrap.
    pub fn n16_boot_fast() -> Result<Arc<Self>, CkksParamsError> {
        Self::new(N16_FAST)
    }

    /// For exercising everything at real security in half the ring: N = 2^15, 3 levels after a bootstrap.
    pub fn n15_boot() -> Result<Arc<Self>, CkksParamsError> {
        Self::new(CkksLiteral {
            name: "n15-boot-3x40",
            log_n: 15,
            q0_bits: 50,
            stc: PrimeGroup::new(2, 40),
            levels: PrimeGroup::new(3, 40),
            eval_mod: PrimeGroup::new(8, 48),
            wide_square: false,
            cts: PrimeGroup::new(2, 48),
            cts_layers: &[],
            special: PrimeGroup::new(3, 32),
            p0_bits: Some(46),
            log_scale: 40,
            certified_bits: 10,
        })
    }

    /// For shallow circuits without bootstrapping: N = 2^15, 16 levels.
    pub fn n15_shallow() -> Result<Arc<Self>, CkksParamsError> {
        Self::new(N15_SHALLOW)
    }

    /// For the shallowest circuits: N = 2^14, 6 levels.
    pub fn n14_shallow() -> Result<Arc<Self>, CkksParamsError> {
        Self::new(N14_SHALLOW)
    }

    /// The chain of [`CkksParams::n16_boot`] with `levels` levels and seven special primes, over a ring of degree
    /// 2^`log_n`. **Insecure.**
    ///
    /// # Errors
    /// If the ring is outside 2^2 to 2^17, or the chain is longer than 42 primes.
    #[cfg(any(test, feature = "insecure-test-parameters"))]
    pub fn insecure_test(log_n: u32, levels: usize) -> Result<Arc<Self>, CkksParamsError> {
        Self::insecure_for_tests(CkksLiteral {
            name: "insecure-test",
            log_n,
            levels: PrimeGroup::new(levels, 40),
            special: PrimeGroup::new(7, 50),
            ..N16_BOOT
        })
    }

    /// The chain of [`CkksParams::n16_boot_precise`] with `levels` levels and seven special primes, over a ring of
    /// degree 2^`log_n`. **Insecure.**
    ///
    /// # Errors
    /// If the ring is outside 2^2 to 2^17, or the chain is longer than 42 primes.
    #[cfg(any(test, feature = "insecure-test-parameters"))]
    pub fn insecure_precise(log_n: u32, levels: usize) -> Result<Arc<Self>, CkksParamsError> {
        Self::insecure_for_tests(CkksLiteral {
            name: "insecure-precise",
            log_n,
            levels: PrimeGroup::new(levels, 40),
            special: PrimeGroup::new(7, 50),
            ..N16_PRECISE
        })
    }

    /// A chain of q0 and `levels` levels with three special primes, over a ring of degree 2^`log_n`. **Insecure.**
    ///
    /// # Errors
    /// If the ring is outside 2^2 to 2^17, or the chain is longer than 42 primes.
    #[cfg(any(test, feature = "insecure-test-parameters"))]
    pub fn insecure_shallow(log_n: u32, levels: usize) -> Result<Arc<Self>, CkksParamsError> {
        Self::insecure_for_tests(CkksLiteral {
            name: "insecure-shallow",
            log_n,
            levels: PrimeGroup::new(levels, 40),
            ..N15_SHALLOW
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cheaper a set is, the fewer levels it has; each has as many key-switching primes as the table allows.
    #[test]
    fn sets_without_bootstrapping_are_in_order() {
        let sets: Vec<_> = SHALLOW.iter().map(|name| CkksParams::preset(name).unwrap()).collect();
        assert!(sets.is_sorted_by(|a, b| a.n() < b.n() && a.levels() < b.levels()));
        let without: Vec<_> = PRESETS.iter().filter(|n| !CkksParams::preset(n).unwrap().can_bootstrap()).collect();
        assert!(without.len() == SHALLOW.len() && without.iter().all(|name| SHALLOW.contains(name)));
    }

    #[test]
    fn the_measured_bits_are_those_of_the_guide() {
        let guide = include_str!("../../../../docs/ckks.md");
        for name in PRESETS {
            let row = guide.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
            let cell = row.unwrap().split(" | ").nth(3).unwrap();
            let params = CkksParams::preset(name).unwrap();
            let bits = measured_bits(name);
            assert_eq!(bits.is_some(), params.can_bootstrap());
            let expected = bits.map_or("–".to_owned(), |[worst, mean]| format!("{worst}, {mean}"));
            assert_eq!(cell, expected, "{name}");
            assert!(bits.is_none_or(|[worst, _]| worst > f64::from(params.certified_bits())));
        }
    }
}
