//! Marks secret memory for runs under valgrind. Memcheck then reports every branch and every address that depends on
//! it, as it does for uninitialised memory (the idea of Langley's ctgrind).
//!
//! Without the feature `taint` these functions do nothing; with it they are valgrind's client requests, which do
//! nothing outside valgrind. A value meant to be seen, such as a message, is marked public where it becomes public.

/// Marks the memory of `values` as secret.
#[inline(always)]
pub fn secret<T>(values: &mut [T]) {
    #[cfg(all(feature = "taint", target_arch = "x86_64"))]
    request::call(request::UNDEFINED, values.as_ptr().cast(), size_of_val(values));
    let _ = values;
}

/// Marks the memory of `values` as public.
#[inline(always)]
pub fn public<T>(values: &[T]) {
    #[cfg(all(feature = "taint", target_arch = "x86_64"))]
    request::call(request::DEFINED, values.as_ptr().cast(), size_of_val(values));
    let _ = values;
}

/// Returns the value, marked public from here on.
#[inline(always)]
pub fn opened<T: Copy>(value: T) -> T {
    #[cfg(all(feature = "taint", target_arch = "x86_64"))]
    let value = {
        // A pointer that may write: behind a shared reference the compiler may keep the value in a register, where its
        // mark stays.
        let mut cell = core::hint::black_box(value);
        let start = (&raw mut cell).cast_const().cast();
        request::call(request::DEFINED, start, size_of::<T>());
        core::hint::black_box(cell)
    };
    value
}

/// Whether this program runs under valgrind.
#[cfg(all(feature = "taint", target_arch = "x86_64"))]
pub fn watched() -> bool {
    request::call(request::RUNNING, core::ptr::null(), 0) != 0
}

/// The number of errors that valgrind has reported so far; 0 outside valgrind.
#[cfg(all(feature = "taint", target_arch = "x86_64"))]
pub fn reports() -> u64 {
    request::call(request::ERRORS, core::ptr::null(), 0)
}

#[cfg(all(feature = "taint", target_arch = "x86_64"))]
mod request {
    pub(super) const RUNNING: u64 = 0x1001;
    pub(super) const ERRORS: u64 = 0x1201;
    /// `VALGRIND_MAKE_MEM_UNDEFINED`, the second request of memcheck ("MC").
    pub(super) const UNDEFINED: u64 = 0x4d43_0001;
    /// `VALGRIND_MAKE_MEM_DEFINED`.
    pub(super) const DEFINED: u64 = 0x4d43_0002;

    /// A client request (valgrind.h): rotations that cancel, and an exchange of a register with itself.
    pub(super) fn call(request: u64, start: *const u8, length: usize) -> u64 {
        let arguments = [request, start as u64, length as u64, 0, 0, 0];
        let mut result = 0u64;
        // SAFETY: outside valgrind the instructions leave every register as it was; inside, it reads the six words,
        // changes only marks of its own, and writes the result to rdx.
        unsafe {
            core::arch::asm!(
                "rol rdi, 3",
                "rol rdi, 13",
                "rol rdi, 61",
                "rol rdi, 51",
                "xchg rbx, rbx",
                in("rax") arguments.as_ptr(),
                inout("rdx") result,
                options(nostack),
            );
        }
        result
    }
}
