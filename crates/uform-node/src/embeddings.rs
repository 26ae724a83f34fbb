//! Vectors in the memory of GPUs as JavaScript sees them: where they are, and a handle that keeps them.

use crate::{
    arrays::typed_array,
    call::{CompiledCall, control},
    environment::{Account, Environment},
    errors::{Result, refusal},
    outcome::{Outcome, object},
};
use napi::{
    JsValue,
    bindgen_prelude::{BigInt, External, ToNapiValue, Unknown},
    sys,
};
use napi_derive::napi;
use std::cell::RefCell;
use uform::model::DeviceEmbeddings;
use uform::{Error, Status};

/// Vectors on devices and what the collector was told about them.
pub struct EmbeddingsHandle {
    embeddings: RefCell<Option<DeviceEmbeddings>>,
    account: Account,
}

impl EmbeddingsHandle {
    /// The vectors, unless they were freed.
    pub fn embeddings(&self) -> Result<DeviceEmbeddings> {
        let freed = || refusal(Error::new(Status::Freed, "the vectors were freed"));
        self.embeddings.borrow().clone().ok_or_else(freed)
    }
}

/// Their handle in JavaScript.
pub type CompiledVectors = External<EmbeddingsHandle>;

/// Where some rows are.
#[napi(object, object_from_js = false)]
pub struct DevicePart {
    pub device: u32,
    pub address: BigInt,
    pub rows: f64,
}

/// The vectors as a value of the current scope.
pub fn value(env: sys::napi_env, found: DeviceEmbeddings) -> napi::Result<sys::napi_value> {
    let parts = found.parts().into_iter();
    let parts: Vec<DevicePart> = parts
        .map(|part| DevicePart {
            device: part.device,
            address: BigInt::from(part.address),
            rows: part.rows as f64,
        })
        .collect();
    let account = Account::new(Environment::of(env)?);
    account.set(found.bytes());
    let (rows, dimensions) = (found.rows() as f64, found.dimensions() as f64);
    let (tokens, truncated) = (found.tokens().to_vec(), found.truncated().to_vec());
    let handle = EmbeddingsHandle {
        embeddings: RefCell::new(Some(found)),
        account,
    };
    // SAFETY: `env` is entered.
    let [rows, dimensions, parts, handle] = unsafe {
        [
            ToNapiValue::to_napi_value(env, rows)?,
            ToNapiValue::to_napi_value(env, dimensions)?,
            ToNapiValue::to_napi_value(env, parts)?,
            ToNapiValue::to_napi_value(env, External::new(handle))?,
        ]
    };
    let properties = [
        (c"rows", rows),
        (c"dimensions", dimensions),
        (c"parts", parts),
        (c"tokens", typed_array(env, tokens)?),
        (c"truncated", typed_array(env, truncated)?),
        (c"vectors", handle),
    ];
    object(env, &properties)
}

/// Copies the vectors to host memory, beside all other calls: `settle(error, embeddings)` is called when they are there.
#[napi(catch_unwind)]
pub fn vectors_to_host(
    vectors: &CompiledVectors,
    call: Option<&CompiledCall>,
    settle: Unknown<'_>,
) -> Result<()> {
    let embeddings = vectors.embeddings()?;
    let environment = vectors.account.environment();
    let copies = environment.copies()?;
    let ticket = environment.ticket(settle.raw())?;
    embeddings.to_host_deferred(copies, control(call), move |outcome| {
        ticket.settle(outcome.map(Outcome::Embeddings));
    });
    Ok(())
}

/// Gives the devices' memory back. Again: nothing.
#[napi(catch_unwind)]
pub fn vectors_free(vectors: &CompiledVectors) {
    drop(vectors.embeddings.take());
    vectors.account.set(0);
}
