//! What this machine is: its CPU class, its cores, what the build can drive.
//!
//! The question every other floor asks is *which kernels run here*. It is
//! answered in two steps that never mix. `features` asks the processor and the operating
//! system what they offer, and is the only file that differs from machine to
//! machine. [`cpu`] holds the table of classes: what each needs, and where
//! dispatch goes when a class has no kernels of its own. The table is plain data, so
//! its every row is tested on any machine.
//!
//! [`gpu`] is the same table for devices, and the list of those that the vendors' drivers
//! tell of. [`capabilities`] turns all of it into words.
//! [`topology`] is the machine's memory, its caches, and the cores near each; [`cores`]
//! counts what of them this process may use, which is often less than there is.
//! [`description`] is all of it, for people to look at.

pub mod capabilities;
pub mod cores;
pub mod cpu;
pub mod description;
mod features;
pub mod gpu;
pub mod pages;
#[cfg(target_arch = "x86_64")]
mod tiles;
pub mod topology;

pub use cpu::CpuClass;
pub use gpu::{GpuClass, GpuDevice, GpuVendor, gpu_devices};
