//! Small models through every class of this machine, beside `serial`. Their files come from memory: this
//! is the one forward pass that is tested without the feature `native`.

use std::fs;
use std::path::Path;

use super::*;
use crate::executor::Mood;
use crate::model::files::Memory;

const TEXTS: [&str; 3] = [
    "",
    "a b c",
    "the quick brown fox jumps over the lazy dog, and again",
];

/// How near a vector must come to `serial`'s in the same precision: dense layers of bf16 and i8 have one
/// result, but norms, softmax and GELU differ in their last bits, and rounding makes steps of those.
fn least_cosine(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 0.999_999,
        Precision::Bf16 => 0.9995,
        Precision::I8 => 0.995,
    }
}

/// Adds the files under a folder, by their names relative to the model's.
fn add_files(folder: &Path, name: &str, files: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{name}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            add_files(&path, &format!("{name}/"), files);
        } else {
            files.push((name, fs::read(&path).unwrap()));
        }
    }
}

fn encode(files: &Memory, class: CpuClass, precision: Precision) -> Embeddings {
    let options = ModelOptions {
        cpu_class: Some(class),
        precision: Some(precision),
        ..ModelOptions::default()
    };
    let executor = Executor::inline();
    let model = Model::load_from(files, &options, &executor).unwrap();
    assert_eq!(
        (model.cpu_class(), model.precision()),
        (Some(class), precision)
    );
    let texts = Texts::from_iter(TEXTS);
    let options = EncodeOptions::default();
    model.encode_text(&executor, &texts, &options).unwrap()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn files_of(variant: &str) -> Memory {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/variants");
    let mut files = Vec::new();
    add_files(&folders.join(variant), "", &mut files);
    Memory::new(files)
}

/// Freeing ends them with threads as well; there it may be that they are told of it a little later.
#[cfg(not(feature = "native"))]
#[test]
fn freeing_a_model_ends_its_calls_wherever_they_are() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let files = files_of("mean-relu-bf16");
    let executors = [(); 3].map(|()| Executor::inline());
    let load = || Model::load_from(&files, &ModelOptions::default(), &executors[0]).unwrap();
    let (model, other) = (load(), load());
    let ended = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let submit = |model: &Model, executor: &Executor, ended: &Arc<AtomicUsize>| {
        let (ended, texts) = (Arc::clone(ended), Texts::from_iter(TEXTS));
        let control = Arc::new(Control::new());
        model.encode_text_deferred(
            executor,
            texts,
            EncodeOptions::default(),
            control,
            move |found| {
                assert_eq!(found.unwrap().rows, TEXTS.len());
                ended.fetch_add(1, Ordering::Relaxed);
            },
        );
    };
    for executor in &executors[..2] {
        for model in [
            (&model, &ended[0]),
            (&other, &ended[1]),
            (&model, &ended[0]),
            (&other, &ended[1]),
        ] {
            submit(model.0, executor, model.1);
        }
        executor.turn();
    }
    submit(&model, &executors[2], &ended[0]);
    model.free();
    assert_eq!(ended[0].load(Ordering::Relaxed), 5);
    // What was queued before it, and no more.
    assert_eq!(ended[1].load(Ordering::Relaxed), 2);
    other.free();
    assert_eq!(ended[1].load(Ordering::Relaxed), 4);
    assert!(executors.iter().all(|executor| executor.outstanding() == 0));
}

/// Lends [`TEXTS`] a byte at a time: so many of them are behind.
struct Bytewise(usize);

impl Lender for Bytewise {
    fn next(&mut self, texts: &mut Texts) -> Result<bool> {
        let joined = TEXTS.concat();
        let at = self.0;
        self.0 += 1;
        let lengths = TEXTS.map(str::len);
        let ends = (0..TEXTS.len()).map(|text| lengths[..=text].iter().sum::<usize>());
        // The first piece is none, and ends the first text, which is empty.
        let piece = joined.as_bytes().get(at.saturating_sub(1)..at);
        let ends = ends.filter(|end| *end == at).map(|_| u32::from(at > 0));
        texts.append(piece.unwrap_or_default(), &Vec::from_iter(ends))?;
        Ok(piece.is_some())
    }
}

#[test]
fn texts_that_are_lent_are_texts_like_any_other() {
    let executor = Executor::inline();
    let options = ModelOptions::default();
    let model = Model::load_from(&files_of("mean-relu-bf16"), &options, &executor).unwrap();
    let options = EncodeOptions::default();
    let expected = model
        .encode_text(&executor, &Texts::from_iter(TEXTS), &options)
        .unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let lender = Box::new(Bytewise(0));
    let done = move |found: Result<Embeddings>| tell.send(found.unwrap()).unwrap();
    model.encode_lent_deferred(&executor, lender, options, Arc::new(Control::new()), done);
    executor.drain(Mood::Parked).unwrap();
    let found = told.recv().unwrap();
    assert_eq!((found.data, found.tokens), (expected.data, expected.tokens));
}

#[test]
fn a_vector_is_much_the_same_on_every_class() {
    for variant in ["last-gelu-new", "max-dense", "mean-relu-bf16"] {
        let files = files_of(variant);
        for precision in Precision::ALL {
            let expected = encode(&files, CpuClass::Serial, precision);
            for class in CpuClass::that_run_here() {
                let found = encode(&files, class, precision);
                for row in 0..TEXTS.len() {
                    let near = cosine(found.row(row), expected.row(row));
                    // NaN is not at least anything, and fails.
                    assert!(
                        near >= least_cosine(precision),
                        "{variant} on {class} in {}, text {row}: cosine {near}",
                        precision.word()
                    );
                }
            }
        }
    }
}
