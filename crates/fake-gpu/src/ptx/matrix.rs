//! Tensor cores: which lane holds which elements of a fragment, and the product of two.
//!
//! The layouts are those of "Matrix Fragments for mma.m16n8k16 with floating point type" and of
//! `ldmatrix` in NVIDIA's manual: a lane is one of four in one of eight groups.

use half::{bf16, f16};

use super::{LANES, Lanes};

/// What is multiplied; sums are `f32`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Factor {
    Bf16,
    F16,
}

impl Factor {
    /// The lower and the upper half of a register.
    fn pair(self, register: u64) -> [f32; 2] {
        [register as u16, (register >> 16) as u16].map(|bits| match self {
            Factor::Bf16 => bf16::from_bits(bits).to_f32(),
            Factor::F16 => f16::from_bits(bits).to_f32(),
        })
    }
}

/// A product of 16 rows and 8 columns over 16 elements, added to a sum.
pub(super) fn multiply(
    factor: Factor,
    left: [&Lanes; 4],
    right: [&Lanes; 2],
    sum: [&Lanes; 4],
) -> [Lanes; 4] {
    let mut rows = [[0.0f32; 16]; 16];
    let mut columns = [[0.0f32; 16]; 8];
    for lane in 0..LANES {
        let (group, place) = (lane / 4, lane % 4 * 2);
        for (at, register) in left.iter().enumerate() {
            let (row, column) = (group + at % 2 * 8, place + at / 2 * 8);
            rows[row][column..column + 2].copy_from_slice(&factor.pair(register[lane]));
        }
        for (at, register) in right.iter().enumerate() {
            let row = place + at * 8;
            columns[group][row..row + 2].copy_from_slice(&factor.pair(register[lane]));
        }
    }
    let mut product = [[0; LANES]; 4];
    for lane in 0..LANES {
        for at in 0..4 {
            let (row, column) = (lane / 4 + at / 2 * 8, lane % 4 * 2 + at % 2);
            let terms = rows[row].iter().zip(&columns[column]);
            let dot: f32 = terms.map(|(one, other)| one * other).sum();
            let before = f32::from_bits(sum[at][lane] as u32);
            product[at][lane] = (before + dot).to_bits().into();
        }
    }
    product
}

/// Which element of an 8 by 8 matrix is a lane's lower and its upper half: rows and columns.
pub(super) fn elements(lane: usize, is_transposed: bool) -> [(usize, usize); 2] {
    let (group, place) = (lane / 4, lane % 4 * 2);
    match is_transposed {
        false => [(group, place), (group, place + 1)],
        true => [(place, group), (place + 1, group)],
    }
}
