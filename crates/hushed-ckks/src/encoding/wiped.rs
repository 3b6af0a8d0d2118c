//! A client's numbers, wiped on drop.

use num_complex::Complex64;
use zeroize::Zeroize;

/// Slots that are being turned into a polynomial.
pub(super) struct Wiped(pub(super) Vec<Complex64>);

impl Wiped {
    fn wipe(&mut self) {
        for z in &mut self.0 {
            z.re.zeroize();
            z.im.zeroize();
        }
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        self.wipe();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wiping_leaves_zeros() {
        let mut slots = Wiped(vec![Complex64::new(1.5, -2.5); 3]);
        let wiped = |slots: &Wiped| slots.0.iter().all(|z| z.re == 0.0 && z.im == 0.0);
        assert!(!wiped(&slots));
        slots.wipe();
        assert!(wiped(&slots) && slots.0.len() == 3);
    }
}
