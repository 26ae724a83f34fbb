//! One way a model's files can be wrong after the other: each its typed error,
//! at once, with a message that names what is wrong.

mod common;

use std::time::{Duration, Instant};

use common::tiny::{HIDDEN, Tiny, raw_safetensors, safetensors};
use serde_json::{Value, json};
use uform::{
    Result, Status,
    executor::Executor,
    kernels::Precision,
    model::{Model, ModelOptions, files::Memory, load::opened::Opened},
};

use Status::{CorruptModel, NotFound, Unsupported};

const CONFIG: &str = "config.json";
const MODULES: &str = "modules.json";
const POOLING: &str = "1_Pooling/config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const TOKENIZER: &str = "tokenizer.json";
const PROMPTS: &str = "config_sentence_transformers.json";

/// Reads all there is to read of a model.
fn load(tiny: &Tiny) -> Result<Model> {
    load_in(tiny, None)
}

fn load_in(tiny: &Tiny, precision: Option<Precision>) -> Result<Model> {
    let source = Memory::new(tiny.files.clone());
    let options = ModelOptions {
        precision,
        ..ModelOptions::default()
    };
    Model::load_from(&source, &options, &Executor::inline())
}

/// A way to damage a model, the status that is due, and words that must be in the message.
type Row = (&'static str, fn(&mut Tiny), Status, &'static [&'static str]);

/// Sets one value of a file.
macro_rules! set {
    ($file:expr, $pointer:expr, $value:tt) => {
        |tiny| tiny.set($file, $pointer, json!($value))
    };
}

/// Replaces the weights by a file with the given header and data.
macro_rules! header {
    ($header:expr, $data:expr) => {
        |tiny| tiny.put(WEIGHTS, raw_safetensors($header, $data))
    };
}

/// Quantizes the weights, and then puts a value into a tensor.
macro_rules! i8_value {
    ($tensor:expr, $at:expr, $value:expr) => {
        |tiny| {
            tiny.quantize();
            tiny.edit_tensor($tensor, |tensor| tensor.put($at, $value))
        }
    };
}

const WORD_SCALES: &str = "embeddings.word_embeddings.weight.scale";
const QUERY: &str = "encoder.layer.0.attention.self.query.weight";
const BALANCE: &str = "encoder.layer.0.output.dense.weight.balance";

const ROWS: &[Row] = &[
    // config.json
    (
        "no config",
        |tiny| tiny.remove(CONFIG),
        NotFound,
        &["config.json", "Hugging Face layout"],
    ),
    (
        "config cut off",
        |tiny| tiny.put(CONFIG, &b"{\"hidden_size\": 8,"[..]),
        CorruptModel,
        &["config.json", "not valid JSON"],
    ),
    (
        "config not UTF-8",
        |tiny| tiny.put(CONFIG, vec![b'{', b'"', 0xff, b'"', b':', b'1', b'}']),
        CorruptModel,
        &["config.json"],
    ),
    (
        "config a list",
        |tiny| tiny.put(CONFIG, &b"[1]"[..]),
        CorruptModel,
        &["expected a JSON object"],
    ),
    (
        "config nested for ever",
        |tiny| tiny.put(CONFIG, "[".repeat(1 << 20)),
        CorruptModel,
        &["recursion limit"],
    ),
    (
        "a llama",
        |tiny| {
            tiny.set(CONFIG, "/model_type", json!("llama"));
            tiny.set(CONFIG, "/architectures", json!(["LlamaForCausalLM"]))
        },
        Unsupported,
        &["LlamaForCausalLM", "llama", "BertModel"],
    ),
    (
        "a reranker",
        set!(CONFIG, "/architectures", ["BertForSequenceClassification"]),
        Unsupported,
        &["BertForSequenceClassification", "BertModel"],
    ),
    (
        "an encoder of another family",
        |tiny| {
            tiny.set(CONFIG, "/model_type", json!("xlm-roberta"));
            tiny.set(CONFIG, "/architectures", Value::Null)
        },
        Unsupported,
        &["xlm-roberta"],
    ),
    (
        "no architecture",
        |tiny| {
            tiny.set(CONFIG, "/model_type", Value::Null);
            tiny.set(CONFIG, "/architectures", Value::Null)
        },
        CorruptModel,
        &["model_type is missing"],
    ),
    (
        "architectures a number",
        set!(CONFIG, "/architectures", 7),
        CorruptModel,
        &["architectures is 7"],
    ),
    (
        "heads do not divide",
        set!(CONFIG, "/num_attention_heads", 3),
        CorruptModel,
        &["hidden_size 8", "num_attention_heads 3"],
    ),
    (
        "no width",
        set!(CONFIG, "/hidden_size", 0),
        CorruptModel,
        &["hidden_size is 0"],
    ),
    (
        "a negative width",
        set!(CONFIG, "/hidden_size", (-8)),
        CorruptModel,
        &["hidden_size is -8"],
    ),
    (
        "a fractional width",
        set!(CONFIG, "/hidden_size", 8.5),
        CorruptModel,
        &["hidden_size is 8.5"],
    ),
    (
        "a width in words",
        set!(CONFIG, "/hidden_size", "wide"),
        CorruptModel,
        &["hidden_size is \"wide\""],
    ),
    (
        "a width out of this world",
        set!(CONFIG, "/hidden_size", 1e18),
        CorruptModel,
        &["hidden_size", "65536"],
    ),
    (
        "no layers",
        set!(CONFIG, "/num_hidden_layers", 0),
        CorruptModel,
        &["num_hidden_layers is 0"],
    ),
    (
        "vocabulary size missing",
        set!(CONFIG, "/vocab_size", null),
        CorruptModel,
        &["vocab_size is missing"],
    ),
    (
        "layer norm of nothing",
        set!(CONFIG, "/layer_norm_eps", 0.0),
        CorruptModel,
        &["layer_norm_eps is 0.0"],
    ),
    (
        "an unknown activation",
        set!(CONFIG, "/hidden_act", "mish"),
        Unsupported,
        &["hidden_act is \"mish\"", "gelu"],
    ),
    (
        "relative positions",
        set!(CONFIG, "/position_embedding_type", "relative_key"),
        Unsupported,
        &["position_embedding_type", "relative_key"],
    ),
    (
        "a decoder",
        set!(CONFIG, "/is_decoder", true),
        Unsupported,
        &["is_decoder"],
    ),
    (
        "pruned heads",
        set!(CONFIG, "/pruned_heads", {"0": [1]}),
        Unsupported,
        &["pruned_heads"],
    ),
    (
        "quantised",
        set!(CONFIG, "/quantization_config", {"quant_method": "gptq"}),
        Unsupported,
        &["quantization_config"],
    ),
    // modules.json and the modules' settings
    (
        "modules an object",
        |tiny| tiny.put(MODULES, &b"{}"[..]),
        CorruptModel,
        &["modules.json", "list"],
    ),
    (
        "modules empty",
        |tiny| tiny.put(MODULES, &b"[]"[..]),
        CorruptModel,
        &["lists no modules"],
    ),
    (
        "an unknown module",
        set!(MODULES, "/1/type", "sentence_transformers.models.LSTM"),
        Unsupported,
        &["LSTM", "module 1"],
    ),
    (
        "a module with code of its own",
        set!(MODULES, "/0/type", "custom_st.Transformer"),
        Unsupported,
        &["custom_st.Transformer"],
    ),
    (
        "a module without a type",
        set!(MODULES, "/1/type", null),
        CorruptModel,
        &["type is missing"],
    ),
    (
        "normalised before pooling",
        set!(MODULES, "/1/type", "sentence_transformers.models.Normalize"),
        Unsupported,
        &["Normalize follows Transformer"],
    ),
    (
        "pooling first",
        set!(MODULES, "/0/type", "sentence_transformers.models.Pooling"),
        Unsupported,
        &["Pooling comes first"],
    ),
    (
        "a module outside",
        set!(MODULES, "/1/path", "../1_Pooling"),
        CorruptModel,
        &["../1_Pooling", "inside"],
    ),
    (
        "pooling without settings",
        |tiny| tiny.remove(POOLING),
        NotFound,
        &["1_Pooling/config.json"],
    ),
    (
        "pooling unknown",
        |tiny| tiny.put(POOLING, json!({ "pooling_mode": "median" }).to_string()),
        Unsupported,
        &["median", "mean_sqrt_len_tokens"],
    ),
    (
        "pooling in no way",
        set!(POOLING, "/pooling_mode_mean_tokens", false),
        CorruptModel,
        &["no pooling mode"],
    ),
    (
        "pooling in two ways",
        set!(POOLING, "/pooling_mode_max_tokens", true),
        Unsupported,
        &["max, mean"],
    ),
    (
        "pooling of another width",
        set!(POOLING, "/word_embedding_dimension", 16),
        CorruptModel,
        &["word_embedding_dimension is 16", "hidden_size is 8"],
    ),
    (
        "dense of another width",
        |tiny| {
            tiny.add_dense(4);
            tiny.set("2_Dense/config.json", "/in_features", json!(16))
        },
        CorruptModel,
        &["in_features is 16", "is 8"],
    ),
    (
        "dense with an unknown function",
        |tiny| {
            tiny.add_dense(4);
            tiny.set(
                "2_Dense/config.json",
                "/activation_function",
                json!("os.system"),
            )
        },
        Unsupported,
        &["os.system", "Tanh"],
    ),
    (
        "dense without weights",
        |tiny| {
            tiny.add_dense(4);
            tiny.remove("2_Dense/model.safetensors")
        },
        NotFound,
        &["2_Dense/model.safetensors"],
    ),
    (
        "dense weights of another shape",
        |tiny| {
            tiny.add_dense(4);
            tiny.set("2_Dense/config.json", "/out_features", json!(5))
        },
        CorruptModel,
        &["linear.weight", "[4, 8]", "[5, 8]"],
    ),
    (
        "a sparse encoder",
        set!(PROMPTS, "/model_type", "SparseEncoder"),
        Unsupported,
        &["SparseEncoder"],
    ),
    (
        "a default prompt that is not there",
        set!(PROMPTS, "/default_prompt_name", "passage"),
        CorruptModel,
        &["\"passage\"", "\"document\", \"query\""],
    ),
    (
        "a prompt that is a number",
        set!(PROMPTS, "/prompts/query", 7),
        CorruptModel,
        &["prompts"],
    ),
    (
        "a limit of nothing",
        set!("sentence_bert_config.json", "/max_seq_length", 0),
        CorruptModel,
        &["max_seq_length is 0"],
    ),
    (
        "a limit without room for text",
        set!("sentence_bert_config.json", "/max_seq_length", 2),
        CorruptModel,
        &["adds 2 tokens", "limit is 2"],
    ),
    (
        "another task",
        set!(
            "sentence_bert_config.json",
            "/transformer_task",
            "fill-mask"
        ),
        Unsupported,
        &["fill-mask"],
    ),
    // weights
    (
        "no weights",
        |tiny| tiny.remove(WEIGHTS),
        NotFound,
        &["model.safetensors", "index.json"],
    ),
    (
        "only PyTorch weights",
        |tiny| {
            tiny.remove(WEIGHTS);
            tiny.put("pytorch_model.bin", &b"PK"[..])
        },
        Unsupported,
        &["pytorch_model.bin", "save_pretrained"],
    ),
    (
        "only ONNX weights",
        |tiny| {
            tiny.remove(WEIGHTS);
            tiny.put("model.onnx", &b"\x08"[..])
        },
        Unsupported,
        &["model.onnx"],
    ),
    (
        "only GGUF",
        |tiny| {
            tiny.files.clear();
            tiny.put("q4.gguf", &b"GGUF"[..])
        },
        Unsupported,
        &["q4.gguf"],
    ),
    (
        "a Git LFS pointer",
        |tiny| {
            tiny.put(
                WEIGHTS,
                &b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 90868376\n"[..],
            )
        },
        CorruptModel,
        &["Git LFS pointer", "git lfs pull"],
    ),
    (
        "weights empty",
        |tiny| tiny.put(WEIGHTS, Vec::new()),
        CorruptModel,
        &["0 bytes", "truncated"],
    ),
    (
        "weights cut within the length",
        |tiny| tiny.put(WEIGHTS, vec![1, 0, 0]),
        CorruptModel,
        &["3 bytes"],
    ),
    (
        "weights cut within the header",
        |tiny| cut(tiny, 40),
        CorruptModel,
        &["its header claims", "truncated"],
    ),
    (
        "weights cut within the numbers",
        |tiny| {
            let all = tiny.files[WEIGHTS].len();
            cut(tiny, all - 1)
        },
        CorruptModel,
        &["truncated"],
    ),
    (
        "weights with something appended",
        |tiny| tiny.files.get_mut(WEIGHTS).expect("there").push(0),
        CorruptModel,
        &["appended"],
    ),
    (
        "a header of all memory",
        |tiny| tiny.put(WEIGHTS, [0xff; 64]),
        CorruptModel,
        &["18446744073709551615"],
    ),
    (
        "a header that is not UTF-8",
        |tiny| tiny.put(WEIGHTS, [&8u64.to_le_bytes()[..], &[0xff; 8]].concat()),
        CorruptModel,
        &["header is not valid"],
    ),
    (
        "a header that is not JSON",
        header!("safetensors", &[]),
        CorruptModel,
        &["header is not valid"],
    ),
    (
        "a header that is a list",
        header!("[1, 2]", &[]),
        CorruptModel,
        &["header is not valid"],
    ),
    (
        "a tensor twice",
        header!(
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
            &[0; 4]
        ),
        CorruptModel,
        &["\"a\" is there twice"],
    ),
    (
        "ranges that overlap",
        header!(
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#,
            &[0; 12]
        ),
        CorruptModel,
        &["tensor \"b\""],
    ),
    (
        "ranges with a hole",
        header!(
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}"#,
            &[0; 12]
        ),
        CorruptModel,
        &["tensor \"b\""],
    ),
    (
        "an inverted range",
        header!(
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#,
            &[0; 4]
        ),
        CorruptModel,
        &["tensor \"a\""],
    ),
    (
        "a range past the end",
        header!(
            r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#,
            &[0; 4]
        ),
        CorruptModel,
        &["16 bytes", "truncated"],
    ),
    (
        "a shape that overflows",
        header!(
            r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,4]}}"#,
            &[0; 4]
        ),
        CorruptModel,
        &["tensor \"a\"", "4294967296"],
    ),
    (
        "a shape that does not fill its range",
        header!(
            r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,4]}}"#,
            &[0; 4]
        ),
        CorruptModel,
        &["tensor \"a\"", "[3]"],
    ),
    (
        "an unknown kind of value",
        header!(
            r#"{"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}}"#,
            &[0; 4]
        ),
        CorruptModel,
        &["tensor \"a\"", "F31"],
    ),
    (
        "integer weights",
        |tiny| tiny.write_tensors(|tensors| tensors[0].dtype = "I32"),
        Unsupported,
        &["embeddings.word_embeddings.weight", "I32"],
    ),
    (
        "a weight missing",
        |tiny| {
            tiny.write_tensors(|tensors| {
                tensors.retain(|tensor| !tensor.name.ends_with("query.weight"))
            })
        },
        CorruptModel,
        &["attention.self.query.weight", "attention.self.query.bias"],
    ),
    (
        "another model's weights",
        header!(
            r#"{"wte.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
            &[0; 4]
        ),
        CorruptModel,
        &["embeddings.word_embeddings.weight", "wte.weight"],
    ),
    (
        "two models in one file",
        |tiny| tiny.write_tensors(two_towers),
        Unsupported,
        &["query.", "text."],
    ),
    (
        "a weight transposed",
        |tiny| tiny.write_tensors(|tensors| tensors[0].shape.reverse()),
        CorruptModel,
        &["[8, 24]", "[24, 8]"],
    ),
    (
        "more words than the table has",
        |tiny| tiny.set(CONFIG, "/vocab_size", json!(23)),
        CorruptModel,
        &["token id 23", "vocab_size is 23"],
    ),
    (
        "a weight that is not a number",
        |tiny| {
            tiny.write_tensors(|tensors| {
                tensors[3].bytes[4..8].copy_from_slice(&f32::NAN.to_le_bytes())
            })
        },
        CorruptModel,
        &["embeddings.LayerNorm.weight", "NaN at value 1"],
    ),
    (
        "an infinite weight",
        |tiny| {
            tiny.write_tensors(|tensors| {
                tensors[3].bytes[..4].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes())
            })
        },
        CorruptModel,
        &["-inf at value 0"],
    ),
    // i8
    (
        "i8 of somebody else",
        |tiny| {
            tiny.quantize();
            tiny.metadata.clear();
            tiny.write_tensors(|_| {})
        },
        Unsupported,
        &[
            "embeddings.token_type_embeddings.weight",
            "I8",
            "metadata",
            "npx uform quantize",
        ],
    ),
    (
        "i8 of a layout to come",
        |tiny| {
            tiny.quantize();
            tiny.metadata
                .insert("uform.quantization".to_owned(), "2".to_owned());
            tiny.write_tensors(|_| {})
        },
        Unsupported,
        &[
            "model.safetensors",
            "\"2\"",
            "\"1\"",
            "update uform",
            "again",
        ],
    ),
    (
        "a matrix of i8 alone in its file",
        |tiny| {
            tiny.metadata
                .insert("uform.quantization".to_owned(), "1".to_owned());
            tiny.edit_tensor(QUERY, |tensor| {
                tensor.dtype = "I8";
                tensor.bytes.truncate(HIDDEN * HIDDEN)
            })
        },
        CorruptModel,
        &["has no tensor", QUERY, "query.weight.scale"],
    ),
    (
        "scales missing",
        |tiny| {
            tiny.quantize();
            tiny.write_tensors(|tensors| tensors.retain(|tensor| tensor.name != WORD_SCALES))
        },
        CorruptModel,
        &["has no tensor", WORD_SCALES],
    ),
    (
        "a scale an input",
        |tiny| {
            tiny.quantize();
            tiny.edit_tensor(WORD_SCALES, |tensor| {
                tensor.shape = vec![HIDDEN];
                tensor.bytes.truncate(4 * HIDDEN)
            })
        },
        CorruptModel,
        &[WORD_SCALES, "[8]", "[24]"],
    ),
    (
        "scales as a column",
        |tiny| {
            tiny.quantize();
            tiny.edit_tensor(WORD_SCALES, |tensor| tensor.shape.push(1))
        },
        CorruptModel,
        &[WORD_SCALES, "[24, 1]", "[24]"],
    ),
    (
        "scales in half precision",
        |tiny| {
            tiny.quantize();
            tiny.edit_tensor(WORD_SCALES, halve)
        },
        CorruptModel,
        &[WORD_SCALES, "F16", "F32"],
    ),
    (
        "a scale that is not a number",
        i8_value!(WORD_SCALES, 3, f32::NAN),
        CorruptModel,
        &[WORD_SCALES, "NaN at value 3"],
    ),
    (
        "a scale of nothing",
        i8_value!("encoder.layer.0.attention.self.query.weight.scale", 7, 0.0),
        CorruptModel,
        &["query.weight.scale", "0 at value 7", "positive"],
    ),
    (
        "a negative scale",
        i8_value!("encoder.layer.0.output.dense.weight.scale", 0, -0.01),
        CorruptModel,
        &["output.dense.weight.scale", "-0.01 at value 0"],
    ),
    (
        "an infinite scale",
        i8_value!(WORD_SCALES, 0, f32::INFINITY),
        CorruptModel,
        &[WORD_SCALES, "inf at value 0"],
    ),
    (
        "a scale by which weights overflow",
        i8_value!("encoder.layer.0.output.dense.weight.scale", 0, 1e35),
        CorruptModel,
        &["output.dense.weight.scale", "finite"],
    ),
    (
        "a number that has no opposite",
        |tiny| {
            tiny.quantize();
            tiny.edit_tensor(QUERY, |tensor| tensor.bytes[5] = 0x80)
        },
        CorruptModel,
        &[QUERY, "-128 at value 5", "-127 to 127"],
    ),
    (
        "a balance an output",
        |tiny| {
            tiny.quantize();
            tiny.edit_tensor(BALANCE, |tensor| {
                tensor.shape = vec![HIDDEN];
                tensor.bytes.truncate(4 * HIDDEN)
            })
        },
        CorruptModel,
        &[BALANCE, "[8]", "[16]"],
    ),
    (
        "a balance that rounds",
        i8_value!(BALANCE, 2, 3.0),
        CorruptModel,
        &[BALANCE, "3 at value 2", "powers of two"],
    ),
    (
        "a balance of nothing",
        i8_value!(BALANCE, 1, 0.0),
        CorruptModel,
        &[BALANCE, "0 at value 1"],
    ),
    (
        "a balance out of this world",
        i8_value!(BALANCE, 1, 512.0),
        CorruptModel,
        &[BALANCE, "512 at value 1", "256"],
    ),
    (
        "gains in i8",
        |tiny| {
            tiny.quantize();
            tiny.edit_tensor("embeddings.LayerNorm.weight", |tensor| {
                tensor.dtype = "I8";
                tensor.bytes.truncate(HIDDEN)
            })
        },
        Unsupported,
        &["embeddings.LayerNorm.weight", "I8 for matrices"],
    ),
    // shards
    (
        "a shard missing",
        |tiny| {
            tiny.shard();
            tiny.remove("model-2.safetensors")
        },
        CorruptModel,
        &["model-2.safetensors", "incomplete"],
    ),
    (
        "a shard outside",
        |tiny| {
            tiny.shard();
            tiny.set(
                INDEX,
                "/weight_map/embeddings.LayerNorm.bias",
                json!("../x.safetensors"),
            )
        },
        CorruptModel,
        &["../x.safetensors", "outside"],
    ),
    (
        "a shard by its whole path",
        |tiny| {
            tiny.shard();
            tiny.set(
                INDEX,
                "/weight_map/embeddings.LayerNorm.bias",
                json!("/etc/x.safetensors"),
            )
        },
        CorruptModel,
        &["/etc/x.safetensors", "outside"],
    ),
    (
        "a tensor in the wrong shard",
        |tiny| {
            tiny.shard();
            tiny.set(
                INDEX,
                "/weight_map/embeddings.LayerNorm.bias",
                json!("model-2.safetensors"),
            )
        },
        CorruptModel,
        &["embeddings.LayerNorm.bias", "lacks it"],
    ),
    (
        "a tensor no shard has",
        |tiny| {
            tiny.shard();
            tiny.set(INDEX, "/weight_map/ghost", json!("model-1.safetensors"))
        },
        CorruptModel,
        &["ghost", "lacks it"],
    ),
    (
        "a tensor in two shards",
        |tiny| {
            tiny.shard();
            tiny.put("model-2.safetensors", safetensors(&tiny.tensors))
        },
        CorruptModel,
        &["another shard"],
    ),
    (
        "a tensor listed twice",
        |tiny| {
            tiny.shard();
            tiny.put(
                INDEX,
                r#"{"weight_map":{"a":"model-1.safetensors","a":"model-2.safetensors"}}"#,
            )
        },
        CorruptModel,
        &["\"a\" is there twice"],
    ),
    (
        "an index without a map",
        |tiny| {
            tiny.shard();
            tiny.put(INDEX, "{}")
        },
        CorruptModel,
        &["weight_map"],
    ),
    // tokenizer
    (
        "no tokenizer",
        |tiny| tiny.remove(TOKENIZER),
        NotFound,
        &["tokenizer.json"],
    ),
    (
        "only a vocabulary",
        |tiny| {
            tiny.remove(TOKENIZER);
            tiny.put("vocab.txt", "[PAD]")
        },
        Unsupported,
        &["vocab.txt", "save_pretrained"],
    ),
    (
        "a tokenizer cut off",
        |tiny| {
            let half = tiny.files[TOKENIZER].len() / 2;
            tiny.files.get_mut(TOKENIZER).expect("there").truncate(half)
        },
        CorruptModel,
        &["tokenizer.json", "not a valid tokenizer"],
    ),
    (
        "a tokenizer without a model",
        set!(TOKENIZER, "/model", null),
        CorruptModel,
        &["tokenizer.json"],
    ),
    (
        "a tokenizer of an unknown kind",
        set!(TOKENIZER, "/model/type", "Morse"),
        Unsupported,
        &["tokenizer.json", "WordPiece, BPE, Unigram and WordLevel"],
    ),
    (
        "a normalizer with a pattern",
        set!(TOKENIZER, "/normalizer", {"type": "Replace", "pattern": {"Regex": "a(?=b)"}, "content": ""}),
        Unsupported,
        &["tokenizer.json", "regular expression"],
    ),
    (
        "an unknown pre-tokenizer",
        set!(TOKENIZER, "/pre_tokenizer/type", "Scissors"),
        Unsupported,
        &["Scissors"],
    ),
    (
        "no word for unknown words",
        set!(TOKENIZER, "/model/unk_token", "[HUH]"),
        CorruptModel,
        &["unk_token"],
    ),
    (
        "an id out of this world",
        set!(TOKENIZER, "/model/vocab/sea", 4294967295u32),
        CorruptModel,
        &["4294967295", "vocab_size is 24"],
    ),
    (
        "a special id outside the table",
        set!(TOKENIZER, "/post_processor/special_tokens/[SEP]/ids", [99]),
        CorruptModel,
        &["token id 99"],
    ),
    (
        "a fractional id",
        set!(TOKENIZER, "/model/vocab/sea", 1.5),
        CorruptModel,
        &["tokenizer.json"],
    ),
    (
        "a word that never ends",
        |tiny| {
            tiny.set(
                TOKENIZER,
                &format!("/model/vocab/{}", "a".repeat(1 << 20)),
                json!(5),
            )
        },
        CorruptModel,
        &["1048576 bytes"],
    ),
    (
        "an added token that never ends",
        |tiny| {
            tiny.set(
                TOKENIZER,
                "/added_tokens/0/content",
                json!("a".repeat(1 << 17)),
            )
        },
        CorruptModel,
        &["131072 bytes"],
    ),
    (
        "words of all memory",
        set!(
            TOKENIZER,
            "/model/max_input_chars_per_word",
            9000000000000000u64
        ),
        CorruptModel,
        &["max_input_chars_per_word"],
    ),
    (
        "a text of type 1",
        set!(TOKENIZER, "/post_processor/single/1/Sequence/type_id", 1),
        Unsupported,
        &["token types"],
    ),
];

fn cut(tiny: &mut Tiny, length: usize) {
    let file = tiny.files.get_mut(WEIGHTS).expect("there");
    file.truncate(length);
}

fn two_towers(tensors: &mut Vec<common::tiny::Tensor>) {
    let mut second = tensors.clone();
    tensors
        .iter_mut()
        .for_each(|tensor| tensor.name.insert_str(0, "query."));
    second
        .iter_mut()
        .for_each(|tensor| tensor.name.insert_str(0, "text."));
    tensors.append(&mut second);
}

#[test]
fn each_fault_is_its_own_error_at_once() {
    assert!(
        load(&Tiny::new()).is_ok(),
        "the model is sound before it is damaged"
    );
    let mut wrong = Vec::new();
    let precisions = [None, Some(Precision::I8)];
    let rows = ROWS.iter().flat_map(|row| precisions.map(|one| (row, one)));
    for ((name, damage, status, fragments), precision) in rows {
        let mut tiny = Tiny::new();
        damage(&mut tiny);
        let start = Instant::now();
        let outcome = load_in(&tiny, precision);
        let taken = start.elapsed();
        match outcome {
            Ok(_) => wrong.push(format!("{name}: loaded")),
            Err(error) => {
                let message = error.message();
                let said = fragments.iter().all(|fragment| message.contains(fragment));
                if error.status() != *status || !said {
                    wrong.push(format!("{name}: {:?}: {message}", error.status()));
                }
            }
        }
        // Typically well below a millisecond; a machine under load is given more.
        if taken > Duration::from_millis(500) {
            wrong.push(format!("{name}: took {taken:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} rows:\n{}",
        wrong.len(),
        ROWS.len(),
        wrong.join("\n")
    );
}

/// Ways for a model to differ that are no faults.
#[test]
fn layouts_in_the_wild_load() {
    type Good = (&'static str, fn(&mut Tiny), fn(&Opened) -> bool);
    let rows: &[Good] = &[
        (
            "as it is",
            |_| {},
            |opened| opened.settings.normalize && opened.settings.tokens.limit == 16,
        ),
        ("in shards", Tiny::shard, |opened| {
            opened.weights.bytes() > 0
        }),
        (
            "under a prefix",
            |tiny| {
                tiny.write_tensors(|tensors| {
                    tensors
                        .iter_mut()
                        .for_each(|tensor| tensor.name.insert_str(0, "0.auto_model."))
                })
            },
            |opened| opened.weights.prefix() == "0.auto_model.",
        ),
        (
            "with a head",
            |tiny| {
                tiny.set(CONFIG, "/architectures", json!(["BertForMaskedLM"]));
                tiny.write_tensors(|tensors| {
                    tensors
                        .iter_mut()
                        .for_each(|tensor| tensor.name.insert_str(0, "bert."))
                })
            },
            |opened| opened.weights.contains("embeddings.LayerNorm.bias"),
        ),
        (
            "with the names of old",
            |tiny| {
                tiny.write_tensors(|tensors| {
                    tensors.iter_mut().for_each(|tensor| {
                        tensor.name = tensor
                            .name
                            .replace("LayerNorm.weight", "LayerNorm.gamma")
                            .replace("LayerNorm.bias", "LayerNorm.beta")
                    })
                })
            },
            |_| true,
        ),
        (
            "in half precision",
            |tiny| tiny.write_tensors(|tensors| tensors.iter_mut().for_each(halve)),
            |opened| {
                let norm = opened
                    .weights
                    .tensor("embeddings.LayerNorm.weight", &[HIDDEN]);
                norm.is_ok_and(|norm| norm.iter().all(|scale| (0.75..1.25).contains(scale)))
            },
        ),
        (
            "in bf16",
            |tiny| tiny.write_tensors(|tensors| tensors.iter_mut().for_each(to_bf16)),
            |opened| {
                let norm = opened
                    .weights
                    .tensor("embeddings.LayerNorm.weight", &[HIDDEN]);
                norm.is_ok_and(|norm| norm.iter().all(|scale| (0.75..1.25).contains(scale)))
            },
        ),
        ("in i8", Tiny::quantize, |opened| {
            let query = "encoder.layer.0.attention.self.query.weight";
            let found = opened.weights.quantized(query, HIDDEN, HIDDEN);
            found.is_ok_and(|matrix| matrix.is_some_and(|matrix| matrix.balance().is_none()))
        }),
        (
            "in i8 and in shards",
            |tiny| {
                tiny.quantize();
                tiny.shard()
            },
            |_| true,
        ),
        (
            "in i8, balanced where nobody balances",
            |tiny| {
                tiny.quantize();
                tiny.write_tensors(|tensors| {
                    tensors.push(common::tiny::Tensor {
                        name: "encoder.layer.0.attention.self.query.weight.balance".to_owned(),
                        dtype: "F32",
                        shape: vec![HIDDEN],
                        bytes: 2f32.to_le_bytes().repeat(HIDDEN),
                    })
                })
            },
            |opened| {
                let query = "encoder.layer.0.attention.self.query.weight";
                let found = opened.weights.quantized(query, HIDDEN, HIDDEN);
                found.is_ok_and(|matrix| matrix.is_some_and(|matrix| matrix.balance().is_some()))
            },
        ),
        (
            "without modules",
            |tiny| tiny.remove(MODULES),
            |opened| opened.settings.pooling.is_none() && !opened.settings.normalize,
        ),
        (
            "without a limit",
            |tiny| tiny.remove("sentence_bert_config.json"),
            |opened| opened.settings.tokens.limit == 32,
        ),
        (
            "with a limit above the positions",
            set!("sentence_bert_config.json", "/max_seq_length", 4096),
            |opened| opened.settings.tokens.limit == 32,
        ),
        (
            "with the tokenizer's limit",
            |tiny| {
                tiny.remove("sentence_bert_config.json");
                tiny.set("tokenizer_config.json", "/model_max_length", json!(9))
            },
            |opened| opened.settings.tokens.limit == 9,
        ),
        (
            "with a dense head",
            |tiny| tiny.add_dense(4),
            |opened| opened.settings.dense[0].out_features == 4,
        ),
        (
            "in the spelling of newer versions",
            |tiny| {
                tiny.set(
                    MODULES,
                    "/0/type",
                    json!("sentence_transformers.base.modules.transformer.Transformer"),
                );
                tiny.set(
                    MODULES,
                    "/1/type",
                    json!("sentence_transformers.sentence_transformer.modules.pooling.Pooling"),
                );
                tiny.set(
                    MODULES,
                    "/2/type",
                    json!("sentence_transformers.base.modules.normalize.Normalize"),
                );
                tiny.put(POOLING, json!({ "embedding_dimension": 8, "pooling_mode": "lasttoken", "include_prompt": false }).to_string());
            },
            |opened| {
                opened
                    .settings
                    .pooling
                    .is_some_and(|pooling| pooling.word() == "last")
                    && !opened.settings.include_prompt
            },
        ),
        (
            "with the encoder in a folder",
            |tiny| {
                tiny.set(MODULES, "/0/path", json!("0_Transformer"));
                for name in [CONFIG, WEIGHTS, TOKENIZER, "sentence_bert_config.json"] {
                    let file = tiny.files.remove(name).expect("there");
                    tiny.put(&format!("0_Transformer/{name}"), file);
                }
            },
            |opened| {
                opened.settings.transformer == "0_Transformer" && opened.settings.tokens.limit == 16
            },
        ),
        (
            "with a default prompt",
            set!(PROMPTS, "/default_prompt_name", "query"),
            |opened| {
                opened.settings.prompts.default.as_deref() == Some("query")
                    && opened.settings.prompts.named["query"] == "query: "
            },
        ),
    ];
    for (name, change, holds) in rows {
        let mut tiny = Tiny::new();
        change(&mut tiny);
        let source = Memory::new(tiny.files.clone());
        match load(&tiny).and_then(|_| Opened::open(&source)) {
            Ok(opened) => assert!(holds(&opened), "{name}"),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

fn halve(tensor: &mut common::tiny::Tensor) {
    convert(tensor, "F16", |value| {
        half::f16::from_f32(value).to_le_bytes()
    });
}

fn to_bf16(tensor: &mut common::tiny::Tensor) {
    convert(tensor, "BF16", |value| {
        half::bf16::from_f32(value).to_le_bytes()
    });
}

fn convert(tensor: &mut common::tiny::Tensor, dtype: &'static str, to: fn(f32) -> [u8; 2]) {
    let values = tensor.bytes.chunks_exact(4);
    let values = values.map(|value| f32::from_le_bytes(value.try_into().expect("four bytes")));
    tensor.bytes = values.flat_map(to).collect();
    tensor.dtype = dtype;
}
