//! Fragmentation and reassembly, with packets of real bytes.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use midspan_link::{
    Cell, DropReason, FRAGMENT_HEADER, Fragment, Fragmentation, Output, Packet, Piece, Reassembly,
    fragments,
};
use midspan_units::{Time, TimeSpan};
use proptest::prelude::*;

/// A payload, and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bytes {
    flow: u8,
    piece: Piece,
    payload: Vec<u8>,
}

impl Packet for Bytes {
    fn size(&self) -> u32 {
        FRAGMENT_HEADER + self.payload.len() as u32
    }
}

impl Fragment for Bytes {
    type Key = (u8, u16);

    fn piece(&self) -> (Self::Key, Piece) {
        ((self.flow, self.piece.identification), self.piece)
    }

    fn cut(&self, piece: Piece, skip: u32, bytes: u32) -> Self {
        let payload = self.payload[skip as usize..(skip + bytes) as usize].to_vec();
        Self {
            flow: self.flow,
            piece,
            payload,
        }
    }

    fn join(pieces: Vec<Self>) -> Option<Self> {
        Some(Self {
            flow: pieces.first()?.flow,
            piece: Piece::default(),
            payload: pieces.into_iter().flat_map(|piece| piece.payload).collect(),
        })
    }
}

fn packet(flow: u8, size: u32) -> Bytes {
    Bytes {
        flow,
        piece: Piece::default(),
        payload: (0..size - FRAGMENT_HEADER).map(|byte| byte as u8).collect(),
    }
}

fn at(milliseconds: u64) -> Time {
    Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
}

fn reassembly() -> Reassembly<Bytes> {
    Reassembly::new(TimeSpan::from_milliseconds(1000), 4)
}

/// Hasegawa §3: a segment of 4,420 bytes with 40 bytes of headers makes three fragments at 1,500.
#[test]
fn an_oversized_segment_makes_three_fragments() {
    let mut cell = Fragmentation::new(1500);
    cell.handle(at(0), packet(1, 4460));
    let sizes: Vec<(u32, u16, bool)> = std::iter::from_fn(|| cell.poll(at(0)))
        .map(|output| {
            let packet = output.packet();
            (packet.size(), packet.piece.offset, packet.piece.more)
        })
        .collect();
    assert_eq!(
        sizes,
        [(1500, 0, true), (1500, 185, true), (1500, 370, false)]
    );
    cell.handle(at(0), packet(1, 1500));
    let whole = cell.poll(at(0)).unwrap();
    assert!(!whole.packet().piece.is_fragment());
}

#[test]
fn one_lost_fragment_loses_the_packet_after_the_timeout() {
    let mut cell = reassembly();
    for piece in &fragments(&packet(1, 4460), 1500, 7)[1..] {
        cell.handle(at(5), piece.clone());
    }
    assert_eq!(cell.poll(at(1004)), None);
    assert_eq!(cell.poll_timeout(), Some(at(1005)));
    for _ in 0..2 {
        let Some(Output::Dropped { due, reason, .. }) = cell.poll(at(2000)) else {
            panic!("nothing was given up");
        };
        assert_eq!((due, reason), (at(1005), DropReason::Incomplete));
    }
    assert_eq!((cell.poll(at(2000)), cell.held()), (None, 0));
}

#[test]
fn the_oldest_gives_way() {
    let mut cell = reassembly();
    for identification in 0..5 {
        cell.handle(
            at(1),
            fragments(&packet(1, 3000), 1500, identification).remove(0),
        );
    }
    let Some(Output::Dropped { packet, .. }) = cell.poll(at(1)) else {
        panic!("nothing gave way");
    };
    assert_eq!((packet.piece.identification, cell.held()), (0, 4));
}

proptest! {
    #[test]
    fn what_is_cut_twice_and_shuffled_is_joined_again(
        sizes in prop::collection::vec(30_u32..60_000, 1..4),
        first in 68_u32..9000,
        second in 68_u32..9000,
        seed in any::<u64>(),
    ) {
        let whole: Vec<Bytes> =
            sizes.iter().zip(0..).map(|(size, flow)| packet(flow, *size)).collect();
        let mut pieces: Vec<Bytes> = whole
            .iter()
            .flat_map(|packet| fragments(packet, first, 9))
            .flat_map(|piece| fragments(&piece, second, 8))
            .collect();
        prop_assert!(pieces.iter().all(|piece| piece.size() <= first.min(second)));
        // The order does not matter.
        let mut state = seed;
        for index in (1..pieces.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            pieces.swap(index, (state >> 33) as usize % (index + 1));
        }
        let mut cell = reassembly();
        let mut joined = Vec::new();
        for piece in pieces {
            cell.handle(at(0), piece);
            while let Some(output) = cell.poll(at(0)) {
                let Output::Delivered { mut packet, .. } = output else { panic!("dropped") };
                packet.piece = Piece::default();
                joined.push(packet);
            }
        }
        joined.sort_by_key(|packet| packet.flow);
        prop_assert_eq!(joined, whole);
        prop_assert_eq!(cell.held(), 0);
    }
}
