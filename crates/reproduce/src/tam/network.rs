//! The paper's testbed, with one terminal or with three.

use crate::network::Network;

const ONE_TERMINAL: Network = Network::new("tam", include_str!("testbed.toml"));
const THREE_TERMINALS: Network = Network::new(
    "tam",
    concat!(
        include_str!("testbed.toml"),
        include_str!("more-terminals.toml")
    ),
);
/// Names of the terminals; each has a link of the same name.
const TERMINALS: [&str; 3] = ["client", "second", "third"];

/// The testbed with this number of terminals, and their names.
pub(super) fn testbed(terminals: usize) -> (Network, &'static [&'static str]) {
    match terminals {
        0 | 1 => (ONE_TERMINAL, &TERMINALS[..1]),
        _ => (THREE_TERMINALS, &TERMINALS),
    }
}
