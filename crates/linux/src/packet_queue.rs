//! Packets that the kernel holds for a verdict (NFQUEUE, <linux/netfilter/nfnetlink_queue.h>).
//!
//! The queue is bounded, and open when it fails: when it is full, a packet goes on as if there
//! were no queue (`NFQA_CFG_F_FAIL_OPEN`), and so it does when nobody listens, if the rule says
//! `bypass`. Packets held when the socket is closed are dropped.
//!
//! Written here rather than taken from a library: a verdict with a mark, the fail-open flag and
//! the interfaces are needed, on a socket that does not block.

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

/// Room for what one `recv` brings: one packet, or an answer.
pub const BUFFER: usize = 1 << 17;

/// Copies packets whole, for [`PacketQueue::bind`].
pub const WHOLE: u16 = u16::MAX;

/// What becomes of a held packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is forgotten.
    Drop,
    /// It goes on, with its mark or another.
    Accept {
        /// The new mark of the packet.
        mark: Option<u32>,
    },
}

/// A held packet, as the kernel shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedPacket<'a> {
    /// Its number, for the verdict.
    pub id: u32,
    /// Its mark.
    pub mark: u32,
    /// Index of the interface it came in at; 0 if none.
    pub in_interface: u32,
    /// Index of the interface it will leave by; 0 if not known.
    pub out_interface: u32,
    /// It, from its IP header on, as far as it is copied.
    pub payload: &'a [u8],
    /// Its whole length, in bytes from its IP header on.
    pub length: u32,
}

/// A queue of which this process gives the verdicts. Needs `CAP_NET_ADMIN` of the network
/// namespace, for each verdict too.
#[derive(Debug)]
pub struct PacketQueue {
    socket: Socket,
    number: u16,
    verdicts: Request,
}

impl PacketQueue {
    /// Takes the queue with this number, for at most `length` held packets, in the network
    /// namespace of the calling thread. Of each packet so many bytes are copied at most, from its
    /// IP header on; the kernel holds all of it.
    ///
    /// # Errors
    /// `PermissionDenied` where another process has it (or the capability is missing), else those
    /// of netlink.
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

    /// Reads what waits, and hands each packet to `handle`; whether there may be more.
    ///
    /// # Errors
    /// Those of `recv(2)`. Packets that found no room to be announced went on by themselves.
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

    /// Notes what becomes of a packet; the kernel is told by [`flush`](Self::flush), or when many
    /// have been noted.
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

    /// Tells the kernel all verdicts that were noted. One call for many: each message stands for
    /// itself, and one that fails (its packet is gone) keeps none of the others from its effect.
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

    /// As [`receive`](Self::receive), for up to [`Batch::SIZE`] packets in one system call, of
    /// which each must be small ([`Batch::PACKET_LIMIT`]).
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
    // The kernel tells it only where it has cut the packet.
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
