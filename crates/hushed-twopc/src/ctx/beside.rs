//! Two parts of a protocol side by side, so that their messages take the time of the longer one's.
//!
//! The second part has a session of its own over the same channel ([`Session::branch`](hushed_net::Session::branch)),
//! randomness of its own, and OTs that are set aside before it begins, as many as its cost declares: no OT, pad or mask
//! is used by both, whatever order their messages come in. Each part sends what it would send alone, and every message
//! is masked by what only that part uses; so together they show no more than one after the other. Values are opened by
//! the first part alone, whose check covers the OTs set aside too.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

use hushed_net::NetError;

use super::Ctx;
use crate::cost::Cost;
use crate::error::{TwopcError, expect_len};
use crate::link::Link;
use crate::ot::SetAside;

impl AsMut<Ctx> for Ctx {
    fn as_mut(&mut self) -> &mut Ctx {
        self
    }
}

/// Which of two parts failed first; the other's failure is its consequence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    First,
    Second,
}

impl Ctx {
    /// [`beside`] of two steps on a context.
    ///
    /// # Errors
    /// As [`beside`].
    pub fn both<A, B: Send>(
        &mut self,
        first: impl FnOnce(&mut Ctx) -> Result<A, TwopcError>,
        second: (impl Fn(&Link) -> Cost, impl FnOnce(&mut Ctx) -> Result<B, TwopcError> + Send),
    ) -> Result<(A, B), TwopcError> {
        beside(self, first, second)
    }

    /// The context of a second part with this declared cost.
    fn second(&mut self, cost: &Cost) -> Result<Ctx, TwopcError> {
        let [sent, received] = self.by_role(cost.cots_client, cost.cots_server);
        let (send, recv) = match self.sends_first() {
            true => {
                let send = self.ot.send(&mut self.session, sent as usize)?;
                (send, self.ot.recv(&mut self.session, received as usize)?)
            }
            false => {
                let recv = self.ot.recv(&mut self.session, received as usize)?;
                (self.ot.send(&mut self.session, sent as usize)?, recv)
            }
        };
        let ot = SetAside::new(self.ot.delta(), send, recv);
        let rng = self.rng.fork("second part");
        Ok(Ctx::new(self.session.branch()?, rng, Box::new(ot)).on(self.link.undivided()))
    }
}

/// Runs two steps that do not depend on each other, side by side if the link [says so](Link::both), else one after the
/// other. The second has its declared cost, which is exact, and opens no values. It runs in a thread of its own. Both
/// parties do this at the same place.
///
/// # Errors
/// That of the step that failed first: it ends the other, and the session. [`TwopcError::Misuse`] if the second step
/// uses other OTs than it declares.
///
/// # Panics
/// If one of the steps does.
pub fn beside<T: AsMut<Ctx>, A, B: Send, E: From<TwopcError>>(
    on: &mut T,
    first: impl FnOnce(&mut T) -> Result<A, E>,
    (cost, second): (impl Fn(&Link) -> Cost, impl FnOnce(&mut Ctx) -> Result<B, TwopcError> + Send),
) -> Result<(A, B), E> {
    let link = on.as_mut().link;
    let cost = cost(&link.undivided());
    if !link.divides(&cost) {
        let first = first(on)?;
        let opened = on.as_mut().opened_bits();
        let second = second(on.as_mut())?;
        debug_assert_eq!(opened, on.as_mut().opened_bits(), "a second part opens nothing");
        return Ok((first, second));
    }
    on.as_mut().check_process()?;
    let mut side = on.as_mut().second(&cost)?;
    on.as_mut().link = link.undivided();
    let failed = OnceLock::new();
    let parts = std::thread::scope(|scope| {
        let failed = &failed;
        let second = std::thread::Builder::new().spawn_scoped(scope, move || {
            let result = second(&mut side);
            match result.and_then(|b| expect_len("a part beside another", "OTs left", side.ot.left(), 0).map(|()| b)) {
                Ok(b) => {
                    side.session.done();
                    Ok((b, side))
                }
                Err(why) => {
                    // Before its session is dropped, which ends the first part.
                    _ = failed.set(Part::Second);
                    drop(side);
                    Err(why)
                }
            }
        });
        // Without a thread, the branch is gone, and so is the session.
        let second = second.map_err(|why| NetError::Io { operation: "start a thread", kind: why.kind() })?;
        let a = catch_unwind(AssertUnwindSafe(|| first(on)));
        if matches!(a, Ok(Ok(_))) {
            on.as_mut().session.done();
        } else {
            _ = failed.set(Part::First);
            on.as_mut().session.abandon_branch();
        }
        Ok::<_, NetError>((a, second.join()))
    });
    let ctx = on.as_mut();
    ctx.link = link;
    let (a, b) = parts.map_err(TwopcError::from)?;
    match (a, b) {
        (Err(panic), _) | (_, Err(panic)) => resume_unwind(panic),
        (Ok(Ok(a)), Ok(Ok((b, side)))) => {
            ctx.session.join(side.session).map_err(TwopcError::from)?;
            Ok((a, b))
        }
        (Ok(Err(why)), Ok(Ok(_))) => Err(why),
        (Ok(Ok(_)), Ok(Err(why))) => Err(why.into()),
        (Ok(Err(first)), Ok(Err(second))) => match failed.get() {
            Some(Part::Second) => Err(second.into()),
            _ => Err(first),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gadget::{msb, msb_cost, mul, mul_cost, mux, mux_cost};
    use crate::ot::ideal::IdealPair;
    use crate::share::{Ring, Share};
    use crate::testing::{
        assert_cost, reveal, reveal_bits, run_after, run_pair, run_pair_over_ferret, share, values, vanishing_pair,
    };
    use hushed_math::rng::SecretRng;
    use hushed_net::Party;

    const RING: Ring = Ring::new(20);
    const N: usize = 300;

    /// A comparison of several rounds, and a product beside it.
    fn step(ctx: &mut Ctx, x: &Share) -> Result<(crate::share::BitShare, Share), TwopcError> {
        ctx.both(|ctx| msb(ctx, x), (|_: &Link| mul_cost(N, RING), |ctx: &mut Ctx| mul(ctx, x, x)))
    }

    fn step_cost(link: &Link) -> Cost {
        link.both(|link| msb_cost(link, N, RING.bits()), |_| mul_cost(N, RING))
    }

    #[test]
    fn both_give_what_they_give_alone_in_the_rounds_of_one() {
        let x = values(N, RING, 1);
        let (x0, x1) = share(RING, &x, 2);
        for (link, rounds) in [(Link::LAN, 7), (Link::INTERNET, 6)] {
            let set = |ctx: &mut Ctx| ctx.set_link(link);
            // Twice, so that the second takes OTs after those of the first.
            let twice = |ctx: &mut Ctx, x: &Share| [step(ctx, x).unwrap(), step(ctx, x).unwrap()];
            let (a, b, counted) = run_after(set, |ctx, ()| twice(ctx, &x0), |ctx, ()| twice(ctx, &x1));
            assert_cost(&counted, step_cost(&link).repeated(2));
            assert_eq!(step_cost(&link).rounds, rounds);
            for ((less0, square0), (less1, square1)) in a.iter().zip(&b) {
                let top: Vec<u64> = x.iter().map(|x| RING.top_bit(*x)).collect();
                assert_eq!(reveal_bits(less0, less1), top);
                let squares: Vec<u64> = x.iter().map(|x| RING.reduce(x.wrapping_mul(*x))).collect();
                assert_eq!(reveal(square0, square1), squares);
            }
        }
    }

    /// Over Ferret, whose directions begin with the first OTs set aside; the check covers those too.
    #[test]
    fn set_aside_from_a_source_that_has_not_begun() {
        let x = values(N, RING, 3);
        let (x0, x1) = share(RING, &x, 4);
        let run = |ctx: &mut Ctx, x: &Share| {
            ctx.set_link(Link::INTERNET);
            let (_, square) = step(ctx, x).unwrap();
            ctx.open_to(Party::Client, &square).unwrap()
        };
        let (opened, none) = run_pair_over_ferret(|ctx| run(ctx, &x0), |ctx| run(ctx, &x1));
        let squares: Vec<u64> = x.iter().map(|x| RING.reduce(x.wrapping_mul(*x))).collect();
        assert_eq!((opened, none), (Some(squares), None));
    }

    /// Inside a part there are no further parts, and few OTs are set aside.
    #[test]
    fn where_parts_are_side_by_side() {
        let few = Cost::exchange(1, 1).with_cots(MOST, 0);
        let inside = Link::INTERNET.undivided();
        assert!(Link::INTERNET.divides(&few) && Link::WAN.divides(&few));
        assert!(!Link::LAN.divides(&few) && !inside.divides(&few));
        assert!(!Link::INTERNET.divides(&few.with_cots(MOST, 1)));
        assert_eq!((Link::LAN.undivided(), inside.undivided()), (Link::LAN, inside));
        let price = |link: &Link| link.price(&step_cost(link));
        assert!(price(&Link::INTERNET) < price(&inside));
    }

    const MOST: u64 = 1 << 20;

    #[test]
    fn a_declared_cost_is_exact_and_a_second_part_opens_nothing() {
        let (x0, x1) = share(RING, &values(N, RING, 5), 6);
        let misuse = |result: Result<((), ()), TwopcError>| match result {
            Err(TwopcError::Misuse { operation, .. }) => operation,
            other => panic!("{other:?}"),
        };
        for more in [-1, 1] {
            let cost = move |_: &Link| {
                let cost = mux_cost(N, RING);
                let changed = |n: u64| n.saturating_add_signed(more);
                cost.with_cots(changed(cost.cots_client), changed(cost.cots_server))
            };
            let run = |ctx: &mut Ctx, x: &Share| {
                ctx.set_link(Link::INTERNET);
                let bits = crate::share::BitShare::zero(N);
                misuse(ctx.both(|_| Ok(()), (cost, |ctx: &mut Ctx| mux(ctx, &bits, x).map(drop))))
            };
            let (a, b) = run_pair(|ctx| run(ctx, &x0), |ctx| run(ctx, &x1));
            let expected = if more < 0 { "OTs set aside" } else { "a part beside another" };
            assert_eq!((a, b), (expected, expected));
        }
        let run = |ctx: &mut Ctx, x: &Share| {
            ctx.set_link(Link::INTERNET);
            let open = |ctx: &mut Ctx| ctx.open_to(Party::Client, x).map(drop);
            misuse(ctx.both(|_| Ok(()), (|_: &Link| Cost::ZERO, open)))
        };
        let (a, b) = run_pair(|ctx| run(ctx, &x0), |ctx| run(ctx, &x1));
        assert_eq!((a, b), ("a part beside another", "a part beside another"));
    }

    /// The part that fails first names the error; the other ends, and the session with it.
    #[test]
    fn a_part_that_fails_ends_the_other() {
        let wrong = || TwopcError::PeerMisbehaved { what: "test" };
        let is_wrong = |error: &TwopcError| matches!(error, TwopcError::PeerMisbehaved { what: "test" });
        let (x0, x1) = share(RING, &values(N, RING, 7), 8);
        for first_fails in [true, false] {
            let client = |ctx: &mut Ctx| {
                ctx.set_link(Link::INTERNET);
                let cost = |_: &Link| mul_cost(N, RING);
                let result = match first_fails {
                    true => ctx.both(|_| Err::<(), _>(wrong()), (cost, |ctx: &mut Ctx| mul(ctx, &x0, &x0).map(drop))),
                    false => ctx.both(|ctx| msb(ctx, &x0).map(drop), (cost, |_: &mut Ctx| Err::<(), _>(wrong()))),
                };
                assert!(is_wrong(&result.unwrap_err()), "{first_fails}");
                assert!(ctx.share_input(Party::Client, RING, &[1], 1).is_err());
            };
            let server = |ctx: &mut Ctx| {
                ctx.set_link(Link::INTERNET);
                step(ctx, &x1).map(drop)
            };
            let ((), left) = run_pair(client, server);
            // A product alone may be done before the other end is gone.
            assert!(matches!(left, Ok(()) | Err(TwopcError::Net(NetError::PeerGone))), "{left:?}");
        }
    }

    #[test]
    #[should_panic(expected = "in a part")]
    fn a_panic_is_passed_on() {
        let (x0, x1) = share(RING, &values(N, RING, 7), 8);
        let run = |ctx: &mut Ctx, x: &Share| {
            ctx.set_link(Link::INTERNET);
            let fails = |_: &mut Ctx| -> Result<(), TwopcError> { panic!("in a part") };
            ctx.both(|ctx| msb(ctx, x), (|_: &Link| Cost::ZERO, fails)).map(drop)
        };
        _ = run_pair(|ctx| run(ctx, &x0), |ctx| run(ctx, &x1));
    }

    /// A peer that vanishes before any of its frames ends both parts.
    #[test]
    fn a_peer_that_vanishes_ends_both() {
        let (x0, x1) = share(RING, &values(N, RING, 9), 10);
        for victim in [Party::Client, Party::Server] {
            for frames in 0..7 {
                let (near, far) = vanishing_pair(victim, frames);
                let (near_ot, far_ot) = IdealPair::new();
                let end = |session, ot: Box<dyn crate::ot::Correlations>, x: &Share| {
                    let rng = SecretRng::insecure_from_seed(11);
                    let mut ctx = Ctx::new(session, rng, ot).on(Link::INTERNET);
                    step(&mut ctx, x).map(drop)
                };
                let (client, server) = std::thread::scope(|scope| {
                    let server = scope.spawn(|| end(far, Box::new(far_ot), &x1));
                    (end(near, Box::new(near_ot), &x0), server.join().unwrap())
                });
                for ended in [client, server] {
                    let gone = matches!(&ended, Err(TwopcError::Net(NetError::PeerGone)));
                    assert!(gone, "{victim:?} {frames}: {ended:?}");
                }
            }
        }
    }
}
