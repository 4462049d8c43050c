//! The networks of the tables and of Fig. 9, the values that vary on them, and the printed results.

use midspan_path::{Error, Path};

use crate::network::Network;

const EIGHT: Network = Network::new("bhole", include_str!("8-hops.toml"));
const FOURTEEN: Network = Network::new("bhole", include_str!("14-hops.toml"));

/// A row of equal links. The paper calls a link a hop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    network: Network,
    hops: u32,
    /// Delay of each link, in ms.
    delay: u64,
}

pub(super) const TABLES_1_TO_3: Row = Row::of_eight(10);
pub(super) const TABLE_4: Row = Row::of_eight(5);
pub(super) const TABLES_5_AND_6: Row = Row::of_eight(8);
pub(super) const FIGURE_9: Row = Row {
    network: FOURTEEN,
    hops: 14,
    delay: 2,
};

/// Table 4: links between the source and the proxy, the ratio of these links to the others, and
/// packets.
pub(super) const PLACES: [(u32, &str, u64); 7] = [
    (1, "1:7", 2530),
    (2, "2:6", 2970),
    (3, "3:5", 3570),
    (4, "1:1", 4470),
    (5, "5:3", 3570),
    (6, "6:2", 2970),
    (7, "7:1", 2530),
];
/// Packets of Table 4 without a proxy.
pub(super) const PLAIN_4: u64 = 2210;

/// Table 6: `C_max` in packets, and packets. The paper's table ends at 40.
pub(super) const BUFFERS: [(u32, Option<u64>); 6] = [
    (10, Some(1948)),
    (20, Some(2361)),
    (30, Some(2602)),
    (40, Some(2708)),
    (80, None),
    (160, None),
];
/// Packets of Table 6 without a proxy.
pub(super) const PLAIN_6: u64 = 1390;

/// Fig. 9: links between the source and each proxy.
pub(super) const PROXIES: [&[u32]; 4] = [&[], &[7], &[5, 9], &[3, 7, 10]];

impl Row {
    const fn of_eight(delay: u64) -> Self {
        Self {
            network: EIGHT,
            hops: 8,
            delay,
        }
    }

    /// The path with proxies after these numbers of links from the source, and with further
    /// changes.
    pub(super) fn path(&self, proxies: &[u32], changes: &[String]) -> Result<Path, Error> {
        let delay = |hop| format!("link.hop-{hop}.delay={} ms", self.delay);
        let mut all: Vec<String> = (1..=self.hops).map(delay).collect();
        all.extend_from_slice(changes);
        let mut path = self.network.path(&all)?;
        let names: Vec<String> = proxies.iter().map(|hops| format!("n{hops}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        path.keep_proxies(&names);
        Ok(path)
    }
}
