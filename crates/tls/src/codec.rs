//! One connection between two nodes.
//!
//! The owner calls [`receive`](Codec::receive), [`send`](Codec::send) and [`end_writing`](Codec::end_writing) as it
//! would call the socket, and gives each of them the socket. The handshake happens in these calls. What they
//! guarantee:
//!
//! - An end is only an end if the other node has sent `close_notify`. Any other end is the error
//!   `ConnectionReset`, now and in every later call.
//! - No byte is delivered, and none leaves, before the other node has proved that it has an expected key.
//! - A call that returns fewer bytes than were requested has read all that the socket had, or has found the end or
//!   a failure ([`is_decided`](Codec::is_decided)).
//! - Of the bytes that `send` has taken, none waits here: while encrypted bytes wait for room in the socket, the last
//!   byte counts as not yet taken, and the caller sends it again later. So a caller that has nothing left to send
//!   may end writing, and one that keeps unsent bytes needs no other state.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::pki_types::ServerName;
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection};
use thiserror::Error;

use crate::keys::{KEY_LENGTH, KeyError, certified, of_info};
use crate::pinned::Pinned;
use crate::provider::provider;

/// The protocol above TLS (ALPN, RFC 7301).
pub const PROTOCOL: &[u8] = b"midspan/1";

/// Most bytes of the connection in both directions until the handshake is complete. An honest one takes about 1500.
const HANDSHAKE_LIMIT: usize = 16 << 10;

/// Most bytes that are encrypted at once, and wait for room in the socket.
const SEND_LIMIT: usize = 64 << 10;

/// Bytes that are read from the socket at once: two records of the longest kind.
const PIECE: usize = 33 << 10;

/// Why a connection is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Failure {
    /// The other end has no key, or another one than is expected.
    #[error("the other end has another key than the file of members lists for it")]
    WrongKey,
    /// The other end does not use TLS 1.3 with raw public keys, or not for this protocol.
    #[error("the other end does not use TLS as a node does")]
    NotTls,
    /// The other end has refused, probably this node's key.
    #[error("the other end has refused this node")]
    Refused,
    /// Bytes were changed on the way, or the other end breaks the rules.
    #[error("the other end breaks the rules of TLS")]
    Broken,
    /// The connection ended without `close_notify`: something may be missing.
    #[error("the connection ended without its end")]
    Truncated,
}

/// A connection.
#[derive(Debug)]
pub struct Codec {
    connection: Connection,
    /// Bytes of the socket that are not decrypted yet: those from `start` to `end`.
    staged: Vec<u8>,
    start: usize,
    end: usize,
    /// Decrypted bytes that were looked at.
    looked: Vec<u8>,
    /// The last byte that the caller has is encrypted already.
    has_last: bool,
    is_ended: bool,
    is_closing: bool,
    /// The handshake is complete, and the protocol is agreed on.
    is_ready: bool,
    handshake_bytes: usize,
    failure: Option<Failure>,
}

impl Codec {
    /// The end that has connected. `expected` is the key of the node to which it has connected.
    ///
    /// # Errors
    /// The private key cannot be used.
    pub fn client(secret: &[u8; KEY_LENGTH], expected: [u8; KEY_LENGTH]) -> Result<Self, KeyError> {
        let key = AlwaysResolvesClientRawPublicKeys::new(certified(secret)?);
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?;
        let mut config = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned(vec![expected])))
            .with_client_cert_resolver(Arc::new(key));
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        // It is not sent.
        let name = ServerName::try_from("node.invalid").map_err(|_| KeyError::NotUsable)?;
        let connection = ClientConnection::new(Arc::new(config), name).map_err(unusable)?;
        Ok(Self::new(connection.into()))
    }

    /// The end that was connected to, by a node with one of the `expected` keys.
    ///
    /// # Errors
    /// The private key cannot be used.
    pub fn server(
        secret: &[u8; KEY_LENGTH],
        expected: Vec<[u8; KEY_LENGTH]>,
    ) -> Result<Self, KeyError> {
        let key = AlwaysResolvesServerRawPublicKeys::new(certified(secret)?);
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?;
        let mut config = builder
            .with_client_cert_verifier(Arc::new(Pinned(expected)))
            .with_cert_resolver(Arc::new(key));
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let connection = ServerConnection::new(Arc::new(config)).map_err(unusable)?;
        Ok(Self::new(connection.into()))
    }

    fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(SEND_LIMIT));
        Self {
            connection,
            staged: Vec::new(),
            start: 0,
            end: 0,
            looked: Vec::new(),
            has_last: false,
            is_ended: false,
            is_closing: false,
            is_ready: false,
            handshake_bytes: 0,
            failure: None,
        }
    }

    /// Whether the handshake is complete.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether the other node has ended its direction, and all its bytes are here.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Why the connection is of no use, if it is.
    #[must_use]
    pub const fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Whether the end or a failure is known, so that no event of the socket may follow.
    #[must_use]
    pub const fn is_decided(&self) -> bool {
        self.is_ended || self.failure.is_some()
    }

    /// The key of the other node, after the handshake.
    #[must_use]
    pub fn peer_key(&self) -> Option<[u8; KEY_LENGTH]> {
        if !self.is_ready {
            return None;
        }
        of_info(self.connection.peer_certificates()?.first()?)
    }

    /// Reads decrypted bytes; 0 at the end that the other node has sent.
    ///
    /// # Errors
    /// `WouldBlock` if the socket has no more, those of the socket, and `ConnectionReset` after a
    /// [`failure`](Self::failure).
    pub fn receive(
        &mut self,
        wire: &mut (impl Read + Write),
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let mut count = copy(&self.looked, buffer);
        self.looked.drain(..count);
        let end = loop {
            let Some(rest) = buffer.get_mut(count..).filter(|rest| !rest.is_empty()) else {
                return Ok(count);
            };
            match self.take_decrypted(rest) {
                Ok(0) => break Ok(0),
                Ok(more) => {
                    count += more;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => break Err(error),
            }
            match self.take_in(wire) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        match count {
            0 => end,
            count => Ok(count),
        }
    }

    /// Reads decrypted bytes, which the next calls deliver again.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn look(&mut self, wire: &mut (impl Read + Write), buffer: &mut [u8]) -> io::Result<usize> {
        if self.looked.is_empty() {
            let mut looked = vec![0; buffer.len()];
            let count = self.receive(wire, &mut looked)?;
            looked.truncate(count);
            self.looked = looked;
        }
        Ok(copy(&self.looked, buffer))
    }

    /// Takes some of the bytes and sends them. Until the handshake is complete, they wait here, at most 64 KiB.
    ///
    /// # Errors
    /// `WouldBlock` if the socket has no room, those of the socket, and `ConnectionReset` after a
    /// [`failure`](Self::failure).
    pub fn send(&mut self, wire: &mut (impl Read + Write), bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.flush(wire)?;
        let (had_last, new) = match (self.has_last, bytes.split_first()) {
            (true, Some((_, new))) => (1, new),
            _ => (0, bytes),
        };
        self.has_last = false;
        let taken = match new.is_empty() {
            true => 0,
            false => self.connection.writer().write(new)?,
        };
        let taken = had_last + taken;
        match self.flush(wire) {
            Ok(()) if taken == 0 && !bytes.is_empty() => Err(ErrorKind::WouldBlock.into()),
            Ok(()) => Ok(taken),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.has_last = taken > 0;
                match taken.saturating_sub(1) {
                    0 => Err(error),
                    taken => Ok(taken),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Sends the end of this direction (`close_notify`). Afterwards, the owner sends a FIN.
    ///
    /// # Errors
    /// `WouldBlock` if the socket has no room; the call has to be repeated. Those of the socket.
    pub fn end_writing(&mut self, wire: &mut (impl Read + Write)) -> io::Result<()> {
        self.check()?;
        if !self.is_closing {
            self.is_closing = true;
            self.connection.send_close_notify();
        }
        self.flush(wire)
    }

    fn check(&self) -> io::Result<()> {
        match self.failure {
            None => Ok(()),
            Some(failure) => Err(reset(failure)),
        }
    }

    /// Sends what is encrypted; `Ok` if nothing is left.
    fn flush(&mut self, wire: &mut impl Write) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(wire) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.count_handshake(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Decrypted bytes that are here already.
    fn take_decrypted(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.connection.reader().read(buffer) {
            Ok(0) if self.is_ready => {
                self.is_ended = true;
                Ok(0)
            }
            Ok(count) if self.is_ready => Ok(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.check()?;
                Err(error)
            }
            // Before the handshake is complete, anybody may have sent the end.
            _ => {
                let failure = *self.failure.get_or_insert(Failure::Truncated);
                Err(reset(failure))
            }
        }
    }

    /// Reads from the socket, and decrypts.
    fn take_in(&mut self, wire: &mut (impl Read + Write)) -> io::Result<()> {
        match self.flush(wire) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        if self.start >= self.end {
            (self.start, self.end) = (0, 0);
            self.staged.resize(PIECE, 0);
            match wire.read(&mut self.staged) {
                Ok(count) => self.end = count.min(PIECE),
                Err(error) => {
                    self.staged = Vec::new();
                    return Err(error);
                }
            }
        }
        let mut rest = self.staged.get(self.start..self.end).unwrap_or_default();
        let before = rest.len();
        self.connection.read_tls(&mut rest)?;
        let taken = before.saturating_sub(rest.len());
        self.start += taken;
        self.count_handshake(taken);
        let processed = self.connection.process_new_packets().map(|_| ());
        if let Err(error) = processed.and_then(|()| self.agree()) {
            self.failure.get_or_insert(failure(&error, self.is_ready));
        }
        // An alert, or a message of the handshake. If there is no room, a later call sends it.
        match self.flush(wire) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// After the handshake, the protocol has to be agreed on. A node that requests none would be treated as one that
    /// has requested this one.
    fn agree(&mut self) -> Result<(), Error> {
        if self.is_ready || self.connection.is_handshaking() {
            return Ok(());
        }
        if self.connection.alpn_protocol() != Some(PROTOCOL) {
            return Err(Error::NoApplicationProtocol);
        }
        self.is_ready = true;
        Ok(())
    }

    fn count_handshake(&mut self, count: usize) {
        if !self.is_ready {
            self.handshake_bytes = self.handshake_bytes.saturating_add(count);
            if self.handshake_bytes > HANDSHAKE_LIMIT && self.connection.is_handshaking() {
                self.failure.get_or_insert(Failure::NotTls);
            }
        }
    }
}

fn copy(from: &[u8], to: &mut [u8]) -> usize {
    let count = from.len().min(to.len());
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
    count
}

fn reset(failure: Failure) -> io::Error {
    io::Error::new(ErrorKind::ConnectionReset, failure)
}

fn unusable(_: Error) -> KeyError {
    KeyError::NotUsable
}

fn failure(error: &Error, is_ready: bool) -> Failure {
    match error {
        Error::AlertReceived(_) => Failure::Refused,
        _ if is_ready => Failure::Broken,
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => Failure::WrongKey,
        Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::PeerIncompatible(_)
        | Error::NoApplicationProtocol => Failure::NotTls,
        _ => Failure::Broken,
    }
}

#[cfg(test)]
mod tests;
