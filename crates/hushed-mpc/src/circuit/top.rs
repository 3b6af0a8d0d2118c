//! The places of the largest numbers of shared rows, opened to the client one after another.
//!
//! The largest is found by a tournament ([`Shares::largest`]) and its place opened to the client, which then lowers its
//! own share there, so that the next tournament finds the second. The server sees the same messages whichever won.

use hushed_model::StepId;
use hushed_net::Party;
use hushed_twopc::share::Ring;

use crate::RunError;
use crate::shares::{Local, Shares};

/// The places of the `top` largest numbers of each row, from the largest, at the client; of equal ones any may come
/// first. Numbers of a row differ by less than half of their ring. `site` names each search in costs.
pub(crate) fn open_top<S: Shares>(
    on: &mut S,
    x: &S::Share,
    (rows, columns): (usize, usize),
    top: usize,
    site: &'static str,
) -> Result<Option<Vec<Vec<u32>>>, RunError> {
    let ring = Ring::new((usize::BITS - columns.saturating_sub(1).leading_zeros()).max(1));
    // More than two numbers of a row differ by, so that a place once found does not win against one that has not been,
    // and as much as the ring can tell from a number below.
    let lowered = -(1i64 << (x.ring().bits() - 1)) + 1;
    let (mut x, mut found) = (x.clone(), Some(vec![Vec::with_capacity(top); rows]));
    // A place that no column has ends the run after its last message, so that its time shows less to a server that
    // provoked it.
    let mut fault = None;
    for rank in 0..top {
        let words = on.step(StepId::outside(site), |on| {
            let places = on.largest(&x, rows, columns)?.reduce_to(ring);
            on.open(&places, 0, ring)
        })?;
        let places = words.map(|words| {
            let known = |place| match known_place(place, columns) {
                Ok(place) => place,
                Err(wrong) => {
                    fault.get_or_insert(wrong);
                    0
                }
            };
            words.into_iter().map(known).collect::<Vec<u32>>()
        });
        if rank + 1 < top {
            let known = on.known(Party::Client, rows * columns, || {
                let mut all = vec![0; rows * columns];
                let places = places.iter().flatten();
                for (row, &place) in all.chunks_exact_mut(columns.max(1)).zip(places) {
                    row.iter_mut()
                        .skip(place as usize)
                        .take(1)
                        .for_each(|at| *at = lowered);
                }
                all
            });
            x = on.add_known(&x, &known);
        }
        found = found.zip(places).map(|(mut found, places)| {
            found
                .iter_mut()
                .zip(places)
                .for_each(|(row, p)| row.push(p));
            found
        });
    }
    fault.map_or(Ok(found), Err)
}

/// A place that has been opened, if it is one of `places`.
fn known_place(place: u64, places: usize) -> Result<u32, RunError> {
    match usize::try_from(place) {
        Ok(p) if p < places => Ok(p as u32),
        _ => Err(RunError::NoSuchPlace { place, places }),
    }
}

#[cfg(test)]
mod tests {
    use hushed_math::rng::SecretRng;
    use hushed_twopc::testing::share_signed;

    use super::*;
    use crate::formats::{COSINE, LOGIT};
    use crate::testing::run_pair;

    /// All places of rows by falling numbers, as far apart as the rings take, equal ones included: each comes once.
    #[test]
    fn places_come_in_the_order_of_their_numbers() {
        let mut rng = SecretRng::insecure_from_seed(11);
        for ring in [LOGIT.ring, COSINE.ring] {
            let (rows, columns, largest) = (3, 9, (1i64 << (ring.bits() - 2)) - 1);
            let random = |rng: &mut SecretRng| {
                let word = (rng.next_u64() >> 1) as i64;
                word % (2 * largest + 1) - largest
            };
            let mut x: Vec<i64> = (0..rows * columns).map(|_| random(&mut rng)).collect();
            x[..columns].fill(7);
            (x[columns], x[columns + 1], x[columns + 2]) = (-largest, largest, largest);
            let (x0, x1) = share_signed(ring, &x, 5);
            let top = |party: &mut crate::Protocol, x| {
                open_top(party, x, (rows, columns), columns, "nearest").unwrap()
            };
            let (client, server) = run_pair(|party| top(party, &x0), |party| top(party, &x1));
            assert!(server.is_none());
            for (row, places) in x.chunks(columns).zip(client.unwrap()) {
                let mut expected = row.to_vec();
                expected.sort_by(|a, b| b.cmp(a));
                let found: Vec<i64> = places.iter().map(|&p| row[p as usize]).collect();
                assert_eq!(found, expected);
                let mut all = places;
                all.sort_unstable();
                assert!(all.into_iter().eq(0..columns as u32));
            }
        }
    }

    #[test]
    fn a_place_beyond_the_row_is_an_error() {
        assert_eq!(known_place(8, 9).unwrap(), 8);
        let beyond = known_place(9, 9).err();
        assert!(matches!(
            beyond,
            Some(RunError::NoSuchPlace {
                place: 9,
                places: 9
            })
        ));
    }
}
