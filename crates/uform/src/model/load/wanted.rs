//! Which files a model needs, where they come one by one: from a server that lists none.
//!
//! What a model's files are is written in its files. So they are opened with those that are there, to
//! see what is asked for besides; the answers lead to the next round, until nothing is
//! missing but what is known to be absent.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::opened::Opened;
use crate::error::Result;
use crate::model::checkpoint::weights::INDEX;
use crate::model::files::blob::Blob;
use crate::model::files::{Bytes, Memory, SINGLE, Source, join};
use crate::model::settings::modules::Modules;
use crate::model::tokenizer;

/// What most models have, asked for before there is anything to open.
const USUAL: [&str; 6] = [
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    tokenizer::FILE,
    "tokenizer_config.json",
];

/// The files that opening a model would read next: neither in `files` nor
/// [known to be absent](Memory::absent). None: the model can be opened, or cannot be helped.
pub fn wanted(files: &Memory) -> Vec<String> {
    if files.is_new() {
        return USUAL.map(str::to_owned).into();
    }
    let asking = Asking {
        files,
        unknown: Mutex::default(),
    };
    // What is wrong with the files is said by whoever opens them in earnest.
    let opened = Opened::open(&asking);
    if let Ok(modules) = Modules::read(&asking) {
        // All at once rather than one after the other, as they are opened.
        for folder in modules.pooling.iter().chain(&modules.dense) {
            asking.ask(&join(folder, "config.json"));
        }
        if opened.is_ok() || asking.asks(SINGLE) {
            asking.ask(&join(&modules.transformer, tokenizer::FILE));
            for folder in &modules.dense {
                asking.ask(&join(folder, SINGLE));
            }
        }
    }
    let unknown = asking.unknown.into_inner();
    let unknown = unknown.unwrap_or_else(PoisonError::into_inner);
    // Shards are for where there is no single file, which is not known yet.
    let is_early = |name: &String| {
        let single = name
            .strip_suffix(INDEX)
            .map(|folder| format!("{folder}{SINGLE}"));
        single.is_some_and(|single| unknown.contains(&single))
    };
    unknown
        .iter()
        .filter(|name| !is_early(name))
        .cloned()
        .collect()
}

/// Files of which some are yet to come: those read as absent, and are remembered.
struct Asking<'a> {
    files: &'a Memory,
    unknown: Mutex<BTreeSet<String>>,
}

impl Asking<'_> {
    fn ask(&self, name: &str) {
        if !self.files.knows(name) {
            let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
            unknown.insert(name.to_owned());
        }
    }

    /// Whether a file of this name was asked for, in any folder.
    fn asks(&self, name: &str) -> bool {
        let unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        unknown.iter().any(|asked| asked.ends_with(name))
    }
}

impl Source for Asking<'_> {
    fn locate(&self, name: &str) -> String {
        self.files.locate(name)
    }

    fn size(&self, name: &str) -> Result<Option<u64>> {
        self.ask(name);
        self.files.size(name)
    }

    fn read(&self, name: &str) -> Result<Option<Bytes>> {
        self.ask(name);
        self.files.read(name)
    }

    fn open(&self, name: &str) -> Result<Option<Blob>> {
        self.ask(name);
        self.files.open(name)
    }

    fn names(&self) -> Vec<String> {
        self.files.names()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use super::{Memory, wanted};

    /// Answers what is wanted from `folder`, and returns each round.
    fn rounds(folder: &BTreeMap<String, Vec<u8>>) -> Vec<Vec<String>> {
        let mut files = Memory::default();
        let mut rounds = Vec::new();
        loop {
            let names = wanted(&files);
            if names.is_empty() {
                return rounds;
            }
            for name in &names {
                match folder.get(name) {
                    Some(bytes) => {
                        files.begin(name, bytes.len()).unwrap();
                        let room = files.append(name, bytes.len()).unwrap();
                        room.copy_from_slice(bytes);
                    }
                    None => files.absent(name),
                }
            }
            rounds.push(names);
        }
    }

    fn read(root: &Path, folder: &str, into: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(root.join(folder)).unwrap().flatten() {
            let name = super::join(folder, &entry.file_name().into_string().unwrap());
            if entry.path().is_dir() {
                read(root, &name, into);
            } else {
                into.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }

    #[test]
    fn every_file_of_a_model_is_wanted_once_and_weights_only_for_a_model_that_is_one() {
        let variants = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/variants");
        for variant in fs::read_dir(variants).unwrap().flatten() {
            let mut folder = BTreeMap::new();
            read(&variant.path(), "", &mut folder);
            // The reference of the test, not of the model.
            folder.remove("vectors.json");
            let rounds = rounds(&folder);
            assert!(rounds.len() <= 3, "{rounds:?}");
            let mut all = rounds.concat();
            let count = all.len();
            all.sort();
            all.dedup();
            assert_eq!(all.len(), count, "{rounds:?}");
            for name in folder.keys() {
                // What says that vectors are normalized has nothing more to say.
                let needed = all.contains(name) || name.contains("Normalize");
                assert!(needed, "{name} is not in {rounds:?}");
            }
            assert!(
                !all.iter().any(|name| name.ends_with("index.json")),
                "{rounds:?}"
            );

            let config = folder.get_mut("config.json").unwrap();
            *config = br#"{"model_type": "llama", "architectures": ["LlamaModel"]}"#.into();
            let all = self::rounds(&folder).concat();
            assert!(
                !all.iter().any(|name| name.ends_with(".safetensors")),
                "{all:?}"
            );
        }
    }

    #[test]
    fn settings_are_not_wanted_of_a_type_that_has_none() {
        let variants = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/variants");
        let mut folder = BTreeMap::new();
        read(&variants.join("cls-f16"), "", &mut folder);
        let asks = |folder: &_| {
            let names = rounds(folder).concat();
            names.iter().any(|name| name == "2_Normalize/config.json")
        };
        assert!(asks(&folder));
        let modules = folder.get_mut("modules.json").unwrap();
        let text = String::from_utf8(modules.clone()).unwrap();
        let newer = "sentence_transformers.base.modules.normalize.Normalize";
        assert!(text.contains(newer), "{text}");
        *modules = text
            .replace(newer, "sentence_transformers.models.Normalize")
            .into();
        assert!(!asks(&folder));
    }
}
