//! The WebAssembly modules and the JavaScript that calls them, into `dist/web/`.
//!
//! The same crate is compiled for several sets of features, into one target folder and with one
//! profile, so that what is the same for all is compiled once. wasm-bindgen then writes the
//! JavaScript half, as a library: its command line takes minutes to install.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use wasm_bindgen_cli_support::Bindgen;

use crate::command::{cargo, in_checkout, run, works};
use crate::{Result, root, target};

/// One module.
struct Module {
    /// What the file is called, and what `ts/backend/module.ts` calls it.
    name: &'static str,
    target: &'static str,
    features: &'static str,
}

const MODULES: [Module; 3] = [
    Module {
        name: "wasm32",
        target: "wasm32-unknown-unknown",
        features: "+simd128",
    },
    Module {
        name: "wasm32-relaxed",
        target: "wasm32-unknown-unknown",
        features: "+simd128,+relaxed-simd",
    },
    Module {
        name: "wasm64",
        target: WASM64,
        features: "+simd128,+relaxed-simd",
    },
];

/// A target without a standard library of its own: it is compiled along.
const WASM64: &str = "wasm64-unknown-unknown";

/// All modules.
pub fn make() -> Result {
    let folder = root().join("dist/web");
    fs::create_dir_all(&folder).map_err(|error| cannot("make", &folder, error))?;
    for module in &MODULES {
        module.bind(&module.compile()?, &folder)?;
    }
    Ok(())
}

impl Module {
    fn compile(&self) -> Result<PathBuf> {
        let folder = target()?.join("wasm");
        let mut command = cargo();
        command
            .args(["build", "--package", "uform-wasm", "--profile", "wasm"])
            .args(["--target", self.target, "--target-dir"])
            .arg(&folder)
            // Instead of those in `.cargo/config.toml`.
            .env("RUSTFLAGS", self.flags());
        if self.target == WASM64 {
            with_standard_library(&mut command)?;
        } else if works(in_checkout("rustup").arg("--version")) {
            // Without rustup the toolchain may still have the target: cargo tells.
            run(in_checkout("rustup").args(["target", "add", self.target]))?;
        }
        run(&mut command)?;
        Ok(folder.join(self.target).join("wasm/uform_wasm.wasm"))
    }

    fn flags(&self) -> String {
        let random = match self.target {
            WASM64 => "custom",
            _ => "wasm_js",
        };
        let features = self.features;
        format!("-C target-feature={features} --cfg getrandom_backend=\"{random}\"")
    }

    /// Writes the JavaScript half into `glue/`, and the module beside that folder.
    fn bind(&self, compiled: &Path, folder: &Path) -> Result {
        let glue = folder.join("glue");
        let bound = Bindgen::new()
            .input_path(compiled)
            .out_name(self.name)
            .web(true)
            .and_then(|bindgen| {
                bindgen
                    .typescript(false)
                    .omit_default_module_path(true)
                    .remove_name_section(true)
                    .remove_producers_section(true)
                    .generate(&glue)
            });
        bound.map_err(|error| format!("wasm-bindgen: {error:#}"))?;
        let written = glue.join(format!("{}_bg.wasm", self.name));
        let module = folder.join(format!("{}.wasm", self.name));
        fs::rename(&written, &module).map_err(|error| cannot("move", &written, error))
    }
}

/// Lets cargo compile the standard library from its source, which stable compilers do when told
/// that they bootstrap.
fn with_standard_library(command: &mut Command) -> Result {
    run(in_checkout("rustup").args(["component", "add", "rust-src"]))?;
    command
        .args(["-Z", "build-std=std,panic_abort"])
        .env("RUSTC_BOOTSTRAP", "1");
    Ok(())
}

fn cannot(what: &str, path: &Path, error: std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}
