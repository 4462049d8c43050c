//! A hop of an overlay: HTTP/1.1 `CONNECT` between two nodes.
//!
//! ```text
//! CONNECT 203.0.113.7:443 HTTP/1.1
//! Host: 203.0.113.7:443
//! Forwarded: for="[2001:db8::7]:51812"      RFC 7239: the client
//! Midspan-Route: fra, sin                   the nodes after the next one, the exit last
//! Via: 1.1 ams                              RFC 9110 §7.6.3: the nodes that were passed
//!
//! HTTP/1.1 200 Connection established
//! Server-Timing: sin;dur=41.2, fra;dur=30   how long each node took to connect, in milliseconds
//!
//! HTTP/1.1 502 Bad Gateway
//! Proxy-Status: sin; error=connection_refused      RFC 9209: which node has failed, and why
//! ```
//!
//! The request of the last hop has no `Midspan-Route`: the node that reads it connects to the server.
//! After an answer with status 2xx, the connection carries the bytes of the session, and its FIN and RST
//! are those of the session. After any other answer it is closed, and nothing that follows is read.
//!
//! Nodes also request another node's measurements of its legs, over connections that stay open:
//! [`row_request`], [`row_answer`].
//!
//! The module parses and writes. Whether the fields of a request are trusted depends on its sender, and
//! is decided by [`Overlay::receive`](midspan_policy::overlay::Overlay::receive).

mod answer;
mod forwarded;
mod node_list;
mod proxy_status;
mod request;
mod row;
mod server_timing;

use std::net::SocketAddr;

use midspan_policy::overlay::{HopRefusal, NodeName};
use midspan_units::TimeSpan;

pub use crate::row_tag::RowTag;
pub use answer::{AnswerReader, HopAnswer, InvalidAnswer};
pub use proxy_status::{HopError, HopFailure};
pub use request::{HopRequest, InvalidRequest};
pub use row::{InvalidRow, RowReader, row_answer, row_request};
pub use server_timing::{ConnectTime, MOST_CONNECT_TIMES};

use crate::Refusal;
use crate::exchange::head::HeadEnd;
use crate::http::request_head::{self, Reading};
use crate::negotiation::{Failure, Next, Outcome, Request, Step};

/// One hop, at the node that receives it.
#[derive(Debug, Clone)]
pub struct Hop {
    own: NodeName,
    head: HeadEnd,
    request: Option<HopRequest>,
}

/// What a sender requests.
enum Wanted {
    /// The row of this node, unless the sender has it already.
    Row(Option<RowTag>),
    Hop(HopRequest),
}

impl Hop {
    /// A hop of which nothing has been read, at the node of this name.
    #[must_use]
    pub fn new(own: NodeName) -> Self {
        Self {
            own,
            head: HeadEnd::default(),
            request: None,
        }
    }

    /// Handles the bytes from the sender that are not consumed yet. After a step with [`Next::Connect`],
    /// [`request`](Self::request) returns the whole request. After [`Next::Row`], the sender may send another
    /// request.
    pub fn advance(&mut self, input: &[u8]) -> Step {
        let read = request_head::read(&mut self.head, input, |request, length| {
            let is_row = request.method == Some("GET") && request.path == Some(row::PATH);
            match is_row && request.version == Some(1) {
                true => (Ok(Wanted::Row(RowTag::of_request(request.headers))), length),
                false => (HopRequest::parse(request).map(Wanted::Hop), length),
            }
        });
        match read {
            Reading::Whole((Ok(Wanted::Row(tag)), consumed)) => {
                self.head = HeadEnd::default();
                Step {
                    consumed,
                    reply: Vec::new(),
                    next: Next::Row(tag),
                }
            }
            Reading::More(consumed) => Step::more(consumed, Vec::new()),
            Reading::TooLarge | Reading::Wrong => self.malformed(0),
            Reading::Whole((Err(_), length)) => self.malformed(length),
            Reading::Whole((Ok(Wanted::Hop(request)), length)) => {
                let destination = request.destination.clone();
                self.request = Some(request);
                Step {
                    consumed: length,
                    reply: Vec::new(),
                    next: Next::Connect(Request {
                        destination,
                        to_server: Vec::new(),
                        exchange: None,
                    }),
                }
            }
        }
    }

    /// The request, once it is complete.
    #[must_use]
    pub const fn request(&self) -> Option<&HopRequest> {
        self.request.as_ref()
    }

    /// The answer of an exit after the attempt to connect to the server, which took `time`.
    #[must_use]
    pub fn answer(&self, outcome: Outcome, time: TimeSpan) -> Vec<u8> {
        match outcome {
            Outcome::Connected(_) => self.pass_on(&HopAnswer::default(), time),
            Outcome::Failed(failure) => self.fail(failure.into()),
        }
    }

    /// The answer of a transit node: the next node's, and the `time` that it took to connect to it.
    #[must_use]
    pub fn pass_on(&self, answer: &HopAnswer, time: TimeSpan) -> Vec<u8> {
        let mut answer = answer.clone();
        if answer.failure.is_none() && answer.connect_times.len() < MOST_CONNECT_TIMES {
            let node = self.own.clone();
            answer.connect_times.push(ConnectTime { node, time });
        }
        answer.write()
    }

    /// The answer to a hop that this node refuses.
    #[must_use]
    pub fn refuse(&self, refusal: HopRefusal) -> Vec<u8> {
        self.fail(match refusal {
            HopRefusal::Loop => HopError::ProxyLoopDetected,
            HopRefusal::Stranger
            | HopRefusal::WrongKey
            | HopRefusal::NotEncrypted
            | HopRefusal::Forged
            | HopRefusal::TooLong
            | HopRefusal::NoTransit
            | HopRefusal::UnknownNode
            | HopRefusal::NoExit
            | HopRefusal::ForeignClient => HopError::HttpRequestDenied,
        })
    }

    fn malformed(&self, consumed: usize) -> Step {
        let reply = self.fail(HopError::HttpRequestError);
        Step::refuse(consumed, reply, Refusal::Malformed)
    }

    /// The answer of a node that has failed itself.
    #[must_use]
    pub fn fail(&self, error: HopError) -> Vec<u8> {
        let failure = HopFailure {
            node: Some(self.own.clone()),
            error,
        };
        HopAnswer {
            failure: Some(failure),
            connect_times: Vec::new(),
        }
        .write()
    }
}

/// The client's address without what only has a meaning on its own host.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl From<Failure> for HopError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused => Self::ConnectionRefused,
            Failure::TimedOut => Self::ConnectionTimeout,
            Failure::HostUnreachable | Failure::NetworkUnreachable => Self::DestinationIpUnroutable,
            Failure::NameNotFound => Self::DnsError,
            Failure::NotAllowed => Self::DestinationIpProhibited,
            Failure::Shortage | Failure::TooFast => Self::ConnectionLimitReached,
            Failure::RouteBroken => Self::DestinationUnavailable,
        }
    }
}
