//! One direction of a link: its configuration, and the row of stages that [`build`] makes from it,
//! for the simulator and for the emulator.

mod body;
mod compressed_link;
mod jitter;
mod reordering;
mod replay;
mod whole;

use std::sync::Arc;

use midspan_units::{Probability, TimeSpan};
use rand_pcg::rand_core::Rng;

use crate::ack_queue::QueueDiscipline;
use crate::chain::Chain;
use crate::delay::Delay;
use crate::discipline::Discipline;
use crate::fixed::FixedLink;
use crate::fragments::Entrance;
use crate::link::Link;
use crate::loss::{Bernoulli, Loss, LossModel};
use crate::loss_process::{LossPattern, LossProcess};
use crate::packet::Packet;
use crate::polled_medium::Station;
use crate::queue::{DropTail, QueueLimit};
use crate::queue_management::QueueManagement;
use crate::recorded_trace::{Opportunities, Trace};
use crate::schedule::{Schedule, ScheduleError, State};
use crate::seed::{Stream, Streams};
use crate::stage::Stage;
use crate::transmitter::Transmitter;
pub use body::{Body, Parts};
pub use compressed_link::CompressedLink;
use jitter::Jitter;
use reordering::Reorder;
pub use reordering::{Reordering, Shift};
use replay::Replay;
pub use whole::Pipeline;

/// One direction of a link.
///
/// A packet that arrives waits in the queue, is sent at the rate, may be lost during propagation,
/// and arrives at the far end after the delay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Configuration {
    /// The properties at the start.
    pub state: State,
    /// Room for waiting packets; the packet in transmission is not counted.
    pub queue: QueueLimit,
    /// Bytes that the link layer adds to every packet (framing), counted by the rate.
    pub overhead: u32,
    /// How rate, delay and loss change over time.
    pub schedule: Schedule,
    /// The recorded trace that drives the direction. If it has delivery opportunities, packets
    /// leave at these, and no rate applies. If it is a table, its changes are the schedule.
    pub trace: Option<Trace>,
    /// Which packets are lost.
    pub losses: LossPattern,
    /// How the queue treats pure ACKs; any other than the plain one needs a limit in packets.
    pub queue_discipline: QueueDiscipline,
    /// How the queue is managed actively, if it is; then it is one that treats ACKs like other
    /// packets.
    pub queue_management: Option<QueueManagement>,
    /// Largest packet that passes whole, in bytes (at least [`LEAST_MTU`](crate::LEAST_MTU));
    /// larger ones pass in fragments. `None`: packets of any size pass whole.
    pub mtu: Option<u32>,
    /// Whether IP fragments are dropped, as by routers and firewalls that inspect transport
    /// headers.
    pub drops_fragments: bool,
    /// Which packets arrive earlier or later than their place in the order. Jitter comes after it,
    /// and keeps the new order.
    pub reordering: Option<Reordering>,
    /// The largest additional delay of a packet, each drawn uniformly from zero to this; packets
    /// keep their order.
    pub jitter: TimeSpan,
    /// Whether TCP/IP headers are compressed (RFC 1144); this needs a plain queue, no schedule, no
    /// reordering and no jitter.
    pub header_compression: bool,
}

impl Configuration {
    /// Whether the fate of each packet is certain when the packet arrives, so that the fast path
    /// suffices: a plain queue, no schedule or trace, and no effect that needs a stage of its own.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        let plain = self.queue_discipline.is_plain() && self.queue_management.is_none();
        plain && !self.changes() && !self.delays_differ()
    }

    /// Whether packets have delays of their own.
    fn delays_differ(&self) -> bool {
        self.jitter > TimeSpan::ZERO || self.reordering.is_some()
    }

    /// Whether the link changes over time: by a schedule or a recorded trace.
    #[must_use]
    pub fn changes(&self) -> bool {
        !self.schedule.steps.is_empty() || self.opportunities().is_some()
    }

    /// The delivery opportunities of the recorded trace, if it has any.
    #[must_use]
    pub fn opportunities(&self) -> Option<&Arc<Opportunities>> {
        self.trace.as_ref()?.opportunities.as_ref()
    }

    /// The share of packets of `size` bytes that are lost in the long run, as long as no schedule
    /// changes it.
    #[must_use]
    pub fn mean_loss(&self, size: u32) -> Probability {
        self.losses.mean(self.state.loss, size)
    }

    /// The mean time from the end of a packet's transmission to its arrival, as long as no schedule
    /// changes it and packets are far apart.
    #[must_use]
    pub fn mean_delay(&self) -> TimeSpan {
        let delay = self.state.delay + TimeSpan::from_nanoseconds(self.jitter.nanoseconds() / 2);
        match self.reordering {
            Some(reordering) => reordering.mean_delay(delay),
            None => delay,
        }
    }

    /// Whether the modem of a shared medium can have these effects; its channel has the rate. See
    /// [`station`].
    #[must_use]
    pub fn suits_a_shared_medium(&self) -> bool {
        !self.changes() && !self.delays_differ() && !self.header_compression
    }
}

/// Why a link cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The schedule is not in order.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// Headers are to be compressed on a link that changes over time, or whose queue is not plain.
    #[error("header compression needs a plain queue and no schedule")]
    Compression,
    /// Packets are to arrive earlier by more than the delay of the link.
    #[error("packets cannot arrive earlier by more than the delay of the link")]
    TooEarly,
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
        queue(configuration, streams),
        LossProcess::new(&configuration.losses, state.loss, streams.stream("")),
        state.delay,
        configuration.overhead,
        streams.stream("/contention"),
    )
}

/// The queue before the transmitter.
fn queue<P: Packet>(configuration: &Configuration, streams: Streams<'_>) -> Discipline<P> {
    let limit = configuration.queue;
    match configuration.queue_management {
        None => Discipline::new(configuration.queue_discipline, limit),
        Some(management) => {
            let perturbation = streams.stream("/fq_codel").next_u64();
            Discipline::managed(management, limit, perturbation)
        }
    }
}

/// The fast path, if the link has no effect that needs more.
fn fixed(configuration: &Configuration, streams: Streams<'_>) -> Option<FixedLink<LossProcess>> {
    if !configuration.is_fixed() {
        return None;
    }
    let loss = configuration.state.loss;
    let loss = LossProcess::unchanging(&configuration.losses, loss, streams.stream(""));
    FixedLink::with_loss(configuration, loss).ok()
}

fn staged<P>(
    configuration: &Configuration,
    streams: Streams<'_>,
) -> Result<Box<dyn Stage<P> + Send>, LinkError>
where
    P: Packet + Send + 'static,
{
    let state = configuration.state;
    let loss = LossProcess::new(&configuration.losses, state.loss, streams.stream(""));
    let queue: Discipline<P> = queue(configuration, streams);
    let mut schedule = configuration.schedule.clone();
    let advance = configuration.reordering.as_ref();
    let advance = advance.map_or(TimeSpan::ZERO, Reordering::advance);
    let delays = schedule.steps.iter().filter_map(|step| step.delay);
    if delays.chain([state.delay]).any(|delay| delay < advance) {
        return Err(LinkError::TooEarly);
    }
    for step in &mut schedule.steps {
        step.delay = step.delay.map(|delay| delay - advance);
    }
    let (loss, delay) = (
        Loss::<P, _>::new(loss),
        Delay::<P>::new(state.delay - advance),
    );
    let overhead = configuration.overhead;
    let link: Box<dyn Stage<P> + Send> = match configuration.opportunities() {
        None => {
            let transmitter = Transmitter::new(queue, state.rate, overhead);
            Box::new(Link::from_stages(transmitter, loss, delay, schedule)?)
        }
        Some(opportunities) => {
            let replay = Replay::new(Arc::clone(opportunities), queue, overhead);
            // Without a rate, no packet waits a second time.
            let passed_on = Transmitter::new(DropTail::new(QueueLimit::Packets(0)), None, 0);
            schedule.steps.iter_mut().for_each(|step| step.rate = None);
            let propagation = Link::from_stages(passed_on, loss, delay, schedule)?;
            Box::new(Chain::new(replay, propagation))
        }
    };
    let link: Box<dyn Stage<P> + Send> = match configuration.reordering {
        None => link,
        Some(reordering) => {
            let reorder = Reorder::new(reordering, streams.stream("/reorder"));
            Box::new(Chain::new(link, reorder))
        }
    };
    if configuration.jitter == TimeSpan::ZERO {
        return Ok(link);
    }
    let jitter = Jitter::new(configuration.jitter, streams.stream("/jitter"));
    Ok(Box::new(Chain::new(link, jitter)))
}

/// The link changes over time, so a packet's departure is not known at its arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the link changes by a schedule of {steps} steps: use `Link`, which can change")]
pub struct NotFixed {
    /// Number of steps of the schedule.
    pub steps: usize,
}

impl FixedLink {
    /// A link that loses each packet independently, with random numbers from `stream`.
    ///
    /// # Errors
    /// When the configuration has a schedule.
    pub fn new(configuration: &Configuration, stream: Stream) -> Result<Self, NotFixed> {
        let model = Bernoulli::new(configuration.state.loss, stream);
        Self::with_loss(configuration, model)
    }
}

impl<L: LossModel> FixedLink<L> {
    /// A link with any loss model; the configuration's own probability is not used.
    ///
    /// # Errors
    /// When the configuration has a schedule.
    pub fn with_loss(configuration: &Configuration, loss: L) -> Result<Self, NotFixed> {
        let steps = configuration.schedule.steps.len();
        if steps > 0 {
            return Err(NotFixed { steps });
        }
        let Configuration {
            state,
            queue,
            overhead,
            ..
        } = *configuration;
        Ok(Self::from_parts(state, queue, overhead, loss))
    }
}

impl<P: Packet> Link<P> {
    /// A link with a drop-tail queue that loses each packet independently, with random numbers from
    /// `stream`.
    ///
    /// # Errors
    /// When the schedule is not in order.
    pub fn new(configuration: Configuration, stream: Stream) -> Result<Self, ScheduleError> {
        let state = configuration.state;
        let queue = DropTail::new(configuration.queue);
        Self::from_stages(
            Transmitter::new(queue, state.rate, configuration.overhead),
            Loss::new(Bernoulli::new(state.loss, stream)),
            Delay::new(state.delay),
            configuration.schedule,
        )
    }
}
