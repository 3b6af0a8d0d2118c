//! A private search over a connection: what is found, what it counts as, what is refused.

use crate::common::Running;
use hushed_model::Model;
use hushed_serve::{IndexFile, Options, Server, ServerConfig, Wanted};

const DOCUMENTS: [&str; 6] = [
    "hello private world",
    "the quick brown fox, and 123 more!",
    "a",
    "日本語 c d e f g",
    "c d e f g h i j k l m n",
    "hello public world",
];

/// Puts an index of the documents beside the model.
fn indexed(config: &mut ServerConfig) {
    let model = Model::load(&config.model).unwrap();
    let mut index = IndexFile::empty(&model, 24).unwrap();
    index.add(&model, &DOCUMENTS, || ()).unwrap();
    let path = config.model.with_file_name("index");
    index.write(&path).unwrap();
    config.index = Some(path);
}

/// A search for this many documents, with or without their records.
fn wanted(top: usize, records: bool) -> Wanted {
    Wanted { top, records, scores: false }
}

#[test]
fn a_document_is_found_by_its_own_text() {
    let server = Running::start(indexed);
    let mut client = server.connect().unwrap();
    assert_eq!(client.documents(), DOCUMENTS.len());
    assert!(client.has_records());
    for (place, text) in DOCUMENTS.iter().enumerate() {
        let options = Options { bucket: (place % 2 == 0).then_some(8), ..Options::default() };
        let found = client.search(text, wanted(2, true), &options, None).unwrap();
        assert_eq!(found.hits.len(), 2);
        assert_eq!(found.hits[0].place as usize, place);
        let kept = text.get(..text.floor_char_boundary(24)).unwrap();
        assert_eq!(found.hits[0].record.as_deref(), Some(kept));
        assert!(found.rows >= found.tokens);
    }
    let error = client.search("a", wanted(101, false), &Options::default(), None).err();
    assert_eq!(error.unwrap().name(), "limit");
    // More than there are: all of them, each once. The session can embed as well.
    let all = client.search("hello", wanted(99, false), &Options::default(), None);
    let mut places: Vec<u32> = all.unwrap().hits.iter().map(|hit| hit.place).collect();
    places.sort_unstable();
    assert_eq!(places, [0, 1, 2, 3, 4, 5]);
    assert_eq!(client.embed(&["a"], Options::default(), None).unwrap().len(), 1);
    client.close().unwrap();
}

#[test]
fn places_and_records_count_as_texts() {
    let server = Running::start(|config| {
        indexed(config);
        config.max_texts = 7;
    });
    let mut client = server.connect().unwrap();
    client.search("a", wanted(2, true), &Options::default(), None).unwrap();
    assert_eq!(client.texts_left(), 3);
    let more = client.search("a", wanted(2, true), &Options::default(), None).err();
    assert_eq!(more.unwrap().name(), "too-many-texts");
    client.search("a", wanted(3, false), &Options::default(), None).unwrap();
    assert_eq!(client.texts_left(), 0);
}

#[test]
fn scores_are_opened_where_the_operator_says_so() {
    let options = Options::default();
    let scored = Wanted { scores: true, ..wanted(2, true) };
    let server = Running::start(|config| {
        indexed(config);
        config.search_scores = true;
        config.max_texts = 8;
    });
    let mut client = server.connect().unwrap();
    assert!(client.gives_scores());
    let found = client.search(DOCUMENTS[3], scored, &options, None).unwrap();
    let scores: Vec<f64> = found.hits.iter().filter_map(|hit| hit.score).collect();
    assert!((scores[0] - 1.0).abs() < 5e-3 && scores[1] <= scores[0], "{scores:?}");
    // Place, text and score each count.
    assert_eq!(client.texts_left(), 2);
    let without = client.search("a", wanted(2, false), &options, None).unwrap();
    assert!(without.hits.iter().all(|hit| hit.score.is_none()));

    // Without the operator's permission nothing is run, whether the client checks or the server.
    let server = Running::start(indexed);
    let mut client = server.connect().unwrap();
    let before = client.stats().frames_sent;
    let error = client.search("a", scored, &options, None).err().unwrap();
    assert_eq!(error.name(), "no-scores");
    assert_eq!(client.stats().frames_sent, before);
    assert!(client.search("a", wanted(1, false), &options, None).is_ok());
}

#[test]
fn what_cannot_be_searched_is_refused() {
    let plain = Running::start(|_| ());
    let mut client = plain.connect().unwrap();
    let error = client.search("a", wanted(1, false), &Options::default(), None).err();
    assert_eq!(error.unwrap().name(), "no-index");
    let zero = client.search("a", wanted(0, false), &Options::default(), None).err();
    assert_eq!(zero.unwrap().name(), "limit");

    let mut config = ServerConfig::local(plain.folder.path().join("model"), plain.folder.path().join("certificates"));
    indexed(&mut config);
    let path = config.index.clone().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(Server::bind(&config).err().unwrap().name(), "index");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(Server::bind(&config).err().unwrap().name(), "file");
}
