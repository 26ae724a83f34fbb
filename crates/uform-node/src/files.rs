//! A model's files that are brought one by one, on their way into the engine's memory.

use crate::errors::{Result, refusal};
use napi::bindgen_prelude::{External, Uint8Array};
use napi_derive::napi;
use std::cell::RefCell;
use uform::model::{files::Memory, load::wanted::wanted};

/// The files' handle in JavaScript.
pub type CompiledFiles = External<RefCell<Memory>>;

/// No files yet, of a model at `place`, a URL that ends with `/`; `""`: it has none. `names`: what lies there, as
/// far as that is known.
#[napi(catch_unwind)]
pub fn files_create(place: String, names: Vec<String>) -> CompiledFiles {
    External::new(RefCell::new(Memory::of(&place, names)))
}

/// The names of files to bring next; none: the model can be opened, or cannot be helped.
#[napi(catch_unwind)]
pub fn files_wanted(files: &CompiledFiles) -> Vec<String> {
    wanted(&files.borrow())
}

/// Says that there is no such file.
#[napi(catch_unwind)]
pub fn files_absent(files: &CompiledFiles, name: String) {
    files.borrow_mut().absent(&name);
}

/// Makes room for `size` bytes of a file that is yet to come.
#[napi(catch_unwind)]
pub fn files_begin(files: &CompiledFiles, name: String, size: f64) -> Result<()> {
    let mut files = files.borrow_mut();
    files.begin(&name, size as usize).map_err(refusal)
}

/// Appends bytes to a file that was begun.
#[napi(catch_unwind)]
pub fn files_append(files: &CompiledFiles, name: String, bytes: Uint8Array) -> Result<()> {
    let mut files = files.borrow_mut();
    let room = files.append(&name, bytes.len()).map_err(refusal)?;
    room.copy_from_slice(&bytes);
    Ok(())
}
