use hushed_ckks::keys::SecretKey;
use hushed_model::{random_network, testing::tiny_config};

use super::*;
use crate::plan::keys::KeyDemand;
use crate::plan::public_plan::insecure_plan;
use crate::run::encrypted::testing::{Keys, distance, seeded};

const LOG_N: u32 = 8;

/// A tiny model and a plan for it, with `lengths`.
fn client(lengths: Lengths) -> (FheClient, Arc<CkksParams>) {
    let config = tiny_config();
    let network = random_network(&config, Pool::Mean, 3);
    let (mut plan, params) = insecure_plan(LOG_N, 14, network.embedding.width).unwrap();
    plan.lengths = lengths;
    plan.canary = None;
    let client =
        FheClient::new(plan, &params, network.embedding.clone(), Some(network.embedding_norm.clone()), Pool::Mean);
    (client.unwrap(), params)
}

fn texts() -> Vec<TokenIds> {
    [&[1u32, 2, 3][..], &[4, 5, 6, 7], &[9]].iter().map(|ids| TokenIds::new(ids.to_vec())).collect()
}

/// The server splits out the normalised rows, divided by the bound, and zeros elsewhere.
#[test]
fn columns_arrive() {
    let (client, params) = client(Lengths::Private);
    let canary = TokenIds::new(vec![8, 8]);
    let upload = client.pack(&texts(), Some(&canary)).unwrap();
    let plan = client.plan();
    assert_eq!(upload.count(), plan.request_ciphertexts());
    let limbs = plan.placement.upload;
    let demand = KeyDemand::default().with_upload(&params, limbs, plan.width);
    let keys = Keys::new(&params, |b| demand.specs(&params, b).unwrap());
    let mut rng = seeded(2);
    let received: Vec<Ciphertext> = (0..upload.count())
        .map(|i| {
            let ct = upload.encrypt(i, &keys.encryptor, &mut rng).unwrap();
            assert_eq!(ct.limbs(), limbs);
            ct.expand()
        })
        .collect();
    assert!(upload.encrypt(upload.count(), &keys.encryptor, &mut rng).is_err());
    let (mask, pairs) = received.split_last().unwrap();
    let columns: Vec<Vec<f64>> =
        pairs.iter().flat_map(|z| keys.on.split(z).unwrap()).take(plan.width).map(|ct| keys.open(&ct)).collect();
    for (column, expected) in columns.iter().zip(&upload.columns) {
        assert!(distance(column, expected) < 1e-6);
    }
    // Compared with the model itself, for one text.
    let at = StepId::outside("embed");
    let x = plain::embed(at, texts(), &client.embedding).unwrap();
    let x = plain::norm(at, x, client.norm.as_ref().unwrap()).unwrap();
    let slot = client.layout.slot(1, 2, 0);
    for (c, column) in columns.iter().enumerate() {
        let expected = x.values.row(3 + 2)[c] / plan.input_bound;
        assert!((column[slot] - expected).abs() < 1e-6);
    }
    // One in each row of a token, the canary in the last place.
    let places = client.layout.texts();
    let mask = keys.open(mask);
    for (place, m) in [(0, 3), (1, 4), (2, 1), (3, 0), (places - 1, 2)] {
        assert_eq!(upload.lengths()[place], m);
        for row in 0..plan.rows {
            let expected = f64::from(u8::from(row < m));
            assert!((mask[client.layout.slot(place, row, 0)] - expected).abs() < 1e-6);
        }
    }
    assert!(upload.declared().iter().all(|&m| m == 0));
}

#[test]
fn lengths_are_declared_as_the_plan_says() {
    for (lengths, declared) in
        [(Lengths::Public, [3, 4, 1, 0]), (Lengths::Bucket(2), [4, 4, 2, 2]), (Lengths::Private, [0; 4])]
    {
        let (client, _) = client(lengths);
        let upload = client.pack(&texts(), None).unwrap();
        assert_eq!(upload.declared()[..4], declared);
        assert_eq!(upload.mask.is_some(), lengths != Lengths::Public);
    }
}

/// Texts that share a place lie in its rows one after another, each with its own positions, and their lengths are
/// declared in that order.
#[test]
fn texts_share_the_rows_of_a_place() {
    let client = client_with(|plan| {
        plan.lengths = Lengths::Public;
        plan.placement.per_place = 3;
    });
    let ids = [&[5_u32, 7][..], &[1, 2, 3, 4], &[9], &[7]];
    let texts: Vec<TokenIds> = ids.iter().map(|ids| TokenIds::new(ids.to_vec())).collect();
    let canary = TokenIds::new(vec![8, 8]);
    let upload = client.pack(&texts, Some(&canary)).unwrap();
    let places = client.layout.texts();
    assert_eq!(upload.declared()[..9], [4, 0, 0, 2, 1, 1, 0, 0, 0]);
    assert_eq!(upload.arranged().texts, [3, 0, 4, 5]);
    assert_eq!((upload.arranged().canary, upload.lengths()[3 * places - 3]), (Some(3 * places - 3), 2));
    let alone = |text: &TokenIds, row: usize, c: usize| client.embedded(text).unwrap().row(row)[c];
    let layout = client.layout;
    for (c, column) in upload.columns.iter().enumerate() {
        let of = |place: usize| (0..4).map(|row| column[layout.slot(place, row, 0)]).collect::<Vec<_>>();
        let all = [(0, 0), (0, 1), (2, 0), (3, 0)];
        assert_eq!(of(1), all.map(|(text, row)| alone(&texts[text], row, c)));
        assert_eq!(of(0), [0, 1, 2, 3].map(|row| alone(&texts[1], row, c)));
        assert_eq!(of(places - 1), [alone(&canary, 0, c), alone(&canary, 1, c), 0.0, 0.0]);
        assert!((2..places - 1).all(|place| of(place) == [0.0; 4]));
    }
    // As many as fit: two of two tokens a place, and the canary has one for itself.
    let (plan, params) = (client.plan(), client.params());
    let twos = vec![2; 3 * places];
    let with_canary = FhePlan {
        canary: Some(crate::plan::public_plan::Canary {
            text: String::new(),
            embedding: Vec::new(),
            least_cosine: 1.0,
        }),
        ..plan.clone()
    };
    assert_eq!(plan.fitting(params, &twos).unwrap(), 2 * places);
    assert_eq!(with_canary.fitting(params, &twos).unwrap(), 2 * (places - 1));
    assert_eq!(plan.fitting(params, &[1]).unwrap(), 1);
    let many = vec![TokenIds::new(vec![1, 2]); 2 * places];
    assert!(client.pack(&many, None).is_ok());
    let found = client.pack(&many, Some(&canary)).err().unwrap();
    let refused = matches!(found, FheError::Packing(PackingError::Places { found, room, rows: 4 }) if (found, room) == (places, places - 1));
    assert!(refused, "{found}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let (client, _) = client(Lengths::Public);
    let long = TokenIds::new(vec![1; client.layout.rows() + 1]);
    assert!(matches!(
        client.pack(&[long], None),
        Err(FheError::Packing(PackingError::RowCount { text: 0, found: 5, rows: 4 }))
    ));
    let places = client.layout.texts();
    let many = vec![TokenIds::new(vec![1]); places];
    assert!(client.pack(&many, None).is_ok());
    assert!(client.pack(&many, Some(&many[0])).is_err());
    let foreign = TokenIds::new(vec![u32::MAX]);
    assert!(matches!(client.pack(&[foreign], None), Err(FheError::Model(_))));
    let mut narrow = client;
    narrow.plan.input_bound = 1e-3;
    assert!(matches!(narrow.pack(&texts(), None), Err(FheError::InputBound)));
    assert!(matches!(narrow.check_bound(), Err(FheError::InputBound)));
    narrow.plan.input_bound = 1e3;
    narrow.check_bound().unwrap();
}

/// A reply as the server packs it gives each text its mean.
#[test]
fn replies_open_to_pooled_rows() {
    // A server that knows the rows of a text divides by them; one that does not divides by m.
    replies_open(Lengths::Public, |_, _| 1.0);
    replies_open(Lengths::Private, |length, m| length as f64 / m as f64);
}

fn replies_open(known: Lengths, share: impl Fn(usize, usize) -> f64) {
    let (client, params) = client(known);
    let mut rng = seeded(6);
    let sk = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
    let encryptor = Encryptor::new(&params, &sk).unwrap();
    let decryptor = Decryptor::new(client.encoder(), &sk).unwrap();
    let (m, width) = (client.layout.rows(), client.plan.width);
    let places = client.layout.texts();
    let mut lengths = vec![0; places];
    (lengths[0], lengths[2]) = (3, 4);
    // The mean of a column over the text's rows, or its share of m, in row j mod m.
    let number = |text: usize, j: usize| ((text * 31 + j * 7) % 13) as f64 / 13.0 - 0.5;
    let reply: Vec<Ciphertext> = (0..width.div_ceil(m))
        .map(|block| {
            let packed = client.plan.interleave(&client.params).unwrap().vector(places, |place, row| {
                let j = block * m + row;
                if j < width && lengths[place] > 0 { number(place, j) * share(lengths[place], m) } else { 0.0 }
            });
            let scale = params.default_scale();
            let plain = client.encoder.encode_real(&packed, 1, scale).unwrap();
            encryptor.encrypt(&plain, &mut rng).unwrap()
        })
        .collect();
    let rows = client.open(&decryptor, &reply, &lengths).unwrap();
    assert_eq!(rows.len(), places);
    for (place, row) in rows.iter().enumerate() {
        let Some(row) = row else {
            assert_eq!(lengths[place], 0);
            continue;
        };
        for (j, found) in row.iter().enumerate() {
            // Rounded to the certified bits, then divided by the text's share of the rows.
            let share = share(lengths[place], m);
            let half = 0.5 * f64::exp2(-f64::from(params.certified_bits()));
            let rounding = half / share;
            assert!((found - number(place, j)).abs() < rounding + 1e-4);
            let units = found * share / (2.0 * half);
            assert!((units - units.round()).abs() < 1e-6);
        }
    }
    assert!(client.open(&decryptor, &reply[1..], &lengths).is_err());
}

/// The same with other settings: packed rows, hidden states.
fn client_with(change: impl Fn(&mut FhePlan)) -> FheClient {
    let (client, params) = client(Lengths::Private);
    let mut plan = client.plan.clone();
    change(&mut plan);
    let (embedding, norm) = (client.embedding.clone(), client.norm.clone());
    FheClient::new(plan, &params, embedding, norm, Pool::Mean).unwrap()
}

/// What is not read of a reply must be nothing but noise, what is read within the magnitude. Replies in which every
/// slot was 0.5, or 400 where numbers are within 8, used to open without a word.
#[test]
fn m3_a_reply_with_more_than_answers_in_it_is_refused() {
    let rows = |plan: &mut FhePlan| {
        plan.answer = Some(AnswerRows::Rows);
        plan.reply.ciphertexts = plan.width / 2;
    };
    let last = |plan: &mut FhePlan| plan.answer = Some(AnswerRows::Last);
    let shared = |plan: &mut FhePlan| {
        plan.lengths = Lengths::Public;
        plan.placement.per_place = 2;
    };
    let packed = |plan: &mut FhePlan| {
        plan.lengths = Lengths::Public;
        plan.placement.columns = 8;
        plan.reply.ciphertexts = 2;
    };
    let clients = [
        client(Lengths::Public).0,
        client(Lengths::Private).0,
        client_with(shared),
        client_with(last),
        client_with(rows),
        client_with(packed),
        client_with(|plan| {
            packed(plan);
            rows(plan);
            plan.lengths = Lengths::Private;
            plan.reply.ciphertexts = 2;
        }),
    ];
    for (kind, client) in clients.iter().enumerate() {
        let per_place = client.plan.placement.per_place;
        let mut lengths = vec![0; client.layout.texts() * per_place];
        (lengths[0], lengths[2]) = (3, 4);
        if per_place > 1 {
            lengths[1] = 1;
        }
        let (form, slots) = (&client.plan.reply, client.layout.slots());
        let count = client.packed.as_ref().map_or_else(
            || match client.plan.answer {
                Some(AnswerRows::Rows) => client.plan.width.div_ceil(2),
                _ => per_place * client.plan.width.div_ceil(client.layout.rows()),
            },
            |(_, answers)| answers.vectors(),
        );
        let refused = |vectors: &[Vec<Complex64>]| match client.check_shape(vectors, &lengths) {
            Err(FheError::ReplyShape { used, .. }) => Some(used),
            other => {
                other.unwrap();
                None
            }
        };
        let nothing = vec![vec![Complex64::ZERO; slots]; count];
        let zeros = client.unpack(&nothing, &lengths).unwrap();
        assert_eq!(refused(&nothing), None);
        let (mut read, most) = (0, form.magnitude);
        for vector in 0..count {
            for slot in 0..slots {
                let (layout, repeats) = (client.layout, client.packed.is_some());
                let text = slot / layout.columns() % layout.texts();
                if repeats && client.plan.masks() && lengths[text] == 0 {
                    // An empty place repeats a text: its answer is there, and not read.
                    continue;
                }
                for one in [Complex64::ONE, Complex64::I] {
                    let with = |size: f64| {
                        let mut vectors = nothing.clone();
                        // Not a product: NaN times 0 is NaN in the other part too.
                        let z = &mut vectors[vector][slot];
                        *(if one.re > 0.0 { &mut z.re } else { &mut z.im }) = size;
                        vectors
                    };
                    let noise = 10.0 * form.deviation;
                    assert_eq!(refused(&with(noise)), None);
                    // What is read: the answer of a place with a text changes.
                    let found = client.unpack(&with(1.0), &lengths).unwrap();
                    let both = found.iter().zip(&zeros).zip(&lengths);
                    let is_read = { both }.any(|((a, b), &length)| length > 0 && a != b);
                    read += usize::from(is_read);
                    let expected = (!is_read).then_some(false);
                    assert_eq!(refused(&with(0.5)), expected, "{kind}: {vector}, {slot}");
                    assert_eq!(refused(&with(-most)), expected);
                    assert_eq!(refused(&with(most + 0.1)), Some(is_read));
                    assert_eq!(refused(&with(f64::NAN)), Some(is_read));
                }
            }
        }
        let numbers = match client.plan.answer {
            Some(AnswerRows::Rows) => 7,
            _ if per_place > 1 => 3,
            _ => 2,
        };
        assert_eq!(read, numbers * client.plan.width, "{kind}");
    }
}

/// The same through a decryption: a forged reply is refused, and the refusal says nothing of its numbers.
#[test]
fn m3_a_forged_reply_is_not_opened() {
    let (client, params) = client(Lengths::Public);
    let mut rng = seeded(7);
    let sk = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
    let decryptor = Decryptor::new(client.encoder(), &sk).unwrap();
    let encryptor = Encryptor::new(&params, &sk).unwrap();
    let mut lengths = vec![0; client.layout.texts()];
    lengths[0] = 3;
    let count = client.plan.width.div_ceil(client.layout.rows());
    let mut open = |value: f64| {
        let values = vec![value; params.slots()];
        let scale = params.default_scale();
        let plain = client.encoder.encode_real(&values, 1, scale).unwrap();
        let ct = encryptor.encrypt(&plain, &mut rng).unwrap();
        client.open(&decryptor, &vec![ct; count], &lengths)
    };
    assert!(open(0.0).is_ok());
    for value in [0.5, 400.0, -0.01] {
        let refused = open(value).err().unwrap();
        assert!(matches!(refused, FheError::ReplyShape { .. }), "{refused}");
    }
}
