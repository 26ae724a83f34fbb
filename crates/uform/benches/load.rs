//! What a cold start is made of: `cargo bench -p uform --bench load`.
//!
//! Steps take turns and the shortest time counts: a shared machine's neighbours only ever make one
//! slower. The model's files are in the system's memory after the first round.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use uform::executor::Executor;
use uform::kernels::Precision;
use uform::model::files::folder::Folder;
use uform::model::load::opened::Opened;
use uform::model::tokenizer::Tokenizer;
use uform::model::{EncodeOptions, Model, ModelOptions, Texts};
use uform::placement::RamOptions;

const ROUNDS: usize = 15;

/// A step by its name, and what does it.
type Step<'a> = (String, Box<dyn Fn() + 'a>);

/// Words on the command line choose the steps that have all of them.
fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/all-MiniLM-L6-v2");
    let executors = [1, 2].map(|threads| {
        let options = RamOptions {
            threads: Some(threads),
            ..RamOptions::default()
        };
        Executor::for_ram(&options).expect("two threads")
    });
    let source = Folder::open(&path).expect("a folder");
    let built = tokenizer(&source);
    let mut steps: Vec<Step<'_>> = vec![
        ("read the weights' file".into(), Box::new(|| read(&path))),
        (
            "settings and headers".into(),
            Box::new(|| drop(opened(&path))),
        ),
        (
            "the tokenizer".into(),
            Box::new(|| drop(tokenizer(&Folder::open(&path).expect("a folder")))),
        ),
        (
            "tokens of 1000 queries".into(),
            Box::new(|| tokens(&built, "how do i reset my password", 1000)),
        ),
    ];
    for precision in [Precision::F32, Precision::Bf16, Precision::I8] {
        for executor in &executors {
            let path = &path;
            steps.push((
                format!(
                    "load in {}, {} threads",
                    precision.word(),
                    executor.threads()
                ),
                Box::new(move || load(path, precision, executor)),
            ));
        }
    }
    steps.retain(|(name, _)| words.iter().all(|word| name.contains(word.as_str())));
    let mut least = vec![f64::INFINITY; steps.len()];
    for _ in 0..ROUNDS {
        for ((_, step), least) in steps.iter().zip(&mut least) {
            let start = Instant::now();
            step();
            *least = least.min(start.elapsed().as_secs_f64());
        }
    }
    for ((name, _), seconds) in steps.iter().zip(least) {
        println!("{name:<36}{:>8.2} ms", 1e3 * seconds);
    }
}

/// As a program would that only wants the bytes, a megabyte at a time.
fn read(path: &Path) {
    let mut file = File::open(path.join("model.safetensors")).expect("weights");
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer).expect("bytes") > 0 {
        black_box(&buffer);
    }
}

fn opened(path: &Path) -> Opened {
    Opened::open(&Folder::open(path).expect("a folder")).expect("a model")
}

fn tokenizer(source: &Folder) -> Tokenizer {
    let Opened {
        config, settings, ..
    } = Opened::open(source).expect("a model");
    let folder = &settings.transformer;
    Tokenizer::load(source, folder, &settings.tokens, config.vocabulary).expect("a tokenizer")
}

fn tokens(tokenizer: &Tokenizer, text: &str, times: usize) {
    let mut ids = Vec::new();
    for _ in 0..times {
        ids.clear();
        tokenizer.encode(text, &mut ids).expect("tokens");
        black_box(&ids);
    }
}

/// To the first vector.
fn load(path: &Path, precision: Precision, executor: &Executor) {
    let options = ModelOptions {
        precision: Some(precision),
        ..ModelOptions::default()
    };
    let model = Model::load_ram(path, &options, executor).expect("a model");
    let texts: Texts = ["a red bicycle"].into_iter().collect();
    black_box(
        model
            .encode_text(executor, &texts, &EncodeOptions::default())
            .expect("a vector"),
    );
}
