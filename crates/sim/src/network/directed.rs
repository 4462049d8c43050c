//! One direction of a link in the simulator.

use std::collections::VecDeque;

use midspan_link::{
    Cell, Configuration, Counters, Delay, Direction, FixedLink, Link, Loss as LossCell,
    ScheduleError, Station, Transmitter, stream,
};
use midspan_units::Time;

use super::compressed::CompressedLink;
use super::discipline::{Discipline, QueueDiscipline};
use super::loss::{Loss, LossPattern};
use crate::packet::Packet;

/// One direction of a link, with the packets in transit.
#[derive(Debug)]
pub(crate) struct Directed {
    pub(super) kind: Kind,
    /// Largest packet in bytes; larger ones are fragmented.
    pub(super) mtu: u32,
    /// Whether fragments are dropped.
    pub(super) drops_fragments: bool,
    /// Packets that have left a fixed link, in order, with their arrival times: the link itself
    /// keeps no packets.
    pub(super) on_the_way: VecDeque<(Time, Packet)>,
    /// Whether the link gets packets from the previous link in the same step.
    pub(super) joined: bool,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // The large variant is the fast one, and there are few links.
pub(super) enum Kind {
    Fixed(FixedLink<Loss>),
    Changing(Box<Link<Packet, Discipline, Loss>>),
    Compressed(Box<CompressedLink>),
    /// A modem on a medium that several share.
    Shared {
        medium: usize,
        station: usize,
    },
}

/// The properties from which a direction is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewLink<'a> {
    pub(crate) seed: u64,
    pub(crate) name: &'a str,
    pub(crate) direction: Direction,
    pub(crate) configuration: &'a Configuration,
    pub(crate) loss: &'a LossPattern,
    pub(crate) mtu: Option<u32>,
    pub(crate) drops_fragments: bool,
    pub(crate) discipline: QueueDiscipline,
    pub(crate) compression: bool,
}

impl NewLink<'_> {
    fn stream(&self, purpose: &str) -> midspan_link::Stream {
        stream(
            self.seed,
            &format!("{}{purpose}", self.name),
            self.direction,
        )
    }

    /// A modem with the delay, the overhead, the loss and the queue of this direction.
    pub(crate) fn station(&self) -> Station<Packet, Discipline, Loss> {
        let configuration = self.configuration;
        let state = configuration.state;
        Station::new(
            Discipline::new(self.discipline, configuration.queue),
            Loss::new(self.loss, state.loss, self.stream("")),
            state.delay,
            configuration.overhead,
            self.stream("/contention"),
        )
    }
}

impl Directed {
    /// The connection of a link to a shared medium.
    pub(crate) const fn shared(
        medium: usize,
        station: usize,
        mtu: Option<u32>,
        drops_fragments: bool,
    ) -> Self {
        Self {
            kind: Kind::Shared { medium, station },
            mtu: match mtu {
                Some(mtu) => mtu,
                None => u32::MAX,
            },
            drops_fragments,
            on_the_way: VecDeque::new(),
            joined: false,
        }
    }

    pub(crate) fn new(link: NewLink<'_>) -> Result<Self, ScheduleError> {
        let configuration = link.configuration;
        let state = configuration.state;
        let loss = || Loss::new(link.loss, state.loss, link.stream(""));
        let fixed = || {
            let loss = Loss::fixed(link.loss, state.loss, link.stream(""));
            FixedLink::with_loss(configuration, loss).ok()
        };
        let plain = link.discipline.is_plain();
        let kind = match fixed().filter(|_| plain) {
            Some(fixed) if link.compression => {
                Kind::Compressed(Box::new(CompressedLink::new(fixed)))
            }
            Some(fixed) => Kind::Fixed(fixed),
            None => {
                let queue = Discipline::new(link.discipline, configuration.queue);
                Kind::Changing(Box::new(Link::from_cells(
                    Transmitter::new(queue, state.rate, configuration.overhead),
                    LossCell::new(loss()),
                    Delay::new(state.delay),
                    configuration.schedule.clone(),
                )?))
            }
        };
        Ok(Self {
            kind,
            mtu: link.mtu.unwrap_or(u32::MAX),
            drops_fragments: link.drops_fragments,
            on_the_way: VecDeque::new(),
            joined: false,
        })
    }

    pub(super) const fn is_fixed(&self) -> bool {
        matches!(self.kind, Kind::Fixed(_))
    }

    /// The link's counters; those of a modem are kept by its medium.
    pub(super) fn counters(&self) -> Counters {
        match &self.kind {
            Kind::Fixed(link) => link.counters(),
            Kind::Changing(link) => *link.counters(),
            Kind::Compressed(link) => link.counters(),
            Kind::Shared { .. } => Counters::default(),
        }
    }

    pub(super) fn on_the_way(&self) -> u64 {
        match &self.kind {
            Kind::Fixed(_) | Kind::Compressed(_) => self.on_the_way.len() as u64,
            Kind::Changing(link) => link.held() as u64,
            // The medium counts them.
            Kind::Shared { .. } => 0,
        }
    }
}
