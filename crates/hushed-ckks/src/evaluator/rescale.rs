//! Rescaling and level drops.

use hushed_math::{Eval, NttTables, RnsPoly};
use rayon::prelude::*;

use super::Evaluator;
use super::limbs::{blank, each_part};
use crate::ciphertext::Ciphertext;
use crate::error::CkksError;

impl Evaluator {
    /// Divides by the last prime, with rounding, and drops it; the scale is divided by it too.
    ///
    /// One inverse transform per part, then one forward transform per remaining prime: (c_j − r)/q_last, where r is the
    /// centred remainder modulo q_last.
    ///
    /// # Errors
    /// [`CkksError::LevelTooLow`] if only one prime is left, [`CkksError::OtherParameters`].
    pub fn rescale(&self, ct: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.check(ct, "rescale")?;
        let limbs = ct.limbs();
        let q = self.last_prime(limbs, "rescale")?;
        let basis = ct.basis();
        let last = basis.ntt(limbs - 1);
        self.counters.rescale.one();
        self.counters.ntt.many(2 * limbs);
        self.counters.products.many(2 * limbs);
        let (mut b, mut a) = (last_limb(&ct.b), last_limb(&ct.a));
        rayon::join(|| last.inverse(b.limb_mut(0)), || last.inverse(a.limb_mut(0)));
        let mut out = blank(ct, limbs - 1);
        out.scale = ct.scale.over_prime(q);
        out.noise = ct.noise.rounded(self.params.n(), out.scale);
        let from = [(&ct.b, b), (&ct.a, a)];
        let b = out.b.limbs_mut().map(|(id, limb)| (&from[0], id, limb));
        let a = out.a.limbs_mut().map(|(id, limb)| (&from[1], id, limb));
        let work: Vec<_> = b.chain(a).collect();
        work.into_par_iter().for_each(|((from, dropped), id, out)| {
            let ntt = basis.ntt(id);
            ntt.pointwise().lift_centred(out, dropped.limb(0), last.modulus());
            ntt.forward(out);
            // (lifted − c)·(−1/q): the overwritten operand comes first.
            ntt.pointwise().sub_mul_scalar_assign(out, from.limb(id), negated_inverse(ntt, q));
        });
        Ok(out)
    }

    /// The same message over the first `limbs` primes only.
    ///
    /// # Errors
    /// [`CkksError::LevelTooLow`] if it has fewer, [`CkksError::LimbCount`] for 0, [`CkksError::OtherParameters`].
    pub fn drop_to(&self, ct: &Ciphertext, limbs: usize) -> Result<Ciphertext, CkksError> {
        self.check_drop(ct, limbs)?;
        let mut out = blank(ct, limbs);
        each_part(&mut out, |part, j, _, out| {
            out.copy_from_slice(part.of(ct).limb(j));
        });
        Ok(out)
    }

    fn check_drop(&self, ct: &Ciphertext, limbs: usize) -> Result<(), CkksError> {
        self.check(ct, "drop_to")?;
        if limbs == 0 {
            return Err(CkksError::LimbCount { operation: "drop_to", limbs, available: ct.limbs() });
        }
        if limbs > ct.limbs() {
            return Err(CkksError::LevelTooLow { operation: "drop_to", limbs: ct.limbs(), needed: limbs });
        }
        Ok(())
    }
}

/// A copy of the last limb.
fn last_limb(poly: &RnsPoly<Eval>) -> RnsPoly<Eval> {
    let last = poly.ids().len() - 1;
    poly.keep_limbs(&[last])
}

/// −1/p modulo the prime of `ntt`, by Fermat.
fn negated_inverse(ntt: &NttTables, p: u64) -> u64 {
    let q = ntt.modulus();
    q.neg(q.pow(q.reduce(p), q.value() - 2))
}
