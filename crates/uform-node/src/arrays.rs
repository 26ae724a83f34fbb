//! Vectors of numbers as typed arrays.
//!
//! A long one becomes the array's memory as it is. A short one is copied: that
//! costs less than the bookkeeping of foreign memory. Hosts that refuse
//! foreign memory, as Electron does, get a copy of a long one too.

use napi::{Error, Status, check_status, sys};
use std::{cell::Cell, ffi::c_void, mem::size_of_val, ptr, rc::Rc};

/// Below this many bytes copying beats handing over.
const COPIED_BELOW: usize = 16 << 10;

/// A number some typed array holds.
pub trait Element: Copy + 'static {
    /// Node-API's name of that typed array.
    const ARRAY: sys::napi_typedarray_type;
}

impl Element for f32 {
    const ARRAY: sys::napi_typedarray_type = sys::TypedarrayType::float32_array;
}
impl Element for u32 {
    const ARRAY: sys::napi_typedarray_type = sys::TypedarrayType::uint32_array;
}
impl Element for u8 {
    const ARRAY: sys::napi_typedarray_type = sys::TypedarrayType::uint8_array;
}

/// The numbers as a typed array, on the JS thread of `env`.
pub fn typed_array<T: Element>(
    env: sys::napi_env,
    numbers: Vec<T>,
) -> napi::Result<sys::napi_value> {
    let length = numbers.len();
    let buffer = if size_of_val(numbers.as_slice()) < COPIED_BELOW {
        copied(env, &numbers)?
    } else {
        handed_over(env, numbers)?
    };
    let mut array = ptr::null_mut();
    // SAFETY: `buffer` is an array buffer of this scope that holds `length` elements.
    check_status!(unsafe {
        sys::napi_create_typedarray(env, T::ARRAY, length, buffer, 0, &mut array)
    })?;
    Ok(array)
}

fn copied<T: Element>(env: sys::napi_env, numbers: &[T]) -> napi::Result<sys::napi_value> {
    let bytes = size_of_val(numbers);
    let (mut memory, mut buffer) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: both out-parameters live until the call returns.
    check_status!(unsafe { sys::napi_create_arraybuffer(env, bytes, &mut memory, &mut buffer) })?;
    if bytes > 0 {
        // SAFETY: the new buffer holds `bytes` bytes and nothing else knows it yet.
        unsafe { ptr::copy_nonoverlapping(numbers.as_ptr().cast(), memory.cast::<u8>(), bytes) };
    }
    Ok(buffer)
}

fn handed_over<T: Element>(
    env: sys::napi_env,
    mut numbers: Vec<T>,
) -> napi::Result<sys::napi_value> {
    let bytes = size_of_val(numbers.as_slice());
    let memory = numbers.as_mut_ptr().cast::<c_void>();
    let owner: Owner<T> = Rc::new(Cell::new(Some(numbers)));
    let given = Rc::into_raw(Rc::clone(&owner));
    let mut buffer = ptr::null_mut();
    // SAFETY: `owner` keeps the memory until `release` frees it, which Node calls once, on this
    // thread, when the buffer is collected or its environment ends.
    let status = unsafe {
        sys::napi_create_external_arraybuffer(
            env,
            memory,
            bytes,
            Some(release::<T>),
            given.cast_mut().cast(),
            &mut buffer,
        )
    };
    if status == sys::Status::napi_ok {
        return Ok(buffer);
    }
    // A call that failed may have called `release`, as Node 20 does for more than 4 GiB, may call it later, or
    // never. So the memory is freed here unless it was there, and `given` is left to it.
    let numbers = owner.take();
    if status == sys::Status::napi_no_external_buffers_allowed
        && let Some(numbers) = numbers
    {
        return copied(env, &numbers);
    }
    // What Node has thrown would end the process instead of the call.
    let mut thrown = ptr::null_mut();
    // SAFETY: `env` is entered, and the out-parameter lives until the call returns.
    unsafe { sys::napi_get_and_clear_last_exception(env, &mut thrown) };
    Err(Error::new(
        Status::from(status),
        format!("Node.js took no array of {bytes} bytes; encode fewer texts at a time"),
    ))
}

/// The memory of an array buffer, until it is freed.
type Owner<T> = Rc<Cell<Option<Vec<T>>>>;

unsafe extern "C" fn release<T>(_: sys::napi_env, _: *mut c_void, owner: *mut c_void) {
    // SAFETY: `owner` is the count of an `Owner` that `handed_over` gave away with this function.
    drop(unsafe { Rc::from_raw(owner.cast::<Cell<Option<Vec<T>>>>()) }.take());
}
