//! The paper's networks in a row, each with its loss and delay.

use midspan_model::papers::maki_figures::Network as Conditions;
use midspan_path::{Error, Path};

use crate::network::Network;

const ONE: Network = Network::new("maki", include_str!("one-network.toml"));
const THREE: Network = Network::new("maki", include_str!("three-networks.toml"));
const FOUR: Network = Network::new("maki", include_str!("four-networks.toml"));

/// The path with this number of networks, and with further changes.
pub(super) fn row(networks: usize, changes: &[String]) -> Result<Path, Error> {
    let network = match networks {
        1 => ONE,
        4 => FOUR,
        _ => THREE,
    };
    network.path(changes)
}

/// The path of networks with these losses towards the receiver and these one-way delays.
pub(super) fn path(networks: &[Conditions]) -> Result<Path, Error> {
    let mut path = row(networks.len(), &[])?;
    for (link, (loss, delay)) in path.links.iter_mut().zip(networks) {
        link.up.state.loss = *loss;
        link.up.state.delay = *delay;
        link.down.state.delay = *delay;
    }
    Ok(path)
}
