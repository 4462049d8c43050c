//! Who watches a simulation.

use midspan_link::DropReason;
use midspan_units::Time;

use crate::packet::Packet;
use crate::scenario::LinkId;
use crate::tcp::Sender;

/// Sees what happens to every packet. All methods do nothing by default.
///
/// Calls come in order of time, with one exception: a drop is told when it is decided, which is
/// before it happens where the packet still has to pass other links; the time given is exact.
pub trait Observer {
    /// Whether anything is watched at all. Where nothing is, what happens need not happen in
    /// order of time.
    const WATCHES: bool = true;

    /// Whether [`queue`](Self::queue) is called.
    const WATCHES_QUEUES: bool = false;

    /// A sender or receiver sends a packet.
    fn sent(&mut self, now: Time, packet: &Packet) {
        let _ = (now, packet);
    }

    /// A packet arrives at the other end of its connection.
    fn delivered(&mut self, now: Time, packet: &Packet) {
        let _ = (now, packet);
    }

    /// A packet is dropped on the way `up` a link (from its first node to its second) or down.
    fn dropped(&mut self, at: Time, link: LinkId, up: bool, packet: &Packet, reason: DropReason) {
        let _ = (at, link, up, packet, reason);
    }

    /// A fragment is given up at the far end: the others of its packet did not come in time.
    fn given_up(&mut self, at: Time, fragment: &Packet) {
        let _ = (at, fragment);
    }

    /// A sender's state after it has handled an ACK or a time-out.
    fn sender(&mut self, now: Time, connection: u32, sender: &Sender) {
        let _ = (now, connection, sender);
    }

    /// After a packet came to a link's queue (or was dropped there): what waits, without the
    /// packet that is being sent. Only where [`WATCHES_QUEUES`](Self::WATCHES_QUEUES) says so,
    /// and only for links that have their own events.
    fn queue(&mut self, now: Time, link: LinkId, up: bool, packets: usize, bytes: u64) {
        let _ = (now, link, up, packets, bytes);
    }

    /// A proxy hands data on in one piece: the forward data of Shikama.
    fn forwarded(&mut self, now: Time, connection: u32, bytes: u64) {
        let _ = (now, connection, bytes);
    }
}

/// Watches nothing, and costs nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

/// Two observers that watch the same; `None` watches nothing.
impl<A: Observer, B: Observer> Observer for (Option<A>, Option<B>) {
    const WATCHES_QUEUES: bool = A::WATCHES_QUEUES || B::WATCHES_QUEUES;

    fn sent(&mut self, now: Time, packet: &Packet) {
        tell(
            self,
            |one| one.sent(now, packet),
            |other| other.sent(now, packet),
        );
    }

    fn delivered(&mut self, now: Time, packet: &Packet) {
        tell(
            self,
            |one| one.delivered(now, packet),
            |other| other.delivered(now, packet),
        );
    }

    fn dropped(&mut self, at: Time, link: LinkId, up: bool, packet: &Packet, reason: DropReason) {
        tell(
            self,
            |one| one.dropped(at, link, up, packet, reason),
            |other| other.dropped(at, link, up, packet, reason),
        );
    }

    fn given_up(&mut self, at: Time, fragment: &Packet) {
        tell(
            self,
            |one| one.given_up(at, fragment),
            |other| other.given_up(at, fragment),
        );
    }

    fn sender(&mut self, now: Time, connection: u32, sender: &Sender) {
        tell(
            self,
            |one| one.sender(now, connection, sender),
            |other| other.sender(now, connection, sender),
        );
    }

    fn queue(&mut self, now: Time, link: LinkId, up: bool, packets: usize, bytes: u64) {
        tell(
            self,
            |one| one.queue(now, link, up, packets, bytes),
            |other| other.queue(now, link, up, packets, bytes),
        );
    }

    fn forwarded(&mut self, now: Time, connection: u32, bytes: u64) {
        tell(
            self,
            |one| one.forwarded(now, connection, bytes),
            |other| other.forwarded(now, connection, bytes),
        );
    }
}

fn tell<A, B>(
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
