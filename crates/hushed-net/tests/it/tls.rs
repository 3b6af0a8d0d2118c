//! Who is admitted, who is not, and what both are told.

use crate::common;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::common::{certificate, shake_hands};
use hushed_net::channel::tcp;
use hushed_net::channel::tls::{CertificateError, key_fingerprint, load_or_create_dev_certificate};
use hushed_net::{
    Channel, Expect, Identity, Kind, Limits, NetError, Party, PeerFault, Session, StreamChannel, TlsClient, TlsFault,
    TlsServer, Trust,
};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

const K: Kind = Kind(7);

/// A directory that is removed when its test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hushed-net-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An authority that signs certificates.
struct Authority {
    certificate: CertificateDer<'static>,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new([]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { certificate, issuer: rcgen::Issuer::new(params, key) }
    }

    fn sign(&self, name: &str, from: i32, until: i32) -> Identity {
        self.sign_key(&rcgen::KeyPair::generate().unwrap(), name, from, until)
    }

    fn sign_key(&self, key: &rcgen::KeyPair, name: &str, from: i32, until: i32) -> Identity {
        let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let certificate = params.signed_by(key, &self.issuer).unwrap();
        Identity::new(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into())).unwrap()
    }

    fn trust(&self) -> Trust {
        Trust::Authorities(vec![self.certificate.clone()])
    }
}

fn client_of(trust: Trust) -> TlsClient {
    TlsClient::new(trust, None).unwrap()
}

fn server_of(identity: Identity) -> TlsServer {
    TlsServer::new(identity, None).unwrap()
}

fn refusal(shaken: Result<StreamChannel, NetError>) -> TlsFault {
    match shaken {
        Err(NetError::Tls(fault)) => fault,
        Err(other) => panic!("refused for another reason: {other}"),
        Ok(_) => panic!("not refused"),
    }
}

/// The error of a client with this trust facing a server with this identity; the server must be told too.
fn client_refuses(trust: Trust, identity: Identity, host: &str) -> TlsFault {
    let (client, server) = shake_hands(&client_of(trust), &server_of(identity), host);
    assert!(matches!(refusal(server), TlsFault::Refused { .. }));
    refusal(client)
}

#[test]
fn a_signed_server_is_trusted_by_name_and_by_pin() {
    let authority = Authority::new("one");
    for pinned in [false, true] {
        let identity = authority.sign("localhost", 2020, 4000);
        let pin = identity.fingerprint();
        let key = key_fingerprint(&identity.chain()[0]).unwrap();
        let trust = if pinned { Trust::Pin(pin) } else { authority.trust() };
        let (client, server) = shake_hands(&client_of(trust), &server_of(identity), "localhost");
        let (client, server) = (client.unwrap(), server.unwrap());
        assert_eq!(client.peer_key(), Some(key));
        assert_eq!(server.peer_key(), None);
        // Equal at both ends, different for each label, and specific to the channel.
        let key = client.exporter(b"transcript").unwrap();
        assert_eq!(server.exporter(b"transcript"), Some(key));
        assert_ne!(server.exporter(b"other"), Some(key));
    }
}

#[test]
fn exporters_differ_between_channels() {
    let key = || common::tls().0.exporter(b"transcript").unwrap();
    assert_ne!(key(), key());
}

#[test]
fn a_wrong_pin_is_refused() {
    let mut pin = certificate(2020, 4000).fingerprint();
    assert_eq!(client_refuses(Trust::Pin(pin), certificate(2020, 4000), "localhost"), TlsFault::WrongPin);
    let identity = certificate(2020, 4000);
    pin = identity.fingerprint();
    pin[31] ^= 1;
    assert_eq!(client_refuses(Trust::Pin(pin), identity, "localhost"), TlsFault::WrongPin);
}

/// Someone shows the pinned certificate without having its key: the pin matches, the signature must not.
#[test]
fn a_stolen_certificate_without_its_key_is_refused() {
    let honest = certificate(2020, 4000);
    let key = rcgen::KeyPair::generate().unwrap();
    let thief = Identity::new(honest.chain().to_vec(), PrivateKeyDer::Pkcs8(key.serialize_der().into())).unwrap();
    // Our own server notices that the key is another certificate's, so the thief needs a server without that check.
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let signer = provider.key_provider.load_private_key(PrivateKeyDer::Pkcs8(key.serialize_der().into())).unwrap();
    assert!(TlsServer::new(thief, None).is_err());
    let certified = rustls::sign::CertifiedKey::new(honest.chain().to_vec(), signer);
    let config = rustls::ServerConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(std::sync::Arc::new(rustls::sign::SingleCertAndKey::from(certified)));
    let (near, mut far) = common::sockets();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut connection = rustls::ServerConnection::new(config.into()).unwrap();
            while connection.is_handshaking() && connection.complete_io(&mut far).is_ok() {}
        });
        let client = client_of(Trust::Pin(honest.fingerprint()));
        let fault = refusal(client.connect(near, "localhost", Limits::before_authentication()));
        assert_eq!(fault, TlsFault::BadCertificate { reason: rustls::CertificateError::BadSignature });
    });
}

#[test]
fn a_wrong_authority_or_name_is_refused() {
    let (one, two) = (Authority::new("one"), Authority::new("two"));
    let identity = || one.sign("localhost", 2020, 4000);
    assert_eq!(client_refuses(two.trust(), identity(), "localhost"), TlsFault::UnknownIssuer);
    assert_eq!(client_refuses(one.trust(), identity(), "example.org"), TlsFault::WrongName);
    assert_eq!(client_refuses(one.trust(), identity(), "127.0.0.1"), TlsFault::WrongName);
}

#[test]
fn dates_are_checked_however_the_server_is_trusted() {
    let authority = Authority::new("one");
    for (from, until, fault) in [(2019, 2020, TlsFault::Expired), (3000, 3001, TlsFault::NotYetValid)] {
        let signed = authority.sign("localhost", from, until);
        let pin = Trust::Pin(signed.fingerprint());
        assert_eq!(client_refuses(authority.trust(), signed, "localhost"), fault);
        let signed = authority.sign("localhost", from, until);
        drop(pin);
        let pin = Trust::Pin(signed.fingerprint());
        assert_eq!(client_refuses(pin, signed, "localhost"), fault);
        let alone = certificate(from, until);
        let pin = Trust::Pin(alone.fingerprint());
        assert_eq!(client_refuses(pin, alone, "localhost"), fault);
    }
}

/// The same certificate with s replaced by n - s in its ECDSA signature (P-256), which is as valid.
fn with_the_other_signature(certificate: &CertificateDer<'_>) -> CertificateDer<'static> {
    const N: [u8; 32] = [
        255, 255, 255, 255, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 188, 230, 250, 173, 167, 23, 158, 132,
        243, 185, 202, 194, 252, 99, 37, 81,
    ];
    let der = certificate.to_vec();
    // The signature ends the certificate: BIT STRING { SEQUENCE { INTEGER r, INTEGER s } }, all of it shorter than 128
    // bytes.
    let bits = (70..=76)
        .map(|length| der.len() - length)
        .find(|&at| der[at] == 3 && usize::from(der[at + 1]) == der.len() - at - 2);
    let bits = bits.unwrap();
    let (r, s) = (bits + 5, bits + 7 + usize::from(der[bits + 6]));
    let mut other = N;
    let mut borrow = 0;
    let unsigned = &der[s + 2..];
    for i in 0..32 {
        let byte = unsigned.len().checked_sub(i + 1).map_or(0, |at| unsigned[at]);
        let digit = i32::from(N[31 - i]) - i32::from(byte) - borrow;
        borrow = i32::from(digit < 0);
        other[31 - i] = u8::try_from(digit & 255).unwrap();
    }
    let mut integer: Vec<u8> = other.into_iter().skip_while(|&byte| byte == 0).collect();
    if integer[0] & 128 != 0 {
        integer.insert(0, 0);
    }
    let tlv = |tag: u8, content: &[u8]| {
        let length = u8::try_from(content.len()).unwrap();
        [&[tag, length], content].concat()
    };
    let pair = [&der[r..s], &tlv(2, &integer)].concat();
    let signature = tlv(3, &[&[0], tlv(0x30, &pair).as_slice()].concat());
    // SEQUENCE { to be signed, algorithm, signature }; its length takes two bytes.
    assert_eq!(der[..2], [0x30, 0x82]);
    let content = [&der[4..bits], &signature].concat();
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[0x30, 0x82], length.as_slice(), &content].concat().into()
}

#[test]
fn m3_a_client_is_its_key_however_its_certificate_is_written() {
    let authority = Authority::new("ours");
    let keys = [(); 2].map(|()| rcgen::KeyPair::generate().unwrap());
    let shown = |identity: Identity| {
        let server = authority.sign("localhost", 2020, 4000);
        let client = TlsClient::new(Trust::Pin(server.fingerprint()), Some(identity)).unwrap();
        let server = TlsServer::new(server, Some(vec![authority.certificate.clone()])).unwrap();
        let (client, server) = shake_hands(&client, &server, "localhost");
        let key = server.unwrap().peer_key().unwrap();
        drop(client);
        key
    };
    let first = authority.sign_key(&keys[0], "client", 2020, 4000);
    let der = first.chain()[0].clone();
    let bent = with_the_other_signature(&der);
    assert_ne!(bent, der);
    let key = PrivateKeyDer::Pkcs8(keys[0].serialize_der().into());
    let bent = Identity::new(vec![bent], key).unwrap();
    let renewed = authority.sign_key(&keys[0], "client", 2021, 4001);
    let other = authority.sign_key(&keys[1], "client", 2020, 4000);
    let client = shown(first);
    assert_eq!(shown(bent), client);
    assert_eq!(shown(renewed), client);
    assert_ne!(shown(other), client);
}

#[test]
fn clients_without_the_right_certificate_are_refused() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let attempt = |identity: Option<Identity>| {
        let server = ours.sign("localhost", 2020, 4000);
        let client = TlsClient::new(Trust::Pin(server.fingerprint()), identity).unwrap();
        let server = TlsServer::new(server, Some(vec![ours.certificate.clone()])).unwrap();
        shake_hands(&client, &server, "localhost")
    };

    let good = ours.sign("client", 2020, 4000);
    let key = key_fingerprint(&good.chain()[0]).unwrap();
    let (client, server) = attempt(Some(good));
    assert_eq!(server.unwrap().peer_key(), Some(key));
    drop(client);

    for (identity, fault) in [
        (None, TlsFault::NoCertificate),
        (Some(theirs.sign("client", 2020, 4000)), TlsFault::UnknownIssuer),
        (Some(ours.sign("client", 2019, 2020)), TlsFault::Expired),
    ] {
        let (client, server) = attempt(identity);
        assert_eq!(refusal(server), fault);
        // In TLS 1.3 the client finishes before the server has judged it, so it learns at its first step.
        let mut client = Session::new(Party::Client, Box::new(client.unwrap()));
        let told = client.recv(K, Expect::AtMost(1));
        assert!(matches!(told, Err(NetError::Tls(TlsFault::Refused { .. }))), "{told:?}");
    }
}

#[test]
fn what_is_not_tls_is_refused() {
    // Our own plain frames sent to a TLS server.
    let (near, far) = common::sockets();
    let server = server_of(certificate(2020, 4000));
    thread::scope(|scope| {
        let accepted = scope.spawn(|| server.accept(far, Limits::before_authentication()));
        let mut plain = Session::new(Party::Client, Box::new(tcp::channel(near, Limits::session()).unwrap()));
        plain.send(K, b"in the clear").unwrap();
        // The response is a TLS alert, which is not a frame.
        let told = plain.recv(K, Expect::AtMost(9));
        let gone = Err(NetError::PeerGone);
        assert!(told == gone || told == Err(NetError::PeerMisbehaved(PeerFault::BadMagic)), "{told:?}");
        assert_eq!(refusal(accepted.join().unwrap()), TlsFault::NotTls);
    });

    // A plain server facing a TLS client.
    let (near, mut far) = common::sockets();
    far.write_all(b"220 mail.example.org ESMTP ready\r\n").unwrap();
    let client = client_of(Trust::Pin([0; 32]));
    assert_eq!(refusal(client.connect(near, "localhost", Limits::before_authentication())), TlsFault::NotTls);
}

#[test]
fn a_handshake_that_stalls_times_out_and_one_that_ends_is_gone() {
    let server = server_of(certificate(2020, 4000));
    let limits = Limits { silence: Duration::from_millis(200), ..Limits::before_authentication() };
    let (near, far) = common::sockets();
    assert_eq!(server.accept(far, limits).err(), Some(NetError::Timeout { seconds: 1 }));
    drop(near);
    let (near, far) = common::sockets();
    drop(near);
    assert_eq!(server.accept(far, limits).err(), Some(NetError::PeerGone));
    // A peer that trickles does not stretch the limit: a record header, then one byte at a time.
    let (mut near, far) = common::sockets();
    thread::scope(|scope| {
        scope.spawn(move || {
            let _ = near.write_all(&[22, 3, 1, 1, 0, 1, 0, 0, 0xfc, 3, 3]);
            while near.write_all(&[7]).is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        assert_eq!(server.accept(far, limits).err(), Some(NetError::Timeout { seconds: 1 }));
    });
}

/// A TLS peer with the stock settings of rustls and only classical key exchange must not be admitted.
#[test]
fn a_peer_without_the_hybrid_exchange_is_refused() {
    let server = server_of(certificate(2020, 4000));
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.kx_groups = vec![rustls::crypto::aws_lc_rs::kx_group::X25519];
    let config = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let (mut near, far) = common::sockets();
    thread::scope(|scope| {
        scope.spawn(move || {
            let name = "localhost".try_into().unwrap();
            let mut connection = rustls::ClientConnection::new(config.into(), name).unwrap();
            while connection.is_handshaking() && connection.complete_io(&mut near).is_ok() {}
        });
        let refused = refusal(server.accept(far, Limits::before_authentication()));
        assert_eq!(refused, TlsFault::Incompatible);
    });
}

/// A connection cut without close_notify, or altered on the way, is never a clean end.
#[test]
fn records_that_are_cut_or_altered_are_noticed() {
    for alter in [false, true] {
        let identity = certificate(2020, 4000);
        let client = client_of(Trust::Pin(identity.fingerprint()));
        let server = server_of(identity);
        let (near, mut relay_near) = common::sockets();
        let (mut relay_far, far) = common::sockets();
        thread::scope(|scope| {
            let accepted = scope.spawn(|| server.accept(far, Limits::before_authentication()));
            let mut back = (relay_far.try_clone().unwrap(), relay_near.try_clone().unwrap());
            scope.spawn(move || std::io::copy(&mut back.0, &mut back.1));
            let relay = scope.spawn(move || {
                // The client's handshake passes; the end of its first long record is altered or lost.
                let mut passed = 0;
                let mut piece = vec![0; 1 << 14];
                loop {
                    let got = relay_near.read(&mut piece).unwrap();
                    passed += got;
                    if passed > 8000 {
                        if alter {
                            piece[got - 1] ^= 1;
                            relay_far.write_all(&piece[..got]).unwrap();
                        }
                        let _ = relay_far.shutdown(std::net::Shutdown::Both);
                        let _ = relay_near.shutdown(std::net::Shutdown::Both);
                        return;
                    }
                    relay_far.write_all(&piece[..got]).unwrap();
                }
            });
            let connected = client.connect(near, "localhost", Limits::before_authentication()).unwrap();
            let mut server = Session::new(Party::Server, Box::new(accepted.join().unwrap().unwrap()));
            let mut client = Session::new(Party::Client, Box::new(connected));
            client.send(K, &[1; 10_000]).unwrap();
            let told = server.recv(K, Expect::Exactly(10_000));
            assert!(matches!(told, Err(NetError::PeerGone | NetError::Tls(_))), "{told:?}");
            relay.join().unwrap();
        });
    }
}

#[test]
fn the_development_certificate_is_made_once_and_works_both_ways() {
    let scratch = Scratch::new("dev");
    let dir = scratch.0.join("made/on/the/way");
    // Several servers start at once.
    let prints: Vec<[u8; 32]> = thread::scope(|scope| {
        let starts: Vec<_> =
            (0..4).map(|_| scope.spawn(|| load_or_create_dev_certificate(&dir).unwrap().fingerprint())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    let identity = load_or_create_dev_certificate(&dir).unwrap();
    assert_eq!(prints, [identity.fingerprint(); 4]);
    let mode = fs::metadata(dir.join("dev-identity.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let public = dir.join("dev-certificate.pem");
    assert!(!fs::read_to_string(&public).unwrap().contains("PRIVATE"));
    let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["dev-certificate.pem", "dev-identity.pem"]);

    let hex: String = identity.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect();
    let server = server_of(identity);
    for (trust, host) in [
        (Trust::from_pin(&hex).unwrap(), "anything.example"),
        (Trust::from_ca_file(&public).unwrap(), "localhost"),
        (Trust::from_ca_file(&public).unwrap(), "127.0.0.1"),
        (Trust::from_ca_file(&public).unwrap(), "::1"),
    ] {
        let (client, server) = shake_hands(&client_of(trust), &server, host);
        client.unwrap();
        server.unwrap();
    }
}

#[test]
fn certificates_that_cannot_be_read_say_why() {
    let scratch = Scratch::new("bad");
    let absent = scratch.0.join("absent.pem");
    let file_error = Trust::from_ca_file(&absent).err();
    assert_eq!(
        file_error,
        Some(CertificateError::File { operation: "read", path: absent, kind: std::io::ErrorKind::NotFound })
    );
    let path = scratch.0.join("dev-identity.pem");
    for content in ["", "not PEM", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n"] {
        fs::write(&path, content).unwrap();
        assert_eq!(
            Trust::from_ca_file(&path).err(),
            Some(CertificateError::Missing { what: "certificate", path: path.clone() })
        );
        // A broken identity is not silently replaced, as clients have pinned it.
        assert!(load_or_create_dev_certificate(&scratch.0).is_err());
    }
    // PEM around bytes that are not a certificate.
    fs::write(&path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let trust = Trust::from_ca_file(&path).unwrap();
    assert!(matches!(TlsClient::new(trust, None).err(), Some(NetError::Tls(_))));
    // A directory that cannot be created, because a file is in the way.
    assert!(matches!(load_or_create_dev_certificate(&path.join("under")).err(), Some(CertificateError::File { .. })));
    for pin in ["", "00", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"é".repeat(64)] {
        assert_eq!(Trust::from_pin(pin).err(), Some(CertificateError::BadPin), "{pin}");
    }
    let colons = vec!["aB"; 32].join(":");
    for pin in [colons.clone(), format!(" {colons}\n"), format!("sha256 Fingerprint={colons}")] {
        assert!(matches!(Trust::from_pin(&pin), Ok(Trust::Pin(pin)) if pin == [0xab; 32]), "{pin}");
    }
    let key = scratch.0.join("encrypted.key");
    fs::write(&key, "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n").unwrap();
    assert_eq!(Identity::from_files(&path, &key).err(), Some(CertificateError::Encrypted { path: key }));
}

/// With a byte order mark the first line of a PEM file would not be known, and a chain would lose its certificate.
#[test]
fn pem_files_may_begin_with_a_byte_order_mark() {
    let scratch = Scratch::new("mark");
    let plain = load_or_create_dev_certificate(&scratch.0).unwrap();
    let file = scratch.0.join("dev-identity.pem");
    let marked = [b"\xef\xbb\xbf", fs::read(&file).unwrap().as_slice()].concat();
    fs::write(&file, marked).unwrap();
    let read = Identity::from_files(&file, &file).unwrap();
    assert_eq!((read.fingerprint(), read.chain().len()), (plain.fingerprint(), 1));
    let key = scratch.0.join("key.pem");
    let pem = fs::read_to_string(&file).unwrap();
    let at = pem.find("-----BEGIN PRIVATE").unwrap();
    fs::write(&key, format!("\u{feff}{}", &pem[at..])).unwrap();
    assert!(Identity::from_files(&file, &key).unwrap().check().is_ok());
    assert!(Trust::from_ca_file(&file).is_ok());
}

/// What a server finds out before its first client does.
#[test]
fn a_certificate_is_checked_as_clients_check_it() {
    let made = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Identity::new(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap()).unwrap()
    };
    let years = |from, until| {
        move |params: &mut CertificateParams| {
            params.not_before = rcgen::date_time_ymd(from, 1, 1);
            params.not_after = rcgen::date_time_ymd(until, 1, 1);
        }
    };
    let good = made(&years(2020, 4000)).check().unwrap();
    assert!(good.names && good.days_left() > 700_000);
    assert_eq!(good.until, 64_060_588_800);
    assert!(!made(&|params| params.subject_alt_names.clear()).check().unwrap().names);
    assert_eq!(made(&years(1990, 1991)).check(), Err(TlsFault::Expired));
    assert_eq!(made(&years(3000, 3001)).check(), Err(TlsFault::NotYetValid));
    let authority = made(&|params| params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained));
    let fault = authority.check().unwrap_err();
    assert_eq!(fault, TlsFault::Authority);
    assert!(fault.to_string().contains("CA:FALSE"));
    let other = PrivateKeyDer::try_from(KeyPair::generate().unwrap().serialize_der()).unwrap();
    let mixed = Identity::new(authority.chain().to_vec(), other).unwrap();
    assert_eq!(mixed.check(), Err(TlsFault::OtherKey));
}
