//! Documents: their errors, and values that replace theirs.

mod errors;
mod overrides;
