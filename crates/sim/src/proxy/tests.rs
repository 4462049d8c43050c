//! A relay between two legs, without a network: segments of 1,000 bytes arrive, and the segments
//! that the outbound leg sends are checked.

use super::*;
use crate::packet::{Acknowledgement, Data, DataKind, SelectiveBlocks};
use crate::random::stream_for;
use crate::tcp::{AckRule, Receiver, ReceiverConfiguration, Sender, SenderConfiguration};
use midspan_policy::FirstFlight;
use midspan_units::{Time, TimeSpan};

struct Session {
    relay: Relay,
    inbound: Receiver,
    outbound: Sender,
}

fn at(milliseconds: u64) -> Time {
    Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
}

impl Session {
    fn new(relay: RelayConfiguration, receive: u64) -> Self {
        let inbound = Receiver::new(ReceiverConfiguration {
            buffer: receive,
            acknowledge: AckRule::Every,
            segment_size: 1000,
            ..ReceiverConfiguration::default()
        });
        let outbound = SenderConfiguration {
            segment_size: 1000,
            header_size: 0,
            handshake: false,
            ..SenderConfiguration::default()
        };
        Self {
            relay: Relay::new(relay, &outbound, stream_for(1, "service", "test")),
            inbound,
            outbound: Sender::new(outbound, 1 << 30),
        }
    }

    /// Segment `number` arrives. Returns the ACK, and the segments that the outbound leg sends.
    fn arrive(&mut self, now: u64, number: u64) -> (Option<u64>, Vec<u64>) {
        let segment = Data {
            kind: DataKind::Payload,
            sequence: 1000 * number,
            length: 1000,
        };
        self.relay
            .handle_segment(at(now), &segment, &mut self.inbound);
        self.run(now)
    }

    fn run(&mut self, now: u64) -> (Option<u64>, Vec<u64>) {
        self.relay
            .run(at(now), &mut self.inbound, &mut self.outbound);
        let ack = self.inbound.poll_transmit().map(|ack| ack.number / 1000);
        let sent = std::iter::from_fn(|| self.outbound.poll_transmit(at(now)));
        (ack, sent.map(|data| data.sequence / 1000).collect())
    }

    /// Everything before `number` is acknowledged on the outbound leg.
    fn acknowledged(&mut self, now: u64, number: u64) -> (Option<u64>, Vec<u64>) {
        let ack = Acknowledgement {
            number: 1000 * number,
            window_edge: 1 << 30,
            blocks: SelectiveBlocks::default(),
        };
        self.outbound.handle_acknowledgement(at(now), &ack);
        self.run(now)
    }

    fn deadline(&self) -> Option<u64> {
        let at = self.relay.poll_timeout(&self.outbound)?;
        Some(at.nanoseconds() / 1_000_000)
    }

    /// How many bytes the inbound sender may still send.
    fn window(&self) -> u64 {
        self.inbound.window_edge() - self.inbound.next()
    }
}

#[test]
fn forward_data_leaves_at_once_and_in_order() {
    let mut session = Session::new(RelayConfiguration::default(), 10_000);
    assert_eq!(session.arrive(0, 0), (Some(1), vec![0]));
    // 1 is missing: nothing can be forwarded. When it arrives, everything is forwarded as a burst
    // (Shikama §1).
    for number in 2..6 {
        assert_eq!(session.arrive(number, number), (Some(1), vec![]));
    }
    assert_eq!(session.arrive(9, 1), (Some(6), vec![1, 2, 3, 4, 5]));
}

#[test]
fn pacing_cuts_forward_data_and_spaces_it() {
    let relay = RelayConfiguration {
        pacing: Some("1 Mbit/s".parse().unwrap()), // 8 ms for each segment
        ..RelayConfiguration::default()
    };
    let mut session = Session::new(relay, 10_000);
    assert_eq!(session.arrive(0, 0), (Some(1), vec![0]));
    for number in 2..6 {
        assert_eq!(session.arrive(number, number), (Some(1), vec![]));
    }
    assert_eq!(session.arrive(9, 1), (Some(6), vec![1]));
    assert_eq!(session.relay.held(), 4000);
    // While chunks remain, nothing more is read: each arrival makes the window smaller.
    assert_eq!(session.arrive(10, 6), (Some(7), vec![]));
    assert_eq!(session.arrive(11, 7), (Some(8), vec![]));
    assert_eq!(session.window(), 8000);
    for (now, sent) in [(17, 2), (25, 3), (33, 4), (41, 5), (49, 6), (57, 7)] {
        assert_eq!(session.deadline(), Some(now));
        assert_eq!(session.run(now).1, [sent]);
    }
    assert_eq!(session.deadline(), None);
}

#[test]
fn a_full_send_buffer_closes_the_inbound_window() {
    let relay = RelayConfiguration {
        buffers: Buffers::Separate { send: 2000 },
        ..RelayConfiguration::default()
    };
    let mut session = Session::new(relay, 3000);
    assert_eq!(session.arrive(0, 0), (Some(1), vec![0]));
    assert_eq!(session.arrive(1, 1), (Some(2), vec![1]));
    assert_eq!(session.window(), 3000);
    for (number, window) in [(2, 2000), (3, 1000), (4, 0)] {
        assert_eq!(session.arrive(number, number), (Some(number + 1), vec![]));
        assert_eq!(session.window(), window);
    }
    // There is room for one: it leaves, and the window opens, which the ACK announces.
    assert_eq!(session.acknowledged(9, 1), (Some(5), vec![2]));
    assert_eq!(session.window(), 1000);
}

#[test]
fn a_granted_buffer_keeps_a_copy_until_it_is_acknowledged() {
    let relay = RelayConfiguration {
        buffers: Buffers::Granted { size: 3000 },
        ..RelayConfiguration::default()
    };
    let mut session = Session::new(relay, 3000);
    for (number, window) in [(0, 2000), (1, 1000), (2, 0)] {
        assert_eq!(session.arrive(0, number), (Some(number + 1), vec![number]));
        assert_eq!(session.window(), window);
    }
    // Data beyond the window is not acknowledged, so no acknowledged data is ever lost.
    assert_eq!(session.arrive(1, 3), (Some(3), vec![]));
    assert_eq!(session.inbound.counters().bytes_beyond_window, 1000);
    assert_eq!(session.acknowledged(9, 2), (Some(3), vec![]));
    assert_eq!(session.window(), 2000);
}

fn served(local_ack: LocalAck) -> Session {
    let relay = RelayConfiguration {
        service: Some(Service {
            time: ServiceTime::Constant(TimeSpan::from_milliseconds(5)),
            local_ack,
        }),
        ..RelayConfiguration::default()
    };
    let mut session = Session::new(relay, 10_000);
    // The SYN is served too; without a handshake the first segment opens the leg.
    session.outbound.handle_open();
    session
}

#[test]
fn service_after_the_local_ack_delays_only_the_forwarding() {
    let mut session = served(LocalAck::BeforeService);
    assert_eq!(session.arrive(0, 0), (Some(1), vec![]));
    assert_eq!(session.arrive(1, 1), (Some(2), vec![]));
    // The opening of the leg, then the segments, one after the other.
    assert_eq!(session.deadline(), Some(5));
    assert_eq!(session.run(5), (None, vec![]));
    assert_eq!(session.deadline(), Some(10));
    assert_eq!(session.run(10), (None, vec![0]));
    assert_eq!(session.deadline(), Some(15));
    assert_eq!(session.run(15), (None, vec![1]));
    assert_eq!(session.deadline(), None);
}

#[test]
fn service_before_the_local_ack_delays_both() {
    let mut session = served(LocalAck::AfterService);
    assert_eq!(session.arrive(0, 0), (None, vec![]));
    assert_eq!(session.arrive(1, 1), (None, vec![]));
    assert_eq!(session.deadline(), Some(5));
    assert_eq!(session.run(5), (Some(1), vec![0]));
    assert_eq!(session.deadline(), Some(10));
    assert_eq!(session.run(10), (Some(2), vec![1]));
    assert_eq!(session.deadline(), None);
}

#[test]
fn a_first_flight_is_spread_and_what_follows_is_not() {
    let mut session = Session::new(RelayConfiguration::default(), 1 << 20);
    session.outbound.start_with(100);
    session.relay.spread(FirstFlight {
        segments: 20,
        rate: "8 Mbit/s".parse().ok(),
    });
    let mut sent = Vec::new();
    for number in 0..30 {
        sent.extend(session.arrive(0, number).1);
    }
    assert_eq!(sent, (0..10).collect::<Vec<_>>());
    for (now, number) in (1..10).zip(10..) {
        assert_eq!(session.relay.poll_timeout(&session.outbound), Some(at(now)));
        assert_eq!(session.run(now).1, [number]);
    }
    assert_eq!(session.run(10).1, (19..30).collect::<Vec<_>>());
    assert_eq!(session.relay.poll_timeout(&session.outbound), None);
    assert_eq!(session.relay.held(), 0);
    assert_eq!(session.arrive(11, 30).1, [30]);
}
