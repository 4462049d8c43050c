//! The pages of the control socket: commands, which the helper carries out, and everything else,
//! which the relay answers as it answers at the admin listener.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use midspan_linux::descriptor_passing;
use midspan_service::pages::{Method, Pages, Reply, StatusCode, json_with, only, text};
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;

use crate::client::{self, HOST_NAME};
use crate::command::{Answer, Refusal, Request};

/// How long the relay may take for a page.
const RELAY_LIMIT: Duration = Duration::from_secs(10);

/// A command that waits for the helper.
#[derive(Debug)]
pub(super) struct Command {
    pub request: Request,
    pub reply: oneshot::Sender<Answer>,
}

/// Answers requests, in a thread of its own.
#[derive(Debug)]
pub(super) struct ControlPages {
    commands: Sender<Command>,
    signal: Arc<OwnedFd>,
    /// The socket over which the relay gets connections.
    relay: OwnedFd,
}

/// Makes the descriptor of an eventfd(2) readable.
pub(super) fn signal(descriptor: &OwnedFd) {
    // This fails only if the descriptor is already readable.
    let _ = rustix::io::write(descriptor, &1_u64.to_ne_bytes());
}

impl ControlPages {
    pub const fn new(commands: Sender<Command>, signal: Arc<OwnedFd>, relay: OwnedFd) -> Self {
        Self {
            commands,
            signal,
            relay,
        }
    }

    async fn carry_out(&self, request: Request) -> Reply {
        let (reply, answer) = oneshot::channel();
        if self.commands.try_send(Command { request, reply }).is_err() {
            let busy = Answer::error("too many commands wait already: try again");
            return json_with(StatusCode::SERVICE_UNAVAILABLE, &busy);
        }
        signal(&self.signal);
        match answer.await {
            Ok(answer) if answer.ok => json_with(StatusCode::OK, &answer),
            Ok(answer) => json_with(StatusCode::CONFLICT, &answer),
            Err(_) => {
                let ended = Answer::error("Midspan is about to end");
                json_with(StatusCode::SERVICE_UNAVAILABLE, &ended)
            }
        }
    }

    /// The relay's answer to a request for a page.
    async fn of_relay(&self, path: &str, query: &str) -> Reply {
        let target = match query {
            "" => path.to_owned(),
            query => format!("{path}?{query}"),
        };
        let answer = async {
            let (here, there) = UnixStream::pair().map_err(|error| error.to_string())?;
            here.set_nonblocking(true)
                .and_then(|()| there.set_nonblocking(true))
                .map_err(|error| error.to_string())?;
            descriptor_passing::send(&self.relay, b"1", &[there.as_fd()])
                .map_err(|error| error.to_string())?;
            // Otherwise the connection would outlive the relay.
            drop(there);
            let here = tokio::net::UnixStream::from_std(here).map_err(|error| error.to_string())?;
            client::exchange(here, HOST_NAME, Method::GET, &target).await
        };
        match tokio::time::timeout(RELAY_LIMIT, answer).await {
            Ok(Ok(response)) => {
                let (mut parts, body) = response.into_parts();
                for field in [CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING] {
                    parts.headers.remove(field);
                }
                Reply::from_parts(parts, Full::new(body))
            }
            Ok(Err(error)) => {
                let said = format!("the relay cannot be asked: {error}\n");
                text(StatusCode::SERVICE_UNAVAILABLE, said)
            }
            Err(_) => {
                let said = "the relay does not answer\n";
                text(StatusCode::SERVICE_UNAVAILABLE, said)
            }
        }
    }
}

/// The answer to a request that is no command although its path is that of one.
fn refused(refusal: Refusal) -> Reply {
    match refusal {
        Refusal::Method(methods) => only(methods),
        Refusal::Parameters(said) => json_with(StatusCode::BAD_REQUEST, &Answer::error(said)),
    }
}

impl Pages for ControlPages {
    async fn page(&self, path: &str, query: &str) -> Reply {
        match Request::read(&Method::GET, path, query) {
            Some(Ok(request)) => self.carry_out(request).await,
            Some(Err(refusal)) => refused(refusal),
            None => self.of_relay(path, query).await,
        }
    }

    async fn change(&self, method: &Method, path: &str, query: &str) -> Reply {
        match Request::read(method, path, query) {
            Some(Ok(request)) => self.carry_out(request).await,
            Some(Err(refusal)) => refused(refusal),
            None => only("GET, HEAD"),
        }
    }
}
