//! One direction of a link, made from its configuration: for the simulator and for the emulator.

mod compressed_link;

use std::collections::VecDeque;
use std::fmt;

use midspan_units::Time;

use crate::ack_queue::Discipline;
use crate::configuration::Configuration;
use crate::counters::Counters;
use crate::delay::Delay;
use crate::drop_reason::DropReason;
use crate::fixed::{FixedLink, Verdict};
use crate::fragments::{Entering, Entrance};
use crate::link::Link;
use crate::loss::Loss;
use crate::loss_process::LossProcess;
use crate::packet::Packet;
use crate::polled_medium::Station;
use crate::schedule::ScheduleError;
use crate::seed::Streams;
use crate::stage::{Output, Outputs, Stage, Waiting};
use crate::transmitter::Transmitter;
pub use compressed_link::CompressedLink;

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

/// Why a link cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The schedule is not in order.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// Headers are to be compressed on a link that changes over time, or that treats ACKs
    /// differently from data.
    #[error("header compression needs a plain queue and no schedule")]
    Compression,
}

/// Makes one direction of a link. A new effect is a [`Stage`], a [`LossModel`](crate::LossModel) or
/// a [`Queue`](crate::Queue), and a line here.
///
/// # Errors
/// See [`LinkError`].
pub fn build<P>(configuration: &Configuration, streams: Streams<'_>) -> Result<Parts<P>, LinkError>
where
    P: Packet + Send + 'static,
{
    Ok(Parts {
        entrance: entrance(configuration, streams),
        body: match fixed(configuration, streams) {
            Some(fixed) if configuration.header_compression => {
                Body::Compressed(Box::new(CompressedLink::new(fixed)))
            }
            Some(fixed) => Body::Fixed(fixed),
            None if configuration.header_compression => return Err(LinkError::Compression),
            None => Body::Staged(staged(configuration, streams)?),
        },
    })
}

/// The entrance of a link.
#[must_use]
pub fn entrance(configuration: &Configuration, streams: Streams<'_>) -> Entrance {
    Entrance::new(
        configuration.mtu,
        configuration.drops_fragments,
        streams.identification(),
    )
}

/// The connection of a link to a medium that several links share: a modem with the queue, the
/// losses, the delay and the overhead of this configuration.
#[must_use]
pub fn station<P: Packet>(
    configuration: &Configuration,
    streams: Streams<'_>,
) -> Station<P, Discipline<P>, LossProcess> {
    let state = configuration.state;
    Station::new(
        Discipline::new(configuration.queue_discipline, configuration.queue),
        LossProcess::new(&configuration.losses, state.loss, streams.stream("")),
        state.delay,
        configuration.overhead,
        streams.stream("/contention"),
    )
}

/// The fast path, if the link has no effect that needs more.
fn fixed(configuration: &Configuration, streams: Streams<'_>) -> Option<FixedLink<LossProcess>> {
    if !configuration.queue_discipline.is_plain() {
        return None;
    }
    let loss = configuration.state.loss;
    let loss = LossProcess::unchanging(&configuration.losses, loss, streams.stream(""));
    FixedLink::with_loss(configuration, loss).ok()
}

fn staged<P>(
    configuration: &Configuration,
    streams: Streams<'_>,
) -> Result<Box<dyn Stage<P> + Send>, ScheduleError>
where
    P: Packet + Send + 'static,
{
    let state = configuration.state;
    let loss = LossProcess::new(&configuration.losses, state.loss, streams.stream(""));
    let queue = Discipline::new(configuration.queue_discipline, configuration.queue);
    Ok(Box::new(Link::from_stages(
        Transmitter::new(queue, state.rate, configuration.overhead),
        Loss::new(loss),
        Delay::new(state.delay),
        configuration.schedule.clone(),
    )?))
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

/// One direction of a link as one stage: for a caller that keeps no packets itself.
///
/// A poll of a link that never changes does not advance its time: a packet that arrived before the
/// poll, and is handed over after it, counts as arrived when it did.
#[derive(Debug)]
pub struct Pipeline<P> {
    parts: Parts<P>,
    /// Packets that will be delivered, in order of time, if their fate is decided already.
    on_the_way: VecDeque<(Time, P)>,
    /// Packets that were dropped when they arrived.
    dropped: Outputs<P>,
}

impl<P: Packet + Send + 'static> Pipeline<P> {
    /// One direction of a link, as [`build`] makes it.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn new(configuration: &Configuration, streams: Streams<'_>) -> Result<Self, LinkError> {
        Ok(Self {
            parts: build(configuration, streams)?,
            on_the_way: VecDeque::new(),
            dropped: Outputs::default(),
        })
    }
}

impl<P: Packet> Pipeline<P> {
    fn pass_entrance(&mut self, now: Time, packet: P) {
        match self.parts.body.decide(now, &packet) {
            Some(Verdict::Delivered { due }) => self.on_the_way.push_back((due, packet)),
            Some(Verdict::Dropped { due, reason }) => {
                self.dropped.push_dropped(due, packet, reason)
            }
            None => {
                if let Some(stage) = self.parts.body.stage_mut() {
                    stage.handle(now, packet);
                }
            }
        }
    }
}

impl<P: Packet> Stage<P> for Pipeline<P> {
    fn handle(&mut self, now: Time, packet: P) {
        if packet.size() <= self.parts.entrance.passes() {
            return self.pass_entrance(now, packet);
        }
        match self.parts.entrance.enter(packet) {
            Entering::Whole(packet) => self.pass_entrance(now, packet),
            Entering::Fragments(pieces) => {
                for piece in pieces {
                    self.pass_entrance(now, piece);
                }
            }
            Entering::Refused(packet) => {
                self.dropped.push_dropped(now, packet, DropReason::Refused);
            }
        }
    }

    fn poll(&mut self, now: Time) -> Option<Output<P>> {
        if let Some(dropped) = self.dropped.pop() {
            return Some(dropped);
        }
        if let Some(stage) = self.parts.body.stage_mut() {
            return stage.poll(now);
        }
        let (due, packet) = self.on_the_way.pop_front_if(|(due, _)| *due <= now)?;
        Some(Output::Delivered { due, packet })
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self.parts.body.stage() {
            Some(stage) => stage.poll_timeout(),
            None => self.on_the_way.front().map(|(due, _)| *due),
        }
    }

    fn held(&self) -> usize {
        let staged = self.parts.body.stage().map_or(0, Stage::held);
        staged + self.on_the_way.len() + self.dropped.len()
    }

    fn waiting(&self) -> Waiting {
        self.parts.body.waiting()
    }

    fn counters(&self) -> Counters {
        self.parts.counters()
    }
}

impl<P: Packet> Parts<P> {
    /// The counters so far, with the packets that the entrance has refused.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let refused = self.entrance.refused();
        self.body.counters().with_refused(refused)
    }
}
