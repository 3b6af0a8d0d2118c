//! Every mismatch between client and server ends in its own error and leaves the server serving.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::private::write_private;
use crate::common::{Running, assert_serves, eventually, get, refused};
use hushed_net::{NetError, TlsFault};
use hushed_serve::{
    BundlePin, Category, Client, ClientAccess, ClientLimits, Digest, Options, Refusal, ServeError, Server,
    ServerConfig, ServerIdentity, ServerTrust, Token, TooLong,
};

const SECRET: &[u8] = b"a-token-of-some-length";

#[test]
fn certificates() {
    let server = Running::start(|_| ());
    let mut config = server.client();
    config.trust = ServerTrust::Pin("00".repeat(32));
    let error = refused(&config);
    assert!(matches!(error, ServeError::Net(NetError::Tls(TlsFault::WrongPin))));
    assert_eq!(error.category(), Category::Network);

    config.trust = ServerTrust::Pin("no pin".to_owned());
    assert_eq!(refused(&config).category(), Category::Usage);

    // The certificate as its own authority, and the address that it names.
    let file = server.folder.path().join("certificates/dev-certificate.pem");
    config.trust = ServerTrust::CaFile(file);
    hushed_serve::Client::connect(&config).unwrap().close().unwrap();
    config.trust = ServerTrust::CaFile(PathBuf::from("/nonexistent.pem"));
    assert_eq!(refused(&config).category(), Category::Local);
    assert_serves(&server);
}

#[test]
fn a_server_does_not_start_with_a_certificate_that_every_client_refuses() {
    let files = tempfile::tempdir().unwrap();
    let (chain, key) = identity(files.path(), "server", (1990, 1991), None);
    let model = files.path().join("model");
    hushed_model::testing::tiny_folder(&model).unwrap();
    let mut config = ServerConfig::local(model, files.path().join("certificates"));
    config.entrance.identity = ServerIdentity::Files { chain, key };
    let error = Server::bind(&config).err().unwrap();
    assert_eq!((error.name(), error.category()), ("certificate", Category::Local));
    assert!(error.to_string().contains("expired"), "{error}");
}

/// New files hold for the connections that follow; files that cannot be used leave everything as it was.
#[test]
fn tokens_and_certificates_are_read_again() {
    let files = tempfile::tempdir().unwrap();
    let list = files.path().join("tokens");
    let write = |text: &str| write_private(&list, text);
    write("the-token-of-ann\n");
    let (chain, key) = identity(files.path(), "server", (2020, 4000), None);
    let reload = Arc::new(AtomicBool::new(false));
    let server = Running::start(|c| {
        c.entrance.access = ClientAccess::Tokens(list.clone());
        c.entrance.identity = ServerIdentity::Files { chain: chain.clone(), key: key.clone() };
        c.entrance.reload = Arc::clone(&reload);
    });
    let again = || {
        reload.store(true, Ordering::SeqCst);
        eventually("it was read", || !reload.load(Ordering::SeqCst));
    };
    let with = |token: &str, trust: &ServerTrust| {
        let mut config = server.client();
        config.token = Token::from_bytes(token.as_bytes());
        config.trust = trust.clone();
        Client::connect(&config)
    };
    let old = ServerTrust::Pin(server.pin.clone());
    let mut running = with("the-token-of-ann", &old).unwrap();
    for bad in ["", "short\n"] {
        write(bad);
        again();
        with("the-token-of-ann", &old).unwrap().close().unwrap();
    }
    write("the-token-of-bob\n");
    let (new_chain, new_key) = identity(files.path(), "new", (2020, 4000), None);
    fs::copy(new_chain, &chain).unwrap();
    fs::copy(new_key, &key).unwrap();
    again();
    let pin = hushed_net::Identity::from_files(&chain, &key).unwrap().fingerprint();
    let new = ServerTrust::Pin(Digest(pin).to_string());
    // The flag is lowered before the files are read.
    eventually("the new certificate", || with("the-token-of-bob", &new).is_ok());
    assert!(matches!(with("the-token-of-ann", &new).err(), Some(ServeError::Refused(Refusal::BadToken))));
    assert!(matches!(with("the-token-of-bob", &old).err(), Some(ServeError::Net(NetError::Tls(TlsFault::WrongPin)))));
    // Either is accepted meanwhile, and who is in stays in.
    let both = ServerTrust::Pins(vec![server.pin.clone(), Digest(pin).to_string()]);
    with("the-token-of-bob", &both).unwrap().close().unwrap();
    assert_eq!(running.embed(&["hello"], TooLong::Refuse, None).unwrap().len(), 1);
    running.close().unwrap();
}

#[test]
fn tokens() {
    let files = tempfile::tempdir().unwrap();
    let list = files.path().join("tokens");
    let hashed = Token::from_bytes(b"another-token-of-some-length").unwrap();
    let text = format!("# two clients\n{}\n\nsha256:{}\n", String::from_utf8_lossy(SECRET), hashed.digest());
    write_private(&list, text);
    let server = Running::start(|c| c.entrance.access = ClientAccess::Tokens(list));
    let mut config = server.client();
    let refusal = |config: &_| match refused(config) {
        ServeError::Refused(refusal) => refusal,
        other => panic!("{other}"),
    };
    assert_eq!(refusal(&config), Refusal::NoToken);
    config.token = Token::from_bytes(b"a-token-of-some-lengtH");
    assert_eq!(refusal(&config), Refusal::BadToken);
    assert_eq!(refused(&config).category(), Category::Refused);
    for good in [Token::from_bytes(SECRET), Some(hashed)] {
        config.token = good;
        hushed_serve::Client::connect(&config).unwrap().close().unwrap();
    }
}

#[test]
fn client_certificates() {
    let files = tempfile::tempdir().unwrap();
    let authority = authority();
    let ca = files.path().join("ca.pem");
    fs::write(&ca, authority.pem()).unwrap();
    let server = Running::start(|c| c.entrance.access = ClientAccess::Certificates(ca));
    let mut config = server.client();
    let error = refused(&config);
    assert_eq!(error.category(), Category::Refused, "{error}");
    let stranger = identity(files.path(), "stranger", (2020, 4000), None);
    config.identity = Some(stranger);
    assert_eq!(refused(&config).category(), Category::Refused);
    let known = identity(files.path(), "known", (2020, 4000), Some(&authority));
    config.identity = Some(known);
    hushed_serve::Client::connect(&config).unwrap().close().unwrap();
}

#[test]
fn another_bundle() {
    let server = Running::start(|_| ());
    let mut config = server.client();
    let pinned = Digest([7; 32]);
    config.bundle = Some(BundlePin::Hash(pinned));
    match refused(&config) {
        ServeError::OtherBundle { pinned: p, offered } => {
            assert_eq!(p, pinned);
            assert_eq!(offered, server.connect().unwrap().bundle_hash());
        }
        other => panic!("{other}"),
    }
    assert_eq!(refused(&config).category(), Category::Mismatch);
}

#[test]
fn texts_are_looked_at_before_anything_is_sent() {
    let server = Running::start(|c| {
        c.max_tokens = Some(8);
        c.max_texts = 3;
    });
    let mut client = server.connect().unwrap();
    assert_eq!((client.max_tokens(), client.texts_left()), (8, 3));
    let sent = client.stats().frames_sent;
    let mut fail = |texts: &[&str]| client.embed(texts, TooLong::Refuse, None).err().unwrap();
    let long = "a ".repeat(20);
    let longest = "a ".repeat(100);
    let error = fail(&["a", &long]);
    assert!(matches!(error, ServeError::TextAboveLimit { index: 1, tokens: 22, limit: 8 }));
    assert_eq!(error.category(), Category::Refused);
    for text in [longest.as_str(), "", "\u{200b}\n", "   "] {
        let error = fail(&["a", text]);
        assert!(matches!(error, ServeError::Text { index: 1, .. }), "{error}");
        assert_eq!(error.category(), Category::Input);
    }
    assert!(matches!(fail(&["a"; 4]), ServeError::TooManyTexts { texts: 4, limit: 3 }));
    assert_eq!(client.stats().frames_sent, sent);
    // Cut to what this server accepts.
    let answers = client.embed(&[&longest], TooLong::Cut, None).unwrap();
    assert_eq!(answers[0].tokens, 8);
    assert_eq!(client.texts_left(), 2);
    assert!(client.embed::<&str>(&[], TooLong::Refuse, None).unwrap().is_empty());
    client.close().unwrap();
}

#[test]
fn one_session_at_a_time() {
    let server = Running::start(|c| c.entrance.max_sessions = 1);
    let first = server.connect().unwrap();
    match refused(&server.client()) {
        ServeError::Refused(Refusal::TooManySessions { limit: 1 }) => {}
        other => panic!("{other}"),
    }
    first.close().unwrap();
    eventually("the place is free again", || server.connect().is_ok());
}

#[test]
fn f8_what_a_client_has_had_counts_over_sessions_and_restarts() {
    let state = tempfile::tempdir().unwrap();
    let (tokens, file) = (state.path().join("tokens"), state.path().join("a/texts.json"));
    write_private(&tokens, "the-token-of-ann\nthe-token-of-bob\n");
    let start = || {
        Running::start(|c| {
            c.entrance.access = ClientAccess::Tokens(tokens.clone());
            c.entrance.metrics_listen = Some("127.0.0.1:0".to_owned());
            let rate = "4/WEEK";
            let file = file.clone();
            c.entrance.per_client = Some(texts(rate, file));
        })
    };
    let embed = |server: &Running, token: &str, texts: &[&str], batch: usize| {
        let mut config = server.client();
        config.token = Token::from_bytes(token.as_bytes());
        let mut client = Client::connect(&config)?;
        let options = Options { batch, ..Options::default() };
        let answers = client.embed(texts, options, None)?;
        client.close().map(|_| answers.len())
    };
    let (ann, bob) = ("the-token-of-ann", "the-token-of-bob");
    let refused = |result: Result<usize, ServeError>| match result {
        Err(ServeError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let later = |refusal| match refusal {
        // After a week and at most a twenty-fourth of one more.
        Refusal::Allowance { seconds } => (604_000..=630_000).contains(&seconds),
        _ => false,
    };
    let server = start();
    assert_eq!(embed(&server, ann, &["a", "b", "c"], 1).unwrap(), 3);
    // A pass runs as a whole or not at all.
    assert!(later(refused(embed(&server, ann, &["a", "b"], 2))));
    assert_eq!(embed(&server, ann, &["a"], 1).unwrap(), 1);
    assert!(later(refused(embed(&server, ann, &["a"], 1))));
    let above = refused(embed(&server, bob, &["a", "b", "c", "d", "e"], 5));
    assert_eq!(above, Refusal::AboveAllowance { limit: 4 });
    // What is left of ann's; bob has had nothing.
    let metrics = get(server.metrics.unwrap(), "GET /metrics HTTP/1.1\r\n\r\n");
    let left: Vec<&str> = metrics.lines().filter(|line| line.starts_with("hushed_client_texts_left{")).collect();
    assert!(left.len() == 1 && left[0].ends_with("\"} 0"), "{left:?}");
    drop(server);

    let server = start();
    let refusal = refused(embed(&server, ann, &["a"], 1));
    assert!(later(refusal) && refusal.name() == "allowance");
    assert_eq!(embed(&server, bob, &["a"], 1).unwrap(), 1);
    // Texts that cannot be recorded are not served.
    let folder = file.parent().unwrap().to_owned();
    fs::rename(&folder, state.path().join("b")).unwrap();
    assert_eq!(refused(embed(&server, bob, &["a"], 1)), Refusal::Uncounted);
    fs::rename(state.path().join("b"), &folder).unwrap();
    assert_eq!(embed(&server, bob, &["a"], 1).unwrap(), 1);
    drop(server);

    // A truncated file gives nobody their texts back.
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let model = tempfile::tempdir().unwrap();
    hushed_model::testing::tiny_folder(model.path()).unwrap();
    let mut config = ServerConfig::local(model.path(), state.path().join("certificates"));
    let rate = "4/WEEK";
    config.entrance.per_client = Some(texts(rate, file));
    let error = Server::bind(&config).err().unwrap();
    assert_eq!((error.name(), error.category()), ("counts", Category::Local));
}

#[test]
fn l3_a_client_pays_for_no_set_up_that_it_cannot_use_and_leaves_a_session_to_others() {
    let state = tempfile::tempdir().unwrap();
    let tokens = state.path().join("tokens");
    write_private(&tokens, "the-token-of-ann\nthe-token-of-bob\n");
    let server = Running::start(|c| {
        c.entrance.access = ClientAccess::Tokens(tokens);
        c.entrance.max_sessions = 2;
        c.entrance.per_client = Some(texts("1/WEEK", state.path().join("texts.json")));
    });
    let connect = |token: &str| {
        let mut config = server.client();
        config.token = Token::from_bytes(token.as_bytes());
        Client::connect(&config)
    };
    let refusal = |result: Result<Client, ServeError>| match result.err() {
        Some(ServeError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let mut ann = connect("the-token-of-ann").unwrap();
    let own = refusal(connect("the-token-of-ann"));
    assert_eq!(own, Refusal::TooManySessions { limit: 1 });
    let bob = connect("the-token-of-bob").unwrap();
    ann.embed(&["a"], TooLong::Refuse, None).unwrap();
    ann.close().unwrap();
    // At the hello, not at the next text.
    eventually("the place is free again", || matches!(refusal(connect("the-token-of-ann")), Refusal::Allowance { .. }));
    bob.close().unwrap();
}

/// An embedding of the tiny model opens 512 bits.
#[test]
fn opened_bits_of_a_client_are_limited() {
    let state = tempfile::tempdir().unwrap();
    let server = Running::start(|c| {
        c.entrance.per_client = Some(ClientLimits {
            texts: None,
            bits: Some("1100/WEEK".parse().unwrap()),
            file: state.path().join("texts.json"),
        });
    });
    let mut client = server.connect().unwrap();
    let width = client.public().config.width;
    assert_eq!(width * 16, 512);
    let pass = |client: &mut Client, texts: &[&str]| {
        let options = Options { batch: texts.len(), ..Options::default() };
        client.embed(texts, options, None).err()
    };
    assert!(pass(&mut client, &["a", "b"]).is_none());
    let refused = |error: Option<ServeError>| match error {
        Some(ServeError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let more = refused(pass(&mut client, &["a"]));
    assert!(matches!(more, Refusal::Allowance { .. }));
    // The next session is not set up.
    let next = refused(server.connect().err());
    assert!(matches!(next, Refusal::Allowance { .. }));
}

#[test]
fn m3_a_renewed_certificate_gives_no_new_texts() {
    let files = tempfile::tempdir().unwrap();
    let folder = files.path();
    let authority = authority();
    let ca = folder.join("ca.pem");
    fs::write(&ca, authority.pem()).unwrap();
    let server = Running::start(|c| {
        c.entrance.access = ClientAccess::Certificates(ca);
        let (rate, file) = ("1/WEEK", folder.join("texts.json"));
        c.entrance.per_client = Some(texts(rate, file));
    });
    let keys = [(); 2].map(|()| rcgen::KeyPair::generate().unwrap());
    let embed = |name: &str, key, years| {
        let mut config = server.client();
        config.identity = Some(identity_of(folder, name, years, key, Some(&authority)));
        Client::connect(&config)?.embed(&["a"], TooLong::Refuse, None)
    };
    assert!(embed("first", &keys[0], (2020, 4000)).is_ok());
    let again = embed("renewed", &keys[0], (2021, 4001)).err().unwrap();
    assert!(matches!(again, ServeError::Refused(Refusal::Allowance { .. })));
    assert!(embed("other", &keys[1], (2020, 4000)).is_ok());
}

#[test]
fn nobody_there() {
    let server = Running::start(|_| ());
    let mut config = server.client();
    drop(server);
    let error = refused(&config);
    assert!(matches!(error, ServeError::Net(NetError::Connect { .. })), "{error}");
    for address in ["", "localhost", ":1", "host:port", "host:99999"] {
        config.server = address.to_owned();
        assert_eq!(refused(&config).category(), Category::Usage, "{address}");
    }
}

#[test]
fn servers_that_cannot_start() {
    let server = Running::start(|_| ());
    let model = server.folder.path().join("model");
    let good = ServerConfig::local(&model, server.folder.path().join("certificates"));
    let fail = |change: &dyn Fn(&mut ServerConfig)| {
        let mut config = good.clone();
        change(&mut config);
        Server::bind(&config).err().unwrap()
    };
    let error = fail(&|c| c.entrance.listen = server.address.to_string());
    assert_eq!((error.name(), error.category()), ("address-in-use", Category::Network));
    let error = fail(&|c| c.entrance.listen = "0.0.0.0:0".to_owned());
    assert!(matches!(error, ServeError::OpenToStrangers { .. }));
    let error = fail(&|c| c.model = "/nonexistent".into());
    assert_eq!(error.category(), Category::Folder);
    assert!(error.to_string().contains("/nonexistent"), "{error}");
    let error = fail(&|c| c.entrance.access = ClientAccess::Tokens("/nonexistent".into()));
    assert_eq!(error.category(), Category::Local);
    let empty = server.folder.path().join("empty");
    write_private(&empty, "# nobody\n");
    let error = fail(&|c| c.entrance.access = ClientAccess::Tokens(empty.clone()));
    assert!(matches!(error, ServeError::TokenFile { .. }));
    write_private(&empty, "a-token-of-some-length\nshort\n");
    let error = fail(&|c| c.entrance.access = ClientAccess::Tokens(empty.clone()));
    assert!(matches!(error, ServeError::TokenFile { line: 2, .. }));
    let error = fail(&|c| c.entrance.identity = ServerIdentity::Development("/proc/nonexistent".into()));
    assert_eq!(error.category(), Category::Local);
    for zero in [
        |c: &mut ServerConfig| c.entrance.max_sessions = 0,
        |c: &mut ServerConfig| c.max_tokens = Some(0),
        |c: &mut ServerConfig| c.max_texts = 0,
    ] {
        assert_eq!(fail(&zero).category(), Category::Usage);
    }
    // With a token file any address will do.
    write_private(&empty, SECRET);
    let mut config = good.clone();
    config.entrance.listen = "0.0.0.0:0".to_owned();
    config.entrance.access = ClientAccess::Tokens(empty);
    assert!(Server::bind(&config).is_ok());
}

/// A limit on texts alone.
fn texts(rate: &str, file: PathBuf) -> ClientLimits {
    ClientLimits { texts: Some(rate.parse().unwrap()), bits: None, file }
}

struct Authority {
    certificate: rcgen::Certificate,
    params: rcgen::CertificateParams,
    key: rcgen::KeyPair,
}

impl Authority {
    fn pem(&self) -> String {
        self.certificate.pem()
    }
}

fn authority() -> Authority {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    Authority { certificate, params, key }
}

/// Files of a chain and a key, valid between two years, self-signed or not.
fn identity(folder: &std::path::Path, name: &str, years: (i32, i32), by: Option<&Authority>) -> (PathBuf, PathBuf) {
    let key = rcgen::KeyPair::generate().unwrap();
    identity_of(folder, name, years, &key, by)
}

/// The same for a given key.
fn identity_of(
    folder: &std::path::Path,
    name: &str,
    years: (i32, i32),
    key: &rcgen::KeyPair,
    by: Option<&Authority>,
) -> (PathBuf, PathBuf) {
    let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
    params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
    let certificate = match by {
        Some(a) => {
            let issuer = rcgen::Issuer::from_params(&a.params, &a.key);
            params.signed_by(key, &issuer).unwrap()
        }
        None => params.self_signed(key).unwrap(),
    };
    let paths = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    fs::write(&paths.0, certificate.pem()).unwrap();
    write_private(&paths.1, key.serialize_pem());
    paths
}
