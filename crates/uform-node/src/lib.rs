//! The Node addon.
