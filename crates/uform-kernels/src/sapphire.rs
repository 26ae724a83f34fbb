//! `intel-sapphire`: dense layers of bf16 and i8 and bf16's attention in AMX's matrix units, and
//! operands in bf16 by AVX-512 BF16; all else as on `intel-skylake`.

use std::ops::Range;

use super::amx::{self, AmxBf16};
use super::attention::{Attention, AttentionTask};
use super::linear::Linear;
use super::operand::Conversion;
use super::rows::{Embedded, Normed};
use super::skylake::{self, V16};
use super::{Kernels, vector};
use crate::cpu::CpuClass;

/// Sixteen lanes on this class.
type Lanes = V16<true>;

pub(super) static BF16: Kernels = Kernels {
    class: CpuClass::IntelSapphire,
    runs_here: || CpuClass::IntelSapphire.missing().is_none(),
    linear: linear_bf16,
    attention: attention_bf16,
    layer_norm,
    embed,
    convert,
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
#[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn linear_bf16(layer: &Linear<'_>, tiles: Range<usize>, panels: Range<usize>) {
    // SAFETY: handed on to the caller.
    unsafe { amx::compute::<Lanes, amx::Bf16>(layer, tiles, panels) }
}

/// # Safety
/// As stated at [`Kernels`].
#[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn linear_i8(layer: &Linear<'_>, tiles: Range<usize>, panels: Range<usize>) {
    // SAFETY: handed on to the caller.
    unsafe { amx::compute::<Lanes, amx::I8>(layer, tiles, panels) }
}

/// # Safety
/// As stated at [`Kernels`].
#[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn layer_norm(normed: &Normed<'_>, rows: Range<usize>) {
    // SAFETY: handed on to the caller.
    unsafe { vector::rows::layer_norm::<Lanes>(normed, rows) }
}

/// # Safety
/// As stated at [`Kernels`].
#[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn embed(embedded: &Embedded<'_>, rows: Range<usize>) {
    // SAFETY: handed on to the caller.
    unsafe { vector::rows::embed::<Lanes>(embedded, rows) }
}

/// # Safety
/// As stated at [`Kernels`].
#[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn convert(conversion: &Conversion<'_>, rows: Range<usize>) {
    // SAFETY: handed on to the caller.
    unsafe { vector::convert::convert::<Lanes>(conversion, rows) }
}

/// # Safety
/// As stated at [`Kernels`].
#[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn attention_bf16(job: &Attention<'_>, task: &AttentionTask, scratch: *mut f32) {
    // SAFETY: handed on to the caller.
    unsafe { vector::attention_bf16::compute::<Lanes, AmxBf16>(job, task, scratch) }
}
