//! Kernels interpreted: right ones, and ones with planted mistakes, each of which must show.

use fake_gpu::ptx::{Grid, Module, Trap, run};
use half::bf16;

const ADD: &str = include_str!("kernels/add.ptx");
const SUM: &str = include_str!("kernels/sum.ptx");
const MULTIPLY: &str = include_str!("kernels/multiply.ptx");

fn range<T>(values: &[T]) -> (u64, u64) {
    let range = values.as_ptr_range();
    (range.start as u64, range.end as u64)
}

/// Runs a module's only kernel, which may reach what the ranges say.
fn launch(
    text: &str,
    (blocks, threads, shared_bytes): (u32, u32, u32),
    parameters: &[u64],
    mut memory: Vec<(u64, u64)>,
) -> Result<(), Trap> {
    let module = Module::parse(text).unwrap();
    let [kernel] = &module.kernels[..] else {
        panic!("one kernel a module");
    };
    let mut bytes = vec![0; kernel.parameter_bytes];
    for (variable, value) in kernel.parameters.iter().zip(parameters) {
        bytes[variable.offset..variable.offset + variable.bytes]
            .copy_from_slice(&value.to_le_bytes()[..variable.bytes]);
    }
    memory.sort_unstable();
    let grid = Grid {
        blocks: [blocks, 1, 1],
        block: [threads, 1, 1],
        shared_bytes,
    };
    // SAFETY: the memory is the callers', who wait.
    unsafe { run(kernel, grid, &bytes, &memory) }
}

fn added(text: &str, n: usize, told: u32) -> Result<Vec<f32>, Trap> {
    let left: Vec<f32> = (0..n).map(|at| at as f32).collect();
    let right: Vec<f32> = (0..n).map(|at| 0.5 * at as f32).collect();
    let out = vec![f32::NAN; n];
    let memory = vec![range(&left), range(&right), range(&out)];
    let parameters = [memory[0].0, memory[1].0, memory[2].0, told.into()];
    let blocks = told.div_ceil(64);
    launch(text, (blocks, 64, 0), &parameters, memory).map(|()| out)
}

fn summed(text: &str, n: usize) -> Result<f32, Trap> {
    let values: Vec<f32> = (0..n).map(|at| (at % 7) as f32).collect();
    let out = vec![1.0f32];
    let memory = vec![range(&values), range(&out)];
    let parameters = [memory[0].0, memory[1].0, n as u64];
    launch(text, (n.div_ceil(256) as u32, 256, 0), &parameters, memory).map(|()| out[0])
}

/// The product, and by how much it is off at most; NaN is off by infinity.
fn multiplied(text: &str) -> Result<f32, Trap> {
    let value = |at: usize| bf16::from_f32(((at * 37 % 101) as f32 - 50.0) / 16.0);
    let rows: Vec<bf16> = (0..256).map(value).collect();
    let columns: Vec<bf16> = (0..128).map(|at| value(at + 1000)).collect();
    let out = vec![f32::NAN; 128];
    let memory = vec![range(&rows), range(&columns), range(&out)];
    let parameters = [memory[0].0, memory[1].0, memory[2].0];
    launch(text, (1, 32, 768), &parameters, memory)?;
    let dot = |row: usize, column: usize| {
        let pairs = rows[16 * row..].iter().zip(&columns[16 * column..]);
        pairs
            .take(16)
            .map(|(one, other)| one.to_f32() * other.to_f32())
            .sum::<f32>()
    };
    let off = (0..128).map(|at| (out[at] - dot(at / 8, at % 8)).abs());
    Ok(off
        .map(|off| if off.is_nan() { f32::INFINITY } else { off })
        .fold(0.0, f32::max))
}

fn sum_of(n: usize) -> f32 {
    1.0 + (0..n).map(|at| (at % 7) as f32).sum::<f32>()
}

#[test]
fn vectors_are_added_whatever_their_length() {
    for n in [1, 31, 64, 65, 1000] {
        let expected: Vec<f32> = (0..n).map(|at| 1.5 * at as f32).collect();
        assert_eq!(added(ADD, n, n as u32).unwrap(), expected);
    }
}

#[test]
fn sums_cross_lanes_warps_and_blocks() {
    for n in [1, 32, 256, 257, 5000] {
        assert_eq!(summed(SUM, n).unwrap(), sum_of(n), "{n}");
    }
}

#[test]
fn matrices_are_multiplied() {
    assert!(multiplied(MULTIPLY).unwrap() < 1e-4);
}

/// A mistake: what is written instead of what, and what becomes of it: words of the trap, or
/// none where the numbers are wrong.
struct Mistake(&'static str, &'static str, Option<&'static str>);

#[test]
fn planted_mistakes_show() {
    for Mistake(right, wrong, words) in [
        Mistake(
            "setp.ge.u32 %p1",
            "setp.gt.u32 %p1",
            Some("no allocation's"),
        ),
        Mistake("@%p1 bra $L__end;", "", Some("no allocation's")),
        Mistake(
            "mul.wide.u32 %rd5, %r5, 4;",
            "mul.wide.u32 %rd5, %r5, 2;",
            Some("4 bytes at"),
        ),
        Mistake("[%rd10], %f3", "[%rd10], %f2", None),
        Mistake(
            "add.s64 %rd8, %rd7, %rd5;",
            "add.s64 %rd8, %rd4, %rd5;",
            None,
        ),
    ] {
        let text = replaced(ADD, right, wrong);
        // The memory ends with the vectors.
        let expected: Vec<f32> = (0..100).map(|at| 1.5 * at as f32).collect();
        shown(added(&text, 100, 100), expected, right, words);
    }
    for Mistake(right, wrong, words) in [
        Mistake("    bar.sync 0;\n", "", Some("a barrier is missing")),
        // Only those that wrote wait.
        Mistake(
            "$L__written:\n    bar.sync 0;",
            "bar.sync 0;\n$L__written:",
            Some("only lanes 0x1"),
        ),
        Mistake(
            "@!%p1 bra $L__loaded;",
            "@!%p1 bra $L__end;",
            Some("take part"),
        ),
        Mistake("%f1, 16, 31", "%f1, 15, 31", None),
        Mistake(
            "setp.lt.u32 %p4",
            "setp.le.u32 %p4",
            Some("shared memory, which has 32"),
        ),
        Mistake("mov.f32 %f3, 0f00000000;", "", None),
    ] {
        let text = replaced(SUM, right, wrong);
        // The last block is not full.
        shown(summed(&text, 1000), sum_of(1000), right, words);
    }
    for Mistake(right, wrong, words) in [
        // What was not waited for is not there.
        Mistake("cp.async.wait_group 0;", "cp.async.wait_group 1;", None),
        Mistake("cp.async.wait_group 0;", "", None),
        Mistake(
            "{%r11, %r12, %r13, %r14}, {%r21, %r22}",
            "{%r11, %r13, %r12, %r14}, {%r21, %r22}",
            None,
        ),
        Mistake("{%r21, %r22}, {%f1", "{%r22, %r21}, {%f1", None),
        Mistake("shl.b32 %r6, %r5, 5;", "shl.b32 %r6, %r5, 4;", None),
        Mistake("[%r20+512]", "[%r20+516]", Some("16 bytes at")),
        Mistake("[%rd8+256]", "[%rd8+260]", Some("8 bytes at")),
        Mistake("[%rd8+256]", "[%rd8+264]", Some("no allocation's")),
    ] {
        let text = replaced(MULTIPLY, right, wrong);
        let off = multiplied(&text).map(|off| off < 1e-4);
        shown(off, true, right, words);
    }
}

fn replaced(text: &str, right: &str, wrong: &str) -> String {
    assert_eq!(text.matches(right).count(), 1, "{right}");
    text.replace(right, wrong)
}

fn shown<T: PartialEq + std::fmt::Debug>(
    found: Result<T, Trap>,
    expected: T,
    what: &str,
    words: Option<&str>,
) {
    match (found, words) {
        (Ok(found), None) => assert_ne!(found, expected, "{what}"),
        (Err(trap), Some(words)) => assert!(trap.words.contains(words), "{what}: {}", trap.words),
        (found, _) => panic!("{what}: {found:?}"),
    }
}

#[test]
fn what_is_not_understood_is_refused_when_it_is_read() {
    for (right, wrong, words) in [
        (
            "add.f32 %f3, %f1, %f2;",
            "add.sat.f32 %f3, %f1, %f2;",
            "add.sat.f32",
        ),
        (
            "add.f32 %f3, %f1, %f2;",
            "wgmma.fence.sync.aligned;",
            "wgmma",
        ),
        (
            "add.f32 %f3, %f1, %f2;",
            "add.f32 %f3, %f1;",
            "add.f32 %f3, %f1",
        ),
        ("add.f32 %f3, %f1, %f2;", "add.f32 %f3, %f1, %f9;", "%f9"),
        ("bra $L__end;", "bra $L__nowhere;", "$L__nowhere"),
        (".address_size 64", ".address_size 32", "64 bits"),
        ("    ret;\n}", "    ret;\n", "without an end"),
    ] {
        let error = Module::parse(&replaced(ADD, right, wrong)).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}
