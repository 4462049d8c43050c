//! The first data of a client, which the ingress sends to the next node after the request of the hop, before the node
//! has answered. A client that sends first waits one round trip less.
//!
//! No byte may reach the server twice, so these rules hold (RFC 9931 has most of them):
//! - Only a Midspan gets first data. Each node keeps it until the rest of the route is connected, so a node that
//!   answers with a failure has passed nothing on.
//! - Nothing of a connection is used any more after an answer that is no success.
//! - The data stays here until the answer has come. It is sent again, over another connection or route, if the node has
//!   answered with a failure, or if its kernel has acknowledged no byte of the data.
//! - Otherwise the node may have passed it on, and the session fails.

use rustix::io::Errno;

use crate::leg_socket::LegSocket;
use crate::system;

/// More than what encryption adds to the bytes of one write (RFC 8446 §5.2): two records.
const ENCRYPTION: u64 = 64;

/// The first data that was sent with one request.
#[derive(Debug, Default)]
pub struct FirstData {
    /// Bytes of the client.
    sent: usize,
    /// Bytes on the wire, at most.
    on_wire: u64,
}

impl FirstData {
    /// Sends those of the client's bytes, which are in two parts, that were not sent before. An error will be seen when
    /// the answer is read.
    pub fn send(&mut self, parts: [&[u8]; 2], node: &LegSocket) {
        let mut before = 0;
        for part in parts {
            while let Some(rest) = part.get(self.sent.saturating_sub(before)..)
                && !rest.is_empty()
            {
                match node.send(rest) {
                    Ok(count) => {
                        self.sent += count.min(rest.len());
                        self.on_wire += count as u64;
                        self.on_wire += if node.is_encrypted() { ENCRYPTION } else { 0 };
                    }
                    Err(Errno::INTR) => {}
                    Err(_) => return,
                }
            }
            before += part.len();
        }
    }

    /// How many of the client's bytes were sent.
    pub const fn sent(&self) -> usize {
        self.sent
    }

    /// Whether the node's kernel has acknowledged all bytes before the data.
    pub fn is_reached(&self, node: &LegSocket) -> bool {
        system::unacknowledged_bytes(node).is_ok_and(|bytes| bytes <= self.on_wire)
    }

    /// Whether the node's kernel has acknowledged no byte of the data, so that it may be sent again elsewhere.
    pub fn is_untouched(&self, node: &LegSocket) -> bool {
        self.sent == 0
            || system::unacknowledged_bytes(node).is_ok_and(|bytes| bytes >= self.on_wire)
    }
}
