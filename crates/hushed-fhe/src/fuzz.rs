//! Bodies of fuzz targets: plain functions of bytes that panic on a broken promise. A test replays them over every
//! single edit and over random ones.
//!
//! The promise: no bytes cause a panic. Whoever writes a manifest, a request or a reply also computes its hashes, so
//! random damage ends at a hash and tests nothing behind it. Here the bytes are *edits* of a good file: fields of a
//! document, or words of a head, are replaced by values at which sizes and numbers break, and the hashes are computed
//! again.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use hushed_ckks::{Ciphertext, CkksParams, Encoder, Evaluator, SeededCiphertext};
use hushed_rlwe::codec::{HEADER_BYTES, Kind, write_header};
use serde_json::{Value, json};

use crate::error::FheError;
use crate::files::chunked::{DIGEST, Seal};
use crate::files::exchange::{self, RequestReader};
use crate::files::keys::KeyReader;
use crate::hex::hex;
use crate::plan::public_plan::{AnswerRows, Canary, FhePlan, Lengths, insecure_plan, reply_deviation};

/// Bytes of an edit: two that choose the place, one that chooses the value.
pub const EDIT: usize = 3;

/// The values that replace fields; one more choice removes the field. `null` is how JSON writes NaN.
pub(crate) fn values() -> [Value; 16] {
    [
        json!(0),
        json!(1),
        json!(-1),
        json!(2),
        json!(3),
        json!(1u64 << 31),
        json!((1u64 << 32) - 1),
        json!(1u64 << 63),
        json!(u64::MAX),
        json!(0.5),
        json!(5e-324),
        json!(1e308),
        Value::Null,
        json!(""),
        json!([]),
        json!(true),
    ]
}

/// The words that replace those of a head, in the little-endian order of files.
const WORDS: [u64; 10] = [
    0,
    1,
    u64::MAX,
    1 << 31,
    1 << 32,
    1 << 63,
    0x7ff8_0000_0000_0000,
    0x7ff0_0000_0000_0000,
    0x4330_0000_0000_0000,
    0xffff,
];

/// All edits of one field.
#[must_use]
pub fn single_edits(document: &Value) -> Vec<[u8; EDIT]> {
    let fields = fields(document).len() as u16;
    let all = (0..fields).flat_map(|field| {
        let [low, high] = field.to_le_bytes();
        (0..=values().len() as u8).map(move |value| [low, high, value])
    });
    all.collect()
}

/// The document after these edits, one after another.
#[must_use]
pub fn edited(document: &Value, edits: &[u8]) -> Value {
    let (mut document, values) = (document.clone(), values());
    for [low, high, value] in edits.as_chunks::<EDIT>().0 {
        let fields = fields(&document);
        let place = usize::from(u16::from_le_bytes([*low, *high])) % fields.len();
        let value = values.get(usize::from(*value) % (values.len() + 1));
        let Some(path) = fields.get(place) else {
            continue;
        };
        match (value, document.pointer_mut(path)) {
            (Some(value), Some(field)) => *field = value.clone(),
            (None, _) => removed(&mut document, path),
            _ => {}
        }
    }
    document
}

/// JSON pointers to all fields and, of each list, to its first two entries and its last.
fn fields(document: &Value) -> Vec<String> {
    let mut all = Vec::new();
    below(document, String::new(), &mut all);
    all
}

/// Adds the pointer `path` to `value` and those to what is in it. A good document is a few levels deep.
fn below(value: &Value, path: String, all: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                below(value, format!("{path}/{key}"), all);
            }
        }
        Value::Array(list) => {
            let mut some = vec![0, 1, list.len().saturating_sub(1)];
            some.dedup();
            for (index, value) in some.into_iter().filter_map(|index| Some((index, list.get(index)?))) {
                below(value, format!("{path}/{index}"), all);
            }
        }
        _ => {}
    }
    all.push(path);
}

fn removed(document: &mut Value, path: &str) {
    let Some((parent, name)) = path.rsplit_once('/') else {
        return;
    };
    match document.pointer_mut(parent) {
        Some(Value::Object(map)) => drop(map.remove(name)),
        Some(Value::Array(list)) => {
            if let Ok(index) = name.parse::<usize>()
                && index < list.len()
            {
                list.remove(index);
            }
        }
        _ => {}
    }
}

/// Manifests and their ring.
pub type Plans = (Vec<Value>, Arc<CkksParams>);

/// Good manifests: of a batch, of packed rows, of a decoder read at all rows, and of texts that share places.
///
/// # Panics
/// Never: the sizes are constants that tests build.
#[must_use]
pub fn plans() -> Plans {
    let (batch, params) = insecure_plan(5, 1, 3).unwrap_or_else(|e| panic!("constant sizes: {e}"));
    let canary =
        |numbers: usize| Canary { text: "hello".to_owned(), embedding: vec![0.5; numbers], least_cosine: 0.99 };
    let batch = FhePlan { canary: Some(canary(3)), lengths: Lengths::Bucket(2), ..batch };
    let mut packed = FhePlan { width: 4, lengths: Lengths::Private, canary: None, ..batch.clone() };
    packed.placement.columns = 2;
    let mut decoder = FhePlan {
        lengths: Lengths::Private,
        answer: Some(AnswerRows::Rows),
        real_rows: true,
        canary: Some(canary(6)),
        ..batch.clone()
    };
    decoder.reply.ciphertexts = 2;
    for plan in [&mut packed, &mut decoder] {
        plan.reply.deviation = reply_deviation(&params, plan.reply.magnitude);
    }
    let mut shared = FhePlan { lengths: Lengths::Public, canary: None, ..batch.clone() };
    shared.placement.per_place = 2;
    shared.reply.ciphertexts = 2;
    let plans = [batch, packed, decoder, shared];
    let value = |plan: &FhePlan| serde_json::to_value(plan).unwrap_or_default();
    (plans.iter().map(value).collect(), params)
}

/// Reads a good manifest of `seeds` after edits, and computes with it what a client and a server compute before they
/// make or read anything. The first byte chooses the manifest.
///
/// # Panics
/// If an accepted manifest is read back as another one.
pub fn plan((seeds, params): &Plans, data: &[u8]) {
    let Some((&which, edits)) = data.split_first() else {
        return;
    };
    let Some(seed) = seeds.get(usize::from(which) % seeds.len().max(1)) else {
        return;
    };
    let value = edited(seed, edits);
    // Another ring would only cost time.
    if value.get("parameters") != seed.get("parameters") {
        return;
    }
    let Ok(plan) = serde_json::from_value::<FhePlan>(value) else {
        return;
    };
    let Ok(bytes) = plan.to_json() else {
        return;
    };
    // Making the ring anew would take most of the time.
    let ring = |plan: &FhePlan| match plan.parameters_hash == hex(params.rlwe().hash()) {
        true => Ok(Arc::clone(params)),
        false => plan.params(),
    };
    let Ok((read, _)) = FhePlan::read(&bytes, ring) else {
        return;
    };
    assert_eq!(read, plan);
    used(&plan, params);
}

fn used(plan: &FhePlan, params: &Arc<CkksParams>) {
    let (texts, lengths) = (plan.texts(params), plan.declared_lengths(params));
    assert!(texts.is_ok_and(|texts| lengths.is_ok_and(|lengths| texts <= lengths)));
    let bits = plan.reply_bits(params);
    assert!(bits <= params.certified_bits());
    let specs = plan.key_specs(params);
    let bytes = specs.map(|specs| crate::files::keys::file_bytes(name(), params.rlwe(), &specs));
    assert!(bytes.is_ok());
    assert!(exchange::request_bytes(plan, params).is_ok() && plan.reply.scale().is_ok());
    assert!(exchange::reply_bytes(plan, params) > 0 && plan.request_ciphertexts() > 0);
    #[cfg(any(feature = "client", test))]
    packed(plan, params);
}

/// A batch of one text, packed for the manifest, as far as the encryption.
#[cfg(any(feature = "client", test))]
fn packed(plan: &FhePlan, params: &Arc<CkksParams>) {
    use crate::run::client::FheClient;
    use hushed_model::{Embedding, Matrix, Pool, TokenIds};

    const VOCABULARY: usize = 5;
    let numbers = vec![0.25; VOCABULARY * plan.width];
    let embedding = Embedding {
        vocabulary: VOCABULARY,
        positions: plan.rows,
        placed: false,
        width: plan.width,
        tokens: Matrix::new(VOCABULARY, plan.width, numbers).map(Arc::new),
        stored: None,
        offsets: None,
        typed: false,
        second: None,
    };
    let text = TokenIds::new(vec![1]);
    if let Ok(client) = FheClient::new(plan.clone(), params, embedding, None, Pool::Mean)
        && client.check_bound().is_ok()
        && let Ok(upload) = client.pack(std::slice::from_ref(&text), None)
    {
        let (sent, planned) = (upload.count(), plan.request_ciphertexts());
        assert_eq!(sent, planned);
        assert_eq!(upload.declared().len(), upload.lengths().len());
    }
}

/// The name that errors give to bytes.
fn name() -> &'static Path {
    Path::new("<fuzz>")
}

/// A small manifest, and its ring.
pub type Seed = (FhePlan, Arc<CkksParams>);

/// The manifest for [`head`].
///
/// # Panics
/// Never: the sizes are constants that tests build.
#[must_use]
pub fn seed() -> Seed {
    let (mut plan, params) = insecure_plan(4, 1, 4).unwrap_or_else(|e| panic!("constant sizes: {e}"));
    plan.placement.upload = 2;
    (plan, params)
}

/// The same, where two texts may share a place.
///
/// # Panics
/// As [`seed`].
#[must_use]
pub fn shared_seed() -> Seed {
    let (mut plan, params) = seed();
    plan.placement.per_place = 2;
    plan.reply.ciphertexts *= 2;
    (plan, params)
}

/// The heads of a request, a reply and a file of keys: words are replaced, and the digests fit. The first byte chooses
/// the file, each edit the place of a word and its value. Nothing follows the heads but zeros, as long as planned.
pub fn head((plan, params): &Seed, data: &[u8]) {
    let Some((&which, edits)) = data.split_first() else {
        return;
    };
    let rlwe = params.rlwe();
    let good = |kind: Kind, length: u64, head: &[u8]| {
        let mut bytes = Vec::new();
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        write_header(&mut bytes, kind, rlwe, length.saturating_sub(HEADER_BYTES));
        bytes.extend_from_slice(head);
        bytes
    };
    let ids = [&plan.hash()[..], &KEYS].concat();
    let lengths = plan.declared_lengths(params).unwrap_or_default();
    match which % 3 {
        0 => {
            let Ok(length) = exchange::request_bytes(plan, params) else {
                return;
            };
            let head = [&ids[..], &[0; exchange::REQUEST_ID], &vec![0; 2 * lengths]].concat();
            let head = words(good(Kind::FheRequest, length, &head), edits);
            let piece = SeededCiphertext::list_bytes(params, plan.placement.upload, 1);
            let bytes = sealed(&head, plan.request_ciphertexts(), piece);
            let source = (Cursor::new(&bytes), bytes.len() as u64);
            let read = RequestReader::begin(source, name(), plan, params, Some(&KEYS));
            if let Ok(mut read) = read {
                assert_eq!(read.head().lengths.len(), lengths);
                while let Ok(Some(ct)) = read.next_ciphertext() {
                    drop(ct.expand());
                }
            }
        }
        1 => {
            let length = exchange::reply_bytes(plan, params);
            let head = [&ids[..], &[0; exchange::REQUEST_ID], &[0; DIGEST]].concat();
            let head = words(good(Kind::FheReply, length, &head), edits);
            let piece = Ciphertext::list_bytes(params, plan.reply.limbs, 1);
            let bytes = sealed(&head, plan.reply.ciphertexts, piece);
            let source = (Cursor::new(&bytes), bytes.len() as u64);
            if let Ok((_, list)) = exchange::read_reply_from(source, name(), plan, params, &KEYS) {
                assert_eq!(list.len(), plan.reply.ciphertexts);
            }
        }
        _ => {
            let Ok(specs) = plan.key_specs(params) else {
                return;
            };
            let Ok(length) = crate::files::keys::file_bytes(name(), rlwe, &specs) else {
                return;
            };
            let public = vec![0; hushed_ckks::keys::PublicKey::stored_bytes(rlwe)];
            let mut bytes = words(good(Kind::FheKeys, length, &[&[0; 16][..], &public].concat()), edits);
            bytes.extend(<sha2::Sha256 as sha2::Digest>::digest(&bytes));
            // A list of as many keys as the edits say.
            let mut list = vec![0; HEADER_BYTES + 4];
            if let Some(count) = list.last_chunk_mut::<4>() {
                let word = edits.last().map_or(0, |&value| WORDS[usize::from(value) % WORDS.len()]);
                *count = (word as u32).to_le_bytes();
            }
            bytes.append(&mut list);
            bytes.resize(usize::try_from(length).unwrap_or_default().min(1 << 24), 0);
            drop(KeyReader::begin(Cursor::new(&bytes), name(), rlwe, &specs));
        }
    }
}

/// A reply that nothing was computed for: `value` in every slot, as a message without an encryption.
///
/// # Errors
/// Those of the encoder, and of writing the reply.
pub fn forged_reply((plan, params): &Seed, head: &exchange::ReplyHead, value: f64) -> Result<Vec<u8>, FheError> {
    let slots = vec![value; params.slots()];
    let (limbs, scale) = (plan.reply.limbs, plan.reply.scale()?);
    let plain = Encoder::new(params).encode_real(&slots, limbs, scale)?;
    let mut ct = Ciphertext::zero(params, limbs, scale)?;
    Evaluator::without_keys(params).add_plain_assign(&mut ct, &plain)?;
    let list = vec![ct; plan.reply.ciphertexts];
    let mut bytes = Vec::new();
    exchange::write_reply_to(&mut bytes, name(), plan, params, head, &list)?;
    Ok(bytes)
}

/// Keys that a request and a reply belong to.
const KEYS: [u8; DIGEST] = [7; DIGEST];

/// The bytes with words replaced: eight bytes, or only two, from an even place.
fn words(mut bytes: Vec<u8>, edits: &[u8]) -> Vec<u8> {
    for [low, high, value] in edits.as_chunks::<EDIT>().0 {
        let place = 2 * usize::from(u16::from_le_bytes([*low, *high])) % bytes.len().max(1);
        let word = WORDS[usize::from(*value) % WORDS.len()].to_le_bytes();
        let most = if *value < 128 { 8 } else { 2 };
        let places = bytes.iter_mut().skip(place).zip(word).take(most);
        places.for_each(|(byte, new)| *byte = new);
    }
    bytes
}

/// A file of this head and of `count` pieces of zeros, with their digests.
fn sealed(head: &[u8], count: usize, piece: usize) -> Vec<u8> {
    let (mut seal, mut bytes) = (Seal::new(), head.to_vec());
    bytes.extend(seal.next(head));
    let piece = vec![0; piece];
    for _ in 0..count {
        bytes.extend_from_slice(&piece);
        bytes.extend(seal.next(&piece));
    }
    bytes.extend(seal.name());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use hushed_math::rng::SecretRng;

    /// 0 rows in a manifest divided by zero, behind a hash that fitted. Every field is replaced by every value, then
    /// several at random.
    #[test]
    fn m2_no_edit_of_a_manifest_panics_its_reader() {
        let seeds = plans();
        let mut accepted = 0;
        for (which, seed) in seeds.0.iter().enumerate() {
            let whole: FhePlan = serde_json::from_value(seed.clone()).unwrap();
            FhePlan::from_json(&whole.to_json().unwrap()).unwrap();
            let edits = single_edits(seed);
            assert!(edits.len() > 500, "{}", edits.len());
            for edit in edits {
                accepted += usize::from(edited(seed, &edit) == *seed);
                plan(&seeds, &[&[which as u8], &edit[..]].concat());
            }
        }
        // Some edits change nothing: these were read to the end.
        assert!(accepted > 0);
        let mut rng = SecretRng::insecure_from_seed(49);
        for _ in 0..3_000 {
            let mut data = vec![0; 1 + EDIT * (2 + rng.next_u64() as usize % 3)];
            rng.fill_bytes(&mut data);
            plan(&seeds, &data);
        }
        for (rows, columns) in [(0u64, 1), (4, 0), (0, 0), (1u64 << 63, 2)] {
            let mut value = seeds.0[0].clone();
            value["rows"] = json!(rows);
            value["placement"]["columns"] = json!(columns);
            let plan: FhePlan = serde_json::from_value(value).unwrap();
            assert!(FhePlan::from_json(&plan.to_json().unwrap()).is_err());
        }
    }

    #[test]
    fn m2_no_edit_of_a_head_panics_its_reader() {
        let (seed, shared) = (seed(), shared_seed());
        let mut rng = SecretRng::insecure_from_seed(50);
        for (which, seed) in [(0, &seed), (1, &seed), (2, &seed), (0, &shared), (1, &shared)] {
            head(seed, &[which]);
            for place in 0..90u16 {
                for value in (0..WORDS.len() as u8).flat_map(|v| [v, 130 + v]) {
                    let [low, high] = place.to_le_bytes();
                    head(seed, &[which, low, high, value]);
                }
            }
            for _ in 0..1_000 {
                let mut data = vec![0; 1 + EDIT * 4];
                rng.fill_bytes(&mut data);
                data[0] = which;
                head(seed, &data);
            }
        }
    }
}
