use std::io;
use std::sync::Arc;

use hushed_ckks::keys::SecretKey;
use hushed_ckks::{Complex64, Encoder, Encryptor};
use hushed_math::rng::SecretRng;
use zeroize::Zeroizing;

use super::*;

fn params() -> Arc<CkksParams> {
    CkksParams::insecure_test(9, 6).unwrap()
}

/// Ciphertexts of different primes, scales and errors.
fn ciphertexts(params: &Arc<CkksParams>, count: usize) -> Vec<Ciphertext> {
    let mut rng = SecretRng::from_secret(&Zeroizing::new([7; 32]), "tests");
    let key = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
    let (encoder, encryptor) = (Encoder::new(params), Encryptor::new(params, &key).unwrap());
    let one = |i: usize| {
        let values = [Complex64::new(0.1 * i as f64, 0.0)];
        let scale = Scale::new(params.default_scale().value() * (1.0 + i as f64)).unwrap();
        let plain = encoder.encode(&values, 2 + i % 4, scale).unwrap();
        let ct = encryptor.encrypt(&plain, &mut rng).unwrap();
        ct.with_noise(Noise::new(i as f64, 1e-9 * i as f64))
    };
    (0..count).map(one).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn what_is_put_away_comes_back_to_the_bit() {
    let (params, folder) = (params(), tempfile::tempdir().unwrap());
    let spill = SpillFolder::open(folder.path()).unwrap();
    let sent = ciphertexts(&params, 11);
    let stored = spill.store(&params, sent.clone()).unwrap();
    if cfg!(unix) {
        // Nothing that a killed process could leave behind.
        assert!(names(folder.path()).is_empty());
    }
    let bytes: u64 = sent.iter().map(|ct| Ciphertext::list_bytes(&params, ct.limbs(), 1) as u64).sum();
    let other = spill.store(&params, ciphertexts(&params, 2)).unwrap();
    let found = stored.load(&params).unwrap();
    assert_eq!(found.len(), sent.len());
    for (a, b) in sent.iter().zip(&found) {
        assert!(a.a() == b.a() && a.b() == b.b());
        assert_eq!((a.scale(), a.noise()), (b.scale(), b.noise()));
    }
    let used = spill.used();
    assert_eq!(used.read, bytes);
    assert_eq!(used.written, used.peak);
    assert!(used.peak > bytes);
    // Dropped values free their space.
    drop(other);
    drop(spill.store(&params, ciphertexts(&params, 2)).unwrap());
    assert_eq!(spill.used().peak, used.peak);
    assert!(spill.used().written > used.written);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_file_that_was_cut_or_changed_is_refused() {
    let (params, folder) = (params(), tempfile::tempdir().unwrap());
    let spill = SpillFolder::open(folder.path()).unwrap();
    let sent = ciphertexts(&params, 9);
    let stored = || spill.store(&params, sent.clone()).unwrap();
    let whole = stored().place.bytes;
    for length in [0, 1, whole / 2, whole - 1] {
        let cut = stored();
        cut.file.set_len(length).unwrap();
        let error = cut.load(&params).err().unwrap();
        assert!(
            matches!(
                &error,
                FileError::Codec { path, fault: CodecError::Truncated { given, expected } }
                    if path == folder.path()
                        && (*given as u64, *expected as u64) == (length, whole)
            ),
            "{error}"
        );
    }
    let sizes: Vec<usize> = stored().entries.iter().map(|entry| entry.bytes).collect();
    let mut start = 0;
    for (i, size) in sizes.into_iter().enumerate() {
        for at in [start, start + size / 2, start + size - 1] {
            let mut changed = stored();
            let mut byte = [0];
            changed.file.seek(io::SeekFrom::Start(at as u64)).unwrap();
            changed.file.read_exact(&mut byte).unwrap();
            changed.file.seek(io::SeekFrom::Start(at as u64)).unwrap();
            changed.file.write_all(&[byte[0] ^ 0x10]).unwrap();
            let error = changed.load(&params).err().unwrap();
            assert!(
                matches!(
                    &error,
                    FileError::Codec { fault: CodecError::Damaged { chunk }, .. } if *chunk == i
                ),
                "{error}"
            );
        }
        start += size;
    }
}

/// On a full disk: writes are refused.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_names_the_folder() {
    let (params, folder) = (params(), tempfile::tempdir().unwrap());
    let spill = SpillFolder::open(folder.path()).unwrap();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let error = spill.fill(full, None, &params, ciphertexts(&params, 3));
    assert!(matches!(
        error.err(),
        Some(FileError::Io { operation: "write", path, source })
            if path == folder.path() && source.kind() == ErrorKind::StorageFull
    ));
    assert_eq!(spill.used().written, 0);
}

#[test]
fn a_folder_is_looked_at_before_and_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let left = folder.path().join(format!("{PREFIX}0123{SUFFIX}"));
    let others = folder.path().join("reply.draft");
    fs::write(&left, b"left by a process that was killed").unwrap();
    fs::write(&others, b"not ours").unwrap();
    let spill = SpillFolder::open(folder.path()).unwrap();
    assert_eq!(names(folder.path()), ["reply.draft"]);
    assert_eq!(spill.path(), folder.path());
    let absent = folder.path().join("absent");
    assert!(matches!(
        SpillFolder::open(&absent).err(),
        Some(FileError::Io { path, .. }) if path == absent
    ));
    // The folder may disappear during a run.
    let gone = folder.path().join("gone");
    fs::create_dir(&gone).unwrap();
    let spill = SpillFolder::open(&gone).unwrap();
    fs::remove_dir(&gone).unwrap();
    assert!(matches!(
        spill.store(&params(), ciphertexts(&params(), 1)).err(),
        Some(FileError::Io { operation: "write", path, .. }) if path == gone
    ));
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let (params, folder) = (params(), tempfile::tempdir().unwrap());
    let spill = SpillFolder::open(folder.path()).unwrap();
    let stored = spill.store(&params, ciphertexts(&params, 1)).unwrap();
    let mode = stored.file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
