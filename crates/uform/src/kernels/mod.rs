//! Arithmetic on slices: the dense layers, attention and norms of a transformer.
//!
//! One file a CPU class, one table of functions chosen once. [`Kernels::of`]
//! walks the class's fall-to chain to the nearest class with code of its own; the
//! `serial` file is plain Rust and the yardstick the others are compared with.
//!
//! Every operation works on a *ragged batch*: rows are the tokens of all texts
//! laid end to end. A row is computed by the same instructions in the same order
//! whatever else is in the batch and however the work is split over lanes: a
//! dot product is one chain of fused multiply-adds over ascending `k`, so that the
//! tile it falls in cannot change it.

pub mod fork_join;

pub use fork_join::{ForkJoin, Solo};
