//! Step 2: switch to the ephemeral sparse secret, so that raising the modulus overflows little.
//!
//! Sparse-secret encapsulation (Bossuat, Troncoso-Pastoriza and Hubaux, ePrint 2022/024): the phase modulo q_0 of a
//! ciphertext (b, a) under a dense secret, lifted to integers, is m + q_0·I with |I| near √(N/18); under a secret of
//! weight 32 |I| stays below 16. The key to that secret exists modulo q_0·p_0 only, where weight 32 is still secure.

use hushed_math::{Coeff, RnsPoly};
use hushed_rlwe::hybrid::{KeyUse, switch};

use crate::ciphertext::Ciphertext;
use crate::error::CkksError;
use crate::evaluator::Evaluator;

/// Both parts modulo q_0 under the sparse secret, as coefficients: (b, a).
pub type Encapsulated = (RnsPoly<Coeff>, RnsPoly<Coeff>);

/// Switches a ciphertext of q_0 alone to the sparse secret.
///
/// # Errors
/// [`CkksError::NoKeys`]; [`CkksError::Rlwe`] if the key is missing, or for a ciphertext of more primes.
pub fn encapsulate(evaluator: &Evaluator, ct: Ciphertext) -> Result<Encapsulated, CkksError> {
    let limbs = ct.limbs();
    let key = evaluator.keys("bootstrap")?.get(KeyUse::ToSparse, limbs)?;
    let (mut b, a) = ct.into_parts();
    let (add, a) = switch(&a, key)?;
    b.add_assign(&add);
    let counters = evaluator.counters();
    counters.key_switch.one();
    counters.mod_up.one();
    counters.mod_down.many(2);
    counters.ntt.many(key.gadget().transforms(limbs) + 2);
    Ok((b.into_coeff(), a.into_coeff()))
}
