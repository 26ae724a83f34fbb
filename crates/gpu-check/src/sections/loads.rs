//! The driver takes the kernels: as machine code for this device, and as PTX, which it translates.

use std::time::Instant;

use uform::Result;
use uform::device::{Architecture, Code, Device, Runtime, kernels};

use super::Context;
use crate::Report;

pub(super) fn run(context: &Context, report: &mut Report) -> Result<()> {
    let device = Device::open(Runtime::Cuda, context.device)?;
    let Architecture::Capability(major, minor) = device.properties().architecture else {
        report.fail("CUDA lists a device that is not NVIDIA's");
        return Ok(());
    };
    let machine_code = kernels::cubin(major, minor);
    if machine_code.is_none() {
        report.skip(format!(
            "machine code: none is made for capability {major}.{minor}"
        ));
    }
    let forms = [("machine code", machine_code), ("PTX", Some(kernels::PTX))];
    for (name, image) in forms {
        let Some(image) = image else { continue };
        let start = Instant::now();
        let loaded = device.load(Code::Image(image));
        let milliseconds = start.elapsed().as_millis();
        match loaded {
            Ok(_) => report.judge(true, format!("{name} loads, in {milliseconds} ms")),
            Err(error) => report.fail(format!("{name} does not load: {error}")),
        }
    }
    Ok(())
}
