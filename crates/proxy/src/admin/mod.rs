//! The admin listener: queries of an operator to a running relay, over HTTP.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /metrics` | [metrics] in the OpenMetrics text format |
//! | `GET /sessions?after=ID&limit=N` | live sessions, JSON ([`Answer`](midspan_relay::observation::Answer)) |
//! | `GET /sessions/ID` | one live session, JSON ([`SessionReport`](midspan_relay::observation::SessionReport)) |
//! | `GET /health` | `ok`, or status 503 and why: a thread of the relay has ended or is stuck, the proxy drains, no transparent listener intercepts connections |
//!
//! It only answers queries and changes nothing. It has a thread of its own, so that queries do not
//! delay data. Connections, requests and times are bounded ([`midspan_service::pages`]).

pub mod client;
pub(crate) mod host;
pub mod metrics;
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
use midspan_service::pages;

/// What is known of narrow clients, outside of sessions.
#[derive(Debug)]
pub(crate) struct NarrowObserver {
    /// What they were found to take.
    pub verdicts: Remembered,
    /// What the fragmenter has done.
    pub fragments: FragmentCounters,
}

/// An admin listener that is not served yet.
#[derive(Debug)]
pub(crate) struct Admin {
    settings: AdminMessage,
    socket: OwnedFd,
}

impl Admin {
    pub const fn new(settings: AdminMessage, socket: OwnedFd) -> Self {
        Self { settings, socket }
    }

    /// Serves it, in a thread that ends with the process.
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
    ) -> Result<(), Error> {
        let service = server::Service::new(relay, gate, narrow, host, process, health);
        let listener = std::net::TcpListener::from(self.socket);
        let names = self.settings.names;
        pages::serve_in_thread("admin", listener, service, names, |error| {
            tracing::error!("the admin listener ends: {error}");
        })
        .map_err(Error::system("start the thread of the admin listener"))
    }
}
