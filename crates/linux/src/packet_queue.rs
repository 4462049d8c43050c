//! Packets that the kernel holds until a program gives a verdict (NFQUEUE,
//! <linux/netfilter/nfnetlink_queue.h>).
//!
//! The queue is bounded, and a failure does not stop traffic: if the queue is full, a packet passes as if
//! there were no queue (`NFQA_CFG_F_FAIL_OPEN`). If no program listens and the rule has `bypass`, packets
//! pass too. Packets that are held when the socket is closed are dropped.
//!
//! This is code of its own instead of a library, because it needs a verdict with a mark, the fail-open flag
//! and the interfaces of a packet, on a non-blocking socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::nfnetlink::{
    ACKNOWLEDGE, Received, Request, Socket, attributes, message_type, messages,
};

const SUBSYSTEM: u8 = 3;
const PACKET: u16 = message_type(SUBSYSTEM, 0);
const VERDICT: u16 = message_type(SUBSYSTEM, 1);
const CONFIGURE: u16 = message_type(SUBSYSTEM, 2);

/// Attributes of a configuration message.
const COMMAND: u16 = 1;
const PARAMETERS: u16 = 2;
const LENGTH: u16 = 3;
const FLAG_MASK: u16 = 4;
const FLAGS: u16 = 5;
const BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
const FAIL_OPEN: u32 = 1;

/// Attributes of a packet and of a verdict.
const PACKET_HEADER: u16 = 1;
const VERDICT_HEADER: u16 = 2;
const MARK: u16 = 3;
const IN_INTERFACE: u16 = 5;
const OUT_INTERFACE: u16 = 6;
const PAYLOAD: u16 = 10;
const WHOLE_LENGTH: u16 = 13;

pub use crate::nfnetlink::Batch;

/// Most verdicts in one call; about 2 KB.
const VERDICTS_AT_ONCE: usize = 64;

/// Buffer for one `recv`: one packet, or an answer.
pub const BUFFER: usize = 1 << 17;

/// Copies packets whole, for [`PacketQueue::bind`].
pub const WHOLE: u16 = u16::MAX;

/// The verdict about a held packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is dropped.
    Drop,
    /// The packet passes, with its mark or another.
    Accept {
        /// The new mark of the packet.
        mark: Option<u32>,
    },
}

/// A held packet, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedPacket<'a> {
    /// Its number, for the verdict.
    pub id: u32,
    /// Its mark.
    pub mark: u32,
    /// Index of the interface at which it arrived; 0 if none.
    pub in_interface: u32,
    /// Index of the interface by which it will leave; 0 if unknown.
    pub out_interface: u32,
    /// The copied part of the packet, from its IP header on.
    pub payload: &'a [u8],
    /// Its whole length, in bytes from its IP header on.
    pub length: u32,
}

/// A queue for which this process gives the verdicts. Needs `CAP_NET_ADMIN` of the network
/// namespace, also for each verdict.
#[derive(Debug)]
pub struct PacketQueue {
    socket: Socket,
    number: u16,
    verdicts: Request,
}

impl PacketQueue {
    /// Opens the queue with this number, for at most `length` held packets, in the calling thread's
    /// network namespace. At most `copied` bytes of each packet are copied, from its IP header on;
    /// the kernel holds the whole packet.
    ///
    /// # Errors
    /// `PermissionDenied` if another process has the queue (or the capability is missing),
    /// otherwise those of netlink.
    pub fn bind(number: u16, length: u32, copied: u16) -> io::Result<Self> {
        let socket = Socket::open(0)?;
        let mut request = Request::default();
        // `struct nfqnl_msg_config_cmd`: command, padding, protocol family (no longer used).
        request.message(CONFIGURE, ACKNOWLEDGE, 0, number, |content| {
            content.bytes(COMMAND, &[BIND, 0, 0, 0]);
        });
        request.message(CONFIGURE, ACKNOWLEDGE, 0, number, |content| {
            // `struct nfqnl_msg_config_params`: range, mode.
            let [high, low] = copied.to_be_bytes();
            content.bytes(PARAMETERS, &[0, 0, high, low, COPY_PACKET]);
            content.number(LENGTH, length);
            content.number(FLAG_MASK, FAIL_OPEN);
            content.number(FLAGS, FAIL_OPEN);
        });
        socket.request(&request)?;
        // About a kilobyte for each waiting SYN.
        socket.set_receive_buffer(usize::try_from(length).unwrap_or(usize::MAX / 1024) * 1024);
        socket.set_nonblocking()?;
        Ok(Self {
            socket,
            number,
            verdicts: Request::default(),
        })
    }

    /// The same queue for another thread of this process. Each packet reaches one of the threads, and
    /// any of them may give its verdict.
    ///
    /// # Errors
    /// Those of `fcntl(2)`.
    pub fn share(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.share()?,
            number: self.number,
            verdicts: Request::default(),
        })
    }

    /// Reads waiting packets and passes each to `handle`; returns whether there may be more.
    ///
    /// # Errors
    /// Those of `recv(2)`. Packets for whose messages the socket had no room have passed.
    pub fn receive(
        &self,
        buffer: &mut [u8],
        mut handle: impl FnMut(QueuedPacket<'_>),
    ) -> io::Result<bool> {
        let count = match self.socket.receive(buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(true),
            Err(error) => return Err(error),
        };
        for message in messages(buffer.get(..count).unwrap_or_default()) {
            if let Received::Message(PACKET, content) = message
                && let Some(packet) = parse(content)
            {
                handle(packet);
            }
        }
        Ok(true)
    }

    /// Records the verdict about a packet; [`flush`](Self::flush) sends it to the kernel, or this
    /// function when there are many.
    ///
    /// # Errors
    /// Those of `send(2)`.
    pub fn decide(&mut self, id: u32, verdict: Verdict) -> io::Result<()> {
        let (code, mark) = match verdict {
            Verdict::Drop => (0_u32, None),
            Verdict::Accept { mark } => (1, mark),
        };
        let mut header = [0; 8];
        header[..4].copy_from_slice(&code.to_be_bytes());
        header[4..].copy_from_slice(&id.to_be_bytes());
        let number = self.number;
        self.verdicts.message(VERDICT, 0, 0, number, |content| {
            content.bytes(VERDICT_HEADER, &header);
            if let Some(mark) = mark {
                content.number(MARK, mark);
            }
        });
        match self.verdicts.count() >= VERDICTS_AT_ONCE {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Sends all recorded verdicts to the kernel, in one call. Each message is independent: if one
    /// fails because its packet is gone, the others still take effect.
    ///
    /// # Errors
    /// Those of `send(2)`.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.verdicts.count() == 0 {
            return Ok(());
        }
        let sent = self.socket.send(&self.verdicts);
        self.verdicts.clear();
        sent
    }

    /// Like [`receive`](Self::receive), for as many packets as the batch has room for, in one system
    /// call. Each packet must be small ([`Batch::PACKET_LIMIT`]).
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_batch(
        &self,
        batch: &mut Batch,
        mut handle: impl FnMut(QueuedPacket<'_>),
    ) -> io::Result<bool> {
        match self.socket.receive_batch(batch) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(true),
            Err(error) => return Err(error),
        }
        for bytes in batch.received() {
            for message in messages(bytes) {
                if let Received::Message(PACKET, content) = message
                    && let Some(packet) = parse(content)
                {
                    handle(packet);
                }
            }
        }
        Ok(batch.is_full())
    }
}

impl AsFd for PacketQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

pub(crate) fn parse(content: &[u8]) -> Option<QueuedPacket<'_>> {
    let number = |bytes: &[u8]| {
        let bytes = bytes.get(..4)?.try_into().ok()?;
        Some(u32::from_be_bytes(bytes))
    };
    let mut id = None;
    let mut packet = QueuedPacket {
        id: 0,
        mark: 0,
        in_interface: 0,
        out_interface: 0,
        payload: &[],
        length: 0,
    };
    let mut whole = None;
    for (kind, bytes) in attributes(content) {
        match kind {
            PACKET_HEADER => id = number(bytes),
            MARK => packet.mark = number(bytes)?,
            IN_INTERFACE => packet.in_interface = number(bytes)?,
            OUT_INTERFACE => packet.out_interface = number(bytes)?,
            PAYLOAD => packet.payload = bytes,
            WHOLE_LENGTH => whole = number(bytes),
            _ => {}
        }
    }
    packet.id = id?;
    // The kernel reports the length only if it has cut the packet.
    let copied = u32::try_from(packet.payload.len()).unwrap_or(u32::MAX);
    packet.length = whole.unwrap_or(copied).max(copied);
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_read_from_its_message() {
        let mut bytes = Vec::new();
        for (kind, content) in [
            (PACKET_HEADER, &[0, 0, 1, 2, 8, 0, 2][..]),
            (MARK, &[0x0f, 0, 0, 1][..]),
            (IN_INTERFACE, &[0, 0, 0, 5][..]),
            (PAYLOAD, &[0x45, 0, 0][..]),
            (WHOLE_LENGTH, &[0, 0, 0xea, 0x74][..]),
        ] {
            bytes.extend(u16::try_from(content.len() + 4).unwrap().to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(content);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let packet = parse(&bytes).unwrap();
        assert_eq!((packet.id, packet.mark), (0x102, 0x0f00_0001));
        assert_eq!((packet.in_interface, packet.out_interface), (5, 0));
        assert_eq!((packet.payload, packet.length), (&[0x45, 0, 0][..], 60_020));
        assert_eq!(parse(&bytes[12..]), None);
    }
}
