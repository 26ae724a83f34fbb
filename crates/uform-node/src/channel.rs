//! How the outcome of a deferred call travels from an engine thread back to the
//! JS thread that waits for it.
//!
//! There is one channel an environment, around one thread-safe function that is
//! created when the addon is loaded. It is closed before anything the environment owns goes away;
//! what is posted later is dropped. Node's own rules make this necessary:
//! it deletes a thread-safe function during the teardown of its environment,
//! even if its pointer is still held.

use crate::{environment::Environment, errors::refusal, outcome::Outcome};
use napi::{JsError, check_status, sys};
use std::{
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
};
use uform::{Error, Status};

/// The way from any thread to one environment's JS thread.
pub struct Channel {
    /// `None` once closed. Read by all who use it, so that a JS thread that wakes to an outcome never
    /// waits for the thread that woke it.
    function: RwLock<Option<ThreadsafeFunction>>,
}

#[derive(Clone, Copy)]
struct ThreadsafeFunction(sys::napi_threadsafe_function);

// SAFETY: Node-API allows calling a thread-safe function from any thread while it
// lives, which `Channel` sees to; the other functions are called on the JS thread.
unsafe impl Send for ThreadsafeFunction {}
// SAFETY: as above, from several threads at once.
unsafe impl Sync for ThreadsafeFunction {}

impl Channel {
    /// A channel into `env`, on its JS thread. It does not keep the process alive by itself.
    pub fn open(env: sys::napi_env) -> napi::Result<Arc<Channel>> {
        const NAME: &str = "uform";
        let (mut name, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: `env` is entered, `NAME` has the given length, and `deliver`
        // needs neither a function nor a context.
        unsafe {
            check_status!(sys::napi_create_string_utf8(
                env,
                NAME.as_ptr().cast(),
                NAME.len() as isize,
                &mut name
            ))?;
            check_status!(sys::napi_create_threadsafe_function(
                env,
                ptr::null_mut(),
                ptr::null_mut(),
                name,
                0,
                1,
                ptr::null_mut(),
                None,
                ptr::null_mut(),
                Some(deliver),
                &mut function
            ))?;
            check_status!(sys::napi_unref_threadsafe_function(env, function))?;
        }
        Ok(Arc::new(Channel {
            function: RwLock::new(Some(ThreadsafeFunction(function))),
        }))
    }

    /// Nothing is posted after this returns.
    pub fn close(&self) {
        let function = self.function.write();
        *function.unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether the event loop waits for this channel. JS thread only.
    pub fn keep_alive(&self, env: sys::napi_env, alive: bool) {
        if let Some(function) = *self.function() {
            // SAFETY: the channel is open, so the function lives; `env` is its environment.
            // Neither call fails for a live function.
            unsafe {
                if alive {
                    sys::napi_ref_threadsafe_function(env, function.0);
                } else {
                    sys::napi_unref_threadsafe_function(env, function.0);
                }
            }
        }
    }

    fn post(&self, delivery: Delivery) {
        // Held across the call: closing waits for it.
        let function = self.function();
        let Some(open) = *function else { return };
        let delivery = Box::into_raw(Box::new(delivery));
        // SAFETY: the channel is open, so the function lives.
        let status = unsafe {
            sys::napi_call_threadsafe_function(
                open.0,
                delivery.cast(),
                sys::ThreadsafeFunctionCallMode::nonblocking,
            )
        };
        if status != sys::Status::napi_ok {
            // SAFETY: what was not queued still belongs to us.
            drop(unsafe { Box::from_raw(delivery) });
        }
    }

    fn function(&self) -> RwLockReadGuard<'_, Option<ThreadsafeFunction>> {
        self.function.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A JavaScript function `settle(error, value)`, kept until it was called.
struct Settle(sys::napi_ref);

// SAFETY: other threads only carry the reference; it is used on the JS thread alone.
unsafe impl Send for Settle {}

struct Delivery {
    settle: Settle,
    outcome: uform::Result<Outcome>,
}

/// The obligation to settle one deferred call, whatever happens to it.
pub struct Ticket {
    channel: Arc<Channel>,
    settle: Option<Settle>,
}

impl Ticket {
    /// A ticket for `settle`, a JavaScript function. JS thread only.
    pub fn issue(
        channel: &Arc<Channel>,
        env: sys::napi_env,
        settle: sys::napi_value,
    ) -> napi::Result<Ticket> {
        let mut reference = ptr::null_mut();
        // SAFETY: `settle` is a value of the current scope.
        check_status!(unsafe { sys::napi_create_reference(env, settle, 1, &mut reference) })?;
        Ok(Ticket {
            channel: Arc::clone(channel),
            settle: Some(Settle(reference)),
        })
    }

    /// Sends the outcome home. Any thread.
    pub fn settle(mut self, outcome: uform::Result<Outcome>) {
        if let Some(settle) = self.settle.take() {
            self.channel.post(Delivery { settle, outcome });
        }
    }
}

impl Drop for Ticket {
    /// A call that ends without an outcome, by a panic, must not leave its promise pending.
    fn drop(&mut self) {
        if let Some(settle) = self.settle.take() {
            let outcome = Err(Error::new(
                Status::Internal,
                "the call ended without an outcome; this is a defect of uform",
            ));
            self.channel.post(Delivery { settle, outcome });
        }
    }
}

/// Runs on the JS thread, once for every delivery. Without an environment, which is
/// how Node empties the queue during teardown, it only frees.
unsafe extern "C" fn deliver(
    env: sys::napi_env,
    _function: sys::napi_value,
    _context: *mut c_void,
    delivery: *mut c_void,
) {
    // SAFETY: `post` queued this box, and Node hands each out once.
    let delivery = unsafe { Box::from_raw(delivery.cast::<Delivery>()) };
    if env.is_null() {
        return;
    }
    // A panic may not cross into Node; no caller is left to report it to.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if let Ok(environment) = Environment::of(env) {
            environment.settled();
        }
        // SAFETY: Node calls this on the JS thread within a handle scope.
        unsafe { call_back(env, *delivery) };
    }));
}

/// Calls `settle(error, value)`. What fails here does so because the
/// environment is ending and runs no more JavaScript, so statuses are ignored.
///
/// # Safety
/// On the JS thread of `env`, within a handle scope.
unsafe fn call_back(env: sys::napi_env, delivery: Delivery) {
    let (mut settle, mut undefined) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the reference was made in this environment and is deleted here, once.
    unsafe {
        sys::napi_get_undefined(env, &mut undefined);
        sys::napi_get_reference_value(env, delivery.settle.0, &mut settle);
        sys::napi_delete_reference(env, delivery.settle.0);
    }
    let value = delivery
        .outcome
        .map_err(refusal)
        .and_then(|outcome| outcome.into_value(env).map_err(crate::errors::internal));
    let arguments = match value {
        Ok(value) => [undefined, value],
        // SAFETY: `env` is entered.
        Err(error) => [unsafe { JsError::from(error).into_value(env) }, undefined],
    };
    if settle.is_null() || arguments.contains(&ptr::null_mut()) {
        return;
    }
    // SAFETY: all values are of this scope.
    unsafe {
        sys::napi_call_function(
            env,
            undefined,
            settle,
            2,
            arguments.as_ptr(),
            ptr::null_mut(),
        );
    }
}
