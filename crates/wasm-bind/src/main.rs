//! `wasm-bind COMPILED FOLDER NAME`: writes the JavaScript half of a compiled module to `FOLDER/glue/NAME.js`
//! and the module to `FOLDER/NAME.wasm`, and tells how much a page downloads.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use flate2::Compression;
use flate2::write::GzEncoder;
use wasm_bindgen_cli_support::Bindgen;

/// An error is a sentence for the person at the terminal.
type Result<T = ()> = std::result::Result<T, String>;

/// The most bytes of a module and its JavaScript half, gzipped.
const MOST_PACKED: usize = 700_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [compiled, folder, name] = &arguments[..] else {
        eprintln!("wasm-bind COMPILED FOLDER NAME");
        return ExitCode::FAILURE;
    };
    match bind(Path::new(compiled), Path::new(folder), name) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("wasm-bind: {message}");
            ExitCode::FAILURE
        }
    }
}

fn bind(compiled: &Path, folder: &Path, name: &str) -> Result {
    let glue = folder.join("glue");
    let bound = Bindgen::new()
        .input_path(compiled)
        .out_name(name)
        .web(true)
        .and_then(|bindgen| {
            bindgen
                .typescript(false)
                .omit_default_module_path(true)
                .remove_name_section(true)
                .remove_producers_section(true)
                .generate(&glue)
        });
    bound.map_err(|error| format!("{}: {error:#}", compiled.display()))?;
    let written = glue.join(format!("{name}_bg.wasm"));
    let module = folder.join(format!("{name}.wasm"));
    fs::rename(&written, &module).map_err(|error| cannot("move", &written, error))?;
    let script = glue.join(format!("{name}.js"));
    fetch_nothing(&script)?;
    tell_size(name, &module, &script)
}

/// Tells what a page downloads, beside the package's own JavaScript.
fn tell_size(name: &str, module: &Path, glue: &Path) -> Result {
    let (mut raw, mut packed) = (0, 0);
    for file in [module, glue] {
        let bytes = fs::read(file).map_err(|error| cannot("read", file, error))?;
        raw += bytes.len();
        packed += gzipped(&bytes).map_err(|error| cannot("compress", file, error))?;
    }
    eprintln!(
        "{name}: {} KB, {} KB gzipped",
        raw.div_ceil(1000),
        packed.div_ceil(1000)
    );
    if packed > MOST_PACKED {
        return Err(format!(
            "{name} has {packed} bytes gzipped, more than the {MOST_PACKED} a page should download",
        ));
    }
    Ok(())
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
