//! What a device refuses.

/// A device that cannot be used, or a step that it failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DeviceError {
    /// No driver: its library cannot be loaded.
    #[error("no driver: {library} not found")]
    NoDriver {
        /// The library, and why it was not loaded, if it exists.
        library: String,
    },
    /// No device with this index.
    #[error("no device {index}: there are {count}")]
    NoSuchDevice {
        /// The index asked for.
        index: usize,
        /// Number of devices.
        count: usize,
    },
    /// The kernels' text was refused by the device's compiler.
    #[error("the device's compiler refused the kernels: {log}")]
    Build {
        /// What the compiler says.
        log: String,
    },
    /// The device lacks memory.
    #[error("the device has no room for {bytes} more bytes")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// A call of the driver failed; the device may be lost.
    #[error("{call} failed with code {code}")]
    Call {
        /// The call, or the kernel.
        call: String,
        /// The driver's code.
        code: i64,
    },
    /// A ring degree that the kernels do not have.
    #[error("ring degree {n}: kernels have 2^8, 2^12 and 2^16")]
    Degree {
        /// The degree.
        n: usize,
    },
    /// A shape that the kernels do not have.
    #[error("{found} {what}: kernels have at most {most}")]
    Shape {
        /// What there are too many of.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// The most.
        most: usize,
    },
    /// Polynomials, digits or keys that do not belong together.
    #[error("operands of different rings, moduli or keys")]
    Mismatch,
    /// Parameters or keys that key switching refuses on any machine.
    #[error(transparent)]
    Rlwe(#[from] hushed_rlwe::RlweError),
}
