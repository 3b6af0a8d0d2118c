//! Cross-encoders: pairs of texts in, scores out, over a connection.

use hushed_model::testing::{TINY_LABELS, tiny_classifier_folder, tiny_golden};
use hushed_model::{Model, TextError};
use hushed_mpc::Answers;
use hushed_serve::{Category, Options, Refusal, ServeError, ServerConfig, Task, TooLong};

use crate::common::Running;

const QUERY: &str = "How long is the notice period?";
const DOCUMENTS: [&str; 4] = ["The weather", "three months", "a", "b"];

fn pairs() -> Vec<[&'static str; 2]> {
    DOCUMENTS.iter().map(|document| [QUERY, *document]).collect()
}

/// Scores in the order of the pairs, whatever order they ran in; what the server learns of each is its length. One
/// number a pair is opened, and counted as one text.
#[test]
fn scores_are_those_of_the_clear_model() {
    for name in ["cross-encoder", "cross-encoder-roberta"] {
        let server = Running::start(|config| {
            config.model = tiny_golden(name);
            config.max_texts = 2 * DOCUMENTS.len();
            config.public_table = true;
        });
        let model = Model::load(&tiny_golden(name)).unwrap();
        let mut client = server.connect().unwrap();
        assert_eq!((client.answers(), client.charge()), (Answers::Logits, 1));
        let table = Options { public_table: true, bucket: Some(16), ..Options::default() };
        for options in [Options { batch: 3, ..Options::default() }, table] {
            let found = client.scores(&pairs(), options, None).unwrap();
            assert_eq!(found.len(), DOCUMENTS.len());
            for (pair, score) in pairs().into_iter().zip(&found) {
                let ids = model.public.pair(pair, TooLong::Refuse).unwrap();
                assert_eq!(score.tokens, ids.rows().real);
                let clear = model.embed(vec![ids]).unwrap()[0][0];
                let scored = score.values;
                assert!((scored.logit - clear).abs() < 0.01, "{name}: {} {clear}", scored.logit);
                assert_eq!(scored.value, model.public.score.of(scored.logit));
            }
        }
        assert_eq!(client.texts_left(), 0);
        let refused = client.scores(&[["a", "b"]], TooLong::Refuse, None).err().unwrap();
        assert!(matches!(refused, ServeError::TooManyTexts { .. }), "{refused}");
        client.close().unwrap();
    }
}

/// Nothing is sent for a pair that is refused, and the longer text of one is cut where that is asked for.
#[test]
fn pairs_are_checked_before_the_first_runs() {
    let server = Running::start(|config| {
        config.model = tiny_golden("cross-encoder");
        config.max_tokens = Some(40);
    });
    let mut client = server.connect().unwrap();
    let long = DOCUMENTS.join(" ").repeat(3);
    let refused = client.scores(&[["a", "b"], [QUERY, &long]], TooLong::Refuse, None).err().unwrap();
    assert!(matches!(refused, ServeError::Text { index: 1, source: TextError::TooLong { .. } }), "{refused}");
    let refused = client.scores(&[["a", "b"], ["", "b"]], TooLong::Cut, None).err().unwrap();
    assert!(matches!(refused, ServeError::Text { index: 1, source: TextError::Empty }), "{refused}");
    assert_eq!(client.passes_begun(), 0);
    let found = client.scores(&[[QUERY, long.as_str()]], TooLong::Cut, None).unwrap();
    assert_eq!(found[0].tokens, 40);
}

/// Models without a score, and operators who would open something else.
#[test]
fn what_gives_no_score_says_so() {
    let folder = tempfile::tempdir().unwrap();
    tiny_classifier_folder(folder.path(), &TINY_LABELS).unwrap();
    let server = Running::start(|config| config.model = folder.path().to_owned());
    let mut client = server.connect().unwrap();
    let refused = client.scores(&pairs()[2..], TooLong::Cut, None).err().unwrap();
    assert!(matches!(refused, ServeError::NoScores { numbers: 3 }), "{refused}");
    assert_eq!((refused.name(), refused.category()), ("other-task", Category::Refused));

    let server = Running::start(|_| ());
    let mut client = server.connect().unwrap();
    let refused = client.scores(&pairs(), TooLong::Cut, None).err().unwrap();
    assert!(matches!(refused, ServeError::Refused(Refusal::OtherTask { task: Task::Embed })), "{refused}");

    for answers in [Answers::Label, Answers::Top(1), Answers::Bits(8)] {
        let mut config = ServerConfig::local(tiny_golden("cross-encoder"), folder.path().join("certificates"));
        config.answers = Some(answers);
        assert_eq!(hushed_serve::Server::bind(&config).err().unwrap().name(), "limit", "{answers}");
    }
}
