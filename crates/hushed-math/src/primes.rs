//! Primes that have a negacyclic transform: q ≡ 1 modulo 2n.

/// The `count` largest primes below 2^`bits` with q ≡ 1 mod 2n, descending; fewer if there are no more.
/// `bits` ≤ 62, n a power of two.
pub fn ntt_primes(bits: u32, n: usize, count: usize) -> Vec<u64> {
    assert!((2..=62).contains(&bits) && n.is_power_of_two(), "bits in 2..=62, n a power of two");
    let step = 2 * n as u64;
    let first = (((1_u64 << bits) - 2) / step * step).saturating_add(1);
    (0..).map_while(|i| first.checked_sub(i * step)).filter(|&q| is_prime(q)).take(count).collect()
}

/// Whether `n` is prime: Miller–Rabin with the first twelve primes as bases, exact below 2^64 (Sorenson and Webster
/// 2015). For public numbers.
pub fn is_prime(n: u64) -> bool {
    const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    if n < 2 {
        return false;
    }
    for p in BASES {
        if n.is_multiple_of(p) {
            return n == p;
        }
    }
    let twos = (n - 1).trailing_zeros();
    let odd = (n - 1) >> twos;
    let mul = |a: u64, b: u64| (u128::from(a) * u128::from(b) % u128::from(n)) as u64;
    BASES.iter().all(|&base| {
        let mut x = 1;
        for bit in (0..64 - odd.leading_zeros()).rev() {
            x = mul(x, x);
            if odd >> bit & 1 == 1 {
                x = mul(x, base);
            }
        }
        x == 1
            || (0..twos).any(|_| {
                let hit = x == n - 1;
                x = mul(x, x);
                hit
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_trial_division_and_known_numbers() {
        for n in 0..5000_u64 {
            let slow = n > 1 && (2..n).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
            assert_eq!(is_prime(n), slow, "{n}");
        }
        assert!(is_prime((1 << 61) - 1) && is_prime(u64::MAX - 58));
        // Strong pseudoprimes to the bases up to 31 and 37, and a square of a prime.
        assert!(!is_prime(3_825_123_056_546_413_051) && !is_prime(318_665_857_834_031_151));
        assert!(!is_prime(((1 << 31) - 1) * ((1 << 31) - 1)));
    }

    #[test]
    fn lists_descending_primes_of_the_right_class() {
        assert_eq!(ntt_primes(7, 8, 10), [113, 97, 17]);
        for (bits, n) in [(50, 1 << 16), (41, 1 << 13), (49, 1 << 13)] {
            let primes = ntt_primes(bits, n, 5);
            assert_eq!(primes.len(), 5);
            assert!(primes.windows(2).all(|w| w[0] > w[1]));
            assert!(primes.iter().all(|q| q % (2 * n as u64) == 1 && q >> (bits - 1) == 1));
        }
    }
}
