//! Reads the kernel's lists of routes, addresses, rules and interfaces (rtnetlink(7)), as raw
//! messages.
//!
//! The kernel returns only what is requested (`NETLINK_GET_STRICT_CHK`): one routing table can be
//! read without the hundreds of thousands of routes in another. Reading needs no capability.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};

use rtnetlink::packet_route::AddressFamily;
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// `NLM_F_REQUEST | NLM_F_DUMP` of <linux/netlink.h>.
const DUMP: u16 = 0x1 | 0x300;
/// `NLM_F_DUMP_INTR`: the list has changed while it was read.
const INTERRUPTED: u16 = 0x10;
/// `NLMSG_ERROR`, `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `RTM_GETLINK`, `RTM_GETADDR`, `RTM_GETROUTE`, `RTM_GETRULE` of <linux/rtnetlink.h>.
const GET_LINK: u16 = 18;
const GET_ADDRESS: u16 = 22;
const GET_ROUTE: u16 = 26;
const GET_RULE: u16 = 34;
/// `RTA_TABLE`.
const TABLE: u16 = 15;
const MESSAGE_HEADER: usize = 16;
/// The kernel fills a buffer of up to 32 KiB at a time.
const BUFFER: usize = 32 << 10;
/// How often a list is read again if it changes while it is read.
const TRIES: usize = 5;

/// A list of the kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum List {
    /// All interfaces (`struct ifinfomsg`).
    Links,
    /// All addresses (`struct ifaddrmsg`).
    Addresses,
    /// The rules of a family (`struct fib_rule_hdr`).
    Rules(AddressFamily),
    /// Routes of a family (`struct rtmsg`).
    Routes {
        family: AddressFamily,
        /// Only this table.
        table: Option<u32>,
        /// Only this type (`RTN_…`), or 0 for all.
        kind: u8,
        /// Only this routing protocol (`RTPROT_…`), or 0 for all.
        protocol: u8,
    },
}

impl List {
    /// The message's type, its header and its attributes.
    fn request(self) -> (u16, Vec<u8>) {
        match self {
            Self::Links => (GET_LINK, vec![0; 16]),
            Self::Addresses => (GET_ADDRESS, vec![0; 8]),
            Self::Rules(family) => {
                let mut header = vec![0; 12];
                header[0] = u8::from(family);
                (GET_RULE, header)
            }
            Self::Routes {
                family,
                table,
                kind,
                protocol,
            } => {
                let mut header = vec![u8::from(family), 0, 0, 0, 0, protocol, 0, kind, 0, 0, 0, 0];
                if let Some(table) = table {
                    header.extend(8_u16.to_ne_bytes());
                    header.extend(TABLE.to_ne_bytes());
                    header.extend(table.to_ne_bytes());
                }
                (GET_ROUTE, header)
            }
        }
    }
}

/// A socket for reading lists of the network namespace of the thread that opened it.
pub(crate) struct RouteSocket {
    socket: Socket,
    /// The number of the last request.
    sequence: AtomicU32,
}

impl RouteSocket {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_netlink_get_strict_chk(true)?;
        Ok(Self {
            socket,
            sequence: AtomicU32::new(0),
        })
    }

    /// Reads a list once. `each` gets the content of every message, from its header on, until `each` returns
    /// `Break`. Returns whether `each` got the whole list.
    ///
    /// A table that does not exist, and a family that the kernel does not have, are empty lists.
    ///
    /// # Errors
    /// Those of netlink. `Interrupted` if the list changed while it was read; then `each` may have got
    /// inconsistent parts of the list.
    fn read(&self, list: List, mut each: impl FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<bool> {
        let number = self
            .sequence
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1);
        self.socket.send(&request(list, number), 0)?;
        let mut buffer = vec![0; BUFFER];
        let mut answer = Answer::to(number);
        loop {
            let count = match self.socket.recv(&mut &mut buffer[..], 0) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let received = buffer.get(..count).unwrap_or_default();
            if let Some(end) = answer.take_in(received, &mut each) {
                return end;
            }
        }
    }

    /// Reads a list and returns the results of `parse` for its messages. Reads the list again if it changes
    /// meanwhile, [`TRIES`] times at most. The second value: whether there were more than `limit` results, so
    /// that some are missing.
    ///
    /// # Errors
    /// Those of netlink, and those of `parse`. `Interrupted` if the list changed each time.
    pub fn collect<T>(
        &self,
        list: List,
        limit: usize,
        mut parse: impl FnMut(&[u8]) -> io::Result<Option<T>>,
    ) -> io::Result<(Vec<T>, bool)> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut found = Vec::new();
            let mut failed = None;
            let result = self.read(list, |content| match parse(content) {
                Ok(Some(_)) if found.len() >= limit => ControlFlow::Break(()),
                Ok(value) => {
                    found.extend(value);
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            });
            match (result, failed) {
                (_, Some(error)) => return Err(error),
                (Ok(is_whole), None) => return Ok((found, !is_whole)),
                (Err(error), None)
                    if error.kind() == io::ErrorKind::Interrupted && tries < TRIES => {}
                (Err(error), None) => return Err(error),
            }
        }
    }
}

/// A request for a list, with its number.
fn request(list: List, number: u32) -> Vec<u8> {
    let (kind, content) = list.request();
    let length = u32::try_from(MESSAGE_HEADER + content.len()).unwrap_or(u32::MAX);
    let mut request = Vec::with_capacity(MESSAGE_HEADER + content.len());
    request.extend(length.to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(DUMP.to_ne_bytes());
    request.extend(number.to_ne_bytes());
    // The port number.
    request.extend([0; 4]);
    request.extend(content);
    request
}

/// The kernel's answer to a request for a list, which has several parts.
pub(crate) struct Answer {
    /// The number of the request.
    number: u32,
    /// Whether the list has not changed while it was read.
    is_same: bool,
    /// Whether the caller still accepts messages.
    goes_on: bool,
}

impl Answer {
    /// The answer to the request with this number, before its first part.
    pub const fn to(number: u32) -> Self {
        Self {
            number,
            is_same: true,
            goes_on: true,
        }
    }

    /// Handles the data of one `recv`. `each` gets the content of every message of the list, from
    /// its header on, until it returns `Break`. `None` while the list has not ended; otherwise
    /// whether it was read to its end.
    pub fn take_in(
        &mut self,
        received: &[u8],
        each: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Option<io::Result<bool>> {
        for message in messages(received) {
            if message.number != self.number {
                continue;
            }
            self.is_same &= message.flags & INTERRUPTED == 0;
            match message.kind {
                ERROR | DONE => return Some(self.end(message.content)),
                // The rest must be read from the socket, because the next list uses the same
                // socket.
                _ => self.goes_on = self.goes_on && each(message.content).is_continue(),
            }
        }
        None
    }

    /// The meaning of the last message, with this content.
    fn end(&self, content: &[u8]) -> io::Result<bool> {
        let code = content.get(..4).and_then(|code| code.try_into().ok());
        match code.map_or(0, i32::from_ne_bytes).wrapping_neg() {
            0 if self.is_same || !self.goes_on => Ok(self.goes_on),
            0 => Err(io::ErrorKind::Interrupted.into()),
            libc::ENOENT | libc::EAFNOSUPPORT | libc::EOPNOTSUPP => Ok(self.goes_on),
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }
}

/// A message of the kernel.
struct Message<'a> {
    kind: u16,
    flags: u16,
    number: u32,
    content: &'a [u8],
}

/// The messages in the data of one `recv`. An incomplete one is left out.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let number = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let length = usize::try_from(number(0)?).ok()?;
        let message = Message {
            kind: half(4)?,
            flags: half(6)?,
            number: number(8)?,
            content: bytes.get(MESSAGE_HEADER..length)?,
        };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}
