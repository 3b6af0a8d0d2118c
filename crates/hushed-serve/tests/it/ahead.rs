//! Texts run, and continued, with products made ahead of their passes.

use hushed_model::testing::{tiny_classifier_folder, tiny_generator, tiny_golden};
use hushed_model::{Model, cosine};
use hushed_mpc::Answers;
use hushed_serve::{Category, Client, GenerateOptions, Generated, Later, Made, Options, Terms, TooLong};

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
}

/// The embeddings of texts, each near to the clear model's, with the bytes of each one's pass.
fn embedded(client: &mut Client, model: &Model, texts: &[&str], options: Options) -> Vec<u64> {
    let answers = client.embed(texts, options, None).unwrap();
    let near = texts.iter().zip(&answers).map(|(text, answer)| {
        let ids = model.tokens(text, TooLong::Refuse).unwrap();
        let clear = model.embed(vec![ids]).unwrap().remove(0);
        assert!(cosine(&clear, &answer.values) > 0.999, "{text}");
        let stats = answer.pass.cost.stats;
        stats.bytes_sent + stats.bytes_received
    });
    near.collect()
}

/// Whole texts: their passes send less, as many are made at a time as the options or the operator say, and each text
/// counts once. What is left serves later texts of its length.
#[test]
fn texts_are_embedded_with_products_made_ahead() {
    let server = Running::start(|config| {
        config.max_ahead = 3;
        config.max_pass_tokens = 48;
        config.max_texts = 20;
    });
    let model = Model::load(&server.folder.path().join("model")).unwrap();
    let texts = ["a b c", "d e", "f g h", "i j k", "l m"];
    let mut client = server.connect().unwrap();
    let plain = embedded(&mut client, &model, &texts, Options::default());
    let ahead = embedded(&mut client, &model, &texts, Options { ahead: 2, ..Options::default() });
    assert!(ahead.iter().zip(&plain).all(|(ahead, plain)| ahead + 20_000 < *plain), "{ahead:?} {plain:?}");
    // Five texts twice.
    assert_eq!((client.made_ahead().passes, client.texts_left()), (5, 10));
    // Several share a pass, as far as there is something made for them.
    let options = Options { ahead: 9, batch: 4, bucket: Some(16), ..Options::default() };
    let ids = client.embed(&texts, options, None).unwrap();
    let firsts: Vec<usize> = ids.iter().map(|answer| answer.pass.first).collect();
    assert_eq!((firsts, client.made_ahead().passes, client.texts_left()), (vec![0, 0, 0, 3, 3], 10, 5));
    // Made before there is a text; one of another length takes none.
    let terms = Terms { padded: true, public_table: false };
    assert_eq!(client.make_ahead(Later { passes: 9, rows: 16 }, terms).unwrap().passes, 3);
    assert_eq!((client.passes_ahead(), client.texts_left()), (3, 2));
    embedded(
        &mut client,
        &model,
        &["a b c d e f g h i j k l m n o p q r"],
        Options { bucket: Some(16), ..Options::default() },
    );
    assert_eq!((client.passes_ahead(), client.texts_left()), (3, 1));
    let options = Options { bucket: Some(16), ..Options::default() };
    embedded(&mut client, &model, &["a", "b", "c", "d"], options);
    assert_eq!((client.passes_ahead(), client.texts_left()), (0, 0));
    client.close().unwrap();
}

/// A label, several of which are opened; each counts when its products are made.
#[test]
fn texts_are_classified_with_products_made_ahead() {
    let folder = tempfile::tempdir().unwrap();
    tiny_classifier_folder(folder.path(), &["a", "b", "c"]).unwrap();
    let server = Running::start(|config| {
        config.model = folder.path().to_owned();
        config.answers = Some(Answers::Logits);
        config.max_ahead = 2;
        config.max_texts = 6;
    });
    let mut client = server.connect().unwrap();
    let options = Options { ahead: 2, ..Options::default() };
    let mut classes = Vec::new();
    client.classify_each(&["a b", "c"], options, None, |_, class| classes.push(class.values)).unwrap();
    assert_eq!((classes.len(), client.made_ahead().passes, client.texts_left()), (2, 2, 0));
    client.close().unwrap();
}

/// Longer texts than the server takes, more than it makes, and a server that makes none: nothing is sent.
#[test]
fn products_for_texts_are_made_within_limits() {
    let server = Running::start(|config| {
        config.max_tokens = Some(8);
        config.max_ahead = 4;
        config.max_texts = 3;
    });
    let mut client = server.connect().unwrap();
    let sent = client.stats().bytes_sent;
    let mut refused = |passes, rows| client.make_ahead(Later { passes, rows }, PLAIN).err().unwrap().name();
    assert_eq!([refused(1, 9), refused(1, 0), refused(4, 8)], ["too-long", "too-long", "too-many-texts"]);
    assert_eq!(client.stats().bytes_sent, sent);
    client.close().unwrap();
    let server = Running::start(|_| ());
    let mut client = server.connect().unwrap();
    let refused = client.embed(&["a"], Options { ahead: 1, ..Options::default() }, None).err().unwrap();
    assert_eq!(refused.name(), "too-far-ahead");
    client.close().unwrap();
}
