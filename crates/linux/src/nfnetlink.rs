//! Messages of nfnetlink: the kernel's netfilter subsystems over netlink(7).
//!
//! <linux/netlink.h>, <linux/netfilter/nfnetlink.h>. Headers are in the machine's byte order, the
//! numbers inside netfilter's attributes in the network's.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// `NLM_F_REQUEST` and others of <linux/netlink.h>.
pub const REQUEST: u16 = 0x1;
pub const ACKNOWLEDGE: u16 = 0x4;
pub const CREATE: u16 = 0x400;
pub const APPEND: u16 = 0x800;

/// `NLMSG_ERROR`: an answer, with 0 for success.
const ERROR: u16 = 2;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;
/// The bits of an attribute's type without flags.
const TYPE_MASK: u16 = 0x3fff;
const MESSAGE_HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
/// `struct nfgenmsg`.
const FAMILY_HEADER: usize = 4;

/// The type of a message: the subsystem and the request.
pub const fn message_type(subsystem: u8, message: u8) -> u16 {
    (subsystem as u16) << 8 | message as u16
}

/// Messages that are being written, one after the other.
#[derive(Debug)]
pub struct Request {
    bytes: Vec<u8>,
    /// The number of the last message.
    sequence: u32,
    count: usize,
    acknowledged: usize,
}

/// The first number of the next request.
static NEXT: AtomicU32 = AtomicU32::new(0);
/// Most messages of one request. Their numbers are not used again for thousands of requests.
const NUMBERS: u32 = 1 << 16;

impl Default for Request {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            sequence: NEXT.fetch_add(NUMBERS, Ordering::Relaxed),
            count: 0,
            acknowledged: 0,
        }
    }
}

impl Request {
    /// Whether a message with this number answers a message of this request. A socket may still
    /// hold answers to an earlier request for which no function waited.
    pub fn is_answered_by(&self, number: u32) -> bool {
        let back = usize::try_from(self.sequence.wrapping_sub(number));
        back.is_ok_and(|back| back < self.count)
    }

    /// Adds a message with the attributes that `content` writes.
    pub fn message(
        &mut self,
        kind: u16,
        flags: u16,
        family: u8,
        resource: u16,
        content: impl FnOnce(&mut Attributes<'_>),
    ) {
        let start = self.bytes.len();
        self.sequence = self.sequence.wrapping_add(1);
        self.count += 1;
        self.acknowledged += usize::from(flags & ACKNOWLEDGE != 0);
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((REQUEST | flags).to_ne_bytes());
        self.bytes.extend(self.sequence.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend([family, 0]);
        self.bytes.extend(resource.to_be_bytes());
        content(&mut Attributes(&mut self.bytes));
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Number of messages.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Removes all messages, and keeps the memory for others.
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.count, self.acknowledged) = (0, 0);
    }
}

/// The attributes of a message that is being written.
pub struct Attributes<'a>(&'a mut Vec<u8>);

impl Attributes<'_> {
    /// Adds an attribute with these bytes, at most 65,531.
    pub fn bytes(&mut self, kind: u16, content: &[u8]) {
        self.write(kind, |bytes| bytes.extend(content));
    }

    /// Adds an attribute with a number in network byte order.
    pub fn number(&mut self, kind: u16, number: u32) {
        self.bytes(kind, &number.to_be_bytes());
    }

    /// Adds an attribute with a text that ends with a zero.
    pub fn text(&mut self, kind: u16, text: &str) {
        self.write(kind, |bytes| {
            bytes.extend(text.as_bytes());
            bytes.push(0);
        });
    }

    /// Adds an attribute that contains others.
    pub fn nested(&mut self, kind: u16, content: impl FnOnce(&mut Attributes<'_>)) {
        self.write(kind | NESTED, |bytes| content(&mut Attributes(bytes)));
    }

    fn write(&mut self, kind: u16, content: impl FnOnce(&mut Vec<u8>)) {
        let start = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend(kind.to_ne_bytes());
        content(self.0);
        let length = u16::try_from(self.0.len() - start).unwrap_or(u16::MAX);
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        let padded = self.0.len().next_multiple_of(4);
        self.0.resize(padded, 0);
    }
}

/// A message that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received<'a> {
    /// The answer to a request: an error number, or 0.
    Answer(i32),
    /// Anything else: its type and its attributes.
    Message(u16, &'a [u8]),
}

/// The messages that one `recv` returned; an incomplete one is left out.
pub fn messages(bytes: &[u8]) -> impl Iterator<Item = Received<'_>> {
    numbered_messages(bytes).map(|(_, message)| message)
}

/// The same, each with its number, which is the number of the request that it answers.
pub fn numbered_messages(mut bytes: &[u8]) -> impl Iterator<Item = (u32, Received<'_>)> {
    std::iter::from_fn(move || {
        let length = usize::try_from(number_at(bytes, 0)?).ok()?;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let number = number_at(bytes, 8)?;
        let content = bytes.get(MESSAGE_HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        let message = match kind {
            ERROR => Received::Answer(number_at(content, 0)?.cast_signed()),
            _ => Received::Message(kind, content.get(FAMILY_HEADER..)?),
        };
        Some((number, message))
    })
}

/// The attributes in the content of a message, by type; an incomplete one is left out.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u16::from_ne_bytes(bytes.get(0..2)?.try_into().ok()?);
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let content = bytes.get(ATTRIBUTE_HEADER..usize::from(length))?;
        let next = usize::from(length).next_multiple_of(4);
        bytes = bytes.get(next..).unwrap_or_default();
        Some((kind & TYPE_MASK, content))
    })
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A netfilter socket.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Opens a socket in the calling thread's network namespace, subscribed to `groups` (as bits).
    pub fn open(groups: u32) -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(NETFILTER),
        )?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self(socket))
    }

    /// Sets the room for waiting messages, as far as the system permits.
    pub fn set_receive_buffer(&self, bytes: usize) {
        if sockopt::set_socket_recv_buffer_size_force(&self.0, bytes).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&self.0, bytes);
        }
    }

    /// Another descriptor of the same socket, for another thread.
    pub fn share(&self) -> io::Result<Self> {
        Ok(Self(rustix::io::fcntl_dupfd_cloexec(&self.0, 0)?))
    }

    /// Makes the socket non-blocking.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.0, true)?)
    }

    /// Sends the messages.
    pub fn send(&self, request: &Request) -> io::Result<()> {
        loop {
            // The kernel accepts a netlink message completely or not at all.
            match rustix::net::send(&self.0, &request.bytes, SendFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends the messages and waits for the answers that they request; returns the first answer
    /// that is an error. Only for a blocking socket without subscriptions.
    pub fn request(&self, request: &Request) -> io::Result<()> {
        self.send(request)?;
        let mut buffer = vec![0; 1 << 16];
        let mut missing = request.acknowledged;
        let mut first_error = None;
        while missing > 0 {
            let count = self.receive(&mut buffer)?;
            for (number, message) in numbered_messages(buffer.get(..count).unwrap_or_default()) {
                if let Received::Answer(code) = message
                    && request.is_answered_by(number)
                {
                    missing = missing.saturating_sub(1);
                    if code != 0 {
                        // The rest of a batch that failed may never be answered.
                        first_error.get_or_insert(io::Error::from_raw_os_error(-code));
                        missing = 0;
                    }
                }
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Reads waiting messages; returns the number of bytes.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.0, &mut *buffer, RecvFlags::empty()) {
                Ok((count, _)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Socket {
    /// Reads as many waiting messages as the batch has room for, in one system call (recvmmsg(2)).
    pub fn receive_batch(&self, batch: &mut Batch) -> io::Result<()> {
        batch.count = 0;
        loop {
            let mut parts: Vec<libc::iovec> = batch
                .bytes
                .chunks_mut(Batch::SLOT)
                .map(|slot| libc::iovec {
                    iov_base: slot.as_mut_ptr().cast(),
                    iov_len: slot.len(),
                })
                .collect();
            let mut headers: Vec<libc::mmsghdr> = parts
                .iter_mut()
                .map(|part| {
                    // SAFETY: an all-zero `mmsghdr` is a valid value of it (integers, pointers).
                    let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                    header.msg_hdr.msg_iov = part;
                    header.msg_hdr.msg_iovlen = 1;
                    header
                })
                .collect();
            let room = u32::try_from(headers.len()).unwrap_or(0);
            // SAFETY: pointer and count describe the live `headers`; each has one part, which
            // describes a slot of `batch` of its own, borrowed for as long as the call lasts.
            let count = unsafe {
                libc::recvmmsg(
                    self.0.as_raw_fd(),
                    headers.as_mut_ptr(),
                    room,
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut(),
                )
            };
            if let Ok(count) = usize::try_from(count) {
                for (length, header) in batch.lengths.iter_mut().zip(&headers) {
                    *length = header.msg_len as usize;
                }
                batch.count = count;
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

/// Room for many small messages.
#[derive(Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
    count: usize,
}

impl Batch {
    /// Most messages at a time, of a [new](Self::new) batch.
    pub const SIZE: usize = 64;
    /// The largest packet that fits with its attributes, in bytes.
    pub const PACKET_LIMIT: usize = 1024;
    const SLOT: usize = 2048;

    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::with_room(Self::SIZE)
    }

    /// An empty batch for this number of messages at a time, at least 1.
    #[must_use]
    pub fn with_room(messages: usize) -> Self {
        let messages = messages.max(1);
        Self {
            bytes: vec![0; messages * Self::SLOT],
            lengths: vec![0; messages],
            count: 0,
        }
    }

    pub(crate) fn received(&self) -> impl Iterator<Item = &[u8]> {
        let slots = self.bytes.chunks(Self::SLOT).zip(&self.lengths);
        slots
            .take(self.count)
            .map(|(slot, length)| slot.get(..*length).unwrap_or(slot))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count == self.lengths.len()
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut request = Request::default();
        request.message(message_type(3, 1), ACKNOWLEDGE, 2, 7, |content| {
            content.number(1, 77);
            content.nested(2, |content| content.text(3, "ab"));
        });
        let read: Vec<_> = messages(&request.bytes).collect();
        let [Received::Message(kind, content)] = read[..] else {
            panic!("{read:?}");
        };
        assert_eq!(kind, 0x301);
        let read: Vec<_> = attributes(content).collect();
        assert_eq!(read[0], (1, &[0, 0, 0, 77][..]));
        assert_eq!(read[1].0, 2);
        let inner: Vec<_> = attributes(read[1].1).collect();
        assert_eq!(inner, [(3, &b"ab\0"[..])]);
    }

    #[test]
    fn what_is_cut_off_or_absurd_ends_the_reading() {
        let mut request = Request::default();
        request.message(1, 0, 0, 0, |content| content.number(1, 2));
        for length in 0..request.bytes.len() {
            assert_eq!(messages(&request.bytes[..length]).count(), 0);
        }
        assert_eq!(attributes(&[0, 0, 1, 0]).count(), 0);
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0);
        assert_eq!(attributes(&[255, 255, 1, 0, 9]).count(), 0);
        assert_eq!(messages(&[0; 64]).count(), 0);
    }

    /// A late answer to an earlier request is not treated as the answer to the next one.
    #[test]
    fn answers_belong_to_their_request() {
        let mut requests: Vec<Request> = (0..3).map(|_| Request::default()).collect();
        for request in &mut requests {
            assert!(!request.is_answered_by(request.sequence));
            request.message(1, ACKNOWLEDGE, 0, 0, |_| {});
            request.message(2, 0, 0, 0, |_| {});
        }
        for (own, request) in requests.iter().enumerate() {
            for (other, sent) in requests.iter().enumerate() {
                let numbers: Vec<u32> = numbered_messages(&sent.bytes).map(|(n, _)| n).collect();
                assert_eq!(numbers.len(), 2);
                let all = numbers.iter().all(|number| request.is_answered_by(*number));
                let any = numbers.iter().any(|number| request.is_answered_by(*number));
                assert_eq!((all, any), (own == other, own == other));
            }
        }
        let mut cleared = Request::default();
        cleared.message(1, 0, 0, 0, |_| {});
        let before = cleared.sequence;
        cleared.clear();
        cleared.message(1, 0, 0, 0, |_| {});
        assert!(!cleared.is_answered_by(before) && cleared.is_answered_by(cleared.sequence));
    }

    /// The kernel answers a request for which no function waits, and then another one.
    #[test]
    fn an_answer_that_nobody_waited_for_is_passed_over() {
        const GET_GENERATION: u16 = message_type(10, 16);
        // No such subsystem: an error.
        const NOTHING: u16 = message_type(200, 0);
        let socket = Socket::open(0).unwrap();
        let mut unheard = Request::default();
        unheard.message(NOTHING, ACKNOWLEDGE, 0, 0, |_| {});
        socket.send(&unheard).unwrap();
        let mut request = Request::default();
        request.message(GET_GENERATION, ACKNOWLEDGE, 0, 0, |_| {});
        let (alone, after) = (
            Socket::open(0).unwrap().request(&request),
            socket.request(&request),
        );
        assert_eq!(
            alone.map_err(|error| error.raw_os_error()),
            after.map_err(|error| error.raw_os_error())
        );
        assert!(socket.request(&unheard).is_err());
    }
}
