//! The numbers that dense layers multiply: f32, or bf16 where tensor cores do.
//!
//! States are f32 in both. In bf16, what a dense layer multiplies is rounded to it: a norm
//! leaves its rows in bf16 beside the states, and projections, attention and the inner layer hand
//! on bf16 alone.

use std::borrow::Cow;

use bytemuck::Pod;
use half::bf16;
use half::slice::HalfFloatSliceExt;

use crate::device::kernels::{Batch, Dense, Kernels, TENSOR_MULTIPLE};
use crate::device::{Stream, View};
use crate::kernels::Precision;
use crate::{Result, memory};

/// What dense layers multiply.
pub(super) trait Format: Pod + Send + Sync {
    /// The word for it.
    const PRECISION: Precision;
    /// Whether tensor cores do.
    const BY_TENSOR_CORES: bool;
    /// What every size is a multiple of.
    const MULTIPLE: usize;
    /// Whether rows are beside the states, rather than the states themselves.
    const HAS_OPERAND: bool = Self::BY_TENSOR_CORES;

    /// The nearest numbers.
    ///
    /// # Errors
    /// `OutOfMemory`.
    fn of(values: Cow<'_, [f32]>) -> Result<Cow<'_, [Self]>>;

    /// The rows that a dense layer multiplies after a norm: the states, or what is beside them.
    fn rows<'a>(states: View<'a, f32>, operand: View<'a, Self>) -> View<'a, Self>;

    /// What a norm writes beside the states.
    fn beside(operand: View<'_, Self>) -> Option<View<'_, bf16>>;

    /// A dense layer whose results are the next one's rows.
    fn onward(
        kernels: &Kernels,
        stream: &Stream,
        shape: [usize; 3],
        rows: View<'_, Self>,
        dense: Dense<'_, Self>,
        out: View<'_, Self>,
    ) -> Result<()>;

    /// A dense layer whose results are added to the states.
    fn add(
        kernels: &Kernels,
        stream: &Stream,
        shape: [usize; 3],
        rows: View<'_, Self>,
        dense: Dense<'_, Self>,
        states: View<'_, f32>,
    ) -> Result<()>;

    /// Attention within each text.
    fn attend(
        kernels: &Kernels,
        stream: &Stream,
        batch: &Batch<'_>,
        heads: [usize; 2],
        projected: View<'_, Self>,
        out: View<'_, Self>,
    ) -> Result<()>;
}

impl Format for f32 {
    const PRECISION: Precision = Precision::F32;
    const BY_TENSOR_CORES: bool = false;
    // Results are written in pairs.
    const MULTIPLE: usize = 2;

    fn of(values: Cow<'_, [f32]>) -> Result<Cow<'_, [f32]>> {
        Ok(values)
    }

    fn rows<'a>(states: View<'a, f32>, _operand: View<'a, f32>) -> View<'a, f32> {
        states
    }

    fn beside(_operand: View<'_, f32>) -> Option<View<'_, bf16>> {
        None
    }

    fn onward(
        kernels: &Kernels,
        stream: &Stream,
        shape: [usize; 3],
        rows: View<'_, f32>,
        dense: Dense<'_, f32>,
        out: View<'_, f32>,
    ) -> Result<()> {
        kernels.dense_f32(stream, shape, rows, dense, out)
    }

    fn add(
        kernels: &Kernels,
        stream: &Stream,
        shape: [usize; 3],
        rows: View<'_, f32>,
        dense: Dense<'_, f32>,
        states: View<'_, f32>,
    ) -> Result<()> {
        let residual = Some(states);
        let dense = Dense { residual, ..dense };
        kernels.dense_f32(stream, shape, rows, dense, states)
    }

    fn attend(
        kernels: &Kernels,
        stream: &Stream,
        batch: &Batch<'_>,
        heads: [usize; 2],
        projected: View<'_, f32>,
        out: View<'_, f32>,
    ) -> Result<()> {
        kernels.attend_f32(stream, batch, heads, projected, out)
    }
}

impl Format for bf16 {
    const PRECISION: Precision = Precision::Bf16;
    const BY_TENSOR_CORES: bool = true;
    const MULTIPLE: usize = TENSOR_MULTIPLE;

    fn of(values: Cow<'_, [f32]>) -> Result<Cow<'_, [bf16]>> {
        let mut rounded = memory::with_room(values.len(), "a model's weights")?;
        rounded.resize(values.len(), bf16::ZERO);
        rounded.convert_from_f32_slice(&values);
        Ok(Cow::Owned(rounded))
    }

    fn rows<'a>(_states: View<'a, f32>, operand: View<'a, bf16>) -> View<'a, bf16> {
        operand
    }

    fn beside(operand: View<'_, bf16>) -> Option<View<'_, bf16>> {
        Some(operand)
    }

    fn onward(
        kernels: &Kernels,
        stream: &Stream,
        shape: [usize; 3],
        rows: View<'_, bf16>,
        dense: Dense<'_, bf16>,
        out: View<'_, bf16>,
    ) -> Result<()> {
        kernels.dense_bf16(stream, shape, rows, dense, None, Some(out))
    }

    fn add(
        kernels: &Kernels,
        stream: &Stream,
        shape: [usize; 3],
        rows: View<'_, bf16>,
        dense: Dense<'_, bf16>,
        states: View<'_, f32>,
    ) -> Result<()> {
        let residual = Some(states);
        let dense = Dense { residual, ..dense };
        kernels.dense_bf16(stream, shape, rows, dense, Some(states), None)
    }

    fn attend(
        kernels: &Kernels,
        stream: &Stream,
        batch: &Batch<'_>,
        heads: [usize; 2],
        projected: View<'_, bf16>,
        out: View<'_, bf16>,
    ) -> Result<()> {
        kernels.attend_bf16(stream, batch, heads, projected, out)
    }
}
