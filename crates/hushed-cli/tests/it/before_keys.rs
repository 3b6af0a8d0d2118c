//! What a client refuses itself is refused before keys and correlations are made, in every verb that opens a session.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::common::{Server, error, hushed};
use hushed_model::testing::{tiny_folder, tiny_generator_folder, tiny_golden};

/// Counts the bytes of both directions on the way to a server.
struct Counted {
    address: String,
    bytes: Arc<AtomicUsize>,
}

impl Counted {
    fn before(server: &str) -> Counted {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let bytes = Arc::new(AtomicUsize::new(0));
        let (count, server) = (Arc::clone(&bytes), server.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&server) else { return };
                let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else { return };
                let counts = [Arc::clone(&count), Arc::clone(&count)];
                let [up, down] = counts;
                thread::spawn(move || forward(from_client, server, &up));
                thread::spawn(move || forward(from_server, client, &down));
            }
        });
        Counted { address, bytes }
    }

    fn take(&self) -> usize {
        self.bytes.swap(0, Ordering::SeqCst)
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, count: &AtomicUsize) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        count.fetch_add(read, Ordering::SeqCst);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Far fewer than keys and correlations have, and more than certificate, handshake and a tiny model's bundle.
const FEW: usize = 200_000;

/// A model, what its server is started with, and the commands that a client refuses.
type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a [&'a str]]);

#[test]
fn what_is_refused_costs_no_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (encoder, generator, lines) = (path("encoder"), path("generator"), path("lines.txt"));
    tiny_folder(encoder.as_ref()).expect("a model");
    tiny_generator_folder(generator.as_ref()).expect("a model");
    std::fs::write(&lines, "a\nb\nc\n").expect("it is written");
    let [cross, images] = ["cross-encoder", "vit"].map(|name| tiny_golden(name).to_string_lossy().into_owned());
    let long = "a ".repeat(500);
    let cases: &[Case<'_>] = &[
        (
            &encoder,
            &["--max-texts", "2"],
            &[
                &["embed", &long],
                &["embed", ""],
                &["embed", "--input", &lines],
                &["classify", "a"],
                &["generate", "a"],
                &["search", "a"],
                &["rerank", "--query", "a", "--input", &lines],
            ],
        ),
        (
            &cross,
            &["--max-texts", "2"],
            &[
                &["rerank", "--query", "a", "--input", &lines],
                &["classify", &long],
                &["classify", "--input", &lines],
                &["embed", "a"],
            ],
        ),
        (&generator, &[], &[&["generate", &long], &["generate", ""], &["embed", "a"], &["classify", "a"]]),
        (&images, &[], &[&["classify", "a"], &["embed", "a"], &["classify", "--image", &lines]]),
    ];
    for (model, options, refused) in cases {
        let server = Server::start(model, options);
        let proxy = Counted::before(&server.address);
        for arguments in *refused {
            let to = ["--server", &proxy.address, "--pin", &server.pin, "--json"];
            let output = hushed(&[*arguments, &to[..]].concat());
            let sent = proxy.take();
            assert!(!output.status.success(), "{arguments:?}");
            assert!(sent > 0 && sent < FEW, "{arguments:?}: {sent} bytes, {}", error(&output));
        }
    }
    // What keys and correlations take.
    let server = Server::start(&encoder, &[]);
    let proxy = Counted::before(&server.address);
    let output = hushed(&["embed", "a", "--server", &proxy.address, "--pin", &server.pin]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(proxy.take() > 5 * FEW);
}
