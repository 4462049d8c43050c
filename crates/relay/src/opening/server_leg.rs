//! How an acceptor opens the server legs of its sessions.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use midspan_linux::tcp;
use midspan_policy::{LegStart, Request};
use midspan_units::{Dscp, Time};
use rustix::io::Errno;

use super::Acceptor;
use crate::destination::ServerLegSource;
use crate::leg_options;
use crate::legs::{self, Connecting};
use crate::limits::{Limits, SetAside};

/// The address from which the server leg of a negotiation connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewLegSource {
    /// One of this machine.
    Own,
    /// This one of this machine, because it leads over an uplink.
    Uplink(IpAddr),
    /// The client's, and its port if possible.
    Client,
}

impl Acceptor {
    /// Begins to connect to one of the addresses of a server, for a session that is relayed without any
    /// mechanism if `is_plain`. `class` is that of the client's SYN. Also returns the memory that is set aside
    /// for a large receive window.
    ///
    /// # Errors
    /// Those of `socket(2)`, `bind(2)` and `connect(2)`.
    pub fn connect_new(
        &mut self,
        now: Time,
        (request, is_plain): (&Request, bool),
        way: (Dscp, NewLegSource),
        limits: &Arc<Limits>,
    ) -> rustix::io::Result<(Connecting, Option<SetAside>)> {
        let mut start = LegStart::default();
        let mut window = None;
        if !is_plain {
            let known = &mut self.knowledge;
            start = self.policy.server_start(now, request, &[], known);
            window = limits.offer_window(&mut start);
        }
        let connecting = self.connect_from(request, start, way)?;
        Ok((connecting, window))
    }

    fn connect_from(
        &mut self,
        request: &Request,
        start: LegStart,
        (class, source): (Dscp, NewLegSource),
    ) -> rustix::io::Result<Connecting> {
        match source {
            NewLegSource::Own => {
                self.connect_server(ServerLegSource::OwnAddress, *request, start, class)
            }
            NewLegSource::Uplink(from) => {
                let from = Some(SocketAddr::new(from, 0));
                let set_up = |socket: &OwnedFd| self.set_up_server(socket, &start, class);
                legs::connect_as_proxy(request.server, from, set_up)
            }
            NewLegSource::Client => {
                self.connect_server(ServerLegSource::ClientAddress, *request, start, class)
            }
        }
    }

    /// A server leg that is being connected, or is connected. `start` is what it is set to if it is
    /// new.
    ///
    /// # Errors
    /// Those of `socket(2)`, `bind(2)`, `connect(2)`.
    pub(super) fn connect_server(
        &mut self,
        source: ServerLegSource,
        request: Request,
        start: LegStart,
        class: Dscp,
    ) -> rustix::io::Result<Connecting> {
        match source {
            ServerLegSource::Connecting(socket) => Ok(Connecting {
                socket,
                option_errors: 0,
            }),
            ServerLegSource::ClientAddress => {
                match legs::connect_as_client(request, 0, &self.listener, &start, class) {
                    // The client's port is privileged, or in use, as by a session that has just ended:
                    // any port.
                    Err(Errno::ACCESS | Errno::ADDRINUSE | Errno::ADDRNOTAVAIL) => {
                        let mut request = request;
                        request.client.set_port(0);
                        legs::connect_as_client(request, 0, &self.listener, &start, class)
                    }
                    result => result,
                }
            }
            ServerLegSource::OwnAddress => self.connect_as_proxy(request.server, &start, class),
        }
    }

    /// Connects from the next of the listener's addresses. An address without a free port for this
    /// server, or one that the machine has lost, leads to the address after it.
    fn connect_as_proxy(
        &mut self,
        server: SocketAddr,
        start: &LegStart,
        class: Dscp,
    ) -> rustix::io::Result<Connecting> {
        let listener = Arc::clone(&self.listener);
        let turn = self.connected;
        self.connected = turn.wrapping_add(1);
        let mut result = Err(Errno::ADDRNOTAVAIL);
        for source in listener.source.in_turn(server, turn) {
            let set_up = |socket: &OwnedFd| self.set_up_server(socket, start, class);
            result = legs::connect_as_proxy(server, source, set_up);
            if !matches!(result, Err(Errno::ADDRNOTAVAIL)) {
                break;
            }
        }
        result
    }

    fn set_up_server(&mut self, server: &OwnedFd, leg: &LegStart, class: Dscp) -> u64 {
        let mut leg = leg.clone();
        // Most sessions end before keep-alive matters: see `keep_server_alive`.
        if leg.keepalive == self.listener.session.server.keepalive {
            leg.keepalive = None;
        }
        let mut errors = u64::from(legs::set_common_options(server).is_err());
        if let Some(mark) = self.listener.marks.server {
            errors += self.note(tcp::set_mark(server, mark));
        }
        let result = self.listener.set_up_leg(server, &leg, class);
        errors + self.note(result)
    }

    /// Sets keep-alive on the server leg of a session that lasts; returns the number of refused
    /// options.
    pub fn keep_server_alive(&mut self, server: &OwnedFd) -> u64 {
        let keepalive = self.listener.session.server.keepalive;
        if keepalive.is_none() {
            return 0;
        }
        let start = LegStart {
            keepalive,
            ..LegStart::default()
        };
        self.note(leg_options::apply(server, &start))
    }
}
