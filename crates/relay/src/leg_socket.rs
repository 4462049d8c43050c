//! A socket that a session, a negotiation or the pool of warm connections uses as a leg: plain, or with TLS above it.
//!
//! A plain leg makes the calls of `system` and nothing else. A leg between two nodes of the overlay with keys has a
//! [`Codec`], from before its first byte on. The same calls then read and write what the codec decrypts and encrypts,
//! also during its handshake. Epoll, options and `TCP_INFO` are those of the socket.
//!
//! Three things differ for the owner of an encrypted leg:
//! - It cannot be spliced, so `Transfer` copies.
//! - Its end is a record, not the FIN. A FIN without this record is a reset.
//! - Decrypted bytes may wait in the codec when a session begins, and no event announces them.

use std::io::{self, ErrorKind, Read, Write};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use midspan_policy::overlay::{LegKeys, NodeKey};
use midspan_tls::{Codec, Failure};
use once_cell::race::OnceBox;
use rustix::io::{Errno, Result};

use crate::system;

/// The socket of a leg.
#[derive(Debug)]
pub struct LegSocket {
    descriptor: OwnedFd,
    /// Set before the first byte. Only the thread that has the leg uses it, so its lock is always free.
    codec: OnceBox<Mutex<Codec>>,
}

/// What a codec reads from and writes to.
struct Wire<'a>(BorrowedFd<'a>);

impl LegSocket {
    /// Everything on this leg is encrypted from now on. Without keys, it stays plain.
    ///
    /// # Errors
    /// `EINVAL`: the private key cannot be used.
    pub fn encrypt_to(&self, keys: Option<&LegKeys>) -> Result<()> {
        let Some(keys) = keys else {
            return Ok(());
        };
        let codec = Codec::client(keys.own.bytes(), *keys.peer.bytes());
        self.set(codec.map_err(|_| Errno::INVAL)?)
    }

    /// The same for a connection that was accepted, and on which the codec expects a handshake.
    ///
    /// # Errors
    /// `EALREADY`: it is encrypted.
    pub fn set(&self, codec: Codec) -> Result<()> {
        let set = self.codec.set(Box::new(Mutex::new(codec)));
        set.map_err(|_| Errno::ALREADY)
    }

    /// Whether it is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.codec.get().is_some()
    }

    /// Whether bytes may be sent and arrive: always on a plain leg, after the handshake on an encrypted one.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.codec().is_none_or(|codec| codec.is_ready())
    }

    /// The key that the other end has proved to have.
    #[must_use]
    pub fn peer_key(&self) -> Option<NodeKey> {
        self.codec()?.peer_key().map(NodeKey::new)
    }

    /// Why the encryption has failed, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.codec()?.failure()
    }

    /// Whether the other end has sent the end of its direction. `None` on a plain leg, where the kernel has this
    /// knowledge.
    #[must_use]
    pub fn is_ended(&self) -> Option<bool> {
        self.codec().map(|codec| codec.is_ended())
    }

    /// Whether an end or a failure is known here that the kernel may not announce again.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.codec().is_some_and(|codec| codec.is_decided())
    }

    /// Reads into the buffer; 0 at the end.
    ///
    /// # Errors
    /// Those of `recv(2)`; `ECONNRESET` if the encryption has failed.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<usize> {
        match self.codec() {
            None => system::receive(self.as_fd(), buffer),
            Some(mut codec) => errno(codec.receive(&mut Wire(self.as_fd()), buffer)),
        }
    }

    /// Reads into the buffer, and leaves the bytes for the next read; 0 at the end.
    ///
    /// # Errors
    /// Those of [`receive`](Self::receive).
    pub fn look(&self, buffer: &mut [u8]) -> Result<usize> {
        match self.codec() {
            None => system::look(self.as_fd(), buffer),
            Some(mut codec) => errno(codec.look(&mut Wire(self.as_fd()), buffer)),
        }
    }

    /// Whether there is data to read, without reading it; 0 at the end.
    ///
    /// # Errors
    /// Those of [`receive`](Self::receive).
    pub fn peek(&self) -> Result<usize> {
        match self.codec() {
            None => system::peek(self.as_fd()),
            Some(mut codec) => errno(codec.look(&mut Wire(self.as_fd()), &mut [0])),
        }
    }

    /// Writes some of the bytes. Those that are not taken have to be the first ones of the next call.
    ///
    /// # Errors
    /// Those of `send(2)`; `ECONNRESET` if the encryption has failed.
    pub fn send(&self, bytes: &[u8]) -> Result<usize> {
        match self.codec() {
            None => system::send(self.as_fd(), bytes),
            Some(mut codec) => errno(codec.send(&mut Wire(self.as_fd()), bytes)),
        }
    }

    /// Sends the end of this direction: a FIN, and before it the record of an encrypted leg.
    ///
    /// # Errors
    /// Those of `shutdown(2)` and `send(2)`. After `EAGAIN`, the call has to be repeated.
    pub fn end_writing(&self) -> Result<()> {
        if let Some(mut codec) = self.codec() {
            errno(codec.end_writing(&mut Wire(self.as_fd())))?;
        }
        system::end_writing(self)
    }

    /// No code panics while it holds this lock, so the content is always consistent.
    fn codec(&self) -> Option<MutexGuard<'_, Codec>> {
        let codec = self.codec.get()?;
        Some(codec.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl From<OwnedFd> for LegSocket {
    fn from(descriptor: OwnedFd) -> Self {
        Self {
            descriptor,
            codec: OnceBox::new(),
        }
    }
}

impl From<LegSocket> for OwnedFd {
    fn from(leg: LegSocket) -> Self {
        leg.descriptor
    }
}

impl Deref for LegSocket {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.descriptor
    }
}

impl AsFd for LegSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(system::receive(self.0, buffer)?)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(system::send(self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn errno<T>(result: io::Result<T>) -> Result<T> {
    result.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => Errno::AGAIN,
        ErrorKind::Interrupted => Errno::INTR,
        _ => Errno::from_io_error(&error).unwrap_or(Errno::CONNRESET),
    })
}
