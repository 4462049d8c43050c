//! Reads and parses a client's messages until its request is complete.

use std::net::SocketAddr;

use midspan_explicit::http::{Progress, Side};
use midspan_explicit::proxy_protocol::{self, Header, Reading};
use midspan_explicit::{Destination, Failure as ClientFailure, Host, Next, Refusal, Request};
use midspan_policy::overlay::HopRefusal;
use midspan_tls::Failure;
use midspan_units::Time;
use rustix::io::Errno;

use super::super::{INPUT_LIMIT, Reason};
use super::{NegotiatingClient, Speaker, Stage, Step};

impl NegotiatingClient {
    /// Reads and parses until a request is complete.
    pub(super) fn listen(&mut self, now: Time) -> Step {
        loop {
            match self.understand(now) {
                Some(step) => return step,
                None => match self.read() {
                    Ok(0) if self.is_idle => {
                        self.close_in_order();
                        return Step::End(None);
                    }
                    Ok(0) => return Step::End(Some(Reason::Gone)),
                    Ok(_) if self.is_idle => {
                        self.is_idle = false;
                        self.begin = now;
                        self.deadline = now + self.settings.timeout;
                    }
                    Ok(_) => {}
                    Err(Errno::AGAIN) => {
                        self.may_have_more = false;
                        return self.answer_now();
                    }
                    Err(Errno::INTR) => {}
                    Err(_) if self.is_idle => return Step::End(None),
                    Err(_) => return Step::End(Some(self.why_gone())),
                },
            }
        }
    }

    /// Why the client's connection has ended before its request was complete.
    fn why_gone(&self) -> Reason {
        match self.client.failure() {
            Some(Failure::WrongKey) => Reason::Hop(HopRefusal::WrongKey),
            Some(Failure::NotTls) => Reason::Hop(HopRefusal::NotEncrypted),
            Some(Failure::Refused | Failure::Broken | Failure::Truncated) | None => Reason::Gone,
        }
    }

    /// Reads what the client has sent, as far as there is room. Its FIN stays to be read.
    pub(super) fn read_ahead(&mut self) {
        loop {
            match self.read() {
                Ok(0) | Err(Errno::AGAIN) => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => {
                    self.is_reset = true;
                    return;
                }
            }
        }
    }

    fn read(&mut self) -> rustix::io::Result<usize> {
        let mut buffer = [0_u8; 4096];
        let room = INPUT_LIMIT
            .saturating_sub(self.input.len())
            .min(buffer.len());
        // A protocol that needs more bytes than this has refused before.
        let Some(buffer) = buffer.get_mut(..room).filter(|buffer| !buffer.is_empty()) else {
            return Ok(0);
        };
        let count = self.client.receive(buffer)?;
        self.may_have_more = count == room;
        self.input.extend_from_slice(&buffer[..count]);
        Ok(count)
    }

    /// The next step after parsing the bytes read so far; `None` if more bytes are needed.
    fn understand(&mut self, now: Time) -> Option<Step> {
        if matches!(self.stage, Stage::Heading) {
            match proxy_protocol::read(&self.input) {
                Reading::More => return None,
                Reading::Malformed => return Some(Step::End(Some(Reason::Malformed))),
                Reading::Complete(header, length) => {
                    self.input.drain(..length);
                    if let Header::Proxied { client, server } = header {
                        self.client_address = client;
                        self.original_destination = Some(server);
                    }
                    self.stage = Stage::Speaking;
                    let client = self.client_address.ip();
                    if !self.settings.access.admits(client) {
                        return Some(Step::End(Some(Reason::Access)));
                    }
                    if self.is_drained(now) {
                        return Some(Step::End(Some(Reason::Drained)));
                    }
                    // Until now, the place belonged to no client.
                    if self.seat.assign(client).is_err() {
                        return Some(Step::End(Some(Reason::Crowded)));
                    }
                }
            }
        }
        loop {
            let credentials = self.credentials.as_deref();
            let step = match &mut self.language {
                // The client expects no answer before the server's.
                Speaker::Nobody(_) if self.is_too_fast => {
                    return Some(Step::End(Some(Reason::TooFast)));
                }
                Speaker::Nobody(server) => {
                    let server = *server;
                    self.begin_resolving(now);
                    return Some(match server {
                        Some(server) => Step::Decide(vec![server]),
                        None => Step::Choose,
                    });
                }
                Speaker::Socks5(socks) => socks.advance(&self.input, credentials),
                Speaker::Http(http) => http.advance(&self.input, credentials),
                Speaker::Hop(hop) => hop.advance(&self.input),
            };
            self.input.drain(..step.consumed.min(self.input.len()));
            self.to_client.extend(step.reply);
            match step.next {
                Next::More if step.consumed == 0 => return None,
                Next::More => {}
                Next::Connect(request) => return Some(self.request(request, now)),
                Next::Row(tag) => return Some(Step::Report(tag)),
                Next::Refuse(refusal) => {
                    let reason = match refusal {
                        Refusal::Malformed => Reason::Malformed,
                        Refusal::Unsupported => Reason::Unsupported,
                        Refusal::NoCredentials => Reason::NoCredentials,
                        Refusal::Unauthenticated => Reason::Unauthenticated,
                    };
                    return Some(self.refuse(Vec::new(), Some(reason), now));
                }
            }
        }
    }

    fn request(&mut self, request: Request, now: Time) -> Step {
        self.to_server = request.to_server;
        if let Some(mut exchange) = request.exchange {
            // The part of the body that has arrived; bytes behind it belong to the next request.
            let taken = exchange.take_in(Side::Request, &self.input, &mut self.to_server);
            self.input.drain(..taken);
            if let Progress::Unanswered(told) = exchange.outcome() {
                return self.refuse(told.into(), Some(Reason::Malformed), now);
            }
            self.exchange = Some(exchange);
        }
        match self.language {
            _ if self.is_too_fast => self.fail(ClientFailure::TooFast, Some(Reason::TooFast), now),
            Speaker::Hop(_) => self.receive_hop(request.destination, now),
            _ => self.look_for(request.destination, now),
        }
    }

    /// Looks the server's address up, if the client has named it.
    pub fn look_for(&mut self, destination: Destination, now: Time) -> Step {
        self.begin_resolving(now);
        let (host, port) = (destination.host.clone(), destination.port);
        self.destination = Some(destination);
        match host {
            Host::Address(address) => Step::Decide(vec![SocketAddr::new(address, port)]),
            Host::Name(name) => Step::Resolve(name),
        }
    }
}
