//! Files with secrets, and other text files: private ones, and a byte order mark that an editor left.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hushed_net::channel::tls::{DEV_IDENTITY, load_or_create_dev_certificate};
use hushed_serve::{
    Category, Client, ClientAccess, ServeError, Server, ServerConfig, ServerIdentity, Token, TooLong, read_prefix,
};

use crate::common::private::write_private;
use crate::common::{Running, refused};

const MARK: &str = "\u{feff}";

fn publish(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
}

/// Every file by which somebody could pass as another is refused if others can read it.
#[test]
fn secrets_that_others_can_read_are_refused() {
    let work = tempfile::tempdir().unwrap();
    let (tokens, identity) = (work.path().join("tokens"), work.path().join(DEV_IDENTITY));
    write_private(&tokens, "the-token-of-ann\n");
    load_or_create_dev_certificate(work.path()).unwrap();
    let model = work.path().join("model");
    hushed_model::testing::tiny_folder(&model).unwrap();
    let server = |change: &dyn Fn(&mut ServerConfig)| {
        let mut config = ServerConfig::local(&model, work.path().join("certificates"));
        change(&mut config);
        Server::bind(&config).map(drop)
    };
    let with_tokens = |c: &mut ServerConfig| c.entrance.access = ClientAccess::Tokens(tokens.clone());
    let files = ServerIdentity::Files { chain: identity.clone(), key: identity.clone() };
    let with_key = |c: &mut ServerConfig| c.entrance.identity = files.clone();
    let development = |c: &mut ServerConfig| c.entrance.identity = ServerIdentity::Development(work.path().to_owned());
    let running = Running::start(|_| ());
    let client = || {
        let mut config = running.client();
        config.identity = Some((identity.clone(), identity.clone()));
        Client::connect(&config).map(drop)
    };
    let token = || Token::from_file(&tokens).map(drop);
    type Use<'a> = (&'a str, &'a dyn Fn() -> Result<(), ServeError>);
    let uses: [Use<'_>; 5] = [
        ("the list of tokens", &|| server(&with_tokens)),
        ("a server's key", &|| server(&with_key)),
        ("the development identity", &|| server(&development)),
        ("a client's key", &client),
        ("a client's token", &token),
    ];
    for (what, used) in &uses {
        assert!(used().is_ok(), "{what}");
    }
    publish(&tokens);
    publish(&identity);
    for (what, used) in &uses {
        let error = used().err().unwrap();
        assert_eq!((error.name(), error.category()), ("not-private", Category::Local), "{what}");
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
}

/// The mark is no part of the first token, of a PEM file's first line, or of a text.
#[test]
fn a_byte_order_mark_is_taken_off_every_text_file() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name);
    write_private(&path("tokens"), format!("{MARK}the-token-of-ann\r\nthe-token-of-bob\r\n"));
    write_private(&path("token"), format!("{MARK}the-token-of-ann\r\n"));
    load_or_create_dev_certificate(work.path()).unwrap();
    let identity = path(DEV_IDENTITY);
    let pem = fs::read_to_string(&identity).unwrap();
    write_private(&identity, format!("{MARK}{pem}"));
    fs::write(path("prefix"), format!("{MARK}the public part")).unwrap();

    assert_eq!(read_prefix(&path("prefix")).unwrap(), "the public part");
    let server = Running::start(|c| {
        c.entrance.access = ClientAccess::Tokens(path("tokens"));
        c.entrance.identity = ServerIdentity::Files { chain: identity.clone(), key: identity.clone() };
    });
    let mut config = server.client();
    config.identity = Some((identity.clone(), identity.clone()));
    config.token = Some(Token::from_file(&path("token")).unwrap());
    let mut client = Client::connect(&config).unwrap();
    assert_eq!(client.embed(&["hello"], TooLong::Refuse, None).unwrap().len(), 1);
    client.close().unwrap();
    config.token = Token::from_bytes(b"the-token-of-eve");
    assert_eq!(refused(&config).name(), "bad-token");
}
