//! Connections go to the relay, each with the initial window that its client's path is known to take.

use std::io;
use std::os::fd::OwnedFd;

use midspan_linux::packet_queue::Verdict;
use midspan_policy::learned_start::{LEAST_WINDOW, LearnedStart, SEGMENT};
use rustix::io::Errno;

use super::super::held::Arrived;
use super::super::openings::{Connection, Released};
use super::super::statistics::count;
use super::super::syn;
use super::super::timestamps;
use super::Worker;
use crate::profile;

impl Worker {
    /// Lets a connection go to the relay.
    pub(super) fn release(
        &mut self,
        arrived: Arrived,
        connection: Connection,
        listener: usize,
        mut released: Released<OwnedFd>,
    ) {
        released.start = self.start_of(connection, listener);
        let window = released.start.map(|start| start.window);
        self.openings.release(connection, released, self.now);
        let packet = arrived.packet;
        match self.send_on(arrived.bytes, connection, listener, window) {
            Ok(()) => {
                count(&self.counters.taken);
                self.decide(packet, Verdict::Drop);
            }
            Err(error) => {
                self.leave(packet, connection);
                self.log_trouble("its SYN cannot be sent on", &error);
            }
        }
    }

    /// How the leg towards this client begins, where the listener has windows to choose from.
    fn start_of(&self, connection: Connection, listener: usize) -> Option<LearnedStart> {
        let (settings, _) = self.listeners.get(listener)?;
        if settings.windows.is_empty() {
            return None;
        }
        let (knowledge, clock) = &self.learned;
        let peer = connection.client.ip().into();
        let mut paths = knowledge.paths();
        Some(paths.start(clock.now(), peer, SEGMENT, &settings.windows))
    }

    /// The initial window of a connection that was released, where it was chosen.
    pub(super) fn window_of(&self, connection: Connection) -> Option<u32> {
        Some(self.openings.start_of(connection)?.window)
    }

    /// Sends a SYN to the sockets that give this initial window.
    pub(super) fn send_on(
        &mut self,
        mut bytes: Vec<u8>,
        connection: Connection,
        listener: usize,
        window: Option<u32>,
    ) -> std::io::Result<()> {
        let mut mark = 0;
        if let Some((settings, _)) = self.listeners.get(listener) {
            mark = settings.mark;
            let client = connection.client.ip();
            if profile::leaves_timestamps_out(&settings.profiles, client)
                && let Some(without) = timestamps::without(&bytes)
            {
                bytes = without;
            }
            // The client's own hop limit must not be taken for one of ours.
            if !settings.windows.is_empty() {
                let hop_limit = syn::hop_limit(window.unwrap_or(LEAST_WINDOW));
                syn::set_hop_limit(&mut bytes, hop_limit);
            }
        }
        let [four, six] = &mut self.raw;
        let raw = match connection.server.is_ipv4() {
            true => four,
            false => six,
        };
        let no_such_family = io::Error::from_raw_os_error(Errno::AFNOSUPPORT.raw_os_error());
        raw.as_mut().ok_or(no_such_family)?.send(&bytes, mark)
    }
}
