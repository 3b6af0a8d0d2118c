//! The evaluation keys that a computation needs, in terms of rotations and levels.
//!
//! The keys themselves come from [`hushed_rlwe::hybrid`]. This module decides how many special primes a key for
//! ciphertexts of a given length uses: the number that makes its key switches cheapest, so short ciphertexts use few.

pub use hushed_rlwe::hybrid::{EvalKeys, Gadget, KeySpecs, KeyUse};
pub use hushed_rlwe::{KeySet, PublicKey, SecretKey};

use crate::error::CkksError;
use crate::params::{CkksParams, SwitchKeySize};

impl CkksParams {
    /// The number of special primes for which key switches of ciphertexts of `limbs` primes take the fewest transforms;
    /// ties go to the smallest keys.
    ///
    /// # Errors
    /// [`CkksError::Rlwe`] if there are no special primes, or no ciphertexts of that length.
    pub fn cheapest_special(&self, limbs: usize) -> Result<usize, CkksError> {
        let rlwe = self.rlwe();
        let gadgets = (1..=rlwe.most_special(limbs)).filter_map(|special| Gadget::new(rlwe, limbs, special).ok());
        let size = |g: &Gadget| g.digits().len() * (limbs + g.special());
        let best = gadgets.min_by_key(|g| (g.transforms(limbs), size(g)));
        match best {
            Some(gadget) => Ok(gadget.special()),
            None => Ok(Gadget::new(rlwe, limbs, rlwe.most_special(limbs))?.special()),
        }
    }

    /// Sums of the ratios D_i/P, and of their squares, over the digits of a key switch of `limbs` primes.
    pub(crate) fn digit_ratios(&self, gadget: &Gadget, limbs: usize) -> [f64; 2] {
        let log2 = |primes: &[u64]| primes.iter().map(|&q| (q as f64).log2()).sum::<f64>();
        let (q, p) = (self.rlwe().q(), &self.rlwe().literal().p);
        let p = log2(&p[..gadget.special()]);
        let digits = gadget.digits_for(limbs);
        let ratios = digits.map(|digit| (log2(&q[digit]) - p).exp2());
        ratios.fold([0.0; 2], |[first, second], ratio| [first + ratio, second + ratio * ratio])
    }

    /// The specs of keys for ciphertexts of at most `limbs` primes: relinearisation if `relin`, the given rotations,
    /// and conjugation on request.
    ///
    /// # Errors
    /// As [`CkksParams::cheapest_special`].
    pub fn key_specs(
        &self,
        limbs: usize,
        relin: bool,
        rotations: &[i64],
        conjugation: bool,
    ) -> Result<KeySpecs, CkksError> {
        let special = self.cheapest_special(limbs)?;
        let mut specs = KeySpecs::new();
        if relin {
            specs.relin(limbs, special);
        }
        for &steps in rotations {
            let element = self.rotation_element(steps);
            if element != 1 {
                specs.galois(element, limbs, special);
            }
        }
        if conjugation {
            specs.galois(self.conjugation_element(), limbs, special);
        }
        Ok(specs)
    }

    /// Sizes of keys, grouped by use.
    ///
    /// # Errors
    /// [`CkksError::Rlwe`] if the specs do not fit these parameters.
    pub fn key_sizes(&self, specs: &KeySpecs) -> Result<Vec<SwitchKeySize>, CkksError> {
        let gadgets = specs.gadgets(self.rlwe())?;
        let mut sizes: Vec<SwitchKeySize> = Vec::new();
        for (spec, gadget) in specs.iter().zip(gadgets) {
            let name = match spec.key {
                KeyUse::Relin => "relinearisation",
                KeyUse::Galois(_) => "rotation",
                KeyUse::ToSparse | KeyUse::FromSparse | KeyUse::Raised(_) => "encapsulation",
            };
            let ids = self.rlwe().extended_ids_with(gadget.limbs(), gadget.special());
            let packed = hushed_rlwe::codec::poly_bytes(self.rlwe().basis(), &ids);
            let digits = gadget.digits().len() as u64;
            let memory = digits * (ids.len() * self.n() * 8) as u64;
            let disk = digits * packed as u64;
            match sizes.iter_mut().find(|size| size.name == name) {
                Some(size) => {
                    size.count += 1;
                    size.memory_bytes += memory;
                    size.disk_bytes += disk;
                }
                None => sizes.push(SwitchKeySize { name, count: 1, memory_bytes: memory, disk_bytes: disk }),
            }
        }
        Ok(sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_primes_follow_the_level() {
        let params = CkksParams::n16_boot().unwrap();
        let at = |limbs| params.cheapest_special(limbs).unwrap();
        assert_eq!(at(29), 7);
        assert!(at(2) <= 3 && at(4) <= 4, "{} {}", at(2), at(4));
        assert!(params.cheapest_special(0).is_err());
    }

    #[test]
    fn a_plan_lists_what_is_asked_for_and_its_bytes() {
        let params = CkksParams::n16_boot().unwrap();
        let specs = params.key_specs(29, true, &[0, 1, 2, -1, 1], true).unwrap();
        assert_eq!(specs.len(), 5);
        let sizes = params.key_sizes(&specs).unwrap();
        let total: u64 = sizes.iter().map(|size| size.memory_bytes).sum();
        assert_eq!(total, specs.memory_bytes(params.rlwe()).unwrap() as u64);
        // Four digits of 36 primes, half a mebibyte each.
        let relin = sizes.iter().find(|size| size.name == "relinearisation");
        assert_eq!(relin.unwrap().memory_bytes, (4 * 36) << 19);
        let report = params.report().with_keys(sizes).to_string();
        assert!(report.contains("4 × rotation: 288 MiB in memory"), "{report}");
    }
}
