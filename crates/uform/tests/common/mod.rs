//! What several of the engine's tests share; each uses a part of it.

#![allow(dead_code)]

pub mod tiny;
