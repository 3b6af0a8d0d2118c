//! What a key for key switching is for.

/// What a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyUse {
    /// From s² to s, after a multiplication.
    Relin,
    /// For X → X^g: from s to s(X^(1/g)), with the result to be permuted.
    Galois(usize),
    /// From s to the ephemeral sparse secret of bootstrapping, modulo q_0·p_0 only.
    ToSparse,
    /// From the ephemeral sparse secret to s.
    FromSparse,
    /// From the ephemeral sparse secret to s(X^(1/g)), with the result to be permuted, for polynomials raised from q_0
    /// ([`super::Gadget::raised`]): a rotation and the switch back to s in one, with one digit.
    Raised(usize),
}
