//! The network of the paper, and the conditions that its figures compare.

use midspan_path::{Error, Path};

use crate::network::Network;

const NETWORK: Network = Network::new("shikama", include_str!("network.toml"));

/// P_L of the paper's figures, in the steps of Table 1.
pub(super) const LOSSES: [&str; 10] = [
    "0.0001", "0.0002", "0.0005", "0.001", "0.002", "0.005", "0.01", "0.02", "0.05", "0.1",
];

/// A condition of the wired section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Condition {
    /// The figure of throughput over P_L.
    pub(super) throughput: &'static str,
    /// The figure of loss over P_L; empty if there is none.
    pub(super) loss: &'static str,
    /// B_L, in packets.
    pub(super) queue: u32,
    /// D_W, in ms.
    pub(super) delay: u32,
    /// B_W, in Mbit/s.
    pub(super) rate: u32,
}

pub(super) const FIGURE_10: Condition = Condition {
    throughput: "figure 10",
    loss: "figure 11",
    queue: 20,
    delay: 30,
    rate: 10,
};
pub(super) const FIGURE_12: Condition = Condition {
    throughput: "figure 12",
    loss: "figure 13",
    queue: 50,
    ..FIGURE_10
};
pub(super) const FIGURE_14: Condition = Condition {
    throughput: "figure 14",
    loss: "figure 15",
    delay: 40,
    ..FIGURE_10
};
pub(super) const FIGURE_16: Condition = Condition {
    throughput: "figure 16",
    loss: "figure 17",
    rate: 20,
    ..FIGURE_10
};
/// Figs 7 to 9: a queue that never overflows.
pub(super) const AMPLE: Condition = Condition {
    throughput: "figure 7",
    loss: "",
    queue: 1000,
    ..FIGURE_10
};
/// Beyond the paper: a rate hardly above the wireless section's, with a queue of half the length.
pub(super) const TIGHTER: Condition = Condition {
    throughput: "tighter",
    loss: "",
    queue: 10,
    delay: 30,
    rate: 6,
};

impl Condition {
    /// The path with the loss `loss` on the wireless section, and with further changes.
    pub(super) fn path(&self, loss: &str, changes: &[String]) -> Result<Path, Error> {
        let mut all = vec![
            format!("link.wireless.up.loss={loss}"),
            format!("link.narrow.queue={} packets", self.queue),
            format!("link.narrow.delay={} ms", self.delay),
            format!("link.narrow.rate={} Mbit/s", self.rate),
        ];
        all.extend_from_slice(changes);
        NETWORK.path(&all)
    }
}
