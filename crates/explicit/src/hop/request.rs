//! The request of a hop.

use std::net::SocketAddr;

use midspan_policy::overlay::{NextHop, NodeKind, NodeName};
use thiserror::Error;

use super::{forwarded, node_list, plain};
use crate::Destination;
use crate::exchange::fields;
use crate::http::request_head;

const ROUTE: &str = "Midspan-Route";

/// The request of a hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopRequest {
    /// The server; its name is looked up by the exit.
    pub destination: Destination,
    /// The client of the session, with port 0 if its port is unknown; `None` if it is not named.
    pub client: Option<SocketAddr>,
    /// The nodes after the one that reads the request, the exit last; empty if this one is the exit.
    pub route: Vec<NodeName>,
    /// The nodes that the session has passed, the ingress first.
    pub via: Vec<NodeName>,
}

/// Why a request is not that of a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidRequest {
    /// It is not `CONNECT`.
    #[error("a hop has the method CONNECT")]
    Method,
    /// It is not HTTP/1.1.
    #[error("a hop has the version HTTP/1.1")]
    Version,
    /// Its target is no host with a port.
    #[error("the target is no host with a port")]
    Target,
    /// Its `Host` is missing, occurs twice, or is another server than its target.
    #[error("the field Host is not the target")]
    Host,
    /// It announces a body.
    #[error("a CONNECT has no body")]
    Body,
    /// Its route is no list of nodes.
    #[error("the field {ROUTE} is no list of nodes")]
    Route,
    /// Its `Via` is no list of nodes.
    #[error("the field Via is no list of nodes")]
    Via,
    /// Its `Forwarded` has no client, neither hidden nor with an address.
    #[error("the field Forwarded is malformed")]
    Forwarded,
}

impl HopRequest {
    /// The request of the next hop of a session for `client`: to `next`, by the nodes that were passed
    /// so far, this one the last.
    #[must_use]
    pub fn to_next(
        destination: Destination,
        client: SocketAddr,
        next: &NextHop,
        via: Vec<NodeName>,
    ) -> Self {
        // The client's address concerns no proxy of another operator.
        let client = (next.kind == NodeKind::Midspan).then_some(client);
        Self {
            destination,
            client,
            route: next.rest.clone(),
            via,
        }
    }

    /// Reads a whole head.
    ///
    /// # Errors
    /// The first rule that the head breaks.
    pub(super) fn parse(request: &httparse::Request<'_, '_>) -> Result<Self, InvalidRequest> {
        use InvalidRequest as Invalid;
        if request.method != Some("CONNECT") {
            return Err(Invalid::Method);
        }
        if request.version != Some(1) {
            return Err(Invalid::Version);
        }
        let destination = request_head::authority(request).map_err(|_| Invalid::Target)?;
        let head = &*request.headers;
        let mut hosts = fields::values(head, "host");
        let is_target = |value: &[u8]| {
            let text = std::str::from_utf8(value).ok();
            let host =
                text.and_then(|text| Destination::parse(text.trim(), Some(destination.port)).ok());
            host.as_ref() == Some(&destination)
        };
        if !hosts.next().is_some_and(is_target) || hosts.next().is_some() {
            return Err(Invalid::Host);
        }
        let has = |name| fields::values(head, name).next().is_some();
        if has("content-length") || has("transfer-encoding") {
            return Err(Invalid::Body);
        }
        Ok(Self {
            client: forwarded::client(head).map_err(|()| Invalid::Forwarded)?,
            route: node_list::nodes(head, ROUTE).ok_or(Invalid::Route)?,
            via: node_list::via(head).ok_or(Invalid::Via)?,
            destination,
        })
    }

    /// The bytes of the request.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let server = &self.destination;
        let mut head = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n");
        if let Some(client) = self.client.map(plain) {
            head.push_str(&format!("Forwarded: for=\"{client}\"\r\n"));
        }
        node_list::write(&mut head, ROUTE, "", &self.route);
        node_list::write(&mut head, "Via", "1.1 ", &self.via);
        head.push_str("\r\n");
        head.into_bytes()
    }
}
