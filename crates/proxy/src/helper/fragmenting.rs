//! What the relay's fragmenter needs: a device for packets to be cut, and sockets for fragments.

use std::io;
use std::os::fd::OwnedFd;

use midspan_linux::raw_packet::RawSocket;
use midspan_linux::tun::{Tun, TunError};
use midspan_relay::profile;
use tracing::{info, warn};

use super::families;
use crate::configuration::Configuration;

/// Device names begin so.
const PREFIX: &str = "midspan";

/// A device and sockets, to be handed to the relay. The device goes with its descriptor.
pub(super) struct Fragmenting {
    /// Index of the device.
    pub device: u32,
    /// Of the device, and raw sockets for IPv4 and, where the kernel has it, IPv6.
    pub descriptors: Vec<OwnedFd>,
}

/// `None` where no client is to get oversized segments, or where there can be no device, which is
/// logged: what only the fragmenter can cut is not sent then.
pub(super) fn open(configuration: &Configuration) -> Option<Fragmenting> {
    let profiles = &configuration.profiles;
    if !profile::wants_oversized(profiles) {
        return None;
    }
    match make() {
        Ok(fragmenting) => Some(fragmenting),
        Err(error) if profiles.iter().any(|of| of.fragment_size.is_some()) => {
            warn!("no oversized segments for IPv6 clients, nor with fragment_size: {error}");
            None
        }
        Err(error) => {
            info!("no oversized segments for IPv6 clients: {error}");
            None
        }
    }
}

fn make() -> Result<Fragmenting, TunError> {
    // Before the device, which would be seen by others.
    let raw = families::sockets(RawSocket::open_for_fragments).map_err(no_raw_socket)?;
    let tun = Tun::make(PREFIX)?;
    Ok(Fragmenting {
        device: tun.index,
        descriptors: std::iter::once(tun.packets).chain(raw).collect(),
    })
}

fn no_raw_socket(error: io::Error) -> TunError {
    let message = format!("no raw socket, which needs CAP_NET_RAW: {error}");
    TunError::Make(io::Error::new(error.kind(), message))
}
