//! A tensor in its new form: what is written in its place, and the bytes.

use half::f16;
use safetensors::Dtype;

use super::WeightFormat;
use crate::kernels;
use crate::memory::with_room;
use crate::model::checkpoint::quantized::{balance_of, scale_of};
use crate::model::checkpoint::weights::Weights;
use crate::model::ram::bert;
use crate::model::ram::dense::balanced;
use crate::{Error, Result};

/// A tensor to be written: its name, kind and shape.
pub(super) type Planned = (String, Dtype, Vec<usize>);

/// What memory is refused for, in an error's words.
const WHAT: &str = "a model's weights";

/// What is written in the place of a tensor.
pub(super) fn plan(name: &str, shape: &[usize], format: WeightFormat) -> Vec<Planned> {
    let of = |name: String, dtype, shape: &[usize]| (name, dtype, shape.to_vec());
    let name = name.to_owned();
    let [outputs, inputs] = shape else {
        return vec![of(name, Dtype::F32, shape)];
    };
    if format == WeightFormat::F16 {
        return vec![of(name, Dtype::F16, shape)];
    }
    let scale = of(scale_of(&name), Dtype::F32, &[*outputs]);
    let balance = bert::is_balanced(&name);
    let balance = balance.then(|| of(balance_of(&name), Dtype::F32, &[*inputs]));
    let numbers = of(name, Dtype::I8, shape);
    [numbers, scale].into_iter().chain(balance).collect()
}

/// The bytes of what is [planned](plan), in its order.
///
/// # Errors
/// What reading the tensor refuses; `Unsupported` for a weight that f16 cannot hold; `OutOfMemory`.
pub(super) fn make(
    weights: &Weights,
    name: &str,
    shape: &[usize],
    format: WeightFormat,
) -> Result<Vec<Vec<u8>>> {
    let values = weights.tensor(name, shape)?;
    match (shape, format) {
        ([_, inputs], WeightFormat::I8) if bert::is_balanced(name) => {
            let mut values = values.into_vec()?;
            let balance = balanced(&mut values, *inputs);
            let [numbers, scales] = quantize(&values, *inputs)?;
            Ok(vec![numbers, scales, bytes(&balance)?])
        }
        ([_, inputs], WeightFormat::I8) => Ok(quantize(&values, *inputs)?.into()),
        ([_, _], WeightFormat::F16) => Ok(vec![halves(name, &values)?]),
        _ => Ok(vec![bytes(&values)?]),
    }
}

/// Numbers and scales of a matrix, as kernels of i8 would make them.
fn quantize(values: &[f32], inputs: usize) -> Result<[Vec<u8>; 2]> {
    let outputs = values.len() / inputs;
    let mut numbers = with_room(values.len(), WHAT)?;
    numbers.resize(values.len(), 0i8);
    let mut scales = with_room(outputs, WHAT)?;
    let rows = values.chunks_exact(inputs);
    for (row, numbers) in rows.zip(numbers.chunks_exact_mut(inputs)) {
        scales.push(match kernels::quantize(row, numbers) {
            // Nothing but zeros: any scale is as good, and none that is stored is zero.
            0.0 => 1.0,
            scale => scale,
        });
    }
    Ok([bytemuck::cast_vec(numbers), bytes(&scales)?])
}

/// A matrix in half precision, to nearest even.
fn halves(name: &str, values: &[f32]) -> Result<Vec<u8>> {
    let mut bytes = with_room(2 * values.len(), WHAT)?;
    for (at, value) in values.iter().enumerate() {
        let half = f16::from_f32(*value);
        if !half.is_finite() {
            return Err(Error::unsupported(format!(
                "tensor {name} has {value} at value {at}, and f16 ends at {}; i8 has no such end",
                f16::MAX
            )));
        }
        bytes.extend_from_slice(&half.to_le_bytes());
    }
    Ok(bytes)
}

/// Numbers as they lie in memory: little-endian, as everywhere this compiles.
fn bytes(values: &[f32]) -> Result<Vec<u8>> {
    let mut bytes = with_room(size_of_val(values), WHAT)?;
    bytes.extend_from_slice(bytemuck::cast_slice(values));
    Ok(bytes)
}
