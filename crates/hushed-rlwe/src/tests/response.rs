//! Responses: shares add up, sizes match the format, nothing repeats and nothing else is sent.

use super::*;
use crate::Ciphertext;
use crate::error::{CodecError, RlweError};
use crate::evaluator::modulus_switch;
use crate::keys::{PublicKey, SecretKey};
use crate::message::RingScale;
use crate::noise::power_of_two;
use crate::response::{Positions, ResponseFormat};
use crate::truncate::Truncation;

struct Setting {
    params: Arc<RlweParams>,
    sk: SecretKey,
    key: PublicKey,
    rng: SecretRng,
}

fn setting(params: Arc<RlweParams>, seed: u64) -> Setting {
    let mut rng = rng(seed);
    let sk = SecretKey::generate(&params, &mut rng);
    Setting { key: PublicKey::generate(&sk, &mut rng), sk, params, rng }
}

/// A ciphertext of `x` with uniform extra noise below 2^bits.
fn noisy(s: &mut Setting, x: &[u64], limbs: usize, ell: u32, bits: u32) -> Ciphertext {
    let mut message = RingScale::new(&s.params, limbs, ell).unwrap().scale_up(x).unwrap();
    let noise = small(&mut s.rng, x.len(), bits);
    let ids = s.params.ciphertext_ids(limbs);
    message.add_assign(&RnsPoly::from_signed(s.params.basis(), &ids, &noise));
    s.sk.encrypt_seeded(message, &mut s.rng).unwrap().expand()
}

/// The largest |error| of the shares from one answered ciphertext.
fn answer_and_open(s: &mut Setting, ell: u32, limbs: usize, bits: u32, used: &Positions) -> u64 {
    let format = ResponseFormat::for_ring_at(&s.params, limbs, ell, bits + 1).unwrap();
    let x = shares(&mut s.rng, s.params.n(), ell);
    let ct = noisy(s, &x, limbs, ell, bits);
    let mut sent = Vec::new();
    let mine = format.answer(&ct, &s.key, used, &mut s.rng, &mut sent).unwrap();
    assert_eq!(sent.len(), format.bytes(used.len()));
    let theirs = format.open(&sent, &s.sk, used).unwrap();
    assert_eq!((mine.len(), theirs.len()), (used.len(), used.len()));
    let errors = used.as_slice().iter().zip(mine.iter().zip(&theirs)).map(|(&i, (u, v))| {
        let error = u.wrapping_add(*v).wrapping_sub(x[i]) << (64 - ell);
        (error as i64 >> (64 - ell)).unsigned_abs()
    });
    errors.max().unwrap_or(0)
}

#[test]
fn shares_add_up_to_the_message() {
    let mut s = setting(tiny(), 1);
    for ell in 1..=64 {
        for limbs in 1..=3 {
            // All the noise that the modulus can carry, minus the response's own.
            let bits = 34.min((50 * limbs as u32).saturating_sub(ell + 1));
            if bits < 12 {
                continue;
            }
            let all = Positions::all(&s.params);
            assert!(answer_and_open(&mut s, ell, limbs, bits - 1, &all) <= 1, "{ell} {limbs}");
        }
    }
}

#[test]
fn shares_add_up_at_the_preset_sizes() {
    for (params, limbs, ell, bits) in [
        (RlweParams::olt_small().unwrap(), 2, 64, 34),
        (RlweParams::olt_small().unwrap(), 2, 38, 34),
        (RlweParams::olt_small().unwrap(), 2, 32, 40),
        (RlweParams::olt_full().unwrap(), 3, 64, 62),
        (RlweParams::ole().unwrap(), 4, 64, 40),
    ] {
        let mut s = setting(params, 2);
        let all = Positions::all(&s.params);
        assert!(answer_and_open(&mut s, ell, limbs, bits, &all) <= 1);
    }
}

#[test]
fn only_the_used_coefficients_are_sent() {
    let mut s = setting(tiny(), 3);
    for positions in [vec![], vec![0], vec![255], vec![3, 4, 200], (0..256).step_by(8).collect()] {
        let used = Positions::new(&s.params, positions).unwrap();
        assert!(answer_and_open(&mut s, 64, 2, 20, &used) <= 1);
    }
    for bad in [vec![256], vec![2, 1], vec![1, 1]] {
        assert!(matches!(Positions::new(&s.params, bad), Err(RlweError::Positions { n: 256 })));
    }
    let format = ResponseFormat::for_ring(&s.params, 64, 20).unwrap();
    let (_, width_b) = format.coefficient_bits();
    let per_list = |width: u32, count: usize| (width as usize * count).div_ceil(8);
    assert_eq!(format.bytes(3) - format.bytes(0), per_list(64, 3) + per_list(width_b - 64, 3));
}

/// The sizes that the protocols' byte formulas rely on.
#[test]
fn format_sizes() {
    let small = RlweParams::olt_small().unwrap();
    let of = |ell, bits| {
        let f = ResponseFormat::for_ring(&small, ell, bits).unwrap();
        (f.limbs(), f.coefficient_bits())
    };
    assert_eq!(of(64, 30), (2, (74, 64)));
    assert_eq!(of(64, 35), (2, (75, 65)));
    assert_eq!(of(48, 40), (2, (58, 48)));
    assert_eq!(of(38, 40), (2, (48, 38)));
    // One prime carries up to 37 bits.
    assert_eq!(of(37, 40), (1, (46, 38)));
    assert_eq!(of(32, 60), (1, (42, 32)));
    let refused = ResponseFormat::for_ring(&small, 64, 36).err();
    assert!(matches!(refused, Some(RlweError::NoRoomForResponse { ell: 64, .. })));
    assert!(ResponseFormat::for_ring(&small, 65, 10).is_err());
    assert!(ResponseFormat::for_ring_at(&small, 0, 8, 10).is_err());
    assert!(ResponseFormat::for_ring_at(&small, 3, 8, 10).is_err());
}

/// The opened phase without the mask, against the bound that determined the format.
#[test]
fn noise_is_within_the_format_s_bound() {
    for (ell, limbs, bits) in [(64, 2, 30), (32, 2, 60), (37, 2, 40), (64, 3, 80)] {
        let params = RlweParams::olt_full().unwrap();
        let mut s = setting(params.clone(), 4);
        let format = ResponseFormat::for_ring_at(&params, limbs, ell, bits).unwrap();
        let x = shares(&mut s.rng, params.n(), ell);
        let ct = noisy(&mut s, &x, limbs, ell, bits.min(60) - 1);
        let switched = modulus_switch(&params, ct, format.limbs()).unwrap();
        let (b, a) = s.key.add_zero(switched, &mut s.rng).unwrap();
        let used = Positions::all(&params);
        let mut sent = Vec::new();
        let truncation = format.truncation();
        truncation.write(&b, &a, used.as_slice(), &mut sent).unwrap();
        let (b, a) = truncation.read(&sent, used.as_slice()).unwrap();
        let mut phase = s.sk.phase(b, a).unwrap();
        let scale = RingScale::new(&params, format.limbs(), ell).unwrap();
        phase.sub_assign(&scale.scale_up(&x).unwrap());
        let (noise, bound) = (largest(&phase), format.noise().value());
        let modulus: f64 = params.q()[..format.limbs()].iter().map(|&q| q as f64).product();
        assert!(noise <= bound && noise > bound / 8.0, "{noise} {bound}");
        assert!(bound <= modulus / power_of_two(ell));
    }
}

/// Equal ciphertexts, answered twice in one run and again in another: no uniform part, mask or difference of uniform
/// parts repeats. Published code adds the same encryption of zero to several responses.
#[test]
fn every_response_has_its_own_zero_and_mask() {
    let mut s = setting(tiny(), 5);
    let format = ResponseFormat::for_ring(&s.params, 64, 20).unwrap();
    let used = Positions::all(&s.params);
    let x = shares(&mut s.rng, 256, 64);
    let first = noisy(&mut s, &x, 3, 64, 10);
    let second = noisy(&mut s, &x, 3, 64, 10);
    let parts = |run: u64| {
        let mut rng = rng(1000 + run);
        [&first, &first, &second].map(|ct| {
            let mut sent = Vec::new();
            let share = format.answer(ct, &s.key, &used, &mut rng, &mut sent).unwrap();
            let (b, a) = format.truncation().read(&sent, used.as_slice()).unwrap();
            (share, b, a)
        })
    };
    let (one, two) = (parts(1), parts(2));
    let all: Vec<_> = one.iter().chain(&two).collect();
    for (i, (share, b, a)) in all.iter().enumerate() {
        for (other_share, other_b, other_a) in all.iter().take(i) {
            assert!(share != other_share && b != other_b && a != other_a);
        }
    }
    let difference = |run: &[(Vec<u64>, RnsPoly<Coeff>, RnsPoly<Coeff>); 3], i: usize| {
        let mut d = run[i].2.clone();
        d.sub_assign(&run[0].2);
        d
    };
    assert!(difference(&one, 1) != difference(&two, 1));
    assert!(difference(&one, 2) != difference(&two, 2));
    // Two answers to one ciphertext differ by two zeros, which is far more than rounding.
    assert!(difference(&one, 1).limb(0).iter().filter(|&&c| c == 0).count() < 4);
}

/// The sent values have uniform top bits, whatever the message.
#[test]
fn sent_coefficients_look_uniform() {
    let mut s = setting(RlweParams::olt_small().unwrap(), 6);
    let format = ResponseFormat::for_ring(&s.params, 64, 30).unwrap();
    let used = Positions::all(&s.params);
    let ct = noisy(&mut s, &vec![0; 8192], 2, 64, 10);
    let mut sent = Vec::new();
    let share = format.answer(&ct, &s.key, &used, &mut s.rng, &mut sent).unwrap();
    let (b, a) = format.truncation().read(&sent, used.as_slice()).unwrap();
    let quantile = |values: &mut dyn Iterator<Item = f64>| {
        let mut cells = [0f64; 16];
        values.for_each(|v| cells[(v * 16.0) as usize] += 1.0);
        cells.iter().map(|c| (c - 512.0).powi(2) / 512.0).sum::<f64>()
    };
    let q0 = s.params.q()[0] as f64;
    // 15 degrees of freedom: above 60 with probability 2^-21.
    for part in [&b, &a] {
        assert!(quantile(&mut part.limb(0).iter().map(|&c| c as f64 / q0)) < 60.0);
    }
    assert!(quantile(&mut share.iter().map(|&v| (v >> 11) as f64 / power_of_two(53))) < 60.0);
}

#[test]
fn foreign_bytes_are_refused_or_harmless() {
    let mut s = setting(minute(), 7);
    let format = ResponseFormat::for_ring(&s.params, 64, 20).unwrap();
    let used = Positions::new(&s.params, vec![1, 5, 6]).unwrap();
    let ct = noisy(&mut s, &[7; 16], 2, 64, 10);
    let mut sent = Vec::new();
    format.answer(&ct, &s.key, &used, &mut s.rng, &mut sent).unwrap();
    for length in (0..sent.len()).chain([sent.len() + 1]) {
        let mut other = sent.clone();
        other.resize(length, 0);
        let opened = format.open(&other, &s.sk, &used);
        assert!(matches!(opened, Err(RlweError::Codec(CodecError::Length { .. }))), "{length}");
    }
    for at in 0..sent.len() {
        for flip in [1, 0x80, 0xff] {
            let mut other = sent.clone();
            other[at] ^= flip;
            drop(format.open(&other, &s.sk, &used));
        }
    }
    let ones = vec![0xff; sent.len()];
    assert!(matches!(format.open(&ones, &s.sk, &used), Err(RlweError::Codec(_))));
}

#[test]
fn truncation_rounds_and_wraps() {
    let params = tiny();
    for (limbs, bits) in [(1, 0), (1, 13), (2, 0), (2, 1), (2, 35), (2, 36), (2, 99)] {
        let truncation = Truncation::new(&params, limbs, bits, bits).unwrap();
        let modulus: u128 = params.q()[..limbs].iter().map(|&q| u128::from(q)).product();
        let edges = [0, 1, modulus - 1, modulus - 2, modulus / 2, (1u128 << bits) / 2];
        let mut poly = RnsPoly::zero(params.basis(), &params.ciphertext_ids(limbs));
        for j in 0..limbs {
            for (out, value) in poly.limb_mut(j).iter_mut().zip(edges) {
                *out = (value % u128::from(params.q()[j])) as u64;
            }
        }
        let used: Vec<usize> = (0..256).collect();
        let mut bytes = Vec::new();
        truncation.write(&poly, &poly, &used, &mut bytes).unwrap();
        let (mut b, a) = truncation.read(&bytes, &used).unwrap();
        assert_eq!(b, a);
        b.sub_assign(&poly);
        if bits < 49 {
            assert!(largest(&b) <= if bits == 0 { 0.0 } else { power_of_two(bits - 1) });
        }
    }
    for (limbs, bits) in [(0, 0), (3, 0), (1, 50), (2, 100), (2, u32::MAX)] {
        assert!(Truncation::new(&params, limbs, bits, 0).is_err());
        assert!(Truncation::new(&params, limbs, 0, bits).is_err());
    }
}
