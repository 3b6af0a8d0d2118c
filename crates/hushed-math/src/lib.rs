//! Numbers: moduli, NTT, RNS, samplers and the bit kernels of oblivious transfer; the only unsafe code.

pub mod bits;
