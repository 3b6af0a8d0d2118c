//! Pairs of connected sessions of every kind.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use hushed_net::channel::tcp;
use hushed_net::{Channel, Identity, Limits, Listener, NetError, Party, Session, Shape, TlsClient, TlsServer, Trust};

/// Two connected sockets.
pub fn sockets() -> (TcpStream, TcpStream) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let client = tcp::connect(&listener.local_addr().to_string(), Duration::from_secs(5)).unwrap();
    let (server, _) = listener.accept(|| false).unwrap().unwrap();
    (client, server)
}

pub fn sessions(client: impl Channel + 'static, server: impl Channel + 'static) -> (Session, Session) {
    (Session::new(Party::Client, Box::new(client)), Session::new(Party::Server, Box::new(server)))
}

pub fn memory() -> (Session, Session) {
    hushed_net::memory_pair()
}

pub fn tcp() -> (Session, Session) {
    tcp_with(Limits::session())
}

pub fn tcp_with(limits: Limits) -> (Session, Session) {
    let (client, server) = sockets();
    sessions(tcp::channel(client, limits).unwrap(), tcp::channel(server, limits).unwrap())
}

pub fn shaped((mut client, mut server): (Session, Session)) -> (Session, Session) {
    client.shape(Some(Shape::LAN));
    server.shape(Some(Shape::LAN));
    (client, server)
}

/// A self-signed certificate for `localhost`, valid between two years.
pub fn certificate(from: i32, until: i32) -> Identity {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let certificate = params.self_signed(&key).unwrap();
    Identity::new(vec![certificate.der().clone()], rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap()
}

pub fn tls() -> (Session, Session) {
    let identity = certificate(2020, 4000);
    let client = TlsClient::new(Trust::Pin(identity.fingerprint()), None).unwrap();
    let server = TlsServer::new(identity, None).unwrap();
    let (client, server) = shake_hands(&client, &server, "localhost");
    sessions(client.unwrap(), server.unwrap())
}

type Shaken = Result<hushed_net::StreamChannel, NetError>;

pub fn shake_hands(client: &TlsClient, server: &TlsServer, host: &str) -> (Shaken, Shaken) {
    let (near, far) = sockets();
    thread::scope(|scope| {
        let accepted = scope.spawn(|| server.accept(far, Limits::before_authentication()));
        let connected = client.connect(near, host, Limits::before_authentication());
        let mut pair = (connected, accepted.join().unwrap());
        for channel in [pair.0.as_mut(), pair.1.as_mut()].into_iter().flatten() {
            channel.set_limits(Limits::session());
        }
        pair
    })
}

/// Runs both parties; the sessions' deadlines end a test that would hang.
pub fn both<A: Send, B: Send>(
    (client, server): (Session, Session),
    at_client: impl FnOnce(Session) -> A + Send,
    at_server: impl FnOnce(Session) -> B + Send,
) -> (A, B) {
    thread::scope(|scope| {
        let server = scope.spawn(|| at_server(server));
        let client = at_client(client);
        (client, server.join().unwrap())
    })
}
