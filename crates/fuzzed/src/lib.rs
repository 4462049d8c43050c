//! Fuzz targets for every parser of outside input.
//!
//! A target is a function that passes arbitrary bytes to the parser, and panics if the result is
//! wrong. The table [`TARGETS`] is the only list of targets. It has three users:
//!
//! - the fuzzers, `fuzz/fuzz_targets/NAME.rs`, which generate bytes;
//! - a test, which runs each target with its corpus, `fuzz/corpus/NAME`, on every `cargo test`;
//! - the program `fuzzing`, which runs the fuzzers, measures which lines of a parser the corpus
//!   reaches (`docs/measurements/fuzzing.md`), adds inputs to the corpus, and checks that the fuzzers
//!   find [planted] faults.
//!
//! For a private parser, the function is in the parser's crate, in a module that only the feature
//! `fuzzing` adds. No release has this feature.

mod encrypted;
mod explicit;
mod files;
mod fragments;
mod handed_over;
mod measured;
pub mod planted;
mod table;

pub use encrypted::tls;
pub use explicit::{hop, http, http_answer, overlay_row, proxy_protocol, socks5};
pub use files::{configuration, overrides, path_file, recorded_trace};
pub use fragments::fragmenter;
pub use handed_over::handover;
pub use measured::{iperf3, metrics, pcap, ping, ss};
pub use midspan_gateway::fuzzing::route_messages;
pub use midspan_linux::fuzzing::{netfilter_messages, route_lists};
pub use midspan_proxy::fuzzing::{
    control_socket, gate_packets, process_messages, registry, verdicts,
};
pub use midspan_thin::fuzzing::{packets as thin_packets, process_messages as thin_messages};
pub use table::{Lines, TARGETS, Target};

use std::path::PathBuf;

/// What `nft` prints: as JSON (`nft -j list ruleset`) or as its own text.
pub fn nft_listings(input: &[u8]) {
    midspan_linux::fuzzing::nft_listings(input);
    midspan_gateway::fuzzing::nft_listings(input);
}

/// Tables of `/proc/net`: sockets, queues, counters; and names of lock files.
pub fn proc_tables(input: &[u8]) {
    midspan_linux::fuzzing::socket_tables(input);
    midspan_gateway::fuzzing::files_and_queues(input);
    midspan_proxy::fuzzing::counters(&String::from_utf8_lossy(input));
}

/// The root of the repository from which this program was built.
#[must_use]
pub fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
