//! Linear layers on packed rows: a sum of maps of several matrices, plus a bias.

use hushed_ckks::lintrans::LinTransError;
use hushed_ckks::maps::{GridSplit, MapGrid};
use hushed_ckks::{CkksError, Complex64, Scale};
use hushed_lower::LinearMap;
use hushed_model::StepId;

use super::rows::PackedRows;
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::packing::{Layout, PackingError, Spread, Weight};
use crate::slots::Slots;

/// A matrix in packed rows, and the map applied to it.
pub struct Term<'a, V> {
    /// The places of its columns.
    pub places: Spread,
    /// Its vectors of pairs.
    pub vectors: &'a [V],
    /// The weights; biases are not used.
    pub map: &'a LinearMap,
}

/// The sum of the terms, plus `bias`, at scale `target`: one level below the vector with the fewest primes. All
/// vectors have the same scale.
///
/// # Errors
/// [`PackingError::Mismatch`] for vectors or maps of other shapes; a missing level or key.
pub fn linear<S: Slots>(
    on: &S,
    rows: &PackedRows<()>,
    out: &Spread,
    terms: &[Term<'_, S::Value>],
    bias: &[f64],
    target: Scale,
) -> Result<Vec<S::Value>, FheError> {
    let all = terms.iter().flat_map(|term| term.vectors);
    let limbs = all.map(|x| on.limbs(x)).min().unwrap_or(on.floor());
    let mut inputs = Vec::new();
    for term in terms {
        let (vectors, map) = (term.places.vectors(), term.map);
        let shape = map.columns == term.places.width() && map.rows == out.width();
        if term.vectors.len() != vectors || !shape {
            return Err(PackingError::Mismatch.into());
        }
        let short = term.vectors.iter().map(|x| on.drop_to(x, limbs));
        let short = short.collect::<Result<Vec<_>, FheError>>()?;
        let conjugates = short.iter().map(|x| on.conjugate(x));
        let conjugates = conjugates.collect::<Result<Vec<_>, FheError>>()?;
        inputs.extend(short.into_iter().chain(conjugates));
    }
    let maps: Vec<_> = terms.iter().map(|term| (term.places, term.map)).collect();
    let (grid, split) = grid(rows.layout(), out, &maps).map_err(CkksError::from)?;
    let sums = on.maps(&grid, &split, &inputs, target)?;
    let biased = sums.into_iter().enumerate().map(|(vector, sum)| {
        let pair = |_: usize, _: usize, place: usize| match out.columns_at(vector, place) {
            Some(columns) => {
                let [a, b] = columns.map(|column| bias.get(column).copied().unwrap_or(0.0));
                Complex64::new(a, b)
            }
            _ => Complex64::ZERO,
        };
        on.add_pairs(sum, &rows.pairs(on, pair))
    });
    biased.collect()
}

/// The sum of maps of matrices in these places and of their conjugates, and how its rotations are split.
pub(crate) fn grid(
    layout: Layout,
    out: &Spread,
    terms: &[(Spread, &LinearMap)],
) -> Result<(MapGrid, GridSplit), LinTransError> {
    let weights: Vec<_> = terms.iter().map(|(_, map)| weight(map)).collect();
    let maps: Vec<(Spread, &Weight<'_>)> =
        terms.iter().zip(&weights).map(|((places, _), weight)| (*places, weight as &Weight<'_>)).collect();
    let grid = layout.sum_of_maps(out, &maps)?;
    let split = GridSplit::balanced(&grid)?;
    Ok((grid, split))
}

/// The weights by row and column; zeros if only shapes count.
fn weight(map: &LinearMap) -> impl Fn(usize, usize) -> f64 + '_ {
    |row, column| {
        let at = map.weights.get(row * map.columns + column);
        at.copied().unwrap_or(0.0)
    }
}

/// The layer `w` as a map of the vectors of `x`, with gains and offsets folded in.
pub fn folded<S: Slots>(
    on: &S,
    at: StepId,
    x: &Acts<S::Value>,
    w: &hushed_model::Linear,
) -> Result<LinearMap, FheError> {
    hushed_model::same(at, "columns", x.gain.len(), w.inputs)?;
    if on.only_shapes() {
        return Ok(LinearMap::shape(w.outputs, w.inputs));
    }
    Ok(LinearMap::of(at, w)?.reading(&x.gain, &x.offset))
}

/// The last map of a block whose result joins a sum within `bound`: the layer divided by it.
///
/// # Errors
/// [`hushed_model::ModelError::ShapesOnly`] if the layer has no numbers.
pub fn over<S: Slots>(on: &S, at: StepId, w: &hushed_model::Linear, bound: f64) -> Result<LinearMap, FheError> {
    match on.only_shapes() {
        true => Ok(LinearMap::shape(w.outputs, w.inputs)),
        false => Ok(LinearMap::of(at, w)?.times(1.0 / bound)),
    }
}
