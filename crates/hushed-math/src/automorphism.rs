//! X → X^g on values: a permutation, the same for every modulus, at memory speed.
//!
//! Value k belongs to ψ^e with e = 2·rev(k) + 1; its image is the value at exponent g·e modulo 2n. With k = 8K + l, the
//! low bits of e are those of 2·rev(K) + 1 and its three highest are rev(l). So the low bits of g·e depend on K alone
//! and name the source block of block K, while l only permutes within a block. Blocks of eight values therefore move
//! whole, in one of eight orders, and no kernel gathers single words.

use crate::kernels::Pointwise;
#[cfg(target_arch = "x86_64")]
use crate::kernels::{fma, ifma};
use crate::machine::cpu::Cpu;
use crate::modulus::Modulus;
use crate::ntt::reverse_bits;
use crate::words::Words;

/// log2 of the number of values in a block; less for smaller degrees.
const LOG_BLOCK: u32 = 3;

/// The permutation of one Galois element for one degree.
pub struct Automorphism {
    n: usize,
    g: usize,
    /// For each block of the image: index of the first value of the source block, plus the order within it (below the
    /// block size).
    moves: Box<[u32]>,
    /// For each order, the position in the source block of each value.
    orders: [[u64; 8]; 8],
    #[cfg(target_arch = "x86_64")]
    ifma: Option<crate::machine::cpu::HaveIfma>,
    #[cfg(target_arch = "x86_64")]
    fma: Option<(crate::machine::cpu::HaveFma, fma::Halves)>,
}

impl Automorphism {
    /// The permutation of values of degree `n` under X → X^g, g taken modulo 2n.
    ///
    /// # Panics
    /// If g is even, or n is not a power of two up to 2^20.
    pub fn new(n: usize, g: usize) -> Automorphism {
        Automorphism::with_cpu(n, g, Cpu::get())
    }

    /// As [`Automorphism::new`], with the kernel that `cpu` allows: for tests and measurements.
    ///
    /// # Panics
    /// As [`Automorphism::new`].
    pub fn with_cpu(n: usize, g: usize, cpu: Cpu) -> Automorphism {
        assert!(g % 2 == 1, "Galois elements are odd");
        assert!(n.is_power_of_two() && n <= 1 << 20, "a ring degree");
        let log_n = n.trailing_zeros();
        let bits = LOG_BLOCK.min(log_n);
        let (block, log_blocks) = (1 << bits, log_n - bits);
        let g = g % (2 * n);
        let moves = (0..n / block)
            .map(|k| {
                let exponent = (2 * reverse_bits(k, log_blocks) + 1) * g % (2 * n);
                let low = exponent % (2 << log_blocks);
                let order = exponent >> (log_blocks + 1);
                (reverse_bits(low / 2, log_blocks) * block + order) as u32
            })
            .collect();
        let mut orders = [[0; 8]; 8];
        for (order, positions) in orders.iter_mut().enumerate().take(block) {
            for (l, position) in positions.iter_mut().enumerate().take(block) {
                let top = (order + g * reverse_bits(l, bits)) % block;
                *position = reverse_bits(top, bits) as u64;
            }
        }
        let _ = cpu;
        Automorphism {
            n,
            g,
            moves,
            orders,
            #[cfg(target_arch = "x86_64")]
            ifma: cpu.ifma().filter(|_| bits == LOG_BLOCK),
            #[cfg(target_arch = "x86_64")]
            fma: cpu.fma().filter(|_| bits == LOG_BLOCK).map(|token| (token, fma::halves(&orders))),
        }
    }

    /// The ring degree n.
    pub fn n(&self) -> usize {
        self.n
    }

    /// The Galois element g, below 2n.
    pub fn element(&self) -> usize {
        self.g
    }

    /// out ← the values of a(X^g), for the values `src` of a.
    ///
    /// # Panics
    /// If a slice does not have n words.
    pub fn apply(&self, src: &[u64], out: &mut [u64]) {
        self.check(src, out);
        self.permute(&self.moves, 0, src, out);
    }

    fn permute(&self, moves: &[u32], first: usize, src: &[u64], out: &mut [u64]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = self.ifma {
            return ifma::permute(token, moves, &self.orders, first, src, out);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some((token, halves)) = &self.fma {
            return fma::permute(*token, moves, halves, first, src, out);
        }
        self.each(moves, first, src, out, |_, value| value);
    }

    /// Length of the shortest runs that the permutation maps onto themselves: exponents e and g·e agree modulo the
    /// power of two that divides g − 1, and the leading bits of a value's index determine e modulo powers of two.
    pub fn orbit(&self) -> usize {
        if self.g == 1 {
            return 1;
        }
        // g − 1 = 2^k·odd with k ≥ 1: e mod 2^k is kept, which the first k − 1 bits of the index determine.
        let kept = (self.g - 1).trailing_zeros() - 1;
        (self.n >> kept).max(1)
    }

    /// out ← the values of a(X^g) from index `start` on, given the values `src` of a from index `first` on.
    ///
    /// # Panics
    /// If `first`, `start` or a length is not a multiple of 8 (or n), or a value comes from outside `src`; whole
    /// [`Automorphism::orbit`]s, or all n values, are sufficient.
    pub fn apply_strip(&self, src: &[u64], first: usize, start: usize, out: &mut [u64]) {
        let block = self.n.min(1 << LOG_BLOCK);
        let whole = |x: usize| x.is_multiple_of(block);
        assert!(whole(start) && whole(out.len()) && whole(first) && whole(src.len()), "whole blocks");
        let moves = &self.moves[start / block..][..out.len() / block];
        self.permute(moves, first, src, out);
    }

    /// `out[0]` ← φ(added + Σ d_i·`keys[0]_i`), `out[1]` ← φ(Σ d_i·`keys[1]_i`): a key switch and its rotation in one
    /// pass, without storing the products in between. The operands hold values from index `first` on, the results from
    /// index `start` on.
    ///
    /// # Panics
    /// As [`Pointwise::dot_pair`] and [`Automorphism::apply_strip`], or if `added` differs in length from the other
    /// operands.
    pub fn dot_pair_strip(
        &self,
        pointwise: &Pointwise,
        [out_b, out_a]: [&mut [u64]; 2],
        d: &[&[u64]],
        keys: [&[&[u64]]; 2],
        added: Option<&[u64]>,
        [first, start]: [usize; 2],
    ) {
        let block = self.n.min(1 << LOG_BLOCK);
        let run = d.first().map_or(0, |d| d.len());
        #[cfg(target_arch = "x86_64")]
        if self.ifma.is_some()
            && let Some(limb) = pointwise.ifma()
            && out_b.len().is_multiple_of(2 * block)
            && !d.is_empty()
        {
            assert!(start.is_multiple_of(block), "whole blocks");
            let moves = &self.moves[start / block..][..out_b.len() / block];
            let turn = (moves, &self.orders, first);
            return limb.dot_pair_turned([out_b, out_a], d, keys, added, turn);
        }
        let (mut b, mut a) = (Words::scratch(run), Words::scratch(run));
        pointwise.dot_pair([&mut b, &mut a], d, keys);
        if let Some(added) = added {
            pointwise.add_assign(&mut b, added);
        }
        self.apply_strip(&b, first, start, out_b);
        self.apply_strip(&a, first, start, out_a);
    }

    /// `out[0]` ← Σ φ_i(d_i)·`keys[0]_i` and `out[1]` ← Σ φ_i(d_i)·`keys[1]_i`, with φ_i from `turns`: the sum of the
    /// key switches of several automorphisms, without storing the permuted digits. The d_i are values, or the output of
    /// [`crate::NttTables::forward_loose`] for the same modulus and kernels.
    ///
    /// # Panics
    /// As [`Pointwise::dot_pair`], if there is not one turn per digit, or if a slice does not have n words.
    pub fn dot_pair_of_turned(
        turns: &[&Automorphism],
        pointwise: &Pointwise,
        out: [&mut [u64]; 2],
        d: &[&[u64]],
        keys: [&[&[u64]]; 2],
    ) {
        assert_eq!(turns.len(), d.len(), "one turn a digit");
        let whole = |turn: &&Automorphism| turn.n == out[0].len();
        assert!(turns.iter().all(whole), "one word a value");
        #[cfg(target_arch = "x86_64")]
        if turns.iter().all(|turn| turn.ifma.is_some())
            && let Some(limb) = pointwise.ifma()
            && out[0].len() >= 16
        {
            let turns: Vec<_> = turns.iter().map(|t| (&*t.moves, &t.orders)).collect();
            return limb.dot_pair_of_turned(out, d, &turns, keys);
        }
        // Loose output of the transform on 512-bit registers is reduced here: the other kernels take values.
        #[cfg(target_arch = "x86_64")]
        let loose = pointwise.ifma().is_some();
        #[cfg(not(target_arch = "x86_64"))]
        let loose = false;
        let turned = turns.iter().zip(d).map(|(turn, d)| {
            let mut turned = Words::scratch(turn.n);
            turn.apply(d, &mut turned);
            if loose {
                let modulus = pointwise.modulus();
                let words = turned.iter_mut();
                words.for_each(|word| *word = modulus.reduce(*word & ((1 << 52) - 1)));
            }
            turned
        });
        let turned: Vec<Words> = turned.collect();
        let turned: Vec<&[u64]> = turned.iter().map(|turned| &turned[..]).collect();
        pointwise.dot_pair(out, &turned, keys);
    }

    /// acc ← acc + the values of a(X^g), all modulo q.
    ///
    /// # Panics
    /// If a slice does not have n words.
    pub fn apply_add_assign(&self, modulus: &Modulus, src: &[u64], acc: &mut [u64]) {
        self.check(src, acc);
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = self.ifma {
            return ifma::permute_add(token, modulus, &self.moves, &self.orders, src, acc);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some((token, halves)) = &self.fma {
            return fma::permute_add(*token, modulus, &self.moves, halves, src, acc);
        }
        self.each(&self.moves, 0, src, acc, |sum, value| modulus.add(sum, value));
    }

    fn check(&self, src: &[u64], out: &[u64]) {
        let whole = src.len() == self.n && out.len() == self.n;
        assert!(whole, "one word a value");
    }

    fn each(&self, moves: &[u32], first: usize, src: &[u64], out: &mut [u64], f: impl Fn(u64, u64) -> u64) {
        let block = self.n.min(1 << LOG_BLOCK);
        for (out, &from) in out.chunks_exact_mut(block).zip(moves) {
            let order = from as usize % block;
            let source = &src[from as usize - order - first..][..block];
            for (out, &position) in out.iter_mut().zip(&self.orders[order]) {
                *out = f(*out, source[position as usize]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ntt::NttTables;
    use crate::primes::ntt_primes;
    use crate::rng::SecretRng;
    use crate::{Coeff, RnsBasis, RnsPoly};

    #[test]
    fn values_of_the_image_are_the_values_at_powers() {
        let mut rng = SecretRng::insecure_from_seed(1);
        for log_n in 0..10 {
            let n: usize = 1 << log_n;
            let q = ntt_primes(50, n, 1)[0];
            let basis = RnsBasis::new(n, &[q]).unwrap();
            let a: Vec<u64> = (0..n).map(|_| rng.next_u64() % q).collect();
            let b: Vec<u64> = (0..n).map(|_| rng.next_u64() % q).collect();
            let poly = RnsPoly::<Coeff>::from_data(&basis, &[0], &a).unwrap();
            let values = poly.clone().into_eval();
            for g in [1, 3, 5, 2 * n - 1, n + 1, 25, 2 * n + 5] {
                let g = g | 1;
                // On coefficients, `automorphism` follows the definition literally.
                let expected = poly.automorphism(g).into_eval();
                let sums: Vec<u64> = (expected.data().iter().zip(&b)).map(|(x, y)| (x + y) % q).collect();
                for cpu in Cpu::variants() {
                    let automorphism = Automorphism::with_cpu(n, g, cpu);
                    assert_eq!((automorphism.n(), automorphism.element()), (n, g % (2 * n)));
                    let mut out = vec![u64::MAX; n];
                    automorphism.apply(values.limb(0), &mut out);
                    assert_eq!(out, expected.data(), "n = {n}, g = {g}");
                    let mut sum = b.clone();
                    automorphism.apply_add_assign(basis.modulus(0), values.limb(0), &mut sum);
                    assert_eq!(sum, sums, "n = {n}, g = {g}");
                }
            }
        }
    }

    #[test]
    fn orbits_are_closed_and_no_shorter_runs_are() {
        let n = 1 << 10;
        let source: Vec<u64> = (0..n as u64).collect();
        for (g, expected) in [(5, n / 2), (25, n / 4), (2 * n - 1, n), (n + 1, 2), (1, 1)] {
            for cpu in Cpu::variants() {
                let automorphism = Automorphism::with_cpu(n, g, cpu);
                let orbit = automorphism.orbit();
                assert_eq!(orbit, expected, "g = {g}");
                let mut whole = vec![0; n];
                automorphism.apply(&source, &mut whole);
                let closed = |run: usize| {
                    let runs = whole.chunks(run).zip(source.chunks(run));
                    runs.into_iter().all(|(out, from)| out.iter().all(|x| from.contains(x)))
                };
                assert!(closed(orbit) && (orbit == 1 || !closed(orbit / 2)));
                let run = orbit.max(8);
                let last = n - run;
                let mut out = vec![0; run];
                automorphism.apply_strip(&source[last..], last, last, &mut out);
                assert_eq!(out, whole[last..]);
            }
        }
    }

    #[test]
    fn products_are_turned_as_if_they_were_stored_first() {
        let n = 1 << 10;
        let q = ntt_primes(50, n, 1)[0];
        let mut rng = SecretRng::insecure_from_seed(3);
        let mut limb = || -> Vec<u64> { (0..n).map(|_| rng.next_u64() % q).collect() };
        let limbs: Vec<Vec<u64>> = (0..10).map(|_| limb()).collect();
        for g in [5, 25, 1 + 2 * n / 16, 2 * n - 1] {
            for cpu in Cpu::variants() {
                let pointwise = Pointwise::with_cpu(Modulus::new(q).unwrap(), cpu);
                let turn = Automorphism::with_cpu(n, g, cpu);
                let run = turn.orbit().max(16);
                let (first, strip) = (n - run, run.min(64));
                let cut = |range: std::ops::Range<usize>| -> Vec<&[u64]> {
                    limbs[range].iter().map(|limb| &limb[first..]).collect()
                };
                let (d, kb, ka, added) = (cut(0..3), cut(3..6), cut(6..9), &limbs[9][first..]);
                for added in [None, Some(added)] {
                    let mut whole = [vec![0; run], vec![0; run]];
                    let [b, a] = &mut whole;
                    pointwise.dot_pair([b, a], &d, [&kb, &ka]);
                    if let Some(added) = added {
                        pointwise.add_assign(b, added);
                    }
                    let start = n - strip;
                    let mut expected = [vec![0; strip], vec![0; strip]];
                    for (out, from) in expected.iter_mut().zip(&whole) {
                        turn.apply_strip(from, first, start, out);
                    }
                    let mut found = [vec![0; strip], vec![0; strip]];
                    let [b, a] = &mut found;
                    turn.dot_pair_strip(&pointwise, [b, a], &d, [&kb, &ka], added, [first, start]);
                    assert_eq!(found, expected, "g = {g}");
                }
            }
        }
    }

    #[test]
    fn products_of_turned_digits_are_those_of_stored_ones() {
        for (n, bits) in [(8, 50), (16, 50), (1 << 10, 50), (256, 49), (256, 40)] {
            let q = ntt_primes(bits, n, 1)[0];
            let mut rng = SecretRng::insecure_from_seed(4);
            let mut limb = || -> Vec<u64> { (0..n).map(|_| rng.next_u64() % q).collect() };
            let limbs: Vec<Vec<u64>> = (0..12).map(|_| limb()).collect();
            for cpu in Cpu::variants() {
                let pointwise = Pointwise::with_cpu(Modulus::new(q).unwrap(), cpu);
                let turns = [5, 1 + n / 4, 2 * n - 1, 25].map(|g| g | 1);
                let turns = turns.map(|g| Automorphism::with_cpu(n, g, cpu));
                for count in [1, 3, 4] {
                    let list =
                        |from: usize| -> Vec<&[u64]> { limbs[from..][..count].iter().map(Vec::as_slice).collect() };
                    let (d, kb, ka) = (list(0), list(4), list(8));
                    let mut stored = vec![vec![0; n]; count];
                    for ((turn, d), out) in turns.iter().zip(&d).zip(&mut stored) {
                        turn.apply(d, out);
                    }
                    let stored: Vec<&[u64]> = stored.iter().map(Vec::as_slice).collect();
                    let [mut expected, mut found] = [(); 2].map(|()| [vec![0; n], vec![0; n]]);
                    let [b, a] = &mut expected;
                    pointwise.dot_pair([b, a], &stored, [&kb, &ka]);
                    let [b, a] = &mut found;
                    let turns: Vec<&Automorphism> = turns.iter().take(count).collect();
                    let keys = [&kb[..], &ka[..]];
                    Automorphism::dot_pair_of_turned(&turns, &pointwise, [b, a], &d, keys);
                    assert_eq!(found, expected, "n = {n}, {count} digits");
                    // Digits transformed for this call only.
                    let Ok(ntt) = NttTables::with_cpu(n, *pointwise.modulus(), cpu) else {
                        panic!("a prime for this degree");
                    };
                    let mut loose: Vec<Vec<u64>> = d.iter().map(|d| d.to_vec()).collect();
                    for d in &mut loose {
                        ntt.inverse(d);
                        ntt.forward_loose(d);
                    }
                    let d: Vec<&[u64]> = loose.iter().map(Vec::as_slice).collect();
                    let [b, a] = &mut found;
                    b.fill(0);
                    Automorphism::dot_pair_of_turned(&turns, &pointwise, [b, a], &d, keys);
                    assert_eq!(found, expected, "n = {n}, {count} loose digits");
                }
            }
        }
    }

    #[test]
    fn kernels_agree_on_a_large_degree() {
        let n = 1 << 14;
        let mut rng = SecretRng::insecure_from_seed(2);
        let source: Vec<u64> = (0..n).map(|_| rng.next_u64()).collect();
        for g in [5, 2 * n - 1, 3_usize.pow(7)] {
            let mut results = Vec::new();
            for cpu in Cpu::variants() {
                let mut out = vec![0; n];
                let automorphism = Automorphism::with_cpu(n, g, cpu);
                automorphism.apply(&source, &mut out);
                for (start, length) in [(0, 8), (1024, 512), (n - 24, 24)] {
                    let mut strip = vec![0; length];
                    automorphism.apply_strip(&source, 0, start, &mut strip);
                    assert_eq!(strip, out[start..start + length]);
                }
                results.push(out);
            }
            assert!(results.iter().all(|out| *out == results[0]));
        }
    }
}
