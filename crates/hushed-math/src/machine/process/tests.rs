use super::*;
use crate::rng::SecretRng;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn fork_is_seen_by_every_descendant() {
    let ours = Origin::here();
    assert_eq!(ours, Origin::here());
    let seen = in_child(|| {
        if ours.check() != Err(MathError::Forked) {
            return 1;
        }
        // The child's own values are valid there, but not in its own children.
        let theirs = Origin::here();
        if theirs.check() != Ok(()) || theirs == ours {
            return 2;
        }
        match in_child(|| u8::from(theirs.check().is_ok() || ours.check().is_ok())) {
            Child::Code(0) => 0,
            _ => 3,
        }
    });
    assert_eq!(seen, Child::Code(0));
    assert_eq!(ours.check(), Ok(()));
}

#[test]
fn fork_ends_a_stream_in_the_child() {
    let mut stream = SecretRng::insecure_from_seed(3);
    let mut same = SecretRng::insecure_from_seed(3);
    let seen = in_child(|| {
        if stream.check() != Err(MathError::Forked) {
            return 1;
        }
        // Every way to draw from it fails; a stream that went on would repeat the parent's next word.
        let draws: [fn(&mut SecretRng); 4] =
            [|s| _ = s.next_u64(), |s| s.fill_bytes(&mut [0; 3]), |s| _ = s.fork("child"), |s| _ = s.public_seed()];
        for draw in draws {
            let refused = catch_unwind(AssertUnwindSafe(|| draw(&mut stream))).err();
            let why = refused.as_ref().and_then(|why| why.downcast_ref::<String>());
            if !why.is_some_and(|why| why.contains("before a fork")) {
                return 2;
            }
        }
        let mut fresh = SecretRng::from_os("child");
        let _ = fresh.next_u64();
        0
    });
    assert_eq!(seen, Child::Code(0));
    // The parent's stream goes on where it was.
    assert_eq!(stream.check(), Ok(()));
    assert_eq!(stream.next_u64(), same.next_u64());
}

/// A child that the C library does not know about.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn fork_by_the_system_call_alone_is_seen_where_the_kernel_wipes() {
    use std::ffi::{c_int, c_long};
    const CLONE: c_long = if cfg!(target_arch = "x86_64") { 56 } else { 220 };
    const SIGCHLD: c_long = 17;
    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
        fn _exit(code: c_int) -> !;
    }
    if system::wiped_by_the_kernel().is_none() {
        println!("skipped: this kernel does not wipe pages of children");
        return;
    }
    let ours = Origin::here();
    // SAFETY: a copy of this process, on a copy of its stack. The child reads a word and ends: nothing that the C
    // library would have had to prepare.
    let pid = unsafe { syscall(CLONE, SIGCHLD, 0_usize, 0_usize, 0_usize, 0_usize) };
    if pid == 0 {
        let code = c_int::from(ours.check().is_ok());
        // SAFETY: ends the child.
        unsafe { _exit(code) }
    }
    assert!(pid > 0, "the system does not clone");
    assert_eq!(testing::wait(pid as c_int), Child::Code(0));
}
