//! Operations on ciphertexts by a party without the secret: interleaving and modulus switching. Everything here is
//! public to the computing party; nothing is erased.

use std::sync::{Mutex, PoisonError};

use hushed_math::{Coeff, RnsPoly};

use crate::ciphertext::Ciphertext;
use crate::error::RlweError;
use crate::galois::{automorphisms, children};
use crate::interleave::{Node, PreparedSwitches};
use crate::keys::GaloisKeys;
use crate::message::check_limbs;
use crate::params::RlweParams;

/// The tree of one interleaved ciphertext (BumbleBee, NDSS 2025, Figure 6; for its nodes see [`crate::galois`]). The a
/// parts of leaves and nodes pass through [`Interleaving::combine`] as coefficients; what key switches contribute to b
/// is accumulated here. An automorphism acts on b without a key, so a leaf's b need not pass through: its needed
/// coefficients are put where they end up.
pub struct Interleaving<'a> {
    keys: &'a GaloisKeys,
    switches: &'a PreparedSwitches,
    size: usize,
    /// Over the primes of products with the keys.
    b: Mutex<RnsPoly<Coeff>>,
}

impl<'a> Interleaving<'a> {
    /// A tree of `size` leaves, a power of two up to N, for ciphertexts of `limbs` primes.
    ///
    /// # Errors
    /// [`RlweError::LimbCount`] if the keys are for fewer primes, or there are no keys.
    ///
    /// # Panics
    /// If `size` is not a power of two or exceeds N.
    pub fn new(keys: &'a GaloisKeys, size: usize, limbs: usize) -> Result<Self, RlweError> {
        let params = keys.params();
        assert!(size.is_power_of_two() && size <= params.n(), "leaves of a tree");
        let switches = keys.switches(limbs)?;
        let b = RnsPoly::zero(params.basis(), switches.ids());
        Ok(Self { keys, switches, size, b: Mutex::new(b) })
    }

    /// The number of children of a node at distance `h`, two or four; the children's own distance is `h` times that.
    pub fn children(&self, h: usize) -> usize {
        children(self.keys.params().n(), h, self.size)
    }

    /// The a part of the node at distance `h` whose coefficient 0 ends up at `slot`, below h. `parts` are those of its
    /// children, at least one, in the tree's depth-first order: distances 0, h, or 0, 2h, h, 3h. Absent ones are zero.
    ///
    /// # Errors
    /// [`RlweError::MissingGaloisKey`], [`RlweError::IncompatibleParameters`], [`RlweError::Limbs`].
    ///
    /// # Panics
    /// If there is no such node, or it has fewer children than given.
    pub fn combine(&self, parts: &[RnsPoly<Coeff>], h: usize, slot: usize) -> Result<RnsPoly<Coeff>, RlweError> {
        assert!(h.is_power_of_two() && h < self.size && slot < h, "a node of the tree");
        let (params, children) = (self.keys.params(), self.children(h));
        assert!((1..=children).contains(&parts.len()), "children of the node");
        let limbs = self.switches.limbs();
        for part in parts {
            check_limbs(params, part, limbs)?;
        }
        let elements = automorphisms(params.n(), h, children);
        let node = Node {
            switches: self.switches,
            shape: self.keys.shape(),
            keys: elements.iter().map(|&g| self.keys.get(g)).collect::<Result<_, _>>()?,
            h,
            slot,
            b: &self.b,
        };
        self.keys.with_workspace(|workspace| workspace.combine(params, &node, parts))
    }

    /// What the key switches add to b.
    pub fn into_b(self) -> RnsPoly<Coeff> {
        let sums = self.b.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.switches.divide(self.keys.params(), &sums)
    }
}

/// Drops primes from the end until `limbs` are left, with rounding: the phase is divided by the dropped primes.
///
/// # Errors
/// [`RlweError::LimbCount`] unless 1 ≤ `limbs` ≤ the number of primes of `ct`; [`RlweError::Limbs`].
pub fn modulus_switch(params: &RlweParams, ct: Ciphertext, limbs: usize) -> Result<Ciphertext, RlweError> {
    ct.check(params)?;
    if limbs == 0 || limbs > ct.limbs() {
        return Err(RlweError::LimbCount { given: limbs, available: ct.limbs() });
    }
    let Ciphertext { mut b, mut a } = ct;
    while b.ids().len() > limbs {
        b = b.divide_by_last_and_round();
        a = a.divide_by_last_and_round();
    }
    Ok(Ciphertext { b, a })
}
