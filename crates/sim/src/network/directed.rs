//! One direction of a link in the simulator.

use std::collections::VecDeque;

use midspan_link::{
    Cell, Configuration, Counters, Delay, Direction, DropTail, FixedLink, Link, Loss as LossCell,
    ScheduleError, Transmitter, stream,
};
use midspan_units::Time;

use super::Dropped;
use super::loss::{Loss, LossPattern};
use crate::engine::Schedule;
use crate::packet::Packet;

/// One direction of a link, with the packets that are on their way.
#[derive(Debug)]
pub(crate) struct Directed {
    pub(super) kind: Kind,
    /// Larger packets are cut.
    pub(super) mtu: u32,
    /// What left a fixed link, in order: the link itself keeps no packets.
    pub(super) on_the_way: VecDeque<(Time, Packet)>,
    /// Takes what the link before delivers at once.
    pub(super) joined: bool,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // The large one is the fast one, and links are few.
pub(super) enum Kind {
    Fixed(FixedLink<Loss>),
    Changing(Box<Link<Packet, DropTail<Packet>, Loss>>),
}

/// What a direction is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewLink<'a> {
    pub(crate) seed: u64,
    pub(crate) name: &'a str,
    pub(crate) direction: Direction,
    pub(crate) configuration: &'a Configuration,
    pub(crate) loss: &'a LossPattern,
    pub(crate) mtu: Option<u32>,
}

impl Directed {
    pub(crate) fn new(link: NewLink<'_>) -> Result<Self, ScheduleError> {
        let configuration = link.configuration;
        let state = configuration.state;
        let stream = stream(link.seed, link.name, link.direction);
        let loss = || Loss::new(link.loss, state.loss, stream.clone());
        let kind = if let Ok(fixed) = FixedLink::with_loss(
            configuration,
            Loss::fixed(link.loss, state.loss, stream.clone()),
        ) {
            Kind::Fixed(fixed)
        } else {
            let queue = DropTail::new(configuration.queue);
            Kind::Changing(Box::new(Link::from_cells(
                Transmitter::new(queue, state.rate, configuration.overhead),
                LossCell::new(loss()),
                Delay::new(state.delay),
                configuration.schedule.clone(),
            )?))
        };
        Ok(Self {
            kind,
            mtu: link.mtu.unwrap_or(u32::MAX),
            on_the_way: VecDeque::new(),
            joined: false,
        })
    }

    pub(super) const fn is_fixed(&self) -> bool {
        matches!(self.kind, Kind::Fixed(_))
    }

    /// Hands a packet to a link that changes over time.
    #[cold]
    pub(super) fn change(
        &mut self,
        schedule: &mut Schedule,
        place: u32,
        now: Time,
        packet: Packet,
    ) -> Option<Dropped> {
        if let Kind::Changing(link) = &mut self.kind {
            link.handle(now, packet);
            // What is ready already is polled by an event at this very time.
            let at = link.poll_timeout().unwrap_or(now);
            schedule.wake(place, at.max(now));
        }
        None
    }

    pub(super) fn counters(&self) -> Counters {
        match &self.kind {
            Kind::Fixed(link) => *link.counters(),
            Kind::Changing(link) => *link.counters(),
        }
    }

    pub(super) fn on_the_way(&self) -> u64 {
        match &self.kind {
            Kind::Fixed(_) => self.on_the_way.len() as u64,
            Kind::Changing(link) => link.held() as u64,
        }
    }
}
