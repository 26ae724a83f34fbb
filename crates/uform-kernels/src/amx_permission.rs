//! Leave to use AMX's tiles, which Linux grants a process that asks.

/// Asks for the tiles, for the whole process and once: its threads, those to come as well, may use
/// them from then on. No where the kernel is older than 5.16, where a sandbox filters
/// the call, where a thread's signal stack is too small for the tiles' state, and where there
/// is no Linux to ask.
#[cfg(all(feature = "native", target_os = "linux"))]
pub(crate) fn permitted() -> bool {
    /// From Linux's `asm/prctl.h`.
    const ARCH_REQ_XCOMP_PERM: libc::c_int = 0x1023;
    /// The state's number in XCR0: Intel, Software Developer's Manual, volume 1, chapter 13.
    const TILE_DATA: libc::c_ulong = 18;
    // SAFETY: the call takes two numbers and touches no memory of ours.
    let refused = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) };
    refused == 0
}

/// As above: no permission is needed.
#[cfg(not(all(feature = "native", target_os = "linux")))]
pub(crate) fn permitted() -> bool {
    false
}
