//! Rows in the form in which dense layers of a precision multiply them.
//!
//! f32 rows are multiplied as they lie. In the other precisions a row's numbers are
//! converted into memory of their own, padded with zeros to whole steps of a matrix tile:
//! 64 bytes, 32 numbers in bf16 and 64 in i8. Behind the rows of i8 lie their [`Tail`]s.

use std::ops::Range;

use super::fork_join::Shared;
use super::precision::I8_APART;
use super::rows::over_rows;
use super::{ForkJoin, Kernels, Precision};

/// Bytes of a row that a matrix tile multiplies at once.
pub(super) const STEP_BYTES: usize = 64;

/// The left side of a dense layer: rows in the form of a precision, from [`Kernels::operand`].
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    precision: Precision,
    values: &'a [f32],
    /// Of i8: one a row.
    tails: &'a [Tail],
    rows: usize,
    width: usize,
}

/// How a precision lays rows of some width.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub precision: Precision,
    pub width: usize,
}

/// What goes with an i8 row: its scale, and the numbers kept apart from its bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tail {
    pub scale: f32,
    /// How many of `apart` there are.
    pub count: u32,
    pub apart: [Apart; I8_APART],
}

/// A number of an i8 row that is too large for a byte, which is zero in its place.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Apart {
    pub input: u32,
    pub number: i32,
}

/// How many `f32` a tail takes.
const TAIL: usize = size_of::<Tail>() / 4;

// SAFETY: made of 32-bit numbers without padding between them, of which zeros are valid.
unsafe impl bytemuck::Zeroable for Tail {}
// SAFETY: as above, and any bits are.
unsafe impl bytemuck::Pod for Tail {}

impl Tail {
    /// The numbers kept apart.
    pub(super) fn apart(&self) -> &[Apart] {
        &self.apart[..(self.count as usize).min(I8_APART)]
    }
}

/// Where operands are written. Each task writes only its own rows.
pub(super) struct Converted {
    pub form: Form,
    /// How many rows there are in all: i8's tails follow the last.
    pub rows: usize,
    /// Where the rows begin that are written now.
    pub first: usize,
    pub out: Shared<f32>,
}

/// Rows to convert.
pub(super) struct Conversion<'a> {
    pub from: &'a [f32],
    pub into: &'a Converted,
}

impl Form {
    /// Bytes from one row to the next.
    pub(super) fn stride(self) -> usize {
        match self.precision {
            Precision::F32 => 4 * self.width,
            Precision::Bf16 => (2 * self.width).next_multiple_of(STEP_BYTES),
            Precision::I8 => self.width.next_multiple_of(STEP_BYTES),
        }
    }

    /// How many `f32` so many rows take.
    fn size(self, rows: usize) -> usize {
        let tail = match self.precision {
            Precision::I8 => TAIL,
            Precision::F32 | Precision::Bf16 => 0,
        };
        rows * (self.stride() / 4 + tail)
    }
}

impl<'a> Operand<'a> {
    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Length of a row, padding apart.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn precision(&self) -> Precision {
        self.precision
    }

    /// Bytes from one row to the next.
    pub(super) fn stride(&self) -> usize {
        self.form().stride()
    }

    /// The first byte of a row.
    #[allow(dead_code, reason = "only vector classes ask")]
    pub(super) fn row(&self, row: usize) -> *const u8 {
        debug_assert!(row < self.rows);
        self.values
            .as_ptr()
            .cast::<u8>()
            .wrapping_add(row * self.stride())
    }

    /// A row's groups of four bytes, padding included.
    pub(super) fn groups(&self, row: usize) -> &'a [u32] {
        let length = self.stride() / 4;
        &bytemuck::cast_slice(self.values)[row * length..][..length]
    }

    /// Some of the rows.
    pub(super) fn part(&self, rows: Range<usize>) -> Operand<'a> {
        let stride = self.stride() / 4;
        let tails = match self.precision {
            Precision::I8 => &self.tails[rows.clone()],
            Precision::F32 | Precision::Bf16 => self.tails,
        };
        Operand {
            values: &self.values[rows.start * stride..rows.end * stride],
            tails,
            rows: rows.len(),
            ..*self
        }
    }

    /// f32 rows, end to end.
    pub(super) fn floats(&self) -> &'a [f32] {
        self.values
    }

    /// What goes with i8 rows.
    pub(super) fn tails(&self) -> &'a [Tail] {
        self.tails
    }

    fn form(&self) -> Form {
        Form {
            precision: self.precision,
            width: self.width,
        }
    }
}

impl Converted {
    /// The first byte of a row.
    ///
    /// # Safety
    /// The row is within the batch, and the caller's own.
    pub(super) unsafe fn row(&self, row: usize) -> *mut u8 {
        // SAFETY: `out` was checked to hold all rows.
        unsafe {
            let rows = self.out.at(0).cast::<u8>();
            rows.add((self.first + row) * self.form.stride())
        }
    }

    /// The tail of an i8 row.
    ///
    /// # Safety
    /// As for [`Converted::row`], and the form is i8's.
    pub(super) unsafe fn tail(&self, row: usize) -> *mut Tail {
        // SAFETY: `out` was checked to hold the tails after all rows, and is aligned as they are.
        unsafe {
            let tails = self.out.at(self.rows * self.form.stride() / 4);
            tails.cast::<Tail>().add(self.first + row)
        }
    }
}

impl Kernels {
    fn form(&self, width: usize) -> Form {
        Form {
            precision: self.precision,
            width,
        }
    }

    /// How many `f32` of space the operand of so many rows takes; 0 in f32, whose rows are multiplied
    /// as they lie.
    pub fn operand_size(&self, rows: usize, width: usize) -> usize {
        match self.precision {
            Precision::F32 => 0,
            Precision::Bf16 | Precision::I8 => self.form(width).size(rows),
        }
    }

    /// The operand that `rows`, `[n][width]`, were converted to in `space`: in f32, the rows themselves.
    /// Where the rows were never there (see [`Kernels::linear_onward`]), `count` alone says how many.
    ///
    /// # Panics
    /// When a slice is too short.
    pub fn operand<'a>(
        &self,
        rows: &'a [f32],
        space: &'a [f32],
        count: usize,
        width: usize,
    ) -> Operand<'a> {
        let values = match self.precision {
            Precision::F32 => &rows[..count * width],
            Precision::Bf16 | Precision::I8 => &space[..self.operand_size(count, width)],
        };
        let tails = match self.precision {
            Precision::F32 | Precision::Bf16 => &[],
            Precision::I8 => &values[count * self.form(width).stride() / 4..],
        };
        Operand {
            precision: self.precision,
            values,
            tails: bytemuck::cast_slice(tails),
            rows: count,
            width,
        }
    }

    /// Converts `rows`, `[n][width]`, in `space`, which has [`Kernels::operand_size`] elements at
    /// least, aligned to 64 bytes or not. In f32 there is nothing to do.
    ///
    /// # Panics
    /// When the rows are not whole or the space is too small.
    pub fn convert<'a>(
        &self,
        team: &dyn ForkJoin,
        rows: &'a [f32],
        width: usize,
        space: &'a mut [f32],
    ) -> Operand<'a> {
        let count = rows.len() / width;
        assert_eq!(rows.len(), count * width, "rows are not whole");
        if self.precision != Precision::F32 {
            self.convert_into(team, rows, &self.converted(space, count, width));
        }
        self.operand(rows, space, count, width)
    }

    /// Converts whole rows to where `into` says.
    pub(super) fn convert_into(&self, team: &dyn ForkJoin, from: &[f32], into: &Converted) {
        let count = from.len() / into.form.width;
        assert!(into.first + count <= into.rows, "more rows than there are");
        let conversion = Conversion { from, into };
        over_rows(team, count, |rows: Range<usize>| {
            // SAFETY: the space was checked, this machine has the class's instructions
            // (`Kernels::of`), and no row is given out twice.
            unsafe { (self.convert)(&conversion, rows) };
        });
    }

    /// Where the operand of so many rows goes.
    pub(super) fn converted(&self, space: &mut [f32], rows: usize, width: usize) -> Converted {
        let needed = self.operand_size(rows, width);
        assert!(
            space.len() >= needed,
            "an operand of {rows} rows of {width} takes {needed} elements, not {}",
            space.len()
        );
        Converted {
            form: self.form(width),
            rows,
            first: 0,
            out: Shared(space.as_mut_ptr()),
        }
    }
}
