//! Look-up in a table of sixteen entries, one party's index in the other's table.
//!
//! The holder's entries can differ from element to element (they usually depend on its share of the index). See
//! [`crate::ot::one_of_n`] for the protocol: 4 OTs, 4 bits from the chooser, then 15 masked entries from the holder.

use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_most, expect_len};
use crate::ot::one_of_n::{self, Batch};
use crate::share::{Ring, Share};
use hushed_math::taint;
use hushed_net::Party;

/// This party's part in [`table_16`].
#[derive(Clone, Copy)]
pub enum Table<'a> {
    /// The party with the indices, 0 to 15 each.
    Chooser {
        /// One index an element.
        index: &'a [u8],
    },
    /// The party with the tables.
    Holder {
        /// Sixteen entries an element.
        entries: &'a [u64],
    },
}

/// Cost of [`table_16`] for `n` look-ups with `chooser` choosing.
pub fn table_16_cost(n: usize, chooser: Party, ring: Ring) -> Cost {
    match chooser {
        Party::Client => tables_16_cost(n, 0, ring),
        Party::Server => tables_16_cost(0, n, ring),
    }
}

/// Cost of [`tables_16`], in so many of which the client chooses, and in so many the server.
pub fn tables_16_cost(by_client: usize, by_server: usize, ring: Ring) -> Cost {
    one_of_n::cost(by_client, by_server, ring)
}

/// As [`table_16`] in both directions at once: this party's shares where its `index` chooses, and where it holds the
/// `entries`, sixteen an element.
///
/// # Errors
/// [`TwopcError::Misuse`] for an index above 15, or another number of entries.
pub fn tables_16(
    ctx: &mut Ctx,
    index: &[u8],
    entries: &[u64],
    ring: Ring,
) -> Result<[Share; 2], TwopcError> {
    let n = entries.len() / 16;
    expect_len("table_16", "entries", entries.len(), 16 * n)?;
    // The high bits of all at once, so that the check tells no index apart: that they are zero is no secret.
    let high = taint::opened(index.iter().fold(0, |all, i| all | i) & !15);
    expect_at_most("table_16", "index", high.into(), 15)?;
    let batch = |n| Batch { n, bits: 4, ring };
    let (own, theirs) = ((batch(index.len()), index), (batch(n), None));
    let table = |i: usize, row: &mut [u64]| row.copy_from_slice(&entries[16 * i..][..16]);
    let (chosen, held) = one_of_n::both(ctx, own, theirs, table)?;
    Ok([chosen, held.into_words()].map(|words| Share::new(ring, words)))
}

/// Shares of entries\[i\]\[index_i\] mod 2^ℓ (`ring`) for `n` elements.
///
/// # Errors
/// [`TwopcError::Misuse`] unless there are `n` indices of 0 to 15, or 16·`n` entries.
pub fn table_16(ctx: &mut Ctx, role: Table<'_>, ring: Ring, n: usize) -> Result<Share, TwopcError> {
    match role {
        Table::Chooser { index } => {
            expect_len("table_16", "indices", index.len(), n)?;
            let [chosen, _] = tables_16(ctx, index, &[], ring)?;
            Ok(chosen)
        }
        Table::Holder { entries } => {
            expect_len("table_16", "entries", entries.len(), 16 * n)?;
            let [_, held] = tables_16(ctx, &[], entries, ring)?;
            Ok(held)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal, run_counted};
    use hushed_math::rng::SecretRng;

    #[test]
    fn entries_are_found_in_both_roles() {
        for (n, bits) in [(0, 8), (1, 64), (16, 5), (70, 32), (1000, 18)] {
            let ring = Ring::new(bits);
            let mut rng = SecretRng::insecure_from_seed(n as u64);
            let entries: Vec<u64> = (0..16 * n).map(|_| rng.next_u64()).collect();
            let index: Vec<u8> = (0..n).map(|i| (i % 16) as u8).collect();
            let holder = Table::Holder { entries: &entries };
            let chooser = Table::Chooser { index: &index };
            let want = (0..n).map(|i| ring.reduce(entries[16 * i + usize::from(index[i])]));
            let want: Vec<u64> = want.collect();
            for (client, server, who) in [
                (chooser, holder, Party::Client),
                (holder, chooser, Party::Server),
            ] {
                let (y0, y1, stats) = run_counted(
                    |ctx| table_16(ctx, client, ring, n).unwrap(),
                    |ctx| table_16(ctx, server, ring, n).unwrap(),
                );
                assert_cost(&stats, table_16_cost(n, who, ring));
                assert_eq!(reveal(&y0, &y1), want, "{n} {bits}");
            }
        }
    }

    #[test]
    fn both_choose_at_once() {
        for (by_client, by_server) in [(0, 0), (5, 0), (0, 7), (64, 1), (70, 130)] {
            let ring = Ring::new(29);
            let mut rng = SecretRng::insecure_from_seed(9);
            let mut tables =
                |n: usize| -> Vec<u64> { (0..16 * n).map(|_| rng.next_u64()).collect() };
            let (of_server, of_client) = (tables(by_client), tables(by_server));
            let index = |n: usize| -> Vec<u8> { (0..n).map(|i| (5 * i % 16) as u8).collect() };
            let [client, server] = [by_client, by_server].map(index);
            let ([a0, b0], [b1, a1], stats) = run_counted(
                |ctx| tables_16(ctx, &client, &of_client, ring).unwrap(),
                |ctx| tables_16(ctx, &server, &of_server, ring).unwrap(),
            );
            assert_cost(&stats, tables_16_cost(by_client, by_server, ring));
            let want = |index: &[u8], entries: &[u64]| -> Vec<u64> {
                let of = |(i, &at): (usize, &u8)| ring.reduce(entries[16 * i + usize::from(at)]);
                index.iter().enumerate().map(of).collect()
            };
            assert_eq!(reveal(&a0, &a1), want(&client, &of_server));
            assert_eq!(reveal(&b0, &b1), want(&server, &of_client));
        }
    }

    #[test]
    fn roles_are_checked() {
        run_counted(
            |ctx| {
                let ring = Ring::new(8);
                let index = Table::Chooser { index: &[16] };
                assert!(table_16(ctx, index, ring, 1).is_err());
                assert!(table_16(ctx, Table::Chooser { index: &[1] }, ring, 2).is_err());
                let entries = Table::Holder { entries: &[0; 15] };
                assert!(table_16(ctx, entries, ring, 1).is_err());
                assert!(tables_16(ctx, &[16], &[], ring).is_err());
                assert!(tables_16(ctx, &[], &[0; 15], ring).is_err());
            },
            |_| (),
        );
    }
}
