//! The system calls by which the relay takes, opens and moves; each goes through here.
//!
//! In test builds with the feature `failing-calls` they can be made to fail, see
//! [`failing_calls`](super::failing_calls); without it this is nothing but the calls.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Result;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, acceptfrom_with,
};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with};

#[cfg(feature = "failing-calls")]
use super::failing_calls::{self, Call};
use crate::seeded_faults::{self, Fault};

/// What an injected failure does before the call: nothing without the feature.
#[cfg(not(feature = "failing-calls"))]
macro_rules! may_fail {
    ($call:ident) => {};
    ($call:ident, $count:expr) => {
        $count
    };
}

#[cfg(feature = "failing-calls")]
macro_rules! may_fail {
    ($call:ident) => {
        failing_calls::before(Call::$call)?;
    };
    ($call:ident, $count:expr) => {
        failing_calls::before_moving(Call::$call, $count)?
    };
}

/// Reads into the buffer; 0 at the end.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    let most = may_fail!(Receive, buffer.len());
    let (count, _) = rustix::net::recv(socket, &mut buffer[..most], RecvFlags::empty())?;
    Ok(count)
}

/// Whether there is something to read, which stays there; 0 at the end.
pub fn peek(socket: BorrowedFd<'_>) -> Result<usize> {
    may_fail!(Receive);
    let (count, _) = rustix::net::recv(socket, &mut [0_u8; 1][..], RecvFlags::PEEK)?;
    Ok(count)
}

/// Writes some of the bytes.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize> {
    let most = may_fail!(Send, bytes.len());
    rustix::net::send(socket, &bytes[..most], send_flags())
}

fn send_flags() -> SendFlags {
    match seeded_faults::is(Fault::CorkedSmallWrites) {
        true => SendFlags::NOSIGNAL.union(SendFlags::MORE),
        false => SendFlags::NOSIGNAL,
    }
}

/// Moves up to `count` bytes between a socket and a pipe.
pub fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, count: usize) -> Result<usize> {
    let most = may_fail!(Splice, count);
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    rustix::pipe::splice(from, None, to, None, most, flags)
}

/// A pipe: where it is read, where it is written.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    may_fail!(Pipe);
    pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
}

/// Takes a waiting connection.
pub fn accept(socket: impl AsFd) -> Result<(OwnedFd, Option<SocketAddrAny>)> {
    may_fail!(Accept);
    acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
}

/// A TCP socket of the family of this address.
pub fn socket(address: SocketAddr) -> Result<OwnedFd> {
    may_fail!(Socket);
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}

/// Gives a socket its own address.
pub fn bind(socket: &OwnedFd, address: SocketAddr) -> Result<()> {
    rustix::net::bind(socket, &address)
}

/// Calls a server.
pub fn connect(socket: &OwnedFd, address: SocketAddr) -> Result<()> {
    may_fail!(Connect);
    rustix::net::connect(socket, &address)
}

/// An epoll that watches nothing yet.
pub fn epoll() -> Result<OwnedFd> {
    epoll::create(epoll::CreateFlags::CLOEXEC)
}

/// Waits for events, at most so long; adds them to the list, as many as it has room for.
pub fn wait(epoll: &OwnedFd, events: &mut Vec<Event>, timeout: Option<&Timespec>) -> Result<()> {
    epoll::wait(epoll, spare_capacity(events), timeout).map(|_| ())
}

/// Watches a leg of a session.
pub fn watch_leg(
    epoll: &OwnedFd,
    socket: &OwnedFd,
    token: u64,
    interest: EventFlags,
) -> Result<()> {
    may_fail!(Watch);
    watch(epoll, socket, token, interest)
}

/// Watches a descriptor.
pub fn watch(
    epoll: &OwnedFd,
    descriptor: impl AsFd,
    token: u64,
    interest: EventFlags,
) -> Result<()> {
    epoll::add(epoll, descriptor, EventData::new_u64(token), interest)
}

/// Watches a descriptor that is watched already, for something else or for somebody else.
pub fn watch_anew(
    epoll: &OwnedFd,
    descriptor: impl AsFd,
    token: u64,
    interest: EventFlags,
) -> Result<()> {
    epoll::modify(epoll, descriptor, EventData::new_u64(token), interest)
}

/// Watches a descriptor no more.
pub fn unwatch(epoll: &OwnedFd, descriptor: impl AsFd) -> Result<()> {
    epoll::delete(epoll, descriptor)
}

/// Whether a call of this turn was made to say less than is true: then it must be asked again.
#[cfg(not(feature = "failing-calls"))]
pub const fn take_pretence() -> bool {
    false
}

#[cfg(feature = "failing-calls")]
pub(super) use failing_calls::take_pretence;

/// The calls from here on are those of this session; 0: of none.
#[cfg(not(feature = "failing-calls"))]
pub const fn enter_session(_: u64) {}

#[cfg(feature = "failing-calls")]
pub(super) use failing_calls::enter_session;
