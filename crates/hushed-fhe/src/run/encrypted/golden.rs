//! Replies that must not change, by the hash of their residues. A change to the circuit, a fit or an encoding changes
//! them on purpose: a hash is then replaced by what the failure prints. Refactoring does not change them, and neither
//! does preparing: of two hashes the second is of a run without the model's weights.

use std::sync::Arc;

use hushed_ckks::Ciphertext;
use hushed_model::testing::{TINY_LABELS, ternary_config, tiny_classifier_config, tiny_config};
use hushed_model::{NetworkConfig, Pool, Weigh, random_network};
use sha2::{Digest, Sha256};

use super::{packed_decoder_tests, packed_tests, whole};
use crate::Acts;
use crate::ops::decoder::tests::{Subject as Decoder, sums, test_params};
use crate::plan::placement::Placement;
use crate::plan::public_plan::{AnswerRows, Lengths};

#[test]
fn seeded_replies_of_batches_do_not_change() {
    let golden = [
        (
            2,
            None,
            Lengths::Private,
            "2d49c561c5b32afb08e11b9ffc977c7092f031bcf0a640310d797ed0d4045d4f",
        ),
        (
            1,
            None,
            Lengths::Public,
            "e0dfdead69deb881d7814f33b28b1848abe58f676dea3864f5cba67700e55726",
        ),
        (
            1,
            Some(&TINY_LABELS),
            Lengths::Private,
            "2ba4149d66f0297669ac151ffd8e66fe38247fac30fb27c8536a4135be45a349",
        ),
    ];
    let found = golden.map(|(layers, labels, lengths, _)| {
        let mut config = labels.map_or_else(tiny_config, |labels| tiny_classifier_config(labels));
        config.layers = layers;
        let pool = if labels.is_some() {
            Pool::First
        } else {
            Pool::Mean
        };
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
        (
            Lengths::Public,
            "5f0ab49b4a01e8c995c9a1c36d87da26a3e02573c1a798d3e4a58cd5adf85ebf",
        ),
        (
            Lengths::Private,
            "626030d77347a193fb48d59a0e25b830d7ffa0b9c08d47daa549237c60b1d673",
        ),
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
        (
            AnswerRows::Last,
            "06ad6a78b358a73dcd983cdf08ee962422e8fa02bca80f42c53aedbc4995c13c",
        ),
        (
            AnswerRows::Rows,
            "ebb08f6802bb57525901ba67144a88eac1cb41a21816036b33d9535539171c95",
        ),
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
    let inside = NetworkConfig {
        sub_norms: true,
        ..ternary_config(2, 2)
    };
    let softmax = NetworkConfig {
        weigh: Weigh::Softmax,
        ..ternary_config(2, 2)
    };
    let golden = [
        (
            &sigmoid,
            false,
            "8da84d033b7a8cc0cd9ad9d272872776a11315b53f87407db228aa1b8a4e8dd3",
        ),
        (
            &sigmoid,
            true,
            "e4e615278bcef49784019a9678773125328803024605b6b174dde0cc5ff86d01",
        ),
        (
            &inside,
            true,
            "002fd860c3737b7f65e152cdfb66e3bd92ebddd88238f69166e28d382210b930",
        ),
        (
            &softmax,
            true,
            "0d8443990366ba3b792532dac7ac2bddf81f9a575e72eeeebfe3b95e4876ea1b",
        ),
    ];
    let params = test_params();
    let found = golden.map(|(config, pairs, _)| {
        let mut subject = Decoder::new(config, params.slots(), (15, 15));
        let placement = Placement {
            pairs,
            ..subject.placement(params.fresh_limbs())
        };
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
