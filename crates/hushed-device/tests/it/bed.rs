//! Rings on the OpenCL device that `scripts/fetch_gpu.sh` fetches, and polynomials to try on them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use hushed_device::opencl::OpenCl;
use hushed_device::{Arithmetic, DeviceRing, Machine, Text};
use hushed_math::poly::Domain;
use hushed_math::primes::ntt_primes;
use hushed_math::rng::SecretRng;
use hushed_math::{Modulus, RnsBasis, RnsPoly};

pub const ARITHMETICS: [Arithmetic; 2] = [Arithmetic::Integers, Arithmetic::Doubles];

/// The OpenCL device, one for all tests; where there is none, the test is told to be skipped.
pub fn machine() -> Option<OpenCl> {
    static MACHINE: OnceLock<Option<OpenCl>> = OnceLock::new();
    let machine = MACHINE.get_or_init(|| {
        let driver = fetched("driver.so")?;
        // PoCL keeps compiled kernels in the build folder.
        // SAFETY: set before the first call of the driver, and no test reads the environment.
        unsafe { std::env::set_var("POCL_CACHE_DIR", env!("CARGO_TARGET_TMPDIR")) };
        match OpenCl::open(&driver, 0) {
            Ok(machine) => Some(machine),
            Err(error) => panic!("the OpenCL driver that was fetched does not work: {error}"),
        }
    });
    if machine.is_none() {
        println!("skipped: no OpenCL driver: scripts/fetch_gpu.sh fetches one");
    }
    machine.clone()
}

/// A library that was fetched. Its own path, not that of the link: it looks for its other files beside itself.
pub fn fetched(link: &str) -> Option<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.gpu").join(link).canonicalize().ok()
}

/// A ring in either arithmetic.
pub fn ring(basis: &Arc<RnsBasis>, arithmetic: Arithmetic) -> Option<Arc<DeviceRing<OpenCl>>> {
    let text = Text::new(basis.n(), arithmetic).unwrap();
    // Transforms of three limbs at a time: portions of every length occur.
    Some(DeviceRing::with_text(machine()?, basis, text, 3).unwrap())
}

/// A ring of each arithmetic; none without a driver.
pub fn rings(basis: &Arc<RnsBasis>) -> Vec<Arc<DeviceRing<OpenCl>>> {
    ARITHMETICS.iter().filter_map(|&arithmetic| ring(basis, arithmetic)).collect()
}

/// Primes of 50, 41 and 40 bits.
pub fn basis(n: usize) -> Arc<RnsBasis> {
    let primes = [ntt_primes(50, n, 2), ntt_primes(41, n, 1), ntt_primes(40, n, 1)].concat();
    RnsBasis::new(n, &primes).unwrap()
}

/// Polynomials under all primes of a basis: random, all q − 1, and 0 and q − 1 in turn.
pub fn samples<D: Domain>(basis: &Arc<RnsBasis>, seed: u64) -> [RnsPoly<D>; 3] {
    let mut rng = SecretRng::insecure_from_seed(seed);
    let ids: Vec<usize> = (0..basis.len()).collect();
    let poly = |word: &mut dyn FnMut(&Modulus, usize) -> u64| {
        let mut poly = RnsPoly::zero(basis, &ids);
        for (id, limb) in poly.limbs_mut() {
            let q = basis.modulus(id);
            limb.iter_mut().enumerate().for_each(|(i, out)| *out = word(q, i));
        }
        poly
    };
    [
        poly(&mut |q, _| rng.next_u64() % q.value()),
        poly(&mut |q, _| q.value() - 1),
        poly(&mut |q, i| (q.value() - 1) * (i as u64 % 2)),
    ]
}

/// Whether two polynomials have the same words; the first difference is printed.
pub fn assert_same<D: Domain>(found: &RnsPoly<D>, expected: &RnsPoly<D>, what: &str) {
    assert_eq!(found.ids(), expected.ids(), "{what}");
    for ((id, found), (_, expected)) in found.limbs().zip(expected.limbs()) {
        let wrong = found.iter().zip(expected).filter(|(a, b)| a != b).count();
        let first = found.iter().zip(expected).position(|(a, b)| a != b);
        assert_eq!(first, None, "{what}, prime {id}: {wrong} of {} words differ", found.len());
    }
}

/// The name of a ring, for messages.
pub fn named(ring: &DeviceRing<OpenCl>) -> String {
    format!("n = {}, {:?}, {}", ring.text().n(), ring.text().arithmetic(), ring.machine().name())
}
