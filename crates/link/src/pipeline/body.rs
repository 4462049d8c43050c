//! The stages of one direction, as [`build`](super::build) makes them.

use std::fmt;

use midspan_units::Time;

use super::CompressedLink;
use crate::counters::Counters;
use crate::fixed::{FixedLink, Verdict};
use crate::fragments::Entrance;
use crate::loss_process::LossProcess;
use crate::packet::Packet;
use crate::stage::{Stage, Waiting};

/// The stages of one direction: what a packet meets first, and the link behind it.
#[derive(Debug)]
pub struct Parts<P> {
    /// MTU and fragments.
    pub entrance: Entrance,
    /// Queue, rate, loss, delay and all other effects.
    pub body: Body<P>,
}

/// The stages behind the [`Entrance`].
///
/// The fate of a packet on a link that never changes and sends packets in their order is decided
/// when the packet arrives: [`decide`](Self::decide) returns it, and the caller keeps the packet.
/// Other links keep their packets: [`stage`](Self::stage).
#[expect(
    clippy::large_enum_variant,
    reason = "the fast path needs no pointer, and a network has few links"
)]
pub enum Body<P> {
    /// A link that never changes, with a plain queue and without other effects: the fast path.
    Fixed(FixedLink<LossProcess>),
    /// The same with compressed headers.
    Compressed(Box<CompressedLink>),
    /// Any other link.
    Staged(Box<dyn Stage<P> + Send>),
}

impl<P: Packet> Parts<P> {
    /// The counters so far, with the packets that the entrance has refused.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let refused = self.entrance.refused();
        self.body.counters().with_refused(refused)
    }
}

impl<P: Packet> Body<P> {
    /// The fate of a packet that arrives at `now`, if it is decided then.
    pub fn decide(&mut self, now: Time, packet: &P) -> Option<Verdict> {
        match self {
            Self::Fixed(link) => Some(link.handle(now, packet)),
            Self::Compressed(link) => Some(link.handle(now, packet)),
            Self::Staged(_) => None,
        }
    }

    /// The stages that keep their packets; `None` if the caller keeps them.
    #[inline]
    pub fn stage_mut(&mut self) -> Option<&mut (dyn Stage<P> + Send)> {
        match self {
            Self::Fixed(_) | Self::Compressed(_) => None,
            Self::Staged(stage) => Some(stage.as_mut()),
        }
    }

    /// Like [`stage_mut`](Self::stage_mut), to read.
    #[inline]
    #[must_use]
    pub fn stage(&self) -> Option<&(dyn Stage<P> + Send)> {
        match self {
            Self::Fixed(_) | Self::Compressed(_) => None,
            Self::Staged(stage) => Some(stage.as_ref()),
        }
    }

    /// The counters so far. A packet whose fate is decided when it arrives counts at once; see
    /// [`FixedLink::counters`].
    #[must_use]
    pub fn counters(&self) -> Counters {
        match self {
            Self::Fixed(link) => link.counters(),
            Self::Compressed(link) => link.counters(),
            Self::Staged(stage) => stage.counters(),
        }
    }

    /// The packets that wait, as of the last packet that was handed over.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        match self {
            Self::Fixed(link) => Waiting {
                packets: link.queue_packets(),
                bytes: link.queue_bytes(),
            },
            Self::Compressed(link) => link.waiting(),
            Self::Staged(stage) => stage.waiting(),
        }
    }
}

impl<P> fmt::Debug for Body<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(link) => f.debug_tuple("Fixed").field(link).finish(),
            Self::Compressed(link) => f.debug_tuple("Compressed").field(link).finish(),
            Self::Staged(_) => f.write_str("Staged"),
        }
    }
}
