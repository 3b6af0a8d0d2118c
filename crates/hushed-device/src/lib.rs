//! Polynomials and key switching on a GPU, word for word as `hushed-math` and `hushed-rlwe` compute them.
//!
//! One text of kernels (`kernels/`) is compiled at run time, for CUDA by NVRTC and for OpenCL by the device's driver;
//! [`Machine`] is what differs. Between kernels every word is a residue in [0, q), so that each kernel can be compared
//! with the processor by itself. No kernel has a branch or an address that depends on a word.
//!
//! ```text
//! RnsPoly ─ upload ─▶ DevicePoly ─ transforms, pointwise, automorphism, switch, rotate, rescale ─▶ download ─▶ RnsPoly
//! ```
//!
//! This is the second crate with unsafe code: drivers are called through raw pointers, and a launch trusts its
//! arguments. No run of the program uses a GPU yet.

#[cfg(feature = "cuda")]
pub mod cuda;
mod error;
mod list;
mod machine;
mod memory;
#[cfg(feature = "opencl")]
pub mod opencl;
mod poly;
mod ring;
pub mod switch;
mod text;

pub use error::DeviceError;
pub use machine::{Argument, Machine};
pub use memory::Words;
pub use poly::DevicePoly;
pub use ring::DeviceRing;
pub use switch::{DeviceKey, Digits, Extended, Parts};
pub use text::{Arithmetic, Kernel, Text};
