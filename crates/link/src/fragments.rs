//! IP fragmentation and reassembly (RFC 791 §3.2). Each fragment is a separate packet, which waits,
//! is sent and may be lost independently; if one fragment is lost, the whole packet is lost.

use std::collections::{BTreeMap, VecDeque};

use midspan_units::{Time, TimeSpan};

use crate::counters::Count;
use crate::drop_reason::DropReason;
use crate::packet::{Packet, Piece};
use crate::stage::{Output, Outputs, Stage};

/// A packet that can be joined from its fragments.
pub trait Reassemble: Packet {
    /// The fields that all fragments of a packet have in common: addresses, protocol,
    /// identification.
    type Key: Ord + Copy;

    /// The key of the whole packet.
    fn key(&self) -> Self::Key;

    /// The whole packet from all its fragments, in order.
    fn join(pieces: Vec<Self>) -> Option<Self>;
}

/// Smallest MTU that a link may have (RFC 791: every link must carry 68 bytes).
pub const LEAST_MTU: u32 = 68;

/// The entrance of a link: it cuts packets larger than the MTU into fragments, or drops fragments.
/// It takes no time.
#[derive(Debug, Clone)]
pub struct Entrance {
    mtu: u32,
    drops_fragments: bool,
    identification: u16,
    refused: Count,
}

/// How a packet passes the entrance of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entering<P> {
    /// The packet enters as it is.
    Whole(P),
    /// These fragments enter instead of the packet, in this order.
    Fragments(Vec<P>),
    /// The packet does not enter.
    Refused(P),
}

impl Entrance {
    /// The entrance of a link of `mtu` bytes (at least [`LEAST_MTU`]); `None`: packets of any size
    /// enter whole. A link that drops fragments drops packets that it would have to cut, too.
    /// `identification`: of the first packet that it cuts.
    #[must_use]
    pub const fn new(mtu: Option<u32>, drops_fragments: bool, identification: u16) -> Self {
        Self {
            mtu: match mtu {
                Some(mtu) if mtu < LEAST_MTU => LEAST_MTU,
                Some(mtu) => mtu,
                None => u32::MAX,
            },
            drops_fragments,
            identification,
            refused: Count {
                packets: 0,
                bytes: 0,
            },
        }
    }

    /// The packets that it has refused.
    #[must_use]
    pub const fn refused(&self) -> Count {
        self.refused
    }

    /// The largest size of a packet that enters whole, whatever the packet is; zero if there is
    /// none.
    #[inline]
    #[must_use]
    pub const fn passes(&self) -> u32 {
        if self.drops_fragments { 0 } else { self.mtu }
    }

    /// A packet arrives.
    pub fn enter<P: Packet>(&mut self, packet: P) -> Entering<P> {
        let whole = packet.size() <= self.mtu;
        let refused = self.drops_fragments && (!whole || packet.piece().is_fragment());
        if whole && !refused {
            return Entering::Whole(packet);
        }
        if !refused {
            self.identification = self.identification.wrapping_add(1);
            if let Some(pieces) = fragments(&packet, self.mtu, self.identification) {
                return Entering::Fragments(pieces);
            }
        }
        self.refused.add(packet.size());
        Entering::Refused(packet)
    }
}

/// The fragments of `packet` for a link of `mtu` bytes (at least [`LEAST_MTU`]); `None` if it cannot
/// be cut. `identification` is used if the packet is whole.
pub fn fragments<P: Packet>(packet: &P, mtu: u32, identification: u16) -> Option<Vec<P>> {
    let own = packet.piece();
    let [header, fragment_header] = packet.fragment_headers();
    let payload = packet.size().saturating_sub(header);
    let room = mtu.max(LEAST_MTU).saturating_sub(fragment_header);
    // All fragments except the last carry a multiple of 8 bytes.
    let most = room & !7;
    if most == 0 {
        return None;
    }
    let mut pieces = Vec::new();
    let mut skip = 0;
    while skip < payload {
        let fits = payload - skip <= room;
        let bytes = if fits { payload - skip } else { most };
        let piece = Piece {
            identification: if own.is_fragment() {
                own.identification
            } else {
                identification
            },
            offset: own
                .offset
                .saturating_add(u16::try_from(skip / 8).unwrap_or(u16::MAX)),
            more: own.more || !fits,
        };
        pieces.push(packet.cut(piece, skip, bytes)?);
        skip += bytes;
    }
    Some(pieces)
}

/// The stage at the end of the path: reassembles fragments, and drops those of a packet whose other
/// fragments do not arrive in time. Whole packets pass at once.
#[derive(Debug, Clone)]
pub struct Reassembly<P: Reassemble> {
    timeout: TimeSpan,
    /// Largest number of packets that are reassembled at the same time; the oldest one is dropped
    /// for a new one.
    limit: usize,
    waiting: BTreeMap<P::Key, Waiting<P>>,
    /// The keys in the order in which their first fragment arrived, with that time.
    order: VecDeque<(Time, P::Key)>,
    outputs: Outputs<P>,
    now: Time,
}

#[derive(Debug, Clone)]
struct Waiting<P> {
    since: Time,
    /// The fragments in the order of their offsets.
    pieces: Vec<P>,
}

impl<P: Reassemble> Reassembly<P> {
    /// Drops the fragments of a packet `timeout` after the first one, and reassembles at most
    /// `limit` packets at the same time.
    #[must_use]
    pub fn new(timeout: TimeSpan, limit: usize) -> Self {
        Self {
            timeout,
            limit: limit.max(1),
            waiting: BTreeMap::new(),
            order: VecDeque::new(),
            outputs: Outputs::default(),
            now: Time::ZERO,
        }
    }

    fn add(&mut self, now: Time, packet: P) {
        let (key, piece) = (packet.key(), packet.piece());
        if !self.waiting.contains_key(&key) {
            while self.waiting.len() >= self.limit {
                self.give_up_oldest(now);
            }
            self.order.push_back((now, key));
            let pieces = Vec::new();
            self.waiting.insert(key, Waiting { since: now, pieces });
        }
        let Some(waiting) = self.waiting.get_mut(&key) else {
            return;
        };
        let place = waiting
            .pieces
            .partition_point(|other| other.piece().offset < piece.offset);
        let known = waiting.pieces.get(place);
        if known.is_some_and(|other| other.piece().offset == piece.offset) {
            // A repeated identification: the later fragment is dropped.
            self.outputs
                .push_dropped(now, packet, DropReason::Incomplete);
            return;
        }
        waiting.pieces.insert(place, packet);
        if is_complete(&waiting.pieces)
            && let Some(whole) = self.waiting.remove(&key)
            && let Some(packet) = P::join(whole.pieces)
        {
            self.outputs.push(Output::Delivered { due: now, packet });
        }
    }

    fn give_up_oldest(&mut self, at: Time) {
        let Some((since, key)) = self.order.pop_front() else {
            self.waiting.clear();
            return;
        };
        // A key that was completed, and perhaps used again, has another time.
        if self
            .waiting
            .get(&key)
            .is_some_and(|waiting| waiting.since == since)
            && let Some(waiting) = self.waiting.remove(&key)
        {
            for packet in waiting.pieces {
                self.outputs
                    .push_dropped(at, packet, DropReason::Incomplete);
            }
        }
    }

    /// Drops the fragments whose time is over.
    fn expire(&mut self, now: Time) {
        while let Some((since, _)) = self.order.front() {
            let deadline = *since + self.timeout;
            if deadline > now {
                break;
            }
            self.give_up_oldest(deadline);
        }
    }
}

/// Whether these fragments, in order, are the whole packet.
fn is_complete<P: Reassemble>(pieces: &[P]) -> bool {
    let mut expected = 0;
    for packet in pieces {
        let piece = packet.piece();
        if u32::from(piece.offset) * 8 != expected {
            return false;
        }
        expected += packet.size().saturating_sub(packet.fragment_headers()[0]);
        if !piece.more {
            return true;
        }
    }
    false
}

impl<P: Reassemble> Stage<P> for Reassembly<P> {
    fn handle(&mut self, now: Time, packet: P) {
        self.now = self.now.max(now);
        self.expire(self.now);
        if packet.piece().is_fragment() {
            self.add(self.now, packet);
        } else {
            let due = self.now;
            self.outputs.push(Output::Delivered { due, packet });
        }
    }

    fn poll(&mut self, now: Time) -> Option<Output<P>> {
        self.now = self.now.max(now);
        self.expire(self.now);
        self.outputs.pop()
    }

    fn poll_timeout(&self) -> Option<Time> {
        let oldest = self.order.front().map(|(since, _)| *since + self.timeout);
        self.outputs.due().or(oldest)
    }

    fn held(&self) -> usize {
        let pieces = self.waiting.values().map(|waiting| waiting.pieces.len());
        pieces.sum::<usize>() + self.outputs.len()
    }
}
