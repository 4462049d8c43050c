//! The control group, as the gate's thread deals with it.

use std::sync::atomic::Ordering;

use super::super::control_group::Ended;
use super::super::held::Arrived;
use super::super::openings::Connection;
use super::super::request;
use super::super::statistics::count;
use super::Worker;

impl Worker {
    /// Whether a connection that would be taken passes untouched, to compare with.
    pub(super) fn is_of_control_group(&self, connection: Connection, listener: usize) -> bool {
        let settings = self.listeners.get(listener);
        settings.is_some_and(|(of, _)| self.control_group.takes(connection, of.control_group))
    }

    /// It passes, and is measured where there is room.
    pub(super) fn leave_to_compare(&mut self, arrived: &Arrived, connection: Connection) {
        count(&self.counters.passed_control);
        if !self.control_group.begin(connection, self.now) {
            count(&self.counters.control_unmeasured);
        }
        self.leave(arrived.packet, connection);
    }

    /// Looks how far flows of the control group are.
    pub(super) fn compare(&mut self) {
        for ended in self.control_group.look(self.now, &self.tracking) {
            match ended {
                Ended::Measured(connection, carried, lasted) => {
                    let (knowledge, _) = &self.learned;
                    let mut gains = knowledge.gains();
                    gains.note_direct(&request(connection), carried, lasted);
                }
                Ended::Unmeasured => {
                    let unmeasured = &self.counters.control_unmeasured;
                    unmeasured.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}
