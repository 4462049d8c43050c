//! A session: two sockets, a transfer in each direction, and the handling of epoll's events.
//!
//! | file | content |
//! | --- | --- |
//! | this one | [`Session`]: its events, its turns, its failures, its end |
//! | `phase.rs` | [`Phase`]: from connecting to settling |
//! | `upkeep.rs` | [`Upkeep`]: when it moved data, and how much memory it uses |
//! | `framed.rs` | how a session carries one HTTP request and its answer, and hands its client over |
//! | `handed.rs` | how a session moves to another relay |
//! | `decided.rs` | how a session carries out the policy's decisions while data flows |
//! | `bounding.rs` | how a session carries out decisions about its memory |
//! | `observed.rs` | readings and the report for observers |

mod bounding;
mod decided;
mod framed;
mod handed;
mod observed;
mod phase;
mod upkeep;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use midspan_explicit::http::Side as Message;
use midspan_policy::Leg;
use midspan_units::Time;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::exchange::Framed;
use super::identity::Identity;
use super::lifecycle::{self, Failures, Step};
use super::limits::Seat;
use super::narrow::NarrowLeg;
use super::observation::{Ending, Record};
use super::register::{Entry, Register, Registration};
use super::shared_part::SharedPart;
use super::sockets::Sockets;
use super::statistics::Counters;
use super::system;
use super::transfer::{Moved, Shared, Side, Transfer};
use crate::seeded_faults::{self, Fault};

pub use bounding::Buffers;
pub use framed::Client;
pub use handed::{NewHome, SessionParts};
pub use observed::with_narrow;
pub use phase::Phase;
pub use upkeep::Upkeep;

/// More failures than one turn can have: a write and a read can find each leg failed.
const FAILURES_PER_TURN: usize = 5;

/// How a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Both directions ended with a FIN.
    Closed,
    /// A reset.
    Reset,
    /// The server could not be reached.
    Unconnected(Errno),
}

/// Two legs and the data between them.
#[derive(Debug)]
pub struct Session {
    /// Its number, its sockets and its place, which the register of its thread reaches too.
    pub part: Arc<SharedPart>,
    to_server: Transfer,
    to_client: Transfer,
    failures: Failures,
    client_end_seen: bool,
    server_end_seen: bool,
    /// The phase of its life.
    pub phase: Phase,
    /// Index of its acceptor.
    pub listener: u16,
    /// Whether it waits for its next turn.
    pub queued: bool,
    /// Data has passed since the policy's last sample.
    pub active: bool,
    /// The data that it records for observers.
    pub record: Record,
    /// The data that it records for time-outs and the memory budget.
    pub upkeep: Upkeep,
    /// The state of the client's access profile.
    pub narrow: Option<Box<NarrowLeg>>,
    /// The HTTP exchange that it carries, if it carries nothing else.
    framed: Option<Box<Framed>>,
    /// Its entry in the register of its thread, once the thread has it.
    registration: Option<Registration>,
}

/// The result of a session's turn.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// The next step.
    pub step: Step,
    /// There is more to do at once.
    pub unfinished: bool,
    /// The kernel was short of memory: there is more to do after a moment.
    pub starved: bool,
    /// There is more to do at this time.
    pub resume_at: Option<Time>,
}

impl Session {
    /// A session with an accepted client, and a server to which the leg is connecting.
    pub fn new(part: Arc<SharedPart>, listener: u16, record: Record, now: Time) -> Self {
        Self {
            part,
            to_server: Transfer::new(),
            to_client: Transfer::new(),
            failures: Failures {
                client: false,
                server: false,
            },
            client_end_seen: false,
            server_end_seen: false,
            phase: Phase::Connecting,
            listener,
            queued: false,
            active: false,
            record,
            upkeep: Upkeep::new(now),
            narrow: None,
            framed: None,
            registration: None,
        }
    }

    /// Which session it is.
    pub fn identity(&self) -> &Identity {
        &self.part.identity
    }

    /// The number of the session.
    pub fn id(&self) -> u64 {
        self.part.identity.id()
    }

    /// The sockets of both legs.
    pub fn sockets(&self) -> &Sockets {
        &self.part.sockets
    }

    /// Both legs are connected already.
    pub fn begin_relaying(&mut self, now: Time) {
        self.phase = Phase::Relaying;
        self.record.note_connected(now);
        // No event announces bytes that are decrypted already.
        for leg in [Leg::Client, Leg::Server] {
            if self.part.sockets.leg(leg).is_encrypted() {
                self.directions(leg).0.direction.handle_readable();
            }
        }
    }

    /// The server leg's socket, if it does not have keep-alive yet; returned once.
    pub fn server_to_keep_alive(&mut self) -> Option<&OwnedFd> {
        let is_kept_alive = std::mem::replace(&mut self.to_server.is_kept_alive, true);
        match is_kept_alive {
            true => None,
            false => Some(&self.part.sockets.server),
        }
    }

    /// Handles an event of a leg; returns how the session ends, if it does.
    pub fn handle_event(
        &mut self,
        leg: Leg,
        flags: EventFlags,
        shared: &mut Shared,
        now: Time,
    ) -> Option<End> {
        let gone = EventFlags::ERR | EventFlags::HUP;
        self.upkeep.note_event();
        let (from, to) = self.directions(leg);
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP) {
            from.direction.handle_readable();
        }
        if flags.intersects(EventFlags::RDHUP | gone) {
            from.direction.handle_end_ahead();
        }
        if flags.contains(EventFlags::PRI) {
            from.direction.handle_urgent();
        }
        if flags.intersects(EventFlags::OUT | gone) {
            to.direction.handle_writable();
        }
        // A reset also sets HUP. A FIN sets HUP only after Midspan's own FIN, when there is nothing
        // left to fail.
        if flags.contains(EventFlags::RDHUP) && !flags.intersects(gone) {
            *self.end_seen(leg) = true;
        }
        if flags.contains(EventFlags::ERR)
            && let Some(error) = self.part.sockets.take_error(leg)
        {
            if self.phase == Phase::Connecting {
                return self.handle_failed_connecting(leg, error, shared);
            }
            self.note_failure(leg, error, error == Errno::PIPE, shared);
        }
        if leg == Leg::Server && self.phase == Phase::Connecting && flags.contains(EventFlags::OUT)
        {
            self.begin_relaying(now);
        }
        None
    }

    /// The server has reset its leg, and the kernel has reported this error already. The event that the leg is
    /// connected follows.
    pub fn note_server_reset(&mut self, error: Errno, shared: &mut Shared) {
        self.note_failure(Leg::Server, error, error == Errno::PIPE, shared);
    }

    fn handle_failed_connecting(
        &mut self,
        leg: Leg,
        error: Errno,
        shared: &mut Shared,
    ) -> Option<End> {
        match leg {
            // Refused, timed out, or unreachable. A reset can only follow a SYN-ACK.
            Leg::Server if !matches!(error, Errno::CONNRESET | Errno::PIPE) => {
                Some(End::Unconnected(error))
            }
            Leg::Server => {
                self.phase = Phase::Relaying;
                self.note_failure(leg, error, error == Errno::PIPE, shared);
                None
            }
            // Data that the client sent before its reset still goes to the server.
            Leg::Client if self.part.sockets.has_data(leg) => {
                self.note_failure(leg, error, error == Errno::PIPE, shared);
                None
            }
            Leg::Client => {
                self.record.note_failure(Ending::of_failure(leg, error));
                Some(End::Reset)
            }
        }
    }

    /// Moves as much data as possible in both directions.
    pub fn advance(&mut self, shared: &mut Shared, now: Time, counters: &Counters) -> Turn {
        let refused = self.look_at_narrow_leg(now, counters);
        counters.option_errors.add(refused);
        system::enter_session(self.id());
        if let Some(framed) = self.framed.as_mut().filter(|_| shared.is_closing) {
            framed.exchange.close_afterwards();
        }
        self.begin_metered_turn(shared, now);
        let (mut unfinished, mut starved, mut resume_at) = (false, false, None);
        let mut is_held_back = false;
        // After a failure, both directions have work: read on, drop data, pass an end on.
        for _ in 0..FAILURES_PER_TURN {
            let is_told = self
                .framed
                .as_ref()
                .is_some_and(|it| it.is_client_finished());
            let last = (self.to_client.direction.is_done() || is_told) && !self.failures.any();
            let doubtful = !last && self.to_client.may_hide_failure();
            let framed = self.framed.as_deref_mut().map(|it| (it, Message::Request));
            let certainty = (last, doubtful);
            let legs = self.part.sockets.legs();
            let up = (self.to_server).advance(legs, certainty, framed, shared, now);
            counters.bytes_to_server.add(up.copied + up.spliced);
            let failed_up = self.note_moved(Leg::Client, &up, shared, counters);
            let last = self.to_server.direction.is_done() && !self.failures.any();
            let doubtful = !last && self.to_server.may_hide_failure();
            let framed = self.framed.as_deref_mut().map(|it| (it, Message::Answer));
            let certainty = (last, doubtful);
            let [client, server] = self.part.sockets.legs();
            let legs = [server, client];
            let down = (self.to_client).advance(legs, certainty, framed, shared, now);
            if let Some(leg) = &mut self.narrow
                && down.copied + down.spliced > 0
            {
                leg.note_moved(now);
            }
            counters.bytes_to_client.add(down.copied + down.spliced);
            let failed_down = self.note_moved(Leg::Server, &down, shared, counters);
            unfinished = up.unfinished || down.unfinished;
            starved = up.starved || down.starved;
            is_held_back = up.is_held_back || down.is_held_back;
            resume_at = up.resume_at.into_iter().chain(down.resume_at).min();
            let moved = up.copied + up.spliced + down.copied + down.spliced;
            self.upkeep.note_moved(moved, now);
            if !failed_up && !failed_down {
                break;
            }
        }
        system::enter_session(0);
        let (id, client) = (self.id(), self.identity().client().ip());
        let again = shared.meter.end(id, client, is_held_back, now);
        resume_at = resume_at.into_iter().chain(again).min();
        if self.framed.is_some() {
            let (again, more) = self.look_at_exchange(shared, now);
            resume_at = resume_at.into_iter().chain(again).min();
            unfinished |= more;
        }
        let is_done = self.to_server.direction.is_done() || self.to_client.direction.is_done();
        if seeded_faults::is(Fault::HalfCloseEndsBoth) && is_done {
            return Turn {
                step: Step::Close,
                unfinished: false,
                starved: false,
                resume_at: None,
            };
        }
        if system::take_pretence() {
            for direction in [&mut self.to_server, &mut self.to_client] {
                direction.direction.handle_readable();
                direction.direction.handle_writable();
            }
            unfinished = true;
        }
        Turn {
            step: self.step(),
            unfinished,
            starved,
            resume_at,
        }
    }

    /// Begins a turn in which the session reads as much as the rate of its client permits. Data that arrived
    /// before a leg failed is read at once, because its time is limited.
    fn begin_metered_turn(&self, shared: &mut Shared, now: Time) {
        let (id, client) = (self.id(), self.identity().client().ip());
        if self.failures.any() {
            return shared.meter.begin_free(id);
        }
        let mut transfers = [&self.to_server, &self.to_client].into_iter();
        let has_more = transfers.any(|transfer| transfer.direction.is_to_read());
        shared.meter.begin(id, client, has_more, now);
    }

    /// Whether one direction has ended and the other has not.
    pub const fn is_half_closed(&self) -> bool {
        self.to_server.direction.has_ended() != self.to_client.direction.has_ended()
    }

    /// Adds the session to the register of its thread; it is relayed without any mechanism if `is_plain`.
    pub fn register(&mut self, register: &Arc<Register>, is_plain: bool) {
        self.registration = Some(register.add(Entry::Session {
            part: Arc::downgrade(&self.part),
            is_plain,
        }));
    }

    /// Its entry in the register.
    pub const fn registration(&self) -> Option<&Registration> {
        self.registration.as_ref()
    }

    /// The session's place.
    pub fn seat(&self) -> &Seat {
        &self.part.seat
    }

    /// Records that the session is evicted for a new one.
    pub fn note_made_way(&mut self) {
        self.record.note_failure(Ending::MadeWay);
    }

    /// The session has moved nothing for its time-out. Returns whether the peers have not
    /// acknowledged anything either; otherwise the session counts as moving now.
    pub fn is_idle(&mut self, now: Time) -> bool {
        self.upkeep.is_idle(self.part.sockets.undelivered(), now)
    }

    /// Records that the session ends because it has been still.
    pub fn note_still(&mut self) {
        self.record.note_failure(match self.is_half_closed() {
            true => Ending::HalfClosedTimedOut,
            false => Ending::IdleTimedOut,
        });
    }

    /// The next step in the present state.
    pub fn step(&self) -> Step {
        if let Some(framed) = &self.framed {
            return self.step_of_exchange(framed);
        }
        lifecycle::step(
            &self.to_server.direction,
            &self.to_client.direction,
            self.failures,
        )
    }

    /// Whether a leg has failed.
    pub const fn has_failed(&self) -> bool {
        self.failures.any()
    }

    /// Returns its pipes to the pool; must be called before the session is dropped.
    pub fn release(&mut self, shared: &mut Shared) {
        shared.meter.forget(self.id());
        self.to_server.abandon(shared);
        self.to_client.abandon(shared);
    }

    /// Handles the result of a direction's turn; returns whether a leg failed.
    fn note_moved(
        &mut self,
        inbound: Leg,
        moved: &Moved,
        shared: &mut Shared,
        counters: &Counters,
    ) -> bool {
        counters.bytes_copied.add(moved.copied);
        counters.bytes_spliced.add(moved.spliced);
        let written = moved.copied + moved.spliced;
        if written > 0 {
            self.active = true;
            self.upkeep.note_active(inbound);
        }
        self.record.note_moved(inbound, moved.read, written);
        match moved.failed {
            None => return false,
            // EPIPE of a write proves nothing, because a splice may have swallowed the true error.
            Some((Side::Outbound, error)) => {
                self.note_failure(inbound.other(), error, false, shared);
            }
            Some((Side::Inbound, error)) => {
                self.note_failure(inbound, error, error == Errno::PIPE, shared);
                let (from, _) = self.directions(inbound);
                from.direction.handle_inbound_exhausted();
            }
        }
        true
    }

    /// A leg has failed: data that arrived from it is read to its end, and data for it is dropped.
    /// `after_end`: the FIN certainly arrived before (the kernel's error is EPIPE).
    fn note_failure(&mut self, leg: Leg, error: Errno, after_end: bool, shared: &mut Shared) {
        if !self.failures.note(leg) {
            return;
        }
        self.record.note_failure(Ending::of_failure(leg, error));
        // The FIN of an encrypted leg is no end.
        let certain = self.part.sockets.leg(leg).is_ended();
        let after_end = certain.unwrap_or(after_end || *self.end_seen(leg));
        let (from, to) = self.directions(leg);
        from.direction.handle_inbound_failed(after_end);
        if seeded_faults::is(Fault::ResetOvertakesData) {
            from.abandon(shared);
        }
        to.abandon(shared);
    }

    fn end_seen(&mut self, leg: Leg) -> &mut bool {
        match leg {
            Leg::Client => &mut self.client_end_seen,
            Leg::Server => &mut self.server_end_seen,
        }
    }

    /// The peer of a leg.
    fn peer(&self, leg: Leg) -> std::net::SocketAddr {
        match leg {
            Leg::Client => self.identity().client(),
            Leg::Server => self.identity().server(),
        }
    }

    const fn transfer_to(&mut self, leg: Leg) -> &mut Transfer {
        self.directions(leg).1
    }

    const fn transfer(&self, from: Leg) -> &Transfer {
        match from {
            Leg::Client => &self.to_server,
            Leg::Server => &self.to_client,
        }
    }

    const fn transfer_mut(&mut self, from: Leg) -> &mut Transfer {
        self.directions(from).0
    }

    /// The transfer from this leg, and the transfer to it.
    const fn directions(&mut self, leg: Leg) -> (&mut Transfer, &mut Transfer) {
        match leg {
            Leg::Client => (&mut self.to_server, &mut self.to_client),
            Leg::Server => (&mut self.to_client, &mut self.to_server),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of a session in the table of its thread, and of the part that it shares.
    #[test]
    fn an_idle_session_is_small() {
        let size = size_of::<Session>();
        assert!(size <= 288, "{size} bytes");
        let size = size_of::<SharedPart>();
        assert!(size <= 120, "{size} bytes");
        // The part for observers, as in docs/observability.md.
        assert_eq!(size_of::<Record>(), 112);
    }
}
