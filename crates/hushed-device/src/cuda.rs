//! NVIDIA cards: the driver's library and NVRTC's, both loaded at run time.

mod compiler;

pub use compiler::{Registers, registers};

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::{DriverError, result, sys};

use crate::error::DeviceError;
use crate::machine::{Argument, Machine};
use crate::ring::DeviceRing;
use crate::text::{Arithmetic, Kernel, Text};

/// A card, its context and one stream.
pub struct Cuda {
    shared: Arc<Shared>,
}

struct Shared {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// Compute capability.
    capability: [i32; 2],
}

// SAFETY: contexts and streams may be used from any thread, which makes the context its own first (`Shared::enter`).
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Makes the context that of this thread.
    fn enter(&self) -> Result<(), DeviceError> {
        // SAFETY: the context lives as long as `self`.
        unsafe { result::ctx::set_current(self.context) }.map_err(failed("cuCtxSetCurrent"))
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::synchronize(self.stream) }.map_err(failed("cuStreamSynchronize"))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.enter().is_ok() {
            // SAFETY: both were created once, and nothing that uses them is left.
            let _ = unsafe { result::stream::destroy(self.stream) };
        }
        // SAFETY: as above.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

fn failed(call: &'static str) -> impl Fn(DriverError) -> DeviceError {
    move |DriverError(code)| DeviceError::Call { call: call.to_owned(), code: code as i64 }
}

impl Cuda {
    /// Card `index`.
    ///
    /// # Errors
    /// [`DeviceError::NoDriver`] if a library is missing, [`DeviceError::NoSuchDevice`], [`DeviceError::Call`].
    pub fn open(index: usize) -> Result<Cuda, DeviceError> {
        // Its calls panic where the library is missing.
        // SAFETY: looks for the driver's library by its own names.
        if !unsafe { sys::is_culib_present() } {
            return Err(DeviceError::NoDriver { library: "libcuda.so".to_owned() });
        }
        compiler::present()?;
        result::init().map_err(failed("cuInit"))?;
        let count = result::device::get_count().map_err(failed("cuDeviceGetCount"))? as usize;
        if index >= count {
            return Err(DeviceError::NoSuchDevice { index, count });
        }
        let device = result::device::get(index as i32).map_err(failed("cuDeviceGet"))?;
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        // SAFETY: the device exists.
        let attribute = |name| unsafe { result::device::get_attribute(device, name) };
        let capability = [attribute(MAJOR), attribute(MINOR)];
        let [major, minor] = capability.map(|number| number.map_err(failed("cuDeviceGetAttribute")));
        let capability = [major?, minor?];
        // SAFETY: the device exists; the context is released by `Shared`.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(failed("cuDevicePrimaryCtxRetain"))?;
        // SAFETY: the context was just retained.
        unsafe { result::ctx::set_current(context) }.map_err(failed("cuCtxSetCurrent"))?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        let stream = stream.map_err(failed("cuStreamCreate"))?;
        Ok(Cuda { shared: Arc::new(Shared { device, context, stream, capability }) })
    }

    /// Multiprocessors of the card.
    ///
    /// # Errors
    /// [`DeviceError::Call`].
    pub fn multiprocessors(&self) -> Result<usize, DeviceError> {
        let name = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        // SAFETY: the device exists.
        let count = unsafe { result::device::get_attribute(self.shared.device, name) };
        count.map(|count| count as usize).map_err(failed("cuDeviceGetAttribute"))
    }

    /// Microseconds on the card of what `run` puts into the queue.
    ///
    /// # Errors
    /// Those of `run`; [`DeviceError::Call`].
    pub fn microseconds(&self, run: impl FnOnce() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        self.shared.enter()?;
        let stream = self.shared.stream;
        let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map_err(failed("cuEventCreate"));
        let (start, end) = (event()?, event()?);
        // SAFETY: the events and the stream exist until the end of this function.
        unsafe {
            let time = (|| {
                result::event::record(start, stream).map_err(failed("cuEventRecord"))?;
                run()?;
                result::event::record(end, stream).map_err(failed("cuEventRecord"))?;
                result::event::synchronize(end).map_err(failed("cuEventSynchronize"))?;
                result::event::elapsed(start, end).map_err(failed("cuEventElapsedTime"))
            })();
            let _ = result::event::destroy(start);
            let _ = result::event::destroy(end);
            time.map(|milliseconds| 1e3 * f64::from(milliseconds))
        }
    }
}

/// Memory of a card.
pub struct Memory {
    shared: Arc<Shared>,
    pointer: sys::CUdeviceptr,
    words: usize,
}

impl Drop for Memory {
    fn drop(&mut self) {
        let bytes = 8 * self.words;
        // A driver that fails here has failed before.
        let _ = self.shared.enter();
        // SAFETY: allocated once with as many bytes, and not used after what is in the queue now. Overwritten before it
        // returns to the driver.
        unsafe {
            let _ = result::memset_d8_async(self.pointer, 0, bytes, self.shared.stream);
            let _ = self.shared.synchronize();
            let _ = result::free_sync(self.pointer);
        }
    }
}

/// Compiled kernels.
pub struct Program {
    shared: Arc<Shared>,
    text: Text,
    module: sys::CUmodule,
    /// In the order of [`Kernel::ALL`].
    kernels: Vec<sys::CUfunction>,
}

// SAFETY: modules and functions may be used from any thread.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.shared.enter();
        // SAFETY: loaded once, and not used after what is in the queue now.
        unsafe {
            let _ = self.shared.synchronize();
            let _ = result::module::unload(self.module);
        }
    }
}

impl Machine for Cuda {
    type Memory = Memory;
    type Program = Program;

    fn name(&self) -> String {
        let [major, minor] = self.shared.capability;
        let name = result::device::get_name(self.shared.device).unwrap_or_default();
        format!("{name}, sm_{major}{minor}")
    }

    fn arithmetic(&self) -> Arithmetic {
        // Cards for data centres have half as many units for doubles as for single precision, others a 64th.
        match self.shared.capability {
            [8..=10, 0] => Arithmetic::Doubles,
            _ => Arithmetic::Integers,
        }
    }

    fn build(&self, text: &Text) -> Result<Program, DeviceError> {
        self.shared.enter()?;
        let image = compiler::compile(text, self.shared.capability, &[])?.image;
        // SAFETY: the text of an assembler program, which ends with a zero.
        let module = unsafe { result::module::load_data(image.as_ptr().cast()) }.map_err(failed("cuModuleLoadData"))?;
        let mut program = Program { shared: Arc::clone(&self.shared), text: *text, module, kernels: Vec::new() };
        for kernel in Kernel::ALL {
            let name = CString::new(kernel.name()).unwrap_or_default();
            // SAFETY: the module is loaded.
            let function = unsafe { result::module::get_function(module, name) };
            program.kernels.push(function.map_err(failed("cuModuleGetFunction"))?);
        }
        Ok(program)
    }

    fn room(&self, words: usize) -> Result<Memory, DeviceError> {
        self.shared.enter()?;
        let bytes = 8 * words;
        // SAFETY: freed once, by `Memory`.
        let pointer = unsafe { result::malloc_sync(bytes) }.map_err(|_| DeviceError::OutOfMemory { bytes })?;
        Ok(Memory { shared: Arc::clone(&self.shared), pointer, words })
    }

    fn upload(&self, to: &Memory, words: &[u64]) -> Result<(), DeviceError> {
        if words.len() > to.words {
            return Err(DeviceError::Mismatch);
        }
        self.shared.enter()?;
        // SAFETY: `to` is at least as long, and `words` stays until the copy is made.
        unsafe { result::memcpy_htod_async(to.pointer, words, self.shared.stream) }.map_err(failed("cuMemcpyHtoD"))?;
        self.shared.synchronize()
    }

    fn download(&self, from: &Memory, words: &mut [u64]) -> Result<(), DeviceError> {
        if words.len() > from.words {
            return Err(DeviceError::Mismatch);
        }
        self.shared.enter()?;
        // SAFETY: `from` is at least as long, and `words` stays until the copy is made.
        unsafe { result::memcpy_dtoh_async(words, from.pointer, self.shared.stream) }
            .map_err(failed("cuMemcpyDtoH"))?;
        self.shared.synchronize()
    }

    unsafe fn launch(
        &self,
        program: &Program,
        kernel: Kernel,
        grid: [usize; 2],
        arguments: &[Argument<'_, Memory>],
    ) -> Result<(), DeviceError> {
        self.shared.enter()?;
        let function = *program.kernels.get(kernel as usize).ok_or(DeviceError::Mismatch)?;
        let threads = program.text.threads(kernel) as u32;
        let pointer = |argument: &Argument<'_, Memory>| -> *mut c_void {
            match argument {
                Argument::Memory(memory) => (&raw const memory.pointer).cast_mut().cast(),
                Argument::Number(number) => std::ptr::from_ref(number).cast_mut().cast(),
            }
        };
        let mut arguments: Vec<*mut c_void> = arguments.iter().map(pointer).collect();
        let grid = (grid[0] as u32, grid[1] as u32, 1);
        // SAFETY: the caller's arguments are those of the kernel; the driver copies them during the call.
        unsafe {
            result::launch_kernel(function, grid, (threads, 1, 1), 0, self.shared.stream, &mut arguments)
                .map_err(failed(kernel.name()))
        }
    }

    fn finish(&self) -> Result<(), DeviceError> {
        self.shared.enter()?;
        self.shared.synchronize()
    }
}

/// Launches that are put into the queue together, again and again, on the same memory.
pub struct Recording<T> {
    ring: Arc<DeviceRing<Cuda>>,
    graph: sys::CUgraph,
    ready: sys::CUgraphExec,
    results: T,
}

impl<T> Recording<T> {
    /// Records what `run` puts into the queue of a ring's card. It is run once before, so that all lists are on the
    /// card and all memory is in the ring's pool: what it takes from there, the pool keeps as long as the recording.
    ///
    /// # Errors
    /// Those of `run`; [`DeviceError::Call`].
    pub fn new(
        ring: &Arc<DeviceRing<Cuda>>,
        run: impl Fn() -> Result<T, DeviceError>,
    ) -> Result<Recording<T>, DeviceError> {
        drop(run()?);
        let shared = &ring.machine().shared;
        ring.machine().finish()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as the ring.
        unsafe {
            result::stream::begin_capture(shared.stream, mode).map_err(failed("cuStreamBeginCapture"))?;
            let results = run();
            let graph = result::stream::end_capture(shared.stream).map_err(failed("cuStreamEndCapture"))?;
            let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
            let ready = result::graph::instantiate(graph, flags).map_err(failed("cuGraphInstantiate"))?;
            Ok(Recording { ring: Arc::clone(ring), graph, ready, results: results? })
        }
    }

    /// Puts the launches into the queue.
    ///
    /// # Errors
    /// [`DeviceError::Call`].
    pub fn run(&self) -> Result<(), DeviceError> {
        let shared = &self.ring.machine().shared;
        shared.enter()?;
        // SAFETY: the graph and all memory that it names live as long as the ring.
        unsafe { result::graph::launch(self.ready, shared.stream) }.map_err(failed("cuGraphLaunch"))
    }

    /// What the launches write.
    pub fn results(&self) -> &T {
        &self.results
    }
}

impl<T> Drop for Recording<T> {
    fn drop(&mut self) {
        let _ = self.ring.machine().finish();
        // SAFETY: both were created once, and nothing of them is in the queue any more.
        unsafe {
            let _ = result::graph::exec_destroy(self.ready);
            let _ = result::graph::destroy(self.graph);
        }
    }
}
