//! The request of a hop to the next node, and the node's answer.

use std::net::SocketAddr;

use midspan_explicit::hop::{AnswerReader, HopAnswer, HopError};
use midspan_tls::Failure;
use rustix::io::Errno;

use super::first_data::FirstData;
use super::flush;
use crate::register::SharedSocket;

/// Bytes of an answer that are looked at in one call. Most answers have fewer.
const PIECE: usize = 4096;

/// A connection to the next node, while the node's answer is awaited.
///
/// Only the head of the answer is read from the socket. The bytes after the head stay in the kernel, so the
/// session can splice these bytes.
#[derive(Debug)]
pub struct HopCall {
    address: SocketAddr,
    socket: SharedSocket,
    /// The part of the request that has not been sent.
    to_send: Vec<u8>,
    /// What was sent after the request.
    first: FirstData,
    reader: AnswerReader,
    /// Bytes that the reader has, and that are still in the kernel.
    left: usize,
    /// The whole answer, while its last bytes are still in the kernel.
    answer: Option<HopAnswer>,
}

/// The present state of a hop.
#[derive(Debug)]
pub enum HopState {
    /// No whole answer yet.
    Waiting,
    /// The node has answered; it may have refused.
    Answered(HopAnswer),
    /// There is no answer.
    Failed(HopError),
}

impl HopCall {
    /// A hop over this socket, which is connected to the node at this address.
    pub fn new(address: SocketAddr, socket: SharedSocket, request: Vec<u8>) -> Self {
        Self {
            address,
            socket,
            to_send: request,
            first: FirstData::default(),
            reader: AnswerReader::default(),
            left: 0,
            answer: None,
        }
    }

    /// Sends and reads as much as possible.
    pub fn advance(&mut self) -> HopState {
        if flush(&self.socket, &mut self.to_send).is_err() {
            return HopState::Failed(self.why_ended());
        }
        loop {
            match self.read() {
                Ok(Some(state)) => return state,
                Ok(None) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return HopState::Waiting,
                Err(_) => return HopState::Failed(self.why_ended()),
            }
        }
    }

    /// Why the connection is of no use.
    fn why_ended(&self) -> HopError {
        match self.socket.failure() {
            Some(Failure::WrongKey) => HopError::TlsCertificateError,
            Some(Failure::Refused) => HopError::TlsAlertReceived,
            Some(Failure::NotTls | Failure::Broken) => HopError::TlsProtocolError,
            Some(Failure::Truncated) | None => HopError::ConnectionTerminated,
        }
    }

    /// Sends the client's [first data](FirstData), if the whole request was sent.
    pub fn send_first(&mut self, parts: [&[u8]; 2]) {
        if self.to_send.is_empty() {
            self.first.send(parts, &self.socket);
        }
    }

    /// Whether the node's kernel has the whole request.
    pub fn is_acknowledged(&self) -> bool {
        self.to_send.is_empty() && self.first.is_reached(&self.socket)
    }

    /// Whether the node cannot have passed on any first data, although it has not answered.
    pub fn may_be_repeated(&self) -> bool {
        self.first.is_untouched(&self.socket)
    }

    /// The node's address, the socket, which is the session's server leg after a success, and how many bytes of first
    /// data it has carried.
    pub fn into_leg(self) -> (SocketAddr, SharedSocket, usize) {
        (self.address, self.socket, self.first.sent())
    }

    /// Reads some bytes; `None` if there may be more.
    fn read(&mut self) -> rustix::io::Result<Option<HopState>> {
        let mut buffer = [0_u8; PIECE];
        while self.left > 0 {
            let most = self.left.min(PIECE);
            let buffer = buffer.get_mut(..most).unwrap_or_default();
            match self.socket.receive(buffer)? {
                0 => return Ok(Some(HopState::Failed(HopError::ConnectionTerminated))),
                count => self.left = self.left.saturating_sub(count),
            }
        }
        if let Some(answer) = self.answer.take() {
            return Ok(Some(HopState::Answered(answer)));
        }
        let count = self.socket.look(&mut buffer)?;
        if count == 0 {
            return Ok(Some(HopState::Failed(HopError::ConnectionTerminated)));
        }
        let bytes = buffer.get(..count).unwrap_or_default();
        match self.reader.take(bytes) {
            Ok((taken, answer)) => {
                (self.left, self.answer) = (taken, answer);
                Ok(None)
            }
            Err(_) => Ok(Some(HopState::Failed(HopError::HttpProtocolError))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use super::*;

    /// A hop, and the node that it is connected to.
    fn hop() -> (HopCall, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        let (node, _) = listener.accept().unwrap();
        (
            HopCall::new(
                address,
                Arc::new(OwnedFd::from(socket).into()),
                b"request".to_vec(),
            ),
            node,
        )
    }

    /// The state after the bytes have arrived.
    fn after(call: &mut HopCall, node: &mut TcpStream, bytes: &[u8]) -> HopState {
        node.write_all(bytes).unwrap();
        loop {
            // Loopback delivers at once, but another thread of the kernel may do so.
            match call.advance() {
                HopState::Waiting if call.socket.look(&mut [0]).is_ok() => {}
                state => return state,
            }
        }
    }

    #[test]
    fn exactly_the_head_is_read() {
        let (mut call, mut node) = hop();
        assert!(matches!(call.advance(), HopState::Waiting));
        let mut request = [0; 7];
        node.read_exact(&mut request).unwrap();
        assert_eq!(&request, b"request");
        let head = b"HTTP/1.1 200 OK\r\nServer-Timing: sin;dur=1\r\n\r\n";
        for byte in &head[..head.len() - 1] {
            assert!(matches!(
                after(&mut call, &mut node, &[*byte]),
                HopState::Waiting
            ));
        }
        let HopState::Answered(answer) = after(&mut call, &mut node, b"\ndata") else {
            panic!("there is no answer");
        };
        assert_eq!(answer.connect_times.len(), 1);
        let (_, socket, _) = call.into_leg();
        let mut leg = TcpStream::from(OwnedFd::from(Arc::into_inner(socket).unwrap()));
        leg.set_nonblocking(false).unwrap();
        let mut data = [0; 4];
        leg.read_exact(&mut data).unwrap();
        assert_eq!(&data, b"data");
    }

    #[test]
    fn a_long_head_is_read_in_pieces() {
        let (mut call, mut node) = hop();
        let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\nd", "x".repeat(3 * PIECE));
        let state = after(&mut call, &mut node, head.as_bytes());
        assert!(matches!(state, HopState::Answered(_)), "{state:?}");
        assert_eq!(call.socket.look(&mut [0; 9]), Ok(1));
    }

    #[test]
    fn an_end_and_other_bytes_are_failures() {
        let (mut call, node) = hop();
        drop(node);
        let state = loop {
            match call.advance() {
                HopState::Waiting => std::thread::yield_now(),
                state => break state,
            }
        };
        let terminated = HopError::ConnectionTerminated;
        assert!(matches!(state, HopState::Failed(error) if error == terminated));
        let (mut call, mut node) = hop();
        let state = after(&mut call, &mut node, b"SSH-2.0-x\r\n\r\n");
        let malformed = HopError::HttpProtocolError;
        assert!(matches!(state, HopState::Failed(error) if error == malformed));
    }
}
