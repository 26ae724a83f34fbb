//! A library's functions as a struct of pointers, all of them found before the first is called.

use std::error::Error;

use libloading::Library;

use super::driver::Absent;

/// Declares a table: functions that must be there, then those that may be missing.
///
/// `Table::find(library, name)` looks them up. The declarations are the vendor's header, but
/// for its enums, which are numbers here: an enum of Rust must not hold a number it has no name for.
macro_rules! table {
    (
        $(#[$attribute:meta])*
        $table:ident {
            $(fn $function:ident($($argument:ty),*) -> $result:ty;)*
        }
        optional {
            $(fn $extra:ident($($extra_argument:ty),*) -> $extra_result:ty;)*
        }
    ) => {
        $(#[$attribute])*
        // The vendor's names are what one searches its documentation for.
        #[allow(non_snake_case)]
        struct $table {
            $($function: unsafe extern "C" fn($($argument),*) -> $result,)*
            $($extra: Option<unsafe extern "C" fn($($extra_argument),*) -> $extra_result>,)*
        }

        impl $table {
            /// # Safety
            /// The library's functions of these names have these types. It stays loaded.
            unsafe fn find(
                library: &libloading::Library,
                name: &'static str,
            ) -> ::std::result::Result<$table, $crate::device::driver::Absent> {
                let missing = |symbol| $crate::device::driver::Absent::Symbol {
                    library: name,
                    symbol,
                };
                Ok($table {
                    $(
                        // SAFETY: the type is right, which is asked of the caller.
                        $function: unsafe { library.get(stringify!($function)) }
                            .map(|symbol| *symbol)
                            .map_err(|_| missing(stringify!($function)))?,
                    )*
                    $(
                        // SAFETY: as above.
                        $extra: unsafe { library.get(stringify!($extra)) }
                            .map(|symbol| *symbol)
                            .ok(),
                    )*
                })
            }
        }
    };
}

/// Asks `self`'s table's function, whose answer other than 0 is a failure.
///
/// Used only inside the drivers, where the arguments are numbers, handles as the
/// trait asks for them, and addresses of locals of the right type.
macro_rules! ask {
    ($driver:ident.$function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: declared as in the vendor's header; of the arguments see above.
        let code = unsafe { ($driver.api.$function)($($argument),*) };
        $driver.judge(stringify!($function), code)
    }};
}

pub(super) use {ask, table};

/// Opens the first library that loads, for as long as the process lives: a driver has threads
/// that run its code. What it refers to must be there, or it does not load: found
/// missing later, it would end the process.
///
/// # Errors
/// The first name's reason.
pub(super) fn open(names: &[&'static str]) -> Result<(&'static Library, &'static str), Absent> {
    let mut first = None;
    for &name in names {
        match load(name) {
            Ok(library) => return Ok((Box::leak(Box::new(library)), name)),
            Err(error) => {
                first.get_or_insert(Absent::Library {
                    library: name,
                    reason: words(&error),
                });
            }
        }
    }
    Err(first.unwrap_or(Absent::Library {
        library: "",
        reason: "no name is known".into(),
    }))
}

/// The loader's own words, which the error has inside.
fn words(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => words(source),
        None => error.to_string(),
    }
}

#[cfg(unix)]
fn load(name: &str) -> Result<Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // SAFETY: a driver's library, under the name that only drivers install; its initializers
    // are what every program that uses the device runs.
    unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) }.map(Into::into)
}

#[cfg(not(unix))]
fn load(name: &str) -> Result<Library, libloading::Error> {
    // SAFETY: as for other systems.
    unsafe { Library::new(name) }
}

/// What lies before the first NUL, or all of it, as text.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    let text = &bytes[..end.unwrap_or(bytes.len())];
    String::from_utf8_lossy(text).trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_the_first_names_reason() {
        let names = ["libuform-no-such.so.1", "libuform-no-such.so"];
        match open(&names) {
            Err(Absent::Library { library, reason }) => {
                assert_eq!(library, names[0]);
                assert!(reason.contains(names[0]), "{reason}");
            }
            _ => panic!("found"),
        }
    }

    #[test]
    fn text_ends_at_the_first_nul_or_with_the_buffer() {
        assert_eq!(text(b"H200\0\0rest"), "H200");
        assert_eq!(text(b" H200"), "H200");
        assert_eq!(text(b"\0"), "");
        assert_eq!(text(b"\xff\0"), "\u{fffd}");
    }
}
