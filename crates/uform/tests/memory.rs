//! Memory is what docs/memory.md says.

#![cfg(all(feature = "native", target_os = "linux"))]

mod common;

use std::fs;
use std::sync::Mutex;

use uform::executor::Executor;
use uform::kernels::Precision;
use uform::model::{EncodeOptions, Model, ModelOptions, Texts};
use uform::placement::RamOptions;

const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::I8];

/// all-MiniLM-L6-v2.
const HIDDEN: usize = 384;
const INNER: usize = 1536;
const LAYERS: usize = 6;
const VOCABULARY: usize = 30_522;
const POSITIONS: usize = 512;
const HEAD: usize = 32;
/// The most tokens of a text.
const LIMIT: usize = 256;

const MIB: usize = 1 << 20;

/// Tests that look at the process as a whole take turns.
static ALONE: Mutex<()> = Mutex::new(());

fn options(precision: Precision) -> ModelOptions {
    ModelOptions {
        precision: Some(precision),
        ..ModelOptions::default()
    }
}

fn threads(count: usize) -> Executor {
    let options = RamOptions {
        threads: Some(count as u64),
        ..RamOptions::default()
    };
    Executor::for_ram(&options).unwrap()
}

/// A dense layer's packed weights. Panels of f32 are as wide as the class likes, at most 64.
fn packed(precision: Precision, inputs: usize, outputs: usize, panel: usize) -> usize {
    let tiles = outputs.next_multiple_of(32);
    match precision {
        Precision::F32 => 4 * inputs * outputs.next_multiple_of(panel),
        Precision::Bf16 => 2 * inputs.next_multiple_of(32) * tiles,
        Precision::I8 => inputs.next_multiple_of(64) * tiles + 8 * tiles,
    }
}

/// All weights, for panels of f32 that are so wide.
fn weights(precision: Precision, panel: usize) -> usize {
    let packed = |inputs, outputs| packed(precision, inputs, outputs, panel);
    let tables = 4 * HIDDEN * (VOCABULARY + POSITIONS + 1 + 2);
    let matrices = packed(HIDDEN, 3 * HIDDEN)
        + packed(HIDDEN, HIDDEN)
        + packed(HIDDEN, INNER)
        + packed(INNER, HIDDEN);
    let factors = match precision {
        Precision::I8 => INNER,
        Precision::F32 | Precision::Bf16 => 0,
    };
    let vectors = 4 * (3 * HIDDEN + HIDDEN + INNER + HIDDEN + 4 * HIDDEN + factors);
    tables + LAYERS * (matrices + vectors)
}

/// The most scratch that so many lanes hold after any call.
fn scratch(precision: Precision, lanes: usize) -> usize {
    let (h, i) = (HIDDEN, INNER);
    let token = match precision {
        Precision::F32 => 2 * h + (4 * h).max(i),
        Precision::Bf16 => 2 * h + (3 * h).max(i) / 2 + h / 2,
        Precision::I8 => 2 * h + (4 * h).max(i + i / 4 + 32) + h / 4 + 32,
    };
    let tokens = LIMIT.max(384 + LIMIT / 2);
    let attention = (LIMIT + 64) * (2 * HEAD + 128) + 8192;
    // A text has two tokens at least, and a vector of its own.
    let floats = tokens * (token + h / 2) + attention;
    3 * lanes * (4 * floats) / 2 + lanes * MIB
}

/// A line of `/proc/self/status`, in bytes.
fn status(name: &str) -> usize {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<usize>().unwrap() << 10
}

#[test]
fn weights_take_what_the_formula_says() {
    let _alone = ALONE.lock();
    for precision in PRECISIONS {
        let model = Model::load_ram(
            &common::real_model(),
            &options(precision),
            &Executor::inline(),
        );
        let bytes = model.unwrap().describe().bytes;
        let (least, most) = (weights(precision, 1), weights(precision, 64));
        let what = precision.word();
        assert!(
            (least..=most).contains(&bytes),
            "{what}: {bytes}, {least} to {most}"
        );
    }
}

#[test]
fn scratch_is_within_the_formula() {
    let _alone = ALONE.lock();
    let words = |count: usize| vec!["tree"; count].join(" ");
    // Everything that makes a block large: many texts, long ones, and one that is much longer.
    let calls: Vec<Vec<String>> = vec![
        vec![words(1)],
        vec![words(LIMIT)],
        vec![words(6); 120],
        vec![words(LIMIT); 5],
        (0..20).map(|at| words(13 * at)).collect(),
        vec![words(LIMIT), words(1), words(1)],
        vec![String::new(); 500],
    ];
    for precision in PRECISIONS {
        for lanes in [1, 3] {
            let executor = threads(lanes);
            let path = common::real_model();
            let model = Model::load_ram(&path, &options(precision), &executor).unwrap();
            for (call, texts) in calls.iter().enumerate() {
                let texts: Texts = texts.iter().collect();
                let found = model.encode_text(&executor, &texts, &EncodeOptions::default());
                found.unwrap();
                let (bytes, most) = (executor.describe().scratch_bytes, scratch(precision, lanes));
                assert!(
                    bytes > 0 && bytes <= most,
                    "{}, {lanes} lanes, call {call}: {bytes} of {most}",
                    precision.word()
                );
            }
            executor.free();
            assert_eq!(executor.scratch_bytes(), 0);
        }
    }
}

/// The file has 90 MB, of which nothing stays: neither at the end nor on the way.
#[test]
fn a_loaded_model_keeps_its_weights_and_nothing_of_its_files() {
    let _alone = ALONE.lock();
    let executor = threads(2);
    let path = common::real_model();
    let load = || Model::load_ram(&path, &options(Precision::F32), &executor).unwrap();
    // Once before: what is read once a process, and what the allocator keeps.
    drop(load());
    // Makes the peak start again, where the system can.
    let renewed = fs::write("/proc/self/clear_refs", "5").is_ok();
    let before = status("VmRSS:");
    let model = load();
    let bytes = model.describe().bytes;
    let grown = status("VmRSS:").saturating_sub(before);
    assert!(grown <= bytes + 24 * MIB, "{grown} for {bytes}");
    match renewed {
        true => {
            let peak = status("VmHWM:").saturating_sub(before);
            assert!(peak <= bytes + 48 * MIB, "{peak} for {bytes}");
        }
        false => println!("SKIPPED: this system does not tell a peak from now on"),
    }
    drop(model);
    let left = status("VmRSS:").saturating_sub(before);
    assert!(left <= 32 * MIB, "{left} left of {bytes}");
}
