//! Processes that train one model together: how they find each other, or fail together.
//!
//! (story to be written)

mod checks;
mod folder;
mod member;
mod process;
mod protocol;
mod record;
pub mod rendezvous;
mod view;

pub use member::{Member, MemberDevice, Nonce};
pub use process::Process;

#[cfg(test)]
mod model;
