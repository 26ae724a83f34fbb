//! CPU classes.

/// A CPU class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CpuClass {
    /// Portable floor, no SIMD assumed.
    Serial = 1,
    /// AVX2 + FMA.
    IntelHaswell = 2,
    /// AVX-512 foundation tier.
    IntelSkylake = 4,
}
