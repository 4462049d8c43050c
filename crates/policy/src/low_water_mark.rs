//! How much data of a fast bulk transfer arrives before the kernel reports it (`SO_RCVLOWAT`, the low-water mark
//! of a receive queue).
//!
//! Usually the kernel reports each arrival. At 1 Gbit/s and more, the proxy then wakes up for each 64 KB, reads, writes,
//! and wakes the receiver up. Fewer reports of more data cost less CPU time, as with the interrupt coalescing of
//! network devices. But data below the mark waits, so a mark is only set where this cannot delay much:
//!
//! | when | mark |
//! | --- | --- |
//! | a direction streams: it carries data, and the opposite direction has carried none meanwhile | what arrives in 1 ms, rounded down to a multiple of 32 KiB, at most 512 KiB |
//! | that is less than 64 KiB (below 0.53 Gbit/s), or the direction has streamed for less than 30 ms | none |
//! | the rate is more than 20 Gbit/s: the proxy seldom sleeps, and data that waits leaves the caches of the processor | none |
//! | nothing has been reported for a fiftieth of the time for which it has streamed, at most 2 ms | none: the rest is reported at once |
//!
//! So the end of a transfer, or an answer of a client that sends its next request afterwards, is delayed by at most a
//! fiftieth of its duration.

use midspan_units::{BitRate, Time, TimeSpan};

/// The mark is what arrives in this time …
const FILL: TimeSpan = TimeSpan::from_milliseconds(1);
/// … a multiple of this number of bytes …
const STEP: u64 = 32 << 10;
/// … at least this one, otherwise there is none, …
const LEAST: u64 = 64 << 10;
/// … and at most this one.
const MOST: u64 = 512 << 10;
/// Above this rate, there is no mark.
const FASTEST: BitRate = BitRate::from_bits_per_second(20_000_000_000).unwrap();
/// The rate is measured over at least this time.
const PERIOD: TimeSpan = TimeSpan::from_milliseconds(5);
/// The rest of a transfer waits for at most this part of its duration, as a divisor, …
const WAIT_PART: u64 = 50;
/// … and at most this time.
const MOST_WAIT: TimeSpan = TimeSpan::from_milliseconds(2);
/// A direction that has streamed for less has no mark: the wait would be shorter than the mark needs to fill.
const LEAST_STREAM: TimeSpan = TimeSpan::from_milliseconds(30);

/// The low-water mark of one direction of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LowWaterMark {
    /// Since when the direction streams, and how much the opposite direction had carried then.
    streams: (Time, u64),
    /// When the present measurement of the rate began, and how much the direction had carried then.
    period: (Time, u64),
    /// When data was last read.
    read_at: Time,
    /// The present mark in bytes; 0: none.
    mark: u64,
}

/// A change of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkChange {
    /// The mark from now on, in bytes.
    Set(u64),
    /// The kernel reports any data.
    Remove,
}

impl LowWaterMark {
    /// A direction that has carried `carried` bytes, and its opposite direction `opposite` bytes. It has no mark.
    #[must_use]
    pub const fn new(now: Time, [carried, opposite]: [u64; 2]) -> Self {
        Self {
            streams: (now, opposite),
            period: (now, carried),
            read_at: now,
            mark: 0,
        }
    }

    /// Whether there is a mark.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        self.mark > 0
    }

    /// Data has been read. Until now, the direction has carried `carried` bytes, and the opposite one `opposite`
    /// bytes.
    pub fn handle_read(&mut self, now: Time, [carried, opposite]: [u64; 2]) -> Option<MarkChange> {
        self.read_at = now;
        if self.streams.1 != opposite {
            (self.streams, self.period) = ((now, opposite), (now, carried));
            return self.change(0);
        }
        let (began, before) = self.period;
        let elapsed = now.since(began);
        if elapsed < PERIOD {
            return None;
        }
        self.period = (now, carried);
        let rate = BitRate::from_transfer(carried.saturating_sub(before), elapsed);
        let marked = rate.filter(|rate| *rate <= FASTEST);
        let arrives = marked.map_or(0, |rate| rate.bytes_in(FILL));
        let is_worth_it = arrives >= LEAST && now.since(self.streams.0) >= LEAST_STREAM;
        match is_worth_it {
            true => self.change((arrives / STEP * STEP).min(MOST)),
            false => self.change(0),
        }
    }

    /// When to [look](Self::handle_timeout) whether the rest has to be reported; `None` without a mark.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let streamed = self.read_at.since(self.streams.0);
        let wait = (streamed / WAIT_PART).min(MOST_WAIT);
        self.is_set().then(|| self.read_at + wait)
    }

    /// Removes the mark if nothing has been reported for too long.
    pub fn handle_timeout(&mut self, now: Time) -> Option<MarkChange> {
        let is_late = self.poll_timeout().is_some_and(|timeout| timeout <= now);
        is_late.then(|| self.change(0)).flatten()
    }

    fn change(&mut self, mark: u64) -> Option<MarkChange> {
        let before = std::mem::replace(&mut self.mark, mark);
        match mark {
            _ if mark == before => None,
            0 => Some(MarkChange::Remove),
            mark => Some(MarkChange::Set(mark)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(microseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_nanoseconds(1000 * microseconds)
    }

    /// A direction that carries this many bytes in each 100 µs, for this many times 100 µs; the changes, and when.
    fn stream(bytes: u64, times: u64) -> (LowWaterMark, Vec<(u64, MarkChange)>) {
        let mut mark = LowWaterMark::new(Time::ZERO, [0, 7]);
        let changes = (1..=times).filter_map(|time| {
            let change = mark.handle_read(at(100 * time), [bytes * time, 7]);
            change.map(|change| (100 * time, change))
        });
        let changes = changes.collect();
        (mark, changes)
    }

    #[test]
    fn a_fast_stream_gets_a_mark_by_its_rate() {
        // 14, 2.4 and 0.8 Gbit/s.
        for (bytes, mark) in [
            (175_000, 512 << 10),
            (30_000, 288 << 10),
            (10_000, 96 << 10),
        ] {
            assert_eq!(stream(bytes, 400).1, [(30_000, MarkChange::Set(mark))]);
        }
        // 0.48 and 24 Gbit/s.
        assert_eq!(stream(6_000, 1000).1, []);
        assert_eq!(stream(300_000, 1000).1, []);
        // Not yet.
        assert_eq!(stream(175_000, 299).1, []);
    }

    #[test]
    fn the_rest_of_a_stream_does_not_wait_long() {
        let (mut mark, _) = stream(175_000, 400);
        // A fiftieth of 40 ms.
        assert_eq!(mark.poll_timeout(), Some(at(40_800)));
        assert_eq!(mark.handle_timeout(at(40_799)), None);
        assert_eq!(mark.handle_timeout(at(40_800)), Some(MarkChange::Remove));
        assert_eq!((mark.poll_timeout(), mark.is_set()), (None, false));
        // The stream continues.
        let carried = 175_000 * 400;
        assert_eq!(mark.handle_read(at(41_000), [carried + 1_000_000, 7]), None);
        let change = mark.handle_read(at(45_100), [carried + 9_000_000, 7]);
        assert_eq!(change, Some(MarkChange::Set(512 << 10)));
        // After a long time, 2 ms.
        let (mark, _) = stream(175_000, 20_000);
        assert_eq!(mark.poll_timeout(), Some(at(2_002_000)));
    }

    #[test]
    fn answers_to_requests_get_no_mark_and_a_slower_stream_loses_it() {
        let (mut mark, _) = stream(175_000, 400);
        let carried = 175_000 * 400;
        let change = mark.handle_read(at(40_100), [carried, 8]);
        assert_eq!(change, Some(MarkChange::Remove));
        assert_eq!(mark.handle_read(at(69_000), [2 * carried, 8]), None);
        let (mut mark, _) = stream(175_000, 400);
        let change = mark.handle_read(at(50_000), [carried + 500_000, 7]);
        assert_eq!(change, Some(MarkChange::Remove));
    }

    proptest! {
        /// In every sequence of events, a mark has a bound, and data below it waits for at most a fiftieth of the time since
        /// the last data of the opposite direction.
        #[test]
        fn marks_are_bounded(
            steps in proptest::collection::vec((1_u64..20_000, 0_u64..100_000_000, 0_u64..8), 1..200),
        ) {
            let mut mark = LowWaterMark::new(Time::ZERO, [0, 0]);
            let (mut now, mut carried, mut opposite, mut last) = (0, 0, 0, 0);
            for (later, bytes, answers) in steps {
                now += later;
                if mark.poll_timeout().is_some_and(|timeout| timeout <= at(now)) {
                    prop_assert_eq!(mark.handle_timeout(at(now)), Some(MarkChange::Remove));
                }
                carried += bytes;
                if answers == 0 {
                    (opposite, last) = (opposite + 1, now);
                }
                match mark.handle_read(at(now), [carried, opposite]) {
                    Some(MarkChange::Set(bytes)) => prop_assert!((LEAST..=MOST).contains(&bytes)),
                    Some(MarkChange::Remove) => prop_assert!(!mark.is_set()),
                    None => {}
                }
                let wait = mark.poll_timeout().map_or(TimeSpan::ZERO, |timeout| timeout.since(at(now)));
                prop_assert!(wait <= MOST_WAIT && wait <= at(now).since(at(last)) / WAIT_PART);
            }
        }
    }
}
