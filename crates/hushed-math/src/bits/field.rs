//! The field of 2^128 elements, as polynomials over bits modulo x^128 + x^7 + x^2 + x + 1: bit i of a block is the
//! coefficient of x^i. It hashes lists of blocks by a polynomial at a random point, which is what the checks against
//! cheating in oblivious transfer do: two different lists of n blocks have the same hash for at most n of the 2^128
//! points.
//!
//! Three kernels with the same results: carry-less products on 512-bit registers, on 128-bit registers, and portable
//! code. All are constant time in both operands, except that the portable one may branch on a [`Powers`]' point, which
//! is public.

#[cfg(target_arch = "x86_64")]
mod pclmul;
mod portable;
#[cfg(target_arch = "x86_64")]
mod unreduced;
#[cfg(target_arch = "x86_64")]
mod vpclmul;

use super::Block;
use crate::machine::cpu::Cpu;

/// The product of two elements.
pub fn multiply(a: Block, b: Block) -> Block {
    multiply_with(Cpu::get(), a, b)
}

fn multiply_with(cpu: Cpu, a: Block, b: Block) -> Block {
    #[cfg(target_arch = "x86_64")]
    if cpu.aesni().is_some() {
        // SAFETY: the token is proof of carry-less products.
        return unsafe { pclmul::dot(&[a], &[b]) }.reduce();
    }
    let _ = cpu;
    portable::multiply(a, b)
}

/// The powers 1, p, p², … of a public point, for hashes Σ p^j·v_j of lists of blocks.
pub struct Powers {
    powers: Vec<Block>,
    cpu: Cpu,
}

impl Powers {
    /// The first `n` powers of `point`.
    pub fn new(point: Block, n: usize) -> Powers {
        Powers::with_cpu(point, n, Cpu::get())
    }

    fn with_cpu(point: Block, n: usize, cpu: Cpu) -> Powers {
        /// Products that do not wait for each other.
        const STRIDE: usize = 8;
        let mut powers = Vec::with_capacity(n.max(STRIDE));
        let mut next = Block::ONE;
        for _ in 0..STRIDE {
            powers.push(next);
            next = multiply_with(cpu, next, point);
        }
        for j in STRIDE..n {
            powers.push(multiply_with(cpu, powers[j - STRIDE], next));
        }
        powers.truncate(n);
        Powers { powers, cpu }
    }

    /// The powers.
    pub fn as_slice(&self) -> &[Block] {
        &self.powers
    }

    /// `Σ_j p^j·values[j]`.
    ///
    /// # Panics
    /// If there are fewer powers than values.
    pub fn hash(&self, values: &[Block]) -> Block {
        let powers = &self.powers[..values.len()];
        #[cfg(target_arch = "x86_64")]
        if self.cpu.vaes().is_some() {
            // SAFETY: the token is proof of carry-less products on 512-bit registers.
            return unsafe { vpclmul::dot(powers, values) }.reduce();
        }
        #[cfg(target_arch = "x86_64")]
        if self.cpu.aesni().is_some() {
            // SAFETY: the token is proof of carry-less products.
            return unsafe { pclmul::dot(powers, values) }.reduce();
        }
        portable::dot(powers, values)
    }
}

#[cfg(test)]
mod tests {
    use super::super::PrgAes;
    use super::*;

    fn blocks(seed: u128, n: usize) -> Vec<Block> {
        let mut v = vec![Block::ZERO; n];
        PrgAes::new(Block(seed)).fill(&mut v);
        v
    }

    /// Bit by bit, from the definition.
    fn naive(a: Block, b: Block) -> Block {
        let mut out = 0u128;
        for i in (0..128).rev() {
            let carry = out >> 127;
            out = (out << 1) ^ (carry * 0x87);
            if b.0 >> i & 1 == 1 {
                out ^= a.0;
            }
        }
        Block(out)
    }

    fn edges() -> Vec<Block> {
        let top = Block(1 << 127);
        let mut all = vec![Block::ZERO, Block::ONE, Block::ONES, top, Block(1 << 64)];
        all.push(Block(u64::MAX.into()));
        all.extend(blocks(3, 20));
        all
    }

    #[test]
    fn products_of_every_kernel_match_the_definition() {
        for cpu in Cpu::variants() {
            for a in edges() {
                for b in edges() {
                    assert!(multiply_with(cpu, a, b) == naive(a, b), "{cpu:?}");
                }
            }
        }
    }

    /// The known answer of GCM's field in its own bit order: H·x for H = x^127 is the modulus without its top.
    #[test]
    fn the_modulus_is_the_published_one() {
        assert!(multiply(Block(1 << 127), Block(2)) == Block(0x87));
    }

    #[test]
    fn hashes_of_every_kernel_are_the_sum_of_products() {
        for n in [0, 1, 2, 3, 4, 5, 8, 15, 16, 17, 33, 1024] {
            let (point, values) = (blocks(n as u128, 1)[0], blocks(9, n));
            let mut expect = Block::ZERO;
            let mut power = Block::ONE;
            for v in &values {
                expect ^= naive(power, *v);
                power = naive(power, point);
            }
            for cpu in Cpu::variants() {
                let powers = Powers::with_cpu(point, n, cpu);
                assert_eq!(powers.as_slice().len(), n);
                assert!(powers.hash(&values) == expect, "{n} {cpu:?}");
            }
        }
    }

    #[test]
    fn a_change_of_one_bit_changes_the_hash() {
        let powers = Powers::new(blocks(1, 1)[0], 300);
        let mut values = blocks(2, 300);
        let hash = powers.hash(&values);
        for j in [0, 7, 299] {
            values[j] ^= Block(1 << 77);
            assert!(powers.hash(&values) != hash);
            values[j] ^= Block(1 << 77);
        }
        assert!(powers.hash(&values) == hash);
    }
}
