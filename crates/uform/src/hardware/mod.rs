//! What this machine is: its CPU class, its cores, what the build can drive.
//!
//! The question every other floor asks is *which kernels run here*. For the CPU it is answered beside
//! those kernels: [`cpu`] is their crate's table of classes, plain data whose every row is tested on
//! any machine.
//!
//! [`gpu`] is the same table for devices, and the list of those that the vendors' drivers
//! tell of. [`capabilities`] turns all of it into words.
//! [`topology`] is the machine's memory, its caches, and the cores near each; [`cores`]
//! counts what of them this process may use, which is often less than there is.
//! [`description`] is all of it, for people to look at.

pub mod capabilities;
pub mod cores;
pub mod description;
pub mod gpu;
pub mod pages;
pub mod topology;

pub use gpu::{GpuClass, GpuDevice, GpuVendor, gpu_devices};
pub use uform_kernels::cpu::{self, CpuClass};
use uform_kernels::features;
