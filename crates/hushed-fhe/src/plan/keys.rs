//! The evaluation keys that a run needs: exactly its rotations and products, at the number of primes at which they
//! occur.
//!
//! A simulation of the run counts them ([`Counts`]). A key made for long ciphertexts also serves shorter ones, but with
//! more special primes than they need; a key for each length takes memory. So the lengths of each use are split into
//! groups with one key per group, minimising the sum of transforms (of its key switches in the run) and residues (of
//! its keys), where a residue is worth [`TRANSFORMS_A_RESIDUE`].

use std::collections::{BTreeMap, BTreeSet};

use hushed_ckks::CkksParams;
use hushed_ckks::keys::{KeySpecs, KeyUse};
use hushed_rlwe::hybrid::Gadget;

use crate::error::FheError;
use crate::simulate::{Counts, Op};

/// Transforms per run that are worth the memory of one residue: at N = 2^16 a transform takes a third of a millisecond
/// on one core, and a residue 0.5 MiB, so a GiB of keys is spent to save one core-minute.
pub const TRANSFORMS_A_RESIDUE: u64 = 100;

/// How often each key is used, by the primes of the ciphertexts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyDemand {
    uses: BTreeMap<KeyUse, BTreeMap<usize, u64>>,
    /// Rotations of grids of maps, by element and primes: sums over Q·P need keys of one shape.
    maps: BTreeSet<(usize, usize)>,
}

impl KeyDemand {
    /// The demand of a simulated run.
    #[must_use]
    pub fn of(params: &CkksParams, counts: &Counts) -> KeyDemand {
        let mut demand = KeyDemand::default();
        for count in &counts.operations {
            let key = match count.op {
                Op::Relinearise => KeyUse::Relin,
                Op::Conjugate => KeyUse::Galois(params.conjugation_element()),
                _ => continue,
            };
            demand.add(key, count.limbs, count.times);
        }
        for rotation in &counts.rotations {
            let element = params.rotation_element(rotation.by as i64);
            if element != 1 {
                demand.add(KeyUse::Galois(element), rotation.limbs, rotation.times);
            }
        }
        for turn in &counts.turns {
            let element = params.rotation_element(turn.by as i64);
            demand.maps.insert((element, turn.limbs));
        }
        demand
    }

    /// Adds the conjugations that split an upload of `columns` columns at `limbs` primes.
    #[cfg(test)]
    pub fn with_upload(mut self, params: &CkksParams, limbs: usize, columns: usize) -> KeyDemand {
        let pairs = columns.div_ceil(2) as u64;
        self.add(KeyUse::Galois(params.conjugation_element()), limbs, pairs);
        self
    }

    fn add(&mut self, key: KeyUse, limbs: usize, times: u64) {
        *self.uses.entry(key).or_default().entry(limbs).or_default() += times;
    }

    /// The keys for this demand, and those of a bootstrap.
    ///
    /// # Errors
    /// [`FheError::Ckks`] for a demand of other parameters.
    pub fn specs(&self, params: &CkksParams, bootstrap: &KeySpecs) -> Result<KeySpecs, FheError> {
        let mut specs = bootstrap.clone();
        for (&key, lengths) in &self.uses {
            for (limbs, special) in groups(params, lengths)? {
                specs.insert(key, limbs, special);
            }
        }
        for &(element, limbs) in &self.maps {
            specs.galois(element, limbs, params.cheapest_special(limbs)?);
        }
        Ok(specs)
    }
}

/// The cheapest keys for a prefix of the lengths of a use.
#[derive(Clone, Copy, Default)]
struct Cut {
    /// Transforms, plus residues weighted by their worth.
    cost: u64,
    /// Primes and special primes of the last key.
    key: (usize, usize),
    /// Number of lengths served by the keys before it.
    before: usize,
}

/// The keys of one use, each as primes and special primes: the cheapest cut of `lengths` into runs.
fn groups(params: &CkksParams, lengths: &BTreeMap<usize, u64>) -> Result<Vec<(usize, usize)>, FheError> {
    let lengths: Vec<(usize, u64)> = lengths.iter().map(|(&l, &times)| (l, times)).collect();
    let mut best = vec![Cut::default()];
    for (last, &(limbs, _)) in lengths.iter().enumerate() {
        let mut found: Option<Cut> = None;
        for special in 1..=params.rlwe().most_special(limbs) {
            let gadget = Gadget::new(params.rlwe(), limbs, special).map_err(hushed_ckks::CkksError::from)?;
            let residues = gadget.digits().len() * (limbs + special);
            let mut cost = TRANSFORMS_A_RESIDUE * residues as u64;
            for before in (0..=last).rev() {
                let (short, times) = lengths[before];
                cost = cost.saturating_add(times.saturating_mul(gadget.transforms(short) as u64));
                let cut = Cut { cost: cost.saturating_add(best[before].cost), key: (limbs, special), before };
                if found.is_none_or(|found| cut.cost < found.cost) {
                    found = Some(cut);
                }
            }
        }
        // If there are keys at all, there is at least one special prime.
        best.push(found.unwrap_or_default());
    }
    let mut keys = Vec::new();
    let mut served = lengths.len();
    while served > 0 {
        keys.push(best[served].key);
        served = best[served].before;
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(key: KeyUse, lengths: &[(usize, u64)]) -> KeyDemand {
        let mut demand = KeyDemand::default();
        for &(limbs, times) in lengths {
            demand.add(key, limbs, times);
        }
        demand
    }

    /// Every length has a key that is long enough, whatever the cut.
    #[test]
    fn all_that_is_used_is_served() {
        let params = CkksParams::n16_boot().unwrap();
        for times in [1, 100, 100_000] {
            let lengths: Vec<(usize, u64)> = (5..=18).map(|l| (l, times * l as u64)).collect();
            let demand = demand(KeyUse::Relin, &lengths);
            let specs = demand.specs(&params, &KeySpecs::new()).unwrap();
            let longest = specs.iter().map(|spec| spec.limbs).max();
            assert_eq!(longest, Some(18));
            assert!(specs.gadgets(params.rlwe()).is_ok());
            for spec in specs.iter() {
                assert!(lengths.iter().any(|&(l, _)| l == spec.limbs));
            }
        }
    }

    /// A few uses share a key; many uses get one key per length.
    #[test]
    fn memory_is_spent_where_it_saves_time() {
        let params = CkksParams::n16_boot().unwrap();
        let key = KeyUse::Galois(5);
        let keys = |times: u64| {
            let demand = demand(key, &[(8, times), (17, times)]);
            demand.specs(&params, &KeySpecs::new()).unwrap()
        };
        assert_eq!(keys(1).len(), 1);
        assert_eq!(keys(1_000_000).len(), 2);
        // The long key has the number of special primes that is cheapest for it.
        let special = params.cheapest_special(17).unwrap();
        let long = keys(1_000_000).iter().find(|s| s.limbs == 17).copied().unwrap();
        assert_eq!(long.special, special);
    }

    #[test]
    fn the_keys_of_a_bootstrap_stay() {
        let params = CkksParams::n16_boot().unwrap();
        let mut bootstrap = KeySpecs::new();
        bootstrap.relin(26, 7).galois(25, 4, 3);
        let specs = demand(KeyUse::Relin, &[(6, 10)]).specs(&params, &bootstrap).unwrap();
        assert_eq!(specs.len(), 3);
        assert!(bootstrap.iter().all(|spec| specs.iter().any(|s| s == spec)));
    }
}
