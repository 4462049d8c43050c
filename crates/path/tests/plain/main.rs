//! Path files: read, refused, written again.

mod built_in;
mod errors;
mod format;
mod properties;
mod replay;
mod written;
