//! Running out of memory is an error of that name, and the device goes on.

use uform::device::{Device, Runtime};
use uform::{Result, Status};

use super::Context;
use crate::{Gpu, Report, checks};

pub(super) fn run(context: &Context, report: &mut Report) -> Result<()> {
    let device = Device::open(Runtime::Cuda, context.device)?;
    let (free, total) = device.memory()?;
    report.judge(
        free <= total && total <= device.properties().memory_bytes,
        format!("{} of {} MiB are free", free >> 20, total >> 20),
    );
    let most = usize::try_from(total).unwrap_or(usize::MAX / 2);
    match device.allocate(most + (1 << 20)) {
        Ok(_) => report.fail("more memory is given than there is"),
        Err(error) => report.judge(
            error.status() == Status::OutOfMemory,
            format!("more memory than there is: {error}"),
        ),
    }
    let gpu = Gpu::shipped(context.device)?;
    let (_, check) = checks::ALL[0];
    report.judge(check(&gpu)? <= 1.0, "the device works afterwards");
    drop(gpu);
    let after = device.memory()?.0;
    report.judge(
        // Other processes may come and go meanwhile.
        after + (64 << 20) >= free,
        format!("what was taken is given back: {} MiB are free", after >> 20),
    );
    Ok(())
}
