//! Replies that must not change, by the hash of their residues. A change to the circuit, a fit or an encoding changes
//! them on purpose: a hash is then replaced by what the failure prints, and the number of the circuit in
//! `files/checkpoint.rs` goes up. (The noise of a sealed reply depends on the manifest's hash, and changes with its
//! version too.) Refactoring does not change them, and neither does preparing: of two hashes the second is of a run
//! without the model's weights.

use std::sync::Arc;

use hushed_ckks::Ciphertext;
use hushed_model::testing::{TINY_LABELS, ternary_config, tiny_classifier_config, tiny_config};
use hushed_model::{NetworkConfig, Pool, Weigh, random_network};
use sha2::{Digest, Sha256};

use super::{packed_decoder_tests, packed_tests, whole};
use crate::Acts;
use crate::plan::placement::Placement;
use crate::plan::public_plan::{AnswerRows, Lengths};
use crate::tape::causal::tests::{Subject as Decoder, sums, test_params};

#[test]
fn seeded_replies_of_batches_do_not_change() {
    let golden = [
        (2, None, Lengths::Private, "0be73d37f40736cf4fd45a67df255f1cee9d7013d444daacaa673d4e4fa2e9f5"),
        (1, None, Lengths::Public, "408b185508337b97e10805a3e1f72ff1488ca6c79338efe30cfbd9cbecd2420b"),
        (1, Some(&TINY_LABELS), Lengths::Private, "4d4555a687ac09683cfb9a0b1f88f35bb9b4a0ec0288f68b2671187dfebd1141"),
    ];
    let found = golden.map(|(layers, labels, lengths, _)| {
        let mut config = labels.map_or_else(tiny_config, |labels| tiny_classifier_config(labels));
        config.layers = layers;
        let pool = if labels.is_some() { Pool::First } else { Pool::Mean };
        let subject = whole::Subject::of(random_network(&config, pool, 5), lengths);
        hash_of(&subject.reply())
    });
    let found = found.each_ref().map(String::as_str);
    assert_eq!(found, golden.map(|case| case.3));
}

/// One text, with a fixed head, a replaced row and padding.
#[test]
fn seeded_replies_in_packed_rows_do_not_change() {
    let golden = [
        (Lengths::Public, "7ad9f67709dcc28e9f7b414723c6eb0a34fe1546e71199be4b75aa37c12cb4c4"),
        (Lengths::Private, "4b978826d1a041c0f6bc13c5621a1e4176a80c60f6f546c394bcb6b44e96e8f9"),
    ];
    let found = golden.map(|(lengths, _)| {
        let replies = packed_tests::Subject::new().replies(lengths);
        replies.map(|reply| hash_of(&reply))
    });
    assert_eq!(found, golden.map(|case| [case.1; 2]));
}

#[test]
fn seeded_replies_of_a_decoder_in_packed_rows_do_not_change() {
    let golden = [
        (AnswerRows::Last, "3d52d4b56061d8fa2c3d73c08317a0d21fb9645ae3cf9df3b42808b48ca5d0b5"),
        (AnswerRows::Rows, "70b43b13fb0c20f8fe62c7a3a02b50e64a99bf3ed156c1176b339b8617e6bbd2"),
    ];
    let found = golden.map(|(answer, _)| {
        let subject = packed_decoder_tests::Subject::new(&ternary_config(2, 2));
        subject.replies(answer).map(|reply| hash_of(&reply))
    });
    assert_eq!(found, golden.map(|case| [case.1; 2]));
}

/// The answers before they are sealed: with one column in each vector and with two, norms inside blocks, a softmax.
#[test]
fn seeded_answers_of_decoders_do_not_change() {
    let sigmoid = ternary_config(2, 1);
    let inside = NetworkConfig { sub_norms: true, ..ternary_config(2, 2) };
    let softmax = NetworkConfig { weigh: Weigh::Softmax, ..ternary_config(2, 2) };
    let golden = [
        (&sigmoid, false, "3cc1d6f345b3d9a20fba582837cd76d0e85c60cd7cc3932ad74ebfbe36f8c8bc"),
        (&sigmoid, true, "58f9f70f5814f6f1aca50d13c2b778aa3d3cfda165dd74ca71663964e868e6a5"),
        (&inside, true, "f4bae7b002dc1ca78596dc0208a4ca5e2bc74cc93a2babc49e7e29ae89570aee"),
        (&softmax, true, "02942f40e4fc287941c29c29022421ca7c41a0c119949431bd1f87b7bdf00b76"),
    ];
    let params = test_params();
    let found = golden.map(|(config, pairs, _)| {
        let mut subject = Decoder::new(config, params.slots(), (15, 15));
        let placement = Placement { pairs, ..subject.placement(params.fresh_limbs()) };
        let (mut keys, sent, ..) = subject.under_a_key(&params, &placement);
        keys.on.keep(Arc::default());
        let answer = |subject: &Decoder| {
            let nothing = sums(|_, _: &Acts<Ciphertext>| Ok(()));
            let how = (placement.clone(), AnswerRows::Last);
            let answer = subject.run_at(&keys.on, sent.clone(), how, nothing);
            hash_of(&answer.unwrap().vectors)
        };
        let first = answer(&subject);
        subject.program = subject.program.without_weights();
        [first, answer(&subject)]
    });
    assert_eq!(found, golden.map(|case| [case.2; 2]));
}

fn hash_of(reply: &[Ciphertext]) -> String {
    let mut hash = Sha256::new();
    for ct in reply {
        for part in [ct.a(), ct.b()] {
            for limb in 0..ct.limbs() {
                for word in part.limb(limb) {
                    hash.update(word.to_le_bytes());
                }
            }
        }
    }
    crate::plan::public_plan::hex(&hash.finalize())
}
