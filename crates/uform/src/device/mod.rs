//! A GPU vendor's driver, found when somebody first asks for it, behind one trait.
//!
//! Nothing of a driver is linked: a machine without one is as good as any. `symbols` looks a
//! library's functions up by their names, all of them at once, so that a driver that is too old
//! is refused before anything of it has run. [`driver`] is the one trait of what a driver does,
//! in terms of bare handles; `cuda` and `hip` are the two that do it. [`Device`] and what it
//! hands out ([`Buffer`], [`HostBuffer`], [`Stream`], [`Module`], [`Kernel`]) own those
//! handles, and are what the floors above use.
//!
//! A [`Layout`] says where numbers lie in a buffer, and a [`Staging`] copies them there and back
//! without waiting for each copy.
//!
//! [`kernels`] is the code that devices run, and what it was made of.
//!
//! `nvml` asks NVIDIA's management library the one thing a driver tells only of a device it drives.
//!
//! What devices do together: [`Peers`] are those of one process, and need nothing but their driver;
//! [`nccl`] is the vendors' library for those of several.
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

use std::sync::Arc;

mod cuda;
mod driver;
mod hip;
pub mod kernels;
mod kfd;
mod layout;
mod memory;
mod module;
mod multicast;
pub mod nccl;
mod nvml;
mod owned;
mod patience;
mod peers;
mod staging;
mod stream;
mod symbols;

pub use driver::{Absent, Architecture, Code, Failure, Properties, Runtime};
pub use layout::{Layout, Place, View};
pub use memory::{Buffer, HostBuffer};
pub use module::{Argument, Kernel, MOST_ADDRESSES, Module, Shape};
pub use nvml::free_memory;
pub use owned::{Device, has_faulted};
pub use patience::Patience;
pub use peers::{Peers, Share};
pub use staging::{Download, Staging};
pub use stream::{BorrowedStream, Stream};

/// Whether a switch can add up what these devices have: whether a multicast object can be made of
/// them, and memory of each bound to it. Both are tried, and given back.
///
/// # Errors
/// Why not.
pub fn try_multicast(devices: &[Arc<Device>]) -> std::result::Result<(), String> {
    let Some(first) = devices.first() else {
        return Err("there is no device".into());
    };
    let runtime = first.properties().runtime;
    if devices
        .iter()
        .any(|device| device.properties().runtime != runtime)
    {
        return Err("the devices are of two vendors".into());
    }
    let indexes: Vec<u32> = devices
        .iter()
        .map(|device| device.properties().index)
        .collect();
    first.driver.try_multicast(&indexes)
}

/// The devices that this process can drive with a vendor's runtime, in the runtime's order.
/// Without a driver that works there are none. Makes no context.
pub fn devices(runtime: Runtime) -> Vec<Properties> {
    runtime
        .driver()
        .map_or(Vec::new(), |driver| driver.devices())
}
