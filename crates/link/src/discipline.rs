//! The queue disciplines that a configuration can choose, as one queue.

use midspan_units::Time;

use crate::ack_queue::{Acknowledgements, QueueDiscipline};
use crate::codel::CoDelQueue;
use crate::fq_codel::FqCoDel;
use crate::packet::Packet;
use crate::queue::{DropTail, Queue, QueueLimit};
use crate::queue_management::{Management, QueueManagement};
use crate::stage::Outputs;

/// A queue that a configuration chooses: first in, first out; one that treats ACKs differently from
/// data ([`QueueDiscipline`]); or one that is managed actively ([`QueueManagement`]).
#[derive(Debug, Clone)]
pub struct Discipline<P>(Kind<P>);

#[derive(Debug, Clone)]
enum Kind<P> {
    Plain(DropTail<P>),
    Acknowledgements(Box<Acknowledgements<P>>),
    CoDel(Box<CoDelQueue<P>>),
    FqCoDel(Box<FqCoDel<P>>),
}

impl<P: Packet> Discipline<P> {
    /// An empty queue with room for `limit`. A limit in bytes has a plain queue only.
    #[must_use]
    pub fn new(discipline: QueueDiscipline, limit: QueueLimit) -> Self {
        Self(match limit {
            QueueLimit::Packets(packets) if !discipline.is_plain() => {
                let queue = Acknowledgements::new(discipline, packets as usize);
                Kind::Acknowledgements(Box::new(queue))
            }
            QueueLimit::Packets(_) | QueueLimit::Bytes(_) => Kind::Plain(DropTail::new(limit)),
        })
    }

    /// An empty queue with room for `limit`, managed actively. `perturbation` is a random number
    /// that separates flows differently in each queue ([`Management::FqCoDel`]).
    #[must_use]
    pub fn managed(management: QueueManagement, limit: QueueLimit, perturbation: u64) -> Self {
        Self(match management.method {
            Management::CoDel => Kind::CoDel(Box::new(CoDelQueue::new(management, limit))),
            Management::FqCoDel => {
                Kind::FqCoDel(Box::new(FqCoDel::new(management, limit, perturbation)))
            }
        })
    }
}

/// Calls a method of the queue that was chosen.
macro_rules! of_kind {
    ($discipline:expr, $queue:ident => $call:expr) => {
        match $discipline {
            Kind::Plain($queue) => $call,
            Kind::Acknowledgements($queue) => $call,
            Kind::CoDel($queue) => $call,
            Kind::FqCoDel($queue) => $call,
        }
    };
}

impl<P: Packet> Queue<P> for Discipline<P> {
    fn enqueue(&mut self, now: Time, packet: P, outputs: &mut Outputs<P>) {
        of_kind!(&mut self.0, queue => queue.enqueue(now, packet, outputs));
    }

    fn pass(&mut self, now: Time, packet: P, outputs: &mut Outputs<P>) -> Option<P> {
        of_kind!(&mut self.0, queue => queue.pass(now, packet, outputs))
    }

    fn dequeue(&mut self, now: Time, outputs: &mut Outputs<P>) -> Option<P> {
        of_kind!(&mut self.0, queue => queue.dequeue(now, outputs))
    }

    fn packets(&self) -> usize {
        of_kind!(&self.0, queue => queue.packets())
    }

    fn bytes(&self) -> u64 {
        of_kind!(&self.0, queue => queue.bytes())
    }
}
