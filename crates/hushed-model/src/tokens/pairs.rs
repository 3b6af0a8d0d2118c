//! Two texts as one input of a classifier: where the post-processor puts them and the special tokens, and which rows
//! have token type 1.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use serde_json::{Map, Value};

use super::parts::{chain, part_type};
use super::pipeline::is_byte_level;

/// The parts of a pair, in order.
#[derive(Clone)]
pub(super) struct PairTemplate {
    parts: Vec<Part>,
    /// The first part whose rows have token type 1; all later ones have it too.
    second: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Special(u32),
    First,
    Second,
}

impl PairTemplate {
    /// Reads the post-processor, with the id of a special token by its name. `None` for a template that does not have
    /// each text once, in order, or has rows of type 0 after some of type 1.
    pub(super) fn parse(object: &Map<String, Value>, id: impl Fn(&str) -> Option<u32>) -> Option<PairTemplate> {
        let mut posts = chain(object.get("post_processor"), "processors").filter(|part| !is_byte_level(part));
        let post = posts.next().filter(|_| posts.next().is_none())?;
        let token = |field: &str| id(post.get(field)?.get(0)?.as_str()?).map(Part::Special);
        let (parts, second) = match part_type(Some(post))? {
            "BertProcessing" => (vec![token("cls")?, Part::First, token("sep")?, Part::Second, token("sep")?], 3),
            "RobertaProcessing" => {
                let [first, last] = [token("cls")?, token("sep")?];
                (vec![first, Part::First, last, last, Part::Second, last], 6)
            }
            "TemplateProcessing" => {
                let listed = post.get("pair")?.as_array()?.iter();
                let (parts, types): (Vec<Part>, Vec<u64>) =
                    listed.map(|piece| part(piece, &id)).collect::<Option<Vec<_>>>()?.into_iter().unzip();
                let second = types.iter().take_while(|kind| **kind == 0).count();
                types.iter().skip(second).all(|kind| *kind == 1).then_some((parts, second))?
            }
            _ => return None,
        };
        let texts: Vec<&Part> = parts.iter().filter(|part| !matches!(part, Part::Special(_))).collect();
        (texts == [&Part::First, &Part::Second]).then_some(PairTemplate { parts, second })
    }

    /// The number of special tokens.
    pub(super) fn specials(&self) -> usize {
        self.parts.len() - 2
    }

    /// The ids of two texts as one input, and the first row of token type 1, if there is one.
    pub(super) fn filled(&self, [first, second]: [&[u32]; 2]) -> (Vec<u32>, Option<usize>) {
        let (mut ids, mut begins) = (Vec::new(), None);
        for (place, part) in self.parts.iter().enumerate() {
            if place == self.second {
                begins = Some(ids.len());
            }
            match part {
                Part::Special(id) => ids.push(*id),
                Part::First => ids.extend_from_slice(first),
                Part::Second => ids.extend_from_slice(second),
            }
        }
        (ids, begins)
    }
}

/// A piece of a template and its token type.
fn part(piece: &Value, id: impl Fn(&str) -> Option<u32>) -> Option<(Part, u64)> {
    let (part, fields) = match (piece.get("SpecialToken"), piece.get("Sequence")) {
        (Some(token), None) => (Part::Special(id(token.get("id")?.as_str()?)?), token),
        (None, Some(text)) => match text.get("id")?.as_str()? {
            "A" => (Part::First, text),
            "B" => (Part::Second, text),
            _ => return None,
        },
        _ => return None,
    };
    Some((part, fields.get("type_id")?.as_u64()?))
}

/// The ranges that remain of two texts of these many tokens when they have room for `room`: the longer one is cut
/// first, as the `tokenizers` library does by `longest_first`; on the left side if `left` says so.
pub(super) fn kept(texts: [&[u32]; 2], room: usize, left: bool) -> [&[u32]; 2] {
    let lengths = texts.map(<[u32]>::len);
    if lengths[0] + lengths[1] <= room {
        return texts;
    }
    let shorter = lengths[0].min(lengths[1]).min(room / 2);
    let longer = room - shorter;
    let room = if lengths[0] > lengths[1] { [longer, shorter] } else { [shorter, longer] };
    let [first, second] = texts;
    [cut(first, room[0], left), cut(second, room[1], left)]
}

/// The first or last `room` tokens.
fn cut(text: &[u32], room: usize, left: bool) -> &[u32] {
    let kept = if left { text.get(text.len().saturating_sub(room)..) } else { text.get(..room) };
    kept.unwrap_or(text)
}
