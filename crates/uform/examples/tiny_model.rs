//! Writes a made-up model of one layer, for tests in other languages:
//!
//! ```text
//! cargo run -p uform --example tiny_model -- FOLDER
//! ```

use std::{env, io, path::Path};

#[allow(dead_code)]
#[path = "../tests/common/tiny.rs"]
mod tiny;

fn main() -> io::Result<()> {
    match env::args().nth(1) {
        Some(folder) => tiny::Tiny::new().write(Path::new(&folder)),
        None => Err(io::Error::other("expected the folder to write to")),
    }
}
