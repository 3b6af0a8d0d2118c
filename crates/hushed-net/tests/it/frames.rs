//! The frame decoder against every kind of damage.

use hushed_net::frame::{HEADER_BYTES, Header, MAX_PAYLOAD};
use hushed_net::{Kind, fuzz};

/// Small streams of frames to be damaged.
fn corpus() -> Vec<Vec<u8>> {
    let step = |step, payload: &[u8]| {
        [&Header::Step { kind: Kind(7), step, length: payload.len() as u64 }.encode()[..], payload].concat()
    };
    let long = vec![0x5a; 3000];
    vec![
        vec![],
        Header::Heartbeat.encode().to_vec(),
        Header::Abort { code: 9 }.encode().to_vec(),
        step(0, b""),
        step(0, b"hello"),
        [
            step(0, &long),
            Header::Heartbeat.encode().to_vec(),
            step(1, b"x"),
            Header::Abort { code: 1 }.encode().to_vec(),
        ]
        .concat(),
        Header::Step { kind: Kind(u16::MAX), step: u32::MAX, length: MAX_PAYLOAD }.encode().to_vec(),
    ]
}

/// xorshift64*: good enough to choose damage, and the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below.max(1)
    }
}

fn damage(data: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    const TELLING: [u8; 8] = [0, 1, 2, 3, 0x7f, 0x80, 0xfe, 0xff];
    let at = dice.roll(data.len());
    match dice.roll(6) {
        0 => data.truncate(at),
        1 => data.insert(at, TELLING[dice.roll(8)]),
        2 => data.extend_from_slice(other),
        3 => {
            let upto = at + dice.roll(data.len() - at);
            data.drain(at..upto);
        }
        4 => data.iter_mut().skip(at).take(8).for_each(|byte| *byte = TELLING[dice.roll(8)]),
        _ => data.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << dice.roll(8)),
    }
}

#[test]
fn ten_thousand_mutations_break_no_promise() {
    let corpus = corpus();
    corpus.iter().for_each(|data| fuzz::frame(data));
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for _ in 0..10_000 {
        let mut data = corpus[dice.roll(corpus.len())].clone();
        for _ in 0..=dice.roll(4) {
            let other = &corpus[dice.roll(corpus.len())];
            damage(&mut data, other, &mut dice);
        }
        fuzz::frame(&data);
    }
}

#[test]
fn every_single_byte_of_a_header_is_checked_or_kept() {
    for header in [Header::Heartbeat, Header::Abort { code: 3 }, Header::Step { kind: Kind(1), step: 2, length: 3 }] {
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Ok(header));
        for at in 0..HEADER_BYTES {
            for value in 0..=255 {
                let mut changed = bytes;
                changed[at] = value;
                if let Ok(decoded) = Header::decode(&changed) {
                    assert_eq!(decoded.encode(), changed);
                }
            }
        }
    }
}

#[test]
fn headers_are_as_documented() {
    let header = Header::Step { kind: Kind(0x0102), step: 0x0304_0506, length: 0x0708_090a };
    assert_eq!(header.encode(), *b"HSHD\x01\x00\x02\x01\x06\x05\x04\x03\x0a\x09\x08\x07\0\0\0\0");
}
