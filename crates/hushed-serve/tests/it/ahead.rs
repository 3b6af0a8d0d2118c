//! Text continued with products made ahead of its passes.

use hushed_model::Model;
use hushed_model::testing::{tiny_folder, tiny_generator, tiny_golden};
use hushed_serve::{Category, Client, GenerateOptions, Generated, Made, Server, ServerConfig, Terms};

use crate::common::Running;
use crate::generate::{PROMPT, all, assert_greedy_of, ids, options, start};

const PLAIN: Terms = Terms { padded: false, public_table: false };

fn with(ahead: u16, max_tokens: usize) -> GenerateOptions {
    GenerateOptions { ahead, ..options(max_tokens) }
}

fn bytes(token: &Generated) -> u64 {
    token.cost.stats.bytes_sent + token.cost.stats.bytes_received
}

/// The text is the clear model's, with fewer bytes per token, whether weights are held, held transformed or read in
/// every pass. As much is made ahead as was asked for, and it belongs to a session.
#[test]
fn a_text_goes_on_with_products_made_ahead() {
    let tiny = start(|config| {
        config.max_ahead = 3;
        config.max_memory = Some(8 << 30);
    });
    let streaming = Running::start(|config| {
        config.model = tiny_golden("llama");
        config.max_ahead = 128;
        config.max_memory = Some(1);
        config.entrance.max_sessions = 1;
    });
    let models = [(tiny, tiny_generator()), (streaming, Model::load(&tiny_golden("llama")).unwrap())];
    for (server, model) in models {
        let mut client = server.connect().unwrap();
        let plain = all(&mut client, &options(3));
        let mut generation = client.generate(PROMPT, &with(3, 6)).unwrap();
        let tokens: Vec<Generated> = generation.by_ref().collect::<Result<_, _>>().unwrap();
        let made = generation.made_ahead();
        assert_greedy_of(&model, &ids(&tokens));
        // Five later passes: three, and then the remaining two.
        assert_eq!((tokens.len(), made.passes), (6, 5));
        assert!(made.cost.stats.bytes_sent > 0 && made.cost.stats.bytes_received > 0);
        // The fourth token's cost is that of its pass alone.
        for token in &tokens[1..] {
            assert!(bytes(token) < bytes(&plain[1]) - 10_000);
        }
        assert_eq!(client.passes_ahead(), 0);
        assert_eq!(client.texts_left(), 1000 - 3 - 6);

        // What one text leaves unused, another uses.
        let mut generation = client.generate(PROMPT, &with(3, 4)).unwrap();
        generation.next().unwrap().unwrap();
        drop(generation);
        assert_eq!(client.passes_ahead(), 3);
        assert_eq!(client.texts_left(), 1000 - 3 - 6 - 4);
        let tokens = all(&mut client, &options(3));
        assert_greedy_of(&model, &ids(&tokens));
        assert_eq!(client.passes_ahead(), 1);
        assert_eq!(client.texts_left(), 1000 - 3 - 6 - 4 - 1);
        client.close().unwrap();
    }
}

/// With a public table and padding: products are made on the text's terms, and those left over serve a text on other
/// terms, which sends more.
#[test]
fn products_are_made_on_the_terms_of_their_text() {
    let server = start(|config| {
        config.max_ahead = 4;
        config.public_table = true;
    });
    let mut client = server.connect().unwrap();
    let made = |client: &mut Client, options: &GenerateOptions| {
        let mut generation = client.generate(PROMPT, options).unwrap();
        let tokens: Vec<Generated> = generation.by_ref().collect::<Result<_, _>>().unwrap();
        assert_greedy_of(&tiny_generator(), &ids(&tokens));
        (generation.made_ahead(), bytes(&tokens[1]))
    };
    let private = made(&mut client, &with(2, 3));
    let public = GenerateOptions { public_table: true, ..with(2, 3) };
    let public = made(&mut client, &public);
    let padded = GenerateOptions { bucket: Some(16), ..with(2, 3) };
    let padded = made(&mut client, &padded);
    let sum = |made: Made| made.cost.stats.bytes_sent + made.cost.stats.bytes_received;
    assert!(sum(public.0) < sum(private.0));
    assert!(sum(private.0) < sum(padded.0));
    // The masked one-hot row, with its header, and the one of the position.
    let vocabulary = tiny_generator().public.config.vocabulary as u64;
    assert!(private.1 > public.1 + 6 * vocabulary);
    assert!(padded.1 > private.1);

    let terms = Terms { public_table: true, ..PLAIN };
    assert_eq!(client.make_ahead(2, terms).unwrap().passes, 2);
    let other = made(&mut client, &options(3));
    assert_eq!((other.0.passes, client.passes_ahead()), (0, 0));
    assert!(other.1 > private.1 + 10_000);
    client.close().unwrap();

    // A server whose table is private; nothing is sent.
    let server = start(|config| config.max_ahead = 4);
    let mut client = server.connect().unwrap();
    let sent = client.stats().bytes_sent;
    let refused = client.make_ahead(2, terms).err().unwrap();
    assert_eq!(refused.name(), "private-table");
    assert_eq!(client.stats().bytes_sent, sent);
    client.close().unwrap();
}

/// A server that makes none ahead, and one that makes few.
#[test]
fn a_server_makes_as_much_ahead_as_its_operator_allows() {
    let server = start(|_| ());
    let mut client = server.connect().unwrap();
    let sent = client.stats().bytes_sent;
    let refused = client.generate(PROMPT, &with(1, 2)).err().unwrap();
    assert_eq!((refused.name(), refused.category()), ("too-far-ahead", Category::Refused));
    assert_eq!(client.make_ahead(1, PLAIN).err().unwrap().name(), "too-far-ahead");
    assert_eq!(client.stats().bytes_sent, sent);
    client.close().unwrap();

    let server = start(|config| {
        config.max_ahead = 2;
        config.max_texts = 2;
    });
    let mut client = server.connect().unwrap();
    let made = [9, 1].map(|passes| client.make_ahead(passes, PLAIN).unwrap().passes);
    assert_eq!((made, client.passes_ahead()), ([2, 0], 2));
    // The first token of a text is one too many, and so are further products.
    assert_eq!(client.texts_left(), 0);
    let refused = client.generate(PROMPT, &options(2)).err().unwrap();
    assert_eq!(refused.name(), "too-many-texts");
    client.close().unwrap();
    let server = start(|config| {
        config.max_ahead = 2;
        config.max_texts = 1;
    });
    let mut client = server.connect().unwrap();
    let sent = client.stats().bytes_sent;
    assert_eq!(client.make_ahead(2, PLAIN).err().unwrap().name(), "too-many-texts");
    assert_eq!(client.stats().bytes_sent, sent);
    assert_eq!(client.make_ahead(1, PLAIN).unwrap().passes, 1);
    client.close().unwrap();

    // A model without later passes.
    let folder = tempfile::tempdir().unwrap();
    tiny_folder(folder.path()).unwrap();
    let mut config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
    config.max_ahead = 1;
    let refused = Server::bind(&config).err().unwrap();
    assert_eq!(refused.category(), Category::Usage);
}
