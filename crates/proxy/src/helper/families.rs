//! Families of transparent listeners that this machine does not have.

use std::io;
use std::os::fd::OwnedFd;

use midspan_linux::ipv6;
use midspan_linux::raw_packet::Family;
use tracing::warn;

use crate::Error;
use crate::configuration::{Configuration, Mode};

/// Leaves IPv6 out of transparent listeners that also intercept IPv4, if this machine has no IPv6.
/// Returns texts about what was left out.
///
/// # Errors
/// A listener intercepts only IPv6.
pub(crate) fn leave_out_missing(configuration: &mut Configuration) -> Result<Vec<String>, Error> {
    let Some(missing) = ipv6::missing() else {
        return Ok(Vec::new());
    };
    let alone = configuration
        .transparent()
        .find(|(_, of)| of.ipv6 && !of.ipv4);
    if let Some((listener, _)) = alone {
        let message = format!("takes IPv6 only, and this machine has none: {missing}");
        let error = configuration.listen_error(listener, message);
        return Err(midspan_document::Error::from(error).into());
    }
    let mut notes = Vec::new();
    for listener in &mut configuration.listeners {
        let Mode::Transparent(transparent) = &mut listener.mode else {
            continue;
        };
        if transparent.ipv6 {
            transparent.ipv6 = false;
            notes.push(format!(
                "listener \"{}\" intercepts IPv4 only, because this machine has no IPv6: {missing}; when \
                 it has, a reload adds IPv6",
                listener.relay.name
            ));
        }
    }
    Ok(notes)
}

/// Like [`leave_out_missing`]; also logs the texts.
///
/// # Errors
/// As [`leave_out_missing`].
pub(super) fn leave_out_and_say(configuration: &mut Configuration) -> Result<Vec<String>, Error> {
    let notes = leave_out_missing(configuration)?;
    for note in &notes {
        warn!("{note}");
    }
    Ok(notes)
}

/// A socket for each family that this kernel has: IPv4, and perhaps IPv6.
///
/// # Errors
/// Those of `open`.
pub(super) fn sockets(open: impl Fn(Family) -> io::Result<OwnedFd>) -> io::Result<Vec<OwnedFd>> {
    let four = open(Family::V4)?;
    Ok(match ipv6::missing() {
        Some(ipv6::Missing::Sockets) => vec![four],
        _ => vec![four, open(Family::V6)?],
    })
}
