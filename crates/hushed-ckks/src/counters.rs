//! Counts of how often each primitive ran. Cost formulas and plans are checked against them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use hushed_rlwe::hybrid::Gadget;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counters shared by threads. Relaxed ordering suffices: each is a sum, read when the work is done.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)+
        }

        /// A snapshot of all counters.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Counters {
            /// The current values.
            pub fn snapshot(&self) -> Counts {
                Counts { $($name: self.$name.get(),)+ }
            }

            /// Resets all counters to zero.
            pub fn reset(&self) {
                $(self.$name.0.store(0, Ordering::Relaxed);)+
            }
        }

        impl Counts {
            /// The counts since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(earlier.$name),)+ }
            }

            /// Name and value of each counter, in the order of declaration.
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }
    };
}

counters! {
    /// Transforms of one limb, in either direction.
    ntt,
    /// Inner products with a switching key, counting both parts as one.
    key_switch,
    /// Decompositions into digits.
    mod_up,
    /// Divisions by the special primes, counted per polynomial.
    mod_down,
    /// Rotations and conjugations, including hoisted ones.
    rotation,
    /// Products of two ciphertexts, relinearised or not.
    ct_mul,
    /// Products with an encoded plaintext.
    pt_mul,
    /// Products with a constant.
    scalar_mul,
    /// Rescales of a ciphertext.
    rescale,
    /// Sums and differences of ciphertexts.
    add,
    /// Whole bootstraps.
    bootstrap,
    /// Modular products besides those of transforms, in limbs: N each.
    products,
    /// Limbs of switching keys that were read, N words each: the stored half of a key.
    key_limbs,
}

/// Key switches with keys of one shape.
pub(crate) struct Switches {
    /// Decompositions.
    pub up: usize,
    /// Inner products with a key.
    pub products: usize,
    /// Divisions of a polynomial by the special primes.
    pub down: usize,
    /// Keys that are read.
    pub keys: usize,
}

impl Switches {
    /// One key switch by itself.
    pub const ONE: Switches = Switches { up: 1, products: 1, down: 2, keys: 1 };
}

impl Counters {
    /// Counts key switches over `limbs` primes.
    pub(crate) fn switched(&self, gadget: &Gadget, limbs: usize, of: &Switches) {
        let primes = limbs + gadget.special();
        let digits = gadget.digits_for(limbs);
        let (count, transforms) = (digits.len(), digits.len() * primes);
        // Each digit under all other primes, and one product per prime of it before that.
        let convert: usize = digits.map(|d| d.len() * (primes - d.len()) + d.len()).sum();
        let divide = gadget.special() * limbs + primes;
        self.mod_up.many(of.up);
        self.key_switch.many(of.products);
        self.mod_down.many(of.down);
        self.ntt.many(of.up * transforms + of.down * primes);
        let inner = 2 * count * primes;
        self.products.many(of.up * convert + of.products * inner + of.down * divide);
        self.key_limbs.many(of.keys * count * primes);
    }
}

/// A count shared by threads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn one(&self) {
        self.many(1);
    }

    /// Adds `count`.
    pub fn many(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.entries().into_iter().enumerate() {
            let gap = if i == 0 { "" } else { ", " };
            write!(f, "{gap}{name} {value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_over_threads() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| counters.ntt.many(3)));
            }
        });
        let before = counters.snapshot();
        assert_eq!(before.ntt, 12_000);
        counters.rescale.one();
        let since = counters.snapshot().since(&before);
        assert_eq!((since.ntt, since.rescale), (0, 1));
        counters.reset();
        assert_eq!(counters.snapshot(), Counts::default());
    }
}
