//! Arithmetic of shapes.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::faults::{MAX_ELEMENTS, NodeFault};

/// A dimension of a reshaped value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many.
    Is(usize),
    /// What is left.
    Rest,
    /// The dimensions of the operand from this one to that one, as one; negative numbers count from the end.
    Flat(i64, i64),
}

/// The place of a dimension of a value; negative numbers count from the end. `None` if there is none.
pub(super) fn place(dim: i64, dimensions: usize) -> Option<usize> {
    let counted = if dim < 0 { dim.checked_add(i64::try_from(dimensions).ok()?)? } else { dim };
    usize::try_from(counted).ok().filter(|&place| place < dimensions)
}

/// The places of several dimensions, ascending; `None` if one is none, or is there twice.
pub(super) fn places(dims: &[i64], dimensions: usize) -> Option<Vec<usize>> {
    let mut places: Vec<usize> = dims.iter().map(|&dim| place(dim, dimensions)).collect::<Option<_>>()?;
    places.sort_unstable();
    places.windows(2).all(|pair| matches!(pair, [a, b] if a < b)).then_some(places)
}

/// A shape without these dimensions, or with sizes of 1 in their place.
pub(super) fn without(from: &[usize], places: &[usize], keep: bool) -> Vec<usize> {
    let each = from.iter().enumerate().filter_map(|(place, &size)| match places.contains(&place) {
        true => keep.then_some(1),
        false => Some(size),
    });
    each.collect()
}

/// The shape of values one after another along a dimension; `None` unless their other sizes are equal.
pub(super) fn joined(shapes: &[&[usize]], dim: i64) -> Option<Vec<usize>> {
    let first = *shapes.first()?;
    let at = place(dim, first.len())?;
    let mut all = 0_usize;
    for shape in shapes {
        all = all.checked_add(*shape.get(at)?)?;
        if without(shape, &[at], true) != without(first, &[at], true) {
            return None;
        }
    }
    let mut shape = first.to_vec();
    *shape.get_mut(at)? = all;
    Some(shape)
}

/// The shape with these sizes; `None` if it has other numbers than `from`.
pub(super) fn reshaped(from: &[usize], sizes: &[Size]) -> Option<Vec<usize>> {
    let all = product(from)?;
    if let [Size::Flat(start, end)] = *sizes {
        let (start, end) = (place(start, from.len())?, place(end, from.len())?);
        let flat = product(from.get(start..=end)?)?;
        return Some([from.get(..start)?, &[flat], from.get(end + 1..)?].concat());
    }
    let known: Vec<usize> = sizes.iter().filter_map(|s| if let Size::Is(n) = s { Some(*n) } else { None }).collect();
    let known = product(&known)?;
    let rest = all.checked_div(known)?;
    let shape: Vec<usize> = sizes.iter().map(|s| if let Size::Is(n) = s { *n } else { rest }).collect();
    (product(&shape)? == all).then_some(shape)
}

/// The product of sizes, if it can be counted.
pub(super) fn product(sizes: &[usize]) -> Option<usize> {
    sizes.iter().try_fold(1_usize, |all, &size| all.checked_mul(size))
}

/// Refuses values that take too much memory.
pub(super) fn bounded(elements: Option<usize>) -> Result<(), NodeFault> {
    match elements {
        Some(elements) if elements <= MAX_ELEMENTS => Ok(()),
        _ => Err(NodeFault::TooLarge { elements: elements.unwrap_or(usize::MAX), limit: MAX_ELEMENTS }),
    }
}
