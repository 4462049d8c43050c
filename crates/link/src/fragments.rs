//! IP fragmentation and reassembly (RFC 791 §3.2). Each fragment is a separate packet, which waits,
//! is sent and may be lost independently; if one fragment is lost, the whole packet is lost.

use std::collections::{BTreeMap, VecDeque};

use midspan_units::{Time, TimeSpan};

use crate::cell::{Cell, DropReason, Output, Outputs, Packet};

/// Which part of an IP packet a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Piece {
    /// The same in all fragments of one packet.
    pub identification: u16,
    /// Where the fragment's payload begins in the payload of the whole packet, in units of 8 bytes.
    pub offset: u16,
    /// Whether another fragment follows.
    pub more: bool,
}

impl Piece {
    /// Whether the packet is a fragment.
    #[must_use]
    pub const fn is_fragment(&self) -> bool {
        self.more || self.offset > 0
    }
}

/// A packet that can be fragmented and reassembled.
pub trait Fragment: Packet + Sized {
    /// The fields that all fragments of a packet have in common: addresses, protocol,
    /// identification.
    type Key: Ord + Copy;

    /// The key of the whole packet, and the part of it that this packet carries.
    fn piece(&self) -> (Self::Key, Piece);

    /// A fragment of this packet with `bytes` of its payload, from the byte `skip` on. The
    /// identification of `piece` is used if this packet is whole.
    fn cut(&self, piece: Piece, skip: u32, bytes: u32) -> Self;

    /// The whole packet from all its fragments, in order.
    fn join(pieces: Vec<Self>) -> Option<Self>;
}

/// Size of the IP header of every fragment, in bytes (IPv4 without options).
pub const FRAGMENT_HEADER: u32 = 20;
/// Smallest MTU that a link may have (RFC 791: every link must carry 68 bytes).
pub const LEAST_MTU: u32 = 68;

/// The fragments of `packet` for a link of `mtu` bytes (at least [`LEAST_MTU`]); the packet itself
/// if it fits. `identification` is used if the packet is whole.
pub fn fragments<P: Fragment>(packet: &P, mtu: u32, identification: u16) -> Vec<P> {
    let (_, own) = packet.piece();
    let payload = packet.size().saturating_sub(FRAGMENT_HEADER);
    // All fragments except the last carry a multiple of 8 bytes.
    let most = (mtu.max(LEAST_MTU) - FRAGMENT_HEADER) & !7;
    let mut pieces = Vec::new();
    let mut skip = 0;
    while skip < payload {
        let fits = payload - skip <= mtu.max(LEAST_MTU) - FRAGMENT_HEADER;
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
        pieces.push(packet.cut(piece, skip, bytes));
        skip += bytes;
    }
    pieces
}

/// The cell at the entrance of a link: fragments packets larger than its MTU. Takes no time.
#[derive(Debug, Clone)]
pub struct Fragmentation<P> {
    mtu: u32,
    identification: u16,
    outputs: Outputs<P>,
}

impl<P: Fragment> Fragmentation<P> {
    /// A cell for a link of `mtu` bytes, at least [`LEAST_MTU`].
    #[must_use]
    pub fn new(mtu: u32) -> Self {
        Self {
            mtu,
            identification: 0,
            outputs: Outputs::default(),
        }
    }
}

impl<P: Fragment> Cell<P> for Fragmentation<P> {
    fn handle(&mut self, now: Time, packet: P) {
        if packet.size() <= self.mtu {
            self.outputs.push(Output::Delivered { due: now, packet });
            return;
        }
        self.identification = self.identification.wrapping_add(1);
        for packet in fragments(&packet, self.mtu, self.identification) {
            self.outputs.push(Output::Delivered { due: now, packet });
        }
    }

    fn poll(&mut self, _now: Time) -> Option<Output<P>> {
        self.outputs.pop()
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.outputs.due()
    }

    fn held(&self) -> usize {
        self.outputs.len()
    }
}

/// The cell at the end of the path: reassembles fragments, and drops those of a packet whose other
/// fragments do not arrive in time. Whole packets pass at once.
#[derive(Debug, Clone)]
pub struct Reassembly<P: Fragment> {
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

impl<P: Fragment> Reassembly<P> {
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
        let (key, piece) = packet.piece();
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
            .partition_point(|other| other.piece().1.offset < piece.offset);
        let known = waiting.pieces.get(place);
        if known.is_some_and(|other| other.piece().1.offset == piece.offset) {
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
fn is_complete<P: Fragment>(pieces: &[P]) -> bool {
    let mut expected = 0;
    for packet in pieces {
        let (_, piece) = packet.piece();
        if u32::from(piece.offset) * 8 != expected {
            return false;
        }
        expected += packet.size().saturating_sub(FRAGMENT_HEADER);
        if !piece.more {
            return true;
        }
    }
    false
}

impl<P: Fragment> Cell<P> for Reassembly<P> {
    fn handle(&mut self, now: Time, packet: P) {
        self.now = self.now.max(now);
        self.expire(self.now);
        if packet.piece().1.is_fragment() {
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
