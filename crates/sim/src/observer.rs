//! Who watches a simulation.

use midspan_link::DropReason;
use midspan_units::Time;

use crate::packet::Packet;
use crate::scenario::LinkId;

/// Sees what happens to every packet. All methods do nothing by default.
///
/// Calls come in order of time, with one exception: a drop is told when it is decided, which is
/// before it happens where the packet still has to pass other links; the time given is exact.
pub trait Observer {
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

    /// A proxy hands data on in one piece: the forward data of Shikama.
    fn forwarded(&mut self, now: Time, connection: u32, bytes: u64) {
        let _ = (now, connection, bytes);
    }
}

/// Watches nothing, and costs nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}
