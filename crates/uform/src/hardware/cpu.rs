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

impl CpuClass {
    /// The class whose kernels serve when this one has none of its own.
    pub const fn falls_to(self) -> Option<CpuClass> {
        match self {
            CpuClass::Serial => None,
            CpuClass::IntelHaswell => Some(CpuClass::Serial),
            CpuClass::IntelSkylake => Some(CpuClass::IntelHaswell),
        }
    }
}
