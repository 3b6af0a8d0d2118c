//! Serialisation of ciphertexts: lists of ciphertexts of one length, each with its scale.
//!
//! The header is that of every artefact ([`hushed_rlwe::codec`]). The payload is, for each ciphertext:
//!
//! | bytes | whole | seeded |
//! |---|---|---|
//! | 8 | scale, an f64 | scale, an f64 |
//! | 16 | – | seed of the uniform part |
//! | packed | b | b |
//! | packed | a | – |
//!
//! What the reader expects (parameters, primes, count) determines every size. What is known about the error is not
//! sent: the reader states it, in units of the agreed scale. So the reader states the scale as well, and any other is
//! refused: at a scale of the sender's choice neither rounding nor flooding would hide the error.
//!
//! Nothing in the bytes can prove the statement true: a ciphertext from elsewhere may have any error. An estimate
//! ([`Noise::new`]) determines how a result is rounded, and a wrong one costs digits. Flooding relies on a bound
//! ([`Noise::with_norm`]), and a wrong one can reveal the key. So the bytes carry neither: a reader of seeded
//! ciphertexts states a magnitude and gets an estimate; a reader of whole ones puts a bound into `noise`, and without
//! one flooded decryption is refused.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_rlwe::RlweError;
use hushed_rlwe::codec::{HEADER_BYTES, Kind, Reader, SEED_BYTES, open_artefact, poly_bytes, write_header, write_poly};
use hushed_rlwe::error::CodecError;

use crate::ciphertext::{Ciphertext, check_limbs};
use crate::encrypt::SeededCiphertext;
use crate::error::CkksError;
use crate::noise::Noise;
use crate::params::CkksParams;
use crate::scale::Scale;

const SCALE_BYTES: usize = 8;

impl Ciphertext {
    /// Bytes of `count` ciphertexts of `limbs` primes, including the header.
    pub fn list_bytes(params: &CkksParams, limbs: usize, count: usize) -> usize {
        HEADER_BYTES.saturating_add(count.saturating_mul(whole_bytes(params, limbs)))
    }

    /// Encodes ciphertexts of `limbs` primes each.
    ///
    /// # Errors
    /// [`CkksError::LimbCount`], [`CkksError::OtherParameters`]; an RLWE error if a ciphertext has another length.
    pub fn list_to_bytes(params: &CkksParams, limbs: usize, list: &[Self]) -> Result<Vec<u8>, CkksError> {
        check_limbs(params, "write", limbs)?;
        let payload = list.len().saturating_mul(whole_bytes(params, limbs));
        let mut out = Vec::with_capacity(HEADER_BYTES.saturating_add(payload));
        write_header(&mut out, Kind::CkksCiphertexts, params.rlwe(), payload);
        for ct in list {
            check_shape(params, ct.basis(), limbs, ct.limbs())?;
            out.extend_from_slice(&ct.scale.value().to_le_bytes());
            write_poly(&mut out, &ct.b);
            write_poly(&mut out, &ct.a);
        }
        Ok(out)
    }

    /// Decodes exactly `count` ciphertexts of `limbs` primes, whose scale and noise are known in advance to be `scale`
    /// and `noise`.
    ///
    /// # Errors
    /// [`CkksError::Codec`] for any other bytes, [`CkksError::ScaleMismatch`] or [`CkksError::InvalidScale`] for any
    /// other scale, [`CkksError::ScaleTooLarge`], [`CkksError::LimbCount`].
    pub fn list_from_bytes(
        params: &CkksParams,
        limbs: usize,
        count: usize,
        scale: Scale,
        noise: Noise,
        bytes: &[u8],
    ) -> Result<Vec<Self>, CkksError> {
        check_limbs(params, "read", limbs)?;
        check_room(params, limbs, scale)?;
        let payload = count.saturating_mul(whole_bytes(params, limbs));
        let mut reader = open_artefact(bytes, Kind::CkksCiphertexts, params.rlwe(), payload)?;
        let (basis, ids) = (params.rlwe().basis(), params.rlwe().ciphertext_ids(limbs));
        let list = (0..count)
            .map(|_| {
                check_scale(scale, &mut reader)?;
                Ok(Self { scale, b: reader.poly(basis, &ids)?, a: reader.poly(basis, &ids)?, noise })
            })
            .collect::<Result<Vec<_>, CkksError>>()?;
        reader.finish()?;
        Ok(list)
    }
}

impl SeededCiphertext {
    /// Bytes of `count` seeded ciphertexts of `limbs` primes, including the header.
    pub fn list_bytes(params: &CkksParams, limbs: usize, count: usize) -> usize {
        HEADER_BYTES.saturating_add(count.saturating_mul(seeded_bytes(params, limbs)))
    }

    /// Encodes seeded ciphertexts of `limbs` primes each.
    ///
    /// # Errors
    /// [`CkksError::LimbCount`], [`CkksError::OtherParameters`]; an RLWE error if a ciphertext has another length.
    pub fn list_to_bytes(params: &CkksParams, limbs: usize, list: &[Self]) -> Result<Vec<u8>, CkksError> {
        check_limbs(params, "write", limbs)?;
        let payload = list.len().saturating_mul(seeded_bytes(params, limbs));
        let mut out = Vec::with_capacity(HEADER_BYTES.saturating_add(payload));
        write_header(&mut out, Kind::CkksSeeded, params.rlwe(), payload);
        for ct in list {
            check_shape(params, ct.inner.b.basis(), limbs, ct.limbs())?;
            out.extend_from_slice(&ct.scale.value().to_le_bytes());
            out.extend_from_slice(&ct.inner.seed.0);
            write_poly(&mut out, &ct.inner.b);
        }
        Ok(out)
    }

    /// Decodes exactly `count` seeded ciphertexts of `limbs` primes at `scale`, with messages known in advance to be
    /// within `magnitude`.
    ///
    /// # Errors
    /// As [`Ciphertext::list_from_bytes`].
    pub fn list_from_bytes(
        params: &CkksParams,
        limbs: usize,
        count: usize,
        scale: Scale,
        magnitude: f64,
        bytes: &[u8],
    ) -> Result<Vec<Self>, CkksError> {
        check_limbs(params, "read", limbs)?;
        check_room(params, limbs, scale)?;
        let payload = count.saturating_mul(seeded_bytes(params, limbs));
        let mut reader = open_artefact(bytes, Kind::CkksSeeded, params.rlwe(), payload)?;
        let (basis, ids) = (params.rlwe().basis(), params.rlwe().ciphertext_ids(limbs));
        let n = params.n();
        let estimated = Noise::encoded(n, scale, magnitude).encrypted(n, scale);
        let list = (0..count)
            .map(|_| {
                check_scale(scale, &mut reader)?;
                let seed = reader.seed()?;
                let b = reader.poly(basis, &ids)?;
                Ok(Self {
                    inner: hushed_rlwe::SeededCiphertext { seed, b },
                    scale,
                    noise: estimated.with_norm(f64::INFINITY),
                })
            })
            .collect::<Result<Vec<_>, CkksError>>()?;
        reader.finish()?;
        Ok(list)
    }
}

fn whole_bytes(params: &CkksParams, limbs: usize) -> usize {
    let poly = poly_bytes(params.rlwe().basis(), &params.rlwe().ciphertext_ids(limbs));
    SCALE_BYTES.saturating_add(poly.saturating_mul(2))
}

fn seeded_bytes(params: &CkksParams, limbs: usize) -> usize {
    let poly = poly_bytes(params.rlwe().basis(), &params.rlwe().ciphertext_ids(limbs));
    (SCALE_BYTES + SEED_BYTES).saturating_add(poly)
}

fn check_shape(
    params: &CkksParams,
    basis: &std::sync::Arc<hushed_math::RnsBasis>,
    expected: usize,
    limbs: usize,
) -> Result<(), CkksError> {
    if !params.same_ring(basis) {
        return Err(CkksError::OtherParameters { operation: "write" });
    }
    if limbs != expected {
        return Err(RlweError::LimbCount { given: limbs, available: expected }.into());
    }
    Ok(())
}

fn check_room(params: &CkksParams, limbs: usize, scale: Scale) -> Result<(), CkksError> {
    let modulus_bits = params.rlwe().log2_q(limbs);
    if scale.log2() >= modulus_bits {
        return Err(CkksError::ScaleTooLarge { scale: scale.log2(), limbs, modulus_bits });
    }
    Ok(())
}

/// Checks that the scale sent matches the expected one, which is the one kept.
fn check_scale(expected: Scale, reader: &mut Reader<'_>) -> Result<(), CkksError> {
    let value: [u8; SCALE_BYTES] = reader.array().map_err(|e: CodecError| CkksError::from(e))?;
    let sent = Scale::new(f64::from_le_bytes(value))?;
    expected.check(sent, "read")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fixture;

    fn fixture() -> Fixture {
        let params = CkksParams::insecure_test(8, 2).unwrap();
        Fixture::new(&params, &crate::keys::KeySpecs::new(), 1)
    }

    #[test]
    fn ciphertexts_come_back() {
        let mut f = fixture();
        let (x, y) = (f.random(), f.random());
        let list = [f.encrypt(&x, 3), f.encrypt(&y, 3)];
        let bytes = Ciphertext::list_to_bytes(&f.params, 3, &list).unwrap();
        assert_eq!(bytes.len(), Ciphertext::list_bytes(&f.params, 3, 2));
        let (scale, noise) = (list[0].scale(), list[0].noise());
        let back = Ciphertext::list_from_bytes(&f.params, 3, 2, scale, noise, &bytes).unwrap();
        for (one, other) in list.iter().zip(&back) {
            assert!(one.b() == other.b() && one.a() == other.a());
            assert_eq!(one.scale(), other.scale());
        }
        let short = f.evaluator.drop_to(&list[0], 2).unwrap();
        assert!(Ciphertext::list_to_bytes(&f.params, 3, &[short]).is_err());
    }

    #[test]
    fn seeded_ciphertexts_take_half_the_bytes() {
        let mut f = fixture();
        let x = f.random();
        let scale = f.params.default_scale();
        let plain = f.encoder.encode(&x, 4, scale).unwrap();
        let ct = f.encryptor.encrypt_seeded(&plain, &mut f.rng).unwrap();
        let bytes = SeededCiphertext::list_to_bytes(&f.params, 4, std::slice::from_ref(&ct)).unwrap();
        assert_eq!(bytes.len(), SeededCiphertext::list_bytes(&f.params, 4, 1));
        assert!(2 * bytes.len() < Ciphertext::list_bytes(&f.params, 4, 1) + 100);
        let back = SeededCiphertext::list_from_bytes(&f.params, 4, 1, scale, 1.5, &bytes).unwrap();
        let back = back.into_iter().next().unwrap().expand();
        let (least, _) = f.bits(&back, &x);
        assert!(least > 24.0);
        assert!(back.b() == ct.expand().b());
    }

    /// The sender's scale is not used: at scale 1 the integers would be read as the message, error included.
    #[test]
    fn other_scales_than_the_expected_one_are_refused() {
        let mut f = fixture();
        let x = f.random();
        let ct = f.encrypt(&x, 1);
        let (scale, noise) = (ct.scale(), ct.noise());
        let good = Ciphertext::list_to_bytes(&f.params, 1, &[ct]).unwrap();
        let plain = f.encoder.encode(&x, 1, scale).unwrap();
        let seeded = f.encryptor.encrypt_seeded(&plain, &mut f.rng).unwrap();
        let seeded = SeededCiphertext::list_to_bytes(&f.params, 1, &[seeded]).unwrap();
        let with = |good: &[u8], value: f64| {
            let mut bytes = good.to_vec();
            bytes[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&value.to_le_bytes());
            bytes
        };
        let read = |bytes: &[u8], scale| Ciphertext::list_from_bytes(&f.params, 1, 1, scale, noise, bytes);
        let read_seeded = |bytes: &[u8], scale| SeededCiphertext::list_from_bytes(&f.params, 1, 1, scale, 1.5, bytes);
        let huge = 2f64.powi(50);
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 1.0, huge] {
            assert!(read(&with(&good, value), scale).is_err(), "{value}");
            assert!(read_seeded(&with(&seeded, value), scale).is_err(), "{value}");
        }
        assert!(matches!(read(&with(&good, 1.0), scale), Err(CkksError::ScaleMismatch { .. })));
        // Rounding differences between two computations of the same scale are accepted; the reader's value is kept.
        let near = with(&good, scale.value() * (1.0 + 2f64.powi(-42)));
        assert_eq!(read(&near, scale).unwrap()[0].scale(), scale);
        assert!(matches!(read(&with(&good, huge), Scale::new(huge).unwrap()), Err(CkksError::ScaleTooLarge { .. })));
    }
}
