//! The process that serves the agent's metrics over HTTP. It has no privileges at all.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /metrics` | metrics in the OpenMetrics text format |
//! | `GET /status` | [`Status`] with the busiest flows, JSON |
//! | `GET /health` | `ok`, or status 503 if no report of the worker has arrived for a second |
//! | `GET /` | the list of these paths |

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use midspan_service::child::ChildProcess;
use midspan_service::message::MessageError;
use midspan_service::pages::{
    Clients, Pages, Reply, Server, StatusCode, failed, json, open_metrics, text,
};
use midspan_service::user::User;
use midspan_service::{logging, message};
use tracing::error;

use crate::worker::{give_up_rights, helper};
use crate::{Error, Status, metrics};

/// Greatest age of the worker's last message.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);

/// The process, for the helper; it is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct PagesProcess {
    process: ChildProcess,
    /// Whether its end has been reported, which happens once.
    has_ended: bool,
}

impl PagesProcess {
    /// Starts the process, which serves a loopback address.
    pub fn start(
        address: SocketAddr,
        arguments: &[String],
        user: Option<User>,
    ) -> Result<Self, Error> {
        if !address.ip().is_loopback() {
            return Err(Error::NotLoopback(address));
        }
        let listener =
            TcpListener::bind(address).map_err(|source| Error::Listen { address, source })?;
        listener
            .set_nonblocking(true)
            .map_err(Error::system("set up the listener of metrics"))?;
        let process = ChildProcess::start("the process of metrics", arguments, user, |_| {})?;
        message::send(
            process.connection(),
            &Status::default(),
            &[listener.as_fd()],
        )?;
        Ok(Self {
            process,
            has_ended: false,
        })
    }

    /// Sends the newest report; a report that the process has no time to read is left out. Returns how
    /// the process has ended, when this is first found.
    pub fn tell(&mut self, status: &Status) -> Option<ExitStatus> {
        if self.has_ended {
            return None;
        }
        if let Some(ended) = self.process.ended() {
            self.has_ended = true;
            return Some(ended);
        }
        // If this process has gone, the next report finds it.
        let _ = message::try_send(self.process.connection(), status);
        None
    }
}

/// The last report, and when it came.
type Latest = Arc<Mutex<(Status, Instant)>>;

/// The process, to be called by the program that [`run`](crate::run) starts. Its standard input is
/// the connection to the helper.
///
/// # Errors
/// It cannot serve. It returns without an error when the helper has ended.
pub fn pages_main() -> Result<(), Error> {
    logging::report_panics();
    let result = answer();
    midspan_log::finish();
    result
}

fn answer() -> Result<(), Error> {
    let helper = helper()?;
    let Ok(Some((status, mut descriptors))) = message::receive::<Status>(&helper) else {
        return Err(Error::NotStartedByHelper);
    };
    let listener = descriptors.pop().ok_or(Error::NotStartedByHelper)?;
    give_up_rights(&[])?;
    let latest: Latest = Arc::new(Mutex::new((status, Instant::now())));
    let pages = AgentPages(Arc::clone(&latest));
    let listener = TcpListener::from(listener);
    let clients = Clients::Network(listener, Vec::new());
    Server::new(vec![clients], pages)
        .and_then(|server| {
            let failed = |error| error!("metrics are no longer available: {error}");
            server.start("pages", || {}, failed)
        })
        .map_err(Error::system("start the thread of metrics"))?;
    loop {
        match message::receive(&helper) {
            Ok(Some((status, _))) => {
                let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
                *latest = (status, Instant::now());
            }
            // A report of another version: the next may be readable.
            Err(MessageError::Format(_)) => {}
            Ok(None) | Err(MessageError::Passing(_)) => break,
        }
    }
    Ok(())
}

struct AgentPages(Latest);

impl AgentPages {
    fn latest(&self) -> (Status, Instant) {
        let latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        latest.clone()
    }
}

impl Pages for AgentPages {
    async fn page(&self, path: &str, _query: &str) -> Reply {
        let (status, heard) = self.latest();
        match path {
            "/metrics" => match metrics::encode(status) {
                Ok(text) => open_metrics(text),
                Err(error) => failed(&error),
            },
            "/status" => json(&status),
            "/health" if heard.elapsed() < SILENCE_LIMIT => text(StatusCode::OK, "ok\n"),
            "/health" => {
                let said = "the worker sends no reports; all ACKs pass\n";
                text(StatusCode::SERVICE_UNAVAILABLE, said)
            }
            "/" => text(StatusCode::OK, "/metrics\n/status\n/health\n"),
            _ => text(StatusCode::NOT_FOUND, "no such page\n"),
        }
    }
}
