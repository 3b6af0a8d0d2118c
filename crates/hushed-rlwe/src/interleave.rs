//! An interleaving node with its key switches, and the memory it works in.
//!
//! Only the a parts of its children come in, as coefficients. With d the digits of σ(u_σ) ([`crate::galois`]), a node
//! computes
//!
//! ```text
//! a ← u_1 + ⌊ P^-1 · Σ_σ Σ_i d_{σ,i}·a_{σ,i} ⌉        b ← Σ_σ Σ_i d_{σ,i}·b_{σ,i}   modulo Q·P
//! ```
//!
//! The levels above keep b's coefficients at multiples of h, multiplied by h, and cancel the others. So only these are
//! taken, from the values, and added where they end up: b is divided by P once, for the whole tree. For four children
//! and one digit of two primes this takes 12 forward and 4 inverse transforms, where three nodes of two took 36.
//!
//! Leaves determine the multiplier for anyone who also has the ciphertexts, as the computing party does. Nothing here
//! is erased: it is only in that party's memory, next to the multiplier itself.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use hushed_math::{Automorphism, BaseConverter, Coeff, Eval, MathError, Pointwise, RnsPoly};

use crate::galois::{GaloisKey, KeyShape};
use crate::params::RlweParams;

/// Coefficients of each child and half that a node takes at a time: everything it holds of them stays in the L1 cache.
const STRIP: usize = 256;

/// Prepared key switches for ciphertexts of some number of primes.
pub(crate) struct PreparedSwitches {
    limbs: usize,
    /// The primes of products: those of the ciphertexts, then the special ones.
    ids: Vec<usize>,
    digits: Vec<Digit>,
    /// From the special primes to those of the ciphertexts.
    down: BaseConverter,
    /// P^-1 modulo the ciphertexts' primes.
    inverses: Vec<u64>,
}

/// The primes of a digit, and its conversion to the other primes of a product.
struct Digit {
    own: Range<usize>,
    others: Vec<usize>,
    lift: BaseConverter,
}

impl Digit {
    /// The position of prime `id` in a lifted digit; `None` if it is one of the digit's own.
    fn other(&self, id: usize) -> Option<usize> {
        self.others.iter().position(|&other| other == id)
    }
}

impl PreparedSwitches {
    /// Prepares switches for ciphertexts of `limbs` primes and keys of `shape`, which has special primes.
    pub(crate) fn new(params: &RlweParams, shape: &KeyShape, limbs: usize) -> Result<Self, MathError> {
        let (basis, ids) = (params.basis(), shape.ids(limbs));
        let (ciphertext, special) = ids.split_at(limbs);
        let digit = |own: Range<usize>| {
            let from: Vec<usize> = own.clone().collect();
            let others: Vec<usize> = ids.iter().copied().filter(|id| !own.contains(id)).collect();
            Ok(Digit { lift: BaseConverter::new(basis, &from, &others)?, own, others })
        };
        let inverse = |&id: &usize| params.inverse_modulo(special.iter().copied(), id);
        Ok(Self {
            limbs,
            digits: shape.digits(limbs).into_iter().map(digit).collect::<Result<_, _>>()?,
            down: BaseConverter::new(basis, special, ciphertext)?,
            inverses: ciphertext.iter().map(inverse).collect(),
            ids,
        })
    }

    /// The number of primes of the ciphertexts.
    pub(crate) fn limbs(&self) -> usize {
        self.limbs
    }

    /// The primes of products.
    pub(crate) fn ids(&self) -> &[usize] {
        &self.ids
    }

    /// ⌊sum/P⌉ for a polynomial over the primes of products.
    pub(crate) fn divide(&self, params: &RlweParams, sum: &RnsPoly<Coeff>) -> RnsPoly<Coeff> {
        let (basis, (ciphertext, special)) = (params.basis(), self.ids.split_at(self.limbs));
        let dropped: Vec<&[u64]> = (0..special.len()).map(|place| sum.limb(self.limbs + place)).collect();
        let mut lifted = RnsPoly::<Coeff>::scratch(basis, ciphertext);
        let mut targets: Vec<&mut [u64]> = lifted.limbs_mut().map(|(_, limb)| limb).collect();
        self.down.convert(&dropped, &mut targets);
        let mut out = RnsPoly::scratch(basis, ciphertext);
        for (j, &inverse) in self.inverses.iter().enumerate() {
            let pointwise = basis.ntt(j).pointwise();
            pointwise.mod_down_finish(out.limb_mut(j), sum.limb(j), lifted.limb(j), inverse);
        }
        out
    }
}

/// A node: its place in the tree and its inputs.
pub(crate) struct Node<'a> {
    pub(crate) switches: &'a PreparedSwitches,
    pub(crate) shape: &'a KeyShape,
    /// For the node's automorphisms, one or three.
    pub(crate) keys: Vec<&'a GaloisKey>,
    /// Its distance h.
    pub(crate) h: usize,
    /// Where its coefficient 0 ends up in the result, below h.
    pub(crate) slot: usize,
    /// What key switches add to the result's b, over the primes of products.
    pub(crate) b: &'a Mutex<RnsPoly<Coeff>>,
}

/// Memory for one node at a time: megabytes, and requesting them from the system for every node would cost as much as
/// the arithmetic. Keys keep idle ones ([`crate::keys::GaloisKeys`]), at most one per thread.
pub(crate) struct Workspace {
    /// u_σ for all automorphisms except the identity, modulo the ciphertexts' primes.
    turned: [RnsPoly<Coeff>; 3],
    /// Their digits modulo the other primes, digit by digit.
    lifted: Vec<RnsPoly<Coeff>>,
    /// The remainder of the a part, modulo the ciphertexts' primes, when it is divided by P.
    rests: RnsPoly<Coeff>,
    /// Products with the keys: b modulo one prime, a modulo all.
    sums: [RnsPoly<Eval>; 2],
    /// The needed coefficients of b.
    wanted: Vec<u64>,
    strips: Vec<u64>,
}

impl Workspace {
    /// Workspace for ciphertexts of up to as many primes as `switches` is for.
    pub(crate) fn new(params: &RlweParams, switches: &PreparedSwitches) -> Self {
        let (basis, n) = (params.basis(), params.n());
        let others = || switches.digits.iter().map(|digit| &digit.others);
        let lifted = (0..3).flat_map(|_| others());
        Self {
            turned: [(); 3].map(|()| RnsPoly::scratch(basis, &switches.ids[..switches.limbs])),
            lifted: lifted.map(|ids| RnsPoly::scratch(basis, ids)).collect(),
            rests: RnsPoly::scratch(basis, &switches.ids[..switches.limbs]),
            sums: [&switches.ids[..1], &switches.ids].map(|ids| RnsPoly::scratch(basis, ids)),
            wanted: vec![0; n],
            strips: vec![0; 8 * STRIP.min(n / 2)],
        }
    }

    /// The a part of the node over `children`, at least one, in the depth-first order of a tree; absent ones are zero.
    pub(crate) fn combine(
        &mut self,
        params: &RlweParams,
        node: &Node<'_>,
        children: &[RnsPoly<Coeff>],
    ) -> RnsPoly<Coeff> {
        let (basis, switches) = (params.basis(), node.switches);
        let limbs = switches.limbs;
        let mut out = RnsPoly::scratch(basis, &switches.ids[..limbs]);
        for limb in 0..limbs {
            let pointwise = basis.ntt(limb).pointwise();
            let children: Vec<&[u64]> = children.iter().map(|child| child.limb(limb)).collect();
            let [first, second, third] = &mut self.turned;
            let [first, second, third] = [first, second, third].map(|u| u.limb_mut(limb));
            let unturned = out.limb_mut(limb);
            if node.keys.len() == 1 {
                let sums = [unturned, first];
                sums_of_two(pointwise, &children, node.h, &mut self.strips, sums);
            } else {
                // For σ(X^h) = I^k·X^h with k = 1, 2, 3: the power −k of I.
                let sums = [unturned, third, second, first];
                sums_of_four(pointwise, &children, node.h, &mut self.strips, sums);
            }
        }
        self.lift(node);
        // The others need the results modulo the special primes.
        for place in (limbs..switches.ids.len()).chain(0..limbs) {
            self.multiply(params, node, place);
        }
        let [_, sum] = &self.sums;
        let dropped: Vec<&[u64]> = (limbs..switches.ids.len()).map(|place| sum.limb(place)).collect();
        let rests = self.rests.limbs_mut().take(limbs);
        let mut rests: Vec<&mut [u64]> = rests.map(|(_, rest)| rest).collect();
        switches.down.convert(&dropped, &mut rests);
        for (j, (rest, &inverse)) in rests.iter().zip(&switches.inverses).enumerate() {
            let pointwise = basis.ntt(j).pointwise();
            pointwise.mod_down_finish_add_assign(out.limb_mut(j), sum.limb(j), rest, inverse);
        }
        out
    }

    /// Converts the digits of all u_σ to the primes that are not their own.
    fn lift(&mut self, node: &Node<'_>) {
        let digits = &node.switches.digits;
        let turned = self.turned.iter().take(node.keys.len());
        for (u, lifted) in turned.zip(self.lifted.chunks_mut(digits.len())) {
            for (digit, lifted) in digits.iter().zip(lifted) {
                let from: Vec<&[u64]> = digit.own.clone().map(|id| u.limb(id)).collect();
                let to = lifted.limbs_mut().take(digit.others.len());
                let mut to: Vec<&mut [u64]> = to.map(|(_, limb)| limb).collect();
                digit.lift.convert(&from, &mut to);
            }
        }
    }

    /// The products modulo one prime: the coefficients of a, and the needed ones of b added where they end up.
    fn multiply(&mut self, params: &RlweParams, node: &Node<'_>, place: usize) {
        let digits = &node.switches.digits;
        let id = node.switches.ids[place];
        let ntt = params.basis().ntt(id);
        let places = (0..node.keys.len()).flat_map(|k| (0..digits.len()).map(move |i| (k, i)));
        for (k, i) in places.clone() {
            ntt.forward_loose(match digits[i].other(id) {
                Some(other) => self.lifted[k * digits.len() + i].limb_mut(other),
                None => self.turned[k].limb_mut(id),
            });
        }
        let values = places.clone().map(|(k, i)| match digits[i].other(id) {
            Some(other) => self.lifted[k * digits.len() + i].limb(other),
            None => self.turned[k].limb(id),
        });
        let values: Vec<&[u64]> = values.collect();
        let turns = places.clone().map(|(k, _)| &*node.keys[k].permutation);
        let turns: Vec<&Automorphism> = turns.collect();
        let at = node.shape.place(id);
        let keys = || places.clone().map(|(k, i)| &node.keys[k].digits[i]);
        let keys_b: Vec<&[u64]> = keys().map(|digit| digit.b.limb(at)).collect();
        let keys_a: Vec<&[u64]> = keys().map(|digit| digit.a.limb(at)).collect();
        let [b, a] = &mut self.sums;
        let (b, a) = (b.limb_mut(0), a.limb_mut(place));
        let (out, keys) = ([&mut *b, &mut *a], [&keys_b[..], &keys_a[..]]);
        Automorphism::dot_pair_of_turned(&turns, ntt.pointwise(), out, &values, keys);
        ntt.inverse(a);
        let wanted = &mut self.wanted[..params.n() / node.h];
        params.basis().every(id, node.h).times_step(b, wanted);
        // It only holds sums: a panic elsewhere leaves no sum half done but its own, and ends the run.
        let mut all = node.b.lock().unwrap_or_else(PoisonError::into_inner);
        let placed = all.limb_mut(place)[node.slot..].iter_mut().step_by(node.h);
        for (sum, &wanted) in placed.zip(&*wanted) {
            *sum = ntt.modulus().add(*sum, wanted);
        }
    }
}

/// `sums` ← c_0 ± X^h·c_1.
fn sums_of_two(pointwise: &Pointwise, children: &[&[u64]], h: usize, strips: &mut [u64], sums: [&mut [u64]; 2]) {
    let [plus, minus] = sums;
    let strip = STRIP.min(plus.len() / 2);
    let rooms = &mut rooms::<2>(strips, strip);
    let (even, odd) = (Turned::new(children, 0, 0), Turned::new(children, 1, h));
    let results = plus.chunks_exact_mut(strip).zip(minus.chunks_exact_mut(strip));
    for (place, (plus, minus)) in results.enumerate() {
        sum_and_difference(pointwise, [&even, &odd], place * strip, rooms, [plus, minus]);
    }
}

/// `sums[k]` ← Σ_j I^{jk}·X^{jh}·c_j for I = X^{n/2}, with the children in tree order, 0, 2, 1, 3.
fn sums_of_four(pointwise: &Pointwise, children: &[&[u64]], h: usize, strips: &mut [u64], sums: [&mut [u64]; 4]) {
    let half = sums[0].len() / 2;
    let strip = STRIP.min(half);
    let [first, second, even, odd, low_even, low_odd, high_even, high_odd] = rooms(strips, strip);
    let rooms = &mut [first, second];
    let turned = |place, j| Turned::new(children, place, j * h);
    let (evens, odds) = ([&turned(0, 0), &turned(1, 2)], [&turned(2, 1), &turned(3, 3)]);
    let [zero, one, two, three] = sums;
    for start in (0..half).step_by(strip) {
        // A strip, and the one half the length further on, into which multiplication by I takes it.
        let (low, high) = (start..start + strip, start + half..start + half + strip);
        let parts = [(low.clone(), &mut *low_even, &mut *low_odd), (high.clone(), &mut *high_even, &mut *high_odd)];
        for (at, even_difference, odd_difference) in parts {
            sum_and_difference(pointwise, evens, at.start, rooms, [even, even_difference]);
            sum_and_difference(pointwise, odds, at.start, rooms, [odd, odd_difference]);
            pointwise.add(&mut zero[at.clone()], even, odd);
            pointwise.sub(&mut two[at], even, odd);
        }
        // I·(low, high) = (−high, low).
        pointwise.sub(&mut one[low.clone()], low_even, high_odd);
        pointwise.add(&mut one[high.clone()], high_even, low_odd);
        pointwise.add(&mut three[low], low_even, high_odd);
        pointwise.sub(&mut three[high], high_even, low_odd);
    }
}

/// The first `COUNT` strips of the workspace.
fn rooms<const COUNT: usize>(strips: &mut [u64], strip: usize) -> [&mut [u64]; COUNT] {
    let mut rooms = strips.chunks_exact_mut(strip);
    [(); COUNT].map(|()| rooms.next().unwrap_or_default())
}

/// X^shift·c; zero if there is no c.
struct Turned<'a> {
    c: Option<&'a [u64]>,
    shift: usize,
}

impl<'a> Turned<'a> {
    fn new(children: &[&'a [u64]], place: usize, shift: usize) -> Self {
        let c = children.get(place).copied();
        Self { c, shift }
    }

    /// The coefficients from `start` on, as many as `room` holds: a slice of c if none of them wraps around, otherwise
    /// in `room`.
    fn strip<'b>(&'b self, pointwise: &Pointwise, start: usize, room: &'b mut [u64]) -> &'b [u64] {
        let Some(c) = self.c else {
            room.fill(0);
            return room;
        };
        if let Some(first) = start.checked_sub(self.shift) {
            return &c[first..first + room.len()];
        }
        // X^n = −1.
        let wrapped = (self.shift - start).min(room.len());
        let (wrap, rest) = room.split_at_mut(wrapped);
        wrap.copy_from_slice(&c[c.len() + start - self.shift..][..wrapped]);
        pointwise.neg_assign(wrap);
        rest.copy_from_slice(&c[..rest.len()]);
        room
    }
}

/// The strips of a + b and a − b from coefficient `start` on.
fn sum_and_difference(
    pointwise: &Pointwise,
    [a, b]: [&Turned<'_>; 2],
    start: usize,
    [first, second]: &mut [&mut [u64]; 2],
    [sum, difference]: [&mut [u64]; 2],
) {
    let (a, b) = (a.strip(pointwise, start, first), b.strip(pointwise, start, second));
    pointwise.add(sum, a, b);
    pointwise.sub(difference, a, b);
}
