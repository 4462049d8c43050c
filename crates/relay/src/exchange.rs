//! A session that carries one request of HTTP and its answer, and where its client goes then.

use std::net::SocketAddr;
use std::sync::Arc;

use midspan_explicit::Credentials;
use midspan_explicit::http::{Exchange, Progress, Side, Verdict, Wanted};
use midspan_units::{Time, TimeSpan};

use super::listener::Negotiation;
use super::observation::LastReading;
use super::pipes::BUFFER_SIZE;

/// How long the server may take to end its connection once it has answered, as it was asked to, and
/// the client where it was told so. Whoever ends a connection first keeps its ports for a minute
/// (`TIME_WAIT`). A client does not wait for the server with its next request.
const SERVER_END: TimeSpan = TimeSpan::from_seconds(1);

/// Most bytes of a request that are read at once to be looked at: those behind it are kept.
const REQUEST_PIECE: usize = 16 << 10;

/// After a chunk of this size the next one's size is read with little else, so that its data is
/// not copied.
const LARGE_CHUNK: u64 = 128 << 10;
/// As much as is read then.
const SMALL_PIECE: usize = 512;

/// What goes with a client from one exchange to the next.
#[derive(Debug)]
pub struct Kept {
    /// How its listener negotiates.
    pub settings: Arc<Negotiation>,
    /// Who may use it.
    pub credentials: Option<Arc<Credentials>>,
    /// Whom the client has called: this proxy, or as a proxy tells.
    pub called: Option<SocketAddr>,
    /// Read of it, behind what was understood.
    pub leftover: Vec<u8>,
    /// What has been counted of its connection.
    pub reading: LastReading,
}

/// One request and its answer, as a session carries them.
#[derive(Debug)]
pub struct Framed {
    /// How far they are.
    pub exchange: Exchange,
    /// What goes with the client.
    pub kept: Kept,
    /// The client has sent something behind its request.
    client_waits: bool,
    /// The client has its answer and is told that nothing follows.
    is_client_finished: bool,
    /// The server is not waited for any longer.
    leave_at: Option<Time>,
    /// Nothing is left to do here.
    is_over: bool,
    /// Bytes that have passed since some were looked at.
    passed: u64,
}

/// How the two legs are, for whoever decides whether all is over.
#[derive(Debug, Clone, Copy)]
pub struct LegState {
    /// All that was read of the answer has been handed to the kernel.
    pub is_told: bool,
    /// The same of the request.
    pub is_asked: bool,
    /// The server has ended its connection, or it has failed.
    pub server_ended: bool,
    /// The same of the client.
    pub client_ended: bool,
}

impl Framed {
    /// With a client that has said what it wants, and a server that is connected.
    pub const fn new(exchange: Exchange, kept: Kept) -> Self {
        Self {
            exchange,
            kept,
            client_waits: false,
            is_client_finished: false,
            leave_at: None,
            is_over: false,
            passed: 0,
        }
    }

    /// What is wanted of a side.
    pub const fn wanted(&self, side: Side) -> Wanted {
        self.exchange.wanted(side)
    }

    /// How much of a side is to be read at once, to be looked at.
    pub const fn piece(&self, side: Side) -> usize {
        match side {
            _ if self.passed >= LARGE_CHUNK => SMALL_PIECE,
            Side::Request => REQUEST_PIECE,
            Side::Answer => BUFFER_SIZE,
        }
    }

    /// So many bytes have passed without being looked at.
    pub fn handle_passed(&mut self, side: Side, count: u64) {
        self.passed = self.passed.saturating_add(count);
        self.exchange.handle_passed(side, count);
    }

    /// What is to be sent for these bytes is in `output` then; or they pass as they are, if this is
    /// `true`. What the client has sent behind its request is kept; what the server has sent behind
    /// its answer means nothing.
    pub fn take_in(&mut self, side: Side, input: &[u8], output: &mut Vec<u8>) -> bool {
        self.passed = 0;
        output.clear();
        let mut taken = match self.exchange.look(side, input) {
            Verdict::Pass(count) if count == input.len() => return true,
            Verdict::Pass(count) => {
                output.extend_from_slice(input.get(..count).unwrap_or(input));
                count
            }
            Verdict::Take(count) => count,
            Verdict::Replace(count, bytes) => {
                output.extend(bytes);
                count
            }
            Verdict::Stop => 0,
        };
        let rest = input.get(taken..).unwrap_or_default();
        taken += self.exchange.take_in(side, rest, output);
        if side == Side::Request {
            let behind = input.get(taken..).unwrap_or_default();
            self.kept.leftover.extend_from_slice(behind);
        }
        false
    }

    /// Whether it has to be asked if the client has sent something behind its request.
    pub const fn may_client_wait(&self) -> bool {
        !self.client_waits && self.kept.leftover.is_empty()
    }

    /// It has.
    pub const fn handle_client_waits(&mut self) {
        self.client_waits = true;
    }

    /// Finds out whether nothing is left to do; when to ask again without an event.
    pub fn look(&mut self, legs: LegState, now: Time) -> Option<Time> {
        let answered = match self.exchange.outcome() {
            Progress::Answered { .. } => legs.is_told,
            Progress::Unanswered(_) => {
                self.is_over = legs.is_told;
                return None;
            }
            Progress::Going | Progress::Broken | Progress::Tunnel => false,
        };
        if !answered {
            return None;
        }
        let is_asked = self.exchange.is_request_complete() && legs.is_asked;
        let has_ended = match self.stays_open() || !is_asked {
            true => legs.server_ended || legs.client_ended,
            // Both connections end here, as a rule.
            false => legs.server_ended && legs.client_ended,
        };
        if has_ended {
            self.is_over = true;
        } else if is_asked {
            self.is_client_finished = !self.stays_open();
            let leave_at = *self.leave_at.get_or_insert(now + SERVER_END);
            self.is_over = !self.may_client_wait() || now >= leave_at;
            return (!self.is_over).then_some(leave_at);
        }
        None
    }

    /// Whether the client has its answer and is told that nothing follows: its leg is shut down.
    pub const fn is_client_finished(&self) -> bool {
        self.is_client_finished
    }

    /// Whether nothing is left to do.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether the client may send another request.
    pub const fn stays_open(&self) -> bool {
        let told = matches!(
            self.exchange.outcome(),
            Progress::Answered { stays_open: true }
        );
        told && self.exchange.is_request_complete()
    }
}
