//! Functions of the host's that a stream calls.

use std::ffi::c_void;

use super::{Answer, INVALID_VALUE, Machine};

/// What is called, with what it is told.
pub type HostFunction = unsafe extern "C" fn(*mut c_void);

impl Machine {
    /// Sends a call to a stream.
    ///
    /// # Safety
    /// The function may be called with this, on another thread, until the stream has done it.
    pub unsafe fn call(
        &self,
        stream: usize,
        function: Option<HostFunction>,
        told: *mut c_void,
    ) -> Answer<()> {
        let function = function.ok_or(INVALID_VALUE)?;
        let told = told as usize;
        self.stream(stream)?.submit(move |_| {
            // SAFETY: asked of the caller.
            unsafe { function(told as *mut c_void) };
        });
        Ok(())
    }
}
