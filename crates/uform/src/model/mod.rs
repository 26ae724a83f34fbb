//! Files to weights, texts to vectors.
