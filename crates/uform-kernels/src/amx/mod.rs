//! AMX: eight tile registers of 16 rows of 64 bytes, and a unit that multiplies them
//! (Intel, Software Developer's Manual, volume 1, chapter 18).
//!
//! Rust's intrinsics for it are unstable, so it is written in assembly. The kernel lets a process
//! use tiles once it has asked (`hardware`, where the class is found). A task configures
//! them at its beginning and releases them at its end: a thread that is switched away while tiles
//! are in use has eight kilobytes more to save.
//!
//! Two rows of two tiles of sums are kept, fed by two tiles of each side; up to 16 rows, it is one
//! row of two. A tile has as many rows as the batch: the unit takes a cycle for each.
//! Here is who multiplies one block by itself, for attention and a few rows; dense layers (`linear`)
//! let the blocks overlap.

mod linear;

use std::arch::asm;

pub(super) use linear::{Bf16, I8, compute};

use super::operand::STEP_BYTES;
use super::packed::TILES_COLUMNS;
use super::vector::tiles::{TileProduct, Tiles};

/// Rows of a tile.
const TILE_ROWS: usize = 16;

/// Bytes between rows of sums.
const OUT_STRIDE: usize = 4 * TILES_COLUMNS;

/// What LDTILECFG reads: palette 1, and the shape of each tile.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Tiles in use by a task.
struct Unit {
    /// The rows they are configured for; 0: they are not.
    rows: usize,
}

impl Unit {
    /// Shapes the tiles for products of so many rows.
    ///
    /// # Safety
    /// The CPU has AMX and the process may use it.
    #[inline(always)]
    unsafe fn shape(&mut self, rows: usize) {
        if self.rows == rows {
            return;
        }
        self.rows = rows;
        let (first, second) = (rows.min(TILE_ROWS), rows.saturating_sub(TILE_ROWS));
        let mut config = Config {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        // Sums 0 to 3, the left side 4 and 5, the right side 6 and 7.
        let (first, second) = (first as u8, second.max(1) as u8);
        config.row_bytes[..8].fill(STEP_BYTES as u16);
        config.rows[..8].copy_from_slice(&[first, first, second, second, first, second, 16, 16]);
        // SAFETY: the configuration is valid, 64 bytes, and read by the instruction alone.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &config, options(nostack, readonly));
        }
    }
}

impl Drop for Unit {
    #[inline(always)]
    fn drop(&mut self) {
        if self.rows > 0 {
            // SAFETY: tiles were configured, so the CPU has the instruction.
            unsafe { asm!("tilerelease", options(nostack, nomem)) };
        }
    }
}

/// The loop over steps of one product, and its sums to memory.
macro_rules! multiply {
    ($instruction:literal, $product:expr) => {{
        let product: &TileProduct = $product;
        let left = product.left;
        if product.rows > TILE_ROWS {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "2:",
                "tileloadd tmm6, [{right} + {line}]",
                "tileloadd tmm4, [{left} + {stride}]",
                concat!($instruction, " tmm0, tmm4, tmm6"),
                "tileloadd tmm7, [{right} + {line} + 1024]",
                concat!($instruction, " tmm1, tmm4, tmm7"),
                "tileloadd tmm5, [{below} + {stride}]",
                concat!($instruction, " tmm2, tmm5, tmm6"),
                concat!($instruction, " tmm3, tmm5, tmm7"),
                "mov {lines}, {next_lines}",
                "test {lines}, {lines}",
                "jz 4f",
                "3:",
                "prefetcht1 [{next}]",
                "prefetcht1 [{next} + 64]",
                "prefetcht1 [{next} + 128]",
                "prefetcht1 [{next} + 192]",
                "add {next}, 256",
                "sub {lines}, 4",
                "jnz 3b",
                "4:",
                "add {left}, 64",
                "add {below}, 64",
                "add {right}, 2048",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{out} + {out_stride}], tmm0",
                "tilestored [{out} + {out_stride} + 64], tmm1",
                "tilestored [{out} + {out_stride} + 2048], tmm2",
                "tilestored [{out} + {out_stride} + 2112], tmm3",
                left = inout(reg) left => _,
                below = inout(reg) left.add(TILE_ROWS * product.left_stride) => _,
                right = inout(reg) product.right => _,
                steps = inout(reg) product.steps => _,
                next = inout(reg) product.next => _,
                next_lines = in(reg) product.next_lines,
                lines = out(reg) _,
                stride = in(reg) product.left_stride,
                line = in(reg) STEP_BYTES,
                out = in(reg) product.out,
                out_stride = in(reg) OUT_STRIDE,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        } else {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tileloadd tmm4, [{left} + {stride}]",
                "2:",
                "tileloadd tmm6, [{right} + {line}]",
                concat!($instruction, " tmm0, tmm4, tmm6"),
                "tileloadd tmm7, [{right} + {line} + 1024]",
                concat!($instruction, " tmm1, tmm4, tmm7"),
                "prefetcht0 [{right} + 8192]",
                "add {left}, 64",
                "add {right}, 2048",
                "dec {steps}",
                "jz 3f",
                "tileloadd tmm4, [{left} + {stride}]",
                "jmp 2b",
                "3:",
                "tilestored [{out} + {out_stride}], tmm0",
                "tilestored [{out} + {out_stride} + 64], tmm1",
                left = inout(reg) left => _,
                right = inout(reg) product.right => _,
                steps = inout(reg) product.steps => _,
                stride = in(reg) product.left_stride,
                line = in(reg) STEP_BYTES,
                out = in(reg) product.out,
                out_stride = in(reg) OUT_STRIDE,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }};
}

/// bf16 in matrix units.
pub(super) struct AmxBf16(Unit);

impl Tiles for AmxBf16 {
    const INTEGERS: bool = false;

    #[inline(always)]
    unsafe fn begin() -> Self {
        AmxBf16(Unit { rows: 0 })
    }

    #[inline(always)]
    unsafe fn multiply(&mut self, product: &TileProduct) {
        // SAFETY: the caller vouches for AMX and for the product's shape; `out` has room
        // for the sums of two rows of two tiles.
        unsafe {
            self.0.shape(product.rows);
            multiply!("tdpbf16ps", product);
        }
    }
}

/// i8 in matrix units.
pub(super) struct AmxI8(Unit);

impl Tiles for AmxI8 {
    const INTEGERS: bool = true;

    #[inline(always)]
    unsafe fn begin() -> Self {
        AmxI8(Unit { rows: 0 })
    }

    #[inline(always)]
    unsafe fn multiply(&mut self, product: &TileProduct) {
        // SAFETY: as in bf16.
        unsafe {
            self.0.shape(product.rows);
            multiply!("tdpbssd", product);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::arch::x86_64::_xgetbv;

    use super::Unit;
    use crate::cpu::CpuClass;

    /// Whether tiles, or their configuration, are in use on this thread: bits 17 and 18 of XINUSE
    /// (Intel, Software Developer's Manual, volume 1, chapter 13).
    ///
    /// # Safety
    /// The CPU reads XINUSE, as every one with AMX does.
    #[target_feature(enable = "xsave")]
    unsafe fn in_use() -> bool {
        // SAFETY: handed on to the caller.
        unsafe { _xgetbv(1) & (0b11 << 17) != 0 }
    }

    #[test]
    fn a_task_leaves_no_tiles_in_use() {
        if let Some(missing) = CpuClass::IntelSapphire.missing() {
            eprintln!("SKIPPED: this machine lacks {missing}");
            return;
        }
        // SAFETY: the CPU has AMX, and the process may use it.
        unsafe {
            assert!(!in_use());
            let mut unit = Unit { rows: 0 };
            for rows in [1, 16, 17, 32] {
                unit.shape(rows);
                assert!(in_use());
            }
            drop(unit);
            assert!(!in_use());
        }
    }
}
