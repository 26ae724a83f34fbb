//! A model's files on their way into the module's memory.

use crate::errors::{Result, refusal};
use js_sys::Uint8Array;
use std::cell::RefCell;
use uform::model::{files::Memory, wanted::wanted};
use wasm_bindgen::prelude::wasm_bindgen;

/// The files' handle in JavaScript.
#[wasm_bindgen]
pub struct CompiledFiles(pub(crate) RefCell<Memory>);

/// No files yet.
#[wasm_bindgen(js_name = filesCreate)]
pub fn files_create() -> CompiledFiles {
    CompiledFiles(RefCell::new(Memory::default()))
}

/// The names of files to bring next; none: the model can be opened, or cannot be helped.
#[wasm_bindgen(js_name = filesWanted)]
pub fn files_wanted(files: &CompiledFiles) -> Vec<String> {
    wanted(&files.0.borrow())
}

/// Says that there is no such file.
#[wasm_bindgen(js_name = filesAbsent)]
pub fn files_absent(files: &CompiledFiles, name: &str) {
    files.0.borrow_mut().absent(name);
}

/// Makes room for `size` bytes of a file that is yet to come.
#[wasm_bindgen(js_name = filesBegin)]
pub fn files_begin(files: &CompiledFiles, name: &str, size: f64) -> Result<()> {
    let mut files = files.0.borrow_mut();
    files.begin(name, size as usize).map_err(refusal)
}

/// Appends bytes to a file that was begun.
#[wasm_bindgen(js_name = filesAppend)]
pub fn files_append(files: &CompiledFiles, name: &str, bytes: &Uint8Array) -> Result<()> {
    let mut files = files.0.borrow_mut();
    let room = files
        .append(name, bytes.length() as usize)
        .map_err(refusal)?;
    bytes.copy_to(room);
    Ok(())
}
