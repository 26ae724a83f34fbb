//! Processes that train one model together: how they find each other, or fail together.
//!
//! (story to be written)

mod checks;
pub mod collectives;
mod folder;
mod member;
mod process;
mod protocol;
mod record;
pub mod rendezvous;
pub mod tier;
mod view;

pub use member::{Member, MemberDevice, Nonce};
pub use process::Process;

#[cfg(test)]
mod model;
