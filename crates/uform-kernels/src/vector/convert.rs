//! Rows to operands, on vectors.

use std::ops::Range;

use super::{Simd, load_up_to};
use crate::Precision;
use crate::operand::{Conversion, Converted};
use crate::precision::{I8_MAXIMA, I8_ROUNDER, i8_row};

/// Converts the given rows.
///
/// # Safety
/// The CPU has the class's instructions, the rows are within the batch, and no other thread
/// touches their operands.
#[inline(always)]
pub(crate) unsafe fn convert<V: Simd>(conversion: &Conversion<'_>, rows: Range<usize>) {
    let width = conversion.into.form.width;
    for row in rows {
        // SAFETY: the row is within the batch, and this task's alone.
        unsafe {
            convert_row::<V>(
                conversion.from.as_ptr().add(row * width),
                conversion.into,
                row,
            )
        };
    }
}

/// One row as an operand.
///
/// # Safety
/// As for [`convert`]; `values` has the form's width.
#[inline(always)]
pub(super) unsafe fn convert_row<V: Simd>(values: *const f32, into: &Converted, row: usize) {
    let (width, stride) = (into.form.width, into.form.stride());
    // SAFETY: elements up to the width are within the row of values, and those up to the stride,
    // which is whole vectors, within the operand's.
    unsafe {
        match into.form.precision {
            Precision::F32 => {}
            Precision::Bf16 => {
                let out = into.row(row).cast::<u16>();
                for at in (0..stride / 2).step_by(V::LANES) {
                    value_or_zero::<V>(values, at, width).store_bf16(out.add(at));
                }
            }
            Precision::I8 => {
                let mut largest = [V::ZERO; 2];
                let mut at = 0;
                while width - at >= 4 * V::LANES {
                    for vector in 0..4 {
                        let value = V::load(values.add(at + vector * V::LANES));
                        largest[vector % 2] = largest[vector % 2].larger_magnitude(value);
                    }
                    at += 4 * V::LANES;
                }
                while at < width {
                    for largest in &mut largest {
                        if at < width {
                            let count = V::LANES.min(width - at);
                            *largest = largest.larger_magnitude(load_up_to(values.add(at), count));
                            at += V::LANES;
                        }
                    }
                }
                // Two of the widest vectors; two of the narrowest hold all maxima.
                let mut lanes = [0; 4 * I8_MAXIMA];
                largest[0].store(lanes.as_mut_ptr().cast());
                largest[1].store(lanes.as_mut_ptr().add(V::LANES).cast());
                let mut maxima = [0; I8_MAXIMA];
                for (lane, most) in lanes.into_iter().enumerate() {
                    let maximum = &mut maxima[lane % I8_MAXIMA];
                    *maximum = most.max(*maximum);
                }
                let (tail, factor) = i8_row(std::slice::from_raw_parts(values, width), maxima);
                *into.tail(row) = tail;
                let (factor, rounder) = (V::splat(factor), V::splat(I8_ROUNDER));
                let out = into.row(row);
                let mut at = 0;
                while width - at >= 4 * V::LANES {
                    let mut four = [V::ZERO; 4];
                    for (vector, value) in four.iter_mut().enumerate() {
                        let from = values.add(at + vector * V::LANES);
                        *value = V::load(from).mul(factor).add(rounder);
                    }
                    V::store_low_bytes_of_four(four, out.add(at));
                    at += 4 * V::LANES;
                }
                for at in (at..stride).step_by(V::LANES) {
                    let value = value_or_zero::<V>(values, at, width);
                    value.mul(factor).add(rounder).store_low_bytes(out.add(at));
                }
                for apart in tail.apart() {
                    *out.add(apart.input as usize) = 0;
                }
            }
        }
    }
}

/// A vector of a row from `at` on, zero from the width on.
///
/// # Safety
/// As for [`convert_row`].
#[inline(always)]
unsafe fn value_or_zero<V: Simd>(values: *const f32, at: usize, width: usize) -> V {
    if at >= width {
        return V::ZERO;
    }
    // SAFETY: handed on to the caller.
    unsafe { load_up_to(values.add(at), V::LANES.min(width - at)) }
}
