//! Kernels and key switching on a card: first compared with the processor, word for word, then timed.
//!
//! A difference ends the measurement: no time of a wrong kernel is reported. Times are the card's own, between two
//! events in its queue.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_device::cuda::{Cuda, Recording};
use hushed_device::{Arithmetic, DeviceError, DeviceKey, DevicePoly, DeviceRing, Kernel, Machine, Parts, Text, switch};
use hushed_math::poly::Domain;
use hushed_math::rng::{PublicSeed, PublicStream, SecretRng};
use hushed_math::{Coeff, Eval, RnsPoly};
use hushed_rlwe::hybrid::{self, EvalKeys, KeySpecs, KeyUse};
use hushed_rlwe::{RlweParams, SecretKey};
use serde_json::{Value, json};

use crate::{BenchError, How, median};

/// Timed runs, after three more.
const RUNS: usize = 21;
/// Lengths of ciphertexts that are switched.
const LENGTHS: [usize; 4] = [28, 14, 7, 3];
/// Limbs of transforms: fewer than the card has room for at a time, one key switch, and many.
const LIMBS: [usize; 6] = [4, 12, 28, 37, 111, 444];
/// Columns of a block, and limbs whose transforms run together: first the usual ones.
const SHAPES: [[usize; 2]; 5] = [[8, 40], [16, 40], [8, 20], [16, 20], [8, 1000]];
/// The rotation that is timed.
const TURN: usize = 5;

type Ring = Arc<DeviceRing<Cuda>>;

/// Everything on the first card, under the parameters of a bootstrap. If it stops, the last row says why: time on a
/// card is scarce, and the rows before it are kept.
pub fn card(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    // Without a card there is nothing to keep.
    drop(Cuda::open(0)?);
    let mut rows = Vec::new();
    if let Err(error) = measure(how, &mut rows) {
        rows.push(json!({ "name": "gpu", "params": { "stopped": error.to_string() } }));
    }
    Ok(rows)
}

fn measure(how: How<'_>, rows: &mut Vec<Value>) -> Result<(), BenchError> {
    let params = CkksParams::n16_boot()?;
    let rlwe = params.rlwe();
    for arithmetic in [Arithmetic::Doubles, Arithmetic::Integers] {
        let card = Card { how, ring: ring(rlwe, arithmetic, SHAPES[0])? };
        card.exact(rows)?;
        if arithmetic == Arithmetic::Doubles {
            card.single(rows)?;
            card.switches(&params, rows)?;
        }
        card.transforms(&LIMBS, rows)?;
        drop(card);
        for shape in &SHAPES[1..] {
            Card { how, ring: ring(rlwe, arithmetic, *shape)? }.transforms(&LIMBS[3..], rows)?;
        }
    }
    Ok(())
}

fn ring(params: &RlweParams, arithmetic: Arithmetic, [columns, together]: [usize; 2]) -> Result<Ring, DeviceError> {
    let text = Text::new(params.n(), arithmetic)?.with_columns(columns);
    DeviceRing::with_text(Cuda::open(0)?, params.basis(), text, together)
}

struct Card<'a> {
    how: How<'a>,
    ring: Ring,
}

impl Card<'_> {
    /// Transforms, products and permutations of polynomials under all primes, against the processor.
    fn exact(&self, rows: &mut Vec<Value>) -> Result<(), BenchError> {
        let basis = self.ring.basis();
        let ids: Vec<usize> = (0..basis.len()).collect();
        let a: RnsPoly<Coeff> = random(&self.ring, &ids, 1);
        let mut edges: RnsPoly<Coeff> = RnsPoly::zero(basis, &ids);
        for (id, limb) in edges.limbs_mut() {
            limb.fill(basis.modulus(id).value() - 1);
        }
        for (what, poly) in [("random", &a), ("largest", &edges)] {
            let there = DevicePoly::upload(&self.ring, poly)?.into_eval()?;
            let expected = poly.clone().into_eval();
            self.same(&format!("forward, {what}"), &there, &expected, rows)?;
            let mut product = DevicePoly::upload(&self.ring, &expected)?;
            product.mul_assign(&there)?;
            let mut square = expected.clone();
            square.mul_assign(&expected);
            self.same(&format!("product, {what}"), &product, &square, rows)?;
            self.same(&format!("turned, {what}"), &there.automorphism(TURN)?, &expected.automorphism(TURN), rows)?;
            self.same(&format!("inverse, {what}"), &there.into_coeff()?, poly, rows)?;
        }
        Ok(())
    }

    fn same<D: Domain>(
        &self,
        what: &str,
        found: &DevicePoly<Cuda, D>,
        expected: &RnsPoly<D>,
        rows: &mut Vec<Value>,
    ) -> Result<(), BenchError> {
        let (found, expected) = (found.download()?.data(), expected.data());
        let wrong = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
        let params = json!({ "compared": what, "words": expected.len(), "arithmetic": self.arithmetic() });
        rows.push(json!({ "name": "gpu", "params": params, "error": wrong as f64, "kernel": self.name() }));
        match wrong {
            0 => Ok(()),
            wrong => Err(BenchError::Differs { what: what.to_owned(), wrong }),
        }
    }

    /// Single operations from registers, and memory to memory.
    fn single(&self, rows: &mut Vec<Value>) -> Result<(), BenchError> {
        let blocks = 16 * self.ring.machine().multiprocessors()?;
        let big = 1 << 27;
        let room = [self.ring.room(big)?, self.ring.room(big)?];
        let room = room.each_ref();
        for (kernel, blocks) in [
            (Kernel::MicroFma, blocks),
            (Kernel::MicroMadWide, blocks),
            (Kernel::MicroTimes, blocks),
            (Kernel::Copy, big / 512),
        ] {
            let operations = self.ring.measure(kernel, blocks, room)? * 256 * blocks as u64;
            let params = json!({ "what": kernel.name(), "operations": operations });
            self.time(params, rows, || self.ring.measure(kernel, blocks, room).map(drop))?;
        }
        Ok(())
    }

    fn transforms(&self, limbs: &[usize], rows: &mut Vec<Value>) -> Result<(), BenchError> {
        let ids: Vec<usize> = (0..self.ring.basis().len()).collect();
        let words = random::<Coeff>(&self.ring, &ids, 2).data();
        for &limbs in limbs {
            let n = self.ring.basis().n();
            let all: Vec<u64> = words.iter().copied().cycle().take(limbs * n).collect();
            let room = self.ring.upload(&all)?;
            for (what, inverse) in [("forward", false), ("inverse", true)] {
                let params = json!({
                    "what": what, "limbs": limbs, "arithmetic": self.arithmetic(),
                    "columns": self.ring.text().columns(),
                    "together": self.ring.together(),
                });
                self.time(params, rows, || self.ring.transform(&room, inverse))?;
            }
        }
        Ok(())
    }

    /// Key switches at several lengths: compared with the processor's, then timed as launches and as a graph.
    fn switches(&self, params: &CkksParams, rows: &mut Vec<Value>) -> Result<(), BenchError> {
        let rlwe = params.rlwe();
        let mut rng = SecretRng::from_os("hushed-bench gpu");
        let secret = SecretKey::generate(rlwe, &mut rng);
        for limbs in LENGTHS {
            let special = params.cheapest_special(limbs)?;
            let mut specs = KeySpecs::new();
            specs.relin(limbs, special).galois(TURN, limbs, special);
            let keys = EvalKeys::generate(&secret, &specs, &mut rng).map_err(DeviceError::from)?;
            let key = |key| keys.get(key, limbs).map_err(DeviceError::from);
            let (relin, galois) = (key(KeyUse::Relin)?, key(KeyUse::Galois(TURN))?);
            let [on_relin, on_galois] = [DeviceKey::upload(&self.ring, relin)?, DeviceKey::upload(&self.ring, galois)?];
            let ids = rlwe.ciphertext_ids(limbs);
            let polys: [RnsPoly<Eval>; 3] = [3, 4, 5].map(|seed| random(&self.ring, &ids, seed));
            let [b, a, c] = &polys;
            let up = |poly| DevicePoly::upload(&self.ring, poly);
            let (on_b, on_a, on_c) = (up(b)?, up(a)?, up(c)?);
            let turned = || switch::automorphism([&on_b, &on_a], &on_galois);
            let rescaled = || switch::switch_add_rescale([&on_b, &on_a], &on_c, &on_relin);
            let plain = hybrid::automorphism(b, a, galois).map_err(DeviceError::from)?;
            self.pair(&format!("rotation, {limbs} primes"), &turned()?, &plain, rows)?;
            let expected = hybrid::switch_add_rescale([b, a], c, relin).map_err(DeviceError::from)?;
            self.pair(&format!("relinearisation and rescaling, {limbs} primes"), &rescaled()?, &expected, rows)?;
            let digits = relin.gadget().digits().len();
            let shape = |what: &str| json!({ "what": what, "primes": limbs, "special": special, "digits": digits });
            self.time(shape("rotation"), rows, || turned().map(drop))?;
            self.time(shape("relinearisation and rescaling"), rows, || rescaled().map(drop))?;
            let graph = Recording::new(&self.ring, turned)?;
            self.time(shape("rotation, as a graph"), rows, || graph.run())?;
            self.pair(&format!("rotation, {limbs} primes, as a graph"), graph.results(), &plain, rows)?;
            drop(graph);
            let digits = switch::decompose(rlwe, galois.gadget(), &on_a)?;
            self.time(shape("digits"), rows, || switch::decompose(rlwe, galois.gadget(), &on_a).map(drop))?;
            self.time(shape("inner product"), rows, || switch::inner_product(&digits, &on_galois).map(drop))?;
            let sums = switch::inner_product(&digits, &on_galois)?;
            self.time(shape("division"), rows, || sums.mod_down().map(drop))?;
        }
        Ok(())
    }

    fn pair(
        &self,
        what: &str,
        found: &Parts<Cuda>,
        expected: &(RnsPoly<Eval>, RnsPoly<Eval>),
        rows: &mut Vec<Value>,
    ) -> Result<(), BenchError> {
        self.same(what, &found.0, &expected.0, rows)?;
        self.same(what, &found.1, &expected.1, rows)
    }

    /// Adds the row of what `run` puts into the queue.
    fn time(
        &self,
        params: Value,
        rows: &mut Vec<Value>,
        run: impl Fn() -> Result<(), DeviceError>,
    ) -> Result<(), BenchError> {
        if !self.how.wants(&params) {
            return Ok(());
        }
        let mut times = Vec::with_capacity(RUNS);
        for round in 0..RUNS + 3 {
            let microseconds = self.ring.machine().microseconds(&run)?;
            if round >= 3 {
                times.push(microseconds / 1e6);
            }
        }
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        rows.push(json!({
            "name": "gpu", "params": params, "seconds": median(times), "least": least, "runs": RUNS,
            "kernel": self.name(),
        }));
        Ok(())
    }

    fn arithmetic(&self) -> &'static str {
        match self.ring.text().arithmetic() {
            Arithmetic::Doubles => "doubles",
            Arithmetic::Integers => "integers",
        }
    }

    fn name(&self) -> String {
        self.ring.machine().name()
    }
}

fn random<D: Domain>(ring: &Ring, ids: &[usize], seed: u64) -> RnsPoly<D> {
    RnsPoly::uniform(ring.basis(), ids, &mut PublicStream::new(&PublicSeed([9; 16]), seed))
}
