//! What the gate's part on one thread has lost, after a panic of the thread or when it takes the place of a
//! stuck one: packets without a verdict, openings of SYNs that no part has, and events of server legs.

use std::time::Instant;

use midspan_linux::packet_queue::Verdict;
use midspan_policy::Request;
use midspan_relay::SourceSockets;

use super::Worker;

impl Worker {
    /// Gives verdicts about the packets that this part had in hand, forgets openings that no part has any
    /// more, and watches the server legs of its held SYNs again. When the client of a dropped or forgotten
    /// SYN repeats it, the SYN counts as a new one.
    pub(super) fn recover_lost(&mut self) {
        // Its successor has what it held.
        if self.is_replaced() {
            return;
        }
        self.now = Instant::now();
        self.abandon_in_hand();
        self.forget_orphans();
        if let Some(sockets) = self.sockets.clone() {
            self.take_over(&sockets);
        }
        self.send_decisions();
    }

    /// The part on this thread was handling packets when it panicked, or when its thread was stuck.
    fn abandon_in_hand(&mut self) {
        let (connection, packets) = self.shared.take_in_hand(self.thread);
        for packet in packets {
            // If the packet has a verdict already, the kernel ignores this one.
            self.decide(packet, Verdict::Drop);
        }
        if let Some(connection) = connection {
            self.forget_unheld(connection);
        }
    }

    /// Forgets openings that would never end: their SYNs are neither held nor in the hand of a part.
    fn forget_orphans(&self) {
        for connection in self.shared.openings.held() {
            // In this order, because a SYN is held before it is out of the hand. If another part takes the
            // SYN up just now, it finds that the opening is forgotten.
            if !self.shared.is_in_hand(connection) {
                self.forget_unheld(connection);
            }
        }
    }

    /// Forgets the opening of a connection, unless its SYN is held.
    pub(super) fn forget_unheld(&self, connection: Request) {
        let is_held = self.shared.held().of(connection).is_some();
        if !is_held && self.shared.openings.forget(connection).is_some() {
            self.forget_tracked(connection);
        }
    }

    /// Watches the calls of the SYNs that this thread has held, perhaps by its former part. Events that
    /// were read and not handled come again.
    fn take_over(&self, sockets: &SourceSockets) {
        let mut all = self.shared.held();
        for (token, held) in all.of_thread(self.thread) {
            if let Some(former) = held.sockets.take() {
                let _ = former.forget(held.call.socket());
            }
            // A call that cannot be watched is given up at its deadline.
            if sockets.watch(held.call.socket(), token).is_ok() {
                held.sockets = Some(sockets.clone());
            }
        }
    }
}
