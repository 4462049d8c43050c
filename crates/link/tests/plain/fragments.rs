//! Fragmentation and reassembly, with packets of real bytes.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use midspan_link::{
    DropReason, Entering, Entrance, FRAGMENT_HEADER, Output, Packet, Piece, Reassemble, Reassembly,
    Stage,
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

    fn piece(&self) -> Piece {
        self.piece
    }

    fn cut(&self, piece: Piece, skip: u32, bytes: u32) -> Option<Self> {
        let payload = self.payload[skip as usize..(skip + bytes) as usize].to_vec();
        Some(Self {
            flow: self.flow,
            piece,
            payload,
        })
    }
}

impl Reassemble for Bytes {
    type Key = (u8, u16);

    fn key(&self) -> Self::Key {
        (self.flow, self.piece.identification)
    }

    fn join(pieces: Vec<Self>) -> Option<Self> {
        Some(Self {
            flow: pieces.first()?.flow,
            piece: Piece::default(),
            payload: pieces.into_iter().flat_map(|piece| piece.payload).collect(),
        })
    }
}

/// The fragments of a packet that can be cut.
fn fragments(packet: &Bytes, mtu: u32, identification: u16) -> Vec<Bytes> {
    midspan_link::fragments(packet, mtu, identification).unwrap()
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

fn reassembly_of_four() -> Reassembly<Bytes> {
    Reassembly::new(TimeSpan::from_milliseconds(1000), 4)
}

/// Hasegawa §3: a segment of 4,420 bytes with 40 bytes of headers makes three fragments at 1,500.
#[test]
fn an_oversized_segment_makes_three_fragments() {
    let mut entrance = Entrance::new(Some(1500), false, 6);
    let Entering::Fragments(pieces) = entrance.enter(packet(1, 4460)) else {
        panic!("not cut");
    };
    let sizes: Vec<(u32, u16, bool)> = pieces
        .iter()
        .map(|packet| (packet.size(), packet.piece.offset, packet.piece.more))
        .collect();
    assert_eq!(
        sizes,
        [(1500, 0, true), (1500, 185, true), (1500, 370, false)]
    );
    assert!(pieces.iter().all(|packet| packet.piece.identification == 7));
    let whole = packet(1, 1500);
    assert_eq!(entrance.enter(whole.clone()), Entering::Whole(whole));
    assert_eq!(entrance.refused().packets, 0);
}

#[test]
fn a_link_that_drops_fragments_makes_none() {
    let mut entrance = Entrance::new(Some(1500), true, 0);
    assert_eq!(entrance.passes(), 0);
    let large = packet(1, 1501);
    assert_eq!(entrance.enter(large.clone()), Entering::Refused(large));
    let fragment = fragments(&packet(1, 3000), 1500, 1).remove(1);
    assert_eq!(
        entrance.enter(fragment.clone()),
        Entering::Refused(fragment)
    );
    let whole = packet(1, 1500);
    assert_eq!(entrance.enter(whole.clone()), Entering::Whole(whole));
    let refused = entrance.refused();
    assert_eq!((refused.packets, refused.bytes), (2, 1501 + 1500));
}

#[test]
fn a_packet_that_cannot_be_cut_is_refused() {
    let mut entrance = Entrance::new(Some(1500), false, 0);
    let bytes = vec![0_u8; 1501];
    assert_eq!(entrance.enter(bytes.clone()), Entering::Refused(bytes));
}

#[test]
fn one_lost_fragment_loses_the_packet_after_the_timeout() {
    let mut reassembly = reassembly_of_four();
    for piece in &fragments(&packet(1, 4460), 1500, 7)[1..] {
        reassembly.handle(at(5), piece.clone());
    }
    assert_eq!(reassembly.poll(at(1004)), None);
    assert_eq!(reassembly.poll_timeout(), Some(at(1005)));
    for _ in 0..2 {
        let Some(Output::Dropped { due, reason, .. }) = reassembly.poll(at(2000)) else {
            panic!("nothing was given up");
        };
        assert_eq!((due, reason), (at(1005), DropReason::Incomplete));
    }
    assert_eq!((reassembly.poll(at(2000)), reassembly.held()), (None, 0));
}

#[test]
fn the_oldest_gives_way() {
    let mut reassembly = reassembly_of_four();
    for identification in 0..5 {
        reassembly.handle(
            at(1),
            fragments(&packet(1, 3000), 1500, identification).remove(0),
        );
    }
    let Some(Output::Dropped { packet, .. }) = reassembly.poll(at(1)) else {
        panic!("nothing gave way");
    };
    assert_eq!((packet.piece.identification, reassembly.held()), (0, 4));
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
        let mut reassembly = reassembly_of_four();
        let mut joined = Vec::new();
        for piece in pieces {
            reassembly.handle(at(0), piece);
            while let Some(output) = reassembly.poll(at(0)) {
                let Output::Delivered { mut packet, .. } = output else { panic!("dropped") };
                packet.piece = Piece::default();
                joined.push(packet);
            }
        }
        joined.sort_by_key(|packet| packet.flow);
        prop_assert_eq!(joined, whole);
        prop_assert_eq!(reassembly.held(), 0);
    }
}
