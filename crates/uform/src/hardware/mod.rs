//! What this machine is: its CPU class, its cores, what the build can drive.

pub mod cpu;
#[cfg(feature = "native")]
pub mod mapping;

pub use cpu::CpuClass;
