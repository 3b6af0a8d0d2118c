//! Products of a few rows with a shared matrix that grows: the keys and values of a text that is continued.
//!
//! The client's share of the rows that earlier passes left does not change, so their ciphertexts need not be sent
//! again: the server keeps those of every [`KEPT_ROWS`] rows and multiplies them by its share of each new row of
//! queries or weights. Sent are then the new row's own ciphertexts and those of the rows after the last that are kept,
//! fewer than as many. To multiply a ciphertext again tells the server nothing, and every response carries a zero and a
//! mask of its own, as always.
//!
//! X·Y with Y = [Y_1 | Y_2 | … | rest], by columns (keys, transposed), has the products with its parts beside each
//! other; with Y cut by rows (values) it is the sum of X_i·Y_i, and the server adds their leaves.

use super::{Blocks, MatmulShape, add, own_products};
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_len};
use crate::he::engine::{INPUT, collect, expect_words, respond, send_inputs, term_inputs};
use crate::he::layout::answer::{Answer, Cells, Term, cost};
use crate::he::layout::known::Layouts;
use crate::he::layout::{Layout, OltSpec};
use crate::he::price::sending;
use crate::he::window::{Encrypted, OltShape};
use crate::he::wire::OltCost;
use crate::he::{HeContext, HeError};
use crate::share::{Ring, Share};
use hushed_net::{Expect, Session};
use std::ops::Range;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The rows of keys or values whose ciphertexts are kept together.
pub const KEPT_ROWS: usize = 32;

/// With more rows of X than this, as in a prompt, all of Y is sent in windows for that many.
const FEW: usize = 8;

/// Room for the noise of the other blocks of a sum of values: errors are independent, so those of 64 blocks add 3 bits.
const SPARE_BITS: u32 = 3;

/// How Y grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grows {
    /// By columns: keys, transposed.
    Columns,
    /// By rows: values.
    Rows,
}

/// Products of shared matrices, X by a Y that has grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PastShape {
    /// The products, with all of Y.
    pub product: MatmulShape,
    /// How Y grows.
    pub grows: Grows,
    /// Rows of keys or values before this pass.
    pub before: usize,
}

/// What a party has of the ciphertexts that are kept: the server the bytes that it received, the client their number.
#[derive(Default)]
pub struct Kept {
    blocks: usize,
    /// Of each block, at the server.
    frames: Vec<Vec<Vec<u8>>>,
}

impl Kept {
    /// Forgets what is not of the first `rows` rows.
    pub fn truncate(&mut self, rows: usize) {
        self.blocks = self.blocks.min(rows / KEPT_ROWS);
        self.frames.truncate(self.blocks);
    }
}

/// The operand that a term encrypts.
#[derive(Clone)]
enum Operand {
    /// X.
    Left,
    /// A block of rows of keys or values, which is kept.
    Block(usize, Range<usize>),
    /// The rows after the last block.
    Rest(Range<usize>),
}

impl Operand {
    /// X, a block, the rest.
    fn kind(&self) -> usize {
        match self {
            Operand::Left => 0,
            Operand::Block(..) => 1,
            Operand::Rest(_) => 2,
        }
    }
}

/// Common responses, with what each term encrypts.
type Planned = (Answer, Vec<Operand>);

impl PastShape {
    /// Rows of keys or values.
    fn length(&self) -> usize {
        match self.grows {
            Grows::Columns => self.product.shape.n,
            Grows::Rows => self.product.shape.m,
        }
    }

    fn is_long(&self) -> bool {
        self.product.shape.k > FEW
    }

    /// The blocks that were kept before, and after.
    fn blocks(&self) -> (usize, usize) {
        (self.before / KEPT_ROWS, self.length() / KEPT_ROWS)
    }

    /// The products with `rows` rows of keys or values, for `k` rows of X.
    fn part(&self, k: usize, rows: usize) -> MatmulShape {
        let OltShape { m, n, .. } = self.product.shape;
        let shape = match self.grows {
            Grows::Columns => OltShape { k, m, n: rows },
            Grows::Rows => OltShape { k, m: rows, n },
        };
        MatmulShape { shape, ..self.product }
    }

    /// The layout of a block that is kept: its windows are those for one row of X.
    fn block(&self, ring: Ring, layouts: &Layouts) -> Result<Arc<Layout>, TwopcError> {
        let spec = self.part(1, KEPT_ROWS).spec(ring, Encrypted::Right);
        let one = layouts.of(&OltSpec { spare_bits: SPARE_BITS, ..spec })?;
        let k = self.product.shape.k;
        match k == 1 || self.is_long() {
            true => Ok(one),
            false => Ok(Arc::new(one.with_shape(layouts.params(), self.part(k, KEPT_ROWS).shape)?)),
        }
    }

    /// The cells of a term for these rows of keys or values.
    fn cells(&self, rows: &Range<usize>, layout: &Layout) -> Cells {
        match self.grows {
            Grows::Columns => Cells { width: rows.len(), of: self.length(), start: rows.start },
            Grows::Rows => Cells::from(0, layout),
        }
    }

    /// The responses for few rows of X.
    fn planned(&self, ring: Ring, layouts: &Layouts) -> Result<Vec<Planned>, TwopcError> {
        let k = self.product.shape.k;
        let sent = |spec: OltSpec| layouts.of(&OltSpec { spare_bits: 1, ..spec });
        let left = sent(self.product.spec(ring, Encrypted::Left))?;
        let cells = Cells::from(0, &left);
        let mut terms = vec![(Term::new(left, cells, true), Operand::Left)];
        let (before, after) = self.blocks();
        let kept = self.block(ring, layouts)?;
        for block in 0..after {
            let rows = block * KEPT_ROWS..(block + 1) * KEPT_ROWS;
            let cells = self.cells(&rows, &kept);
            terms.push((Term::new(Arc::clone(&kept), cells, block >= before), Operand::Block(block, rows)));
        }
        let rest = after * KEPT_ROWS..self.length();
        if !rest.is_empty() {
            let layout = sent(self.part(k, rest.len()).spec(ring, Encrypted::Right))?;
            let cells = self.cells(&rest, &layout);
            terms.push((Term::new(layout, cells, true), Operand::Rest(rest)));
        }
        self.joined(terms, layouts)
    }

    /// Terms over different moduli answer apart. Of those over the same, X, the blocks and the rest share responses in
    /// the cheapest way: a term with a small mw takes many responses for all that are with it.
    fn joined(&self, mut terms: Vec<(Term, Operand)>, layouts: &Layouts) -> Result<Vec<Planned>, TwopcError> {
        const WAYS: [[usize; 3]; 5] = [[0, 0, 0], [0, 0, 1], [0, 1, 1], [0, 1, 0], [0, 1, 2]];
        let join = |terms: Vec<(Term, Operand)>| {
            let (terms, operands): (Vec<_>, Vec<_>) = terms.into_iter().unzip();
            Some((Answer::together(layouts.params(), terms)?, operands))
        };
        let mut planned = Vec::new();
        let limbs = |(term, _): &(Term, Operand)| term.layout.packing_limbs;
        terms.sort_by_key(limbs);
        for group in terms.chunk_by(|a, b| limbs(a) == limbs(b)) {
            let by_label = |way: &[usize; 3]| {
                let label = |label: usize| {
                    let own = group.iter().filter(|(_, operand)| way[operand.kind()] == label);
                    own.cloned().collect::<Vec<_>>()
                };
                let parts = (0..3).map(label).filter(|part| !part.is_empty());
                parts.map(join).collect::<Option<Vec<Planned>>>()
            };
            let apart = group.chunks(1).map(|term| join(term.to_vec())).collect::<Option<Vec<Planned>>>();
            let ways = WAYS.iter().map(by_label).chain([apart]).flatten();
            let OltShape { k, m, n } = self.product.shape;
            let none = HeError::Shape { k, m, n, batch: self.product.batch };
            planned.extend(ways.min_by_key(|way| cost_of(way).nanoseconds_over(layouts.link())).ok_or(none)?);
        }
        Ok(planned)
    }

    /// Traffic and work.
    ///
    /// # Errors
    /// As [`Layouts::of`].
    pub fn cost(&self, ring: Ring, layouts: &Layouts) -> Result<OltCost, TwopcError> {
        if !self.is_long() {
            return Ok(cost_of(&self.planned(ring, layouts)?));
        }
        let (before, after) = self.blocks();
        let (block, new) = (self.block(ring, layouts)?, (after - before.min(after)) as u64);
        let (inputs, bytes_in) = (new * block.tiling.inputs() as u64, new * block.tiling.cost().bytes_in);
        let nanoseconds = sending((inputs, bytes_in), block.product_limbs as u64);
        let kept = OltCost { inputs, bytes_in, nanoseconds, ..OltCost::default() };
        Ok(cost(layouts.of_sum(self.product.mixed(ring))?.iter()) + kept)
    }

    /// Bytes that the server holds during the product.
    ///
    /// # Errors
    /// As [`Layouts::of`].
    pub fn held_bytes(&self, ring: Ring, layouts: &Layouts) -> Result<usize, TwopcError> {
        let answers: Vec<Answer> = match self.is_long() {
            true => layouts.of_sum(self.product.mixed(ring))?.to_vec(),
            false => self.planned(ring, layouts)?.into_iter().map(|(answer, _)| answer).collect(),
        };
        Ok(answers.iter().flat_map(Answer::terms).map(|term| term.layout.held_bytes()).sum())
    }

    /// Bytes of the ciphertexts that the server keeps after it.
    ///
    /// # Errors
    /// As [`Layouts::of`].
    pub fn kept_bytes(&self, ring: Ring, layouts: &Layouts) -> Result<usize, TwopcError> {
        let block = self.block(ring, layouts)?;
        Ok(self.blocks().1 * block.tiling.inputs() * block.input.bytes())
    }
}

fn cost_of(planned: &[Planned]) -> OltCost {
    cost(planned.iter().map(|(answer, _)| answer))
}

/// [`super::matmul_shared`] for a Y that has grown. Keeps the ciphertexts of the rows that are complete, and uses those
/// that earlier passes kept in `kept`.
///
/// # Errors
/// [`TwopcError::Misuse`] if `kept` lacks some of the rows before; else those of [`super::matmul_shared`].
pub fn matmul_past(
    ctx: &mut Ctx,
    he: &HeContext,
    x: &Share,
    y: &Share,
    shape: &PastShape,
    kept: &mut Kept,
) -> Result<Share, TwopcError> {
    let (ring, product) = (x.ring(), &shape.product);
    let OltShape { k, m, n } = product.shape;
    let (before, after) = shape.blocks();
    kept.truncate(shape.before);
    expect_len("matmul_past", "kept blocks", kept.blocks, before)?;
    expect_words(x.words(), product.batch * k * m)?;
    expect_words(y.words(), product.batch * m * n)?;
    if shape.is_long() {
        return matmul_long(ctx, he, x, y, shape, kept);
    }
    let planned = shape.planned(ring, he.layouts())?;
    let mut sum = own_products(x, y, product);
    if ctx.is_client() {
        for (answer, operands) in &planned {
            for (term, operand) in answer.terms().iter().zip(operands).filter(|(term, _)| term.sent) {
                match operand {
                    Operand::Left => send_inputs(ctx, he, &term.layout, x.words())?,
                    Operand::Block(_, rows) | Operand::Rest(rows) => {
                        send_inputs(ctx, he, &term.layout, y_part(y, shape, rows).words())?;
                    }
                }
            }
        }
        for (answer, _) in &planned {
            add(&mut sum, &Zeroizing::new(collect(&mut ctx.session, he, answer)?));
        }
        kept.blocks = after;
        return Ok(Share::new(ring, sum.into_words()));
    }
    let mut received = Vec::with_capacity(planned.len());
    for (answer, operands) in &planned {
        let mut inputs = Vec::with_capacity(operands.len());
        for (term, operand) in answer.terms().iter().zip(operands) {
            inputs.push(match operand {
                Operand::Block(block, _) => {
                    if term.sent {
                        kept.frames.push(receive_block(&mut ctx.session, &term.layout)?);
                    }
                    let mut frames = kept.frames.get(*block).into_iter().flatten();
                    let next = |_| frames.next().cloned().ok_or_else(|| missing(shape));
                    term_inputs(he, answer, term, next)?
                }
                Operand::Left | Operand::Rest(_) => {
                    term_inputs(he, answer, term, |length| Ok(ctx.session.recv(INPUT, length)?))?
                }
            });
        }
        received.push(inputs);
    }
    kept.blocks = after;
    for ((answer, operands), inputs) in planned.iter().zip(&received) {
        let value = |operand: &Operand| match operand {
            Operand::Left => y.clone(),
            Operand::Block(_, rows) | Operand::Rest(rows) => x_part(x, shape, rows),
        };
        let values: Vec<Share> = operands.iter().map(value).collect();
        let (bits, signed) = (ring.bits() - 1, |w: u64| ring.decode(w));
        let terms = answer.terms().iter().map(|term| &term.layout.tiling).zip(&values);
        let sources: Vec<_> =
            terms.map(|(tiling, values)| Blocks { values: values.words(), tiling, bits, signed }).collect();
        add(&mut sum, &Zeroizing::new(respond(ctx, he, answer, inputs, &sources)?));
    }
    Ok(Share::new(ring, sum.into_words()))
}

/// The bytes of a block's ciphertexts.
fn receive_block(session: &mut Session, layout: &Layout) -> Result<Vec<Vec<u8>>, TwopcError> {
    let length = layout.input.bytes();
    let frames = (0..layout.tiling.inputs()).map(|_| Ok(session.recv(INPUT, Expect::Exactly(length))?));
    frames.collect()
}

fn missing(shape: &PastShape) -> TwopcError {
    HeError::Operand { expected: shape.length(), found: shape.before }.into()
}

/// The product for many rows of X; what is to be kept is sent for that alone.
fn matmul_long(
    ctx: &mut Ctx,
    he: &HeContext,
    x: &Share,
    y: &Share,
    shape: &PastShape,
    kept: &mut Kept,
) -> Result<Share, TwopcError> {
    let (before, after) = shape.blocks();
    let layout = shape.block(x.ring(), he.layouts())?;
    for block in before..after {
        if ctx.is_client() {
            let rows = block * KEPT_ROWS..(block + 1) * KEPT_ROWS;
            send_inputs(ctx, he, &layout, y_part(y, shape, &rows).words())?;
        } else {
            kept.frames.push(receive_block(&mut ctx.session, &layout)?);
        }
    }
    kept.blocks = after;
    super::matmul_shared(ctx, he, x, y, &shape.product)
}

/// Some rows of keys or values.
fn y_part(y: &Share, shape: &PastShape, rows: &Range<usize>) -> Share {
    let OltShape { m, n, .. } = shape.product.shape;
    let places = (0..shape.product.batch).flat_map(|p| (0..m).map(move |i| (p, i)));
    let places: Vec<usize> = match shape.grows {
        Grows::Columns => places.flat_map(|(p, i)| rows.clone().map(move |c| (p * m + i) * n + c)).collect(),
        Grows::Rows => {
            let inside = places.filter(|(_, i)| rows.contains(i));
            inside.flat_map(|(p, i)| (0..n).map(move |c| (p * m + i) * n + c)).collect()
        }
    };
    y.gather(&places)
}

/// The columns of X that these rows are multiplied by.
fn x_part(x: &Share, shape: &PastShape, rows: &Range<usize>) -> Share {
    let OltShape { k, m, .. } = shape.product.shape;
    match shape.grows {
        Grows::Columns => x.clone(),
        Grows::Rows => {
            let lines = 0..shape.product.batch * k;
            x.gather(&lines.flat_map(|line| rows.clone().map(move |i| line * m + i)).collect::<Vec<_>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, keys, reveal, run_after, share};

    /// A text of these passes: each product is right, costs what is declared, and is as cheap as its new rows.
    fn passes(grows: Grows, lengths: &[usize], (width, batch, bits): (usize, usize, u32)) {
        let ring = Ring::new(bits);
        let total: usize = lengths.iter().sum();
        let mut seed = 7;
        let mut numbers = |count: usize| {
            seed += 1;
            crate::testing::values(count, ring, seed)
        };
        // Keys or values, row by row: batch × total × width.
        let past = numbers(batch * total * width);
        let mut length = 0;
        let mut products = Vec::new();
        for &new in lengths {
            let before = length;
            length += new;
            let (inner, columns) = match grows {
                Grows::Columns => (width, length),
                Grows::Rows => (length, width),
            };
            let product = MatmulShape { shape: OltShape { k: new, m: inner, n: columns }, batch };
            let row = |p: usize, i: usize| &past[(p * total + i) * width..][..width];
            let mut y = Vec::new();
            for p in 0..batch {
                match grows {
                    Grows::Rows => (0..length).for_each(|i| y.extend_from_slice(row(p, i))),
                    Grows::Columns => (0..width).for_each(|j| y.extend((0..length).map(|i| row(p, i)[j]))),
                }
            }
            let x = numbers(batch * new * inner);
            let want: Vec<u64> = x
                .chunks(new * inner)
                .zip(y.chunks(inner * columns))
                .flat_map(|(x, y)| hushed_math::product(x, y, new, inner, columns))
                .map(|w| ring.reduce(w))
                .collect();
            products.push((PastShape { product, grows, before }, share(ring, &x, 3), y, want));
        }
        // The shares of a row of Y are the same in every pass.
        let masks = share(ring, &vec![0; batch * total * width], 11).0;
        let shares: Vec<_> = products
            .iter()
            .map(|(shape, _, y, _)| {
                let length = shape.length();
                let place = |p: usize, i: usize, j: usize| (p * total + i) * width + j;
                let all = (0..batch).flat_map(|p| match grows {
                    Grows::Rows => (0..length)
                        .flat_map(|i| (0..width).map(move |j| (i, j)))
                        .map(|(i, j)| place(p, i, j))
                        .collect::<Vec<_>>(),
                    Grows::Columns => {
                        (0..width).flat_map(|j| (0..length).map(move |i| (i, j))).map(|(i, j)| place(p, i, j)).collect()
                    }
                });
                let client = masks.gather(&all.collect::<Vec<_>>());
                let server = Share::new(ring, y.clone()).sub(&client);
                (client, server)
            })
            .collect();
        let mut declared = Vec::new();
        let run = |ctx: &mut Ctx, he: &HeContext| {
            let (mut kept, mut done) = (Kept::default(), Vec::new());
            for ((shape, x, ..), y) in products.iter().zip(&shares) {
                let (x, y) = if ctx.is_client() { (&x.0, &y.0) } else { (&x.1, &y.1) };
                let before = ctx.session.stats();
                done.push(matmul_past(ctx, he, x, y, shape, &mut kept).unwrap());
                let spent = ctx.session.stats().since(&before);
                let cost = shape.cost(ring, he.layouts()).unwrap();
                let bytes = cost.traffic().wire_bytes();
                assert_eq!(spent.bytes_sent + spent.bytes_received, bytes, "{shape:?}");
            }
            done
        };
        let (a, b, stats) = run_after(keys, |ctx, he| run(ctx, he), |ctx, he| run(ctx, he));
        let layouts = Layouts::new(hushed_rlwe::RlweParams::olt_full().unwrap());
        for ((shape, _, _, want), (a, b)) in products.iter().zip(a.iter().zip(&b)) {
            for (found, want) in reveal(a, b).iter().zip(want) {
                let off = ring.decode(ring.reduce(found.wrapping_sub(*want)));
                assert!(off.unsigned_abs() <= 2 + shape.length() as u64 / KEPT_ROWS as u64, "{shape:?}: {off}");
            }
            declared.push(shape.cost(ring, &layouts).unwrap());
        }
        let all = declared.iter().map(OltCost::traffic).fold(crate::Cost::ZERO, |sum, cost| sum + cost);
        assert_cost(&stats, all);
        // Not all ciphertexts are sent again.
        let whole = |shape: &PastShape| cost(layouts.of_sum(shape.product.mixed(ring)).unwrap().iter());
        let (last, shape) = (declared[declared.len() - 1], &products[products.len() - 1].0);
        assert!(last.bytes_in < whole(shape).bytes_in, "{last:?} {:?}", whole(shape));
    }

    #[test]
    fn keys_that_grow() {
        passes(Grows::Columns, &[40, 1, 24, 1, 1], (64, 6, 35));
    }

    #[test]
    fn values_that_grow() {
        passes(Grows::Rows, &[70, 1, 2, 24, 1], (64, 6, 40));
    }

    #[test]
    fn what_is_kept_is_of_the_rows_before() {
        let ring = Ring::new(35);
        let product = MatmulShape { shape: OltShape { k: 1, m: 4, n: 65 }, batch: 1 };
        let shape = PastShape { product, grows: Grows::Columns, before: 64 };
        let run = |ctx: &mut Ctx, he: &HeContext| {
            let (x, y) = (Share::zero(ring, 4), Share::zero(ring, 260));
            matmul_past(ctx, he, &x, &y, &shape, &mut Kept::default()).is_err()
        };
        let (a, b, _) = run_after(keys, |ctx, he| run(ctx, he), |ctx, he| run(ctx, he));
        assert!(a && b);
        let mut kept = Kept { blocks: 3, frames: Vec::new() };
        kept.truncate(95);
        assert_eq!(kept.blocks, 2);
    }
}
