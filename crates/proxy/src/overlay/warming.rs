//! Keeps the pool of warm connections full: opens connections to nodes, and exchanges something over each.

use std::sync::Arc;
use std::time::Instant;

use midspan_policy::overlay::NodeName;
use midspan_relay::overlay::warm::{Reserve, WarmPair, WarmWork, open_warm};
use midspan_relay::{Clock, Limits, SharedOverlay};
use tracing::debug;

use super::exchange::{Exchange, Happened};

/// The connections that are becoming warm.
pub struct Warming {
    overlay: SharedOverlay,
    limits: Arc<Limits>,
    clock: Clock,
    begun: Vec<Connection>,
}

struct Connection {
    pair: WarmPair,
    exchange: Exchange,
    reserve: Reserve,
}

impl Warming {
    /// Nothing is being opened.
    pub const fn new(overlay: SharedOverlay, limits: Arc<Limits>, clock: Clock) -> Self {
        Self {
            overlay,
            limits,
            clock,
            begun: Vec::new(),
        }
    }

    /// The exchanges that have begun.
    pub fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.begun.iter().map(|connection| &connection.exchange)
    }

    /// Begins what there is to do, and gives up what has taken too long.
    pub fn advance(&mut self, now: Instant) {
        let time = self.clock.now();
        let round_trip = |node: &NodeName| {
            let known = self.overlay.known();
            known.round_trip_to(time, node).unwrap_or_default()
        };
        let work = self.overlay.warm().work(time, round_trip);
        for (pair, work) in work {
            self.begin(pair, work, now);
        }
        for place in (0..self.begun.len()).rev() {
            if let Some(connection) = self.begun.get_mut(place) {
                let happened = connection.exchange.advance_once(now);
                self.note(place, happened);
            }
        }
    }

    /// Handles an event of the exchange at this place.
    pub fn handle_event(&mut self, place: usize, now: Instant) {
        if let Some(connection) = self.begun.get_mut(place) {
            let happened = connection.exchange.handle_event(now);
            self.note(place, happened);
        }
    }

    fn begin(&mut self, pair: WarmPair, work: WarmWork, now: Instant) {
        let ((address, _), socket, reserve, is_connected) = match work {
            WarmWork::Refresh(ends, socket, reserve) => (ends, socket, reserve, true),
            WarmWork::Open(listener, ends, keys) => {
                let reserve = Reserve::take(&self.limits);
                let socket = reserve.map(|mut reserve| {
                    let socket =
                        open_warm(&listener, (ends, keys.as_ref()), &self.limits, &mut reserve);
                    socket.map(|socket| (socket, reserve))
                });
                match socket {
                    Some(Ok((socket, reserve))) => (ends, socket, reserve, false),
                    Some(Err(error)) => {
                        debug!(node = %pair.node, "no warm connection: {error}");
                        return self.overlay.warm().give_up(self.clock.now(), &pair);
                    }
                    // Memory or descriptors are short.
                    None => return self.overlay.warm().give_up(self.clock.now(), &pair),
                }
            }
        };
        let node = pair.node.clone();
        self.begun.push(Connection {
            exchange: Exchange::over(node, address, (socket, is_connected), now),
            pair,
            reserve,
        });
    }

    /// An exchange is over, or continues. Later places may change.
    fn note(&mut self, place: usize, happened: Happened) {
        let time = self.clock.now();
        match happened {
            Happened::Nothing => {}
            Happened::Answered(..) => {
                let connection = self.begun.swap_remove(place);
                let pool = self.overlay.warm();
                match connection.exchange.into_socket() {
                    Some(socket) => {
                        let parts = (socket, connection.reserve);
                        pool.put(time, &connection.pair, parts);
                    }
                    None => pool.give_up(time, &connection.pair),
                }
            }
            Happened::Refused | Happened::Failed(_) => {
                let connection = self.begun.swap_remove(place);
                debug!(node = %connection.pair.node, "a warm connection has failed: {happened:?}");
                self.overlay.warm().give_up(time, &connection.pair);
            }
        }
    }
}
