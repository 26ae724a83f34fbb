//! A dense layer's weights in the order the kernels read them.
//!
//! Outputs are cut into panels of a class's width, and a panel is stored as
//! `[inputs][columns]`: one step of a dot product reads the next few cache lines, and a
//! whole panel is one forward stream. The last panel is padded with zeros.

use std::mem::MaybeUninit;

use super::fork_join::Shared;
use super::{ForkJoin, Kernels, share};
use crate::Result;
use crate::hardware::CpuClass;
use crate::memory::with_room;

/// How many inputs are transposed at a time: a slice of a panel that stays in the nearest cache.
const BLOCK: usize = 64;

/// One cache line, for its alignment.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// The weights of a dense layer, packed once for one class by [`Kernels::pack`].
pub struct Packed {
    lines: Vec<Line>,
    inputs: usize,
    outputs: usize,
    columns: usize,
    class: CpuClass,
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
        size_of_val(self.lines.as_slice())
    }

    /// Whose kernels read this order.
    pub fn class(&self) -> CpuClass {
        self.class
    }

    /// How many panels there are.
    pub(super) fn panels(&self) -> usize {
        self.outputs.div_ceil(self.columns)
    }

    /// One panel, `[inputs][columns]`.
    pub(super) fn panel(&self, index: usize) -> &[f32] {
        let length = self.inputs * self.columns;
        &self.values()[index * length..][..length]
    }

    fn values(&self) -> &[f32] {
        // SAFETY: a `Line` is 16 `f32` without padding, and as aligned as they need.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.lines.len() * 16) }
    }
}

impl Kernels {
    /// Packs a dense layer's weights for these kernels, the panels shared out over `team`.
    ///
    /// Each of `parts` is `[outputs][inputs]`, row-major; they are stacked by outputs, so
    /// that several layers over the same rows (Q, K and V) become one.
    ///
    /// # Errors
    /// `OutOfMemory` when the system refuses the memory.
    ///
    /// # Panics
    /// When `inputs` is 0, there are no outputs, or a part is not made of whole rows.
    pub fn pack(&self, team: &dyn ForkJoin, parts: &[&[f32]], inputs: usize) -> Result<Packed> {
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
        let panels = outputs.div_ceil(columns);
        let length = inputs * columns;
        assert!(columns.is_multiple_of(16), "a panel is made of whole lines");
        let count = panels * length / 16;
        let mut lines = with_room::<Line>(count, "a model's weights")?;
        let values = Shared(lines.as_mut_ptr().cast::<MaybeUninit<f32>>());
        let pieces = panels.min(4 * team.lanes());
        team.run(pieces, &|_, piece| {
            for panel in share(panels, pieces, piece) {
                // SAFETY: the panel lies within `lines`, and no other piece has it.
                let panel_values =
                    unsafe { std::slice::from_raw_parts_mut(values.at(panel * length), length) };
                fill(panel_values, parts, inputs, panel * columns, columns);
            }
        });
        // SAFETY: there is room for `count` lines, and `fill` wrote every element of every panel.
        unsafe { lines.set_len(count) };
        Ok(Packed {
            lines,
            inputs,
            outputs,
            columns,
            class: self.class,
        })
    }
}

/// Writes every element of the panel whose first output is `first`.
fn fill(
    panel: &mut [MaybeUninit<f32>],
    parts: &[&[f32]],
    inputs: usize,
    first: usize,
    columns: usize,
) {
    for (block, slice) in panel.chunks_mut(BLOCK * columns).enumerate() {
        for column in 0..columns {
            let targets = slice[column..].iter_mut().step_by(columns);
            match row(parts, inputs, first + column) {
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

/// The weights of one output of the stacked parts; `None` beyond the last.
fn row<'a>(parts: &[&'a [f32]], inputs: usize, output: usize) -> Option<&'a [f32]> {
    let mut start = output * inputs;
    for part in parts {
        if start < part.len() {
            return Some(&part[start..start + inputs]);
        }
        start -= part.len();
    }
    None
}
