//! Devices listed and driven, on the stand-ins for the vendors' drivers that `fake-gpu` has.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::{env, fs};

use common::fake::{Case, MARK, alone, child, drivers};
use uform::device::{Argument, BorrowedStream, Code, Device, Runtime, Shape, devices};
use uform::hardware::{capabilities, gpu_devices};
use uform::{Error, Result, Status};

const ADD: &str = include_str!("../../fake-gpu/tests/kernels/add.ptx");
const SUM: &str = include_str!("../../fake-gpu/tests/kernels/sum.ptx");
const MULTIPLY: &str = include_str!("../../fake-gpu/tests/kernels/multiply.ptx");

const TWO: &str = "H200:9.0:132:143771,RTX4090:8.9:128:24564";
const AMD: &str = "MI300X:gfx942:304:196608";

/// What is listed, without what the stand-in makes up.
fn listed() -> Vec<(String, u32, u32, u64, Option<&'static str>)> {
    let devices = gpu_devices().iter().map(|device| {
        let mebibytes = device.memory_bytes >> 20;
        let class = device.gpu_class.map(|class| class.word());
        let vendor = device.vendor as u32;
        (
            device.name.clone(),
            vendor,
            device.compute_units,
            mebibytes,
            class,
        )
    });
    devices.collect()
}

#[test]
fn devices_are_nvidias_then_amds_with_their_classes() {
    let cases = [Case {
        cuda: "H200:9.0:132:143771,V100:7.0:80:32510,RTX 5090:12.0:170:32607",
        hip: "MI300X:gfx942:304:196608,MI210:gfx90a:104:65536",
        ..Case::default()
    }];
    alone(
        "devices_are_nvidias_then_amds_with_their_classes",
        &cases,
        |_| {
            let expected = [
                ("H200", 1, 132, 143_771, Some("nvidia-hopper")),
                ("V100", 1, 80, 32_510, None),
                ("RTX 5090", 1, 170, 32_607, Some("nvidia-blackwellrtx")),
                ("MI300X", 2, 304, 196_608, Some("amd-cdna3")),
                ("MI210", 2, 104, 65_536, None),
            ]
            .map(|(name, vendor, units, mebibytes, class)| {
                (name.to_owned(), vendor, units, mebibytes, class)
            });
            assert_eq!(listed(), expected);
            let uuids = gpu_devices()
                .iter()
                .map(|device| device.uuid.as_deref().unwrap());
            let expected = [
                "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae00",
                "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae01",
                "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae02",
                "GPU-5e3bb2a7c14d1f00",
                "GPU-5e3bb2a7c14d1f01",
            ];
            assert_eq!(uuids.collect::<Vec<_>>(), expected);
            let addresses = gpu_devices()
                .iter()
                .map(|device| device.pci_address.as_deref().unwrap());
            let expected = [
                "0000:c0:00.0",
                "0000:b0:00.0",
                "0000:a0:00.0",
                "0000:c0:00.0",
                "0000:b0:00.0",
            ];
            assert_eq!(addresses.collect::<Vec<_>>(), expected);
            let words = capabilities::available();
            assert!(words.contains(",cuda,hip,"), "{words}");
        },
    );
}

/// What every one of them is missing leads to no device, or to what works; never to a word or an end.
#[test]
fn a_driver_that_does_not_work_is_quiet() {
    let with = |fault| Case {
        cuda: TWO,
        hip: AMD,
        fault,
    };
    let cases = [
        Case::default(),
        // Not started: a stub, a code that no header knows, no version.
        with("code34@1"),
        with("code917@1"),
        with("code4294967295@1"),
        with("code3@2"),
        with("missing:cuInit"),
        with("missing:cuLaunchKernel"),
        // Started, and lists less.
        with("code999@3"),
        with("code2@4"),
        with("missing:cuDeviceGetUuid"),
        with("missing:cuDeviceGetPCIBusId"),
        with("missing:hipGetDevicePropertiesR0600"),
        with("missing:hipModuleLaunchKernel"),
    ];
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    alone("a_driver_that_does_not_work_is_quiet", &cases, |case| {
        let found: Vec<String> = listed().into_iter().map(|(name, ..)| name).collect();
        match case {
            // Both drivers count their calls: what fails the one fails the other.
            0..=3 => assert_eq!(found, names(&[])),
            5 | 6 => assert_eq!(found, names(&["MI300X"])),
            9 | 10 => {
                assert_eq!(found, names(&["H200", "RTX4090", "MI300X"]));
                let nvidia = &gpu_devices()[0];
                assert_eq!(nvidia.uuid.is_none(), case == 9);
                assert_eq!(nvidia.pci_address.is_none(), case == 10);
            }
            // Without the architecture there is no class.
            11 => assert_eq!(gpu_devices()[2].gpu_class, None),
            12 => assert_eq!(found, names(&["H200", "RTX4090"])),
            _ => assert!(found.len() < 3, "{found:?}"),
        }
        if let 0..=6 = case {
            let error = Device::open(Runtime::Cuda, 0).err().unwrap();
            assert_eq!(error.status(), Status::Unsupported, "{error}");
            let words = match case {
                0 => "100, CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",
                1 => "34, CUDA_ERROR_STUB_LIBRARY: CUDA driver is a stub library",
                2 => "917, a code that this driver has no name for",
                5 => "no cuInit",
                6 => "no cuLaunchKernel",
                _ => "no GPU to drive",
            };
            assert!(error.message().contains(words), "{error}");
        }
    });
}

#[test]
fn files_that_are_no_driver_are_quiet() {
    const NAME: &str = "files_that_are_no_driver_are_quiet";
    if env::var_os(MARK).is_some() {
        assert_eq!(listed(), []);
        for runtime in Runtime::ALL {
            let error = Device::open(runtime, 0).err().unwrap();
            assert_eq!(error.status(), Status::Unsupported);
            assert!(error.message().contains("does not load"), "{error}");
        }
        assert!(!capabilities::available().contains("cuda"));
        return;
    }
    for content in [&b""[..], b"\x7fELF and then nothing", b"text"] {
        let folder = tempfile::tempdir().unwrap();
        let hip = ["so.7", "so.6", "so.5", "so"].map(|end| format!("libamdhip64.{end}"));
        for name in hip.iter().map(String::as_str).chain(["libcuda.so.1"]) {
            fs::write(folder.path().join(name), content).unwrap();
        }
        // A toolkit's stub has this name, and is not looked at.
        let stub = drivers();
        let stub = stub.path().join("libcuda.so.1");
        fs::copy(stub, folder.path().join("libcuda.so")).unwrap();
        let case = Case {
            cuda: TWO,
            ..Case::default()
        };
        child(NAME, 0, &case, folder.path(), Path::new("/dev/null"));
    }
}

fn floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// Sums of two vectors, through every kind of call there is.
fn added(device: &Arc<Device>, code: Code<'_>, n: usize) -> Result<Vec<f32>> {
    let stream = device.stream()?;
    let kernel = device.load(code)?.kernel("add")?;
    let values: Vec<f32> = (0..n).map(|at| at as f32).collect();
    let mut left = device.allocate(4 * n)?;
    let mut right = device.allocate(4 * n)?;
    let mut out = device.allocate(4 * n)?;
    stream.upload(&mut left, 0, &floats(&values))?;
    stream.copy(&mut right, &left, 4 * n)?;
    stream.fill(&mut out, 0)?;
    let shape = Shape {
        grid: [n.div_ceil(64) as u32, 1, 1],
        block: [64, 1, 1],
        shared_bytes: 0,
    };
    let arguments = [
        Argument::Address(left.address()),
        Argument::Address(right.address()),
        Argument::Address(out.address()),
        Argument::U32(n as u32),
    ];
    // SAFETY: the kernel's own, and waited for below.
    unsafe { stream.launch(&kernel, shape, &arguments) }?;
    let mut host = device.allocate_host(4 * n)?;
    // SAFETY: waited for before it is looked at.
    unsafe { stream.submit_download(&mut host, &out, 0) }?;
    stream.wait()?;
    assert!(stream.is_done()?);
    let (chunks, _) = host.as_chunks();
    Ok(chunks
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect())
}

fn both(runtime: Runtime) -> (Code<'static>, &'static str) {
    match runtime {
        Runtime::Cuda => (Code::Image(ADD.as_bytes()), "nvidia"),
        // What the stand-in's compiler compiles.
        Runtime::Hip => (Code::Source(ADD), "amd"),
    }
}

#[test]
fn memory_streams_modules_and_launches_work_on_both_runtimes() {
    let cases = [Case {
        cuda: TWO,
        hip: AMD,
        ..Case::default()
    }];
    const NAME: &str = "memory_streams_modules_and_launches_work_on_both_runtimes";
    alone(NAME, &cases, |_| {
        for runtime in Runtime::ALL {
            for properties in devices(runtime) {
                let device = Device::open(runtime, properties.index).unwrap();
                assert_eq!(device.properties(), &properties);
                let (free, total) = device.memory().unwrap();
                assert_eq!((free, total), (total, properties.memory_bytes));
                let (code, _) = both(runtime);
                let expected: Vec<f32> = (0..1000).map(|at| 2.0 * at as f32).collect();
                assert_eq!(added(&device, code, 1000).unwrap(), expected);
                assert_eq!(device.memory().unwrap(), (free, total));
                assert_eq!(device.allocate(0).unwrap().address(), 0);
                assert_eq!(device.fault(), None);
            }
            assert!(Device::open(runtime, 9).is_err());
        }
    });
}

#[test]
fn reductions_and_tensor_cores_work_through_the_driver() {
    let cases = [Case {
        cuda: TWO,
        ..Case::default()
    }];
    alone(
        "reductions_and_tensor_cores_work_through_the_driver",
        &cases,
        |_| {
            let device = Device::open(Runtime::Cuda, 1).unwrap();
            let stream = device.stream().unwrap();
            let kernel = device
                .load(Code::Image(SUM.as_bytes()))
                .unwrap()
                .kernel("sum")
                .unwrap();
            let n = 10_000;
            let mut values = device.allocate(4 * n).unwrap();
            let mut out = device.allocate(4).unwrap();
            stream
                .upload(&mut values, 0, &floats(&vec![0.5; n]))
                .unwrap();
            stream.upload(&mut out, 0, &floats(&[0.0])).unwrap();
            let shape = Shape {
                grid: [n.div_ceil(256) as u32, 1, 1],
                block: [256, 1, 1],
                shared_bytes: 0,
            };
            let arguments = [
                Argument::Address(values.address()),
                Argument::Address(out.address()),
                Argument::U32(n as u32),
            ];
            // SAFETY: the kernel's own, and waited for by the copy.
            unsafe { stream.launch(&kernel, shape, &arguments) }.unwrap();
            let mut sum = [0; 4];
            stream.download(&mut sum, &out, 0).unwrap();
            assert_eq!(f32::from_le_bytes(sum), 5000.0);

            // Ones and ones, in bf16.
            let module = device.load(Code::Image(MULTIPLY.as_bytes())).unwrap();
            let kernel = module.kernel("multiply").unwrap();
            kernel.allow_shared(64 << 10).unwrap();
            let ones = [0x80, 0x3f].repeat(256);
            let mut factors = device.allocate(512).unwrap();
            let out = device.allocate(512).unwrap();
            stream.upload(&mut factors, 0, &ones).unwrap();
            let shape = Shape {
                grid: [1, 1, 1],
                block: [32, 1, 1],
                shared_bytes: 768,
            };
            let places =
                [&factors, &factors, &out].map(|buffer| Argument::Address(buffer.address()));
            // SAFETY: as above.
            unsafe { stream.launch(&kernel, shape, &places) }.unwrap();
            let mut product = [0; 512];
            stream.download(&mut product, &out, 0).unwrap();
            assert_eq!(product.to_vec(), floats(&[16.0; 128]));
        },
    );
}

#[test]
fn what_does_not_fit_is_refused_before_the_driver_sees_it() {
    let cases = [Case {
        cuda: TWO,
        ..Case::default()
    }];
    alone(
        "what_does_not_fit_is_refused_before_the_driver_sees_it",
        &cases,
        |_| {
            let [one, other] = [0, 1].map(|index| Device::open(Runtime::Cuda, index).unwrap());
            let (stream, foreign) = (one.stream().unwrap(), other.stream().unwrap());
            let mut buffer = one.allocate(8).unwrap();
            let mut bytes = [0; 8];
            let refused = |outcome: Result<()>, words: &str| {
                let error = outcome.unwrap_err();
                assert_eq!(error.status(), Status::InvalidArgument);
                assert!(error.message().contains(words), "{error}");
            };
            refused(stream.upload(&mut buffer, 1, &bytes), "8 bytes at 1");
            refused(
                stream.upload(&mut buffer, usize::MAX, &bytes),
                "buffer of 8 bytes",
            );
            refused(stream.download(&mut bytes, &buffer, 8), "8 bytes at 8");
            refused(foreign.download(&mut bytes, &buffer, 0), "another device's");
            let module = one.load(Code::Image(ADD.as_bytes())).unwrap();
            let kernel = module.kernel("add").unwrap();
            let shape = Shape {
                grid: [1, 1, 1],
                block: [1, 1, 1],
                shared_bytes: 0,
            };
            // SAFETY: it is not launched.
            refused(
                unsafe { foreign.launch(&kernel, shape, &[]) },
                "another device's",
            );
            let error = module.kernel("subtract").err().unwrap();
            assert_eq!(error.status(), Status::Internal);
            assert!(error.message().contains("CUDA_ERROR_NOT_FOUND"), "{error}");

            for (code, words) in [
                (Code::Image(b"nonsense"), "\"nonsense\" is not understood"),
                (Code::Image(b"\x7fELF"), "CUDA_ERROR_NO_BINARY_FOR_GPU"),
                (
                    Code::Image(b".version 9.5\n.target sm_80\n"),
                    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
                ),
                (Code::Image(b".version 8.0\n.target sm_120\n"), "sm_120"),
                (Code::Source("code"), "compiles no C++"),
            ] {
                let error = one.load(code).err().unwrap();
                // Invalid PTX is no PTX, which the device does not take either.
                assert_eq!(error.status(), Status::Unsupported, "{error}");
                assert!(error.message().contains(words), "{error}");
            }
            assert_eq!(one.fault(), None);
        },
    );
}

#[test]
fn a_compilers_words_are_told() {
    let cases = [Case {
        hip: AMD,
        ..Case::default()
    }];
    alone("a_compilers_words_are_told", &cases, |_| {
        let device = Device::open(Runtime::Hip, 0).unwrap();
        let error = device.load(Code::Source("int x = ;")).err().unwrap();
        assert_eq!(error.status(), Status::Unsupported);
        for words in [
            "hiprtcCompileProgram",
            "COMPILATION",
            "\"int\" is not understood",
        ] {
            assert!(error.message().contains(words), "{error}");
        }
    });
}

#[test]
fn running_out_of_memory_is_no_fault() {
    let cases = ["oom@1", "oom@2", "oom@4"].map(|fault| Case {
        cuda: "H200:9.0:132:1",
        hip: "MI300X:gfx942:304:1",
        fault,
    });
    alone("running_out_of_memory_is_no_fault", &cases, |_| {
        for runtime in Runtime::ALL {
            let device = Device::open(runtime, 0).unwrap();
            let (code, _) = both(runtime);
            let error = added(&device, code, 100).unwrap_err();
            assert_eq!(error.status(), Status::OutOfMemory, "{error}");
            assert_eq!(device.fault(), None);
            let expected: Vec<f32> = (0..100).map(|at| 2.0 * at as f32).collect();
            assert_eq!(added(&device, code, 100).unwrap(), expected);
            // More than there is.
            let error = device.allocate(2 << 20).err().unwrap();
            assert_eq!(error.status(), Status::OutOfMemory, "{error}");
        }
    });
}

#[test]
fn a_fault_stays_with_its_device_alone() {
    let cases = ["fault@1", "fault@2"].map(|fault| Case {
        cuda: TWO,
        hip: AMD,
        fault,
    });
    alone("a_fault_stays_with_its_device_alone", &cases, |case| {
        for runtime in Runtime::ALL {
            let device = Device::open(runtime, 0).unwrap();
            let (code, _) = both(runtime);
            if case == 1 {
                added(&device, code, 10).unwrap();
            }
            let first = added(&device, code, 10).unwrap_err();
            assert_eq!(first.status(), Status::DeviceFault, "{first}");
            assert!(first.message().contains("700, "), "{first}");
            assert!(device.fault().is_some());
            let later: [Error; 4] = [
                device.allocate(1).err().unwrap(),
                device.stream().err().unwrap(),
                device.memory().unwrap_err(),
                added(&device, code, 10).unwrap_err(),
            ];
            for error in later {
                assert_eq!(error.message(), first.message());
                assert_eq!(error.status(), Status::DeviceFault);
            }
        }
        let other = Device::open(Runtime::Cuda, 1).unwrap();
        added(&other, both(Runtime::Cuda).0, 10).unwrap();
    });
}

/// A kernel's own fault is seen by who waits, and tells what it was.
#[test]
fn an_access_beside_an_allocation_is_a_fault() {
    let cases = [Case {
        cuda: TWO,
        ..Case::default()
    }];
    alone("an_access_beside_an_allocation_is_a_fault", &cases, |_| {
        let device = Device::open(Runtime::Cuda, 0).unwrap();
        let code = ADD.replace("setp.ge.u32", "setp.gt.u32");
        let error = added(&device, Code::Image(code.as_bytes()), 100).unwrap_err();
        assert_eq!(error.status(), Status::DeviceFault);
        for words in [
            "CUDA_ERROR_ILLEGAL_ADDRESS",
            "no allocation's",
            "block [1, 0, 0] of add",
        ] {
            assert!(error.message().contains(words), "{error}");
        }
    });
}

/// Every call of a whole program fails once, with an unknown code: it is an error, and
/// nothing is left behind.
#[test]
fn a_code_that_nobody_knows_is_an_error_wherever_it_comes() {
    let faults: Vec<String> = (1..60).map(|call| format!("code917@{call}")).collect();
    let cases: Vec<Case<'_>> = faults
        .iter()
        .map(|fault| Case {
            cuda: "H200:9.0:132:1024",
            fault,
            ..Case::default()
        })
        .collect();
    alone(
        "a_code_that_nobody_knows_is_an_error_wherever_it_comes",
        &cases,
        |_| {
            let outcome = Device::open(Runtime::Cuda, 0)
                .and_then(|device| added(&device, both(Runtime::Cuda).0, 100));
            match outcome {
                Ok(sums) => assert_eq!(sums[99], 198.0),
                Err(error) => {
                    let status = error.status();
                    assert!(
                        matches!(status, Status::DeviceFault | Status::Unsupported),
                        "{error}"
                    );
                }
            }
        },
    );
}

#[test]
fn a_slow_launch_is_waited_for() {
    let cases = [Case {
        cuda: TWO,
        fault: "slow@1:50ms",
        ..Case::default()
    }];
    alone("a_slow_launch_is_waited_for", &cases, |_| {
        let device = Device::open(Runtime::Cuda, 0).unwrap();
        let start = std::time::Instant::now();
        assert_eq!(
            added(&device, both(Runtime::Cuda).0, 2).unwrap(),
            [0.0, 2.0]
        );
        assert!(start.elapsed().as_millis() >= 50);
    });
}

#[test]
fn a_borrowed_stream_is_its_devices_and_stays() {
    let cases = [Case {
        cuda: TWO,
        hip: "MI300X:gfx942:304:1024,MI300X:gfx942:304:1024",
        ..Case::default()
    }];
    alone("a_borrowed_stream_is_its_devices_and_stays", &cases, |_| {
        for runtime in Runtime::ALL {
            let [one, other] = [0, 1].map(|index| Device::open(runtime, index).unwrap());
            let owner = one.stream().unwrap();
            let address = owner.address();
            // SAFETY: a stream that lives as long as this block.
            let lent = unsafe { BorrowedStream::at(address) }.unwrap();
            one.borrow_stream(lent).unwrap().wait().unwrap();
            let error = other.borrow_stream(lent).err().unwrap();
            assert_eq!(error.status(), Status::InvalidArgument);
            assert!(
                error.message().contains(&format!("{address:#x}")),
                "{error}"
            );
            // It was not ended by its borrower.
            owner.wait().unwrap();
        }
    });
}
