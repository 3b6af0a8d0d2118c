//! A tape on plain numbers: no level, no scale, no error. What every other execution is compared with.

use std::collections::BTreeMap;

use hushed_ckks::Complex64;

use crate::error::FheError;
use crate::packing::PackingError;
use crate::tape::{Op, Plain, Tape};

/// Rows of vectors of slots.
pub(crate) type Block = Vec<Vec<Vec<Complex64>>>;

/// How functions are computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Functions {
    /// Themselves.
    Exact,
    /// By what approximates them.
    Approximate,
}

/// The values of all nodes.
///
/// # Errors
/// An input that is not there, shapes that differ.
pub(crate) fn exact(tape: &Tape, inputs: &BTreeMap<&str, Block>, how: Functions) -> Result<Vec<Block>, FheError> {
    let mut values: Vec<Block> = Vec::with_capacity(tape.nodes.len());
    for node in &tape.nodes {
        let of = |i: usize| -> Result<&Block, FheError> {
            let found = node.inputs.get(i).and_then(|id| values.get(id.0));
            Ok(found.ok_or(PackingError::Mismatch)?)
        };
        let all = || node.inputs.iter().filter_map(|id| values.get(id.0));
        let slots = || Ok::<usize, FheError>(of(0)?[0][0].len());
        let constants = &tape.constants;
        let each = |f: &dyn Fn(usize, usize, Complex64) -> Complex64| -> Result<Block, FheError> {
            let x = of(0)?;
            let width = x[0].len();
            let vector = |(i, v): (usize, &Vec<Complex64>)| v.iter().enumerate().map(|(s, &z)| f(i, s, z)).collect();
            Ok(rows(x.iter().flatten().enumerate().map(vector).collect(), width))
        };
        // A vector alone, with each of the constants.
        let alone = |count: usize, f: &dyn Fn(usize, usize, Complex64) -> Complex64| -> Result<Block, FheError> {
            let x = of(0)?;
            match (x.as_slice(), count) {
                ([row], 2..) if row.len() == 1 => {
                    let vector = |k: usize| row[0].iter().enumerate().map(|(s, &z)| f(k, s, z)).collect();
                    Ok(vec![(0..count).map(vector).collect()])
                }
                _ => each(f),
            }
        };
        let both = |f: &dyn Fn(Complex64, Complex64) -> Complex64| -> Result<Block, FheError> {
            let other: Vec<&Vec<Complex64>> = of(1)?.iter().flatten().collect();
            each(&|i, s, z| f(z, other[i.min(other.len() - 1)][s]))
        };
        let vectors = |i: usize| -> Block { vec![constants.vectors[i].iter().map(slots_of).collect()] };
        let times_i = |z: Complex64| Complex64::new(-z.im, z.re);
        let value = match &node.op {
            Op::Input(name) => inputs.get(name).cloned().ok_or(PackingError::Mismatch)?,
            Op::Linear { map, rows } => {
                let map = constants.maps[*map].rows(rows.clone());
                vec![linear(&map, &of(0)?[0], None)]
            }
            Op::LinearSum { map, columns, first } => {
                let mut part = constants.maps[*map].columns(columns.clone());
                let x = &of(usize::from(!first))?[0];
                if *first {
                    part.bias.clone_from(&constants.maps[*map].bias);
                    vec![linear(&part, x, None)]
                } else {
                    part.bias = None;
                    vec![linear(&part, x, Some(&of(0)?[0]))]
                }
            }
            Op::TernarySum { map, columns, first } => {
                let mut part = constants.maps[*map].columns(columns.clone()).times(1.0 / constants.maps[*map].bound);
                part.bias = None;
                let begun = if *first { None } else { Some(&of(0)?[0]) };
                vec![linear(&part, &of(usize::from(!first))?[0], begun)]
            }
            Op::SquareSum { first } => {
                let x = &of(usize::from(!first))?[0];
                let begun = if *first { None } else { Some(&of(0)?[0][0]) };
                let term = |s: usize| {
                    begun.map_or(Complex64::default(), |b| b[s]) + x.iter().map(|v| v[s] * v[s]).sum::<Complex64>()
                };
                vec![vec![(0..x[0].len()).map(term).collect()]]
            }
            Op::Finished | Op::TernaryFinished | Op::Kept | Op::Output | Op::Mark { .. } => of(0)?.clone(),
            Op::Dot => {
                let (left, right, slots) = (of(0)?, of(1)?, slots()?);
                let sum = |i: usize, j: usize| {
                    let term = |s: usize| (0..left.len()).map(|k| left[k][i][s] * right[k][j][s]).sum();
                    (0..slots).map(term).collect()
                };
                (0..left[0].len()).map(|i| (0..right[0].len()).map(|j| sum(i, j)).collect()).collect()
            }
            Op::DotProduct => {
                let (a, b) = (&of(0)?[0], &of(1)?[0]);
                let term = |s: usize| a.iter().zip(b).map(|(a, b)| a[s] * b[s]).sum();
                vec![vec![(0..slots()?).map(term).collect()]]
            }
            Op::Mul => both(&|a, b| a * b)?,
            Op::Add => both(&|a, b| a + b)?,
            Op::Sub => both(&|a, b| a - b)?,
            Op::Combine { numbers } => {
                let c = &constants.numbers[*numbers];
                let term = |s: usize| of(0).map(|x| x[0].iter().zip(c).map(|(v, &c)| v[s] * c).sum());
                vec![vec![(0..slots()?).map(term).collect::<Result<_, _>>()?]]
            }
            Op::CombineVectors { vectors: v } => {
                let (x, v) = (of(0)?, &vectors(*v)[0]);
                let term = |s: usize| x.iter().flatten().zip(v).map(|(x, v)| x[s] * v[s]).sum();
                vec![vec![(0..slots()?).map(term).collect()]]
            }
            Op::Maps { grid } => {
                let (grid, mut x) = (&constants.grids[*grid], Block::new());
                for of in all() {
                    x.extend(of.iter().cloned());
                    if grid.conjugates {
                        x.extend(conjugate(of));
                    }
                }
                let (map, _) = (grid.make)().map_err(hushed_ckks::CkksError::from)?;
                let x: Vec<Vec<Complex64>> = x.into_iter().flatten().collect();
                vec![map.apply(&x).map_err(hushed_ckks::CkksError::from)?]
            }
            Op::Conjugate => conjugate(of(0)?),
            Op::Scaled { numbers } => {
                let c = &constants.numbers[*numbers];
                alone(c.len(), &|i, _, z| z * c[i.min(c.len() - 1)])?
            }
            Op::AddNumbers { numbers } => {
                let c = &constants.numbers[*numbers];
                each(&|i, _, z| z + c[i.min(c.len() - 1)])?
            }
            Op::Total => {
                let mut sum = vec![Complex64::default(); slots()?];
                for v in all().flatten().flatten() {
                    sum.iter_mut().zip(v).for_each(|(sum, z)| *sum += z);
                }
                vec![vec![sum]]
            }
            Op::AddVectors { vectors: v } => {
                let v = &vectors(*v)[0];
                each(&|i, s, z| z + v[i.min(v.len() - 1)][s])?
            }
            Op::MulVectors { vectors: v } => {
                let v = &vectors(*v)[0];
                alone(v.len(), &|i, s, z| z * v[i.min(v.len() - 1)][s])?
            }
            Op::Apply { function } => {
                let f = &constants.functions[*function];
                let mut made = of(0)?.clone();
                for (i, v) in made.iter_mut().flatten().enumerate() {
                    for (s, z) in v.iter_mut().enumerate() {
                        *z = f.at((i, s), z.re, how == Functions::Exact)?.into();
                    }
                }
                made
            }
            Op::Rotate { by } => {
                let row = |(row, by): (&Vec<Vec<Complex64>>, &usize)| turned(&vec![row.clone()], *by).remove(0);
                of(0)?.iter().zip(by).map(row).collect()
            }
            Op::Rotations { by } => {
                let x = &of(0)?[0];
                let all: Vec<Block> = by.iter().map(|by| turned(&vec![x.clone()], *by)).collect();
                (0..x.len()).map(|k| all.iter().map(|turned| turned[0][k].clone()).collect()).collect()
            }
            Op::Pair { conjugate } => {
                let sign = if *conjugate { -1.0 } else { 1.0 };
                let pair = |two: &[Vec<Complex64>]| match two {
                    [a, b] => a.iter().zip(b).map(|(a, b)| a + times_i(*b) * sign).collect(),
                    _ => two[0].clone(),
                };
                vec![of(0)?.concat().chunks(2).map(pair).collect()]
            }
            Op::Parts { width } => {
                let part = |v: &Vec<Complex64>, part: fn(&Complex64) -> f64| v.iter().map(|z| part(z).into()).collect();
                let both = |v| [part(v, |z| z.re), part(v, |z| z.im)];
                vec![of(0)?.iter().flatten().flat_map(both).take(*width).collect()]
            }
            Op::Real => each(&|_, _, z| z.re.into())?,
            Op::ReadAs { factor } => each(&|_, _, z| z * *factor)?,
            Op::Row { row } => vec![of(0)?[*row].clone()],
            Op::Cut { range } => vec![of(0)?.concat()[range.clone()].to_vec()],
            Op::Split { columns } => of(0)?.concat().chunks(*columns).map(<[_]>::to_vec).collect(),
            Op::Join => vec![all().flatten().flatten().cloned().collect()],
            Op::Turn => {
                let x = of(0)?;
                (0..x[0].len()).map(|j| x.iter().map(|row| row[j].clone()).collect()).collect()
            }
        };
        debug_assert_eq!((value.len(), value[0].len()), node.shape, "{} {:?}", node.step, node.op);
        values.push(value);
    }
    Ok(values)
}

fn slots_of(plain: &Plain) -> Vec<Complex64> {
    match plain {
        Plain::Pairs(make) => make(),
        plain => plain.numbers().into_iter().map(Complex64::from).collect(),
    }
}

fn conjugate(x: &Block) -> Block {
    let mut x = x.clone();
    x.iter_mut().flatten().flatten().for_each(|z| *z = z.conj());
    x
}

fn rows(vectors: Vec<Vec<Complex64>>, width: usize) -> Block {
    vectors.chunks(width).map(<[Vec<Complex64>]>::to_vec).collect()
}

fn turned(x: &Block, by: usize) -> Block {
    let mut x = x.clone();
    x.iter_mut().flatten().for_each(|v| v.rotate_left(by));
    x
}

fn linear(
    map: &hushed_lower::LinearMap,
    x: &[Vec<Complex64>],
    add: Option<&Vec<Vec<Complex64>>>,
) -> Vec<Vec<Complex64>> {
    let slots = x[0].len();
    let row = |r: usize| {
        let weights = &map.weights[r * map.columns..(r + 1) * map.columns];
        let bias = map.bias.as_ref().map_or(0.0, |bias| bias[r]);
        let at = |s: usize| {
            let begun = add.map_or(bias.into(), |add| add[r][s]);
            weights.iter().zip(x).fold(begun, |sum: Complex64, (&w, x)| sum + x[s] * w)
        };
        (0..slots).map(at).collect()
    };
    (0..map.rows).map(row).collect()
}
