//! Whether a new connection is intercepted, and how.

use midspan_policy::leave_alone::Passage;
use midspan_policy::{Admission, Handshake, Request};
use midspan_relay::seeded_faults::{self, Fault};
use midspan_relay::{Arrival, connect_as_client};
use midspan_units::{Dscp, TimeSpan};

use super::super::held::Packet;
use super::super::statistics::count;
use super::Worker;
use super::routing::Way;

impl Worker {
    /// Decides whether to intercept a new connection.
    pub(super) fn admit(&mut self, packet: Packet, request: Request, listener: usize) {
        if self.drains(request.client.ip(), listener) {
            count(&self.counters.passed_drained);
            return self.leave(packet.id, request);
        }
        self.suspect_routes();
        let now = self.relay_time();
        let way = self.way(request, listener, &[]);
        let is_routed = !matches!(way, Way::Here);
        // The answers of a server to which the exit connects do not have to come back here.
        let passage = match is_routed {
            true => Passage::Intercept,
            false => self.passage(request, listener, 0),
        };
        match passage {
            Passage::Intercept => {}
            Passage::Pass => {
                count(&self.counters.passed_asymmetric);
                return self.leave(packet.id, request);
            }
            Passage::PassWatched => {
                count(&self.counters.passed_asymmetric);
                return self.leave_watched(&packet, request);
            }
        }
        if self.shared.suspects.includes(now, &request) {
            count(&self.counters.passed_suspects);
            return self.leave(packet.id, request);
        }
        let Some(known) = self.listeners.get_mut(listener) else {
            return self.leave(packet.id, request);
        };
        match known.policy.admit(now, &request) {
            Admission::Intercept { .. }
                if !is_routed && self.is_of_control_group(request, listener) =>
            {
                self.leave_to_compare(&packet, request);
            }
            Admission::Intercept {
                handshake,
                connect_timeout,
                ..
            } => {
                self.intercept(
                    (packet, request),
                    listener,
                    way,
                    (handshake, connect_timeout),
                );
            }
            // The connection would not go by its route.
            Admission::Bypass if is_routed => {
                let handshake = (Handshake::EndToEnd, None);
                self.intercept((packet, request), listener, way, handshake);
            }
            Admission::Bypass => {
                count(&self.counters.passed_by_policy);
                self.leave(packet.id, request);
            }
            Admission::Refuse => {
                count(&self.counters.refused_by_policy);
                self.refuse(&packet, request);
            }
        }
    }

    /// Intercepts a connection, if there is room for it.
    fn intercept(
        &mut self,
        (packet, request): (Packet, Request),
        listener: usize,
        way: Way,
        (handshake, connect_timeout): (Handshake, Option<TimeSpan>),
    ) {
        if self.is_tracking_full() {
            return self.leave(packet.id, request);
        }
        let seat = match self.take_seat(request, listener) {
            Ok(seat) => seat,
            Err(shortage) => {
                self.count_shortage(shortage);
                return self.leave(packet.id, request);
            }
        };
        let is_early =
            handshake == Handshake::Early || seeded_faults::is(Fault::AcceptBeforeConnect);
        let handshake = match is_early {
            true => Handshake::Early,
            false => Handshake::EndToEnd,
        };
        let mut arrival = Arrival {
            connect_timeout,
            seat,
            ..Arrival::new(request, handshake, self.relay_time())
        };
        match way {
            // The relay calls a route: this one, or the one that is best then.
            Way::Through(_, next) if is_early && self.may_enter_early(listener, &next) => {
                self.release((packet, request), listener, arrival, None);
            }
            Way::Through(route, next) => {
                let handshake = Handshake::EndToEnd;
                let arrival = Arrival {
                    handshake,
                    ..arrival
                };
                self.call_route(packet, listener, arrival, (route, next));
            }
            Way::Nowhere => self.refuse_route(&packet, request),
            Way::Here => {
                arrival.overlay = self.part_of_leaving(request, listener);
                match handshake {
                    Handshake::Early => self.open_early(packet, listener, arrival),
                    Handshake::EndToEnd => self.call(packet, listener, arrival),
                }
            }
        }
    }

    /// Releases a connection to the relay before its server has answered, and connects to the
    /// server meanwhile.
    fn open_early(&mut self, packet: Packet, listener: usize, mut arrival: Arrival) {
        let request = arrival.request;
        let mark = packet.mark & !self.mask;
        let Some((start, window)) = self.server_start(request, listener) else {
            return self.leave(packet.id, request);
        };
        arrival.server_flight = start.first_flight;
        arrival.window = window;
        let Some(known) = self.listeners.get(listener) else {
            return self.leave(packet.id, request);
        };
        let class = Dscp::of_packet(&packet.bytes).unwrap_or_default();
        match connect_as_client(request, mark, &known.listener, &start, class) {
            Ok(connecting) => {
                self.release(
                    (packet, request),
                    listener,
                    arrival,
                    Some(connecting.socket),
                );
            }
            Err(error) => self.leave_uncalled(packet.id, request, &error),
        }
    }
}
