//! `cargo bench --bench kernels`: what each class of kernels does on one thread.
//!
//! Every figure is the best of many short bursts, since a shared machine's
//! neighbours only ever make it slower. Behind each rate of a dense layer is what it is of the
//! peak: of what the same core multiplied, in the same run, on registers alone.

#[cfg(target_arch = "x86_64")]
mod peaks;

use std::time::{Duration, Instant};

use uform::kernels::{Activation, Epilogue, Kernels, Norm, Precision, Region, Solo};

const ROWS: [usize; 5] = [8, 32, 128, 512, 4096];
/// MiniLM's layers.
const LAYERS: [(usize, usize); 3] = [(384, 384), (384, 1536), (1536, 384)];
const TOKENS: [usize; 5] = [8, 16, 64, 256, 512];

/// Names of classes or precisions on the command line choose among the tables.
fn main() {
    let asked: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    for kernels in Kernels::here() {
        let (class, precision) = (kernels.class().word(), kernels.precision().word());
        if !asked.iter().all(|word| word == class || word == precision) {
            continue;
        }
        #[cfg(target_arch = "x86_64")]
        let peak = peaks::peak(kernels);
        #[cfg(not(target_arch = "x86_64"))]
        let peak = None;
        print!("\n{class} in {precision}, one thread");
        match peak {
            Some(peak) => println!("; on registers {peak:.0} GFLOP/s"),
            None => println!(),
        }
        print!("{:<28}", "linear, GFLOP/s; rows:");
        ROWS.iter().for_each(|rows| print!("{rows:>14}"));
        println!();
        for (inputs, outputs) in LAYERS {
            linear(kernels, peak, (inputs, outputs), Activation::Identity);
        }
        linear(kernels, peak, (384, 1536), Activation::Gelu);
        passes(kernels, peak);
        elementwise(kernels);
        // That of i8 is f32's.
        if kernels.precision() != Precision::I8 {
            print!("{:<28}", "attention, GFLOP/s; tokens:");
            TOKENS.iter().for_each(|tokens| print!("{tokens:>8}"));
            println!();
            for head_size in [32, 64] {
                attention(kernels, head_size);
            }
        }
    }
}

/// A dense layer of some rows: left as f32, or with an activation made the next layer's operand.
fn linear(
    kernels: &Kernels,
    peak: Option<f64>,
    (inputs, outputs): (usize, usize),
    activation: Activation,
) {
    let onward = activation != Activation::Identity;
    let to = if onward { "onward" } else { "" };
    print!(
        "  {:<26}",
        format!("{inputs} to {outputs} {activation:?} {to}")
    );
    let weights = numbers(inputs * outputs);
    let bias = numbers(outputs);
    let packed = kernels.pack(&Solo, &[&weights], inputs).unwrap();
    for count in ROWS {
        let rows = numbers(count * inputs);
        let mut space = lines(kernels.operand_size(count, inputs));
        let rows = kernels.convert(&Solo, &rows, inputs, space.floats());
        let mut out = lines(count * outputs);
        let mut next = lines(kernels.operand_size(count, outputs));
        let epilogue = Epilogue {
            bias: Some(&bias),
            activation,
            factors: None,
            residual: false,
        };
        let seconds = best(|| {
            if onward {
                let (out, next) = (out.floats(), next.floats());
                kernels.linear_onward(&Solo, rows, &packed, epilogue, out, next);
            } else {
                kernels.linear(&Solo, rows, &packed, epilogue, out.floats());
            }
        });
        let rate = (2 * count * inputs * outputs) as f64 / seconds / 1e9;
        match peak {
            Some(peak) => print!("{rate:>8.1} {:>3.0} %", 100.0 * rate / peak),
            None => print!("{rate:>14.1}"),
        }
    }
    println!();
}

/// All dense layers of MiniLM one after another, whose weights come from farther than a core's caches.
fn passes(kernels: &Kernels, peak: Option<f64>) {
    const LAYERS: usize = 6;
    const SHAPES: [(usize, usize); 4] = [(384, 1152), (384, 384), (384, 1536), (1536, 384)];
    let bytes = |(inputs, outputs)| kernels.packed_bytes(inputs, outputs);
    let region = Region::new(LAYERS * SHAPES.into_iter().map(bytes).sum::<usize>()).unwrap();
    let pack = |(inputs, outputs)| {
        let weights = numbers(inputs * outputs);
        let packed = kernels.pack_into(&region, &Solo, &[&weights], inputs);
        (inputs, outputs, packed.unwrap())
    };
    let layers: Vec<_> = (0..LAYERS)
        .flat_map(|_| SHAPES.into_iter().map(pack).collect::<Vec<_>>())
        .collect();
    print!("  {:<26}", "six layers of MiniLM");
    for count in ROWS {
        let rows = [384, 1536].map(|inputs| numbers(count * inputs));
        let mut spaces = [384, 1536].map(|inputs| lines(kernels.operand_size(count, inputs)));
        let [short, long] = &mut spaces;
        let short = kernels.convert(&Solo, &rows[0], 384, short.floats());
        let long = kernels.convert(&Solo, &rows[1], 1536, long.floats());
        let mut out = lines(count * 1536);
        let seconds = best(|| {
            for (inputs, outputs, weights) in &layers {
                let rows = if *inputs == 384 { short } else { long };
                let out = &mut out.floats()[..count * outputs];
                kernels.linear(&Solo, rows, weights, Epilogue::default(), out);
            }
        });
        let work: usize = layers
            .iter()
            .map(|(inputs, outputs, _)| inputs * outputs)
            .sum();
        let rate = (2 * count * work) as f64 / seconds / 1e9;
        match peak {
            Some(peak) => print!("{rate:>8.1} {:>3.0} %", 100.0 * rate / peak),
            None => print!("{rate:>14.1}"),
        }
    }
    println!();
}

/// Floats that begin at a cache line, as scratch does.
struct Lines(Vec<[f32; 16]>, usize);

fn lines(floats: usize) -> Lines {
    // One line more than needed holds the way to the first aligned one.
    Lines(vec![[0.0; 16]; floats.div_ceil(16) + 1], floats)
}

impl Lines {
    fn floats(&mut self) -> &mut [f32] {
        let floats = self.0.as_flattened_mut();
        let start = floats.as_ptr().align_offset(64);
        &mut floats[start..][..self.1]
    }
}

fn attention(kernels: &Kernels, head_size: usize) {
    let (heads, texts) = (12, 2);
    let hidden = heads * head_size;
    print!("  {:<26}", format!("{heads} heads of {head_size}"));
    for length in TOKENS {
        let tokens = texts * length;
        let qkv = numbers(tokens * 3 * hidden);
        let mut space = lines(kernels.operand_size(tokens, 3 * hidden));
        let mut next = lines(kernels.operand_size(tokens, hidden));
        let mut out = vec![0.0; tokens * hidden];
        let mut scratch = vec![0.0; kernels.attention_scratch(1, length, head_size)];
        let lengths = [length; 2];
        let operand = kernels.convert(&Solo, &qkv, 3 * hidden, space.floats());
        let seconds = best(|| {
            if kernels.precision() == Precision::Bf16 {
                let next = next.floats();
                kernels.attention_onward(&Solo, operand, &lengths, heads, &mut scratch, next);
            } else {
                kernels.attention(&Solo, &qkv, &lengths, heads, &mut scratch, &mut out);
            }
        });
        let work = texts * heads * 4 * length * length * head_size;
        print!("{:>8.1}", work as f64 / seconds / 1e9);
    }
    println!();
}

/// What costs per element: layer norm, packing, and an activation, as what it adds to a layer.
fn elementwise(kernels: &Kernels) {
    let (count, hidden) = (128, 384);
    let mut rows = numbers(count * hidden);
    let (gain, bias) = (vec![1.0; hidden], vec![0.0; hidden]);
    let norm = Norm {
        gain: &gain,
        bias: &bias,
        epsilon: 1e-12,
    };
    let each = |seconds: f64, elements: usize| seconds * 1e9 / elements as f64;
    let mut space = lines(kernels.operand_size(count, hidden));
    let seconds = best(|| {
        kernels.layer_norm(&Solo, &mut rows, norm, space.floats());
    });
    println!(
        "  layer norm, ns an element  {:>8.3}",
        each(seconds, count * hidden)
    );

    let weights = numbers(hidden * 4 * hidden);
    let seconds = best(|| {
        kernels.pack(&Solo, &[&weights], hidden).unwrap();
    });
    println!(
        "  packing, ns a weight       {:>8.3}",
        each(seconds, weights.len())
    );

    // One input makes the products cheap beside what follows them.
    let packed = kernels.pack(&Solo, &[&numbers(hidden)], 1).unwrap();
    let rows = numbers(count);
    let mut space = lines(kernels.operand_size(count, 1));
    let rows = kernels.convert(&Solo, &rows, 1, space.floats());
    let mut out = vec![0.0; count * hidden];
    let mut with = |activation| {
        let epilogue = Epilogue {
            activation,
            ..Epilogue::default()
        };
        best(|| kernels.linear(&Solo, rows, &packed, epilogue, &mut out))
    };
    let bare = with(Activation::Identity);
    for activation in [Activation::Gelu, Activation::GeluTanh, Activation::Tanh] {
        let more = with(activation) - bare;
        println!(
            "  {:<26} {:>8.3}",
            format!("{activation:?}, ns an element"),
            each(more, count * hidden)
        );
    }
}

/// The fastest of many bursts, in seconds.
fn best(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut least = f64::INFINITY;
    let mut bursts = 0;
    while bursts < 5 || start.elapsed() < Duration::from_millis(60) {
        let burst = Instant::now();
        work();
        least = least.min(burst.elapsed().as_secs_f64());
        bursts += 1;
    }
    least
}

/// Numbers in −1..1, the same each time.
fn numbers(count: usize) -> Vec<f32> {
    (0..count as u32)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0)
        .collect()
}
