//! The engine of `uform`: text in, vectors out, on threads the caller placed.
//!
//! Two ideas carry it. An [`Executor`](executor::Executor) *runs*: it owns
//! threads and the activation scratch, and knows in which order calls reach
//! them. A [`Model`](model::Model) *owns*: weights, tokenizer and settings, read
//! once from its files and never changed. Every verb takes one of each.
//!
//! From the ground up, where nothing reaches upwards:
//!
//! | floor | what it answers |
//! | --- | --- |
//! | [`error`], [`quoted`], [`memory`] | every way a call can end, in few words; vectors whose memory may be refused |
//! | `device` | a GPU vendor's driver behind one trait, found when asked for |
//! | [`hardware`] | what this machine is, and which class of kernels it runs |
//! | [`placement`] | where the caller wants threads and bytes |
//! | [`kernels`] | arithmetic on slices, one table of functions a CPU class; a crate of its own |
//! | [`executor`] | who runs, and who is next |
//! | [`model`] | files to weights, texts to vectors |
//! | `mesh` | processes that find each other, or fail together |
//!
//! Threads, files and devices sit behind the `native` feature; everything
//! else also compiles for WebAssembly.

#[cfg(feature = "native")]
pub mod device;
pub mod executor;
pub mod hardware;
#[cfg(feature = "native")]
pub mod mesh;
pub mod model;
pub mod placement;

pub use uform_kernels::error::{Error, Result, Status};
pub use uform_kernels::{self as kernels, error, memory, quoted};
