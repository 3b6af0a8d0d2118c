//! Core dumps, which would write secrets to disk: off for a whole process.

use std::io;

/// Keeps this process from leaving a core dump, whoever would collect it. Debuggers of the same user cannot attach any
/// more either.
///
/// # Errors
/// Those of the system, which hardly ever refuses.
pub fn switch_off() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // The limit alone does not hold for programs to which the kernel hands a dump.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    }
    Ok(())
}
