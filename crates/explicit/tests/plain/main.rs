//! What clients and other nodes write, and the answers.

mod answers;
mod common;
mod exchange;
mod hop;
mod http;
mod properties;
mod socks5;
