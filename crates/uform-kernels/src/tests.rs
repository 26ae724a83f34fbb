//! Every operation of every class this machine runs, against f64 and against itself.
//!
//! Against f64: a naive computation, so that a mistake the classes share is seen. Against itself:
//! a row or text alone, in a batch, and on any number of lanes gives the same bits.

#[cfg(not(target_family = "wasm"))]
use std::sync::atomic::{AtomicUsize, Ordering};

use super::coefficients::EXP_LIMIT;
use super::*;

/// A team whose lanes are rayon's threads: an emulator of another machine never gives back
/// what it keeps of a thread, and there are thousands of jobs. Where there are no threads, lanes
/// compute in turn.
struct Threads(usize);

impl ForkJoin for Threads {
    fn lanes(&self) -> usize {
        self.0
    }

    #[cfg(target_family = "wasm")]
    fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        (0..tasks).for_each(|task| body(task % self.0, task));
    }

    #[cfg(not(target_family = "wasm"))]
    fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        let next = AtomicUsize::new(0);
        rayon::scope(|scope| {
            for lane in 0..self.0 {
                let next = &next;
                scope.spawn(move |_| {
                    loop {
                        let task = next.fetch_add(1, Ordering::Relaxed);
                        if task >= tasks {
                            break;
                        }
                        body(lane, task);
                    }
                });
            }
        });
    }
}

/// Numbers in −1..1, the same for the same seed.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = u64::from(seed) * 2 + 1;
    (0..count)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(seed.into());
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn assert_close(found: &[f32], truth: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), truth.len(), "{what}");
    for (at, (found, truth)) in found.iter().zip(truth).enumerate() {
        let off = (f64::from(*found) - truth).abs();
        // NaN is not at most anything, and fails.
        assert!(
            off <= tolerance * (1.0 + truth.abs()),
            "{what}: element {at} is {found}, not {truth}"
        );
    }
}

fn assert_same_bits(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            found.to_bits() == expected.to_bits(),
            "{what}: element {at} is {found}, was {expected}"
        );
    }
}

/// erf, by its Taylor series near 0 and by the continued fraction of erfc far from it.
fn erf(x: f64) -> f64 {
    if x.abs() < 3.0 {
        let mut term = x;
        let mut sum = x;
        for n in 1..100 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let tail = (1..=60)
            .rev()
            .fold(0.0, |tail, k| f64::from(k) / 2.0 / (x.abs() + tail));
        let erfc = (-x * x).exp() / std::f64::consts::PI.sqrt() / (x.abs() + tail);
        (1.0 - erfc).copysign(x)
    }
}

fn curve(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Identity => x,
        Activation::Gelu => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
        Activation::GeluTanh => {
            let z = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + z.tanh())
        }
        Activation::Relu => x.max(0.0),
        Activation::Tanh => x.tanh(),
        Activation::Silu => x / (1.0 + (-x).exp()),
    }
}

const ACTIVATIONS: [Activation; 6] = [
    Activation::Identity,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Relu,
    Activation::Tanh,
    Activation::Silu,
];

#[test]
fn the_machine_runs_what_it_says() {
    let here: Vec<_> = Kernels::here()
        .map(|kernels| (kernels.class(), kernels.precision()))
        .collect();
    for precision in Precision::ALL {
        assert!(here.contains(&(CpuClass::Serial, precision)));
    }
    for (class, precision) in here {
        let kernels = Kernels::of(class, precision);
        assert_eq!((kernels.class(), kernels.precision()), (class, precision));
    }
}

#[test]
fn a_class_without_code_for_a_precision_falls_to_the_nearest_with() {
    for class in CpuClass::that_run_here() {
        for precision in Precision::ALL {
            let kernels = Kernels::of(class, precision);
            assert_eq!(kernels.precision(), precision);
            let has_code = |class: &CpuClass| {
                TABLES
                    .iter()
                    .any(|one| (one.class, one.precision) == (*class, precision))
            };
            let mut chain = std::iter::successors(Some(class), |class| class.falls_to());
            // A build for one target alone is not in the table: it computes as `serial`.
            let nearest = chain.find(has_code).unwrap_or(CpuClass::Serial);
            assert_eq!(kernels.class(), nearest);
        }
    }
}

fn name(kernels: &Kernels) -> String {
    format!("{:?} {}", kernels.class(), kernels.precision().word())
}

/// A dense layer over f32 rows.
fn linear(
    kernels: &Kernels,
    team: &dyn ForkJoin,
    rows: &[f32],
    weight: &Packed,
    epilogue: Epilogue<'_>,
    out: &mut [f32],
) {
    // NaN shows what was not written, but for the padding, which is.
    let count = rows.len() / weight.inputs();
    let mut space = vec![f32::NAN; kernels.operand_size(count, weight.inputs())];
    let rows = kernels.convert(team, rows, weight.inputs(), &mut space);
    kernels.linear(team, rows, weight, epilogue, out);
}

/// What a precision makes of weights, as the module `precision` writes it down.
fn rounded(precision: Precision, weights: &[f32], width: usize) -> Vec<f64> {
    rounded_by(precision, weights, width, |row| largest_of(row.iter()))
}

/// What a precision makes of rows, as there.
fn rounded_rows(precision: Precision, rows: &[f32], width: usize) -> Vec<f64> {
    rounded_by(precision, rows, width, |row| {
        let maxima = (0..8).map(|place| largest_of(row.iter().skip(place).step_by(8)));
        let limit = 5.0 * maxima.fold(f32::INFINITY, f32::min);
        let mut apart = 0;
        let rest = row.iter().filter(|x| {
            let over = x.abs() > limit && apart < 4;
            apart += usize::from(over);
            !over
        });
        largest_of(rest).max(largest_of(row.iter()) / 256.0)
    })
}

fn largest_of<'a>(numbers: impl Iterator<Item = &'a f32>) -> f32 {
    numbers.fold(0f32, |most, x| most.max(x.abs()))
}

/// Rows rounded; `largest` is what i8 has as 127.
fn rounded_by(
    precision: Precision,
    rows: &[f32],
    width: usize,
    largest: impl Fn(&[f32]) -> f32,
) -> Vec<f64> {
    let round_row = |row: &[f32]| -> Vec<f64> {
        let largest = largest(row);
        let round = |x: &f32| match precision {
            Precision::F32 => f64::from(*x),
            Precision::Bf16 => half::bf16::from_f32(*x).to_f64(),
            Precision::I8 => {
                f64::from((x * (127.0 / largest)).round_ties_even()) * f64::from(largest / 127.0)
            }
        };
        row.iter().map(round).collect()
    };
    rows.chunks(width).flat_map(round_row).collect()
}

#[test]
fn packing_keeps_every_weight_and_pads_with_zeros() {
    for kernels in Kernels::here() {
        for (inputs, parts) in [(1, vec![1]), (70, vec![129]), (3, vec![20, 1, 30, 50])] {
            let parts: Vec<_> = parts
                .into_iter()
                .map(|outputs| numbers(outputs * inputs, outputs as u32))
                .collect();
            let stacked = parts.concat();
            let truth = rounded(kernels.precision(), &stacked, inputs);
            let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
            let packed = kernels.pack(&Threads(3), &parts, inputs).unwrap();
            assert_eq!(packed.outputs(), stacked.len() / inputs);
            let first: *const u8 = match kernels.precision() {
                Precision::F32 => packed.panel(0).as_ptr().cast(),
                _ => packed.tiles(0).as_ptr().cast(),
            };
            assert_eq!(first.align_offset(64), 0);
            for output in 0..packed.panels() * kernels.panel_columns {
                for input in 0..inputs {
                    let found = packed_weight(kernels, &packed, output, input);
                    let truth = match output < packed.outputs() {
                        true => truth[output * inputs + input],
                        false => 0.0,
                    };
                    assert_eq!(found, truth, "{}", name(kernels));
                }
            }
        }
    }
}

#[test]
fn weights_quantized_before_are_packed_as_those_that_are_packed_now() {
    let kernels = Kernels::here().filter(|kernels| kernels.precision() == Precision::I8);
    for (kernels, (inputs, outputs)) in
        kernels.flat_map(|one| [(1, 1), (70, 129), (384, 64), (5, 40)].map(|size| (one, size)))
    {
        let mut weights = numbers(inputs * outputs, 5);
        weights[..inputs].fill(0.0);
        let mut quantized = vec![0i8; weights.len()];
        let rows = weights.chunks(inputs).zip(quantized.chunks_mut(inputs));
        let scales: Vec<f32> = rows.map(|(row, to)| super::quantize(row, to)).collect();
        let (first, last) = (outputs / 3, outputs - outputs / 3);
        let parts = [(0, first), (first, last)].map(|(from, count)| Quantized {
            numbers: &quantized[from * inputs..][..count * inputs],
            scales: &scales[from..][..count],
        });
        let expected = kernels.pack(&Solo, &[&weights], inputs).unwrap();
        let region = Region::new(1).unwrap();
        let found = kernels.pack_quantized_into(&region, &Threads(2), &parts, inputs);
        let found = found.unwrap();
        let what = name(kernels);
        assert_eq!(found.outputs(), outputs, "{what}");
        for panel in 0..expected.panels() {
            assert!(found.tiles(panel) == expected.tiles(panel), "{what}");
        }
        assert_eq!(found.scales(), expected.scales(), "{what}");
        #[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
        assert_eq!(found.offsets(), expected.offsets(), "{what}");
    }
}

/// A weight, found where its order puts it.
fn packed_weight(kernels: &Kernels, packed: &Packed, output: usize, input: usize) -> f64 {
    let columns = kernels.panel_columns;
    let (panel, column) = (output / columns, output % columns);
    // Numbers to a group of four bytes.
    let numbers = match packed.precision() {
        Precision::F32 => return packed.panel(panel)[input * columns + column].into(),
        Precision::Bf16 => 2,
        Precision::I8 => 4,
    };
    let (step, group) = (input / numbers / 16, input / numbers % 16);
    let group = packed.tiles(panel)[512 * step + 256 * (column / 16) + 16 * group + column % 16];
    let bytes = group.to_le_bytes();
    let place = input % numbers;
    match packed.precision() {
        Precision::Bf16 => {
            half::bf16::from_le_bytes([bytes[2 * place], bytes[2 * place + 1]]).to_f64()
        }
        _ => f64::from(bytes[place] as i8) * f64::from(packed.scales()[output]),
    }
}

#[test]
fn linear_is_right_and_does_not_depend_on_the_batch() {
    for kernels in Kernels::here() {
        for (inputs, outputs) in [(1, 1), (312, 129), (37, 64), (384, 50), (100, 1)] {
            let weights = numbers(inputs * outputs, 1);
            let bias = numbers(outputs, 2);
            let packed = kernels.pack(&Solo, &[&weights], inputs).unwrap();
            let factors = numbers(outputs, 7);
            let most = 70;
            let mut rows = numbers(most * inputs, 3);
            // Some rows with an outlier, and one with more than can be kept apart.
            for row in rows.chunks_exact_mut(inputs).step_by(3) {
                row[inputs / 2] *= 100.0;
            }
            rows[..inputs]
                .iter_mut()
                .step_by(9)
                .for_each(|x| *x *= 50.0);
            let residual = numbers(most * outputs, 4);
            let run = |team: &dyn ForkJoin, from: usize, to: usize, activation| {
                let mut out = residual[from * outputs..to * outputs].to_vec();
                let epilogue = Epilogue {
                    bias: Some(&bias),
                    activation,
                    factors: Some(&factors),
                    residual: true,
                };
                let rows = &rows[from * inputs..to * inputs];
                linear(kernels, team, rows, &packed, epilogue, &mut out);
                out
            };
            let what = format!("{} {inputs} to {outputs}", name(kernels));
            let precision = kernels.precision();
            let (x, w) = (
                rounded_rows(precision, &rows, inputs),
                rounded(precision, &weights, inputs),
            );
            for activation in ACTIVATIONS {
                let whole = run(&Solo, 0, most, activation);
                let truth: Vec<_> = (0..most * outputs)
                    .map(|at| {
                        let (row, output) = (at / outputs, at % outputs);
                        let products = x[row * inputs..][..inputs]
                            .iter()
                            .zip(&w[output * inputs..][..inputs])
                            .map(|(x, w)| x * w);
                        let sum: f64 = products.sum::<f64>() + f64::from(bias[output]);
                        let value = curve(activation, sum) * f64::from(factors[output]);
                        value + f64::from(residual[at])
                    })
                    .collect();
                let curve_off = match (activation, precision) {
                    (Activation::Gelu, Precision::Bf16 | Precision::I8) => 4.6e-5,
                    _ => 0.0,
                };
                let tolerance = 5e-7 * (inputs as f64).sqrt() + curve_off;
                assert_close(&whole, &truth, tolerance, &what);
                for row in 0..most {
                    let alone = run(&Solo, row, row + 1, activation);
                    assert_same_bits(&alone, &whole[row * outputs..][..outputs], &what);
                }
                for lanes in [2, 3, 7] {
                    let shared = run(&Threads(lanes), 0, most, activation);
                    assert_same_bits(&shared, &whole, &what);
                }
            }
            let whole = run(&Solo, 0, most, Activation::Identity);
            for count in 1..=most {
                let some = run(&Solo, most - count, most, Activation::Identity);
                assert_same_bits(&some, &whole[(most - count) * outputs..], &what);
            }
        }
    }
}

/// The serial class is the text of the module `precision` in code.
#[test]
fn bf16_and_i8_have_the_same_bits_on_every_class() {
    for precision in [Precision::Bf16, Precision::I8] {
        let serial = Kernels::of(CpuClass::Serial, precision);
        for (count, inputs, outputs) in [
            (1, 1, 1),
            (5, 33, 40),
            (37, 384, 100),
            (7, 1000, 33),
            (64, 64, 64),
            (33, 96, 64),
        ] {
            // Of very different sizes, so that the order of additions shows.
            let spread = |numbers: Vec<f32>, seed| -> Vec<f32> {
                let sizes = self::numbers(numbers.len(), seed);
                let sizes = sizes.iter().map(|size| (20.0 * size).exp2());
                numbers
                    .iter()
                    .zip(sizes)
                    .map(|(x, size)| x * size)
                    .collect()
            };
            let weights = spread(numbers(inputs * outputs, 1), 2);
            let rows = spread(numbers(count * inputs, 3), 4);
            let (bias, residual) = (numbers(outputs, 5), numbers(count * outputs, 6));
            let factors = numbers(outputs, 7);
            let run = |kernels: &Kernels| {
                let packed = kernels.pack(&Solo, &[&weights], inputs).unwrap();
                let mut out = residual.clone();
                let epilogue = Epilogue {
                    bias: Some(&bias),
                    activation: Activation::Relu,
                    factors: Some(&factors),
                    residual: true,
                };
                linear(kernels, &Solo, &rows, &packed, epilogue, &mut out);
                out
            };
            let expected = run(serial);
            for kernels in Kernels::here().filter(|one| one.precision() == precision) {
                let what = format!("{} {count} by {inputs} to {outputs}", name(kernels));
                assert_same_bits(&run(kernels), &expected, &what);
            }
        }
    }
}

#[test]
fn what_goes_onward_is_what_a_conversion_makes() {
    for kernels in Kernels::here() {
        // The last: whole panels, and more rows than one lane converts at once in i8.
        for (count, inputs, outputs) in [(1, 1, 1), (40, 20, 312), (33, 64, 50), (210, 96, 64)] {
            let what = format!("{} {inputs} to {outputs}", name(kernels));
            let packed = kernels
                .pack(&Solo, &[&numbers(inputs * outputs, 1)], inputs)
                .unwrap();
            let (rows, bias) = (numbers(count * inputs, 2), numbers(outputs, 3));
            let factors = numbers(outputs, 4);
            let epilogue = Epilogue {
                bias: Some(&bias),
                activation: Activation::Gelu,
                factors: Some(&factors),
                residual: false,
            };
            let mut space = vec![0.0; kernels.operand_size(count, inputs)];
            let rows = kernels.convert(&Solo, &rows, inputs, &mut space);
            let mut out = vec![f32::NAN; count * outputs];
            kernels.linear(&Solo, rows, &packed, epilogue, &mut out);
            let mut space = vec![f32::NAN; kernels.operand_size(count, outputs)];
            let expected = bytes(&kernels.convert(&Threads(2), &out, outputs, &mut space));
            for lanes in [1, 3] {
                let mut out = vec![f32::NAN; kernels.onward_size(count, outputs)];
                let mut space = vec![f32::NAN; kernels.operand_size(count, outputs)];
                let onward = kernels.linear_onward(
                    &Threads(lanes),
                    rows,
                    &packed,
                    epilogue,
                    &mut out,
                    &mut space,
                );
                assert!(bytes(&onward) == expected, "{what}");
            }
        }
    }
}

/// Everything of an operand.
fn bytes(operand: &Operand<'_>) -> Vec<u8> {
    bytemuck::cast_slice(operand.floats()).to_vec()
}

#[test]
fn conversion_is_the_same_on_every_class() {
    let odd = [
        0.0,
        -0.0,
        1e-40,
        -1e-40,
        8.8e-16,
        8.9e-16,
        -8.8e-16,
        1e30,
        -3.4e38,
        f32::INFINITY,
    ];
    for precision in [Precision::Bf16, Precision::I8] {
        for width in [1, 7, 16, 32, 100, 384] {
            let mut rows = numbers(40 * width, 1);
            rows[3 * width..4 * width].fill(0.0);
            rows[4 * width..5 * width].fill(1e-35);
            for (row, value) in odd.iter().enumerate() {
                rows[(6 + row) * width + width / 2] = *value;
            }
            rows[20 * width] = f32::NAN;
            rows[22 * width - 1] = f32::from_bits(0xffff_ffff);
            let run = |kernels: &Kernels, team: &dyn ForkJoin| {
                let mut space = vec![f32::NAN; kernels.operand_size(40, width)];
                bytes(&kernels.convert(team, &rows, width, &mut space))
            };
            let expected = run(Kernels::of(CpuClass::Serial, precision), &Solo);
            for kernels in Kernels::here().filter(|one| one.precision() == precision) {
                let what = format!("{} {width}", name(kernels));
                assert!(run(kernels, &Solo) == expected, "{what}");
                assert!(run(kernels, &Threads(3)) == expected, "{what} on lanes");
            }
        }
    }
}

#[test]
fn what_is_absent_changes_nothing() {
    for kernels in Kernels::here() {
        let (inputs, outputs) = (20, 55);
        let packed = kernels
            .pack(&Solo, &[&numbers(inputs * outputs, 1)], inputs)
            .unwrap();
        let rows = numbers(9 * inputs, 2);
        let zeros = vec![0.0; 9 * outputs];
        let mut bare = zeros.clone();
        let mut zeroed = zeros.clone();
        linear(
            kernels,
            &Solo,
            &rows,
            &packed,
            Epilogue::default(),
            &mut bare,
        );
        let epilogue = Epilogue {
            bias: Some(&zeros[..outputs]),
            factors: Some(&vec![1.0; outputs]),
            residual: true,
            ..Epilogue::default()
        };
        linear(kernels, &Solo, &rows, &packed, epilogue, &mut zeroed);
        assert_eq!(bare, zeroed);
        assert!(bare.iter().any(|value| *value != 0.0));
    }
}

#[test]
fn a_batch_larger_than_a_block_of_rows_is_the_same() {
    for kernels in Kernels::here() {
        let (inputs, outputs, count) = (4096, 10, 61);
        let packed = kernels
            .pack(&Solo, &[&numbers(inputs * outputs, 1)], inputs)
            .unwrap();
        let rows = numbers(count * inputs, 2);
        let run = |team: &dyn ForkJoin, rows: &[f32]| {
            let mut out = vec![f32::NAN; rows.len() / inputs * outputs];
            linear(kernels, team, rows, &packed, Epilogue::default(), &mut out);
            out
        };
        let whole = run(&Solo, &rows);
        let apart: Vec<_> = rows
            .chunks(inputs)
            .flat_map(|row| run(&Solo, row))
            .collect();
        assert_same_bits(&whole, &apart, "blocks");
        assert_same_bits(&run(&Threads(4), &rows), &apart, "blocks on lanes");
    }
}

/// What a class makes of `x`, through a layer of one input whose weight is 1.
fn apply(kernels: &Kernels, activation: Activation, x: &[f32]) -> Vec<f32> {
    let packed = kernels.pack(&Solo, &[&[1.0]], 1).unwrap();
    let mut out = vec![f32::NAN; x.len()];
    let epilogue = Epilogue {
        activation,
        ..Epilogue::default()
    };
    linear(kernels, &Solo, x, &packed, epilogue, &mut out);
    out
}

#[test]
fn curves_keep_their_stated_errors() {
    let dense = (-30_000..=30_000).map(|step| step as f32 / 2_501.0);
    let small = (-1000..=1000).map(|step| step as f32 / 1e6);
    let large = [
        -1e30, -1e4, -100.0, -90.0, -50.0, 50.0, 90.0, 100.0, 1e4, 1e30,
    ];
    let x: Vec<f32> = dense.chain(small).chain(large).collect();
    for kernels in Kernels::here() {
        if kernels.precision() == Precision::I8 {
            continue;
        }
        // Multiply and add round apart.
        let apart = if kernels.class() == CpuClass::Serial || cfg!(target_family = "wasm") {
            2.0
        } else {
            1.0
        };
        for activation in ACTIVATIONS {
            let found = apply(kernels, activation, &x);
            // What the precision makes of x, the weight being 1.
            let x = match kernels.precision() {
                Precision::Bf16 => rounded_to_bf16(&x),
                Precision::F32 | Precision::I8 => x.clone(),
            };
            for (x, found) in x.iter().zip(found) {
                let truth = curve(activation, f64::from(*x));
                let off = (f64::from(found) - truth).abs();
                let size = truth.abs();
                let allowed = match activation {
                    Activation::Identity | Activation::Relu => 0.0,
                    Activation::Gelu if kernels.precision() != Precision::F32 => {
                        if *x > 0.0 {
                            4e-5 * size
                        } else {
                            4.6e-5
                        }
                    }
                    Activation::Gelu if *x > 0.0 => apart * 3e-7 * size,
                    Activation::Gelu => apart * 4e-7,
                    // z is rounded before it is an exponent, which costs its size times 1e-7.
                    Activation::GeluTanh if *x > 0.0 => 3e-7 * size,
                    Activation::GeluTanh => 2e-7 + 3e-7 * size,
                    Activation::Tanh => 2.5e-7 * size,
                    Activation::Silu => 3e-7 * size + 2e-8,
                };
                assert!(
                    off <= allowed,
                    "{:?} {activation:?} of {x} is {found}, not {truth}",
                    kernels.class()
                );
            }
        }
    }
}

fn rounded_to_bf16(values: &[f32]) -> Vec<f32> {
    let widened = |value: &f32| f32::from_bits(u32::from(precision::to_bf16(*value)) << 16);
    values.iter().map(widened).collect()
}

#[test]
fn a_nan_is_not_hidden() {
    for kernels in Kernels::here() {
        for activation in ACTIVATIONS {
            let out = apply(kernels, activation, &[1.0, f32::NAN, 2.0]);
            let nan: Vec<_> = out.iter().map(|value| value.is_nan()).collect();
            assert_eq!(
                nan,
                [false, true, false],
                "{:?} {activation:?}",
                kernels.class()
            );
        }
        let mut qkv = numbers(3 * 3 * 32, 1);
        qkv[40] = f32::NAN;
        let out = attention(kernels, &Solo, &qkv, &[3], (1, 32));
        assert!(out.iter().all(|value| value.is_nan()));
    }
}

#[test]
fn layer_norm_is_right_and_does_not_depend_on_the_batch() {
    for kernels in Kernels::here() {
        for hidden in [1, 7, 16, 26, 312, 384] {
            let what = format!("{} norm of {hidden}", name(kernels));
            let (gain, bias) = (numbers(hidden, 1), numbers(hidden, 2));
            let norm = Norm {
                gain: &gain,
                bias: &bias,
                epsilon: 1e-5,
            };
            let count = 70;
            // A mean far from zero, where the shortcut E[x²] − E[x]² would fail.
            let rows: Vec<_> = numbers(count * hidden, 3)
                .iter()
                .map(|x| x + 30.0)
                .collect();
            let run = |team: &dyn ForkJoin, rows: &[f32]| {
                let mut rows = rows.to_vec();
                let mut space = vec![f32::NAN; kernels.operand_size(rows.len() / hidden, hidden)];
                let normed = bytes(&kernels.layer_norm(team, &mut rows, norm, &mut space));
                let mut space = vec![f32::NAN; space.len()];
                let expected = kernels.convert(&Solo, &rows, hidden, &mut space);
                assert!(normed == bytes(&expected), "{what}");
                rows
            };
            let whole = run(&Solo, &rows);
            assert_close(&whole, &norm_f64(&rows, norm), 2e-5, &what);
            let apart: Vec<_> = rows
                .chunks(hidden)
                .flat_map(|row| run(&Solo, row))
                .collect();
            assert_same_bits(&whole, &apart, &what);
            for lanes in [2, 5] {
                assert_same_bits(&run(&Threads(lanes), &rows), &whole, &what);
            }
        }
    }
}

fn norm_f64(rows: &[f32], norm: Norm<'_>) -> Vec<f64> {
    let hidden = norm.gain.len() as f64;
    rows.chunks(norm.gain.len())
        .flat_map(|row| {
            let row: Vec<_> = row.iter().map(|x| f64::from(*x)).collect();
            let mean = row.iter().sum::<f64>() / hidden;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / hidden;
            let scale = (variance + f64::from(norm.epsilon)).sqrt();
            let row = row.into_iter().zip(norm.gain).zip(norm.bias);
            row.map(move |((x, gain), bias)| {
                (x - mean) / scale * f64::from(*gain) + f64::from(*bias)
            })
            .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn embedding_is_right_and_does_not_depend_on_the_batch() {
    for kernels in Kernels::here() {
        for hidden in [5, 312] {
            let what = format!("{} embedding of {hidden}", name(kernels));
            let (words, places, kind) = (
                numbers(50 * hidden, 1),
                numbers(20 * hidden, 2),
                numbers(hidden, 3),
            );
            let (gain, bias) = (numbers(hidden, 4), numbers(hidden, 5));
            let tables = Embedding {
                words: &words,
                places: &places,
                kind: &kind,
            };
            let norm = Norm {
                gain: &gain,
                bias: &bias,
                epsilon: 1e-12,
            };
            let ids: Vec<u32> = (0..33).map(|token| token * 7 % 50).collect();
            let positions: Vec<u32> = (0..33).map(|token| token % 20).collect();
            let run = |team: &dyn ForkJoin, tokens: Range<usize>| {
                let mut out = vec![f32::NAN; tokens.len() * hidden];
                let (ids, positions) = (&ids[tokens.clone()], &positions[tokens]);
                let mut space = vec![f32::NAN; kernels.operand_size(ids.len(), hidden)];
                let embedded =
                    kernels.embed(team, ids, positions, tables, norm, &mut out, &mut space);
                let embedded = bytes(&embedded);
                let mut space = vec![f32::NAN; space.len()];
                let expected = kernels.convert(&Solo, &out, hidden, &mut space);
                assert!(embedded == bytes(&expected), "{what}");
                out
            };
            let whole = run(&Solo, 0..33);
            let sums: Vec<_> = (0..33 * hidden)
                .map(|at| {
                    let (token, at) = (at / hidden, at % hidden);
                    let (word, place) = (ids[token] as usize, positions[token] as usize);
                    words[word * hidden + at] + kind[at] + places[place * hidden + at]
                })
                .collect();
            assert_close(&whole, &norm_f64(&sums, norm), 1e-5, &what);
            let apart: Vec<_> = (0..33).flat_map(|at| run(&Solo, at..at + 1)).collect();
            assert_same_bits(&whole, &apart, &what);
            assert_same_bits(&run(&Threads(3), 0..33), &whole, &what);
        }
    }
}

#[test]
#[should_panic(expected = "token id 9 is beyond a table of 9 rows")]
fn an_id_beyond_the_table_is_caught() {
    let row = [1.0; 4];
    let tables = Embedding {
        words: &[0.0; 36],
        places: &row,
        kind: &row,
    };
    let norm = Norm {
        gain: &row,
        bias: &row,
        epsilon: 0.0,
    };
    Kernels::of(CpuClass::Serial, Precision::F32).embed(
        &Solo,
        &[9],
        &[0],
        tables,
        norm,
        &mut [0.0; 4],
        &mut [],
    );
}

/// Attention over f32 rows, its context as f32: in bf16 from operand to operand, whose
/// padding must be zero.
fn attention(
    kernels: &Kernels,
    team: &dyn ForkJoin,
    qkv: &[f32],
    lengths: &[usize],
    (heads, head_size): (usize, usize),
) -> Vec<f32> {
    let hidden = heads * head_size;
    let count = qkv.len() / (3 * hidden);
    let longest = lengths.iter().copied().max().unwrap();
    // NaN shows what is read before it was written.
    let mut scratch = vec![f32::NAN; kernels.attention_scratch(team.lanes(), longest, head_size)];
    if kernels.precision() != Precision::Bf16 {
        let mut out = vec![f32::NAN; count * hidden];
        kernels.attention(team, qkv, lengths, heads, &mut scratch, &mut out);
        return out;
    }
    let mut from = vec![f32::NAN; kernels.operand_size(count, 3 * hidden)];
    let mut space = vec![f32::NAN; kernels.operand_size(count, hidden)];
    let qkv = kernels.convert(&Solo, qkv, 3 * hidden, &mut from);
    let out = kernels.attention_onward(team, qkv, lengths, heads, &mut scratch, &mut space);
    let mut context = Vec::new();
    for row in 0..count {
        let numbers: &[u16] = bytemuck::cast_slice(out.groups(row));
        let numbers = numbers
            .iter()
            .map(|bits| half::bf16::from_bits(*bits).to_f32());
        let numbers: Vec<f32> = numbers.collect();
        assert!(numbers[hidden..].iter().all(|number| *number == 0.0));
        context.extend_from_slice(&numbers[..hidden]);
    }
    context
}

#[test]
fn attention_is_right_and_does_not_depend_on_the_batch() {
    let ragged: Vec<usize> = vec![1, 2, 0, 70, 16, 3, 33, 17, 8, 48, 64, 5, 9, 130];
    for kernels in Kernels::here() {
        for (heads, head_size) in [(12, 26), (3, 32), (2, 64), (1, 1), (3, 5), (1, 100)] {
            let what = format!("{} {heads} heads of {head_size}", name(kernels));
            let hidden = heads * head_size;
            let tokens: usize = ragged.iter().sum();
            let qkv: Vec<_> = numbers(tokens * 3 * hidden, 7)
                .iter()
                .map(|x| 2.0 * x)
                .collect();
            let run = |team: &dyn ForkJoin, qkv: &[f32], lengths: &[usize]| {
                attention(kernels, team, qkv, lengths, (heads, head_size))
            };
            // In bf16 a weight is off by 2⁻⁹ of itself at most, and the context once more;
            // values are below 2.
            let (precision, tolerance) = match kernels.precision() {
                Precision::Bf16 => (Precision::Bf16, 2.0 * 2.0 / 512.0),
                Precision::F32 | Precision::I8 => (Precision::F32, 1e-5),
            };
            let whole = run(&Solo, &qkv, &ragged);
            let mut first = 0;
            for &length in &ragged {
                let text = &qkv[first * 3 * hidden..][..length * 3 * hidden];
                let found = &whole[first * hidden..][..length * hidden];
                let alone = run(&Solo, text, &[length]);
                assert_same_bits(&alone, found, &what);
                assert_same_bits(&run(&Threads(7), text, &[length]), found, &what);
                let text = rounded(precision, text, 3 * hidden);
                let truth = attention_f64(&text, length, heads);
                assert_close(found, &truth, tolerance, &what);
                first += length;
            }
            for lanes in [2, 3] {
                assert_same_bits(&run(&Threads(lanes), &qkv, &ragged), &whole, &what);
            }
        }
    }
}

#[test]
fn attention_over_many_short_texts_is_each_texts_own() {
    for kernels in Kernels::here() {
        let (heads, head_size) = (2, 8);
        let hidden = heads * head_size;
        let lengths: Vec<_> = (0..600).map(|text| text % 7).collect();
        let tokens: usize = lengths.iter().sum();
        let qkv = numbers(tokens * 3 * hidden, 1);
        let run = |team: &dyn ForkJoin, qkv: &[f32], lengths: &[usize]| {
            attention(kernels, team, qkv, lengths, (heads, head_size))
        };
        let whole = run(&Solo, &qkv, &lengths);
        let mut rest = qkv.as_slice();
        let apart: Vec<_> = lengths
            .iter()
            .flat_map(|&length| {
                let text;
                (text, rest) = rest.split_at(length * 3 * hidden);
                run(&Solo, text, &[length])
            })
            .collect();
        assert_same_bits(&whole, &apart, "short texts");
        assert_same_bits(&run(&Threads(4), &qkv, &lengths), &apart, "short texts");
    }
}

/// What differs between classes in bf16 is the softmax: its curve and the order of its sum.
#[test]
fn attention_in_bf16_is_every_classs() {
    let serial = Kernels::of(CpuClass::Serial, Precision::Bf16);
    for kernels in Kernels::here().filter(|one| one.precision() == Precision::Bf16) {
        for (heads, head_size, length) in [(12, 32, 16), (2, 64, 130), (3, 26, 70)] {
            let qkv = numbers(length * 3 * heads * head_size, 5);
            let run = |kernels| attention(kernels, &Solo, &qkv, &[length], (heads, head_size));
            let found = run(kernels);
            if kernels.class() == CpuClass::IntelSapphire {
                let plain = Kernels::of(CpuClass::IntelSkylake, Precision::Bf16);
                assert_same_bits(&found, &run(plain), "tiles and vectors of one width");
            }
            let expected: Vec<_> = run(serial).into_iter().map(f64::from).collect();
            assert_close(&found, &expected, 1.0 / 256.0, &name(kernels));
        }
    }
}

/// Attention over one text.
fn attention_f64(qkv: &[f64], length: usize, heads: usize) -> Vec<f64> {
    let hidden = qkv.len() / 3 / length.max(1);
    let head_size = hidden / heads;
    let at = |token: usize, part: usize, column: usize| qkv[(3 * token + part) * hidden + column];
    let mut out = Vec::new();
    for query in 0..length {
        for head in 0..heads {
            let columns = head * head_size..(head + 1) * head_size;
            let score = |key| {
                let products = columns
                    .clone()
                    .map(|column| at(query, 0, column) * at(key, 1, column));
                products.sum::<f64>() / (head_size as f64).sqrt()
            };
            let scores: Vec<f64> = (0..length).map(score).collect();
            let largest = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<_> = scores.iter().map(|score| (score - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            out.extend(columns.map(|column| {
                let values = weights
                    .iter()
                    .enumerate()
                    .map(|(key, weight)| weight * at(key, 2, column));
                values.sum::<f64>() / total
            }));
        }
    }
    out
}

#[test]
fn scores_far_apart_stay_finite() {
    for kernels in Kernels::here() {
        let head_size = 16;
        let mut qkv = vec![0.0; 20 * 3 * head_size];
        for (token, row) in qkv.chunks_mut(3 * head_size).enumerate() {
            row[..head_size].fill(EXP_LIMIT);
            row[head_size..2 * head_size].fill(token as f32 - 10.0);
            row[2 * head_size..].fill(token as f32);
        }
        let out = attention(kernels, &Solo, &qkv, &[20], (1, head_size));
        assert_close(
            &out,
            &vec![19.0; out.len()],
            1e-5,
            "the one key that counts",
        );
    }
}

#[test]
fn nothing_in_nothing_out() {
    for kernels in Kernels::here() {
        let packed = kernels.pack(&Solo, &[&[1.0; 6]], 3).unwrap();
        linear(kernels, &Solo, &[], &packed, Epilogue::default(), &mut []);
        for lengths in [&[0, 0][..], &[]] {
            if kernels.precision() == Precision::Bf16 {
                let qkv = kernels.operand(&[], &[], 0, 12);
                kernels.attention_onward(&Solo, qkv, lengths, 4, &mut [], &mut []);
            } else {
                kernels.attention(&Solo, &[], lengths, 4, &mut [], &mut []);
            }
        }
        let one = [1.0];
        let norm = Norm {
            gain: &one,
            bias: &one,
            epsilon: 0.0,
        };
        kernels.layer_norm(&Solo, &mut [], norm, &mut []);
    }
}

#[test]
fn shares_are_even_ordered_and_complete() {
    for (items, shares) in [(0, 1), (1, 1), (9, 2), (7, 3), (3, 7), (128, 16)] {
        let mut next = 0;
        for index in 0..shares {
            let range = share(items, shares, index);
            assert_eq!(range.start, next);
            assert!((items / shares..=items.div_ceil(shares)).contains(&range.len()));
            next = range.end;
        }
        assert_eq!(next, items);
    }
}

/// The unit does what the module `precision` says of it, on the bits themselves: the serial
/// class is compared with it over numbers whose products and sums are rounded at every step.
#[test]
fn matrix_units_round_as_written_down() {
    let Some(tiles) = Kernels::here()
        .find(|one| one.class() == CpuClass::IntelSapphire && one.precision() == Precision::Bf16)
    else {
        eprintln!("SKIPPED: this machine has no AMX");
        return;
    };
    let serial = Kernels::of(CpuClass::Serial, Precision::Bf16);
    let (count, inputs, outputs) = (16, 32, 32);
    for seed in 0..200 {
        // Whole bit patterns of bf16, exponents from 2⁻⁵⁰ to 2³⁰, signs and mantissas at random.
        let random = |count, seed| -> Vec<f32> {
            let bits = |x: f32| {
                let x = ((x + 1.0) * (1 << 22) as f32) as u32;
                let exponent = 127 - 50 + (x >> 8) % 80;
                f32::from_bits((x & 0x80) << 24 | exponent << 23 | (x & 0x7f) << 16)
            };
            numbers(count, seed).into_iter().map(bits).collect()
        };
        let weights = random(inputs * outputs, 2 * seed);
        let rows = random(count * inputs, 2 * seed + 1);
        let run = |kernels: &Kernels| {
            let packed = kernels.pack(&Solo, &[&weights], inputs).unwrap();
            let mut out = vec![f32::NAN; count * outputs];
            linear(
                kernels,
                &Solo,
                &rows,
                &packed,
                Epilogue::default(),
                &mut out,
            );
            out
        };
        assert_same_bits(&run(tiles), &run(serial), "random bits");
    }
}
