//! What `config.json` says of an encoder.

pub mod bert;
