//! Meshes over executors of GPUs, on the stand-ins that `fake-gpu` has for the drivers and for NCCL.

#![cfg(target_os = "linux")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use common::fake::{Case, MARK, alone, check_counts, drivers};
use common::tiny::Tiny;
use uform::Status;
use uform::executor::{Control, Executor};
use uform::hardware::GpuClass;
use uform::mesh::{Mesh, MeshOptions, MultimemTier};
use uform::model::files::Memory;
use uform::model::{DeviceEmbeddings, EncodeOptions, Model, Texts, VramModelOptions};
use uform::placement::VramOptions;

const H200: &str = "H200:9.0:132:1024";

/// Eight devices, of which each process drives its own.
fn eight() -> String {
    [H200].repeat(8).join(",")
}

fn driving(devices: &[u32]) -> Executor {
    Executor::for_vram(&VramOptions {
        devices: devices.to_vec(),
        ..VramOptions::default()
    })
    .unwrap()
}

fn load(executor: &Executor) -> Model {
    let files = Tiny::new().files;
    Model::load_vram_from(&Memory::new(files), &VramModelOptions::default(), executor).unwrap()
}

/// Vectors of two texts a device, all of one length, and different in every process.
fn vectors(model: &Model, executor: &Executor, process: usize) -> DeviceEmbeddings {
    shaped(model, executor, process, 8, None)
}

/// The same of so many texts, and of so many dimensions.
fn shaped(
    model: &Model,
    executor: &Executor,
    process: usize,
    texts: usize,
    dimensions: Option<u64>,
) -> DeviceEmbeddings {
    let words = [
        "red", "bicycle", "green", "tree", "the", "sea", "is", "blue",
    ];
    let texts: Vec<String> = (0..texts)
        .map(|text| format!("{} {} !", words[text % 8], words[(text + process + 1) % 8]))
        .collect();
    let texts: Texts = texts.iter().map(String::as_str).collect();
    let options = EncodeOptions {
        dimensions,
        ..EncodeOptions::default()
    };
    model.encode_text_vram(executor, &texts, &options).unwrap()
}

fn numbers(found: &DeviceEmbeddings) -> Vec<f32> {
    found.to_host().unwrap().data
}

/// The sum of equal shares, in their order, each step rounded.
fn sum_of_shares(all: &[f32], members: usize) -> Vec<f32> {
    let mut shares = all.chunks_exact(all.len() / members);
    let mut sum = shares.next().unwrap().to_vec();
    for share in shares {
        sum.iter_mut()
            .zip(share)
            .for_each(|(sum, value)| *sum += value);
    }
    sum
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// One process adds up over its own devices: needs no other process, writes nothing.
#[test]
fn a_run_without_peers_adds_up_in_the_order_of_its_devices() {
    let cuda = eight();
    let cases = [Case {
        cuda: &cuda,
        ..Case::default()
    }];
    alone(
        "a_run_without_peers_adds_up_in_the_order_of_its_devices",
        &cases,
        |_| {
            let executor = driving(&[3, 1, 2, 0]);
            let mesh = Mesh::bootstrap(&executor, &MeshOptions::default()).unwrap();
            let told = mesh.describe();
            assert_eq!(
                (
                    told.gpus_per_host_domain,
                    told.gpus_per_multimem_domain,
                    told.gpus_per_colocated_domain,
                    told.host_domain_index,
                    told.first_gpu_index,
                ),
                (4, 4, 4, 0, 0)
            );
            assert_eq!(told.multimem_tier, MultimemTier::PeerRead);
            assert!(told.multimem_obstacle.is_some());
            assert_eq!(told.gpu_class, Some(GpuClass::NvidiaHopper));
            assert_eq!(told.leftovers, None);

            let model = load(&executor);
            let mut found = Vec::new();
            for _run in 0..2 {
                let vectors = vectors(&model, &executor, 0);
                let before = numbers(&vectors);
                mesh.all_reduce(&vectors).unwrap();
                let after = numbers(&vectors);
                let expected = bits(&sum_of_shares(&before, 4)).repeat(4);
                assert_eq!(bits(&after), expected);
                found.push(after);
            }
            assert_eq!(bits(&found[0]), bits(&found[1]));

            // Not as much on every device.
            let texts: Texts = ["red", "green", "blue"].into_iter().collect();
            let few = model.encode_text_vram(&executor, &texts, &EncodeOptions::default());
            let error = mesh.all_reduce(&few.unwrap()).unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument);
            assert!(error.message().contains("1 rows on device"), "{error}");

            let trainer = mesh.borrow().unwrap();
            let error = mesh.free().unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument);
            assert!(
                error.message().contains("borrowed by 1 trainers"),
                "{error}"
            );
            drop(trainer);
            mesh.free().unwrap();
            mesh.free().unwrap();
            let vectors = vectors(&model, &executor, 0);
            for error in [
                mesh.borrow().err().unwrap(),
                mesh.all_reduce(&vectors).unwrap_err(),
            ] {
                assert_eq!(error.status(), Status::Freed);
            }
            executor.free();

            let error = Mesh::bootstrap(&executor, &MeshOptions::default())
                .err()
                .unwrap();
            assert_eq!(error.status(), Status::Freed);
            let host = Executor::inline();
            let error = Mesh::bootstrap(&host, &MeshOptions::default())
                .err()
                .unwrap();
            assert_eq!(error.status(), Status::InvalidArgument);
            assert!(error.message().contains("drives no device"), "{error}");
        },
    );
}

// ---- Several processes ----

/// Where the processes of a test meet, and leave things for each other.
const MEETING: &str = "UFORM_TEST_MEETING";

/// One process of two.
#[derive(Clone, Copy, Default)]
struct Process<'a> {
    fault: &'a str,
    variable: Option<(&'a str, &'a str)>,
}

/// Runs the test called `name` in two processes; `body` is told which it is, and where they meet.
fn at_once(name: &str, with_nccl: bool, processes: [Process<'_>; 2], body: impl Fn(usize, &Path)) {
    if let Ok(index) = env::var(MARK) {
        let meeting = PathBuf::from(env::var_os(MEETING).unwrap());
        return body(index.parse().unwrap(), &meeting);
    }
    let folder = drivers();
    if with_nccl {
        let library = folder.path().join("libnccl.so.2");
        fs::copy(folder.path().join("libcuda.so.1"), library).unwrap();
    }
    let meeting = tempfile::tempdir().unwrap();
    let counts = |index| meeting.path().join(format!("counts-{index}"));
    let spawn = |index: usize| -> Child {
        Command::new(env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(MARK, index.to_string())
            .env(MEETING, meeting.path())
            .env("LD_LIBRARY_PATH", folder.path())
            .env("FAKE_CUDA_DEVICES", eight())
            .env("FAKE_CUDA_FAULT", processes[index].fault)
            .env("FAKE_GPU_COUNTS", counts(index))
            .envs(processes[index].variable)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children = [0, 1].map(spawn);
    // Both have ended before anything is asserted.
    let outputs = children.map(|child| child.wait_with_output().unwrap());
    for (index, output) in outputs.iter().enumerate() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "process {index}: {errors}{printed}"
        );
        assert_eq!(errors, "", "process {index}");
        assert!(printed.contains("1 passed"), "process {index}: {printed}");
        check_counts(&counts(index), index);
    }
    assert!(!meeting.path().join("job").exists());
}

fn own_devices(index: usize) -> Executor {
    let first = 4 * index as u32;
    driving(&[first, first + 1, first + 2, first + 3])
}

fn options(index: usize, meeting: &Path) -> MeshOptions {
    MeshOptions {
        host_domain_index: Some(index as u32),
        host_domain_count: Some(2),
        directory: Some(meeting.to_owned()),
        job: Some("job".to_owned()),
        ..MeshOptions::default()
    }
}

/// Leaves numbers for the other process, and waits for its.
fn exchange(meeting: &Path, what: &str, index: usize, own: &[f32]) -> Vec<f32> {
    let place = |index| meeting.join(format!("{what}-{index}"));
    let bytes: Vec<u8> = own.iter().flat_map(|value| value.to_le_bytes()).collect();
    let draft = meeting.join(format!("draft-{index}"));
    fs::write(&draft, bytes).unwrap();
    fs::rename(draft, place(index)).unwrap();
    while !place(1 - index).exists() {
        thread::sleep(Duration::from_millis(1));
    }
    let bytes = fs::read(place(1 - index)).unwrap();
    let values = bytes.as_chunks::<4>().0.iter();
    values.map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

const NVLS: Option<(&str, &str)> = Some(("NCCL_ALGO", "NVLS,NVLSTree"));

#[test]
fn two_processes_add_up_over_all_their_devices() {
    const NAME: &str = "two_processes_add_up_over_all_their_devices";
    let process = Process {
        variable: NVLS,
        ..Process::default()
    };
    at_once(NAME, true, [process; 2], |index, meeting| {
        let executor = own_devices(index);
        let mesh = Mesh::bootstrap(&executor, &options(index, meeting)).unwrap();
        let told = mesh.describe();
        assert_eq!(
            (
                told.gpus_per_host_domain,
                told.gpus_per_multimem_domain,
                told.gpus_per_colocated_domain,
                told.host_domain_index,
                told.first_gpu_index,
            ),
            (4, 4, 8, index as u32, 4 * index as u32)
        );
        assert_eq!(told.multimem_tier, MultimemTier::SwitchReduced);
        assert_eq!(told.multimem_obstacle, None);
        let model = load(&executor);
        let mut first_run = None;
        for run in 0..2 {
            let vectors = vectors(&model, &executor, index);
            let own = numbers(&vectors);
            let other = exchange(meeting, &format!("before-{run}"), index, &own);
            mesh.all_reduce(&vectors).unwrap();
            let after = numbers(&vectors);
            let all = if index == 0 {
                [own, other]
            } else {
                [other, own]
            };
            let expected = sum_of_shares(&all.concat(), 8).repeat(4);
            for (found, expected) in after.iter().zip(&expected) {
                // Eight numbers of at most one are added up, in some order.
                let close = (found - expected).abs() <= 8.0 * 8.0 * f32::EPSILON;
                assert!(close, "{found} is not {expected}");
            }
            let others = exchange(meeting, &format!("after-{run}"), index, &after);
            assert_eq!(bits(&after), bits(&others));
            assert_eq!(bits(first_run.get_or_insert(after.clone())), bits(&after));
        }
        drop(model);
        mesh.free().unwrap();
        drop(mesh);
        executor.free();
    });
}

/// Whether the stand-in for NCCL listens in this process for those that have its id: it has a thread for it.
fn listens() -> bool {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut names = threads.filter_map(|one| fs::read_to_string(one.path().join("comm")).ok());
    names.any(|name| name.starts_with("fake-gpu meetin"))
}

/// Vectors of as many numbers in rows of another length, and of more numbers.
#[test]
fn vectors_of_other_shapes_are_not_added_up_and_the_mesh_stays() {
    const NAME: &str = "vectors_of_other_shapes_are_not_added_up_and_the_mesh_stays";
    at_once(NAME, true, [Process::default(); 2], |index, meeting| {
        let executor = own_devices(index);
        let mesh = Mesh::bootstrap(&executor, &options(index, meeting)).unwrap();
        assert_eq!(listens(), index == 0);
        let model = load(&executor);
        // Texts and dimensions of either process, and what all are told.
        let cases = [
            ([(8, 8), (16, 4)], "2 to 4 rows of 4 to 8 dimensions"),
            ([(8, 8), (16, 8)], "2 to 4 rows of 8 dimensions"),
            ([(8, 4), (8, 8)], "2 rows of 4 to 8 dimensions"),
        ];
        for (shapes, words) in cases {
            let (texts, dimensions) = shapes[index];
            let vectors = shaped(&model, &executor, index, texts, Some(dimensions));
            let before = numbers(&vectors);
            let error = mesh.all_reduce(&vectors).unwrap_err();
            assert_eq!(error.status(), Status::ConfigMismatch, "{error}");
            let own = format!("{} rows of {dimensions} dimensions on each", texts / 4);
            assert!(error.message().contains(&own), "{error}");
            assert!(error.message().contains(words), "{error}");
            assert_eq!(bits(&numbers(&vectors)), bits(&before));
        }
        // One of the two has vectors that do not lie on all of its devices alike.
        for refused in [0, 1] {
            let texts = if index == refused { 7 } else { 8 };
            let vectors = shaped(&model, &executor, index, texts, None);
            let before = numbers(&vectors);
            let error = mesh.all_reduce(&vectors).unwrap_err();
            let (status, words) = match index == refused {
                true => (Status::InvalidArgument, "expected as many on each"),
                false => (Status::ConfigMismatch, "another process was refused"),
            };
            assert_eq!(error.status(), status, "{error}");
            assert!(error.message().contains(words), "{error}");
            assert_eq!(bits(&numbers(&vectors)), bits(&before));
        }
        let vectors = vectors(&model, &executor, index);
        let own = numbers(&vectors);
        let other = exchange(meeting, "before", index, &own);
        mesh.all_reduce(&vectors).unwrap();
        let all = if index == 0 {
            [own, other]
        } else {
            [other, own]
        };
        // The stand-in adds up in the order of the members.
        let expected = sum_of_shares(&all.concat(), 8).repeat(4);
        assert_eq!(bits(&numbers(&vectors)), bits(&expected));
        drop(model);
        mesh.free().unwrap();
        drop(mesh);
        executor.free();
    });
}

#[test]
fn without_the_library_sums_are_refused_and_the_rest_works() {
    const NAME: &str = "without_the_library_sums_are_refused_and_the_rest_works";
    at_once(NAME, false, [Process::default(); 2], |index, meeting| {
        let executor = own_devices(index);
        let mesh = Mesh::bootstrap(&executor, &options(index, meeting)).unwrap();
        assert_eq!(mesh.describe().multimem_tier, MultimemTier::PeerRead);
        assert!(mesh.describe().reduction.contains("libnccl.so.2"));
        let model = load(&executor);
        let error = mesh
            .all_reduce(&vectors(&model, &executor, index))
            .unwrap_err();
        assert_eq!(error.status(), Status::Unsupported);
        assert!(error.message().contains("NCCL"), "{error}");
        drop(model);
        mesh.free().unwrap();
        drop(mesh);
        executor.free();
    });
}

/// Multicast memory that cannot be bound in one process is used by none.
#[test]
fn where_one_cannot_bind_all_read_their_peers() {
    const NAME: &str = "where_one_cannot_bind_all_read_their_peers";
    let [good, bad] = ["", "multicast-bind"].map(|fault| Process {
        fault,
        variable: NVLS,
    });
    at_once(NAME, true, [good, bad], |index, meeting| {
        let executor = own_devices(index);
        let mesh = Mesh::bootstrap(&executor, &options(index, meeting)).unwrap();
        assert_eq!(mesh.describe().multimem_tier, MultimemTier::PeerRead);
        let why = mesh.describe().multimem_obstacle.clone().unwrap();
        assert!(why.starts_with("index 1 (host "), "{why}");
        assert!(why.contains("no multicast memory can be bound"), "{why}");
        mesh.free().unwrap();
        drop(mesh);
        executor.free();
    });
}

/// What an executor has too many of, the other process is told as well.
#[test]
fn processes_that_disagree_are_told_the_same() {
    const NAME: &str = "processes_that_disagree_are_told_the_same";
    at_once(NAME, true, [Process::default(); 2], |index, meeting| {
        let executor = driving(if index == 0 { &[0, 1] } else { &[1] });
        let error = Mesh::join(&executor, &options(index, meeting), &Control::new());
        let error = error.err().unwrap();
        assert_eq!(error.status(), Status::ConfigMismatch);
        let message = error.message();
        assert!(
            message.contains("the number of GPUs is 2 for index 0"),
            "{message}"
        );
        assert!(message.contains("is used by index 0"), "{message}");
        // Nobody is listened for who will not come any more.
        assert!(!listens());
        executor.free();
    });
}
