//! What can be told of an instance that trapped.
//!
//! A panic ends in a trap, which says nothing but "unreachable", and so does memory that was
//! refused where Rust takes no refusal. Both are noted here before. Whatever trapped may have left anything
//! half-changed: `ts/backend/wasm.ts` asks once, and then calls nothing any more.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};

use wasm_bindgen::prelude::wasm_bindgen;

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The bytes that were refused last; zero: none.
static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// Runs when the module is instantiated.
#[wasm_bindgen(start)]
fn start() {
    panic::set_hook(Box::new(|info| {
        PANIC.with_borrow_mut(|panic| *panic = Some(info.to_string()));
    }));
}

/// The text of the panic that ended the instance, if it was one.
#[wasm_bindgen(js_name = failurePanic)]
pub fn failure_panic() -> Option<String> {
    PANIC.with_borrow(Clone::clone)
}

/// How many bytes were refused last; zero: none.
#[wasm_bindgen(js_name = failureRefused)]
pub fn failure_refused() -> f64 {
    REFUSED.load(Ordering::Relaxed) as f64
}

/// The standard library's allocator, which notes what it refuses.
struct Noting;

#[global_allocator]
static ALLOCATOR: Noting = Noting;

fn noted(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() {
        REFUSED.store(bytes, Ordering::Relaxed);
    }
    memory
}

// SAFETY: every function is that of `System`, whose results are passed on as they are.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those of `System`.
        noted(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        noted(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        noted(unsafe { System.realloc(memory, layout, bytes) }, bytes)
    }
}
