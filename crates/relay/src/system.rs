//! The kernel calls by which a thread reads the clock, uses epoll and pipes, and accepts, opens, reads and
//! writes sockets.
//!
//! In test builds with the feature `failing-calls`, some calls can be made to fail, see
//! [`failing_calls`](super::failing_calls). In the unit tests of this crate another kernel can replace
//! Linux (`scripted`) in most of the calls. Other builds contain only the calls themselves.
//!
//! Options of sockets are set and read by [`midspan_linux::tcp`] directly. The exceptions are here, because
//! they decide how a session continues: the addresses of a socket, its memory, its unacknowledged bytes, its
//! error, and whether its close is a reset.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use midspan_linux::tcp::{self, SocketMemory};
use midspan_units::ByteSize;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Result;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrAny, SocketFlags, SocketType,
    acceptfrom_with,
};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with};

#[cfg(feature = "failing-calls")]
use super::failing_calls::{self, Call};
use crate::seeded_faults::{self, Fault};

/// An injected failure before a call; nothing without the feature.
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

/// Returns the answer of the scripted kernel, if one is installed.
#[cfg(test)]
macro_rules! scripted {
    ($call:ident($($argument:expr),*)) => {
        if let Some(answer) = super::scripted::call(|kernel| kernel.$call($($argument),*)) {
            return answer;
        }
    };
}

#[cfg(not(test))]
macro_rules! scripted {
    ($($anything:tt)*) => {};
}

/// The number of a descriptor, for the scripted kernel.
#[cfg(test)]
fn number(descriptor: impl AsFd) -> std::os::fd::RawFd {
    std::os::fd::AsRawFd::as_raw_fd(&descriptor.as_fd())
}

/// The present time.
pub fn now() -> Instant {
    scripted!(now());
    Instant::now()
}

/// Reads into the buffer; 0 at the end.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    scripted!(receive(number(socket), buffer));
    let most = may_fail!(Receive, buffer.len());
    let (count, _) = rustix::net::recv(socket, &mut buffer[..most], RecvFlags::empty())?;
    Ok(count)
}

/// Whether there is data to read, without reading it; 0 at the end.
pub fn peek(socket: BorrowedFd<'_>) -> Result<usize> {
    scripted!(peek(number(socket)));
    may_fail!(Receive);
    let (count, _) = rustix::net::recv(socket, &mut [0_u8; 1][..], RecvFlags::PEEK)?;
    Ok(count)
}

/// Bytes that wait to be read, without those behind urgent data. This does not take an error of the socket away,
/// unlike [`peek`].
pub fn waiting_bytes(socket: impl AsFd) -> Result<u64> {
    scripted!(waiting_bytes(number(&socket)));
    rustix::io::ioctl_fionread(socket)
}

/// Reads into the buffer, and leaves the bytes in the socket; 0 at the end.
pub fn look(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    let most = may_fail!(Receive, buffer.len());
    let (count, _) = rustix::net::recv(socket, &mut buffer[..most], RecvFlags::PEEK)?;
    Ok(count)
}

/// Writes some of the bytes.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize> {
    scripted!(send(number(socket), bytes));
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
    scripted!(splice(number(from), number(to), count));
    let most = may_fail!(Splice, count);
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    rustix::pipe::splice(from, None, to, None, most, flags)
}

/// A pipe: its read end and its write end.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    scripted!(pipe());
    may_fail!(Pipe);
    pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
}

/// Accepts a waiting connection.
pub fn accept(socket: impl AsFd) -> Result<(OwnedFd, Option<SocketAddrAny>)> {
    scripted!(accept(number(&socket)));
    may_fail!(Accept);
    acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
}

/// A TCP socket of the family of this address.
pub fn socket(address: SocketAddr) -> Result<OwnedFd> {
    scripted!(socket(address));
    may_fail!(Socket);
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}

/// Binds a socket to its own address.
pub fn bind(socket: &OwnedFd, address: SocketAddr) -> Result<()> {
    rustix::net::bind(socket, &address)
}

/// Connects to a server.
pub fn connect(socket: &OwnedFd, address: SocketAddr) -> Result<()> {
    scripted!(connect(number(socket), address));
    may_fail!(Connect);
    rustix::net::connect(socket, &address)
}

/// An epoll that watches nothing.
pub fn epoll() -> Result<OwnedFd> {
    epoll::create(epoll::CreateFlags::CLOEXEC)
}

/// Waits for events, at most until the time-out; adds as many to the list as it has room for.
pub fn wait(epoll: &OwnedFd, events: &mut Vec<Event>, timeout: Option<&Timespec>) -> Result<()> {
    scripted!(wait(events, timeout));
    epoll::wait(epoll, spare_capacity(events), timeout).map(|_| ())
}

/// Whether a descriptor can be read without waiting. One that cannot be checked counts as readable.
pub fn is_readable(descriptor: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&Timespec::default())) != Ok(0)
}

/// Whether epoll watches a descriptor already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// Not yet.
    New,
    /// Not yet; the descriptor is a leg of a new session, which can fail for lack of memory.
    NewLeg,
    /// It does: from now on for other events, or for another owner.
    Already,
}

/// Watches a descriptor for these events, which epoll returns with this token.
pub fn watch(
    epoll: &OwnedFd,
    descriptor: impl AsFd,
    (token, interest): (u64, EventFlags),
    watched: Watched,
) -> Result<()> {
    if watched == Watched::NewLeg {
        may_fail!(Watch);
    }
    scripted!(watch(number(&descriptor), token, interest));
    let data = EventData::new_u64(token);
    match watched {
        Watched::New | Watched::NewLeg => epoll::add(epoll, descriptor, data, interest),
        Watched::Already => epoll::modify(epoll, descriptor, data, interest),
    }
}

/// Stops watching a descriptor.
pub fn unwatch(epoll: &OwnedFd, descriptor: impl AsFd) -> Result<()> {
    scripted!(unwatch(number(&descriptor)));
    epoll::delete(epoll, descriptor)
}

/// Sends a FIN.
pub fn end_writing(socket: impl AsFd) -> Result<()> {
    scripted!(end_writing(number(&socket)));
    rustix::net::shutdown(socket, Shutdown::Write)
}

/// Resets a connection at once, although its owner keeps the socket open (`connect(2)` to no address).
pub fn reset(socket: impl AsFd) -> Result<()> {
    rustix::net::connect_unspec(socket)
}

/// The error of a socket; the kernel returns it once.
pub fn socket_error(socket: impl AsFd) -> Result<Result<()>> {
    scripted!(socket_error(number(&socket)));
    rustix::net::sockopt::socket_error(socket)
}

/// The address of a socket's peer, if it has one.
pub fn peer_address(socket: impl AsFd) -> Result<Option<SocketAddr>> {
    scripted!(peer_address(number(&socket)));
    let peer = rustix::net::getpeername(socket)?;
    Ok(peer.and_then(|address| address.try_into().ok()))
}

/// A socket's own address; `None` if the kernel refuses to return it.
pub fn own_address(socket: impl AsFd) -> Option<SocketAddr> {
    scripted!(own_address(number(&socket)));
    rustix::net::getsockname(socket).ok()?.try_into().ok()
}

/// The buffers of a socket, and the memory that they use.
pub fn memory(socket: impl AsFd) -> io::Result<SocketMemory> {
    scripted!(memory(number(&socket)));
    tcp::memory(socket)
}

/// Bytes that were written to a socket and that its peer has not acknowledged.
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<u64> {
    scripted!(unacknowledged_bytes(number(&socket)));
    tcp::unacknowledged_bytes(socket).map(ByteSize::bytes)
}

/// Sets how many bytes wait in the receive queue when the kernel reports them.
pub fn set_low_water_mark(socket: impl AsFd, bytes: u64) -> io::Result<()> {
    scripted!(set_low_water_mark(number(&socket), bytes));
    tcp::set_low_water_mark(socket, bytes)
}

/// Sets whether closing a socket sends a reset.
pub fn set_reset_on_close(socket: impl AsFd, is_on: bool) -> io::Result<()> {
    scripted!(set_reset_on_close(number(&socket), is_on));
    tcp::set_reset_on_close(socket, is_on)
}

/// Whether a call of this turn reported less data or room than there was, so that it has to be
/// repeated.
#[cfg(not(feature = "failing-calls"))]
pub const fn take_pretence() -> bool {
    false
}

#[cfg(feature = "failing-calls")]
pub(super) use failing_calls::take_pretence;

/// The next calls belong to this session; 0: to none.
#[cfg(not(feature = "failing-calls"))]
pub const fn enter_session(_: u64) {}

#[cfg(feature = "failing-calls")]
pub(super) use failing_calls::enter_session;
