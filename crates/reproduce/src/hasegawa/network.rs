//! The paper's testbed, and the network of the item "fair".

use crate::network::Network;

pub(super) const TESTBED: Network = Network::new("hasegawa", include_str!("testbed.toml"));
pub(super) const SHARED: Network = Network::new("hasegawa-shared", include_str!("shared.toml"));
