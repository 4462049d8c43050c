//! A session that carries one HTTP request and its answer.

use std::sync::Arc;

use midspan_explicit::http::{Progress, Side as Message, Wanted};
use midspan_policy::Leg;
use midspan_units::Time;
use rustix::io::Errno;

use super::{End, Session};
use crate::arrival::NewClient;
use crate::exchange::{Framed, Kept, LegState};
use crate::lifecycle::Step;
use crate::limits::Seat;
use crate::observation::Ending;
use crate::shared_part::SharedPart;
use crate::system;
use crate::transfer::Shared;

/// What happens to the client after an exchange.
#[derive(Debug)]
pub enum Client {
    /// The client may send another request.
    Stays,
    /// The client gets this answer, if any, and is closed after it had time to read everything.
    IsTold(&'static str),
    /// The client has ended its connection, and is closed.
    IsGone,
}

/// Which end has broken the exchange off.
const fn broken_by(framed: &Framed) -> Ending {
    match framed.exchange.is_request_malformed() {
        true => Ending::ResetByClient,
        false => Ending::ResetByServer,
    }
}

impl Session {
    /// Holds bytes that a negotiation has left, and that are sent before any others: to the server and to the client.
    pub fn hold(&mut self, to_server: Vec<u8>, to_client: Vec<u8>) {
        self.to_server.hold(to_server);
        self.to_client.hold(to_client);
    }

    /// Sets the exchange: the session carries nothing else.
    pub fn carry(&mut self, framed: Framed) {
        self.record.continue_from(framed.kept.reading);
        self.framed = Some(Box::new(framed));
    }

    /// Checks the exchange after data has moved: returns when to check again, and whether there is
    /// more to do at once.
    pub(super) fn look_at_exchange(
        &mut self,
        shared: &mut Shared,
        now: Time,
    ) -> (Option<Time>, bool) {
        let Some(framed) = &mut self.framed else {
            return (None, false);
        };
        let (up, down) = (&self.to_server.direction, &self.to_client.direction);
        if down.has_ended() {
            (framed.exchange).handle_server_end(down.has_ended_in_order());
        }
        let legs = LegState {
            is_told: down.held() == 0,
            is_asked: up.held() == 0,
            server_ended: self.failures.server || down.is_end_ahead(),
            client_ended: self.failures.client || up.has_ended(),
        };
        match framed.exchange.outcome() {
            Progress::Tunnel if legs.is_asked => {
                let leftover = std::mem::take(&mut framed.kept.leftover);
                self.framed = None;
                self.to_server.hold(leftover);
                for transfer in [&mut self.to_server, &mut self.to_client] {
                    transfer.direction.handle_readable();
                    transfer.direction.handle_writable();
                }
                (None, true)
            }
            Progress::Broken => {
                self.record.note_failure(broken_by(framed));
                self.note_failure(Leg::Server, Errno::PROTO, false, shared);
                (None, false)
            }
            _ => {
                let was_finished = framed.is_client_finished();
                let again = framed.look(legs, now);
                if framed.is_client_finished() && !was_finished {
                    // This fails only if the leg has failed, which epoll reports as well.
                    let _ = self.part.sockets.client.end_writing();
                }
                (again, false)
            }
        }
    }

    /// The next step of an exchange.
    pub(super) fn step_of_exchange(&self, framed: &Framed) -> Step {
        let is_asked = self.to_server.direction.is_done()
            || self.to_server.direction.held() == 0
                && framed.wanted(Message::Request) == Wanted::Nothing;
        match (self.failures.client, self.failures.server) {
            (true, true) => Step::Reset,
            (true, false) if is_asked => Step::Settle(Leg::Server),
            (true, false) => Step::Continue,
            (false, _) if framed.is_over() => Step::HandOver,
            (false, true)
                if framed.exchange.outcome() == Progress::Broken
                    && self.to_client.direction.held() == 0 =>
            {
                Step::Settle(Leg::Client)
            }
            (false, _) => Step::Continue,
        }
    }

    /// What happens to the client after the exchange, and how the session has ended. The server leg
    /// is closed by a reset, unless a reset could overtake data.
    pub fn leave_exchange(&mut self, may_stay: bool) -> (Client, End) {
        let Some(framed) = &self.framed else {
            return (Client::IsGone, End::Reset);
        };
        if let Progress::Unanswered(told) = framed.exchange.outcome() {
            self.record.note_failure(broken_by(framed));
            return (Client::IsTold(told), End::Reset);
        }
        let is_asked =
            framed.exchange.is_request_complete() && self.to_server.direction.held() == 0;
        // A socket that is closed first keeps its port for a minute; a socket that is reset does
        // not. But a reset could overtake data that the server has not acknowledged yet.
        let server_ended = self.server_end_seen && !self.failures.server;
        if is_asked && (server_ended || !self.part.sockets.is_acknowledged(Leg::Server)) {
            let _ = system::set_reset_on_close(&self.part.sockets.server, false);
        }
        let client = if self.to_server.direction.has_ended() {
            let _ = system::set_reset_on_close(&self.part.sockets.client, false);
            Client::IsGone
        } else if may_stay && framed.stays_open() {
            Client::Stays
        } else {
            Client::IsTold("")
        };
        (client, End::Closed)
    }

    /// The client, and its state for the next request; `None` if the thread has just been replaced.
    pub fn into_client(self) -> Option<(NewClient, Kept)> {
        let mut kept = self.framed?.kept;
        kept.reading = self.record.client_reading();
        // Its register does not reach it any more.
        drop(self.registration);
        let SharedPart {
            identity,
            sockets,
            seat,
        } = Arc::into_inner(self.part)?;
        let client = NewClient {
            socket: Arc::new(sockets.client),
            address: identity.client(),
            seat: Some(seat).filter(Seat::is_taken)?,
            is_too_fast: false,
        };
        Some((client, kept))
    }
}
