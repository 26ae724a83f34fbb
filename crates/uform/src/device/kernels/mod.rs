//! The kernels' code: two sources, and what `cargo xtask kernels` makes of each. `uform.cu` is what an
//! encoder does; `collectives.cu` is how the devices of a process add up what they have.
//!
//! A cubin is machine code for one kind of device, and loads at once. PTX is what a driver
//! translates for any device from compute capability 8.0 on, which takes it a while. AMD's
//! runtime compiles the source itself; what multiplies by NVIDIA's tensor cores is left out there.
//!
//! The sources say what each kernel takes, how many threads a block has, and how much dynamic shared
//! memory; for the encoder's [`Kernels`] (`table`) knows, and checks what it launches.

mod table;

use std::sync::Arc;

pub use self::table::{
    Batch, BatchPlace, Dense, Extent, Kernels, MOST_HEAD, Norm, TENSOR_MULTIPLE, Tables,
};

use super::{Architecture, Code, Device, Module};
use crate::{Result, Status};

/// One source, and what was made of it.
struct Program {
    source: &'static str,
    ptx: &'static [u8],
    sm_80: &'static [u8],
    sm_89: &'static [u8],
    sm_90a: &'static [u8],
    sm_100f: &'static [u8],
    sm_120f: &'static [u8],
}

/// What every NVIDIA driver translates for its devices.
pub const PTX: &[u8] = include_bytes!("uform.ptx");

macro_rules! program {
    ($name:literal) => {
        Program {
            source: include_str!(concat!($name, ".cu")),
            ptx: include_bytes!(concat!($name, ".ptx")),
            sm_80: include_bytes!(concat!($name, ".sm_80.cubin")),
            sm_89: include_bytes!(concat!($name, ".sm_89.cubin")),
            sm_90a: include_bytes!(concat!($name, ".sm_90a.cubin")),
            sm_100f: include_bytes!(concat!($name, ".sm_100f.cubin")),
            sm_120f: include_bytes!(concat!($name, ".sm_120f.cubin")),
        }
    };
}

static ENCODER: Program = program!("uform");
static COLLECTIVES: Program = program!("collectives");

/// Loads an encoder's kernels for a device.
///
/// # Errors
/// [`Unsupported`](Status::Unsupported), with the driver's or compiler's own words, when it takes neither
/// form of them; [`OutOfMemory`](Status::OutOfMemory), [`DeviceFault`](Status::DeviceFault).
pub fn load(device: &Arc<Device>) -> Result<Arc<Module>> {
    ENCODER.load(device)
}

/// Loads the kernels of the lowest class of the device's vendor: those that every one of its devices has.
///
/// # Errors
/// As those of [`load`].
fn load_lowest(device: &Arc<Device>) -> Result<Arc<Module>> {
    match device.properties().architecture {
        // The machine code of 8.0 does not run on 9.0; its PTX does.
        Architecture::Capability(major, _) if major > 8 => device.load(Code::Image(ENCODER.ptx)),
        Architecture::Capability(..) => match device.load(Code::Image(ENCODER.sm_80)) {
            Err(error) if error.status() == Status::Unsupported => {
                device.load(Code::Image(ENCODER.ptx))
            }
            loaded => loaded,
        },
        Architecture::Gfx(_) => load(device),
    }
}

/// The encoder's machine code that a device of a compute capability runs.
pub fn cubin(major: u32, minor: u32) -> Option<&'static [u8]> {
    ENCODER.cubin(major, minor)
}

/// Loads the kernels of the collectives for a device.
///
/// # Errors
/// As those of [`load`].
pub(super) fn load_collectives(device: &Arc<Device>) -> Result<Arc<Module>> {
    COLLECTIVES.load(device)
}

impl Program {
    fn load(&self, device: &Arc<Device>) -> Result<Arc<Module>> {
        let (major, minor) = match device.properties().architecture {
            Architecture::Capability(major, minor) => (major, minor),
            Architecture::Gfx(_) => return device.load(Code::Source(self.source)),
        };
        let ptx = || device.load(Code::Image(self.ptx));
        let Some(cubin) = self.cubin(major, minor) else {
            return ptx();
        };
        match device.load(Code::Image(cubin)) {
            // A driver may be too old for a cubin, and translate PTX all the same.
            Err(error) if error.status() == Status::Unsupported => ptx(),
            loaded => loaded,
        }
    }

    /// The machine code that a device of a compute capability runs. That of 8.0 runs on all of 8.x; the
    /// others are for their family alone.
    fn cubin(&self, major: u32, minor: u32) -> Option<&'static [u8]> {
        match (major, minor) {
            (8, 9) => Some(self.sm_89),
            (8, _) => Some(self.sm_80),
            (9, 0) => Some(self.sm_90a),
            (10, 0 | 3) => Some(self.sm_100f),
            (12, 0 | 1) => Some(self.sm_120f),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_what_its_name_says() {
        for program in [&ENCODER, &COLLECTIVES] {
            let text = std::str::from_utf8(program.ptx).unwrap();
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
                let cubin = program.cubin(capability.0, capability.1).unwrap();
                assert!(cubin.starts_with(b"\x7fELF"));
                // One byte of the header's flags is the architecture's number.
                let flags = &cubin[48..52];
                assert!(flags.contains(&code), "{capability:?}: {flags:?}");
            }
            for (major, minor) in [(7, 5), (10, 7), (11, 0), (13, 0)] {
                assert_eq!(program.cubin(major, minor), None);
            }
        }
    }
}
