//! Look-up in a table of sixteen entries, one party's index in the other's table.
//!
//! The holder's entries can differ from element to element (they usually depend on its share of the index). See
//! [`crate::ot::one_of_n`] for the protocol: 4 OTs, 4 bits from the chooser, then 15 masked entries from the holder.

use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_most, expect_len};
use crate::ot::one_of_n;
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
    one_of_n::cost(n, chooser, ring)
}

/// Shares of entries\[i\]\[index_i\] mod 2^ℓ (`ring`) for `n` elements.
///
/// # Errors
/// [`TwopcError::Misuse`] unless there are `n` indices of 0 to 15, or 16·`n` entries.
pub fn table_16(ctx: &mut Ctx, role: Table<'_>, ring: Ring, n: usize) -> Result<Share, TwopcError> {
    let words = match role {
        Table::Chooser { index } => {
            expect_len("table_16", "indices", index.len(), n)?;
            // The high bits of all at once, so that the check tells no index apart: that they are zero is no secret.
            let high = taint::opened(index.iter().fold(0, |all, i| all | i) & !15);
            expect_at_most("table_16", "index", high.into(), 15)?;
            one_of_n::choose(ctx, index, ring)?
        }
        Table::Holder { entries } => {
            expect_len("table_16", "entries", entries.len(), 16 * n)?;
            one_of_n::offer(ctx, entries, ring)?
        }
    };
    Ok(Share::new(ring, words))
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
    fn roles_are_checked() {
        run_counted(
            |ctx| {
                let ring = Ring::new(8);
                let index = Table::Chooser { index: &[16] };
                assert!(table_16(ctx, index, ring, 1).is_err());
                assert!(table_16(ctx, Table::Chooser { index: &[1] }, ring, 2).is_err());
                let entries = Table::Holder { entries: &[0; 15] };
                assert!(table_16(ctx, entries, ring, 1).is_err());
            },
            |_| (),
        );
    }
}
