//! Steps 3 and 4: up to all primes, back to the main secret, and the coefficients into the slots.
//!
//! *ModRaise* reads the coefficients modulo q_0 as integers of (−q_0/2, q_0/2) and takes them modulo all primes: the phase
//! becomes m + q_0·I. Such polynomials are small, so rotating them and leading them back from the sparse secret to the main one takes a
//! key of one digit and no decomposition ([`LinearTransform::raised`]): the first factor of CoeffsToSlots, which has to rotate the raised
//! ciphertext anyway, does both (compare the first factor folded into ModRaise in poulpy's bootstrapping).
//!
//! Out: for each ciphertext the real parts of its coefficients and the imaginary ones of t_k = m_k + i·m_(k+n), over q_0, each
//! times `scaling`, in the slots of a ciphertext of its own: w + w̄ and i·(w̄ − w).

use std::ops::Range;
use std::sync::Arc;

use hushed_rlwe::hybrid::EvalKeyPlan;

use crate::bootstrap::encapsulate::Encapsulated;
use crate::ciphertext::Ciphertext;
use crate::error::CkksError;
use crate::evaluator::Evaluator;
use crate::lintrans::{DftFactors, Direction, LinearTransform, Options};
use crate::params::CkksParams;
use crate::scale::Scale;

/// CoeffsToSlots in as many factors as the chain has primes for it, the first on raised ciphertexts.
pub struct CoeffsToSlots {
    params: Arc<CkksParams>,
    raised: LinearTransform,
    rest: Vec<LinearTransform>,
    /// Primes of the results.
    limbs: usize,
}

impl CoeffsToSlots {
    /// Prepares the map for the top of the chain: what it returns is u/q_0 times `scaling`, u = m + q_0·I the raised coefficients,
    /// at the scale `target`.
    ///
    /// # Errors
    /// [`CkksError::LinTrans`].
    pub fn new(params: &Arc<CkksParams>, scaling: f64, target: Scale) -> Result<Self, CkksError> {
        let chain = params.chain().cts.clone();
        let direction = Direction::CoeffsToSlots;
        let layers = DftFactors::even_layers(direction, params.slots(), chain.len());
        // Real and imaginary parts are w ± w̄, twice as much as wanted.
        let map = DftFactors::new(direction, params.slots(), &layers, scaling / 2.0)?;
        // The ciphertext is read as u/q_0: at the scale q_0. What is missing to the target is shared by the factors.
        let from = Scale::ONE.times_prime(params.prime(0));
        let share = target
            .over(from)
            .value()
            .powf(1.0 / map.factors().len() as f64);
        let plain = |limbs: usize| Scale::new(share * params.prime(limbs - 1) as f64);
        let mut limbs = chain.end;
        let mut factors = map.factors().iter();
        let first = factors.next().ok_or(CkksError::LevelTooLow {
            operation: "CoeffsToSlots",
            limbs,
            needed: limbs + 1,
        })?;
        let raised = LinearTransform::raised(params, first, limbs, 1, Some(plain(limbs)?))?;
        let mut rest = Vec::new();
        for factor in factors {
            limbs -= 1;
            let options = Options {
                plain_scale: Some(plain(limbs)?),
                ..Options::default()
            };
            rest.push(LinearTransform::new(params, factor, limbs, options)?);
        }
        Ok(Self {
            params: Arc::clone(params),
            raised,
            rest,
            limbs: limbs - 1,
        })
    }

    /// The same map for raised ciphertexts without the primes of `gap`; see [`LinearTransform::without`].
    pub(super) fn without(&self, params: &Arc<CkksParams>, gap: &Range<usize>) -> Self {
        let rest = self.rest.iter().map(|map| map.without(params, gap));
        Self {
            params: Arc::clone(params),
            raised: self.raised.without(params, gap),
            rest: rest.collect(),
            limbs: self.limbs - gap.len(),
        }
    }

    /// The factors, first applied first.
    pub fn factors(&self) -> impl Iterator<Item = &LinearTransform> {
        std::iter::once(&self.raised).chain(&self.rest)
    }

    /// Primes of the results.
    pub fn limbs(&self) -> usize {
        self.limbs
    }

    /// Adds the keys of all factors and of the conjugation.
    ///
    /// # Errors
    /// [`CkksError::Rlwe`].
    pub fn add_keys(&self, plan: &mut EvalKeyPlan) -> Result<(), CkksError> {
        self.factors().for_each(|map| map.add_keys(plan));
        let special = self.params.cheapest_special(self.limbs)?;
        plan.galois(self.params.conjugation_element(), self.limbs, special);
        Ok(())
    }

    /// Real and imaginary parts of the coefficients of each encapsulated ciphertext.
    ///
    /// # Errors
    /// [`CkksError::NoKeys`]; [`CkksError::Rlwe`] or [`CkksError::LinTrans`] if a key is missing.
    pub fn apply(
        &self,
        evaluator: &Evaluator,
        low: &[Encapsulated],
    ) -> Result<Vec<[Ciphertext; 2]>, CkksError> {
        let keys = evaluator.keys("bootstrap")?;
        let from = Scale::ONE.times_prime(self.params.prime(0));
        let scale = self.raised.output_scale(from);
        let products = self.raised.apply_raised(keys, low)?;
        self.raised.count(evaluator, low.len());
        let cts = products
            .into_iter()
            .map(|(b, a)| Ciphertext::from_parts(b, a, scale))
            .collect::<Result<Vec<_>, _>>()?;
        let cts = self.rest.iter().try_fold(cts, |cts, map| {
            map.apply_many(evaluator, &cts.iter().collect::<Vec<_>>())
        })?;
        cts.into_iter().map(|ct| split(evaluator, ct)).collect()
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
