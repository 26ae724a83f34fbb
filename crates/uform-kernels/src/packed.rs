//! A dense layer's weights in the order the kernels read them.
//!
//! Outputs are cut into panels of a table's width; a panel is one forward stream, and the last
//! one is padded with zeros. In f32 a panel is stored as `[inputs][columns]`: one step of a
//! dot product reads the next few cache lines.
//!
//! In bf16 and i8 a panel of 32 outputs is stored as the matrix tiles that multiply it:
//! `[steps][2 halves][16 groups][16 outputs][group]`, where a group is the four bytes of
//! neighbouring inputs (two or four of them), a step is 16 groups, and the inputs of the
//! last step are padded with zeros. Every class reads this one order.

use std::array;
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::fork_join::Shared;
use super::operand::STEP_BYTES;
use super::precision::{i8_weights, to_bf16, to_i8};
use super::region::{Allocation, Region};
use super::{ForkJoin, Kernels, Precision, share};
use crate::Result;
use crate::cpu::CpuClass;

/// How many inputs are transposed at a time: a slice of a panel that stays in the nearest cache.
const BLOCK: usize = 64;

/// How many outputs are transposed together.
const TOGETHER: usize = 4;

/// Outputs of a panel of matrix tiles.
pub(super) const TILES_COLUMNS: usize = 32;

/// How many `f32` a line of a region takes.
const LINE: usize = 16;

/// Groups to a step, and outputs to a half.
const SIDE: usize = 16;

/// The weights of a dense layer, packed once for one class and precision by [`Kernels::pack`].
pub struct Packed {
    /// All of it written.
    memory: Allocation,
    /// Of i8: one an output, padded to whole panels.
    scales: Vec<f32>,
    /// Of i8: −128·Σ q of each output, padded alike: what undoes that rows were offset by 128.
    #[allow(
        dead_code,
        reason = "not every build has a class that offsets its rows"
    )]
    offsets: Vec<i32>,
    inputs: usize,
    outputs: usize,
    columns: usize,
    class: CpuClass,
    precision: Precision,
}

impl Packed {
    /// Length of a row that goes in.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Length of a row that comes out.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Bytes of memory the packed weights take, padding included.
    pub fn bytes(&self) -> usize {
        4 * self.memory.floats() + 8 * self.scales.len()
    }

    /// Whose kernels read this order.
    pub fn class(&self) -> CpuClass {
        self.class
    }

    /// What the weights were rounded to.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// How many panels there are.
    pub(super) fn panels(&self) -> usize {
        self.outputs.div_ceil(self.columns)
    }

    /// One f32 panel, `[inputs][columns]`.
    pub(super) fn panel(&self, index: usize) -> &[f32] {
        debug_assert_eq!(self.precision, Precision::F32);
        let length = self.inputs * self.columns;
        &self.values()[index * length..][..length]
    }

    /// Steps of a panel of matrix tiles.
    pub(super) fn steps(&self) -> usize {
        self.inputs.div_ceil(step_inputs(self.precision))
    }

    /// One panel of matrix tiles, as the groups' bytes.
    pub(super) fn tiles(&self, index: usize) -> &[u32] {
        debug_assert_ne!(self.precision, Precision::F32);
        let length = self.steps() * SIDE * TILES_COLUMNS;
        &bytemuck::cast_slice(self.values())[index * length..][..length]
    }

    /// The groups of an i8 input's step in a panel, the input's own group first.
    ///
    /// # Safety
    /// The weights are in i8, and panel and input are within them.
    #[allow(dead_code, reason = "only vector classes ask")]
    #[inline(always)]
    pub(super) unsafe fn groups_from(&self, panel: usize, input: usize) -> *const u32 {
        debug_assert!(panel < self.panels() && input < self.inputs);
        let step = panel * self.inputs.div_ceil(STEP_BYTES) + input / STEP_BYTES;
        let group = input % STEP_BYTES / 4;
        // SAFETY: a panel has this many steps, and a step's first half this many groups.
        unsafe {
            let words = self.values().as_ptr().cast::<u32>();
            words.add(step * SIDE * TILES_COLUMNS + group * SIDE)
        }
    }

    /// Scales of i8, for every column of every panel.
    pub(super) fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// What undoes that rows were offset by 128, for every column of every panel.
    #[allow(dead_code, reason = "only vector classes ask")]
    pub(super) fn offsets(&self) -> &[i32] {
        &self.offsets
    }

    fn values(&self) -> &[f32] {
        // SAFETY: the allocation is this one's own, and was written whole before it was made.
        unsafe { std::slice::from_raw_parts(self.memory.start(), self.memory.floats()) }
    }
}

/// Inputs of a step of matrix tiles.
fn step_inputs(precision: Precision) -> usize {
    match precision {
        Precision::F32 => 1,
        Precision::Bf16 => STEP_BYTES / 2,
        Precision::I8 => STEP_BYTES,
    }
}

impl Kernels {
    /// Bytes of a [`Region`] that the packed weights of a dense layer take.
    pub fn packed_bytes(&self, inputs: usize, outputs: usize) -> usize {
        64 * self.packed_lines(inputs, outputs)
    }

    /// How many lines of a region that is.
    fn packed_lines(&self, inputs: usize, outputs: usize) -> usize {
        let panels = outputs.div_ceil(self.panel_columns);
        (panels * self.panel_length(inputs)).div_ceil(LINE)
    }

    /// How many `f32` a panel takes.
    fn panel_length(&self, inputs: usize) -> usize {
        match self.precision {
            Precision::F32 => inputs * self.panel_columns,
            tiles => inputs.div_ceil(step_inputs(tiles)) * SIDE * self.panel_columns,
        }
    }

    /// [`Kernels::pack_into`] a region of their own.
    ///
    /// # Errors
    /// `OutOfMemory` when the system refuses the memory.
    ///
    /// # Panics
    /// As there.
    pub fn pack(&self, team: &dyn ForkJoin, parts: &[&[f32]], inputs: usize) -> Result<Packed> {
        assert!(inputs > 0, "a dense layer has at least one input");
        let outputs = parts.iter().map(|part| part.len()).sum::<usize>() / inputs;
        let region = Region::new(self.packed_bytes(inputs, outputs))?;
        self.pack_into(&region, team, parts, inputs)
    }

    /// Packs a dense layer's weights for these kernels, the panels shared out over `team`.
    ///
    /// Each of `parts` is `[outputs][inputs]`, row-major; they are stacked by outputs, so
    /// that several layers over the same rows (Q, K and V) become one. Where the region has no
    /// [`Kernels::packed_bytes`] left, they get one of their own.
    ///
    /// # Errors
    /// As for [`Kernels::pack`].
    ///
    /// # Panics
    /// When `inputs` is 0, there are no outputs, or a part is not made of whole rows.
    pub fn pack_into(
        &self,
        region: &Arc<Region>,
        team: &dyn ForkJoin,
        parts: &[&[f32]],
        inputs: usize,
    ) -> Result<Packed> {
        let source = Stacked::new(parts, inputs);
        let columns = self.panel_columns;
        let size = (inputs, source.outputs());
        match self.precision {
            Precision::F32 => self.fill(region, team, size, &|panel| source.fill(panel, columns)),
            Precision::Bf16 => self.fill(region, team, size, &|panel| source.fill_bf16(panel)),
            Precision::I8 => self.fill(region, team, size, &|panel| source.fill_i8(panel)),
        }
    }

    /// [`Kernels::pack_into`] of weights that were quantized before, for kernels of i8: the numbers and
    /// scales are taken as they are.
    ///
    /// # Errors
    /// As for [`Kernels::pack`].
    ///
    /// # Panics
    /// As there; and when the kernels are of another precision, or a part has not one scale an output.
    pub fn pack_quantized_into(
        &self,
        region: &Arc<Region>,
        team: &dyn ForkJoin,
        parts: &[Quantized<'_>],
        inputs: usize,
    ) -> Result<Packed> {
        assert_eq!(self.precision, Precision::I8, "quantized weights are i8");
        let numbers: Vec<_> = parts.iter().map(|part| part.numbers).collect();
        let scales: Vec<_> = parts.iter().map(|part| part.scales).collect();
        let source = Stacked::new(&numbers, inputs);
        for part in parts {
            let outputs = part.numbers.len() / inputs;
            assert_eq!(part.scales.len(), outputs, "a scale an output");
        }
        let scales = Stacked::new(&scales, 1);
        let size = (inputs, source.outputs());
        self.fill(region, team, size, &|panel| {
            source.fill_quantized(panel, &scales);
        })
    }

    /// Has every panel of a dense layer of so many inputs and outputs written by `fill`, which
    /// writes all of it, the panels shared out over `team`.
    fn fill(
        &self,
        region: &Arc<Region>,
        team: &dyn ForkJoin,
        (inputs, outputs): (usize, usize),
        fill: &(dyn Fn(Panel<'_>) + Sync),
    ) -> Result<Packed> {
        let columns = self.panel_columns;
        let panels = outputs.div_ceil(columns);
        let length = self.panel_length(inputs);
        let lines = self.packed_lines(inputs, outputs);
        let memory = match region.take(lines) {
            Some(memory) => memory,
            None => Region::whole(lines)?,
        };
        // What goes with an output, in i8 alone.
        let scaled = match self.precision {
            Precision::I8 => columns,
            Precision::F32 | Precision::Bf16 => 0,
        };
        let (mut scales, mut offsets) = (vec![0.0; panels * scaled], vec![0; panels * scaled]);
        let values = Shared(memory.start().cast::<MaybeUninit<f32>>());
        let (to_scales, to_offsets) = (Shared(scales.as_mut_ptr()), Shared(offsets.as_mut_ptr()));
        // SAFETY: the rest of the last line lies within the allocation, which no other thread uses.
        let rest = unsafe { values.slice(panels * length, lines * LINE - panels * length) };
        rest.fill(MaybeUninit::new(0.0));
        let tasks = panels.min(4 * team.lanes());
        team.run(tasks, &|_, task| {
            for panel in share(panels, tasks, task) {
                // SAFETY: the panel lies within the allocation and the vectors, and no other
                // task has it.
                let panel = unsafe {
                    Panel {
                        values: values.slice(panel * length, length),
                        first: panel * columns,
                        scales: to_scales.slice(panel * scaled, scaled),
                        offsets: to_offsets.slice(panel * scaled, scaled),
                    }
                };
                fill(panel);
            }
        });
        Ok(Packed {
            memory,
            scales,
            offsets,
            inputs,
            outputs,
            columns,
            class: self.class,
            precision: self.precision,
        })
    }
}

/// Weights that were quantized before: numbers `[outputs][inputs]` from -127 to 127, and what
/// each output's are multiplied by.
#[derive(Clone, Copy)]
pub struct Quantized<'a> {
    /// Row-major.
    pub numbers: &'a [i8],
    /// One an output.
    pub scales: &'a [f32],
}

/// A panel to be written.
struct Panel<'a> {
    values: &'a mut [MaybeUninit<f32>],
    /// Its first output.
    first: usize,
    /// Of i8: one a column.
    scales: &'a mut [f32],
    /// Of i8: one a column.
    offsets: &'a mut [i32],
}

/// Memory for floats as memory for groups.
fn bytemuck_uninit(values: &mut [MaybeUninit<f32>]) -> &mut [MaybeUninit<u32>] {
    // SAFETY: the two have one size and alignment, and neither has a value yet.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), values.len()) }
}

/// What undoes that a row was offset by 128, for an output of these numbers.
fn offset(numbers: impl Iterator<Item = i8>) -> i32 {
    numbers.map(i32::from).sum::<i32>().wrapping_mul(-128)
}

/// Weights to pack: `[outputs][inputs]` parts, stacked by outputs.
struct Stacked<'a, T> {
    parts: &'a [&'a [T]],
    inputs: usize,
}

impl Stacked<'_, f32> {
    /// Writes every element of an f32 panel.
    fn fill(&self, panel: Panel<'_>, columns: usize) {
        for (block, slice) in panel.values.chunks_mut(BLOCK * columns).enumerate() {
            let inputs = block * BLOCK..block * BLOCK + slice.len() / columns;
            for column in (0..columns).step_by(TOGETHER) {
                let count = TOGETHER.min(columns - column);
                let rows: [_; TOGETHER] =
                    array::from_fn(|next| self.row(panel.first + column + next));
                if count == TOGETHER && rows.iter().all(Option::is_some) {
                    let rows = rows.map(|row| &row.unwrap_or_default()[inputs.clone()]);
                    transpose(rows, &mut slice[column..], columns);
                    continue;
                }
                for (next, row) in rows[..count].iter().enumerate() {
                    for (at, target) in slice[column + next..]
                        .iter_mut()
                        .step_by(columns)
                        .enumerate()
                    {
                        target.write(row.map_or(0.0, |row| row[inputs.start + at]));
                    }
                }
            }
        }
    }

    /// Writes every group of a bf16 panel, converting in the widest vectors of this machine: in
    /// single numbers that would take longer than reading the weights.
    fn fill_bf16(&self, panel: Panel<'_>) {
        #[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
        {
            #[target_feature(enable = "avx512f,avx512bw")]
            fn in_avx512(source: &Stacked<'_, f32>, panel: Panel<'_>) {
                source.fill_bf16_here(panel);
            }

            #[target_feature(enable = "avx2")]
            fn in_avx2(source: &Stacked<'_, f32>, panel: Panel<'_>) {
                source.fill_bf16_here(panel);
            }

            if is_x86_feature_detected!("avx512bw") {
                // SAFETY: the CPU has the instructions; AVX-512 BW implies F.
                return unsafe { in_avx512(self, panel) };
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the CPU has the instructions.
                return unsafe { in_avx2(self, panel) };
            }
        }
        self.fill_bf16_here(panel);
    }

    /// The same in the caller's vectors.
    #[inline(always)]
    fn fill_bf16_here(&self, panel: Panel<'_>) {
        self.fill_tiles::<{ STEP_BYTES / 2 }>(panel.values, panel.first, |_, weights| {
            let (pairs, _) = weights.as_chunks::<2>();
            let mut groups = [0; SIDE];
            for (group, [even, odd]) in groups.iter_mut().zip(pairs) {
                *group = u32::from(to_bf16(*even)) | u32::from(to_bf16(*odd)) << 16;
            }
            groups
        });
    }

    /// Writes every group of an i8 panel, and what goes with its outputs.
    fn fill_i8(&self, panel: Panel<'_>) {
        let mut factors = [0.0; TILES_COLUMNS];
        for (column, factor) in factors.iter_mut().enumerate() {
            let weights = self.row(panel.first + column).unwrap_or_default();
            (panel.scales[column], *factor) = i8_weights(weights);
            let numbers = weights.iter().map(|weight| to_i8(*weight, *factor));
            panel.offsets[column] = offset(numbers);
        }
        self.fill_tiles::<STEP_BYTES>(panel.values, panel.first, |column, weights| {
            groups_of(weights, |weight| to_i8(weight, factors[column]))
        });
    }
}

impl Stacked<'_, i8> {
    /// Writes every group of an i8 panel, and what goes with its outputs.
    fn fill_quantized(&self, panel: Panel<'_>, scales: &Stacked<'_, f32>) {
        let outputs = panel.scales.iter_mut().zip(panel.offsets).enumerate();
        for (column, (to_scale, to_offset)) in outputs {
            let output = panel.first + column;
            *to_scale = scales.row(output).map_or(0.0, |scale| scale[0]);
            let numbers = self.row(output).unwrap_or_default();
            *to_offset = offset(numbers.iter().copied());
        }
        self.fill_tiles::<STEP_BYTES>(panel.values, panel.first, |_, numbers| {
            groups_of(numbers, |number| number)
        });
    }
}

/// Writes rows of one length as neighbouring columns, whose rows are `stride` apart, by squares: in single
/// numbers it would take longer than reading the weights.
fn transpose(rows: [&[f32]; TOGETHER], to: &mut [MaybeUninit<f32>], stride: usize) {
    let squares = rows.map(|row| row.as_chunks::<TOGETHER>().0);
    let whole = squares[0].len() * TOGETHER;
    for (at, _) in squares[0].iter().enumerate() {
        let square = squares.map(|rows| rows[at]);
        for input in 0..TOGETHER {
            let line = square.map(|row| row[input]);
            let start = (at * TOGETHER + input) * stride;
            for (target, weight) in to[start..][..TOGETHER].iter_mut().zip(line) {
                target.write(weight);
            }
        }
    }
    for input in whole..rows[0].len() {
        for (target, row) in to[input * stride..].iter_mut().zip(rows) {
            target.write(row[input]);
        }
    }
}

/// A step's groups of i8.
#[inline(always)]
fn groups_of<T: Copy>(values: &[T; STEP_BYTES], number: impl Fn(T) -> i8) -> [u32; SIDE] {
    let (fours, _) = values.as_chunks::<4>();
    let mut groups = [0; SIDE];
    for (group, four) in groups.iter_mut().zip(fours) {
        *group = u32::from_le_bytes(four.map(|value| number(value) as u8));
    }
    groups
}

impl<'a, T: Copy + Default> Stacked<'a, T> {
    /// # Panics
    /// When `inputs` is 0, there are no outputs, or a part is not made of whole rows.
    fn new(parts: &'a [&'a [T]], inputs: usize) -> Self {
        assert!(inputs > 0, "a dense layer has at least one input");
        for part in parts {
            assert!(
                part.len().is_multiple_of(inputs),
                "{} weights are not whole rows of {inputs} inputs",
                part.len()
            );
        }
        let stacked = Stacked { parts, inputs };
        assert!(
            stacked.outputs() > 0,
            "a dense layer has at least one output"
        );
        stacked
    }

    fn outputs(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum::<usize>() / self.inputs
    }

    /// Writes a panel of matrix tiles; `convert` makes a step's groups of one column's weights.
    #[inline(always)]
    fn fill_tiles<const INPUTS: usize>(
        &self,
        panel: &mut [MaybeUninit<f32>],
        first: usize,
        convert: impl Fn(usize, &[T; INPUTS]) -> [u32; SIDE],
    ) {
        let panel = bytemuck_uninit(panel);
        for (step, tiles) in panel.chunks_exact_mut(SIDE * TILES_COLUMNS).enumerate() {
            for column in 0..TILES_COLUMNS {
                let groups = match self.row(first + column) {
                    Some(weights) => {
                        let rest = &weights[step * INPUTS..];
                        match rest.first_chunk::<INPUTS>() {
                            Some(weights) => convert(column, weights),
                            None => {
                                let mut padded = [T::default(); INPUTS];
                                padded[..rest.len()].copy_from_slice(rest);
                                convert(column, &padded)
                            }
                        }
                    }
                    None => [0; SIDE],
                };
                let half = &mut tiles[column / SIDE * SIDE * SIDE..];
                let targets = half[column % SIDE..].iter_mut().step_by(SIDE);
                for (target, group) in targets.zip(groups) {
                    target.write(group);
                }
            }
        }
    }

    /// The weights of one output of the stacked parts; `None` beyond the last.
    fn row(&self, output: usize) -> Option<&'a [T]> {
        let mut start = output * self.inputs;
        for part in self.parts {
            if start < part.len() {
                return Some(&part[start..start + self.inputs]);
            }
            start -= part.len();
        }
        None
    }
}
