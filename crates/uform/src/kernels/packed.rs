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

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::fork_join::Shared;
use super::operand::STEP_BYTES;
use super::precision::{i8_scale, to_bf16, to_i8};
use super::region::{Piece, Region};
use super::{ForkJoin, Kernels, Precision, share};
use crate::Result;
use crate::hardware::CpuClass;

/// How many inputs are transposed at a time: a slice of a panel that stays in the nearest cache.
const BLOCK: usize = 64;

/// Outputs of a panel of matrix tiles.
pub(super) const TILES_COLUMNS: usize = 32;

/// Groups to a step, and outputs to a half.
const SIDE: usize = 16;

/// The weights of a dense layer, packed once for one class and precision by [`Kernels::pack`].
pub struct Packed {
    /// All of it written.
    memory: Piece,
    /// Of i8: one an output, padded to whole panels.
    scales: Vec<f32>,
    /// Of i8: −128·Σ q of each output, padded alike: what undoes that rows were offset by 128.
    #[cfg_attr(
        not(all(
            any(target_arch = "x86_64", target_arch = "aarch64"),
            not(feature = "monoversioned")
        )),
        expect(dead_code, reason = "no vectors multiply tiles")
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
    #[cfg(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        not(feature = "monoversioned")
    ))]
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
    #[cfg(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        not(feature = "monoversioned")
    ))]
    pub(super) fn offsets(&self) -> &[i32] {
        &self.offsets
    }

    fn values(&self) -> &[f32] {
        // SAFETY: the piece is this one's own, and was written whole before it was made.
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
        let panels = outputs.div_ceil(self.panel_columns);
        4 * panels * self.panel_length(inputs)
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
        assert!(inputs > 0, "a dense layer has at least one input");
        for part in parts {
            assert!(
                part.len().is_multiple_of(inputs),
                "{} weights are not whole rows of {inputs} inputs",
                part.len()
            );
        }
        let outputs = parts.iter().map(|part| part.len()).sum::<usize>() / inputs;
        assert!(outputs > 0, "a dense layer has at least one output");

        let columns = self.panel_columns;
        assert!(columns.is_multiple_of(16), "a panel is made of whole lines");
        let panels = outputs.div_ceil(columns);
        let length = self.panel_length(inputs);
        let lines = panels * length / 16;
        let memory = match region.take(lines) {
            Some(memory) => memory,
            None => Region::whole(lines)?,
        };
        let scaled = match self.precision {
            Precision::I8 => panels * columns,
            Precision::F32 | Precision::Bf16 => 0,
        };
        let (mut scales, mut offsets) = (vec![0.0; scaled], vec![0; scaled]);
        let values = Shared(memory.start().cast::<MaybeUninit<f32>>());
        let (to_scales, to_offsets) = (Shared(scales.as_mut_ptr()), Shared(offsets.as_mut_ptr()));
        let source = Source { parts, inputs };
        let pieces = panels.min(4 * team.lanes());
        team.run(pieces, &|_, piece| {
            for panel in share(panels, pieces, piece) {
                // SAFETY: the panel lies within the piece, and no other piece has it.
                let values = unsafe { values.slice(panel * length, length) };
                let first = panel * columns;
                match self.precision {
                    Precision::F32 => source.fill(values, first, columns),
                    Precision::Bf16 => source.fill_bf16(bytemuck_uninit(values), first),
                    Precision::I8 => {
                        // SAFETY: as above, a number for each column of every panel.
                        let (scales, offsets) = unsafe {
                            (
                                to_scales.slice(first, columns),
                                to_offsets.slice(first, columns),
                            )
                        };
                        source.fill_i8(bytemuck_uninit(values), first, scales, offsets);
                    }
                }
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

/// Memory for floats as memory for groups.
fn bytemuck_uninit(values: &mut [MaybeUninit<f32>]) -> &mut [MaybeUninit<u32>] {
    // SAFETY: the two have one size and alignment, and neither has a value yet.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), values.len()) }
}

/// Weights to pack: `[outputs][inputs]` parts, stacked by outputs.
struct Source<'a> {
    parts: &'a [&'a [f32]],
    inputs: usize,
}

impl Source<'_> {
    /// Writes every element of the f32 panel whose first output is `first`.
    fn fill(&self, panel: &mut [MaybeUninit<f32>], first: usize, columns: usize) {
        for (block, slice) in panel.chunks_mut(BLOCK * columns).enumerate() {
            for column in 0..columns {
                let targets = slice[column..].iter_mut().step_by(columns);
                match self.row(first + column) {
                    Some(weights) => {
                        for (target, weight) in targets.zip(&weights[block * BLOCK..]) {
                            target.write(*weight);
                        }
                    }
                    None => {
                        for target in targets {
                            target.write(0.0);
                        }
                    }
                }
            }
        }
    }

    /// Writes every group of the bf16 panel whose first output is `first`.
    fn fill_bf16(&self, panel: &mut [MaybeUninit<u32>], first: usize) {
        self.fill_tiles::<{ STEP_BYTES / 2 }>(panel, first, |_, weights| {
            let (pairs, _) = weights.as_chunks::<2>();
            let mut groups = [0; SIDE];
            for (group, [even, odd]) in groups.iter_mut().zip(pairs) {
                *group = u32::from(to_bf16(*even)) | u32::from(to_bf16(*odd)) << 16;
            }
            groups
        });
    }

    /// Writes every group of the i8 panel whose first output is `first`, and what goes with
    /// its outputs.
    fn fill_i8(
        &self,
        panel: &mut [MaybeUninit<u32>],
        first: usize,
        scales: &mut [f32],
        offsets: &mut [i32],
    ) {
        let mut factors = [0.0; TILES_COLUMNS];
        for (column, factor) in factors.iter_mut().enumerate() {
            let weights = self.row(first + column).unwrap_or_default();
            let magnitudes = weights.iter().map(|weight| weight.abs().to_bits());
            (scales[column], *factor) = i8_scale(magnitudes.fold(0, u32::max));
            let sum: i32 = weights
                .iter()
                .map(|weight| i32::from(to_i8(*weight, *factor)))
                .sum();
            offsets[column] = sum.wrapping_mul(-128);
        }
        self.fill_tiles::<STEP_BYTES>(panel, first, |column, weights| {
            let (fours, _) = weights.as_chunks::<4>();
            let mut groups = [0; SIDE];
            for (group, four) in groups.iter_mut().zip(fours) {
                let bytes = four.map(|weight| to_i8(weight, factors[column]) as u8);
                *group = u32::from_le_bytes(bytes);
            }
            groups
        });
    }

    /// Writes a panel of matrix tiles; `convert` makes a step's groups of one column's weights.
    fn fill_tiles<const INPUTS: usize>(
        &self,
        panel: &mut [MaybeUninit<u32>],
        first: usize,
        convert: impl Fn(usize, &[f32; INPUTS]) -> [u32; SIDE],
    ) {
        for (step, tiles) in panel.chunks_exact_mut(SIDE * TILES_COLUMNS).enumerate() {
            for column in 0..TILES_COLUMNS {
                let groups = match self.row(first + column) {
                    Some(weights) => {
                        let rest = &weights[step * INPUTS..];
                        match rest.first_chunk::<INPUTS>() {
                            Some(weights) => convert(column, weights),
                            None => {
                                let mut padded = [0.0; INPUTS];
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
    fn row(&self, output: usize) -> Option<&[f32]> {
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
