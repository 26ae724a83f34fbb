//! How fast the kernels are, beside what the device can do: its own rates of copying and of
//! multiplying are measured first, in the same run.

use std::time::Instant;

use uform::Result;
use uform::device::{Argument, Buffer, Code, Kernel, Shape};

use super::Context;
use crate::gpu::{ABSENT, at, count};
use crate::{Gpu, Report};

const PTX: &[u8] = include_bytes!("../rates.ptx");

/// What the device can do.
struct Limits {
    /// Bytes a second, read or written.
    copied: f64,
    /// Operations a second of the tensor cores, in bf16.
    matrices: f64,
    /// Operations a second in f32.
    products: f64,
}

pub(super) fn run(context: &Context, report: &mut Report) -> Result<()> {
    let gpu = Gpu::shipped(context.device)?;
    let bench = Bench {
        gpu: &gpu,
        is_small: context.is_small,
    };
    bench.host(report)?;
    let limits = bench.limits()?;
    report.rate(format!(
        "copies within the device: {:.0} GB/s",
        limits.copied / 1e9
    ));
    report.rate(format!(
        "bf16 in matrix units: {:.1} TFLOP/s",
        limits.matrices / 1e12
    ));
    report.rate(format!("f32: {:.1} TFLOP/s", limits.products / 1e12));
    // The layers of all-MiniLM-L6-v2, and of a model of three times its width.
    let rows = if context.is_small { 128 } else { 16_384 };
    for hidden in if context.is_small {
        vec![64]
    } else {
        vec![384, 1024]
    } {
        for (width, depth) in [(3, 1), (1, 1), (4, 1), (1, 4)] {
            let shape = [rows, width * hidden, depth * hidden];
            bench.dense(shape, &limits, report)?;
        }
        bench.norm(rows, hidden, &limits, report)?;
    }
    let lengths: &[usize] = if context.is_small {
        &[40]
    } else {
        &[32, 128, 512]
    };
    for &length in lengths {
        bench.attention(length, rows, &limits, report)?;
    }
    Ok(())
}

struct Bench<'a> {
    gpu: &'a Gpu,
    is_small: bool,
}

impl Bench<'_> {
    /// Seconds of one run of what is submitted, out of as many as take long enough to be timed.
    fn seconds(&self, submit: impl Fn() -> Result<()>) -> Result<f64> {
        let stream = &self.gpu.stream;
        submit()?;
        stream.wait()?;
        if self.is_small {
            let start = Instant::now();
            submit()?;
            stream.wait()?;
            return Ok(start.elapsed().as_secs_f64());
        }
        let mut rounds = 1;
        loop {
            let start = Instant::now();
            for _ in 0..rounds {
                submit()?;
            }
            stream.wait()?;
            let seconds = start.elapsed().as_secs_f64();
            if seconds > 0.1 {
                return Ok(seconds / f64::from(rounds));
            }
            rounds *= 2;
        }
    }

    /// Copies between the host's memory and the device's.
    fn host(&self, report: &Report) -> Result<()> {
        let bytes = if self.is_small { 1 << 16 } else { 1 << 28 };
        let mut host = self.gpu.device.allocate_host(bytes)?;
        let buffer = self.gpu.device.allocate(bytes)?;
        let stream = &self.gpu.stream;
        // SAFETY: `seconds` waits before the memory is touched again.
        let up = self.seconds(|| unsafe { stream.submit_upload(&buffer, 0, &host) })?;
        let start = Instant::now();
        // SAFETY: waited for at once.
        unsafe { stream.submit_download(&mut host, &buffer, 0) }?;
        stream.wait()?;
        let down = start.elapsed().as_secs_f64();
        let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
        report.rate(format!(
            "copies to the device: {:.1} GB/s, from it: {:.1} GB/s",
            rate(up),
            rate(down)
        ));
        Ok(())
    }

    fn limits(&self) -> Result<Limits> {
        let bytes = if self.is_small { 1 << 16 } else { 1 << 29 };
        let device = &self.gpu.device;
        let from = device.allocate(bytes)?;
        let to = std::cell::RefCell::new(device.allocate(bytes)?);
        let seconds = self.seconds(|| self.gpu.stream.copy(&mut to.borrow_mut(), &from, bytes))?;
        let module = device.load(Code::Image(PTX))?;
        // Operations of a thread and round: eight products of 16 by 8 by 16 a warp; sixteen a thread.
        let matrices = self.registers(&module.kernel("matrices")?, 8.0 * 4096.0 / 32.0)?;
        let products = self.registers(&module.kernel("products")?, 16.0 * 2.0)?;
        Ok(Limits {
            copied: 2.0 * bytes as f64 / seconds,
            matrices,
            products,
        })
    }

    /// Operations a second of a kernel that does so many a thread and round.
    fn registers(&self, kernel: &Kernel, operations: f64) -> Result<f64> {
        let units = self.gpu.device.properties().compute_units;
        let (blocks, rounds) = if self.is_small {
            (1, 2)
        } else {
            (units * 16, 2048)
        };
        let out = self.gpu.device.allocate(4 * 256 * blocks as usize)?;
        let shape = Shape {
            grid: [blocks, 1, 1],
            block: [256, 1, 1],
            shared_bytes: 0,
        };
        let arguments = [Argument::U32(rounds), at(&out)];
        // SAFETY: the kernel's own arguments; `seconds` waits.
        let seconds =
            self.seconds(|| unsafe { self.gpu.stream.launch(kernel, shape, &arguments) })?;
        Ok(operations * f64::from(rounds) * 256.0 * f64::from(blocks) / seconds)
    }

    fn zeros(&self, bytes: usize) -> Result<Buffer> {
        let mut buffer = self.gpu.device.allocate(bytes)?;
        self.gpu.stream.fill(&mut buffer, 0)?;
        Ok(buffer)
    }

    /// Seconds of a kernel of the engine's.
    fn kernel(&self, name: &str, shape: Shape, arguments: &[Argument]) -> Result<f64> {
        let kernel = self.gpu.kernel(name)?;
        kernel.allow_shared(shape.shared_bytes)?;
        // SAFETY: the kernel's own arguments; `seconds` waits.
        self.seconds(|| unsafe { self.gpu.stream.launch(&kernel, shape, arguments) })
    }

    fn dense(&self, shape: [usize; 3], limits: &Limits, report: &Report) -> Result<()> {
        let [rows, width, depth] = shape;
        let factors = [
            self.zeros(4 * rows * depth)?,
            self.zeros(4 * width * depth)?,
        ];
        let (bias, out) = (self.zeros(4 * width)?, self.zeros(4 * rows * width)?);
        let operations = 2.0 * rows as f64 * width as f64 * depth as f64;
        let kernels = [
            ("dense_f32", 64, 256, 0, limits.products),
            ("dense_bf16", 64, 128, 30_720, limits.matrices),
            ("dense_bf16_large", 128, 256, 67_584, limits.matrices),
        ];
        for (name, tile, threads, shared_bytes, limit) in kernels {
            let shape = Shape {
                grid: [width.div_ceil(tile) as u32, rows.div_ceil(tile) as u32, 1],
                block: [threads, 1, 1],
                shared_bytes,
            };
            let mut arguments = vec![
                at(&factors[0]),
                at(&factors[1]),
                at(&bias),
                ABSENT,
                Argument::U32(0),
                count(rows),
                count(width),
                count(depth),
                at(&out),
            ];
            if shared_bytes > 0 {
                arguments.push(ABSENT);
            }
            let rate = operations / self.kernel(name, shape, &arguments)?;
            report.rate(format!(
                "{name}, {rows} rows of {depth} to {width}: {:.1} TFLOP/s, {:.0} % of what the \
                 device can do",
                rate / 1e12,
                100.0 * rate / limit
            ));
        }
        Ok(())
    }

    fn norm(&self, rows: usize, hidden: usize, limits: &Limits, report: &Report) -> Result<()> {
        let states = self.zeros(4 * rows * hidden)?;
        let (gain, operand) = (self.zeros(4 * hidden)?, self.zeros(2 * rows * hidden)?);
        let shape = Shape {
            grid: [rows.div_ceil(4) as u32, 1, 1],
            block: [128, 1, 1],
            shared_bytes: 0,
        };
        let arguments = [
            at(&states),
            at(&gain),
            at(&gain),
            Argument::F32(1e-12),
            count(rows),
            count(hidden),
            at(&operand),
        ];
        // Read and written in f32, written in bf16.
        let bytes = 10.0 * rows as f64 * hidden as f64;
        let rate = bytes / self.kernel("layer_norm", shape, &arguments)?;
        report.rate(format!(
            "layer_norm, {rows} rows of {hidden}: {:.0} GB/s, {:.0} % of a copy's",
            rate / 1e9,
            100.0 * rate / limits.copied
        ));
        Ok(())
    }

    /// Twelve heads of 32, as all-MiniLM-L6-v2 has.
    fn attention(
        &self,
        length: usize,
        rows: usize,
        limits: &Limits,
        report: &Report,
    ) -> Result<()> {
        let (heads, size, texts) = (12, 32, (rows / length).max(1));
        let hidden = heads * size;
        let projected = self.zeros(4 * texts * length * 3 * hidden)?;
        let out = self.zeros(4 * texts * length * hidden)?;
        let operations = 4.0 * (texts * heads * length * length * size) as f64;
        let kernels = [
            ("attend_f32_32", 16, 256, 0, limits.products),
            ("attend_bf16_32", 64, 128, 192 * 80, limits.matrices),
        ];
        for (name, queries, threads, shared_bytes, limit) in kernels {
            let starts = (0..length).step_by(queries);
            let pieces: Vec<u32> = (0..texts)
                .flat_map(|text| {
                    let first = (text * length) as u32;
                    starts
                        .clone()
                        .flat_map(move |start| [first, length as u32, start as u32])
                })
                .collect();
            let shape = Shape {
                grid: [pieces.len() as u32 / 3, heads as u32, 1],
                block: [threads, 1, 1],
                shared_bytes,
            };
            let pieces = self.gpu.words(&pieces)?;
            let arguments = [
                at(&projected),
                at(&pieces),
                count(hidden),
                count(size),
                at(&out),
            ];
            let rate = operations / self.kernel(name, shape, &arguments)?;
            report.rate(format!(
                "{name}, {texts} texts of {length}: {:.1} TFLOP/s, {:.0} % of what the device can do",
                rate / 1e12,
                100.0 * rate / limit
            ));
        }
        Ok(())
    }
}
