//! The process that serves the agent's metrics over HTTP. It has no privileges at all.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /metrics` | metrics in the OpenMetrics text format |
//! | `GET /status` | [`Status`] with the busiest flows, JSON |
//! | `GET /health` | `ok`, or status 503 if the worker has sent nothing for a second |

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use midspan_linux::{capability, descriptor_passing, sandbox};
use midspan_pages::{Pages, Reply, StatusCode, failed, json, open_metrics, text};

use crate::own_process::OwnProcess;
use crate::worker::{become_nobody, ignore_terminal};
use crate::{Error, Status, metrics};

/// Greatest age of the worker's last message.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);

/// The process, for the helper; it is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct PagesProcess {
    process: OwnProcess,
    /// Whether its end has been reported, which happens once.
    has_ended: bool,
}

impl PagesProcess {
    /// Starts the process, which serves a loopback address.
    pub fn start(address: SocketAddr, arguments: &[String]) -> Result<Self, Error> {
        if !address.ip().is_loopback() {
            return Err(Error::NotLoopback(address));
        }
        let listener =
            TcpListener::bind(address).map_err(|source| Error::Listen { address, source })?;
        listener
            .set_nonblocking(true)
            .map_err(Error::system("set up the listener of metrics"))?;
        let action = "start the process of metrics (/proc/self/exe)";
        let process = OwnProcess::start(arguments, action)?;
        let first = serde_json::to_vec(&Status::default()).unwrap_or_default();
        descriptor_passing::send(&process.connection, &first, &[listener.as_fd()])?;
        // From here on no thread waits for this connection.
        rustix::io::ioctl_fionbio(&process.connection, true)
            .map_err(Error::system("set up a socket pair"))?;
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
        if let Ok(bytes) = serde_json::to_vec(status) {
            let _ = descriptor_passing::send(&self.process.connection, &bytes, &[]);
        }
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
    midspan_log::report_panics(midspan_log::say);
    let result = answer();
    midspan_log::finish();
    result
}

fn answer() -> Result<(), Error> {
    let helper = descriptor_passing::inherited(0).map_err(|_| Error::NotStartedByHelper)?;
    let Ok(Some(mut message)) = descriptor_passing::receive(&helper) else {
        return Err(Error::NotStartedByHelper);
    };
    let listener = message.descriptors.pop().ok_or(Error::NotStartedByHelper)?;
    ignore_terminal()?;
    become_nobody()?;
    capability::give_up_all_but(&[])?;
    sandbox::enter()?;
    let latest: Latest = Arc::new(Mutex::new((Status::default(), Instant::now())));
    let pages = AgentPages(Arc::clone(&latest));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(Error::system("start the runtime of metrics"))?;
    std::thread::Builder::new()
        .name("pages".to_owned())
        .spawn(move || {
            let served = midspan_pages::serve(TcpListener::from(listener), pages, Vec::new());
            if let Err(error) = runtime.block_on(served) {
                midspan_log::say(&format!("metrics can no longer be asked for: {error}"));
            }
        })
        .map_err(Error::system("start the thread of metrics"))?;
    while let Ok(Some(message)) = descriptor_passing::receive(&helper) {
        if let Ok(status) = serde_json::from_slice(&message.bytes) {
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = (status, Instant::now());
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
