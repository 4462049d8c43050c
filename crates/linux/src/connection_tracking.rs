//! Reads and deletes entries of connection tracking (<linux/netfilter/nfnetlink_conntrack.h>).

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::nfnetlink::{
    ACKNOWLEDGE, Attributes, Received, Request, Socket, attributes, message_type, numbered_messages,
};

const SUBSYSTEM: u8 = 1;
const NEW: u16 = message_type(SUBSYSTEM, 0);
const GET: u16 = message_type(SUBSYSTEM, 1);
const DELETE: u16 = message_type(SUBSYSTEM, 2);
/// `IPCTNL_MSG_CT_GET_STATS`, and two of its attributes.
const STATISTICS: u16 = message_type(SUBSYSTEM, 5);
const ENTRIES: u16 = 1;
const MOST_ENTRIES: u16 = 2;
/// `NFPROTO_IPV4`, `NFPROTO_IPV6`.
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const TCP: u8 = 6;

/// Attributes of a message, of a tuple and of its two parts.
const TUPLE_ORIGINAL: u16 = 1;
const ADDRESSES: u16 = 1;
const PROTOCOL: u16 = 2;
const TUPLE_ZONE: u16 = 3;
const PROTOCOL_STATE: u16 = 4;
const COUNTERS: [u16; 2] = [9, 10];
/// Attributes inside these parts.
const TCP_STATE: u16 = 1;
const STATE: u16 = 1;
const PACKETS: u16 = 1;
const BYTES: u16 = 2;
/// `TCP_CONNTRACK_LAST_ACK` and `TCP_CONNTRACK_CLOSE` of <linux/netfilter/nf_conntrack_tcp.h>.
const LAST_ACK: u8 = 6;
const CLOSE: u8 = 8;
const PROTOCOL_NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;

/// The traffic of one direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// Packets.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The connection is open.
    Open,
    /// Both ends have sent their FIN.
    Closed,
    /// The connection was reset.
    Reset,
}

/// A tracked connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tracked {
    /// Its state.
    pub progress: Progress,
    /// Traffic from the client, and from the server; `None` if the kernel does not count
    /// (`net.netfilter.nf_conntrack_acct`).
    pub passed: Option<[Passed; 2]>,
}

/// The occupancy of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupancy {
    /// Entries of the network namespace.
    pub entries: u64,
    /// The limit of entries (`net.netfilter.nf_conntrack_max`); beyond it, the kernel drops packets
    /// of new connections. `None` if there is no limit, or the kernel does not report it (before
    /// 4.18).
    pub limit: Option<u64>,
}

impl Occupancy {
    /// Whether at least 7/8 of the table are in use. The rest is left to connections of the host
    /// itself.
    #[must_use]
    pub const fn is_nearly_full(&self) -> bool {
        match self.limit {
            Some(limit) => self.entries >= limit - limit / 8,
            None => false,
        }
    }

    /// Reads the occupancy from the files of the calling thread's network namespace; `None` without
    /// connection tracking, or without `/proc`.
    #[must_use]
    pub fn read_files() -> Option<Self> {
        let number = |name: &str| -> Option<u64> {
            let text = fs::read_to_string(format!("/proc/sys/net/netfilter/{name}")).ok()?;
            text.trim().parse().ok()
        };
        Some(Self {
            entries: number("nf_conntrack_count")?,
            limit: number("nf_conntrack_max").filter(|limit| *limit != 0),
        })
    }
}

/// The connection tracking of a network namespace.
#[derive(Debug)]
pub struct ConnectionTracking {
    socket: Socket,
}

impl ConnectionTracking {
    /// Opens the connection tracking of the calling thread's network namespace. Deleting entries
    /// needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// Those of `socket(2)`.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::open(0)?;
        Ok(Self { socket })
    }

    /// Deletes the entry of a TCP connection from `source` to `destination` whose original
    /// direction is in `zone`, so that its addresses and ports are free for another connection.
    ///
    /// # Errors
    /// `NotFound` if there is no such entry; otherwise those of netlink.
    pub fn forget(&self, source: SocketAddr, destination: SocketAddr, zone: u16) -> io::Result<()> {
        let zone = Some(zone);
        let request = request(DELETE, source, destination, zone);
        self.socket.request(&request)
    }

    /// Reads the occupancy of the table. Needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// Those of netlink; `InvalidData` if the kernel does not report the number of entries.
    pub fn occupancy(&self) -> io::Result<Occupancy> {
        let mut request = Request::default();
        request.message(STATISTICS, ACKNOWLEDGE, 0, 0, |_| {});
        let found = self.ask(&request, STATISTICS, occupancy)?;
        found.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The entry of a TCP connection from `source` to `destination` that this machine forwards, in
    /// the default zone; `None` if there is no entry (any more).
    ///
    /// # Errors
    /// Those of netlink.
    pub fn look(&self, source: SocketAddr, destination: SocketAddr) -> io::Result<Option<Tracked>> {
        let request = request(GET, source, destination, None);
        match self.ask(&request, NEW, tracked) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            result => result,
        }
    }

    /// Sends a request with acknowledgement; returns what `read` finds in the answer of this kind.
    fn ask<T>(
        &self,
        request: &Request,
        answer: u16,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        self.socket.send(request)?;
        let mut buffer = vec![0; ANSWER];
        let mut found = None;
        loop {
            let count = self.socket.receive(&mut buffer)?;
            for (number, message) in numbered_messages(buffer.get(..count).unwrap_or_default()) {
                // An answer to an earlier request is about another connection.
                if !request.is_answered_by(number) {
                    continue;
                }
                match message {
                    Received::Message(kind, content) if kind == answer => found = read(content),
                    Received::Message(..) => {}
                    Received::Answer(0) => return Ok(found),
                    Received::Answer(code) => return Err(io::Error::from_raw_os_error(-code)),
                }
            }
        }
    }
}

/// Room for an answer and its acknowledgement.
const ANSWER: usize = 1 << 14;

fn request(kind: u16, source: SocketAddr, destination: SocketAddr, zone: Option<u16>) -> Request {
    let family = if source.is_ipv4() { IPV4 } else { IPV6 };
    let mut request = Request::default();
    request.message(kind, ACKNOWLEDGE, family, 0, |content| {
        content.nested(TUPLE_ORIGINAL, |tuple| {
            tuple.nested(ADDRESSES, |addresses| {
                address(addresses, source.ip(), [1, 3]);
                address(addresses, destination.ip(), [2, 4]);
            });
            tuple.nested(PROTOCOL, |protocol| {
                protocol.bytes(PROTOCOL_NUMBER, &[TCP]);
                protocol.bytes(SOURCE_PORT, &source.port().to_be_bytes());
                protocol.bytes(DESTINATION_PORT, &destination.port().to_be_bytes());
            });
            if let Some(zone) = zone {
                tuple.bytes(TUPLE_ZONE, &zone.to_be_bytes());
            }
        });
    });
    request
}

pub(crate) fn tracked(content: &[u8]) -> Option<Tracked> {
    let state = find(find(find(content, PROTOCOL_STATE)?, TCP_STATE)?, STATE)?;
    let progress = match state.first()? {
        &CLOSE => Progress::Reset,
        state if *state >= LAST_ACK => Progress::Closed,
        _ => Progress::Open,
    };
    let [client, server] = COUNTERS.map(|kind| passed(find(content, kind)?));
    Some(Tracked {
        progress,
        passed: client.zip(server).map(|(client, server)| [client, server]),
    })
}

fn occupancy(content: &[u8]) -> Option<Occupancy> {
    let number = |kind| {
        let value = find(content, kind)?.try_into().ok()?;
        Some(u64::from(u32::from_be_bytes(value)))
    };
    Some(Occupancy {
        entries: number(ENTRIES)?,
        limit: number(MOST_ENTRIES).filter(|limit| *limit != 0),
    })
}

fn passed(counters: &[u8]) -> Option<Passed> {
    let number = |kind| Some(u64::from_be_bytes(find(counters, kind)?.try_into().ok()?));
    Some(Passed {
        packets: number(PACKETS)?,
        bytes: number(BYTES)?,
    })
}

fn find(content: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(content).find_map(|(of, value)| (of == kind).then_some(value))
}

/// An address attribute, such as `CTA_IP_V4_SRC`: one kind for each family.
fn address(content: &mut Attributes<'_>, address: IpAddr, [ipv4, ipv6]: [u16; 2]) {
    match address {
        IpAddr::V4(four) => content.bytes(ipv4, &four.octets()),
        IpAddr::V6(six) => content.bytes(ipv6, &six.octets()),
    }
}
