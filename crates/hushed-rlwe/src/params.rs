//! Parameter sets: a literal with public fields is parsed once into checked, immutable parameters.
//!
//! The ring is R = `Z[X]/(X^N + 1)`. Ciphertexts live modulo Q = q_0·q_1·…, or modulo a prefix of that product;
//! key-switching keys live modulo Q·P. Every secret is dense ternary (uniform on {-1, 0, 1}), except the ephemeral one
//! of bootstrapping ([`SPARSE_SECURITY_LIMITS`]); every error is centred binomial with variance 10.5.
//!
//! 128-bit security: log2(QP) is kept below the limits of the *Security Guidelines for Implementing Homomorphic
//! Encryption* (Bossuat et al., IACR CiC 1(4):26, 2024, Table 5.2, ternary secrets) minus a margin of about 3 %,
//! because later runs of the lattice estimator moved some of the published figures by one or two bits. A literal
//! outside the table is rejected; smaller sets exist only in tests and say so in their name.
//!
//! The limit is on the modulus of each sample, and a key for short ciphertexts has fewer ciphertext primes. So it may
//! have more special primes ([`RlweParams::most_special`]), and with them fewer digits: level-aware key switching
//! (Hwang, Seo and Song, WAHC 2023).

use std::ops::Range;
use std::sync::Arc;

use hushed_math::RnsBasis;
use hushed_math::primes::is_prime;
use sha2::{Digest, Sha256};

use crate::error::{ParamsError, RlweError};
use crate::hybrid;

/// The largest log2(QP) for 128 bits with dense ternary secrets, as `(log2 N, limit)`.
pub const SECURITY_LIMITS: [(u32, f64); 5] = [(12, 102.0), (13, 207.0), (14, 417.0), (15, 841.0), (16, 1684.0)];

/// The last of [`SECURITY_LIMITS`].
const LARGEST_LIMIT: f64 = SECURITY_LIMITS[SECURITY_LIMITS.len() - 1].1;

/// The most primes of a parameter set; bounds every allocation that a literal can cause.
pub const MAX_PRIMES: usize = 42;

/// The most special primes: with 50-bit primes, digits of up to 600 bits.
pub const MAX_SPECIAL_PRIMES: usize = 12;

/// The table's limit on log2(QP) at ring degree 2^`log_n`, `None` outside the table.
pub fn security_limit(log_n: u32) -> Option<f64> {
    limit_at(&SECURITY_LIMITS, log_n)
}

/// The largest log2 of the modulus of a sample under a ternary secret with 32 nonzero coefficients. The guidelines'
/// tables have no row for sparse secrets: these are the largest q_0·p_0 under such an ephemeral secret (Bossuat,
/// Troncoso-Pastoriza and Hubaux, ACNS 2022) in the sets that Lattigo v6 publishes for 128 bits: 60 and 61 bits at 2^16
/// (N16QP1546H192H32), 40 and 56 at 2^15 (N15QP880H16384H32). Smaller rings have none.
pub const SPARSE_SECURITY_LIMITS: [(u32, f64); 2] = [(15, 96.0), (16, 121.0)];

/// The limit of [`SPARSE_SECURITY_LIMITS`] at ring degree 2^`log_n`, `None` if there is none.
pub fn sparse_security_limit(log_n: u32) -> Option<f64> {
    limit_at(&SPARSE_SECURITY_LIMITS, log_n)
}

fn limit_at(limits: &[(u32, f64)], log_n: u32) -> Option<f64> {
    let row = limits.iter().find(|(l, _)| *l == log_n);
    row.map(|(_, limit)| *limit)
}

/// An unchecked parameter set; [`RlweParams::new`] checks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RlweLiteral {
    /// log2 of the ring degree N.
    pub log_n: u32,
    /// Ciphertext primes, each ≡ 1 modulo 2N and below 2^50. Ciphertexts use prefixes of this list.
    pub q: Vec<u64>,
    /// Special primes for hybrid key switching. [`crate::GaloisKeys`] uses the first one, [`crate::hybrid`] as many as
    /// the gadget says. Empty: no key switching.
    pub p: Vec<u64>,
}

/// Checked parameters: ring, primes, basis and the hash that identifies them on the wire.
pub struct RlweParams {
    literal: RlweLiteral,
    basis: Arc<RnsBasis>,
    hash: [u8; 16],
    tables: hybrid::Tables,
    /// Made for tests: no security limit applies.
    insecure: bool,
}

impl RlweParams {
    /// Checks a literal against the table and builds its tables.
    ///
    /// # Errors
    /// Every possible fault of a literal has its own [`ParamsError`].
    pub fn new(literal: RlweLiteral) -> Result<Arc<Self>, ParamsError> {
        let limit = security_limit(literal.log_n).ok_or(ParamsError::DegreeOutOfTable { log_n: literal.log_n })?;
        // A key for all ciphertext primes has at least one special prime.
        let log_qp = log2_product(literal.q.iter().chain(literal.p.first()));
        if log_qp > limit {
            return Err(ParamsError::Insecure { log_n: literal.log_n, log_qp, limit });
        }
        Self::build(literal, false)
    }

    /// Parameters without the security check, for tests that need small rings. **Insecure.**
    ///
    /// # Errors
    /// As [`RlweParams::new`], without the table.
    #[cfg(any(test, feature = "insecure-test-parameters"))]
    pub fn insecure_for_tests(literal: RlweLiteral) -> Result<Arc<Self>, ParamsError> {
        Self::build(literal, true)
    }

    /// Whether these were made for tests, without a security limit.
    pub(crate) fn is_insecure(&self) -> bool {
        self.insecure
    }

    /// Refuses to publish a sample of the sparse secret modulo q_0·p_0 above the limit at this degree, or if there is
    /// no limit.
    pub(crate) fn check_sparse(&self) -> Result<(), RlweError> {
        let (log_n, limit) = (self.log_n(), sparse_security_limit(self.log_n()));
        let bits = log2_product(self.q().first().into_iter().chain(self.literal.p.first()));
        if self.insecure || limit.is_some_and(|limit| bits <= limit) {
            return Ok(());
        }
        Err(RlweError::SparseModulus { log_n, bits, limit })
    }

    /// Products with small plaintexts (weights): N = 2^13, Q ≈ 2^100, P ≈ 2^50.
    ///
    /// Its primes are the first of [`RlweParams::olt_full`], so that one key set of the full
    /// parameters also serves ciphertexts of two primes.
    pub fn olt_small() -> Result<Arc<Self>, ParamsError> {
        let [q0, q1, _, p] = PRIMES_50;
        Self::new(RlweLiteral { log_n: 13, q: vec![q0, q1], p: vec![p] })
    }

    /// Products with full 64-bit plaintexts (share by share): N = 2^13, Q ≈ 2^150, P ≈ 2^50.
    pub fn olt_full() -> Result<Arc<Self>, ParamsError> {
        let [q0, q1, q2, p] = PRIMES_50;
        Self::new(RlweLiteral { log_n: 13, q: vec![q0, q1, q2], p: vec![p] })
    }

    /// Batched oblivious linear evaluation: N = 2^13, Q ≈ 2^164 from four 41-bit primes, no key switching.
    ///
    /// Three primes below 2^50 would leave 10 to 14 bits too few for flooding to 2^-40 after the union bound over an
    /// inference.
    pub fn ole() -> Result<Arc<Self>, ParamsError> {
        Self::new(RlweLiteral { log_n: 13, q: PRIMES_41.to_vec(), p: Vec::new() })
    }

    /// The same ring without the ciphertext primes of `gap`, sharing the tables of the others: a smaller modulus is as
    /// secure. Keys of the whole set also work for it ([`hybrid::EvalKeys::without`]).
    ///
    /// # Errors
    /// [`ParamsError::NoCiphertextPrimes`] if none are left.
    pub fn without(&self, gap: &Range<usize>) -> Result<Arc<Self>, ParamsError> {
        let kept = self.ids_without(gap);
        let q: Vec<u64> = kept.iter().filter_map(|&id| self.literal.q.get(id).copied()).collect();
        if q.is_empty() {
            return Err(ParamsError::NoCiphertextPrimes);
        }
        let literal = RlweLiteral { q, ..self.literal.clone() };
        Ok(Arc::new(Self {
            hash: hash_literal(&literal),
            literal,
            basis: self.basis.subset(&kept)?,
            tables: hybrid::Tables::default(),
            insecure: self.insecure,
        }))
    }

    /// Basis indices of all primes except the ciphertext primes of `gap`.
    pub(crate) fn ids_without(&self, gap: &Range<usize>) -> Vec<usize> {
        let q_len = self.q_len();
        (0..q_len + self.p_len()).filter(|id| *id >= q_len || !gap.contains(id)).collect()
    }

    /// log2 of the ring degree.
    pub fn log_n(&self) -> u32 {
        self.literal.log_n
    }

    /// The ring degree N.
    pub fn n(&self) -> usize {
        1 << self.literal.log_n
    }

    /// The literal that these parameters were built from.
    pub fn literal(&self) -> &RlweLiteral {
        &self.literal
    }

    /// Ciphertext primes.
    pub fn q(&self) -> &[u64] {
        &self.literal.q
    }

    /// The number of ciphertext primes.
    pub fn q_len(&self) -> usize {
        self.literal.q.len()
    }

    /// The first special prime of key switching, if any.
    pub fn special_prime(&self) -> Option<u64> {
        self.literal.p.first().copied()
    }

    /// The number of special primes.
    pub fn p_len(&self) -> usize {
        self.literal.p.len()
    }

    /// The most special primes of a key for ciphertexts of `limbs` primes: its samples are modulo the product of all of
    /// these, which is within the security limit. Insecure rings have the limit of the largest ring, so that their keys
    /// have the shapes of real ones.
    pub fn most_special(&self, limbs: usize) -> usize {
        let limit = match security_limit(self.log_n()) {
            Some(limit) if !self.insecure => limit,
            _ => LARGEST_LIMIT,
        };
        let within = |&special: &usize| self.log2_extended(limbs, special) <= limit;
        (0..=self.p_len()).take_while(within).last().unwrap_or(0)
    }

    /// log2 of the product of the first `limbs` ciphertext primes and the first `special` special primes.
    pub fn log2_extended(&self, limbs: usize, special: usize) -> f64 {
        let p = self.literal.p.iter().take(special);
        log2_product(self.literal.q.iter().take(limbs).chain(p))
    }

    /// The RNS basis: the ciphertext primes, then the special ones.
    pub fn basis(&self) -> &Arc<RnsBasis> {
        &self.basis
    }

    /// Basis indices of a ciphertext with `limbs` primes.
    pub fn ciphertext_ids(&self, limbs: usize) -> Vec<usize> {
        (0..limbs).collect()
    }

    /// Basis indices of the first `limbs` ciphertext primes, then of the first `special` special primes.
    pub fn extended_ids_with(&self, limbs: usize, special: usize) -> Vec<usize> {
        let q_len = self.q_len();
        (0..limbs).chain(q_len..q_len + special).collect()
    }

    /// The product P of the first `special` special primes, modulo prime `id` of the basis.
    pub fn p_modulo(&self, special: usize, id: usize) -> u64 {
        let q_len = self.q_len();
        self.product_modulo(q_len..q_len + special, id)
    }

    /// The product of the primes `ids` of the basis, modulo its prime `id`.
    pub(crate) fn product_modulo(&self, ids: impl IntoIterator<Item = usize>, id: usize) -> u64 {
        let q = self.basis.modulus(id);
        let primes = ids.into_iter().map(|p| self.basis.modulus(p).value());
        primes.fold(1, |product, p| q.mul(product, q.reduce(p)))
    }

    /// 1 over that product; `id` must not be one of `ids`.
    pub(crate) fn inverse_modulo(&self, ids: impl IntoIterator<Item = usize>, id: usize) -> u64 {
        let q = self.basis.modulus(id);
        // By Fermat's little theorem: the primes are distinct.
        q.pow(self.product_modulo(ids, id), q.value() - 2)
    }

    /// What hybrid key switching prepares once per shape.
    pub(crate) fn tables(&self) -> &hybrid::Tables {
        &self.tables
    }

    /// log2 of the modulus of a ciphertext with `limbs` primes.
    pub fn log2_q(&self, limbs: usize) -> f64 {
        self.log2_extended(limbs, 0)
    }

    /// log2(QP): the largest modulus at which any sample is published.
    pub fn log2_qp(&self) -> f64 {
        let sizes = (1..=self.q_len()).map(|limbs| self.log2_extended(limbs, self.most_special(limbs)));
        sizes.fold(0.0, f64::max)
    }

    /// 16 bytes that identify the parameter set in every artefact.
    pub fn hash(&self) -> &[u8; 16] {
        &self.hash
    }

    fn build(literal: RlweLiteral, insecure: bool) -> Result<Arc<Self>, ParamsError> {
        // 2^17 is the largest degree of the security guidelines, 2^2 the smallest with a kernel.
        if !(2..=17).contains(&literal.log_n) {
            return Err(ParamsError::UnsupportedDegree { log_n: literal.log_n });
        }
        if literal.q.is_empty() {
            return Err(ParamsError::NoCiphertextPrimes);
        }
        let given = literal.p.len();
        if given > MAX_SPECIAL_PRIMES {
            return Err(ParamsError::TooManySpecialPrimes { given, limit: MAX_SPECIAL_PRIMES });
        }
        let moduli: Vec<u64> = literal.q.iter().chain(&literal.p).copied().collect();
        if moduli.len() > MAX_PRIMES {
            return Err(ParamsError::TooManyPrimes { given: moduli.len(), limit: MAX_PRIMES });
        }
        let two_n = 2u64 << literal.log_n;
        for (i, &m) in moduli.iter().enumerate() {
            if m % two_n != 1 || !is_prime(m) {
                return Err(ParamsError::NotAnNttPrime { value: m, two_n });
            }
            if moduli.iter().take(i).any(|&other| other == m) {
                return Err(ParamsError::RepeatedPrime { prime: m });
            }
        }
        let basis = RnsBasis::new(1 << literal.log_n, &moduli)?;
        let hash = hash_literal(&literal);
        Ok(Arc::new(Self { literal, basis, hash, tables: hybrid::Tables::default(), insecure }))
    }
}

/// The four largest primes below 2^50 that are 1 modulo 2^14.
const PRIMES_50: [u64; 4] = [0x3_ffff_fffc_c001, 0x3_ffff_ffef_4001, 0x3_ffff_ffe9_4001, 0x3_ffff_ffff_c001];

/// The four largest primes below 2^41 that are 1 modulo 2^14.
const PRIMES_41: [u64; 4] = [0x1ff_ffff_0001, 0x1ff_fffb_0001, 0x1ff_fff2_4001, 0x1ff_ffed_8001];

fn log2_product<'a>(primes: impl Iterator<Item = &'a u64>) -> f64 {
    primes.map(|&p| (p as f64).log2()).sum()
}

fn hash_literal(literal: &RlweLiteral) -> [u8; 16] {
    let mut h = Sha256::new();
    h.update(b"hushed rlwe parameters 1");
    h.update(literal.log_n.to_le_bytes());
    for list in [&literal.q, &literal.p] {
        h.update((list.len() as u64).to_le_bytes());
        for p in list {
            h.update(p.to_le_bytes());
        }
    }
    let digest: [u8; 32] = h.finalize().into();
    let mut out = [0; 16];
    out.copy_from_slice(&digest[..16]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_hold_the_table() {
        for (params, log_qp) in [
            (RlweParams::olt_small().unwrap(), 150.0),
            (RlweParams::olt_full().unwrap(), 200.0),
            (RlweParams::ole().unwrap(), 164.0),
        ] {
            assert!((params.log2_qp() - log_qp).abs() < 0.01);
            assert!(params.log2_qp() <= security_limit(params.log_n()).unwrap());
        }
    }

    /// Keys for short ciphertexts may have more special primes, and no key is above the limit.
    #[test]
    fn special_primes_fill_the_limit() {
        let primes = hushed_math::primes::ntt_primes(50, 1 << 16, 40);
        let literal =
            |q: usize, p: usize| RlweLiteral { log_n: 16, q: primes[..q].to_vec(), p: primes[q..q + p].to_vec() };
        let params = RlweParams::new(literal(28, 12)).unwrap();
        let most: Vec<usize> = [28, 27, 25, 22, 21, 1].iter().map(|&limbs| params.most_special(limbs)).collect();
        assert_eq!(most, [5, 6, 8, 11, 12, 12]);
        let limit = security_limit(16).unwrap();
        for limbs in 1..=28 {
            for special in 1..=12 {
                let within = params.log2_extended(limbs, special) <= limit;
                let accepted = hybrid::Gadget::new(&params, limbs, special).is_ok();
                assert_eq!(accepted, within, "{limbs} {special}");
                let raised = hybrid::Gadget::raised(&params, limbs, special).is_ok();
                assert_eq!(raised, within, "{limbs} {special}");
            }
        }
        assert!(params.log2_qp() <= limit && params.log2_qp() > limit - 50.0);
        // 1,700 bits with one special prime.
        let refused = RlweParams::new(literal(33, 1)).err();
        assert!(matches!(refused, Some(ParamsError::Insecure { .. })), "{refused:?}");
    }

    #[test]
    fn small_is_a_prefix_of_full() {
        let (small, full) = (RlweParams::olt_small().unwrap(), RlweParams::olt_full().unwrap());
        assert_eq!(small.q(), &full.q()[..2]);
        assert_eq!(small.special_prime(), full.special_prime());
        assert_ne!(small.hash(), full.hash());
    }

    #[test]
    fn refusals() {
        let good = RlweParams::olt_small().unwrap().literal().clone();
        let with = |f: &dyn Fn(&mut RlweLiteral)| {
            let mut l = good.clone();
            f(&mut l);
            RlweParams::new(l).err().unwrap()
        };
        // 150 bits at N = 2^12: over the limit of 102.
        assert!(matches!(with(&|l| l.log_n = 12), ParamsError::Insecure { log_n: 12, .. }));
        assert!(matches!(with(&|l| l.log_n = 11), ParamsError::DegreeOutOfTable { .. }));
        assert!(matches!(with(&|l| l.log_n = 63), ParamsError::DegreeOutOfTable { .. }));
        assert!(matches!(with(&|l| l.q.clear()), ParamsError::NoCiphertextPrimes));
        assert!(matches!(with(&|l| l.q[0] -= 2), ParamsError::NotAnNttPrime { .. }));
        assert!(matches!(with(&|l| l.q[0] = 0), ParamsError::NotAnNttPrime { .. }));
        assert!(matches!(with(&|l| l.q[1] = l.p[0]), ParamsError::RepeatedPrime { .. }));
        assert!(matches!(
            with(&|l| {
                l.log_n = 16;
                l.p = hushed_math::primes::ntt_primes(49, 1 << 16, 13);
            }),
            ParamsError::TooManySpecialPrimes { given: 13, limit: MAX_SPECIAL_PRIMES }
        ));
        assert!(matches!(
            RlweParams::insecure_for_tests(RlweLiteral { log_n: 40, ..good }),
            Err(ParamsError::UnsupportedDegree { .. })
        ));
    }
}
