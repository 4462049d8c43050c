//! Messages between the relay and the process that looks up names: JSON over a `SOCK_SEQPACKET`
//! pair.

use std::net::IpAddr;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Longest message in bytes: 16 addresses, or a name of 253 bytes.
const MESSAGE: usize = 4096;

/// The number of an answer that belongs to no request: the resolver has crashed, and begins again. The
/// requests that it had read are lost.
pub const BEGUN_AGAIN: u64 = u64::MAX;

/// A request to look up a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The answer has the same number.
    pub number: u64,
    /// The name.
    pub name: String,
}

/// The result of a look-up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The number of the request.
    pub number: u64,
    /// `None`: too many names wait. Empty: the name has no address.
    pub addresses: Option<Vec<IpAddr>>,
}

/// Sends one message.
///
/// # Errors
/// With [`SendFlags::DONTWAIT`], `WouldBlock` if the socket's buffer is full.
pub fn send(socket: impl AsFd, message: &impl Serialize, flags: SendFlags) -> std::io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    loop {
        match rustix::net::send(&socket, &bytes, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives the next message; `None` if the other process has closed its socket.
///
/// # Errors
/// Those of `recv(2)`, and a message that cannot be parsed.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> std::io::Result<Option<T>> {
    let mut bytes = [0_u8; MESSAGE];
    loop {
        match rustix::net::recv(&socket, &mut bytes[..], RecvFlags::empty()) {
            Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(None),
            Ok((count, _)) => {
                let bytes = bytes.get(..count).unwrap_or_default();
                return Ok(Some(serde_json::from_slice(bytes)?));
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
