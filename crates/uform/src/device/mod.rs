//! A GPU vendor's driver, found when somebody first asks for it, behind one trait.
//!
//! Nothing of a driver is linked: a machine without one is as good as any. `table` looks a
//! library's functions up by their names, all of them at once, so that a driver that is too old
//! is refused before anything of it has run. [`driver`] is the one trait of what a driver does,
//! in terms of bare handles; `cuda` and `hip` are the two that do it. [`Device`] and what it
//! hands out ([`Buffer`], [`HostBuffer`], [`Stream`], [`Module`], [`Kernel`]) own those
//! handles, and are what the floors above use.
//!
//! [`kernels`] is the code that devices run, and what it was made of.
//!
//! Three rules hold throughout:
//! - A result code is a number. Newer drivers return codes that no header of today knows, and
//!   each of them is a [`Failure`] like any other.
//! - A library is asked for by the name its driver installs, never by the name that toolkits give to
//!   what programs are linked with: that may be a stub.
//! - A device that faulted stays faulted: the first fault is kept, and is the answer to every
//!   later question. Running out of memory is no fault.
//!
//! What is meant by a device's kernels being valid is the caller's business: to launch is unsafe.

mod cuda;
mod driver;
mod hip;
pub mod kernels;
mod kfd;
mod memory;
mod module;
mod owned;
mod stream;
mod table;

pub use driver::{Absent, Architecture, Code, Failure, Properties, Runtime};
pub use memory::{Buffer, HostBuffer};
pub use module::{Argument, Kernel, Module, Shape};
pub use owned::Device;
pub use stream::Stream;

/// The devices that this process can drive with a vendor's runtime, in the runtime's order.
/// Without a driver that works there are none. Makes no context.
pub fn devices(runtime: Runtime) -> Vec<Properties> {
    runtime
        .driver()
        .map_or(Vec::new(), |driver| driver.devices())
}
