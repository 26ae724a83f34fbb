//! What a call brings back, as JavaScript values.

use crate::{
    arrays::typed_array, embeddings, environment::Environment, mesh::MeshHandle,
    model::ModelHandle, quantize::QuantizedModel,
};
use napi::{
    bindgen_prelude::{External, ToNapiValue, TypeName},
    check_status, sys,
};
use std::{ffi::CStr, ptr};
use uform::mesh::Mesh;
use uform::model::{DeviceEmbeddings, Embeddings, Model, quantize::Quantization};

/// What a call brings back.
pub enum Outcome {
    /// Nothing but that it ended.
    Done,
    /// A model that was opened.
    Model(Model),
    /// A run that was joined.
    Mesh(Mesh),
    /// A model that was written.
    Quantization(Quantization),
    /// Vectors.
    Embeddings(Embeddings),
    /// Vectors that stay where devices computed them.
    DeviceEmbeddings(DeviceEmbeddings),
}

impl Outcome {
    /// The outcome as a value of the current scope, on the JS thread.
    pub fn into_value(self, env: sys::napi_env) -> napi::Result<sys::napi_value> {
        match self {
            // SAFETY: `env` is entered.
            Outcome::Done => unsafe { ToNapiValue::to_napi_value(env, ()) },
            Outcome::Model(model) => {
                let handle = ModelHandle::new(model, Environment::of(env)?);
                // SAFETY: `env` is entered.
                unsafe { ToNapiValue::to_napi_value(env, External::new(handle)) }
            }
            Outcome::Mesh(mesh) => {
                let handle = MeshHandle::new(mesh, Environment::of(env)?);
                // SAFETY: `env` is entered.
                unsafe { ToNapiValue::to_napi_value(env, External::new(handle)) }
            }
            // SAFETY: `env` is entered.
            Outcome::Quantization(found) => unsafe {
                ToNapiValue::to_napi_value(env, QuantizedModel::from(found))
            },
            Outcome::Embeddings(embeddings) => embeddings_value(env, embeddings),
            Outcome::DeviceEmbeddings(found) => embeddings::value(env, found),
        }
    }
}

/// Vectors as `[dimensions, data, tokens, truncated]`.
fn embeddings_value(env: sys::napi_env, found: Embeddings) -> napi::Result<sys::napi_value> {
    // SAFETY: `env` is entered.
    let dimensions = unsafe { ToNapiValue::to_napi_value(env, found.dimensions as f64)? };
    let parts = [
        dimensions,
        typed_array(env, found.data)?,
        typed_array(env, found.tokens)?,
        typed_array(env, found.truncated)?,
    ];
    array(env, &parts)
}

/// An array of these values, all of the current scope.
pub fn array(env: sys::napi_env, values: &[sys::napi_value]) -> napi::Result<sys::napi_value> {
    let mut array = ptr::null_mut();
    // SAFETY: all values are of the current scope.
    unsafe {
        check_status!(sys::napi_create_array_with_length(
            env,
            values.len(),
            &mut array
        ))?;
        for (index, value) in (0..).zip(values) {
            check_status!(sys::napi_set_element(env, array, index, *value))?;
        }
    }
    Ok(array)
}

/// An object of these properties, all of the current scope.
pub fn object(
    env: sys::napi_env,
    properties: &[(&CStr, sys::napi_value)],
) -> napi::Result<sys::napi_value> {
    let mut object = ptr::null_mut();
    // SAFETY: all values are of the current scope, names end with a NUL.
    unsafe {
        check_status!(sys::napi_create_object(env, &mut object))?;
        for (name, value) in properties {
            check_status!(sys::napi_set_named_property(
                env,
                object,
                name.as_ptr(),
                *value
            ))?;
        }
    }
    Ok(object)
}

/// A value of the current scope, given back to JavaScript as it is.
pub struct Value(pub sys::napi_value);

impl ToNapiValue for Value {
    unsafe fn to_napi_value(_: sys::napi_env, value: Self) -> napi::Result<sys::napi_value> {
        Ok(value.0)
    }
}

impl TypeName for Value {
    fn type_name() -> &'static str {
        "Value"
    }

    fn value_type() -> napi::ValueType {
        napi::ValueType::Unknown
    }
}
