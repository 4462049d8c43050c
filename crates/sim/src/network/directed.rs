//! One direction of a link in the simulator.

use std::collections::VecDeque;

use midspan_link::{Body, Entrance, Parts};
use midspan_units::Time;

use crate::packet::Packet;

/// One direction of a link, with the packets in transit.
#[derive(Debug)]
pub(crate) struct Directed {
    pub(super) entrance: Entrance,
    pub(super) carrier: Carrier,
    /// Packets that have left a fixed link, in order, with their arrival times: the link itself
    /// keeps no packets.
    pub(super) on_the_way: VecDeque<(Time, Packet)>,
    /// Whether the link gets packets from the previous link in the same step.
    pub(super) joined: bool,
}

/// What carries the packets behind the entrance.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // The large variant is the fast one, and there are few links.
pub(super) enum Carrier {
    /// The link's own stages.
    Own(Body<Packet>),
    /// A modem on a medium that several links share.
    Shared { medium: usize, station: usize },
}

impl Directed {
    /// A link with stages of its own.
    pub(crate) fn own(parts: Parts<Packet>) -> Self {
        Self::new(parts.entrance, Carrier::Own(parts.body))
    }

    /// The connection of a link to a shared medium.
    pub(crate) fn shared(entrance: Entrance, medium: usize, station: usize) -> Self {
        Self::new(entrance, Carrier::Shared { medium, station })
    }

    const fn new(entrance: Entrance, carrier: Carrier) -> Self {
        Self {
            entrance,
            carrier,
            on_the_way: VecDeque::new(),
            joined: false,
        }
    }

    pub(super) const fn is_fixed(&self) -> bool {
        matches!(self.carrier, Carrier::Own(Body::Fixed(_)))
    }

    pub(super) fn on_the_way(&self) -> u64 {
        match &self.carrier {
            Carrier::Own(body) => match body.stage() {
                Some(stage) => stage.held() as u64,
                None => self.on_the_way.len() as u64,
            },
            // The medium counts them.
            Carrier::Shared { .. } => 0,
        }
    }
}
