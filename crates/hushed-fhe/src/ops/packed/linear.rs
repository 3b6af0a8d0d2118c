//! Linear layers on packed rows: a sum of maps of several matrices, plus a bias.

use hushed_ckks::maps::GridSplit;
use hushed_ckks::{CkksError, Complex64, Scale};
use hushed_lower::LinearMap;
use hushed_model::StepId;

use super::rows::{Kept, PackedRows};
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::packing::{PackingError, Spread, Weight};
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

/// The sum of the terms, plus `bias` in rows `kept`, at scale `target`: one level below the vector with the fewest
/// primes. All vectors have the same scale.
///
/// # Errors
/// [`PackingError::Mismatch`] for vectors or maps of other shapes; a missing level or key.
pub fn linear<S: Slots>(
    on: &S,
    rows: &PackedRows<S::Value>,
    out: &Spread,
    terms: &[Term<'_, S::Value>],
    (bias, kept): (&[f64], Kept),
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
    let weights: Vec<_> = terms.iter().map(|term| weight(term.map)).collect();
    let maps: Vec<(Spread, &Weight<'_>)> =
        terms.iter().zip(&weights).map(|(term, weight)| (term.places, weight as &Weight<'_>)).collect();
    let grid = rows.layout().sum_of_maps(out, &maps);
    let grid = grid.map_err(CkksError::from)?;
    let split = GridSplit::balanced(&grid).map_err(CkksError::from)?;
    let sums = on.maps(&grid, &split, &inputs, target)?;
    let biased = sums.into_iter().enumerate().map(|(vector, sum)| {
        let pair = |text: usize, row: usize, place: usize| match out.columns_at(vector, place) {
            Some([a, b]) if rows.holds(kept, text, row) => {
                let at = |column: usize| bias.get(column).copied().unwrap_or(0.0);
                Complex64::new(at(a), at(b))
            }
            _ => Complex64::new(0.0, 0.0),
        };
        rows.plus(on, sum, (kept, &rows.pairs(on, pair)))
    });
    biased.collect()
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

/// κ·(x − mean of x) as a map of the vectors of `x`: the residual of a block that a norm follows.
pub fn residual<S: Slots>(on: &S, x: &Acts<S::Value>, kappa: f64) -> LinearMap {
    let width = x.gain.len();
    if on.only_shapes() {
        return LinearMap::shape(width, width);
    }
    let map = LinearMap::identity(width).reading(&x.gain, &x.offset);
    map.centred().times(kappa)
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

/// The sum of the biases of two maps.
pub fn biases(a: &LinearMap, b: &LinearMap) -> Vec<f64> {
    let of = |map: &LinearMap, row: usize| {
        let bias = map.bias.as_ref().and_then(|bias| bias.get(row));
        bias.copied().unwrap_or(0.0)
    };
    (0..a.rows).map(|row| of(a, row) + of(b, row)).collect()
}
