//! A parameter set as text: chain, scale, levels, key sizes, security, failure.

use std::fmt;

use hushed_rlwe::params::security_limit;

use super::{CkksParams, EPHEMERAL_WEIGHT, EVAL_MOD_RANGE, PrimeGroup, special_groups};

/// Published log2(QP) for 128, 192 and 256 bits with dense ternary secrets, N = 2^12 … 2^16 (Bossuat et al., IACR CiC
/// 1(4):26, Table 5.2).
const PUBLISHED: [(u32, [f64; 3]); 5] = [
    (12, [106.0, 73.0, 56.0]),
    (13, [214.0, 147.0, 114.0]),
    (14, [430.0, 297.0, 230.0]),
    (15, [868.0, 597.0, 462.0]),
    (16, [1747.0, 1199.0, 929.0]),
];

/// Size of the switching keys of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct SwitchKeySize {
    /// Purpose of the keys.
    pub name: &'static str,
    /// Number of keys.
    pub count: usize,
    /// Bytes of all keys in memory, with uniform halves regenerated.
    pub memory_bytes: u64,
    /// Bytes of all keys packed on disk.
    pub disk_bytes: u64,
}

/// A human-readable summary of a parameter set.
#[derive(Debug, Clone, PartialEq)]
pub struct ParamsReport {
    /// Name of the set.
    pub name: &'static str,
    /// log2 of the ring degree.
    pub log_n: u32,
    /// Complex slots.
    pub slots: usize,
    /// Groups of the chain, from q0 up, then the special primes.
    pub chain: Vec<(&'static str, PrimeGroup)>,
    /// log2 of the default scale.
    pub log_scale: u32,
    /// log2(q0/scale), the headroom above the message before a bootstrap.
    pub message_ratio_bits: f64,
    /// Levels for computations.
    pub levels: usize,
    /// Certified bits after the binary point.
    pub certified_bits: u32,
    /// Measured bits after a bootstrap, for presets that have one: in the worst slot and on average.
    pub bootstrap_bits: Option<[f64; 2]>,
    /// log2(QP), the largest modulus of a key.
    pub log2_qp: f64,
    /// Special primes of a key for the whole chain, and the most of one for shorter ciphertexts, which have room for
    /// more within the limit.
    pub special: [usize; 2],
    /// The limit on log2(QP).
    pub security_limit: Option<f64>,
    /// Bits of security by interpolation in the published table, `None` outside it.
    pub security_bits: Option<f64>,
    /// log2(q0·p0), which the ephemeral secret sees; only with bootstrapping.
    pub ephemeral_log2: Option<f64>,
    /// The limit on log2(q0·p0).
    pub ephemeral_limit: Option<f64>,
    /// log2 of the failure probability of one full bootstrap; only with bootstrapping.
    pub log2_failure: Option<f64>,
    /// Sizes of keys, set by [`ParamsReport::with_keys`].
    pub keys: Vec<SwitchKeySize>,
}

impl CkksParams {
    /// A report on this set, without keys.
    pub fn report(&self) -> ParamsReport {
        let literal = self.literal();
        let eval_mod = super::eval_mod_groups(literal);
        let mut chain =
            vec![("q0", PrimeGroup::new(1, literal.q0_bits)), ("stc", literal.stc), ("levels", literal.levels)];
        chain.extend(eval_mod.into_iter().map(|group| ("eval_mod", group)));
        chain.push(("cts", literal.cts));
        chain.extend(special_groups(literal).into_iter().map(|group| ("special", group)));
        let log2_qp = self.rlwe().log2_qp();
        let boot = self.can_bootstrap();
        ParamsReport {
            name: literal.name,
            log_n: literal.log_n,
            slots: self.slots(),
            chain: chain.into_iter().filter(|(_, g)| g.count > 0).collect(),
            log_scale: literal.log_scale,
            message_ratio_bits: (self.prime(0) as f64).log2() - self.default_scale().log2(),
            levels: self.levels(),
            certified_bits: literal.certified_bits,
            bootstrap_bits: super::presets::measured_bits(literal.name),
            log2_qp,
            special: [self.max_limbs(), 1].map(|limbs| self.rlwe().most_special(limbs)),
            security_limit: security_limit(literal.log_n),
            security_bits: security_bits(literal.log_n, log2_qp),
            ephemeral_log2: boot.then(|| self.ephemeral_log2()),
            ephemeral_limit: self.ephemeral_limit().filter(|_| boot),
            log2_failure: boot.then(|| self.log2_bootstrap_failure()),
            keys: Vec::new(),
        }
    }
}

impl ParamsReport {
    /// Adds the sizes of a set of keys.
    #[must_use]
    pub fn with_keys(mut self, keys: Vec<SwitchKeySize>) -> Self {
        self.keys = keys;
        self
    }
}

/// Classical bits of security, interpolated linearly in 1/log2(QP) within a row of the table, which follows that law to
/// a few bits; capped at its last column.
fn security_bits(log_n: u32, log2_qp: f64) -> Option<f64> {
    let (_, row) = PUBLISHED.iter().find(|(l, _)| *l == log_n)?;
    let bits = [128.0, 192.0, 256.0];
    let at = |from: usize, to: usize| {
        let slope = (bits[to] - bits[from]) / (1.0 / row[to] - 1.0 / row[from]);
        bits[from] + slope * (1.0 / log2_qp - 1.0 / row[from])
    };
    let found = if log2_qp > row[1] { at(0, 1) } else { at(1, 2) };
    Some(found.min(256.0))
}

impl fmt::Display for ParamsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: N = 2^{}, {} slots", self.name, self.log_n, self.slots)?;
        write!(f, "  chain         ")?;
        for (i, (name, group)) in self.chain.iter().enumerate() {
            let bar = if i == 0 { "" } else { " | " };
            write!(f, "{bar}{name} {}×{}", group.count, group.bits)?;
        }
        let [whole, most] = self.special;
        if whole < most {
            write!(f, "; {whole} special in keys for the whole chain")?;
        }
        writeln!(f)?;
        writeln!(f, "  scale         2^{}, q0/scale = 2^{:.1}", self.log_scale, self.message_ratio_bits)?;
        writeln!(f, "  levels        {}", self.levels)?;
        writeln!(f, "  precision     {} bits certified", self.certified_bits)?;
        if let Some([worst, mean]) = self.bootstrap_bits {
            writeln!(f, "  bootstrap     {worst:.1} bits at the worst slot, {mean:.1} in the mean, as measured")?;
        }
        write!(f, "  log2(QP)      {:.1}", self.log2_qp)?;
        match (self.security_limit, self.security_bits) {
            (Some(limit), Some(bits)) => {
                writeln!(f, " of {limit} for 128 bits, dense ternary: about {bits:.0} bits by the 2024 table")?
            }
            _ => writeln!(f, ", outside the security table: INSECURE")?,
        }
        if let (Some(ephemeral), Some(failure)) = (self.ephemeral_log2, self.log2_failure) {
            write!(f, "  ephemeral key weight {EPHEMERAL_WEIGHT}, log2(q0·p0) {ephemeral:.1}")?;
            match self.ephemeral_limit {
                Some(limit) => writeln!(f, " of {limit}")?,
                None => writeln!(f, ", no published limit: INSECURE")?,
            }
            writeln!(f, "  failure       2^{failure:.1} a full bootstrap (|I| < K = {EVAL_MOD_RANGE}, Irwin–Hall)")?;
        }
        for key in &self.keys {
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            writeln!(
                f,
                "  keys          {} × {}: {:.0} MiB in memory, {:.0} MiB on disk",
                key.count,
                key.name,
                mib(key.memory_bytes),
                mib(key.disk_bytes)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_says_what_the_set_is() {
        let report = CkksParams::n16_boot().unwrap().report();
        assert!((report.log2_qp - 1680.0).abs() < 0.01);
        let bits = report.security_bits.unwrap();
        assert!((132.0..145.0).contains(&bits), "{bits}");
        let text = report.to_string();
        for part in [
            "q0 1×50 | stc 3×40 | levels 14×40 | eval_mod 8×50 | cts 3×50 | special 12×50; 8 special in keys for the whole chain",
            "2^-132.7",
            "log2(q0·p0) 100.0 of 121",
            "q0/scale = 2^10.0",
            "16.4 bits at the worst slot, 20.2 in the mean",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let small = CkksParams::insecure_test(10, 2).unwrap().report();
        assert!(small.to_string().contains("INSECURE"));
    }

    #[test]
    fn the_published_rows_are_interpolated() {
        for (log_n, row) in PUBLISHED {
            for (bits, limit) in [128.0, 192.0, 256.0].into_iter().zip(row) {
                let found = security_bits(log_n, limit).unwrap();
                assert!((found - bits).abs() < 1e-9);
            }
        }
    }
}
