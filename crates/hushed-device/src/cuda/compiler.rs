//! NVRTC, which compiles the kernels for a card, also where there is none.

use std::ffi::{CStr, CString, c_char};

use cudarc::nvrtc::{result, sys};

use crate::error::DeviceError;
use crate::text::{Kernel, Text};

/// What a kernel takes of a multiprocessor, as the assembler says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    /// The kernel.
    pub kernel: Kernel,
    /// Registers of 32 bits a thread.
    pub registers: u32,
    /// Bytes a thread on the stack, or stored for lack of registers.
    pub spilled: u32,
}

/// The registers of each kernel on cards of compute capability `capability`; no card is needed.
///
/// # Errors
/// [`DeviceError::NoDriver`] without NVRTC, [`DeviceError::Build`].
pub fn registers(text: &Text, capability: [i32; 2]) -> Result<Vec<Registers>, DeviceError> {
    present()?;
    let log = compile(text, capability, &["--ptxas-options=-v"])?.log;
    let said = read(&log);
    let of = |kernel: Kernel| {
        let found = said.iter().find(|registers| registers.kernel == kernel).copied();
        found.ok_or_else(|| DeviceError::Build { log: format!("nothing is said of {}", kernel.name()) })
    };
    Kernel::ALL.iter().map(|&kernel| of(kernel)).collect()
}

/// The lines that the assembler writes of each kernel: its name, bytes of the stack and of spills, registers.
fn read(log: &str) -> Vec<Registers> {
    let mut all: Vec<Registers> = Vec::new();
    for line in log.lines() {
        let number = |unit: &str| {
            let before = line.split(unit).next().filter(|before| before.len() < line.len());
            before.and_then(|before| before.split_whitespace().last()).and_then(|number| number.parse::<u32>().ok())
        };
        let name = line.split("Compiling entry function '").nth(1).and_then(|rest| rest.split('\'').next());
        if let Some(kernel) = name.and_then(|name| Kernel::ALL.iter().find(|kernel| kernel.name() == name)) {
            all.push(Registers { kernel: *kernel, registers: 0, spilled: 0 });
        }
        let Some(last) = all.last_mut() else { continue };
        last.registers = number(" registers").unwrap_or(last.registers);
        last.spilled +=
            [" bytes stack", " bytes spill stores", " bytes spill loads"].into_iter().filter_map(number).sum::<u32>();
    }
    all
}

/// Whether NVRTC can be called: its calls panic where the library is missing.
pub(super) fn present() -> Result<(), DeviceError> {
    // SAFETY: looks for the library by its own names.
    match unsafe { sys::is_culib_present() } {
        true => Ok(()),
        false => Err(DeviceError::NoDriver { library: "libnvrtc.so".to_owned() }),
    }
}

/// A text that was compiled.
pub(super) struct Compiled {
    /// An assembler program, which ends with a zero.
    pub(super) image: Vec<c_char>,
    /// What the compiler says.
    log: String,
}

/// The kernels as an assembler program for a card. NVRTC must be [`present`].
pub(super) fn compile(text: &Text, [major, minor]: [i32; 2], more: &[&str]) -> Result<Compiled, DeviceError> {
    let refused = |log: String| DeviceError::Build { log };
    let source = CString::new(text.source()).map_err(|error| refused(error.to_string()))?;
    let error = |error: result::NvrtcError| refused(format!("NVRTC says {}", error.0 as u32));
    let program = result::create_program(&source, None).map_err(error)?;
    let own = [format!("--gpu-architecture=sm_{major}{minor}"), "--std=c++17".into(), "--fmad=false".into()];
    let options: Vec<String> = own.into_iter().chain(more.iter().map(|&option| option.to_owned())).collect();
    // SAFETY: the program exists until it is destroyed, once, and its log ends with a zero.
    unsafe {
        let done = result::compile_program(program, &options);
        let log = result::get_program_log(program).unwrap_or_default();
        let log = (!log.is_empty()).then(|| CStr::from_ptr(log.as_ptr()).to_string_lossy().into_owned());
        let compiled = match done {
            Ok(()) => result::get_ptx(program).map_err(error),
            Err(failure) => Err(log.clone().map_or_else(|| error(failure), refused)),
        };
        let _ = result::destroy_program(program);
        Ok(Compiled { image: compiled?, log: log.unwrap_or_default() })
    }
}
