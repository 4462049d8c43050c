//! Segments in, ACKs out; segments of 100 bytes.

use super::*;
use crate::tcp::WindowGrowth;
use midspan_units::TimeSpan;

const EVERY: ReceiverConfiguration = ReceiverConfiguration {
    buffer: 1000,
    window_growth: WindowGrowth::Fixed,
    acknowledge: AckRule::Every,
    quick_acks: 0,
    selective: true,
    header_size: 40,
    segment_size: 100,
};

fn data(sequence: u64) -> Data {
    Data {
        kind: DataKind::Payload,
        sequence,
        length: 100,
    }
}

fn at(milliseconds: u64) -> Time {
    Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
}

/// Number, window and SACK blocks.
type Ack = (u64, u64, Vec<(u64, u64)>);

/// The ACK that is ready, if any.
fn ack(receiver: &mut Receiver) -> Option<Ack> {
    let ack = receiver.poll_transmit()?;
    let blocks = ack.blocks.as_slice().iter();
    let absolute = |offset: u32| ack.number + u64::from(offset);
    Some((
        ack.number,
        ack.window_edge - ack.number,
        blocks
            .map(|block| (absolute(block.start), absolute(block.end)))
            .collect(),
    ))
}

fn feed(receiver: &mut Receiver, sequence: u64) -> Option<Ack> {
    receiver.handle_segment(at(0), &data(sequence));
    receiver.handle_release(at(0), u64::MAX);
    ack(receiver)
}

#[test]
fn a_gap_gives_duplicate_acks_with_the_newest_block_first() {
    let mut receiver = Receiver::new(EVERY);
    assert_eq!(feed(&mut receiver, 0), Some((100, 1000, vec![])));
    assert_eq!(
        feed(&mut receiver, 200),
        Some((100, 1000, vec![(200, 300)]))
    );
    assert_eq!(
        feed(&mut receiver, 400),
        Some((100, 1000, vec![(400, 500), (200, 300)]))
    );
    assert_eq!(
        feed(&mut receiver, 600),
        Some((100, 1000, vec![(600, 700), (400, 500), (200, 300)]))
    );
    // Segment 300 joins two ranges: one block, and it is the newest.
    assert_eq!(
        feed(&mut receiver, 300),
        Some((100, 1000, vec![(200, 500), (600, 700)]))
    );
    assert_eq!(
        feed(&mut receiver, 100),
        Some((500, 1000, vec![(600, 700)]))
    );
    assert_eq!(feed(&mut receiver, 500), Some((700, 1000, vec![])));
    assert_eq!(feed(&mut receiver, 500), Some((700, 1000, vec![])));
    assert_eq!(receiver.counters().duplicate_segments, 1);
}

#[test]
fn the_second_segment_or_the_timer_brings_a_delayed_ack() {
    let mut receiver = Receiver::new(ReceiverConfiguration {
        acknowledge: AckRule::Delayed {
            segments: 2,
            timeout: TimeSpan::from_milliseconds(100),
        },
        ..EVERY
    });
    assert_eq!(feed(&mut receiver, 0), None);
    assert_eq!(receiver.poll_timeout(), Some((at(100), Timer::DelayedAck)));
    assert_eq!(feed(&mut receiver, 100), Some((200, 1000, vec![])));
    assert_eq!(receiver.poll_timeout(), None);
    receiver.handle_segment(at(50), &data(200));
    receiver.handle_release(at(0), u64::MAX);
    assert_eq!(ack(&mut receiver), None);
    receiver.handle_timeout(at(150));
    assert_eq!(ack(&mut receiver), Some((300, 1000, vec![])));
    // Data out of order, and data that fills the gap, is acknowledged at once.
    assert_eq!(
        feed(&mut receiver, 400),
        Some((300, 1000, vec![(400, 500)]))
    );
    assert_eq!(feed(&mut receiver, 300), Some((500, 1000, vec![])));
}

#[test]
fn a_window_that_closed_is_reported_when_it_opens() {
    let mut receiver = Receiver::new(ReceiverConfiguration {
        buffer: 300,
        ..EVERY
    });
    for (sequence, window) in [(0, 200), (100, 100), (200, 0)] {
        receiver.handle_segment(at(0), &data(sequence));
        assert_eq!(ack(&mut receiver), Some((sequence + 100, window, vec![])));
    }
    receiver.handle_segment(at(0), &data(300));
    assert_eq!(ack(&mut receiver), Some((300, 0, vec![])));
    assert_eq!(receiver.counters().bytes_beyond_window, 100);
    receiver.handle_release(at(0), 50);
    assert_eq!(ack(&mut receiver), None); // Too little to be worth a segment.
    receiver.handle_release(at(0), 100);
    assert_eq!(ack(&mut receiver), Some((300, 100, vec![])));
    receiver.handle_release(at(0), 150);
    assert_eq!(ack(&mut receiver), None);
    receiver.handle_release(at(0), 200);
    assert_eq!(ack(&mut receiver), Some((300, 200, vec![])));
    assert_eq!(receiver.counters().window_updates, 2);
}

#[test]
fn a_probe_and_a_syn_are_answered() {
    let mut receiver = Receiver::new(EVERY);
    for kind in [DataKind::Synchronise, DataKind::Probe] {
        let segment = Data {
            kind,
            sequence: 0,
            length: 0,
        };
        receiver.handle_segment(at(0), &segment);
        assert_eq!(ack(&mut receiver), Some((0, 1000, vec![])));
    }
}

/// Hasegawa Fig. 12: Linux 2.4 (client 2) advertises 5,840, 5,840, 8,816, 13,224, … bytes while
/// segments of 4,420 bytes less 12 of timestamps arrive.
#[test]
fn linux_2_4_advertises_what_figure_12_of_hasegawa_shows() {
    let mut receiver = Receiver::new(ReceiverConfiguration {
        buffer: 524_280,
        window_growth: WindowGrowth::Linux24,
        segment_size: 1460,
        ..EVERY
    });
    receiver.handle_segment(
        at(0),
        &Data {
            kind: DataKind::Synchronise,
            length: 0,
            ..data(0)
        },
    );
    let mut windows = vec![ack(&mut receiver).unwrap().1];
    for segment in 0..6 {
        let arriving = Data {
            length: 4408,
            ..data(segment * 4408)
        };
        receiver.handle_segment(at(0), &arriving);
        receiver.handle_release(at(0), u64::MAX);
        windows.push(ack(&mut receiver).unwrap().1);
    }
    assert_eq!(windows, [5840, 5840, 8816, 13224, 13224, 17632, 22040]);
}

#[test]
fn an_autotuned_window_doubles_what_was_read_in_a_round_trip() {
    let mut receiver = Receiver::new(ReceiverConfiguration {
        buffer: 100_000,
        window_growth: WindowGrowth::Autotuned { initial: 2000 },
        ..EVERY
    });
    assert_eq!(receiver.initial_window(), 2000);
    receiver.handle_segment(
        at(0),
        &Data {
            kind: DataKind::Synchronise,
            length: 0,
            ..data(0)
        },
    );
    assert_eq!(ack(&mut receiver), Some((0, 2000, vec![])));
    // The first data arrives 100 ms after the answer: this is the round trip.
    let mut sequence = 0;
    let mut arrive = |receiver: &mut Receiver, milliseconds: u64, segments: u64| {
        for _ in 0..segments {
            receiver.handle_segment(at(milliseconds), &data(sequence));
            receiver.handle_release(at(milliseconds), u64::MAX);
            sequence += 100;
        }
        ack(receiver).unwrap().1
    };
    assert_eq!(arrive(&mut receiver, 100, 10), 2000);
    // The first of these segments ends the round trip: 1,100 bytes were read in it, and Linux
    // starts from 1,000. (2 · 1,100 + 16 · 100) · (1 + 2 · 100 / 1,000)
    assert_eq!(arrive(&mut receiver, 200, 10), 4560);
    // The window does not grow again in the same round trip, or when no more data was read.
    assert_eq!(arrive(&mut receiver, 299, 1), 4560);
    assert_eq!(arrive(&mut receiver, 300, 45), 4560);
    // 4,500 bytes, compared with 1,100: (2 · 4,500 + 16 · 100) · (1 + 2 · 3,400 / 1,100)
    assert_eq!(arrive(&mut receiver, 400, 1), 76_127);
    assert_eq!(arrive(&mut receiver, 401, 700), 76_127);
    // Never beyond the buffer.
    assert_eq!(arrive(&mut receiver, 501, 1), 100_000);
    // An idle sender does not make it smaller.
    assert_eq!(arrive(&mut receiver, 900, 1), 100_000);
}

/// The numbers of the ACKs that segments of these sizes, in order and 1 ms apart, cause at once.
fn acknowledged(configuration: ReceiverConfiguration, lengths: &[u32]) -> Vec<u64> {
    let mut receiver = Receiver::new(configuration);
    let mut sequence = 0;
    let mut numbers = Vec::new();
    for (millisecond, length) in (0..).zip(lengths) {
        let now = Time::ZERO + TimeSpan::from_milliseconds(millisecond);
        let segment = Data {
            kind: DataKind::Payload,
            sequence,
            length: *length,
        };
        receiver.handle_segment(now, &segment);
        receiver.handle_release(now, u64::MAX);
        while let Some(ack) = receiver.poll_transmit() {
            numbers.push(ack.number);
        }
        sequence += u64::from(*length);
    }
    numbers
}

#[test]
fn a_bsd_acknowledges_two_of_three_segments_and_each_oversized_one() {
    let bsd = ReceiverConfiguration {
        acknowledge: AckRule::Bsd {
            timeout: TimeSpan::from_milliseconds(100),
        },
        ..ReceiverConfiguration::default()
    };
    let normal = acknowledged(bsd, &[1460; 9]);
    assert_eq!(normal, [2, 3, 5, 6, 8, 9].map(|segments| segments * 1460));
    let oversized = acknowledged(bsd, &[4420; 3]);
    assert_eq!(oversized, [4420, 8840, 13_260]);
}

#[test]
fn the_first_segments_are_acknowledged_quickly() {
    let quick = ReceiverConfiguration {
        acknowledge: AckRule::Delayed {
            segments: 2,
            timeout: TimeSpan::from_milliseconds(40),
        },
        quick_acks: 3,
        ..ReceiverConfiguration::default()
    };
    let numbers = acknowledged(quick, &[1460; 7]);
    assert_eq!(numbers, [1, 2, 3, 5, 7].map(|segments| segments * 1460));
}

#[test]
fn linux_24_takes_a_segment_whole_that_begins_inside_the_window() {
    let linux = ReceiverConfiguration {
        buffer: 63_712,
        window_growth: WindowGrowth::Linux24,
        acknowledge: AckRule::Every,
        ..ReceiverConfiguration::default()
    };
    let mut receiver = Receiver::new(linux);
    assert_eq!(receiver.window_edge(), 5840);
    for (sequence, taken) in [(0, 4420), (4420, 8840)] {
        let segment = Data {
            kind: DataKind::Payload,
            sequence,
            length: 4420,
        };
        receiver.handle_segment(Time::ZERO, &segment);
        assert_eq!(receiver.next(), taken);
    }
    assert_eq!(receiver.counters().bytes_beyond_window, 0);
}
