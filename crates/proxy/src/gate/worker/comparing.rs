//! The control group in the gate's part on one thread.

use std::sync::atomic::Ordering;

use midspan_policy::{KnowledgeParts, PartKey, Request};

use super::super::control_group::Ended;
use super::super::held::Packet;
use super::super::statistics::count;
use super::Worker;

impl Worker {
    /// Whether a connection that would be intercepted belongs to the control group.
    pub(super) fn is_of_control_group(&self, request: Request, listener: usize) -> bool {
        let settings = self.listeners.get(listener);
        settings.is_some_and(|of| (self.control_group).takes(request, of.listener.control_group))
    }

    /// Lets a connection pass untouched, and measures it if there is room.
    pub(super) fn leave_to_compare(&mut self, packet: &Packet, request: Request) {
        count(&self.counters.passed_control);
        if !self.control_group.begin(request, self.now) {
            count(&self.counters.control_unmeasured);
        }
        self.leave(packet.id, request);
    }

    /// Checks the flows of the control group.
    pub(super) fn compare(&mut self) {
        for ended in self.control_group.look(self.now, &self.tracking) {
            match ended {
                Ended::Measured(request, carried, lasted) => {
                    let now = self.relay_time();
                    let gains = &mut self.knowledge.part(PartKey::gains(&request)).gains;
                    gains.note_direct(now, &request, carried, lasted);
                }
                Ended::Unmeasured => {
                    let unmeasured = &self.counters.control_unmeasured;
                    unmeasured.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}
