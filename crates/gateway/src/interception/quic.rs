//! New connections of QUIC (UDP port 443) that a listener rejects.
//!
//! The relay decides about them, as about SYNs, so that they pass if no relay runs. For this, they go through
//! the queue for SYNs. A client can send any number of such packets, so only some of them reach the queue: otherwise
//! they would take the room of SYNs. The others are dropped. A client that gets no answer repeats its packet, or uses
//! TCP. Linux itself sends only few ICMP messages to a client (`net.ipv4.icmp_ratelimit`), so most repetitions had no
//! answer before, either.

/// A packet that opens a connection of QUIC over its usual port, or repeats such a packet.
pub(super) const QUIC: &str = "udp dport 443 ct state new";

/// Most packets that reach the queue, for each listener: in a second, and at once. Even if the relay handles nothing
/// for a second, more than a third of the queue's margin remains for SYNs.
const PER_SECOND: u32 = 500;
const AT_ONCE: u32 = 128;

/// The rule that drops the packets that are too many (`CONFIG_NFT_LIMIT`).
pub(super) fn limit() -> String {
    format!("limit rate over {PER_SECOND}/second burst {AT_ONCE} packets drop")
}
