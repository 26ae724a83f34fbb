//! The WebAssembly modules and the JavaScript that calls them, into `dist/web/`.
//!
//! The same crate is compiled for several sets of features with one profile. Addresses of 64 bits are a
//! target without a standard library of its own, which is compiled along, in a target folder of
//! its own: what a compiler is told for it would have it compile the others anew, by turns.
//! wasm-bindgen then writes the JavaScript half, as a library: its command line takes minutes to install.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use wasm_bindgen_cli_support::Bindgen;

use crate::command::{cargo, run};
use crate::toolchain::{rust_source, rust_target};
use crate::{Result, root};

/// One module.
struct Module {
    /// What the file is called, and what `ts/modules.ts` calls it.
    name: &'static str,
    target: &'static str,
    features: &'static str,
}

const MODULES: [Module; 3] = [
    Module {
        name: "wasm32",
        target: TARGET,
        features: "+simd128",
    },
    Module {
        name: "wasm32-relaxed",
        target: TARGET,
        features: "+simd128,+relaxed-simd",
    },
    Module {
        name: "wasm64",
        target: WIDE_TARGET,
        features: "+simd128,+relaxed-simd",
    },
];

pub const TARGET: &str = "wasm32-unknown-unknown";

/// Of 64-bit addresses. Rust has no standard library compiled for it.
const WIDE_TARGET: &str = "wasm64-unknown-unknown";

/// Instructions in the order of the source, which engines keep: the kernels' is made for 15 registers. By
/// its own mind the compiler would hold more numbers at a time. Measured: a sixth of speed.
const IN_ORDER: &str = "-C llvm-args=-pre-RA-sched=source";

/// Our own crates that a module is made of.
const OWN: [&str; 3] = ["uform", "uform-kernels", "uform-wasm"];

/// The most bytes of a module and its JavaScript half, gzipped.
const MOST_PACKED: usize = 600_000;

/// Sees to what the modules are compiled with besides a compiler.
pub fn prepare() -> Result {
    rust_target(TARGET)?;
    rust_source()
}

/// The modules of these names; all of them when there are none.
pub fn make(names: &[String]) -> Result {
    if let Some(unknown) = names
        .iter()
        .find(|name| MODULES.iter().all(|module| module.name != **name))
    {
        return Err(format!("there is no module called {unknown}"));
    }
    let folder = root().join("dist/web");
    fs::create_dir_all(&folder).map_err(|error| cannot("make", &folder, error))?;
    prepare()?;
    let wanted =
        |module: &&Module| names.is_empty() || names.iter().any(|name| name == module.name);
    for module in MODULES.iter().filter(wanted) {
        module.bind(&module.compile()?, &folder)?;
    }
    Ok(())
}

impl Module {
    fn compile(&self) -> Result<PathBuf> {
        // A folder each: in one, what is compiled for the one module would be out of date for the next.
        let folder = crate::target()?.join(self.name);
        let mut command = cargo();
        command
            .args(["build", "--package", "uform-wasm", "--profile", "wasm"])
            .args(["--target", self.target, "--target-dir"])
            .arg(&folder);
        match self.target {
            WIDE_TARGET => self.wide(&mut command),
            _ => self.plain(&mut command),
        }
        run(&mut command)?;
        Ok(folder.join(self.target).join("wasm/uform_wasm.wasm"))
    }

    fn plain(&self, command: &mut Command) {
        let features = self.features;
        // Instead of those in `.cargo/config.toml`.
        let flags =
            format!("{IN_ORDER} -C target-feature={features} --cfg getrandom_backend=\"wasm_js\"");
        command.env("RUSTFLAGS", flags);
    }

    /// The standard library is compiled along, which a stable compiler does when it is told that it
    /// bootstraps. The features are for our own crates: of the others one looks for its instructions
    /// where only addresses of 32 bits have them.
    fn wide(&self, command: &mut Command) {
        command
            .args(["-Z", "build-std=std,panic_abort", "-Z", "profile-rustflags"])
            .env("RUSTC_BOOTSTRAP", "1")
            .env(
                "RUSTFLAGS",
                format!("{IN_ORDER} --cfg getrandom_backend=\"custom\""),
            );
        let features = self.features;
        for package in OWN {
            let flags = format!("rustflags = [\"-Ctarget-feature={features}\"]");
            command
                .arg("--config")
                .arg(format!("profile.wasm.package.{package}.{flags}"));
        }
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
        fs::rename(&written, &module).map_err(|error| cannot("move", &written, error))?;
        let script = glue.join(format!("{}.js", self.name));
        fetch_nothing(&script)?;
        self.tell_size(&module, &script)
    }

    /// What a page downloads, beside the package's own JavaScript.
    fn tell_size(&self, module: &Path, glue: &Path) -> Result {
        let (mut raw, mut packed) = (0, 0);
        for file in [module, glue] {
            let bytes = fs::read(file).map_err(|error| cannot("read", file, error))?;
            raw += bytes.len();
            packed += gzipped(&bytes).map_err(|error| cannot("compress", file, error))?;
        }
        eprintln!(
            "{}: {} KB, {} KB gzipped",
            self.name,
            raw.div_ceil(1000),
            packed.div_ceil(1000)
        );
        if packed > MOST_PACKED {
            return Err(format!(
                "{} has {packed} bytes gzipped, more than the {MOST_PACKED} a page should download",
                self.name
            ));
        }
        Ok(())
    }
}

/// Has the JavaScript half look first whether it was given a compiled module, as it always is: only then does
/// it not ask for `Request` and `Response`, by which Node.js would load all of fetch, for longer than the
/// module takes to compile.
fn fetch_nothing(script: &Path) -> Result {
    let mut text = fs::read_to_string(script).map_err(|error| cannot("read", script, error))?;
    for (name, class) in [("module_or_path", "Request"), ("module", "Response")] {
        let asks = format!("typeof {class} === 'function' && {name} instanceof {class}");
        if text.matches(&asks).count() != 1 {
            return Err(format!(
                "{}: wasm-bindgen no longer asks once for `{asks}`",
                script.display()
            ));
        }
        let first = format!("!({name} instanceof WebAssembly.Module) && {asks}");
        text = text.replace(&asks, &first);
    }
    fs::write(script, text).map_err(|error| cannot("write", script, error))
}

/// How many bytes are left of these by gzip, as servers use it.
fn gzipped(bytes: &[u8]) -> std::io::Result<usize> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(9));
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?.len())
}

fn cannot(what: &str, path: &Path, error: std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}
