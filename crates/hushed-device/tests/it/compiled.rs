//! What NVRTC makes of the kernels for cards of five generations, without a card.

use hushed_device::cuda::{Registers, registers};
use hushed_device::{Arithmetic, Kernel, Text};

use crate::bed::{ARITHMETICS, fetched};

/// Compute capabilities: A100, RTX 30 and 40, H100 and H200, B200, RTX 50.
const CARDS: [[i32; 2]; 6] = [[8, 0], [8, 6], [8, 9], [9, 0], [10, 0], [12, 0]];

/// Every kernel in its registers: at most 80 a thread in doubles on sm_90, so that 24 warps fit a multiprocessor, and
/// nothing spilled anywhere.
#[test]
fn kernels_fit_their_registers() {
    let Some(library) = fetched("nvrtc.so") else {
        println!("skipped: no NVRTC: scripts/fetch_gpu.sh fetches it");
        return;
    };
    // By its own path, and kept: the loader then finds it by its name.
    // SAFETY: the library's initialiser may run at any time.
    std::mem::forget(unsafe { libloading::Library::new(library) }.unwrap());
    for capability in CARDS {
        for arithmetic in ARITHMETICS {
            let all = registers(&Text::new(1 << 16, arithmetic).unwrap(), capability).unwrap();
            assert_eq!(all.len(), Kernel::ALL.len());
            for Registers { kernel, registers, spilled } in all {
                let what = format!("{} for {capability:?}, {arithmetic:?}: {registers} registers", kernel.name());
                assert_eq!(spilled, 0, "{what}");
                let most = if capability == [9, 0] && arithmetic == Arithmetic::Doubles { 80 } else { 128 };
                assert!((1..=most).contains(&registers), "{what}");
            }
        }
    }
}
