//! What `encode_text` returns.

/// One vector a text, in the order of the texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Embeddings {
    /// How many texts there were.
    pub rows: usize,
    /// Length of each vector.
    pub dimensions: usize,
    /// `[rows][dimensions]`, row-major. Every value is finite.
    pub data: Vec<f32>,
    /// `[rows]` tokens of each text before any cut, special tokens and prompt included.
    pub tokens: Vec<u32>,
    /// `[rows]` 1 where a text was longer than the model's token limit and was cut, else 0.
    pub truncated: Vec<u8>,
}

impl Embeddings {
    /// The vector of the text at `index`.
    ///
    /// # Panics
    /// When `index` is not below `rows`.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.data[index * self.dimensions..][..self.dimensions]
    }
}
