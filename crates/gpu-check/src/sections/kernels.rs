//! Every kernel gives what the same sums in f64 give, in both forms that a driver takes.

use uform::Result;
use uform::device::{Code, kernels};

use super::Context;
use crate::{Gpu, Report, checks};

pub(super) fn run(context: &Context, report: &mut Report) -> Result<()> {
    let forms = [
        ("as they ship", Gpu::shipped(context.device)?),
        (
            "from PTX",
            Gpu::with_code(context.device, Code::Image(kernels::PTX))?,
        ),
    ];
    for (form, gpu) in forms {
        for (name, check) in checks::ALL {
            match check(&gpu) {
                Ok(off) => report.judge(
                    off <= 1.0,
                    format!("{name}, {form}: off by {off:.3} times what it may be"),
                ),
                Err(error) => report.fail(format!("{name}, {form}: {error}")),
            }
        }
    }
    Ok(())
}
