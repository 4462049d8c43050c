//! Reports of given records, and of texts that others wrote.

mod sample;
mod untrusted;
