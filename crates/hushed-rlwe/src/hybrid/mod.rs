//! Hybrid key switching: digits of several primes, several special primes (Han and Ki, CT-RSA 2020, §3; hoisting after
//! Halevi and Shoup, CRYPTO 2018, §4, and Bossuat, Mouchet, Troncoso-Pastoriza and Hubaux, EUROCRYPT 2021, §4).
//!
//! To switch a component `a` under s' to the secret s, modulo Q = q_0 … q_{L-1}, with special primes of
//! product P:
//!
//! ```text
//! decompose      d_i = a mod D_i as integers in (−D_i/2, D_i/2], under all of Q·P       D_i: a few consecutive primes
//! inner product  Σ_i d_i·(b_i, a_i) modulo Q·P,  b_i = −a_i·s + e_i + w_i·s'            w_i: P under the primes of D_i,
//! mod down       ⌊·/P⌉                                                                       0 under all others
//! ```
//!
//! The key keeps the b_i only: the a_i are expanded from its seed where they are needed, which is faster than reading
//! them from memory. A [`Gadget`] says which digits and how many special primes. A key serves every ciphertext that is
//! no longer than its gadget; the last digits are then not used.
//!
//! *Galois keys* switch from s to s(X^(1/g)), so that `a` is decomposed as it is (one decomposition serves many
//! rotations) and the *result*, two polynomials, is permuted: phase (b + c_b) + c_a·s(X^(1/g)) → b(X^g) + ….
//!
//! Everything runs on the rayon pool of the caller, limb by limb; results do not depend on the number of threads.

mod codec;
mod decompose;
mod gadget;
mod generate;
mod key;
mod key_use;
mod pass;
mod raise;
mod set;
mod specs;
mod switch;
mod tables;
mod tiles;

pub use codec::{EvalKeysReader, EvalKeysWriter, MAX_KEYS};
pub use decompose::{Decomposed, decompose, decompose_raised};
pub use gadget::Gadget;
pub use generate::{KeyGenerator, SPARSE_WEIGHT};
pub use key::{KeyStrips, SwitchKey};
pub use key_use::KeyUse;
pub use set::EvalKeys;
pub use specs::{KeySpec, KeySpecs};
pub use switch::{
    Extended, automorphism, automorphisms, inner_product, inner_product_many, mod_down, mod_down_rescale, switch,
    switch_add, switch_add_rescale,
};

#[cfg(any(test, feature = "insecure-test-parameters"))]
pub(crate) use codec::reseal;
pub(crate) use tables::Tables;
