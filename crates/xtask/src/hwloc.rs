//! hwloc as a static library, so that a user of the addon needs none.
//!
//! Debian's `libhwloc-dev` links dynamically and drags in libudev and libxml2. Its *source*
//! package, verified by apt, is compiled here without either, into `target/hwloc/`, where
//! `PKG_CONFIG_PATH` sends the `hwlocality` crate: that of `command::cargo`, and for a
//! developer's plain `cargo` the one in `.cargo/config.toml`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;

use crate::command::{in_checkout, run, works};
use crate::{Result, target};

/// Left out: whatever another library would be linked or loaded for; and the `cpuid` component,
/// which binds the *calling* thread to every core in turn and takes a hundred
/// milliseconds. The system's own files tell the same, PCI devices included.
const CONFIGURE: [&str; 17] = [
    "--quiet",
    "--enable-static",
    "--disable-shared",
    "--with-pic",
    "--disable-cpuid",
    "--disable-libxml2",
    "--disable-libudev",
    "--disable-opencl",
    "--disable-cuda",
    "--disable-nvml",
    "--disable-rsmi",
    "--disable-levelzero",
    "--disable-gl",
    "--disable-plugins",
    // `--disable-pci` would take the system's PCI files along with libpciaccess.
    "ac_cv_header_pciaccess_h=no",
    "PKG_CONFIG=false",
    "CFLAGS=-O2",
];

/// Makes the library. Does nothing when it is there: it appears in one step, so it is whole.
///
/// Without apt it is left to the system's libhwloc, if there is one: good enough to
/// develop with, while the package's tests refuse an addon linked to it.
pub fn make() -> Result {
    let made = folder()?;
    if made.exists() {
        return Ok(());
    }
    if !works(Command::new("apt-get").arg("--version")) {
        return system_library();
    }
    // On the same file system as its destination, so that the rename is one step.
    let work = made.with_extension(format!("making-{}", std::process::id()));
    fs::create_dir_all(&work).map_err(|error| cannot("make", &work, error))?;
    let outcome = download(&work)
        .and_then(|()| compile(&work))
        .and_then(|stage| fs::rename(stage, &made).map_err(|error| cannot("make", &made, error)));
    let cleared = fs::remove_dir_all(&work).map_err(|error| cannot("remove", &work, error));
    outcome.and(cleared)
}

/// Where pkg-config finds it.
pub fn pkg_config_path() -> Result<PathBuf> {
    Ok(folder()?.join("lib/pkgconfig"))
}

fn folder() -> Result<PathBuf> {
    Ok(target()?.join("hwloc"))
}

fn system_library() -> Result {
    if works(Command::new("pkg-config").args(["--exists", "hwloc >= 2.0"])) {
        eprintln!("no apt-get here: the system's libhwloc is linked, for development only");
        return Ok(());
    }
    Err(
        "the engine is linked with hwloc, which is made from Debian's source package, and this \
         machine has no apt-get: install hwloc 2 (not 3) with its headers, and pkg-config, to \
         develop with; an addon to be published is built on Debian"
            .into(),
    )
}

/// Brings the source package's archive into `work`, by lists of apt's that are private to it:
/// nothing of the machine's own is changed, so this needs no root.
fn download(work: &Path) -> Result {
    let sources = work.join("sources");
    for folder in [&sources, &work.join("lists"), &work.join("cache")] {
        fs::create_dir(folder).map_err(|error| cannot("make", folder, error))?;
    }
    write_source_lists(&sources)?;
    let apt = || {
        let mut apt = in_checkout("apt-get");
        apt.current_dir(work).arg("--quiet");
        for (option, value) in [
            ("Dir::Etc::SourceList", "/dev/null".as_ref()),
            ("Dir::Etc::SourceParts", sources.as_path()),
            ("Dir::State::Lists", &work.join("lists")),
            ("Dir::Cache", &work.join("cache")),
            // Root's alone is the folder that is written to.
            ("APT::Sandbox::User", "root".as_ref()),
        ] {
            apt.arg("-o").arg(format!("{option}={}", value.display()));
        }
        apt
    };
    run(apt().arg("update"))?;
    run(apt().args(["source", "--download-only", "hwloc"]))
}

/// Writes the machine's own lists of binary packages as lists of source packages.
fn write_source_lists(sources: &Path) -> Result {
    let apt = Path::new("/etc/apt");
    let mut lists = vec![apt.join("sources.list")];
    lists.extend(entries(&apt.join("sources.list.d"))?);
    for list in lists.iter().filter(|list| list.is_file()) {
        let form = match list.extension().and_then(|extension| extension.to_str()) {
            Some("list") => source_line,
            Some("sources") => source_field,
            _ => continue,
        };
        let text = fs::read_to_string(list).map_err(|error| cannot("read", list, error))?;
        let text: String = text.lines().map(form).collect();
        let copy = sources.join(list.file_name().unwrap_or_default());
        fs::write(&copy, text).map_err(|error| cannot("write", &copy, error))?;
    }
    Ok(())
}

/// A line of a `.list` file, if it lists binary packages (sources.list(5)).
fn source_line(line: &str) -> String {
    match line.trim_start().strip_prefix("deb") {
        Some(rest) if rest.starts_with([' ', '\t']) => format!("deb-src{rest}\n"),
        _ => String::new(),
    }
}

/// A line of a `.sources` file, where a field says what is listed (sources.list(5)).
fn source_field(line: &str) -> String {
    match line.split_once(':') {
        Some((field, _)) if field.eq_ignore_ascii_case("Types") => "Types: deb-src\n".into(),
        _ => format!("{line}\n"),
    }
}

/// Compiles what was downloaded; returns the folder that holds the library, headers
/// and `hwloc.pc`.
fn compile(work: &Path) -> Result<PathBuf> {
    let archive = entries(work)?
        .into_iter()
        .find(|path| path.to_string_lossy().contains(".orig.tar."))
        .ok_or("apt-get left no source archive of hwloc")?;
    let (source, stage) = (work.join("source"), work.join("stage"));
    fs::create_dir(&source).map_err(|error| cannot("make", &source, error))?;
    let within = |program: &str| {
        let mut command = in_checkout(program);
        command.current_dir(&source);
        command
    };
    run(within("tar")
        .args(["--extract", "--strip-components=1", "--file"])
        .arg(archive))?;
    silence(&source.join("hwloc/topology.c"))?;
    run(within("./configure")
        .args(CONFIGURE)
        .arg(format!("--prefix={}", stage.display())))?;
    let jobs = available_parallelism().map_or(1, usize::from);
    run(within("make").args(["--silent", "-C", "hwloc", &format!("--jobs={jobs}")]))?;
    for part in ["hwloc", "include"] {
        run(within("make").args(["--silent", "-C", part, "install", "LIBTOOLFLAGS=--silent"]))?;
    }
    write_pkg_config(&source.join("hwloc.pc"), &stage.join("lib/pkgconfig"))?;
    Ok(stage)
}

/// A library prints nothing: hwloc keeps to itself what firmware got wrong, unless
/// `HWLOC_HIDE_ERRORS` in the environment says otherwise.
fn silence(source: &Path) -> Result {
    const LOUD: &str = "static int hide = 1;";
    let text = fs::read_to_string(source).map_err(|error| cannot("read", source, error))?;
    if !text.contains(LOUD) {
        return Err(format!(
            "hwloc has changed: {} has no `{LOUD}`, which decides about messages on standard error",
            source.display()
        ));
    }
    fs::write(source, text.replace(LOUD, "static int hide = 2;"))
        .map_err(|error| cannot("write", source, error))
}

/// Writes `hwloc.pc` so that it finds its neighbours wherever the folder is moved.
fn write_pkg_config(written: &Path, folder: &Path) -> Result {
    let text = fs::read_to_string(written).map_err(|error| cannot("read", written, error))?;
    let text: String = text
        .lines()
        .map(|line| match line.strip_prefix("prefix=") {
            Some(_) => "prefix=${pcfiledir}/../..\n".into(),
            None => format!("{line}\n"),
        })
        .collect();
    fs::create_dir(folder)
        .and_then(|()| fs::write(folder.join("hwloc.pc"), text))
        .map_err(|error| cannot("write hwloc.pc into", folder, error))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| cannot("list", folder, error))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

fn cannot(what: &str, path: &Path, error: std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::{source_field, source_line};

    #[test]
    fn lists_of_packages_become_lists_of_their_sources() {
        let list = "# a comment\n\
                    deb [signed-by=/key.gpg] mirror://example/debian stable main\n\
                    deb-src mirror://example/debian stable main\n\
                    debug\n";
        assert_eq!(
            list.lines().map(source_line).collect::<String>(),
            "deb-src [signed-by=/key.gpg] mirror://example/debian stable main\n"
        );
        let fields = "types: deb deb-src\nURIs: mirror://example/debian\n\nTypes: deb\nSuites: x\n";
        assert_eq!(
            fields.lines().map(source_field).collect::<String>(),
            "Types: deb-src\nURIs: mirror://example/debian\n\nTypes: deb-src\nSuites: x\n"
        );
    }
}
