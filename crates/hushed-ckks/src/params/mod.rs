//! Parameter sets: a literal states what each group of primes is for and is parsed once into checked parameters.
//!
//! The chain of ciphertext primes, from the last one left to the first ones dropped:
//!
//! ```text
//! q0 | stc | levels | eval_mod | cts        and, for key switching, the special primes p
//! ```
//!
//! Bootstrapping in the SlotsToCoeffs-first order takes a ciphertext of 1 + stc primes down to q0, raises it to all
//! primes, and spends cts and eval_mod, leaving 1 + stc + levels primes. A computation may use `levels` of them; the
//! next bootstrap starts with the stc primes below.
//!
//! Security: the secret is dense ternary and log2(QP) is checked against the table of [`hushed_rlwe::params`]. The
//! ephemeral sparse secret of bootstrapping sees only q0·p0 (sparse-secret encapsulation, Bossuat, Troncoso-Pastoriza
//! and Hubaux, ePrint 2022/024).

mod failure;
mod presets;
mod primes;
mod report;

use std::ops::Range;
use std::sync::Arc;

use hushed_rlwe::params::sparse_security_limit;
use hushed_rlwe::{RlweLiteral, RlweParams};

pub use failure::log2_failure;
pub use presets::{PRESETS, SHALLOW};
pub use primes::PrimeGroup;
pub use report::{ParamsReport, SwitchKeySize};

use crate::error::CkksParamsError;
use crate::scale::Scale;
use primes::Chooser;

/// Hamming weight of the ephemeral sparse secret.
pub const EPHEMERAL_WEIGHT: u32 = 32;

/// K: EvalMod is valid for |I| < K, which fails with probability 2^-132.7 per bootstrap at weight 32 and 2^15 slots.
pub const EVAL_MOD_RANGE: u32 = 16;

/// log2 of the largest failure probability per bootstrap that is accepted.
const FAILURE_LIMIT: f64 = -100.0;

/// An unchecked parameter set; [`CkksParams::new`] checks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CkksLiteral {
    /// A name for reports.
    pub name: &'static str,
    /// log2 of the ring degree N.
    pub log_n: u32,
    /// Bits of q0, which no rescale drops.
    pub q0_bits: u32,
    /// Levels of SlotsToCoeffs.
    pub stc: PrimeGroup,
    /// Levels for computations.
    pub levels: PrimeGroup,
    /// Levels of EvalMod.
    pub eval_mod: PrimeGroup,
    /// Makes the first two levels of EvalMod a prime with 5 bits less and a pair with 10 bits more in total. Its first
    /// square, which limits a bootstrap's precision, then gains 5 bits ([`crate::poly::EvalMod`]).
    pub wide_square: bool,
    /// Levels of CoeffsToSlots.
    pub cts: PrimeGroup,
    /// Butterfly layers of each factor of CoeffsToSlots over all slots, in order of application; none for nearly equal
    /// factors. The first factor is applied to a raised ciphertext, whose key switches have one digit.
    pub cts_layers: &'static [usize],
    /// Special primes of key switching.
    pub special: PrimeGroup,
    /// Bits of the first special prime, p0, if it differs from the others: the ephemeral secret sees q0·p0.
    pub p0_bits: Option<u32>,
    /// log2 of the default scale.
    pub log_scale: u32,
    /// Bits after the binary point to which a result is certified when nothing else is known about it.
    pub certified_bits: u32,
}

/// The position of each group of primes in the chain, as indices of ciphertext primes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// SlotsToCoeffs.
    pub stc: Range<usize>,
    /// Computations.
    pub levels: Range<usize>,
    /// EvalMod.
    pub eval_mod: Range<usize>,
    /// CoeffsToSlots.
    pub cts: Range<usize>,
}

/// Checked parameters, immutable and shareable.
pub struct CkksParams {
    literal: CkksLiteral,
    chain: Chain,
    rlwe: Arc<RlweParams>,
    /// ψ^(N/2) for each prime of the basis: the residue of X^(N/2), which is i in every slot, in the first half of the
    /// values; the second half has its negative.
    imaginary: Box<[u64]>,
}

impl CkksParams {
    /// Chooses primes for a literal and checks it.
    ///
    /// # Errors
    /// A [`CkksParamsError`] that says what is wrong with the literal.
    pub fn new(literal: CkksLiteral) -> Result<Arc<Self>, CkksParamsError> {
        let (chain, rlwe) = choose(&literal)?;
        let params = Self::with_rlwe(literal, chain, RlweParams::new(rlwe)?);
        params.check_bootstrap()?;
        Ok(Arc::new(params))
    }

    /// Parameters without the security checks, for small rings. **Insecure.**
    ///
    /// # Errors
    /// As [`CkksParams::new`], except for security.
    #[cfg(any(test, feature = "insecure-test-parameters"))]
    pub fn insecure_for_tests(literal: CkksLiteral) -> Result<Arc<Self>, CkksParamsError> {
        let (chain, rlwe) = choose(&literal)?;
        let rlwe = RlweParams::insecure_for_tests(rlwe)?;
        Ok(Arc::new(Self::with_rlwe(literal, chain, rlwe)))
    }

    fn with_rlwe(literal: CkksLiteral, chain: Chain, rlwe: Arc<RlweParams>) -> Self {
        let basis = rlwe.basis();
        let half = rlwe.n() as u64 / 2;
        let imaginary = (0..basis.len()).map(|id| basis.modulus(id).pow(basis.ntt(id).psi(), half)).collect();
        Self { literal, chain, rlwe, imaginary }
    }

    fn check_bootstrap(&self) -> Result<(), CkksParamsError> {
        if !self.can_bootstrap() {
            return Ok(());
        }
        let (bits, limit) = (self.ephemeral_log2(), self.ephemeral_limit().unwrap_or(0.0));
        if bits > limit {
            return Err(CkksParamsError::EphemeralModulus { bits, limit });
        }
        self.check_range(EVAL_MOD_RANGE)
    }

    /// Checks that an EvalMod of range K = `range` does not fail too often.
    pub(crate) fn check_range(&self, range: u32) -> Result<(), CkksParamsError> {
        let log2_failure = log2_failure(EPHEMERAL_WEIGHT, range, self.slots());
        if log2_failure > FAILURE_LIMIT {
            return Err(CkksParamsError::FailureBound { range, weight: EPHEMERAL_WEIGHT, log2_failure });
        }
        Ok(())
    }

    /// The same set with only its first `levels` levels: the same ring, fewer primes, a smaller modulus.
    pub(crate) fn with_levels(&self, levels: usize) -> Result<Arc<Self>, CkksParamsError> {
        let gap = self.gap(levels);
        let literal = CkksLiteral {
            levels: PrimeGroup { count: self.levels() - gap.len(), ..self.literal.levels },
            ..self.literal.clone()
        };
        let moved = |group: &Range<usize>| group.start - gap.len()..group.end - gap.len();
        let chain = Chain {
            stc: self.chain.stc.clone(),
            levels: self.chain.levels.start..gap.start,
            eval_mod: moved(&self.chain.eval_mod),
            cts: moved(&self.chain.cts),
        };
        let rlwe = self.rlwe.without(&gap)?;
        Ok(Arc::new(Self::with_rlwe(literal, chain, rlwe)))
    }

    /// The ciphertext primes that [`CkksParams::with_levels`] leaves out.
    pub(crate) fn gap(&self, levels: usize) -> Range<usize> {
        let all = &self.chain.levels;
        (all.start + levels).min(all.end)..all.end
    }

    /// The name of the set.
    pub fn name(&self) -> &'static str {
        self.literal.name
    }

    /// The literal that these parameters were parsed from.
    pub fn literal(&self) -> &CkksLiteral {
        &self.literal
    }

    /// Ring, primes, basis.
    pub fn rlwe(&self) -> &Arc<RlweParams> {
        &self.rlwe
    }

    /// The ring degree N.
    pub fn n(&self) -> usize {
        self.rlwe.n()
    }

    /// Complex slots: N/2.
    pub fn slots(&self) -> usize {
        self.n() / 2
    }

    /// All ciphertext primes.
    pub fn max_limbs(&self) -> usize {
        self.rlwe.q_len()
    }

    /// Levels for computations, not counting those of SlotsToCoeffs.
    pub fn levels(&self) -> usize {
        self.literal.levels.count
    }

    /// Primes of a fresh or freshly bootstrapped ciphertext: 1 + stc + levels.
    pub fn fresh_limbs(&self) -> usize {
        self.chain.levels.end
    }

    /// Fewest primes that a bootstrap starts from: 1 + stc.
    pub fn bootstrap_limbs(&self) -> usize {
        self.chain.stc.end
    }

    /// The position of each group of primes.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Levels of EvalMod: its rescales, one of which may drop two primes ([`CkksParams::level_primes`]).
    pub fn eval_mod_levels(&self) -> usize {
        self.literal.eval_mod.count
    }

    /// Number of primes that a rescale of a ciphertext of `limbs` primes drops: 2 at EvalMod's second level if that is
    /// a pair ([`CkksLiteral::wide_square`]), otherwise 1.
    pub fn level_primes(&self, limbs: usize) -> usize {
        let pair = self.literal.wide_square && limbs + 1 == self.chain.eval_mod.end;
        1 + usize::from(pair)
    }

    /// Whether the chain has primes for a bootstrap.
    pub fn can_bootstrap(&self) -> bool {
        self.literal.eval_mod.count > 0
    }

    /// The default scale of messages.
    pub fn default_scale(&self) -> Scale {
        Scale::from_bits(self.literal.log_scale)
    }

    /// Bits after the binary point to which a result is certified when nothing else is known about it.
    pub fn certified_bits(&self) -> u32 {
        self.literal.certified_bits
    }

    /// Ciphertext prime `i`.
    ///
    /// # Panics
    /// If there is no such prime.
    pub fn prime(&self, i: usize) -> u64 {
        self.rlwe.q()[i]
    }

    /// log2 of q0·p0, which the ephemeral secret sees.
    pub fn ephemeral_log2(&self) -> f64 {
        let p0 = self.rlwe.special_prime().unwrap_or(1);
        (self.prime(0) as f64).log2() + (p0 as f64).log2()
    }

    /// The limit on [`CkksParams::ephemeral_log2`], `None` for degrees without one, where bootstrapping keys are
    /// refused.
    pub fn ephemeral_limit(&self) -> Option<f64> {
        sparse_security_limit(self.rlwe.log_n())
    }

    /// log2 of the failure probability of one full-slot bootstrap with an EvalMod of range [`EVAL_MOD_RANGE`];
    /// [`crate::bootstrap::Bootstrapper::log2_failure`] is for the EvalMod in use.
    pub fn log2_bootstrap_failure(&self) -> f64 {
        log2_failure(EPHEMERAL_WEIGHT, EVAL_MOD_RANGE, self.slots())
    }

    /// The Galois element of the rotation that moves slot j + `steps` to slot j: 5^steps modulo 2N.
    pub fn rotation_element(&self, steps: i64) -> usize {
        let mask = 2 * self.n() as u64 - 1;
        let mut exponent = steps.rem_euclid(self.slots() as i64);
        let (mut element, mut power) = (1u64, 5u64);
        while exponent > 0 {
            if exponent & 1 == 1 {
                element = (element * power) & mask;
            }
            power = (power * power) & mask;
            exponent >>= 1;
        }
        element as usize
    }

    /// The Galois element of complex conjugation: 2N − 1.
    pub fn conjugation_element(&self) -> usize {
        2 * self.n() - 1
    }

    /// The residue of i (X^(N/2)) in the first half of the values under prime `id` of the basis.
    pub(crate) fn imaginary(&self, id: usize) -> u64 {
        self.imaginary[id]
    }

    /// Whether `basis` is that of this set. Parameter sets are shared, not rebuilt, so comparing pointers suffices.
    pub(crate) fn same_ring(&self, basis: &Arc<hushed_math::RnsBasis>) -> bool {
        Arc::ptr_eq(self.rlwe.basis(), basis)
    }
}

/// Chooses primes for a literal and checks the groups against each other.
fn choose(literal: &CkksLiteral) -> Result<(Chain, RlweLiteral), CkksParamsError> {
    let (stc, eval_mod, cts) = (literal.stc, literal.eval_mod, literal.cts);
    let given = [stc.count, eval_mod.count, cts.count];
    if given.contains(&0) && given.iter().any(|&c| c > 0) {
        return Err(CkksParamsError::PartialBootstrap { stc: stc.count, eval_mod: eval_mod.count, cts: cts.count });
    }
    // The special primes come first: the larger they are, the more primes fit into one digit of a key switch.
    let mut chooser = Chooser::new(literal.log_n);
    let mut p = Vec::new();
    for group in special_groups(literal) {
        p.extend(chooser.below(group)?);
    }
    let q0 = chooser.below(PrimeGroup::new(1, literal.q0_bits))?;
    let cts_primes = chooser.below(cts)?;
    let mut eval_mod_primes = Vec::new();
    for group in eval_mod_groups(literal) {
        eval_mod_primes.extend(chooser.below(group)?);
    }
    let levels = chooser.around(literal.levels)?;
    let stc_primes = chooser.around(stc)?;
    let mut end = 0;
    let mut next = |count: usize| {
        let start = end;
        end += count;
        start..end
    };
    next(1);
    let chain = Chain {
        stc: next(stc.count),
        levels: next(literal.levels.count),
        eval_mod: next(eval_mod_primes.len()),
        cts: next(cts.count),
    };
    let rlwe =
        RlweLiteral { log_n: literal.log_n, q: [q0, stc_primes, levels, eval_mod_primes, cts_primes].concat(), p };
    Ok((chain, rlwe))
}

/// Groups of special primes: p0 and the others, or all together.
pub(super) fn special_groups(literal: &CkksLiteral) -> Vec<PrimeGroup> {
    let group = literal.special;
    match (literal.p0_bits, group.count.checked_sub(1)) {
        (Some(bits), Some(others)) => vec![PrimeGroup::new(1, bits), PrimeGroup::new(others, group.bits)],
        _ => vec![group],
    }
}

/// Groups of EvalMod's primes in chain order: those used first come last.
fn eval_mod_groups(literal: &CkksLiteral) -> Vec<PrimeGroup> {
    let group = literal.eval_mod;
    match group.count.checked_sub(2) {
        Some(plain) if literal.wide_square => vec![
            PrimeGroup::new(plain, group.bits),
            PrimeGroup::new(2, group.bits.saturating_add(10) / 2),
            PrimeGroup::new(1, group.bits.saturating_sub(5)),
        ],
        _ => vec![group],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_hold_the_table_and_what_they_promise() {
        for (params, bits, levels) in [
            (CkksParams::n16_boot().unwrap(), 1680.0, 14),
            (CkksParams::n16_boot_precise().unwrap(), 1660.0, 14),
            (CkksParams::n16_boot_fast().unwrap(), 1640.0, 14),
            (CkksParams::n15_boot().unwrap(), 840.0, 3),
            (CkksParams::n15_shallow().unwrap(), 840.0, 16),
            (CkksParams::n14_shallow().unwrap(), 390.0, 6),
        ] {
            let found = params.rlwe().log2_qp();
            assert!((found - bits).abs() < 0.01, "{}: {found}", params.name());
            assert_eq!(params.levels(), levels);
            assert_eq!(params.fresh_limbs(), params.bootstrap_limbs() + levels);
            assert!(params.rlwe().q().iter().all(|&q| q < 1 << 50));
        }
    }

    #[test]
    fn key_switches_of_whole_chains_have_few_digits() {
        use hushed_rlwe::hybrid::Gadget;
        for (params, digits) in [
            (CkksParams::n16_boot().unwrap(), 4),
            (CkksParams::n16_boot_fast().unwrap(), 4),
            (CkksParams::n15_boot().unwrap(), 8),
            (CkksParams::n15_shallow().unwrap(), 6),
            (CkksParams::n14_shallow().unwrap(), 4),
        ] {
            let rlwe = params.rlwe();
            let limbs = params.max_limbs();
            let gadget = Gadget::new(rlwe, limbs, rlwe.most_special(limbs)).unwrap();
            assert_eq!(gadget.digits().len(), digits, "{}", params.name());
        }
    }

    #[test]
    fn the_chain_is_in_the_order_of_use() {
        let params = CkksParams::n16_boot().unwrap();
        let chain = params.chain();
        assert_eq!((chain.stc.clone(), chain.levels.clone()), (1..4, 4..18), "q0, then stc, then levels");
        assert_eq!((chain.eval_mod.clone(), chain.cts.clone()), (18..26, 26..29));
        assert_eq!(params.max_limbs(), 29);
        let ratio = params.prime(0) as f64 / params.default_scale().value();
        assert!((ratio.log2() - 10.0).abs() < 1e-3);
        assert!((params.log2_bootstrap_failure() + 132.7).abs() < 0.05);
        assert!(params.ephemeral_log2() <= params.ephemeral_limit().unwrap());
    }

    #[test]
    fn refusals() {
        let good = CkksParams::n16_boot().unwrap().literal().clone();
        let with = |f: &dyn Fn(&mut CkksLiteral)| {
            let mut literal = good.clone();
            f(&mut literal);
            CkksParams::new(literal).err().unwrap()
        };
        assert!(matches!(
            with(&|l| l.levels.count = 24),
            CkksParamsError::Rlwe(hushed_rlwe::ParamsError::Insecure { .. })
        ));
        assert!(matches!(with(&|l| l.cts.count = 0), CkksParamsError::PartialBootstrap { .. }));
        assert!(matches!(with(&|l| l.eval_mod.bits = 51), CkksParamsError::PrimeGroup { .. }));
    }

    /// Published sets have at most 96 bits at 2^15, so two primes of 50 bits are refused, and no preset uses as many.
    /// At 2^16 the limit is 121.
    #[test]
    fn c3_a_sparse_secret_at_half_the_ring_sees_96_bits() {
        let good = CkksParams::n15_boot().unwrap();
        assert_eq!(good.ephemeral_limit(), Some(96.0));
        assert!((good.ephemeral_log2() - 96.0).abs() < 0.01 && good.ephemeral_log2() <= 96.0);
        let wide =
            CkksParams::new(CkksLiteral { special: PrimeGroup::new(2, 50), p0_bits: None, ..good.literal().clone() });
        let refused = wide.err().unwrap();
        let CkksParamsError::EphemeralModulus { bits, limit } = refused else {
            panic!("{refused}");
        };
        assert!((bits - 100.0).abs() < 0.01 && limit == 96.0);
        // Nor do key specs pass: q_0·p_0 of a set without bootstrapping has 100 bits.
        let shallow = CkksParams::n15_shallow().unwrap();
        let mut specs = crate::keys::KeySpecs::new();
        specs.encapsulation(1, 1);
        assert!(matches!(specs.gadgets(shallow.rlwe()), Err(hushed_rlwe::RlweError::SparseModulus { log_n: 15, .. })));
        assert_eq!(CkksParams::n16_boot().unwrap().ephemeral_limit(), Some(121.0));
    }

    /// For weight 32 there are published moduli only at 2^15 and 2^16.
    #[test]
    fn no_bootstrapping_where_the_sparse_secret_has_no_limit() {
        let small = CkksParams::new(CkksLiteral {
            name: "small",
            log_n: 14,
            q0_bits: 50,
            stc: PrimeGroup::new(1, 30),
            levels: PrimeGroup::new(1, 30),
            eval_mod: PrimeGroup::new(8, 26),
            wide_square: false,
            cts: PrimeGroup::new(1, 30),
            cts_layers: &[],
            special: PrimeGroup::new(1, 40),
            p0_bits: None,
            log_scale: 40,
            certified_bits: 10,
        });
        assert!(matches!(small.err().unwrap(), CkksParamsError::EphemeralModulus { .. }));
        // The keys themselves are refused as well.
        let mut specs = crate::keys::KeySpecs::new();
        specs.encapsulation(1, 1);
        let boot = CkksParams::n15_boot().unwrap();
        assert!(specs.gadgets(boot.rlwe()).is_ok());
        let short = hushed_rlwe::RlweParams::olt_small().unwrap();
        assert!(specs.gadgets(&short).is_err());
    }

    #[test]
    fn rotation_elements_are_powers_of_five() {
        let params = CkksParams::insecure_test(10, 2).unwrap();
        assert_eq!(params.rotation_element(0), 1);
        assert_eq!(params.rotation_element(3), 125);
        let (one, back) = (params.rotation_element(1), params.rotation_element(-1));
        assert_eq!(one * back % 2048, 1);
        assert_eq!(params.rotation_element(512), 1);
    }
}
