//! What the devices of a run do together, and how.

pub mod collectives;
pub mod tier;
