//! From scores to weights: softmax without its division, or a sigmoid of each score.
//!
//! Only the scores that the mask lets a row see are weighed; only the client knows which keys are padding. The bias of
//! a sigmoid is public, and one party adds it.

use std::ops::Range;

use hushed_model::{Attention, Mask, Queries, Weigh};
use hushed_net::Party;
use hushed_twopc::func::sigmoid;

use crate::RunError;
use crate::circuit::cache::Past;
use crate::circuit::groups::{Asking, Group};
use crate::circuit::input::Padding;
use crate::circuit::scores::Scores;
use crate::shares::{Local, Shares};

/// The weights of scores. Keys hidden by the mask are left out and get no weight. With `padding`, keys that the client
/// knows to be padding get none either: it adds [`Scores::masked`] to their scores.
pub fn weigh<S: Shares>(
    on: &mut S,
    scores: &[S::Share],
    past: &Past<S::Share>,
    rows: &Asking<'_>,
    a: &Attention,
    padding: Option<Padding>,
) -> Result<Vec<S::Share>, RunError> {
    let (heads, mask, how) = (a.heads, a.mask, Scores::of(a.weigh));
    let weights = |(s, (group, asking)): (&S::Share, (Group, Group))| {
        let public = past.prefix().rows();
        let (m, n) = (asking.rows, public + past.before(&group).rows);
        let matrices = group.texts.len() * heads.count;
        let seen = Seen { rows: m, keys: n, mask };
        let mut s = seen.of(s, matrices);
        if let Some(padding) = padding {
            let behind = padding != Padding::InFront;
            let masked = || {
                let one = masked(past, &group, (rows.queries, behind), how.masked());
                let one = one.into_iter().map(|text| seen.places(1).map(|p| text[p]).collect());
                one.flat_map(|text: Vec<i64>| text.repeat(heads.count)).collect()
            };
            let masked = on.known(Party::Client, s.elements(), masked);
            s = on.add_known(&s, &masked);
        }
        let e = match a.weigh {
            Weigh::Softmax => {
                let to = past.sums().weighed;
                on.exponentials(&s, &seen.widths().repeat(matrices), to)?
            }
            Weigh::Sigmoid { bias } => {
                let (bias, count) = (how.format.signed(sigmoid::KAPPA * bias), s.elements());
                let bias = on.known(Party::Client, count, || vec![bias; count]);
                let s = on.add_known(&s, &bias);
                on.sigmoids(&s, past.sums().standing)?
            }
        };
        Ok(seen.spread(on, e, matrices))
    };
    scores.iter().zip(rows.groups()).map(weights).collect()
}

/// The keys that the last `rows` of `keys` rows see through the mask, which is public. A single row without others
/// before it sees all: it is the last one of a text, or there is no mask.
struct Seen {
    rows: usize,
    keys: usize,
    mask: Mask,
}

impl Seen {
    /// The keys that each row sees.
    fn each(&self) -> impl Iterator<Item = Range<usize>> {
        let (mask, keys) = (self.mask, self.keys);
        (keys - self.rows..keys).map(move |row| mask.keys(row, keys))
    }

    /// How many keys each row sees.
    fn widths(&self) -> Vec<usize> {
        self.each().map(|seen| seen.len()).collect()
    }

    /// Whether every row sees every key.
    fn all(&self) -> bool {
        self.each().all(|seen| seen.len() == self.keys)
    }

    /// The places of these keys in this many matrices of rows × keys.
    fn places(&self, matrices: usize) -> impl Iterator<Item = usize> {
        let all: Vec<Range<usize>> = self.each().collect();
        let (rows, keys) = ((0..matrices).flat_map(move |_| all.clone()).enumerate(), self.keys);
        rows.flat_map(move |(row, seen)| row * keys + seen.start..row * keys + seen.end)
    }

    /// Gathers the elements at these places.
    fn of<S: Local>(&self, x: &S, matrices: usize) -> S {
        let count = matrices * self.widths().iter().sum::<usize>();
        match self.all() {
            true => x.clone(),
            false => x.gather(count, || self.places(matrices).collect()),
        }
    }

    /// Restores whole matrices, with zeros elsewhere.
    fn spread<S: Shares>(&self, on: &S, x: S::Share, matrices: usize) -> S::Share {
        if self.all() {
            return x;
        }
        let (ring, count) = (x.ring(), x.elements());
        let nothing = on.known(Party::Server, 1, || vec![0]);
        let with_zero = S::Share::concat(ring, &[x, on.shared(&nothing, ring)]);
        let all = matrices * self.rows * self.keys;
        with_zero.gather(all, || {
            let mut places = vec![count; all];
            for (from, to) in self.places(matrices).enumerate() {
                places[to] = from;
            }
            places
        })
    }
}

/// For each text of a group, `masked` at the keys that are padding to a row, 0 elsewhere. Which keys these are is the
/// client's secret: it adds these numbers to its own share.
fn masked<S: Local>(past: &Past<S>, group: &Group, (queries, behind): (Queries, bool), masked: i64) -> Vec<Vec<i64>> {
    let public = past.prefix().rows();
    let before = past.before(group).rows - group.rows;
    let text = |real: usize| {
        let hidden = |row: usize, key: usize| {
            let in_front = before..before + group.rows - real;
            let padding = match behind {
                true => key >= before + real,
                false => in_front.contains(&key),
            };
            // A row of padding in front of the text sees itself, as a first token does: with nothing to see, its values
            // would be ones that no calibration has measured.
            let own = !behind && key == before + row && in_front.contains(&key);
            (padding || past.is_padding(key)) && !own
        };
        let row = |row: usize| {
            let private = (0..before + group.rows).map(move |key| hidden(row, key));
            std::iter::repeat_n(false, public).chain(private)
        };
        let asking = match queries {
            Queries::All => 0..group.rows,
            Queries::First => 0..1,
            Queries::Last if behind => real - 1..real,
            Queries::Last => group.rows - 1..group.rows,
        };
        let all = asking.flat_map(row);
        all.map(|hidden| i64::from(hidden) * masked).collect()
    };
    group.texts.iter().map(|t| text(t.real)).collect()
}
