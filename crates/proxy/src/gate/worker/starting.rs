//! How the legs of a connection begin, and the release of connections to the relay.

use std::io;

use midspan_linux::packet_filter::set_listening_socket;
use midspan_linux::packet_queue::Verdict;
use midspan_policy::learned_start::{LEAST_WINDOW, LearnedStart};
use midspan_policy::{LegStart, Request};
use midspan_relay::profile;
use midspan_relay::{Arrival, LegSocket, Released, SetAside};
use rustix::io::Errno;

use super::super::GateListener;
use super::super::held::{Call, Packet};
use super::super::statistics::count;
use super::super::syn;
use super::super::timestamps;
use super::Worker;

impl Worker {
    /// Releases a connection to the relay: its SYN with the addresses in this SYN, and its session with this
    /// server leg, or by a route that the relay calls. This thread accepts it, unless it has more sessions than the others.
    pub(super) fn release(
        &mut self,
        (packet, request): (Packet, Request),
        listener: usize,
        mut arrival: Arrival,
        server: Option<LegSocket>,
    ) {
        if self.is_replaced() {
            // The client repeats its SYN, and another part decides about it.
            if let Some(server) = server {
                self.end_call(Call::Server(server), request);
            }
            self.forget_unheld(request);
            return self.decide(packet.id, Verdict::Drop);
        }
        // As at a forward listener, there is no learned window for a client whose route is called later.
        let start = server
            .as_ref()
            .and_then(|_| self.start_of(request, listener));
        arrival.start = start;
        let window = start.map(|start| start.window);
        let expected = (self.shared.loads).choose(self.thread, self.relay_time());
        let thread = expected.thread();
        let released = Released {
            arrival,
            server,
            expected: Some(expected),
        };
        if !(self.shared.openings).release(request, released, self.now) {
            // Another part has given the opening up meanwhile. The client repeats its SYN.
            self.forget_tracked(request);
            return self.decide(packet.id, Verdict::Drop);
        }
        match self.send_on(packet.bytes, request, listener, (window, thread)) {
            Ok(()) => {
                count(&self.counters.taken);
                self.decide(packet.id, Verdict::Drop);
            }
            Err(error) => {
                self.leave(packet.id, request);
                self.log_trouble("its SYN cannot be sent on", &error);
            }
        }
    }

    /// How the leg towards this client begins, where the listener has windows to choose from.
    fn start_of(&mut self, request: Request, listener: usize) -> Option<LearnedStart> {
        let now = self.shared.clock.now();
        let known = &mut self.knowledge;
        let GateListener {
            listener, policy, ..
        } = self.listeners.get_mut(listener)?;
        policy.window(now, &request, &listener.learned_windows, known)
    }

    /// How the leg to this server begins, and the memory that is set aside for its receive window; `None` if
    /// there is no such listener.
    pub(super) fn server_start(
        &mut self,
        request: Request,
        listener: usize,
    ) -> Option<(LegStart, Option<SetAside>)> {
        let now = self.shared.clock.now();
        let known = &mut self.knowledge;
        let GateListener {
            listener, policy, ..
        } = self.listeners.get_mut(listener)?;
        let windows = listener.marks.server_windows.iter();
        let windows: Vec<u32> = windows.map(|(window, _)| *window).collect();
        let mut start = policy.server_start(now, &request, &windows, known);
        // The relay sets it on the legs of sessions that last.
        start.keepalive = None;
        let window = self.shared.limits.offer_window(&mut start);
        Some((start, window))
    }

    /// The initial window of a released connection, if it was selected.
    pub(super) fn window_of(&self, request: Request) -> Option<u32> {
        Some(self.shared.openings.start_of(request)?.window)
    }

    /// Sends a SYN to the listening socket with this initial window that belongs to this thread.
    pub(super) fn send_on(
        &self,
        mut bytes: Vec<u8>,
        request: Request,
        listener: usize,
        (window, thread): (Option<u32>, usize),
    ) -> std::io::Result<()> {
        let mut mark = 0;
        if let Some(known) = self.listeners.get(listener) {
            mark = known.mark;
            let client = request.client.ip();
            if profile::leaves_timestamps_out(&known.listener.profiles, client)
                && let Some(without) = timestamps::without(&bytes)
            {
                bytes = without;
            }
            // The client's own hop limit must not be treated as one that selects a window.
            if !known.listener.learned_windows.is_empty() {
                let hop_limit = syn::hop_limit(window.unwrap_or(LEAST_WINDOW));
                syn::set_hop_limit(&mut bytes, hop_limit);
            }
        }
        set_listening_socket(&mut bytes, thread);
        let [four, six] = &self.raw;
        let raw = match request.server.is_ipv4() {
            true => four,
            false => six,
        };
        let no_such_family = io::Error::from_raw_os_error(Errno::AFNOSUPPORT.raw_os_error());
        raw.as_ref()
            .ok_or(no_such_family)?
            .send_marked(&bytes, mark)
    }
}
