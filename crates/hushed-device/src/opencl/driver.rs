//! The calls of an OpenCL driver, through the table that it hands out to loaders (`cl_khr_icd`): no loader is needed.

use std::ffi::{c_char, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;

use libloading::Library;

use crate::error::DeviceError;

/// A driver's object; its first word is the driver's table.
pub(super) type Object = *mut c_void;

type GetExtension = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type GetPlatforms = unsafe extern "C" fn(u32, *mut Object, *mut u32) -> i32;

/// Declares the calls: name, position in the table, arguments, result.
macro_rules! calls {
    ($($name:ident $place:literal ($($argument:ty),*) -> $result:ty;)*) => {
        /// Calls of one driver.
        pub(super) struct Driver {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            platform: Object,
        }

        impl Driver {
            /// # Safety
            /// `platform` is a platform of a driver that stays loaded.
            unsafe fn of(platform: Object) -> Driver {
                // SAFETY: the first word of a platform points to the table, whose order `cl_icd.h` fixes.
                unsafe {
                    let table = *platform.cast::<*const *const c_void>();
                    Driver {
                        $($name: std::mem::transmute::<
                            *const c_void,
                            unsafe extern "C" fn($($argument),*) -> $result,
                        >(*table.add($place)),)*
                        platform,
                    }
                }
            }
        }
    };
}

calls! {
    get_device_ids 2 (Object, u64, u32, *mut Object, *mut u32) -> i32;
    get_device_info 3 (Object, u32, usize, *mut c_void, *mut usize) -> i32;
    create_context 4 (*const isize, u32, *const Object, *const c_void, *const c_void, *mut i32) -> Object;
    release_context 7 (Object) -> i32;
    create_queue 9 (Object, Object, u64, *mut i32) -> Object;
    release_queue 11 (Object) -> i32;
    create_buffer 14 (Object, u64, usize, *const c_void, *mut i32) -> Object;
    release_memory 18 (Object) -> i32;
    create_program 26 (Object, u32, *const *const c_char, *const usize, *mut i32) -> Object;
    release_program 29 (Object) -> i32;
    build_program 30 (Object, u32, *const Object, *const c_char, *const c_void, *const c_void) -> i32;
    get_build_info 33 (Object, Object, u32, usize, *mut c_void, *mut usize) -> i32;
    create_kernel 34 (Object, *const c_char, *mut i32) -> Object;
    release_kernel 37 (Object) -> i32;
    set_argument 38 (Object, u32, usize, *const c_void) -> i32;
    finish 47 (Object) -> i32;
    read_buffer 48 (Object, Object, u32, usize, usize, *mut c_void, u32, *const Object, *mut Object) -> i32;
    write_buffer 49 (Object, Object, u32, usize, usize, *const c_void, u32, *const Object, *mut Object) -> i32;
    run 59 (Object, Object, u32, *const usize, *const usize, *const usize, u32, *const Object, *mut Object) -> i32;
}

// SAFETY: OpenCL's calls may come from any thread, except those that set a kernel's arguments, which its owner locks.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

impl Driver {
    /// Loads a driver's library.
    pub(super) fn load(path: &Path) -> Result<Driver, DeviceError> {
        let missing =
            |why: &dyn std::fmt::Display| DeviceError::NoDriver { library: format!("{} ({why})", path.display()) };
        // SAFETY: the caller names an OpenCL driver; loading it runs its initialisers.
        let library = unsafe { Library::new(path) }.map_err(|error| missing(&error))?;
        // Never unloaded: its threads may outlive every context.
        let library = ManuallyDrop::new(library);
        let mut platform: Object = std::ptr::null_mut();
        // SAFETY: the names and types are those of `cl_khr_icd`, which every driver for loaders has.
        unsafe {
            let extension =
                library.get::<GetExtension>(b"clGetExtensionFunctionAddress\0").map_err(|error| missing(&error))?;
            let address = extension(c"clIcdGetPlatformIDsKHR".as_ptr());
            if address.is_null() {
                return Err(missing(&"no cl_khr_icd"));
            }
            let platforms = std::mem::transmute::<*mut c_void, GetPlatforms>(address);
            let code = platforms(1, &mut platform, std::ptr::null_mut());
            if code != 0 || platform.is_null() {
                return Err(DeviceError::NoSuchDevice { index: 0, count: 0 });
            }
            Ok(Driver::of(platform))
        }
    }

    /// The devices of its platform.
    pub(super) fn devices(&self) -> Result<Vec<Object>, DeviceError> {
        const ALL: u64 = 0xffff_ffff;
        let mut devices = vec![std::ptr::null_mut(); 64];
        let mut count = 0;
        // SAFETY: there is room for as many devices as are asked for.
        let code = unsafe {
            (self.get_device_ids)(self.platform, ALL, devices.len() as u32, devices.as_mut_ptr(), &mut count)
        };
        checked("clGetDeviceIDs", code)?;
        devices.truncate(count as usize);
        Ok(devices)
    }
}

/// An error if a call returned one.
pub(super) fn checked(call: &str, code: i32) -> Result<(), DeviceError> {
    if code == 0 { Ok(()) } else { Err(DeviceError::Call { call: call.to_owned(), code: i64::from(code) }) }
}
