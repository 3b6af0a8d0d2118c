//! Files read back as written; every other length, every flipped byte and everything that belongs to something else is
//! refused.

use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hushed_ckks::keys::{KeySpecs, SecretKey};
use hushed_ckks::{Ciphertext, CkksParams, Complex64, Encoder, Encryptor, SeededCiphertext};
use hushed_math::rng::SecretRng;
use hushed_rlwe::error::CodecError;

use super::atomic::{self, Access, AtomicFile};
use super::checkpoint::{self, Run};
use super::exchange::{self, ReplyHead, RequestHead, RequestReader, RequestWriter};
use super::keys::{self, KeyFile, KeyReader, KeyTimes};
use super::{FileError, secret};
use crate::plan::public_plan::{FhePlan, Lengths, insecure_plan};

/// Writes a whole reply to a file.
fn write_reply(
    path: &Path,
    plan: &FhePlan,
    params: &CkksParams,
    head: &ReplyHead,
    list: &[Ciphertext],
) -> Result<[u8; 32], FileError> {
    let file = AtomicFile::create(path, Access::Usual)?;
    exchange::write_reply_to(file, path, plan, params, head, list)
}

struct Bench {
    folder: tempfile::TempDir,
    plan: FhePlan,
    params: Arc<CkksParams>,
    key: Arc<SecretKey>,
    rng: SecretRng,
}

impl Bench {
    fn new() -> Bench {
        let (mut plan, params) = insecure_plan(4, 1, 4).unwrap();
        plan.placement.upload = 2;
        let mut rng = SecretRng::from_os("test");
        let key = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
        Bench { folder: tempfile::tempdir().unwrap(), plan, params, key, rng }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn seeded(&mut self) -> SeededCiphertext {
        let encoder = Encoder::new(&self.params);
        let values = vec![Complex64::new(0.5, 0.0); self.params.slots()];
        let plain = encoder.encode(&values, 2, self.params.default_scale()).unwrap();
        let encryptor = Encryptor::new(&self.params, &self.key).unwrap();
        encryptor.encrypt_seeded(&plain, &mut self.rng).unwrap()
    }

    fn head(&self) -> RequestHead {
        RequestHead { plan: self.plan.hash(), keys: [7; 32], id: [9; 16], lengths: vec![3, 0] }
    }

    fn reply_head(&self) -> ReplyHead {
        ReplyHead { plan: self.plan.hash(), keys: [7; 32], id: [9; 16], request: [1; 32] }
    }

    fn request(&mut self, path: &Path) -> (Vec<SeededCiphertext>, [u8; 32]) {
        let list = vec![self.seeded(), self.seeded()];
        let mut file = RequestWriter::create(path, &self.plan, &self.params, &self.head()).unwrap();
        for ct in &list {
            file.push(ct).unwrap();
        }
        (list, file.finish().unwrap())
    }
}

/// Tries `read` on every truncation of a file and on every flipped byte; all must fail, with errors of files.
fn refuses_all_damage(path: &Path, read: impl Fn() -> Option<FileError>) {
    let good = fs::read(path).unwrap();
    assert!(read().is_none());
    for at in 0..good.len() {
        fs::write(path, &good[..at]).unwrap();
        let cut = read().unwrap();
        let length =
            matches!(cut, FileError::Codec { fault: CodecError::Truncated { .. } | CodecError::Length { .. }, .. });
        assert!(length, "cut at {at}: {cut}");
        let mut flipped = good.clone();
        flipped[at] ^= 0x11;
        fs::write(path, &flipped).unwrap();
        assert!(read().is_some(), "flipped at {at}");
    }
    let longer = [&good[..], &[0]].concat();
    fs::write(path, longer).unwrap();
    assert!(read().is_some());
    fs::write(path, &good).unwrap();
    assert!(read().is_none());
}

/// What is refused in a file is refused in memory, for the same reason.
fn refuses_alike(path: &Path, file: impl Fn() -> Option<FileError>, memory: impl Fn(&[u8]) -> Option<FileError>) {
    let good = fs::read(path).unwrap();
    let told = |error: Option<FileError>| error.map(|error| format!("{error:?}"));
    assert!(file().is_none() && memory(&good).is_none());
    let cut = (0..good.len()).map(|at| good[..at].to_vec());
    let flipped = (0..good.len()).map(|at| {
        let mut bad = good.clone();
        bad[at] ^= 0x24;
        bad
    });
    for bad in cut.chain(flipped).chain([[&good[..], &[0]].concat()]) {
        fs::write(path, &bad).unwrap();
        let refused = told(file());
        assert!(refused.is_some());
        assert_eq!(told(memory(&bad)), refused);
    }
    fs::write(path, &good).unwrap();
}

/// Keys, requests and replies in memory have the bytes of the files and are read by the same rules.
#[test]
fn memory_is_as_files() {
    let mut b = Bench::new();
    let (plan, params) = (b.plan.clone(), b.params.clone());

    let path = b.path("evaluation.keys");
    let key_specs = plan.key_specs(&params).unwrap();
    let times = KeyTimes { created: 5, expires: 77 };
    let rng = || SecretRng::insecure_from_seed(7);
    let file = keys::write(&path, &b.key, &key_specs, times, &mut rng(), &mut |_, _| {}).unwrap();
    let mut bytes = Vec::new();
    let memory = keys::write_to(&mut bytes, &path, &b.key, &key_specs, times, &mut rng(), &mut |_, _| {});
    assert_eq!(memory.unwrap(), file);
    assert!(bytes == fs::read(&path).unwrap());
    let open = |bytes: &[u8]| {
        let source = Cursor::new(bytes.to_vec());
        KeyReader::begin(source, &path, params.rlwe(), &key_specs)
    };
    let read = open(&bytes).unwrap();
    assert_eq!((read.id(), read.times()), (file, times));
    refuses_alike(
        &path,
        || {
            let opened = KeyFile::open(&path, params.rlwe(), &key_specs);
            opened.and_then(|keys| keys.check(&mut |_, _| {})).err()
        },
        |bytes| open(bytes).and_then(|keys| keys.check(&mut |_, _| {})).err(),
    );

    let path = b.path("request");
    let head = b.head();
    let (list, file) = b.request(&path);
    let mut bytes = Vec::new();
    let mut out = RequestWriter::begin(&mut bytes, &path, &plan, &params, &head).unwrap();
    list.iter().for_each(|ct| out.push(ct).unwrap());
    assert_eq!(out.finish().unwrap(), file);
    assert!(bytes == fs::read(&path).unwrap());
    fn whole<R: Read>(reader: Result<RequestReader<'_, R>, FileError>) -> Result<(), FileError> {
        let mut reader = reader?;
        while reader.next_ciphertext()?.is_some() {}
        reader.finish().map(drop)
    }
    let of_keys = Some(&[7; 32]);
    refuses_alike(
        &path,
        || whole(RequestReader::open(&path, &plan, &params, of_keys)).err(),
        |bytes| {
            let source = (bytes, bytes.len() as u64);
            whole(RequestReader::begin(source, &path, &plan, &params, of_keys)).err()
        },
    );
    // A source that ends before its stated end.
    let short = (&bytes[..bytes.len() - 1], bytes.len() as u64);
    let ended = whole(RequestReader::begin(short, &path, &plan, &params, of_keys));
    assert!(matches!(ended, Err(FileError::Io { operation: "read", .. })));

    let path = b.path("reply");
    let (head, list) = (b.reply_head(), [b.seeded().expand()]);
    let file = write_reply(&path, &plan, &params, &head, &list).unwrap();
    let mut bytes = Vec::new();
    let memory = exchange::write_reply_to(&mut bytes, &path, &plan, &params, &head, &list);
    assert_eq!(memory.unwrap(), file);
    assert!(bytes == fs::read(&path).unwrap());
    refuses_alike(
        &path,
        || exchange::read_reply(&path, &plan, &params, &[7; 32]).err(),
        |bytes| {
            let source = (bytes, bytes.len() as u64);
            exchange::read_reply_from(source, &path, &plan, &params, &[7; 32]).err()
        },
    );

    let path = b.path("secret.key");
    secret::write(&path, &b.key).unwrap();
    assert!(b.key.to_bytes()[..] == fs::read(&path).unwrap());
    refuses_alike(
        &path,
        || secret::read(&path, params.rlwe(), 3).err(),
        |bytes| secret::from_bytes(bytes, &path, params.rlwe(), 3).err(),
    );
}

/// A writer without room returns an error, like a full disk.
#[test]
fn memory_without_room() {
    let mut b = Bench::new();
    let path = Path::new("<reply>");
    let (head, list) = (b.reply_head(), [b.seeded().expand()]);
    let mut room = [0; 100];
    let out = &mut &mut room[..];
    let written = exchange::write_reply_to(out, path, &b.plan, &b.params, &head, &list);
    assert!(matches!(written, Err(FileError::Io { operation: "write", .. })));
}

#[test]
fn keys() {
    let mut b = Bench::new();
    let path = b.path("evaluation.keys");
    let plan = b.plan.key_specs(&b.params).unwrap();
    let times = KeyTimes { created: 5, expires: 77 };
    let mut done = Vec::new();
    let id = keys::write(&path, &b.key, &plan, times, &mut b.rng, &mut |i, n| {
        done.push((i, n));
    })
    .unwrap();
    assert_eq!(done.last(), Some(&(plan.len(), plan.len())));
    let expected = keys::file_bytes(&path, b.params.rlwe(), &plan).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), expected);
    let open = |plan: &KeySpecs| KeyFile::open(&path, b.params.rlwe(), plan);
    let file = open(&plan).unwrap();
    assert_eq!((file.id(), file.times()), (id, times));
    assert_eq!(keys::stated(&path, b.params.rlwe()).unwrap(), (id, times));
    let (_, read) = file.read(&mut |_, _| {}).unwrap();
    assert_eq!(read.specs(), plan);
    refuses_all_damage(&path, || open(&plan).and_then(|file| file.read(&mut |_, _| {})).err());
    // A missing key is named, before anything is read.
    let mut more = plan.clone();
    more.galois(3, 1, 1);
    let error = open(&more).err().unwrap();
    assert!(matches!(error, FileError::Content { .. }), "{error}");
    assert!(error.to_string().contains("Galois(3)"), "{error}");
    let mut fewer = KeySpecs::new();
    fewer.relin(2, 1);
    let error = open(&fewer).err().unwrap();
    let unexpected = matches!(error, FileError::Codec { fault: CodecError::Keys, .. });
    assert!(unexpected, "{error}");
    // Keys are written only once.
    let again = keys::write(&path, &b.key, &plan, times, &mut b.rng, &mut |_, _| {});
    assert!(matches!(again, Err(FileError::Exists { .. })));
}

#[test]
fn secrets() {
    let b = Bench::new();
    let path = b.path("secret.key");
    secret::write(&path, &b.key).unwrap();
    assert!(matches!(secret::write(&path, &b.key), Err(FileError::Exists { .. })));
    let read = || secret::read(&path, b.params.rlwe(), 3);
    assert_eq!(read().unwrap().decryptions(), 3);
    assert_eq!(read().unwrap().to_bytes(), b.key.to_bytes());
    refuses_all_damage(&path, || read().err());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = read().err().unwrap();
        assert!(matches!(error, FileError::NotPrivate { mode: 0o640, .. }));
    }
}

#[test]
fn requests() {
    let mut b = Bench::new();
    let path = b.path("request");
    let (list, name) = b.request(&path);
    let expected = exchange::request_bytes(&b.plan, &b.params).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), expected);
    let read = |plan: &FhePlan, keys: [u8; 32]| -> Result<_, FileError> {
        let mut file = RequestReader::open(&path, plan, &b.params, Some(&keys))?;
        let head = file.head().clone();
        let mut list = Vec::new();
        while let Some(ct) = file.next_ciphertext()? {
            list.push(ct.expand());
        }
        Ok((head, list, file.finish()?))
    };
    let (head, found, named) = read(&b.plan, [7; 32]).unwrap();
    assert_eq!((head, named), (b.head(), name));
    assert_eq!(found.len(), 2);
    for (ct, sent) in found.iter().zip(list) {
        assert!(ct.b() == sent.expand().b());
    }
    refuses_all_damage(&path, || read(&b.plan, [7; 32]).err());
    let other = |error: FileError, name: &str| match error {
        FileError::Other { what, .. } => assert_eq!(what, name),
        error => panic!("{error}"),
    };
    other(read(&b.plan, [8; 32]).err().unwrap(), "key set");
    let mut plan = b.plan.clone();
    plan.input_bound = 9.0;
    other(read(&plan, [7; 32]).err().unwrap(), "plan");
}

/// Whole files with valid digests but another shape than the plan's: more primes, fewer ciphertexts.
#[test]
fn requests_and_replies_of_another_shape() {
    let b = Bench::new();
    let path = b.path("request");
    let head = b.head();
    let written_by = |plan: &FhePlan, list: &[SeededCiphertext]| {
        let mut file = RequestWriter::create(&path, plan, &b.params, &head).unwrap();
        list.iter().for_each(|ct| file.push(ct).unwrap());
        file.finish().unwrap();
    };
    let read = || RequestReader::open(&path, &b.plan, &b.params, Some(&[7; 32])).err();
    let seeded = |limbs: usize, rng: &mut SecretRng| {
        let values = vec![Complex64::new(0.5, 0.0); b.params.slots()];
        let plain = Encoder::new(&b.params).encode(&values, limbs, b.params.default_scale());
        let encryptor = Encryptor::new(&b.params, &b.key).unwrap();
        encryptor.encrypt_seeded(&plain.unwrap(), rng).unwrap()
    };
    let mut rng = SecretRng::from_os("test");
    let (two, three) = (seeded(2, &mut rng), seeded(3, &mut rng));
    let mut deeper = b.plan.clone();
    deeper.placement.upload = 3;
    let list = vec![three; b.plan.request_ciphertexts()];
    written_by(&deeper, &list);
    assert!(matches!(read(), Some(FileError::Codec { .. })), "primes");
    let mut narrower = b.plan.clone();
    // Two columns per ciphertext.
    narrower.width -= 2;
    let list = vec![two.clone(); b.plan.request_ciphertexts() - 1];
    written_by(&narrower, &list);
    assert!(matches!(read(), Some(FileError::Codec { .. })), "count");
    // In the plan's shape the same is accepted: it was the shape that was refused.
    let list = vec![two; b.plan.request_ciphertexts()];
    written_by(&b.plan, &list);
    assert!(read().is_none());

    let path = b.path("reply");
    let head = b.reply_head();
    let mut more = b.plan.clone();
    more.reply.ciphertexts += 1;
    let list = vec![seeded(2, &mut rng).expand(); more.reply.ciphertexts];
    write_reply(&path, &more, &b.params, &head, &list).unwrap();
    let error = exchange::read_reply(&path, &b.plan, &b.params, &[7; 32]).err();
    assert!(matches!(error, Some(FileError::Codec { .. })), "reply");
}

/// Every kind of file that a run writes, on a disk that fills up meanwhile: a typed error with the name, and the
/// previous content stays.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_loses_nothing() {
    let mut b = Bench::new();
    let (reply, saved) = (b.path("reply"), b.path("checkpoint"));
    for path in [&reply, &saved] {
        fs::write(path, b"as it was").unwrap();
    }
    let head = b.reply_head();
    let run = Run { plan: [1; 32], keys: [2; 32], request: [3; 32] };
    let cts = [b.seeded().expand(), b.seeded().expand()];
    let times = KeyTimes { created: 5, expires: 77 };
    let keys = b.plan.key_specs(&b.params).unwrap();
    let [evaluation, secret, request] = ["evaluation.keys", "secret.key", "request"].map(|n| b.path(n));
    let (seeded, sent_head) = (b.seeded(), b.head());
    let errors = atomic::full_disk::during(|| {
        let sent = || {
            let mut file = RequestWriter::create(&request, &b.plan, &b.params, &sent_head)?;
            for _ in 0..b.plan.request_ciphertexts() {
                file.push(&seeded)?;
            }
            file.finish().map(drop)
        };
        [
            write_reply(&reply, &b.plan, &b.params, &head, &cts[..1]).map(drop),
            checkpoint::write(&saved, &b.params, &run, 1, &cts),
            keys::write(&evaluation, &b.key, &keys, times, &mut b.rng, &mut |_, _| {}).map(drop),
            atomic::write(&secret, Access::Private, b"secret"),
            sent(),
        ]
    });
    let paths = [&reply, &saved, &evaluation, &secret, &request];
    for (error, named) in errors.into_iter().zip(paths) {
        let error = error.unwrap_err();
        assert!(
            matches!(&error, FileError::Io { operation: "write", path, source }
                if path == named && source.kind() == std::io::ErrorKind::StorageFull),
            "{error}"
        );
    }
    for path in [&reply, &saved] {
        assert_eq!(fs::read(path).unwrap(), b"as it was");
    }
    assert_eq!(fs::read_dir(b.folder.path()).unwrap().count(), 2);
}

#[test]
fn lengths_are_those_that_the_plan_declares() {
    let mut b = Bench::new();
    let path = b.path("request");
    let mut declared = |lengths, rows: Vec<u16>| {
        b.plan.lengths = lengths;
        let mut head = b.head();
        head.lengths = rows;
        RequestWriter::create(&path, &b.plan, &b.params, &head).is_ok()
    };
    assert!(declared(Lengths::Public, vec![4, 1]));
    assert!(!declared(Lengths::Public, vec![5, 1]));
    assert!(!declared(Lengths::Public, vec![4, 1, 1]));
    assert!(declared(Lengths::Bucket(2), vec![2, 0]));
    assert!(!declared(Lengths::Bucket(2), vec![3, 0]));
    assert!(declared(Lengths::Private, vec![0, 0]));
    assert!(!declared(Lengths::Private, vec![1, 0]));
    // Texts that share places: no more rows than there are, and none after a missing one.
    b.plan.placement.per_place = 2;
    let mut declared = |rows: Vec<u16>| {
        b.plan.lengths = Lengths::Public;
        let mut head = b.head();
        head.lengths = rows;
        RequestWriter::create(&path, &b.plan, &b.params, &head).is_ok()
    };
    assert!(declared(vec![3, 1, 4, 0]));
    assert!(declared(vec![0, 0, 2, 2]));
    for rows in [vec![3, 2, 0, 0], vec![0, 1, 0, 0], vec![3, 1], vec![3, 1, 0, 0, 1, 0], vec![u16::MAX, 1, 0, 0]] {
        assert!(!declared(rows.clone()), "{rows:?}");
    }
}

#[test]
fn replies() {
    let mut b = Bench::new();
    let path = b.path("reply");
    let head = b.reply_head();
    let list = [b.seeded().expand()];
    write_reply(&path, &b.plan, &b.params, &head, &list).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), exchange::reply_bytes(&b.plan, &b.params));
    let read = |keys| exchange::read_reply(&path, &b.plan, &b.params, keys);
    let (found, cts) = read(&[7; 32]).unwrap();
    assert_eq!(found, head);
    assert!(cts[0].b() == list[0].b() && cts[0].a() == list[0].a());
    assert_eq!(cts[0].noise(), b.plan.reply.noise());
    refuses_all_damage(&path, || read(&[7; 32]).err());
    assert!(matches!(read(&[8; 32]), Err(FileError::Other { what: "key set", .. })));
}

#[test]
fn l7_checkpoints() {
    let mut b = Bench::new();
    let path = b.path("checkpoint");
    let run = Run { plan: [1; 32], keys: [2; 32], request: [3; 32] };
    let read = |run: &Run| checkpoint::read(&path, &b.params, run, 2, 2);
    assert!(read(&run).unwrap().is_none());
    let columns: Vec<Ciphertext> = (0..2).map(|_| b.seeded().expand()).collect();
    let params = b.params.clone();
    checkpoint::write(&path, &params, &run, 1, &columns).unwrap();
    let size = fs::metadata(&path).unwrap().len();
    assert_eq!(size, checkpoint::bytes(&params, 2, 2));
    let read = |run: &Run| checkpoint::read(&path, &params, run, 2, 2);
    let found = read(&run).unwrap().unwrap();
    assert_eq!((found.layer, found.columns.len()), (1, 2));
    for (one, other) in found.columns.iter().zip(&columns) {
        assert!(one.b() == other.b() && one.a() == other.a());
        // The estimate is read back; a bound is never stored.
        let estimated = other.noise().with_norm(f64::INFINITY);
        assert_eq!((one.scale(), one.noise()), (other.scale(), estimated));
    }
    refuses_all_damage(&path, || read(&run).err());
    for (at, name) in ["plan", "key set", "request"].into_iter().enumerate() {
        let mut other = run;
        [&mut other.plan, &mut other.keys, &mut other.request][at][0] ^= 1;
        let error = read(&other).err().unwrap();
        assert!(matches!(error, FileError::Other { what, .. } if what == name), "{error}");
    }
    assert!(checkpoint::read(&path, &params, &run, 3, 2).is_err());
    assert!(checkpoint::read(&path, &params, &run, 2, 0).is_err());
    // L7: what another program has left, or an older one that did not name itself, is not continued.
    let older = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        bytes[4] = 11;
        fs::write(path, bytes).unwrap();
    };
    checkpoint::write(&path, &params, &run, 1, &columns).unwrap();
    assert!(read(&run).unwrap().is_some());
    older(&path);
    assert!(read(&run).unwrap().is_none());
    checkpoint::write_as(&[1; 32], &path, &params, &run, 1, &columns).unwrap();
    assert!(read(&run).unwrap().is_none());
    assert!(checkpoint::write(&path, &params, &run, 1, &[]).is_err());
    // Nothing but the file is left.
    assert_eq!(fs::read_dir(b.folder.path()).unwrap().count(), 1);
}

#[test]
fn what_is_not_committed_was_never_there() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    atomic::write(&path, Access::Private, b"old").unwrap();
    let mut file = AtomicFile::create(&path, Access::Usual).unwrap();
    file.write_all(b"new").unwrap();
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    // Only the first of two gets a name that must be new.
    let new = folder.path().join("new");
    let drafts = [b"a", b"b"].map(|byte| {
        let mut file = AtomicFile::create(&new, Access::Private).unwrap();
        file.write_all(byte).unwrap();
        file
    });
    let other = folder.path().join("newer.0.draft");
    fs::write(&other, b"").unwrap();
    assert_eq!(drafts.map(|file| file.commit_new().unwrap()), [true, false]);
    assert_eq!(fs::read(&new).unwrap(), b"a");
    // Files left by a killed process are removed, and no others.
    fs::write(folder.path().join("new.0.draft"), b"half").unwrap();
    atomic::clear_drafts(&new);
    assert!(other.exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    // A missing folder.
    let nowhere = folder.path().join("no/such/folder/file");
    let error = atomic::write(&nowhere, Access::Usual, b"new").unwrap_err();
    assert!(matches!(error, FileError::Io { operation: "write", .. }));
}
