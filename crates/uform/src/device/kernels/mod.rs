//! The kernels' code: one source, `uform.cu`, and what `cargo xtask kernels` makes of it.
//!
//! A cubin is machine code for one kind of device, and loads at once. PTX is what a driver
//! translates for any device from compute capability 8.0 on, which takes it a while. AMD's
//! runtime compiles the source itself; what multiplies by NVIDIA's tensor cores is left out there.
//!
//! The source says what each kernel takes, how many threads a block has, and how much dynamic shared
//! memory; [`Kernels`] (`table`) knows, and checks what it launches.

mod table;

use std::sync::Arc;

pub use self::table::{
    Batch, BatchPlace, Dense, Extent, Kernels, MOST_HEAD, Norm, TENSOR_MULTIPLE, Tables,
};

use super::{Architecture, Code, Device, Module};
use crate::{Result, Status};

const SOURCE: &str = include_str!("uform.cu");
const PTX: &[u8] = include_bytes!("uform.ptx");

/// Loads the kernels for a device.
///
/// # Errors
/// [`Unsupported`](Status::Unsupported), with the driver's or compiler's own words, when it takes neither
/// form of them; [`OutOfMemory`](Status::OutOfMemory), [`DeviceFault`](Status::DeviceFault).
pub fn load(device: &Arc<Device>) -> Result<Arc<Module>> {
    let (major, minor) = match device.properties().architecture {
        Architecture::Capability(major, minor) => (major, minor),
        Architecture::Gfx(_) => return device.load(Code::Source(SOURCE)),
    };
    let Some(cubin) = cubin(major, minor) else {
        return device.load(Code::Image(PTX));
    };
    match device.load(Code::Image(cubin)) {
        // A driver may be too old for a cubin, and translate PTX all the same.
        Err(error) if error.status() == Status::Unsupported => device.load(Code::Image(PTX)),
        loaded => loaded,
    }
}

/// Loads the kernels of the lowest class of the device's vendor: those that every one of its devices has.
///
/// # Errors
/// As those of [`load`].
fn load_lowest(device: &Arc<Device>) -> Result<Arc<Module>> {
    match device.properties().architecture {
        // The machine code of 8.0 does not run on 9.0; its PTX does.
        Architecture::Capability(major, _) if major > 8 => device.load(Code::Image(PTX)),
        Architecture::Capability(..) => {
            let cubin = Code::Image(include_bytes!("uform.sm_80.cubin"));
            match device.load(cubin) {
                Err(error) if error.status() == Status::Unsupported => {
                    device.load(Code::Image(PTX))
                }
                loaded => loaded,
            }
        }
        Architecture::Gfx(_) => load(device),
    }
}

/// The machine code that a device of a compute capability runs. That of 8.0 runs on all of 8.x; the
/// others are for their family alone.
fn cubin(major: u32, minor: u32) -> Option<&'static [u8]> {
    match (major, minor) {
        (8, 9) => Some(include_bytes!("uform.sm_89.cubin")),
        (8, _) => Some(include_bytes!("uform.sm_80.cubin")),
        (9, 0) => Some(include_bytes!("uform.sm_90a.cubin")),
        (10, 0 | 3) => Some(include_bytes!("uform.sm_100f.cubin")),
        (12, 0 | 1) => Some(include_bytes!("uform.sm_120f.cubin")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_what_its_name_says() {
        let text = std::str::from_utf8(PTX).unwrap();
        assert!(text.contains("\n.version 7.0\n.target sm_80\n"));
        for (capability, code) in [
            ((8, 0), 80),
            ((8, 6), 80),
            ((8, 9), 89),
            ((9, 0), 90),
            ((10, 0), 100),
            ((10, 3), 100),
            ((12, 0), 120),
            ((12, 1), 120),
        ] {
            let cubin = cubin(capability.0, capability.1).unwrap();
            assert!(cubin.starts_with(b"\x7fELF"));
            // One byte of the header's flags is the architecture's number.
            let flags = &cubin[48..52];
            assert!(flags.contains(&code), "{capability:?}: {flags:?}");
        }
        for (major, minor) in [(7, 5), (10, 7), (11, 0), (13, 0)] {
            assert_eq!(cubin(major, minor), None);
        }
    }
}
