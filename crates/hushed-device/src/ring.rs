//! The ring of a basis on a device: its kernels, and the tables of its primes.

use std::sync::Arc;

use hushed_math::ntt::reverse_bits;
use hushed_math::{Modulus, NttTables, RnsBasis};

use crate::error::DeviceError;
use crate::list::Lists;
use crate::machine::{Argument, Machine};
use crate::memory::{Pool, Words};
use crate::text::{Arithmetic, CONSTANTS, Kernel, Text};

/// Limbs that go through both halves of a transform before the next ones: what lies between the halves stays in the
/// second-level cache of a large card.
const TOGETHER: usize = 40;

/// A basis on a device.
pub struct DeviceRing<M: Machine> {
    pool: Arc<Pool<M>>,
    basis: Arc<RnsBasis>,
    text: Text,
    program: M::Program,
    constants: Words<M>,
    forward: Words<M>,
    inverse: Words<M>,
    lists: Lists<M>,
    together: usize,
}

/// A limb of a transform: the index of its prime, and its position in the input and in the output.
pub(crate) type Limb = [u32; 3];

impl<M: Machine> DeviceRing<M> {
    /// Compiles the kernels for `basis` in the machine's faster arithmetic, and uploads the tables of its primes: for
    /// each prime twice a limb in doubles, four times in integers.
    ///
    /// # Errors
    /// [`DeviceError::Degree`], and those of [`Machine::build`], [`Machine::room`] and [`Machine::upload`].
    pub fn new(machine: M, basis: &Arc<RnsBasis>) -> Result<Arc<Self>, DeviceError> {
        let text = Text::new(basis.n(), machine.arithmetic())?;
        Self::with_text(machine, basis, text, TOGETHER)
    }

    /// As [`DeviceRing::new`], with other kernels and another number of limbs whose transforms run together: for tests
    /// and measurements.
    ///
    /// # Errors
    /// As [`DeviceRing::new`].
    pub fn with_text(machine: M, basis: &Arc<RnsBasis>, text: Text, together: usize) -> Result<Arc<Self>, DeviceError> {
        if text.n() != basis.n() {
            return Err(DeviceError::Degree { n: basis.n() });
        }
        let program = machine.build(&text)?;
        let pool = Pool::new(machine);
        let primes = 0..basis.len();
        let constants: Vec<u64> = primes.clone().flat_map(|id| constants(basis.modulus(id))).collect();
        let table = |inverse: bool| -> Result<Words<M>, DeviceError> {
            let all: Vec<u64> = primes.clone().flat_map(|id| table(basis.ntt(id), &text, inverse)).collect();
            pool.words(&all)
        };
        Ok(Arc::new(Self {
            constants: pool.words(&constants)?,
            forward: table(false)?,
            inverse: table(true)?,
            basis: Arc::clone(basis),
            text,
            program,
            lists: Lists::new(),
            together: together.max(1),
            pool,
        }))
    }

    /// The basis.
    pub fn basis(&self) -> &Arc<RnsBasis> {
        &self.basis
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.pool.machine
    }

    /// The kernels.
    pub fn text(&self) -> &Text {
        &self.text
    }

    /// Runs one of the kernels for measurements (`Micro…`, `Copy`) on as many blocks of 256 threads; returns the
    /// operations of a thread.
    ///
    /// # Errors
    /// [`DeviceError::Shape`] for another kernel or too many blocks; [`DeviceError::Call`].
    pub fn measure(&self, kernel: Kernel, blocks: usize, [out, other]: [&Words<M>; 2]) -> Result<u64, DeviceError> {
        let (words, operations) = match kernel {
            Kernel::MicroFma | Kernel::MicroMadWide | Kernel::MicroTimes => (1, 8 * 256),
            Kernel::Copy => (2, 2),
            _ => return Err(DeviceError::Mismatch),
        };
        let most = out.len().min(if words == 2 { other.len() } else { usize::MAX }) / (256 * words);
        if blocks > most {
            return Err(DeviceError::Shape { what: "blocks", found: blocks, most });
        }
        let source = if words == 2 { other } else { &self.constants };
        let arguments = [Argument::Memory(out.memory()), Argument::Memory(source.memory())];
        // SAFETY: a thread of a block of 256 writes one word, or copies two; both fit.
        unsafe { self.machine().launch(&self.program, kernel, [blocks, 1], &arguments)? };
        Ok(operations)
    }

    /// Limbs whose transforms run together.
    pub fn together(&self) -> usize {
        self.together
    }

    /// Transforms whole limbs in place, under all primes in turn: for measurements.
    ///
    /// # Errors
    /// [`DeviceError::Call`].
    pub fn transform(&self, words: &Words<M>, inverse: bool) -> Result<(), DeviceError> {
        let count = words.len() / self.basis.n();
        let limbs: Vec<Limb> = (0..count as u32).map(|place| [place % self.basis.len() as u32, place, place]).collect();
        match inverse {
            true => self.inverse(words, words, &limbs, &vec![1; count]),
            false => self.forward(words, words, &limbs),
        }
    }

    /// Room for `words` words.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn room(&self, words: usize) -> Result<Words<M>, DeviceError> {
        self.pool.room(words)
    }

    /// Copies words to the device.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Call`].
    pub fn upload(&self, words: &[u64]) -> Result<Words<M>, DeviceError> {
        self.pool.words(words)
    }

    pub(crate) fn short(&self, words: &[u32]) -> Result<Arc<Words<M>>, DeviceError> {
        self.lists.short(&self.pool, words)
    }

    pub(crate) fn long(&self, words: Vec<u64>) -> Result<Arc<Words<M>>, DeviceError> {
        self.lists.long(&self.pool, words)
    }

    pub(crate) fn constants(&self) -> &Words<M> {
        &self.constants
    }

    /// Runs a kernel on all words of `rows` limbs, or jobs.
    ///
    /// # Safety
    /// As [`Machine::launch`].
    pub(crate) unsafe fn launch(
        &self,
        kernel: Kernel,
        rows: usize,
        arguments: &[Argument<'_, M::Memory>],
    ) -> Result<(), DeviceError> {
        if rows == 0 {
            return Ok(());
        }
        let grid = [self.text.blocks(kernel), rows];
        // SAFETY: the caller's.
        unsafe { self.machine().launch(&self.program, kernel, grid, arguments) }
    }

    /// Transforms limbs of coefficients in `from` to values in `to`, which may be the same.
    pub(crate) fn forward(&self, from: &Words<M>, to: &Words<M>, limbs: &[Limb]) -> Result<(), DeviceError> {
        self.check(from, to, limbs)?;
        for limbs in self.portions(limbs) {
            let [first, second] = self.halves(limbs)?;
            let tables = [&self.forward, &self.constants];
            // SAFETY: `check` has found every prime and position within its memory.
            unsafe {
                self.launch(Kernel::ForwardColumns, limbs.len(), &memories([to, from, tables[0], tables[1], &first]))?;
                self.launch(Kernel::ForwardRows, limbs.len(), &memories([to, to, tables[0], tables[1], &second]))?;
            }
        }
        Ok(())
    }

    /// Transforms limbs of values in `from` to coefficients in `to`, which may be the same, times one number per limb:
    /// residues of their primes, by limb.
    pub(crate) fn inverse(
        &self,
        from: &Words<M>,
        to: &Words<M>,
        limbs: &[Limb],
        numbers: &[u64],
    ) -> Result<(), DeviceError> {
        self.check(from, to, limbs)?;
        if numbers.len() != limbs.len() {
            return Err(DeviceError::Mismatch);
        }
        for (limbs, numbers) in self.portions(limbs).zip(self.portions(numbers)) {
            let scaled = limbs.iter().zip(numbers).map(|(&[id, ..], &number)| {
                let q = self.basis.modulus(id as usize);
                // n·(q−1)/n = −1.
                let scale = q.neg((q.value() - 1) / self.basis.n() as u64);
                (id, q.mul(number, scale))
            });
            let factors = self.factors(scaled)?;
            let [first, second] = self.halves(limbs)?;
            let tables = [&self.inverse, &self.constants];
            // SAFETY: `check` has found every prime and position within its memory, and there is a factor per limb.
            unsafe {
                self.launch(Kernel::InverseRows, limbs.len(), &memories([to, from, tables[0], tables[1], &first]))?;
                let arguments = memories([to, to, tables[0], tables[1], &second, &factors]);
                self.launch(Kernel::InverseColumns, limbs.len(), &arguments)?;
            }
        }
        Ok(())
    }

    /// Numbers modulo primes, as kernels multiply by them.
    pub(crate) fn factors(&self, numbers: impl Iterator<Item = (u32, u64)>) -> Result<Arc<Words<M>>, DeviceError> {
        let factor = |(id, w): (u32, u64)| {
            let q = self.basis.modulus(id as usize);
            [w, q.shoup(w), (q.centre(w) as f64).to_bits(), 0]
        };
        self.long(numbers.flat_map(factor).collect())
    }

    /// The positions for both halves of a transform: the second works in place.
    fn halves(&self, limbs: &[Limb]) -> Result<[Arc<Words<M>>; 2], DeviceError> {
        let second: Vec<u32> = limbs.iter().flat_map(|&[id, _, to]| [id, to, to]).collect();
        Ok([self.short(limbs.as_flattened())?, self.short(&second)?])
    }

    fn portions<'a, T>(&self, all: &'a [T]) -> impl Iterator<Item = &'a [T]> {
        all.chunks(self.together)
    }

    fn check(&self, from: &Words<M>, to: &Words<M>, limbs: &[Limb]) -> Result<(), DeviceError> {
        let n = self.basis.n();
        let within = |&[id, source, target]: &Limb| {
            (id as usize) < self.basis.len()
                && (source as usize + 1) * n <= from.len()
                && (target as usize + 1) * n <= to.len()
        };
        if limbs.iter().all(within) { Ok(()) } else { Err(DeviceError::Mismatch) }
    }
}

/// Arguments that are all memory.
pub(crate) fn memories<M: Machine, const K: usize>(all: [&Words<M>; K]) -> [Argument<'_, M::Memory>; K] {
    all.map(|words| Argument::Memory(words.memory()))
}

/// As `arithmetic.h` lists them.
fn constants(q: &Modulus) -> [u64; CONSTANTS] {
    let (value, bits) = (q.value(), q.bits());
    let over = |power: u32| ((1_u128 << power) / u128::from(value)) as u64;
    let (half, whole) = (q.reduce(1 << 25), q.reduce(1 << 50));
    let mut words = [0; CONSTANTS];
    let known = [
        value,
        over(64),
        (1.0 / value as f64).to_bits(),
        over(2 * bits),
        u64::from(bits),
        half,
        q.shoup(half),
        whole,
        q.shoup(whole),
    ];
    words[..known.len()].copy_from_slice(&known);
    words
}

/// The factors of one prime's transform, in the order of `transform.cl`.
fn table(ntt: &NttTables, text: &Text, inverse: bool) -> Vec<u64> {
    let (n, q) = (ntt.n(), ntt.modulus());
    let log_n = n.trailing_zeros();
    // ψ^(2n−1) = ψ^−1.
    let root = if inverse { q.pow(ntt.psi(), 2 * n as u64 - 1) } else { ntt.psi() };
    let mut heap = vec![1; n];
    let mut power = 1;
    for i in 0..n {
        heap[reverse_bits(i, log_n)] = power;
        power = q.mul(power, root);
    }
    let threads = n / text.words();
    let last = (0..text.words().trailing_zeros()).flat_map(|j| (0..1_usize << j).map(move |k| (j, k)));
    let heap = &heap;
    let last = last.flat_map(|(j, k)| (0..threads).map(move |thread| heap[((threads + thread) << j) + k]));
    let ordered = heap[..threads].iter().copied().chain(last);
    match text.arithmetic() {
        Arithmetic::Integers => ordered.flat_map(|w| [w, q.shoup(w)]).collect(),
        Arithmetic::Doubles => ordered.map(|w| (q.centre(w) as f64).to_bits()).collect(),
    }
}
