//! What a machine with an NVIDIA GPU proves that stand-ins cannot: that the driver loads the
//! kernels as machine code and as PTX, that they give what the CPU gives, how close they come to what
//! the device can do, and that a fault is the typed error it should be.
//!
//! The tests run all of it on the stand-in driver of `fake-gpu`, with small sizes, and plant
//! mistakes in the kernels, which the checks must see. `cargo xtask gpu-check DIR` makes a folder of it
//! to take to a machine that has nothing but a driver.
//!
//! | file | what it is about |
//! | --- | --- |
//! | [`checks`] | every kernel against the same sums in f64 |
//! | [`sections`] | what the program does, one after the other, each in a process of its own |
//! | `report` | what it says |
//! | `gpu`, `numbers` | a device with the kernels; inputs, and how far results are off |

pub mod checks;
mod gpu;
mod numbers;
mod report;
pub mod sections;

pub use gpu::Gpu;
pub use report::Report;
