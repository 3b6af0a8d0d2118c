//! The examples run, and their answers are right.

#[path = "../examples/encrypt.rs"]
#[allow(dead_code, reason = "the example's own main")]
mod encrypt;

#[test]
fn encrypt() {
    let (found, expected) = encrypt::product_and_rotation().unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }
}
