//! Runs over other links: the forms of steps change, and with them bytes and rounds, which the plan still knows
//! exactly; answers stay as near to the clear as they were.

use crate::tiny::{assert_close, assert_is, pass_over, tokens};
use hushed_model::testing::{published_generator, tiny_golden, tiny_model};
use hushed_model::{Model, NetworkConfig, Pool, TokenIds, network_shapes};
use hushed_mpc::plan::Plan;
use hushed_mpc::{Adds, Answers, Before, Input, Link, Terms, TextCache, embeddings, next_tokens};

/// Far from each other in both figures.
fn links() -> Vec<Link> {
    let far = ["80ms/200mbit", "1s/10gbit", "0us/1mbit"].map(|text| text.parse().unwrap());
    Link::NAMED.into_iter().map(|(_, link)| link).chain(far).collect()
}

#[test]
fn texts_are_embedded_over_every_link_as_planned() {
    let model = tiny_model();
    let texts = tokens(&model);
    let lengths: Vec<usize> = texts.iter().map(|text| text.rows().total).collect();
    let clear = model.embed(texts.clone()).unwrap();
    let terms = Terms { padded: true, public_table: false };
    for link in links() {
        let input = Input::Texts(texts.clone(), terms);
        let run = |on: &mut _, model: &_, input: &_| embeddings(on, model, input, Answers::Label);
        let (answers, steps) = pass_over(link, &model, &input, run);
        assert_close(&answers, &clear);
        let program = Model::shapes_only(&model.public).program();
        let plan = Plan::twopc(&program, &lengths, terms.over(link), model.public.normalise, Answers::Label).unwrap();
        assert_is(&plan, &steps);
        assert_eq!((plan.link, plan.network), (link.to_string(), link.to_string()));
    }
}

#[test]
fn a_text_is_continued_over_every_link_as_planned() {
    let model = Model::load(&tiny_golden("gpt2")).unwrap();
    let text = TokenIds::new(vec![5, 40, 17, 9, 22]);
    let program = Model::shapes_only(&model.public).program();
    let mut tokens = Vec::new();
    for link in links() {
        let input = Input::Texts(vec![text.clone()], Terms::default());
        let run = |on: &mut _, model: &Model, input: &_| {
            next_tokens(on, &model.program(), &mut TextCache::default(), input, Adds::default(), 1)
        };
        let (answer, steps) = pass_over(link, &model, &input, run);
        tokens.push(answer);
        let plan = Plan::next_token(&program, 0, &[5], Terms::default().over(link)).unwrap();
        assert_is(&plan, &steps);
    }
    assert!(tokens.iter().all(|found| found == &tokens[0]), "{tokens:?}");
}

/// The form of a link takes the least time over a network like it, in waits and bytes.
#[test]
fn a_link_suits_its_network() {
    let minilm = NetworkConfig { layers: 6, width: 384, heads: 12, hidden: 1536, ..NetworkConfig::large() };
    let minilm = network_shapes(&minilm, Pool::Mean).program();
    let generator = published_generator();
    let later = Before { held: 128, ..Before::default() };
    let text = |rows: usize, link: Link| {
        Plan::twopc(&minilm, &[rows], Terms::default().over(link), true, Answers::Label).unwrap()
    };
    let token = |_, link: Link| {
        let terms = Terms::default().over(link).spending(true);
        Plan::next_token(&generator, later, &[1], terms).unwrap()
    };
    type Planned<'a> = &'a dyn Fn(usize, Link) -> Plan;
    let cases: [(usize, Planned<'_>); 3] = [(16, &text), (128, &text), (1, &token)];
    for (rows, plan) in cases {
        let usual = plan(rows, Link::LAN);
        for (_, link) in Link::NAMED {
            let own = plan(rows, link);
            let [with, without] = [&own, &usual].map(|plan| plan.seconds_over(&link.shape()));
            let of = |plan: &Plan| (plan.bytes_up + plan.bytes_down + plan.ot_bytes) as f64 / 1e6;
            println!(
                "{rows:>4} rows over {link:<9} {:>5} rounds {:>7.2} MB {with:>6.2} s; \
                 of lan {:>5} rounds {:>7.2} MB {without:>6.2} s",
                own.rounds,
                of(&own),
                usual.rounds,
                of(&usual)
            );
            assert!(with <= 1.001 * without, "{rows} rows over {link}: {with} {without}");
            assert!(own.rounds <= usual.rounds);
        }
    }
}
