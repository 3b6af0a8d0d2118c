//! Step 2: switches to the ephemeral sparse secret, so that raising the modulus overflows little.
//!
//! Sparse-secret encapsulation (Bossuat, Troncoso-Pastoriza and Hubaux, ePrint 2022/024): lifted to integers, the phase
//! of a ciphertext (b, a) modulo q_0 is m + q_0·I. Under a dense secret |I| is near √(N/18); under a secret of weight
//! 32 it stays below 16. The switching key to that secret exists only modulo q_0·p_0, where weight 32 is still secure.

use hushed_math::{Coeff, RnsPoly};
use hushed_rlwe::hybrid::{KeyUse, switch};

use crate::ciphertext::Ciphertext;
use crate::counters::Switches;
use crate::error::CkksError;
use crate::evaluator::Evaluator;

/// Both parts (b, a) modulo q_0 under the sparse secret, in coefficient form.
pub type Encapsulated = (RnsPoly<Coeff>, RnsPoly<Coeff>);

/// Switches a ciphertext modulo q_0 to the sparse secret.
///
/// # Errors
/// [`CkksError::NoKeys`]; [`CkksError::Rlwe`] if the key is missing, or the ciphertext has more primes.
pub fn encapsulate(evaluator: &Evaluator, ct: Ciphertext) -> Result<Encapsulated, CkksError> {
    let limbs = ct.limbs();
    let key = evaluator.keys("bootstrap")?.get(KeyUse::ToSparse, limbs)?;
    let (mut b, a) = ct.into_parts();
    let (add, a) = switch(&a, key)?;
    b.add_assign(&add);
    let counters = evaluator.counters();
    counters.switched(key.gadget(), limbs, &Switches::ONE);
    counters.ntt.many(2);
    Ok((b.into_coeff(), a.into_coeff()))
}
