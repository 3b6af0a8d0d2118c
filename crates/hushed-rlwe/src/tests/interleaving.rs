//! Trees of ciphertexts against clear polynomials, with their predicted noise.

use super::*;
use crate::error::RlweError;
use crate::evaluator::Interleaving;
use crate::keys::{GaloisKeys, KeySet, SecretKey};
use crate::message::RingScale;
use crate::noise::NoiseBound;

struct Setting {
    params: Arc<RlweParams>,
    sk: SecretKey,
    rng: SecretRng,
}

fn setting(params: Arc<RlweParams>, seed: u64) -> Setting {
    let mut rng = rng(seed);
    Setting { sk: SecretKey::generate(&params, &mut rng), params, rng }
}

/// The a part of the node at distance `h` over `leaves`, depth first.
fn node(
    tree: &Interleaving<'_>,
    mut leaves: Vec<RnsPoly<Coeff>>,
    h: usize,
    slot: usize,
    size: usize,
) -> RnsPoly<Coeff> {
    if h == size {
        return leaves.pop().unwrap();
    }
    let children = tree.children(h);
    let order: &[usize] = if children == 4 { &[0, 2, 1, 3] } else { &[0, 1] };
    let each = size / h / children;
    let parts: Vec<_> = leaves
        .chunks(each)
        .zip(order)
        .map(|(leaves, j)| node(tree, leaves.to_vec(), h * children, slot + j * h, size))
        .collect();
    tree.combine(&parts, h, slot).unwrap()
}

impl Setting {
    /// Interleaves `count` random leaves of `limbs` primes in a tree of `size`: leaf i goes to the coefficients at
    /// bit-reversed slot i, and slots without a leaf stay zero. Asserts that and the noise bound, and returns the used
    /// fraction of the bound.
    fn check(&mut self, keys: &GaloisKeys, limbs: usize, size: usize, count: usize) -> f64 {
        let (n, ell) = (self.params.n(), if limbs == 1 { 24 } else { 64 });
        let scale = RingScale::new(&self.params, limbs, ell).unwrap();
        let tree = Interleaving::new(keys, size, limbs).unwrap();
        let inverse: Vec<u64> =
            (0..limbs).map(|i| self.params.basis().modulus(i)).map(|m| m.inv(m.reduce(size as u64)).unwrap()).collect();
        let ids = self.params.ciphertext_ids(limbs);
        let mut b = RnsPoly::<Coeff>::zero(self.params.basis(), &ids);
        let mut expected = vec![0; n];
        let mut leaves = Vec::new();
        for leaf in 0..count {
            let slot = match size {
                1 => 0,
                _ => leaf.reverse_bits() >> (usize::BITS - size.ilog2()),
            };
            let x = shares(&mut self.rng, n, ell);
            let message = scale.scale_up(&x).unwrap();
            let ct = self.sk.encrypt_seeded(message, &mut self.rng).unwrap();
            let ct = ct.expand();
            let (own, mut a) = (ct.b.into_coeff(), ct.a.into_coeff());
            for i in (0..n).step_by(size) {
                expected[i + slot] = x[i];
                for limb in 0..limbs {
                    b.limb_mut(limb)[i + slot] = own.limb(limb)[i];
                }
            }
            a.mul_scalar_assign(&inverse);
            leaves.push(a);
        }
        let a = node(&tree, leaves, 1, 0, size);
        b.add_assign(&tree.into_b());
        let ct = crate::Ciphertext { b: b.into_eval(), a: a.into_eval() };
        let mut phase = self.sk.decrypt_phase(&ct).unwrap();
        assert_eq!(scale.scale_down(&phase).unwrap(), expected, "{size} {count}");
        phase.sub_assign(&scale.scale_up(&expected).unwrap());
        let noise = largest(&phase);
        let bound = NoiseBound::fresh_secret().interleave(&self.params, keys.limbs(), limbs, size.ilog2());
        assert!(noise <= bound.value(), "{size} {count}: {noise} {bound:?}");
        noise / bound.value()
    }
}

/// Single-prime digits with one special prime; one two-prime digit with two; one prime alone.
#[test]
fn trees_of_every_size() {
    let mut s = setting(tiny(), 4);
    let elements = s.params.interleave_elements(8);
    for key_limbs in 1..=3 {
        let keys = GaloisKeys::generate(&s.sk, &elements, key_limbs, &mut s.rng).unwrap();
        // The nodes' workspace carries nothing over from one length to the next.
        for limbs in (1..=key_limbs).chain([1]) {
            for size in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
                let counts = if size < 8 { 1 } else { 5 * size / 8 };
                for count in (counts..=size).step_by((size / 3).max(1)).chain([size]) {
                    s.check(&keys, limbs, size, count);
                }
            }
        }
    }
}

/// The presets' sizes, where transforms use the widest kernels; the furthest nodes of 2^12 leaves are nodes of two.
#[test]
fn trees_at_the_size_of_the_presets() {
    for (params, key_limbs) in [(RlweParams::olt_small().unwrap(), 2), (RlweParams::olt_full().unwrap(), 2)] {
        let mut s = setting(params, 5);
        let elements = s.params.interleave_elements(12);
        let keys = GaloisKeys::generate(&s.sk, &elements, key_limbs, &mut s.rng).unwrap();
        for (limbs, size, count) in [(2, 16, 16), (2, 32, 20), (1, 8, 8), (2, 1 << 12, 3)] {
            let used = s.check(&keys, limbs, size, count);
            // A bound met only by luck would be missed elsewhere; one that is too loose costs bits.
            assert!(used > 1.0 / 16.0, "{limbs} {size}: {used}");
        }
    }
}

/// Keys of the full preset, and keys for two of three primes, after an encoding round trip.
#[test]
fn keys_serve_every_prefix_of_the_primes() {
    let mut s = setting(tiny(), 6);
    let elements = s.params.interleave_elements(4);
    for key_limbs in [3, 2] {
        let set = KeySet::generate(&s.sk, &elements, key_limbs, &mut s.rng).unwrap();
        let bytes = set.to_bytes();
        assert_eq!(bytes.len(), KeySet::bytes(&s.params, elements.len(), key_limbs));
        let mut backwards = elements.clone();
        backwards.reverse();
        let other = 5 - key_limbs;
        assert!(KeySet::from_bytes(&s.params, &elements, other, &bytes).is_err());
        let read = KeySet::from_bytes(&s.params, &backwards, key_limbs, &bytes).unwrap();
        assert_eq!(read.to_bytes(), bytes);
        for limbs in 1..=key_limbs {
            s.check(&read.galois, limbs, 16, 11);
        }
        let long = Interleaving::new(&read.galois, 16, key_limbs + 1);
        let available = key_limbs;
        let given = key_limbs + 1;
        assert_eq!(long.err(), Some(RlweError::LimbCount { given, available }));
    }
    assert!(GaloisKeys::generate(&s.sk, &[5], 0, &mut s.rng).is_err());
    assert!(GaloisKeys::generate(&s.sk, &[5], 4, &mut s.rng).is_err());
}

#[test]
fn misuse_is_refused() {
    let mut s = setting(tiny(), 9);
    let keys = GaloisKeys::generate(&s.sk, &[129, 129], 3, &mut s.rng).unwrap();
    assert_eq!(keys.elements(), vec![129]);
    let zero =
        |params: &RlweParams, limbs: usize| RnsPoly::<Coeff>::zero(params.basis(), &params.ciphertext_ids(limbs));
    let part = zero(&s.params, 2);
    let tree = Interleaving::new(&keys, 2, 2).unwrap();
    assert!(matches!(
        tree.combine(std::slice::from_ref(&part), 1, 0),
        Err(RlweError::MissingGaloisKey { element: 257 })
    ));
    for element in [0, 4, 513] {
        let made = GaloisKeys::generate(&s.sk, &[element], 3, &mut s.rng);
        assert!(matches!(made, Err(RlweError::NotAGaloisElement { .. })));
    }
    // The same numbers in another set: keys and polynomials do not mix.
    let other = setting(tiny(), 9);
    assert_eq!(tree.combine(&[zero(&other.params, 2)], 1, 0).err(), Some(RlweError::IncompatibleParameters));
    // Children of unequal length.
    assert!(matches!(tree.combine(&[part, zero(&s.params, 1)], 1, 0), Err(RlweError::Limbs { .. })));
    // No key switching without a special prime.
    let ole = setting(RlweParams::ole().unwrap(), 10);
    let q_len = ole.params.q_len();
    let made = GaloisKeys::generate(&ole.sk, &[5], q_len, &mut s.rng);
    assert!(matches!(made, Err(RlweError::NoSpecialPrime)));
    let none = GaloisKeys::generate(&ole.sk, &[], q_len, &mut s.rng).unwrap();
    assert!(Interleaving::new(&none, 2, 1).is_err());
}
