//! Bodies of fuzz targets: plain functions that panic on a broken promise. Replayed by a test over mutations.

use crate::bundle::{self, Digest};
use crate::fhe::wire::{Ask, CHUNK, MAX_ASK, MAX_TOLD, PART, Told, frames};
use crate::token::Token;
use crate::wire::{Answer, Confirm, Hello, MAX_ANSWER, MAX_GREETING, Reply, Request};

/// Every control message, from the same bytes.
///
/// # Panics
/// When a message has two encodings, or one that is longer than its limit.
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
            Reply::Welcome(_) | Reply::Fhe(_) => same(reply.encode(), MAX_GREETING),
            // A refusal is read from any version and may carry numbers that its reason does not use.
            Reply::Refused(refusal) => assert!(refusal.to_string().len() < 300),
        }
    }
    if let Ok(confirm) = Confirm::decode(data) {
        same(confirm.encode(), crate::wire::CONFIRM_BYTES);
    }
    if let Ok(request) = Request::decode(data) {
        same(request.encode(), crate::wire::MAX_REQUEST);
    }
    if let Ok(answer) = Answer::decode(data) {
        assert!(answer.encode().len() <= MAX_ANSWER);
    }
    if let Ok(ask) = Ask::decode(data) {
        same(ask.encode(), MAX_ASK);
        if let Ask::Put { bytes, .. } = ask {
            assert!(bytes > 0 && u64::from(bytes) <= PART);
            assert_eq!(frames(bytes.into()).sum::<usize>() as u64, u64::from(bytes));
            assert!(frames(bytes.into()).all(|frame| (1..=CHUNK).contains(&frame)));
        }
    }
    if let Ok(told) = Told::decode(data) {
        assert!(told.encode().len() <= MAX_TOLD);
        if !matches!(told, Told::Refused(_)) {
            same(told.encode(), MAX_TOLD);
        }
    }
    if let Some(token) = Token::from_bytes(data) {
        assert!(token.as_bytes() == data);
    }
}

/// A bundle's frame; what its files say is the model's to check.
///
/// # Panics
/// When the files are not exactly the bytes.
pub fn bundle(data: &[u8]) {
    let plan = match data.get(8..24) {
        Some(half) => {
            let mut plan = [0; 32];
            plan.iter_mut().zip(half).for_each(|(to, from)| *to = *from);
            Digest(plan)
        }
        None => Digest::ZERO,
    };
    if let Ok(files) = bundle::decode(data, &plan) {
        let bytes: usize = files.iter().map(|(name, f)| 5 + name.len() + f.len()).sum();
        assert_eq!(bytes + 32, data.len());
        assert!(files.is_sorted_by(|a, b| a.0 < b.0));
    }
}
