//! Whether byte tiles may be used: the processor has them, the system saves them, and this process has permission.

use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

/// Detects the instructions and, on Linux, requests the state of the tiles, which a process lacks at first.
pub(super) fn permitted() -> bool {
    if cfg!(miri) || __cpuid(0).eax < 7 || __cpuid(1).ecx >> 27 & 1 == 0 {
        return false;
    }
    let features = __cpuid_count(7, 0).edx;
    let instructions = features >> 24 & 3 == 3; // AMX-TILE and AMX-INT8
    // SAFETY: bit 27 of leaf 1 says that XGETBV may be used.
    let saved = unsafe { saved_states() };
    instructions && saved >> 17 & 3 == 3 && request()
}

/// XCR0: the states that the system saves.
#[target_feature(enable = "xsave")]
unsafe fn saved_states() -> u64 {
    // SAFETY: by the caller's check.
    unsafe { _xgetbv(0) }
}

/// arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), which applies to all threads.
#[cfg(target_os = "linux")]
fn request() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let result: i64;
    // SAFETY: the call reads its two arguments only, and clobbers what is named.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn request() -> bool {
    false
}
