//! Steps 3 and 4: raises to all primes, returns to the main secret, and moves the coefficients into the slots.
//!
//! *ModRaise* reads the coefficients modulo q_0 as integers in (−q_0/2, q_0/2) and reduces them modulo all primes: the
//! phase becomes m + q_0·I. Such polynomials are small, so rotating them and switching back from the sparse secret to
//! the main one takes a one-digit key and no decomposition ([`LinearTransform::raised`]). The first factor of
//! CoeffsToSlots, which must rotate the raised ciphertext anyway, does both (compare poulpy's bootstrapping, which
//! folds the first factor into ModRaise).
//!
//! The output for each ciphertext is the real and the imaginary parts of t_k = m_k + i·m_(k+n), over q_0 and times
//! `scaling`, each in the slots of its own ciphertext: w + w̄ and i·(w̄ − w). With sparse slots both are in one
//! ciphertext, and the trace follows the first factor ([`super::group`]).

use std::ops::Range;
use std::sync::Arc;

use hushed_rlwe::hybrid::KeySpecs;

use crate::bootstrap::encapsulate::Encapsulated;
use crate::bootstrap::group::{Group, Halves};
use crate::ciphertext::Ciphertext;
use crate::error::CkksError;
use crate::evaluator::Evaluator;
use crate::lintrans::{DftFactors, Direction, LinearTransform, Options};
use crate::params::CkksParams;
use crate::scale::Scale;

/// CoeffsToSlots, in as many factors as the chain has primes for it, the first on raised ciphertexts.
pub struct CoeffsToSlots {
    params: Arc<CkksParams>,
    raised: LinearTransform,
    rest: Vec<LinearTransform>,
    group: Option<Arc<Group>>,
    /// Primes of the results.
    limbs: usize,
}

impl CoeffsToSlots {
    /// Prepares the map for the top of the chain, on all slots or those of `group`. It returns u/q_0 times `scaling` at
    /// the scale `target`, where u = m + q_0·I are the raised coefficients.
    ///
    /// # Errors
    /// [`CkksError::LinTrans`]; [`CkksError::LevelTooLow`] for a group if the chain has only one prime for the map.
    pub fn new(
        params: &Arc<CkksParams>,
        group: Option<Arc<Group>>,
        scaling: f64,
        target: Scale,
    ) -> Result<Self, CkksError> {
        let chain = params.chain();
        let direction = Direction::CoeffsToSlots;
        let slots = group.as_ref().map_or(params.slots(), |group| group.slots());
        let layers = match params.literal().cts_layers {
            layers if group.is_none() && !layers.is_empty() => layers.to_vec(),
            _ => DftFactors::even_layers(direction, slots, chain.cts.len()),
        };
        // Real and imaginary parts are computed as w ± w̄, twice the wanted values.
        let map = DftFactors::new(direction, slots, &layers, scaling / 2.0)?;
        // The ciphertext is read as u/q_0, at scale q_0. The factors share the ratio to the target.
        let from = Scale::ONE.times_prime(params.prime(0));
        let share = target.over(from).value().powf(1.0 / map.factors().len() as f64);
        let plain = |share: f64, limbs: usize| Scale::new(share * params.prime(limbs - 1) as f64);
        // As many primes as the map has factors: a small group may have fewer factors than the chain allows.
        let mut limbs = chain.eval_mod.end + map.factors().len();
        let too_low = CkksError::LevelTooLow { operation: "CoeffsToSlots", limbs, needed: limbs + 1 };
        let Some((first, factors)) = map.factors().split_first() else {
            return Err(too_low);
        };
        let (mut first, mut factors) = (first.clone(), factors.to_vec());
        let scale = plain(share, limbs)?;
        let mut share = share;
        if let Some(group) = &group {
            first = group.folding(&first)?;
            let Some(last) = factors.last_mut() else {
                return Err(too_low);
            };
            *last = group.packing(last)?;
            // The trace leaves the message at a scale that is larger by this factor.
            share /= (group.copies() as f64).powf(1.0 / factors.len() as f64);
        }
        let raised = LinearTransform::raised(params, &first, limbs, 1, Some(scale))?;
        let mut rest = Vec::new();
        for factor in &factors {
            limbs -= 1;
            let options = Options { plain_scale: Some(plain(share, limbs)?), ..Options::default() };
            rest.push(LinearTransform::new(params, factor, limbs, options)?);
        }
        Ok(Self { params: Arc::clone(params), raised, rest, group, limbs: limbs - 1 })
    }

    /// The same map for raised ciphertexts without the primes of `gap`; see [`LinearTransform::without`].
    pub(super) fn without(&self, params: &Arc<CkksParams>, gap: &Range<usize>) -> Self {
        let rest = self.rest.iter().map(|map| map.without(params, gap));
        Self {
            params: Arc::clone(params),
            raised: self.raised.without(params, gap),
            rest: rest.collect(),
            group: self.group.clone(),
            limbs: self.limbs - gap.len(),
        }
    }

    /// The factors, in order of application.
    pub fn factors(&self) -> impl Iterator<Item = &LinearTransform> {
        std::iter::once(&self.raised).chain(&self.rest)
    }

    /// Primes of the results.
    pub fn limbs(&self) -> usize {
        self.limbs
    }

    /// Adds the keys of all factors, the trace and the conjugation.
    ///
    /// # Errors
    /// [`CkksError::Rlwe`].
    pub fn add_keys(&self, specs: &mut KeySpecs) -> Result<(), CkksError> {
        self.factors().for_each(|map| map.add_keys(specs));
        if let Some(group) = &self.group {
            let traced = self.limbs + self.rest.len();
            group.add_trace_keys(&self.params, traced, specs)?;
        }
        let special = self.params.cheapest_special(self.limbs)?;
        specs.galois(self.params.conjugation_element(), self.limbs, special);
        Ok(())
    }

    /// Real and imaginary parts of the coefficients of each encapsulated ciphertext, packed for a group.
    ///
    /// # Errors
    /// [`CkksError::NoKeys`]; [`CkksError::Rlwe`] or [`CkksError::LinTrans`] if a key is missing.
    pub fn apply(&self, evaluator: &Evaluator, low: &[Encapsulated]) -> Result<Vec<Halves>, CkksError> {
        let keys = evaluator.keys("bootstrap")?;
        let from = Scale::ONE.times_prime(self.params.prime(0));
        let scale = self.raised.output_scale(from);
        let products = self.raised.apply_raised(keys, low)?;
        self.raised.count(evaluator, low.len());
        let cts =
            products.into_iter().map(|(b, a)| Ciphertext::from_parts(b, a, scale)).collect::<Result<Vec<_>, _>>()?;
        let cts = match &self.group {
            Some(group) => group.trace(evaluator, cts)?,
            None => cts,
        };
        let cts =
            self.rest.iter().try_fold(cts, |cts, map| map.apply_many(evaluator, &cts.iter().collect::<Vec<_>>()))?;
        let halves = |ct| match &self.group {
            None => Ok(Halves::Apart(split(evaluator, ct)?)),
            Some(group) => {
                let conjugate = evaluator.conjugate(&ct)?;
                let twice = evaluator.add(&ct, &conjugate)?;
                Ok(Halves::Packed(twice, Arc::clone(group)))
            }
        };
        cts.into_iter().map(halves).collect()
    }
}

/// w + w̄ and i·(w̄ − w).
fn split(evaluator: &Evaluator, w: Ciphertext) -> Result<[Ciphertext; 2], CkksError> {
    let conjugate = evaluator.conjugate(&w)?;
    let real = evaluator.add(&w, &conjugate)?;
    let mut imaginary = conjugate;
    evaluator.sub_assign(&mut imaginary, &w)?;
    evaluator.mul_i_assign(&mut imaginary)?;
    Ok([real, imaginary])
}
