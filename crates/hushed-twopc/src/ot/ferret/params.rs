//! Parameter sets of the iterated extension: the only table of LPN sizes.
//!
//! A set is (t, log2 k, h): t noise blocks of 2^h rows with one noise position each (regular noise), n = t·2^h rows, k
//! = 2^log_k columns, nine taps per row, where published sets have ten: an even number loses a bit of the secret and
//! leaves no set of rows invertible, and the next odd number costs time. k and h are those of emp-ot 1.0 (2026), which
//! chose them for at least 128 bits against pooled Gauss, statistical decoding and information-set decoding (Liu, Wang,
//! Yang, Yu, ePrint 2022/712), BJMM, the algebraic attack on regular noise (Briaud, Øygarden, EUROCRYPT 2023, and its
//! improvement ePrint 2025/1476) and its hybrid with guessing. [`FerretParams::attacks`] computes the first and the
//! last, and the last again for rows of nine taps, where the quadratic system stays sparse: that is the strongest.
//! Older sets in public code, made for the same task before those attacks (for example k = 124 000, t = 4971), are
//! below 128 bits and not used.
//!
//! t is smaller here than in emp-ot (850, 1170, 1520, 1900), where the hybrid costs 132.3, 131.4, 130.9 and 130.6 bits
//! by dense elimination, and 122.2, 118.3, 115.0 and 112.2 by the sparse count. Fewer blocks of the same size are
//! harder: a solver for t' < t of them solves t by leaving some out. The price is an extension that makes fewer OTs and
//! consumes almost as many: two to three percent of the OTs per second. All t are multiples of a step's 32 trees.
//!
//! The figures are for one extension, and hold for any number of them: each has a code of its own, so no two systems
//! share a matrix. (Under one code for Q extensions, guessing and elimination would serve all of them, and an attack
//! that finds one of Q secrets would cost up to Q times less.)

use hushed_math::bits::TAPS;

/// The sets assume nine taps and regular noise; see the module header for the attacks.
const _: () = assert!(TAPS == 9, "the sets were estimated for nine taps");

/// LPN sizes of one extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FerretParams {
    trees: usize,
    log_k: u32,
    depth: usize,
}

/// Work in bits: log2 of an attack's operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attacks {
    /// Gaussian elimination on rows guessed to have no noise.
    pub pooled_gauss: f64,
    /// Guessed zeros, then a quadratic system linearised and solved by dense elimination.
    pub hybrid: f64,
    /// The same with all k unknowns kept, so that equations stay sparse, solved by Wiedemann's method.
    pub sparse_hybrid: f64,
}

impl Attacks {
    /// The cheapest one.
    pub fn least(&self) -> f64 {
        self.pooled_gauss.min(self.hybrid).min(self.sparse_hybrid)
    }
}

/// The sets, smallest first. Columns: t, log2 k, h.
const SETS: [FerretParams; 4] = [set(640, 16, 10), set(736, 17, 11), set(896, 18, 12), set(1024, 19, 13)];

const fn set(trees: usize, log_k: u32, depth: usize) -> FerretParams {
    FerretParams { trees, log_k, depth }
}

impl FerretParams {
    /// k = 2^16: the default. Its secret is 1 MiB, which fits a second-level cache along with what is made from it.
    pub const K16: FerretParams = SETS[0];
    /// k = 2^17: 0.7 bits of traffic per OT where 2^16 takes 1.3, but a row takes half as long again to encode.
    pub const K17: FerretParams = SETS[1];
    /// k = 2^18: 0.4 bits of traffic per OT, slower.
    pub const K18: FerretParams = SETS[2];
    /// k = 2^19: 0.2 bits of traffic per OT, slower still.
    pub const K19: FerretParams = SETS[3];
    /// The set that sessions use.
    pub const DEFAULT: FerretParams = FerretParams::K16;

    /// t: number of trees, and of noise positions.
    pub fn trees(&self) -> usize {
        self.trees
    }

    /// log2 of the number of columns.
    pub fn log_k(&self) -> u32 {
        self.log_k
    }

    /// h: levels per tree.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// n = t·2^h: OTs that one extension makes.
    pub fn outputs(&self) -> usize {
        self.trees << self.depth
    }

    /// k + t·h: OTs that one extension consumes, kept from the one before.
    pub fn inputs(&self) -> usize {
        (1 << self.log_k) + self.trees * self.depth
    }

    /// Payload bytes of one extension, all from sender to receiver: h − 1 blocks per tree.
    pub fn message_bytes(&self) -> usize {
        self.trees * (self.depth - 1) * 16
    }

    /// The cost of the strongest attacks, by formula.
    pub fn attacks(&self) -> Attacks {
        Attacks { pooled_gauss: self.pooled_gauss(), hybrid: self.hybrid(), sparse_hybrid: self.sparse_hybrid() }
    }

    /// Guesses k rows without noise, k/t in every block of 2^h, and inverts.
    fn pooled_gauss(&self) -> f64 {
        let (t, k, block) = self.sizes();
        2.8 * k.log2() - t * (1.0 - k / t / block).log2()
    }

    /// The hybrid of guessing and a linearised quadratic system (Briaud, Øygarden; with ePrint 2025/1476). Guess that μ
    /// given rows of each block have no noise: right with probability (1 − μ/2^h)^t. Each guessed row, and the sum of
    /// each block, is a linear equation, which leaves v = k − t·(μ + 1) unknown bits. No two rows of a block are both
    /// noisy, which gives t·C(2^h − μ − 1, 2) quadratic equations in them. Once there are as many as the v·(v + 1)/2
    /// monomials, the system is linear in the monomials and costs one elimination. Takes the μ of least work; some
    /// blocks may have one more guess than others, so μ is a multiple of 1/t.
    fn hybrid(&self) -> f64 {
        /// Strassen's exponent.
        const OMEGA: f64 = 2.807;
        // The linear part is a system in k unknowns.
        let k = f64::from(self.log_k);
        let guesses = self.solvable_guesses();
        let works = guesses.map(|(guessed, monomials)| guessed + OMEGA * monomials.log2().max(k));
        works.fold(f64::INFINITY, f64::min)
    }

    /// The hybrid without eliminating the guessed rows: the k²/2 monomials in the secret stay, and a quadratic equation
    /// is the product of two rows of nine taps and their noise, at most 10² monomials. Wiedemann's method takes three
    /// matrix-vector products per monomial. This is our own estimate, not a published one, counting every bit
    /// operation.
    fn sparse_hybrid(&self) -> f64 {
        let weight = ((TAPS + 1) * (TAPS + 1)) as f64;
        let monomials = 2.0 * f64::from(self.log_k) - 1.0;
        let solve = 2.0 * monomials + (3.0 * weight).log2();
        let guesses = self.solvable_guesses();
        guesses.fold(f64::INFINITY, |least, (guessed, _)| least.min(guessed + solve))
    }

    /// For each number of guessed rows that leaves a solvable system: the cost of the guess in bits, and the monomials
    /// left.
    fn solvable_guesses(&self) -> impl Iterator<Item = (f64, f64)> {
        let (t, k, block) = self.sizes();
        let unknowns = (1usize << self.log_k) - self.trees;
        (0..unknowns).filter_map(move |guesses| {
            let mu = guesses as f64 / t;
            let rest = block - mu;
            let v = k - t * (mu + 1.0);
            let monomials = v * (v + 1.0) / 2.0;
            let equations = t * (rest - 1.0) * (rest - 2.0) / 2.0;
            let solvable = v >= 1.0 && equations >= monomials;
            solvable.then(|| (-t * (rest / block).log2(), monomials))
        })
    }

    /// t, k and the rows per block.
    fn sizes(&self) -> (f64, f64, f64) {
        let (k, block) = (f64::from(self.log_k).exp2(), (self.depth as f64).exp2());
        (self.trees as f64, k, block)
    }

    /// Position in the table, compared with the peer's.
    pub(super) fn id(&self) -> u8 {
        SETS.iter().position(|s| s == self).map_or(u8::MAX, |i| i as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_feed_themselves_and_the_first_feeds_all() {
        for s in SETS {
            assert!(s.outputs() > 4 * s.inputs(), "{s:?}");
            assert!(FerretParams::K16.outputs() > s.inputs(), "{s:?}");
        }
    }

    #[test]
    fn f6_every_set_holds_against_all_attacks() {
        for s in SETS {
            let attacks = s.attacks();
            assert!(attacks.least() >= 129.0, "{s:?}: {attacks:?}");
            assert!(attacks.sparse_hybrid < attacks.hybrid, "the header's word");
        }
    }

    #[test]
    fn f6_a_set_that_only_the_hybrid_breaks_is_refused() {
        let bad = set(7600, 17, 11).attacks();
        assert!(bad.pooled_gauss > 140.0, "{bad:?}");
        assert!((bad.hybrid - 92.1).abs() < 0.1, "{bad:?}");
        assert!(bad.least() < 128.0);
    }

    #[test]
    fn f6_the_hybrid_on_sets_of_emp_ot() {
        let published = [
            (set(850, 16, 10), 132.3, 122.2),
            (set(1170, 17, 11), 131.4, 118.3),
            (set(1520, 18, 12), 130.9, 115.0),
            (set(1900, 19, 13), 130.6, 112.2),
        ];
        for (s, bits, sparse) in published {
            let found = s.attacks();
            assert!((found.hybrid - bits).abs() < 0.05, "{s:?}: {found:?}");
            assert!((found.sparse_hybrid - sparse).abs() < 0.05, "{s:?}");
        }
    }

    #[test]
    fn pooled_gauss_for_the_scale() {
        let bits = SETS.map(|s| s.attacks().pooled_gauss);
        assert!(bits.iter().all(|b| (140.0..150.0).contains(b)), "{bits:?}");
        // An old set (b11 of several libraries): the algebraic attack, not this one, puts it below 128.
        let (n, k, t) = (10_180_608f64, 124_000f64, 4971f64);
        let old = 2.8 * k.log2() - t * (1.0 - k / n).log2();
        assert!((128.0..140.0).contains(&old), "{old}");
    }

    #[test]
    fn sizes_of_the_default() {
        let s = FerretParams::DEFAULT;
        assert_eq!(s.outputs(), 655_360);
        assert_eq!(s.inputs(), 71_936);
        assert_eq!(s.message_bytes(), 92_160);
        let bits = s.message_bytes() as f64 * 8.0 / (s.outputs() - s.inputs()) as f64;
        assert!(bits < 1.27);
    }
}
