//! What this machine is: its CPU class, its cores, what the build can drive.

pub mod cores;
pub mod cpu;

pub use cpu::CpuClass;
