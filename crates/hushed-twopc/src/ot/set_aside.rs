//! OTs that were made before the step that uses them, and for it alone.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::{Correlations, CotRecv, CotSend, Unchecked};
use crate::error::{Expected, TwopcError, expect_at_most};
use hushed_math::bits::Block;
use hushed_net::Session;

/// A number of OTs in each direction, taken from a source, which checks them with its own.
pub(crate) struct SetAside {
    delta: Block,
    send: CotSend,
    recv: CotRecv,
    /// How many of each have been used, and erased.
    used: [usize; 2],
}

impl SetAside {
    /// Those that a source with this `delta` has given.
    pub fn new(delta: Block, send: CotSend, recv: CotRecv) -> SetAside {
        SetAside { delta, send, recv, used: [0; 2] }
    }
}

/// The next `n` blocks, and the index of the first.
fn take(blocks: &mut [Block], first: u64, used: &mut usize, n: usize) -> Result<(Vec<Block>, u64), TwopcError> {
    let left = blocks.get_mut(*used..).unwrap_or_default();
    expect_at_most("OTs set aside", "number asked for", n as u64, left.len() as u64)?;
    let next = left.get_mut(..n).unwrap_or_default();
    let taken = next.to_vec();
    Block::wipe(next);
    let index = first + *used as u64;
    *used += n;
    Ok((taken, index))
}

impl Correlations for SetAside {
    fn send(&mut self, _: &mut Session, n: usize) -> Result<CotSend, TwopcError> {
        let CotSend { delta, blocks, first_index, hash } = &mut self.send;
        let [used, _] = &mut self.used;
        let (blocks, first_index) = take(blocks, *first_index, used, n)?;
        Ok(CotSend { delta: *delta, blocks, first_index, hash: hash.clone() })
    }

    fn recv(&mut self, _: &mut Session, n: usize) -> Result<CotRecv, TwopcError> {
        let CotRecv { blocks, first_index, hash } = &mut self.recv;
        let [_, used] = &mut self.used;
        let (blocks, first_index) = take(blocks, *first_index, used, n)?;
        Ok(CotRecv { blocks, first_index, hash: hash.clone() })
    }

    fn delta(&self) -> Block {
        self.delta
    }

    fn has_begun(&self) -> bool {
        true
    }

    fn left(&self) -> usize {
        let [sent, received] = self.used;
        self.send.len() - sent + self.recv.len() - received
    }

    /// The source has them.
    fn take_unchecked(&mut self) -> [Unchecked; 2] {
        [Unchecked::default(); 2]
    }

    /// Fails: only who has the source can check, and so only they may open values.
    fn check(&mut self, _: &mut Session) -> Result<(), TwopcError> {
        Err(TwopcError::Misuse {
            operation: "a part beside another",
            what: "number of values that it opens",
            got: 1,
            expected: Expected::Exactly(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ot::{assert_cot, ideal::IdealPair};

    #[test]
    fn each_is_given_once_in_order_and_no_more_than_there_are() {
        let (mut near, mut far) = IdealPair::new();
        let (mut a, mut b) = hushed_net::memory_pair();
        // The source goes on after those set aside.
        near.send(&mut a, 3).unwrap();
        far.recv(&mut b, 3).unwrap();
        let near = SetAside::new(near.delta(), near.send(&mut a, 10).unwrap(), near.recv(&mut a, 4).unwrap());
        let far_recv = far.recv(&mut b, 10).unwrap();
        let far = SetAside::new(far.delta(), far.send(&mut b, 4).unwrap(), far_recv);
        let (mut near, mut far) = (near, far);
        let mut next = 3;
        for n in [0, 4, 1, 5] {
            let (send, recv) = (near.send(&mut a, n).unwrap(), far.recv(&mut b, n).unwrap());
            assert_cot(&send, &recv);
            assert_eq!((send.first_index, send.len()), (next, n));
            next += n as u64;
        }
        assert!(near.send.blocks.iter().all(|block| *block == Block::ZERO));
        assert_eq!((near.left(), far.left()), (4, 4));
        assert!(near.send(&mut a, 1).is_err() && far.recv(&mut b, 1).is_err());
        assert_cot(&far.send(&mut b, 4).unwrap(), &near.recv(&mut a, 4).unwrap());
        assert_eq!((near.left(), far.left()), (0, 0));
        assert!(near.check(&mut a).is_err());
    }
}
