//! Devices of an OpenCL driver: in tests, PoCL on the processor.

mod driver;

use std::ffi::{CString, c_void};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::DeviceError;
use crate::machine::{Argument, Machine};
use crate::text::{Arithmetic, Kernel, Text};
use driver::{Driver, Object, checked};

const BLOCKING: u32 = 1;
const READ_WRITE: u64 = 1;
const DEVICE_NAME: u32 = 0x102b;
const BUILD_LOG: u32 = 0x1183;

/// A device, its context and its queue; clones share them.
#[derive(Clone)]
pub struct OpenCl {
    shared: Arc<Shared>,
}

struct Shared {
    driver: Driver,
    device: Object,
    context: Object,
    queue: Object,
}

// SAFETY: contexts and queues may be used from any thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: each was created once, and nothing that uses them is left.
        unsafe {
            (self.driver.finish)(self.queue);
            (self.driver.release_queue)(self.queue);
            (self.driver.release_context)(self.context);
        }
    }
}

impl OpenCl {
    /// Device `index` of the driver whose library is at `library`.
    ///
    /// # Errors
    /// [`DeviceError::NoDriver`], [`DeviceError::NoSuchDevice`], [`DeviceError::Call`].
    pub fn open(library: &Path, index: usize) -> Result<OpenCl, DeviceError> {
        let driver = Driver::load(library)?;
        let devices = driver.devices()?;
        let count = devices.len();
        let device = *devices.get(index).ok_or(DeviceError::NoSuchDevice { index, count })?;
        let mut code = 0;
        let nothing: *const c_void = std::ptr::null();
        // SAFETY: one device, no properties and no callback.
        let context =
            unsafe { (driver.create_context)(std::ptr::null(), 1, &raw const device, nothing, nothing, &mut code) };
        checked("clCreateContext", code)?;
        // SAFETY: the context is of this device. The queue runs in order.
        let queue = unsafe { (driver.create_queue)(context, device, 0, &mut code) };
        checked("clCreateCommandQueue", code)?;
        Ok(OpenCl { shared: Arc::new(Shared { driver, device, context, queue }) })
    }
}

/// Memory of an OpenCL device.
pub struct Buffer {
    shared: Arc<Shared>,
    buffer: Object,
    words: usize,
}

// SAFETY: memory objects may be used from any thread.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    fn write(&self, words: &[u64]) -> Result<(), DeviceError> {
        let bytes = size_of_val(words);
        // SAFETY: both have as many bytes, and the call returns when they are copied.
        let code = unsafe {
            let (from, none) = (words.as_ptr().cast(), std::ptr::null());
            let Shared { driver, queue, .. } = &*self.shared;
            (driver.write_buffer)(*queue, self.buffer, BLOCKING, 0, bytes, from, 0, none, std::ptr::null_mut())
        };
        checked("clEnqueueWriteBuffer", code)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Overwritten before it returns to the driver; a driver that fails here has failed before.
        let _ = self.write(&vec![0; self.words]);
        // SAFETY: created once, and not used again.
        unsafe { (self.shared.driver.release_memory)(self.buffer) };
    }
}

/// Compiled kernels.
pub struct Program {
    shared: Arc<Shared>,
    text: Text,
    program: Object,
    /// In the order of [`Kernel::ALL`]. A kernel keeps its arguments until it is run: one thread at a time sets them.
    kernels: Mutex<Vec<Object>>,
}

// SAFETY: programs may be used from any thread, and kernels are locked.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

impl Drop for Program {
    fn drop(&mut self) {
        let kernels = self.kernels.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: each was created once, and none is used again.
        unsafe {
            for kernel in kernels.drain(..) {
                (self.shared.driver.release_kernel)(kernel);
            }
            (self.shared.driver.release_program)(self.program);
        }
    }
}

impl Machine for OpenCl {
    type Memory = Buffer;
    type Program = Program;

    fn name(&self) -> String {
        let mut name = vec![0_u8; 256];
        let mut length = 0;
        let Shared { driver, device, .. } = &*self.shared;
        // SAFETY: there is room for as many bytes as are asked for.
        unsafe { (driver.get_device_info)(*device, DEVICE_NAME, name.len(), name.as_mut_ptr().cast(), &mut length) };
        name.truncate(length.saturating_sub(1));
        String::from_utf8_lossy(&name).into_owned()
    }

    fn arithmetic(&self) -> Arithmetic {
        Arithmetic::Doubles
    }

    fn build(&self, text: &Text) -> Result<Program, DeviceError> {
        let Shared { driver, device, context, .. } = &*self.shared;
        let source = text.source();
        let (pointer, length) = (source.as_ptr().cast(), source.len());
        let mut code = 0;
        // SAFETY: one text of this length.
        let object = unsafe { (driver.create_program)(*context, 1, &raw const pointer, &raw const length, &mut code) };
        checked("clCreateProgramWithSource", code)?;
        let mut program =
            Program { shared: Arc::clone(&self.shared), text: *text, program: object, kernels: Mutex::default() };
        let none: *const c_void = std::ptr::null();
        // SAFETY: the program is of this device's context, and there is no callback.
        unsafe {
            if (driver.build_program)(object, 1, device, c"-cl-std=CL1.2".as_ptr(), none, none) != 0 {
                let mut log = vec![0_u8; 1 << 16];
                let mut length = 0;
                let to = log.as_mut_ptr().cast();
                (driver.get_build_info)(object, *device, BUILD_LOG, log.len(), to, &mut length);
                log.truncate(length.saturating_sub(1));
                return Err(DeviceError::Build { log: String::from_utf8_lossy(&log).into_owned() });
            }
        }
        let kernels = program.kernels.get_mut().unwrap_or_else(PoisonError::into_inner);
        for kernel in Kernel::ALL {
            let name = CString::new(kernel.name()).unwrap_or_default();
            // SAFETY: the program is built, and the name ends with a zero.
            let made = unsafe { (driver.create_kernel)(object, name.as_ptr(), &mut code) };
            checked(kernel.name(), code)?;
            kernels.push(made);
        }
        Ok(program)
    }

    fn room(&self, words: usize) -> Result<Buffer, DeviceError> {
        let Shared { driver, context, .. } = &*self.shared;
        let mut code = 0;
        let bytes = 8 * words;
        // SAFETY: the driver allocates, as no host memory is given.
        let buffer = unsafe { (driver.create_buffer)(*context, READ_WRITE, bytes, std::ptr::null(), &mut code) };
        if code != 0 {
            return Err(DeviceError::OutOfMemory { bytes });
        }
        Ok(Buffer { shared: Arc::clone(&self.shared), buffer, words })
    }

    fn upload(&self, to: &Buffer, words: &[u64]) -> Result<(), DeviceError> {
        if words.len() > to.words {
            return Err(DeviceError::Mismatch);
        }
        to.write(words)
    }

    fn download(&self, from: &Buffer, words: &mut [u64]) -> Result<(), DeviceError> {
        if words.len() > from.words {
            return Err(DeviceError::Mismatch);
        }
        let bytes = size_of_val(words);
        let Shared { driver, queue, .. } = &*self.shared;
        // SAFETY: both have as many bytes, and the call returns when they are copied.
        let code = unsafe {
            let (to, none) = (words.as_mut_ptr().cast(), std::ptr::null());
            (driver.read_buffer)(*queue, from.buffer, BLOCKING, 0, bytes, to, 0, none, std::ptr::null_mut())
        };
        checked("clEnqueueReadBuffer", code)
    }

    unsafe fn launch(
        &self,
        program: &Program,
        kernel: Kernel,
        grid: [usize; 2],
        arguments: &[Argument<'_, Buffer>],
    ) -> Result<(), DeviceError> {
        let Shared { driver, queue, .. } = &*self.shared;
        let kernels = program.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let object = *kernels.get(kernel as usize).ok_or(DeviceError::Mismatch)?;
        let threads = program.text.threads(kernel);
        let (whole, block) = ([grid[0] * threads, grid[1]], [threads, 1]);
        // SAFETY: the caller's arguments are those of the kernel; each is copied by the call that sets it.
        unsafe {
            for (place, argument) in (0..).zip(arguments) {
                let code = match argument {
                    Argument::Memory(memory) => {
                        (driver.set_argument)(object, place, size_of::<Object>(), (&raw const memory.buffer).cast())
                    }
                    Argument::Number(number) => {
                        (driver.set_argument)(object, place, size_of::<u32>(), std::ptr::from_ref(number).cast())
                    }
                };
                checked(kernel.name(), code)?;
            }
            let (none, start) = (std::ptr::null(), std::ptr::null());
            let code =
                (driver.run)(*queue, object, 2, start, whole.as_ptr(), block.as_ptr(), 0, none, std::ptr::null_mut());
            checked(kernel.name(), code)
        }
    }

    fn finish(&self) -> Result<(), DeviceError> {
        // SAFETY: the queue is this machine's.
        checked("clFinish", unsafe { (self.shared.driver.finish)(self.shared.queue) })
    }
}
