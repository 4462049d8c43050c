//! One direction of a link, made from its configuration: for the simulator and for the emulator.

use std::collections::VecDeque;
use std::fmt;

use midspan_units::Time;

use crate::ack_queue::Discipline;
use crate::compressed_link::CompressedLink;
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

/// The stages of one direction: what a packet meets first, and the link behind it.
#[derive(Debug)]
pub struct Parts<P> {
    /// MTU and fragments.
    pub entrance: Entrance,
    /// Queue, rate, loss, delay and all other effects.
    pub body: Body<P>,
}

/// The stages behind the [`Entrance`].
pub enum Body<P> {
    /// A link that never changes, with a plain queue and without other effects. The fate of a packet
    /// is decided when it arrives, and the caller keeps the packet.
    Fixed(FixedLink<LossProcess>),
    /// Any other link.
    Staged(Box<dyn Stage<P> + Send>),
}

/// Makes one direction of a link. A new effect is a [`Stage`], a [`LossModel`](crate::LossModel) or
/// a [`Queue`](crate::Queue), and a place in this function.
///
/// # Errors
/// When the schedule is not in order.
pub fn build<P>(
    configuration: &Configuration,
    streams: Streams<'_>,
) -> Result<Parts<P>, ScheduleError>
where
    P: Packet + Send + 'static,
{
    Ok(Parts {
        entrance: entrance(configuration, streams),
        body: match fixed(configuration, streams) {
            Some(fixed) => Body::Fixed(fixed),
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
    if !configuration.queue_discipline.is_plain() || configuration.header_compression {
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
    if configuration.header_compression {
        return Ok(Box::new(CompressedLink::new(configuration, loss)?));
    }
    let queue = Discipline::new(configuration.queue_discipline, configuration.queue);
    Ok(Box::new(Link::from_stages(
        Transmitter::new(queue, state.rate, configuration.overhead),
        Loss::new(loss),
        Delay::new(state.delay),
        configuration.schedule.clone(),
    )?))
}

impl<P: Packet> Body<P> {
    /// The counters so far. See [`FixedLink::counters`] for when a packet counts.
    #[must_use]
    pub fn counters(&self) -> Counters {
        match self {
            Self::Fixed(link) => link.counters(),
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
            Self::Staged(stage) => stage.waiting(),
        }
    }
}

impl<P> fmt::Debug for Body<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(link) => f.debug_tuple("Fixed").field(link).finish(),
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
    /// Packets that a fixed link will deliver, in order of time.
    on_the_way: VecDeque<(Time, P)>,
    /// Packets that the entrance or a fixed link has dropped.
    dropped: Outputs<P>,
}

impl<P: Packet + Send + 'static> Pipeline<P> {
    /// One direction of a link, as [`build`] makes it.
    ///
    /// # Errors
    /// When the schedule is not in order.
    pub fn new(configuration: &Configuration, streams: Streams<'_>) -> Result<Self, ScheduleError> {
        Ok(Self {
            parts: build(configuration, streams)?,
            on_the_way: VecDeque::new(),
            dropped: Outputs::default(),
        })
    }
}

impl<P: Packet> Pipeline<P> {
    fn pass_entrance(&mut self, now: Time, packet: P) {
        match &mut self.parts.body {
            Body::Staged(stage) => stage.handle(now, packet),
            Body::Fixed(link) => match link.handle(now, &packet) {
                Verdict::Delivered { due } => self.on_the_way.push_back((due, packet)),
                Verdict::Dropped { due, reason } => self.dropped.push_dropped(due, packet, reason),
            },
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
        self.dropped.pop().or_else(|| match &mut self.parts.body {
            Body::Staged(stage) => stage.poll(now),
            Body::Fixed(_) => {
                let (due, packet) = self.on_the_way.pop_front_if(|(due, _)| *due <= now)?;
                Some(Output::Delivered { due, packet })
            }
        })
    }

    fn poll_timeout(&self) -> Option<Time> {
        match &self.parts.body {
            Body::Staged(stage) => stage.poll_timeout(),
            Body::Fixed(_) => self.on_the_way.front().map(|(due, _)| *due),
        }
    }

    fn held(&self) -> usize {
        let staged = match &self.parts.body {
            Body::Staged(stage) => stage.held(),
            Body::Fixed(_) => 0,
        };
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
    /// The counters so far, with what the entrance has refused.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let refused = self.entrance.refused();
        self.body.counters().with_refused(refused)
    }
}
