//! A scripted kernel for tests: it replaces Linux for the calls of a thread, and the test sets its
//! clock.
//!
//! It serves the thread that has installed it, until this thread ends.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Instant;

use midspan_linux::tcp::SocketMemory;
use rustix::event::Timespec;
use rustix::event::epoll::{Event, EventFlags};
use rustix::io::{Errno, Result};
use rustix::net::SocketAddrAny;

/// The calls of `system.rs`, by the numbers of the descriptors.
pub trait Kernel {
    fn now(&mut self) -> Instant;
    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<&Timespec>) -> Result<()>;
    fn watch(&mut self, descriptor: RawFd, token: u64, interest: EventFlags) -> Result<()>;
    fn unwatch(&mut self, descriptor: RawFd) -> Result<()>;
    fn accept(&mut self, socket: RawFd) -> Result<(OwnedFd, Option<SocketAddrAny>)>;
    fn socket(&mut self, address: SocketAddr) -> Result<OwnedFd>;
    fn connect(&mut self, socket: RawFd, address: SocketAddr) -> Result<()>;
    fn receive(&mut self, socket: RawFd, buffer: &mut [u8]) -> Result<usize>;
    fn peek(&mut self, socket: RawFd) -> Result<usize>;
    /// Nothing waits, unless the kernel has its own answer.
    fn waiting_bytes(&mut self, _socket: RawFd) -> Result<u64> {
        Ok(0)
    }
    fn send(&mut self, socket: RawFd, bytes: &[u8]) -> Result<usize>;
    /// Between a socket and a pipe. A kernel without pipes need not have it.
    fn splice(&mut self, _from: RawFd, _to: RawFd, _count: usize) -> Result<usize> {
        Err(Errno::NOSYS)
    }
    /// The read end and the write end, which have a size that can be set.
    fn pipe(&mut self) -> Result<(OwnedFd, OwnedFd)> {
        Err(Errno::NOSYS)
    }
    fn end_writing(&mut self, socket: RawFd) -> Result<()>;
    fn socket_error(&mut self, socket: RawFd) -> Result<Result<()>>;
    fn peer_address(&mut self, socket: RawFd) -> Result<Option<SocketAddr>>;
    fn own_address(&mut self, socket: RawFd) -> Option<SocketAddr>;
    /// Without queues, unless the kernel has its own answer.
    fn memory(&mut self, _socket: RawFd) -> std::io::Result<SocketMemory> {
        Ok(SocketMemory::default())
    }
    /// All data has arrived, unless the kernel has its own answer.
    fn unacknowledged_bytes(&mut self, _socket: RawFd) -> std::io::Result<u64> {
        Ok(0)
    }
    fn set_low_water_mark(&mut self, _socket: RawFd, _bytes: u64) -> std::io::Result<()> {
        Ok(())
    }
    fn set_reset_on_close(&mut self, socket: RawFd, is_on: bool) -> std::io::Result<()>;
}

thread_local! {
    static KERNEL: RefCell<Option<Box<dyn Kernel>>> = const { RefCell::new(None) };
}

/// From now on, this kernel answers this thread's calls.
pub fn install(kernel: Box<dyn Kernel>) {
    KERNEL.set(Some(kernel));
}

/// The answer of this thread's scripted kernel, if one is installed.
pub fn call<T>(ask: impl FnOnce(&mut dyn Kernel) -> T) -> Option<T> {
    KERNEL.with_borrow_mut(|kernel| kernel.as_mut().map(|kernel| ask(kernel.as_mut())))
}
