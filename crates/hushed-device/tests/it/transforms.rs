//! Transforms, against the portable ones of `hushed-math`.

use hushed_device::DevicePoly;
use hushed_math::cpu::Cpu;
use hushed_math::poly::Domain;
use hushed_math::{Coeff, Eval, NttTables, RnsPoly};

use crate::bed::{assert_same, basis, named, rings, samples};

/// Every limb by a portable kernel.
fn portable<D: Domain, E: Domain>(poly: &RnsPoly<D>, f: impl Fn(&NttTables, &mut [u64])) -> RnsPoly<E> {
    let mut out = poly.clone();
    for (id, limb) in out.limbs_mut() {
        let ntt = poly.basis().ntt(id);
        f(&NttTables::with_cpu(ntt.n(), *ntt.modulus(), Cpu::portable()).unwrap(), limb);
    }
    out.relabel()
}

#[test]
fn transforms_are_those_of_the_processor_at_every_degree() {
    for n in [1 << 8, 1 << 12, 1 << 16] {
        let basis = basis(n);
        let (coefficients, values) = (samples::<Coeff>(&basis, 1), samples::<Eval>(&basis, 2));
        let forward = coefficients.each_ref().map(|poly| portable::<_, Eval>(poly, |ntt, limb| ntt.forward(limb)));
        let inverse = values.each_ref().map(|poly| portable::<_, Coeff>(poly, |ntt, limb| ntt.inverse(limb)));
        for ring in rings(&basis) {
            let name = named(&ring);
            for (poly, expected) in coefficients.iter().zip(&forward) {
                let found = DevicePoly::upload(&ring, poly).unwrap().into_eval().unwrap();
                assert_same(&found.download().unwrap(), expected, &name);
                assert_same(&found.into_coeff().unwrap().download().unwrap(), poly, &name);
            }
            for (poly, expected) in values.iter().zip(&inverse) {
                let found = DevicePoly::upload(&ring, poly).unwrap().into_coeff().unwrap();
                assert_same(&found.download().unwrap(), expected, &name);
            }
        }
    }
}
