//! Any possible state is read as it was written, and no bytes lead to a panic.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use midspan_handover::{
    BatchWriter, DirectionState, FromPredecessor, FromSuccessor, HeldState, InboundState,
    LongLegState, MOST_COPIED, MOST_PIPED, OutboundState, PacingState, PhaseState, ReadingState,
    RecordState, SessionState, ThrottleState, TransferState,
};
use midspan_policy::ahead_history::AheadHistory;
use midspan_policy::automatic_ahead::{AcceptedLeg, AutomaticAhead};
use midspan_policy::narrow_leg::{NarrowClient, NarrowLeg};
use midspan_policy::oversized_segments::OversizedStart;
use midspan_policy::{AccessLink, LegSample};
use midspan_units::{ByteSize, Time, TimeSpan};
use proptest::prelude::*;

fn address() -> impl Strategy<Value = SocketAddr> {
    any::<(IpAddr, u16)>().prop_map(SocketAddr::from)
}

fn reading() -> impl Strategy<Value = ReadingState> {
    any::<(u32, u32, u16, u32, u32, u32)>().prop_map(|of| ReadingState {
        retransmitted_segments: of.0,
        retransmitted_bytes: of.1,
        timeouts: of.2,
        busy: of.3,
        receive_window_limited: of.4,
        send_buffer_limited: of.5,
    })
}

fn record() -> impl Strategy<Value = RecordState> {
    let numbers = any::<(u64, bool, u64, Option<u64>, u64, u64)>();
    let others = (any::<Option<(u16, bool)>>(), name(), [reading(), reading()]);
    let largest = any::<([u32; 2], [u32; 2])>();
    let all = (address(), address(), numbers, others, largest);
    all.prop_map(|(client, server, numbers, others, largest)| RecordState {
        id: numbers.0,
        client,
        server,
        is_early: numbers.1,
        began: numbers.2,
        setup: numbers.3,
        bytes_to_client: numbers.4,
        bytes_to_server: numbers.5,
        start: others.0,
        failure: others.1,
        read: others.2,
        largest_forward_data: largest.0,
        largest_burst: largest.1,
    })
}

fn name() -> impl Strategy<Value = Option<String>> {
    let text = prop::collection::vec(any::<char>(), 0..60).prop_map(String::from_iter);
    prop::option::of(text)
}

fn throttle() -> impl Strategy<Value = ThrottleState> {
    let pacing = (1..u64::MAX, any::<u32>(), any::<u32>()).prop_map(|of| PacingState {
        rate: of.0,
        segment_size: of.1,
        header_size: of.2,
    });
    (prop::option::of(pacing), any::<(Option<u64>, u64)>()).prop_map(|(pacing, of)| ThrottleState {
        pacing,
        cap: of.0,
        look: of.1,
    })
}

fn direction() -> impl Strategy<Value = DirectionState> {
    let inbound = prop_oneof![
        Just(InboundState::Open),
        Just(InboundState::Ended),
        Just(InboundState::Broken)
    ];
    let outbound = prop_oneof![
        Just(OutboundState::Open),
        Just(OutboundState::Finished),
        Just(OutboundState::Broken)
    ];
    (inbound, outbound, any::<[bool; 4]>()).prop_map(|(inbound, outbound, flags)| DirectionState {
        inbound,
        outbound,
        bulk: flags[0],
        thorough: flags[1],
        urgent: flags[2],
        no_end: flags[3],
    })
}

fn transfer() -> impl Strategy<Value = TransferState> {
    let held = prop_oneof![
        Just(HeldState::Nothing),
        (1..=MOST_COPIED).prop_map(HeldState::Copied),
        (1..=MOST_PIPED).prop_map(HeldState::Piped),
    ];
    (direction(), held, any::<[bool; 3]>(), throttle()).prop_map(
        |(direction, held, flags, throttle)| TransferState {
            direction,
            held: match direction.outbound {
                OutboundState::Open => held,
                _ => HeldState::Nothing,
            },
            is_bounded: flags[0],
            is_kept_alive: flags[1],
            has_spliced: flags[2],
            throttle,
        },
    )
}

fn session() -> impl Strategy<Value = SessionState> {
    let phase = prop_oneof![
        any::<Option<u64>>().prop_map(|until| PhaseState::Connecting { until }),
        Just(PhaseState::Relaying),
        any::<u64>().prop_map(|until| PhaseState::Settling { until }),
    ];
    let others = any::<(u32, [bool; 2], [bool; 2], u64, bool)>();
    let long_leg = prop::option::of(long_leg().prop_map(Box::new));
    let all = (
        phase,
        record(),
        transfer(),
        transfer(),
        others,
        (name(), long_leg),
    );
    all.prop_map(
        |(phase, record, to_server, to_client, others, (destination, long_leg))| SessionState {
            listener: others.0,
            phase,
            record,
            to_server,
            to_client,
            failed: others.1,
            end_seen: others.2,
            moved_at: others.3,
            has_place: others.4,
            destination,
            long_leg,
        },
    )
}

/// A long leg after some readings.
fn long_leg() -> impl Strategy<Value = LongLegState> {
    let reading = any::<(u32, u32, u32, u32)>();
    let leg = (8_000..200_000_u64, 0..15_u8, 1..10_000_u32);
    let others = any::<(Option<u32>, u32, bool)>();
    (leg, others, prop::collection::vec(reading, 0..20)).prop_map(|(leg, others, readings)| {
        let accepted = AcceptedLeg {
            round_trip: TimeSpan::from_milliseconds(600),
            window: leg.0,
            window_scale: leg.1,
            segment_size: leg.2,
        };
        let history = AheadHistory::default();
        let mut decides = NarrowLeg::new(&NarrowClient {
            access: AccessLink::default(),
            segment_size: leg.2,
            window: leg.0,
            window_scale: leg.1,
            sizes: Arc::default(),
            start: OversizedStart::Probe,
            verdict: None,
            ahead: AutomaticAhead::prepare(&accepted, None, &history, others.2),
            bound: others.0.map(|bound| bound % 1_000),
        });
        for (count, reading) in (0..).zip(readings) {
            let sample = LegSample {
                segment_size: leg.2,
                unacknowledged: reading.0 % 10_000,
                bytes_acknowledged: ByteSize::from_bytes(reading.1.into()),
                peer_window: reading.2.into(),
                segments_retransmitted: reading.3 % 3,
                congestion_window: reading.3 % 10_000,
                minimum_round_trip_time: Some(accepted.round_trip),
                ..LegSample::default()
            };
            decides.handle_sample(Time::from_nanoseconds(count * 20_000_000), &sample);
        }
        // What begins again is left out.
        let kept = serde_json::to_value(decides.kept().unwrap()).unwrap();
        LongLegState {
            decides: serde_json::from_value(kept).unwrap(),
            ack_size: others.1,
            was_ahead: others.2,
        }
    })
}

/// What is read is written and read again as the same.
fn read_again(bytes: &[u8]) {
    if let Ok(message) = FromPredecessor::decode(bytes) {
        // The same text may be longer, because numbers and characters have several forms.
        if let Ok(written) = message.encode() {
            assert_eq!(FromPredecessor::decode(&written).unwrap(), message);
        }
    }
    if let Ok(message) = FromSuccessor::decode(bytes) {
        let written = message.encode().unwrap();
        assert_eq!(FromSuccessor::decode(&written).unwrap(), message);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_is_read_as_it_was_written(
        thread in any::<u32>(),
        sessions in prop::collection::vec(session(), 0..12),
    ) {
        let mut writer = BatchWriter::new(thread);
        for session in &sessions {
            prop_assert!(writer.push(session).unwrap());
        }
        let copied = writer.copied();
        let message = FromPredecessor::decode(&writer.finish()).unwrap();
        let FromPredecessor::Sessions(batch) = &message else {
            panic!("sessions");
        };
        prop_assert_eq!(batch.thread, thread);
        prop_assert_eq!(&batch.sessions, &sessions);
        prop_assert_eq!(batch.copied(), copied);
        let again = FromPredecessor::decode(&message.encode().unwrap()).unwrap();
        prop_assert_eq!(again, message);
    }

    #[test]
    fn an_empty_batch_has_room_for_any_session(session in session()) {
        prop_assert!(BatchWriter::new(u32::MAX).push(&session).unwrap());
    }

    #[test]
    fn arbitrary_bytes_are_refused_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        read_again(&bytes);
    }

    #[test]
    fn a_changed_message_is_refused_or_possible(
        session in session(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut writer = BatchWriter::new(0);
        writer.push(&session).unwrap();
        let mut bytes = writer.finish();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        read_again(&bytes);
    }
}
