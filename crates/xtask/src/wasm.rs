//! The WebAssembly modules and the JavaScript that calls them, into `dist/web/`.
//!
//! The same crate is compiled for several sets of features with one profile. What a set adds is for our own
//! crates, so that modules of one target share all others. Addresses of 64 bits are a target without a
//! standard library of its own, which is compiled along.
//! `crates/wasm-bind` then writes the JavaScript half.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use crate::command::{cargo, run};
use crate::toolchain::{rust_source, rust_target};
use crate::{Result, root};

/// One module.
struct Module {
    /// What the file is called, and what `ts/modules.ts` calls it.
    name: &'static str,
    target: &'static str,
    /// What our own crates are compiled with, beyond [`Module::everywhere`].
    features: &'static str,
}

const MODULES: [Module; 3] = [
    Module {
        name: "wasm32",
        target: TARGET,
        features: "",
    },
    Module {
        name: "wasm32-relaxed",
        target: TARGET,
        features: "+relaxed-simd",
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
    let (wide, plain): (Vec<_>, Vec<_>) = MODULES
        .iter()
        .filter(wanted)
        .partition(|module| module.target == WIDE_TARGET);
    let make = |modules: Vec<&Module>| {
        modules
            .into_iter()
            .try_for_each(|module| bind(module, &module.compile()?, &folder))
    };
    // Each ends in one long step on one core.
    thread::scope(|scope| {
        let wide = scope.spawn(|| make(wide));
        make(plain)?;
        wide.join()
            .unwrap_or_else(|_| Err("making a module panicked".into()))
    })
}

impl Module {
    fn compile(&self) -> Result<PathBuf> {
        // A folder for each target: cargo would wait for the other's.
        let folder = crate::target()?.join(self.target);
        let mut command = cargo();
        command
            .args(["build", "--package", "uform-wasm", "--profile", "wasm"])
            .args(["--target", self.target, "--target-dir"])
            .arg(&folder);
        // Flags for single packages are new to cargo: a stable one takes them when it is told that it
        // bootstraps.
        command
            .args(["-Z", "profile-rustflags"])
            .env("RUSTC_BOOTSTRAP", "1")
            // Instead of those in `.cargo/config.toml`.
            .env("RUSTFLAGS", format!("{IN_ORDER} {}", self.everywhere()));
        if self.target == WIDE_TARGET {
            command.args(["-Z", "build-std=std,panic_abort"]);
        }
        for package in OWN {
            let flags = format!("rustflags = [\"-Ctarget-feature={}\"]", self.features);
            command
                .arg("--config")
                .arg(format!("profile.wasm.package.{package}.{flags}"));
        }
        run(&mut command)?;
        Ok(folder.join(self.target).join("wasm/uform_wasm.wasm"))
    }

    /// What all crates are compiled with. With addresses of 64 bits no features: of the others' crates one
    /// looks for its instructions where only addresses of 32 bits have them.
    fn everywhere(&self) -> &'static str {
        match self.target {
            WIDE_TARGET => "--cfg getrandom_backend=\"custom\"",
            _ => "-C target-feature=+simd128 --cfg getrandom_backend=\"wasm_js\"",
        }
    }
}

/// Writes a module's JavaScript half into `glue/`, and the module beside that folder.
///
/// A program of its own does it: what it is made of takes a minute to compile, and most chores do without.
fn bind(module: &Module, compiled: &Path, folder: &Path) -> Result {
    run(cargo()
        .args(["run", "--quiet", "--package", "wasm-bind", "--"])
        .arg(compiled)
        .arg(folder)
        .arg(module.name))
}

fn cannot(what: &str, path: &Path, error: std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}
