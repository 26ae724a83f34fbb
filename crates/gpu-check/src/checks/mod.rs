//! What every kernel gives, compared with the same sums in f64.
//!
//! A check says by how much the worst value is off, as a multiple of what it may be: up to one is
//! right. It must see mistakes, too: the tests plant some.

mod attention;
mod company;
mod dense;
mod rows;
mod texts;

use uform::Result;

use crate::gpu::Gpu;

/// What a check finds: by how much it is off, or why it could not tell.
pub type Found = Result<f64>;

/// A check.
pub type Check = fn(&Gpu) -> Found;

/// All of them, and what they are called.
pub const ALL: [(&str, Check); 7] = [
    ("rows", rows::rows),
    ("dense_f32", dense::dense_f32),
    ("dense_bf16", dense::dense_bf16),
    ("attend_f32", attention::attend_f32),
    ("attend_bf16", attention::attend_bf16),
    ("texts", texts::texts),
    ("company", company::company),
];
