//! Takes a function out of the library, as if it had been built without it.
//!
//! When the library is loaded, before anybody can look for the function, its entry in the table of
//! symbols is made one of another library's: `dlsym` does not find those.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;

use crate::environment::faults;

/// Run by the loader.
#[used]
#[unsafe(link_section = ".init_array")]
static WHEN_LOADED: extern "C" fn() = when_loaded;

extern "C" fn when_loaded() {
    let faults = std::env::var("FAKE_CUDA_FAULT")
        .ok()
        .and_then(|value| faults(&value).ok());
    if let Some(symbol) = faults.and_then(|faults| faults.missing)
        && let Ok(symbol) = CString::new(symbol)
    {
        take_out(&symbol);
    }
}

/// An entry of the table (`elf.h`).
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// `RTLD_DL_SYMENT`.
const WITH_SYMBOL: c_int = 1;

unsafe extern "C" {
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
}

fn take_out(name: &CStr) {
    // SAFETY: the loader's own functions, on this very library, whose table they tell; a page of it is made
    // writable for this process alone.
    unsafe {
        let mut own: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(when_loaded as *const c_void, &mut own) == 0 {
            return;
        }
        let library = libc::dlopen(own.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        // In a test program the library is a part of that, which has no such functions.
        let function = match library.is_null() {
            true => return,
            false => libc::dlsym(library, name.as_ptr()),
        };
        let mut info: libc::Dl_info = std::mem::zeroed();
        let mut entry = ptr::null_mut();
        if function.is_null() || dladdr1(function, &mut info, &mut entry, WITH_SYMBOL) == 0 {
            return;
        }
        if info.dli_fbase != own.dli_fbase || entry.is_null() {
            return;
        }
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let start = entry as usize / page * page;
        let bytes = entry as usize + size_of::<Symbol>() - start;
        if libc::mprotect(
            start as *mut c_void,
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
        ) == 0
        {
            let entry = entry.cast::<Symbol>();
            (*entry).section = 0;
            (*entry).value = 0;
        }
    }
}
