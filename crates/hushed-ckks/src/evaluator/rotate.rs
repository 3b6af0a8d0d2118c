//! Rotations and conjugation. Rotating by k moves slot j + k of the input to slot j.

use std::sync::{Arc, Mutex, PoisonError};

use hushed_math::{Eval, RnsPoly};
use hushed_rlwe::hybrid::{
    Decomposed, Gadget, KeyUse, SwitchKey, automorphism, automorphisms, decompose, inner_product,
};

use super::Evaluator;
use super::limbs::each;
use crate::ciphertext::Ciphertext;
use crate::counters::Switches;
use crate::error::CkksError;
use crate::params::CkksParams;

/// A ciphertext that keeps its digits, so that several rotations share one decomposition. Threads may share it.
pub struct Hoisted<'a> {
    ct: &'a Ciphertext,
    /// Digits by gadget, since the keys of different rotations may differ in shape.
    digits: Mutex<Vec<Arc<Decomposed>>>,
}

impl Hoisted<'_> {
    /// The ciphertext.
    pub fn ciphertext(&self) -> &Ciphertext {
        self.ct
    }
}

/// An automorphism: its Galois element, and the rotation steps unless it is the conjugation.
#[derive(Clone, Copy)]
struct Turn {
    element: usize,
    steps: Option<i64>,
}

impl Turn {
    fn rotation(params: &CkksParams, steps: i64) -> Self {
        Self { element: params.rotation_element(steps), steps: Some(steps) }
    }

    fn conjugation(params: &CkksParams) -> Self {
        Self { element: params.conjugation_element(), steps: None }
    }
}

impl Evaluator {
    /// Rotates by `steps`: slot j of the result is slot j + `steps` of `ct`.
    ///
    /// # Errors
    /// [`CkksError::NoKeys`]; [`CkksError::MissingRotation`] if the key is missing or too short;
    /// [`CkksError::OtherParameters`].
    pub fn rotate(&self, ct: &Ciphertext, steps: i64) -> Result<Ciphertext, CkksError> {
        self.automorphism(ct, Turn::rotation(&self.params, steps), "rotate")
    }

    /// The complex conjugate of every slot.
    ///
    /// # Errors
    /// As [`Evaluator::rotate`].
    pub fn conjugate(&self, ct: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.automorphism(ct, Turn::conjugation(&self.params), "conjugate")
    }

    /// Prepares `ct` for several rotations: the first rotation computes its digits, once per key shape.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`].
    pub fn hoist<'a>(&self, ct: &'a Ciphertext) -> Result<Hoisted<'a>, CkksError> {
        self.check(ct, "hoist")?;
        Ok(Hoisted { ct, digits: Mutex::default() })
    }

    /// As [`Evaluator::rotate`], reusing the decomposition.
    pub fn rotate_hoisted(&self, hoisted: &Hoisted, steps: i64) -> Result<Ciphertext, CkksError> {
        let operation = "rotate_hoisted";
        let turn = Turn::rotation(&self.params, steps);
        let ct = hoisted.ct;
        self.check(ct, operation)?;
        if turn.element == 1 {
            return Ok(ct.clone());
        }
        let limbs = ct.limbs();
        let key = self.turn_key(turn, limbs, operation)?;
        let digits = self.digits(hoisted, key.gadget())?;
        let (mut b, a) = inner_product(&digits, key)?.mod_down(self.params.rlwe())?;
        each(&mut b, |j, ntt, limb| {
            ntt.pointwise().add_assign(limb, ct.b.limb(j));
        });
        let prepared = Switches { up: 0, ..Switches::ONE };
        self.counters.switched(key.gadget(), limbs, &prepared);
        self.counters.rotation.one();
        self.turned(ct, b.automorphism(turn.element), a.automorphism(turn.element), key)
    }

    /// Rotates by each of `steps`, with one decomposition and one pass over the primes: the fastest form when all
    /// rotations are known in advance.
    ///
    /// # Errors
    /// As [`Evaluator::rotate`].
    pub fn rotate_many(&self, ct: &Ciphertext, steps: &[i64]) -> Result<Vec<Ciphertext>, CkksError> {
        let operation = "rotate_many";
        self.check(ct, operation)?;
        let limbs = ct.limbs();
        let mut out: Vec<Option<Ciphertext>> = vec![None; steps.len()];
        // Positions and keys by gadget: each gadget has its own digits.
        let mut groups: Vec<(Vec<usize>, Vec<&SwitchKey>)> = Vec::new();
        for ((position, &steps), place) in steps.iter().enumerate().zip(&mut out) {
            let turn = Turn::rotation(&self.params, steps);
            if turn.element == 1 {
                *place = Some(ct.clone());
                continue;
            }
            let key = self.turn_key(turn, limbs, operation)?;
            let same = |(_, keys): &&mut (_, Vec<&SwitchKey>)| keys.first().is_some_and(|k| k.gadget() == key.gadget());
            match groups.iter_mut().find(same) {
                Some((positions, keys)) => {
                    positions.push(position);
                    keys.push(key);
                }
                None => groups.push((vec![position], vec![key])),
            }
        }
        for (positions, keys) in groups {
            let parts = automorphisms(&ct.b, &ct.a, &keys)?;
            if let Some(key) = keys.first() {
                let all = Switches { up: 1, products: keys.len(), down: 2 * keys.len(), keys: keys.len() };
                self.counters.switched(key.gadget(), limbs, &all);
                self.counters.rotation.many(keys.len());
            }
            for ((position, key), (b, a)) in positions.into_iter().zip(keys).zip(parts) {
                if let Some(place) = out.get_mut(position) {
                    *place = Some(self.turned(ct, b, a, key)?);
                }
            }
        }
        // Every position has been filled.
        Ok(out.into_iter().flatten().collect())
    }

    fn automorphism(&self, ct: &Ciphertext, turn: Turn, operation: &'static str) -> Result<Ciphertext, CkksError> {
        self.check(ct, operation)?;
        if turn.element == 1 {
            return Ok(ct.clone());
        }
        let key = self.turn_key(turn, ct.limbs(), operation)?;
        let (b, a) = automorphism(&ct.b, &ct.a, key)?;
        self.counters.switched(key.gadget(), ct.limbs(), &Switches::ONE);
        self.counters.rotation.one();
        self.turned(ct, b, a, key)
    }

    /// The digits of a hoisted ciphertext for keys of this shape. No lock is held while they are computed, because
    /// rayon may hand a waiting thread another rotation of the same ciphertext. Two threads may then both compute them,
    /// with the same result.
    fn digits(&self, hoisted: &Hoisted, gadget: &Gadget) -> Result<Arc<Decomposed>, CkksError> {
        let known = || hoisted.digits.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().iter().find(|d| d.gadget() == gadget).cloned();
        if let Some(found) = found {
            return Ok(found);
        }
        let made = Arc::new(decompose(self.params.rlwe(), gadget, &hoisted.ct.a)?);
        let digits = Switches { up: 1, products: 0, down: 0, keys: 0 };
        self.counters.switched(gadget, hoisted.ct.limbs(), &digits);
        known().push(made.clone());
        Ok(made)
    }

    fn turn_key(&self, turn: Turn, limbs: usize, operation: &'static str) -> Result<&SwitchKey, CkksError> {
        self.key(operation, KeyUse::Galois(turn.element), turn.steps, limbs)
    }

    fn turned(
        &self,
        ct: &Ciphertext,
        b: RnsPoly<Eval>,
        a: RnsPoly<Eval>,
        key: &SwitchKey,
    ) -> Result<Ciphertext, CkksError> {
        let noise = self.switched(ct.noise, key.gadget(), ct.limbs(), ct.scale, false);
        Ok(Ciphertext::from_parts(b, a, ct.scale)?.with_noise(noise))
    }
}
