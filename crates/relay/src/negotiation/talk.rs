//! One client that is spoken with.

mod listening;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use midspan_explicit::http::{Exchange, Http};
use midspan_explicit::proxy_protocol;
use midspan_explicit::socks5::Socks5;
use midspan_explicit::{Credentials, Destination, Failure, Host, HostName, Outcome};
use midspan_linux::tcp;
use midspan_policy::memory_share::EACH_SESSION;
use midspan_policy::{Handshake, Request};
use midspan_units::{Time, TimeSpan};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, sockopt};

use super::calling::{Called, Calling};
use super::{PARTING_TIME, Reason, failure};
use crate::arrival::{Arrival, NewClient};
use crate::exchange::{Framed, Kept};
use crate::limits::{Seat, SetAside, Spare};
use crate::listener::{Language, Negotiation};
use crate::observation::LastReading;

/// Most bytes that are dropped of a client that was sent away.
const PARTING_BYTES: usize = 1 << 20;

/// The same of one that has an answer, which may have come before the end of its request: as much
/// as the kernels on both sides hold for it.
const PARTING_BYTES_AFTER_ANSWER: usize = 16 << 20;

/// How long a name may be looked up: what name servers are given by default, and a little.
const LONGEST_LOOK_UP: TimeSpan = TimeSpan::from_seconds(15);

/// How long a server may take where the policy does not say.
const LONGEST_CALL: TimeSpan = TimeSpan::from_seconds(60);

/// A client, and how far the negotiation with it is.
pub struct Talk {
    /// Number of its listener.
    pub listener: usize,
    /// Its deadline among the timers.
    pub timer: Option<Time>,
    /// Since when it is here.
    pub begin: Time,
    /// How the listener negotiates.
    pub settings: Arc<Negotiation>,
    credentials: Option<Arc<Credentials>>,
    client: OwnedFd,
    /// Who it is, perhaps as a proxy tells.
    client_address: SocketAddr,
    /// Whom it has called: this proxy, or as a proxy tells.
    called: Option<SocketAddr>,
    language: Speaker,
    stage: Stage,
    /// Read, and not understood yet.
    input: Vec<u8>,
    to_client: Vec<u8>,
    to_server: Vec<u8>,
    destination: Option<Destination>,
    /// The request and the answer that a session would carry, where it carries nothing else.
    exchange: Option<Exchange>,
    /// It has had an answer, and has not begun another request.
    is_idle: bool,
    /// The kernel may hold bytes of it: not all has been read, or it has been heard of since.
    may_have_more: bool,
    /// What has been counted of its connection.
    reading: LastReading,
    deadline: Time,
    /// Its place among the sessions.
    seat: Seat,
    /// What it takes of the memory budget.
    memory: SetAside,
}

enum Speaker {
    Nobody(SocketAddr),
    Socks5(Socks5),
    Http(Http),
}

enum Stage {
    /// The proxy before this one is to say who the client is.
    Heading,
    /// The client is to say what it wants.
    Speaking,
    /// The server's addresses are looked up, and then it is decided which may be called.
    Resolving,
    /// The server is called at the addresses that may be.
    Calling(Calling),
    /// The server has answered the call.
    Connected(SocketAddr, OwnedFd),
    /// The client is told that there will be no session.
    Refusing {
        reason: Option<Reason>,
        /// How many bytes of the client may still be dropped.
        left: usize,
        is_shut: bool,
    },
    Over,
}

/// What is to be done for it.
pub enum Step {
    /// Nothing before an event or the deadline.
    Wait,
    /// Look this name up.
    Resolve(HostName),
    /// Decide which of these addresses may be called, by [`Talk::call`] or [`Talk::fail`].
    Decide(Vec<SocketAddr>),
    /// Both legs are connected: [`Talk::into_joined`].
    Join,
    /// No server has answered; the client is being told.
    Unconnected(SocketAddr, Errno),
    /// It is over, without a session.
    End(Option<Reason>),
}

/// What a session begins with.
pub struct Joined {
    pub arrival: Arrival,
    pub client: OwnedFd,
    pub server: OwnedFd,
    pub listener: usize,
    /// What the client called the server, if it gave a name.
    pub name: Option<Box<str>>,
    /// What the server and the client are sent first.
    pub first: [Vec<u8>; 2],
    /// What the session carries, where that is not all.
    pub framed: Option<Framed>,
}

impl Talk {
    /// With a client that has been accepted.
    pub fn new(
        client: NewClient,
        memory: SetAside,
        listener: usize,
        settings: Arc<Negotiation>,
        credentials: Option<Arc<Credentials>>,
        now: Time,
    ) -> Self {
        // Only a PROXY header contains it.
        let called = (settings.header).and_then(|_| rustix::net::getsockname(&client.socket).ok());
        Self {
            seat: client.seat,
            memory,
            listener,
            timer: None,
            begin: now,
            credentials,
            client_address: canonical(client.address),
            called: called
                .and_then(|address| address.try_into().ok())
                .map(canonical),
            language: match settings.language {
                Language::Fixed(server) => Speaker::Nobody(server),
                Language::Socks5 => Speaker::Socks5(Socks5::new()),
                Language::Http => Speaker::Http(Http::new()),
            },
            stage: match settings.proxies {
                Some(_) => Stage::Heading,
                None => Stage::Speaking,
            },
            client: client.socket,
            input: Vec::new(),
            to_client: Vec::new(),
            to_server: Vec::new(),
            destination: None,
            exchange: None,
            is_idle: false,
            may_have_more: true,
            reading: LastReading::default(),
            deadline: now + settings.timeout,
            settings,
        }
    }

    /// With a client that comes back from an exchange: for its next request, or to be closed after
    /// it was told `last`.
    pub fn again(
        client: NewClient,
        memory: SetAside,
        listener: usize,
        kept: Kept,
        last: Option<&str>,
        now: Time,
    ) -> Self {
        let Kept {
            settings,
            credentials,
            called,
            leftover,
            reading,
        } = kept;
        let stage = match last {
            Some(_) => Stage::Refusing {
                reason: None,
                left: PARTING_BYTES_AFTER_ANSWER,
                is_shut: false,
            },
            None => Stage::Speaking,
        };
        Self {
            seat: client.seat,
            memory,
            listener,
            timer: None,
            begin: now,
            credentials,
            client_address: client.address,
            called,
            language: Speaker::Http(Http::new()),
            stage,
            client: client.socket,
            is_idle: leftover.is_empty(),
            may_have_more: true,
            input: leftover,
            to_client: last.unwrap_or_default().into(),
            to_server: Vec::new(),
            destination: None,
            exchange: None,
            reading,
            deadline: now + settings.timeout,
            settings,
        }
    }

    /// It has had an answer and has not begun another request.
    pub const fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Lets its connection close in good order instead of by a reset.
    pub fn close_in_order(&self) {
        // Without this the close is a reset, which feigns nothing.
        let _ = tcp::set_reset_on_close(&self.client, false);
    }

    /// The socket towards the client.
    pub const fn client(&self) -> &OwnedFd {
        &self.client
    }

    /// How often it gave a name and password that are not right.
    pub fn wrong_passwords(&self) -> u32 {
        self.credentials.as_ref().map_or(0, |known| known.wrong())
    }

    /// Who has called, where that is the client itself.
    pub fn caller(&self) -> Option<IpAddr> {
        let is_client = self.settings.proxies.is_none();
        is_client.then(|| self.client_address.ip())
    }

    /// Who the client is.
    pub const fn client_address(&self) -> SocketAddr {
        self.client_address
    }

    /// Counts what it takes: its buffers, the two sockets, and what waits in the kernel.
    pub fn note_memory(&mut self) {
        let buffers = [&self.input, &self.to_client, &self.to_server];
        let buffers: usize = buffers.map(Vec::capacity).iter().sum();
        let queued = match self.may_have_more {
            true => tcp::memory(&self.client).map_or(0, |memory| memory.receive.bytes()),
            false => 0,
        };
        self.memory.change(EACH_SESSION + buffers as u64 + queued);
    }

    /// What is to be done next. `call` begins to connect to an address; `spare` gives a descriptor
    /// more than a session has.
    pub fn advance(
        &mut self,
        now: Time,
        spare: impl FnMut() -> Option<Spare>,
        call: impl FnMut(SocketAddr) -> rustix::io::Result<OwnedFd>,
    ) -> Step {
        if now >= self.deadline
            && let Some(step) = self.expire(now)
        {
            return step;
        }
        match &mut self.stage {
            Stage::Heading | Stage::Speaking => self.listen(now),
            Stage::Resolving => self.watch_client(),
            Stage::Calling(calling) => {
                match (calling.has_begun(), calling.advance(now, spare, call)) {
                    // The client has just been read.
                    (false, Called::Waiting) => self.answer_now(),
                    (true, Called::Waiting) => self.watch_client(),
                    (_, Called::Connected(address, server)) => self.connected(address, server),
                    (_, Called::Failed(error)) => {
                        let tried = self.wanted();
                        self.fail(failure(error), None, now);
                        Step::Unconnected(tried, error)
                    }
                }
            }
            Stage::Connected(..) => Step::Join,
            Stage::Refusing { .. } => self.part(),
            Stage::Over => Step::End(None),
        }
    }

    /// When to look again without an event.
    pub fn next(&self) -> Time {
        match &self.stage {
            Stage::Calling(calling) => calling
                .next()
                .map_or(self.deadline, |next| next.min(self.deadline)),
            _ => self.deadline,
        }
    }

    /// Takes in what has been found out of the name.
    pub fn handle_addresses(&mut self, addresses: Option<Vec<IpAddr>>, now: Time) -> Step {
        if !matches!(self.stage, Stage::Resolving) {
            return Step::Wait;
        }
        let port = self.destination.as_ref().map_or(0, |wanted| wanted.port);
        match addresses {
            None => self.fail(Failure::Shortage, Some(Reason::Overload), now),
            Some(addresses) if addresses.is_empty() => {
                self.fail(Failure::NameNotFound, Some(Reason::Name), now)
            }
            Some(addresses) => {
                let with_port = |address: IpAddr| SocketAddr::new(address.to_canonical(), port);
                Step::Decide(addresses.into_iter().map(with_port).collect())
            }
        }
    }

    /// Calls the server, which has these addresses; to be advanced next.
    pub fn call(&mut self, addresses: Vec<SocketAddr>, timeout: Option<TimeSpan>, now: Time) {
        self.deadline = now + timeout.unwrap_or(LONGEST_CALL);
        self.stage = Stage::Calling(Calling::new(addresses, now));
    }

    /// Tells the client that there will be no server.
    pub fn fail(&mut self, failure: Failure, reason: Option<Reason>, now: Time) -> Step {
        let outcome = Outcome::Failed(failure);
        let reply = match &self.language {
            Speaker::Nobody(_) => Vec::new(),
            Speaker::Socks5(socks) => socks.answer(outcome),
            Speaker::Http(http) => http.answer(outcome),
        };
        self.refuse(reply, reason, now)
    }

    fn refuse(&mut self, reply: Vec<u8>, reason: Option<Reason>, now: Time) -> Step {
        self.to_client.extend(reply);
        self.input = Vec::new();
        if self.to_client.is_empty() {
            // What it speaks is not known, or nothing can be said: a reset.
            self.stage = Stage::Over;
            return Step::End(reason);
        }
        self.deadline = now + PARTING_TIME;
        self.stage = Stage::Refusing {
            reason,
            left: PARTING_BYTES,
            is_shut: false,
        };
        self.part()
    }

    fn expire(&mut self, now: Time) -> Option<Step> {
        Some(match &self.stage {
            Stage::Heading | Stage::Speaking if self.is_idle => {
                self.close_in_order();
                Step::End(None)
            }
            Stage::Heading | Stage::Speaking => Step::End(Some(Reason::Silent)),
            Stage::Resolving => self.fail(Failure::TimedOut, Some(Reason::Name), now),
            Stage::Calling(calling) => {
                let tried = calling.tried().unwrap_or_else(|| self.wanted());
                self.fail(Failure::TimedOut, None, now);
                Step::Unconnected(tried, Errno::TIMEDOUT)
            }
            // The session's own rules hold from here on.
            Stage::Connected(..) => return None,
            Stage::Refusing { reason, .. } if self.to_client.is_empty() => {
                // It had its time: a close that is a reset where it still sends.
                self.close_in_order();
                Step::End(*reason)
            }
            // It has not all that it was to be told, which must not look as if it had.
            Stage::Refusing { reason, .. } => Step::End(*reason),
            Stage::Over => Step::End(None),
        })
    }

    /// Sends what is to be said before the client goes on; little, so that there is room.
    fn answer_now(&mut self) -> Step {
        match flush(&self.client, &mut self.to_client) {
            Ok(()) => Step::Wait,
            Err(_) => Step::End(Some(Reason::Gone)),
        }
    }

    /// The client has said what it wants.
    fn begin_resolving(&mut self, now: Time) {
        self.stage = Stage::Resolving;
        self.deadline = now + LONGEST_LOOK_UP;
    }

    /// A client that is gone needs no server. Its end alone does not say so: the answer may
    /// still be awaited.
    fn watch_client(&mut self) -> Step {
        self.may_have_more = true;
        if let Ok(Err(_)) | Err(_) = sockopt::socket_error(&self.client) {
            return Step::End(Some(Reason::Gone));
        }
        self.answer_now()
    }

    /// The server is there. What is to be said to both is sent as far as there is room; the rest
    /// goes into the session, and so does what a socket refuses: the session finds out why.
    fn connected(&mut self, address: SocketAddr, server: OwnedFd) -> Step {
        match &self.language {
            Speaker::Nobody(_) => {}
            Speaker::Socks5(socks) => {
                let own = rustix::net::getsockname(&server).ok();
                let own = own.and_then(|own| own.try_into().ok()).unwrap_or(address);
                let outcome = Outcome::Connected(canonical(own));
                self.to_client.extend(socks.answer(outcome));
            }
            Speaker::Http(http) => {
                let outcome = Outcome::Connected(address);
                self.to_client.extend(http.answer(outcome));
            }
        }
        let mut first = match self.settings.header {
            Some(version) => {
                let called = self.called.unwrap_or(address);
                proxy_protocol::write(version.into(), self.client_address, called)
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

    /// Lets the client read why, and waits for its end: a close with unread data would be a
    /// reset, which takes back what it was told.
    fn part(&mut self) -> Step {
        self.may_have_more = true;
        let Stage::Refusing {
            reason,
            left,
            is_shut,
        } = &mut self.stage
        else {
            return Step::Wait;
        };
        if flush(&self.client, &mut self.to_client).is_err() {
            return Step::End(*reason);
        }
        if !self.to_client.is_empty() {
            return Step::Wait;
        }
        if !*is_shut {
            *is_shut = true;
            let _ = rustix::net::shutdown(&self.client, Shutdown::Write);
        }
        let mut buffer = [0_u8; 4096];
        while *left > 0 {
            match rustix::net::recv(&self.client, &mut buffer[..], RecvFlags::empty()) {
                Ok((0, _)) => {
                    let _ = tcp::set_reset_on_close(&self.client, false);
                    return Step::End(*reason);
                }
                Ok((count, _)) => *left = left.saturating_sub(count),
                Err(Errno::AGAIN) => return Step::Wait,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        Step::End(*reason)
    }

    /// What a session begins with; `None` before [`Step::Join`].
    pub fn into_joined(self) -> Option<Joined> {
        let name = self.name();
        let Stage::Connected(address, server) = self.stage else {
            return None;
        };
        let request = Request {
            client: self.client_address,
            server: address,
        };
        let arrival = Arrival {
            seat: Some(self.seat),
            ..Arrival::new(request, Handshake::EndToEnd, self.begin)
        };
        let kept = Kept {
            settings: self.settings,
            credentials: self.credentials,
            called: self.called,
            leftover: self.input,
            reading: self.reading,
        };
        Some(Joined {
            arrival,
            client: self.client,
            server,
            listener: self.listener,
            name,
            first: [self.to_server, self.to_client],
            framed: self.exchange.map(|exchange| Framed::new(exchange, kept)),
        })
    }

    /// Its connection to a server that has not answered. It hears of success when one has.
    pub const fn arrival(&self, server: SocketAddr) -> Arrival {
        let request = Request {
            client: self.client_address,
            server,
        };
        Arrival::new(request, Handshake::EndToEnd, self.begin)
    }

    /// Who is wanted, as far as an address is known.
    fn wanted(&self) -> SocketAddr {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        match &self.language {
            Speaker::Nobody(server) => *server,
            _ => self.destination.as_ref().map_or(nowhere, |wanted| {
                wanted
                    .address()
                    .unwrap_or_else(|| SocketAddr::new(nowhere.ip(), wanted.port))
            }),
        }
    }

    /// The name of the server, where one was given.
    pub fn name(&self) -> Option<Box<str>> {
        match self.destination.as_ref()?.host {
            Host::Name(_) => self.destination.as_ref().map(|d| d.to_string().into()),
            Host::Address(_) => None,
        }
    }
}

/// Sends what can be sent at once; the rest stays.
fn flush(socket: impl AsFd, bytes: &mut Vec<u8>) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::net::send(&socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => drop(bytes.drain(..count.min(bytes.len()))),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// An IPv4 address inside an IPv6 one is the IPv4 address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
