//! Single instructions, each with what NVIDIA's manual says it gives.

use fake_gpu::ptx::{Grid, Module, run};

/// What an instruction makes of its operands in the lanes of one warp. Registers are named by the
/// width of their type: `%w` has 32 bits, `%d` 64, `%h` 16, `%p` is a predicate; `%d1` to `%d3` are the
/// operands, `%w1` to `%w3` and `%h1` to `%h3` their lower parts, and the result is what `%d0` holds at the end.
fn ran(instruction: &str, operands: [u64; 3]) -> [u64; 32] {
    let text = format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n\
         .visible .entry one(.param .u64 out, .param .u64 a, .param .u64 b, .param .u64 c) {{
            .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %w<8>; .reg .b64 %d<8>;
            .shared .align 8 .b8 memory[256];
            ld.param.u64 %d4, [out];
            ld.param.u64 %d1, [a];
            ld.param.u64 %d2, [b];
            ld.param.u64 %d3, [c];
            cvt.u32.u64 %w1, %d1; cvt.u32.u64 %w2, %d2; cvt.u32.u64 %w3, %d3;
            cvt.u16.u64 %h1, %d1; cvt.u16.u64 %h2, %d2; cvt.u16.u64 %h3, %d3;
            mov.u32 %w5, %laneid;
            mov.u64 %d0, 0;
            {instruction}
            mul.wide.u32 %d5, %w5, 8;
            add.u64 %d4, %d4, %d5;
            st.global.u64 [%d4], %d0;
            ret;
         }}"
    );
    let module = Module::parse(&text).unwrap();
    let kernel = &module.kernels[0];
    let out = vec![u64::MAX; 32];
    let range = out.as_ptr_range();
    let (start, end) = (range.start as u64, range.end as u64);
    let mut parameters = Vec::new();
    for value in [start, operands[0], operands[1], operands[2]] {
        parameters.extend(value.to_le_bytes());
    }
    let grid = Grid {
        blocks: [1, 1, 1],
        block: [32, 1, 1],
        shared_bytes: 0,
    };
    // SAFETY: the memory is this function's, which waits.
    unsafe { run(kernel, grid, &parameters, &[(start, end)]) }.unwrap();
    out.try_into().unwrap()
}

fn f(value: f32) -> u64 {
    value.to_bits().into()
}

#[test]
fn arithmetic_is_the_manuals() {
    let minus = |value: i64| value as u64;
    let w = |value: i32| u64::from(value as u32);
    for (instruction, operands, expected) in [
        // Integers: what overflows wraps, and signs are the type's.
        ("add.s32 %w0, %w1, %w2;", [w(i32::MAX), 1, 0], w(i32::MIN)),
        ("sub.s32 %w0, %w1, %w2;", [3, 5, 0], w(-2)),
        ("mul.lo.s32 %w0, %w1, %w2;", [w(-3), 5, 0], w(-15)),
        ("mul.hi.u32 %w0, %w1, %w2;", [0x8000_0000, 6, 0], 3),
        ("mul.hi.s32 %w0, %w1, %w2;", [w(-1), 1, 0], w(-1)),
        ("mad.lo.u32 %w0, %w1, %w2, %w3;", [3, 4, 5], 17),
        ("div.s32 %w0, %w1, %w2;", [w(-7), 2, 0], w(-3)),
        ("rem.s32 %w0, %w1, %w2;", [w(-7), 2, 0], w(-1)),
        ("div.u32 %w0, %w1, %w2;", [w(-1), 16, 0], 0x0fff_ffff),
        ("min.s32 %w0, %w1, %w2;", [w(-1), 1, 0], w(-1)),
        ("min.u32 %w0, %w1, %w2;", [w(-1), 1, 0], 1),
        ("neg.s32 %w0, %w1;", [5, 0, 0], w(-5)),
        ("abs.s32 %w0, %w1;", [w(-5), 0, 0], 5),
        // Shifts by more than there is.
        ("shl.b32 %w0, %w1, %w2;", [1, 31, 0], 1 << 31),
        ("shl.b32 %w0, %w1, %w2;", [1, 32, 0], 0),
        ("shr.u32 %w0, %w1, %w2;", [w(-1), 28, 0], 15),
        ("shr.s32 %w0, %w1, %w2;", [w(-16), 2, 0], w(-4)),
        ("shr.s32 %w0, %w1, %w2;", [w(-16), 40, 0], w(-1)),
        (
            "shf.l.wrap.b32 %w0, %w1, %w2, %w3;",
            [0x8000_0001, 0x10, 33],
            0x21,
        ),
        (
            "shf.r.clamp.b32 %w0, %w1, %w2, %w3;",
            [0xf0, 0xff, 40],
            0xff,
        ),
        // Bits.
        ("and.b32 %w0, %w1, %w2;", [12, 10, 0], 8),
        ("xor.b32 %w0, %w1, %w2;", [12, 10, 0], 6),
        ("not.b32 %w0, %w1;", [0, 0, 0], w(-1)),
        ("popc.b32 %w0, %w1;", [0xff01, 0, 0], 9),
        ("clz.b32 %w0, %w1;", [1, 0, 0], 31),
        ("bfe.u32 %w0, %w1, %w2, %w3;", [0xabcd, 4, 8], 0xbc),
        ("bfi.b32 %w0, %w1, %w2, 4, 8;", [0x5ff, 0xabcd, 0], 0xaffd),
        (
            "prmt.b32 %w0, %w1, %w2, %w3;",
            [0x3322_1180, 0x7766_5544, 0x7418],
            0x7744_11ff,
        ),
        // Floats: a fused multiply rounds once; the smaller of a number and none is the number.
        (
            "fma.rn.f32 %w0, %w1, %w2, %w3;",
            [f(1.0 + 1.0 / 4096.0), f(1.0 - 1.0 / 4096.0), f(-1.0)],
            f(-1.0 / 16_777_216.0),
        ),
        (
            "fma.rm.f32 %w0, %w1, %w2, %w3;",
            [f(1.0), f(1.0), f(1e-9)],
            f(1.0),
        ),
        (
            "fma.rp.f32 %w0, %w1, %w2, %w3;",
            [f(1.0), f(1.0), f(1e-9)],
            f(1.0f32.next_up()),
        ),
        (
            "fma.rz.f32 %w0, %w1, %w2, %w3;",
            [f(-1.0), f(1.0), f(1e-9)],
            f((-1.0f32).next_up()),
        ),
        ("max.f32 %w0, %w1, %w2;", [f(f32::NAN), f(2.0), 0], f(2.0)),
        ("sqrt.rn.f32 %w0, %w1;", [f(2.0), 0, 0], f(2f32.sqrt())),
        ("ex2.approx.ftz.f32 %w0, %w1;", [f(-3.0), 0, 0], f(0.125)),
        ("copysign.f32 %w0, %w1, %w2;", [f(-1.0), f(2.0), 0], f(-2.0)),
        // Conversions: to the nearest, ties to even; out of range is the nearest there is.
        ("cvt.rni.s32.f32 %w0, %w1;", [f(2.5), 0, 0], 2),
        ("cvt.rzi.s32.f32 %w0, %w1;", [f(-2.9), 0, 0], w(-2)),
        ("cvt.rmi.f32.f32 %w0, %w1;", [f(-2.1), 0, 0], f(-3.0)),
        ("cvt.rpi.f32.f32 %w0, %w1;", [f(2.1), 0, 0], f(3.0)),
        ("cvt.rzi.u32.f32 %w0, %w1;", [f(-5.0), 0, 0], 0),
        ("cvt.rzi.s32.f32 %w0, %w1;", [f(f32::NAN), 0, 0], 0),
        (
            "cvt.rn.f32.u32 %w0, %w1;",
            [16_777_217, 0, 0],
            f(16_777_216.0),
        ),
        ("cvt.sat.f32.f32 %w0, %w1;", [f(7.0), 0, 0], f(1.0)),
        (
            "cvt.rn.bf16x2.f32 %w0, %w1, %w2;",
            [f(2.0), f(1.0 + 1.0 / 256.0), 0],
            0x4000_3f80,
        ),
        (
            "cvt.rn.f16x2.f32 %w0, %w1, %w2;",
            [f(2.0), f(1.0), 0],
            0x4000_3c00,
        ),
        // Parts of registers.
        ("mov.b32 %w0, {%h1, %h2};", [0x1234, 0x5678, 0], 0x5678_1234),
        (
            "mov.b32 {%h1, %h2}, %w3; cvt.u32.u16 %w0, %h2;",
            [0, 0, 0xabcd_1234],
            0xabcd,
        ),
        // Memory extends by the type's sign.
        (
            "st.shared.u8 [memory], %h1; ld.shared.s8 %w0, [memory];",
            [0xfe, 0, 0],
            w(-2),
        ),
        (
            "st.shared.u8 [memory+3], %h1; ld.shared.u8 %w0, [memory+3];",
            [0xfe, 0, 0],
            0xfe,
        ),
        (
            "st.shared.u32 [memory], %w1; atom.shared.add.u32 %w0, [memory], 0;",
            [7, 0, 0],
            7,
        ),
        (
            "st.shared.u32 [memory], %w1; atom.shared.cas.b32 %w2, [memory], %w1, %w3; ld.shared.u32 %w0, [memory];",
            [7, 0, 9],
            9,
        ),
        // What an address of shared memory is among all addresses.
        (
            "mov.u64 %d6, memory; cvta.shared.u64 %d7, %d6; st.u32 [%d7+8], %w1; ld.shared.u32 %w0, [memory+8];",
            [5, 0, 0],
            5,
        ),
    ] {
        let wide = format!("mov.u32 %w0, 0; {instruction} cvt.u64.u32 %d0, %w0;");
        assert_eq!(ran(&wide, operands)[3], expected, "{instruction}");
    }
    for (instruction, operands, expected) in [
        ("mul.wide.s32 %d0, %w1, %w2;", [w(-3), 5, 0], minus(-15)),
        (
            "mad.wide.u32 %d0, %w1, %w2, %d3;",
            [w(-1), 2, 1 << 40],
            (1 << 40) + 0x1_ffff_fffe,
        ),
        (
            "mul.lo.s64 %d0, %d1, %d2;",
            [minus(-3), 1 << 40, 0],
            minus(-3 << 40),
        ),
        ("mul.hi.u64 %d0, %d1, %d2;", [1 << 63, 6, 0], 3),
        ("cvt.s64.s32 %d0, %w1;", [w(-2), 0, 0], minus(-2)),
        ("cvt.u64.u32 %d0, %w1;", [w(-2), 0, 0], 0xffff_fffe),
        ("cvt.f64.f32 %d0, %w1;", [f(1.5), 0, 0], 1.5f64.to_bits()),
        ("mov.b64 %d0, {%w1, %w2};", [1, 2, 0], 2 << 32 | 1),
        ("shr.s64 %d0, %d1, %w2;", [minus(-16), 2, 0], minus(-4)),
    ] {
        assert_eq!(ran(instruction, operands)[3], expected, "{instruction}");
    }
}

#[test]
fn comparisons_know_what_is_no_number() {
    let nan = f(f32::NAN);
    for (compare, one, other, holds) in [
        ("lt.f32", f(1.0), f(2.0), true),
        ("lt.f32", nan, f(2.0), false),
        ("ltu.f32", nan, f(2.0), true),
        ("ne.f32", nan, nan, false),
        ("neu.f32", nan, nan, true),
        ("equ.f32", f(1.0), f(2.0), false),
        ("num.f32", nan, f(2.0), false),
        ("nan.f32", nan, f(2.0), true),
        ("ge.f32", f(2.0), f(2.0), true),
        ("lt.s32", 0xffff_ffff, 0, true),
        ("lt.u32", 0xffff_ffff, 0, false),
        ("hs.u32", 5, 5, true),
    ] {
        let instruction = format!("setp.{compare} %p1, %w1, %w2; selp.u64 %d0, 1, 0, %p1;");
        let found = ran(&instruction, [one, other, 0]);
        assert_eq!(found, [u64::from(holds); 32], "{compare}");
        let both = format!(
            "setp.{compare} %p1|%p2, %w1, %w2; setp.{compare}.and %p3, %w1, %w2, !%p1;
             selp.u64 %d0, 1, 0, %p2; @%p3 mov.u64 %d0, 2;"
        );
        let both = both.replace(
            &format!("setp.{compare}.and"),
            &format!("setp.{}", compare.replace('.', ".and.")),
        );
        assert_eq!(
            ran(&both, [one, other, 0]),
            [u64::from(!holds); 32],
            "{compare}"
        );
    }
}

#[test]
fn lanes_give_each_other_what_they_have() {
    let own = |lane: usize| lane as u64;
    for (shuffle, expected) in [
        (
            "up.b32 %w0, %w5, 1, 0",
            (|lane| lane.saturating_sub(1)) as fn(usize) -> usize,
        ),
        ("down.b32 %w0, %w5, 2, 31", |lane| {
            if lane < 30 { lane + 2 } else { lane }
        }),
        ("bfly.b32 %w0, %w5, 5, 31", |lane| lane ^ 5),
        ("idx.b32 %w0, %w5, 7, 31", |_| 7),
        // Segments of eight lanes: the clamp's upper part says which bits stay.
        ("down.b32 %w0, %w5, 1, 6175", |lane| {
            if lane % 8 < 7 { lane + 1 } else { lane }
        }),
        ("idx.b32 %w0, %w5, 2, 6175", |lane| lane / 8 * 8 + 2),
    ] {
        let instruction = format!("shfl.sync.{shuffle}, -1; cvt.u64.u32 %d0, %w0;");
        let found = ran(&instruction, [0; 3]);
        assert_eq!(
            found,
            std::array::from_fn(|lane| own(expected(lane))),
            "{shuffle}"
        );
    }
    let came = "shfl.sync.down.b32 %w0|%p1, %w5, 2, 31, -1; selp.u64 %d0, 1, 0, %p1;";
    assert_eq!(
        ran(came, [0; 3]),
        std::array::from_fn(|lane| u64::from(lane < 30))
    );
}

/// Lanes that loop as often as their numbers say, and meet again.
#[test]
fn lanes_that_part_meet_again() {
    let loops = "
        mov.u32 %w6, 0;
        $again:
        add.u32 %w6, %w6, 1;
        setp.lt.u32 %p1, %w6, %w5;
        @%p1 bra $again;
        setp.gt.u32 %p2, %w5, 15;
        @%p2 bra $upper;
        add.u32 %w6, %w6, 100;
        bra.uni $met;
        $upper:
        add.u32 %w6, %w6, 200;
        $met:
        bar.sync 0;
        shfl.sync.bfly.b32 %w0, %w6, 16, 31, -1;
        cvt.u64.u32 %d0, %w0;";
    let expected = |lane: usize| {
        let other = lane ^ 16;
        (other.max(1) + if other > 15 { 200 } else { 100 }) as u64
    };
    assert_eq!(ran(loops, [0; 3]), std::array::from_fn(expected));
}
