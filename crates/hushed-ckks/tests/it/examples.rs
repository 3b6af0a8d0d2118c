//! Checks that the examples run and give correct answers.

#[path = "../../examples/encrypt.rs"]
#[allow(dead_code, reason = "the example's own main")]
mod encrypt;
#[path = "../../examples/polynomial.rs"]
#[allow(dead_code, reason = "the example's own main")]
mod polynomial;

#[path = "../../examples/bootstrap.rs"]
#[allow(dead_code, reason = "the example's own main")]
mod bootstrap;

#[path = "../../examples/linear_transform.rs"]
#[allow(dead_code, reason = "the example's own main")]
mod linear_transform;

#[test]
fn bootstrap() {
    let (least, mean) = bootstrap::run(None, 2, Some(2)).unwrap();
    assert!(least > 15.0 && mean > 17.0, "{least} {mean}");
}

#[test]
fn linear_transform() {
    let (found, expected) = linear_transform::product().unwrap();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-4, "{found} {expected}");
    }
}

#[test]
fn encrypt() {
    let (found, expected) = encrypt::product_and_rotation().unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        // Rounded to the bits that the bound on the error leaves, 16 of them.
        assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    }
}

#[test]
fn polynomial() {
    for row in polynomial::functions_of_encrypted_values().unwrap() {
        assert!(row.error < 1e-4, "{}: {}", row.report, row.error);
    }
}
