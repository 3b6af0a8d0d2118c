//! A polynomial that is erased when dropped.

use super::RnsPoly;
use zeroize::Zeroize;

/// Owns a secret polynomial: no `Debug`, no `Clone`, erased on drop. The caller must wrap whatever is computed from it.
pub struct SecretPoly<D>(RnsPoly<D>);

impl<D> SecretPoly<D> {
    /// Takes ownership of a secret.
    pub fn new(poly: RnsPoly<D>) -> SecretPoly<D> {
        SecretPoly(poly)
    }

    /// The secret, to compute with.
    pub fn expose(&self) -> &RnsPoly<D> {
        &self.0
    }

    /// The secret, to change in place.
    pub fn expose_mut(&mut self) -> &mut RnsPoly<D> {
        &mut self.0
    }
}

impl<D> From<RnsPoly<D>> for SecretPoly<D> {
    fn from(poly: RnsPoly<D>) -> SecretPoly<D> {
        SecretPoly(poly)
    }
}

impl<D> Drop for SecretPoly<D> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
