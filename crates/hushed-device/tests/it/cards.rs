//! NVIDIA cards. Most machines have none: then opening one is an error that says what is missing.

use hushed_device::cuda::Cuda;
use hushed_device::{Arithmetic, DeviceError, DevicePoly, DeviceRing, Text};
use hushed_math::Coeff;

use crate::bed::{assert_same, basis, samples};

#[test]
fn a_card_computes_as_the_processor_or_says_why_it_cannot() {
    let machine = match Cuda::open(0) {
        Ok(machine) => machine,
        Err(error) => {
            if let DeviceError::NoDriver { library } = &error {
                assert!(library.ends_with(".so"), "{library}");
            }
            println!("skipped: no NVIDIA card: {error}");
            return;
        }
    };
    drop(machine);
    let basis = basis(1 << 16);
    for arithmetic in [Arithmetic::Integers, Arithmetic::Doubles] {
        let text = Text::new(basis.n(), arithmetic).unwrap();
        let ring = DeviceRing::with_text(Cuda::open(0).unwrap(), &basis, text, 3).unwrap();
        for poly in samples::<Coeff>(&basis, 6) {
            let values = DevicePoly::upload(&ring, &poly).unwrap().into_eval().unwrap();
            assert_same(&values.download().unwrap(), &poly.clone().into_eval(), "forward");
            assert_same(&values.into_coeff().unwrap().download().unwrap(), &poly, "inverse");
        }
    }
    assert!(matches!(Cuda::open(1000), Err(DeviceError::NoSuchDevice { index: 1000, .. })));
}
