//! `intel-sapphire`: dense layers of bf16 and i8 in AMX's matrix units; all else as on `intel-skylake`.

use std::ops::Range;

use super::amx::{AmxBf16, AmxI8};
use super::linear::Linear;
use super::skylake::{self, V16};
use super::{Kernels, vector};
use crate::hardware::CpuClass;

pub(super) static BF16: Kernels = Kernels {
    class: CpuClass::IntelSapphire,
    runs_here: || CpuClass::IntelSapphire.missing().is_none(),
    linear: linear_bf16,
    ..skylake::BF16_TABLE
};

pub(super) static I8: Kernels = Kernels {
    class: CpuClass::IntelSapphire,
    runs_here: || CpuClass::IntelSapphire.missing().is_none(),
    linear: linear_i8,
    ..skylake::I8_TABLE
};

/// # Safety
/// As stated at [`Kernels`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn linear_bf16(layer: &Linear<'_>, tiles: Range<usize>, panels: Range<usize>) {
    // SAFETY: handed on to the caller.
    unsafe { vector::tiles::piece::<V16, AmxBf16>(layer, tiles, panels) }
}

/// # Safety
/// As stated at [`Kernels`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn linear_i8(layer: &Linear<'_>, tiles: Range<usize>, panels: Range<usize>) {
    // SAFETY: handed on to the caller.
    unsafe { vector::tiles::piece::<V16, AmxI8>(layer, tiles, panels) }
}
