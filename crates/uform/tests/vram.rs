//! Models in the memory of GPUs: executors that drive them, loading, and calls, on the stand-ins for the
//! vendors' drivers that `fake-gpu` has.

#![cfg(feature = "native")]

mod common;

use std::ops::Deref;
use std::sync::{Arc, mpsc};

use common::fake::{Case, alone};
use common::real_model;
use common::tiny::{SMALL, Sizes, Tiny, WORDS};
use serde_json::json;
use uform::device::{BorrowedStream, Device, Runtime};
use uform::executor::{Control, Executor, ExecutorKind, Mood};
use uform::hardware::GpuClass;
use uform::kernels::Precision;
use uform::model::files::Memory;
use uform::model::{
    DeviceEmbeddings, EncodeOptions, Model, ModelOptions, Pooling, Residency, Texts, Truncate,
    VramModelOptions,
};
use uform::placement::VramOptions;
use uform::{Error, Result, Status};

const ONE: &str = "H200:9.0:132:1024";
const AMD: &str = "MI300X:gfx942:304:1024";

fn cuda(devices: &str) -> [Case<'_>; 1] {
    [Case {
        cuda: devices,
        ..Case::default()
    }]
}

fn source(tiny: &Tiny) -> Memory {
    let files = tiny.files.iter();
    Memory::new(files.map(|(name, bytes)| (name.clone(), bytes.clone())))
}

/// An executor that is freed in the end: one that is dropped gives things back in its own time.
struct Gpus(Executor);

impl Deref for Gpus {
    type Target = Executor;

    fn deref(&self) -> &Executor {
        &self.0
    }
}

impl Drop for Gpus {
    fn drop(&mut self) {
        self.0.free();
    }
}

fn made(options: &VramOptions) -> Result<Gpus> {
    Executor::for_vram(options).map(Gpus)
}

fn driving(devices: &[u32]) -> Gpus {
    let options = VramOptions {
        devices: devices.to_vec(),
        ..VramOptions::default()
    };
    made(&options).unwrap()
}

fn in_precision(precision: Precision) -> VramModelOptions {
    VramModelOptions {
        precision: Some(precision),
        ..VramModelOptions::default()
    }
}

fn load(tiny: &Tiny, precision: Precision, executor: &Executor) -> Result<Model> {
    Model::load_vram_from(&source(tiny), &in_precision(precision), executor)
}

fn on_host(tiny: &Tiny, texts: &Texts, options: &EncodeOptions) -> Vec<Vec<f32>> {
    let executor = Executor::inline();
    let load = ModelOptions {
        precision: Some(Precision::F32),
        ..ModelOptions::default()
    };
    let model = Model::load_from(&source(tiny), &load, &executor).unwrap();
    let found = model.encode_text(&executor, texts, options).unwrap();
    (0..found.rows).map(|row| found.row(row).to_vec()).collect()
}

fn rows(found: &DeviceEmbeddings) -> Vec<Vec<f32>> {
    let host = found.to_host().unwrap();
    assert_eq!(
        (host.rows, host.dimensions),
        (found.rows(), found.dimensions())
    );
    assert_eq!(
        (&*host.tokens, &*host.truncated),
        (found.tokens(), found.truncated())
    );
    (0..host.rows).map(|row| host.row(row).to_vec()).collect()
}

/// A text of so many words.
fn words(count: usize) -> String {
    let words = [
        "red", "bicycle", "the", "sea", "is", "blue", "green", "tree", "!",
    ];
    let chosen = (0..count).map(|at| words[at * 7 % words.len()]);
    chosen.collect::<Vec<_>>().join(" ")
}

/// The cosine of two vectors; none where there is no number.
fn cosine(one: &[f32], other: &[f32]) -> f64 {
    let dot = |one: &[f32], other: &[f32]| -> f64 {
        let pairs = one.iter().zip(other);
        pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    assert_eq!(one.len(), other.len());
    dot(one, other) / (dot(one, one) * dot(other, other)).sqrt()
}

/// Whether vectors are as near as a precision brings them, in direction and length.
fn assert_near(found: &[Vec<f32>], expected: &[Vec<f32>], precision: Precision, what: &str) {
    assert_eq!(found.len(), expected.len());
    let least = match precision {
        Precision::F32 => 0.999_999,
        _ => 0.9999,
    };
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let near = cosine(found, expected);
        let length = |vector: &[f32]| {
            vector
                .iter()
                .map(|x| f64::from(*x).powi(2))
                .sum::<f64>()
                .sqrt()
        };
        let longer = length(found) / length(expected);
        assert!(
            near >= least && (longer - 1.0).abs() < 1.0 - least.min(0.99),
            "{what}, {precision:?}, text {at}: cosine {near}, {longer} times as long"
        );
    }
}

const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::Bf16];

fn encode(model: &Model, executor: &Executor, texts: &[&str]) -> Result<DeviceEmbeddings> {
    let texts = Texts::from_iter(texts);
    model.encode_text_vram(executor, &texts, &EncodeOptions::default())
}

/// Whether an outcome is an error of a kind that says these words.
fn assert_fails<T>(outcome: Result<T>, status: Status, words: &[&str]) {
    let error = outcome.err().expect("it fails");
    assert_eq!(error.status(), status, "{error}");
    for words in words {
        assert!(
            error.message().contains(words),
            "{words:?} is not in {error}"
        );
    }
}

#[test]
fn vectors_are_the_hosts_on_any_number_of_devices() {
    let eight = [ONE; 8].join(",");
    alone(
        "vectors_are_the_hosts_on_any_number_of_devices",
        &cuda(&eight),
        |_| {
            let tiny = Tiny::of(SMALL);
            let lengths = [0, 5, 1, 63, 9, 64, 2, 100, 17, 510];
            let texts: Vec<String> = lengths.map(words).into();
            let expected = on_host(&tiny, &Texts::from_iter(&texts), &EncodeOptions::default());
            for precision in PRECISIONS {
                let mut first: Option<Vec<Vec<f32>>> = None;
                for devices in [&[0][..], &[3, 1], &[0, 1, 2, 3, 4, 5, 6, 7]] {
                    let executor = driving(devices);
                    let model = load(&tiny, precision, &executor).unwrap();
                    assert_eq!(model.describe().devices, devices);
                    // The longest takes long, and one device is enough for it.
                    let few = first.as_ref().map_or(texts.len(), |_| texts.len() - 1);
                    let texts = Texts::from_iter(&texts[..few]);
                    let options = EncodeOptions::default();
                    let found = model.encode_text_vram(&executor, &texts, &options).unwrap();
                    assert_eq!(found.tokens()[..3], [2, 7, 3]);
                    let parts = found.parts();
                    assert_eq!(parts.iter().map(|part| part.rows).sum::<usize>(), few);
                    assert_eq!(parts.len() > 1, devices.len() > 1);
                    for part in parts {
                        assert!(
                            devices.contains(&part.device) && part.address > 0,
                            "{part:?}"
                        );
                    }
                    let found = rows(&found);
                    assert_near(&found, &expected[..few], precision, "a batch");
                    // Bit for bit the same, whatever else is computed at the same time.
                    let first = first.get_or_insert_with(|| found.clone());
                    assert!(first[..few] == found, "{precision:?} on {devices:?}");
                    for at in [0, 5] {
                        let alone = encode(&model, &executor, &[texts.get(at)]).unwrap();
                        assert!(rows(&alone)[0] == found[at], "{precision:?}, text {at}");
                    }
                }
            }
        },
    );
}

#[test]
fn options_and_files_mean_what_they_mean_on_the_host() {
    const NAME: &str = "options_and_files_mean_what_they_mean_on_the_host";
    alone(NAME, &cuda(ONE), |_| {
        let plain = Tiny::of(SMALL);
        // An odd width, a size that kernels round up, another activation, and prompts that are not pooled.
        let mut odd = Tiny::of(Sizes { inner: 91, ..SMALL });
        odd.add_dense(33);
        odd.set("config.json", "/hidden_act", json!("silu"));
        odd.set("1_Pooling/config.json", "/include_prompt", json!(false));
        let cut = EncodeOptions {
            dimensions: Some(21),
            normalize: Some(false),
            pooling: Some(Pooling::WeightedMean),
            ..EncodeOptions::default()
        };
        let prompted = EncodeOptions {
            prompt: Some("query".into()),
            ..EncodeOptions::default()
        };
        let pooled = [Pooling::Cls, Pooling::Max, Pooling::Last, Pooling::MeanSqrt];
        let pooled = pooled.map(|pooling| EncodeOptions {
            pooling: Some(pooling),
            normalize: Some(false),
            ..EncodeOptions::default()
        });
        let texts = Texts::from_iter(["", "a red bicycle", "the sea is blue!"]);
        let executor = driving(&[]);
        assert_eq!(executor.describe().devices[0].ordinal, 0);
        for tiny in [&plain, &odd] {
            for precision in PRECISIONS {
                let model = load(tiny, precision, &executor).unwrap();
                for options in [&cut, &prompted].into_iter().chain(&pooled) {
                    let found = model.encode_text_vram(&executor, &texts, options).unwrap();
                    let expected = on_host(tiny, &texts, options);
                    assert_near(&rows(&found), &expected, precision, &format!("{options:?}"));
                }
                let none = model
                    .encode_text_vram(&executor, &Texts::default(), &cut)
                    .unwrap();
                assert_eq!(
                    (none.rows(), none.dimensions(), none.parts().len()),
                    (0, 21, 0)
                );
                assert!(none.to_host().unwrap().data.is_empty());
            }
        }
        // What is in i8 in the files is computed in the precisions there are.
        let mut quantized = Tiny::of(SMALL);
        quantized.quantize();
        let options = EncodeOptions::default();
        let model = load(&quantized, Precision::Bf16, &executor).unwrap();
        let found = model.encode_text_vram(&executor, &texts, &options).unwrap();
        let expected = on_host(&quantized, &texts, &options);
        assert_near(&rows(&found), &expected, Precision::Bf16, "from i8");

        let model = load(&plain, Precision::F32, &executor).unwrap();
        let long = Texts::from_iter([words(600)]);
        let refuse = EncodeOptions {
            truncate: Truncate::Refuse,
            ..EncodeOptions::default()
        };
        let refused = model.encode_text_vram(&executor, &long, &refuse);
        assert_fails(refused, Status::InvalidArgument, &["602 tokens"]);
        let told = model.describe();
        assert_eq!((told.residency, told.cpu_class), (Residency::Vram, None));
        assert_eq!(
            (told.gpu_class, told.precision),
            (Some(GpuClass::NvidiaHopper), Precision::F32)
        );
        assert!(told.bytes > 4 * told.parameters as usize);
        let ram = Model::load_from(
            &source(&plain),
            &ModelOptions::default(),
            &Executor::inline(),
        );
        assert_eq!(ram.unwrap().describe().parameters, told.parameters);
    });
}

#[test]
fn the_real_model_has_the_hosts_vectors() {
    const NAME: &str = "the_real_model_has_the_hosts_vectors";
    alone(NAME, &cuda(ONE), |_| {
        let texts = Texts::from_iter(["a red bicycle"]);
        let options = EncodeOptions::default();
        let inline = Executor::inline();
        let load = ModelOptions {
            precision: Some(Precision::F32),
            ..ModelOptions::default()
        };
        let host = Model::load_ram(&real_model(), &load, &inline).unwrap();
        let expected = host.encode_text(&inline, &texts, &options).unwrap();
        let executor = driving(&[0]);
        let load = in_precision(Precision::Bf16);
        let model = Model::load_vram(&real_model(), &load, &executor).unwrap();
        let found = model.encode_text_vram(&executor, &texts, &options).unwrap();
        assert_near(
            &rows(&found),
            &[expected.data],
            Precision::Bf16,
            "all-MiniLM-L6-v2",
        );
    });
}

#[test]
fn models_that_kernels_cannot_compute_are_refused_when_loaded() {
    const NAME: &str = "models_that_kernels_cannot_compute_are_refused_when_loaded";
    alone(NAME, &cuda(ONE), |_| {
        let executor = driving(&[0]);
        let sized = |hidden, heads| {
            Tiny::of(Sizes {
                hidden,
                heads,
                ..SMALL
            })
        };
        let small_heads = sized(24, 2);
        for (tiny, precision, words) in [
            (
                &Tiny::of(SMALL),
                Precision::I8,
                &["\"i8\"", "bf16", "f32"][..],
            ),
            (
                &small_heads,
                Precision::Bf16,
                &["multiple of 8", "are of 12", "\"f32\""],
            ),
            (
                &sized(130, 1),
                Precision::F32,
                &["heads are of 130", "up to 128", "loadRam"],
            ),
            (&sized(9, 3), Precision::F32, &["hidden size is 9", "even"]),
        ] {
            assert_fails(load(tiny, precision, &executor), Status::Unsupported, words);
        }
        // What is chosen suits the model.
        for (tiny, precision) in [
            (&small_heads, Precision::F32),
            (&Tiny::of(SMALL), Precision::Bf16),
        ] {
            let options = VramModelOptions::default();
            let model = Model::load_vram_from(&source(tiny), &options, &executor).unwrap();
            assert_eq!(model.precision(), precision);
            let found = rows(&encode(&model, &executor, &["a red bicycle"]).unwrap());
            let texts = Texts::from_iter(["a red bicycle"]);
            let expected = on_host(tiny, &texts, &EncodeOptions::default());
            assert_near(&found, &expected, precision, "auto");
        }
        // A configuration that promises more than there is fails for what is missing.
        let mut vast = Tiny::of(SMALL);
        vast.set("config.json", "/intermediate_size", json!(1 << 18));
        vast.set("config.json", "/num_hidden_layers", json!(1000));
        let outcome = load(&vast, Precision::F32, &executor);
        assert_fails(outcome, Status::CorruptModel, &["has shape [128, 64]"]);
        // Numbers that overflow are found before they are returned.
        let mut large = Tiny::of(SMALL);
        large.edit_tensor("encoder.layer.1.output.LayerNorm.weight", |gain| {
            (0..64).for_each(|at| gain.put(at, 3e38));
        });
        let model = load(&large, Precision::F32, &executor).unwrap();
        let outcome = encode(&model, &executor, &["a red bicycle", "the sea"]);
        assert_fails(outcome, Status::CorruptModel, &["text 0 is not finite"]);
        let model = load(&Tiny::of(SMALL), Precision::F32, &executor).unwrap();
        assert!(encode(&model, &executor, &["the sea"]).is_ok());
    });
}

#[test]
fn an_executor_computes_models_of_its_residency() {
    const NAME: &str = "an_executor_computes_models_of_its_residency";
    let devices = [ONE, ONE, "RTX4090:8.9:128:1024"].join(",");
    alone(NAME, &cuda(&devices), |_| {
        let tiny = Tiny::of(SMALL);
        let texts = Texts::from_iter(["a red bicycle"]);
        let options = EncodeOptions::default();
        let gpus = driving(&[0]);
        assert_eq!(gpus.kind(), ExecutorKind::Vram);
        let threads = Executor::for_ram(&Default::default()).unwrap();
        let inline = Executor::inline();
        let ram = Model::load_from(&source(&tiny), &ModelOptions::default(), &threads).unwrap();
        let vram = load(&tiny, Precision::F32, &gpus).unwrap();

        let invalid = Status::InvalidArgument;
        let host_on_gpus = &["host memory", "one of GPUs", "Executor.forRam"];
        assert_fails(
            ram.encode_text(&gpus, &texts, &options),
            invalid,
            host_on_gpus,
        );
        let loaded = Model::load_from(&source(&tiny), &ModelOptions::default(), &gpus);
        assert_fails(loaded, invalid, host_on_gpus);
        for (host, which) in [(&threads, "host threads"), (&inline, "name no executor")] {
            let words = &["memory of GPUs", which, "Executor.forVram"];
            assert_fails(
                vram.encode_text_vram(host, &texts, &options),
                invalid,
                words,
            );
            assert_fails(load(&tiny, Precision::F32, host), invalid, words);
            assert_fails(vram.encode_text(host, &texts, &options), invalid, words);
        }
        assert_fails(
            vram.encode_text(&gpus, &texts, &options),
            invalid,
            &["encode_text_vram"],
        );
        assert_fails(
            ram.encode_text_vram(&inline, &texts, &options),
            invalid,
            &["encode_text"],
        );
        let (sender, outcome) = mpsc::channel();
        vram.encode_text_vram_deferred(
            &inline,
            texts.clone(),
            options.clone(),
            Arc::default(),
            move |outcome| sender.send(outcome).unwrap(),
        );
        assert_fails(outcome.recv().unwrap(), invalid, &["memory of GPUs"]);

        // Any executor that drives one of the model's devices computes it.
        let others = driving(&[1, 2]);
        assert_fails(
            encode(&vram, &others, &["x"]),
            invalid,
            &["on devices [0]", "drives [1, 2]"],
        );
        let beside = driving(&[1, 0]);
        let found = encode(&vram, &beside, &["a red bicycle", "the sea"]).unwrap();
        assert!(found.parts().iter().all(|part| part.device == 0));
        let other = encode(&vram, &gpus, &["a red bicycle", "the sea"]).unwrap();
        assert_eq!(rows(&found), rows(&other));

        // So do classes: one that is pinned computes what was loaded for it.
        let pin = |gpu_class| VramOptions {
            devices: vec![0],
            gpu_class: Some(gpu_class),
            ..VramOptions::default()
        };
        let lowest = made(&pin(GpuClass::NvidiaAmpere)).unwrap();
        let both = &["nvidia-ampere", "nvidia-hopper"];
        assert_fails(encode(&vram, &lowest, &["x"]), invalid, both);
        let of_class = |class, executor: &Executor| {
            let options = VramModelOptions {
                gpu_class: class,
                ..VramModelOptions::default()
            };
            Model::load_vram_from(&source(&tiny), &options, executor)
        };
        assert_fails(
            of_class(Some(GpuClass::NvidiaHopper), &lowest),
            invalid,
            both,
        );
        let model = of_class(None, &lowest).unwrap();
        assert_eq!(model.gpu_class(), Some(GpuClass::NvidiaAmpere));
        assert!(encode(&model, &lowest, &["x"]).is_ok());
        let model = of_class(Some(GpuClass::NvidiaAmpere), &gpus).unwrap();
        assert!(encode(&model, &gpus, &["x"]).is_ok());
        let accepted = &["device 2", "accepted for it: nvidia-ampere, nvidia-ada"];
        assert_fails(
            of_class(Some(GpuClass::NvidiaHopper), &others),
            invalid,
            accepted,
        );
        assert_eq!(of_class(None, &others).unwrap().gpu_class(), None);

        let some = |devices: &[u32]| {
            let options = VramModelOptions {
                devices: devices.to_vec(),
                ..VramModelOptions::default()
            };
            Model::load_vram_from(&source(&tiny), &options, &others)
        };
        assert_eq!(some(&[2]).unwrap().describe().devices, [2]);
        assert_fails(
            some(&[0]),
            invalid,
            &["0 is not one of the executor's", "1, 2"],
        );
        assert_fails(some(&[1, 1]), invalid, &["1 is there twice"]);
    });
}

#[test]
fn executors_are_made_of_devices_and_streams_that_are_there() {
    let cases = [
        Case {
            cuda: "V100:7.0:80:1024,H200:9.0:132:1024,H200:9.0:132:1024",
            hip: AMD,
            ..Case::default()
        },
        Case::default(),
        Case {
            cuda: "V100:7.0:80:1024",
            ..Case::default()
        },
    ];
    const NAME: &str = "executors_are_made_of_devices_and_streams_that_are_there";
    alone(NAME, &cases, |case| {
        let make = |options: VramOptions| made(&options);
        let devices = |devices: &[u32]| VramOptions {
            devices: devices.to_vec(),
            ..VramOptions::default()
        };
        if case == 1 {
            let words = &["no GPU that can be driven", "CUDA_ERROR_NO_DEVICE"];
            assert_fails(make(VramOptions::default()), Status::Unsupported, words);
            assert_fails(make(devices(&[0])), Status::Unsupported, words);
            return;
        }
        if case == 2 {
            let words = &["device 0, V100", "compute capability 8.0"];
            assert_fails(make(VramOptions::default()), Status::Unsupported, words);
            return;
        }
        assert_fails(
            make(devices(&[4])),
            Status::InvalidArgument,
            &["device 4", "0, 1, 2, 3"],
        );
        let limit = VramOptions {
            scratch_limit: Some(0),
            ..devices(&[1])
        };
        assert_fails(make(limit), Status::InvalidArgument, &["scratchLimit is 0"]);
        // The first that is not driven.
        let one = make(VramOptions::default()).unwrap();
        let other = make(VramOptions::default()).unwrap();
        let ordinal = |executor: &Executor| executor.describe().devices[0].ordinal;
        assert_eq!((ordinal(&one), ordinal(&other)), (1, 2));
        drop(other);

        // Borrowed streams stay their owner's.
        let device = Device::open(Runtime::Cuda, 2).unwrap();
        let stream = device.stream().unwrap();
        // SAFETY: it lives as long as this block, and what is no stream is refused.
        let [lent, nonsense] =
            [stream.address(), 0x123].map(|at| unsafe { BorrowedStream::at(at) });
        let borrowing = |ordinals: &[u32], streams: &[Option<BorrowedStream>]| {
            make(VramOptions {
                streams: streams.to_vec(),
                ..devices(ordinals)
            })
        };
        let executor = borrowing(&[1, 2], &[None, lent]).unwrap();
        let told = executor.describe().devices;
        let borrowed: Vec<_> = told.iter().map(|device| device.stream_borrowed).collect();
        assert_eq!(borrowed, [false, true]);
        let model = load(&Tiny::of(SMALL), Precision::F32, &executor).unwrap();
        let found = encode(&model, &executor, &["a red bicycle", "the blue sea"]).unwrap();
        executor.free();
        stream.wait().unwrap();
        assert_eq!(found.to_host().unwrap().rows, 2);
        let invalid = Status::InvalidArgument;
        assert_fails(
            borrowing(&[2, 1], &[None, lent]),
            invalid,
            &["is not one of H200", "0x"],
        );
        assert_fails(
            borrowing(&[2], &[nonsense]),
            invalid,
            &["0x123", "is not one of H200"],
        );
        assert_fails(
            borrowing(&[1, 2], &[lent]),
            invalid,
            &["`streams` has 1", "2 devices"],
        );

        // AMD's are driven by the same calls.
        let executor = make(devices(&[3, 1])).unwrap();
        let classes: Vec<_> = executor
            .describe()
            .devices
            .iter()
            .map(|one| one.gpu_class)
            .collect();
        assert_eq!(classes, ["amd-cdna3", "nvidia-hopper"]);
        let ordinals = executor.on_devices(&Control::new(), |driven, _| {
            Ok(driven
                .iter()
                .map(|one| one.place.ordinal)
                .collect::<Vec<_>>())
        });
        assert_eq!(ordinals.unwrap(), [3, 1]);
        let outcome = load(&Tiny::of(SMALL), Precision::Bf16, &executor);
        assert_fails(outcome, Status::Unsupported, &["tensor cores", "device 3"]);
    });
}

#[test]
fn results_outlive_the_executor_and_the_model() {
    let two = [ONE, ONE].join(",");
    const NAME: &str = "results_outlive_the_executor_and_the_model";
    alone(NAME, &cuda(&two), |_| {
        let tiny = Tiny::of(SMALL);
        let texts = ["a red bicycle", "the sea is blue", "green"];
        let executor = driving(&[0, 1]);
        let model = load(&tiny, Precision::F32, &executor).unwrap();
        // What is dropped is used again, what is not stays.
        let first = encode(&model, &executor, &texts).unwrap().parts();
        let found = encode(&model, &executor, &texts).unwrap();
        assert_eq!(found.parts(), first);
        let other = encode(&model, &executor, &texts).unwrap();
        assert!(
            other
                .parts()
                .iter()
                .zip(&first)
                .all(|(one, first)| one.address != first.address)
        );
        let expected = rows(&found);
        assert_eq!(rows(&other), expected);
        executor.free();
        model.free();
        drop(other);
        assert_eq!(rows(&found), expected);
        let (sender, outcome) = mpsc::channel();
        let inline = Executor::inline();
        found.to_host_deferred(&inline, Arc::default(), move |outcome| {
            sender.send(outcome).unwrap();
        });
        let copy = found.clone();
        drop(found);
        assert_eq!(outcome.recv().unwrap().unwrap().data, expected.concat());
        assert_eq!(rows(&copy), expected);
        assert_eq!(executor.describe().devices[0].scratch_bytes, 0);
        let used = executor.on_devices(&Control::new(), |_, _| Ok(()));
        assert_fails(used, Status::Freed, &["freed"]);
        // Its devices are still busy with the results: the next executor takes another.
        assert_eq!(driving(&[]).describe().devices[0].ordinal, 0);
        drop(copy);
    });
}

#[test]
fn calls_have_their_order_and_are_computed_together() {
    let two = [ONE, ONE].join(",");
    const NAME: &str = "calls_have_their_order_and_are_computed_together";
    alone(NAME, &cuda(&two), |_| {
        let tiny = Tiny::of(SMALL);
        let executor = driving(&[0, 1]);
        let model = load(&tiny, Precision::Bf16, &executor).unwrap();
        let all = ["a", "red", "a red bicycle", "the sea", "is", "blue"];
        let expected = rows(&encode(&model, &executor, &all).unwrap());

        let (sender, outcomes) = mpsc::channel();
        // The queue fills while a call holds.
        let (enter, entered) = mpsc::channel::<()>();
        let (go, wait) = mpsc::channel::<()>();
        executor.on_devices_deferred(
            Arc::default(),
            move |driven, _| {
                enter.send(()).unwrap();
                wait.recv().unwrap();
                Ok(driven.len())
            },
            |outcome| assert_eq!(outcome.unwrap(), 2),
        );
        entered.recv().unwrap();
        assert_fails(
            encode(&model, &executor, &["a"]),
            Status::Contended,
            &["holds"],
        );
        let given_up = Arc::new(Control::new());
        let controls = (0..all.len()).map(|at| match at {
            3 => Arc::clone(&given_up),
            _ => Arc::default(),
        });
        let controls: Vec<_> = controls.collect();
        for (at, (text, control)) in all.iter().zip(&controls).enumerate() {
            let sender = sender.clone();
            model.encode_text_vram_deferred(
                &executor,
                Texts::from_iter([text]),
                EncodeOptions::default(),
                Arc::clone(control),
                move |outcome| sender.send((at, outcome)).unwrap(),
            );
        }
        given_up.cancel();
        go.send(()).unwrap();
        executor.drain(Mood::Parked).unwrap();
        let mut devices = Vec::new();
        for turn in 0..all.len() {
            let (at, outcome) = outcomes.recv().unwrap();
            // The one that was given up ended first.
            assert_eq!(at, [3, 0, 1, 2, 4, 5][turn]);
            match outcome {
                Err(error) => assert_eq!((at, error.status()), (3, Status::Aborted)),
                Ok(found) => {
                    assert_eq!(rows(&found), expected[at..=at]);
                    assert_eq!(controls[at].progress(), (1, 1));
                    devices.push(found.parts()[0].device);
                }
            }
        }
        // Each to the device with least to do.
        assert_eq!(devices, [0, 1, 0, 1, 1]);
        executor.free();
        assert_fails(encode(&model, &executor, &["a"]), Status::Freed, &["freed"]);
    });
}

#[test]
fn scratch_stays_below_its_limit() {
    alone("scratch_stays_below_its_limit", &cuda(ONE), |_| {
        let tiny = Tiny::of(SMALL);
        let limited = |scratch_limit| {
            let options = VramOptions {
                scratch_limit,
                ..VramOptions::default()
            };
            made(&options).unwrap()
        };
        let free = limited(None);
        let model = load(&tiny, Precision::Bf16, &free).unwrap();
        let texts: Vec<String> = (1..20).map(words).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let expected = encode(&model, &free, &texts).unwrap();
        let told = &free.describe().devices[0];
        assert_eq!(told.scratch_limit, None);
        // What docs/memory.md says, each of seven pieces rounded up; and what the model takes.
        let Sizes {
            hidden: h,
            inner: i,
            layers,
            ..
        } = SMALL;
        let tokens: usize = expected
            .tokens()
            .iter()
            .map(|tokens| *tokens as usize)
            .sum();
        let most = tokens * (6 * h + 2 * i.max(3 * h) + 9) + expected.rows() * (4 * h + 28);
        let bytes = told.scratch_bytes;
        assert!(
            (most * 9 / 10..most + 7 * 256).contains(&bytes),
            "{bytes} of {most}"
        );
        let tables = 4 * h * (WORDS.len() + SMALL.positions + 3 + 2);
        let dense = 2 * (4 * h * h + 2 * h * i) + 4 * (9 * h + i);
        assert_eq!(model.bytes(), tables + layers * dense);
        // Kept, and enough for less.
        encode(&model, &free, &["a red bicycle"]).unwrap();
        assert_eq!(free.describe().devices[0].scratch_bytes, told.scratch_bytes);

        // Less scratch is smaller blocks, and the same vectors; a text that needs more is refused.
        let tight = limited(Some(50_000));
        assert_eq!(
            rows(&encode(&model, &tight, &texts).unwrap()),
            rows(&expected)
        );
        let told = &tight.describe().devices[0];
        assert!(told.scratch_bytes <= 50_000, "{told:?}");
        assert_eq!(told.scratch_limit, Some(50_000));
        let long = words(300);
        let outcome = encode(&model, &tight, &["a", &long, "b"]);
        let words = &[
            "bytes of scratch",
            "device 0",
            "scratchLimit is 50000",
            "shorter texts",
        ];
        assert_fails(outcome, Status::OutOfMemory, words);
        assert_eq!(
            tight.describe().devices[0].scratch_bytes,
            told.scratch_bytes
        );
        assert!(encode(&model, &tight, &["a"]).is_ok());
        tight.drain(Mood::Parked).unwrap();
    });
}

/// A whole program: an executor, a model, two calls, the second of which is deferred.
fn program(tiny: &Tiny, devices: &[u32]) -> (Option<Gpus>, Result<Vec<Vec<f32>>>) {
    let options = VramOptions {
        devices: devices.to_vec(),
        ..VramOptions::default()
    };
    let executor = match made(&options) {
        Ok(executor) => executor,
        Err(error) => return (None, Err(error)),
    };
    let outcome = calls(tiny, &executor);
    (Some(executor), outcome)
}

fn calls(tiny: &Tiny, executor: &Executor) -> Result<Vec<Vec<f32>>> {
    let model = load(tiny, Precision::Bf16, executor)?;
    let mut found = encode(&model, executor, &["a red bicycle", "sea"])?;
    let (sender, outcome) = mpsc::channel();
    model.encode_text_vram_deferred(
        executor,
        Texts::from_iter(["the blue sea", "is"]),
        EncodeOptions::default(),
        Arc::default(),
        move |outcome| drop(sender.send(outcome)),
    );
    let mut all = rows_of(&mut found)?;
    all.extend(rows_of(&mut outcome.recv().expect("it is told")?)?);
    Ok(all)
}

fn rows_of(found: &mut DeviceEmbeddings) -> Result<Vec<Vec<f32>>> {
    let host = found.to_host()?;
    Ok((0..host.rows).map(|row| host.row(row).to_vec()).collect())
}

#[test]
fn running_out_of_device_memory_ends_the_call_alone() {
    // Weights, staging, results and scratch of two devices.
    let faults: Vec<String> = (1..=10).map(|at| format!("oom@{at}")).collect();
    let two = [ONE, ONE].join(",");
    let cases: Vec<Case<'_>> = faults
        .iter()
        .map(|fault| Case {
            cuda: &two,
            fault,
            ..Case::default()
        })
        .collect();
    const NAME: &str = "running_out_of_device_memory_ends_the_call_alone";
    alone(NAME, &cases, |_| {
        let tiny = Tiny::of(SMALL);
        let executor = driving(&[0, 1]);
        let expected = [(); 3].map(|()| calls(&tiny, &executor));
        let (found, failed): (Vec<_>, Vec<_>) = expected.into_iter().partition(Result::is_ok);
        let failed: Vec<Error> = failed.into_iter().filter_map(Result::err).collect();
        assert_eq!((found.len(), failed.len()), (2, 1));
        assert_eq!(failed[0].status(), Status::OutOfMemory);
        // How much, of which memory, on which device, and what to do; not the driver's bare words.
        for words in [" bytes", "device ", "free "] {
            assert!(failed[0].message().contains(words), "{}", failed[0]);
        }
        executor.drain(Mood::Parked).unwrap();
    });
}

#[test]
fn a_fault_is_the_answer_to_every_later_call() {
    let cases = ["fault@1", "fault@17", "fault@19", "fault@40"].map(|fault| Case {
        cuda: "H200:9.0:132:1024,H200:9.0:132:1024,H200:9.0:132:1024",
        fault,
        ..Case::default()
    });
    const NAME: &str = "a_fault_is_the_answer_to_every_later_call";
    alone(NAME, &cases, |case| {
        let tiny = Tiny::of(SMALL);
        let (executor, outcome) = program(&tiny, &[0, 1]);
        let executor = executor.unwrap();
        let fault = outcome.unwrap_err();
        assert_eq!(fault.status(), Status::DeviceFault, "case {case}: {fault}");
        let later: [Error; 4] = [
            executor.drain(Mood::Parked).unwrap_err(),
            calls(&tiny, &executor).unwrap_err(),
            executor.immediate(&Control::new(), |_| Ok(())).unwrap_err(),
            {
                let (sender, outcome) = mpsc::channel();
                executor.deferred(
                    Arc::default(),
                    |_| Ok(()),
                    move |outcome| {
                        sender.send(outcome).unwrap();
                    },
                );
                outcome.recv().unwrap().unwrap_err()
            },
        ];
        for error in later {
            assert_eq!(error.status(), Status::DeviceFault);
            assert_eq!(error.message(), fault.message());
        }
        // Another device works on.
        let (other, outcome) = program(&tiny, &[2]);
        assert_eq!(outcome.unwrap().len(), 4);
        other.unwrap().drain(Mood::Parked).unwrap();
        executor.free();
        assert_fails(executor.drain(Mood::Parked), Status::Freed, &["freed"]);
    });
}

#[test]
fn a_fault_names_its_device_and_the_way_out_wherever_it_is_told() {
    let cases = [Case {
        cuda: "H200:9.0:132:1024,H100:9.0:132:1024",
        // The second call's.
        fault: "fault@25",
        ..Case::default()
    }];
    const NAME: &str = "a_fault_names_its_device_and_the_way_out_wherever_it_is_told";
    alone(NAME, &cases, |_| {
        let tiny = Tiny::of(SMALL);
        let executor = driving(&[1]);
        let model = load(&tiny, Precision::F32, &executor).unwrap();
        let kept = encode(&model, &executor, &["sea"]).unwrap();
        let mut all = Vec::new();
        while all.is_empty() {
            all.extend(encode(&model, &executor, &["the blue sea"]).err());
        }
        all.extend(encode(&model, &executor, &["sea"]).err());
        all.extend(executor.drain(Mood::Parked).err());
        all.extend(kept.to_host().err());
        all.extend(load(&tiny, Precision::F32, &executor).err());
        let options = VramOptions {
            devices: vec![1],
            ..VramOptions::default()
        };
        all.extend(made(&options).err());
        assert_eq!(all.len(), 6);
        for error in &all {
            assert_eq!(error.status(), Status::DeviceFault, "{error}");
            assert_eq!(error.message(), all[0].message());
        }
        for words in [
            "device 1, H100, has faulted",
            "executor on another device",
            "start the process again",
            "CUDA_ERROR_ILLEGAL_ADDRESS",
        ] {
            assert!(all[0].message().contains(words), "{}", all[0]);
        }
    });
}

#[test]
fn a_device_that_faulted_is_not_chosen_while_another_works() {
    let cases = [Case {
        cuda: "H200:9.0:132:2048,H200:9.0:132:1024",
        fault: "fault@1",
        ..Case::default()
    }];
    const NAME: &str = "a_device_that_faulted_is_not_chosen_while_another_works";
    alone(NAME, &cases, |_| {
        let (executor, outcome) = program(&Tiny::of(SMALL), &[0]);
        assert_fails(outcome, Status::DeviceFault, &["device 0, H200"]);
        // Its context is the process's, and stays as it is when it is not driven.
        drop(executor);
        let (first, second) = (driving(&[]), driving(&[]));
        for executor in [&first, &second] {
            assert_eq!(executor.describe().devices[0].ordinal, 1);
        }
    });
}

#[test]
fn a_drain_waits_for_the_devices() {
    let cases = [Case {
        cuda: ONE,
        fault: "slow@3:60ms",
        ..Case::default()
    }];
    alone("a_drain_waits_for_the_devices", &cases, |_| {
        let executor = driving(&[0]);
        let model = load(&Tiny::of(SMALL), Precision::Bf16, &executor).unwrap();
        let (sender, outcome) = mpsc::channel();
        model.encode_text_vram_deferred(
            &executor,
            Texts::from_iter(["a red bicycle"]),
            EncodeOptions::default(),
            Arc::default(),
            move |outcome| sender.send(outcome).unwrap(),
        );
        executor.drain(Mood::Spinning).unwrap();
        assert_eq!(outcome.try_recv().unwrap().unwrap().rows(), 1);
        assert_eq!(executor.mood(), Mood::Spinning);
    });
}

#[test]
fn a_fault_ends_the_calls_that_are_queued() {
    let cases = [Case {
        cuda: ONE,
        fault: "fault@1",
        ..Case::default()
    }];
    alone("a_fault_ends_the_calls_that_are_queued", &cases, |_| {
        let tiny = Tiny::of(SMALL);
        let executor = driving(&[0]);
        let model = load(&tiny, Precision::F32, &executor).unwrap();
        let (sender, outcomes) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let told = sender.clone();
        executor.on_devices_deferred(
            Arc::default(),
            move |_, _| wait.recv().map_err(|_| Error::aborted()),
            move |outcome| told.send(outcome).unwrap(),
        );
        let told = sender.clone();
        model.encode_text_vram_deferred(
            &executor,
            Texts::from_iter(["a"]),
            EncodeOptions::default(),
            Arc::default(),
            move |outcome| told.send(outcome.map(drop)).unwrap(),
        );
        let told = sender.clone();
        executor.deferred(
            Arc::default(),
            |_| Ok(()),
            move |outcome| told.send(outcome).unwrap(),
        );
        go.send(()).unwrap();
        let ends: Vec<_> = outcomes
            .iter()
            .take(3)
            .map(|outcome| outcome.err())
            .collect();
        let ends: Vec<_> = ends
            .iter()
            .map(|error| error.as_ref().map(Error::status))
            .collect();
        let fault = Some(Status::DeviceFault);
        assert_eq!(ends, [None, fault, fault]);
    });
}

/// Every call of the driver fails once, with an unknown code.
#[test]
fn an_unknown_code_is_an_error_and_leaves_nothing() {
    let faults: Vec<String> = (1..36)
        .map(|call| format!("code917@{}", call * 11))
        .collect();
    let cases: Vec<Case<'_>> = faults
        .iter()
        .map(|fault| Case {
            cuda: ONE,
            fault,
            ..Case::default()
        })
        .collect();
    alone(
        "an_unknown_code_is_an_error_and_leaves_nothing",
        &cases,
        |_| {
            let (_, outcome) = program(&Tiny::of(SMALL), &[0]);
            if let Err(error) = outcome {
                let expected = [Status::DeviceFault, Status::Unsupported];
                assert!(expected.contains(&error.status()), "{error}");
            }
        },
    );
}
