//! Certificates and keys on disk, and the development certificate that a server creates on first use.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::UNIX_EPOCH;

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use sha2::{Digest, Sha256};

use super::fault::TlsFault;

/// Certificate and key of the development identity, readable only by the owner.
pub const DEV_IDENTITY: &str = "dev-identity.pem";
/// The identity's certificate, for `--ca`.
const DEV_CERTIFICATE: &str = "dev-certificate.pem";
/// Years until a development certificate has to be deleted and created again.
const DEV_YEARS: i32 = 5;

/// Why a certificate or a key cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The system refused access to the file.
    #[error("could not {operation} {path:?}: {kind}")]
    File {
        /// What was attempted.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's answer.
        kind: io::ErrorKind,
    },
    /// The file is not PEM, or lacks the expected content.
    #[error("{path:?} holds no {what} in PEM form")]
    Missing {
        /// What is missing.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// A private key that needs a password.
    #[error(
        "the private key in {path:?} is encrypted: `openssl pkey -in FILE -out FILE` takes its password off; keep the new \
         file private"
    )]
    Encrypted {
        /// The file.
        path: PathBuf,
    },
    /// A certificate that clients would refuse.
    #[error("the certificate in {path:?} cannot be used, as every client would refuse it: {fault}")]
    Refused {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        fault: TlsFault,
    },
    /// The text is not a SHA-256.
    #[error("a pin has 64 hexadecimal digits, as the server prints it")]
    BadPin,
    /// The development certificate could not be made.
    #[error("could not make a development certificate: {reason}")]
    Generation {
        /// The reason as `rcgen` states it.
        reason: rcgen::Error,
    },
}

/// A certificate chain with the key of its first certificate.
pub struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    fingerprint: [u8; 32],
}

impl Identity {
    /// Reads a chain and a key, which may be in the same file.
    ///
    /// # Errors
    /// [`CertificateError`] with the file.
    pub fn from_files(chain: &Path, key: &Path) -> Result<Self, CertificateError> {
        let certificates = read_authorities(chain)?;
        let bytes = read(key)?;
        let private = PrivateKeyDer::from_pem_slice(without_mark(&bytes)).map_err(|e| match is_encrypted(&bytes) {
            true => CertificateError::Encrypted { path: key.to_owned() },
            false => pem_error(e, "private key", key),
        })?;
        Self::new(certificates, private)
            .ok_or_else(|| CertificateError::Missing { what: "certificate", path: chain.to_owned() })
    }

    /// An identity from parts; `None` without a certificate.
    #[must_use]
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Option<Self> {
        let fingerprint = fingerprint(chain.first()?);
        Some(Self { chain, key, fingerprint })
    }

    /// SHA-256 of the certificate, which clients pin.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// The certificate chain.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The certificate chain and the key.
    #[must_use]
    pub fn into_parts(self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (self.chain, self.key)
    }
}

/// How a client verifies its server.
#[derive(Clone)]
pub enum Trust {
    /// The certificate must chain to one of these authorities, name the server, and be within its dates.
    Authorities(Vec<CertificateDer<'static>>),
    /// The certificate must have this SHA-256 and be within its dates.
    Pin([u8; 32]),
    /// The same with one of these, while a server's certificate changes.
    Pins(Vec<[u8; 32]>),
}

impl Trust {
    /// Trusts the authorities (or the single certificates) in a PEM file.
    ///
    /// # Errors
    /// [`CertificateError`] with the file.
    pub fn from_ca_file(path: &Path) -> Result<Self, CertificateError> {
        read_authorities(path).map(Self::Authorities)
    }

    /// Trusts the one certificate with this SHA-256, in hexadecimal; colons between digits are allowed, as is the line
    /// that `openssl x509 -fingerprint -sha256` prints.
    ///
    /// # Errors
    /// [`CertificateError::BadPin`].
    pub fn from_pin(text: &str) -> Result<Self, CertificateError> {
        read_pin(text).map(Self::Pin)
    }

    /// Trusts the certificates with these SHA-256, each as for [`Trust::from_pin`].
    ///
    /// # Errors
    /// [`CertificateError::BadPin`].
    pub fn from_pins<S: AsRef<str>>(texts: &[S]) -> Result<Self, CertificateError> {
        texts.iter().map(|text| read_pin(text.as_ref())).collect::<Result<_, _>>().map(Self::Pins)
    }
}

fn read_pin(text: &str) -> Result<[u8; 32], CertificateError> {
    let mut pin = [0; 32];
    let text = text.trim();
    let digits = match text.split_once('=') {
        Some((name, digits)) if name.eq_ignore_ascii_case("sha256 fingerprint") => digits,
        _ => text,
    };
    let mut digits = digits.chars().filter(|c| *c != ':').map(|c| c.to_digit(16));
    let mut digit = || digits.next().flatten().ok_or(CertificateError::BadPin);
    for byte in &mut pin {
        let value = digit()? * 16 + digit()?;
        *byte = u8::try_from(value).map_err(|_| CertificateError::BadPin)?;
    }
    if digits.next().is_some() {
        return Err(CertificateError::BadPin);
    }
    Ok(pin)
}

/// SHA-256 of a certificate's DER bytes.
#[must_use]
pub fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    Sha256::digest(certificate).into()
}

/// SHA-256 of a certificate's public key (SubjectPublicKeyInfo), which names its holder. The certificate itself does
/// not: anyone can negate the s of an ECDSA signature, and it stays valid with other bytes.
///
/// # Errors
/// What `rustls` says of bytes that are no certificate.
pub fn key_fingerprint(certificate: &CertificateDer<'_>) -> Result<[u8; 32], rustls::Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    Ok(Sha256::digest(parsed.subject_public_key_info()).into())
}

/// Reads the certificates in a PEM file, at least one.
///
/// # Errors
/// [`CertificateError`] with the file.
pub fn read_authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let bytes = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(without_mark(&bytes)).collect();
    let all = all.map_err(|e| pem_error(e, "certificate", path))?;
    if all.is_empty() {
        return Err(CertificateError::Missing { what: "certificate", path: path.to_owned() });
    }
    Ok(all)
}

/// The bytes of a PEM file.
fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(path).map_err(|e| file_error("read", path, &e))
}

/// Whether there is an encrypted private key, of PKCS #8 or of OpenSSL's older form.
fn is_encrypted(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}

/// Without the byte order mark that some editors put before a text: the first line of a PEM file is known by its start.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes)
}

/// The development identity kept in `dir`, created there on first use.
///
/// It is self-signed for `localhost`, 127.0.0.1 and ::1; clients pin it, or pass `dev-certificate.pem` as `--ca`. Two
/// servers that start at the same time end up with the same one.
///
/// # Errors
/// [`CertificateError`], for instance on a full or read-only disk; no partial file is left behind.
pub fn load_or_create_dev_certificate(dir: &Path) -> Result<Identity, CertificateError> {
    let identity = dir.join(DEV_IDENTITY);
    if !identity.try_exists().map_err(|e| file_error("read", &identity, &e))? {
        create(dir, &identity)?;
    }
    let loaded = Identity::from_files(&identity, &identity)?;
    let public = dir.join(DEV_CERTIFICATE);
    if !public.try_exists().map_err(|e| file_error("read", &public, &e))? {
        let text = fs::read_to_string(&identity).map_err(|e| file_error("read", &identity, &e))?;
        // The certificate comes first, see `create`.
        let end = text.find("-----BEGIN PRIVATE KEY").unwrap_or(0);
        publish(&public, text.get(..end).unwrap_or_default(), 0o644)?;
    }
    Ok(loaded)
}

fn create(dir: &Path, identity: &Path) -> Result<(), CertificateError> {
    let generation = |reason| CertificateError::Generation { reason };
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut params = CertificateParams::new(names).map_err(generation)?;
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, "Hushed development server");
    params.distinguished_name = name;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let (from, until) = validity();
    params.not_before = from;
    params.not_after = until;
    let key = KeyPair::generate().map_err(generation)?;
    let certificate = params.self_signed(&key).map_err(generation)?;
    fs::create_dir_all(dir).map_err(|e| file_error("create", dir, &e))?;
    publish(identity, &(certificate.pem() + &key.serialize_pem()), 0o600)
}

/// From the start of this year to that of a later one: no finer clock is needed.
fn validity() -> (time::OffsetDateTime, time::OffsetDateTime) {
    let year = time::OffsetDateTime::now_utc().year();
    (rcgen::date_time_ymd(year, 1, 1), rcgen::date_time_ymd(year + DEV_YEARS, 1, 1))
}

/// Writes a file that is either complete or absent, and never replaces one that another process created first.
fn publish(path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    // Unique among threads and processes; leftovers of a crash are never opened again (`create_new`).
    static DRAFTS: AtomicU32 = AtomicU32::new(0);
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let nanos = UNIX_EPOCH.elapsed().map_or(0, |since| since.subsec_nanos());
    let draft = path.with_extension(format!("{}-{number}-{nanos}.tmp", std::process::id()));
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft);
    publish_by(path, text, &draft, opened)
}

/// [`publish`] through this draft, which is removed afterwards.
fn publish_by(path: &Path, text: &str, draft: &Path, opened: io::Result<File>) -> Result<(), CertificateError> {
    let written = opened.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        match fs::hard_link(draft, path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => Ok(()),
        }
    });
    let removed = fs::remove_file(draft);
    written.and(removed).map_err(|e| file_error("write", path, &e))
}

fn file_error(operation: &'static str, path: &Path, error: &io::Error) -> CertificateError {
    CertificateError::File { operation, path: path.to_owned(), kind: error.kind() }
}

fn pem_error(error: rustls::pki_types::pem::Error, what: &'static str, path: &Path) -> CertificateError {
    match error {
        rustls::pki_types::pem::Error::Io(e) => file_error("read", path, &e),
        _ => CertificateError::Missing { what, path: path.to_owned() },
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_makes_no_identity() {
        let name = format!("hushed-net-{}-full-disk", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let (path, draft) = (folder.join(DEV_IDENTITY), folder.join("draft"));
        for before in [None, Some("made by another process")] {
            if let Some(before) = before {
                fs::write(&path, before).unwrap();
            }
            fs::write(&draft, "").unwrap();
            let full = OpenOptions::new().write(true).open("/dev/full");
            let error = publish_by(&path, "an identity", &draft, full).unwrap_err();
            let expected = file_error("write", &path, &io::ErrorKind::StorageFull.into());
            assert_eq!(error, expected);
            assert_eq!(fs::read_to_string(&path).ok().as_deref(), before);
            assert!(!draft.exists());
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
