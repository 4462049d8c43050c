//! Path files: read, refused, written again.

mod built_in;
mod errors;
mod format;
mod overlay;
mod properties;
mod replay;
mod written;
