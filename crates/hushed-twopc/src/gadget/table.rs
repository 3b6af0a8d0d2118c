//! Look-ups with one party's index in the other party's table of up to sixteen entries, in both directions at once.
//!
//! The holder's entries can differ from element to element (they usually depend on its share of the index). The
//! protocol is in [`crate::ot::one_of_n`]: for 2^b entries it takes b OTs, b bits from the chooser, then 2^b − 1 masked
//! entries from the holder.

use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_least, expect_at_most};
use crate::ot::one_of_n::{self, Batch};
use crate::share::{Ring, Share};
use hushed_math::taint;

/// Cost of [`tables`]: `by_client` look-ups in which the client chooses, and `by_server` in which the server does.
pub fn tables_cost(bits: u32, by_client: usize, by_server: usize, ring: Ring) -> Cost {
    one_of_n::cost(bits, by_client, by_server, ring)
}

/// Shares mod 2^ℓ (`ring`) of entry index_i of table i, for tables of 2^`bits` entries. First those where this party
/// chooses with `index`, then those of the `held` tables that it holds and that `table` writes one by one.
///
/// # Errors
/// [`TwopcError::Misuse`] unless 1 ≤ `bits` ≤ 4, or if an index is beyond its table.
pub fn tables(
    ctx: &mut Ctx,
    bits: u32,
    index: &[u8],
    (held, table): (usize, impl Fn(usize, &mut [u64])),
    ring: Ring,
) -> Result<[Share; 2], TwopcError> {
    let name = "tables";
    expect_at_least(name, "bits", bits.into(), 1)?;
    expect_at_most(name, "bits", bits.into(), 4)?;
    // Checks the high bits of all indices at once, so that no index is singled out: that they are zero is no secret.
    let last = (1u8 << bits) - 1;
    let high = taint::opened(index.iter().fold(0, |all, i| all | i) & !last);
    expect_at_most(name, "index", high.into(), last.into())?;
    let batch = |n| Batch { n, bits, ring };
    let (own, theirs) = ((batch(index.len()), index), (batch(held), None));
    let (chosen, held) = one_of_n::both(ctx, own, theirs, table)?;
    Ok([chosen, held.into_words()].map(|words| Share::new(ring, words)))
}

/// Tables of 2^`bits` entries stored one after another, for [`tables`].
///
/// # Panics
/// If the last table is incomplete.
pub fn listed(bits: u32, entries: &[u64]) -> (usize, impl Fn(usize, &mut [u64]) + use<'_>) {
    let places = 1 << bits;
    assert!(entries.len().is_multiple_of(places), "whole tables");
    let table = move |i: usize, row: &mut [u64]| {
        row.copy_from_slice(&entries[places * i..][..places]);
    };
    (entries.len() / places, table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal, run_counted};
    use hushed_math::rng::SecretRng;

    #[test]
    fn entries_are_found_in_both_directions() {
        for (width, bits) in [(29, 4), (30, 3), (64, 2), (5, 1), (32, 4)] {
            // The last in more than one frame.
            let many = if bits == 3 { (32_800, 70_000) } else { (1000, 0) };
            for (by_client, by_server) in [(0, 0), (5, 0), (0, 7), (64, 1), (70, 130), many] {
                let ring = Ring::new(width);
                let places = 1 << bits;
                let mut rng = SecretRng::insecure_from_seed(9);
                let mut of = |n: usize| -> Vec<u64> { (0..places * n).map(|_| rng.next_u64()).collect() };
                let (of_server, of_client) = (of(by_client), of(by_server));
                let index = |n: usize| -> Vec<u8> { (0..n).map(|i| (5 * i % places) as u8).collect() };
                let [client, server] = [by_client, by_server].map(index);
                let ([a0, b0], [b1, a1], stats) = run_counted(
                    |ctx| tables(ctx, bits, &client, listed(bits, &of_client), ring).unwrap(),
                    |ctx| tables(ctx, bits, &server, listed(bits, &of_server), ring).unwrap(),
                );
                assert_cost(&stats, tables_cost(bits, by_client, by_server, ring));
                let want = |index: &[u8], entries: &[u64]| -> Vec<u64> {
                    let of = |(i, &at): (usize, &u8)| ring.reduce(entries[places * i + usize::from(at)]);
                    index.iter().enumerate().map(of).collect()
                };
                assert_eq!(reveal(&a0, &a1), want(&client, &of_server));
                assert_eq!(reveal(&b0, &b1), want(&server, &of_client));
            }
        }
    }

    #[test]
    fn indices_are_checked() {
        run_counted(
            |ctx| {
                let ring = Ring::new(8);
                for (bits, index) in [(4, 16), (3, 8), (0, 0), (5, 0)] {
                    let none = listed(3, &[]);
                    assert!(tables(ctx, bits, &[index], none, ring).is_err(), "{bits}");
                }
            },
            |_| (),
        );
    }
}
