//! Packet scripts: ACKs go in, and the expected segments were computed by hand.
//!
//! Segments have 1,000 bytes and are named by their numbers, from 0; times are in milliseconds.

mod limits;
mod rack;
mod rack_cubic;
mod recovery;
mod selective;
mod slow_start;
mod timeout;
mod window;

use super::Sender;
use crate::packet::{Acknowledgement, DataKind, SelectiveBlock, SelectiveBlocks};
use crate::tcp::{SenderConfiguration, Timer, Variant};
use midspan_units::{Time, TimeSpan};

const SEGMENT: u64 = 1000;

/// An initial window of ten segments, no handshake, and a clock that measures exactly.
fn configuration(variant: Variant) -> SenderConfiguration {
    SenderConfiguration {
        variant,
        segment_size: 1000,
        handshake: false,
        clock_granularity: TimeSpan::from_nanoseconds(1),
        minimum_timeout: TimeSpan::from_milliseconds(200),
        ..SenderConfiguration::default()
    }
}

/// A sender with endless data; the peer's window is always 1 MB.
struct Script {
    sender: Sender,
}

impl Script {
    fn new(configuration: SenderConfiguration) -> Self {
        let mut sender = Sender::new(configuration, 1_000_000);
        sender.handle_write(u64::MAX);
        sender.handle_open();
        Self { sender }
    }

    /// The segments that are sent now.
    fn sent(&mut self, now: u64) -> Vec<u64> {
        std::iter::from_fn(|| self.sender.poll_transmit(at(now)))
            .map(|data| {
                assert_eq!(data.kind, DataKind::Payload);
                assert_eq!(u64::from(data.length), SEGMENT);
                assert_eq!(data.sequence % SEGMENT, 0);
                data.sequence / SEGMENT
            })
            .collect()
    }

    /// The segments that an ACK releases: everything before segment `number` has arrived.
    fn ack(&mut self, now: u64, number: u64) -> Vec<u64> {
        self.sack(now, number, &[])
    }

    /// Like `ack`, with SACK blocks: ranges of segments, the newest first.
    fn sack(&mut self, now: u64, number: u64, ranges: &[(u64, u64)]) -> Vec<u64> {
        let mut blocks = SelectiveBlocks::default();
        for (start, end) in ranges {
            let offset = |segment: u64| u32::try_from((segment - number) * SEGMENT).unwrap();
            blocks.push(SelectiveBlock {
                start: offset(*start),
                end: offset(*end),
            });
        }
        let ack = Acknowledgement {
            number: number * SEGMENT,
            window_edge: 1_000_000,
            blocks,
        };
        self.sender.handle_acknowledgement(at(now), &ack);
        self.sent(now)
    }

    /// The next deadline passes: returns the time, the timer, and the segments that are sent.
    fn deadline(&mut self) -> (u64, Timer, Vec<u64>) {
        let (time, timer) = self.sender.poll_timeout().unwrap();
        self.sender.handle_timeout(time);
        let now = time.nanoseconds() / 1_000_000;
        (now, timer, self.sent(now))
    }

    /// cwnd and ssthresh, in bytes.
    fn windows(&self) -> (u64, Option<u64>) {
        (self.sender.cwnd(), self.sender.ssthresh())
    }
}

fn at(milliseconds: u64) -> Time {
    Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
}
