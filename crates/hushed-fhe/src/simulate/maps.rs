//! Grids of linear maps, and conjugates of pairs.

use hushed_ckks::maps::{GridSplit, MapGrid};
use hushed_ckks::{CkksError, Complex64, Scale};

use super::errors::mix;
use super::imaginary::Imaginary;
use super::pairs::check_known;
use super::tally::{Held, Op};
use super::{Simulator, Vector, check_scales};
use crate::error::FheError;

impl Simulator {
    /// [`crate::Slots::maps`]. The errors of its key switches stay below that of the rescale, as they are divided by P
    /// before it.
    pub(super) fn mapped(
        &self,
        grid: &MapGrid,
        split: &GridSplit,
        x: &[Vector],
        target: Scale,
    ) -> Result<Vec<Vector>, FheError> {
        let (Some(first), true) = (x.first(), grid.slots() == self.slots) else {
            return Err(crate::packing::PackingError::Mismatch.into());
        };
        let limbs = x.iter().map(|x| x.limbs).min().unwrap_or(first.limbs);
        for x in x {
            check_scales(first.scale, x.scale)?;
            // Real factors keep known real parts separate from unknown imaginary parts.
            if !grid.is_real() {
                check_known(x)?;
            }
        }
        let factor = self.factor_scale(first.scale, target, limbs)?;
        self.count_maps(split, limbs, x.len())?;
        let special = self.params.cheapest_special(limbs)?;
        let sums = split.giants().len() * 2 * (limbs + special);
        let _held = Held::new(&self.tally, sums + x.len() * self.decomposed[limbs]);
        let id = x.iter().fold(grid.count() as u64, |id, x| mix(id, x.id));
        let wide = first.scale.value() * factor;
        let outputs = match self.counting {
            true => vec![Vec::new(); grid.outputs()],
            false => grid.apply(&x.iter().map(complex).collect::<Vec<_>>()).map_err(CkksError::from)?,
        };
        let unknown = x.iter().any(|x| matches!(x.imaginary, Imaginary::Unknown));
        let real = grid.is_real() && x.iter().all(|x| matches!(x.imaginary, Imaginary::Zero));
        let outputs = outputs.into_iter().enumerate().map(|(output, slots)| {
            let imaginary = match (unknown, real) {
                (true, _) => Imaginary::Unknown,
                (_, true) => Imaginary::Zero,
                _ => Imaginary::Known(slots.iter().map(|z| z.im).collect()),
            };
            let slots = slots.into_iter().map(|z| z.re).collect();
            self.rescale_pair(slots, imaginary, limbs, wide, mix(id, output as u64))
        });
        outputs.collect()
    }

    fn count_maps(&self, split: &GridSplit, limbs: usize, inputs: usize) -> Result<(), FheError> {
        let (babies, giants) = split.key_switches();
        let terms = split.babies().len() * split.giants().len();
        self.tally.count(Op::Hoist, limbs, inputs);
        self.tally.count(Op::MapBaby, limbs, babies);
        self.tally.count(Op::MapGiant, limbs, giants);
        self.tally.count(Op::MapTerm, limbs, terms);
        for by in split.rotations() {
            self.tally.turn(by, limbs);
        }
        Ok(())
    }

    /// a − i·b.
    pub(super) fn conjugated(&self, x: &Vector) -> Vector {
        self.tally.count(Op::Hoist, x.limbs, 1);
        self.tally.count(Op::Conjugate, x.limbs, 1);
        let _digits = Held::new(&self.tally, self.decomposed[x.limbs]);
        let mut result = self.copy(x, x.limbs);
        result.id = mix(x.id, 0x636a);
        let (id, scale) = (result.id, x.scale);
        self.switched(&mut result.slots, id, scale);
        result.imaginary.each(|part| {
            part.iter_mut().for_each(|v| *v = -*v);
            self.switched(part, mix(id, 0x696d), scale);
        });
        result
    }
}

fn complex(x: &Vector) -> Vec<Complex64> {
    let slots = x.slots.iter().copied();
    match x.imaginary.values() {
        Some(imaginary) => slots.zip(imaginary).map(|(re, &im)| Complex64::new(re, im)).collect(),
        None => slots.map(Complex64::from).collect(),
    }
}
