//! A session that carries one HTTP request and its answer, and what then happens to its client.

use std::net::SocketAddr;
use std::sync::Arc;

use midspan_explicit::Credentials;
use midspan_explicit::http::{Exchange, Progress, Side, Verdict, Wanted};
use midspan_units::{Time, TimeSpan};

use super::listener::Negotiation;
use super::observation::LastReading;
use super::pipes::BUFFER_SIZE;

/// How long the relay waits, after the answer, for the server to close its connection, and for a
/// client that was informed of the close. The end that closes first keeps the ports for a minute
/// (`TIME_WAIT`), so it is better that the peer closes. A client does not wait for the server
/// before its next request.
const SERVER_END: TimeSpan = TimeSpan::from_seconds(1);

/// Most bytes of a request that are read at once to be parsed. The next request may follow, and its
/// bytes must be kept.
const REQUEST_PIECE: usize = 16 << 10;

/// After a chunk of at least this size, only a few bytes are read together with the next chunk's
/// size, so that the next chunk's data can be spliced.
const LARGE_CHUNK: u64 = 128 << 10;
/// The number of bytes that are read in this case.
const SMALL_PIECE: usize = 512;

/// State that a client keeps from one exchange to the next.
#[derive(Debug)]
pub struct Kept {
    /// How the listener negotiates.
    pub settings: Arc<Negotiation>,
    /// Users and passwords of the listener.
    pub credentials: Option<Arc<Credentials>>,
    /// The address to which the client connected: this proxy's, or the one in a PROXY header.
    pub original_destination: Option<SocketAddr>,
    /// Bytes that were read from the client and belong to the next request.
    pub leftover: Vec<u8>,
    /// The counters of the client's connection that have already been added to the statistics.
    pub reading: LastReading,
}

/// One request and its answer, as a session carries them.
#[derive(Debug)]
pub struct Framed {
    /// The state of request and answer.
    pub exchange: Exchange,
    /// The state that the client keeps.
    pub kept: Kept,
    /// The client has sent data behind its request.
    client_waits: bool,
    /// The client has its answer, and its leg is shut down.
    is_client_finished: bool,
    /// When to stop waiting for the server.
    leave_at: Option<Time>,
    /// The exchange is over.
    is_over: bool,
    /// Bytes that have passed since the last parsed ones.
    passed: u64,
}

/// The state of the two legs, from which the end of the exchange is decided.
#[derive(Debug, Clone, Copy)]
pub struct LegState {
    /// The kernel has all bytes of the answer that were read.
    pub is_told: bool,
    /// The kernel has all bytes of the request that were read.
    pub is_asked: bool,
    /// The server has ended its connection, or the leg has failed.
    pub server_ended: bool,
    /// The client has ended its connection, or the leg has failed.
    pub client_ended: bool,
}

impl Framed {
    /// An exchange for a client whose request is known, and a connected server.
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

    /// What to do with the bytes of a side.
    pub const fn wanted(&self, side: Side) -> Wanted {
        self.exchange.wanted(side)
    }

    /// How many bytes of a side to read at once to be parsed.
    pub const fn piece(&self, side: Side) -> usize {
        match side {
            _ if self.passed >= LARGE_CHUNK => SMALL_PIECE,
            Side::Request => REQUEST_PIECE,
            Side::Answer => BUFFER_SIZE,
        }
    }

    /// This many bytes have passed without being parsed.
    pub fn handle_passed(&mut self, side: Side, count: u64) {
        self.passed = self.passed.saturating_add(count);
        self.exchange.handle_passed(side, count);
    }

    /// Parses bytes of a side. If the result is `true`, they pass unchanged; otherwise `output`
    /// contains the bytes to send instead. Bytes that the client has sent behind its request are
    /// kept; bytes that the server has sent behind its answer are dropped.
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

    /// Whether the relay has to check if the client has sent data behind its request.
    pub const fn may_client_wait(&self) -> bool {
        !self.client_waits && self.kept.leftover.is_empty()
    }

    /// The client has sent such data.
    pub const fn handle_client_waits(&mut self) {
        self.client_waits = true;
    }

    /// Checks whether the exchange is over. Returns when to check again without an event.
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
            // Normally both connections end here.
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

    /// Whether the client has its answer and its leg is to be shut down.
    pub const fn is_client_finished(&self) -> bool {
        self.is_client_finished
    }

    /// Whether the exchange is over.
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
