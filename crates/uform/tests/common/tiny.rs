//! A model small enough to be made up: a BERT of one layer, eight wide, with
//! random weights and a vocabulary of a few words. Tests damage it, one way at a time.

use std::{collections::BTreeMap, fs, io, path::Path};

use serde_json::{Value, json};

pub const HIDDEN: usize = 8;
pub const HEADS: usize = 2;
pub const INTERMEDIATE: usize = 16;
pub const POSITIONS: usize = 32;

/// How large a model is.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub hidden: usize,
    pub heads: usize,
    pub inner: usize,
    pub layers: usize,
    pub positions: usize,
    /// The most tokens of a text.
    pub limit: usize,
}

/// As small as can be.
pub const SMALLEST: Sizes = Sizes {
    hidden: HIDDEN,
    heads: HEADS,
    inner: INTERMEDIATE,
    layers: 1,
    positions: POSITIONS,
    limit: 16,
};

/// Large enough for kernels that compute blocks of a matrix to have several, for texts of up to 512 tokens.
pub const SMALL: Sizes = Sizes {
    hidden: 64,
    heads: 2,
    inner: 128,
    layers: 2,
    positions: 512,
    limit: 512,
};

/// The vocabulary, ids in order.
pub const WORDS: [&str; 24] = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "red", "bicycle", "green", "tree", "the",
    "sea", "is", "blue", "query", ":", "##s", "##ish", ".", ",", "!", "?", "中", "cafe",
];

/// One tensor: its name, kind, shape and bytes.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub dtype: &'static str,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// The values of an f32 tensor.
    pub fn values(&self) -> Vec<f32> {
        let values = self.bytes.as_chunks::<4>().0.iter();
        values.map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    /// Puts one value of an f32 tensor in the place of another.
    pub fn put(&mut self, at: usize, value: f32) {
        self.bytes[4 * at..4 * at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// A model's files, and its tensors for rewriting them.
#[derive(Clone)]
pub struct Tiny {
    pub files: BTreeMap<String, Vec<u8>>,
    pub tensors: Vec<Tensor>,
    /// What else the file of weights says.
    pub metadata: BTreeMap<String, String>,
}

impl Tiny {
    /// A model without faults.
    pub fn new() -> Tiny {
        Tiny::of(SMALLEST)
    }

    /// One of another size.
    pub fn of(sizes: Sizes) -> Tiny {
        let mut tiny = Tiny {
            files: BTreeMap::new(),
            tensors: tensors(sizes),
            metadata: BTreeMap::new(),
        };
        for (name, content) in [
            ("config.json", config(sizes)),
            ("modules.json", modules()),
            ("1_Pooling/config.json", pooling(sizes.hidden)),
            (
                "sentence_bert_config.json",
                json!({ "max_seq_length": sizes.limit, "do_lower_case": false }),
            ),
            (
                "tokenizer_config.json",
                json!({ "tokenizer_class": "BertTokenizer", "model_max_length": 1e30 }),
            ),
            (
                "config_sentence_transformers.json",
                json!({
                    "prompts": { "query": "query: ", "document": "" },
                    "default_prompt_name": null,
                }),
            ),
            ("tokenizer.json", tokenizer()),
        ] {
            tiny.put(name, content.to_string());
        }
        tiny.write_tensors(|_| {});
        tiny
    }

    /// Adds or replaces a file.
    pub fn put(&mut self, name: &str, content: impl Into<Vec<u8>>) {
        self.files.insert(name.to_owned(), content.into());
    }

    /// Removes a file.
    pub fn remove(&mut self, name: &str) {
        self.files.remove(name).expect("the file was there");
    }

    /// Changes a JSON file.
    pub fn edit(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut value = serde_json::from_slice(&self.files[name]).expect("valid JSON");
        change(&mut value);
        self.put(name, value.to_string());
    }

    /// Changes one value of a JSON file; `null` removes it.
    pub fn set(&mut self, name: &str, pointer: &str, value: Value) {
        self.edit(name, |document| {
            let (parent, key) = pointer.rsplit_once('/').expect("a JSON pointer");
            let parent = document.pointer_mut(parent).expect("the pointer's parent");
            match key.parse::<usize>() {
                Ok(index) if parent.is_array() => parent[index] = value,
                _ => parent[key] = value,
            }
        });
    }

    /// Changes the tensors and writes `model.safetensors`.
    pub fn write_tensors(&mut self, change: impl FnOnce(&mut Vec<Tensor>)) {
        change(&mut self.tensors);
        let file = safetensors_with(&self.metadata, &self.tensors);
        self.put("model.safetensors", file);
    }

    /// Rewrites every matrix in i8, that of the feed-forward half balanced.
    pub fn quantize(&mut self) {
        let layout = ("uform.quantization".to_owned(), "1".to_owned());
        self.metadata.extend([layout]);
        self.write_tensors(|tensors| *tensors = tensors.iter().flat_map(in_i8).collect());
    }

    /// Changes one tensor and writes the file.
    pub fn edit_tensor(&mut self, name: &str, change: impl FnOnce(&mut Tensor)) {
        self.write_tensors(|tensors| {
            let found = tensors.iter_mut().find(|tensor| tensor.name == name);
            change(found.expect("the tensor is there"));
        });
    }

    /// Replaces the one file of weights by two shards and their index.
    pub fn shard(&mut self) {
        self.remove("model.safetensors");
        let (first, second) = self.tensors.split_at(self.tensors.len() / 2);
        let shards = [
            ("model-1.safetensors", first),
            ("model-2.safetensors", second),
        ];
        let mut map = serde_json::Map::new();
        let mut files = Vec::new();
        for (name, tensors) in shards {
            map.extend(
                tensors
                    .iter()
                    .map(|tensor| (tensor.name.clone(), name.into())),
            );
            files.push((name, safetensors_with(&self.metadata, tensors)));
        }
        for (name, file) in files {
            self.put(name, file);
        }
        let index = json!({ "metadata": {}, "weight_map": map });
        self.put("model.safetensors.index.json", index.to_string());
    }

    /// Adds a dense layer of the given output width after pooling.
    pub fn add_dense(&mut self, out: usize) {
        let mut random = Random(7);
        let hidden = self.tensors[0].shape[1];
        let weights = [
            tensor("linear.weight", &[out, hidden], &mut random),
            tensor("linear.bias", &[out], &mut random),
        ];
        self.put("2_Dense/model.safetensors", safetensors(&weights));
        self.put(
            "2_Dense/config.json",
            json!({
                "in_features": hidden,
                "out_features": out,
                "bias": true,
                "activation_function": "torch.nn.modules.activation.Tanh",
            })
            .to_string(),
        );
        self.edit("modules.json", |modules| {
            let dense = json!({
                "idx": 2, "name": "2", "path": "2_Dense",
                "type": "sentence_transformers.models.Dense",
            });
            modules.as_array_mut().expect("a list").insert(2, dense);
        });
    }

    /// Writes the files to a folder.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        for (name, bytes) in &self.files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("files lie in a folder"))?;
            fs::write(path, bytes)?;
        }
        Ok(())
    }
}

/// A safetensors file of the given tensors.
pub fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    safetensors_with(&BTreeMap::new(), tensors)
}

/// The same, with something else to say.
fn safetensors_with(metadata: &BTreeMap<String, String>, tensors: &[Tensor]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".to_owned(), json!(metadata));
    }
    let mut data = Vec::new();
    for tensor in tensors {
        let start = data.len();
        data.extend_from_slice(&tensor.bytes);
        header.insert(
            tensor.name.clone(),
            json!({ "dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, data.len()] }),
        );
    }
    raw_safetensors(&Value::Object(header).to_string(), &data)
}

/// A safetensors file with any header at all.
pub fn raw_safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    let mut header = header.as_bytes().to_vec();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(&header);
    file.extend_from_slice(data);
    file
}

/// The names and shapes of the tensors the smallest encoder needs.
pub fn shapes() -> Vec<(String, Vec<usize>)> {
    shapes_of(SMALLEST)
}

fn shapes_of(sizes: Sizes) -> Vec<(String, Vec<usize>)> {
    let Sizes { hidden, inner, .. } = sizes;
    let mut shapes = vec![
        (
            "embeddings.word_embeddings.weight".to_owned(),
            vec![WORDS.len(), hidden],
        ),
        (
            "embeddings.position_embeddings.weight".to_owned(),
            vec![sizes.positions, hidden],
        ),
        (
            "embeddings.token_type_embeddings.weight".to_owned(),
            vec![2, hidden],
        ),
    ];
    let norm = |shapes: &mut Vec<(String, Vec<usize>)>, name: &str| {
        shapes.push((format!("{name}.LayerNorm.weight"), vec![hidden]));
        shapes.push((format!("{name}.LayerNorm.bias"), vec![hidden]));
    };
    norm(&mut shapes, "embeddings");
    for layer in 0..sizes.layers {
        let layer = format!("encoder.layer.{layer}");
        norm(&mut shapes, &format!("{layer}.attention.output"));
        norm(&mut shapes, &format!("{layer}.output"));
        for (name, out, input) in [
            ("attention.self.query", hidden, hidden),
            ("attention.self.key", hidden, hidden),
            ("attention.self.value", hidden, hidden),
            ("attention.output.dense", hidden, hidden),
            ("intermediate.dense", inner, hidden),
            ("output.dense", hidden, inner),
        ] {
            shapes.push((format!("{layer}.{name}.weight"), vec![out, input]));
            shapes.push((format!("{layer}.{name}.bias"), vec![out]));
        }
    }
    shapes
}

fn tensors(sizes: Sizes) -> Vec<Tensor> {
    let mut random = Random(1);
    let shapes = shapes_of(sizes);
    shapes
        .iter()
        .map(|(name, shape)| tensor(name, shape, &mut random))
        .collect()
}

fn tensor(name: &str, shape: &[usize], random: &mut Random) -> Tensor {
    // Scales of layer norm stay near one, everything else near zero.
    let middle = if name.ends_with("LayerNorm.weight") {
        1.0
    } else {
        0.0
    };
    let values = (0..shape.iter().product()).map(|_| middle + random.next() * 0.2);
    Tensor {
        name: name.to_owned(),
        dtype: "F32",
        shape: shape.to_vec(),
        bytes: values.flat_map(f32::to_le_bytes).collect(),
    }
}

/// What takes the place of a tensor in an i8 file.
fn in_i8(tensor: &Tensor) -> Vec<Tensor> {
    let &[outputs, inputs] = &tensor.shape[..] else {
        return vec![tensor.clone()];
    };
    let beside = |what: &str, values: &[f32]| Tensor {
        name: format!("{}.{what}", tensor.name),
        dtype: "F32",
        shape: vec![values.len()],
        bytes: values.iter().copied().flat_map(f32::to_le_bytes).collect(),
    };
    let balanced = tensor.name == "encoder.layer.0.output.dense.weight";
    let balance = (0..inputs).map(|input| match (balanced, input % 3) {
        (true, 0) => 0.25,
        (true, 1) => 2.0,
        _ => 1.0,
    });
    let balance: Vec<f32> = balance.collect();
    let mut scales = Vec::with_capacity(outputs);
    let mut numbers = Vec::with_capacity(outputs * inputs);
    for row in tensor.values().chunks_exact(inputs) {
        let row: Vec<f32> = row.iter().zip(&balance).map(|(x, f)| x / f).collect();
        let scale = row.iter().fold(0.0f32, |most, x| most.max(x.abs())) / 127.0;
        numbers.extend(row.iter().map(|x| (x / scale).round() as i8 as u8));
        scales.push(scale);
    }
    let quantized = Tensor {
        name: tensor.name.clone(),
        dtype: "I8",
        shape: tensor.shape.clone(),
        bytes: numbers,
    };
    let mut tensors = vec![quantized, beside("scale", &scales)];
    if balanced {
        tensors.push(beside("balance", &balance));
    }
    tensors
}

fn config(sizes: Sizes) -> Value {
    json!({
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.inner,
        "max_position_embeddings": sizes.positions,
        "type_vocab_size": 2,
        "vocab_size": WORDS.len(),
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
    })
}

fn modules() -> Value {
    let module = |index: usize, path: &str, kind: &str| {
        json!({
            "idx": index, "name": index.to_string(), "path": path,
            "type": format!("sentence_transformers.models.{kind}"),
        })
    };
    json!([
        module(0, "", "Transformer"),
        module(1, "1_Pooling", "Pooling"),
        module(2, "2_Normalize", "Normalize"),
    ])
}

fn pooling(hidden: usize) -> Value {
    json!({
        "word_embedding_dimension": hidden,
        "pooling_mode_cls_token": false,
        "pooling_mode_mean_tokens": true,
        "pooling_mode_max_tokens": false,
        "pooling_mode_mean_sqrt_len_tokens": false,
    })
}

/// In the spelling that files of today have: version 1, named special tokens,
/// and a truncation and padding of its own that a model overrides.
fn tokenizer() -> Value {
    let vocabulary: serde_json::Map<String, Value> = WORDS
        .iter()
        .zip(0..)
        .map(|(word, id)| (word.to_string(), Value::from(id)))
        .collect();
    let added: Vec<Value> = WORDS[..5]
        .iter()
        .zip(0..)
        .map(|(word, id)| {
            json!({
                "id": id, "special": true, "content": word, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false,
            })
        })
        .collect();
    let special =
        |word: &str, kind: usize| json!({ "SpecialToken": { "id": word, "type_id": kind } });
    let text = |name: &str, kind: usize| json!({ "Sequence": { "id": name, "type_id": kind } });
    json!({
        "version": "1.0",
        "truncation": { "max_length": 4, "strategy": "LongestFirst", "stride": 0 },
        "padding": {
            "strategy": { "Fixed": 4 }, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]",
        },
        "added_tokens": added,
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true,
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [special("[CLS]", 0), text("A", 0), special("[SEP]", 0)],
            "pair": [
                special("[CLS]", 0), text("A", 0), special("[SEP]", 0), text("B", 1),
                special("[SEP]", 1),
            ],
            "special_tokens": {
                "[CLS]": { "id": "[CLS]", "ids": [2], "tokens": ["[CLS]"] },
                "[SEP]": { "id": "[SEP]", "ids": [3], "tokens": ["[SEP]"] },
            },
        },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary,
        },
    })
}

/// Numbers that look random and are the same every time (xorshift64).
struct Random(u64);

impl Random {
    /// The next number from -1 to 1.
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
