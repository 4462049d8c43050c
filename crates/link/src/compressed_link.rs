//! A link that compresses TCP/IP headers (RFC 1144).

use std::collections::BTreeMap;

use midspan_units::Time;

use crate::ack_queue::Discipline;
use crate::configuration::Configuration;
use crate::counters::{Count, Counters};
use crate::delay::Delay;
use crate::drop_reason::DropReason;
use crate::header_compression::{Compressor, Decompressor, Frame};
use crate::link::Link;
use crate::loss::Loss;
use crate::loss_process::LossProcess;
use crate::packet::{Headers, Packet, Piece, PureAck};
use crate::queue::Queue;
use crate::schedule::ScheduleError;
use crate::stage::{Output, Outputs, Stage, Waiting};
use crate::transmitter::Transmitter;

/// Flows whose IP identifications are counted; beyond that, those of the lowest identity start
/// again.
const FLOWS: usize = 65_536;

/// A link with a compressor at its near end and a decompressor at its far end.
///
/// A packet has its own headers in the queue; they are compressed when its transmission starts. A
/// packet that the queue drops is therefore never compressed. Its counters have the bytes of
/// arrivals and of drops by the queue before compression, and all others as sent on the link.
#[derive(Debug)]
pub struct CompressedLink<P> {
    link: Link<Coded<P>, CompressingQueue<P>, LossProcess>,
    decompressor: Decompressor,
    /// IP identifications count up in each flow.
    identifications: BTreeMap<u64, u16>,
    /// Packets whose headers were restored wrongly.
    damaged: Count,
}

/// A packet on the link.
#[derive(Debug)]
struct Coded<P> {
    packet: P,
    /// The headers that are compressed; `None` if the packet has none that RFC 1144 covers.
    headers: Option<Box<Headers>>,
    /// The compressed headers, once its transmission has started.
    frame: Option<Frame>,
    /// Its size in bytes: on the link, once its transmission has started.
    size: u32,
}

/// A queue, and the compressor behind it.
#[derive(Debug)]
struct CompressingQueue<P> {
    queue: Discipline<Coded<P>>,
    compressor: Compressor,
}

impl<P: Packet> CompressedLink<P> {
    /// A link with this configuration, which loses packets by `loss`. MTU and fragments are those of
    /// its entrance, not its own.
    ///
    /// # Errors
    /// When the schedule is not in order.
    pub fn new(configuration: &Configuration, loss: LossProcess) -> Result<Self, ScheduleError> {
        let state = configuration.state;
        let queue = CompressingQueue {
            queue: Discipline::new(configuration.queue_discipline, configuration.queue),
            compressor: Compressor::default(),
        };
        Ok(Self {
            link: Link::from_stages(
                Transmitter::new(queue, state.rate, configuration.overhead),
                Loss::new(loss),
                Delay::new(state.delay),
                configuration.schedule.clone(),
            )?,
            decompressor: Decompressor::default(),
            identifications: BTreeMap::new(),
            damaged: Count::default(),
        })
    }

    /// The headers of a packet that arrives at `now`.
    fn headers(&mut self, now: Time, packet: &P) -> Option<Box<Headers>> {
        let flow = packet.flow();
        let last = self.identifications.get(&flow).copied().unwrap_or(0);
        let identification = last.wrapping_add(1);
        let headers = packet.headers(now, identification)?;
        self.identifications.insert(flow, identification);
        if self.identifications.len() > FLOWS {
            self.identifications.pop_first();
        }
        Some(Box::new(headers))
    }

    /// Whether the far end restores the headers that were compressed. Otherwise the receiver's TCP
    /// checksum is wrong.
    fn arrives(&mut self, packet: &Coded<P>) -> bool {
        let (Some(frame), Some(headers)) = (&packet.frame, &packet.headers) else {
            return true;
        };
        let made = self.decompressor.decompress(frame, headers.data);
        made.is_ok_and(|made| made == headers.bytes)
    }
}

impl<P: Packet> Stage<P> for CompressedLink<P> {
    fn handle(&mut self, now: Time, packet: P) {
        let coded = Coded {
            headers: self.headers(now, &packet),
            frame: None,
            size: packet.size(),
            packet,
        };
        self.link.handle(now, coded);
    }

    fn poll(&mut self, now: Time) -> Option<Output<P>> {
        Some(match self.link.poll(now)? {
            Output::Delivered { due, packet } if self.arrives(&packet) => Output::Delivered {
                due,
                packet: packet.packet,
            },
            Output::Delivered { due, packet } => {
                self.damaged.add(packet.size);
                Output::Dropped {
                    due,
                    packet: packet.packet,
                    reason: DropReason::Damaged,
                }
            }
            Output::Dropped {
                due,
                packet,
                reason,
            } => Output::Dropped {
                due,
                packet: packet.packet,
                reason,
            },
        })
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.link.poll_timeout()
    }

    fn held(&self) -> usize {
        self.link.held()
    }

    fn waiting(&self) -> Waiting {
        self.link.waiting()
    }

    fn counters(&self) -> Counters {
        let mut counters = self.link.counters();
        counters.delivered.packets -= self.damaged.packets;
        counters.delivered.bytes -= self.damaged.bytes;
        counters.damaged = self.damaged;
        counters
    }
}

impl<P: Packet> Packet for Coded<P> {
    fn size(&self) -> u32 {
        self.size
    }

    fn flow(&self) -> u64 {
        self.packet.flow()
    }

    fn acknowledgement(&self) -> Option<PureAck> {
        self.packet.acknowledgement()
    }

    fn mark(&mut self) {
        self.packet.mark();
    }

    fn piece(&self) -> Piece {
        self.packet.piece()
    }
}

impl<P: Packet> Queue<Coded<P>> for CompressingQueue<P> {
    fn enqueue(&mut self, now: Time, packet: Coded<P>, outputs: &mut Outputs<Coded<P>>) {
        self.queue.enqueue(now, packet, outputs);
    }

    fn dequeue(&mut self, now: Time, outputs: &mut Outputs<Coded<P>>) -> Option<Coded<P>> {
        self.queue.dequeue(now, outputs)
    }

    fn start(&mut self, _now: Time, packet: &mut Coded<P>) {
        let Some(headers) = &packet.headers else {
            return;
        };
        let frame = self.compressor.compress(&headers.bytes);
        let length = u32::try_from(frame.bytes().len()).unwrap_or(u32::MAX);
        packet.size = length.saturating_add(u32::from(headers.data));
        packet.frame = Some(frame);
    }

    fn packets(&self) -> usize {
        self.queue.packets()
    }

    fn bytes(&self) -> u64 {
        self.queue.bytes()
    }
}
