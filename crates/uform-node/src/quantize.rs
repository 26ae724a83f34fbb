//! Models with smaller weights.

use crate::{
    call::{CompiledCall, control},
    errors::{Result, refusal},
    executor::CompiledExecutor,
    outcome::Outcome,
};
use napi::{JsValue, bindgen_prelude::Unknown};
use napi_derive::napi;
use uform::model::{
    Model,
    quantize::{Likeness, Quantization, WeightFormat},
};

/// What was written, beside what was read.
#[napi(object, object_from_js = false)]
pub struct QuantizedModel {
    pub bytes_before: f64,
    pub bytes_after: f64,
    pub likenesses: Vec<ModelLikeness>,
}

/// How near the new model's vectors are.
#[napi(object, object_from_js = false)]
pub struct ModelLikeness {
    pub precision: String,
    pub texts: f64,
    pub least: f64,
    pub mean: f64,
}

impl From<Quantization> for QuantizedModel {
    fn from(found: Quantization) -> Self {
        QuantizedModel {
            bytes_before: found.bytes_before as f64,
            bytes_after: found.bytes_after as f64,
            likenesses: found.likenesses.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Likeness> for ModelLikeness {
    fn from(found: Likeness) -> Self {
        ModelLikeness {
            precision: found.precision.word().to_owned(),
            texts: found.texts as f64,
            least: found.least,
            mean: found.mean,
        }
    }
}

/// Writes the model at a path to a folder that is new or empty, with its weights in another format,
/// without waiting: `settle(error, quantized)` is called when it is there.
#[napi(catch_unwind)]
pub fn model_quantize(
    from: String,
    into: String,
    weights: String,
    executor: &CompiledExecutor,
    call: Option<&CompiledCall>,
    settle: Unknown<'_>,
) -> Result<()> {
    let format = WeightFormat::parse(&weights).map_err(refusal)?;
    let ticket = executor.environment().ticket(settle.raw())?;
    let control = control(call);
    Model::quantize_deferred(
        from.into(),
        into.into(),
        format,
        &executor.executor,
        control,
        move |outcome| {
            ticket.settle(outcome.map(Outcome::Quantization));
        },
    );
    Ok(())
}
