//! What a class could multiply if its operands cost nothing: one instruction over and over, on
//! registers that depend on nothing but themselves.
//!
//! A class that emulates a precision is compared with the instruction that it emulates it by.

use std::arch::asm;

use uform::hardware::CpuClass;
use uform::kernels::{Kernels, Precision};

/// Instructions of one round of a loop.
const ROUND: u64 = 12;

/// Rounds of a burst: some microseconds.
const ROUNDS: u64 = 2_000;

/// An instruction on twelve registers of sums, all zeros: enough to hide its latency.
macro_rules! rounds {
    ($one:literal, $rest:literal) => {{
        let rounds = ROUNDS;
        // SAFETY: the kernels' class has the instructions; they change what is named here, and
        // tile registers, which no other code uses.
        unsafe {
            asm!(
                "vzeroall",
                "2:",
                concat!($one, "0", $rest), concat!($one, "1", $rest), concat!($one, "2", $rest),
                concat!($one, "3", $rest), concat!($one, "4", $rest), concat!($one, "5", $rest),
                concat!($one, "6", $rest), concat!($one, "7", $rest), concat!($one, "8", $rest),
                concat!($one, "9", $rest), concat!($one, "10", $rest), concat!($one, "11", $rest),
                "dec {rounds}",
                "jnz 2b",
                "vzeroupper",
                rounds = inout(reg) rounds => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nostack),
            );
        }
    }};
}

/// Four sums on tiles, three times a round; the tiles are full and zero.
macro_rules! tiles {
    ($instruction:literal) => {{
        let mut shape = [0u8; 64];
        shape[0] = 1;
        for tile in 0..8 {
            shape[16 + 2 * tile] = 64;
            shape[48 + tile] = 16;
        }
        let rounds = ROUNDS;
        // SAFETY: as above; the shape is valid, and released at the end.
        unsafe {
            asm!(
                "ldtilecfg [{shape}]",
                "2:",
                concat!($instruction, " tmm0, tmm4, tmm6"), concat!($instruction, " tmm1, tmm4, tmm7"),
                concat!($instruction, " tmm2, tmm5, tmm6"), concat!($instruction, " tmm3, tmm5, tmm7"),
                concat!($instruction, " tmm0, tmm4, tmm6"), concat!($instruction, " tmm1, tmm4, tmm7"),
                concat!($instruction, " tmm2, tmm5, tmm6"), concat!($instruction, " tmm3, tmm5, tmm7"),
                concat!($instruction, " tmm0, tmm4, tmm6"), concat!($instruction, " tmm1, tmm4, tmm7"),
                concat!($instruction, " tmm2, tmm5, tmm6"), concat!($instruction, " tmm3, tmm5, tmm7"),
                "dec {rounds}",
                "jnz 2b",
                "tilerelease",
                shape = in(reg) &shape,
                rounds = inout(reg) rounds => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                options(nostack),
            );
        }
    }};
}

/// Operations a second, in billions: two a product. `None` for the portable class, whose
/// instructions are the compiler's choice.
pub fn peak(kernels: &Kernels) -> Option<f64> {
    let wide = kernels.class() != CpuClass::IntelHaswell;
    let (operations, burst): (u64, fn()) = match (kernels.class(), kernels.precision()) {
        (CpuClass::Serial, _) => return None,
        (CpuClass::IntelSapphire, Precision::Bf16) => (2 * 16 * 16 * 32, || tiles!("tdpbf16ps")),
        (CpuClass::IntelSapphire, Precision::I8) => (2 * 16 * 16 * 64, || tiles!("tdpbssd")),
        (CpuClass::IntelIcelake, Precision::I8) => (2 * 64, || {
            rounds!("vpdpbusd zmm", ", zmm14, zmm15");
        }),
        (_, Precision::I8) if wide => (2 * 32, || {
            rounds!("vpmaddwd zmm", ", zmm14, zmm15");
        }),
        (_, Precision::I8) => (2 * 16, || {
            rounds!("vpmaddwd ymm", ", ymm14, ymm15");
        }),
        (_, Precision::F32 | Precision::Bf16) if wide => (2 * 16, || {
            rounds!("vfmadd231ps zmm", ", zmm14, zmm15");
        }),
        (_, Precision::F32 | Precision::Bf16) => (2 * 8, || {
            rounds!("vfmadd231ps ymm", ", ymm14, ymm15");
        }),
    };
    let seconds = crate::best(burst);
    Some((operations * ROUND * ROUNDS) as f64 / seconds / 1e9)
}
