//! The admin listener: queries of an operator to a running relay, over HTTP.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /` | a page for browsers, which shows answers of the other requests |
//! | `GET /page.css`, `GET /page.js` | files of this page |
//! | `GET /metrics` | [metrics] in the OpenMetrics text format |
//! | `GET /sessions?after=ID&limit=N` | live sessions |
//! | `GET /sessions/ID` | one live session |
//! | `GET /summary?by=client&sort=rate&client=PREFIX&limit=N` | state, totals, and sorted clients, sessions or client prefixes |
//! | `GET /overlay` | the nodes of an overlay |
//! | `GET /overlay/routes?destination=HOST:PORT` | the routes of an overlay to a destination |
//! | `GET /learned?prefix=PREFIX&after=NEXT&limit=N` | what sessions have left for later ones |
//! | `GET /health?listener=NAME` | `ok`, or status 503 with the reason; the parameter is optional |
//!
//! Sessions ([`Answer`](midspan_relay::observation::Answer),
//! [`SessionReport`](midspan_relay::observation::SessionReport)), the summary
//! ([`Summary`](crate::summary::Summary)) and the learned data ([`Learned`](crate::learned::Learned)) are
//! JSON.
//!
//! The health page has status 503 if a thread of the relay has ended or is stuck, if the proxy drains or is
//! about to, if new connections of transparent listeners pass untouched, or if the named listener is drained.
//!
//! The same pages answer clients of the control socket, whose connections the helper passes on. The pages
//! answer queries and change nothing. A thread of their own serves them, so that queries do not delay data.
//! Connections, requests and times are bounded ([`midspan_service::pages`]).

pub(crate) mod host;
pub mod metrics;
mod page;
mod server;

use std::os::fd::OwnedFd;

use crate::Error;
use crate::control::AdminMessage;
use crate::fragmenting::FragmentCounters;
use crate::gate::GateObserver;
use crate::health::Health;
use host::HostCounters;
use midspan_linux::process_use::ProcessFiles;
use midspan_relay::observation::Observer;
use midspan_relay::remembered::Remembered;
use midspan_service::pages::{Clients, RunningServer, Server};

/// What is known of narrow clients, outside of sessions.
#[derive(Debug)]
pub(crate) struct NarrowObserver {
    /// What they were found to take.
    pub verdicts: Remembered,
    /// What the fragmenter has done.
    pub fragments: FragmentCounters,
}

/// The pages that are not served yet: to clients of the admin listener, and of the control socket.
#[derive(Debug)]
pub(crate) struct Admin {
    listener: Option<(AdminMessage, OwnedFd)>,
    passed: Option<OwnedFd>,
}

impl Admin {
    /// Pages for the admin listener, and for clients whose connections come over `passed`.
    pub const fn new(listener: Option<(AdminMessage, OwnedFd)>, passed: Option<OwnedFd>) -> Self {
        Self { listener, passed }
    }

    /// Whether there is an admin listener.
    pub const fn has_listener(&self) -> bool {
        self.listener.is_some()
    }

    /// Serves the pages, in a thread that ends with the process; `None` if there are no clients.
    ///
    /// # Errors
    /// The thread or its runtime cannot be had.
    pub fn start(
        self,
        relay: Observer,
        gate: Option<GateObserver>,
        narrow: NarrowObserver,
        host: Option<HostCounters>,
        process: Option<ProcessFiles>,
        health: Health,
    ) -> Result<Option<RunningServer>, Error> {
        let network = self.listener.map(|(settings, socket)| {
            let listener = std::net::TcpListener::from(socket);
            Clients::Network(listener, settings.names)
        });
        let clients: Vec<Clients> = network
            .into_iter()
            .chain(self.passed.map(Clients::Passed))
            .collect();
        if clients.is_empty() {
            return Ok(None);
        }
        let service = server::Service::new(relay, gate, narrow, host, process, health);
        Server::new(clients, service)
            .and_then(|server| {
                let failed = |error| tracing::error!("pages are no longer served: {error}");
                server.start("admin", || {}, failed)
            })
            .map(Some)
            .map_err(Error::system("start the thread of the admin listener"))
    }
}
