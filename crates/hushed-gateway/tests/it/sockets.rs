//! Where it listens: loopback, a Unix socket, TLS with keys; nothing else.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use hushed_gateway::{Gateway, GatewayConfig, GatewayError, Listen};
use hushed_net::channel::tls::{load_or_create_dev_certificate, read_authorities};
use serde_json::json;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};

use crate::common::{Door, Running, posted, read_reply, write_private};

fn refused(server: &Running, change: impl FnOnce(&mut GatewayConfig)) -> GatewayError {
    let mut config = GatewayConfig::new(server.client());
    change(&mut config);
    Gateway::bind(&config).err().expect("it must not start")
}

#[test]
fn a_unix_socket_is_this_users_alone() {
    let server = Running::embeds();
    let path = server.folder.path().join("socket");
    // What a killed gateway leaves behind is in nobody's way.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let door = Door::open(&server, |config| config.listen = Listen::Unix(path.clone()));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut socket = UnixStream::connect(&path).unwrap();
    let request = posted("/embed", "{\"inputs\": \"a\"}", "").replace("localhost", "any.example");
    socket.write_all(request.as_bytes()).unwrap();
    assert_eq!(read_reply(&mut socket).status, 200);
    let second = refused(&server, |config| config.listen = Listen::Unix(path.clone()));
    assert_eq!(second.name(), "address-in-use");
    let left: Vec<_> = std::fs::read_dir(server.folder.path()).unwrap().collect();
    let hidden = |entry: &std::io::Result<std::fs::DirEntry>| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with('.')
    };
    assert!(!left.iter().any(hidden), "the folder it was bound in");
    drop(door);
    assert!(!path.exists());
    // A socket that has taken the name in the meantime belongs to someone else, and stays.
    let door = Door::open(&server, |config| config.listen = Listen::Unix(path.clone()));
    std::fs::remove_file(&path).unwrap();
    let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    drop(door);
    assert!(path.exists());
    drop(other);
    std::fs::remove_file(&path).unwrap();
    // A file is not a socket, and stays.
    std::fs::write(&path, "mine").unwrap();
    let file = refused(&server, |config| config.listen = Listen::Unix(path.clone()));
    assert_eq!((file.name(), std::fs::read(&path).unwrap()), ("address-in-use", b"mine".to_vec()));
}

#[test]
fn nothing_in_the_clear_beyond_this_machine() {
    let server = Running::embeds();
    let keys = server.folder.path().join("keys");
    write_private(&keys, "a-key-of-sixteen-bytes");
    let everywhere = |config: &mut GatewayConfig| config.listen = Listen::from("0.0.0.0:0");
    assert_eq!(refused(&server, everywhere).name(), "open-to-strangers");
    let keyed = refused(&server, |config| {
        everywhere(config);
        config.api_keys = Some(keys.clone());
    });
    assert_eq!(keyed.name(), "open-to-strangers");
    write_private(&keys, "short\n");
    let guessed = refused(&server, |config| config.api_keys = Some(keys.clone()));
    assert_eq!(guessed.name(), "token-file");
    assert_eq!(refused(&server, |config| config.batch = 0).name(), "limit");
    let path = "https://friend.example/path".to_owned();
    let never = refused(&server, |config| config.origins = vec![path]);
    assert_eq!(never.name(), "usage");
    let port = refused(&server, |config| config.hosts = vec!["a.example:80".to_owned()]);
    assert_eq!(port.name(), "usage");
}

#[test]
fn tls_with_a_key() {
    let server = Running::embeds();
    let folder = server.folder.path();
    let keys = folder.join("keys");
    write_private(&keys, "a-key-of-sixteen-bytes");
    let certificates = folder.join("gateway");
    load_or_create_dev_certificate(&certificates).unwrap();
    let mut pem: Vec<_> = std::fs::read_dir(&certificates).unwrap().map(|entry| entry.unwrap().path()).collect();
    pem.sort();
    let (chain, key) = (pem.iter(), pem.iter());
    let holds =
        |path: &&std::path::PathBuf, what: &str| std::fs::read_to_string(path).is_ok_and(|text| text.contains(what));
    let chain = chain.clone().find(|p| holds(p, "BEGIN CERTIFICATE")).unwrap().clone();
    let key = key.clone().find(|p| holds(p, "PRIVATE KEY")).unwrap().clone();
    let door = Door::open(&server, |config| {
        config.listen = Listen::from("0.0.0.0:0");
        config.hosts = vec!["localhost".to_owned()];
        config.tls = Some((chain.clone(), key));
        config.api_keys = Some(keys);
    });

    let mut roots = RootCertStore::empty();
    for certificate in read_authorities(&chain).unwrap() {
        roots.add(certificate).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let post = |headers: &str| {
        let name = "localhost".try_into().unwrap();
        let mut tls = ClientConnection::new(Arc::new(config.clone()), name).unwrap();
        let mut socket = door.connect();
        let mut stream = Stream::new(&mut tls, &mut socket);
        let body = json!({ "inputs": "a" }).to_string();
        stream.write_all(posted("/embed", &body, headers).as_bytes()).unwrap();
        read_reply(&mut stream).status
    };
    assert_eq!(post(""), 401);
    assert_eq!(post("Authorization: Bearer a-key-of-sixteen-bytes\r\n"), 200);
    // What expires is shown, and what has expired is refused at the start.
    let expiry = {
        let name = "localhost".try_into().unwrap();
        let mut tls = ClientConnection::new(Arc::new(config.clone()), name).unwrap();
        let mut socket = door.connect();
        let mut stream = Stream::new(&mut tls, &mut socket);
        let head = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        stream.write_all(format!("{head}Authorization: Bearer a-key-of-sixteen-bytes\r\n\r\n").as_bytes()).unwrap();
        let text = read_reply(&mut stream).body;
        let line = text.lines().find_map(|l| l.strip_prefix("hushed_gateway_certificate_expiry_seconds "));
        line.unwrap().parse::<f64>().unwrap()
    };
    assert!(expiry > 1.7e9);
    // Without TLS there is no answer.
    let mut socket = door.connect();
    socket.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut socket, &mut answer);
    assert!(!answer.starts_with(b"HTTP"));
}

/// A client may close its sending side and wait for the answer, in either version of HTTP.
#[test]
fn a_client_that_has_said_all_gets_its_answer() {
    let server = Running::embeds();
    let door = Door::open(&server, |_| ());
    for version in ["HTTP/1.1", "HTTP/1.0"] {
        let body = format!("{{\"input\": \"a text in {}\"}}", version.replace('/', " "));
        let request = posted("/v1/embeddings", &body, "").replace("HTTP/1.1", version);
        let mut socket = door.connect();
        socket.write_all(request.as_bytes()).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        // An interim response comes first if the answer takes long.
        let answer = text.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n");
        assert!(answer.starts_with(&format!("{version} 200")), "{text}");
        assert!(answer.contains("\"embedding\""), "{text}");
    }
}
