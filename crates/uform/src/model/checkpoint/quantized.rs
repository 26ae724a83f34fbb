//! Matrices that a file has in 8 bits: the layout of i8 weight files.
//!
//! The matrix `x` is an I8 tensor `[outputs][inputs]` of numbers from -127 to 127. Beside it
//! are `x.scale`, F32 `[outputs]`, positive, and for some `x.balance`, F32 `[inputs]`, powers of two
//! from 2^-8 to 2^8. Its weights are number · scale · balance, rounded once: the scheme of
//! [`Precision::I8`](crate::kernels::Precision::I8), whose kernels take the numbers as they
//! are. A table is stored alike, a token or position being an output. Vectors (biases, gains) stay F32.
//!
//! Others write I8 tensors too, and mean other things by them. So a file says that it means
//! this, and in which version: under [`KEY`] in its `__metadata__`.

use super::weights::Values;
use crate::error::{Error, Result};
use crate::kernels;
use crate::memory::with_room;
use crate::model::files::blob::Piece;

/// Where a file's metadata has the layout's version.
pub const KEY: &str = "uform.quantization";

/// The version this build reads and writes.
pub const VERSION: &str = "1";

/// The largest factor of a balance; the least is its inverse.
const LARGEST_BALANCE: f32 = 256.0;

/// The largest magnitude of a number.
const LARGEST: i8 = 127;

/// What scales a matrix's outputs is called so.
pub fn scale_of(name: &str) -> String {
    format!("{name}.scale")
}

/// What scales its inputs is called so.
pub fn balance_of(name: &str) -> String {
    format!("{name}.balance")
}

/// A matrix in 8 bits, checked.
pub struct Quantized<'a> {
    /// The bytes of the numbers.
    numbers: Piece<'a>,
    scales: Values<'a>,
    balance: Option<Values<'a>>,
}

impl<'a> Quantized<'a> {
    /// The matrix of these numbers. `name` and `place`, its file, are what messages call it. There are
    /// as many scales as outputs, and factors of the balance as inputs.
    ///
    /// # Errors
    /// `CorruptModel` for a number, scale or factor that the layout does not have.
    pub(in crate::model) fn new(
        (place, name): (&str, &str),
        bytes: Piece<'a>,
        scales: Values<'a>,
        balance: Option<Values<'a>>,
    ) -> Result<Self> {
        let numbers: &[i8] = bytemuck::cast_slice(&bytes);
        let corrupt = |what: String| Error::corrupt(format!("{place}: tensor {what}"));
        if numbers.contains(&i8::MIN)
            && let Some(at) = numbers.iter().position(|number| *number == i8::MIN)
        {
            return Err(corrupt(format!(
                "{name} has {} at value {at}; numbers are from -{LARGEST} to {LARGEST}",
                i8::MIN
            )));
        }
        // No weight may overflow; also false for NaN.
        let sound = |scale: &f32| {
            *scale > 0.0 && (*scale * f32::from(LARGEST) * LARGEST_BALANCE).is_finite()
        };
        if let Some(at) = scales.iter().position(|scale| !sound(scale)) {
            return Err(corrupt(format!(
                "{} has {} at value {at}; a scale is positive, and small enough for every weight \
                 to be finite",
                scale_of(name),
                scales[at]
            )));
        }
        let range = 1.0 / LARGEST_BALANCE..=LARGEST_BALANCE;
        let sound = |factor: &f32| range.contains(factor) && factor.to_bits() & 0x7f_ffff == 0;
        if let Some(balance) = &balance
            && let Some(at) = balance.iter().position(|factor| !sound(factor))
        {
            return Err(corrupt(format!(
                "{} has {} at value {at}; factors are powers of two from 1/256 to 256",
                balance_of(name),
                balance[at]
            )));
        }
        Ok(Quantized {
            numbers: bytes,
            scales,
            balance,
        })
    }

    /// Numbers and scales as the kernels take them.
    pub fn parts(&self) -> kernels::Quantized<'_> {
        kernels::Quantized {
            numbers: self.numbers(),
            scales: &self.scales,
        }
    }

    /// Factors, one an input, that whatever is multiplied by the matrix has to be multiplied by first.
    pub fn balance(&self) -> Option<&[f32]> {
        self.balance.as_deref()
    }

    /// The weights, `[outputs][inputs]`, all of them finite.
    ///
    /// # Errors
    /// `OutOfMemory` when the system refuses their memory.
    pub fn weights(&self) -> Result<Vec<f32>> {
        let numbers = self.numbers();
        let inputs = numbers.len() / self.scales.len();
        let mut weights: Vec<f32> = with_room(numbers.len(), "a model's weights")?;
        for (row, scale) in numbers.chunks_exact(inputs).zip(&*self.scales) {
            let row = row.iter().map(|number| f32::from(*number) * scale);
            match &self.balance {
                Some(balance) => weights.extend(row.zip(&**balance).map(|(x, factor)| x * factor)),
                None => weights.extend(row),
            }
        }
        Ok(weights)
    }

    fn numbers(&self) -> &[i8] {
        bytemuck::cast_slice(&self.numbers)
    }
}
