//! Writes a made-up model, for tests in other languages: of one layer, or with `small` of two that take
//! texts of up to 512 tokens.
//!
//! ```text
//! cargo run -p uform --example tiny_model -- FOLDER [small]
//! ```

use std::{env, io, path::Path};

#[allow(dead_code)]
#[path = "../tests/common/tiny.rs"]
mod tiny;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (folder, model) = match arguments[..] {
        [folder] => (folder, tiny::Tiny::new()),
        [folder, "small"] => (folder, tiny::Tiny::of(tiny::SMALL)),
        _ => return Err(io::Error::other("expected the folder to write to")),
    };
    model.write(Path::new(folder))
}
