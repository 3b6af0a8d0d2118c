//! The client's half: generates its keys.

use std::path::Path;

use hushed_ckks::keys::{KeySpecs, PublicKey, SecretKey};
use hushed_math::rng::SecretRng;
use hushed_rlwe::RlweError;
use hushed_rlwe::audit::Auditor;
use hushed_rlwe::codec::{HEADER_BYTES, Kind, write_header};
use hushed_rlwe::hybrid::{EvalKeysWriter, KeyGenerator, SwitchKey};
use sha2::{Digest, Sha256};

use super::{KeyProgress, KeyTimes, file_bytes, first_bytes, id};
use crate::files::FileError;
use crate::files::atomic::{Access, AtomicFile, Target, refuse_existing};
use crate::files::chunked::Hash;

/// As [`write_to`], into a new file that must not exist yet.
///
/// # Errors
/// [`FileError`].
pub fn write(
    path: &Path,
    sk: &SecretKey,
    specs: &KeySpecs,
    times: KeyTimes,
    rng: &mut SecretRng,
    progress: KeyProgress<'_>,
) -> Result<Hash, FileError> {
    refuse_existing(path)?;
    let file = AtomicFile::create(path, Access::Usual)?;
    write_to(file, path, sk, specs, times, rng, progress)
}

/// Generates the public key and, one by one, the keys of `specs`, and returns the id of the set. They go to `out`,
/// which errors call `path`. Each sample is checked against the security table, and against earlier samples, before a
/// byte of its key is written.
///
/// # Errors
/// [`FileError`].
pub fn write_to(
    out: impl Target,
    path: &Path,
    sk: &SecretKey,
    specs: &KeySpecs,
    times: KeyTimes,
    rng: &mut SecretRng,
    progress: KeyProgress<'_>,
) -> Result<Hash, FileError> {
    let public = PublicKey::generate(sk, rng);
    let keys = KeyGenerator::new(sk, specs, rng).map_err(|error| FileError::content(path, error))?;
    let made = Made { specs, times, public: &public, auditor: Auditor::of(sk.params()) };
    made.write(out, path, keys, progress)
}

/// What is written besides the keys, and the auditor that checks samples first.
struct Made<'a> {
    specs: &'a KeySpecs,
    times: KeyTimes,
    public: &'a PublicKey,
    auditor: Auditor,
}

impl Made<'_> {
    /// Writes keys as they are generated.
    fn write(
        self,
        mut out: impl Target,
        path: &Path,
        keys: impl Iterator<Item = Result<SwitchKey, RlweError>>,
        progress: KeyProgress<'_>,
    ) -> Result<Hash, FileError> {
        let Made { specs, times, public, mut auditor } = self;
        let params = public.params();
        let mut hold = |sample| {
            auditor
                .hold(sample)
                .map_err(|failure| FileError::Audit { path: path.to_owned(), failure: Box::new(failure) })
        };
        hold(public.published())?;
        let refused = |error| FileError::content(path, error);
        let total = usize::try_from(file_bytes(path, params, specs)?).unwrap_or(usize::MAX);
        let mut put = |bytes: &[u8]| out.write_all(bytes).map_err(FileError::io("write", path));

        let mut first = Vec::with_capacity(first_bytes(params));
        write_header(&mut first, Kind::FheKeys, params, total - HEADER_BYTES);
        first.extend_from_slice(&times.created.to_le_bytes());
        first.extend_from_slice(&times.expires.to_le_bytes());
        first.extend_from_slice(&public.to_bytes());
        let digest: Hash = Sha256::digest(&first).into();
        put(&first)?;
        put(&digest)?;

        let (mut writer, list) = EvalKeysWriter::new(params, specs).map_err(refused)?;
        put(&list)?;
        for (done, key) in keys.enumerate() {
            progress(done, specs.len());
            let key = key.map_err(refused)?;
            key.published().try_for_each(&mut hold)?;
            put(&writer.push(&key).map_err(refused)?)?;
        }
        progress(specs.len(), specs.len());
        let name = writer.finish().map_err(refused)?;
        put(&name)?;
        let id = id(&digest, &name);
        put(&id)?;
        out.complete(path)?;
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use hushed_rlwe::audit::AuditFailure;

    use super::*;
    use crate::plan::public_plan::insecure_plan;

    const TIMES: KeyTimes = KeyTimes { created: 1, expires: u64::MAX };

    /// Two keys with the same uniform half: both files together give an equation in the secret without an unknown mask.
    /// And keys of a ring that is in no table. Neither leaves anything behind.
    #[test]
    fn c7_no_key_is_written_that_the_audit_refuses() {
        let (_, params) = insecure_plan(5, 1, 3).unwrap();
        let mut rng = SecretRng::from_os("audit of a key file");
        let sk = SecretKey::generate(params.rlwe(), &mut rng);
        let public = PublicKey::generate(&sk, &mut rng);
        let single = |element| {
            let mut specs = KeySpecs::new();
            specs.galois(element, 1, 1);
            let mut rng = SecretRng::insecure_from_seed(7);
            let keys = KeyGenerator::new(&sk, &specs, &mut rng).unwrap();
            keys.collect::<Vec<_>>()
        };
        let keys = || single(5).into_iter().chain(single(25));
        let mut specs = KeySpecs::new();
        specs.galois(5, 1, 1).galois(25, 1, 1);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("evaluation.keys");
        let write = |auditor| {
            let made = Made { specs: &specs, times: TIMES, public: &public, auditor };
            let file = AtomicFile::create(&path, Access::Usual).unwrap();
            let written = made.write(file, &path, keys(), &mut |_, _| ());
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
            match written {
                Err(FileError::Audit { failure, .. }) => *failure,
                other => panic!("{:?}", other.map(drop)),
            }
        };
        let repeated = write(Auditor::of(params.rlwe()));
        assert!(matches!(repeated, AuditFailure::Repeated { .. }), "{repeated}");
        let outside = write(Auditor::new());
        assert!(matches!(outside, AuditFailure::OverLimit { limit: None, .. }), "{outside}");
    }
}
