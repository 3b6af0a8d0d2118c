//! What a device must be able to do: the only code that differs between CUDA and OpenCL.

use crate::error::DeviceError;
use crate::text::{Arithmetic, Kernel, Text};

/// A device, its memory and one queue: calls take effect in order.
pub trait Machine: Send + Sync + Sized + 'static {
    /// Device memory, in words. What it held is overwritten before it returns to the driver.
    type Memory: Send + Sync;
    /// The kernels of one ring degree, compiled.
    type Program: Send + Sync;

    /// The device's name, as its driver gives it.
    fn name(&self) -> String;

    /// The faster arithmetic of the device.
    fn arithmetic(&self) -> Arithmetic;

    /// Compiles the kernels.
    ///
    /// # Errors
    /// [`DeviceError::Build`], [`DeviceError::NoDriver`] without a compiler.
    fn build(&self, text: &Text) -> Result<Self::Program, DeviceError>;

    /// Memory of `words` words, at least one, with arbitrary content.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    fn room(&self, words: usize) -> Result<Self::Memory, DeviceError>;

    /// Writes `words` at the beginning of `to`, which is as long.
    ///
    /// # Errors
    /// [`DeviceError::Call`].
    fn upload(&self, to: &Self::Memory, words: &[u64]) -> Result<(), DeviceError>;

    /// Reads `words` from the beginning of `from`, which is as long, after everything before in the queue.
    ///
    /// # Errors
    /// [`DeviceError::Call`].
    fn download(&self, from: &Self::Memory, words: &mut [u64]) -> Result<(), DeviceError>;

    /// Runs a kernel on a grid of blocks.
    ///
    /// # Errors
    /// [`DeviceError::Call`].
    ///
    /// # Safety
    /// The arguments are those of the kernel, and every address that it computes from them lies in their memory.
    unsafe fn launch(
        &self,
        program: &Self::Program,
        kernel: Kernel,
        grid: [usize; 2],
        arguments: &[Argument<'_, Self::Memory>],
    ) -> Result<(), DeviceError>;

    /// Waits for the queue.
    ///
    /// # Errors
    /// [`DeviceError::Call`]: also of a kernel that failed.
    fn finish(&self) -> Result<(), DeviceError>;
}

/// An argument of a kernel.
pub enum Argument<'a, M> {
    /// Memory.
    Memory(&'a M),
    /// A number.
    Number(u32),
}
