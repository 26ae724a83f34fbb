//! A model's files on their way into the module's memory.

use crate::errors::{Result, refusal, thrown};
use js_sys::{Function, Uint8Array};
use std::cell::RefCell;
use std::sync::Arc;
use uform::model::{
    files::{Memory, blob::Reader},
    load::wanted::wanted,
};
use uform::{Error, Status};
use wasm_bindgen::JsCast;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

/// The files' handle in JavaScript.
#[wasm_bindgen]
pub struct CompiledFiles(pub(crate) RefCell<Memory>);

/// No files yet, of a model at `place`, a URL or path that ends with `/`, or the path of its weights; `""`: it has
/// none. `names`: what lies there, as far as that is known.
#[wasm_bindgen(js_name = filesCreate)]
pub fn files_create(place: &str, names: Vec<String>) -> CompiledFiles {
    CompiledFiles(RefCell::new(Memory::of(place, names)))
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

/// Takes a file of `size` bytes that stays elsewhere, such as in JavaScript's memory, which is given back: the
/// module's only grows. `read(at, most)` returns the bytes from `at` on as a `Uint8Array`, one at least and at most so
/// many, or throws an error of ours.
#[wasm_bindgen(js_name = filesLend)]
pub fn files_lend(files: &CompiledFiles, name: &str, size: f64, read: Function) {
    let lent = Lent {
        name: name.to_owned(),
        size: size as u64,
        read,
    };
    files.0.borrow_mut().lend(name, Arc::new(lent));
}

/// A file in JavaScript's memory.
struct Lent {
    name: String,
    size: u64,
    read: Function,
}

// SAFETY: the module has one thread.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Reader for Lent {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, mut at: u64, mut into: &mut [u8]) -> uform::Result<()> {
        while !into.is_empty() {
            let (from, most) = ((at as f64).into(), (into.len() as f64).into());
            let bytes = self.read.call2(&JsValue::UNDEFINED, &from, &most);
            let bytes = bytes.map_err(thrown)?.dyn_into::<Uint8Array>().ok();
            let bytes = bytes.filter(|bytes| (1..=into.len()).contains(&(bytes.length() as usize)));
            let Some(bytes) = bytes else {
                let message = format!(
                    "{}: its bytes from {at} on are not there any more",
                    self.name
                );
                return Err(Error::new(Status::Io, message));
            };
            let (part, rest) = into.split_at_mut(bytes.length() as usize);
            bytes.copy_to(part);
            at += part.len() as u64;
            into = rest;
        }
        Ok(())
    }
}
