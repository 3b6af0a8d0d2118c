//! Server and client of a private embedding, in one program:
//! `cargo run --release -p hushed-serve --example embed -- DIR TEXT`.
//!
//! The two share nothing but the address and the certificate's SHA-256, as they would on two machines.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use hushed_serve::{Client, ClientConfig, Embedding, Server, ServerConfig, ServerTrust, TooLong};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(model), Some(text)) = (arguments.next(), arguments.next()) else {
        return Err("usage: embed DIR TEXT".into());
    };
    let certificates = std::env::temp_dir().join("hushed-example");
    let embedding = embed(Path::new(&model), &certificates, &text)?;
    println!("{:?}", embedding.values);
    println!("{} bytes sent", embedding.pass.cost.stats.bytes_sent);
    Ok(())
}

/// The embedding of `text` under the model in the folder `model`.
pub fn embed(model: &Path, certificates: &Path, text: &str) -> Result<Embedding, Box<dyn Error>> {
    // The server has the weights. It learns how many tokens the text has, and nothing else about it.
    let server = Server::bind(&ServerConfig::local(model, certificates))?;
    let (address, pin) = (server.listener().local_addr().to_string(), server.listener().fingerprint());
    let stop = AtomicBool::new(false);

    thread::scope(|scope| {
        let serving = scope.spawn(|| server.run(&stop));
        // The client has the text. It learns the model's public part, and the answer.
        let answer = ask(&address, &pin.to_string(), text);
        stop.store(true, Ordering::SeqCst);
        serving.join().map_err(|_| "the server panicked")??;
        answer
    })
}

fn ask(address: &str, pin: &str, text: &str) -> Result<Embedding, Box<dyn Error>> {
    let config = ClientConfig::new(address, ServerTrust::Pin(pin.to_owned()));
    let mut client = Client::connect(&config)?;
    let mut answers = client.embed(&[text], TooLong::Refuse, None)?;
    client.close()?;
    answers.pop().ok_or_else(|| "no answer".into())
}
