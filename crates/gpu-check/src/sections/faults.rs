//! A kernel that reads where no memory is ends its device for this process: with an error that says so, and
//! the same for whatever is asked later.

use uform::device::Argument;
use uform::{Result, Status};

use super::Context;
use crate::gpu::{ABSENT, at, count};
use crate::{Gpu, Report};

pub(super) fn run(context: &Context, report: &mut Report) -> Result<()> {
    let gpu = Gpu::shipped(context.device)?;
    let (tokens, hidden) = (1, 64);
    let values = gpu.floats(&vec![1.0; hidden])?;
    let states = gpu.device.allocate(4 * hidden)?;
    // A word some hundred gigabytes beyond the table.
    let ids = gpu.words(&[0x7000_0000])?;
    let positions = gpu.words(&[0])?;
    let arguments = [
        at(&ids),
        at(&positions),
        at(&values),
        at(&values),
        at(&values),
        at(&values),
        at(&values),
        Argument::F32(1e-12),
        count(tokens),
        count(hidden),
        at(&states),
        ABSENT,
    ];
    let Err(first) = gpu.run("embed", [1, 1, 1], 128, 0, &arguments) else {
        report.fail("an access far beyond all memory is no fault");
        return Ok(());
    };
    report.judge(
        first.status() == Status::DeviceFault,
        format!("an access beyond all memory: {first}"),
    );
    let later = gpu.device.allocate(256).err();
    report.judge(
        later.is_some_and(|later| later.to_string() == first.to_string()),
        "the first fault is the answer to what is asked later",
    );
    report.judge(
        gpu.device.fault().is_some(),
        "the device says that it faulted",
    );
    Ok(())
}
