//! Random bytes on wasm64, where `getrandom` knows of no JavaScript. Version 0.4 of it asks for the
//! same function.

use getrandom::Error;
use js_sys::Uint8Array;
use std::slice;
use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = crypto, js_name = getRandomValues)]
    fn get_random_values(into: &Uint8Array);
}

/// Fills `length` bytes at `place`.
///
/// # Safety
/// The bytes are the caller's to write.
#[unsafe(no_mangle)]
unsafe extern "Rust" fn __getrandom_v03_custom(place: *mut u8, length: usize) -> Result<(), Error> {
    // SAFETY: the bytes are the caller's to write, and get their first values here.
    let bytes = unsafe {
        place.write_bytes(0, length);
        slice::from_raw_parts_mut(place, length)
    };
    // More at once is refused.
    for part in bytes.chunks_mut(1 << 16) {
        let random = Uint8Array::new_with_length(part.len() as u32);
        get_random_values(&random);
        random.copy_to(part);
    }
    Ok(())
}
