//! The interface for observing a simulation.

use midspan_link::DropReason;
use midspan_units::Time;

use crate::packet::Packet;
use crate::scenario::LinkId;
use crate::tcp::Sender;

/// Is called for what happens to every packet. All methods do nothing by default.
///
/// Calls are in order of time, with one exception: a drop is reported when it is decided. If the
/// packet still has to pass other links, that is before the drop happens; the reported time is
/// exact.
pub trait Observer {
    /// Whether anything is observed. If not, events need not be processed in order of time.
    const WATCHES: bool = true;

    /// Whether [`queue`](Self::queue) and [`passed`](Self::passed) are called.
    const WATCHES_QUEUES: bool = false;

    /// A sender or receiver sends a packet.
    fn sent(&mut self, now: Time, packet: &Packet) {
        let _ = (now, packet);
    }

    /// A packet arrives at the other end of its connection.
    fn delivered(&mut self, now: Time, packet: &Packet) {
        let _ = (now, packet);
    }

    /// A packet is dropped on a link, in the direction `up` (from its first node to its second) or
    /// down.
    fn dropped(&mut self, at: Time, link: LinkId, up: bool, packet: &Packet, reason: DropReason) {
        let _ = (at, link, up, packet, reason);
    }

    /// A fragment is dropped at the far end, because the other fragments of its packet did not
    /// arrive in time.
    fn given_up(&mut self, at: Time, fragment: &Packet) {
        let _ = (at, fragment);
    }

    /// A sender's state after it has handled an ACK or a time-out.
    fn sender(&mut self, now: Time, connection: u32, sender: &Sender) {
        let _ = (now, connection, sender);
    }

    /// After a packet arrived at a link's queue (or was dropped there): the waiting packets and
    /// bytes, without the packet in transmission. Called only if
    /// [`WATCHES_QUEUES`](Self::WATCHES_QUEUES) is true, and only for links that have their own
    /// events.
    fn queue(&mut self, now: Time, link: LinkId, up: bool, packets: usize, bytes: u64) {
        let _ = (now, link, up, packets, bytes);
    }

    /// A packet has come out of a link, in the direction `up` (from its first node to its second) or
    /// down. Called only if [`WATCHES_QUEUES`](Self::WATCHES_QUEUES) is true, and only for links that
    /// have their own events.
    fn passed(&mut self, now: Time, link: LinkId, up: bool, packet: &Packet) {
        let _ = (now, link, up, packet);
    }

    /// A proxy passes data on in one piece: the forward data of Shikama.
    fn forwarded(&mut self, now: Time, connection: u32, bytes: u64) {
        let _ = (now, connection, bytes);
    }
}

/// Observes nothing, and costs nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

/// Two observers of the same simulation; `None` observes nothing.
impl<A: Observer, B: Observer> Observer for (Option<A>, Option<B>) {
    const WATCHES_QUEUES: bool = A::WATCHES_QUEUES || B::WATCHES_QUEUES;

    fn sent(&mut self, now: Time, packet: &Packet) {
        notify(
            self,
            |one| one.sent(now, packet),
            |other| other.sent(now, packet),
        );
    }

    fn delivered(&mut self, now: Time, packet: &Packet) {
        notify(
            self,
            |one| one.delivered(now, packet),
            |other| other.delivered(now, packet),
        );
    }

    fn dropped(&mut self, at: Time, link: LinkId, up: bool, packet: &Packet, reason: DropReason) {
        notify(
            self,
            |one| one.dropped(at, link, up, packet, reason),
            |other| other.dropped(at, link, up, packet, reason),
        );
    }

    fn given_up(&mut self, at: Time, fragment: &Packet) {
        notify(
            self,
            |one| one.given_up(at, fragment),
            |other| other.given_up(at, fragment),
        );
    }

    fn sender(&mut self, now: Time, connection: u32, sender: &Sender) {
        notify(
            self,
            |one| one.sender(now, connection, sender),
            |other| other.sender(now, connection, sender),
        );
    }

    fn queue(&mut self, now: Time, link: LinkId, up: bool, packets: usize, bytes: u64) {
        notify(
            self,
            |one| one.queue(now, link, up, packets, bytes),
            |other| other.queue(now, link, up, packets, bytes),
        );
    }

    fn passed(&mut self, now: Time, link: LinkId, up: bool, packet: &Packet) {
        notify(
            self,
            |one| one.passed(now, link, up, packet),
            |other| other.passed(now, link, up, packet),
        );
    }

    fn forwarded(&mut self, now: Time, connection: u32, bytes: u64) {
        notify(
            self,
            |one| one.forwarded(now, connection, bytes),
            |other| other.forwarded(now, connection, bytes),
        );
    }
}

fn notify<A, B>(
    (one, other): &mut (Option<A>, Option<B>),
    to_one: impl FnOnce(&mut A),
    to_other: impl FnOnce(&mut B),
) {
    if let Some(one) = one {
        to_one(one);
    }
    if let Some(other) = other {
        to_other(other);
    }
}

impl Observer for NoObserver {
    const WATCHES: bool = false;
}
