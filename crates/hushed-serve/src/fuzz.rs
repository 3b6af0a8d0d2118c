//! Bodies of fuzz targets: plain functions that panic on a broken promise. A test replays them over mutations.

use crate::bundle;
use crate::digest::Digest;
use crate::fhe::wire::{self, CHUNK, PART, frames};
use crate::session::token::Token;
use crate::session::token::list::{Accepted, MIN_TOKEN_BYTES};
use crate::session::wire::{Confirm, Hello, MAX_GREETING, Reply};
use crate::twopc::wire::{Answer, MAX_ANSWER, MAX_REQUEST, Request};

/// Decodes the same bytes as every control message.
///
/// # Panics
/// If a message has two encodings, or one longer than its limit.
pub fn control(data: &[u8]) {
    let same = |encoded: Vec<u8>, limit: usize| {
        assert!(encoded == data, "a message has two encodings");
        assert!(encoded.len() <= limit, "a message is longer than its limit");
    };
    if let Ok(hello) = Hello::decode(data) {
        same(hello.encode(), MAX_GREETING);
    }
    if let Ok(reply) = Reply::decode(data) {
        match reply {
            Reply::Welcome(_) | Reply::Fhe(_) | Reply::Waiting(_) => same(reply.encode(), MAX_GREETING),
            // A refusal is read from any version and may carry numbers that its reason does not use.
            Reply::Refused(refusal) => assert!(refusal.to_string().len() < 300),
        }
    }
    if let Ok(confirm) = Confirm::decode(data) {
        same(confirm.encode(), crate::session::wire::CONFIRM_BYTES);
    }
    if let Ok(request) = Request::decode(data) {
        same(request.encode(), MAX_REQUEST);
    }
    if let Ok(answer) = Answer::decode(data) {
        assert!(answer.encode().len() <= MAX_ANSWER);
    }
    if let Ok(request) = wire::Request::decode(data) {
        same(request.encode(), wire::MAX_REQUEST);
        if let wire::Request::Put { bytes, .. } = request {
            assert!(bytes > 0 && u64::from(bytes) <= PART);
            assert_eq!(frames(bytes.into()).sum::<usize>() as u64, u64::from(bytes));
            assert!(frames(bytes.into()).all(|frame| (1..=CHUNK).contains(&frame)));
        }
    }
    if let Ok(response) = wire::Response::decode(data) {
        assert!(response.encode().len() <= wire::MAX_RESPONSE);
        if !matches!(response, wire::Response::Refused(_)) {
            same(response.encode(), wire::MAX_RESPONSE);
        }
    }
    if let Some(token) = Token::from_bytes(data) {
        assert!(token.as_bytes() == data);
    }
}

/// Decodes the frame of a bundle; its files are for the model crate to check.
///
/// # Panics
/// If the files are not exactly the bytes.
pub fn bundle(data: &[u8]) {
    let agreement = match data.get(8..24) {
        Some(half) => {
            let mut agreement = [0; 32];
            agreement.iter_mut().zip(half).for_each(|(to, from)| *to = *from);
            Digest(agreement)
        }
        None => Digest::ZERO,
    };
    if let Ok(files) = bundle::decode(data, &agreement) {
        let bytes: usize = files.iter().map(|(name, f)| 5 + name.len() + f.len()).sum();
        assert_eq!(bytes + 32, data.len());
        assert!(files.is_sorted_by(|a, b| a.0 < b.0));
    }
}

/// Reads a public model of `fhe` whose sizes are edited and whose hashes fit: whoever offers a model also makes its
/// hashes. Of each three bytes of `data`, two choose a field of the bundle's `config.json`, or the length of the
/// bundle, the first norm's ε or the bytes that follow; the third chooses the new value.
///
/// # Panics
/// If the numbers of an accepted model are not as many as its configuration says.
pub fn public(bundle: &[u8], data: &[u8]) {
    const VALUES: [u64; 8] = [0, 1, 2, 1 << 31, (1 << 32) - 1, 1 << 62, 1 << 63, u64::MAX];
    let Ok(mut files) = bundle::decode_files(bundle) else {
        return;
    };
    let config = files.iter_mut().find(|(name, _)| name == "config.json");
    let Some((_, config)) = config else {
        return;
    };
    let mut fields: serde_json::Map<_, _> = serde_json::from_slice(config).unwrap_or_default();
    let (mut length, mut epsilon, mut numbers) = (None, 1e-12f64.to_bits(), 64);
    for edit in data.as_chunks::<3>().0 {
        let place = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % (fields.len() + 3);
        let value = VALUES.get(usize::from(edit[2])).copied();
        let value = value.unwrap_or(u64::from(edit[2]) << 52);
        match place.checked_sub(3).and_then(|field| fields.values_mut().nth(field)) {
            Some(field) => *field = value.into(),
            None if place == 0 => length = Some(value as u32),
            None if place == 1 => epsilon = value,
            None => numbers = value.min(1 << 16) as usize,
        }
    }
    *config = serde_json::to_vec(&fields).unwrap_or_default();
    let bundle = bundle::of_files(&Digest::ZERO, files.iter().map(|(n, f)| (n.as_str(), &f[..])));
    let length = length.unwrap_or(bundle.len() as u32).to_le_bytes();
    let epsilon = epsilon.to_le_bytes();
    let payload = [&length[..], &bundle, &epsilon, &vec![0; numbers]].concat();
    let bytes = crate::fhe::public::sealed(&bundle::hash(&bundle), payload);
    let hash = bundle::hash(&bytes).to_string();
    let read = crate::fhe::PublicModel::from_bytes(bytes, std::path::Path::new("<fuzz>"), &hash);
    if let Ok(model) = read {
        let (table, config) = (model.embedding(), &model.public().config);
        let found = table.tokens.as_ref().map(|t| (t.rows(), t.cols()));
        assert_eq!(found, Some((config.vocabulary, config.width)));
    }
}

/// Parses a server's token file.
///
/// # Panics
/// If an empty or comment line counts as a token, another line is skipped, or a listed token is refused or too short.
pub fn tokens(data: &[u8]) {
    let lines = || data.split(|b| *b == b'\n').map(<[u8]>::trim_ascii);
    let telling = |line: &&[u8]| !line.is_empty() && !line.starts_with(b"#");
    match Accepted::parse(data) {
        Ok(accepted) => {
            assert_eq!(accepted.len(), lines().filter(telling).count());
            for line in lines().filter(telling) {
                let token = Token::from_bytes(line).filter(|_| !line.starts_with(b"sha256:"));
                if let Some(token) = token {
                    assert!(accepted.contains(&token) && line.len() >= MIN_TOKEN_BYTES);
                }
            }
        }
        Err(line) => assert!((1..=lines().count()).contains(&line)),
    }
}

/// Receives a public table in one chunk. It must have the length that the sizes imply, the offered hash, and values in
/// range.
///
/// # Panics
/// If a chunk is accepted that has another length or is not as offered.
#[cfg(feature = "client")]
pub fn table(data: &[u8]) {
    use crate::error::ServeError;
    use crate::twopc::{table, wire};
    use hushed_model::Embedding;
    use hushed_mpc::formats::TABLE_BITS;

    let sizes = Embedding {
        vocabulary: 4,
        positions: 1,
        placed: true,
        width: 3,
        tokens: None,
        stored: None,
        offsets: None,
        typed: true,
        second: None,
    };
    let whole = 4 * 5 * sizes.width;
    let honest = table::of_bytes(&sizes, data);
    for offered in [honest, Digest::ZERO] {
        let (mut client, mut server) = hushed_net::memory_pair();
        let sent = server.send(wire::TABLE, data);
        drop(server);
        match (sent, table::receive(&mut client, &sizes, offered)) {
            (Ok(()), Ok(bytes)) => {
                assert!(bytes == data && data.len() == whole && offered == honest);
                let words = bytes.as_chunks::<4>().0.iter();
                let mut sizes_of = words.map(|w| i32::from_le_bytes(*w).unsigned_abs());
                let within = sizes_of.all(|size| size <= 1 << TABLE_BITS);
                assert_eq!(table::decode(&sizes, &bytes).is_ok(), within);
            }
            (Ok(()), Err(ServeError::TableNotAsOffered { .. })) => {
                assert!(data.len() == whole && offered != honest);
            }
            _ => assert_ne!(data.len(), whole),
        }
    }
}
