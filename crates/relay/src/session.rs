//! A session: two sockets, a transfer each way, and what epoll says of them.

mod bounding;
mod decided;
mod framed;
mod observed;

use std::os::fd::{AsFd, OwnedFd};

use midspan_explicit::http::Side as Message;
use midspan_policy::Leg;
use midspan_units::{Time, TimeSpan};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::exchange::Framed;
use super::lifecycle::{self, Failures, Step};
use super::limits::Seat;
use super::narrow::NarrowLeg;
use super::observation::{Ending, Record};
use super::statistics::Counters;
use super::system;
use super::transfer::{Moved, Shared, Side, Transfer};
use crate::seeded_faults::{self, Fault};

pub use bounding::Buffers;
pub use framed::Client;

/// First and longest wait between two looks at an unacknowledged queue.
const FIRST_LOOK: TimeSpan = TimeSpan::from_milliseconds(2);
const LONGEST_LOOK: TimeSpan = TimeSpan::from_milliseconds(100);
/// So often the wait doubles from the first to the longest.
const MOST_DOUBLINGS: u8 = 6;

/// More failures than one turn can bring: each leg can be found failed by a write and by a read.
const FAILURES_PER_TURN: usize = 5;

/// Where a session is in its life; the documentation of [`super`] has the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The client is there, the server has not answered yet.
    Connecting,
    /// Both legs live.
    Relaying,
    /// A leg has failed; the other takes what that one had delivered, until the deadline.
    Settling {
        /// Then it is reset in any case.
        deadline: Time,
        /// How often it was looked whether all is acknowledged.
        looks: u8,
    },
}

/// How a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Both directions ended with a FIN.
    Closed,
    /// By a reset.
    Reset,
    /// The server could not be reached.
    Unconnected(Errno),
}

/// Two legs and what passes between them.
#[derive(Debug)]
pub struct Session {
    client: OwnedFd,
    server: OwnedFd,
    to_server: Transfer,
    to_client: Transfer,
    failures: Failures,
    client_end_seen: bool,
    server_end_seen: bool,
    /// Where it is in its life.
    pub phase: Phase,
    /// Its deadline among the timers, if any.
    pub timer: Option<Time>,
    /// Number of its listener.
    pub listener: u16,
    /// It waits for its next turn.
    pub queued: bool,
    /// Data has passed since the policy last saw a sample.
    pub active: bool,
    /// What it notes for observers.
    pub record: Record,
    /// What it notes for time-outs and the memory budget.
    pub upkeep: Upkeep,
    /// How the client's access link is dealt with.
    pub narrow: Option<Box<NarrowLeg>>,
    /// The request and the answer that it carries, where it carries nothing else.
    framed: Option<Box<Framed>>,
    /// Its place; given back when the session goes.
    seat: Option<Seat>,
}

/// What a session notes for time-outs and the memory budget.
#[derive(Debug, Clone, Copy, Default)]
pub struct Upkeep {
    /// When data moved last, in tenths of seconds.
    moved_at: u32,
    /// When its policy saw a sample last.
    pub sampled_at: Time,
    /// Unacknowledged bytes when it seemed idle last.
    undelivered: u32,
    /// KiB of kernel memory when it was measured last.
    pub measured: u32,
    /// Bytes moved since; not zero if there was anything at all.
    pub unmeasured: u32,
    /// KiB that it may come to hold.
    pub reserved: u32,
    /// Sweeps since each direction has moved anything, that from the client first.
    still: [u8; 2],
    /// It need not be looked at before it is heard of, or still for longer.
    pub is_settled: bool,
    /// Both directions were still when it was measured last.
    pub is_still: bool,
}

/// What a turn of a session came to.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// The next step.
    pub step: Step,
    /// There is more to do at once.
    pub unfinished: bool,
    /// The kernel had no memory: there is more to do after a moment.
    pub starved: bool,
    /// There is more to do then.
    pub resume_at: Option<Time>,
}

impl Session {
    /// With a client that was accepted and a server that is being connected to.
    pub fn new(
        [client, server]: [OwnedFd; 2],
        listener: u16,
        record: Record,
        seat: Option<Seat>,
        now: Time,
    ) -> Self {
        Self {
            client,
            server,
            to_server: Transfer::new(),
            to_client: Transfer::new(),
            failures: Failures {
                client: false,
                server: false,
            },
            client_end_seen: false,
            server_end_seen: false,
            phase: Phase::Connecting,
            timer: None,
            listener,
            queued: false,
            active: false,
            record,
            upkeep: Upkeep {
                moved_at: tenths(now),
                still: [bounding::STILL_AFTER; 2],
                ..Upkeep::default()
            },
            narrow: None,
            framed: None,
            seat,
        }
    }

    /// Both legs are connected already.
    pub fn begin_relaying(&mut self, now: Time) {
        self.phase = Phase::Relaying;
        self.record.note_connected(now);
    }

    /// The socket towards the client.
    pub const fn client(&self) -> &OwnedFd {
        &self.client
    }

    /// The socket towards the server, where it has not what sessions get that last; asked once.
    pub const fn server_to_keep_alive(&mut self) -> Option<&OwnedFd> {
        let is_kept_alive = std::mem::replace(&mut self.to_server.is_kept_alive, true);
        match is_kept_alive {
            true => None,
            false => Some(&self.server),
        }
    }

    /// Takes in what epoll says of a leg; how the session ends, if it does.
    pub fn handle_event(
        &mut self,
        leg: Leg,
        flags: EventFlags,
        shared: &mut Shared,
        now: Time,
    ) -> Option<End> {
        let gone = EventFlags::ERR | EventFlags::HUP;
        // Something has come or gone.
        self.upkeep.unmeasured = self.upkeep.unmeasured.max(1);
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
        // A reset says HUP as well; a FIN does only after our own, when nothing can fail any more.
        if flags.contains(EventFlags::RDHUP) && !flags.intersects(gone) {
            *self.end_seen(leg) = true;
        }
        if flags.contains(EventFlags::ERR)
            && let Ok(Err(error)) = system::socket_error(self.socket(leg))
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

    fn handle_failed_connecting(
        &mut self,
        leg: Leg,
        error: Errno,
        shared: &mut Shared,
    ) -> Option<End> {
        match leg {
            // Refused, timed out, unreachable. A reset can only follow an answer.
            Leg::Server if !matches!(error, Errno::CONNRESET | Errno::PIPE) => {
                Some(End::Unconnected(error))
            }
            Leg::Server => {
                self.phase = Phase::Relaying;
                self.note_failure(leg, error, error == Errno::PIPE, shared);
                None
            }
            // What the client had sent before its reset is still for the server.
            Leg::Client if has_data(&self.client) => {
                self.note_failure(leg, error, error == Errno::PIPE, shared);
                None
            }
            Leg::Client => {
                self.record.note_failure(Ending::of_failure(leg, error));
                Some(End::Reset)
            }
        }
    }

    /// Moves what can be moved both ways.
    pub fn advance(&mut self, shared: &mut Shared, now: Time, counters: &Counters) -> Turn {
        let refused = self.look_at_narrow_leg(now, counters);
        counters.option_errors.add(refused);
        system::enter_session(self.record.id);
        if let Some(framed) = self.framed.as_mut().filter(|_| shared.is_closing) {
            framed.exchange.close_afterwards();
        }
        let (mut unfinished, mut starved, mut resume_at) = (false, false, None);
        // A failure gives both directions something to do: read on, drop, pass an end on.
        for _ in 0..FAILURES_PER_TURN {
            let is_told = self
                .framed
                .as_ref()
                .is_some_and(|it| it.is_client_finished());
            let last = (self.to_client.direction.is_done() || is_told) && !self.failures.any();
            let doubtful = !last && self.to_client.may_hide_failure();
            let (client, server) = (self.client.as_fd(), self.server.as_fd());
            let framed = self.framed.as_deref_mut().map(|it| (it, Message::Request));
            let certainty = (last, doubtful);
            let up = (self.to_server).advance([client, server], certainty, framed, shared, now);
            counters.bytes_to_server.add(up.copied + up.spliced);
            let failed_up = self.note_moved(Leg::Client, &up, shared, counters);
            let last = self.to_server.direction.is_done() && !self.failures.any();
            let doubtful = !last && self.to_server.may_hide_failure();
            let (client, server) = (self.client.as_fd(), self.server.as_fd());
            let framed = self.framed.as_deref_mut().map(|it| (it, Message::Answer));
            let certainty = (last, doubtful);
            let down = (self.to_client).advance([server, client], certainty, framed, shared, now);
            if let Some(leg) = &mut self.narrow
                && down.copied + down.spliced > 0
            {
                leg.note_moved(now);
            }
            counters.bytes_to_client.add(down.copied + down.spliced);
            let failed_down = self.note_moved(Leg::Server, &down, shared, counters);
            unfinished = up.unfinished || down.unfinished;
            starved = up.starved || down.starved;
            resume_at = up.resume_at.into_iter().chain(down.resume_at).min();
            let moved = up.copied + up.spliced + down.copied + down.spliced;
            if moved > 0 {
                self.upkeep.moved_at = tenths(now);
                let moved = u32::try_from(moved).unwrap_or(u32::MAX);
                self.upkeep.unmeasured = self.upkeep.unmeasured.saturating_add(moved);
            }
            if !failed_up && !failed_down {
                break;
            }
        }
        system::enter_session(0);
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

    /// Whether one direction has ended and the other has not.
    pub const fn is_half_closed(&self) -> bool {
        self.to_server.direction.has_ended() != self.to_client.direction.has_ended()
    }

    /// When the session has been still for so long.
    pub fn still_after(&self, timeout: TimeSpan) -> Time {
        Time::from_nanoseconds(u64::from(self.upkeep.moved_at) * TENTH) + timeout
    }

    /// Its place.
    pub const fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }

    /// It makes way for a new one.
    pub fn note_made_way(&mut self) {
        self.record.note_failure(Ending::MadeWay);
    }

    /// Nothing has moved for as long as is allowed: whether peers have not even acknowledged
    /// anything meanwhile. Otherwise it counts as moving now.
    pub fn is_idle(&mut self, now: Time) -> bool {
        let of = |leg| system::unacknowledged_bytes(self.socket(leg)).unwrap_or(0);
        let undelivered = of(Leg::Client) + of(Leg::Server);
        let undelivered = u32::try_from(undelivered).unwrap_or(u32::MAX);
        if undelivered == 0 || undelivered == self.upkeep.undelivered {
            return true;
        }
        self.upkeep.undelivered = undelivered;
        self.upkeep.moved_at = tenths(now);
        false
    }

    /// Ends for want of movement.
    pub fn note_still(&mut self) {
        self.record.note_failure(match self.is_half_closed() {
            true => Ending::HalfClosedTimedOut,
            false => Ending::IdleTimedOut,
        });
    }

    /// What comes next, as things stand.
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

    /// Whether the peer of a leg has acknowledged all that was written to it.
    pub fn is_acknowledged(&self, leg: Leg) -> bool {
        // A socket that cannot be asked has failed, and nothing more will be acknowledged.
        system::unacknowledged_bytes(self.socket(leg)).map_or(true, |bytes| bytes == 0)
    }

    /// When to look next while settling; `None` in other phases.
    pub fn next_look(&mut self, now: Time) -> Option<Time> {
        let Phase::Settling { deadline, looks } = &mut self.phase else {
            return None;
        };
        let wait = (FIRST_LOOK * (1_u64 << (*looks).min(MOST_DOUBLINGS))).min(LONGEST_LOOK);
        *looks = looks.saturating_add(1);
        Some((now + wait).min(*deadline))
    }

    /// Begins to settle, or goes on with it.
    pub fn settle_until(&mut self, deadline: Time) {
        if !matches!(self.phase, Phase::Settling { .. }) {
            self.phase = Phase::Settling { deadline, looks: 0 };
        }
    }

    /// Lets both sockets close in good order instead of by a reset.
    pub fn close_in_order(&self) {
        for socket in [&self.client, &self.server] {
            // Without this the close is a reset, which loses data but feigns nothing.
            let _ = system::set_reset_on_close(socket, false);
        }
    }

    /// Frees what it holds of the shared pipes; to be called before it is dropped.
    pub fn release(&mut self, shared: &mut Shared) {
        self.to_server.abandon(shared);
        self.to_client.abandon(shared);
    }

    /// Takes in what a turn of the direction from `inbound` did; whether a leg failed.
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
            self.upkeep.still[inbound as usize] = 0;
        }
        self.record.note_moved(inbound, moved.read, written);
        match moved.failed {
            None => return false,
            // EPIPE of a write proves nothing: the true error may have been swallowed by a splice.
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

    /// A leg has failed: what it delivered is read to its end, what was for it is dropped.
    /// `after_end`: surely after its FIN (the kernel says EPIPE then).
    fn note_failure(&mut self, leg: Leg, error: Errno, after_end: bool, shared: &mut Shared) {
        if !self.failures.note(leg) {
            return;
        }
        self.record.note_failure(Ending::of_failure(leg, error));
        let after_end = after_end || *self.end_seen(leg);
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

    /// Who is at the far end of a leg.
    const fn peer(&self, leg: Leg) -> std::net::SocketAddr {
        match leg {
            Leg::Client => self.record.client,
            Leg::Server => self.record.server,
        }
    }

    const fn transfer_to(&mut self, leg: Leg) -> &mut Transfer {
        self.directions(leg).1
    }

    const fn socket(&self, leg: Leg) -> &OwnedFd {
        match leg {
            Leg::Client => &self.client,
            Leg::Server => &self.server,
        }
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

    /// The transfer from this leg and the one to it.
    const fn directions(&mut self, leg: Leg) -> (&mut Transfer, &mut Transfer) {
        match leg {
            Leg::Client => (&mut self.to_server, &mut self.to_client),
            Leg::Server => (&mut self.to_client, &mut self.to_server),
        }
    }
}

/// Nanoseconds of a tenth of a second.
const TENTH: u64 = 100_000_000;

/// Tenths of seconds since the relay's start, rounded up: enough for 13 years.
fn tenths(now: Time) -> u32 {
    u32::try_from(now.nanoseconds().div_ceil(TENTH)).unwrap_or(u32::MAX)
}

fn has_data(socket: &OwnedFd) -> bool {
    rustix::net::recv(socket, &mut [0_u8; 1][..], RecvFlags::PEEK).is_ok_and(|(_, count)| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With its place in the table, two registrations in the kernel's epoll apart.
    #[test]
    fn an_idle_session_is_small() {
        let size = size_of::<Session>();
        assert!(size <= 408, "{size} bytes");
        // What it notes for observers; docs/observability.md says so.
        assert_eq!(size_of::<Record>(), 192);
    }
}
