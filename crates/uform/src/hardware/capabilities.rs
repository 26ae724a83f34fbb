//! What this binary was built with, and what this machine offers, in words.
//!
//! Neither list implies the other: a class may run here without kernels of its
//! own (dispatch then falls to the next), and kernels may be built in that do
//! not run here. A word stands for something that can be used today.

use super::cpu::CpuClass;
use super::features::{Feature, Features};

/// What this binary was built with, comma-separated: the words of the classes
/// with kernels of their own, then `threads` where host threads can be had.
pub fn compiled() -> String {
    let mut words: Vec<&str> = CpuClass::COMPILED
        .iter()
        .map(|class| class.word())
        .collect();
    push(&mut words, "threads", cfg!(feature = "native"));
    words.join(",")
}

/// What this machine offers now, comma-separated: the words of the classes that run,
/// then `amx` (tiles multiply), `vnni` (int8 dot products on x86-64), `threads`, and
/// `numa` where memory lies on more than one node.
///
/// Nodes are those the system has, whether or not this process may allocate on
/// them; they are known on Linux alone.
pub fn available() -> String {
    let features = Features::here();
    let has = |feature| features.contains(feature);
    let mut words: Vec<&str> = CpuClass::that_run_here().map(CpuClass::word).collect();
    let amx = has(Feature::AmxBf16) || has(Feature::AmxInt8);
    let vnni = has(Feature::AvxVnni) || has(Feature::Avx512Vnni);
    push(&mut words, "amx", amx);
    push(&mut words, "vnni", vnni);
    push(&mut words, "threads", cfg!(feature = "native"));
    push(&mut words, "numa", memory_nodes() > 1);
    words.join(",")
}

fn push<'a>(words: &mut Vec<&'a str>, word: &'a str, is_so: bool) {
    if is_so {
        words.push(word);
    }
}

/// How many nodes carry memory; 0 where the system does not say.
fn memory_nodes() -> usize {
    if !cfg!(all(feature = "native", target_os = "linux")) {
        return 0;
    }
    std::fs::read_to_string("/sys/devices/system/node/has_memory")
        .map_or(0, |list| count_of_list(&list))
}

/// How many numbers a kernel list such as `0-3,8` stands for; what is not a list counts nothing.
fn count_of_list(list: &str) -> usize {
    let count = |range: &str| -> Option<usize> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.trim().split(',').filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_says_its_classes_and_nothing_that_is_not_there() {
        let classes = if cfg!(feature = "monoversioned") {
            "monoversioned"
        } else if cfg!(target_arch = "x86_64") {
            "serial,intel-haswell,intel-skylake,intel-icelake,intel-sapphire"
        } else {
            "serial"
        };
        let threads = if cfg!(feature = "native") {
            ",threads"
        } else {
            ""
        };
        assert_eq!(compiled(), format!("{classes}{threads}"));
    }

    #[test]
    fn what_is_available_agrees_with_the_pin_rule() {
        let available = available();
        let words: Vec<&str> = available.split(',').collect();
        for class in CpuClass::ALL {
            assert_eq!(words.contains(&class.word()), class.runs_here().is_ok());
        }
        assert_eq!(words.contains(&"threads"), cfg!(feature = "native"));
        if CpuClass::IntelSapphire.missing().is_none() {
            assert!(words.contains(&"amx") && words.contains(&"vnni"));
        }
    }

    #[test]
    fn lists_of_nodes_are_counted() {
        for (list, nodes) in [
            ("0\n", 1),
            ("0-1\n", 2),
            ("0-3,8\n", 5),
            ("0,2,4-5", 4),
            ("", 0),
            ("\n", 0),
            ("3-1", 0),
            ("x", 0),
            ("0-18446744073709551615", 0),
        ] {
            assert_eq!(count_of_list(list), nodes, "{list:?}");
        }
    }
}
