//! From a negotiation to the session that begins.

use std::net::SocketAddr;
use std::sync::Arc;

use midspan_explicit::hop::HopAnswer;
use midspan_explicit::{Outcome, proxy_protocol};
use midspan_policy::{Handshake, Request};

use super::super::flush;
use super::{NegotiatingClient, Speaker, Stage, Step, canonical};
use crate::arrival::Arrival;
use crate::exchange::{Framed, Kept};
use crate::leg_socket::LegSocket;
use crate::listener::Language;
use crate::register::SharedSocket;
use crate::system;

/// The start of a session.
pub struct Joined {
    pub arrival: Arrival,
    pub client: LegSocket,
    pub server: LegSocket,
    pub listener: usize,
    /// The server's name, if the client gave one.
    pub name: Option<Box<str>>,
    /// The first bytes for the server and for the client.
    pub first: [Vec<u8>; 2],
    /// Bytes of the client that were passed on before the answer of the next node.
    pub first_data: u64,
    /// The HTTP exchange that the session carries, if it carries nothing else.
    pub framed: Option<Framed>,
}

impl NegotiatingClient {
    /// The server is connected, over further nodes with `answer`. The first bytes for both ends are sent
    /// as far as there is room; the rest goes into the session. If a socket fails, the session handles
    /// the error.
    pub(super) fn connected(
        &mut self,
        address: SocketAddr,
        server: SharedSocket,
        answer: Option<&HopAnswer>,
    ) -> Step {
        match &self.language {
            Speaker::Nobody(_) => {}
            Speaker::Socks5(socks) => {
                let own = system::own_address(&server).unwrap_or(address);
                let outcome = Outcome::Connected(canonical(own));
                self.to_client.extend(socks.answer(outcome));
            }
            Speaker::Http(http) => {
                let outcome = Outcome::Connected(address);
                self.to_client.extend(http.answer(outcome));
            }
            Speaker::Hop(hop) => self.to_client.extend(match answer {
                Some(answer) => hop.pass_on(answer, self.connect_time),
                None => hop.answer(Outcome::Connected(address), self.connect_time),
            }),
        }
        let mut first = match self.settings.header {
            Some(version) => {
                let original_destination = self.original_destination.unwrap_or(address);
                proxy_protocol::write(version.into(), self.client_address, original_destination)
            }
            None => Vec::new(),
        };
        first.append(&mut self.to_server);
        if self.exchange.is_none() {
            first.append(&mut self.input);
        }
        self.to_server = first;
        let _ = flush(&self.client, &mut self.to_client);
        let _ = flush(&server, &mut self.to_server);
        self.stage = Stage::Connected(address, server);
        Step::Join
    }

    /// The start of the session; `None` before [`Step::Join`], or if the thread has just been replaced.
    pub fn into_joined(mut self) -> Option<Joined> {
        let name = self.name();
        let window = self.memory.split_window();
        let Stage::Connected(address, server) = self.stage else {
            return None;
        };
        let request = Request {
            client: self.client_address,
            server: address,
        };
        let handshake = match self.settings.language {
            Language::Original => Handshake::Early,
            _ => Handshake::EndToEnd,
        };
        let arrival = Arrival {
            seat: Some(Arc::into_inner(self.seat)?),
            is_bypassed: self.is_plain,
            window,
            ..Arrival::new(request, handshake, self.begin)
        };
        let kept = Kept {
            settings: self.settings,
            credentials: self.credentials,
            original_destination: self.original_destination,
            leftover: self.input,
            reading: self.reading,
        };
        Some(Joined {
            arrival,
            client: Arc::into_inner(self.client)?,
            server: Arc::into_inner(server)?,
            listener: self.listener,
            name,
            first: [self.to_server, self.to_client],
            first_data: self.first_data,
            framed: self.exchange.map(|exchange| Framed::new(exchange, kept)),
        })
    }
}
