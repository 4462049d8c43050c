//! What the gate's part on one thread has in hand: the connection that it is handling, and packets that are
//! not held and have no verdict yet.
//!
//! If the part panics, or its thread is stuck, nothing else decides about these packets, and they would stay in
//! the queue. So the numbers are kept where the part finds them after a panic, and the part of the
//! next thread after a replacement.

use std::collections::BTreeSet;

use midspan_policy::Request;

/// What one part has in hand.
#[derive(Debug, Default)]
pub(super) struct InHand {
    /// The connection that it is handling.
    pub connection: Option<Request>,
    /// Numbers of packets. A packet stays here until its verdict has been sent.
    packets: BTreeSet<u32>,
}

impl InHand {
    /// These packets have been read from the queue, or are not held any more.
    pub fn take_up(&mut self, packets: impl IntoIterator<Item = u32>) {
        self.packets.extend(packets);
    }

    /// A packet is held from now on.
    pub fn put_down(&mut self, packet: u32) {
        self.packets.remove(&packet);
    }

    /// All packets have a verdict, which has been sent.
    pub fn note_sent(&mut self) {
        self.packets.clear();
    }

    /// Everything that was in hand when the part panicked, or when its thread was replaced. Some packets may
    /// have a verdict already.
    pub fn take(&mut self) -> (Option<Request>, BTreeSet<u32>) {
        let Self {
            connection,
            packets,
        } = std::mem::take(self);
        (connection, packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_without_a_verdict_are_found_after_a_panic() {
        let mut in_hand = InHand::default();
        let connection = Request {
            client: ([192, 0, 2, 1], 1000).into(),
            server: ([198, 51, 100, 1], 80).into(),
        };
        in_hand.take_up(1..=4);
        in_hand.connection = Some(connection);
        in_hand.put_down(2);
        let (lost, packets) = in_hand.take();
        assert_eq!(lost, Some(connection));
        assert_eq!(packets.into_iter().collect::<Vec<_>>(), [1, 3, 4]);
        // They are found once, and not if their verdicts have been sent.
        in_hand.take_up([5]);
        in_hand.note_sent();
        let (lost, packets) = in_hand.take();
        assert!(lost.is_none() && packets.is_empty());
    }
}
