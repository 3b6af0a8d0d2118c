//! The scales that nodes should have, from the outputs backwards.
//!
//! Outputs and refreshes take the default scale, polynomials one that suits them, and every operation passes the wish
//! on to its operands. Of the two factors of a product one balances the other; a sum's operand that is computed later
//! takes the scale of the earlier one. A wish that names another node is resolved when the scale of that node is known.

use super::levels::{Level, Limits};
use super::schedule::Placed;
use super::{Mark, NodeId, Op, Tape};
use crate::error::FheError;
use crate::ops::levels::{below, divisor, scale_of};
use crate::packing::PackingError;
use crate::slots::Slots;

/// The smallest fraction of its scale at which a function is computed a second time, as in
/// [`crate::ops::key_mask`].
const LEAST_SCALE: f64 = 1.0 / (1 << 16) as f64;

/// A scale, computed term by term.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wish(Vec<Term>);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Term {
    Base(f64),
    /// The scale of a node.
    Like(usize),
    Times(f64),
    By(f64),
    /// Divided by the scale of a node.
    Over(usize),
    Root,
}

impl Wish {
    fn of(scale: f64) -> Wish {
        Wish(vec![Term::Base(scale)])
    }

    fn then(&self, terms: &[Term]) -> Wish {
        Wish([&self.0, terms].concat())
    }

    /// Its value, where `scale` is that of a node.
    pub fn value(&self, scale: &dyn Fn(usize) -> f64) -> f64 {
        self.0.iter().fold(1.0, |value, term| match *term {
            Term::Base(base) => base,
            Term::Like(node) => scale(node),
            Term::Times(factor) => value * factor,
            Term::By(divisor) => value / divisor,
            Term::Over(node) => value / scale(node),
            Term::Root => value.sqrt(),
        })
    }

    /// The last node that it names.
    fn latest(&self) -> Option<usize> {
        let named = self.0.iter().filter_map(|term| match term {
            Term::Like(node) | Term::Over(node) => Some(*node),
            _ => None,
        });
        named.max()
    }
}

/// Which operations state wishes.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Round {
    /// Those that need a scale.
    Needs,
    /// Products of two operands too.
    Products,
    /// Those that take any scale too: they take the default one.
    Any,
}

/// Sets the scales that nodes are asked for, and those that they have: as the arithmetic rounds them.
///
/// # Errors
/// Those of levels.
pub(crate) fn scales<S: Slots>(
    tape: &Tape,
    on: &S,
    (levels, limits): (&[Level], &Limits<'_>),
    nodes: &mut [Placed],
) -> Result<(), FheError> {
    let (wishes, unit) = (wishes(tape, on, levels)?, on.default_scale());
    for (i, (node, wish)) in tape.nodes.iter().zip(&wishes).enumerate() {
        let level = levels[i];
        let known = |node: usize| nodes.get(node).and_then(|n| n.scale).unwrap_or(unit);
        let of = |k: usize| node.inputs.get(k).map_or(unit, |id| known(id.0));
        let target = match node.op.chooses_scale() {
            true => Some(scale_of(wish.as_ref().map_or(unit.value(), |wish| wish.value(&|id| known(id).value())))?),
            false => None,
        };
        let rescaled = |wide: f64, limbs: usize| scale_of(wide / divisor(on, limbs)?);
        let asked = target.unwrap_or(unit).value();
        let scale = match &node.op {
            Op::Input(name) => limits.inputs.get(name).ok_or(PackingError::Mismatch)?.1,
            Op::Linear { .. } | Op::LinearSum { .. } | Op::Maps { .. } | Op::MulVectors { .. } => {
                let from = of(usize::from(matches!(node.op, Op::LinearSum { first: false, .. }))).value();
                let factor = asked * divisor(on, level.reads)? / from;
                rescaled(from * factor, level.reads)?
            }
            Op::Combine { .. } | Op::CombineVectors { .. } | Op::Scaled { .. } => {
                rescaled(asked * divisor(on, level.reads)?, level.reads)?
            }
            Op::Apply { .. } => {
                let last = below(on, level.reads, node.op.levels(&tape.constants).saturating_sub(1))?;
                rescaled(asked * divisor(on, last)?, last)?
            }
            Op::SquareSum { first } => {
                let from = of(usize::from(!first));
                rescaled(from.times(from).value(), level.reads)?
            }
            Op::Mul | Op::DotProduct | Op::Dot => rescaled(of(0).times(of(1)).value(), level.reads)?,
            Op::Real | Op::Parts { .. } => scale_of(2.0 * of(0).value())?,
            Op::ReadAs { factor } => scale_of(of(0).value() / factor)?,
            Op::Mark { mark: Mark::Vectors } if level.refreshed => unit,
            Op::Mark { .. } if level.refreshed => scale_of(unit.value() / (1.0 / of(0).over(unit).value()))?,
            _ => of(0),
        };
        let placed = nodes.get_mut(i).ok_or(PackingError::Mismatch)?;
        (placed.target, placed.scale) = (target, Some(scale));
    }
    Ok(())
}

/// The wish for each node whose scale can be chosen, or that passes it on.
///
/// # Errors
/// Those of levels.
fn wishes<S: Slots>(tape: &Tape, on: &S, levels: &[Level]) -> Result<Vec<Option<Wish>>, FheError> {
    let mut all = Wishes { tape, on, levels, of: vec![None; tape.nodes.len()], free: free(tape, levels) };
    all.round(Round::Needs)?;
    all.again();
    all.round(Round::Products)?;
    all.round(Round::Any)?;
    Ok(all.of)
}

struct Wishes<'a, S: Slots> {
    tape: &'a Tape,
    on: &'a S,
    levels: &'a [Level],
    of: Vec<Option<Wish>>,
    free: Vec<bool>,
}

/// The nodes whose scale can be chosen, by themselves or through their operands.
fn free(tape: &Tape, levels: &[Level]) -> Vec<bool> {
    let mut free: Vec<bool> = Vec::with_capacity(tape.nodes.len());
    for (i, node) in tape.nodes.iter().enumerate() {
        free.push(match node.op {
            Op::Input(_) => false,
            Op::Mark { .. } if levels[i].refreshed => false,
            ref op if op.chooses_scale() => true,
            _ => node.inputs.iter().any(|id| free[id.0]),
        });
    }
    free
}

impl<S: Slots> Wishes<'_, S> {
    fn set(&mut self, id: NodeId, wish: Wish) {
        // A scale that is known only afterwards cannot be met.
        if wish.latest().is_none_or(|latest| latest < id.0) {
            self.of[id.0].get_or_insert(wish);
        }
    }

    /// What a node is expected to have, if its wish or that of what it is another form of is known.
    fn known(&self, id: NodeId) -> Option<f64> {
        let node = &self.tape.nodes[id.0];
        match (&self.of[id.0], &node.op) {
            (Some(_), _) => Some(self.expected(id.0)),
            (None, Op::Input(_)) => Some(self.on.default_scale().value()),
            (None, Op::Mark { .. }) if self.levels[id.0].refreshed => Some(self.on.default_scale().value()),
            (None, op) if op.keeps_scale() => self.known(*node.inputs.first()?),
            (None, _) => None,
        }
    }

    /// What a node is expected to have.
    fn expected(&self, node: usize) -> f64 {
        let default = self.on.default_scale().value();
        self.of[node].as_ref().map_or(default, |wish| wish.value(&|node| self.expected(node)))
    }

    /// A function that is applied to the same vector a second time and read as a multiple of itself has the scale of
    /// the first time.
    fn again(&mut self) {
        let nodes = &self.tape.nodes;
        for (i, node) in nodes.iter().enumerate() {
            let Op::ReadAs { factor } = node.op else { continue };
            let Some(&applied) = node.inputs.first() else { continue };
            let of = &nodes[applied.0];
            if !matches!(of.op, Op::Apply { .. }) || i == 0 {
                continue;
            }
            let before = nodes[..applied.0].iter().position(|n| n.op == of.op && n.inputs == of.inputs);
            if let Some(before) = before {
                self.set(applied, Wish(vec![Term::Like(before), Term::Times(factor.max(LEAST_SCALE))]));
            }
        }
    }

    fn round(&mut self, round: Round) -> Result<(), FheError> {
        let (tape, default) = (self.tape, Wish::of(self.on.default_scale().value()));
        for (i, node) in tape.nodes.iter().enumerate().rev() {
            let (wish, reads) = (self.of[i].clone(), self.levels[i].reads);
            let input = |k: usize| node.inputs.get(k).copied().unwrap_or(NodeId(0));
            match &node.op {
                Op::Input(_) => {}
                Op::Output | Op::Mark { mark: Mark::Statistic { .. } | Mark::Spare } | Op::Linear { .. } => {
                    self.set(input(0), default.clone());
                }
                Op::Mark { mark: Mark::Vectors } => {
                    // Numbers up to the bound are read as numbers within 1.
                    self.set(input(0), default.then(&[Term::By(node.bound.max(1.0))]));
                }
                Op::Maps { .. } => {
                    // All operands have the scale of the earliest.
                    let first = node.inputs.iter().copied().min().unwrap_or(NodeId(0));
                    node.inputs.iter().for_each(|&id| self.set(id, Wish(vec![Term::Like(first.0)])));
                    self.set(first, default.clone());
                }
                Op::LinearSum { first, .. } => {
                    self.set(input(usize::from(!first)), default.clone());
                    if let (Some(wish), false) = (wish, first) {
                        self.set(input(0), wish);
                    }
                }
                Op::SquareSum { .. } => {}
                Op::Apply { function } => {
                    let polynomial = tape.constants.functions[*function].is_polynomial();
                    if tape.constants.functions[*function].is_at_default() {
                        self.set(NodeId(i), default.clone());
                    }
                    let best = match polynomial {
                        true => Wish::of(2.0 * divisor(self.on, reads)?),
                        false => default.clone(),
                    };
                    self.set(input(0), best);
                }
                Op::Combine { .. } | Op::CombineVectors { .. } | Op::Scaled { .. } | Op::MulVectors { .. } => {
                    if round == Round::Any {
                        self.set(input(0), default.clone());
                    }
                }
                Op::Add | Op::Sub => {
                    let Some(wish) = wish else { continue };
                    let (earlier, later) = (input(0).min(input(1)), input(0).max(input(1)));
                    let like = match wish.0.first() {
                        Some(Term::Like(_)) => wish.clone(),
                        _ => Wish(vec![Term::Like(earlier.0)]),
                    };
                    self.set(earlier, wish);
                    self.set(later, like);
                }
                Op::Mul | Op::DotProduct if input(0) == input(1) => {
                    if let Some(wish) = wish {
                        let divisor = divisor(self.on, reads)?;
                        self.set(input(0), wish.then(&[Term::Times(divisor), Term::Root]));
                    }
                }
                Op::Mul | Op::DotProduct | Op::Dot => {
                    if let (Some(wish), true) = (wish, round >= Round::Products) {
                        self.product(i, (input(0), input(1)), &wish)?;
                    }
                }
                Op::Real | Op::Parts { .. } => {
                    if let Some(wish) = wish {
                        self.set(input(0), wish.then(&[Term::By(2.0)]));
                    }
                }
                Op::ReadAs { factor } => {
                    if let Some(wish) = wish {
                        self.set(input(0), wish.then(&[Term::Times(*factor)]));
                    }
                }
                _ => {
                    if let Some(wish) = wish {
                        node.inputs.iter().for_each(|&id| self.set(id, wish.clone()));
                    }
                }
            }
        }
        Ok(())
    }

    /// A product of two operands: if neither has a wish, both take the same; a single vector balances the other side.
    fn product(&mut self, i: usize, (a, b): (NodeId, NodeId), wish: &Wish) -> Result<(), FheError> {
        let node = &self.tape.nodes[i];
        let divisor = divisor(self.on, self.levels[i].reads)?;
        let settled = |wishes: &Self, id: NodeId| wishes.known(id).is_some() || !wishes.free[id.0];
        let single = self.tape.nodes[b.0].shape == (1, 1);
        if node.op == Op::Dot {
            // Operands of matrix products may be computed in any order, so both go by what is expected.
            let wide = Wish::of(wish.value(&|node| self.expected(node))).then(&[Term::Times(divisor)]);
            if !settled(self, a) && !settled(self, b) && !single {
                let both = wide.then(&[Term::Root]);
                self.set(a, both.clone());
                self.set(b, both);
                return Ok(());
            }
            let (first, second) = if settled(self, b) && !settled(self, a) { (b, a) } else { (a, b) };
            let default = self.on.default_scale().value();
            let known = self.known(first).unwrap_or(default);
            if !settled(self, first) {
                self.set(first, Wish::of(default));
            }
            self.set(second, wide.then(&[Term::By(known)]));
            return Ok(());
        }
        let wide = wish.then(&[Term::Times(divisor)]);
        if settled(self, b) && !settled(self, a) {
            self.set(a, wide.then(&[Term::Over(b.0)]));
            return Ok(());
        }
        // The later one balances the earlier.
        let (a, b) = if settled(self, a) || a < b { (a, b) } else { (b, a) };
        if !settled(self, a) {
            self.set(a, Wish::of(self.on.default_scale().value()));
        }
        self.set(b, wide.then(&[Term::Over(a.0)]));
        Ok(())
    }
}
