//! Text continued with drafts, which a pass verifies.

use hushed_model::testing::{tiny_folder, tiny_generator, tiny_golden};
use hushed_model::{Model, TokenIds, TooLong};
use hushed_mpc::Answers;
use hushed_net::Stats;
use hushed_serve::{
    Category, Client, Drafted, Finish, GenerateOptions, Generated, Penalties, Sent, Server, ServerConfig, Work,
};

use crate::common::Running;
use crate::generate::{PROMPT, all, assert_greedy_after, assert_greedy_of, ids, options, start};

fn with(draft: u16, max_tokens: usize) -> GenerateOptions {
    GenerateOptions { draft, ..options(max_tokens) }
}

/// Generates a text with these guesses; returns it, what became of the drafts, and how many texts it counted as. Checks
/// that what it says it has sent adds up to what the session has sent.
fn guessed(
    client: &mut Client,
    options: &GenerateOptions,
    mut guess: impl FnMut(&[u32], usize) -> Vec<u32> + Send,
) -> (Vec<Generated>, Drafted, usize) {
    let (before, stats) = (client.texts_left(), client.stats());
    let mut generation = client.generate(PROMPT, options).unwrap().guessing(&mut guess);
    let tokens = generation.by_ref().collect::<Result<_, _>>().unwrap();
    let (drafted, sent) = (generation.drafted(), generation.take_sent());
    assert!(generation.take_sent().is_empty());
    drop(generation);
    let counted = before - client.texts_left();
    let sum = |of: fn(&Sent) -> usize| sent.iter().map(of).sum::<usize>();
    // `texts_left` counts rows, each of which counts as several texts if more is opened.
    let charge = client.answers().charge(client.public().config.vocabulary);
    assert_eq!(sum(|sent| sent.counted), counted * charge.max(1));
    let passes = sent.iter().filter(|sent| sent.work != Work::Ahead);
    assert_eq!(passes.count(), drafted.passes);
    let drafts = sum(|sent| match sent.work {
        Work::Pass { drafts, .. } => drafts,
        Work::Ahead => 0,
    });
    assert_eq!(drafts, drafted.drafts);
    let bytes = sum(|sent| sent.cost.stats.bytes_sent as usize);
    assert_eq!(bytes as u64, client.stats().since(&stats).bytes_sent);
    // The thread that writes may have counted more bytes on the wire since.
    let (after, now) = (sent.last().unwrap().after, client.stats());
    assert_eq!(after, Stats { wire_bytes_sent: after.wire_bytes_sent, ..now });
    (tokens, drafted, counted)
}

/// Guesses what the clear model says next: right wherever it is sure.
fn oracle(model: &Model) -> impl FnMut(&[u32], usize) -> Vec<u32> + Send {
    let model = model.clone();
    move |ids, most| {
        let mut all = ids.to_vec();
        for _ in 0..most {
            let logits = model.embed(vec![TokenIds::new(all.clone())]).unwrap();
            all.push(hushed_model::largest(&logits[0]));
        }
        all.split_off(ids.len())
    }
}

/// Right, wrong and half right drafts give the text of the clear model; each draft counts as a text.
#[test]
fn a_text_goes_on_with_drafts() {
    let tiny = start(|config| config.max_drafts = 4);
    let other = Running::start(|config| {
        config.model = tiny_golden("llama");
        config.max_drafts = 15;
    });
    let golden = Model::load(&tiny_golden("llama")).unwrap();
    for (server, model) in [(tiny, tiny_generator()), (other, golden)] {
        let mut client = server.connect().unwrap();
        let (mut right, mut also) = (oracle(&model), oracle(&model));
        let tokens = model.public.config.vocabulary as u32;
        for bucket in [None, Some(16)] {
            let options = GenerateOptions { bucket, ..with(3, 9) };
            let (found, drafted, counted) = guessed(&mut client, &options, &mut right);
            assert_greedy_of(&model, &ids(&found));
            assert!(drafted.right > 0 && drafted.passes < found.len(), "{drafted:?}");
            assert_eq!(counted, drafted.passes + drafted.drafts);
            // One token per pass carries its cost.
            let passes = found.iter().filter(|t| t.cost.stats.bytes_sent > 0);
            assert_eq!(passes.count(), drafted.passes);

            let wrong = |_: &[u32], most| vec![tokens - 1; most];
            let (found, drafted, counted) = guessed(&mut client, &options, wrong);
            assert_greedy_of(&model, &ids(&found));
            assert!(drafted.drafts > drafted.right, "{drafted:?}");
            assert_eq!(counted, drafted.passes + drafted.drafts);

            let half = |ids: &[u32], most: usize| {
                let mut drafts = also(ids, most);
                if let Some(second) = drafts.get_mut(1) {
                    *second = (*second + 1) % tokens;
                }
                drafts
            };
            let (found, drafted, _) = guessed(&mut client, &options, half);
            assert_greedy_of(&model, &ids(&found));
            assert!(0 < drafted.right && drafted.right < drafted.drafts, "{drafted:?}");
        }
        // Guessed from what occurred before.
        assert_greedy_of(&model, &ids(&all(&mut client, &with(4, 12))));
        // Ids that are no tokens do not count as drafts.
        let none = |_: &[u32], _| vec![u32::MAX; 3];
        let (found, drafted, counted) = guessed(&mut client, &with(3, 4), none);
        assert_eq!((drafted.drafts, counted), (0, found.len()));
        client.close().unwrap();
    }
}

/// If the operator opens the likeliest three, each row of a pass gives them and counts as three texts.
#[test]
fn drafts_have_the_likeliest_ids_too() {
    let server = start(|config| {
        config.max_drafts = 3;
        config.answers = Some(Answers::Top(3));
        config.max_texts = 1000;
    });
    let model = tiny_generator();
    let mut client = server.connect().unwrap();
    let before = client.texts_left();
    let (found, drafted, _) = guessed(&mut client, &with(3, 8), oracle(&model));
    assert_greedy_of(&model, &ids(&found));
    assert!(drafted.right > 0, "{drafted:?}");
    // `texts_left` counts rows, three texts each.
    assert_eq!(before - client.texts_left(), drafted.passes + drafted.drafts);
    assert_eq!(before, 1000 / 3);
    let mut text = model.tokens(PROMPT, TooLong::Refuse).unwrap().ids().to_vec();
    for token in &found {
        let logits = model.embed(vec![TokenIds::new(text.clone())]).unwrap().remove(0);
        let mut order = logits.clone();
        order.sort_by(|a, b| b.total_cmp(a));
        assert!(token.top.len() == 3 && token.top[0] == token.id);
        for (&id, logit) in token.top.iter().zip(&order) {
            assert!((logit - logits[id as usize]).abs() < 0.05, "{:?}", token.top);
        }
        text.push(token.id);
    }
    client.close().unwrap();
}

/// Each row uses products made ahead, one each, on any terms of a text; what one text leaves unused, another uses.
#[test]
fn drafts_take_products_made_ahead() {
    let server = start(|config| {
        config.max_drafts = 3;
        config.max_ahead = 6;
        config.public_table = true;
    });
    let model = tiny_generator();
    let mut client = server.connect().unwrap();
    let bytes = |token: &Generated| token.cost.stats.bytes_sent;
    let plain = all(&mut client, &options(2));
    for (bucket, public_table) in [(None, false), (Some(16), false), (Some(16), true)] {
        let options = GenerateOptions { ahead: 6, bucket, public_table, ..with(3, 10) };
        let mut right = oracle(&model);
        let mut generation = client.generate(PROMPT, &options).unwrap().guessing(&mut right);
        let found: Vec<Generated> = generation.by_ref().collect::<Result<_, _>>().unwrap();
        let (drafted, made) = (generation.drafted(), generation.made_ahead());
        assert_greedy_of(&model, &ids(&found));
        assert!(drafted.right > 0 && made.passes > 0, "{drafted:?} {made:?}");
        // The second pass had several rows and sent less than one row without products made ahead.
        assert!(drafted.drafts >= drafted.passes - 1);
        assert!(bytes(&found[1]) < bytes(&plain[1]), "{drafted:?}");
    }
    client.close().unwrap();
}

/// Behind a public prefix, in which earlier occurrences are looked for too if the client has it.
#[test]
fn what_a_public_prefix_says_is_guessed() {
    let files = tempfile::tempdir().unwrap();
    let (file, text) = (files.path().join("prefix.txt"), "all of the things\n");
    std::fs::write(&file, text).unwrap();
    let folder = tiny_golden("llama");
    let model = Model::load(&folder).unwrap();
    let server = Running::start(|config| {
        config.model = folder;
        config.public_prefix = Some(file);
        config.max_drafts = 3;
    });
    let mut client = server.connect().unwrap();
    let prefix = model.public.prefix(text).unwrap();
    let tokenizer = model.public.tokenizer().unwrap();
    let own = tokenizer.encode_behind(PROMPT, 100, TooLong::Refuse).unwrap();
    let before = [prefix.ids(), own.ids()].concat();
    for (known, begins) in [(Some(text.to_owned()), &before[..]), (None, own.ids())] {
        let options = GenerateOptions { public_prefix: known, ..with(3, 6) };
        let (mut right, mut seen) = (oracle(&model), Vec::new());
        let guess = |ids: &[u32], most: usize| {
            seen.push(ids.to_vec());
            let after = ids.len() - begins.len();
            right(&[&before, &ids[ids.len() - after..]].concat(), most)
        };
        let (found, drafted, _) = guessed(&mut client, &options, guess);
        assert_greedy_after(&model, before.clone(), &ids(&found));
        assert!(drafted.right > 0);
        assert!(seen.iter().all(|ids| ids.starts_with(begins)));
    }
    client.close().unwrap();
}

/// Noise and penalties depend on the row, so the text is the one without drafts. Rounding decides where two logits with
/// their noise nearly tie.
#[test]
fn draws_and_penalties_are_those_without_drafts() {
    let server = start(|config| config.max_drafts = 3);
    let mut client = server.connect().unwrap();
    let mut alike = 0;
    for seed in 0..4 {
        let options = |draft| GenerateOptions {
            temperature: 1.0,
            seed: Some(seed),
            penalties: Penalties { presence: 1.5, ..Penalties::default() },
            ..with(draft, 7)
        };
        let plain = ids(&all(&mut client, &options(0)));
        let known = plain.clone();
        let begins = client.generate(PROMPT, &options(0)).unwrap().tokens();
        let guess = move |ids: &[u32], most: usize| {
            let next = known.iter().skip(ids.len() - begins).take(most);
            next.enumerate().map(|(i, &id)| if i == 2 { (id + 1) % 61 } else { id }).collect()
        };
        let (found, drafted, _) = guessed(&mut client, &options(3), guess);
        alike += usize::from(ids(&found) == plain && drafted.right > 0);
    }
    assert!(alike > 1, "{alike} of 4 texts");
    client.close().unwrap();
}

/// A text ends within a pass, and the session continues.
#[test]
fn a_text_ends_in_the_middle_of_a_pass() {
    let server = start(|config| config.max_drafts = 3);
    let model = tiny_generator();
    let mut client = server.connect().unwrap();
    let plain = all(&mut client, &options(5));
    let stop = plain[2..].iter().map(|token| token.text.clone());
    let stop = stop.filter(|text| !text.is_empty()).take(1).collect();
    let options = GenerateOptions { stop, ..with(3, 8) };
    let (found, ..) = guessed(&mut client, &options, oracle(&model));
    assert!(found.len() < 8);
    assert!(matches!(found.last().unwrap().last, Some(Finish::Stop | Finish::End)));
    let (found, ..) = guessed(&mut client, &with(3, 6), oracle(&model));
    assert_greedy_of(&model, &ids(&found));
    assert!(found[..found.len() - 1].iter().all(|token| token.last.is_none()));
    // Dropped in the middle of a pass.
    let mut right = oracle(&model);
    let mut generation = client.generate(PROMPT, &with(3, 6)).unwrap().guessing(&mut right);
    for _ in 0..3 {
        generation.next().unwrap().unwrap();
    }
    drop(generation);
    assert_greedy_of(&model, &ids(&all(&mut client, &with(2, 3))));
    client.close().unwrap();
}

/// Drafts use only those of the session's texts that the answer does not need.
#[test]
fn drafts_leave_texts_for_the_answer() {
    let server = start(|config| {
        config.max_drafts = 3;
        config.max_texts = 8;
    });
    let tokens = tiny_generator().public.config.vocabulary as u32;
    let mut client = server.connect().unwrap();
    let wrong = |_: &[u32], most| vec![tokens - 1; most];
    let (found, drafted, counted) = guessed(&mut client, &with(3, 6), wrong);
    assert!(found.len() == 6 || found.last().unwrap().last == Some(Finish::End));
    assert!(counted <= 8 && drafted.drafts >= 2, "{drafted:?}");
    client.close().unwrap();
}

#[test]
fn a_server_takes_as_many_drafts_as_its_operator_allows() {
    let server = start(|_| ());
    let mut client = server.connect().unwrap();
    let sent = client.stats().bytes_sent;
    let refused = client.generate(PROMPT, &with(1, 2)).err().unwrap();
    assert_eq!((refused.name(), refused.category()), ("too-many-drafts", Category::Refused));
    assert_eq!(client.stats().bytes_sent, sent);
    client.close().unwrap();

    let server = start(|config| {
        config.max_drafts = 2;
        config.max_memory = Some(8 << 30);
    });
    let mut client = server.connect().unwrap();
    let (mut asked, sent) = (0, client.stats().bytes_sent);
    // The number of passes reveals where the text ends.
    let hidden = GenerateOptions { pad_output: true, ..with(1, 2) };
    let refused = client.generate(PROMPT, &hidden).err().unwrap();
    assert_eq!((refused.name(), refused.category()), ("limit", Category::Usage));
    assert_eq!(client.stats().bytes_sent, sent);
    let guess = |_: &[u32], most| {
        asked = asked.max(most);
        Vec::new()
    };
    guessed(&mut client, &with(9, 6), guess);
    assert_eq!(asked, 2);
    client.close().unwrap();

    // A model without later passes.
    let folder = tempfile::tempdir().unwrap();
    tiny_folder(folder.path()).unwrap();
    let mut config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
    config.max_drafts = 1;
    let refused = Server::bind(&config).err().unwrap();
    assert_eq!(refused.category(), Category::Usage);
}
