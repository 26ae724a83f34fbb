//! The program, on the stand-in driver: it runs through, and a device that does not work is seen.

// The engine's tests share these, and use more of them.
#[path = "../../uform/tests/common/fake.rs"]
#[allow(dead_code)]
mod fake;
#[path = "../../uform/tests/common/tiny.rs"]
#[allow(dead_code)]
mod tiny;

use std::process::Command;

/// What it prints on a device of the stand-in's where this goes wrong, and its exit code.
fn ran(fault: &str, sections: &[&str]) -> (String, Option<i32>) {
    let folder = fake::drivers();
    let model = folder.path().join("model");
    tiny::Tiny::of(tiny::SMALL).write(&model).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_gpu-check"))
        .args(["--small", "--model"])
        .arg(&model)
        .args(sections)
        .env("LD_LIBRARY_PATH", folder.path())
        .env("FAKE_CUDA_DEVICES", "H200:9.0:132:1024")
        .env("FAKE_CUDA_FAULT", fault)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors, "");
    let printed = String::from_utf8(output.stdout).unwrap();
    (printed, output.status.code())
}

fn lines<'a>(printed: &'a str, kind: &str) -> Vec<&'a str> {
    printed
        .lines()
        .filter(|line| line.starts_with(kind))
        .collect()
}

#[test]
fn all_of_it_runs_through() {
    let (printed, code) = ran("", &[]);
    // The stand-in interprets PTX, and is right to refuse machine code.
    let failed = lines(&printed, "FAIL");
    assert_eq!(failed.len(), 1, "{printed}");
    assert!(
        failed[0].starts_with("FAIL machine code does not load"),
        "{printed}"
    );
    assert!(
        failed[0].contains("CUDA_ERROR_NO_BINARY_FOR_GPU"),
        "{printed}"
    );
    assert_eq!(code, Some(1));
    let sections = [
        "loads",
        "kernels",
        "rates",
        "model",
        "memory",
        "faults",
        "sanitizer",
    ];
    for section in sections {
        assert!(printed.contains(&format!("# {section}\n")), "{printed}");
    }
    assert!(lines(&printed, "PASS").len() >= 24, "{printed}");
    for figure in [
        "copies within",
        "bf16 in matrix units",
        "dense_bf16_large",
        "attend_f32_32",
    ] {
        assert!(
            printed.contains(&format!("RATE {figure}")),
            "{figure}: {printed}"
        );
    }
}

#[test]
fn what_goes_wrong_is_a_bad_verdict() {
    for (fault, section, words) in [
        ("fault@3", "kernels", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("oom@2", "rates", "CUDA_ERROR_OUT_OF_MEMORY"),
        ("code917@20", "memory", "917"),
    ] {
        let (printed, code) = ran(fault, &[section]);
        let failed = lines(&printed, "FAIL");
        assert!(
            failed.iter().any(|line| line.contains(words)),
            "{fault}: {printed}"
        );
        assert_eq!(code, Some(1), "{fault}: {printed}");
    }
}

#[test]
fn without_a_device_it_says_so() {
    let output = Command::new(env!("CARGO_BIN_EXE_gpu-check"))
        .env("LD_LIBRARY_PATH", "/nonexistent")
        .env("CUDA_VISIBLE_DEVICES", "")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("there is no NVIDIA device 0"), "{printed}");
    assert_eq!(output.status.code(), Some(1));
}
