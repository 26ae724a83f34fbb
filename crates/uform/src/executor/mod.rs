//! Who runs, and who is next.
