//! The kernels, as they ship, on the stand-in driver; then kernels with planted mistakes, each of
//! which a check must see.

// The engine's tests share these, and use more of them.
#[path = "../../uform/tests/common/fake.rs"]
#[allow(dead_code)]
mod fake;

use fake::{Case, alone};
use gpu_check::{Gpu, checks};
use uform::device::{Code, kernels};

/// A mistake in a kernel: what stands instead of what, in each of the first so many places where it is.
struct Mistake {
    kernel: &'static str,
    check: &'static str,
    right: &'static str,
    wrong: &'static str,
    places: usize,
}

fn ptx() -> &'static str {
    std::str::from_utf8(kernels::PTX).unwrap()
}

#[test]
fn kernels_give_what_f64_gives() {
    let cases = [Case {
        cuda: "H200:9.0:132:1024",
        ..Case::default()
    }];
    alone("kernels_give_what_f64_gives", &cases, |_| {
        let gpu = Gpu::shipped(0).unwrap();
        for (name, check) in checks::ALL {
            let found = check(&gpu).unwrap();
            assert!(
                found <= 1.0,
                "{name} is off by {found} times what it may be"
            );
        }
    });
}

/// The kernels with one mistake each, as many as there are places for it.
fn mistaken(mistake: &Mistake) -> Vec<String> {
    let ptx = ptx();
    let start = ptx.find(&format!(".entry {}(", mistake.kernel)).unwrap();
    let next = ptx[start + 1..].find(".entry");
    let end = next.map_or(ptx.len(), |next| start + 1 + next);
    let places = ptx[start..end].match_indices(mistake.right);
    let kernels: Vec<String> = places
        .take(mistake.places)
        .map(|(at, right)| {
            let (before, rest) = ptx.split_at(start + at);
            format!("{before}{}{}", mistake.wrong, &rest[right.len()..])
        })
        .collect();
    let Mistake { kernel, right, .. } = mistake;
    assert!(!kernels.is_empty(), "{kernel} has no {right}");
    kernels
}

fn mistakes() -> Vec<Mistake> {
    let barriers = [
        ("dense_f32", "dense_f32"),
        ("dense_bf16", "dense_bf16"),
        ("dense_bf16_large", "dense_bf16"),
        ("attend_f32_32", "attend_f32"),
        ("attend_f32_128", "attend_f32"),
        ("attend_bf16_32", "attend_bf16"),
        ("attend_bf16_128", "attend_bf16"),
        ("finish", "texts"),
    ];
    let missing = barriers.map(|(kernel, check)| (kernel, check, "bar.sync \t0;", "", usize::MAX));
    let transposed = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16";
    let straight = "ldmatrix.sync.aligned.m8n8.x4.shared.b16";
    let (bf16, f16) = ("f32.bf16.bf16.f32", "f32.f16.f16.f32");
    let (less, most) = ("setp.ge.u32", "setp.gt.u32");
    let (across, up) = ("shfl.sync.bfly.b32", "shfl.sync.up.b32");
    let others = [
        // What was not waited for.
        (
            "attend_bf16_64",
            "attend_bf16",
            "wait_group 0;",
            "wait_group 1;",
            1,
        ),
        (
            "dense_bf16",
            "dense_bf16",
            "wait_group 1;",
            "wait_group 2;",
            1,
        ),
        // One row too many, one lane off, a matrix on its side, numbers of another type.
        ("embed", "rows", less, most, 1),
        ("layer_norm", "rows", less, most, 1),
        ("embed", "rows", across, up, 2),
        ("attend_bf16_32", "attend_bf16", transposed, straight, 2),
        ("dense_bf16", "dense_bf16", bf16, f16, 1),
    ];
    let all = missing.into_iter().chain(others);
    all.map(|(kernel, check, right, wrong, places)| Mistake {
        kernel,
        check,
        right,
        wrong,
        places,
    })
    .collect()
}

#[test]
fn planted_mistakes_are_seen() {
    let mistakes = mistakes();
    let mutants: Vec<(&Mistake, String)> = mistakes
        .iter()
        .flat_map(|mistake| mistaken(mistake).into_iter().map(move |ptx| (mistake, ptx)))
        .collect();
    // A fault stays with its device.
    let cuda = ["H200:9.0:132:1024"].repeat(mutants.len()).join(",");
    let cases = [Case {
        cuda: &cuda,
        ..Case::default()
    }];
    alone("planted_mistakes_are_seen", &cases, |_| {
        for (index, (mistake, ptx)) in mutants.iter().enumerate() {
            let Mistake { kernel, right, .. } = mistake;
            let mut checks = checks::ALL.into_iter();
            let (_, check) = checks.find(|(name, _)| *name == mistake.check).unwrap();
            let code = Code::Image(ptx.as_bytes());
            let found = check(&Gpu::with_code(index as u32, code).unwrap());
            let is_seen = found.as_ref().map_or(true, |&off| off > 1.0);
            assert!(is_seen, "mutant {index}, {right} in {kernel}: {found:?}");
        }
    });
}
