//! Models with smaller weights: what is written is the model that was read, loads in every
//! precision, and appears whole or not at all.

#![cfg(feature = "native")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use common::tiny::{HIDDEN, Tensor, Tiny};
use proptest::prelude::*;
use safetensors::{Dtype, SafeTensors};
use serde_json::json;
use tempfile::TempDir;
use uform::executor::{Control, Executor};
use uform::hardware::CpuClass;
use uform::kernels::{Kernels, Precision};
use uform::model::checkpoint::weights::Weights;
use uform::model::files::folder::Folder;
use uform::model::files::{Memory, Source};
use uform::model::quantize::{Quantization, WeightFormat};
use uform::model::{EncodeOptions, Model, ModelOptions, Pooling, Texts};
use uform::{Error, Status};

const WEIGHTS: &str = "model.safetensors";
const WORDS: &str = "embeddings.word_embeddings.weight";
const FED: &str = "encoder.layer.0.output.dense.weight";

/// A folder to work in, with a model in `from`.
fn workshop(tiny: &Tiny) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    tiny.write(&folder.path().join("from")).unwrap();
    folder
}

fn quantize(
    folder: &Path,
    from: &str,
    into: &str,
    format: WeightFormat,
) -> uform::Result<Quantization> {
    let (from, into) = (folder.join(from), folder.join(into));
    Model::quantize(&from, &into, format, &Executor::inline())
}

fn load(source: &dyn Source, class: CpuClass, precision: Precision) -> Model {
    let options = ModelOptions {
        cpu_class: Some(class),
        precision: Some(precision),
        ..ModelOptions::default()
    };
    Model::load_from(source, &options, &Executor::inline()).unwrap()
}

/// The bits of a model's vectors of a few texts.
fn bits(model: &Model) -> Vec<u32> {
    let options = EncodeOptions {
        pooling: Some(Pooling::Mean),
        ..EncodeOptions::default()
    };
    let texts = Texts::from_iter(["a red bicycle", "", "the sea is blue ! ##ish 中 cafe"]);
    let found = model.encode_text(&Executor::inline(), &texts, &options);
    let found = found.unwrap().data;
    found.into_iter().map(f32::to_bits).collect()
}

/// A tensor in half precision, whatever its kind.
fn halve(tensor: &mut Tensor) {
    let values = tensor.values();
    let halves = values.into_iter().map(half::f16::from_f32);
    tensor.bytes = halves.flat_map(half::f16::to_le_bytes).collect();
    tensor.dtype = "F16";
}

/// The tensors of a file, by name.
fn tensors(file: &[u8]) -> Vec<(String, Dtype, Vec<usize>)> {
    let file = SafeTensors::deserialize(file).unwrap();
    let mut tensors: Vec<_> = file
        .iter()
        .map(|(name, view)| (name.to_owned(), view.dtype(), view.shape().to_vec()))
        .collect();
    tensors.sort();
    tensors
}

#[test]
fn models_of_every_layout_are_written_whole_and_load() {
    type Case = (&'static str, fn(&mut Tiny));
    let cases: &[Case] = &[
        ("as it is", |_| {}),
        ("in shards", Tiny::shard),
        ("in half precision", |tiny| {
            tiny.write_tensors(|tensors| tensors.iter_mut().for_each(halve))
        }),
        ("under a prefix, with a pooler", |tiny| {
            tiny.write_tensors(|tensors| {
                tensors
                    .iter_mut()
                    .for_each(|tensor| tensor.name.insert_str(0, "bert."));
                let mut pooler = tensors[0].clone();
                pooler.name = "bert.pooler.dense.weight".to_owned();
                tensors.push(pooler);
            })
        }),
        ("with a dense head", |tiny| tiny.add_dense(4)),
        ("without a word about pooling", |tiny| {
            tiny.remove("modules.json");
            tiny.remove("1_Pooling/config.json")
        }),
        ("with the encoder in a folder", |tiny| {
            tiny.set("modules.json", "/0/path", json!("0_Transformer"));
            for name in [
                "config.json",
                WEIGHTS,
                "tokenizer.json",
                "tokenizer_config.json",
                "sentence_bert_config.json",
            ] {
                let file = tiny.files.remove(name).expect("there");
                tiny.put(&format!("0_Transformer/{name}"), file);
            }
        }),
        ("with all sorts of things beside it", |tiny| {
            tiny.put("README.md", "A model.");
            tiny.put("LICENSE", "Take it.");
            tiny.put("pytorch_model.bin", "PK");
            tiny.put("onnx/model.onnx", "\x08");
            tiny.put("license/terms.txt", "Not a file of this name.");
        }),
    ];
    for (what, change) in cases {
        let mut tiny = Tiny::new();
        change(&mut tiny);
        let folder = workshop(&tiny);
        let from = Folder::open(folder.path().join("from")).unwrap();
        for format in WeightFormat::ALL {
            let what = format!("{what}, {}", format.word());
            let found = quantize(folder.path(), "from", format.word(), format)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let into = folder.path().join(format.word());

            // Settings are the same, and nothing but them and the weights is there.
            let expected: BTreeSet<String> = tiny
                .files
                .keys()
                .filter(|name| {
                    !name.contains("onnx") && !name.ends_with(".bin") && !name.ends_with(".txt")
                })
                .map(|name| match name.contains(".safetensors") {
                    true if name.contains('/') => name.clone(),
                    true => WEIGHTS.to_owned(),
                    false => name.clone(),
                })
                .collect();
            assert_eq!(files(&into), expected, "{what}");
            for name in expected.iter().filter(|name| !name.ends_with(WEIGHTS)) {
                assert_eq!(
                    fs::read(into.join(name)).unwrap(),
                    tiny.files[name],
                    "{what}"
                );
            }

            let precisions: Vec<_> = found.likenesses.iter().map(|one| one.precision).collect();
            assert_eq!(precisions[0], Precision::F32);
            assert_eq!(
                precisions.len(),
                1 + usize::from(format == WeightFormat::I8)
            );
            for likeness in &found.likenesses {
                assert!(
                    likeness.texts >= 8 && likeness.least <= likeness.mean,
                    "{what}"
                );
                // Eight dimensions have little to average over.
                assert!(likeness.least > 0.99, "{what}: {likeness:?}");
            }
            let into = Folder::open(&into).unwrap();
            for precision in Precision::ALL {
                let class = CpuClass::native();
                let (before, after) =
                    (load(&from, class, precision), load(&into, class, precision));
                assert_eq!(
                    before.describe().parameters,
                    after.describe().parameters,
                    "{what}"
                );
                assert_ne!(before.describe().fingerprint, after.describe().fingerprint);
                assert!(!bits(&after).is_empty());
            }
        }
    }
}

/// Every file below a folder.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(folder.join(&inner)).unwrap() {
            let entry = entry.unwrap();
            let path = inner.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(path),
                false => _ = found.insert(path.to_str().unwrap().to_owned()),
            }
        }
    }
    found
}

#[test]
fn matrices_change_and_vectors_stay() {
    let mut tiny = Tiny::new();
    tiny.add_dense(4);
    let folder = workshop(&tiny);
    for format in WeightFormat::ALL {
        quantize(folder.path(), "from", format.word(), format).unwrap();
        for file in [WEIGHTS, "2_Dense/model.safetensors"] {
            let before = tensors(&tiny.files[file]);
            let mut expected = Vec::new();
            for (name, _, shape) in before {
                let beside =
                    |what: &str, size: usize| (format!("{name}.{what}"), Dtype::F32, vec![size]);
                match (shape.len(), format) {
                    (2, WeightFormat::I8) => {
                        expected.push(beside("scale", shape[0]));
                        if name == FED {
                            expected.push(beside("balance", shape[1]));
                        }
                        expected.push((name, Dtype::I8, shape));
                    }
                    (2, WeightFormat::F16) => expected.push((name, Dtype::F16, shape)),
                    _ => expected.push((name, Dtype::F32, shape)),
                }
            }
            expected.sort();
            let path = folder.path().join(format.word()).join(file);
            let written = fs::read(path).unwrap();
            assert_eq!(tensors(&written), expected, "{file}");
            // Every number lies where it can be read in place.
            let (header, metadata) = SafeTensors::read_metadata(&written).unwrap();
            for (name, info) in metadata.tensors() {
                let start = 8 + header + info.data_offsets.0;
                assert!(start.is_multiple_of(info.dtype.bitsize() / 8), "{name}");
            }
        }
    }
}

/// A model whose weights have outputs and inputs of every size, and an output of nothing.
fn uneven(seed: u64) -> Tiny {
    let mut tiny = Tiny::new();
    let mut state = seed | 1;
    let mut exponent = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 40) as i32 % 7 - 3
    };
    tiny.write_tensors(|tensors| {
        for tensor in tensors.iter_mut().filter(|tensor| tensor.shape.len() == 2) {
            let (outputs, inputs) = (tensor.shape[0], tensor.shape[1]);
            let rows: Vec<i32> = (0..outputs).map(|_| exponent()).collect();
            let columns: Vec<i32> = (0..inputs).map(|_| exponent()).collect();
            for (at, value) in tensor.values().into_iter().enumerate() {
                let power = rows[at / inputs] + columns[at % inputs];
                let zero = at / inputs == 3;
                tensor.put(at, if zero { 0.0 } else { value * 2f32.powi(power) });
            }
        }
    });
    tiny
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// But for the tables, which are not quantized while a model is loaded, it makes no difference
    /// when the weights are: not a bit.
    #[test]
    fn numbers_are_those_that_loading_in_i8_makes(seed: u64) {
        let tiny = uneven(seed);
        let folder = workshop(&tiny);
        quantize(folder.path(), "from", "i8", WeightFormat::I8).unwrap();
        let written = fs::read(folder.path().join("i8").join(WEIGHTS)).unwrap();
        let written = SafeTensors::deserialize(&written).unwrap();

        let mut mixed = tiny.clone();
        mixed.metadata.insert("uform.quantization".to_owned(), "1".to_owned());
        mixed.write_tensors(|tensors| {
            tensors.retain(|tensor| tensor.name.starts_with("embeddings."));
            for (name, view) in written.iter().filter(|(name, _)| !name.starts_with("embeddings.")) {
                tensors.push(Tensor {
                    name: name.to_owned(),
                    dtype: if view.dtype() == Dtype::I8 { "I8" } else { "F32" },
                    shape: view.shape().to_vec(),
                    bytes: view.data().to_vec(),
                });
            }
        });
        let (now, before) = (Memory::new(tiny.files.clone()), Memory::new(mixed.files.clone()));
        for class in CpuClass::COMPILED.iter().filter(|class| class.runs_here().is_ok()) {
            if Kernels::of(*class, Precision::I8).class() == *class {
                let [now, before] = [&now, &before].map(|source| bits(&load(source, *class, Precision::I8)));
                prop_assert_eq!(now, before, "{}", class);
            }
        }
    }

    /// A weight comes back within half a step of its output's numbers.
    #[test]
    fn weights_come_back_within_half_a_step(seed: u64) {
        let tiny = uneven(seed);
        let folder = workshop(&tiny);
        quantize(folder.path(), "from", "i8", WeightFormat::I8).unwrap();
        let source = Folder::open(folder.path().join("i8")).unwrap();
        let weights = Weights::open(&source, "", WORDS).unwrap();
        for tensor in tiny.tensors.iter().filter(|tensor| tensor.shape.len() == 2) {
            let (outputs, inputs) = (tensor.shape[0], tensor.shape[1]);
            let found = weights.tensor(&tensor.name, &tensor.shape).unwrap();
            let matrix = weights.quantized(&tensor.name, outputs, inputs).unwrap().unwrap();
            prop_assert_eq!(matrix.balance().is_some(), tensor.name == FED);
            for (at, (found, truth)) in found.iter().zip(tensor.values()).enumerate() {
                let scale = matrix.parts().scales[at / inputs];
                let factor = matrix.balance().map_or(1.0, |balance| balance[at % inputs]);
                let step = f64::from(scale) * f64::from(factor);
                let off = (f64::from(*found) - f64::from(truth)).abs();
                prop_assert!(off <= 0.5001 * step, "{} at {at}: {found}, {truth}", tensor.name);
            }
        }
    }
}

#[test]
fn half_precision_written_in_half_precision_is_the_same_model() {
    let mut tiny = Tiny::new();
    tiny.write_tensors(|tensors| tensors.iter_mut().for_each(halve));
    let folder = workshop(&tiny);
    let found = quantize(folder.path(), "from", "f16", WeightFormat::F16).unwrap();
    assert!(found.likenesses[0].least > 0.999_999, "{found:?}");
    let [from, into] = ["from", "f16"].map(|name| Folder::open(folder.path().join(name)).unwrap());
    for precision in Precision::ALL {
        let models = [&from, &into].map(|one| bits(&load(one, CpuClass::native(), precision)));
        assert_eq!(models[0], models[1]);
    }
}

#[test]
fn a_file_of_weights_is_a_model_and_so_is_an_empty_folder_behind_a_link() {
    let folder = workshop(&Tiny::new());
    let at = |name: &str| folder.path().join(name);
    fs::rename(at("from").join(WEIGHTS), at("from/other.safetensors")).unwrap();
    fs::create_dir(at("empty")).unwrap();
    symlink("empty", at("link")).unwrap();
    let from = "from/other.safetensors";
    quantize(folder.path(), from, "link", WeightFormat::F16).unwrap();
    assert!(at("link").is_symlink() && at("empty").join(WEIGHTS).is_file());
    // Nobody is kept from reading what others may read.
    quantize(folder.path(), from, "new", WeightFormat::F16).unwrap();
    for name in [from, "new/config.json"] {
        let mode = std::os::unix::fs::PermissionsExt::mode;
        let found = mode(&fs::metadata(at(name)).unwrap().permissions());
        assert_eq!(found & 0o400, 0o400);
    }
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    type Case = (
        fn(&mut Tiny),
        &'static str,
        &'static str,
        WeightFormat,
        Status,
        &'static [&'static str],
    );
    use WeightFormat::{F16, I8};
    let cases: &[Case] = &[
        (
            |_| {},
            "from",
            "full",
            I8,
            Status::InvalidArgument,
            &["full", "new or empty"],
        ),
        (
            |_| {},
            "from",
            "from",
            I8,
            Status::InvalidArgument,
            &["from", "new or empty"],
        ),
        (
            |_| {},
            "from",
            "file",
            I8,
            Status::InvalidArgument,
            &["file", "a file"],
        ),
        (
            |_| {},
            "from",
            "nowhere",
            I8,
            Status::InvalidArgument,
            &["nowhere", "a link"],
        ),
        (
            |_| {},
            "from",
            "no/such",
            I8,
            Status::NotFound,
            &["no/such", "there is no folder"],
        ),
        (
            |_| {},
            "from",
            "file/in",
            I8,
            Status::InvalidArgument,
            &["file/in"],
        ),
        (
            |_| {},
            "none",
            "new",
            I8,
            Status::NotFound,
            &["none", "no such file"],
        ),
        (
            |_| {},
            "file",
            "new",
            I8,
            Status::InvalidArgument,
            &["file", ".safetensors"],
        ),
        (
            |tiny| tiny.remove("config.json"),
            "from",
            "new",
            F16,
            Status::NotFound,
            &["config.json"],
        ),
        (
            |tiny| tiny.remove("tokenizer.json"),
            "from",
            "new",
            F16,
            Status::NotFound,
            &["tokenizer.json"],
        ),
        (
            |tiny| tiny.edit_tensor(FED, |tensor| tensor.put(3, f32::NAN)),
            "from",
            "new",
            I8,
            Status::CorruptModel,
            &[FED, "NaN at value 3"],
        ),
        (
            |tiny| tiny.edit_tensor(WORDS, |tensor| tensor.put(HIDDEN, -70_000.0)),
            "from",
            "new",
            F16,
            Status::Unsupported,
            &[WORDS, "-70000 at value 8", "65504", "i8"],
        ),
        (
            Tiny::quantize,
            "from",
            "new",
            I8,
            Status::InvalidArgument,
            &["quantized already", "the model it was made of"],
        ),
        (
            Tiny::quantize,
            "from",
            "new",
            F16,
            Status::InvalidArgument,
            &["quantized already"],
        ),
    ];
    for (change, from, into, format, status, words) in cases {
        let mut tiny = Tiny::new();
        change(&mut tiny);
        let folder = workshop(&tiny);
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("full")).unwrap();
        fs::write(at("full/thing"), "").unwrap();
        fs::write(at("file"), "").unwrap();
        symlink("no-such", at("nowhere")).unwrap();
        let before = files(folder.path());
        let outcome = quantize(folder.path(), from, into, *format);
        let error: Error = outcome.expect_err(into);
        assert_eq!(error.status(), *status, "{from} to {into}: {error}");
        for word in *words {
            assert!(error.message().contains(word), "{word}: {error}");
        }
        assert_eq!(files(folder.path()), before, "{error}");
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 4, "{error}");
    }
    for word in ["", "F16", "int8", "bf16"] {
        let error = WeightFormat::parse(word).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.message().contains("\"f16\", \"i8\""), "{error}");
    }
    for format in WeightFormat::ALL {
        assert_eq!(WeightFormat::parse(format.word()).unwrap(), format);
    }
}

#[test]
fn who_gives_up_finds_nothing() {
    let folder = workshop(&Tiny::new());
    let executor = Executor::inline();
    let (from, into) = (folder.path().join("from"), folder.path().join("into"));
    let run = |control: &Arc<Control>| {
        let (done, outcome) = mpsc::channel();
        let (from, into, control) = (from.clone(), into.clone(), Arc::clone(control));
        Model::quantize_deferred(
            from,
            into,
            WeightFormat::I8,
            &executor,
            control,
            move |found| {
                done.send(found).unwrap();
            },
        );
        outcome.recv().unwrap()
    };
    let given_up = Arc::new(Control::new());
    given_up.cancel();
    assert_eq!(run(&given_up).unwrap_err().status(), Status::Aborted);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(run(&Arc::default()).is_ok() && into.join(WEIGHTS).is_file());
}
